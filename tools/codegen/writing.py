"""What the writers of Python and of Cython share: the heads of files, and the types of fields."""

from __future__ import annotations

from .schema import Class, Field, Method, Schema

#: Methods of which millions pass: they are read into C structures and written from C, without an object in between.
HOT = (
    ("basic", "publish"),
    ("basic", "deliver"),
    ("basic", "get-ok"),
    ("basic", "return"),
    ("basic", "ack"),
    ("basic", "nack"),
    ("basic", "reject"),
)

#: Type -> what it is in Python.
PYTHON_TYPES = {
    "bit": "bool",
    "octet": "int",
    "short": "int",
    "long": "int",
    "longlong": "int",
    "timestamp": "int",
    "shortstr": "str",
    "longstr": "bytes",
    "table": "dict[str, Any]",
}


def origin(schema: Schema) -> list[str]:
    """The lines that say where a file comes from."""
    version = "-".join(map(str, schema.version))
    return [
        f"Made from {schema.file} (AMQP {version}), whose SHA-256 is",
        f"{schema.digest}.",
        f"Do not change it by hand: `python -m tools.codegen PATH/{schema.file}` makes it again.",
    ]


def function(owner: Class, method: Method) -> str:
    """The part of a name that stands for a method: `queue_declare_ok`, `basic_return`."""
    return f"{owner.name}_{method.name}".replace("-", "_").replace(" ", "_")


def is_hot(owner: Class, method: Method) -> bool:
    """Is it one of HOT?"""
    return (owner.name, method.name) in HOT


def groups(fields: tuple[Field, ...]) -> list[tuple[Field, ...]]:
    """The fields as they lie in a frame: bits that follow one another share octets, up to eight in each."""
    found: list[list[Field]] = []
    for field in fields:
        last = found[-1] if found else None
        if field.type == "bit" and last is not None and last[0].type == "bit" and len(last) < 8:
            last.append(field)
        else:
            found.append([field])
    return [tuple(group) for group in found]
