"""Publishers and a consumer that keep account: what was confirmed, and what came, while a broker is maltreated.

A publisher numbers its messages, publishes them through a window, and keeps those that the broker has confirmed. One
whose answer was lost with its connection may have been taken or not; it is published again, and its number is noted.
The consumer notes how often each number came, and whether the broker said that it was a redelivery.

So three things can be checked: every confirmed number came; a number that came twice was redelivered or published
again; and nothing came that was not published.
"""

from __future__ import annotations

from collections import Counter, deque

import coro
from coro import amqp


class Load:
    """`publishers` threads on one connection, one consumer on another. The queue has to be durable for restarts."""

    def __init__(self, publishing, consuming, queue, *, publishers=4, arguments=None, window=50):
        self.queue = queue
        self.confirmed: set[str] = set()
        self.repeated: set[str] = set()
        self.tried: set[str] = set()
        self.came: Counter[str] = Counter()
        self.unmarked: Counter[str] = Counter()
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
                            self.tried.add(body)
                            try:
                                confirmation = channel.publish(
                                    body, routing_key=self.queue, properties={"delivery-mode": 2}
                                )
                            except amqp.AMQPError:
                                self.repeated.add(body)
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
            self.repeated.add(body)
            raise
        else:
            self.confirmed.add(body)
            self.progress.wake_all()
        finally:
            open_.popleft()

    def _abandon(self, open_, again):
        for body, confirmation in open_:
            if confirmation.delivered:
                self.confirmed.add(body)
            else:
                self.repeated.add(body)
                again.append(body)

    def _consume(self):
        while True:
            try:
                with self.consuming.channel() as channel:
                    for message in channel.consume(self.queue, prefetch=50):
                        body = message.body.decode()
                        self.came[body] += 1
                        if not message.redelivered:
                            self.unmarked[body] += 1
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
        wanted = len(self.confirmed) + more
        with coro.timeout(limit):
            while len(self.confirmed) < wanted:
                self.progress.wait()

    def finish(self, limit=240):
        """Stop publishing, wait for everything that was confirmed, and check the account."""
        self._stopping = True
        with coro.timeout(limit):
            for thread in self._publishers:
                thread.join()
            while not self.confirmed <= self.came.keys():
                self.progress.wait()
        self._consumer.shutdown()
        self._consumer.join()
        assert self.confirmed <= self.came.keys() <= self.tried
        twice = {body for body, count in self.unmarked.items() if count > 1}
        assert twice <= self.repeated, f"came twice, not marked, published once: {sorted(twice - self.repeated)[:10]}"
        return len(self.confirmed)
