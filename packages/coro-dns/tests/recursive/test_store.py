"""The bounded memory of the recursive resolver: its size, its generations, and the shares of domains."""

from __future__ import annotations

import random

import pytest
from dns_support import name

from coro.dns._recursive.store import Store, domain_of


@pytest.mark.parametrize(
    ("owner", "end", "domain"),
    [
        ("www.example.com", b"\0\1", "example.com"),
        ("example.com", b"\0\1", "example.com"),
        ("com", b"\0\1", "com"),
        (".", b"\0\1", "."),
        # That a name does not exist is what the name above it says.
        ("www.example.com", b"\0\0", "example.com"),
        ("example.com", b"\0\0", "com"),
        ("com", b"\0\0", "."),
        (".", b"\0\0", "."),
        # The key of a delegation is a name alone.
        ("a.b.example.com", b"", "example.com"),
        (".", b"", "."),
    ],
)
def test_whose_share_an_entry_is_part_of(owner: str, end: bytes, domain: str) -> None:
    assert domain_of(name(owner) + end) == name(domain)


def key(text: str) -> bytes:
    return name(text) + b"\0\1"


def test_a_single_domain_has_all_of_it() -> None:
    store: Store[int] = Store(1000)
    for i in range(5000):
        store.put(key(f"n{i}.example.com"), i)
        assert len(store) <= 1000
    assert len(store) >= 700
    assert all(store.peek(key(f"n{i}.example.com")) == i for i in range(4600, 5000))


def test_many_domains_have_all_but_an_eighth() -> None:
    store: Store[int] = Store(1000)
    for i in range(5000):
        store.put(key(f"www.d{i}.com"), i)
        assert len(store) <= 1000
    assert all(store.peek(key(f"www.d{i}.com")) == i for i in range(4600, 5000))


@pytest.mark.parametrize(
    ("flood", "other"),
    [
        ("n{}.evil.co.uk", "www.other{}.co.uk"),  # everybody's ending
        ("n.z{}.evil.co.uk", "www.other{}.co.uk"),
        ("n.z{}.xy.de", "www.other{}.test"),  # somebody's name that looks like one
    ],
)
def test_one_domain_pushes_out_nobody_below_the_same_ending(flood: str, other: str) -> None:
    store: Store[int] = Store(400)
    for i in range(60):
        store.put(key(other.format(i)), i)
    for i in range(5000):
        store.put(key(flood.format(i)), i)
        assert len(store) <= 400
    assert [store.peek(key(other.format(i))) for i in range(60)] == list(range(60))


def test_others_take_the_room_that_a_crowd_had() -> None:
    store: Store[int] = Store(1000)
    for i in range(3000):
        store.put(key(f"n{i}.example.com"), i)
    for i in range(430):
        store.put(key(f"www.d{i}.net"), i)
        assert len(store) <= 1000
    assert sum(store.peek(key(f"www.d{i}.net")) == i for i in range(430)) >= 425


@pytest.mark.parametrize("size", [1, 8, 9, 17, 40, 100, 1000])
def test_whatever_happens_it_is_a_dictionary_that_forgets(size: int) -> None:
    chance = random.Random(size)
    store: Store[int] = Store(size)
    known: dict[bytes, int] = {}
    for turn in range(5000):
        one = key(f"n{chance.randrange(200)}.{chance.choice(['evil', 'b', f'c{chance.randrange(50)}'])}.net")
        what = chance.random()
        before_keys = store.keys()
        if what < 0.5:
            store.put(one, turn)
            known[one] = turn
            assert store.peek(one) == turn
        elif what < 0.9:
            before = store.peek(one)
            assert before in (None, known.get(one))
            assert store.get(one) == before == store.peek(one)
        else:
            known.pop(one, None)
            assert store.drop(one) == (one in before_keys)
            assert store.peek(one) is None
        keys = store.keys()
        assert len(keys) == len(set(keys)) == len(store) <= max(size, 8)
    store.clear()
    assert len(store) == 0 == len(store.keys())
