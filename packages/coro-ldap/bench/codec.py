"""Reading and writing one message with all its values as Python values: ours, pyasn1 and asn1crypto.

The messages are a certificate and an entry of a search with twenty attributes.  Ours reads both without a
schema, and so does pyasn1 the certificate.  For the entry pyasn1 and asn1crypto get one; asn1crypto has its own for
certificates.  What is written is what was read, all of it
encoded anew.  Ours writes a SET that was read as a SEQUENCE: the same work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _common import Figures, Stopwatch, main

CERTIFICATE = bytes.fromhex(
    "3082026230820209a0030201020214793fd7e9df6d5cc6bad9370321ea5d22dd2200c0300a06082a8648ce3d0403023055310b30090603"
    "55040613024445311d301b060355040a0c144578616d706c65204f7267616e69736174696f6e31123010060355040b0c09446972656374"
    "6f72793113301106035504030c0a4578616d706c65204341301e170d3236303130313030303030305a170d333630313031303030303030"
    "5a305b310b3009060355040613024445311d301b060355040a0c144578616d706c65204f7267616e69736174696f6e3112301006035504"
    "0b0c094469726563746f72793119301706035504030c106c6461702e6578616d706c652e6f72673059301306072a8648ce3d020106082a"
    "8648ce3d03010703420004f8942eb9c25c0a8eb6d17a43f9bc082c2a8f4759ea1f267a0cec9c885e3081c4989ec3a043e1957f1f93d783"
    "cbffc73a7f9ec688ee3de0363dd7c5e583f66a9ba381b03081ad302e0603551d110427302582106c6461702e6578616d706c652e6f7267"
    "82116c646170322e6578616d706c652e6f7267300c0603551d130101ff04023000300e0603551d0f0101ff040403020388301d0603551d"
    "250416301406082b0601050507030106082b06010505070302301d0603551d0e0416041408b46add45440c2d86fe36649986203953ca40"
    "ba301f0603551d2304183016801408b46add45440c2d86fe36649986203953ca40ba300a06082a8648ce3d040302034700304402207f25"
    "05e8244761da0cab54e26a6d03bf0f4165e623f86da048501bc40aaaadf8022057de7cc082f7ac59a2d7d0f9a4fe54acff3e0787cbcd0f"
    "9e75d76a9b5737c6ed"
)


def entry() -> bytes:
    """A SearchResultEntry (RFC 4511, 4.5.2) of twenty attributes with one or two values."""
    from pyasn1.codec.ber import encoder

    message = schema()
    message["id"] = 5
    message["found"]["name"] = "uid=user1234,ou=People,dc=example,dc=org"
    for number in range(20):
        message["found"]["attributes"][number]["type"] = f"attribute{number}"
        message["found"]["attributes"][number]["values"].extend(
            [f"value {number} of this attribute"] * (1 + number % 2)
        )
    return bytes(encoder.encode(message))


def schema() -> Any:
    """The message for pyasn1."""
    from pyasn1.type import namedtype, tag, univ

    named = namedtype.NamedType
    pair = univ.Sequence(
        componentType=namedtype.NamedTypes(
            named("type", univ.OctetString()), named("values", univ.SetOf(componentType=univ.OctetString()))
        )
    )
    found = univ.Sequence(
        componentType=namedtype.NamedTypes(
            named("name", univ.OctetString()), named("attributes", univ.SequenceOf(componentType=pair))
        )
    ).subtype(implicitTag=tag.Tag(tag.tagClassApplication, tag.tagFormatConstructed, 4))
    return univ.Sequence(componentType=namedtype.NamedTypes(named("id", univ.Integer()), named("found", found)))


def timed(call: Callable[[], Any], count: int) -> Figures:
    watch = Stopwatch()
    call()
    watch.start()
    for _ in range(count):
        call()
    watch.stop()
    return watch.figures(count)


def coro(what: str, count: int) -> Figures:
    from coro.asn1 import ber

    data = CERTIFICATE if what.endswith("certificate") else entry()
    value = ber.decode(data)[0]
    # So fast that the clock's steps would show.
    count *= 100
    if what.startswith("read"):
        return timed(lambda: ber.decode(data), count)
    assert len(ber.encode(value)) == len(data)
    return timed(lambda: ber.encode(value), count)


def pyasn1(what: str, count: int) -> Figures:
    from pyasn1.codec.ber import decoder, encoder

    data = CERTIFICATE if what.endswith("certificate") else entry()
    spec = None if what.endswith("certificate") else schema()
    value = decoder.decode(data, asn1Spec=spec)[0]
    if what.startswith("read"):
        return timed(lambda: decoder.decode(data, asn1Spec=spec), count)
    return timed(lambda: encoder.encode(value), count)


def asn1crypto(what: str, count: int) -> Figures:
    from asn1crypto import core, x509

    class Values(core.SetOf):  # type: ignore[misc]
        _child_spec = core.OctetString

    class Pair(core.Sequence):  # type: ignore[misc]
        _fields = [("type", core.OctetString), ("values", Values)]

    class Pairs(core.SequenceOf):  # type: ignore[misc]
        _child_spec = Pair

    class Found(core.Sequence):  # type: ignore[misc]
        class_ = 1
        tag = 4
        _fields = [("name", core.OctetString), ("attributes", Pairs)]

    class Message(core.Sequence):  # type: ignore[misc]
        _fields = [("id", core.Integer), ("found", Found)]

    data, kind = (CERTIFICATE, x509.Certificate) if what.endswith("certificate") else (entry(), Message)
    value = kind.load(data)
    assert value.native
    if what.startswith("read"):
        return timed(lambda: kind.load(data).native, count)
    return timed(lambda: value.dump(force=True), count)


if __name__ == "__main__":
    main({"coro": coro, "pyasn1": pyasn1, "asn1crypto": asn1crypto})
