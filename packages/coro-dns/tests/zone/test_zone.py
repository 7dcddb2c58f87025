"""Zones that change: names come and go with those below them, all or nothing, and differences are remembered."""

from __future__ import annotations

import random

import pytest

from coro.dns import DNS_Zone_Error, _wire
from coro.dns._zone.data import Data, order_of
from coro.dns._zone.transfer import Receiver, full, incremental
from coro.dns.packet import PackError
from coro.dns.zone import Zone

HEAD = "$TTL 300\n@ SOA ns admin 1 2 3 4 5\n@ NS ns\n"


def made(text="", **settings):
    return Zone.from_text(HEAD + text, "test", **settings)


def names(zone):
    return sorted(map(_wire.to_text, zone._data.nodes))


def rebuilt(data: Data) -> Data:
    """The same zone, made from its records."""
    receiver = Receiver(data.origin)
    receiver.take(full(data))
    assert receiver.done and receiver.zone is not None
    return receiver.zone


def test_edits():
    zone = made("a A 192.0.2.1\n")
    with zone.edit() as edit:
        edit.add("b.c", "A", "192.0.2.2", 60)
        edit.add("a", "A", "192.0.2.3", 60)
        edit.add("a", "MX", "1 b.c", 60)
    assert zone.serial == 2
    assert zone.get("a.test", "A") == [(60, "192.0.2.1"), (60, "192.0.2.3")]
    assert zone.get("a.test", "MX") == [(60, (1, "b.c.test"))]
    assert names(zone) == ["a.test", "b.c.test", "c.test", "test"]
    with zone.edit() as edit:
        edit.remove("b.c")
        edit.remove("a", "MX")
        edit.remove("a", "A", "192.0.2.1")
        edit.remove("nowhere")
    assert zone.serial == 3
    assert zone.get("a.test", "A") == [(60, "192.0.2.3")]
    assert names(zone) == ["a.test", "test"]
    with zone.edit() as edit:
        edit.remove("@")  # but for the SOA record
        edit.add("@", "SOA", "ns admin 9 2 3 4 5", 300)
    assert zone.serial == 9
    with zone.edit() as edit:
        edit.add("a", "A", "192.0.2.3", 60)  # it is there
    assert zone.serial == 9


def test_all_or_nothing():
    zone = made("a A 192.0.2.1\n")
    before = zone.to_text()
    with pytest.raises(DNS_Zone_Error, match="CNAME record and others"), zone.edit() as edit:
        edit.add("b", "A", "192.0.2.1", 5)
        edit.add("a", "CNAME", "b", 5)
    with pytest.raises(ZeroDivisionError), zone.edit() as edit:
        edit.add("b", "A", "192.0.2.1", 5)
        raise ZeroDivisionError
    with pytest.raises(DNS_Zone_Error, match="not in the zone"), zone.edit() as edit:
        edit.add("b.example.", "A", "192.0.2.1", 5)
    with pytest.raises(PackError), zone.edit() as edit:
        edit.add("b", "A", "x", 5)
    with pytest.raises(DNS_Zone_Error, match="expected a TTL"), zone.edit() as edit:
        edit.add("b", "A", "192.0.2.1", -5)
    assert zone.to_text() == before


def test_replace():
    zone = made("a A 192.0.2.1\n")
    zone.replace(made("a A 192.0.2.1\n"))
    with pytest.raises(DNS_Zone_Error, match="serial 1 is not newer"):
        zone.replace(made("b A 192.0.2.1\n"))
    zone.replace(Zone.from_text(HEAD.replace("1 2", "2 2") + "b A 192.0.2.1\n", "test"))
    assert names(zone) == ["b.test", "test"] and zone.serial == 2
    with pytest.raises(ValueError, match=r"expected a zone with the name test, not other"):
        zone.replace(Zone.from_text(HEAD, "other"))


def test_serials_go_around():
    zone = Zone.from_text(HEAD.replace("admin 1", "admin 4294967295"), "test")
    with zone.edit() as edit:
        edit.add("a", "A", "192.0.2.1", 5)
    assert zone.serial == 1  # 0 is left out
    assert len(incremental(zone._data, 4294967295)) == 5


def test_differences():
    zone = made("a A 192.0.2.1\n", history=10)
    old = rebuilt(zone._data)
    for i in range(3):
        with zone.edit() as edit:
            edit.add("a", "A", f"192.0.2.{i + 2}", 300)
    assert zone.serial == 4
    records = incremental(zone._data, 1)
    receiver = Receiver(old.origin, old)
    receiver.take(records)
    assert receiver.done
    receiver.apply()
    assert old.nodes == zone._data.nodes
    assert incremental(zone._data, 4) == [zone._data.soa_record]
    assert incremental(zone._data, 77) == [zone._data.soa_record]  # newer than ours
    with zone.edit() as edit:
        edit.remove("a", "A")
    assert incremental(zone._data, 1) is None  # forgotten
    assert incremental(zone._data, 4) is not None


@pytest.mark.parametrize("seed", range(20))
def test_random_changes(seed):
    """However names come and go, the zone is the same as one made anew of its records, and so is one that got the
    differences."""
    draw = random.Random(seed)
    zone = made()
    labels = ["a", "b", "c", "*", "x.y", "a.b.c", "b.c", "z.z.z.b"]
    copy = rebuilt(zone._data)
    for _ in range(60):
        with zone.edit() as edit:
            for _ in range(draw.randrange(1, 4)):
                name = draw.choice(labels)
                kind = draw.choice(["A", "NS", "TXT"])
                data = {"A": f"192.0.2.{draw.randrange(3)}", "NS": "ns", "TXT": "x"}[kind]
                if draw.random() < 0.55:
                    edit.add(name, kind, data, draw.choice([60, 300]))
                elif draw.random() < 0.5:
                    edit.remove(name, kind, data)
                else:
                    edit.remove(name)
        anew = rebuilt(zone._data)
        assert anew.nodes.keys() == zone._data.nodes.keys()
        assert (anew.children, anew.cuts) == (zone._data.children, zone._data.cuts)
    receiver = Receiver(copy.origin, copy)
    receiver.take(incremental(zone._data, 1))
    if receiver.zone is None:
        receiver.apply()
        assert {name: {k: (t, set(d)) for k, (t, d) in node.items()} for name, node in copy.nodes.items()} == {
            name: {k: (t, set(d)) for k, (t, d) in node.items()} for name, node in zone._data.nodes.items()
        }


def test_canonical_order():
    """RFC 4034, section 6.1."""
    ordered = [
        "example", "a.example", "yljkjljk.a.example", "Z.a.example", "zABC.a.EXAMPLE", "z.example",
        "\\001.z.example", "*.z.example", "\\200.z.example",
    ]  # fmt: skip
    wires = [_wire.from_text(name) for name in ordered]
    assert sorted(wires, key=order_of) == wires
    text = made("b A 192.0.2.1\nz.a A 192.0.2.1\na A 192.0.2.1\n").to_text()
    assert [line.split()[0] for line in text.splitlines()[3:]] == ["a.test.", "z.a.test.", "b.test."]
