"""Broken handshakes, 484 of them, to a server of each back end: no crash, no hang, the right alert.

What is broken, and which alerts are right, is in hostile_client.py.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import hostile_client
import pytest
import tls_peers
from hostile_client import Case

import coro
from coro import testing

CASES = hostile_client.all_cases()
#: For each Python: every 40th, all kinds among them.
FEW = CASES[::40]


@cache
def context(backend: str, client_auth: str) -> Any:
    return tls_peers.server(backend, client_auth=client_auth)


def check(backend: str, case: Case) -> None:
    auth = "required" if case.with_certificate else "none"
    outcome = hostile_client.attack(context(backend, auth), case)
    assert hostile_client.problem(case, outcome) is None, (hostile_client.problem(case, outcome), outcome)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
def test_case(backend: str, case: Case) -> None:
    with testing.no_leaks():
        coro.run(check, backend, case)


@pytest.mark.parametrize("case", FEW, ids=[case.name for case in FEW])
@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
def test_short_form(backend: str, case: Case) -> None:
    coro.run(check, backend, case)


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 400
    assert len({case.name for case in CASES}) == len(CASES)
    assert {case.version for case in CASES} == {"TLSv1.2", "TLSv1.3"}
    changed = {case.message for case in CASES}
    assert changed == {"ClientHello", "ClientKeyExchange", "Certificate", "CertificateVerify", "Finished", "after"}


@pytest.mark.parametrize("backend", tls_peers.BACKENDS)
def test_the_next_client_is_served(backend: str) -> None:
    """What one client breaks stays with it: OpenSSL's queue of errors belongs to the OS thread, not to a connection
    (https://github.com/python/cpython/issues/148594)."""

    def main() -> None:
        server = tls_peers.server(backend)
        client = tls_peers.client(backend)
        healthy, theirs = coro.socketpair()
        echo = coro.spawn(_echo, server, theirs)
        stream = client.wrap(healthy, server_hostname="localhost")
        for case in FEW:
            if not case.with_certificate:
                hostile_client.attack(server, case)
                stream.sendall(b"still here")
                assert stream.recv_exact(10) == b"still here"
        stream.close()
        echo.join()
        assert echo.get() == b""

    coro.run(main)


def _echo(context: Any, sock: Any) -> bytes:
    with context.wrap(sock, server_side=True) as stream:
        while data := stream.recv(100):
            stream.sendall(data)
    return data
