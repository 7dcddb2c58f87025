"""Reads RabbitMQ's machine-readable description of AMQP: JSON in, checked data classes out.

The file is `amqp-rabbitmq-0.9.1.json` of RabbitMQ's code generator. Also read are the variations of its sibling for
0-8: no `revision`, arguments and properties with `type` where the newer one has `domain`, domains as a table instead of
a list of pairs, arguments without default values, methods without `arguments`, and methods marked as `deprecated`.

Whatever is wrong is a `SchemaError` whose message begins with the place in the file. Nothing is guessed: a damaged file
must not become a codec that is wrong in one field.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import keyword
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: The elementary types, and what a default value of each has to be in JSON.
TYPES: dict[str, tuple[type, ...]] = {
    "bit": (bool,),
    "octet": (int,),
    "short": (int,),
    "long": (int,),
    "longlong": (int,),
    "timestamp": (int,),
    "shortstr": (str,),
    "longstr": (str,),
    "table": (dict,),
}
#: The range of each number.
MOST = {"octet": 2**8 - 1, "short": 2**16 - 1, "long": 2**32 - 1, "longlong": 2**64 - 1, "timestamp": 2**64 - 1}
#: Attributes that every method has; a field of that name gets an underscore, as Python's keywords do.
OF_METHODS = frozenset({"id", "pack", "unpack", "synchronous", "content", "fields"})
#: Names that the functions made here use themselves: parameters, variables, and what they call.
IN_OUTPUT = frozenset(
    {"self", "cls", "Any", "Self", "REQUIRED", "bool", "bytes", "dict", "int", "str"}
    | {"o", "c", "at", "data", "pos", "depth", "bits", "begin", "into", "text", "cursor", "Output"}
    | {f"{verb}_{kind}" for verb in ("get", "put", "read", "write") for kind in ("u8", "u16", "u32", "u64")}
    | {f"{verb}_{kind}" for verb in ("get", "put") for kind in ("shortstr", "longstr", "table", "timestamp", "text")}
)
#: Names that a module or a class of spec.py has already.
IN_SPEC = frozenset({"id", "annotations", "_codec", "Any", "ClassVar", "Method", "REQUIRED", "Self", "method_map"})
#: One word of flags; its lowest bit says that another word follows (specification, 4.2.6.1).
MOST_PROPERTIES = 15


class SchemaError(Exception):
    """The file is not a description of AMQP as expected; the message says where, what was expected, what is there."""


@dataclasses.dataclass(frozen=True)
class Field:
    """An argument of a method, or a property."""

    name: str  # as in the file
    attribute: str  # for Python
    type: str  # a key of TYPES
    required: bool  # it has no default value
    default: Any


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of a class."""

    name: str
    attribute: str
    id: int
    fields: tuple[Field, ...]
    synchronous: bool
    content: bool
    deprecated: bool


@dataclasses.dataclass(frozen=True)
class Class:
    """A class of AMQP."""

    name: str
    attribute: str
    id: int
    methods: tuple[Method, ...]
    properties: tuple[Field, ...]


@dataclasses.dataclass(frozen=True)
class Schema:
    """What a file describes."""

    file: str  # its name, without folders
    digest: str  # SHA-256 of its bytes
    version: tuple[int, int, int]
    port: int
    constants: tuple[tuple[str, int, str], ...]  # name in Python, number, kind of error ("" if none)
    classes: tuple[Class, ...]

    def methods(self) -> Iterator[tuple[Class, Method]]:
        """All methods, in the order of the file."""
        for each in self.classes:
            for method in each.methods:
                yield each, method


def load(path: Path) -> Schema:
    """Read a file. SchemaError if it cannot be read or is not what it should be."""
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise SchemaError(f"{path}: expected a file that can be read: {exc.strerror}") from exc
    return parse(data, path.name)


def parse(data: bytes, name: str) -> Schema:
    """The same for the contents of a file named `name`."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise SchemaError(f"{name}: expected JSON: {exc}; get the file again") from exc
    return _Reader(name).schema(content, hashlib.sha256(data).hexdigest())


class _Reader:
    def __init__(self, file: str) -> None:
        self._file = file
        self._domains: dict[str, str] = {}

    def _fail(self, where: str, expected: str, got: object) -> SchemaError:
        text = json.dumps(got, default=repr)
        shown = text if len(text) <= 80 else text[:77] + "..."
        return SchemaError(f"{self._file}: {where or 'top level'}: expected {expected}, got {shown}")

    def _table(self, value: object, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._fail(where, "an object", value)
        return value

    def _list(self, value: object, where: str) -> list[Any]:
        if not isinstance(value, list):
            raise self._fail(where, "a list", value)
        return value

    def _name(self, entry: dict[str, Any], where: str) -> str:
        name = entry.get("name")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9 -]*", name):
            raise self._fail(f"{where}.name", "a name of letters, digits and hyphens", name)
        return name

    def _number(self, entry: dict[str, Any], key: str, where: str, most: int = 0xFFFF, least: int = 0) -> int:
        value = entry.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._fail(f"{where}.{key}".lstrip("."), f"a number from {least} to {most}", value)
        return value

    def _flag(self, entry: dict[str, Any], key: str, where: str) -> bool:
        value = entry.get(key, False)
        if not isinstance(value, bool):
            raise self._fail(f"{where}.{key}", "true or false", value)
        return value

    def schema(self, content: object, digest: str) -> Schema:
        top = self._table(content, "")
        if top.get("name") != "AMQP":
            raise self._fail("name", '"AMQP"', top.get("name"))
        version = (
            self._number(top, "major-version", "", 255),
            self._number(top, "minor-version", "", 255),
            self._number(top, "revision", "", 255) if "revision" in top else 0,
        )
        port = self._number(top, "port", "", 0xFFFF, 1)
        self._read_domains(top.get("domains", []))
        constants = self._constants(top.get("constants"))
        entries = self._list(top.get("classes"), "classes")
        if not entries:
            raise self._fail("classes", "at least one class", entries)
        classes = tuple(self._class(entry, f"classes[{i}]") for i, entry in enumerate(entries))
        self._distinct("classes", [(each.id, each.name) for each in classes])
        names = [name for name, _, _ in constants] + [each.attribute for each in classes]
        for name in names:
            if names.count(name) > 1:
                raise self._fail("constants and classes", "different names", name)
        return Schema(self._file, digest, version, port, constants, classes)

    def _distinct(self, where: str, pairs: list[tuple[int, str]]) -> None:
        for place, kind in ((0, "numbers"), (1, "names")):
            values = [pair[place] for pair in pairs]
            for value in values:
                if values.count(value) > 1:
                    raise self._fail(where, f"different {kind}", value)

    def _read_domains(self, domains: object) -> None:
        pairs = list(domains.items()) if isinstance(domains, dict) else self._list(domains, "domains")
        for i, pair in enumerate(pairs):
            where = f"domains[{i}]"
            if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
                raise self._fail(where, "a pair of a name and a type", pair)
            if pair[1] not in TYPES:
                raise self._fail(where, f"one of the types {', '.join(TYPES)}", pair[1])
            self._domains[pair[0]] = pair[1]

    def _constants(self, constants: object) -> tuple[tuple[str, int, str], ...]:
        found = []
        for i, value in enumerate(self._list(constants, "constants")):
            where = f"constants[{i}]"
            entry = self._table(value, where)
            name = re.sub(r"[- ]", "_", self._name(entry, where)).upper()
            kind = entry.get("class", "")
            if not isinstance(kind, str):
                raise self._fail(f"{where}.class", "a word", kind)
            found.append((name, self._number(entry, "value", where), kind))
        return tuple(found)

    def _class(self, value: object, where: str) -> Class:
        entry = self._table(value, where)
        name = self._name(entry, where)
        where = f"class {name}"
        if _attribute(name) in IN_SPEC:
            raise self._fail(where, "a name that spec.py does not use", name)
        number = self._number(entry, "id", where, least=1)
        methods = tuple(
            self._method(each, f"{where}.methods[{i}]", where)
            for i, each in enumerate(self._list(entry.get("methods"), f"{where}.methods"))
        )
        self._distinct(where, [(method.id, method.name) for method in methods])
        properties = tuple(
            self._field(each, f"{where}.properties[{i}]")
            for i, each in enumerate(self._list(entry.get("properties", []), f"{where}.properties"))
        )
        self._distinct_names(f"{where}.properties", properties)
        if len(properties) > MOST_PROPERTIES:
            raise self._fail(f"{where}.properties", f"at most {MOST_PROPERTIES}", len(properties))
        if any(field.type == "bit" for field in properties):
            raise self._fail(f"{where}.properties", "no property of type bit", "bit")
        return Class(name, _attribute(name), number, methods, properties)

    def _method(self, value: object, where: str, owner: str) -> Method:
        entry = self._table(value, where)
        name = self._name(entry, where)
        where = f"{owner}, method {name}"
        fields = tuple(
            self._field(each, f"{where}.arguments[{i}]")
            for i, each in enumerate(self._list(entry.get("arguments", []), f"{where}.arguments"))
        )
        self._distinct_names(where, fields)
        for field in fields:
            if field.attribute in IN_OUTPUT:
                raise self._fail(where, "arguments with names that the code made here does not use", field.name)
        if _attribute(name) in IN_SPEC:
            raise self._fail(where, "a name that spec.py does not use", name)
        return Method(
            name,
            _attribute(name),
            self._number(entry, "id", where, least=1),
            fields,
            self._flag(entry, "synchronous", where),
            self._flag(entry, "content", where),
            self._flag(entry, "deprecated", where),
        )

    def _distinct_names(self, where: str, fields: tuple[Field, ...]) -> None:
        names = [field.attribute for field in fields]
        for name in names:
            if names.count(name) > 1:
                raise self._fail(where, "different names", name)

    def _field(self, value: object, where: str) -> Field:
        entry = self._table(value, where)
        name = self._name(entry, where)
        said = entry.get("type", entry.get("domain"))
        kind = said if isinstance(said, str) and said in TYPES else self._domains.get(str(said))
        if kind is None:
            raise self._fail(f"{where} ({name})", "a `type` or a `domain` that the file defines", said)
        required = "default-value" not in entry
        default = entry.get("default-value")
        if not required:
            default = self._default(default, kind, f"{where} ({name}).default-value")
        return Field(name, _attribute(name, OF_METHODS), kind, required, default)

    def _default(self, value: Any, kind: str, where: str) -> Any:
        if kind == "bit" and value in (0, 1):
            return bool(value)
        fits = isinstance(value, TYPES[kind]) and (kind == "bit" or not isinstance(value, bool))
        if not fits:
            raise self._fail(where, f"a value of type {kind}", value)
        if kind in MOST and not 0 <= value <= MOST[kind]:
            raise self._fail(where, f"a number from 0 to {MOST[kind]}", value)
        if kind == "shortstr" and len(value.encode()) > 255:
            raise self._fail(where, "at most 255 bytes", value)
        if kind == "table" and value:
            raise self._fail(where, "an empty table", value)
        return value


def _attribute(name: str, taken: frozenset[str] = frozenset()) -> str:
    """The name in Python: `declare-ok` is `declare_ok`, `return` is `_return`."""
    attribute = re.sub(r"[- ]", "_", name)
    return f"_{attribute}" if keyword.iskeyword(attribute) or attribute in taken else attribute
