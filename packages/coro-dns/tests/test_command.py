"""``python -m coro.dns query`` and ``cache``."""

from __future__ import annotations

import json
import ssl
import subprocess

import pytest
from dns_support import NET, fakes, in_loop, name, record, reply, soa
from real_programs import find_program
from stub_support import CNAME, RA, A, over_tcp, silent

import coro
from coro.dns import __main__ as command
from coro.dns import _wire
from coro.dns.cache import dns_cache
from coro.dns.server import Server


def world(query):
    full = _wire.to_text(query.qname)
    if full == "broken.test":
        return reply(query, rcode=2, aa=False, flags=RA)
    data = {
        ("www.test", A): [record(full, CNAME, "web.test"), record("web.test", A, "192.0.2.1", ttl=60)],
        ("m.test", 15): [record(full, 15, b"\0\x0a" + name("mail.test"))],
        ("m.test", 16): [record(full, 16, b'\3a"b\2\xffc')],
        ("m.test", 65280): [record(full, 65280, b"\1\2")],
        ("_s.m.test", 33): [record(full, 33, b"\0\1\0\2\0\3" + name("web.test"))],
        ("1.2.0.192.in-addr.arpa", 12): [record(full, 12, name("www.test"))],
    }.get((full, query.qtype))
    return reply(query, data or [], [] if data else [soa("test")], aa=False, flags=RA, rcode=0 if data else 3)


def run(*words):
    """The status of the command within a loop."""
    options = command._parsed(list(words))
    return (command._query if words[0] == "query" else command._look)(options)


def test_a_file_of_trust_anchors(tmp_path, capsys):
    """It is read as a zone file; without an anchor in it nothing would be checked."""
    path = tmp_path / "root.key"
    path.write_text("; of the root\n. 3600 IN DS 20326 8 2 (\n  E06D44B80B8F1D39A95C0B0D7C65D084\n"
                    "  58E880409BBC683457104237C7F8EC8D ) ; from 2017\n")  # fmt: skip
    options = command._parsed(["serve", "--anchor", str(path)])
    assert list(command._cache(options, 100)._recursor.validator.anchors) == [b"\0"]
    path.write_text("; nothing\n")
    for wrong in (path, tmp_path / "missing"):
        with pytest.raises(SystemExit):
            command._parsed(["serve", "--anchor", str(wrong)])
        assert "--anchor" in capsys.readouterr().err


def test_limits_of_serve(monkeypatch):
    """Each option is the parameter of the server of the same name."""
    made = {}

    class Stop(Exception):
        pass

    def server(*args, **settings):
        made.update(settings)
        raise Stop

    monkeypatch.setattr(command, "Server", server)
    names = ("most", "connections", "idle", "limit", "max_responses_per_second", "max_client_work")
    for words, wanted in (
        ([], (2000, 1000, 10.0, 8.0, None, 1000.0)),
        (
            ["--most", "9", "--connections", "8", "--idle", "2.5", "--limit", "3", "--max-responses-per-second", "50",
             "--max-client-work", "none"],
            (9, 8, 2.5, 3.0, 50.0, None),
        ),
    ):  # fmt: skip
        options = command._parsed(["serve", "--loopback", *words])
        options.cookie_secrets = None
        with pytest.raises(Stop):
            command._serve(options)
        assert tuple(made[name] for name in names) == wanted
    defaults = Server.__init__.__kwdefaults__
    assert [defaults[name] for name in names] == [default for _, _, default, _ in command._LIMITS]


@pytest.mark.parametrize(
    "option, value",
    [
        ("--most", "0"), ("--connections", "x"), ("--idle", "none"), ("--limit", "nan"), ("--limit", "-1"),
        ("--max-client-work", "0"), ("--max-responses-per-second", "inf"),
    ],
)  # fmt: skip
def test_limits_that_are_none(option, value, capsys):
    with pytest.raises(SystemExit):
        command._parsed(["serve", option, value])
    assert "expected a number" in capsys.readouterr().err


@in_loop
def test_query(capsys):
    with fakes({1: world}) as servers:
        at = [f"@{NET}.1", "-p", str(servers.port)]
        assert run("query", *at, "www.test") == 0
        out = capsys.readouterr().out
        for line in (
            ";; status: NOERROR", ";; flags: qr ra;", ";www.test.\tIN\tA", "www.test.\t300\tIN\tCNAME\tweb.test.",
            "web.test.\t60\tIN\tA\t192.0.2.1", f";; SERVER: {NET}.1:{servers.port} (UDP)",
        ):  # fmt: skip
            assert line in out
        for words, text in (
            (["www.test", "+short"], "web.test.\n192.0.2.1\n"),
            (["MX", "m.test", "--short"], "10 mail.test.\n"),
            (["m.test", "TXT", "+short"], '"a\\"b" "\\255c"\n'),
            (["m.test", "TYPE65280", "+short"], "\\# 2 0102\n"),
            (["_s.m.test", "SRV", "+short"], "1 2 3 web.test.\n"),
            (["-x", "192.0.2.1", "+short"], "www.test.\n"),
        ):
            assert run("query", *at, *words) == 0
            assert capsys.readouterr().out == text
        assert run("query", *at, "www.test", "+json") == 0
        assert json.loads(capsys.readouterr().out)["records"][1]["data"] == "192.0.2.1"
        assert run("query", *at, "missing.test") == 1
        assert "NXDOMAIN" in capsys.readouterr().out
        assert run("query", *at, "broken.test") == 2
        assert "SERVFAIL" in capsys.readouterr().out


@in_loop
def test_mistakes_and_silence(capsys):
    for words in (
        ["a", "A", "b"], ["x", "NONSENSE"], ["+nonsense", "a"], ["a..b"], ["+tls", "a"], ["-x", "name"],
    ):  # fmt: skip
        assert run("query", *words) == 2
        assert capsys.readouterr().err.startswith("coro.dns: ")
    with fakes({1: silent}) as servers:
        assert run("query", f"@{NET}.1", "-p", str(servers.port), "a.test", "--timeout", "0.1") == 2
        assert "no reply" in capsys.readouterr().err
        assert run("query", f"@{NET}.1", "-p", str(servers.port), "a.test", "+tcp") == 2
        assert "over TCP" in capsys.readouterr().err


@pytest.mark.slow
@in_loop
def test_query_over_tls(tmp_path, capsys):
    files = [str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")]
    make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost".split()
    make += ["-addext", f"subjectAltName=IP:{NET}.1", "-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    openssl = find_program("openssl", "openssl")
    coro.in_thread(
        lambda: subprocess.run([openssl, *make, "-keyout", files[0], "-out", files[1]], check=True, capture_output=True)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files[1], files[0])
    wrap = coro.tls.context(context).wrap
    with fakes({1: silent}) as servers, over_tcp(servers, {1: world}, lambda conn: wrap(conn, server_side=True)):
        at = [f"@{NET}.1", "-p", str(servers.port), "+tls", "www.test"]
        assert run("query", *at, "--tls-ca", files[1]) == 0
        assert "(TLS)" in capsys.readouterr().out
        assert run("query", *at) == 2
        assert "over TLS" in capsys.readouterr().err


@in_loop
def test_cache(capsys):
    with fakes({1: lambda query: reply(query, authority=[soa(".")], rcode=3)}) as root:
        cache = dns_cache(roots=[root.root], loopback=True)
        with Server(cache, [("127.0.0.1", 0)]) as server, coro.tcp_sock() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            at = ["--at", f"127.0.0.1:{listener.getsockname()[1]}"]
            thread = coro.spawn(command._metrics, listener, server)
            assert run("cache", *at) == 0
            assert "localhost" not in capsys.readouterr().out
            with pytest.raises(coro.dns.DNS_Error):
                cache.query("missing.test", "A")
            assert run("cache", *at, "test") == 0
            assert "NXDOMAIN" in capsys.readouterr().out
            assert run("cache", *at, "--counters") == 0
            assert "coro_dns_cache_requests 1\n" in capsys.readouterr().out
            with coro.connect("127.0.0.1", listener.getsockname()[1]) as sock:  # a browser, say
                sock.send(b"POST /forget?test HTTP/1.0\r\n\r\n")
                assert b"coro_dns" in b"".join(iter(lambda: sock.recv(65536), b""))
            assert run("cache", *at, "test", "--forget") == 0
            assert capsys.readouterr().out.startswith("entries dropped: ")
            run("cache", *at, "test")
            assert "NXDOMAIN" not in capsys.readouterr().out
            thread.shutdown()
    assert run("cache", *at) == 2
    assert "--metrics" in capsys.readouterr().err
