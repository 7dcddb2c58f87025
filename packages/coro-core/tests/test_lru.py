"""Maps that forget: against a model, and with a size of one, two and nothing."""

import random
from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coro.lru import lru, lru_with_pin

KEY = st.integers(0, 7)
STEP = st.one_of(
    st.tuples(st.sampled_from(["look", "delete", "get", "in", "pin", "unpin", "is_pinned"]), KEY),
    st.tuples(st.just("set"), KEY),
    st.tuples(st.just("empty"), st.booleans()),
)


class Model:
    """Two dictionaries, the plain way."""

    def __init__(self, size):
        self.size, self.entries, self.pinned = size, OrderedDict(), {}

    def look(self, key):
        if key in self.pinned:
            return self.pinned[key]
        self.entries.move_to_end(key, last=False)
        return self.entries[key]

    def set(self, key, value):
        if key in self.pinned:
            return
        if key not in self.entries and len(self.entries) == self.size:
            self.entries.popitem()
        self.entries[key] = value
        self.entries.move_to_end(key, last=False)

    def delete(self, key):
        if key in self.pinned:
            raise KeyError(key)
        del self.entries[key]

    def pairs(self):
        return [(k, v) for k, v in self.entries.items() if k not in self.pinned]


def outcome(call, *args):
    try:
        return call(*args)
    except KeyError:
        return KeyError


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(size=st.integers(1, 5), steps=st.lists(STEP, max_size=60), pins=st.booleans())
def test_against_a_model(size, steps, pins):
    cache, model = (lru_with_pin if pins else lru)(size), Model(size)
    for number, (what, arg) in enumerate(steps):
        if what in ("pin", "unpin", "is_pinned") and not pins:
            continue
        if what == "look":
            assert outcome(cache.__getitem__, arg) == outcome(model.look, arg)
        elif what == "get":
            found = outcome(model.look, arg)
            assert cache.get(arg, "instead") == ("instead" if found is KeyError else found)
        elif what == "set":
            cache[arg] = number
            model.set(arg, number)
        elif what == "delete":
            assert outcome(cache.__delitem__, arg) == outcome(model.delete, arg)
        elif what == "in":
            assert (arg in cache) == cache.has_key(arg) == (arg in model.entries or arg in model.pinned)
        elif what == "pin":
            cache.pin(arg, number)
            model.pinned[arg] = number
        elif what == "unpin":
            assert outcome(cache.unpin, arg) == outcome(model.pinned.__delitem__, arg)
        elif what == "is_pinned":
            assert cache.is_pinned(arg) is (arg in model.pinned)
        else:
            cache.empty(*([arg] if pins else []))
            model.entries.clear()
            if arg and pins:
                model.pinned.clear()
        assert list(cache) == cache.items() == model.pairs()
        assert cache.keys() == [k for k, _ in model.pairs()]
        assert cache.values() == [v for _, v in model.pairs()]
        assert len(cache) == len(model.entries) + len(model.pinned)


def test_order_of_use():
    cache = lru(3)
    for k in "abc":
        cache[k] = k.upper()
    assert list(cache) == [("c", "C"), ("b", "B"), ("a", "A")]
    assert cache["a"] == "A"
    assert cache.get("b", None) == "B"
    assert "c" in cache  # no use
    assert list(cache) == [("b", "B"), ("a", "A"), ("c", "C")]
    cache["d"] = "D"
    assert "c" not in cache
    cache["a"] = "new"
    assert cache.keys() == ["a", "d", "b"]
    assert dict(cache.d) == {"a": "new", "d": "D", "b": "B"}
    with pytest.raises(TypeError):
        cache.d["a"] = 1


def test_size_one():
    cache = lru(1)
    cache["a"] = 1
    cache["b"] = 2
    assert (list(cache), len(cache)) == ([("b", 2)], 1)
    assert cache["b"] == 2
    del cache["b"]
    assert not len(cache)


def test_size_two():
    """Neither removing one of two entries nor looking one up changes the other's value."""
    cache = lru(2)
    for i in range(10):
        cache[i] = i
    assert list(cache) == [(9, 9), (8, 8)]
    assert cache[8] == 8
    assert list(cache) == [(8, 8), (9, 9)]
    del cache[8]
    assert list(cache) == [(9, 9)]


def test_no_size():
    for size in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            lru(size)
    for size in ("3", 2.0, True, None):
        with pytest.raises(TypeError):
            lru_with_pin(size)


def test_delete_to_empty_and_missing_keys():
    cache = lru(5)
    for i in range(5):
        cache[i] = i
    for i in (2, 0, 4, 1, 3):
        del cache[i]
        with pytest.raises(KeyError):
            cache[i]
        with pytest.raises(KeyError):
            del cache[i]
    assert list(cache) == []
    assert cache.get(1) is None


def test_the_bound_holds():
    chance = random.Random(1)
    cache = lru(100)
    for _ in range(10_000):
        cache[chance.randrange(1000)] = None
        assert len(cache) <= 100


def test_use_during_iteration():
    cache = lru(3)
    for i in range(3):
        cache[i] = i
    for k, v in cache:  # a snapshot
        assert cache[k] == v
    assert cache.keys() == [0, 1, 2]
    for k, _ in cache:
        cache[k + 10] = 0
    assert cache.keys() == [12, 11, 10]


def test_pinned_entries_never_age():
    cache = lru_with_pin(2)
    cache["a"] = 1
    cache.pin("a", "pinned")
    cache["a"] = 3  # ignored
    assert (cache["a"], cache.get("a", 0), "a" in cache, len(cache)) == ("pinned", "pinned", True, 2)
    assert list(cache) == []
    with pytest.raises(KeyError):
        del cache["a"]
    for i in range(5):
        cache[i] = i
    assert (list(cache), cache["a"]) == ([(4, 4), (3, 3)], "pinned")
    cache.unpin("a")
    assert "a" not in cache
    with pytest.raises(KeyError):
        cache.unpin("a")


def test_empty_of_the_pinned_kind():
    cache = lru_with_pin(2)
    cache["a"] = 1
    cache.pin("b", 2)
    cache.empty()
    assert (len(cache), cache["b"]) == (1, 2)
    cache.empty(pinned_as_well=True)
    assert len(cache) == 0


def test_a_finaliser_may_use_the_map():
    seen = []

    class Value:
        def __del__(self):
            seen.append((list(cache.d), len(cache)))
            cache.get("y")

    cache = lru(1)
    cache["x"] = Value()
    cache["y"] = Value()
    assert seen == [(["y"], 1)]
    cache["y"] = 0
    assert seen[1:] == [(["y"], 1)]
    cache["y"] = Value()
    cache.empty()
    assert seen[2:] == [([], 0)]
