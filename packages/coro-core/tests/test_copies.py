"""Objects of extension modules are not copied or pickled behind their back: most stand in C structures, and what the
generic way makes of them is another object in name only, that undoes what the first one did."""

import copy
import importlib.machinery
import importlib.util
import pickle
import pkgutil
import sys

import pytest
from support import in_loop

import coro


def extension_classes():
    """Every class that an extension module of the installed distributions defines."""
    found = {}
    for info in pkgutil.walk_packages(coro.__path__, "coro."):
        if info.name.endswith("__main__"):
            continue
        spec = importlib.util.find_spec(info.name)
        if spec is None or not isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
            continue
        module = sys.modules.get(info.name) or importlib.import_module(info.name)
        for thing in vars(module).values():
            if isinstance(thing, type) and thing.__module__ == info.name and not thing.__flags__ & HEAP_TYPE:
                found[f"{info.name}.{thing.__qualname__}"] = thing
    return found


HEAP_TYPE = 1 << 9


#: These say themselves how they are copied, or why not.
OWN_WORDS = {"coro._poll.descriptors.kevent_key"}
OWN_WORDS |= {f"coro._net.sock.{name}" for name in ("sock", "_descriptor", "fd_sock", "file_sock")}


def test_no_class_has_the_generic_methods():
    classes = extension_classes()
    assert "coro._runtime.scheduler.shield" in classes and len(classes) > 30
    words = {"__reduce__", "__reduce_ex__", "__getstate__"}
    found = {name for name, cls in classes.items() if not words.isdisjoint(vars(cls))}
    assert found - OWN_WORDS == set(), "compile their modules with auto_pickle=False"


MADE = {
    "shield": lambda: coro.shield(1),
    "timeout": lambda: coro.timeout(1),
    "no_switch": coro.no_switch,
    "thread": coro.current,
    "mutex": coro.mutex,
    "rw_lock": coro.rw_lock,
    "semaphore": lambda: coro.semaphore(1),
    "inverted_semaphore": coro.inverted_semaphore,
    "condition_variable": coro.condition_variable,
    "event": coro.event,
    "latch": lambda: coro.latch(1),
    "barrier": lambda: coro.barrier(2),
    "fifo": coro.fifo,
    "channel": lambda: coro.channel(1),
    "ThreadLocal": coro.ThreadLocal,
    "sock": coro.tcp_sock,
}


@pytest.mark.parametrize("name", MADE)
@in_loop
def test_copies_are_refused_in_words(name):
    thing = MADE[name]()
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"(pickle|cop).*" + type(thing).__name__):
            way(thing)


@in_loop
def test_an_active_scope_stays_in_balance():
    for scope in (coro.shield(5), coro.timeout(5), coro.no_switch()):
        with scope, pytest.raises(TypeError):
            copy.copy(scope)
        coro.yield_slice()
    with pytest.raises(coro.TimeoutError), coro.timeout(0):
        coro._yield()


def test_what_is_a_mere_value_can_be_copied():
    key = coro.kevent_key(coro.EVFILT.READ, 5)
    assert copy.copy(key) == key == pickle.loads(pickle.dumps(key))
