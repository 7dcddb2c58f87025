"""The listener against OpenLDAP's server with the overlay syncprov: each change, polls, restarts, a stale cookie."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from ldap_client_support import HANG, in_loop
from ldap_server_support import ADMIN, BASE, PASSWORD, Slapd, entries

import coro
from coro.ldap import Client
from coro.ldap.exceptions import ConnectionLost, UnavailableCriticalExtension, UnwillingToPerform
from coro.ldap.protocol import Entry
from coro.ldap.sync import Changed, Copy, Deleted, Listener, Lost, Present, Refreshed, Refreshing

pytestmark = pytest.mark.slow  # real servers
PEOPLE = f"ou=people,{BASE}"
COUNT = 20


class Provider(Slapd):
    """slapd that keeps a log of the last changes, so that it can name what is gone, or none."""

    def __init__(self, log: int = 100, more: str = "") -> None:
        super().__init__(entries(COUNT))
        self._overlay = "overlay syncprov\nsyncprov-checkpoint 1 1\n" + more
        if log:
            self._overlay += f"syncprov-sessionlog {log}\n"

    def prepare(self) -> None:
        super().prepare()
        path = self.folder / "slapd.conf"
        text = path.read_text().replace("moduleload back_mdb\n", "moduleload back_mdb\nmoduleload syncprov\n")
        path.write_text(text.replace("access to *", self._overlay + "access to *"))


@pytest.fixture(scope="module")
def slapd() -> Iterator[Provider]:
    with Provider() as running:
        yield running


def login(directory: Client) -> None:
    directory.simple_bind(ADMIN, PASSWORD)


def listener(server: Slapd, **options) -> Listener:
    return Listener(server.url, BASE, **{"bind": login, "timeout": HANG, "retry": (0.01, 0.1), **options})


def admin(server: Slapd) -> Client:
    directory = Client(server.url, timeout=HANG)
    login(directory)
    return directory


def user(name: str) -> str:
    return f"uid={name},{PEOPLE}"


def person(name: str) -> dict[str, list[str]]:
    return {"objectClass": ["inetOrgPerson"], "uid": [name], "cn": [name], "sn": [name]}


def there(directory: Client) -> dict:
    """What a copy should be."""
    found = directory.search_iter(BASE, attributes=["*", "entryUUID"])
    return {entry.text("entryUUID"): (entry.dn, dict(entry.items())) for entry in found}


def held(copy: Copy) -> dict:
    return {
        str(one): (entry.dn, {**dict(entry.items()), "entryUUID": [str(one).encode()]}) for one, entry in copy.items()
    }


def until(one: Listener, copy: Copy, number: int = 1) -> list:
    """What comes until so many entries have changed."""
    seen = []
    while number > 0:
        event = next(one)
        seen.append(event)
        number -= isinstance(event, (Changed, Deleted))
        copy.apply(event)
    return seen


def refreshed(one: Listener, copy: Copy) -> list:
    seen = []
    for event in one:
        seen.append(event)
        copy.apply(event)
        if isinstance(event, Refreshed):
            return seen
    raise AssertionError("the listener has ended")


def test_each_change(slapd: Provider) -> None:
    @in_loop
    def run() -> None:
        copy = Copy()
        with admin(slapd) as directory, listener(slapd) as one:
            seen = refreshed(one, copy)
            assert seen[0] == Refreshing(True) and seen[-1].complete and seen[-1].cookie.startswith(b"rid=")
            assert len(seen) - 2 == len(copy) == len(there(directory)) and held(copy) == there(directory)

            directory.add(user("new"), person("new"))
            [event] = until(one, copy)
            assert (event.state, event.entry.dn, event.entry.text("sn")) == ("add", user("new"), "new")
            assert event.cookie == one.cookie == copy.cookie

            directory.modify(user("new"), {"sn": ["other"]})
            event = until(one, copy)[-1]
            assert (event.state, event.entry.text("sn")) == ("modify", "other")

            directory.modify_dn(user("new"), "uid=newer")
            event = until(one, copy)[-1]
            assert event.entry.dn == user("newer")

            directory.delete(user("newer"))
            event = until(one, copy)[-1]
            assert event.dn == user("newer") and len(event.uuids) == 1
            assert held(copy) == there(directory)

            # An entry with others below it gets another name: the server tells of that one only.
            directory.modify_dn(PEOPLE, "ou=staff")
            assert len(until(one, copy)) == 1
            assert held(copy) == there(directory)
            directory.modify_dn(f"ou=staff,{BASE}", "ou=people")
            until(one, copy)
            assert held(copy) == there(directory)

    run()


def test_what_leaves_the_search(slapd: Provider) -> None:
    """An entry that no longer matches the filter is deleted, for this search."""

    @in_loop
    def run() -> None:
        copy = Copy()
        with admin(slapd) as directory, listener(slapd, filter="(title=in)", attributes=["title"]) as one:
            refreshed(one, copy)
            assert not copy
            directory.modify(user("u1"), {"title": ["in"]})
            [event] = until(one, copy)
            assert event.state == "add" and event.entry.attributes == {"title": [b"in"]}
            directory.modify(user("u1"), {"title": ["out"]})
            assert isinstance(until(one, copy)[-1], Deleted) and not copy

    run()


@pytest.mark.parametrize("log", [100, 0], ids=["delete phase", "present phase"])
def test_polls(log: int) -> None:
    """Only what has changed since the cookie comes, and it is clear what is gone."""
    with Provider(log) as server:

        @in_loop
        def run() -> None:
            copy = Copy()

            def poll() -> list:
                seen = list(listener(server, persist=False, cookie=copy.cookie))
                for event in seen:
                    copy.apply(event)
                return seen

            with admin(server) as directory:
                assert len(poll()) == len(copy) + 2
                # Nothing has changed: nothing is sent.
                assert [type(event) for event in poll()] == [Refreshing, Refreshed]
                directory.add(user("new"), person("new"))
                directory.modify(user("u1"), {"title": ["changed"]})
                directory.delete(user("u2"))
                directory.delete(user("u3"))
                seen = poll()
                assert held(copy) == there(directory)
                assert sum(isinstance(event, Changed) for event in seen) <= 3
                kinds = {type(event) for event in seen}
                if log:
                    assert not seen[-1].complete and Deleted in kinds and Present not in kinds
                    assert sum(len(event.uuids) for event in seen if isinstance(event, Deleted)) >= 2
                else:
                    assert seen[-1].complete and Present in kinds and Deleted not in kinds

        run()


def end(server: Slapd) -> None:
    assert server._child is not None
    server._child.terminate()
    server._child.wait()


def begin(server: Slapd) -> None:
    """Start it on the same port, and wait until it answers."""
    server._child = subprocess.Popen(
        server.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=server.folder,
        **({"user": "nobody"} if os.getuid() == 0 else {}),
    )  # fmt: skip
    while True:
        try:
            with Client(server.url) as directory:
                directory.root_dse()
            return
        except (OSError, ConnectionLost):
            coro.sleep_relative(0.02)


def test_the_server_is_restarted() -> None:
    """Changes while nobody listens come behind the restart, and none twice as a difference."""
    with Provider() as server:

        @in_loop
        def run() -> None:
            copy = Copy()
            lost = 0
            with listener(server) as one:
                refreshed(one, copy)
                before = len(copy)
                for turn in range(2):
                    end(server)
                    while not isinstance(event := next(one), Lost):
                        copy.apply(event)
                    begin(server)
                    with admin(server) as directory:
                        directory.add(user(f"more{turn}"), person(f"more{turn}"))
                        directory.delete(user(f"u{10 + turn}"))
                        found = there(directory)
                    changes = []
                    while held(copy) != found:
                        event = next(one)
                        lost += isinstance(event, Lost)
                        changes += copy.apply(event)
                    assert len(copy) == before and len(changes) == 2
                assert one.statistics().connected == 3 and one.statistics().lost == lost + 2

        run()


def test_odd_cookies() -> None:
    """One from long ago, one of another server, one that is newer than the server, as after a restored backup."""
    with Provider(0) as server:

        @in_loop
        def run() -> None:
            csn = "rid=000,csn=%d0101000000.000000Z#000000#%s#000000"
            with admin(server) as directory:
                for cookie in (csn % (2000, "000"), csn % (2000, "001")):
                    gone = uuid4()
                    copy = Copy([(gone, Entry("cn=gone"))], cookie.encode())
                    with listener(server, cookie=copy.cookie) as one:
                        seen = refreshed(one, copy)
                    assert gone not in copy and held(copy) == there(directory)
                    assert seen[0] == Refreshing(False) and seen[-1].complete and copy.cookie != cookie.encode()
            with (
                listener(server, cookie=(csn % (2099, "000")).encode()) as one,
                pytest.raises(UnwillingToPerform, match="newer"),
            ):
                list(one)

        run()


def test_a_server_without_the_overlay() -> None:
    with Slapd(entries(1)) as server:

        @in_loop
        def run() -> None:
            with listener(server) as one, pytest.raises(UnavailableCriticalExtension):
                list(one)

        run()


def test_many_changes_and_broken_connections(slapd: Provider) -> None:
    """Eight threads change entries while the connection breaks again and again; the copy is right at the end."""

    @in_loop
    def run() -> None:
        copy = Copy()
        rounds = 12
        left = 8

        def cut() -> None:
            if one._client is not None:
                one._client.link.sock.close()

        def change(number: int) -> None:
            nonlocal left
            with admin(slapd) as directory:
                for round in range(rounds):
                    name = f"c{number}-{round}"
                    directory.add(user(name), person(name))
                    directory.modify(user(name), {"title": ["x"]})
                    if round % 2:
                        directory.delete(user(name))
                    else:
                        directory.modify_dn(user(name), f"uid=r{name}")
            left -= 1

        with admin(slapd) as directory, listener(slapd, retry=(0, 0)) as one:
            refreshed(one, copy)
            threads = [coro.spawn(change, number) for number in range(8)]
            count = 0
            while left:
                copy.apply(next(one))
                count += 1
                if count % 20 == 0:
                    cut()
            for thread in threads:
                thread.get()
            cut()
            found = there(directory)
            while held(copy) != found:
                copy.apply(next(one))
            assert one.statistics().lost >= 1

    run()


def test_the_example(slapd: Provider, tmp_path: Path) -> None:
    """What has changed since the last run; and with --follow, until it is ended."""
    program = Path(__file__).resolve().parents[5] / "docs" / "examples" / "ldap" / "directory_changes.py"
    command = [sys.executable, str(program), slapd.url, BASE, str(tmp_path / "state"), "--filter", "(uid=u1*)"]
    options = {
        "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
        "env": {**os.environ, "CORO_LDAP_USER": ADMIN, "CORO_LDAP_PASSWORD": PASSWORD},
    }  # fmt: skip

    def run() -> list[str]:
        done = subprocess.run(command, timeout=HANG, **options)
        assert (done.returncode, done.stderr) == (0, "")
        return sorted(done.stdout.splitlines())

    def change(operation: str, *args) -> None:
        coro.run(lambda: with_admin(operation, *args))

    def with_admin(operation: str, *args) -> None:
        with admin(slapd) as directory:
            getattr(directory, operation)(*args)

    assert run() == sorted(f"+ {user(f'u{n}')}" for n in (1, *range(10, 20)))
    assert run() == []
    change("add", user("u1x"), person("u1x"))
    change("modify", user("u11"), {"title": ["changed"]})
    change("delete", user("u12"))
    assert run() == [f"+ {user('u1x')}", f"- {user('u12')}", f"~ {user('u11')}"]
    with subprocess.Popen([*command, "--follow"], **options) as follower:
        assert follower.stderr.readline() == "following 11 entries\n"
        change("delete", user("u1x"))
        assert follower.stdout.readline() == f"- {user('u1x')}\n"
        follower.kill()
    command[3] = "dc=elsewhere"
    done = subprocess.run(command, timeout=HANG, **options)
    assert done.returncode == 1 and "does not let us" in done.stderr
