"""Zones copied from and to nsd, knot and BIND, whole and by differences, with and without keys; and servers that send
what is no transfer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from dns_support import in_loop, name, record, soa
from real_programs import HOST, free_port
from zone_servers import KEY, ORIGIN, SECRET, Bind, Knot, Named, Nsd, certificate, knot_acl, plain, until

import coro
from coro.dns import _wire, tsig
from coro.dns._zone import client
from coro.dns.exceptions import DNS_Signature_Error, DNS_Transfer_Error
from coro.dns.server import Server
from coro.dns.tsig import Key, Signer
from coro.dns.zone import Primary, Secondary, Update, Zone, notify, transfer

KEYS = pytest.mark.parametrize("key", [None, KEY], ids=["open", "key"])


def sender(kind: str, key: Key | None) -> Named:
    """A server of somebody else that gives its zone away."""
    zones = {ORIGIN: plain()}
    if kind == "nsd":
        return Nsd(zones, zone_more=f" provide-xfr: {HOST} {'key.test' if key else 'NOKEY'}\n")
    if kind == "knot":
        return Knot(zones, knot_acl(key), "    acl: [all]\n")
    return Bind(zones, zone_more="allow-transfer { %s; };" % ("key key.test" if key else "any"))


def taker(kind: str, port: int, key: Key | None) -> Named:
    """A server of somebody else that copies its zone from a port."""
    word = "key.test" if key else "NOKEY"
    if kind == "nsd":
        return Nsd(
            {ORIGIN: ""},
            zone_more=f" request-xfr: {HOST}@{port} {word}\n allow-notify: {HOST} {word}\n provide-xfr: {HOST} NOKEY\n",
        )
    if kind == "knot":
        signed = "    key: key.test\n" if key else ""
        remote = f"remote:\n  - id: us\n    address: {HOST}@{port}\n{signed}"
        own = f"  - id: open\n    address: {HOST}\n    action: transfer\n"
        return Knot({ORIGIN: ""}, knot_acl(key, remote) + own, "    master: us\n    acl: [all, open]\n")
    bind = Bind(
        {ORIGIN: ""},
        zone_more=f"primaries {{ {HOST} port {port} {'key key.test' if key else ''}; }}; allow-transfer {{ any; }};"
        f" masterfile-format text; allow-notify {{ {HOST}; }};",
    )
    bind.kind = "secondary"
    return bind


def lines(zone: Zone) -> list[str]:
    """What is in a zone; the records of a set may be in any order."""
    return sorted(str(one) for one in zone.records())


def serial_at(port: int) -> int:
    try:
        return client.serial_at(name(ORIGIN), (HOST, port), None)
    except DNS_Transfer_Error:
        return -1


@pytest.mark.slow
@KEYS
@pytest.mark.parametrize("kind", ["nsd", "knot", "bind"])
@in_loop
def test_from_others(kind, key):
    with sender(kind, key) as server:
        found = transfer(ORIGIN, (HOST, server.port), key=key)
        assert lines(found) == lines(Zone.from_text(plain(), ORIGIN))
        assert transfer(ORIGIN, (HOST, server.port), key=key, zone=found) is found  # nothing is new
        if key:
            with pytest.raises(DNS_Transfer_Error, match="does it expect a key"):
                transfer(ORIGIN, (HOST, server.port))
            with pytest.raises(DNS_Signature_Error, match="BADSIG"):
                transfer(ORIGIN, (HOST, server.port), key=Key("key.test", b"another"))
            with pytest.raises(DNS_Signature_Error, match="BADKEY"):
                transfer(ORIGIN, (HOST, server.port), key=Key("other.test", SECRET))


@pytest.mark.slow
@KEYS
@pytest.mark.parametrize("kind", ["nsd", "knot", "bind"])
@in_loop
def test_to_others(kind, key):
    """They copy our zone, hear of a change, and copy the difference."""
    zone = Zone.from_text(plain(), ORIGIN)
    primary = Primary(zone, transfer=[key or HOST], notify_key=key)
    with Server(zones=[primary], addresses=[(HOST, free_port())]) as server:
        with taker(kind, server.addresses[0][1], key) as other:
            until(lambda: serial_at(other.port) == zone.serial)
            primary.notify.append((HOST, other.port))
            before = server.statistics().transfers
            for number in range(3):
                with zone.edit() as edit:
                    edit.add(f"new{number}", "A", f"192.0.2.{number}", 300)
                    edit.remove("many", "A", f"198.51.100.{number}")
                until(lambda: serial_at(other.port) == zone.serial)
            # BIND and nsd need not come for each change
            assert server.statistics().transfers > before
            assert lines(transfer(ORIGIN, (HOST, other.port))) == lines(zone)


@pytest.mark.slow
@KEYS
@in_loop
def test_a_secondary_follows_its_primary(key, tmp_path):
    """Knot changes the zone, tells us, and sends the difference. Without it the zone stays, also through a start of
    ours."""
    path = tmp_path / "copy"
    port = free_port()
    signed = "    key: key.test\n" if key else ""
    remote = f"remote:\n  - id: us\n    address: {HOST}@{port}\n{signed}"
    with Knot({ORIGIN: plain()}, knot_acl(key, remote), "    acl: [all]\n    notify: us\n") as knot:
        secondary = Secondary(ORIGIN, [(HOST, knot.port)], key=key, path=path)
        with Server(zones=[secondary], addresses=[(HOST, port)]) as server:
            until(lambda: serial_at(port) == 7)
            for number in range(5):
                update = Update(ORIGIN)
                update.add(f"added{number}", "A", "192.0.2.200", 60)
                update.remove("many", "A", f"198.51.100.{number}")
                update.send((HOST, knot.port), key=key)
            until(lambda: serial_at(port) == serial_at(knot.port) > 7)
            assert server.statistics().notifications > 0
            there = transfer(ORIGIN, (HOST, knot.port), key=key)
            assert secondary.data is not None
            assert lines(Zone(secondary.data)) == lines(there)
            assert "added4" in there.to_text() and "198.51.100.4" not in there.to_text()
    assert lines(Zone.read(path, ORIGIN)) == lines(there)
    again = Secondary(ORIGIN, [(HOST, knot.port)], key=key, path=path)
    with Server(zones=[again], addresses=[(HOST, port)]):
        until(lambda: serial_at(port) == there.serial)


@in_loop
def test_a_secondary_of_ours(tmp_path):
    """Both sides ours: the zone is there, changes come at once, an old serial at the primary is not taken, and when the
    time is up without an answer the server says SERVFAIL."""
    zone = Zone.from_text("@ 60 SOA ns admin 5 3600 900 86400 60\n@ 60 NS ns\nns 60 A 192.0.2.1\n", ORIGIN)
    primary = Primary(zone, transfer=[KEY], notify_key=KEY)
    with Server(zones=[primary], addresses=[(HOST, free_port())]) as first:
        secondary = Secondary(ORIGIN, [first.addresses[0]], key=KEY)
        with Server(zones=[secondary], addresses=[(HOST, free_port())]) as second:
            port = second.addresses[0][1]
            primary.notify.append((HOST, port))
            until(lambda: serial_at(port) == 5)
            with zone.edit() as edit:
                edit.add("www", "A", "192.0.2.9", 60)
            until(lambda: serial_at(port) == 6)
            assert secondary.data is not None
            assert secondary.data.changed == 1  # by the difference
            with pytest.raises(Exception, match="Refused"):
                notify(ORIGIN, (HOST, first.addresses[0][1]))
            secondary._expires = 0.0
            primary.may_transfer = type(primary.may_transfer)(())
            first.stop()
            secondary.notified(HOST)
            until(lambda: secondary.data is None)
            query = _wire.build(1, 0, name(ORIGIN), 6, 1)
            assert _wire.parse(second.respond(query, HOST)).rcode == 2


@pytest.mark.slow
@in_loop
def test_over_tls(tmp_path):
    """RFC 9103: transfers and updates over TLS, with the name checked; and a secondary that follows so."""
    ours, theirs = certificate(tmp_path, "DNS:primary.test")
    zone = Zone.from_text("@ 60 SOA ns admin 5 3600 900 86400 60\n@ 60 NS ns\nns 60 A 192.0.2.1\n", ORIGIN)
    primary = Primary(zone, transfer=[KEY], update=[KEY], notify_key=KEY)
    address = (HOST, free_port())
    with Server(zones=[primary], addresses=[address], tls=ours, tls_addresses=[(HOST, 0)]) as server:
        at = server.tls_addresses[0]
        assert transfer(ORIGIN, at, key=KEY, tls=theirs, tls_name="primary.test").serial == 5
        update = Update(ORIGIN)
        update.add("www", "A", "192.0.2.9", 60)
        update.send(at, key=KEY, tls=theirs, tls_name="primary.test")
        found = transfer(ORIGIN, at, key=KEY, tls=theirs, tls_name="primary.test")
        assert found.serial == 6 and found.get(f"www.{ORIGIN}", "A")
        for wrong in ({}, {"tls_name": "elsewhere.test"}):
            with pytest.raises(DNS_Transfer_Error, match="certificate"):
                transfer(ORIGIN, at, key=KEY, tls=theirs, **wrong)
        with pytest.raises(DNS_Transfer_Error):
            transfer(ORIGIN, at, key=KEY)  # no TLS
        secondary = Secondary(ORIGIN, [at], key=KEY, tls=theirs, tls_name="primary.test")
        with Server(zones=[secondary], addresses=[(HOST, free_port())]) as second:
            port = second.addresses[0][1]
            primary.notify.append((HOST, port))
            until(lambda: serial_at(port) == 6)
            with zone.edit() as edit:
                edit.remove("www")
            until(lambda: serial_at(port) == 7)
    assert Secondary(ORIGIN, ["192.0.2.1"], tls=theirs).primaries == [("192.0.2.1", 853)]


def messages(*records: Any, key: Key | None = None) -> Callable[[bytes], list[bytes]]:
    """A reply with some records in each of its messages."""

    def build(query: bytes) -> list[bytes]:
        question = _wire.parse(query)
        found = []
        for some in records:
            found.append(_wire.build(question.id, 0x8400, question.question, question.qtype, 1, some))
        return found

    return build


@contextmanager
def sending(reply: Callable[[bytes], Any], stay: bool = False) -> Iterator[int]:
    """A server that sends these messages to whoever asks, and closes, or says no more."""
    with coro.tcp_sock() as listener:
        listener.bind((HOST, 0))
        listener.listen(5)

        def serve() -> None:
            while True:
                sock, _ = listener.accept()
                with sock:
                    try:
                        query = sock.recv_exact(int.from_bytes(sock.recv_exact(2), "big"))
                        for message in reply(query):
                            sock.send(len(message).to_bytes(2, "big") + message)
                        if stay:
                            sock.recv(1)
                    except (OSError, EOFError):
                        pass

        thread = coro.spawn(serve)
        try:
            yield listener.getsockname()[1]
        finally:
            thread.shutdown()
            thread.join()


SOA_5 = soa(ORIGIN)
NS = record(ORIGIN, 2, "ns." + ORIGIN)
HOSTS = record("ns." + ORIGIN, 1, "192.0.2.1")


def forever(query: bytes) -> Iterator[bytes]:
    number = 0
    yield from messages([SOA_5, NS, HOSTS])(query)
    while True:
        number += 1
        yield from messages([record(f"a{number}.{ORIGIN}", 1, "192.0.2.1")])(query)


@pytest.mark.parametrize(
    ("reply", "settings", "says"),
    [
        (messages([NS, SOA_5]), {}, "begins with the SOA record"),
        (messages([SOA_5, NS, HOSTS]), {}, "the connection ended too early"),
        (messages([SOA_5, NS, HOSTS], []), {}, "empty or truncated"),
        (messages([SOA_5, NS, record("elsewhere.test", 1, "192.0.2.1"), SOA_5]), {}, "not in the zone"),
        (messages([SOA_5, NS, soa("sub." + ORIGIN), SOA_5]), {}, "not in the zone"),
        (messages([SOA_5, NS, HOSTS, (*SOA_5[:4], SOA_5[4][:-1] + b"\7")]), {}, "differs"),
        (messages([SOA_5, NS, HOSTS, SOA_5, NS]), {}, "behind the end"),
        (messages([SOA_5, (*NS[:2], 3, *NS[3:]), SOA_5]), {}, "another class"),
        (messages([SOA_5, NS, (HOSTS[0], 1, 1, 300, b"\1\2\3"), SOA_5]), {}, "that is wrong"),
        (lambda query: [b"\0\1\2"], {}, "header"),
        (lambda query: [_wire.build(1, 0x8405, name(ORIGIN), 252, 1)], {}, "another question"),
        (lambda query: messages([SOA_5, NS, HOSTS, SOA_5])(b"\1\1" + query[2:]), {}, "another question"),
        (forever, {"most": 500}, "more than 500 records"),
        (forever, {"most_bytes": 20_000}, "more than 20000 bytes"),
    ],
    ids=str,
)  # fmt: skip
@in_loop
def test_what_is_no_transfer(reply, settings, says):
    with sending(reply) as port:
        with pytest.raises(DNS_Transfer_Error, match=says):
            transfer(ORIGIN, (HOST, port), **settings)


@in_loop
def test_a_transfer_without_an_end():
    with sending(messages([SOA_5, NS, HOSTS]), stay=True) as port:
        with pytest.raises(DNS_Transfer_Error):
            transfer(ORIGIN, (HOST, port), idle=0.05)
    with sending(forever) as port:
        with pytest.raises(DNS_Transfer_Error):
            transfer(ORIGIN, (HOST, port), limit=0.2)


@pytest.mark.parametrize("gap", [0, 1, 99, 100])
@in_loop
def test_messages_without_a_signature(gap):
    """RFC 8945, section 5.3.1: at most 99 in a row, and not the last one."""

    def reply(query: bytes) -> Iterator[bytes]:
        found = tsig.verify(query, [KEY])
        assert found is not None
        signer = Signer(KEY, found.code)
        records = [[SOA_5, NS, HOSTS], *([record(f"a{i}.{ORIGIN}", 1, "192.0.2.1")] for i in range(gap)), [SOA_5]]
        unsigned = b""
        for number, message in enumerate(messages(*records)(query)):
            if 0 < number <= gap:
                unsigned += message
                yield message
            elif number:
                # all since the last signature count for the next one
                timers = int(time.time()).to_bytes(6, "big") + (300).to_bytes(2, "big")
                code = KEY.code(len(signer.code).to_bytes(2, "big") + signer.code, unsigned + message, timers)
                fields = (int(time.time()), 300, code, int.from_bytes(message[:2], "big"), 0, b"")
                yield tsig._with_record(message, KEY.wire, KEY.algorithm, fields)
            else:
                yield signer.sign(message)

    with sending(reply) as port:
        if gap < 100:
            assert len(transfer(ORIGIN, (HOST, port), key=KEY)) == 3 + gap
        else:
            with pytest.raises(DNS_Signature_Error, match="more than 99"):
                transfer(ORIGIN, (HOST, port), key=KEY)


@in_loop
def test_the_end_is_not_signed():
    def reply(query: bytes) -> Iterator[bytes]:
        found = tsig.verify(query, [KEY])
        assert found is not None
        first, last = messages([SOA_5, NS, HOSTS], [SOA_5])(query)
        yield Signer(KEY, found.code).sign(first)
        yield last

    with sending(reply) as port:
        with pytest.raises(DNS_Signature_Error, match="the end of the reply is not signed"):
            transfer(ORIGIN, (HOST, port), key=KEY)
    with sending(messages([SOA_5, NS, HOSTS, SOA_5])) as port:
        with pytest.raises(DNS_Signature_Error, match="without a signature"):
            transfer(ORIGIN, (HOST, port), key=KEY)


def serial(number: int) -> Any:
    return (*SOA_5[:4], SOA_5[4][:-20] + number.to_bytes(4, "big") + SOA_5[4][-16:])


EXTRA = record("extra." + ORIGIN, 1, "192.0.2.5")


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ([serial(3), serial(1), serial(2), EXTRA, serial(2), EXTRA, serial(3), serial(3)], None),
        ([serial(3), serial(2), serial(3), EXTRA, serial(3)], "but we have 1"),
        ([serial(3), serial(1), EXTRA, serial(3), serial(3)], "that is not there"),
        ([serial(3), serial(1), serial(1), EXTRA, serial(3)], "older serial"),
        ([serial(3), serial(1), serial(2), EXTRA, serial(1), serial(3)], "do not follow"),
    ],
    ids=["two steps", "another base", "not there", "older", "a gap"],
)
@in_loop
def test_differences(records, says):
    zone = Zone.from_text(f"@ 300 SOA ns.{ORIGIN}. ns.{ORIGIN}. 1 2 3 4 300\n@ 300 NS ns\nns 300 A 192.0.2.1\n", ORIGIN)
    text = zone.to_text()
    with sending(messages(records)) as port:
        if says is None:
            assert transfer(ORIGIN, (HOST, port), zone=zone).serial == 3
            assert "extra" not in zone.to_text()  # added, and removed by the next step
        else:
            with pytest.raises(DNS_Transfer_Error, match=says):
                transfer(ORIGIN, (HOST, port), zone=zone)
            assert zone.to_text() == text


@pytest.mark.slow
@in_loop
def test_a_large_zone_goes_out_while_others_are_answered():
    """Each message is made when it is sent: a slow reader costs one of them, and no more than some are served."""
    text = "@ SOA ns admin 1 3600 900 86400 300\n@ NS ns\nns A 192.0.2.1\n" + "".join(
        f"host{i} A 192.0.2.{i % 250}\n" for i in range(20_000)
    )
    zone = Zone.from_text("$TTL 300\n" + text, ORIGIN)
    with Server(zones=[Primary(zone, transfer=[HOST])], addresses=[(HOST, 0)]) as server:
        port = server.addresses[0][1]
        with coro.group() as readers:
            slow = []
            for _ in range(30):
                sock = coro.tcp_sock()
                sock.connect((HOST, port))
                query = _wire.build(1, 0, name(ORIGIN), 252, 1)
                sock.send(len(query).to_bytes(2, "big") + query)
                slow.append(sock)
            codes = [_wire.parse(one.recv_exact(int.from_bytes(one.recv_exact(2), "big"))).rcode for one in slow]
            assert codes.count(0) == 20 and codes.count(2) == 10
            assert serial_at(port) == 1
            for sock in slow:
                sock.close()
            until(lambda: server._authority.transfers_open == 0)
            copies = []
            for _ in range(3):
                readers.spawn(lambda: copies.append(transfer(ORIGIN, (HOST, port))))
        assert [len(copy) for copy in copies] == [len(zone)] * 3
