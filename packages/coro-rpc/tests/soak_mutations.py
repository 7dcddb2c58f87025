"""Packets that are damaged on their way, in both roles: `python packages/coro-rpc/tests/soak_mutations.py --sessions
10000`.

In one process over memory: a server or a client of fast_rpc stands on one side, and on the other one a peer whose
bytes, all of them taken from real sessions, are changed, cut, doubled or replaced before they are sent. Expected: each
session ends, with errors of coro.rpc alone; memory stays what it was; no message costs more than the steps that its
size allows. The seed is printed.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import threading
from typing import Any

import coro
from coro import testing
from coro.rpc import RpcError, fast_rpc
from coro.rpc._wire import frames, values

SLACK = 16 << 20
CODECS = (fast_rpc.Pickle, fast_rpc.JSON, fast_rpc.MessagePack)


def resident() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def methods() -> fast_rpc.Registry:
    made = fast_rpc.Registry()
    made.export(lambda value=None: value, "echo")
    made.export(lambda n: (i for i in range(min(int(n), 100))), "count")
    made.export(lambda items: sum(items), "total")
    return made


class Tap:
    """A stream that keeps what passes, and may change what comes from the other side."""

    def __init__(self, stream: Any, chance: random.Random | None = None) -> None:
        self.stream, self.chance = stream, chance
        self.left = 0 if chance is None else chance.randrange(4)

    def recv(self, size: int, flags: int = 0) -> bytes:
        data = bytearray(self.stream.recv(min(size, 4096)))
        chance = self.chance
        if chance is None or not data or chance.random() < 0.5:
            return bytes(data)
        at = chance.randrange(len(data))
        what = chance.randrange(6)
        if what == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            data[at] = chance.choice(b"\x00\x01\x7f\x80\xff(hRcb")
        elif what == 2:
            del data[at : at + chance.randrange(1, 9)]
        elif what == 3:
            data[at:at] = data[: chance.randrange(40)]
        elif what == 4:
            data[at : at + 4] = chance.randbytes(4)
        else:
            data += frames.encode(chance.randrange(1, 14), chance.randrange(6), chance.randbytes(chance.randrange(40)))
        return bytes(data[:size])

    def sendall(self, data: bytes) -> int:
        return int(self.stream.sendall(data) or len(data))

    def send(self, data: bytes) -> int:
        return int(self.stream.send(data))

    def close(self) -> None:
        self.stream.close()

    def shutdown(self, how: int) -> None:
        self.stream.shutdown(how)


def session(chance: random.Random, foreign: list[str]) -> None:
    """One client and one server; one of the two gets damaged bytes."""
    near, far = testing.stream_pair()
    damage_server = chance.random() < 0.5
    secret = b"a secret of at least 16 bytes" if chance.random() < 0.3 else None
    codec = chance.choice(CODECS)
    steps = values.last_steps
    served = fast_rpc.Connection(
        Tap(near, chance if damage_server else None),
        methods(),
        server_side=True,
        secret=secret,
        codecs=[codec()],
        max_packet=1 << 20,
        keepalive=None,
    )
    client = fast_rpc.Connection(
        Tap(far, None if damage_server else chance),
        methods(),
        secret=secret,
        codecs=[codec()],
        max_packet=1 << 20,
        timeout=0.2,
        keepalive=None,
    )

    def start(one: fast_rpc.Connection) -> None:
        try:
            one.start(0.2)
        except (RpcError, coro.TimeoutError):
            return
        except Exception as e:
            foreign.append(f"start of {one!r}: {type(e).__name__}: {e}")

    server = coro.spawn(start, served)
    start(client)
    for _ in range(chance.randrange(1, 5)):
        what = chance.randrange(4)
        try:
            if what == 0:
                client.call("echo", {"a": [1, "b", None], "k": chance.randrange(10**6)})
            elif what == 1:
                list(client.stream("count", 20, timeout=0.2))
            elif what == 2:
                client.call("total", iter(range(30)))
            else:
                client.cast("echo", "x" * chance.randrange(200))
        except (RpcError, coro.TimeoutError):
            pass
        except Exception as e:
            # A damaged answer is a value all the same; what a method of ours makes of it may be wrong, not broken.
            foreign.append(f"call {what}: {type(e).__name__}: {e}")
        if steps() > 8 * (1 << 20) + 500_000:
            foreign.append(f"a message cost {steps()} steps")
    for one in (client, served):
        one.abort()
        one.wait_closed()
    server.get()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    foreign: list[str] = []
    unraised: list[str] = []
    threading.excepthook = lambda args: unraised.append(repr(args.exc_value))
    sys.unraisablehook = lambda args: unraised.append(repr(args.exc_value))
    sizes: list[int] = []
    chance = random.Random(options.seed)

    def one(seed: int) -> None:
        session(random.Random(seed), foreign)

    def run() -> None:
        batch = 50
        for done in range(0, options.sessions, batch):
            coro.in_parallel([(one, (chance.getrandbits(64),)) for _ in range(batch)])
            if done % max(batch, options.sessions // 10 // batch * batch) == 0:
                gc.collect()
                sizes.append(resident())
                print(f"{done + batch:6} sessions: {sizes[-1] >> 10} KiB", flush=True)

    coro.run(run)
    for text in (foreign + unraised)[:20]:
        print("expected an error of coro.rpc, got", text)
    grown = sizes[-1] - sizes[len(sizes) // 3]
    if grown > SLACK:
        print(f"expected constant memory, it grew by {grown} bytes")
    return 1 if foreign or unraised or grown > SLACK else 0


if __name__ == "__main__":
    sys.exit(main())
