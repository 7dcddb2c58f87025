"""Writes `spec.py`: constants, a class for each method with typed slots, tables of properties."""

from __future__ import annotations

from .schema import Class, Field, Method, Schema
from .writing import PYTHON_TYPES, function, origin


def spec(schema: Schema) -> str:
    """The text of spec.py."""
    lines = [
        '"""The constants, methods and properties of AMQP: a class for each method, its arguments as slots.',
        "",
        *origin(schema),
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Any, ClassVar, Self",
        "",
        "from coro.amqp import _spec_codec as _codec",
        "from coro.amqp._method import REQUIRED, Method",
        "",
        f"VERSION = {schema.version!r}",
        f"PORT = {schema.port}",
        "",
    ]
    for name, value, kind in schema.constants:
        lines.append(f"{name} = {value}" + (f"  # {kind}" if kind else ""))
    for each in schema.classes:
        lines += _class(each)
    lines += ["", "", "#: (class id, method id) -> the class of the method."]
    lines.append("method_map: dict[tuple[int, int], type[Method]] = {")
    for owner, method in schema.methods():
        name = f"{owner.attribute}.{method.attribute}"
        lines.append(f"    ({owner.id}, {method.id}): {name},")
    lines.append("}")
    return "\n".join(lines) + "\n"


def _class(each: Class) -> list[str]:
    lines = ["", "", f"class {each.attribute}:", f'    """Class {each.id}, {each.name}."""', ""]
    lines.append(f"    id: ClassVar[int] = {each.id}")
    for method in each.methods:
        lines += _method(each, method)
    if each.properties:
        lines += _properties(each)
    return lines


def _method(owner: Class, method: Method) -> list[str]:
    kind = "synchronous" if method.synchronous else "asynchronous"
    title = f"{owner.name}.{method.name}: {kind}" + (", with content" if method.content else "")
    title += ", deprecated" if method.deprecated else ""
    slots = ", ".join(f'"{field.attribute}"' for field in method.fields) + ("," if len(method.fields) == 1 else "")
    ids = f"({owner.id}, {method.id})"
    lines = [
        "",
        f"    class {method.attribute}(Method):",
        f'        """{title}."""',
        "",
        *_tuple("__slots__", slots, method),
        f'        _name: ClassVar[str] = "{owner.name}.{method.attribute.lstrip("_")}"',
        f"        id: ClassVar[tuple[int, int]] = {ids}",
    ]
    if method.synchronous:
        lines.append("        synchronous: ClassVar[bool] = True")
    if method.content:
        lines.append("        content: ClassVar[bool] = True")
    if method.fields:
        lines += ["", "        def __init__(", "            self,"]
        lines += [f"            {_parameter(field)}," for field in method.fields]
        lines.append("        ) -> None:")
        lines += [f"            self.{field.attribute} = {_initial(field)}" for field in method.fields]
    name = function(owner, method)
    given = [f"self.{field.attribute}" for field in method.fields]
    lines += ["", "        def pack(self) -> bytes:"]
    call = f"            return _codec.pack_{name}({', '.join(given)})"
    if len(call) > 120:
        lines += [f"            return _codec.pack_{name}("]
        lines += [f"                {value}," for value in given] + ["            )"]
    else:
        lines.append(call)
    lines += [
        "",
        "        @classmethod",
        "        def unpack(cls, data: bytes, pos: int = 0) -> Self:",
        f"            return cls(*_codec.unpack_{name}(data, pos))",
    ]
    return lines


def _tuple(name: str, values: str, method: Method) -> list[str]:
    line = f"        {name} = ({values})"
    if len(line) <= 120:
        return [line]
    return [f"        {name} = (", *(f'            "{field.attribute}",' for field in method.fields), "        )"]


def _parameter(field: Field) -> str:
    kind = PYTHON_TYPES[field.type]
    if field.type == "table" and not field.required:
        return f"{field.attribute}: {kind} | None = None"
    if field.required:
        return f"{field.attribute}: {kind} = REQUIRED"
    return f"{field.attribute}: {kind} = {_literal(field)}"


def _literal(field: Field) -> str:
    if field.type == "longstr":
        return _quoted(repr(field.default.encode()))
    if field.type == "shortstr":
        return _quoted(repr(field.default))
    return repr(field.default)


def _quoted(text: str) -> str:
    """With double quotes, where the formatter puts them."""
    prefix, body = ("b", text[1:]) if text.startswith("b") else ("", text)
    return f'{prefix}"{body[1:-1]}"' if '"' not in body else text


def _initial(field: Field) -> str:
    if field.type == "table" and not field.required:
        return f"{{}} if {field.attribute} is None else {field.attribute}"
    return field.attribute


def _properties(each: Class) -> list[str]:
    lines = [
        "",
        "    class properties:",
        f'        """The properties of a message of class {each.name}, in the order of their bits."""',
        "",
        f"        n_properties: ClassVar[int] = {len(each.properties)}",
        "        #: Bit of the flags -> name and type.",
        "        bit_map: ClassVar[dict[int, tuple[str, str]]] = {",
    ]
    for i, field in enumerate(each.properties):
        lines.append(f'            {15 - i}: ("{field.name}", "{field.type}"),')
    lines += ["        }", "        #: Name -> bit of the flags and type."]
    lines.append("        name_map: ClassVar[dict[str, tuple[int, str]]] = {")
    for i, field in enumerate(each.properties):
        lines.append(f'            "{field.name}": ({15 - i}, "{field.type}"),')
    return [*lines, "        }"]
