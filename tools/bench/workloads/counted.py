"""What is counted in instructions: `python counted.py WHAT OPERATIONS`, once with few operations and once with many.

switch: hops of a ring of two threads. evacuated: the same among threads that share stack slots. echo: requests of 64
bytes over a socket pair, both ends in this process (twice send, twice recv, four switches, the share of the polls).
request: a server's part of a request over TCP, each with a sleep in the kernel; the client is a process of its own.
spawn: start, run and end of an empty function. timeout: with_timeout of one. fifo: push in one thread, pop in another.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import coro


def nothing() -> None:
    """What is started and limited."""


def ring(threads: int, hops: int) -> None:
    crowd: list[coro.coro] = []

    def member(number: int) -> None:
        wake = crowd[(number + 1) % threads].schedule
        _yield = coro._yield
        _yield()
        for _ in range(hops // threads):
            wake()
            _yield()

    crowd.extend(coro.spawn(member, number) for number in range(threads))
    coro.yield_slice()
    crowd[0].schedule()
    crowd[0].join()


def switch(count: int) -> None:
    ring(2, count)


def evacuated(count: int) -> None:
    ring(1000, count)


def echo(count: int) -> None:
    one, other = coro.socketpair()
    request = b"x" * 64

    def answer() -> None:
        while data := other.recv(4096):
            other.send(data)

    coro.spawn(answer)
    for _ in range(count):
        one.send(request)
        one.recv(4096)
    one.close()


CLIENT = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for _ in range(int(sys.argv[2])):
    connection.sendall(b"x" * 64)
    connection.recv(64)
"""


def request(count: int) -> None:
    listener = coro.tcp_sock()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    port = str(listener.getsockname()[1])
    with subprocess.Popen([sys.executable, "-c", CLIENT, port, str(count)]) as client:
        connection, _ = listener.accept()
        while data := connection.recv(65536):
            connection.send(data)
    if client.returncode:
        raise SystemExit(f"the client failed ({client.returncode})")


def spawn(count: int) -> None:
    for _ in range(count // 100):
        for thread in [coro.spawn(nothing) for _ in range(100)]:
            thread.join()


def timeout(count: int) -> None:
    for _ in range(count):
        coro.with_timeout(10, nothing)


def fifo(count: int) -> None:
    there, back = coro.fifo(), coro.fifo()

    def answer() -> None:
        for _ in range(count // 2):
            back.push(there.pop())

    coro.spawn(answer)
    for _ in range(count // 2):
        there.push(1)
        back.pop()


COUNTED: dict[str, Callable[[int], None]] = {
    "switch": switch,
    "evacuated": evacuated,
    "echo": echo,
    "request": request,
    "spawn": spawn,
    "timeout": timeout,
    "fifo": fifo,
}

if __name__ == "__main__":
    coro.set_latency_warning(0)
    coro.run(COUNTED[sys.argv[1]], int(sys.argv[2]))
