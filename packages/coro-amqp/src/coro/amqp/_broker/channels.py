"""One channel of a client of the test broker: what each method does.

The methods have the names that `spec` gives them: `on_queue_declare` answers queue.declare. What the broker refuses is
raised as `Refusal`, and sent by the session.
"""

from __future__ import annotations

import itertools
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from coro.amqp import spec
from coro.amqp._broker.queues import Queue, Stored, Unacked
from coro.amqp._broker.world import REPLY_TO, Refusal, World, milliseconds

if TYPE_CHECKING:
    from coro.amqp._broker.sessions import Session

__all__ = ["Channel", "Consumer"]


class Consumer:
    """Somebody who gets the messages of a queue."""

    def __init__(
        self, channel: Channel, queue: Queue, tag: str, no_ack: bool, prefetch: int, priority: int = 0
    ) -> None:
        self.channel = channel
        self.queue = queue
        self.tag = tag
        self.no_ack = no_ack
        self.prefetch = prefetch
        self.priority = priority
        self.unacked = 0

    def __repr__(self) -> str:
        return f"<consumer {self.tag!r} of {self.queue.name!r}, {self.unacked} unacknowledged>"

    def has_room(self) -> bool:
        return self.channel.has_room() and (self.no_ack or not self.prefetch or self.unacked < self.prefetch)

    def take(self, queue: Queue, message: Stored) -> None:
        channel = self.channel
        channel.last_tag += 1
        if not self.no_ack:
            self.unacked += 1
            queue.unacked += 1
            channel.unacked[channel.last_tag] = Unacked(queue, message, self)
        channel.send_message(self.tag, message, queue)

    def cancelled_by_broker(self) -> None:
        """The queue is gone."""
        self.channel.consumers.pop(self.tag, None)
        if self.channel.is_open() and self.channel.session.can("consumer_cancel_notify"):
            self.channel.send(spec.basic.cancel(self.tag, nowait=True))


class Channel:
    """A channel: its consumers, what is not acknowledged, its mode."""

    def __init__(self, session: Session, number: int) -> None:
        self.session = session
        self.number = number
        self.world: World = session.world
        self.consumers: dict[str, Consumer] = {}
        self.unacked: OrderedDict[int, Unacked] = OrderedDict()
        self.last_tag = 0
        self.mode: str | None = None
        self.publish_tag = 0
        #: Publish tags that are to be confirmed, with whether the broker has the message.
        self.confirms: list[tuple[int, bool]] = []
        #: What a transaction has collected, as calls.
        self.transaction: list[Any] = []
        #: Deliveries that it acknowledges or rejects.
        self.settling: set[int] = set()
        self.prefetch = 0
        self.shared_prefetch = 0
        self.last_queue = ""
        self.reply_token = ""
        self.reply_tag = ""

    def __repr__(self) -> str:
        return f"<channel {self.number}: {len(self.consumers)} consumers, {len(self.unacked)} unacknowledged>"

    # -- sending

    def is_open(self) -> bool:
        return self.session.protocol.channel_state(self.number) == "open"

    def send(self, method: Any) -> None:
        """Send a method, unless the client has closed the channel meanwhile."""
        if self.is_open():
            self.session.protocol.send_method(self.number, method)
            self.session.wake_writer()

    def reply(self, method: Any, answer: Any) -> None:
        if not getattr(method, "nowait", False):
            self.send(answer)

    def has_room(self) -> bool:
        """May a message be delivered now?"""
        return (
            self.session.writable()
            and self.is_open()
            and (not self.shared_prefetch or len(self.unacked) < self.shared_prefetch)
        )

    def send_message(self, tag: str, message: Stored, queue: Queue | None) -> None:
        self.session.protocol.deliver(
            self.number,
            tag,
            self.last_tag,
            message.redelivered,
            message.exchange,
            message.routing_key,
            _properties(message, queue),
            message.body,
        )
        self.session.broker.counts["delivered"] += 1
        self.session.wake_writer()

    # -- the end

    def leave(self) -> None:
        """The channel is gone: what it had goes back."""
        self.transaction.clear()
        self.settling.clear()
        consumers, self.consumers = self.consumers, {}
        queues = dict.fromkeys(consumer.queue for consumer in consumers.values())
        for consumer in consumers.values():
            consumer.queue.remove(consumer)
        if self.reply_token:
            self.world.repliers.pop(self.reply_token, None)
        self._give_back(list(self.unacked))
        for queue in queues:
            self.world.consumer_left(queue)

    def _give_back(self, tags: list[int]) -> None:
        """Messages return to their queues, and are delivered again. The last one first, so that each finds its place
        at the head."""
        queues: dict[Queue, None] = {}
        for tag in reversed(tags):
            entry = self._settled(tag)
            if not entry.queue.deleted:
                entry.queue.put_back(entry.message)
                queues[entry.queue] = None
        for queue in queues:
            queue.pump()

    def _settled(self, tag: int) -> Unacked:
        entry = self.unacked.pop(tag)
        entry.queue.unacked -= 1
        if isinstance(entry.consumer, Consumer):
            entry.consumer.unacked -= 1
        return entry

    def pump(self) -> None:
        """There may be room again."""
        for queue in dict.fromkeys(consumer.queue for consumer in self.consumers.values()):
            queue.pump()

    # -- exchanges

    def on_exchange_declare(self, method: Any) -> None:
        self.world.declare_exchange(method)
        self.reply(method, spec.exchange.declare_ok())

    def on_exchange_delete(self, method: Any) -> None:
        self.world.delete_exchange(method.exchange, method.if_unused)
        self.reply(method, spec.exchange.delete_ok())

    def on_exchange_bind(self, method: Any) -> None:
        target = self.world.exchange(method.destination)
        self.world.bind(method.source, target, method.routing_key, method.arguments)
        self.reply(method, spec.exchange.bind_ok())

    def on_exchange_unbind(self, method: Any) -> None:
        target = self.world.exchange(method.destination)
        self.world.unbind(method.source, target, method.routing_key, method.arguments)
        self.reply(method, spec.exchange.unbind_ok())

    # -- queues

    def _name(self, name: str) -> str:
        """No name means the queue that this channel has declared last."""
        if name:
            return name
        if not self.last_queue:
            raise Refusal(spec.NOT_FOUND, "no previously declared queue")
        return self.last_queue

    def _queue(self, name: str) -> Queue:
        return self.world.queue(self._name(name), self.session)

    def on_queue_declare(self, method: Any) -> None:
        if method.passive and method.queue.startswith(REPLY_TO):
            token = method.queue
            if token not in self.world.repliers and token != REPLY_TO:
                raise Refusal(spec.NOT_FOUND, f"no queue '{token}' in vhost '{self.world.name}'")
            self.reply(method, spec.queue.declare_ok(token, 0, 1))
            return
        queue = self.world.declare_queue(method, self.session)
        self.last_queue = queue.name
        self.reply(method, spec.queue.declare_ok(queue.name, len(queue), len(queue.takers)))

    def on_queue_bind(self, method: Any) -> None:
        queue = self._queue(method.queue)
        key = method.routing_key
        if not method.queue and not key:
            key = queue.name
        self.world.bind(method.exchange, queue, key, method.arguments)
        self.reply(method, spec.queue.bind_ok())

    def on_queue_unbind(self, method: Any) -> None:
        queue = self._queue(method.queue)
        self.world.unbind(method.exchange, queue, method.routing_key, method.arguments)
        self.reply(method, spec.queue.unbind_ok())

    def on_queue_purge(self, method: Any) -> None:
        count = self._queue(method.queue).purge()
        self.reply(method, spec.queue.purge_ok(count))

    def on_queue_delete(self, method: Any) -> None:
        name = self._name(method.queue)
        count = self.world.delete_queue(name, self.session, method.if_unused, method.if_empty)
        self.reply(method, spec.queue.delete_ok(count))

    # -- consuming

    def on_basic_qos(self, method: Any) -> None:
        if method.prefetch_size:
            raise Refusal(spec.NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})")
        # RabbitMQ's reading: global is the channel, otherwise each consumer made from now on.
        if method._global:
            self.shared_prefetch = method.prefetch_count
        else:
            self.prefetch = method.prefetch_count
        self.send(spec.basic.qos_ok())
        self.pump()

    def on_basic_consume(self, method: Any) -> None:
        tag = method.consumer_tag or "amq.ctag-" + secrets.token_urlsafe(16)
        if tag in self.consumers or tag == self.reply_tag:
            raise Refusal(spec.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
        if method.queue == REPLY_TO:
            self._consume_replies(method, tag)
            return
        queue = self._queue(method.queue)
        what = f"queue '{queue.name}' in vhost '{self.world.name}'"
        if queue.exclusive_taker is not None or (method.exclusive and queue.takers):
            raise Refusal(spec.ACCESS_REFUSED, f"{what} in exclusive use")
        arguments = method.arguments or {}
        priority, prefetch = arguments.get("x-priority", 0), arguments.get("x-prefetch", self.prefetch)
        for name, value in (("x-priority", priority), ("x-prefetch", prefetch)):
            if not isinstance(value, int) or isinstance(value, bool):
                raise Refusal(spec.PRECONDITION_FAILED, f"invalid arg '{name}' for {what}: {value!r}")
        consumer = Consumer(self, queue, tag, method.no_ack, prefetch, priority)
        self.consumers[tag] = consumer
        queue.add(consumer, method.exclusive)
        self.reply(method, spec.basic.consume_ok(tag))
        queue.pump()

    def _consume_replies(self, method: Any, tag: str) -> None:
        if not method.no_ack:
            raise Refusal(spec.PRECONDITION_FAILED, "reply consumer cannot acknowledge")
        if self.reply_token:
            raise Refusal(spec.PRECONDITION_FAILED, "reply consumer already set")
        self.reply_tag = tag
        self.reply_token = f"{REPLY_TO}.{secrets.token_urlsafe(16)}"
        self.world.repliers[self.reply_token] = self
        self.reply(method, spec.basic.consume_ok(tag))

    def take_reply(self, message: Stored) -> None:
        """A reply that was published to this channel's token."""
        if self.is_open():
            self.last_tag += 1
            self.send_message(self.reply_tag, message, None)

    def on_basic_cancel(self, method: Any) -> None:
        consumer = self.consumers.pop(method.consumer_tag, None)
        if method.consumer_tag == self.reply_tag and self.reply_token:
            self.world.repliers.pop(self.reply_token, None)
            self.reply_token = self.reply_tag = ""
        if consumer is not None:
            consumer.queue.remove(consumer)
        self.reply(method, spec.basic.cancel_ok(method.consumer_tag))
        if consumer is not None:
            self.world.consumer_left(consumer.queue)

    def on_basic_get(self, method: Any) -> None:
        queue = self._queue(method.queue)
        message = queue.get()
        if message is None:
            self.send(spec.basic.get_empty())
            return
        self.last_tag += 1
        if not method.no_ack:
            queue.unacked += 1
            self.unacked[self.last_tag] = Unacked(queue, message, None)
        if self.is_open():
            answer = spec.basic.get_ok(
                self.last_tag, message.redelivered, message.exchange, message.routing_key, len(queue)
            )
            self.session.protocol.send_content(self.number, answer, _properties(message, queue), message.body)
            self.session.broker.counts["delivered"] += 1
            self.session.wake_writer()

    # -- acknowledging

    def _tags(self, tag: int, multiple: bool) -> list[int]:
        """The deliveries that an acknowledgement is about. The tag has to be one of them, of several the last; no tag
        means all there are (https://www.rabbitmq.com/docs/3.13/confirms#consumer-acks-multiple-parameter)."""
        if multiple and not tag:
            found = [each for each in self.unacked if each not in self.settling]
        elif tag not in self.unacked or tag in self.settling:
            raise Refusal(spec.PRECONDITION_FAILED, f"unknown delivery tag {tag}")
        elif not multiple:
            found = [tag]
        else:
            earlier = itertools.takewhile(tag.__ge__, self.unacked)
            found = [each for each in earlier if each not in self.settling]
        if self.mode == "tx":
            self.settling.update(found)
        return found

    def _later(self, function: Any, *args: Any) -> None:
        """Do it, or, in a transaction, at its commit."""
        if self.mode == "tx":
            self.transaction.append((function, args))
        else:
            function(*args)

    def on_basic_ack(self, method: Any) -> None:
        tags = self._tags(method.delivery_tag, method.multiple)
        self._later(self._ack, tags)

    def _ack(self, tags: list[int]) -> None:
        queues = dict.fromkeys(self._settled(tag).queue for tag in tags)
        self.session.broker.counts["acknowledged"] += len(tags)
        self._pump(queues)

    def _pump(self, queues: dict[Queue, None]) -> None:
        for queue in queues:
            queue.pump()
        if self.shared_prefetch:
            self.pump()

    def on_basic_reject(self, method: Any) -> None:
        self._later(self._reject, self._tags(method.delivery_tag, False), method.requeue)

    def on_basic_nack(self, method: Any) -> None:
        self._later(self._reject, self._tags(method.delivery_tag, method.multiple), method.requeue)

    def _reject(self, tags: list[int], requeue: bool) -> None:
        if requeue:
            self._give_back(tags)
            return
        queues: dict[Queue, None] = {}
        for tag in tags:
            entry = self._settled(tag)
            queues[entry.queue] = None
            if not entry.queue.deleted:
                self.world.dead(entry.queue, entry.message, "rejected")
        self._pump(queues)

    def on_basic_recover(self, method: Any) -> None:
        self.on_basic_recover_async(method)
        self.send(spec.basic.recover_ok())

    def on_basic_recover_async(self, method: Any) -> None:
        if not method.requeue:
            raise Refusal(spec.NOT_IMPLEMENTED, "requeue=false")
        self._give_back([tag for tag in self.unacked if tag not in self.settling])

    # -- publishing

    def on_publish(self, message: Any) -> None:
        """basic.publish with its message."""
        self.session.broker.counts["published"] += 1
        if message.immediate:
            raise Refusal(spec.NOT_IMPLEMENTED, "immediate=true")
        exchange = self.world.exchange(message.exchange)
        if exchange.internal:
            raise Refusal(
                spec.ACCESS_REFUSED,
                f"cannot publish to internal exchange '{exchange.name}' in vhost '{self.world.name}'",
            )
        properties = message.properties
        milliseconds(properties.get("expiration"))
        user = properties.get("user-id")
        if user is not None and user != self.session.user:
            raise Refusal(
                spec.PRECONDITION_FAILED,
                f"user_id property set to '{user}' but authenticated user was '{self.session.user}'",
            )
        encoded = message.encoded_properties
        if properties.get("reply-to") == REPLY_TO:
            if not self.reply_token:
                raise Refusal(spec.PRECONDITION_FAILED, "fast reply consumer does not exist")
            properties, encoded = {**properties, "reply-to": self.reply_token}, None
        tag = 0
        if self.mode == "confirm":
            self.publish_tag += 1
            tag = self.publish_tag
        stored = Stored(message.exchange, message.routing_key, properties, message.body, encoded)
        self._later(self._publish, exchange, stored, message.mandatory, tag)

    def _publish(self, exchange: Any, stored: Stored, mandatory: bool, tag: int) -> None:
        if tag and self.session.broker._takes_refusal():
            self.confirms.append((tag, False))
            return
        reached, accepted = self.world.publish(exchange, stored)
        if mandatory and not reached and self.is_open():
            method = spec.basic._return(spec.NO_ROUTE, "NO_ROUTE", stored.exchange, stored.routing_key)
            self.session.protocol.send_content(self.number, method, stored.encoded or stored.properties, stored.body)
            self.session.wake_writer()
        if tag:
            self.confirms.append((tag, accepted))

    def flush_confirms(self) -> None:
        """Confirm what was published: neighbours together, as a broker under load does."""
        if not self.confirms or self.session.broker.holds_confirms:
            return
        confirms, self.confirms = self.confirms, []
        if not self.is_open():
            return
        good: list[int] = []
        for tag, accepted in [*confirms, (0, False)]:
            if accepted:
                good.append(tag)
                continue
            if good:
                self.session.protocol.ack(self.number, good[-1], len(good) > 1)
                good = []
            if tag:
                self.session.protocol.nack(self.number, tag, False, False)
        self.session.wake_writer()

    def on_confirm_select(self, method: Any) -> None:
        if self.mode == "tx":
            raise Refusal(spec.PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
        self.mode = "confirm"
        self.reply(method, spec.confirm.select_ok())

    # -- transactions

    def on_tx_select(self, method: Any) -> None:
        if self.mode == "confirm":
            raise Refusal(spec.PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
        self.mode = "tx"
        self.send(spec.tx.select_ok())

    def _check_tx(self) -> None:
        if self.mode != "tx":
            raise Refusal(spec.PRECONDITION_FAILED, "channel is not transactional")

    def on_tx_commit(self, method: Any) -> None:
        self._check_tx()
        calls, self.transaction = self.transaction, []
        self.settling.clear()
        for function, args in calls:
            function(*args)
        self.send(spec.tx.commit_ok())

    def on_tx_rollback(self, method: Any) -> None:
        self._check_tx()
        self.transaction.clear()
        self.settling.clear()
        self.send(spec.tx.rollback_ok())

    # -- the rest

    def on_channel_flow(self, method: Any) -> None:
        if not method.active:
            raise Refusal(spec.NOT_IMPLEMENTED, "active=false")
        self.send(spec.channel.flow_ok(True))

    def on_channel_flow_ok(self, method: Any) -> None:
        """Nothing to do: the broker never asks for less."""

    def on_basic_cancel_ok(self, method: Any) -> None:
        """A client has answered that it was cancelled; it need not."""

    def on_access_request(self, method: Any) -> None:
        self.send(spec.access.request_ok(1))


def _properties(message: Stored, queue: Queue | None) -> Any:
    """What goes out with a message: as it came, and in a quorum queue how often it has been delivered before."""
    if queue is not None and queue.is_quorum:
        headers = {**(message.properties.get("headers") or {}), "x-delivery-count": message.deliveries - 1}
        return {**message.properties, "headers": headers}
    return message.properties if message.encoded is None else message.encoded
