"""Searching and logging in: processor time of the client for an entry, or for a login, against one slapd.

search: 10 000 entries of twenty attributes, all values as Python's bytes.  read: 200 threads that read one entry each,
by its name.  bind: 200 logins under way at the same time.  All share one connection; the others do one after the other
on theirs, which is the same to the server for logins.  The C program (directory.c) copies all values with libldap.  The
server is started for each measurement, and does not count.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _common import Figures, Stopwatch, main

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parents[2] / "tests" / "support")]
ENTRIES = 10_000
BASE = "ou=people,dc=example,dc=org"
NAMES = (
    "description", "title", "givenName", "initials", "displayName", "employeeType", "employeeNumber",
    "departmentNumber", "roomNumber", "carLicense", "businessCategory", "physicalDeliveryOfficeName", "l", "st",
    "street",
)  # fmt: skip


def ldif() -> str:
    from ldap_server_support import entries

    found = [entries(0)]
    for n in range(ENTRIES):
        found.append(
            f"\ndn: uid=u{n},{BASE}\nobjectClass: inetOrgPerson\nuid: u{n}\ncn: User {n}\nsn: Sur{n}\n"
            "userPassword: pw\n" + "".join(f"{name}: value {n} of {name}\n" for name in NAMES)
        )
    return "".join(found)


def repeat(call: Callable[[], Any], count: int, each: int) -> Figures:
    """The call once to warm up, then until `count` operations of `each` are done."""
    call()
    watch = Stopwatch()
    watch.start()
    for _ in range(max(count // each, 1)):
        call()
    watch.stop()
    return watch.figures(max(count // each, 1) * each)


def coro(server: Any, what: str, count: int) -> Figures:
    import coro
    from coro.ldap import Client

    def run() -> Figures:
        with Client(server.url, timeout=60) as client:

            def search() -> None:
                number = 0
                for entry in client.search_iter(BASE, 1):
                    number += len(entry) == 20
                assert number == ENTRIES

            def bind() -> None:
                threads = [coro.spawn(client.simple_bind, f"uid=u{n},{BASE}", "pw") for n in range(200)]
                for thread in threads:
                    thread.get()

            def read() -> None:
                threads = [coro.spawn(client.read, f"uid=u{n},{BASE}") for n in range(200)]
                assert all(len(thread.get()) == 20 for thread in threads)

            if what == "search":
                return repeat(search, count, ENTRIES)
            return repeat(bind if what == "bind" else read, count, 200)

    found: Figures = coro.run(run)
    return found


def python_ldap(server: Any, what: str, count: int) -> Figures:
    import ldap

    client = ldap.initialize(server.url)

    def search() -> None:
        assert len(client.search_s(BASE, ldap.SCOPE_ONELEVEL)) == ENTRIES

    def bind() -> None:
        for n in range(200):
            client.simple_bind_s(f"uid=u{n},{BASE}", "pw")

    def read() -> None:
        for n in range(200):
            assert len(client.search_s(f"uid=u{n},{BASE}", ldap.SCOPE_BASE)[0][1]) == 20

    if what == "search":
        return repeat(search, count, ENTRIES)
    return repeat(bind if what == "bind" else read, count, 200)


def ldap3(server: Any, what: str, count: int) -> Figures:
    import ldap3

    place = ldap3.Server("127.0.0.1", server.port, get_info=None)
    strategy = ldap3.ASYNC if what == "bind" else ldap3.SYNC
    client = ldap3.Connection(place, auto_bind=True, client_strategy=strategy)

    def search() -> None:
        client.search(BASE, "(objectClass=*)", ldap3.LEVEL, attributes="*")
        assert len(client.response) == ENTRIES

    def bind() -> None:
        for n in range(200):
            assert client.rebind(f"uid=u{n},{BASE}", "pw", authentication=ldap3.SIMPLE)

    def read() -> None:
        for n in range(200):
            client.search(f"uid=u{n},{BASE}", "(objectClass=*)", ldap3.BASE, attributes="*")
            assert len(client.response[0]["raw_attributes"]) == 20

    if what == "search":
        return repeat(search, count, ENTRIES)
    return repeat(bind if what == "bind" else read, count, 200)


def bonsai(server: Any, what: str, count: int) -> Figures:
    """No logins: it makes a connection for each."""
    import bonsai

    place = bonsai.LDAPClient(server.url)
    place.set_raw_attributes([*NAMES, "objectClass", "uid", "cn", "sn", "userPassword"])
    client = place.connect()

    def search() -> None:
        assert len(client.search(BASE, bonsai.LDAPSearchScope.ONE)) == ENTRIES

    def read() -> None:
        for n in range(200):
            # Beside the attributes there is the name.
            assert len(client.search(f"uid=u{n},{BASE}", bonsai.LDAPSearchScope.BASE)[0]) == 21

    return repeat(search, count, ENTRIES) if what == "search" else repeat(read, count, 200)


def c(server: Any, what: str, count: int) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "directory")
        subprocess.run(["cc", "-O2", str(HERE / "directory.c"), "-o", program, "-lldap", "-llber"], check=True)
        each = ENTRIES if what == "search" else 200
        rounds = max(count // each, 1)
        done = subprocess.run(
            [program, server.url, BASE, what, str(rounds)], check=True, capture_output=True, text=True
        )
        cpu, wall = map(float, done.stdout.split())
    return {"cpu": cpu, "wall": wall, "count": rounds * each}


PEERS = {"coro": coro, "python-ldap": python_ldap, "ldap3": ldap3, "bonsai": bonsai, "c": c}


def run(peer: str, what: str, count: int) -> Figures:
    from ldap_server_support import Slapd

    with Slapd(ldif()) as server:
        return PEERS[peer](server, what, count)


if __name__ == "__main__":
    main({peer: lambda peer=peer, **given: run(peer, **given) for peer in PEERS})
