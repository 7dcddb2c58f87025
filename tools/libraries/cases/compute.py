"""Libraries in C that compute and do not wait. They keep the other threads waiting while they do, and have to be right
when many threads use them."""

from __future__ import annotations

from typing import Any

from tools.libraries.work import Work, case, library


@case("numpy", compiled=True)
def numpy(work: Work) -> Any:
    module = library("numpy")

    def one(number: int) -> float:
        matrix = module.full((50, 50), number, dtype=float)
        with module.errstate(divide="ignore"):
            library("time").sleep(0.01)
            return float((matrix @ matrix).sum() + module.isinf(module.ones(3) / 0).sum())

    return work.at_once(one)


@case("lxml", compiled=True)
def lxml(work: Work) -> Any:
    etree = library("lxml.etree")

    def one(number: int) -> Any:
        root = etree.fromstring(f"<a><b n='{number}'/><b n='2'/></a>")
        library("time").sleep(0.01)
        try:
            etree.fromstring("<a>")
        except etree.XMLSyntaxError as error:
            return [root.xpath("sum(b/@n)"), error.code]

    return work.at_once(one)


@case("Pillow", compiled=True)
def pillow(work: Work) -> Any:
    image = library("PIL.Image")

    def one(number: int) -> Any:
        buffer = library("io").BytesIO()
        image.new("RGB", (64, 64), (number, 0, 0)).resize((32, 32)).save(buffer, "PNG")
        return image.open(buffer).getpixel((1, 1))

    return [list(pixel) for pixel in work.at_once(one)]


@case("cryptography", compiled=True)
def cryptography(work: Work) -> Any:
    fernet = library("cryptography.fernet")
    box = fernet.Fernet(fernet.Fernet.generate_key())

    def one(number: int) -> Any:
        try:
            box.decrypt(b"no token")
        except fernet.InvalidToken:
            return box.decrypt(box.encrypt(str(number).encode())).decode()

    return work.at_once(one)


@case("orjson", compiled=True)
def orjson(work: Work) -> Any:
    module = library("orjson")
    return work.at_once(lambda number: module.loads(module.dumps({"n": [number] * 50})))


@case("msgpack", compiled=True)
def msgpack(work: Work) -> Any:
    module = library("msgpack")
    return work.at_once(lambda number: module.unpackb(module.packb({"n": [number] * 50})))


@case("PyYAML", compiled=True)
def yaml(work: Work) -> Any:
    module = library("yaml")
    return work.at_once(lambda number: module.safe_load(module.safe_dump({"n": list(range(number))})))


@case("protobuf", compiled=True)
def protobuf(work: Work) -> Any:
    struct = library("google.protobuf.struct_pb2").Struct

    def one(number: int) -> Any:
        message, again = struct(), struct()
        message["n"] = number
        again.ParseFromString(message.SerializeToString())
        return again["n"]

    return work.at_once(one)
