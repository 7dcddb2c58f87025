"""What zones answer: the rules one by one, without a socket. `test_against_servers.py` asks thousands of questions."""

from __future__ import annotations

import pytest

from coro.dns import _wire
from coro.dns._zone.answers import answer
from coro.dns.packet import TYPE, TYPE_MAP, rdata_to_text
from coro.dns.zone import Zone

TEXT = """
$TTL 300
@ 600 SOA ns admin 1 2 3 4 60
@ NS ns
ns A 192.0.2.1
www A 192.0.2.2
alias CNAME www
out CNAME www.example.org.
loop1 CNAME loop2
loop2 CNAME loop1
*.wild A 192.0.2.3
there.wild TXT x
a.b.c TXT x
d DNAME www
x.www A 192.0.2.4
sub NS ns.sub
sub NS ns.other
ns.sub A 192.0.2.5
ns.other A 192.0.2.6
hidden.sub A 192.0.2.7
sub DS 1 13 99 00
mx MX 1 www
mx MX 2 hidden.sub
"""
ZONE = Zone.from_text(TEXT, "test")


def asked(name, rtype="A", zone=ZONE, **settings):
    found = answer(zone._data, _wire.from_text(name), getattr(TYPE, rtype), **settings)

    def shown(records):
        return [f"{_wire.to_text(o)} {TYPE_MAP[t]} {rdata_to_text(t, d)}" for o, t, _, _, d in records]

    return found, shown(found.answer), shown(found.authority), shown(found.additional)


def test_records_and_none():
    found, answers, authority, _ = asked("www.test")
    assert (found.rcode, found.authoritative, answers, authority) == (0, True, ["www.test A 192.0.2.2"], [])
    found, answers, authority, _ = asked("www.test", "AAAA")
    assert (found.rcode, answers) == (0, [])
    assert authority == ["test SOA ns.test. admin.test. 1 2 3 4 60"]
    assert found.authority[0][3] == 60  # RFC 2308, section 3: the minimum, as it is less than the TTL
    found, answers, authority, _ = asked("nowhere.test")
    assert (found.rcode, answers, len(authority)) == (3, [], 1)


def test_empty_names_exist():
    for name in ("c.test", "b.c.test", "wild.test"):
        found, answers, authority, _ = asked(name)
        assert (found.rcode, answers, len(authority)) == (0, [], 1), name
    assert asked("x.c.test")[0].rcode == 3


def test_wildcards():
    """RFC 4592: not for names that exist, nor below them; for any depth otherwise."""
    assert asked("a.wild.test")[1] == ["a.wild.test A 192.0.2.3"]
    assert asked("a.b.wild.test")[1] == ["a.b.wild.test A 192.0.2.3"]
    assert asked("*.wild.test")[1] == ["*.wild.test A 192.0.2.3"]
    assert (asked("there.wild.test")[0].rcode, asked("there.wild.test")[1]) == (0, [])
    assert asked("x.there.wild.test")[0].rcode == 3
    assert asked("a.wild.test", "TXT")[0].rcode == 0
    assert not asked("a.wild.test")[0].exists
    assert asked("*.wild.test")[0].exists


def test_aliases():
    assert asked("alias.test")[1] == ["alias.test CNAME www.test.", "www.test A 192.0.2.2"]
    assert asked("alias.test", "CNAME")[1] == ["alias.test CNAME www.test."]
    found, answers, authority, _ = asked("out.test")
    assert (found.rcode, answers, authority) == (0, ["out.test CNAME www.example.org."], [])
    assert found.outside == _wire.from_text("www.example.org")
    assert asked("loop1.test")[1] == ["loop1.test CNAME loop2.test.", "loop2.test CNAME loop1.test."]


def test_dname():
    """RFC 6672."""
    found, answers, _, _ = asked("x.d.test")
    assert answers == ["d.test DNAME www.test.", "x.d.test CNAME x.www.test.", "x.www.test A 192.0.2.4"]
    assert asked("d.test")[1] == []
    assert asked("d.test", "DNAME")[1] == ["d.test DNAME www.test."]
    long = ".".join(["x" * 60] * 4) + ".d"
    zone = Zone.from_text("@ 5 SOA ns admin 1 2 3 4 5\nd 5 DNAME a-longer-name\n", "test")
    found, answers, _, _ = asked(long + ".test", zone=zone)
    assert (found.rcode, answers) == (6, ["d.test DNAME a-longer-name.test."])


def test_delegations():
    for name in ("sub.test", "hidden.sub.test", "x.y.sub.test", "ns.sub.test"):
        found, answers, authority, additional = asked(name)
        assert (found.rcode, found.authoritative, answers) == (0, False, []), name
        assert authority == ["sub.test NS ns.sub.test.", "sub.test NS ns.other.test."]
        assert additional == ["ns.sub.test A 192.0.2.5", "ns.other.test A 192.0.2.6"]
        assert found.needed == 1  # RFC 9471: those below the delegation
    found, answers, authority, _ = asked("sub.test", "DS")
    assert (found.authoritative, answers) == (True, ["sub.test DS 1 13 99 00"])
    assert not asked("x.sub.test", "DS")[0].authoritative


def test_addresses_of_hosts():
    assert asked("mx.test", "MX")[3] == ["www.test A 192.0.2.2"]  # no glue
    assert asked("test", "NS")[3] == ["ns.test A 192.0.2.1"]


def test_all_types():
    """RFC 8482: over UDP some of them are enough."""
    assert len(asked("test", "ANY")[1]) == 1
    assert len(asked("test", "ANY", stream=True)[1]) == 2


@pytest.mark.parametrize("count", [4000])
def test_large_sets_are_read_in_linear_time(count):
    """Each record is looked at once, not compared with all others."""
    text = "$TTL 5\n@ SOA ns admin 1 2 3 4 5\n" + "".join(f"many A 10.0.{i >> 8}.{i & 255}\n" for i in range(count))
    zone = Zone.from_text(text, "test")
    assert len(asked("many.test", zone=zone)[1]) == count
