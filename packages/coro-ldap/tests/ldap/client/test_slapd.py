"""The client against OpenLDAP's server and ours: every operation and control, TLS, pages, referrals, restarts."""

from __future__ import annotations

import contextlib
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from ldap_client_support import HANG, certificate, in_loop, open_files
from ldap_server_support import ADMIN, BASE, PASSWORD, Full, Ours, Slapd, entries
from real_programs.running import HOST

import coro
from coro.ldap import Client, ConnectionLost, Pool, Referrals, controls
from coro.ldap.client import SCOPE
from coro.ldap.exceptions import (
    AssertionFailed,
    EntryAlreadyExists,
    InvalidCredentials,
    NoSuchObject,
    NotAllowedOnNonLeaf,
    ReferralReceived,
    SizeLimitExceeded,
    UndefinedAttributeType,
)
from coro.ldap.filters import Equal
from coro.ldap.protocol import SearchRequest, SearchResultReference

pytestmark = pytest.mark.slow
PEOPLE = f"ou=people,{BASE}"
USER = f"uid=u1,{PEOPLE}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("tls")
    certificate(found, "server")
    certificate(found, "other")
    return found


@pytest.fixture(scope="module")
def slapd(folder: Path) -> Iterator[Full]:
    with Full(entries(60), folder) as running:
        yield running


@pytest.fixture(scope="module", params=["slapd", "ours"])
def server(request: pytest.FixtureRequest) -> Iterator[Slapd | Ours]:
    if request.param == "slapd":
        yield request.getfixturevalue("slapd")
    else:
        with Ours(entries(60)) as running:
            yield running


def admin(server: Slapd | Ours, **options) -> Client:
    client = Client(server.url, **{"timeout": HANG, **options})
    client.simple_bind(ADMIN, PASSWORD)
    return client


def test_every_operation(server: Slapd | Ours) -> None:
    @in_loop
    def run() -> None:
        with admin(server) as client:
            assert client.whoami() == f"dn:{ADMIN}"
            name = f"cn=new,{PEOPLE}"
            client.add(name, {"objectClass": ["person"], "cn": ["new"], "sn": ["N"], "description": [b"\xc3\xa4"]})
            with pytest.raises(EntryAlreadyExists):
                client.add(name, {"objectClass": ["person"], "cn": ["new"], "sn": ["N"]})
            client.modify(name, [("add", "description", ["two"]), ("replace", "sn", ["M"])])
            client.modify(name, [("delete", "description", ["two"])])
            assert client.read(name).text("description") == "ä"
            client.modify(name, {"description": []})
            assert client.read(name, ["description"]).attributes == {}
            assert client.compare(name, "sn", "m") and not client.compare(name, "sn", "other")
            with pytest.raises(UndefinedAttributeType):
                client.compare(name, "noSuchThing", "x")
            client.modify_dn(name, "cn=renamed", new_superior=f"ou=groups,{BASE}")
            moved = f"cn=renamed,ou=groups,{BASE}"
            assert client.read(moved)["cn"] == [b"renamed"]
            client.change_password(USER, None, "other")
            assert client.check_password(USER, "other") and not client.check_password(USER, "pw1")
            client.change_password(USER, None, "pw1")
            client.delete(moved)
            with pytest.raises(NoSuchObject) as caught:
                client.delete(moved)
            assert caught.value.result.matched_dn == f"ou=groups,{BASE}"
            with pytest.raises(NotAllowedOnNonLeaf):
                client.delete(PEOPLE)
            with pytest.raises(InvalidCredentials):
                client.simple_bind(USER, "wrong")
            assert client.bound_as == ""

    run()


def test_searches(server: Slapd | Ours) -> None:
    @in_loop
    def run() -> None:
        with admin(server) as client:
            everybody = list(client.search_iter(PEOPLE, SCOPE.ONELEVEL, page_size=7))
            assert {entry.dn for entry in everybody} == {f"uid=u{n},{PEOPLE}" for n in range(60)}
            assert [e.dn for e in client.search_iter(BASE, filter=Equal("uid", "u5"))] == [f"uid=u5,{PEOPLE}"]
            [entry] = client.search_iter(USER, SCOPE.BASE, attributes=["uid", "cn"])
            assert entry["UID"] == [b"u1"] and set(entry.with_options("cn")) == {"cn", "cn;lang-de"}
            [entry] = client.search_iter(USER, SCOPE.BASE, attributes=[])
            assert entry.attributes == {}
            [entry] = client.search_iter(USER, SCOPE.BASE, types_only=True)
            assert entry["uid"] == []
            assert client.search(USER, SCOPE.BASE, 0, 0, 0, False, b"(uid=*)", ["uid"]) == [
                [USER.encode(), [[b"uid", [b"u1"]]]]
            ]
            with pytest.raises(NoSuchObject):
                client.search(f"cn=none,{BASE}")
            for page in (0, 3):
                found = []
                with pytest.raises(SizeLimitExceeded):
                    for entry in client.search_iter(PEOPLE, 1, size_limit=10, page_size=page):
                        found.append(entry.dn)
                assert len(found) == 10
            # Left at the end of a page, again and again: the server must not keep what belongs to the next one.
            for _ in range(20):
                for _ in client.search_iter(PEOPLE, page_size=1):
                    break
            assert BASE.encode() in client.root_dse()["namingContexts"]

    run()


def test_controls_of_changes(server: Slapd | Ours) -> None:
    @in_loop
    def run() -> None:
        with admin(server) as client:
            wanted = [controls.PreRead(["sn"], True), controls.PostRead(["sn"], True)]
            result = client.modify(USER, {"sn": ["Later"]}, controls=wanted)
            before = controls.find(result, controls.PreReadResponse)
            after = controls.find(result, controls.PostReadResponse)
            assert (before.entry["sn"], after.entry["sn"]) == ([b"Sur1"], [b"Later"])
            with pytest.raises(AssertionFailed):
                client.modify(USER, {"sn": ["No"]}, controls=[controls.Assertion("(sn=Sur1)")])
            client.modify(USER, {"sn": ["Sur1"]}, controls=[controls.Assertion("(sn=Later)")])

    run()


def test_controls_of_slapd(slapd: Full) -> None:
    @in_loop
    def run() -> None:
        with admin(slapd) as client:
            sort = controls.ServerSideSort(controls.SortKey("uid", "caseIgnoreOrderingMatch", True), critical=True)
            names = [e.text("uid") for e in client.search_iter(PEOPLE, 1, attributes=["uid"], controls=[sort])]
            assert names == sorted(names, reverse=True) and len(names) == 60
            view = controls.VirtualListView(1, 2, 10, 0)
            with client.stream(SearchRequest(PEOPLE, 1, "(uid=*)"), [sort, view]) as search:
                found = [entry.text("uid") for entry in search]
            assert found == names[8:12]
            place = controls.find(search.result, controls.VirtualListViewResponse)
            assert (place.position, place.count, place.code) == (10, 60, 0)
            assert controls.find(search.result, controls.SortResponse).code == 0
            values = controls.MatchedValues("(cn=Benutzer*)")
            entry = client.read(USER, ["cn"], controls=[values])
            assert entry.attributes == {"cn;lang-de": [b"Benutzer 1"]}
            assert client.whoami(controls=[controls.ProxiedAuthorization(f"dn:{USER}")]) == f"dn:{USER}"
            assert list(client.search_iter(BASE, filter="(uid=u1)", controls=[controls.Subentries(False, True)]))
            list(client.search_iter(BASE, controls=[controls.ManageDsaIT(), controls.DontUseCopy(False)]))

    run()


def test_tls(slapd: Full, folder: Path) -> None:
    @in_loop
    def run() -> None:
        trusting = ssl.create_default_context(cafile=str(folder / "server.pem"))
        other = ssl.create_default_context(cafile=str(folder / "other.pem"))
        with Client(slapd.url, tls=trusting, timeout=HANG) as client:
            client.starttls()
            client.simple_bind(USER, "pw1")
            assert client.whoami() == f"dn:{USER}" and client.secure
        url = f"ldaps://{HOST}:{slapd.tls_port}"
        with Client(url, tls=trusting, timeout=HANG) as client:
            assert len(list(client.search_iter(PEOPLE, 1))) == 60
        for tls in (other, None):
            with pytest.raises(coro.tls.CertificateError):
                Client(url, tls=tls)
            with pytest.raises(coro.tls.CertificateError):
                Client(slapd.url, tls=tls, starttls=True)
        with Client(f"ldapi://{quote(str(slapd.folder / 'ldapi'), safe='')}", timeout=HANG) as client:
            client.sasl_bind("", "EXTERNAL")
            assert "cn=peercred" in client.whoami() and client.secure
        with Client(str(slapd.folder / "ldapi")) as client, pytest.raises(coro.ldap.StateError):
            client.close()
            client.whoami()

    run()


def test_a_thousand_wrong_passwords_leave_nothing_open(slapd: Full) -> None:
    @in_loop
    def run() -> None:
        with Client(slapd.url, timeout=HANG) as client:
            for number in range(1020):
                if number == 20:
                    before = open_files()
                if number % 4:
                    with pytest.raises(InvalidCredentials):
                        client.simple_bind(ADMIN, "wrong")
                else:
                    try:
                        with Client(slapd.url, timeout=HANG) as other:
                            other.simple_bind(ADMIN, "wrong")
                    except InvalidCredentials:
                        pass
            assert open_files() <= before + 2

    run()


@pytest.mark.parametrize("how", ["continuation", "referral"])
def test_referrals(slapd: Full, how: str) -> None:
    target = f"ldap://{HOST}:{slapd.port}/{quote(PEOPLE, safe='=,')}??sub" if how == "continuation" else None
    with Full("\n".join(entries(0).split("\n")), referral=target or f"ldap://{HOST}:{slapd.port}/{PEOPLE}") as first:

        @in_loop
        def run() -> None:
            logins = []
            policy = Referrals(bind=lambda there, url: logins.append(url.host))
            with Client(first.url, timeout=HANG) as client:
                if how == "continuation":
                    plain = list(client.search_iter(BASE, attributes=["uid"]))
                    assert len(plain) == 3
                    items = list(client.search_iter(BASE, references=True))
                    assert [type(i) for i in items].count(SearchResultReference) == 1
                    found = list(client.search_iter(BASE, attributes=["uid"], referrals=policy))
                    assert len(found) == 3 + 61 and logins == [HOST]
                    refuse = Referrals(allow=lambda url: False)
                    with pytest.raises(coro.ldap.ReferralError, match="not allowed"):
                        list(client.search_iter(BASE, referrals=refuse))
                else:
                    name = f"uid=u1,ou=away,{BASE}"
                    with pytest.raises(ReferralReceived):
                        client.compare(name, "uid", "u1")
                    with pytest.raises(ReferralReceived):
                        list(client.search_iter(name))
                    client.referrals = policy
                    assert client.compare(name, "uid", "u1")
                    assert [entry.dn for entry in client.search_iter(name)] == [USER]

        run()


@pytest.fixture(scope="module")
def large() -> Iterator[Slapd]:
    """100 000 entries."""
    text = [entries(0)]
    for number in range(100_000):
        text.append(
            f"\ndn: cn=e{number},{PEOPLE}\nobjectClass: person\ncn: e{number}\nsn: s\ndescription: {'x' * 100}\n"
        )
    with Slapd("".join(text)) as running:
        yield running


PAGES = """
import resource, sys, coro
from coro.ldap import Client
def run():
    with Client(sys.argv[1], timeout=60) as client:
        names, most = set(), 0
        for number, entry in enumerate(client.search_iter(sys.argv[2], 1, page_size=int(sys.argv[3]))):
            names.add(int(entry.text("cn")[1:]))
            if number == 10_000:
                most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(len(names), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most)
coro.run(run)
"""


@pytest.mark.parametrize("page", [1000, 0])
def test_memory_stays_flat_over_many_entries(large: Slapd, page: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PAGES, large.url, PEOPLE, str(page)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    count, grown = map(int, done.stdout.split())
    # The numbers of the entries in the set take less than 12 MiB themselves; the entries would take 80.
    assert count == 100_000 and grown < 20_000, f"{grown} KiB"


def test_restart_while_a_hundred_threads_search() -> None:
    """Each thread gets whole answers or ConnectionLost, and goes on over a new connection once the server is back."""

    @in_loop
    def run() -> None:
        stopped = coro.event()
        back = coro.event()
        with Full(entries(60)) as server:
            client = Client(server.url, timeout=HANG)
            clients = [client]
            counts = [0, 0]

            def connection() -> Client:
                if not clients[0].alive:
                    clients[0] = Client(server.url, timeout=HANG)
                return clients[0]

            def search() -> None:
                lost = False
                while not lost:
                    try:
                        assert len(list(connection().search_iter(PEOPLE, 1, page_size=25))) == 60
                        counts[0] += 1
                        if counts[0] == 300:
                            stopped.set()
                    except (ConnectionLost, OSError):
                        lost = True
                counts[1] += 1
                back.wait()
                assert len(list(connection().search_iter(PEOPLE, 1))) == 60

            threads = [coro.spawn(search) for _ in range(100)]
            stopped.wait()
            server._child.terminate()
            while counts[1] < 100:
                coro.sleep_relative(0.01)
            restart(server)
            back.set()
            for thread in threads:
                thread.get()
            assert not client.alive and client.statistics().pending == 0
            clients[0].close()

    run()


def restart(server: Slapd) -> None:
    """Start it anew on the same port, and wait until it answers."""
    server._child.wait()
    server._child = subprocess.Popen(
        server.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=server.folder,
        **({"user": "nobody"} if os.getuid() == 0 else {}),
    )  # fmt: skip
    while True:
        try:
            with Client(server.url) as client:
                client.root_dse()
            return
        except (OSError, ConnectionLost):
            coro.sleep_relative(0.02)


def test_restart_under_a_pool() -> None:
    """Threads that use a pool get whole results or an error while the server is away, and go on when it is back."""

    @in_loop
    def run() -> None:
        stopped, back = coro.event(), coro.event()
        with Full(entries(60)) as server:
            before = open_sockets()
            with Pool(server.url, size=8, retry=0, wait=HANG, timeout=HANG, bind=login) as pool:
                counts = [0, 0]

                def work(number: int) -> None:
                    while True:
                        try:
                            # Each thread asks something else, so nobody takes the result of another one.
                            found = pool.search(PEOPLE, 1, f"(&(objectClass=person)(!(uid=x{number})))", ["uid"])
                            assert len(found) == 60
                            with pool.connection() as client:
                                client.modify(f"uid=u{number},{PEOPLE}", {"title": [f"t{counts[0]}"]})
                            counts[0] += 1
                            if counts[0] == 300:
                                stopped.set()
                            if back.is_set():
                                return
                        except (ConnectionLost, OSError):
                            if not back.is_set():
                                counts[1] += 1
                                back.wait()

                threads = [coro.spawn(work, number) for number in range(50)]
                stopped.wait()
                server._child.terminate()
                while counts[1] < 50:
                    coro.sleep_relative(0.01)
                assert pool.statistics().lent == 0
                restart(server)
                back.set()
                for thread in threads:
                    thread.get()
                found = pool.statistics()
                assert found.lent == 0 and found.idle <= 8 and found.failed >= 1
            assert open_sockets() == before

    run()


def open_sockets() -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found


def login(client: Client) -> None:
    client.simple_bind(ADMIN, PASSWORD)


def test_a_pool_goes_over_to_another_slapd_and_back() -> None:
    """Searches do not fail when one of two servers goes; those of the first one are repeated at the second."""

    @in_loop
    def run() -> None:
        with Full(entries(60)) as first, Full(entries(60)) as second:
            with Pool([first.url, second.url], size=8, retry=0, wait=HANG, timeout=HANG) as pool:
                done = [0]
                enough = coro.event()
                over = coro.event()

                def work(number: int) -> None:
                    while not over.is_set():
                        assert len(pool.search(PEOPLE, 1, f"(!(uid=x{number}))")) == 60
                        done[0] += 1
                        if done[0] % 200 == 0:
                            enough.set()

                threads = [coro.spawn(work, number) for number in range(30)]
                enough.wait()
                first._child.terminate()
                for _ in range(2):
                    enough.clear()
                    enough.wait()
                over.set()
                for thread in threads:
                    thread.get()
                assert pool.statistics().down == () and pool.statistics().failed >= 1
                restart(first)
                with pool.connection() as client:
                    assert client.url is not None and client.url.port == first.port

    run()


def test_many_searches_by_pages_at_the_same_time(server: Slapd | Ours) -> None:
    """OpenLDAP keeps the state of one for each connection: a second one would break the first."""

    @in_loop
    def run() -> None:
        with admin(server) as client:
            threads = [coro.spawn(lambda: len(list(client.search_iter(PEOPLE, 1, page_size=7)))) for _ in range(50)]
            assert [thread.get() for thread in threads] == [60] * 50
            inner = [
                len(list(client.search_iter(PEOPLE, 1, page_size=7)))
                for _ in client.search_iter(PEOPLE, 1, page_size=7)
            ]
            assert inner == [60] * 60
            assert client._paging == 0

    run()


def test_more_searches_at_a_time_than_an_anonymous_connection_may_have(server: Slapd | Ours) -> None:
    """slapd ends a connection with more than a hundred requests that wait (conn_max_pending), without a word; ours says
    that it is busy."""

    @in_loop
    def run() -> None:
        with Client(server.url, timeout=HANG) as client:
            if isinstance(server, Ours):  # which shows strangers nothing
                client.simple_bind(USER, "pw1")
            threads = [coro.spawn(client.read, f"uid=u{n % 60},{PEOPLE}") for n in range(1000)]
            assert [thread.get().text("uid") for thread in threads] == [f"u{n % 60}" for n in range(1000)]

    run()
