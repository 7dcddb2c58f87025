"""Dynamic updates: ours beside BIND's and Knot's for the same messages, nsupdate, keys, and the file."""

from __future__ import annotations

import random

import pytest
from dns_support import in_loop
from real_programs import HOST, find_program, free_port
from zone_servers import KEY, ORIGIN, SECRET, Bind, Knot, knot_acl, until

import coro
from coro.dns.exceptions import DNS_Signature_Error, DNS_Update_Error
from coro.dns.server import Server
from coro.dns.tsig import Key
from coro.dns.zone import Primary, Update, Zone, transfer
from coro.process import run

TEXT = """$TTL 300
@ SOA ns admin 5 3600 900 86400 300
@ NS ns
@ NS ns2
ns A 192.0.2.1
ns2 A 192.0.2.2
www A 192.0.2.3
www TXT "one"
alias CNAME www
sub NS ns.sub
ns.sub A 192.0.2.4
"""
# BIND keeps the addresses of a zone's own servers, and takes no wildcard with NS records, neither
# of which is in the RFC. Knot says nothing to a SOA record below the top.
BIND = "allow-update { key key.test; }; allow-transfer { any; }; check-mx ignore; check-integrity no;"
NAMES = ["@", "www", "alias", "sub", "new", "a.b.new", "*"]
TYPES = {
    "A": ["192.0.2.1", "192.0.2.3", "192.0.2.99"],
    "TXT": ["one", "two"],
    "CNAME": ["www", "new"],
    "NS": ["ns", "ns2", "ns.elsewhere.test."],
    "MX": ["10 www"],
    "SOA": ["ns admin 100 1 2 3 4", "ns admin 2 1 2 3 4"],
}


def random_update(chance: random.Random) -> Update:
    """With up to two conditions and three changes."""
    update = Update(ORIGIN)
    name, type = chance.choice(NAMES), chance.choice(list(TYPES))
    for _ in range(chance.choice([0, 0, 0, 1, 2])):
        name, type = chance.choice(NAMES), chance.choice(list(TYPES))
        form = chance.randrange(3)
        if chance.random() < 0.4:
            update.absent(name, type if form else None)
        elif form < 2:
            update.present(name, type if form else None)
        else:
            update.present(name, type, chance.sample(TYPES[type], 1))
    for _ in range(chance.randint(1, 3)):
        name, type = chance.choice(NAMES), chance.choice(list(TYPES))
        if name == "*" and type == "NS" or name != "@" and type == "SOA":
            continue
        form = chance.randrange(6)
        if form < 3:
            update.add(name, type, chance.choice(TYPES[type]), chance.choice([60, 300]))
        else:
            update.remove(name, type if form > 3 else None, chance.choice(TYPES[type]) if form > 4 else None)
    return update


def result(update: Update, port: int) -> str:
    try:
        update.send((HOST, port), key=KEY)
    except DNS_Update_Error as e:
        return str(e.dnsrcode)
    return "done"


def records(port: int) -> list[tuple[object, ...]]:
    """All but the serial, which everybody raises in his own way, and the TTLs of sets, which differ."""
    found = transfer(ORIGIN, (HOST, port), key=KEY)
    return sorted(
        (name.lower(), str(type), str(data)) for name, type, _, _, data in found.records() if str(type) != "SOA"
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bind", "knot"])
@pytest.mark.parametrize("seed", [1, 2])
@in_loop
def test_beside_others(kind, seed):
    """The same updates make the same zones."""
    chance = random.Random(seed)
    zone = Zone.from_text(TEXT, ORIGIN)
    if kind == "bind":
        other = Bind({ORIGIN: TEXT}, zone_more=BIND)
    else:
        other = Knot({ORIGIN: TEXT}, knot_acl(KEY), "    acl: [all]\n")
    codes = set()
    with other, Server(zones=[Primary(zone, update=[KEY], transfer=[KEY])], addresses=[(HOST, 0)]) as server:
        port = server.addresses[0][1]
        for number in range(60):
            update = random_update(chance)
            said = result(update, port)
            assert said == result(update, other.port), (number, update._conditions, update._changes)
            codes.add(said)
            assert records(port) == records(other.port), (number, update._conditions, update._changes)
    assert len(codes) > 3


@pytest.mark.slow
@in_loop
def test_nsupdate(tmp_path):
    program = find_program("nsupdate", "bind9-dnsutils")
    zone = Zone.from_text(TEXT, ORIGIN)
    (tmp_path / "key").write_text(KEY.text())
    with Server(zones=[Primary(zone, update=[KEY])], addresses=[(HOST, 0)]) as server:
        head = f"server {HOST} {server.addresses[0][1]}\nzone {ORIGIN}\n"
        good = head + f"prereq nxdomain new.{ORIGIN}\nupdate add new.{ORIGIN} 60 A 192.0.2.7\nsend\n"
        for text, key, says in (
            (good, True, ""),
            (good, True, "YXDOMAIN"),
            (head + f"update delete new.{ORIGIN}\nsend\n", False, "REFUSED"),
            (head + f"update delete www.{ORIGIN} A\nsend\n", True, ""),
            (head.replace(ORIGIN, "elsewhere.test") + "update delete www.elsewhere.test A\nsend\n", True, "NOTAUTH"),
        ):
            arguments = ["-k", str(tmp_path / "key")] if key else []
            done = run([program, *arguments], input=text.encode())
            assert says in done.stderr.decode() and bool(done.returncode) == bool(says), done
        assert zone.get(f"new.{ORIGIN}", "A") and not zone.get(f"www.{ORIGIN}", "A")
        assert zone.serial == 7


@in_loop
def test_who_may_change():
    zone = Zone.from_text(TEXT, ORIGIN)
    with pytest.raises(TypeError, match="addresses can be forged"):
        Primary(zone, update=["127.0.0.1"])
    other = Key.generate("transfers.test")
    with Server(zones=[Primary(zone, update=[KEY], transfer=[other])], addresses=[(HOST, 0)]) as server:
        update = Update(ORIGIN)
        update.remove("www")
        for key, error, says in (
            (None, DNS_Update_Error, "Refused"),
            (other, DNS_Update_Error, "Refused"),
            (Key("key.test", b"wrong"), DNS_Signature_Error, "BADSIG"),
            (Key("unknown.test", SECRET), DNS_Signature_Error, "BADKEY"),
            (Key("key.test", SECRET, "hmac-sha512"), DNS_Signature_Error, "BADKEY"),
        ):
            with pytest.raises(error, match=says):
                update.send(server.addresses[0], key=key)
        assert zone.serial == 5 and server.statistics().updates == 0
        update.send(server.addresses[0], key=KEY)
        assert zone.serial == 6 and server.statistics().updates == 1


@in_loop
def test_an_update_is_in_the_file_when_it_is_answered(tmp_path):
    """RFC 2136, section 3.5. What comes while it is written is written together."""
    path = tmp_path / "zone"
    zone = Zone.from_text(TEXT, ORIGIN)
    primary = Primary(zone, update=[KEY], path=path)

    def change(number: int, address: tuple[str, int]) -> None:
        update = Update(ORIGIN)
        update.add(f"host{number}", "A", "192.0.2.8", 60)
        update.send(address, key=KEY)
        assert f"host{number}." in path.read_text()

    written = 0
    save = primary._saving._work

    def counted() -> object:
        nonlocal written
        written += 1
        return save()

    primary._saving._work = counted
    with Server(zones=[primary], addresses=[(HOST, 0)]) as server:
        with coro.group() as threads:
            for number in range(100):
                threads.spawn(change, number, server.addresses[0])
        assert 0 < written <= 100
        path.unlink()
        path.mkdir()  # cannot be written now
        update = Update(ORIGIN)
        update.add("more", "A", "192.0.2.8", 60)
        with pytest.raises(DNS_Update_Error, match="ServFail"):
            update.send(server.addresses[0], key=KEY)
        path.rmdir()
        update.remove("more")
        update.send(server.addresses[0], key=KEY)
        assert "more" not in path.read_text()
        with zone.edit() as edit:
            edit.add("last", "A", "192.0.2.9", 60)
    assert "last" in path.read_text()  # a change just before the end is kept


@in_loop
def test_a_secondary_that_does_not_answer_delays_no_update(tmp_path):
    zone = Zone.from_text(TEXT, ORIGIN)
    with coro.udp_sock() as mute:
        mute.bind((HOST, 0))
        primary = Primary(zone, update=[KEY], path=tmp_path / "zone", notify=[mute.getsockname()])
        with Server(zones=[primary], addresses=[(HOST, 0)]) as server:
            for number in range(3):
                update = Update(ORIGIN)
                update.add(f"host{number}", "A", "192.0.2.8", 60)
                update.send(server.addresses[0], key=KEY)
            until(lambda: mute.recv(512))
            assert not primary._telling._done  # still at the first one


@in_loop
def test_a_signed_zone_is_not_changed():
    """Its signatures would be wrong."""
    signature = "SOA 13 2 300 20400101000000 20200101000000 1 example.test. AAAA"
    zone = Zone.from_text(TEXT + f"@ RRSIG {signature}\n@ DNSKEY 256 3 13 AAAA\n", ORIGIN)
    with Server(zones=[Primary(zone, update=[KEY])], addresses=[(HOST, free_port())]) as server:
        update = Update(ORIGIN)
        update.add("new", "A", "192.0.2.8", 60)
        with pytest.raises(DNS_Update_Error, match="Refused"):
            update.send(server.addresses[0], key=KEY)
