"""Attributes of `coro` that nothing has bound: modules made when first asked for, names of other libraries, `dir`."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
import traceback
import types
from pathlib import Path

import pytest
from support import ok

import coro
from coro._entry import missing

PUBLIC = sorted(module.name for module in pkgutil.iter_modules(coro.__path__) if not module.name.startswith("_"))


def attributes_of(text: str) -> list[str]:
    """What a text names of coro: "coro.process.run" of "use coro.process.run(command)"."""
    return re.findall(r"\bcoro\.([A-Za-z_][\w.]*\w)", text)


# -- names of other libraries


@pytest.mark.parametrize(
    "name",
    "gather Lock Queue Event Timeout kill cancel Semaphore create_task joinall go monkey patch_all nursery".split(),
)
def test_a_name_of_another_library_says_what_to_use(name):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}': use .+"):
        getattr(coro, name)
    assert not hasattr(coro, name)


@pytest.mark.parametrize("name", sorted(missing.HINTS))
def test_nothing_else_is_suggested_beside_a_hint(name):
    with pytest.raises(AttributeError) as caught:
        getattr(coro, name)
    assert "".join(traceback.format_exception_only(caught.value)).endswith(f"use {missing.HINTS[name]}\n")


def test_a_typing_mistake_has_the_suggestion_of_python():
    with pytest.raises(AttributeError) as caught:
        coro.spwan  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("spwan", coro)
    if sys.version_info >= (3, 12):  # 3.11 adds it where it prints an error that ends the program
        # 3.15 has other words: Did you mean '.spawn' instead of '.spwan'?
        assert re.search(r"Did you mean:? '\.?spawn'", "".join(traceback.format_exception_only(caught.value)))


def test_a_module_made_by_hand_is_found(monkeypatch):
    made = types.ModuleType("coro.made_by_hand")  # a test's stand-in: it has no spec
    monkeypatch.setitem(sys.modules, "coro.made_by_hand", made)
    assert coro.made_by_hand is made


@pytest.mark.parametrize("name", sorted(missing.HINTS))
def test_hints_name_what_there_is(name):
    assert name not in {*dir(coro), *coro.__all__, *PUBLIC}, "the name has come to exist: remove its hint"
    for path in attributes_of(missing.HINTS[name]):
        thing: object = coro
        for part in path.split("."):
            thing = getattr(thing, part)


def test_an_import_of_such_a_name_says_the_same():
    with pytest.raises(ImportError, match=r"cannot import 'Lock': .* use coro\.mutex\(\)") as caught:
        from coro import Lock  # noqa: F401
    assert (caught.value.name, caught.value.path) == ("coro", coro.__file__)
    with pytest.raises(ImportError, match="no attribute 'gather': use"):
        exec("from coro import spawn, gather")
    with pytest.raises(ImportError, match="cannot import name 'spwan' from 'coro'"):
        from coro import spwan  # noqa: F401


@pytest.mark.parametrize("name", ["spwan", "a.b", "", "_typo", "__wrapped__", "\ud800", "no where"])
def test_other_names_are_ordinary_errors(name):
    with pytest.raises(AttributeError) as caught:
        getattr(coro, name)
    assert str(caught.value) == f"module 'coro' has no attribute {name!r}"
    assert not hasattr(coro, name)


@pytest.mark.skipif(importlib.util.find_spec("coro.clocks") is not None, reason="coro-clocks is installed")
@pytest.mark.parametrize("name", ["clocks", "tsc_time"])
def test_a_module_of_another_distribution_is_named(name):
    with pytest.raises(AttributeError, match=f"'{name}': it is in the distribution coro-clocks; install that"):
        getattr(coro, name)


# -- modules


def test_public_modules_need_no_import_of_their_own():
    """Classes and functions that hide the module they are in have its name."""
    assert ok(
        f"""
        import coro
        for name in {PUBLIC!r}:
            thing = getattr(coro, name)
            print(thing.__name__.removeprefix("coro."))
        """
    ) == list(PUBLIC)


def test_what_hides_its_module_has_the_modules_names():
    for name in sys.modules["coro.prefork"].__all__:
        if name != "prefork":
            assert getattr(coro.prefork, name) is getattr(sys.modules["coro.prefork"], name)
    assert sys.modules["coro.event_queue"].__all__ == ["event_queue"]


def test_type_checkers_know_the_same_modules():
    """They do not see `__getattr__`; what it imports is imported for them."""
    tree = ast.parse(Path(coro.__file__).read_text(encoding="utf-8"))
    imported = {
        alias.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }  # fmt: skip
    from_elsewhere = {"clocks"}  # other distributions
    hidden_by_a_name = {"event_queue", "prefork"}
    without_alias = {"oserrors"}
    assert set(PUBLIC) - imported - from_elsewhere - hidden_by_a_name - without_alias == set()


def test_importing_coro_imports_none_of_what_is_made_later():
    loaded = ok("import coro, sys; print(*(name for name in sys.modules if name.startswith('coro.')), sep='\\n')")
    for name in ("backdoor", "debug", "frontdoor", "testing", "asyncio_bridge", "_entry.missing", "_net.stream"):
        assert f"coro.{name}" not in loaded


# -- dir


def test_dir_shows_what_new_programs_use():
    names = dir(coro)
    assert {"spawn", "run", "group", "fifo", "Stream", "serve", "timeout", "now", "testing", "debug"} <= set(names)
    assert missing.NOT_SHOWN.isdisjoint(names)
    assert [name for name in names if name.startswith("_") and not name.endswith("__")] == []
    assert "annotations" not in names
    for name in names:
        getattr(coro, name)


def test_what_dir_leaves_out_is_there_all_the_same():
    public = {*coro.__all__, "exception_notifier", "install_signal_handlers", "now_usec", "tsc_time"}
    assert public >= missing.NOT_SHOWN
    for name in missing.NOT_SHOWN - {"tsc_time"}:
        getattr(coro, name)
