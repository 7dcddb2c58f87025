"""A channel: declaring, publishing, consuming, acknowledging, as methods that wait for the broker's answer.

Answers come in the order of the questions (specification, 4.7 and 2.2.5), so a queue of `Reply` objects is all the
matching there is. A thread that is interrupted leaves its Reply in the queue, marked as abandoned; when the answer
comes, its effect is undone where that matters: a message that `basic_get` fetched goes back, a subscription is
cancelled.

The broker numbers deliveries from 1 for each opening of a channel, and what it gets a number for belongs to the channel
that has the number of the channel now. So a delivery is settled only on the opening that it came by: `_record` is the
protocol's record of the present one, and anything else is StaleDelivery, with nothing sent.

With recovery a channel outlives connections, and its own end where the broker closes it: `_revive` opens it again, in a
thread of its own. `delivery_tag` numbers go on after the last of the opening before. Calls wait while it is `_held`.
What the broker refuses to restore (a consumer whose queue is gone) ends with that reason; the rest comes back. If it is
closed again soon, it opens after growing pauses, as `Recovery` has them, unless the close answers a call: then the
program knows, and sets the pace.

Longer than most files: all methods of a channel are here, and recovery repeats what they have set up.

Public methods are named and ordered as in the specification's classes, then come conveniences.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeVar, overload

import coro
from coro._clock import ticks
from coro.amqp import spec
from coro.amqp._confirms import Confirmation, Confirms
from coro.amqp._consumer import consumer
from coro.amqp._link import HIGH, Link, again, call_back
from coro.amqp._method import Method
from coro.amqp._protocol import Message, Properties
from coro.amqp.exceptions import (
    AMQPError,
    AMQPTimeout,
    ChannelClosed,
    ConnectionBlocked,
    ConnectionLost,
    ProtocolError,
    PublishReturned,
    StaleDelivery,
    StateError,
)
from coro.exceptions import LoopError
from coro.log import Facility

if TYPE_CHECKING:
    from coro.amqp._client import Recovery, client
    from coro.amqp._protocol import _Channel

__all__ = ["channel"]

LOG = Facility("amqp")
#: Publishes without an answer in confirm mode, unless told otherwise.
WINDOW = 1000
#: Messages ahead of acknowledgements, for `consume`.
PREFETCH = 100
NO_LIMIT = spec.basic.qos(0, 0, False)

_M = TypeVar("_M", bound=Method)
Arguments = Mapping[str, Any] | None
Payload = bytes | bytearray | memoryview | str


class Reply:
    """A question to the broker, from asking to its answer."""

    __slots__ = ("abandoned", "asked", "error", "event", "expected", "link", "on_reply", "undo", "value")

    def __init__(
        self,
        link: Link,
        asked: Method,
        expected: tuple[type, ...],
        on_reply: Callable[[Any], object] | None,
        undo: Callable[[Any], object] | None,
    ) -> None:
        self.link = link
        self.asked = asked
        self.expected = expected
        self.on_reply = on_reply  # called in the reader, before anything that follows the answer is looked at
        self.undo = undo  # the same, if nobody waits any more
        self.event = coro.event()
        self.value: Any = None
        self.error: AMQPError | None = None
        self.abandoned = False


class Revival:
    """How far a channel is with being opened again after the broker has closed it.

    Apart from the channel, because Python keeps the attributes of an object with more than 30 of them in a dict of its
    own, and then each publish reads them more slowly.
    """

    __slots__ = ("at", "fruitless", "link", "returning")

    def __init__(self) -> None:
        self.link: Link | None = None  # where `_revive` is at work
        self.returning: consumer | None = None  # which is being subscribed again
        self.at: int | None = None  # ticks of the last time
        self.fruitless = 0  # openings in a row that the broker has ended soon


class channel:
    """A channel of a connection; made by ``client.channel()``. Any number of threads may use it at once.

    ``num`` is its number, ``conn`` the client, ``consumers`` maps tags to consumers, ``confirm_mode`` says whether the
    broker confirms what is published. Methods raise StateError when the channel was closed here, ChannelClosed or
    ConnectionClosed when the broker did that, ConnectionLost when the connection broke, AMQPTimeout when the broker
    does not answer within the client's ``timeout``, and EncodeError for names and arguments that do not fit. In a
    ``with`` block the channel is closed at the end.

    If the client has recovery, a channel that the broker has closed opens again, with its limits, confirm mode and
    consumers. The calls and confirmations that it had under way raise ChannelClosed: what they asked for may have
    happened or not. Later calls wait until it is back. ``on_recovery`` tells.
    """

    #: Deliveries of a consumer that nobody knows are acknowledged and dropped.
    ack_discards = True

    def __init__(self, conn: client, num: int) -> None:
        self.conn = conn
        self.num = num
        self.consumers: dict[str, consumer] = {}
        self.error: AMQPError | None = None  # why it ended
        self.closed = False
        self.active = True  # False: the broker has asked for no more messages (channel.flow)
        self._link: Link | None = None  # None while there is no connection
        self._record: _Channel | None = None  # of the present opening
        self._replies: deque[Reply] = deque()
        self._confirms: Confirms | None = None
        self._on_return: list[Callable[[Message], object]] = []
        self._on_cancel: list[Callable[[consumer], object]] = []
        #: Tags of consumers that were cancelled without waiting, and whether they had no_ack: what still comes of them
        #: goes back to its queue, or nowhere.
        self._former: dict[str, bool] = {}
        self._on_recovery: list[Callable[[AMQPError], object]] = []
        self._tag_base = 0  # delivery tags up to this belong to earlier openings
        self._settled_to = 0  # "multiple" has settled all up to this
        self._qos: spec.basic.qos | None = None  # what the program has set for consumers
        self._broker_qos = NO_LIMIT  # what the broker has; differs for a consumer with a limit of its own
        self._shared_qos: spec.basic.qos | None = None  # for all consumers together
        self._in_tx = False
        self._tx_lost: AMQPError | None = None
        self._tx_open = False
        self._opened = self._closing = False
        # for recovery
        self._held = False  # calls wait
        self._back = coro.condition_variable()
        self._why: AMQPError | None = None  # it was lost
        self._revival = Revival()

    # ---- in the reader

    def _message(self, message: Message) -> None:
        found = self.consumers.get(message.consumer_tag)
        if found is not None:
            found.push(message)
            return
        kind = message.kind
        if kind == "return":
            self._take_return(message)
        elif kind == "get_ok":
            self._answer(message)
        elif message.consumer_tag in self._former:
            if not self._former[message.consumer_tag]:
                self._return_unseen(message)
        elif self.ack_discards:
            self._discard(message)

    def _discard(self, message: Message) -> None:
        LOG("delivery for an unknown consumer", message.consumer_tag, message.routing_key)
        with contextlib.suppress(StaleDelivery):
            message.ack()

    def _return_unseen(self, message: Message) -> None:
        """Back to its queue with a message that no consumer has seen. If the channel has been closed, right behind the
        message perhaps, the broker has done that."""
        with contextlib.suppress(StaleDelivery):
            message.reject(True)

    def _say(self, method: Method) -> None:
        """Send a method in the reader; nothing if the broker has closed the channel in the packet being handled."""
        link = self._link
        if link is not None and self._record is not None and self._record.is_open:
            link.protocol.send_method(self.num, method)
            link.flush()

    def _take_return(self, message: Message) -> None:
        found = self._confirms.take_return(message) if self._confirms is not None else None
        for callback in self._on_return:
            call_back(callback, message)
        if found is None and not self._on_return:
            LOG("returned", str(PublishReturned(message)))

    def _method(self, method: Method) -> None:
        if isinstance(method, (spec.basic.ack, spec.basic.nack)):
            nacked = isinstance(method, spec.basic.nack)
            if self._confirms is None or not self._confirms.settle(method.delivery_tag, method.multiple, nacked):
                raise ProtocolError(f"expected confirmations of what was published, got {method!r}", 503)
        elif isinstance(method, spec.basic.cancel):
            self._cancelled(method)
        elif isinstance(method, spec.channel.close):
            self._closed_by_broker(
                ChannelClosed(method.reply_code, method.reply_text, method.class_id, method.method_id)
            )
        elif isinstance(method, spec.channel.flow):
            self.active = method.active
            self._say(spec.channel.flow_ok(method.active))
        else:
            if isinstance(method, spec.channel.close_ok):
                self._overtake()
            self._answer(method)

    def _overtake(self) -> None:
        """The channel is closed: what was asked before and has no answer yet gets none (specification, 1.5.2.5)."""
        while self._replies and spec.channel.close_ok not in self._replies[0].expected:
            reply = self._replies.popleft()
            reply.error = StateError(f"channel {self.num} was closed meanwhile")
            reply.event.set()

    def _answer(self, what: Any) -> None:
        if not self._replies or not isinstance(what, self._replies[0].expected):
            raise ProtocolError(f"expected an answer to what was asked on channel {self.num}, got {what!r}", 503)
        reply = self._replies.popleft()
        reply.value = what
        if reply.abandoned:
            if reply.undo is not None:
                reply.undo(what)
            return
        if reply.on_reply is not None:
            reply.on_reply(what)
        reply.event.set()

    def _cancelled(self, method: spec.basic.cancel) -> None:
        """The broker has ended a subscription: its queue was deleted, or moved (consumer cancel notification)."""
        found = self.consumers.get(method.consumer_tag)
        if not method.nowait:
            self._say(spec.basic.cancel_ok(method.consumer_tag))
        if found is not None:
            error = ChannelClosed(0, "the broker cancelled the consumer; was its queue deleted?", 60, 30)
            self._end_consumer(found, error)
            for callback in self._on_cancel:
                call_back(callback, found)

    def _end_consumer(self, which: consumer, error: AMQPError | None) -> None:
        self.consumers.pop(which.tag, None)
        which._end(error)
        self.conn._topology.consumer_ended(which.queue, any(c.queue == which.queue for c in self.consumers.values()))

    def _fail(self, error: AMQPError) -> None:
        """Whoever waits for an answer gets this error."""
        replies, self._replies = self._replies, deque()
        for reply in replies:
            reply.error = error
            reply.event.set()

    def _end(self, error: AMQPError | None) -> None:
        """The channel is no more. ``error``: None if we closed it."""
        if self.closed:
            return
        self.closed = True
        self.error = error
        self.conn._forget(self)
        reason = error if error is not None else StateError(f"channel {self.num} was closed")
        self._fail(reason)
        if self._confirms is not None:
            self._confirms.fail(reason)
        for each in list(self.consumers.values()):
            self._end_consumer(each, error)
        self._link = self._record = None
        self._held = False
        self._back.wake_all()

    def _closed_by_broker(self, error: ChannelClosed) -> None:
        client, link = self.conn, self._link
        if link is None or self._closing or not self._opened or not client._keeps(self):
            self._end(error)
            return
        asked = self._replies[0].asked.id if self._replies else None
        restoring = client._recovering or self._revival.link is link
        self._lost(error)
        if restoring:
            return  # it is seen there
        LOG("channel lost", self.num, str(error))
        client._notify("channel-lost", channel=self, error=error)
        self._begin_revival(link, asked == (error.class_id, error.method_id))

    def _lost(self, error: AMQPError) -> None:
        """The connection is lost, or the channel on it, and there may be another."""
        if self._record is not None:
            self._tag_base = self._settled_to = self._record.last_tag
        for each in self.consumers.values():
            each._drop()
        self._link = self._record = None
        self._held = True
        self._why = error
        self._former.clear()
        self._fail(error)
        if self._tx_open:
            self._tx_lost = error
        if self._confirms is not None and not (self._confirms.republish and not _blames(error, spec.basic.publish)):
            self._confirms.fail(error)

    # ---- recovery, in the client's thread for that, or in `_revive`'s

    def _begin_revival(self, link: Link, told: bool) -> None:
        """Have it opened again, after the broker has closed it. told: that is the answer to a call."""
        assert self._why is not None
        self._revival.link = link
        try:
            coro.spawn(self._revive, link, told, thread_name=f"amqp recovery of channel {self.num}", daemon=True)
        except LoopError:
            self._end(self._why)  # the loop is ending

    def _revive(self, link: Link, told: bool) -> None:
        """Open the channel again, for as long as the connection is the same and the program wants it."""
        rule = self.conn.recovery
        assert rule is not None
        soon = self._revival.at is not None and ticks.to_duration(ticks.get_now() - self._revival.at) < rule.most
        try:
            while self._is_lost_on(link):
                if not told:
                    self._revival.fruitless = self._revival.fruitless + 1 if soon else 0
                    if not self._rest(link, rule):
                        return
                told, soon = False, True
                with contextlib.suppress(ChannelClosed):
                    self._restore(link)
                    if self._link is link and not self.closed:
                        self._release()
        except AMQPTimeout as exc:
            # A broker that answers heartbeats and no calls is of no use, and the channel's state is unknown.
            link.end(ConnectionLost(f"channel {self.num} could not be opened again: {exc}"), exc)
        except AMQPError as exc:
            LOG("channel not recovered", self.num, str(exc))  # the connection has ended, or the program closes it
        finally:
            if self._revival.link is link:
                self._revival.link = None

    def _rest(self, link: Link, rule: Recovery) -> bool:
        """The pause that openings deserve that did not last. False: there is nothing to do any more."""
        assert self._why is not None
        if rule.attempts is not None and self._revival.fruitless >= rule.attempts:
            self._end(self._why)
        elif self._revival.fruitless:
            pause = min(rule.most, rule.first * 2 ** min(self._revival.fruitless - 1, 30))
            with coro.move_on_after(pause + random.random() * pause / 4):
                while self._is_lost_on(link):
                    self._back.wait()
        return self._is_lost_on(link)

    def _is_lost_on(self, link: Link) -> bool:
        """There is still something to do for `_revive`; a connection that is lost has a thread of its own for that."""
        client = self.conn
        return link.alive and client._link is link and not client._recovering and self._link is None and not self.closed

    def _release(self) -> None:
        """It is as it was."""
        error = self._why
        assert error is not None
        self._held = False
        self._revival.at = ticks.get_now()
        self._back.wake_all()
        if isinstance(error, ChannelClosed):
            LOG("channel recovered", self.num, str(error))
            self.conn._notify("channel-recovered", channel=self, error=error)
        for callback in list(self._on_recovery):
            call_back(callback, error)

    def _restore(self, link: Link) -> None:
        """Bring back what the channel had. A consumer that the broker refuses ends, with the reason, and the channel is
        opened without it. Raises ChannelClosed when the broker closed it for another reason than what is asked here."""
        while not self.closed:
            try:
                if self._link is None:
                    self._reopen(link)
                self._resume(link)
                return
            except ChannelClosed as exc:
                if self._revival.returning is not None and _blames(exc, spec.basic.consume):
                    LOG("could not consume again", self._revival.returning.queue, str(exc))
                    self._end_consumer(self._revival.returning, exc)
                elif _blames(exc, spec.channel.open, spec.confirm.select, spec.tx.select, spec.basic.qos):
                    self._end(exc)
                elif not _blames(exc, spec.basic.publish):  # `_lost` has given these up
                    raise

    def _reopen(self, link: Link) -> None:
        """Open it on another connection, or again on the same, as it was before."""
        self._attach(link)
        self._open(link)
        self._broker_qos = NO_LIMIT
        self.active = True
        if self._confirms is not None:
            self._confirms.restart()
            self._ask(spec.confirm.select(), (spec.confirm.select_ok,), link=link)
        if self._in_tx:
            self._ask(spec.tx.select(), (spec.tx.select_ok,), link=link)

    def _resume(self, link: Link) -> None:
        """The second half: what needs queues to be there."""
        while self._confirms is not None and self._confirms.again:
            self._publish_again(link, self._confirms)
        if self._shared_qos is not None:
            self._ask(self._shared_qos, (spec.basic.qos_ok,), link=link)
        for each in list(self.consumers.values()):
            if not each.closed:
                self._subscribe_again(link, each)

    def _attach(self, link: Link) -> None:
        self._link = link
        self._revival.returning = None
        link.channels[self.num] = self

    def _open(self, link: Link, out_of_band: str = "", undo: Callable[[Any], object] | None = None) -> None:
        def opened(_: object) -> None:
            self._opened = True
            # unless it has been closed in the packet that opens it
            if link.protocol.channel_state(self.num) == "open":
                self._record = link.protocol.own(self.num, self, self._tag_base, not self._in_tx)

        self._ask(spec.channel.open(out_of_band), (spec.channel.open_ok,), on_reply=opened, undo=undo, link=link)

    def _publish_again(self, link: Link, confirms: Confirms) -> None:
        link.wait_room(self.conn.timeout)
        if self._link is not link:
            raise again(self._why or ConnectionLost("the connection was lost again"))
        if not confirms.again:
            return  # they have failed meanwhile
        exchange, routing_key, body, properties, mandatory = confirms.readd()
        link.protocol.publish(self.num, exchange, routing_key, body, properties, mandatory)
        link.flush()

    def _subscribe_again(self, link: Link, which: consumer) -> None:
        request = which._request
        assert request is not None
        which.queue = self.conn._topology.renamed(which.queue)
        again_ = spec.basic.consume(
            0, which.queue, which.tag, request.no_local, request.no_ack, request.exclusive, False, request.arguments
        )
        if self._link is not link:
            raise again(self._why or ConnectionLost("the connection was lost again"))
        self._limit_next(link, which)
        self._revival.returning = which
        self._ask(again_, (spec.basic.consume_ok,), link=link)

    # ---- asking

    def _usable(self) -> Link:
        """The connection to send on. Waits for another one where the client recovers and its calls wait."""
        link = self._link
        if link is not None and link.alive and not self._held:
            return link
        return self._usable_later()

    def _usable_later(self) -> Link:
        self._check_open()
        why = self._why or ConnectionLost("the connection is lost")
        rule, timeout = self.conn.recovery, self.conn.timeout
        if rule is not None and rule.calls == "fail":
            if isinstance(why, ChannelClosed):
                raise again(why)
            raise ConnectionLost("the connection is lost and being recovered")
        with coro.move_on_after(timeout):
            while self._held and not self.closed:
                self._back.wait()
        self._check_open()
        link = self._link
        if self._held or link is None:
            raise AMQPTimeout(
                f"expected channel {self.num} to be recovered within {timeout:g} s, it is not yet; it was lost: {why}"
            )
        return link

    def _check_open(self) -> None:
        if self.closed:
            if self.error is not None:
                raise again(self.error)
            raise StateError(f"expected channel {self.num} to be open, it was closed; open another one")

    def _ask(
        self,
        method: Method,
        expected: tuple[type, ...],
        *,
        on_reply: Callable[[Any], object] | None = None,
        undo: Callable[[Any], object] | None = None,
        link: Link | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Send a method and wait for its answer."""
        if link is None:
            link = self._usable()
        return self._await(self._send(link, method, expected, on_reply, undo), timeout)

    def _send(
        self,
        link: Link,
        method: Method,
        expected: tuple[type, ...],
        on_reply: Callable[[Any], object] | None = None,
        undo: Callable[[Any], object] | None = None,
    ) -> Reply:
        """Send a method that is answered. Never waits, so what is sent in a row arrives in a row."""
        if not link.alive:
            # during recovery: another connection, or this channel's own, may have ended a moment ago
            link.raise_error()
        reply = Reply(link, method, expected, on_reply, undo)
        link.protocol.send_method(self.num, method)
        self._replies.append(reply)
        if link.protocol.idle:
            link.wake()
        return reply

    def _await(self, reply: Reply, timeout: float | None = None) -> Any:
        link = reply.link
        if timeout is None:
            timeout = self.conn.timeout
        link.begin_wait()
        try:
            with coro.move_on_after(timeout):
                reply.event.wait()
        finally:
            link.waiting -= 1
            # An answer that came in the same moment as an interruption has had its effect, which nobody will know of.
            if not reply.event.is_set():
                reply.abandoned = True
        if reply.error is not None:
            raise again(reply.error)
        if reply.abandoned:
            self._raise_timeout(f"an answer to {reply.asked._name}", timeout)
        return reply.value

    def _raise_timeout(self, what: str, timeout: float) -> NoReturn:
        link = self._link
        if link is not None and link.blocked is not None:
            raise ConnectionBlocked(
                f"expected {what} within {timeout:g} s; the broker has blocked this connection: {link.blocked}"
            )
        raise AMQPTimeout(f"expected {what} within {timeout:g} s, none came")

    def _tell(self, method: Method) -> None:
        """Send a method that has no answer."""
        link = self._usable()
        link.protocol.send_method(self.num, method)
        if link.protocol.idle:
            link.wake()

    def _ask_or_tell(self, nowait: bool, method: Method, expected: type[_M], undo: Any = None) -> _M | None:
        if nowait:
            self._tell(method)
            return None
        answer: _M = self._ask(method, (expected,), undo=undo)
        return answer

    # ---- class exchange

    def exchange_declare(
        self,
        exchange: str | None = None,
        type: str = "direct",
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        nowait: bool = False,
        arguments: Arguments = None,
    ) -> spec.exchange.declare_ok | None:
        """Create an exchange, or check that it is there as described.

        exchange: its name. type: "direct", "fanout", "topic", "headers", or one of a plug-in. passive: only check.
        durable: it survives the broker's restart. auto_delete: it goes when its last binding goes. internal: only other
        exchanges publish to it. nowait: do not wait for the answer, and return None. arguments: of the broker, such as
        {"alternate-exchange": name}.
        """
        method = spec.exchange.declare(
            0, _name(exchange), type, passive, durable, auto_delete, internal, nowait, dict(arguments or {})
        )
        answer = self._ask_or_tell(nowait, method, spec.exchange.declare_ok)
        if not passive:
            self.conn._topology.exchange_declared(method)
        return answer

    def exchange_delete(
        self, exchange: str, if_unused: bool = False, nowait: bool = False
    ) -> spec.exchange.delete_ok | None:
        """Delete an exchange; ``if_unused``: only if nothing is bound to it."""
        method = spec.exchange.delete(0, exchange, if_unused, nowait)
        answer = self._ask_or_tell(nowait, method, spec.exchange.delete_ok)
        self.conn._topology.exchange_deleted(exchange)
        return answer

    def exchange_bind(
        self, destination: str, source: str, routing_key: str = "", nowait: bool = False, arguments: Arguments = None
    ) -> spec.exchange.bind_ok | None:
        """Have an exchange pass messages on to another (https://www.rabbitmq.com/docs/e2e)."""
        method = spec.exchange.bind(0, destination, source, routing_key, nowait, dict(arguments or {}))
        answer = self._ask_or_tell(nowait, method, spec.exchange.bind_ok)
        self.conn._topology.bound(method)
        return answer

    def exchange_unbind(
        self, destination: str, source: str, routing_key: str = "", nowait: bool = False, arguments: Arguments = None
    ) -> spec.exchange.unbind_ok | None:
        """Undo ``exchange_bind`` with the same arguments."""
        method = spec.exchange.unbind(0, destination, source, routing_key, nowait, dict(arguments or {}))
        answer = self._ask_or_tell(nowait, method, spec.exchange.unbind_ok)
        self.conn._topology.exchange_unbound(method)
        return answer

    # ---- class queue

    @overload
    def queue_declare(
        self,
        queue: str = "",
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        nowait: Literal[False] = False,
        arguments: Arguments = None,
    ) -> spec.queue.declare_ok: ...

    @overload
    def queue_declare(
        self,
        queue: str = "",
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        nowait: bool = False,
        arguments: Arguments = None,
    ) -> spec.queue.declare_ok | None: ...

    def queue_declare(
        self,
        queue: str = "",
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        nowait: bool = False,
        arguments: Arguments = None,
    ) -> spec.queue.declare_ok | None:
        """Create a queue, or check that it is there as described.

        queue: its name; "" lets the broker choose one. passive: only check. durable: it survives the broker's restart.
        exclusive: only this connection uses it, and it ends with it. auto_delete: it goes when its last consumer goes.
        nowait: do not wait for the answer, and return None. arguments: of the broker, such as {"x-queue-type":
        "quorum"}. The answer has ``queue``, ``message_count`` and ``consumer_count``.
        """
        if nowait and not queue:
            raise StateError("expected a name where nobody waits for the answer, which tells the one that was chosen")
        method = spec.queue.declare(0, queue, passive, durable, exclusive, auto_delete, nowait, dict(arguments or {}))
        answer = self._ask_or_tell(nowait, method, spec.queue.declare_ok)
        if not passive:
            self.conn._topology.queue_declared(method, answer.queue if answer is not None else queue)
        return answer

    def queue_bind(
        self,
        queue: str = "",
        exchange: str | None = None,
        routing_key: str = "",
        nowait: bool = False,
        arguments: Arguments = None,
    ) -> spec.queue.bind_ok | None:
        """Have an exchange put messages with this routing key into a queue. ``queue``: "" is the last one declared on
        this channel."""
        method = spec.queue.bind(0, queue, _name(exchange), routing_key, nowait, dict(arguments or {}))
        answer = self._ask_or_tell(nowait, method, spec.queue.bind_ok)
        self.conn._topology.bound(method)
        return answer

    def queue_unbind(
        self, queue: str = "", exchange: str | None = None, routing_key: str = "", arguments: Arguments = None
    ) -> spec.queue.unbind_ok:
        """Undo ``queue_bind`` with the same arguments."""
        method = spec.queue.unbind(0, queue, _name(exchange), routing_key, dict(arguments or {}))
        answer: spec.queue.unbind_ok = self._ask(method, (spec.queue.unbind_ok,))
        self.conn._topology.queue_unbound(method)
        return answer

    @overload
    def queue_purge(
        self,
        queue: str = "",
        nowait: Literal[False] = False,
    ) -> spec.queue.purge_ok: ...

    @overload
    def queue_purge(
        self,
        queue: str = "",
        nowait: bool = False,
    ) -> spec.queue.purge_ok | None: ...

    def queue_purge(self, queue: str = "", nowait: bool = False) -> spec.queue.purge_ok | None:
        """Remove the messages that wait in a queue. The answer has ``message_count``."""
        return self._ask_or_tell(nowait, spec.queue.purge(0, queue, nowait), spec.queue.purge_ok)

    @overload
    def queue_delete(
        self,
        queue: str = "",
        if_unused: bool = False,
        if_empty: bool = False,
        nowait: Literal[False] = False,
    ) -> spec.queue.delete_ok: ...

    @overload
    def queue_delete(
        self,
        queue: str = "",
        if_unused: bool = False,
        if_empty: bool = False,
        nowait: bool = False,
    ) -> spec.queue.delete_ok | None: ...

    def queue_delete(
        self, queue: str = "", if_unused: bool = False, if_empty: bool = False, nowait: bool = False
    ) -> spec.queue.delete_ok | None:
        """Delete a queue; ``if_unused``: only without consumers, ``if_empty``: only without messages. The answer has
        ``message_count``."""
        method = spec.queue.delete(0, queue, if_unused, if_empty, nowait)
        answer = self._ask_or_tell(nowait, method, spec.queue.delete_ok)
        self.conn._topology.queue_deleted(queue)
        return answer

    # ---- class basic: consuming

    def basic_qos(self, prefetch_count: int = 0, prefetch_size: int = 0, _global: bool = False) -> spec.basic.qos_ok:
        """Limit how many messages the broker delivers ahead of acknowledgements; 0 is no limit.

        It holds for each consumer made on this channel from now on; with ``_global`` for all of the channel together
        (https://www.rabbitmq.com/docs/consumer-prefetch). RabbitMQ has no limit by ``prefetch_size``.
        """
        method = spec.basic.qos(prefetch_size, prefetch_count, _global)

        def note(_: object) -> None:
            if _global:
                self._shared_qos = method
            else:
                self._qos = method

        link = self._usable()
        reply = self._send(link, method, (spec.basic.qos_ok,), note, note)
        if not _global:
            self._broker_qos = method
        answer: spec.basic.qos_ok = self._await(reply)
        return answer

    qos = basic_qos

    def basic_consume(
        self,
        queue: str = "",
        consumer_tag: str = "",
        no_local: bool = False,
        no_ack: bool = False,
        exclusive: bool = False,
        arguments: Arguments = None,
        *,
        max_inbox: int = 1000,
        callback: Callable[[Message | None], object] | None = None,
    ) -> consumer:
        """Subscribe to a queue; returns a ``consumer``.

        queue: its name; "" is the last one declared on this channel. consumer_tag: a name for the subscription, "" lets
        the broker choose. no_local: not what this connection publishes (RabbitMQ ignores it). no_ack: the broker takes
        messages as dealt with when it has sent them. exclusive: nobody else may consume. arguments: of the broker, such
        as {"x-priority": 5}. max_inbox: messages that may wait here before the connection stops reading; with
        ``basic_qos`` the broker stops before that. callback: called with each message, in the thread that reads the
        connection, so it must not wait; and with None at the end. There is no inbox then.
        """
        found = consumer(self, consumer_tag, queue, no_ack, max_inbox, callback)
        found._request = spec.basic.consume(
            0, queue, consumer_tag, no_local, no_ack, exclusive, False, dict(arguments or {})
        )
        found._qos = self._qos or NO_LIMIT
        return self._subscribe(found)

    def _limit_next(self, link: Link, which: consumer) -> None:
        """The broker takes its limit for a consumer from the last basic.qos before it."""
        if which._qos != self._broker_qos and not which.no_ack:
            self._send(link, which._qos, (spec.basic.qos_ok,))
            self._broker_qos = which._qos

    def _subscribe(self, found: consumer) -> consumer:
        method, no_ack = found._request, found.no_ack
        assert method is not None

        def begin(answer: spec.basic.consume_ok) -> None:
            # Deliveries follow the answer at once, perhaps in the same packet.
            found.tag = answer.consumer_tag
            self.consumers[found.tag] = found
            self._former.pop(found.tag, None)

        def undo(answer: spec.basic.consume_ok) -> None:
            self._former[answer.consumer_tag] = no_ack
            self._say(spec.basic.cancel(answer.consumer_tag, True))

        link = self._usable()
        self._limit_next(link, found)
        try:
            self._ask(method, (spec.basic.consume_ok,), on_reply=begin, undo=undo, link=link)
        except BaseException:
            if self.consumers.get(found.tag) is found:  # the answer came in the same moment as an interruption
                found.close()
            raise
        return found

    def consume(
        self,
        queue: str = "",
        *,
        prefetch: int | None = None,
        consumer_tag: str = "",
        no_ack: bool = False,
        exclusive: bool = False,
        arguments: Arguments = None,
        max_inbox: int | None = None,
    ) -> consumer:
        """Subscribe to a queue, with a limit to the messages that the broker delivers ahead of acknowledgements.

        prefetch: this limit, for this consumer alone; 0 is none. None takes what ``basic_qos`` has set on this channel,
        or else 100. The other parameters are those of ``basic_consume``; ``max_inbox`` is twice the prefetch limit
        unless given.
        """
        if prefetch is None:
            qos = self._qos or spec.basic.qos(0, PREFETCH, False)
            prefetch = qos.prefetch_count
        else:
            if prefetch < 0:
                raise ValueError(f"expected prefetch to be 0 (no limit) or more messages, got {prefetch}")
            qos = spec.basic.qos(0, prefetch, False)
        if max_inbox is None:
            max_inbox = max(2 * prefetch, 10) if prefetch else 1000
        found = consumer(self, consumer_tag, queue, no_ack, max_inbox)
        found._request = spec.basic.consume(
            0, queue, consumer_tag, False, no_ack, exclusive, False, dict(arguments or {})
        )
        found._qos = qos
        return self._subscribe(found)

    def basic_cancel(self, consumer_tag: str = "", nowait: bool = False) -> None:
        """End a subscription. What has been delivered and is not acknowledged stays with this channel."""
        found = self.consumers.get(consumer_tag)
        if found is not None and self._link is None and not self.closed:
            self._end_consumer(found, None)  # between two connections: it is not subscribed again
            return

        def end(_: object) -> None:
            if found is not None and not found.closed:
                found._give_back()
                self._end_consumer(found, None)

        method = spec.basic.cancel(consumer_tag, nowait)
        if nowait:
            self._tell(method)
            if found is not None:
                self._former[found.tag] = found.no_ack
            end(None)
        else:
            self._ask(method, (spec.basic.cancel_ok,), on_reply=end, undo=end)

    def basic_get(self, queue: str = "", no_ack: bool = False) -> Message | None:
        """Fetch one message, or None from an empty queue. It has to be acknowledged, unless ``no_ack``. To consume is
        far cheaper for the broker than to ask again and again."""

        def give_back(what: Message | spec.basic.get_empty) -> None:
            if isinstance(what, Message) and not no_ack:
                self._return_unseen(what)

        method = spec.basic.get(0, queue, no_ack)
        answer = self._ask(method, (Message, spec.basic.get_empty), undo=give_back)
        if not isinstance(answer, Message):
            return None
        answer._settled = no_ack
        return answer

    # ---- class basic: acknowledging

    def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """Tell the broker that a message is dealt with; ``multiple``: and all before it on this channel, 0 being all.

        Raises StaleDelivery, and sends nothing, for a message that came before the channel was closed or opened again.
        ``message.ack()`` also knows of a second time.
        """
        link = self._settling(delivery_tag, multiple)
        link.protocol.ack(self.num, delivery_tag - self._tag_base if delivery_tag else 0, multiple)
        if link.protocol.idle:
            link.wake()

    get_ack = basic_ack

    def basic_nack(self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True) -> None:
        """Give a message back to its queue or, without ``requeue``, drop or dead-letter it. Raises as ``basic_ack``."""
        link = self._settling(delivery_tag, multiple)
        link.protocol.nack(self.num, delivery_tag - self._tag_base if delivery_tag else 0, multiple, requeue)
        if link.protocol.idle:
            link.wake()

    def basic_reject(self, delivery_tag: int, requeue: bool = True) -> None:
        """``basic_nack`` for one message, by the method that AMQP had first."""
        link = self._settling(delivery_tag, False)
        link.protocol.reject(self.num, delivery_tag - self._tag_base, requeue)
        if link.protocol.idle:
            link.wake()

    def _settling(self, delivery_tag: int, multiple: bool) -> Link:
        """The connection to send an acknowledgement on, which must be the one that the message came by."""
        link, record = self._link, self._record
        if link is None or not link.alive or record is None or not record.is_open:
            raise StaleDelivery(
                f"message {delivery_tag} came by a channel that has ended; the broker delivers it again"
            )
        if delivery_tag <= self._tag_base and delivery_tag:
            raise StaleDelivery(
                f"message {delivery_tag} came before the channel was opened again; the broker delivers it again"
            )
        if multiple:
            self._settled_to = max(self._settled_to, delivery_tag or record.last_tag)
            link.protocol.be_direct(self.num, False)
        if self._in_tx:
            self._tx_open = True
        return link

    def _settle(self, message: Message, how: str, multiple: bool, requeue: bool) -> None:
        """For ``Message``."""
        tag = message.delivery_tag
        if message._settled or tag <= self._settled_to and tag > self._tag_base:
            raise StateError(f"message {tag} needs no acknowledgement: it had one, or its consumer has no_ack")
        if not tag:
            raise StateError("expected a message that was delivered or fetched, got one that came back")
        if how == "ack":
            self.basic_ack(tag, multiple)
        elif how == "nack":
            self.basic_nack(tag, multiple, requeue)
        else:
            self.basic_reject(tag, requeue)
        message._settled = True

    def basic_recover(self, requeue: bool = True) -> spec.basic.recover_ok:
        """Have the broker deliver again what is not acknowledged. RabbitMQ only knows ``requeue``."""
        answer: spec.basic.recover_ok = self._ask(spec.basic.recover(requeue), (spec.basic.recover_ok,))
        return answer

    # ---- class basic: publishing

    def basic_publish(
        self,
        payload: Payload,
        exchange: str = "",
        routing_key: str = "",
        mandatory: bool = False,
        immediate: bool = False,
        properties: Mapping[str, Any] | Properties | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Publish a message.

        payload: bytes, or a str, which goes as UTF-8. exchange: "" is the default one, which takes the routing key for
        the name of a queue. mandatory: send it back if it reaches no queue. immediate: not supported by RabbitMQ.
        properties: a mapping by the names of AMQP or with underscores, or a ``wire.Properties``. timeout: seconds for
        each wait, None for the client's.

        In confirm mode it returns when the broker has taken the message, and raises PublishNacked or PublishReturned.
        Otherwise it returns when the message is ready to be sent, and waits only while much else is. Raises
        ConnectionBlocked when the time is over and the broker takes no messages.
        """
        if self._confirms is not None:
            self.publish(
                payload,
                exchange,
                routing_key,
                properties=properties,
                mandatory=mandatory,
                immediate=immediate,
                timeout=timeout,
            ).wait(timeout)
            return
        link = self._link
        if link is None or not link.alive or self._held:
            link = self._usable_later()
        if link.blocked is not None or link.protocol.pending > HIGH:
            link = self._wait_room(link, timeout)
        if self._in_tx:
            self._tx_open = True
        link.protocol.publish(self.num, exchange, routing_key, payload, properties, mandatory, immediate)
        if link.protocol.idle:
            link.wake()

    def _wait_room(self, link: Link, timeout: float | None) -> Link:
        link.wait_room(self.conn.timeout if timeout is None else timeout)
        return self._usable()

    def publish(
        self,
        payload: Payload,
        exchange: str = "",
        routing_key: str = "",
        *,
        properties: Mapping[str, Any] | Properties | None = None,
        mandatory: bool = False,
        immediate: bool = False,
        timeout: float | None = None,
    ) -> Confirmation:
        """Publish a message in confirm mode without waiting for the broker's answer: returns a ``Confirmation``.

        It waits only while ``window`` messages (see ``confirm_select``) have no answer yet, or the broker does not
        read. Raises StateError without confirm mode. Parameters and other errors as of ``basic_publish``.
        """
        confirms = self._confirms
        if confirms is None:
            raise StateError("expected confirm mode: call confirm_select() first, or use basic_publish")
        link = self._usable()
        if timeout is None:
            timeout = self.conn.timeout
        if len(confirms.open) >= confirms.window:
            confirms.wait_window(timeout)
            link = self._usable()
        if link.blocked is not None or link.protocol.pending > HIGH:
            link = self._wait_room(link, timeout)
        found = confirms.add(exchange, routing_key, payload, properties, mandatory)
        try:
            link.protocol.publish(self.num, exchange, routing_key, payload, properties, mandatory, immediate)
        except BaseException:
            confirms.undo(found)
            raise
        if link.protocol.idle:
            link.wake()
        return found

    def wait_for_confirms(self, timeout: float | None = None) -> None:
        """Wait until the broker has answered for everything that was published on this channel.

        timeout: seconds, None for the client's. Raises the first failure since the last call (PublishNacked,
        PublishReturned, or why the channel ended), with a note of how many more there were; AMQPTimeout or
        ConnectionBlocked when the time is over.
        """
        if self._confirms is None:
            raise StateError("expected confirm mode: call confirm_select() first")
        self._confirms.wait_all(self.conn.timeout if timeout is None else timeout)

    @property
    def confirm_mode(self) -> bool:
        """The broker answers for each message."""
        return self._confirms is not None

    @property
    def unconfirmed(self) -> int:
        """How many messages the broker has not answered for."""
        return len(self._confirms) if self._confirms is not None else 0

    def confirm_select(
        self, nowait: bool = False, window: int = WINDOW, republish: bool = False
    ) -> spec.confirm.select_ok | None:
        """Have the broker confirm each message that is published on this channel, for as long as it exists.

        window: how many may be without an answer before ``publish`` waits. republish: with recovery, what had no answer
        when the connection broke is published again on the next; it may arrive twice then. Without it, the
        confirmations of these fail with ConnectionLost. Raises ProtocolError when the broker lacks
        ``publisher_confirms``.
        """
        if window < 1:
            raise ValueError(f"expected a window of at least 1 message, got {window}")
        if self._in_tx:
            raise StateError("expected a channel without transactions; open another one for confirms")
        if not self.conn.server_capabilities.get("publisher_confirms"):
            raise ProtocolError("expected a broker that offers publisher_confirms, this one does not", 540)

        def begin(_: object) -> None:
            if self._confirms is None:
                self._confirms = Confirms(self, window, republish)

        if nowait:
            self._tell(spec.confirm.select(True))
            begin(None)
            return None
        answer: spec.confirm.select_ok = self._ask(
            spec.confirm.select(False), (spec.confirm.select_ok,), on_reply=begin, undo=begin
        )
        return answer

    def on_return(self, callback: Callable[[Message], object]) -> None:
        """Have ``callback(message)`` called for each message that comes back. It runs in the thread that reads the
        connection, so it must not wait. In confirm mode the publish that it belongs to raises PublishReturned, too."""
        self._on_return.append(callback)

    def remove_on_return(self, callback: Callable[[Message], object]) -> None:
        """Undo ``on_return``. Nothing happens if it was not set."""
        if callback in self._on_return:
            self._on_return.remove(callback)

    def on_cancel(self, callback: Callable[[consumer], object]) -> None:
        """Have ``callback(consumer)`` called when the broker ends a subscription, in the thread that reads."""
        self._on_cancel.append(callback)

    def on_recovery(self, callback: Callable[[AMQPError], object]) -> None:
        """Have ``callback(error)`` called when this channel has been opened again, and all is restored: its limits,
        confirm mode and consumers. The error is why it was lost: ChannelClosed, or what ended the connection. The
        callback must not wait."""
        self._on_recovery.append(callback)

    # ---- class tx

    def tx_select(self) -> spec.tx.select_ok:
        """Put what is published and acknowledged on this channel from now on into transactions."""
        if self._confirms is not None:
            raise StateError("expected a channel without confirm mode; open another one for transactions")

        def begin(_: object) -> None:
            self._in_tx = True
            if self._link is not None:
                self._link.protocol.be_direct(self.num, False)

        answer: spec.tx.select_ok = self._ask(spec.tx.select(), (spec.tx.select_ok,), on_reply=begin, undo=begin)
        return answer

    def tx_commit(self) -> spec.tx.commit_ok:
        """Make it happen. Raises ConnectionLost or ChannelClosed when a part of it was lost with a connection or an
        opening of the channel before; begin it again then."""
        self._check_tx()
        answer: spec.tx.commit_ok = self._ask(spec.tx.commit(), (spec.tx.commit_ok,))
        self._tx_open = False
        return answer

    def tx_rollback(self) -> spec.tx.rollback_ok:
        """Make it not happen. Messages that were acknowledged in it are not delivered again by that; see
        ``basic_recover``."""
        self._tx_lost = None
        answer: spec.tx.rollback_ok = self._ask(spec.tx.rollback(), (spec.tx.rollback_ok,))
        self._tx_open = False
        return answer

    def _check_tx(self) -> None:
        self._usable()
        lost, self._tx_lost = self._tx_lost, None
        if lost is not None:
            self._tx_open = False
            if isinstance(lost, ChannelClosed):
                raise again(lost)
            raise ConnectionLost("the connection was lost within this transaction; nothing of it has happened")

    # ---- class channel

    def flow(self, active: bool) -> bool:
        """Ask the broker to stop or go on sending (RabbitMQ knows only to go on; use ``basic_qos``). Returns what it
        says."""
        answer: spec.channel.flow_ok = self._ask(spec.channel.flow(active), (spec.channel.flow_ok,))
        return answer.active

    def close(
        self,
        reply_code: int = 0,
        reply_text: str = "normal shutdown",
        class_id: int = 0,
        method_id: int = 0,
    ) -> spec.channel.close_ok | None:
        """Close the channel; its consumers end. Messages without acknowledgement go back to their queues.

        Returns the broker's answer; None when the channel had ended already, or the connection breaks meanwhile, or
        the broker does not answer within the client's ``close_timeout`` seconds.
        """
        if self.closed:
            return None
        link = self._link
        self._closing = True
        answer: spec.channel.close_ok | None = None
        if link is not None and link.alive:
            method = spec.channel.close(reply_code, reply_text, class_id, method_id)
            try:
                answer = self._ask(
                    method, (spec.channel.close_ok,), link=link, timeout=min(self.conn.timeout, self.conn.close_timeout)
                )
            except (ConnectionLost, ChannelClosed, AMQPTimeout):
                pass
            except AMQPError as exc:
                if not self.closed:
                    LOG("channel.close", str(exc))
            finally:
                self._end(None)
        else:
            self._end(None)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "waiting to be opened again" if self._held else "open"
        return f"<channel {self.num} of {self.conn.name}, {state}>"


def _blames(error: AMQPError, *methods: type[Method]) -> bool:
    """The broker has closed the channel on account of one of these."""
    return isinstance(error, ChannelClosed) and (error.class_id, error.method_id) in [each.id for each in methods]


def _name(exchange: str | None) -> str:
    if exchange is None:
        raise StateError("expected the name of an exchange")
    return exchange
