"""Sessions whose frames are damaged on their way: to the client in one half of them, to the test broker in the other.

    python soak_mutations.py --sessions 10000 [--seed N]

Each session is a client that declares, publishes with confirms, consumes, fetches, makes a mistake and closes, through
a proxy that damages one frame or a few: bytes changed, lost or doubled, frames that are lost, doubled, exchanged or
made up, another channel, another length, an end in the middle. It may end with any error that the manual names, and
with nothing else: no other exception in any thread of the client or of the broker. At the end nothing is left of the
sessions, and memory is where it was after a fifth of them.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import traceback
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "tests" / "support")]

import coro  # noqa: E402
from coro import amqp  # noqa: E402
from coro.amqp import spec, testing  # noqa: E402
from coro.log import set_logger  # noqa: E402

#: Sessions side by side; seconds that a call of one waits for an answer that may never come.
WORKERS, PATIENCE = 25, 0.3
#: MiB that may be in use beyond those of the beginning.
MEMORY = 16
#: Seconds that bound a hang.
HANG = 30
#: What may happen to a frame; what may end a session.
DAMAGES = ("bit", "bytes", "lost", "doubled", "made up", "instead", "channel", "length", "cut", "grown", "kind")
EXPECTED = (amqp.AMQPError, OSError, EOFError, coro.ClosedError)
METHODS = list(spec.method_map.values())


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def frames(data: bytes) -> tuple[list[bytes], bytes]:
    """Whole frames, and the rest."""
    found, at = [], 0
    while len(data) - at >= 7:
        end = at + 8 + int.from_bytes(data[at + 3 : at + 7], "big")
        if end > len(data):
            break
        found.append(data[at:end])
        at = end
    return found, data[at:]


def made_up(rng: random.Random) -> bytes:
    """A frame that nobody has sent: the head of some method, or a content header, and bytes by chance behind it."""
    kind = rng.choice((1, 1, 1, 2, 3, 8))
    payload = rng.randbytes(rng.randrange(40))
    if kind == 1:
        class_id, method_id = rng.choice(METHODS).id
        payload = class_id.to_bytes(2, "big") + method_id.to_bytes(2, "big") + payload
    elif kind == 2:
        payload = b"\0\x3c\0\0" + rng.choice((0, 3, 1 << 40)).to_bytes(8, "big") + payload
    number = rng.choice((0, 1, 1, 2, 9))
    return bytes([kind]) + number.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"


def damage(frame: bytes, rng: random.Random) -> tuple[str, bytes]:
    """What was done, and what is passed on in the place of a frame."""
    how = rng.choice(DAMAGES)
    b = bytearray(frame)
    if how == "bit":
        b[rng.randrange(len(b))] ^= 1 << rng.randrange(8)
    elif how == "bytes":
        # within the payload, so that the frame is read
        for _ in range(rng.randint(1, 4)):
            if len(b) > 8:
                b[rng.randrange(7, len(b) - 1)] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
    elif how == "lost":
        b = bytearray()
    elif how == "doubled":
        b += bytes(b)
    elif how == "made up":
        b += made_up(rng)
    elif how == "instead":
        b = bytearray(made_up(rng))
    elif how == "channel":
        b[1:3] = rng.choice((0, 1, 2, 3, 2047, 65535)).to_bytes(2, "big")
    elif how == "length":
        b[3:7] = rng.choice((0, 1, len(b), 1 << 17, 0xFFFFFFFF)).to_bytes(4, "big")
    elif how == "cut":
        # shorter by its own account too
        size = rng.randrange(max(1, len(b) - 7))
        b[3:7] = size.to_bytes(4, "big")
        b[7 + size :] = b"\xce"
    elif how == "grown":
        b[-1:] = rng.randbytes(rng.randint(1, 20))
        b[3:7] = (len(b) - 7).to_bytes(4, "big")
        b += b"\xce"
    else:
        b[0] = rng.choice((1, 2, 3, 4, 8))
    return how, bytes(b)


class Proxy:
    """Between one client and the broker. ``towards``: "client" or "broker", whose frames are damaged."""

    def __init__(self, broker: testing.Broker, towards: str, rng: random.Random, done: Counter[str]) -> None:
        self.towards, self.rng, self.done = towards, rng, done
        self.port = broker.port
        # the handshake is some four frames, a session thirty
        self.at = {rng.randrange(rng.choice((4, 12, 40))) for _ in range(rng.choice((1, 1, 1, 2, 5)))}

    def pass_on(self, source, target, damaged: bool) -> None:
        count, rest = 0, b""
        header = damaged and self.towards == "broker"
        try:
            while data := source.recv(65536):
                if not damaged:
                    target.send(data)
                    continue
                rest += data
                if header and len(rest) >= 8:
                    target.send(rest[:8])
                    rest, header = rest[8:], False
                whole, rest = frames(rest)
                for each in whole:
                    if count in self.at:
                        how, each = damage(each, self.rng)
                        self.done[how] += 1
                    count += 1
                    if each:
                        target.send(each)
        except (OSError, coro.ClosedError):
            pass
        finally:
            for each in source, target:
                try:
                    each.shutdown(coro.SHUT.RDWR)
                except (OSError, coro.ClosedError):
                    pass

    def serve(self, near, address) -> None:
        far = coro.connect("127.0.0.1", self.port)
        try:
            other = coro.spawn(self.pass_on, near, far, self.towards == "broker", daemon=True)
            self.pass_on(far, near, self.towards == "client")
            other.join()
        finally:
            far.close()


def use(client: amqp.client, rng: random.Random) -> None:
    """A program that uses what there is."""
    channel, other = client.channel(), client.channel()
    queue = channel.queue_declare("", exclusive=True, arguments={"x-max-length": 100}).queue
    channel.queue_bind(queue, "amq.topic", "a.*")
    channel.confirm_select()
    for size in 0, 3, 5000:
        properties = {"headers": {"n": [1, None, {"d": 2.5}]}, "priority": 1}
        channel.publish(b"x" * size, "amq.topic", "a.b", properties=properties)
    channel.publish(b"back", routing_key="nowhere", mandatory=True)
    if rng.random() < 0.5:
        other.tx_select()
        other.basic_publish(b"tx", routing_key=queue)
        other.tx_commit()
    consumer = other.consume(queue, prefetch=10)
    message = consumer.get(PATIENCE)
    dict(message.properties)
    message.ack()
    consumer.get(PATIENCE).reject(False)
    consumer.cancel()
    got = channel.basic_get(queue)
    if got is not None:
        got.nack()
    try:
        other.queue_declare("not-there", passive=True)
    except amqp.ChannelClosed:
        client.channel().basic_qos(5)
    try:
        channel.wait_for_confirms()
    except amqp.PublishReturned:
        pass
    channel.queue_delete(queue)
    channel.close()


class Quiet:
    """A logger that drops the lines about each damage."""

    def log(self, *data: object) -> None:
        pass


class Soak:
    """What all sessions share."""

    def __init__(self, broker: testing.Broker, seed: int) -> None:
        self.broker, self.seed = broker, seed
        self.done: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.wrong: list[str] = []

    def session(self, number: int) -> None:
        rng = random.Random(f"{self.seed} {number}")
        proxy = Proxy(self.broker, ("client", "broker")[number % 2], rng, self.done)
        server = coro.Server(proxy.serve, ("127.0.0.1", 0), daemon=True).start()
        recovery = amqp.Recovery(attempts=1, first=0.01, most=0.02) if rng.random() < 0.3 else None
        client = amqp.client(
            port=server.addresses[0][1],
            connect_timeout=PATIENCE,
            timeout=PATIENCE,
            close_timeout=PATIENCE,
            heartbeat=0,
            recovery=recovery,
            max_body=1 << 20,
        )
        end = "well"
        try:
            with coro.timeout(HANG):
                client.go()
                try:
                    use(client, rng)
                finally:
                    client.close()
        except EXPECTED as exc:
            end = type(exc).__name__
        except BaseException as exc:
            end = "WRONG"
            self.wrong.append(f"session {number}: {traceback.format_exc()}")
            if not isinstance(exc, Exception):
                raise
        finally:
            self.ends[end] += 1
            cause = client.error
            while cause is not None:
                if not isinstance(cause, EXPECTED):
                    self.wrong.append(f"session {number}: {''.join(traceback.format_exception(cause))}")
                cause = cause.__cause__
            server.drain(0)

    def crashed(self) -> None:
        """A thread has ended with an exception that nobody caught."""
        self.wrong.append(f"a thread: {traceback.format_exc()}")

    def run(self, sessions: int) -> None:
        numbers = iter(range(sessions))
        early: list[float] = []

        def work() -> None:
            for number in numbers:
                self.session(number)
                if number == sessions // 5:
                    gc.collect()
                    early.append(resident())
                if number % 1000 == 999:
                    print(f"{number + 1} sessions, {resident():.1f} MiB", flush=True)

        before = coro.set_exception_notifier(self.crashed)
        try:
            with coro.group() as workers:
                for _ in range(WORKERS):
                    workers.spawn(work)
            for _ in range(100):
                if not self.broker.sessions:
                    break
                coro.sleep_relative(0.05)
        finally:
            coro.set_exception_notifier(before)
        gc.collect()
        grown = resident() - early[0]
        print(f"{sum(self.done.values())} frames damaged: {dict(self.done)}")
        print(f"ends: {dict(self.ends)}; {grown:+.1f} MiB; {self.broker.statistics()}")
        for each in self.wrong[:5]:
            print(each)
        assert not self.wrong, f"{len(self.wrong)} exceptions that no manual names"
        assert not self.broker.sessions, f"{len(self.broker.sessions)} sessions are left in the broker"
        # One that was damaged to be no exclusive queue stays, rightly.
        left = [queue.name for queue in self.broker.queues.values() if queue.owner is not None]
        assert not left, f"queues of sessions that have gone: {left}"
        assert grown < MEMORY, f"{grown:.1f} MiB more than after a fifth of the sessions"
        assert self.ends["well"] and len(self.ends) > 3, "too little was damaged, or all"


def soak(sessions: int, seed: int) -> None:
    set_logger(Quiet())
    with testing.Broker(max_body=1 << 20) as broker:
        Soak(broker, seed).run(sessions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(2**32)
    print(f"seed {seed}", flush=True)
    coro.run(soak, options.sessions, seed)


if __name__ == "__main__":
    main()
