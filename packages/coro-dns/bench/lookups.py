"""Processor time of a lookup, without the name server's: so many at a time, each of another name, nothing cached.

Each of `concurrent` threads (tasks, callbacks) asks the next name as soon as it has an answer. The server is unbound
with the names in its configuration, with TTL 0, so no cache of a client keeps them.
"""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from _common import Figures, main

HOST = "127.0.0.1"
NAMES = 5000


@contextlib.contextmanager
def running_unbound() -> Iterator[int]:
    """Its port."""
    at = random.randrange(20000, 32768)
    data = "".join(f' local-data: "n{i}.test. 0 A 192.0.2.{i % 250}"\n' for i in range(NAMES))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "unbound.conf").write_text(
            f'server:\n interface: {HOST}@{at}\n directory: "{folder}"\n chroot: ""\n username: ""\n pidfile: ""\n'
            f" use-syslog: no\n num-threads: 1\n so-rcvbuf: 8m\n do-ip6: no\n local-zone: test. static\n{data}"
            "remote-control:\n control-enable: no\n"
        )
        with open(Path(folder) / "log", "w") as log:
            child = subprocess.Popen(["/usr/sbin/unbound", "-d", "-c", f"{folder}/unbound.conf"], stderr=log)
        try:
            for _ in range(100):
                with contextlib.suppress(OSError), socket.create_connection((HOST, at), 1):
                    break
                time.sleep(0.05)
            yield at
        finally:
            child.terminate()
            child.wait()


class Clock:
    """The first part of the lookups warms up and is not counted."""

    def __init__(self, lookups: int) -> None:
        self.lookups = lookups
        self.warm = lookups // 4
        self.given = 0
        self.cpu = self.wall = 0.0

    def next(self) -> str | None:
        """The next name; None: enough."""
        n = self.given
        if n == self.warm:
            self.cpu, self.wall = time.process_time(), time.perf_counter()
        if n >= self.lookups + self.warm:
            return None
        self.given = n + 1
        return f"n{n % NAMES}.test"

    def figures(self) -> Figures:
        cpu, wall = time.process_time() - self.cpu, time.perf_counter() - self.wall
        return {"cpu": cpu, "wall": wall, "count": self.lookups}


def coro(lookups: int, concurrent: int) -> Figures:
    import coro
    from coro.dns.stub_resolver import stub_resolver

    clock = Clock(lookups)

    def worker(resolver: stub_resolver) -> None:
        while name := clock.next():
            assert resolver.query(name, "A")

    def run(at: int) -> Figures:
        resolver = stub_resolver([(HOST, at)], concurrent)
        with coro.group() as workers:
            for _ in range(concurrent):
                workers.spawn(worker, resolver)
        assert resolver.statistics().sent >= lookups
        return clock.figures()

    with running_unbound() as at:
        return coro.run(run, at)


def pycares(lookups: int, concurrent: int) -> Figures:
    import select

    import pycares

    clock = Clock(lookups)
    poll = select.epoll()
    watched: dict[int, int] = {}
    done = 0

    def changed(fd: int, readable: bool, writable: bool) -> None:
        mask = (select.EPOLLIN if readable else 0) | (select.EPOLLOUT if writable else 0)
        if not mask:
            if watched.pop(fd, 0):
                poll.unregister(fd)
        elif fd in watched:
            poll.modify(fd, mask)
        else:
            poll.register(fd, mask)
        if mask:
            watched[fd] = mask

    def answered(result: object, error: int | None) -> None:
        nonlocal done
        assert error is None, error
        done += 1
        ask()

    def ask() -> None:
        name = clock.next()
        if name:
            channel.query(name, pycares.QUERY_TYPE_A, callback=answered)

    with running_unbound() as at:
        # all replies come to one socket, whose buffer is too small for so many by default
        channel = pycares.Channel(
            servers=[HOST],
            udp_port=at,
            tcp_port=at,
            sock_state_cb=changed,
            lookups="b",
            timeout=20,
            socket_receive_buffer_size=1 << 22,
        )
        for _ in range(concurrent):
            ask()
        while done < clock.lookups + clock.warm:
            events = poll.poll(0.2)
            if not events:
                channel.process_fd(-1, -1)
            for fd, mask in events:
                channel.process_fd(fd if mask & select.EPOLLIN else -1, fd if mask & select.EPOLLOUT else -1)
        return clock.figures()


def aiodns(lookups: int, concurrent: int) -> Figures:
    import asyncio

    import aiodns

    clock = Clock(lookups)

    async def worker(resolver: aiodns.DNSResolver) -> None:
        while name := clock.next():
            await resolver.query_dns(name, "A")

    async def run(at: int) -> Figures:
        resolver = aiodns.DNSResolver(
            nameservers=[HOST], udp_port=at, tcp_port=at, timeout=20, socket_receive_buffer_size=1 << 22
        )
        await asyncio.gather(*(worker(resolver) for _ in range(concurrent)))
        return clock.figures()

    with running_unbound() as at:
        return asyncio.run(run(at))


def dnspython(lookups: int, concurrent: int) -> Figures:
    import asyncio

    import dns.asyncresolver

    clock = Clock(lookups)

    async def worker(resolver: dns.asyncresolver.Resolver) -> None:
        while name := clock.next():
            await resolver.resolve(name + ".", "A")

    async def run(at: int) -> Figures:
        resolver = dns.asyncresolver.Resolver(configure=False)
        resolver.nameservers, resolver.port = [HOST], at
        resolver.timeout, resolver.lifetime = 60, 120  # beside other work its thousand take more than 10 seconds
        await asyncio.gather(*(worker(resolver) for _ in range(concurrent)))
        return clock.figures()

    with running_unbound() as at:
        return asyncio.run(run(at))


if __name__ == "__main__":
    main({"coro": coro, "pycares": pycares, "aiodns": aiodns, "dnspython": dnspython})
