"""Questions over TLS and over HTTP."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest
from dns_support import NET, fakes, in_loop, reply
from real_programs import find_program
from stub_support import RA, A, address, over_tcp, silent

import coro
from coro.dns import _wire
from coro.dns.stub_resolver import HTTPS, TLS, QueryFailed, stub_resolver

NONE = {"config": "/nonexistent", "hosts": "/nonexistent"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for NET.1, signed by itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = [find_program("openssl", "openssl"), "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"]
    command += ["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=localhost"]
    command += ["-addext", f"subjectAltName=IP:{NET}.1,DNS:dns.test"]
    command += ["-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return certificate, key


@pytest.mark.slow
@in_loop
def test_tls(certificate):
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    wrap = coro.tls.context(server).wrap
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    sizes = set()

    def answer(query):
        sizes.add(sum(len(value) + 4 for code, value in query.options if code == 12) > 4)
        return address(query)

    with (
        fakes({1: silent}) as servers,
        over_tcp(servers, {1: answer}, lambda conn: wrap(conn, server_side=True)) as connections,
    ):
        for name in ("", "dns.test"):
            with stub_resolver([TLS(f"{NET}.1", trusting, name, servers.port)], **NONE) as r:
                with coro.group() as askers:
                    threads = [askers.spawn(r.query, f"n{i}.test") for i in range(20)]
                assert all(thread.get() == [(300, "192.0.2.1")] for thread in threads)
        assert len(connections) == 2 and sizes == {True}, "one connection each, and padded queries"
        for context, name in ((ssl.create_default_context(), ""), (trusting, "other.test")):
            r = stub_resolver([TLS(f"{NET}.1", context, name, servers.port)], attempts=1, **NONE)
            with pytest.raises(QueryFailed, match="over TLS"):
                r.query("a.test")


@in_loop
def test_https():
    seen = []

    def post(url, data, headers):
        seen.append((url, headers["content-type"]))
        query = _wire.parse(data)
        assert query.id == 0 and len(data) % 128 == 0
        full = _wire.to_text(query.qname)
        if full == "slow.test":
            coro.event().wait()
        if full == "status.test":
            raise OSError("500 Internal Server Error")
        if full == "other.test":
            return address(_wire.parse(_wire.build(0, 0, b"\1x\0", A, 1)))
        if full == "text.test":
            return "text"
        if full == "cut.test":
            return reply(query, aa=False, flags=RA | 0x0200)
        return address(query)

    r = stub_resolver([HTTPS("https://dns.test/dns-query", post)], attempts=1, **NONE)
    assert r.query("a.test") == [(300, "192.0.2.1")]
    assert seen == [("https://dns.test/dns-query", "application/dns-message")]
    for wrong, text in (
        ("slow.test", "no reply"), ("status.test", "500"), ("other.test", "no reply to"), ("cut.test", "no reply to"),
    ):  # fmt: skip
        with pytest.raises(QueryFailed, match=text):
            r.query(wrong, timeout=0.2 if wrong == "slow.test" else 10)
    with pytest.raises(TypeError, match="bytes"):
        r.query("text.test")
    assert "https://dns.test/dns-query" in repr(r)
