"""The default resolver: literals, the hosts file, getaddrinfo in a worker; and installing others."""

import _socket
import os
import socket

import pytest

import coro
from coro import resolver

FOUR, SIX = socket.AF_INET, socket.AF_INET6


@pytest.fixture
def hosts(tmp_path):
    path = tmp_path / "hosts"
    path.write_text(
        "# a comment\n"
        "10.1.2.3   one.example One-Alias  # and more\n"
        "10.1.2.4   one.example\n"
        "10.1.2.3   one.example\n"
        "fd00::1    one.example six.example\n"
        "fe80::1%lo zone.example\n"
        "not-an-address nonsense.example\n"
        "10.9.9.9\n"
        "\n"
    )
    return path


@pytest.fixture
def no_system(monkeypatch):
    """Fail when the system's resolver is asked."""

    def refuse(*args):
        raise AssertionError(f"getaddrinfo{args}")

    monkeypatch.setattr(resolver._socket, "getaddrinfo", refuse)


@pytest.fixture
def system(monkeypatch):
    """Answers instead of the system's resolver's."""
    answers = {}

    def getaddrinfo(name, port, family, kind):
        found = answers.get((name, family))
        if found is None:
            raise _socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(family, kind, 6, "", a) for a in found]

    monkeypatch.setattr(resolver._socket, "getaddrinfo", getaddrinfo)
    return answers


def test_literals(no_system):
    r = coro.dummy_resolver()
    assert r.resolve_ipv4("192.0.2.1") == "192.0.2.1"
    assert r.resolve_ipv6("2001:db8::1") == "2001:db8::1"
    assert r.resolve_ipv6("fe80::1%lo") == "fe80::1%lo"
    assert r.resolve_all("192.0.2.1", FOUR) == ["192.0.2.1"]


def test_hosts_file(hosts, no_system):
    r = coro.dummy_resolver(hosts)
    assert r.resolve_ipv4("one.example") == "10.1.2.3"
    assert r.resolve_ipv4("ONE.example.") == "10.1.2.3"
    assert r.resolve_ipv4("one-alias") == "10.1.2.3"
    assert r.resolve_all("one.example", FOUR) == ["10.1.2.3", "10.1.2.4"]
    assert r.resolve_ipv6("one.example") == "fd00::1"
    assert r.resolve_ipv6("six.example") == "fd00::1"
    assert r.resolve_ipv6("zone.example") == "fe80::1%lo"


def test_answers_are_the_callers_own(hosts, no_system):
    r = coro.dummy_resolver(hosts)
    r.resolve_all("one.example", FOUR).clear()
    assert r.resolve_ipv4("one.example") == "10.1.2.3"


def test_hosts_file_is_read_again_when_it_changes(hosts, system):
    r = coro.dummy_resolver(hosts)
    assert r.resolve_ipv4("one.example") == "10.1.2.3"
    hosts.write_text("10.7.7.7 one.example\n")
    assert r.resolve_ipv4("one.example") == "10.7.7.7"
    st = hosts.stat()
    hosts.write_text("10.8.8.8 one.example\n")            # the same size
    os.utime(hosts, ns=(st.st_atime_ns, st.st_mtime_ns + 1))
    assert r.resolve_ipv4("one.example") == "10.8.8.8"
    hosts.unlink()
    with pytest.raises(coro.NameError):
        coro.run(r.resolve_ipv4, "one.example")
    hosts.write_text("10.9.9.9 one.example\n")
    assert r.resolve_ipv4("one.example") == "10.9.9.9"


def test_hosts_file_is_parsed_once(hosts, monkeypatch):
    r = coro.dummy_resolver(hosts)
    r.resolve_ipv4("one.example")
    monkeypatch.setattr(r._hosts, "_parse", lambda size: pytest.fail("parsed again"))
    r.resolve_ipv4("one.example")


def test_bytes_that_are_no_text_in_the_hosts_file(hosts, no_system):
    hosts.write_bytes(b"10.0.0.1 \xff\xfe bad\n10.0.0.2 good\n")
    assert coro.dummy_resolver(hosts).resolve_ipv4("good") == "10.0.0.2"


def test_an_enormous_hosts_file_is_ignored(hosts, system, monkeypatch):
    monkeypatch.setattr(resolver, "HOSTS_MOST_BYTES", 10)
    with pytest.raises(coro.NameError):
        coro.run(coro.dummy_resolver(hosts).resolve_ipv4, "one.example")


def test_the_system_is_asked_in_a_worker(hosts, system):
    system[b"far.example", FOUR] = [("192.0.2.7", 0), ("192.0.2.8", 0), ("192.0.2.7", 0)]
    system[b"far.example", SIX] = [("2001:db8::7", 0, 0, 0), ("fe80::7", 0, 0, 3)]
    system[b"xn--bcher-kva.example", FOUR] = [("192.0.2.9", 0)]

    def main():
        r = coro.dummy_resolver(hosts)
        assert r.resolve_ipv4("far.example") == "192.0.2.7"
        assert r.resolve_all("far.example", FOUR) == ["192.0.2.7", "192.0.2.8"]
        assert r.resolve_all("far.example", SIX) == ["2001:db8::7", "fe80::7%3"]
        assert r.resolve_ipv4("b\xfccher.example") == "192.0.2.9"

    coro.run(main)


def test_localhost(hosts, no_system):
    assert coro.get_resolver().resolve_ipv4("localhost") == "127.0.0.1"
    r = coro.dummy_resolver(hosts.with_name("no such file"))
    assert r.resolve_ipv4("LocalHost.") == "127.0.0.1"
    assert r.resolve_ipv6("a.localhost") == "::1"
    hosts.write_text("127.9.9.9 localhost\n")
    assert coro.dummy_resolver(hosts).resolve_ipv4("localhost") == "127.9.9.9"


def test_the_system_itself():
    """Whatever this machine's name is, asking for it ends."""
    try:
        address = coro.run(coro.dummy_resolver(os.devnull).resolve_ipv4, socket.gethostname())
    except coro.NameError:
        return
    assert address.count(".") == 3


@pytest.mark.parametrize(
    "name",
    [
        "nowhere.example",
        "",
        ".",
        "two words",
        "nul\0byte",
        "x" * 254,
        "123",
        "127.1",
        "1.2.3.256",
        "0x7f.1",
        "0x7f000001",
        "a.0x10",
        "::1:",
        "[::1]",
        "\u2603" * 64 + ".example",
        "a..b",
    ],
)
def test_names_without_address(name, hosts, system):
    def main():
        r = coro.dummy_resolver(hosts)
        for method in (r.resolve_ipv4, r.resolve_ipv6):
            with pytest.raises(coro.NameError) as e:
                method(name)
            assert str(e.value)

    coro.run(main)


def test_a_name_with_the_other_family_only(hosts, system):
    def main():
        with pytest.raises(coro.NameError, match="IPv4"):
            coro.dummy_resolver(hosts).resolve_ipv4("six.example")
        with pytest.raises(coro.NameError, match="IPv6"):
            coro.dummy_resolver(hosts).resolve_ipv6("192.0.2.1")

    coro.run(main)


def test_misuse(hosts):
    r = coro.dummy_resolver(hosts)
    for value in (None, 5, b"bytes", ["x"]):
        with pytest.raises(TypeError, match="str"):
            r.resolve_ipv4(value)
    with pytest.raises(ValueError, match="family"):
        r.resolve_all("x", socket.AF_UNIX)
    with pytest.raises(coro.YieldFromMain):
        r.resolve_ipv4("nowhere.example")


def test_installing():
    class Other:
        def resolve_ipv4(self, name):
            return "192.0.2.1"

        def resolve_ipv6(self, name):
            return "2001:db8::1"

    before = coro.get_resolver()
    assert isinstance(before, coro.dummy_resolver)
    other = Other()
    assert coro.set_resolver(other) is before
    try:
        assert coro.get_resolver() is other
        assert resolver.addresses("x", FOUR) == ["192.0.2.1"]
        assert resolver.addresses("x", SIX) == ["2001:db8::1"]
    finally:
        assert coro.set_resolver(before) is other
    for bad in (None, 5, object()):
        with pytest.raises(TypeError, match="resolve_ipv4"):
            coro.set_resolver(bad)
    assert coro.get_resolver() is before


def test_a_resolver_without_answers():
    class Empty:
        def resolve_all(self, name, family):
            return ()

        resolve_ipv4 = resolve_ipv6 = None

    before = coro.get_resolver()
    with pytest.raises(TypeError):
        coro.set_resolver(Empty())
    Empty.resolve_ipv4 = Empty.resolve_ipv6 = Empty.resolve_all
    coro.set_resolver(Empty())
    try:
        with pytest.raises(coro.NameError):
            resolver.addresses("x", FOUR)
    finally:
        coro.set_resolver(before)
