"""Writes the codec in Cython (`_spec_codec.pyx`), what other modules cimport of it (`.pxd`), and its types (`.pyi`).

Each method gets `pack_NAME(arguments) -> bytes` and `unpack_NAME(data, pos) -> tuple` for Python. The hot ones get
`put_NAME` and `get_NAME` in C besides, where strings that came in are pointers into the frame. Properties get a writer
from a mapping and a reader into a dict.
"""

from __future__ import annotations

from .schema import Class, Field, Method, Schema
from .writing import PYTHON_TYPES, function, groups, is_hot, origin

#: Type -> the reader of the values module, as an expression.
_READ = {
    "octet": "get_u8(c)",
    "short": "get_u16(c)",
    "long": "get_u32(c)",
    "longlong": "get_u64(c)",
    "timestamp": "get_u64(c)",
    "shortstr": "get_shortstr(c)",
    "longstr": "get_longstr(c)",
    "table": "get_table(c)",
}
_WRITE = {
    "octet": "put_u8",
    "short": "put_u16",
    "long": "put_u32",
    "longlong": "put_u64",
    "timestamp": "put_timestamp",
    "shortstr": "put_shortstr",
    "longstr": "put_longstr",
    "table": "put_table",
}
#: Type -> C type of a hot field; None where it is a Python object.
_C_TYPES = {
    "bit": "bint",
    "octet": "uint8_t",
    "short": "uint16_t",
    "long": "uint32_t",
    "longlong": "uint64_t",
    "timestamp": "uint64_t",
    "shortstr": "text",
}
_SIZES = {"octet": 1, "short": 2, "long": 4, "longlong": 8, "timestamp": 8}
#: Fields that are the same in every message of any client, and so no parameter of the hot writers.
_FIXED = {"ticket": "0"}


def _hot(schema: Schema) -> list[tuple[Class, Method]]:
    return [(owner, method) for owner, method in schema.methods() if is_hot(owner, method) and _possible(method)]


def _possible(method: Method) -> bool:
    return all(field.type in _C_TYPES for field in method.fields)


def _with_properties(schema: Schema) -> list[Class]:
    return [each for each in schema.classes if each.properties]


def pxd(schema: Schema) -> str:
    """The text of _spec_codec.pxd."""
    lines = [*(f"# {line}" for line in origin(schema)), "# cython: language_level=3"]
    lines += ["from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t", ""]
    lines += ["from coro.amqp._values cimport Output, cursor, text", ""]
    for owner, method in _hot(schema):
        lines += ["", f"cdef struct {function(owner, method)}:"]
        lines += [f"    {_C_TYPES[field.type]} {field.attribute}" for field in method.fields]
    lines.append("")
    for owner, method in _hot(schema):
        name = function(owner, method)
        lines += ["", *_signature(f"cdef int put_{name}", _c_parameters(method), " except -1")]
        lines.append(f"cdef int get_{name}(cursor *c, {name} *into) except -1")
    for each in _with_properties(schema):
        lines += ["", f"cdef int put_{each.attribute}_properties(Output o, object mapping) except -1"]
        lines.append(f"cdef dict get_{each.attribute}_properties(cursor *c)")
    return "\n".join(lines) + "\n"


def pyx(schema: Schema) -> str:
    """The text of _spec_codec.pyx."""
    lines = [
        "# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True",
        "# cython: embedsignature.format=clinic",
        '"""Every method of AMQP to bytes and back; the hot ones and the properties from C, too.',
        "",
        *origin(schema),
        '"""',
        "",
        "from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t",
        "from libc.string cimport memcpy",
        "",
        "from coro.amqp._values cimport (",
    ]
    names = ["Output", "cursor", "get_longstr", "get_shortstr", "get_table", "get_text", "get_u16", "get_u32"]
    names += [
        "get_u64",
        "get_u8",
        "need",
        "put_longstr",
        "put_shortstr",
        "put_table",
        "put_timestamp",
        "put_u16",
        "put_u32",
        "put_u64",
        "put_u8",
    ]
    names += ["read_u16", "read_u32", "read_u64", "text", "write_u16", "write_u32", "write_u64"]
    lines += [f"    {name}," for name in names]
    lines += [")", "", "from coro.amqp.exceptions import EncodeError, ProtocolError", ""]
    lines += _helpers()
    for owner, method in schema.methods():
        lines += _pack(owner, method) + _unpack(owner, method)
    for owner, method in _hot(schema):
        lines += _put_hot(owner, method) + _get_hot(owner, method)
    for each in _with_properties(schema):
        lines += _properties(each)
    return "\n".join(lines) + "\n"


def _signature(head: str, parameters: list[str], tail: str) -> list[str]:
    """A head of a function, on several lines where one would be too long."""
    line = f"{head}({', '.join(parameters)}){tail}"
    if len(line) <= 120:
        return [line]
    inner = ", ".join(parameters)
    if len(inner) <= 116:
        return [f"{head}(", f"    {inner}", f"){tail}"]
    return [f"{head}(", *(f"    {parameter}," for parameter in parameters), f"){tail}"]


def _helpers() -> list[str]:
    return [
        "",
        "cdef int begin(cursor *c, const unsigned char[::1] data, Py_ssize_t pos, int depth) except -1:",
        "    cdef Py_ssize_t n = data.shape[0]",
        "    if pos < 0 or pos > n:",
        '        raise ProtocolError(f"expected a position from 0 to {n}, got {pos}", 502)',
        '    c.at = (&data[0] if n else <const unsigned char *>b"") + pos',
        "    c.end = c.at + (n - pos)",
        "    c.depth = depth",
        "    return 0",
    ]


def _put_lines(fields: tuple[Field, ...], name: str) -> list[str]:
    lines = []
    for group in groups(fields):
        first = group[0]
        if first.type == "bit":
            lines += _bits(group)
        else:
            lines.append(f'    {_WRITE[first.type]}(o, {first.attribute}, "{name} {first.name}")')
    return lines


def _bits(group: tuple[Field, ...]) -> list[str]:
    bits = [f"({1 << i} if {field.attribute} else 0)" for i, field in enumerate(group)]
    line = f"    o.extend(1)[0] = {' | '.join(bits)}"
    if len(line) <= 120:
        return [line]
    return ["    o.extend(1)[0] = (", f"        {bits[0]}", *(f"        | {bit}" for bit in bits[1:]), "    )"]


def _pack(owner: Class, method: Method) -> list[str]:
    name = function(owner, method)
    parameters = [field.attribute for field in method.fields]
    ids = f"0x{owner.id:04x}{method.id:04x}"
    lines = ["", "", *_signature(f"def pack_{name}", parameters, ":")]
    lines += ["    cdef Output o = Output.__new__(Output)", f"    write_u32(o.extend(4), {ids})"]
    return [*lines, *_put_lines(method.fields, f"{owner.name}.{method.name}"), "    return o.take()"]


def _unpack(owner: Class, method: Method) -> list[str]:
    name = function(owner, method)
    lines = ["", "", f"def unpack_{name}(const unsigned char[::1] data, Py_ssize_t pos=0, int depth=16):"]
    lines += ["    cdef cursor at", "    cdef cursor *c = &at"]
    if any(field.type == "bit" for field in method.fields):
        lines.append("    cdef uint8_t bits")
    lines.append("    begin(c, data, pos, depth)")
    for group in groups(method.fields):
        if group[0].type == "bit":
            lines.append("    bits = get_u8(c)")
            lines += [f"    {field.attribute} = (bits & {1 << i}) != 0" for i, field in enumerate(group)]
        else:
            lines.append(f"    {group[0].attribute} = {_READ[group[0].type]}")
    values = ", ".join(field.attribute for field in method.fields) + ("," if len(method.fields) == 1 else "")
    lines.append(f"    return ({values})")
    return lines


def _c_parameters(method: Method) -> list[str]:
    parameters = ["Output o"]
    for field in method.fields:
        if field.name not in _FIXED:
            kind = "object" if field.type == "shortstr" else _C_TYPES[field.type]
            parameters.append(f"{kind} {field.attribute}")
    return parameters


def _put_hot(owner: Class, method: Method) -> list[str]:
    name = function(owner, method)
    lines = ["", "", *_signature(f"cdef int put_{name}", _c_parameters(method), " except -1:")]
    lines.append(f'    """{owner.name}.{method.name} with its numbers."""')
    lines.append(f"    write_u32(o.extend(4), 0x{owner.id:04x}{method.id:04x})")
    for group in groups(method.fields):
        first = group[0]
        if first.type == "bit":
            lines += _bits(group)
        elif first.type == "shortstr":
            lines.append(f'    put_shortstr(o, {first.attribute}, "{owner.name}.{method.name} {first.name}")')
        else:
            size = _SIZES[first.type]
            value = _FIXED.get(first.name, first.attribute)
            wide = f"    write_u{size * 8}(o.extend({size}), {value})"
            lines.append(f"    o.extend(1)[0] = {value}" if size == 1 else wide)
    return [*lines, "    return 0"]


def _get_hot(owner: Class, method: Method) -> list[str]:
    name = function(owner, method)
    lines = ["", "", f"cdef int get_{name}(cursor *c, {name} *into) except -1:"]
    lines.append('    """The arguments behind the numbers. Strings point into the frame."""')
    if any(field.type == "bit" for field in method.fields):
        lines.append("    cdef uint8_t bits")
    for group in groups(method.fields):
        first = group[0]
        if first.type == "bit":
            lines.append("    bits = get_u8(c)")
            lines += [f"    into.{field.attribute} = (bits & {1 << i}) != 0" for i, field in enumerate(group)]
        elif first.type == "shortstr":
            lines.append(f"    get_text(c, &into.{first.attribute})")
        else:
            lines.append(f"    into.{first.attribute} = {_READ[first.type]}")
    return [*lines, "    return 0"]


def _properties(each: Class) -> list[str]:
    index = f"{each.attribute.upper()}_INDEX"
    lines = ["", "", "# Name in either spelling -> place in the order of the flags.", f"cdef dict {index} = {{"]
    for i, field in enumerate(each.properties):
        lines.append(f'    "{field.name}": {i},')
        if "-" in field.name:
            lines.append(f'    "{field.name.replace("-", "_")}": {i},')
    lines += ["}", "", "", f"cdef int put_{each.attribute}_properties(Output o, object mapping) except -1:"]
    lines.append('    """Flags and values of what a mapping has; None is nothing. EncodeError for an unknown name."""')
    lines += ["    cdef Py_ssize_t start = o.size", "    cdef unsigned int flags = 0", "    cdef int i"]
    lines.append(f"    cdef list values = [None] * {len(each.properties)}")
    lines += ["    o.extend(2)", "    if not isinstance(mapping, dict):", "        try:"]
    lines.append("            mapping = dict(mapping)")
    lines += ["        except (TypeError, ValueError):"]
    lines.append("            kind = type(mapping).__name__")
    lines.append('            raise EncodeError(f"properties: expected a dict, got {kind}") from None')
    lines += ["    for key, value in (<dict>mapping).items():", "        if value is None:", "            continue"]
    lines += [f"        place = {index}.get(key)", "        if place is None:"]
    lines.append('            known = ", ".join(name for name in ' + index + ' if "_" not in name)')
    lines.append('            raise EncodeError(f"properties: expected names among {known}, got {key!r}")')
    lines += ["        i = place", "        if flags & (0x8000 >> i):"]
    lines.append('            raise EncodeError(f"properties: {key!r} is given in both spellings; leave one out")')
    lines += ["        flags |= 0x8000 >> i", "        values[i] = value", "    write_u16(o.data + start, flags)"]
    for i, field in enumerate(each.properties):
        lines.append(f"    if flags & 0x{0x8000 >> i:04x}:")
        lines.append(f'        {_WRITE[field.type]}(o, values[{i}], "property {field.name}")')
    lines += ["    return 0", "", "", f"cdef dict get_{each.attribute}_properties(cursor *c):"]
    unused = (1 << (16 - len(each.properties))) - 1
    lines.append('    """What the flags say is there, by name."""')
    lines += ["    cdef unsigned int flags = get_u16(c)", "    cdef dict found = {}"]
    lines.append(f"    if flags & 0x{unused:04x}:")
    lines.append('        raise ProtocolError(f"expected flags of properties that exist, got {flags:#06x}", 502)')
    for i, field in enumerate(each.properties):
        lines += [f"    if flags & 0x{0x8000 >> i:04x}:", f'        found["{field.name}"] = {_READ[field.type]}']
    return [*lines, "    return found"]


def pyi(schema: Schema) -> str:
    """The text of _spec_codec.pyi."""
    lines = [*(f"# {line}" for line in origin(schema))]
    if any(field.type == "table" for _, method in schema.methods() for field in method.fields):
        lines += ["", "from typing import Any"]
    lines.append("")
    for owner, method in schema.methods():
        name = function(owner, method)
        kinds = [PYTHON_TYPES[field.type] for field in method.fields]
        given = [f"{field.attribute}: {kind}" for field, kind in zip(method.fields, kinds, strict=True)]
        lines += _stub(f"def pack_{name}", given, "bytes")
        result = f"tuple[{', '.join(kinds)}]" if kinds else "tuple[()]"
        lines += _stub(f"def unpack_{name}", ["data: bytes", "pos: int = 0", "depth: int = 16"], result)
    return "\n".join(lines) + "\n"


def _stub(head: str, parameters: list[str], result: str) -> list[str]:
    line = f"{head}({', '.join(parameters)}) -> {result}: ..."
    if len(line) <= 120:
        return [line]
    inner = f"    {', '.join(parameters)}"
    if len(inner) <= 120 and len(f") -> {result}: ...") <= 120:
        return [f"{head}(", inner, f") -> {result}: ..."]
    return [f"{head}(", *(f"    {parameter}," for parameter in parameters), f") -> {result}: ..."]
