"""Tests look at what they did: each has an assertion that can fail.

A test without any assertion passes whatever its threads returned, as long as nothing raises. An assertion of a tuple,
of a constant or of a generator is always true. The text of the tests tells both. A helper counts if it asserts or
raises itself, a program that a test starts if it does. Where not raising is the whole point, the test is named in
`BY_RAISING`, with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*ROOT.glob("packages/*/tests/**/*.py"), *ROOT.glob("tests/**/*.py")])

#: What looks at something when it is called or entered.
LOOKS = ("raises", "warns", "fail", "check", "fnmatch_lines", "no_fnmatch_line", "assert_outcomes", "deprecated_call")

#: Tests that pass if nothing raises.
BY_RAISING = {
    "test_any_bytes": "any error but the codec's own is foreign",
    "test_damaged_pickles": "any error but the codec's own is foreign",
    "test_damaged_descriptors": "any error but the codec's own is foreign",
    "test_any_bytes_give_a_value_or_the_one_error": "any error but the codec's own is foreign",
    "test_damaged_values_give_a_value_or_the_one_error": "any error but the codec's own is foreign",
    "test_reading_anything_ends": "any error but the codec's own is foreign",
    "test_a_child_that_a_signal_handler_kept_from_being_made_counts_for_nothing": "unraisable is an error",
    "test_leaks": "a test of unittest inside of another one, which has to fail",
    "test_deadlock": "a test of unittest inside of another one, which has to fail",
    "test_daemons_alone_do_not_deadlock": "a deadlock raises",
    "test_our_own_and_those_of_others_are_not_meant": "what is not meant goes through without an error",
}


def looks(node: ast.AST) -> bool:
    """Does this code assert, raise, or call what looks at something?"""
    for part in ast.walk(node):
        if isinstance(part, ast.Assert | ast.Raise):
            return True
        if isinstance(part, ast.Call):
            name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
            if name in LOOKS or name.startswith("assert"):
                return True
            if any(k.arg == "check" and isinstance(k.value, ast.Constant) and k.value.value for k in part.keywords):
                return True
        # A program that the test starts.
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            if "assert " in part.value or "raise AssertionError" in part.value:
                return True
    return False


def names(node: ast.FunctionDef) -> set[str]:
    """The names that a test uses, those of its fixtures included."""
    found = {argument.arg for argument in node.args.args}
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.Attribute):
            found.add(part.attr)
    return found


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def always_true(assertion: ast.Assert) -> bool:
    test = assertion.test
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return any(isinstance(value, ast.Constant) and value.value for value in test.values)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.GtE):
        length = isinstance(test.left, ast.Call) and getattr(test.left.func, "id", "") == "len"
        return length and getattr(test.comparators[0], "value", None) == 0
    return isinstance(test, ast.GeneratorExp | ast.Lambda | ast.JoinedStr) or (
        isinstance(test, ast.Tuple) and bool(test.elts)
    )


def test_every_test_looks_at_what_it_did():
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
    helpers = {
        f.name for tree in trees.values() for f in functions(tree) if not f.name.startswith("test_") and looks(f)
    }
    blind = {}
    for path, tree in trees.items():
        for test in functions(tree):
            if test.name.startswith("test_") and not looks(test) and not helpers & names(test):
                blind[test.name] = f"{path.relative_to(ROOT)}:{test.lineno}"
    assert {name: place for name, place in blind.items() if name not in BY_RAISING} == {}
    assert set(BY_RAISING) <= set(blind), "these look at something by now, or are gone"


def test_no_assertion_is_always_true():
    found = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assert) and always_true(node):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []


def test_what_is_always_true_is_found():
    for text in ("(a, 'message')", "'text'", "(x for x in y)", "a or True", "len(a) >= 0"):
        assert always_true(ast.parse(f"assert {text}").body[0]), text
    for text in ("()", "a or b", "len(a) >= 1", "[x for x in y]", "a == b", "0"):
        assert not always_true(ast.parse(f"assert {text}").body[0]), text
