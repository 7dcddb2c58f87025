"""Whole programs: the examples of the manual, and the emulated standard library, which find names by the resolver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dns_support import NET, fakes, in_loop, name, record, reply
from stub_support import RA, A

import coro
from coro.dns import _wire

EXAMPLES = Path(__file__).parents[4] / "docs/examples/dns"


def world(query):
    full = _wire.to_text(query.qname)
    data = {15: b"\0\x0a" + name("mail.test"), A: bytes((192, 0, 2, 25))}.get(query.qtype)
    return reply(query, [record(full, query.qtype, data)] if data else [], aa=False, flags=RA)


def run(code: list[str], **settings) -> str:
    done = coro.in_thread(
        lambda: subprocess.run([sys.executable, *code], capture_output=True, text=True, timeout=60, **settings)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@in_loop
def test_mail_servers():
    with fakes({1: world}) as servers:
        out = run([str(EXAMPLES / "mail_servers.py"), "a.test", "b.test", "--server", f"{NET}.1:{servers.port}"])
    assert out == "a.test\n  10 mail.test: 192.0.2.25\nb.test\n  10 mail.test: 192.0.2.25\n"


@pytest.mark.slow
@in_loop
def test_urllib_without_os_threads():
    with coro.tcp_sock() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve():
            while True:
                conn, _ = listener.accept()
                with conn:
                    conn.recv(4096)
                    conn.send(b"HTTP/1.0 200 OK\r\n\r\n12345")

        thread = coro.spawn(serve)
        url = f"http://localhost:{listener.getsockname()[1]}/"
        out = run([str(EXAMPLES / "urllib_without_os_threads.py"), url, url])
        thread.shutdown()
    assert out.startswith("10 bytes\n")
    if os.path.isdir("/proc/self/task"):
        assert "1 OS thread" in out


EMULATED = """
import coro
coro.install_thread_emulation()
import os, socket, sys, threading
import coro.dns

def main():
    coro.dns.install([(sys.argv[1], int(sys.argv[2]))], inflight=50, hosts="/nonexistent", search=[])
    failures = []

    def look_up(i):
        try:
            assert socket.getaddrinfo(f"n{i}.test", "smtp", type=socket.SOCK_STREAM)[0][4] == ("192.0.2.25", 25)
            assert socket.gethostbyname(f"n{i}.test") == "192.0.2.25"
            assert socket.gethostbyname_ex(f"n{i}.test")[2] == ["192.0.2.25"]
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=look_up, args=(i,)) for i in range(300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert socket.getfqdn("192.0.2.1")
    print(len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1)

coro.run(main)
"""


@pytest.mark.slow
@in_loop
def test_emulated_lookups_need_no_os_threads():
    with fakes({1: world}) as servers:
        assert run(["-c", EMULATED, f"{NET}.1", str(servers.port)]) == "1\n"
