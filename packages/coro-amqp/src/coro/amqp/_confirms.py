"""Publisher confirms (https://www.rabbitmq.com/docs/confirms): which publishes the broker has yet to answer for.

The broker numbers the publishes of a channel from 1 and acknowledges them one by one or all up to a number. `Confirms`
keeps one `Confirmation` for each that is open, in the order of their numbers, so that "all up to" only touches what it
settles. A message that comes back (basic.return) is tied to its publish: the broker returns messages in the order in
which they were published, before it confirms them, so it is the oldest open one that was mandatory and looks the same.

Cost: an object and an entry of a dict for each open publish. `window` limits how many there are.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import coro
from coro.amqp._link import again
from coro.amqp.exceptions import AMQPError, PublishNacked, PublishReturned

if TYPE_CHECKING:
    from coro.amqp._channel import channel
    from coro.amqp._protocol import Message

__all__ = ["Confirmation", "Confirms"]


class Confirmation:
    """What the broker says about one published message, now or later.

    ``done``: it has been said. ``exception``: None, PublishNacked, PublishReturned, or why nobody will ever know.
    """

    __slots__ = ("_channel", "_event", "content", "done", "exception", "tag")

    def __init__(self, owner: channel, tag: int) -> None:
        self._channel = owner
        self._event: coro.event | None = None
        self.tag = tag
        self.done = False
        self.exception: AMQPError | None = None
        #: exchange, routing key, body, properties: kept of mandatory messages, and of those to be published again
        self.content: tuple[str, str, Any, Any, bool] | None = None

    @property
    def delivered(self) -> bool:
        """The broker has taken responsibility for the message, and it reached a queue if it was mandatory."""
        return self.done and self.exception is None

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the answer. Returns when the broker has taken the message.

        timeout: seconds; None for the ``timeout`` of the client. Raises PublishNacked, PublishReturned, why the channel
        or connection ended (the message may have been taken or not), AMQPTimeout or ConnectionBlocked when the time is
        over. May be called by several threads, and again.
        """
        if not self.done:
            self._wait(timeout)
        if self.exception is not None:
            if isinstance(self.exception, PublishReturned | PublishNacked):
                raise self.exception
            raise again(self.exception)

    def _wait(self, timeout: float | None) -> None:
        owner = self._channel
        if timeout is None:
            timeout = owner.conn.timeout
        if self._event is None:
            self._event = coro.event()
        link = owner._link
        if link is not None:
            link.begin_wait()
        try:
            with coro.move_on_after(timeout):
                self._event.wait()
        finally:
            if link is not None:
                link.waiting -= 1
        if not self.done:
            owner._raise_timeout("the broker to confirm a message", timeout)

    def settle(self, exception: AMQPError | None) -> None:
        """The answer is there. A return stays the answer when the confirmation follows."""
        if self.exception is None:
            self.exception = exception
        self.done = True
        if self._event is not None:
            self._event.set()

    def __repr__(self) -> str:
        state = "open" if not self.done else "delivered" if self.exception is None else repr(self.exception)
        return f"<Confirmation {self.tag} {state}>"


class Confirms:
    """The open publishes of one channel."""

    def __init__(self, owner: channel, window: int, republish: bool) -> None:
        self._channel = owner
        self.window = window
        self.republish = republish
        self.open: dict[int, Confirmation] = {}
        self.again: deque[Confirmation] = deque()  # were open when the channel was lost, and are to be published again
        self.confirmed = self.nacked = self.returned = 0
        self._last = 0
        self._mandatory: deque[Confirmation] = deque()
        self._failures: list[AMQPError] = []
        self._progress = coro.condition_variable()  # threads that wait for the window or for everything

    def restart(self) -> None:
        """The channel has been opened again: the broker counts from 1."""
        self._last = 0
        self.again.extendleft(reversed(self.open.values()))
        self.open = {}
        self._mandatory.clear()

    def __len__(self) -> int:
        return len(self.open) + len(self.again)

    def add(self, exchange: str, routing_key: str, body: Any, properties: Any, mandatory: bool) -> Confirmation:
        """A message is about to be published."""
        self._last += 1
        found = Confirmation(self._channel, self._last)
        self.open[self._last] = found
        if mandatory or self.republish:
            found.content = exchange, routing_key, body, properties, mandatory
            if mandatory:
                self._mandatory.append(found)
        return found

    def undo(self, confirmation: Confirmation) -> None:
        """It was not published after all."""
        self.open.pop(confirmation.tag, None)
        if self._mandatory and self._mandatory[-1] is confirmation:
            self._mandatory.pop()
        self._last -= 1

    def wait_window(self, timeout: float) -> None:
        """Wait until there is room for one more."""
        if len(self.open) >= self.window:
            self._wait(self.window - 1, timeout, f"the broker to confirm one of {self.window} messages")

    def wait_all(self, timeout: float) -> None:
        """Wait until none is open, then raise the first failure since the last call."""
        if len(self):
            self._wait(0, timeout, f"the broker to confirm {len(self)} messages")
        failures, self._failures = self._failures, []
        if failures:
            if len(failures) > 1:
                failures[0].add_note(f"and {len(failures) - 1} more messages were not taken")
            raise failures[0]

    def _wait(self, most: int, timeout: float, what: str) -> None:
        owner = self._channel
        link = owner._link
        if link is not None:
            link.begin_wait()
        try:
            with coro.move_on_after(timeout):
                while len(self) > most:
                    self._progress.wait()
                return
        finally:
            if link is not None:
                link.waiting -= 1
        owner._raise_timeout(what, timeout)

    def settle(self, tag: int, multiple: bool, nacked: bool) -> bool:
        """basic.ack or basic.nack has come. False: for a number that is not open."""
        if not multiple:
            found = self.open.pop(tag, None)
            if found is None:
                return False
            self._one(found, nacked)
        else:
            settled = []
            for number in self.open:
                if number > tag and tag:
                    break
                settled.append(number)
            if not settled and tag > self._last:
                return False
            for number in settled:
                self._one(self.open.pop(number), nacked)
        if len(self._progress):
            self._progress.wake_all()
        return True

    def _one(self, found: Confirmation, nacked: bool) -> None:
        if nacked:
            self.nacked += 1
            found.settle(PublishNacked("the broker could not take the message (basic.nack)"))
        else:
            self.confirmed += 1
            found.settle(None)
        if found.exception is not None:
            self._failures.append(found.exception)
        if found.content is not None:
            while self._mandatory and self._mandatory[0].done:
                self._mandatory.popleft()
            found.content = None

    def take_return(self, message: Message) -> Confirmation | None:
        """The publish that a returned message belongs to."""
        for found in self._mandatory:
            content = found.content
            if found.done or found.exception is not None or content is None:
                continue
            exchange, routing_key, body, _, _ = content
            if exchange == message.exchange and routing_key == message.routing_key and _same(body, message.body):
                self.returned += 1
                found.exception = PublishReturned(message)
                return found
        return None

    def fail(self, error: AMQPError) -> None:
        """The channel has ended, or was lost: nobody will ever know."""
        lost, self.open = [*self.open.values(), *self.again], {}
        self.again.clear()
        self._mandatory.clear()
        for found in lost:
            found.settle(error)
            found.content = None
            self._failures.append(error)
        self._progress.wake_all()

    def readd(self) -> tuple[str, str, Any, Any, bool]:
        """The first of those that are to be published again is about to be; returns what it is."""
        found = self.again.popleft()
        assert found.content is not None
        self._last += 1
        found.tag = self._last
        found.exception = None
        self.open[self._last] = found
        if found.content[4]:
            self._mandatory.append(found)
        return found.content


def _same(body: Any, received: bytes) -> bool:
    return (body.encode() if isinstance(body, str) else body) == received
