"""Mistakes that type checkers have to find: each line that ends in a comment of one word, `wrong`, and no other.

Read by test_types.py and never run. A mistake stands on a line of its own, beside lines that are nearly the same and
right, so that a checker which complains about everything fails as well.
"""

# ruff: noqa: B018, F401, I001 - mistakes are what the file is about

from __future__ import annotations

from collections.abc import Callable

import coro
from coro import joinall  # wrong
from coro import spwan  # wrong
from coro import spawn
from coro.read_stream import sock_stream


def length(text: str) -> int:
    return len(text)


def ask(host: str, port: int, *, tries: int = 3) -> bytes:
    return b""


def nothing() -> None: ...


def session(conn: coro.sock, address: object) -> None: ...


def accounts(conn: coro.Stream, address: object) -> None: ...


def only_conn(conn: coro.sock) -> None: ...


# -- names

coro.spwan(nothing)  # wrong
coro.gather(nothing)  # wrong
coro.Lock()  # wrong
coro.create_task(nothing)  # wrong
coro.Queue()  # wrong
coro.mutex().aquire()  # wrong
coro.event().is_open  # wrong
coro.TimeOutError  # wrong
coro.now + 1
coro.ticks_per_sec * 2
coro.now + "1"  # wrong
coro.backdoor.serve
coro.backdoor.sevre  # wrong
coro.testing.virtual_clok  # wrong
coro.prefork.PreforkError("x")
coro.prefork.PreforkEror  # wrong


# -- calls in threads

spawn(length, "text")
spawn(length)  # wrong
spawn(length, 5)  # wrong
spawn(length, "a", "b")  # wrong
spawn(length("text"))  # wrong
spawn(nothing())  # wrong
spawn(length, "text", thread_name="counter", daemon=True)
spawn(length, 5, thread_name="counter")  # wrong
spawn(length, "text", name="counter")  # wrong
spawn(length, "text", thread_name=5)  # wrong
spawn(ask, "host", 80, tries=5, daemon=True)
spawn(ask, 80, "host", tries=5, daemon=True)  # wrong
spawn(ask, "host", 80, tries="5")  # wrong
coro.new(ask, "host", "80")  # wrong
coro.post(length, "text")
coro.post(length)  # wrong
coro.in_thread(ask, "host", 80, tries=1)
coro.in_thread(ask, "host", 80, retries=1)  # wrong
coro.with_timeout(2.5, length, "text")
coro.with_timeout(length, 2.5, "text")  # wrong
coro.with_timeout(2.5, length)  # wrong
coro.run(length, "text")
coro.run(length)  # wrong
coro.parallel_map(length, ["a", "b"], limit=2)
coro.parallel_map(length, [1, 2])  # wrong
coro.in_parallel([(length, ("a",)), (ask, ("host", 80))])
coro.in_parallel([length, length])  # wrong
coro.in_parallel([(length("a"), ())])  # wrong

with coro.group() as g:
    g.spawn(ask, "host", 80)
    g.spawn(ask, "host")  # wrong
    g.spawn(length, "text", "more", thread_name="x")  # wrong


# -- results

number: int = coro.run(length, "text")
words: str = coro.run(length, "text")  # wrong
numbers: list[int] = coro.parallel_map(length, ["text"])
texts: list[str] = coro.parallel_map(length, ["text"])  # wrong
same: list[int] = coro.in_parallel([(length, ("a",)), (length, ("b",))])
coro.in_parallel([(length, ("a",)), (length, ("b",))])[0].upper()  # wrong
moved: str = coro.in_thread(length, "text")  # wrong
thread: coro.coro[int] = spawn(length, "text")
named: coro.coro[int] = spawn(length, "text").set_name("counter")
strange: coro.coro[str] = spawn(length, "text")  # wrong
any_thread: coro.coro = thread
thread.result.upper()  # wrong
thread.get(timeout=5) + 1
thread.get().upper()  # wrong
thread.jion()  # wrong
thread.kill()  # wrong
g.spawn(ask, "host", 80).result.encode()  # wrong
limited: int = coro.with_timeout(1, ask, "host", 80)  # wrong


# -- values in queues and streams

lines: coro.fifo[str] = coro.fifo()
lines.push("text")
lines.push(b"bytes")  # wrong
lines.pop() + 1  # wrong
conn = coro.connect(("127.0.0.1", 80))
conn.send(b"GET /\r\n")
conn.send("GET /\r\n")  # wrong
conn.recv("100")  # wrong
sock_stream(conn).read_line().split("\t")  # wrong
coro.serve(session, ("127.0.0.1", 80))
coro.serve(accounts, ("127.0.0.1", 80))
coro.serve(only_conn, ("127.0.0.1", 80))  # wrong
coro.sleep_relative("1")  # wrong


# -- streams: what a coro.Stream is

left, right = coro.testing.stream_pair()
some: Callable[[coro.Stream], object] = sock_stream
streams: list[coro.Stream] = [conn, left, coro.testing.faulty_stream(right), coro.fd_sock(0)]
stream: coro.Stream = open("/dev/null", "rb")  # wrong
stream.recv(100)
stream.fileno()  # wrong
