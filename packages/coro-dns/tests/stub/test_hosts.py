"""Names of hosts: files, search list, order, the shapes of the standard library; `install` and forks."""

from __future__ import annotations

import os
import socket
import threading

import pytest
from dns_support import NET, fakes, in_loop, name, record, reply, soa
from stub_support import AAAA, CNAME, RA, A, address, resolver

import coro
import coro.dns
from coro.dns import _wire
from coro.dns._stub import destinations, system
from coro.dns._stub import hosts as hosts_module
from coro.dns.stub_resolver import LookupFailed, stub_resolver

FOUR, SIX = int(socket.AF_INET), int(socket.AF_INET6)


def world(query):
    """A few names of both families; what is not here does not exist."""
    full = _wire.to_text(query.qname)
    zone = {
        ("both.test", A): [record(full, A, "192.0.2.1")],
        ("both.test", AAAA): [record(full, AAAA, bytes.fromhex("20010db8000000000000000000000001"))],
        ("four.test", A): [record(full, A, "192.0.2.4"), record(full, A, "192.0.2.5")],
        ("alias.test", A): [record(full, CNAME, "four.test"), record("four.test", A, "192.0.2.4")],
        ("here.test", A): [record(full, A, "127.0.0.1")],
        ("4.2.0.192.in-addr.arpa", 12): [record(full, 12, name("four.test"))],
        ("xn--bcher-kva.test", A): [record(full, A, "192.0.2.8")],
        ("broken.test", A): None,
    }
    if full == "broken.test":
        return reply(query, rcode=2, aa=False, flags=RA)
    records = zone.get((full, query.qtype))
    exists = any(one == full for one, _ in zone)
    return reply(
        query, records or [], [] if records else [soa("test")], aa=False, flags=RA, rcode=0 if exists else 3
    )  # fmt: skip


# -- files


def test_resolv_conf():
    text = """
# comment
; another
nameserver 192.0.2.1
nameserver nonsense
nameserver 2001:db8::1
domain first.test
search one.test two.test.
options ndots:3 timeout:99 attempts:0 rotate use-vc trust-ad inet6 edns0 nonsense:1 ndots:x
"""
    settings = system.settings_of(text)
    assert settings.nameservers == ("192.0.2.1", "2001:db8::1")
    assert settings.search == ("one.test", "two.test")
    assert (settings.ndots, settings.timeout, settings.attempts) == (3, 30.0, 2)
    assert settings.rotate and settings.use_tcp and settings.trust_ad and settings.prefer_ipv6
    assert system.settings_of("").nameservers == ("127.0.0.1",)


def test_the_environment(monkeypatch):
    monkeypatch.setenv("LOCALDOMAIN", "env.test")
    monkeypatch.setenv("RES_OPTIONS", "ndots:2")
    settings = system.settings_of("search file.test")
    assert settings.search == ("env.test",) and settings.ndots == 2


@in_loop
def test_an_edit_is_seen_by_the_next_query(tmp_path):
    config, hosts = tmp_path / "resolv.conf", tmp_path / "hosts"
    hosts.write_text("192.0.2.77 printer.test printer\n2001:db8::77 printer.test\nnonsense\n1.2.3.4\n")
    with fakes({1: address, 2: lambda query: address(query, "192.0.2.2")}) as servers:
        config.write_text(f"nameserver {NET}.1\n")
        r = stub_resolver(config=config, hosts=hosts, port=servers.port, cache_size=0)
        assert r.query("a.test") == [(300, "192.0.2.1")]
        config.write_text(f"nameserver {NET}.2\noptions attempts:1\n")
        assert r.query("a.test") == [(300, "192.0.2.2")]
        assert r.statistics().sent == 2
        assert r.resolve_all("Printer", FOUR) == ["192.0.2.77"]
        assert r.resolve_all("printer.test.", SIX) == ["2001:db8::77"]
        assert r.reverse("192.0.2.77") == ["printer.test", "printer"]
        hosts.write_text("192.0.2.78 printer.test\n")
        assert r.resolve_ipv4("printer.test") == "192.0.2.78"
        with pytest.raises(coro.NameError):
            r.resolve_ipv6("printer.test")  # the file is right for both families
        hosts.unlink()
        assert r.resolve_ipv4("printer.test") == "192.0.2.2"
        assert len(servers.asked) == 3


# -- names


@in_loop
def test_search_list_and_ndots():
    with fakes({1: world}) as servers:
        r = resolver(servers, search=["nowhere.test", "test"], cache_size=0)
        assert r.resolve_ipv4("four") in ("192.0.2.4", "192.0.2.5")
        assert [one for _, one, _ in servers.asked] == ["four.nowhere.test", "four.test"]
        servers.asked.clear()
        assert r.resolve_ipv4("both.test") == "192.0.2.1"
        assert [one for _, one, _ in servers.asked] == ["both.test"]
        servers.asked.clear()
        with pytest.raises(coro.NameError):
            r.resolve_ipv4("four.")
        assert [one for _, one, _ in servers.asked] == ["four"]


@in_loop
def test_names_that_are_none():
    with fakes({1: world}) as servers:
        r = resolver(servers, search=[])
        assert r.resolve_all("192.0.2.9", FOUR) == ["192.0.2.9"]
        for wrong in ("", ".", "a b", "a\0b", "123", "127.1", "0x7f.1", "::1", "x.onion", "\u00e4" * 80, "a..test"):
            with pytest.raises(coro.NameError):
                r.resolve_all(wrong, FOUR)
        with pytest.raises(TypeError):
            r.resolve_all(b"four.test", FOUR)
        with pytest.raises(ValueError, match="family"):
            r.resolve_all("four.test", 1)
        assert r.resolve_all("localhost", SIX) == ["::1"] and r.resolve_ipv4("www.localhost") == "127.0.0.1"
        assert not servers.asked
        assert r.resolve_ipv4("b\u00fccher.test") == "192.0.2.8"
        assert r.gethostbyname("both.test", "AAAA") == "2001:db8::1"
        with pytest.raises(ValueError, match="A and AAAA"):
            r.gethostbyname("both.test", "MX")
        with pytest.raises(LookupFailed):
            r.resolve_ipv4("broken.test")


@in_loop
def test_local_names_are_the_systems_if_it_has_multicast_dns(tmp_path, monkeypatch):
    nsswitch = tmp_path / "nsswitch.conf"
    asked = []

    def system(name, *rest):
        asked.append(name)
        return [(FOUR, 1, 6, "", ("192.0.2.44", 0))]

    monkeypatch.setattr(hosts_module, "_GETADDRINFO", system)
    with fakes({1: address}) as servers:
        r = resolver(servers, nsswitch=str(nsswitch), search=[])
        nsswitch.write_text("passwd: files\nhosts: files dns # mdns\n")
        assert r.resolve_ipv4("printer.local") == "192.0.2.1"
        nsswitch.write_text("passwd: files\nhosts: files mdns4_minimal [NOTFOUND=return] dns\n")
        assert r.resolve_ipv4("printer.local") == "192.0.2.44"
        assert asked == ["printer.local"] and len(servers.asked) == 1


@in_loop
def test_getaddrinfo():
    with fakes({1: world}) as servers:
        r = resolver(servers, search=[])
        found = r.getaddrinfo("both.test", 80, type=socket.SOCK_STREAM)
        assert sorted(one[4][0] for one in found) == ["192.0.2.1", "2001:db8::1"]
        assert {one[1] for one in found} == {socket.SOCK_STREAM} and {one[4][1] for one in found} == {80}
        assert r.getaddrinfo("four.test", "https", FOUR, socket.SOCK_STREAM)[0][4][1] == 443
        assert r.getaddrinfo(b"four.test", None, FOUR)[0][0] == FOUR
        named = r.getaddrinfo("alias.test", 1, FOUR, socket.SOCK_STREAM, 0, socket.AI_CANONNAME)
        assert named[0][3] == "four.test"
        mapped = r.getaddrinfo("four.test", 1, SIX, socket.SOCK_STREAM, 0, socket.AI_V4MAPPED)
        assert {one[4][0] for one in mapped} == {"::ffff:192.0.2.4", "::ffff:192.0.2.5"}
        assert r.getaddrinfo("192.0.2.1", 1) == socket.getaddrinfo("192.0.2.1", 1)
        assert r.getaddrinfo(None, 1, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for wrong, error in (("gone.test", socket.EAI_NONAME), ("broken.test", socket.EAI_AGAIN)):
            with pytest.raises(socket.gaierror) as caught:
                r.getaddrinfo(wrong, 1)
            assert caught.value.errno == error
        assert r.gethostbyname_ex("alias.test") == ("four.test", ["alias.test"], ["192.0.2.4"])
        assert r.gethostbyaddr("192.0.2.4") == ("four.test", [], ["192.0.2.4"])
        assert r.getnameinfo(("192.0.2.4", 80)) == ("four.test", "http")
        assert r.getnameinfo(("192.0.2.99", 80), socket.NI_NUMERICSERV) == ("192.0.2.99", "80")
        with pytest.raises(socket.gaierror):
            r.getnameinfo(("192.0.2.99", 80), socket.NI_NAMEREQD)
        with pytest.raises(socket.herror):
            r.gethostbyaddr("192.0.2.99")


@in_loop
def test_emulated_functions_tell_temporary_failures_from_names_that_do_not_exist():
    from coro.emulation._modules import names

    with fakes({1: world}) as servers:
        before = coro.set_resolver(resolver(servers, search=[]))
        try:
            for function in (names.gethostbyname, names.gethostbyname_ex, lambda name: names.getaddrinfo(name, 1)):
                for wrong, error in (("gone.test", socket.EAI_NONAME), ("broken.test", socket.EAI_AGAIN)):
                    with pytest.raises(socket.gaierror) as caught:
                        function(wrong)
                    assert caught.value.errno == error
        finally:
            coro.set_resolver(before)


@in_loop
def test_the_system_says_that_a_failure_is_temporary(tmp_path, monkeypatch):
    def failing(*args):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(hosts_module, "_GETADDRINFO", failing)
    nsswitch = tmp_path / "nsswitch.conf"
    nsswitch.write_text("hosts: files mdns4_minimal dns\n")
    with fakes({1: world}) as servers:
        with pytest.raises(LookupFailed, match="Temporary"):
            resolver(servers, nsswitch=str(nsswitch)).resolve_ipv4("printer.local")


def test_order_of_addresses():
    """The examples of RFC 6724, section 10.2, as far as the system tells what is needed."""
    order = destinations.in_order
    cases = [
        # prefer matching scope
        ({"2001:db8:1::1": "2001:db8:1::2", "198.51.100.121": "169.254.13.78"}, ["2001:db8:1::1", "198.51.100.121"]),
        ({"2001:db8:1::1": "fe80::1", "198.51.100.121": "198.51.100.117"}, ["198.51.100.121", "2001:db8:1::1"]),
        # prefer higher precedence
        ({"2001:db8:1::1": "2001:db8:1::2", "10.1.2.3": "10.1.2.4"}, ["2001:db8:1::1", "10.1.2.3"]),
        # prefer smaller scope
        ({"2001:db8:1::1": "2001:db8:1::2", "fe80::1": "fe80::2"}, ["fe80::1", "2001:db8:1::1"]),
        # prefer matching label
        ({"2002:c633:6401::1": "2002:c633:6401::2", "2001:db8:1::1": "2002:c633:6401::2"},
         ["2002:c633:6401::1", "2001:db8:1::1"]),
        # longest prefix
        ({"2001:db8:1::1": "2001:db8:3f44::2", "2001:db8:3ffe::1": "2001:db8:3f44::2"},
         ["2001:db8:3ffe::1", "2001:db8:1::1"]),
        # an address that cannot be reached is the last
        ({"192.0.2.1": "192.0.2.2"}, ["192.0.2.1", "2001:db8:1::1"]),
        ({"192.0.2.1": "192.0.2.2", "192.0.2.200": "192.0.2.2"}, ["192.0.2.200", "192.0.2.1"]),
    ]  # fmt: skip
    for sources, wanted in cases:
        assert order(wanted if ":" not in "".join(wanted) else wanted[::-1], sources) == wanted
    assert destinations.in_order(["127.0.0.1"]) == ["127.0.0.1"]


@in_loop
def test_connect_host():
    with fakes({1: world}) as servers, coro.tcp_sock() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        r = resolver(servers, search=[])
        with r.connect_host("here.test", listener.getsockname()[1], timeout=10) as conn:
            assert conn.getpeername() == listener.getsockname()
        with pytest.raises(coro.NameError):
            r.connect_host("gone.test", 1)


# -- installed


@pytest.fixture
def uninstalled():
    before = coro.get_resolver()
    yield
    coro.set_resolver(before)


@in_loop
def test_a_thousand_lookups_need_no_os_threads(uninstalled):
    def server(query):
        return address(query, "127.0.0.1")

    with fakes({1: server}) as servers, coro.udp_sock() as target:
        target.bind(("127.0.0.1", 0))
        port = target.getsockname()[1]
        before = coro.dns.install([(f"{NET}.1", servers.port)], inflight=50, hosts="/nonexistent", search=[])
        threads = threading.active_count()
        tasks = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0

        def connect(i):
            with coro.udp_sock() as sock:
                sock.connect((f"n{i}.test", port))

        with coro.group() as all_of_them:
            for i in range(1000):
                all_of_them.spawn(connect, i)
        assert threading.active_count() == threads
        if tasks:
            assert len(os.listdir("/proc/self/task")) == tasks
        assert coro.get_resolver().statistics().sent >= 1000
        coro.dns.uninstall()
        assert coro.get_resolver() is before
        coro.dns.uninstall()
        assert coro.get_resolver() is before


@in_loop
def test_the_recursive_resolver_is_installed_likewise(uninstalled, tmp_path):
    import coro.dns.cache

    def root(query):
        return reply(query, [record(_wire.to_text(query.qname), A, "192.0.2.1")])

    hosts = tmp_path / "hosts"
    hosts.write_text("192.0.2.7 seven.test\n")
    with fakes({1: root}) as servers:
        cache = coro.dns.cache.dns_cache(forward={"": [(f"{NET}.1", servers.port)]}, loopback=True)
        names = coro.dns.cache.resolver(cache, str(hosts))
        assert names.resolve_ipv4("seven.test") == "192.0.2.7"
        assert names.getaddrinfo("a.test", 80, FOUR, socket.SOCK_STREAM)[0][4] == ("192.0.2.1", 80)
        before = coro.dns.cache.install(cache)
        assert coro.get_resolver().gethostbyname("a.test") == "192.0.2.1"
        coro.dns.uninstall()
        assert coro.get_resolver() is before


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # workers of tests before
@in_loop
def test_a_forked_child_and_its_parent_both_go_on(uninstalled):
    with fakes({1: address}) as servers:
        coro.dns.install([(f"{NET}.1", servers.port)], hosts="/nonexistent", search=[])
        r = coro.get_resolver()
        waiting = coro.spawn(r.query, "a.test")
        coro.yield_slice()
        pid = coro.fork()
        if not pid:
            # the server lives in the parent; the question under way there is nobody's here
            status = 1
            try:
                if r.resolve_all("b.test", FOUR) == ["192.0.2.1"] and r.query("a.test"):
                    status = 0
            finally:
                os._exit(status)
        assert waiting.get() == [(300, "192.0.2.1")]
        assert r.resolve_ipv4("c.test") == "192.0.2.1"
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            coro.sleep_relative(0.01)
        assert status == 0
