"""Outages of RabbitMQ, handlers beyond consumer_timeout and errors of channels, in turn, under confirmed messages.

    python soak_recovery.py --messages 100000 --rounds 20 [--seed N]

One client publishes, another consumes through several channels; neither opens a channel or a consumer a second time,
so all that comes back does so by recovery. In each round the broker is stopped or killed, or a channel is closed by a
mistake, or a handler takes longer than the broker allows. At the end every confirmed message must have been handled,
every consumer must be there, and what was handled twice is counted.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "tests" / "support")]

from real_programs import RabbitMQ  # noqa: E402

import coro  # noqa: E402
from coro import amqp  # noqa: E402

CONSUMERS = 3
#: Seconds that RabbitMQ gives a handler, and after which it looks.
HANDLER, TICK = 2, 0.5
#: Seconds that bound a hang.
HANG = 300


class Load:
    """What was published, confirmed, and handled how often."""

    def __init__(self, url: str) -> None:
        rule = amqp.Recovery(first=0.05, most=1)
        self.publishing, self.consuming = (amqp.connect(url, recovery=rule, timeout=HANG) for _ in range(2))
        self.out = self.publishing.channel()
        self.out.queue_declare("soak", durable=True)
        self.out.confirm_select()
        self.handled: Counter[int] = Counter()
        self.confirmed: set[int] = set()
        self.unknown = self.channels_back = self.connections_back = 0
        self.slow = coro.event()
        self.consuming.add_listener(self._note)
        self.publishing.add_listener(self._note)
        self.channels = [self.consuming.channel() for _ in range(CONSUMERS)]
        self.consumers = [each.consume("soak", prefetch=50) for each in self.channels]
        self.threads = [coro.spawn(each.run, self._handle) for each in self.consumers]

    def _note(self, event: str, **facts: object) -> None:
        self.channels_back += event == "channel-recovered"
        self.connections_back += event == "recovered"

    def _handle(self, message) -> None:
        self.handled[int(message.body)] += 1
        if self.slow.is_set():
            self.slow.clear()
            coro.sleep_relative(HANDLER + 3 * TICK + 1)

    def publish(self, numbers: range) -> None:
        """Each number; one whose confirmation fails may have been taken or not, and is counted as unknown."""
        open_ = []
        for number in numbers:
            try:
                properties = {"delivery-mode": 2}
                open_.append((number, self.out.publish(str(number), routing_key="soak", properties=properties)))
            except amqp.AMQPError:
                self.unknown += 1
        for number, confirmation in open_:
            try:
                confirmation.wait()
                self.confirmed.add(number)
            except amqp.AMQPError:
                self.unknown += 1


def break_channel(channel: amqp.channel) -> None:
    try:
        channel.queue_declare("not-there", passive=True)
    except amqp.AMQPError:
        pass


def soak(messages: int, rounds: int, rng: random.Random) -> None:
    advanced = f"[{{rabbit, [{{consumer_timeout, {HANDLER * 1000}}}, {{channel_tick_interval, {int(TICK * 1000)}}}]}}]."
    done: Counter[str] = Counter()
    with RabbitMQ(advanced=advanced) as broker:
        load = Load(f"amqp://guest:guest@127.0.0.1:{broker.port}//")
        for number in range(rounds):
            part = range(messages * number // rounds, messages * (number + 1) // rounds)
            # all kinds come before any comes again
            kind = ("stop", "channel", "kill", "slow")[number % 4]
            publisher = coro.spawn(load.publish, part)
            coro.sleep_relative(rng.uniform(0, 0.3))
            if kind == "channel":
                for channel in [*load.channels, load.out]:
                    coro.spawn(break_channel, channel)
            elif kind == "slow":
                load.slow.set()
            else:
                coro.in_thread(getattr(broker, kind))
                coro.in_thread(broker.start)
            publisher.get(HANG)
            done[kind] += 1
            print(
                f"{kind}: {len(load.confirmed)} confirmed, {load.unknown} unknown, {len(load.handled)} handled, "
                f"{load.connections_back} connections and {load.channels_back} channels came back",
                flush=True,
            )
        deadline = time.monotonic() + HANG
        while load.confirmed - load.handled.keys() and time.monotonic() < deadline:
            coro.sleep_relative(0.1)
        lost = load.confirmed - load.handled.keys()
        there = load.out.queue_declare("soak", passive=True)
        repeated = sum(count - 1 for count in load.handled.values())
        print(f"{dict(done)}; {len(load.confirmed)} confirmed, {len(lost)} lost, {repeated} handled again")
        assert not lost, f"confirmed and never handled: {sorted(lost)[:10]}"
        assert there.consumer_count == CONSUMERS, f"{there.consumer_count} of {CONSUMERS} consumers came back"
        assert not any(thread.dead for thread in load.threads) and not any(each.closed for each in load.channels)
        assert load.connections_back and load.channels_back, "nothing was broken"
        for consumer in load.consumers:
            consumer.cancel()
        for thread in load.threads:
            thread.get(HANG)
        load.publishing.close()
        load.consuming.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(2**32)
    print(f"seed {seed}", flush=True)
    coro.run(soak, options.messages, options.rounds, random.Random(seed))


if __name__ == "__main__":
    main()
