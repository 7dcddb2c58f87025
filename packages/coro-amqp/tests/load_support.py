"""Publishers and a consumer that keep account: what was confirmed, and what came, while a broker is maltreated.

A publisher numbers its messages, publishes them through a window, and keeps those that the broker has confirmed. One
whose answer was lost with its connection may have been taken or not; it is published again, and its number is noted.
The consumer notes how often each number came, and whether the broker said that it was a redelivery.

So three things can be checked: every confirmed number came; a number that came twice was redelivered or published
again; and nothing came that was not published. The account takes a byte for each message, so that a soak of millions
can see by the memory of the process whether the client keeps something.
"""

from __future__ import annotations

from collections import deque

import coro
from coro import amqp

#: What is known of a message, as bits: it was given to `publish`; confirmed; published again; has come; came without
#: the mark of a redelivery, once and more often.
TRIED, CONFIRMED, REPEATED, CAME, UNMARKED, TWICE = (1 << n for n in range(6))


class Account:
    """Bits for each message; a message is "publisher-number", numbers from 0."""

    def __init__(self, publishers: int) -> None:
        self._bits = [bytearray() for _ in range(publishers)]
        self.confirmed = 0
        #: Confirmed messages that have not come yet.
        self.missing = 0

    def note(self, body: str, bit: int) -> None:
        publisher, number = map(int, body.split("-"))
        bits = self._bits[publisher]
        if number >= len(bits):
            assert number == len(bits) and bit == TRIED, f"{body} came and was not published"
            bits.append(0)
        before = bits[number]
        assert bit == TRIED or before & TRIED, f"{body} came and was not published"
        if bit == UNMARKED and before & UNMARKED:
            bit = TWICE
        after = bits[number] = before | bit
        self.confirmed += bool(after & CONFIRMED) - bool(before & CONFIRMED)
        self.missing += (after & (CONFIRMED | CAME) == CONFIRMED) - (before & (CONFIRMED | CAME) == CONFIRMED)

    def wrong(self) -> list[str]:
        """Messages that came twice without a mark and were published once."""
        return [
            f"{publisher}-{number}"
            for publisher, bits in enumerate(self._bits)
            for number, known in enumerate(bits)
            if known & TWICE and not known & REPEATED
        ]

    def __len__(self) -> int:
        return sum(map(len, self._bits))


class Load:
    """`publishers` threads on one connection, one consumer on another. The queue has to be durable for restarts."""

    def __init__(self, publishing, consuming, queue, *, publishers=4, arguments=None, window=50):
        self.queue = queue
        self.account = Account(publishers)
        self.progress = coro.condition_variable()
        self.window = window
        self.publishing, self.consuming = publishing, consuming
        with consuming.channel() as channel:
            channel.queue_declare(queue, durable=True, arguments=arguments)
        self._stopping = False
        self._publishers = [coro.spawn(self._publish, n, thread_name=f"publisher {n}") for n in range(publishers)]
        self._consumer = coro.spawn(self._consume, thread_name="consumer")

    # -- threads

    def _publish(self, number):
        count = 0
        again: deque[str] = deque()
        while not self._stopping or again:
            try:
                with self.publishing.channel() as channel:
                    channel.confirm_select()
                    open_: deque = deque()
                    while (not self._stopping or again or open_) and not channel.closed:
                        if again or (not self._stopping and len(open_) < self.window):
                            if again:
                                body = again.popleft()
                            else:
                                body = f"{number}-{count}"
                                count += 1
                            self.account.note(body, TRIED)
                            try:
                                confirmation = channel.publish(
                                    body, routing_key=self.queue, properties={"delivery-mode": 2}
                                )
                            except amqp.AMQPError:
                                self.account.note(body, REPEATED)
                                again.append(body)
                                raise
                            open_.append((body, confirmation))
                        if len(open_) >= self.window or self._stopping or again:
                            self._settle(open_, again)
            except (amqp.AMQPError, OSError):
                coro.sleep_relative(0.02)
            finally:
                self._abandon(open_, again)
                open_ = deque()

    def _settle(self, open_, again):
        if not open_:
            return
        body, confirmation = open_[0]
        try:
            confirmation.wait()
        except amqp.PublishNacked:
            again.append(body)
        except amqp.AMQPError:
            again.append(body)
            self.account.note(body, REPEATED)
            raise
        else:
            self.account.note(body, CONFIRMED)
            self.progress.wake_all()
        finally:
            open_.popleft()

    def _abandon(self, open_, again):
        for body, confirmation in open_:
            if confirmation.delivered:
                self.account.note(body, CONFIRMED)
            else:
                self.account.note(body, REPEATED)
                again.append(body)

    def _consume(self):
        while True:
            try:
                with self.consuming.channel() as channel:
                    for message in channel.consume(self.queue, prefetch=50):
                        body = message.body.decode()
                        self.account.note(body, CAME)
                        if not message.redelivered:
                            self.account.note(body, UNMARKED)
                        try:
                            message.ack()
                        except amqp.StaleDelivery:
                            pass
                        self.progress.wake_all()
            except (amqp.AMQPError, OSError):
                coro.sleep_relative(0.02)

    # -- for tests

    def wait_confirmed(self, more, limit=240):
        """Until so many more are confirmed, and have come."""
        wanted = self.account.confirmed + more
        with coro.timeout(limit):
            while self.account.confirmed < wanted:
                self.progress.wait()

    def finish(self, limit=240):
        """Stop publishing, wait for everything that was confirmed, and check the account."""
        self._stopping = True
        with coro.timeout(limit):
            for thread in self._publishers:
                thread.join()
            while self.account.missing:
                self.progress.wait()
        self._consumer.shutdown()
        self._consumer.join()
        wrong = self.account.wrong()
        assert not wrong, f"came twice, not marked, published once: {wrong[:10]}"
        return self.account.confirmed
