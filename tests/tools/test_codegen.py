"""The generator of coro-amqp's codec: schemas of our own, damaged ones, and that it writes the same every time."""

from __future__ import annotations

import ast
import copy
import json
import re
from pathlib import Path

import pytest

from tools.codegen import __main__ as codegen
from tools.codegen import needs, schema

SMALL = {
    "name": "AMQP",
    "major-version": 0,
    "minor-version": 9,
    "revision": 1,
    "port": 5672,
    "domains": [["name", "shortstr"], ["bit", "bit"], ["short", "short"]],
    "constants": [{"name": "FRAME-END", "value": 206}, {"name": "NOT-FOUND", "value": 404, "class": "soft-error"}],
    "classes": [
        {
            "id": 50,
            "name": "basic",
            "properties": [{"type": "shortstr", "name": "content-type"}, {"type": "octet", "name": "priority"}],
            "methods": [
                {
                    "id": 40,
                    "name": "publish",
                    "content": True,
                    "arguments": [
                        {"domain": "name", "name": "exchange", "default-value": ""},
                        *({"domain": "bit", "name": f"bit-{i}", "default-value": i % 2 == 0} for i in range(9)),
                        {"type": "table", "name": "arguments", "default-value": {}},
                    ],
                },
                {"id": 50, "name": "return", "synchronous": True, "arguments": [{"domain": "short", "name": "id"}]},
                {"id": 51, "name": "return-ok", "arguments": []},
            ],
        }
    ],
}


def parsed(content: object) -> schema.Schema:
    return schema.parse(json.dumps(content).encode(), "small.json")


def changed(*path: object, to: object = None, without: bool = False) -> dict:
    content = copy.deepcopy(SMALL)
    at: object = content
    for step in path[:-1]:
        at = at[step]  # type: ignore[index]
    if without:
        del at[path[-1]]  # type: ignore[attr-defined]
    else:
        at[path[-1]] = to  # type: ignore[index]
    return content


def test_what_is_read() -> None:
    found = parsed(SMALL)
    assert (found.version, found.port, found.file) == ((0, 9, 1), 5672, "small.json")
    assert found.constants == (("FRAME_END", 206, ""), ("NOT_FOUND", 404, "soft-error"))
    [basic] = found.classes
    publish, back, ok = basic.methods
    assert (publish.attribute, back.attribute, ok.attribute) == ("publish", "_return", "return_ok")
    assert publish.content and back.synchronous and not ok.fields
    assert back.fields[0] == schema.Field("id", "_id", "short", True, None)
    assert [field.type for field in publish.fields] == ["shortstr", *["bit"] * 9, "table"]
    assert [field.attribute for field in basic.properties] == ["content_type", "priority"]


def test_the_variations_of_0_8() -> None:
    content = copy.deepcopy(SMALL)
    del content["revision"]
    content["major-version"], content["minor-version"] = 8, 0
    content["domains"] = dict(content["domains"])
    publish, back, ok = content["classes"][0]["methods"]
    for argument in publish["arguments"]:
        argument.pop("default-value")
    back["deprecated"] = True
    del ok["arguments"]
    found = parsed(content)
    assert found.version == (8, 0, 0)
    assert all(field.required for field in found.classes[0].methods[0].fields)
    assert found.classes[0].methods[1].deprecated
    texts = codegen.make(found)
    assert "basic.return: synchronous, deprecated" in texts["spec.py"]


def test_the_output_is_the_same_each_time_and_valid() -> None:
    first, second = codegen.make(parsed(SMALL)), codegen.make(parsed(json.loads(json.dumps(SMALL))))
    assert first == second
    digest = parsed(SMALL).digest
    for name, text in first.items():
        assert digest in text and "small.json" in text and "0-9-1" in text, name
        assert max(map(len, text.splitlines())) <= 120
    ast.parse(first["spec.py"])
    ast.parse(first["_spec_codec.pyi"])
    assert "class _return(Method):" in first["spec.py"]
    # nine bits take two octets
    assert first["_spec_codec.pyx"].count("bits = get_u8(c)") >= 2
    assert "    content_type" not in first["_spec_codec.pyi"]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ([], "top level: expected an object, got"),
        (changed("name", to="STOMP"), 'name: expected "AMQP", got "STOMP"'),
        (changed("major-version", without=True), "major-version: expected a number from 0 to 255, got null"),
        (changed("port", to=0), "port: expected a number from 1 to 65535, got 0"),
        (changed("domains", 0, to=["name"]), r"domains\[0\]: expected a pair"),
        (changed("domains", 0, to=["name", "string"]), r"domains\[0\]: expected one of the types .*\"string\""),
        (changed("constants", to=None), "constants: expected a list, got null"),
        (changed("constants", 0, "value", to="206"), r"constants\[0\].value: expected a number"),
        (changed("constants", 1, "name", to="FRAME-END"), "different names"),
        (changed("classes", to=[]), "classes: expected at least one class"),
        (changed("classes", 0, "name", to="a b!"), r"classes\[0\].name: expected a name of letters"),
        (changed("classes", 0, "id", to=True), "class basic.id: expected a number"),
        (changed("classes", 0, "methods", 1, "id", to=40), "class basic: expected different numbers, got 40"),
        (changed("classes", 0, "methods", 1, "name", to="publish"), "expected different names"),
        (changed("classes", 0, "methods", 1, "synchronous", to="yes"), "method return.synchronous: expected true or"),
        (changed("classes", 0, "methods", 0, "arguments", 0, "domain", to="nonsense"), r"arguments\[0\] \(exchange\)"),
        (changed("classes", 0, "methods", 0, "arguments", 0, "default-value", to=5), "a value of type shortstr, got 5"),
        (changed("classes", 0, "methods", 0, "arguments", 1, "default-value", to="x"), "a value of type bit"),
        (changed("classes", 0, "methods", 0, "arguments", 1, "name", to="exchange"), "expected different names"),
        (changed("classes", 0, "properties", 0, "type", to="bit"), "no property of type bit"),
        (
            changed("classes", 0, "properties", to=[{"type": "octet", "name": f"p{i}"} for i in range(16)]),
            "at most 15, got 16",
        ),
    ],
)
def test_damaged_schemas(content: object, match: str) -> None:
    with pytest.raises(schema.SchemaError, match=match) as caught:
        parsed(content)
    assert str(caught.value).startswith("small.json: ")


@pytest.mark.parametrize("data", [b"", b"{", b'{"name": "AMQP"', b"\xff", b"[" * 100_000])
def test_files_that_are_no_json(data: bytes) -> None:
    with pytest.raises(schema.SchemaError, match="expected JSON"):
        schema.parse(data, "broken.json")


@pytest.mark.parametrize("name", ["self", "bits", "c", "at", "data", "o", "pos", "depth", "get-shortstr", "begin"])
def test_names_that_the_output_uses_are_refused(name: str) -> None:
    arguments = [{"type": "octet", "name": name}, {"type": "bit", "name": "flag"}]
    with pytest.raises(schema.SchemaError, match="class basic, method return-ok: expected arguments"):
        parsed(changed("classes", 0, "methods", 2, "arguments", to=arguments))


@pytest.mark.parametrize(("path", "name"), [(("name",), "Method"), (("name",), "id"), (("methods", 2, "name"), "id")])
def test_names_that_spec_has_are_refused(path: tuple, name: str) -> None:
    with pytest.raises(schema.SchemaError, match=r"a name that spec\.py does not use"):
        parsed(changed("classes", 0, *path, to=name))


def test_all_variables_of_the_functions_made_are_refused_for_arguments() -> None:
    text = codegen.make(parsed(SMALL))["_spec_codec.pyx"]
    functions = re.findall(r"^def (?:un)?pack_\w+\((.*)\):\n((?:    .*\n)+)", text, re.M)
    assert len(functions) == 6
    for parameters, body in functions:
        variables = re.findall(r"cdef \w+ \*?(\w+)", body) + re.findall(r"(\w+)(?:=\d+)?(?:,|$)", parameters)
        of_the_file = {"exchange", "arguments", "_id", *(f"bit_{i}" for i in range(9))}
        calls = set(re.findall(r"(\w+)\(", body))
        assert {*variables, *calls} - of_the_file - {"__new__", "extend", "take"} <= schema.IN_OUTPUT


def whole() -> dict:
    """A description that has all that coro-amqp needs: what is checked in, read back."""
    types = {"int": "long", "str": "shortstr", "bytes": "longstr", "bool": "bit", "dict[str, Any]": "table"}
    classes: dict[str, dict] = {}
    for (owner, method), (number, parameters) in needs._signatures((codegen.PACKAGE / "spec.py").read_text()).items():
        numbers = ast.literal_eval(number)
        entry = classes.setdefault(owner, {"id": numbers[0], "name": owner, "methods": []})
        arguments = [
            {
                "type": types[kind.removesuffix(" | None")],
                "name": name.lstrip("_").replace("_", "-"),
                **({"default-value": {}} if kind.endswith("None") else {}),
            }
            for name, kind in (each.split(": ") for each in parameters)
        ]
        name = method.lstrip("_").replace("_", "-")
        entry["methods"].append({"id": numbers[1], "name": name, "arguments": arguments})
    return {**SMALL, "classes": list(classes.values())}


def test_a_file_without_what_the_client_needs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = whole()
    path = tmp_path / "file.json"

    def outcome(content: object) -> tuple[int, str]:
        path.write_text(json.dumps(content))
        return codegen.main([str(path), "--output", str(tmp_path)]), capsys.readouterr().err

    assert outcome(good) == (0, "")
    made = (tmp_path / "spec.py").read_text()
    cases = []
    bad = copy.deepcopy(good)
    bad["classes"] = [each for each in bad["classes"] if each["name"] != "connection"]
    cases.append((bad, "expected the method connection."))
    publish = {"name": "publish"}
    for change, match in (
        (lambda entry: entry["arguments"].pop(), "expected the arguments of basic.publish to begin with"),
        (lambda entry: entry["arguments"][1].update(name="other"), "expected the arguments of basic.publish"),
        (lambda entry: entry.update(id=999), "expected the numbers (60, 40) for basic.publish"),
    ):
        bad = copy.deepcopy(good)
        [publish] = [m for c in bad["classes"] if c["name"] == "basic" for m in c["methods"] if m["name"] == "publish"]
        change(publish)
        cases.append((bad, match))
    for bad, match in cases:
        code, error = outcome(bad)
        assert code == 2 and match in error, error
        assert (tmp_path / "spec.py").read_text() == made
    longer = copy.deepcopy(good)
    longer["classes"][0]["methods"][0]["arguments"].append({"type": "octet", "name": "new"})
    assert outcome(longer)[0] == 0


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(whole()))
    folder = tmp_path / "out"
    assert codegen.main([str(path), "--output", str(folder)]) == 2
    folder.mkdir()
    assert codegen.main([str(path), "--output", str(folder), "--check"]) == 1
    assert codegen.main([str(path), "--output", str(folder)]) == 0
    assert sorted(each.name for each in folder.iterdir()) == sorted(codegen.FILES)
    assert codegen.main([str(path), "--output", str(folder), "--check"]) == 0
    (folder / "spec.py").write_text("PORT = 1\n")
    assert codegen.main([str(path), "--output", str(folder), "--check"]) == 1
    capsys.readouterr()
    assert codegen.main([str(tmp_path / "absent.json")]) == 2
    assert "expected a file that can be read" in capsys.readouterr().err


def test_what_is_checked_in_says_where_it_is_from() -> None:
    for name in codegen.FILES:
        head = (codegen.PACKAGE / name).read_text()[:600]
        assert "amqp-rabbitmq-0.9.1.json" in head and "SHA-256" in head
