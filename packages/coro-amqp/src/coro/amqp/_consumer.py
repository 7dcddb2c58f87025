"""A consumer: where the messages of one subscription wait until somebody takes them.

The reader of the connection fills the inbox, which never blocks it. When the inbox is full the connection stops reading
(see _link.py), so the broker waits. With a prefetch limit below ``max_inbox`` that never happens: the broker itself
stops at that number of messages without acknowledgement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import coro
from coro.amqp import spec
from coro.amqp._link import call_back
from coro.amqp._protocol import Message
from coro.amqp.exceptions import AMQP_Consumer_Closed, AMQPError, AMQPTimeout, StateError
from coro.log import Facility

if TYPE_CHECKING:
    from coro.amqp._channel import channel

__all__ = ["consumer"]

LOG = Facility("amqp")
#: Bytes that may come into a full inbox while somebody waits for an answer behind them; then reading stops anyway.
FLOOD = 64 << 20
_END: Any = object()


class consumer:
    """The messages of one subscription; made by ``channel.consume`` and ``channel.basic_consume``.

    ``tag`` names it at the broker, ``queue`` is what it consumes, ``error`` is why it has ended, if that was nobody's
    wish. ::

        for message in consumer:
            work(message.body)
            message.ack()
    """

    def __init__(
        self,
        owner: channel,
        tag: str,
        queue: str = "",
        no_ack: bool = False,
        max_inbox: int = 1000,
        callback: Callable[[Message | None], object] | None = None,
    ) -> None:
        if max_inbox < 1:
            raise ValueError(f"expected max_inbox to be at least 1 message, got {max_inbox}")
        self.channel = owner
        self.tag = tag
        self.queue = queue
        self.no_ack = no_ack
        self.max_inbox = max_inbox
        self.error: AMQPError | None = None
        self.closed = False
        self._callback = callback
        self._inbox: coro.fifo[Message] = coro.fifo()
        self._full = self._flooded = False
        self._excess = 0  # bytes that came while it was full
        self._request: spec.basic.consume | None = None  # how to subscribe again
        self._qos = spec.basic.qos(0, 0, False)  # the limit that it has at the broker

    # ---- in the reader

    def push(self, message: Message) -> None:
        """Take a message that has come; called by the connection. Never waits."""
        if self.no_ack:
            message._settled = True
        if self._callback is not None:
            call_back(self._callback, message)
            return
        inbox = self._inbox
        inbox.push(message)
        if self._full or len(inbox) >= self.max_inbox:
            self._overflow(len(message.body))

    def _overflow(self, size: int) -> None:
        link = self.channel._link
        if link is None:
            return
        if not self._full:
            self._full = True
            self._excess = 0
            link.full += 1
        self._excess += size
        if not self._flooded and self._excess > FLOOD:
            self._flooded = True
            link.flooded += 1

    def _relieve(self) -> None:
        """The inbox may be far enough down for the connection to read on."""
        if len(self._inbox) <= self.max_inbox // 2:
            self._let_read()

    def _let_read(self) -> None:
        """The connection does not stop on account of this inbox."""
        link = self.channel._link
        full, flooded = self._full, self._flooded
        self._full = self._flooded = False
        if link is not None and full:
            link.full -= 1
            link.flooded -= flooded
            link.resume()

    def _drop(self) -> None:
        """The channel is lost: what waits here, the broker delivers again, unless it took it for dealt with."""
        self._let_read()
        if self.no_ack:
            return
        # A message that is on its way to a thread is counted and cannot be had; its acknowledgement will be refused.
        while self._take_waiting() is not None:
            pass

    def _take_waiting(self) -> Message | None:
        """A message that nobody has been promised."""
        try:
            message = self._inbox.pop_nowait()
        except IndexError:
            return None
        if message is _END:
            self._inbox.push_front(_END)
            return None
        return message

    def _end(self, error: AMQPError | None) -> None:
        """No more will come. What waits here can still be taken."""
        if self.closed:
            return
        self.closed = True
        self.error = error
        self._let_read()
        if self._callback is not None:
            call_back(self._callback, None)
        else:
            self._inbox.push(_END)

    # ---- for users

    def get(self, timeout: float | None = None) -> Message:
        """The next message; waits for it. It has to be acknowledged, unless the consumer has ``no_ack``.

        timeout: seconds, None for ever. Raises AMQPTimeout when it is over (nothing is lost), AMQP_Consumer_Closed when
        no more will come, with the reason chained.
        """
        if self._callback is not None:
            self._refuse_callback()
        try:
            message = self._inbox.pop(timeout)
        except coro.TimeoutError:
            raise AMQPTimeout(f"expected a message of consumer {self.tag!r} within {timeout:g} s, none came") from None
        if message is _END:
            # for whoever else waits
            self._inbox.push_front(_END)
            self._raise_closed()
        if self._full:
            self._relieve()
        return message

    def _refuse_callback(self) -> NoReturn:
        raise StateError("expected a consumer without a callback: messages of this one go to its callback")

    def _raise_closed(self) -> NoReturn:
        why = f": {self.error}" if self.error is not None else ""
        raise AMQP_Consumer_Closed(f"consumer {self.tag!r} has ended{why}") from self.error

    def pop(self, ack: bool = True, timeout: float | None = None) -> tuple[spec.basic.deliver, dict[str, Any], bytes]:
        """The next message as ``(deliver method, properties, payload)``; waits for it.

        ack: acknowledge it before returning. A message whose handling then fails is lost: better use ``get`` or
        iterate, and ``message.ack()`` when the work is done. Nothing is acknowledged if the consumer has ``no_ack``.
        Raises as ``get`` does.
        """
        message = self.get(timeout)
        method: spec.basic.deliver = message.deliver_method()
        properties = message.properties
        if ack and not self.no_ack:
            message.ack()
        return method, properties, message.body

    def __iter__(self) -> Iterator[Message]:
        """Messages as they come. It ends when the consumer is cancelled or closed here, and raises AMQP_Consumer_Closed
        when it ended for another reason."""
        while True:
            try:
                message = self.get()
            except AMQP_Consumer_Closed:
                if self.error is None:
                    return
                raise
            yield message

    def run(
        self,
        handler: Callable[[Message], object],
        workers: int = 1,
        requeue: bool = False,
        on_error: Callable[[Message, Exception], object] | None = None,
        *,
        until: coro.event | None = None,
    ) -> None:
        """Call ``handler(message)`` for each message in ``workers`` threads, until the consumer is cancelled.

        A message is acknowledged when its handler has returned, unless the handler did that itself. If it raised, the
        message is rejected: with ``requeue`` it goes back to the queue, without it to the dead-letter exchange, if the
        queue has one. ``on_error(message, exception)`` may do that in another way; without it the exception is logged.
        An interruption of a worker leaves its message to the broker, which delivers it again.

        until: an event, such as ``stopping`` of a ``coro.prefork`` worker. When it is set, the consumer is closed:
        messages that no handler has begun go back to the queue, and handlers that run may finish.

        Returns when the consumer was cancelled or closed here and all handlers have returned. Raises, after they have
        returned, AMQP_Consumer_Closed when the consumer ended for another reason. What ``on_error`` raises ends the
        other workers and is raised as it is. StateError for a consumer with a callback; ValueError for less than one
        worker.
        """
        if workers < 1:
            raise ValueError(f"expected at least one worker, got {workers}")
        if self._callback is not None:
            self._refuse_callback()
        closer = None
        if until is not None:
            closer = coro.spawn(self._close_after, until, thread_name=f"{self.tag} until", daemon=True)
        try:
            with coro.group() as group:
                for number in range(workers):
                    group.spawn(self._work, handler, requeue, on_error, thread_name=f"{self.tag} worker {number}")
        except ExceptionGroup as failures:
            # Of on_error, or of what it was given for a function. One is the reason why the others were ended.
            first, *others = failures.exceptions
            for other in others:
                first.add_note(f"another worker ended with {type(other).__name__}: {other}")
            raise first from first.__cause__
        finally:
            if closer is not None:
                closer.shutdown()
        if self.error is not None:
            self._raise_closed()

    def _close_after(self, until: coro.event) -> None:
        until.wait()
        self.close()

    def _work(
        self,
        handler: Callable[[Message], object],
        requeue: bool,
        on_error: Callable[[Message, Exception], object] | None,
    ) -> None:
        while True:
            try:
                message = self.get()
            except AMQP_Consumer_Closed:
                return  # `run` says so, once for all workers
            try:
                handler(message)
            except Exception as exc:
                if on_error is not None:
                    on_error(message, exc)
                else:
                    LOG("handler failed", self.queue, message.delivery_tag)
                    LOG.exc()
                self._finish(message, requeue, failed=True)
            else:
                self._finish(message, requeue, failed=False)

    def _finish(self, message: Message, requeue: bool, failed: bool) -> None:
        if self.no_ack or message._settled:
            return
        try:
            if failed:
                message.reject(requeue)
            else:
                message.ack()
        except StateError:
            # Its channel has ended meanwhile: the broker delivers the message again.
            LOG("could not settle", self.queue, message.delivery_tag)

    def cancel(self) -> None:
        """End the subscription: no more messages come. Those that wait here unseen go back to the queue, unless the
        consumer has ``no_ack``. Raises as every call to the broker; nothing happens if it has ended already."""
        if not self.closed:
            self.channel.basic_cancel(self.tag)

    def close(self) -> None:
        """The same without waiting for the broker's answer. Never raises because of the broker."""
        if not self.closed:
            try:
                self.channel.basic_cancel(self.tag, nowait=True)
            except AMQPError:
                self.channel._end_consumer(self, None)

    def _give_back(self) -> None:
        """Return to the queue what nobody has taken."""
        if self._callback is not None or self.no_ack:
            return
        while (message := self._take_waiting()) is not None:
            try:
                message.reject(True)
            except StateError:
                pass
        if self._full:
            self._relieve()

    def __len__(self) -> int:
        """How many messages wait here."""
        return len(self._inbox) - (self.closed and self._callback is None)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self)} waiting"
        return f"<consumer {self.tag!r} of queue {self.queue!r}, {state}>"
