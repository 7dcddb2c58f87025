"""Our LDAP server and OpenLDAP's, both with 10 000 people: processor time of the server.

read: searches of one entry by its name, fifty sent at once.  find: the same by ``(uid=...)`` below the suffix, for
which both have an index.  search: all people, of twenty attributes each; figures are for an entry.  bind: logins one
after the other.  modify: changes over eight connections, each acknowledged when it is on the disk.

The client is another process than the server and does next to nothing: what it sends is made before, what comes is cut
into messages and counted.  The processor time is that of the server, as the kernel counts it, in steps of 10 ms.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _common import Figures, main

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests"), str(HERE.parents[2] / "tests" / "support")]
TICK = os.sysconf("SC_CLK_TCK")


def used(pid: int) -> float:
    """Seconds of processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


class Peer:
    """A connection that counts the last answers to its requests."""

    def __init__(self, port: int) -> None:
        from coro.ldap._wire import Framer

        self.sock = socket.create_connection(("127.0.0.1", port), 60)
        self.framer = Framer(entries=False)
        self.last = 0

    def message(self, op: bytes) -> bytes:
        from coro.ldap._wire import encode_message

        self.last += 1
        return encode_message(self.last, op)

    def answers(self) -> int:
        """How many results have come; it waits for something."""
        found = self.framer.receive(self.sock.recv(1 << 20))
        for _, tag, payload in found:
            if tag not in (4, 19):
                assert b"\x0a\x01\x00" in payload[:16], payload
        return sum(tag not in (4, 19) for _, tag, _ in found)

    def ask(self, ops: list[bytes]) -> int:
        """All at once, and wait for the answers; how many there were."""
        self.sock.sendall(b"".join([self.message(op) for op in ops]))
        left = len(ops)
        while left:
            left -= self.answers()
        return len(ops)


def work(what: str, port: int) -> tuple[Callable[[], Any], int]:
    """What is repeated, and how many operations that is."""
    from directory import BASE, ENTRIES
    from ldap_server_support import ADMIN, PASSWORD, bind_request, replace_request, search_request

    peer = Peer(port)
    peer.ask([bind_request(ADMIN, PASSWORD)])
    numbers = range(0, ENTRIES, ENTRIES // 200)
    if what == "read":
        ops = [search_request(base=f"uid=u{n},{BASE}", scope=0) for n in numbers]
        return lambda: [peer.ask(ops[at : at + 50]) for at in range(0, 200, 50)], 200
    if what == "find":
        ops = [search_request(f"(uid=u{n})") for n in numbers]
        return lambda: [peer.ask(ops[at : at + 50]) for at in range(0, 200, 50)], 200
    if what == "search":
        every = search_request(base=BASE, scope=1)
        return lambda: peer.ask([every]), ENTRIES
    if what == "bind":
        ops = [bind_request(f"uid=u{n},{BASE}", "pw") for n in numbers]
        return lambda: [peer.ask([op]) for op in ops], 200
    peers = [Peer(port) for _ in range(8)]
    for one in peers:
        one.ask([bind_request(ADMIN, PASSWORD)])
    count = [0]

    def modify() -> None:
        """Each connection has one change under way, until all are made."""
        left = dict.fromkeys((one.sock for one in peers), 25)
        by_sock = {one.sock: one for one in peers}
        begin = list(peers)
        while left:
            for one in begin:
                count[0] += 1
                one.sock.sendall(
                    one.message(replace_request(f"uid=u{count[0] % ENTRIES},{BASE}", "roomNumber", str(count[0])))
                )
            begin = []
            for sock in select.select(list(left), [], [], 60)[0]:
                if by_sock[sock].answers():
                    left[sock] -= 1
                    if left[sock]:
                        begin.append(by_sock[sock])
                    else:
                        del left[sock]

    return modify, 200


def run(peer: str, what: str, count: int) -> Figures:
    from directory import ldif
    from ldap_server_support import Ours, Slapd

    with Slapd(ldif()) if peer == "slapd" else Ours(ldif()) as server:
        call, each = work(what, server.port)
        call()
        rounds = max(count // each, 1)
        pids = [server._child.pid, *children(server._child.pid)]
        cpu, wall = sum(map(used, pids)), time.perf_counter()
        for _ in range(rounds):
            call()
        wall = time.perf_counter() - wall
        return {"cpu": sum(map(used, pids)) - cpu, "wall": wall, "count": rounds * each}


def children(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    found = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [one for child in found for one in children(child)]


if __name__ == "__main__":
    main({peer: lambda peer=peer, **given: run(peer, **given) for peer in ("coro", "slapd")})
