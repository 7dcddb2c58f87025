"""The server, asked by the programs of others and by sockets of our own."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys

import dns.flags
import dns.message
import dns.rcode
import pytest
from dns_support import fakes, in_loop
from real_programs import find_program, free_port
from server_support import answers, run, running

import coro
from coro.dns import __main__ as command


@in_loop
def test_dig():
    with running() as s:
        host, port = s.address
        for more in ([], ["+tcp"], ["+noedns"], ["+dnssec"], ["+bufsize=512"], ["+cookie"]):
            for _ in range(2):
                out = run("dig", "bind9-dnsutils", f"@{host}", "-p", str(port), "www.example", "A", *more)
                assert "status: NOERROR" in out and "192.0.2.1" in out and "WARNING" not in out
        out = run("dig", "bind9-dnsutils", f"@{host}", "-p", str(port), "no.example", "A")
        assert "status: NXDOMAIN" in out
        out = run("dig", "bind9-dnsutils", f"@{host}", "-p", str(port), "bad.example", "A")
        assert "status: SERVFAIL" in out and "EDE: 22" in out
        out = run("dig", "bind9-dnsutils", f"@{host}", "-p", str(port), "+short", "+ignore", "big.example", "A")
        assert 20 < len(out.split()) < 80
        assert len(run("dig", "bind9-dnsutils", f"@{host}", "-p", str(port), "+short", "big.example").split()) == 100


@in_loop
def test_kdig_and_drill():
    with running() as s:
        host, port = s.address
        for more in ([], ["+tcp"]):
            assert "192.0.2.1" in run("kdig", "knot-dnsutils", f"@{host}", "-p", str(port), "www.example", *more)
        for more in ([], ["-t"]):
            assert "192.0.2.1" in run("drill", "ldnsutils", *more, "-p", str(port), "www.example", f"@{host}")


@in_loop
def test_the_same_twice():
    """From the resolver and from prepared bytes: id, letters, RD and CD bits, EDNS and DO are those of each query."""
    with running() as s:
        first = s.ask("www.example", use_edns=0, payload=1232)
        for name, settings in (
            ("www.example", {}),
            ("WWW.exAMPle", {"use_edns": 0}),
            ("www.example", {"want_dnssec": True}),
            ("www.example", {"want_dnssec": True}),
        ):
            answer = s.ask(name, **settings)
            assert answer.answer[0][0].to_text() == first.answer[0][0].to_text()
            assert 290 <= answer.answer[0].ttl <= 300
            assert (answer.edns >= 0) == bool(settings)
            assert bool(answer.ednsflags & dns.flags.DO) == settings.get("want_dnssec", False)
            assert answer.flags & dns.flags.RA and answer.flags & dns.flags.RD and not answer.flags & dns.flags.AA
        statistics = s.server.statistics()
        assert statistics.hits == 3 and statistics.misses == 2
        assert s.root.asked == [(1, "example", 1), (1, "www.example", 1)]
        assert s.ask("no.example").rcode() == dns.rcode.NXDOMAIN
        assert s.ask("x.no.example").rcode() == dns.rcode.NXDOMAIN
        assert s.ask("www.example", "MX").authority[0].rdtype == dns.rdatatype.SOA


@in_loop
def test_what_is_refused():
    with running(allow=["127.0.0.0/24"], block=["ads.example"]) as s:
        assert s.ask("ads.example").rcode() == dns.rcode.NXDOMAIN
        blocked = s.ask("x.ADS.example", use_edns=0)
        assert blocked.rcode() == dns.rcode.NXDOMAIN and blocked.options[0].code == 15
        assert s.ask("www.example").rcode() == dns.rcode.NOERROR
        assert s.ask("www.example", "ANY").rcode() == dns.rcode.REFUSED
        query = dns.message.make_query("www.example", "A")
        query.flags &= ~dns.flags.RD
        assert dns.message.from_wire(s.raw(query.to_wire())).rcode() == dns.rcode.REFUSED
        query = dns.message.make_query("www.example", "A")
        assert dns.message.from_wire(s.raw(query.to_wire(), "127.0.1.1")).rcode() == dns.rcode.REFUSED
        assert s.server.statistics().hits == 0
        assert dns.message.from_wire(s.raw(query.to_wire())).rcode() == dns.rcode.NOERROR
        assert s.server.statistics().hits == 1
        for wire, code in (
            (query.to_wire()[:2] + b"\x10" + query.to_wire()[3:], dns.rcode.NOTIMP),  # STATUS
            (query.to_wire() + b"junk", dns.rcode.FORMERR),
            (query.to_wire()[:14], dns.rcode.FORMERR),
        ):
            answer = s.raw(wire)
            assert answer[:2] == wire[:2] and answer[3] & 15 == code
        edns1 = dns.message.make_query("www.example", "A", use_edns=1)
        assert dns.message.from_wire(s.raw(edns1.to_wire())).rcode() == dns.rcode.BADVERS


@in_loop
def test_replies_and_short_datagrams_get_nothing():
    with running() as s, coro.udp_sock() as sock:
        sock.connect(s.address)
        query = dns.message.make_query("www.example", "A").to_wire()
        for silent in (b"", b"x", query[:11], query[:2] + b"\x81" + query[3:]):
            sock.send(silent)
        sock.send(query)
        with coro.timeout(30):
            assert sock.recv(65535)[:2] == query[:2]
        with pytest.raises(coro.oserrors.EAGAIN):
            sock.recv(65535, coro.MSG.DONTWAIT)


@in_loop
def test_many_questions_over_one_connection():
    with running() as s, coro.tcp_sock() as sock, coro.timeout(30):
        sock.connect(s.address)
        queries = [dns.message.make_query(f"n{i}.example", "A") for i in range(50)]
        wires = [query.to_wire() for query in queries]
        sock.send(b"".join(len(wire).to_bytes(2, "big") + wire for wire in wires))
        got = {}
        for _ in queries:
            answer = dns.message.from_wire(sock.recv_exact(int.from_bytes(sock.recv_exact(2), "big")))
            got[answer.id] = answer
        assert all(query.is_response(got[query.id]) for query in queries)
        assert s.server.statistics().stream_queries == 50


@in_loop
def test_an_idle_connection_is_closed():
    with running(idle=0.05) as s, coro.tcp_sock() as sock, coro.timeout(30):
        sock.connect(s.address)
        sock.send(b"\0")
        assert sock.recv(10) == b""


@in_loop
def test_one_question_of_many_clients_is_asked_once():
    with running() as s:
        threads = [coro.spawn(s.ask, "www.example") for _ in range(50)]
        for thread in threads:
            thread.join()
        assert s.root.asked == [(1, "example", 1), (1, "www.example", 1)]


@in_loop
def test_counters():
    with running() as s:
        s.ask("www.example")
        text = s.server.metrics()
        assert "coro_dns_server_misses 1\n" in text and "coro_dns_cache_sent 2\n" in text
        s.server.forget("example")
        s.ask("www.example")
        assert len(s.root.asked) == 4
        assert "127.0.0.1" in repr(s.server)
    s.server.stop()


def test_workers(tmp_path):
    """Two processes on one port; SIGTERM ends them in order."""
    port = free_port()
    arguments = ["serve", "--listen", f"127.0.0.1:{port}", "--workers", "2", "--root", "127.0.0.1:9"]
    child = subprocess.Popen([sys.executable, "-m", "coro.dns", *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert [child.stdout.readline() for _ in range(2)] == [f"listening on 127.0.0.1:{port}\n"] * 2
        query = dns.message.make_query("localhost", "A")
        for _ in range(20):  # each from another port, so they reach both
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.settimeout(60)
                sock.connect(("127.0.0.1", port))
                sock.send(query.to_wire())
                assert dns.message.from_wire(sock.recv(512)).answer[0][0].to_text() == "127.0.0.1"
    finally:
        child.terminate()
        child.communicate(timeout=60)
    assert child.returncode == 0
    assert command.main(["serve", "--listen", "127.0.0.1:0", "--workers", "2"]) == 2


def test_the_command(capsys):
    def main():
        with fakes({1: answers}) as root:
            cache = ["--root", f"{root.root[0]}:{root.port}"]
            options = command._parser().parse_args(["query", "www", "A", "--json", *cache])
            assert command._query(options) == 0
            options = command._parser().parse_args(["query", "no.example", *cache])
            assert command._query(options) == 1
            options = command._parser().parse_args(["query", "bad.example", *cache])
            assert command._query(options) == 2

    coro.run(coro.with_timeout, 60, main)
    out, err = capsys.readouterr()
    assert '"data": "192.0.2.1"' in out
    assert "does not exist" in err and "failed" in err
    assert command._address("[::1]:5353") == ("::1", 5353)
    assert command._address("::1") == ("::1", 53)
    assert command._forward("corp.example.=192.0.2.1,192.0.2.2:5353") == (
        "corp.example",
        [("192.0.2.1", 53), ("192.0.2.2", 5353)],
    )


@in_loop
def test_over_tls(tmp_path):
    """DNS over TLS (RFC 7858), with kdig as the client."""
    openssl = find_program("openssl", "openssl")
    files = [str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")]
    make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=localhost".split()
    coro.in_thread(
        lambda: subprocess.run([openssl, *make, "-keyout", files[0], "-out", files[1]], check=True, capture_output=True)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files[1], files[0])
    with running(tls=context, tls_addresses=[("127.0.0.1", 0)]) as s:
        host, port = s.server.tls_addresses[0]
        for _ in range(2):
            out = run("kdig", "knot-dnsutils", f"@{host}", "-p", str(port), "+tls", "www.example", "A")
            assert "TLS" in out and "192.0.2.1" in out
