"""What a client sees of the test broker and of RabbitMQ: the same tests, with pika as the client, against both.

They are the reason to believe what `coro.amqp.testing` says of a program. RabbitMQ 4 runs them, too, and where it
differs from version 3, which the test broker follows, the test says so.
"""

from __future__ import annotations

import pytest
from broker_support import broker_fixture, new_name, pika_connection, wait_until

pika = pytest.importorskip("pika")
from pika import exceptions as refused  # noqa: E402

broker = broker_fixture("stub", "rabbitmq", "rabbitmq4")


@pytest.fixture
def connection(broker):
    with pika_connection(broker) as connection:
        yield connection


@pytest.fixture
def channel(connection):
    return connection.channel()


def declare(channel, **more):
    """A new queue; its name."""
    arguments = more.pop("arguments", None)
    name = new_name("queue")
    channel.queue_declare(name, arguments=arguments, **more)
    return name


def everything(channel, queue, ack=True):
    """The bodies that wait in a queue."""
    found = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=False)
        if method is None:
            return found
        found.append(body)
        if ack:
            channel.basic_ack(method.delivery_tag)


def eventually_count(channel, queue, count):
    wait_until(
        lambda: channel.queue_declare(queue, passive=True).method.message_count == count,
        f"{queue} has {count} messages",
    )


def refuses(connection, code, words, action):
    """`action(channel)` ends its channel with this reply code and these words."""
    channel = connection.channel()
    with pytest.raises(refused.ChannelClosedByBroker) as caught:
        action(channel)
    assert caught.value.reply_code == code, caught.value
    assert words in caught.value.reply_text, caught.value


def refuses_connection(broker, code, words, action):
    """`action(channel)` ends its connection with this reply code and these words."""
    with pika_connection(broker) as connection:
        channel = connection.channel()
        with pytest.raises(refused.ConnectionClosedByBroker) as caught:
            action(channel)
            # What has no answer is answered with the next one.
            channel.queue_declare("", exclusive=True)
        assert caught.value.reply_code == code, caught.value
        assert words in caught.value.reply_text, caught.value


# -- queues


def test_messages_come_in_their_order_with_properties_and_bodies(channel):
    queue = declare(channel)
    properties = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="identity",
        headers={"number": 7, "text": "grün", "list": [1, "b", None], "nested": {"yes": True, "big": 1 << 40}},
        delivery_mode=2,
        priority=3,
        correlation_id="c1",
        reply_to="answers",
        expiration="60000",
        message_id="m1",
        timestamp=1_700_000_000,
        type="event",
        user_id="guest",
        app_id="tests",
    )
    for body in (b"", b"one", b"x" * 300_000):
        channel.basic_publish("", queue, body, properties)
    for body in (b"", b"one", b"x" * 300_000):
        method, found, got = channel.basic_get(queue, auto_ack=True)
        assert got == body and method.exchange == "" and method.routing_key == queue and not method.redelivered
        assert {n: getattr(found, n) for n in vars(properties)} == vars(properties)
    assert channel.basic_get(queue) == (None, None, None)


def test_declaring_counts_messages_and_consumers(broker, channel):
    queue = declare(channel)
    channel.basic_publish("", queue, b"a")
    channel.basic_publish("", queue, b"b")
    eventually_count(channel, queue, 2)
    tag = channel.basic_consume(queue, lambda *args: None)
    found = channel.queue_declare(queue, passive=True).method
    assert (found.queue, found.consumer_count) == (queue, 1)
    channel.basic_cancel(tag)
    assert channel.queue_purge(queue).method.message_count == 2
    channel.basic_publish("", queue, b"c")
    eventually_count(channel, queue, 1)
    # RabbitMQ 4 does not always count when it deletes a queue that is neither durable nor exclusive.
    assert channel.queue_delete(queue).method.message_count in ((0, 1) if broker.kind == "rabbitmq4" else (1,))


def test_a_queue_without_a_name_gets_one_and_is_meant_by_no_name(channel):
    name = channel.queue_declare("", exclusive=True).method.queue
    assert name.startswith("amq.gen-")
    channel.queue_bind("", "amq.fanout")
    channel.basic_publish("amq.fanout", "", b"to all")
    eventually_count(channel, name, 1)
    assert everything(channel, "") == [b"to all"]


def test_what_may_not_be_done_to_queues_is_refused(connection, broker):
    queue = declare(connection.channel())
    refuses(connection, 404, "NOT_FOUND - no queue 'nowhere'", lambda c: c.queue_declare("nowhere", passive=True))
    refuses(connection, 404, "NOT_FOUND - no queue 'nowhere'", lambda c: c.basic_get("nowhere"))
    refuses(connection, 404, "NOT_FOUND - no queue 'nowhere'", lambda c: c.basic_consume("nowhere", print))
    refuses(connection, 404, "NOT_FOUND - no queue 'nowhere'", lambda c: c.queue_purge("nowhere"))
    refuses(connection, 404, "no previously declared queue", lambda c: c.basic_get(""))
    refuses(connection, 403, "ACCESS_REFUSED - queue name 'amq.mine'", lambda c: c.queue_declare("amq.mine"))
    refuses(
        connection,
        406,
        f"PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{queue}' in vhost '/': received 'true' but "
        "current is 'false'",
        lambda c: c.queue_declare(queue, durable=True),
    )
    refuses(
        connection,
        406,
        "inequivalent arg 'x-max-length'",
        lambda c: c.queue_declare(queue, arguments={"x-max-length": 5}),
    )
    refuses(connection, 406, "x-message-ttl", lambda c: c.queue_declare("bad", arguments={"x-message-ttl": -1}))
    refuses(connection, 406, "x-queue-type", lambda c: c.queue_declare("bad", arguments={"x-queue-type": "odd"}))
    refuses(connection, 404, "no exchange 'nowhere'", lambda c: c.queue_bind(queue, "nowhere", "key"))
    refuses(connection, 403, "operation not permitted on the default exchange", lambda c: c.queue_bind(queue, ""))
    # Deleting what is not there is no mistake.
    assert connection.channel().queue_delete("nowhere").method.message_count == 0


def test_deleting_can_depend_on_use(broker, connection):
    channel = connection.channel()
    queue = declare(channel)
    channel.basic_publish("", queue, b"a")
    eventually_count(channel, queue, 1)
    refuses(connection, 406, f"queue '{queue}' in vhost '/' not empty", lambda c: c.queue_delete(queue, if_empty=True))
    tag = channel.basic_consume(queue, lambda *args: None)
    if broker.kind != "rabbitmq4":  # RabbitMQ 4.0 deletes it all the same
        text = f"queue '{queue}' in vhost '/' in use"
        refuses(connection, 406, text, lambda c: c.queue_delete(queue, if_unused=True))
        channel.basic_cancel(tag)
    channel.queue_delete(queue)


def test_an_exclusive_queue_is_for_its_connection_and_ends_with_it(broker, connection):
    with pika_connection(broker) as other:
        queue = declare(other.channel(), exclusive=True)
        refuses(
            connection,
            405,
            f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}'",
            lambda c: c.queue_declare(queue, exclusive=True),
        )
        refuses(connection, 405, "RESOURCE_LOCKED", lambda c: c.basic_consume(queue, print))

    # RabbitMQ answers connection.close before it has deleted the queue.
    def gone():
        try:
            connection.channel().queue_declare(queue, passive=True)
        except refused.ChannelClosedByBroker as e:
            return e.reply_code == 404
        return False

    wait_until(gone, "the queue is gone")


def test_an_auto_delete_queue_ends_with_its_last_consumer(connection):
    channel = connection.channel()
    queue = declare(channel, auto_delete=True)
    first = channel.basic_consume(queue, lambda *args: None)
    second = channel.basic_consume(queue, lambda *args: None)
    channel.basic_cancel(first)
    channel.queue_declare(queue, passive=True)
    channel.basic_cancel(second)
    refuses(connection, 404, f"no queue '{queue}'", lambda c: c.queue_declare(queue, passive=True))


# -- exchanges


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic"])
def test_keys_lead_where_the_kind_of_exchange_says(channel, kind):
    exchange = new_name("exchange")
    channel.exchange_declare(exchange, kind)
    patterns = ["a.b", "a.*", "a.#", "#", "*.b", "a.#.d", "", "*"]
    queues = {pattern: declare(channel) for pattern in patterns}
    for pattern, queue in queues.items():
        channel.queue_bind(queue, exchange, pattern)
        # A second binding to the same queue sends nothing twice.
        channel.queue_bind(queue, exchange, "twice")
    keys = ["a.b", "a", "a.b.c", "b.b", "a.d", "a.b.c.d", "", "twice", "a..b"]
    channel.confirm_delivery()
    for key in keys:
        channel.basic_publish(exchange, key, key.encode())

    found = {pattern: sorted(body.decode() for body in everything(channel, queue)) for pattern, queue in queues.items()}
    if kind == "fanout":
        assert found == dict.fromkeys(patterns, sorted(keys))
    elif kind == "direct":
        assert found == {p: sorted({p, "twice"} & set(keys)) for p in patterns}
    else:
        assert found == {
            "a.b": ["a.b", "twice"],
            "a.*": ["a.b", "a.d", "twice"],
            "a.#": ["a", "a..b", "a.b", "a.b.c", "a.b.c.d", "a.d", "twice"],
            "#": sorted(keys),
            "*.b": ["a.b", "b.b", "twice"],
            "a.#.d": ["a.b.c.d", "a.d", "twice"],
            "": ["", "twice"],
            "*": ["a", "twice"],
        }
    channel.exchange_delete(exchange)


def test_headers_are_matched(channel):
    exchange = new_name("exchange")
    channel.exchange_declare(exchange, "headers")
    bindings = {
        "all": {"x-match": "all", "a": 1, "b": "two"},
        "any": {"x-match": "any", "a": 1, "b": "two"},
        "default": {"a": 1},
        "there": {"x-match": "all", "a": None},
        "x-ignored": {"x-match": "all", "a": 1, "x-more": 5},
    }
    queues = {name: declare(channel) for name in bindings}
    for name, queue in queues.items():
        channel.queue_bind(queue, exchange, "", bindings[name])
    channel.confirm_delivery()
    sent = {b"both": {"a": 1, "b": "two"}, b"one": {"a": 1}, b"other": {"a": 2}, b"none": {"c": 3}}
    for body, headers in sent.items():
        channel.basic_publish(exchange, "", body, pika.BasicProperties(headers=headers))
    assert {name: everything(channel, queue) for name, queue in queues.items()} == {
        "all": [b"both"],
        "any": [b"both", b"one"],
        "default": [b"both", b"one"],
        "there": [b"both", b"one", b"other"],
        "x-ignored": [b"both", b"one"],
    }


def test_exchanges_are_bound_to_exchanges(connection):
    channel = connection.channel()
    source, middle, queue = new_name("source"), new_name("middle"), declare(channel)
    channel.exchange_declare(source, "topic")
    channel.exchange_declare(middle, "fanout", internal=True)
    channel.exchange_bind(middle, source, "news.#")
    channel.exchange_bind(source, middle, "again")  # in a circle
    channel.queue_bind(queue, middle)
    channel.confirm_delivery()
    channel.basic_publish(source, "news.today", b"found")
    channel.basic_publish(source, "other", b"lost")
    assert everything(channel, queue) == [b"found"]
    channel.exchange_unbind(middle, source, "news.#")
    channel.basic_publish(source, "news.today", b"lost")
    assert everything(channel, queue) == []

    def to_internal(channel):
        channel.basic_publish(middle, "", b"")
        channel.queue_declare("", exclusive=True)

    refuses(connection, 403, f"cannot publish to internal exchange '{middle}'", to_internal)


def test_an_alternate_exchange_takes_what_leads_nowhere(channel):
    exchange, other, queue = new_name("exchange"), new_name("other"), declare(channel)
    channel.exchange_declare(other, "fanout")
    channel.queue_bind(queue, other)
    channel.exchange_declare(exchange, "direct", arguments={"alternate-exchange": other})
    channel.confirm_delivery()
    channel.basic_publish(exchange, "nobody", b"caught", mandatory=True)
    assert everything(channel, queue) == [b"caught"]


def test_what_may_not_be_done_to_exchanges_is_refused(connection, broker):
    channel = connection.channel()
    exchange = new_name("exchange")
    channel.exchange_declare(exchange, "direct")
    refuses(connection, 404, "no exchange 'nowhere'", lambda c: c.exchange_declare("nowhere", passive=True))
    refuses(
        connection,
        406,
        f"inequivalent arg 'type' for exchange '{exchange}' in vhost '/': received 'fanout' but current is 'direct'",
        lambda c: c.exchange_declare(exchange, "fanout"),
    )
    refuses(connection, 403, "reserved prefix 'amq.*'", lambda c: c.exchange_declare("amq.mine", "direct"))
    refuses(connection, 403, "default exchange", lambda c: c.exchange_declare("", "direct"))
    refuses(connection, 403, "amq.direct", lambda c: c.exchange_delete("amq.direct"))
    queue = declare(channel)
    channel.queue_bind(queue, exchange, "key")
    refuses(connection, 406, "in use", lambda c: c.exchange_delete(exchange, if_unused=True))
    if broker.kind == "rabbitmq4":
        refuses(connection, 406, "unknown exchange type", lambda c: c.exchange_declare(new_name("x"), "no-such-type"))
    else:
        refuses_connection(broker, 503, "COMMAND_INVALID", lambda c: c.exchange_declare(new_name("x"), "no-such-type"))
    channel.exchange_delete(exchange)
    channel.exchange_delete("nowhere")

    def publish(channel):
        channel.basic_publish("nowhere", "", b"")
        channel.queue_declare("", exclusive=True)

    refuses(connection, 404, "no exchange 'nowhere' in vhost '/'", publish)


def test_an_auto_delete_exchange_ends_with_its_last_binding(connection):
    channel = connection.channel()
    exchange, queue = new_name("exchange"), declare(channel)
    channel.exchange_declare(exchange, "fanout", auto_delete=True)
    channel.queue_bind(queue, exchange)
    channel.exchange_declare(exchange, passive=True)
    channel.queue_unbind(queue, exchange)
    refuses(connection, 404, "no exchange", lambda c: c.exchange_declare(exchange, passive=True))


# -- delivery


class Collector:
    """Consumes and keeps what comes."""

    def __init__(self, channel, queue, ack=False, **more):
        self.channel, self.ack, self.found = channel, ack, []
        self.tag = channel.basic_consume(queue, self.take, **more)

    def take(self, channel, method, properties, body):
        self.found.append((body, method, properties))
        if self.ack:
            channel.basic_ack(method.delivery_tag)

    @property
    def bodies(self):
        return [body for body, _, _ in self.found]

    def until(self, count):
        """Wait for so many, and a moment of the same connection for one too many."""
        wait_until(lambda: self.step() or len(self.found) >= count, f"{count} messages, got {self.bodies}")
        self.step()

    def step(self):
        self.channel.connection.process_data_events(0.01)


def publish(channel, queue, *bodies, **properties):
    for body in bodies:
        channel.basic_publish("", queue, body, pika.BasicProperties(**properties))


def test_prefetch_bounds_what_is_not_acknowledged(channel):
    queue = declare(channel)
    publish(channel, queue, *(b"%d" % i for i in range(10)))
    channel.basic_qos(prefetch_count=3)
    consumer = Collector(channel, queue)
    consumer.until(3)
    # An answer that comes after whatever the broker would have sent.
    channel.queue_declare(queue, passive=True)
    consumer.step()
    assert consumer.bodies == [b"0", b"1", b"2"]
    channel.basic_ack(consumer.found[1][1].delivery_tag, multiple=True)
    consumer.until(5)
    assert consumer.bodies == [b"0", b"1", b"2", b"3", b"4"]


def test_prefetch_of_the_channel_is_shared(channel):
    first, second = declare(channel), declare(channel)
    publish(channel, first, b"1", b"2", b"3")
    publish(channel, second, b"4", b"5", b"6")
    eventually_count(channel, first, 3)
    eventually_count(channel, second, 3)
    channel.basic_qos(prefetch_count=4, global_qos=True)
    one, two = Collector(channel, first), Collector(channel, second)
    wait_until(lambda: one.step() or len(one.found) + len(two.found) >= 4, "four messages")
    channel.queue_declare(first, passive=True)
    one.step()
    assert len(one.found) + len(two.found) == 4


def test_what_is_not_acknowledged_comes_again_in_its_order_and_marked(broker, channel):
    queue = declare(channel)
    publish(channel, queue, b"1", b"2", b"3", b"4")
    eventually_count(channel, queue, 4)
    with pika_connection(broker) as other:
        consumer = Collector(other.channel(), queue)
        consumer.until(4)
        consumer.channel.basic_ack(consumer.found[1][1].delivery_tag)
        consumer.channel.queue_declare(queue, passive=True)
    eventually_count(channel, queue, 3)
    for body in (b"1", b"3", b"4"):
        method, _, got = channel.basic_get(queue, auto_ack=True)
        assert got == body and method.redelivered


def test_rejected_messages_return_or_go(channel):
    queue = declare(channel)
    publish(channel, queue, b"1", b"2", b"3")
    eventually_count(channel, queue, 3)
    tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(3)]
    assert tags == [1, 2, 3]
    channel.basic_reject(1, requeue=False)
    channel.basic_nack(3, multiple=True, requeue=True)
    eventually_count(channel, queue, 2)
    assert everything(channel, queue) == [b"2", b"3"]


def test_recover_gives_back_what_the_channel_has(channel):
    queue = declare(channel)
    publish(channel, queue, b"1", b"2")
    eventually_count(channel, queue, 2)
    channel.basic_get(queue)
    channel.basic_get(queue)
    channel.basic_recover(requeue=True)
    eventually_count(channel, queue, 2)
    assert everything(channel, queue) == [b"1", b"2"]


def test_unknown_tags_end_the_channel(connection):
    def ack(channel):
        channel.basic_ack(5)
        channel.queue_declare("", exclusive=True)

    def twice(channel):
        queue = declare(channel)
        publish(channel, queue, b"1")
        eventually_count(channel, queue, 1)
        channel.basic_get(queue)
        channel.basic_ack(1)
        channel.basic_reject(1)
        channel.queue_declare("", exclusive=True)

    refuses(connection, 406, "PRECONDITION_FAILED - unknown delivery tag 5", ack)
    refuses(connection, 406, "PRECONDITION_FAILED - unknown delivery tag 1", twice)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-max-priority": 256},
        {"x-expires": 0},
        {"x-message-ttl": 1 << 40},
        {"x-dead-letter-exchange": ["e"]},
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": {"a": 1}},
        {"x-overflow": [1]},
        {"x-queue-type": 5},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_arguments_of_a_queue_have_to_make_sense(connection, arguments):
    refuses(connection, 406, "PRECONDITION_FAILED - invalid ", lambda channel: declare(channel, arguments=arguments))


def test_an_expiration_has_to_fit(connection):
    def act(channel):
        publish(channel, "", b"", expiration="9" * 200)
        channel.queue_declare("", exclusive=True)

    refuses(connection, 406, "PRECONDITION_FAILED - invalid expiration", act)


def test_several_at_once_up_to_a_tag_that_there_is(connection):
    """An acknowledgement of several names the last of them, and that one must be there."""

    def have(channel, count):
        queue = declare(channel)
        publish(channel, queue, *(b"%d" % number for number in range(1, count + 1)))
        eventually_count(channel, queue, count)
        assert [channel.basic_get(queue)[0].delivery_tag for _ in range(count)] == [*range(1, count + 1)]
        return queue

    def ahead(channel):
        have(channel, 3)
        channel.basic_ack(7, multiple=True)
        channel.queue_declare("", exclusive=True)

    def again(channel):
        have(channel, 3)
        channel.basic_ack(2, multiple=True)
        channel.basic_ack(2, multiple=True)
        channel.queue_declare("", exclusive=True)

    def between(channel):
        have(channel, 3)
        channel.basic_ack(2)
        channel.basic_nack(2, multiple=True)
        channel.queue_declare("", exclusive=True)

    def none(channel):
        have(channel, 1)
        channel.basic_ack(0)
        channel.queue_declare("", exclusive=True)

    for action, tag in ((ahead, 7), (again, 2), (between, 2), (none, 0)):
        refuses(connection, 406, f"PRECONDITION_FAILED - unknown delivery tag {tag}", action)
    channel = connection.channel()
    channel.basic_ack(0, multiple=True)  # all of none
    queue = have(channel, 5)
    channel.basic_ack(3)
    channel.basic_ack(4, multiple=True)
    channel.basic_nack(0, multiple=True, requeue=True)
    channel.basic_nack(0, multiple=True, requeue=False)
    eventually_count(channel, queue, 1)
    assert everything(channel, queue) == [b"5"]


def test_consumers_take_turns(channel):
    queue = declare(channel)
    channel.basic_qos(prefetch_count=5)
    first, second = Collector(channel, queue, ack=True), Collector(channel, queue, ack=True)
    publish(channel, queue, *(b"%d" % i for i in range(20)))
    wait_until(lambda: first.step() or len(first.found) + len(second.found) == 20, "20 messages")
    assert sorted(first.bodies + second.bodies, key=int) == [b"%d" % i for i in range(20)]
    assert first.found and second.found


def test_a_consumer_of_higher_priority_comes_first(channel):
    queue = declare(channel)
    low = Collector(channel, queue, arguments={"x-priority": -1})
    high = Collector(channel, queue, arguments={"x-priority": 5})
    publish(channel, queue, b"1", b"2", b"3")
    high.until(3)
    assert low.bodies == []


def test_an_exclusive_consumer_is_alone(connection, broker):
    channel = connection.channel()
    queue = declare(channel)
    channel.basic_consume(queue, print, exclusive=True)
    refuses(connection, 403, "in exclusive use", lambda c: c.basic_consume(queue, print))
    tag = channel.basic_consume(declare(channel), print)
    with pika_connection(broker) as other:
        c = other.channel()
        mine = declare(c)
        c.basic_consume(mine, print, consumer_tag=tag)
        with pytest.raises((refused.ConnectionClosedByBroker, refused.DuplicateConsumerTag)):
            c.basic_consume(mine, print, consumer_tag=tag)


def test_the_end_of_a_queue_cancels_its_consumers(channel):
    queue = declare(channel)
    cancelled = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(queue, lambda *args: None)
    channel.queue_delete(queue)
    wait_until(lambda: channel.connection.process_data_events(0.01) or cancelled, "basic.cancel")
    assert cancelled == [tag]


# -- publishing


def test_confirms_and_returns(channel):
    queue = declare(channel)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"there", mandatory=True)
    assert channel.queue_declare(queue, passive=True).method.message_count == 1
    with pytest.raises(refused.UnroutableError) as caught:
        channel.basic_publish("", "nobody", b"back", pika.BasicProperties(message_id="7"), mandatory=True)
    (returned,) = caught.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.body, returned.properties.message_id) == (b"back", "7")
    channel.basic_publish("", "nobody", b"gone")


def test_what_may_not_be_published_is_refused(connection, broker):
    def publishing(**properties):
        def action(channel):
            channel.basic_publish("", "nowhere", b"", pika.BasicProperties(**properties))
            channel.queue_declare("", exclusive=True)

        return action

    refuses(connection, 406, "PRECONDITION_FAILED - user_id property set to 'else'", publishing(user_id="else"))
    refuses(connection, 406, "PRECONDITION_FAILED - invalid expiration 'soon'", publishing(expiration="soon"))
    refuses(connection, 406, "fast reply consumer does not exist", publishing(reply_to="amq.rabbitmq.reply-to"))


def test_carbon_copies(channel):
    first, second, third = declare(channel), declare(channel), declare(channel)
    channel.confirm_delivery()
    channel.basic_publish("", first, b"x", pika.BasicProperties(headers={"CC": [second], "BCC": [third]}))
    for queue in (first, second, third):
        _, properties, body = channel.basic_get(queue, auto_ack=True)
        assert body == b"x" and properties.headers == {"CC": [second]}


def test_direct_reply_to(connection):
    client, server = connection.channel(), connection.channel()
    queue = declare(server)
    answers = Collector(client, "amq.rabbitmq.reply-to", auto_ack=True)
    client.basic_publish("", queue, b"question", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    eventually_count(server, queue, 1)
    _, properties, _ = server.basic_get(queue, auto_ack=True)
    assert properties.reply_to.startswith("amq.rabbitmq.reply-to.")
    server.basic_publish("", properties.reply_to, b"answer")
    answers.until(1)
    assert answers.bodies == [b"answer"]
    refuses(
        connection, 406, "reply consumer cannot acknowledge", lambda c: c.basic_consume("amq.rabbitmq.reply-to", print)
    )


# -- transactions


def test_a_transaction_happens_at_its_commit_or_not_at_all(connection):
    channel, looker = connection.channel(), connection.channel()
    queue = declare(channel)
    channel.tx_select()
    publish(channel, queue, b"1", b"2")
    assert looker.queue_declare(queue, passive=True).method.message_count == 0
    channel.tx_commit()
    eventually_count(looker, queue, 2)
    publish(channel, queue, b"3")
    method, _, _ = channel.basic_get(queue)
    channel.basic_ack(method.delivery_tag)
    channel.tx_rollback()
    # The acknowledgement is undone: the message is still the channel's.
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()
    assert everything(looker, queue) == [b"2"]


def test_modes_of_a_channel_exclude_each_other(connection):
    def confirm_after_tx(channel):
        channel.tx_select()
        channel.confirm_delivery()

    def tx_after_confirm(channel):
        channel.confirm_delivery()
        channel.tx_select()

    refuses(connection, 406, "cannot switch from tx to confirm mode", confirm_after_tx)
    refuses(connection, 406, "cannot switch from confirm to tx mode", tx_after_confirm)
    refuses(connection, 406, "channel is not transactional", lambda c: c.tx_commit())
    refuses(connection, 406, "channel is not transactional", lambda c: c.tx_rollback())


# -- limits and dead letters


def dead_letters(channel, **arguments):
    """A queue with a dead-letter queue behind it; both names."""
    exchange, dead = new_name("dead-letters"), declare(channel)
    channel.exchange_declare(exchange, "fanout")
    channel.queue_bind(dead, exchange)
    durable = "x-queue-type" in arguments
    queue = new_name("queue")
    channel.queue_declare(queue, durable=durable, arguments={"x-dead-letter-exchange": exchange, **arguments})
    return queue, dead


def test_rejected_messages_become_dead_letters(channel):
    queue, dead = dead_letters(channel)
    publish(channel, queue, b"bad", message_id="9")
    eventually_count(channel, queue, 1)
    method, _, _ = channel.basic_get(queue)
    channel.basic_reject(method.delivery_tag, requeue=False)
    eventually_count(channel, dead, 1)
    _, properties, body = channel.basic_get(dead, auto_ack=True)
    (death,) = properties.headers["x-death"]
    assert body == b"bad" and properties.message_id == "9"
    assert {n: death[n] for n in ("count", "reason", "queue", "exchange", "routing-keys")} == {
        "count": 1,
        "reason": "rejected",
        "queue": queue,
        "exchange": "",
        "routing-keys": [queue],
    }
    first = {n: v for n, v in properties.headers.items() if n.startswith("x-first-death")}
    assert first == {"x-first-death-reason": "rejected", "x-first-death-queue": queue, "x-first-death-exchange": ""}


def test_messages_expire(channel):
    queue, dead = dead_letters(channel, **{"x-message-ttl": 20})
    publish(channel, queue, b"old")
    eventually_count(channel, dead, 1)
    _, properties, _ = channel.basic_get(dead, auto_ack=True)
    assert properties.headers["x-death"][0]["reason"] == "expired"
    queue, dead = dead_letters(channel)
    publish(channel, queue, b"own limit", expiration="20")
    eventually_count(channel, dead, 1)
    _, properties, _ = channel.basic_get(dead, auto_ack=True)
    assert properties.headers["x-death"][0]["original-expiration"] == "20" and properties.expiration is None


def test_dead_letters_go_round_only_if_somebody_rejects_them(channel):
    """Between a queue and a waiting room: what is rejected each time goes on, what expires in both ends."""
    room, queue = new_name("room"), new_name("queue")
    channel.queue_declare(
        room,
        arguments={"x-message-ttl": 10, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue},
    )
    channel.queue_declare(queue, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": room})
    publish(channel, queue, b"again")
    for turn in range(3):
        found = []

        def take():
            found.append(channel.basic_get(queue))  # noqa: B023
            return found.pop() if found[-1][0] is None else found  # noqa: B023

        wait_until(lambda: take() is found, "the message")  # noqa: B023
        method, properties, _ = found[0]
        deaths = {death["queue"]: death["count"] for death in (properties.headers or {}).get("x-death", ())}
        assert deaths == ({queue: turn, room: turn} if turn else {})
        channel.basic_reject(method.delivery_tag, requeue=False)
    eventually_count(channel, queue, 1)
    channel.queue_delete(queue)
    channel.queue_delete(room)

    first, second = new_name("first"), new_name("second")
    for name, target in ((first, second), (second, first)):
        channel.queue_declare(
            name, arguments={"x-message-ttl": 10, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
        )
    publish(channel, first, b"round and round")
    eventually_count(channel, first, 0)
    eventually_count(channel, second, 0)


def test_a_full_queue_drops_its_oldest_or_refuses_the_newest(channel):
    queue, dead = dead_letters(channel, **{"x-max-length": 2})
    publish(channel, queue, b"1", b"2", b"3")
    eventually_count(channel, dead, 1)
    assert everything(channel, queue) == [b"2", b"3"]
    _, properties, body = channel.basic_get(dead, auto_ack=True)
    assert body == b"1" and properties.headers["x-death"][0]["reason"] == "maxlen"

    queue = declare(channel, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"1")
    with pytest.raises(refused.NackError):
        channel.basic_publish("", queue, b"2")
    assert everything(channel, queue) == [b"1"]


def test_a_queue_with_priorities(channel):
    queue = declare(channel, arguments={"x-max-priority": 5})
    for priority in (1, 5, 3, None, 9):
        publish(channel, queue, str(priority).encode(), priority=priority)
    eventually_count(channel, queue, 5)
    assert everything(channel, queue) == [b"5", b"9", b"3", b"1", b"None"]


def test_a_single_active_consumer_hands_over(channel):
    queue = declare(channel, arguments={"x-single-active-consumer": True})
    first, second = Collector(channel, queue, ack=True), Collector(channel, queue, ack=True)
    publish(channel, queue, b"1", b"2")
    first.until(2)
    assert second.bodies == []
    channel.basic_cancel(first.tag)
    publish(channel, queue, b"3")
    second.until(1)


def test_a_quorum_queue_counts_deliveries_up_to_its_limit(broker, connection):
    channel = connection.channel()
    queue, dead = dead_letters(channel, **{"x-queue-type": "quorum", "x-delivery-limit": 2})
    publish(channel, queue, b"poison")
    eventually_count(channel, queue, 1)
    counts = []
    for _ in range(3):
        wait_until(lambda: got(channel, queue, counts), "the message")
    eventually_count(channel, dead, 1)
    # RabbitMQ 4 leaves the header out at the first delivery.
    assert counts == [None if broker.kind == "rabbitmq4" else 0, 1, 2]
    _, properties, _ = channel.basic_get(dead, auto_ack=True)
    assert properties.headers["x-death"][0]["reason"] == "delivery_limit"
    channel.queue_delete(queue)
    refuses(
        connection,
        406,
        "invalid property 'non-durable'",
        lambda c: c.queue_declare(new_name("q"), arguments={"x-queue-type": "quorum"}),
    )


def got(channel, queue, counts):
    method, properties, _ = channel.basic_get(queue)
    if method is None:
        return False
    counts.append((properties.headers or {}).get("x-delivery-count"))
    channel.basic_reject(method.delivery_tag, requeue=True)
    return True


# -- connections


def test_a_wrong_password_and_an_unknown_virtual_host(broker):
    with (
        pytest.raises(refused.ProbableAuthenticationError, match="ACCESS_REFUSED"),
        pika_connection(broker, credentials=pika.PlainCredentials("guest", "wrong")),
    ):
        pass
    with pytest.raises(refused.ProbableAccessDeniedError, match="530"), pika_connection(broker, virtual_host="nowhere"):
        pass


@pytest.mark.parametrize("frame_max", [4096, 131072])
def test_bodies_at_the_edges_of_frames(broker, frame_max):
    with pika_connection(broker, frame_max=frame_max) as connection:
        channel = connection.channel()
        queue = declare(channel)
        sizes = [0, 1, *(frame_max * n - 8 * n + d for n in (1, 2) for d in (-1, 0, 1)), 1 << 20]
        for size in sizes:
            channel.basic_publish("", queue, bytes([size % 251]) * size)
        for size in sizes:
            wait_until(lambda: take(channel, queue, bytes([size % 251]) * size), f"{size} bytes")  # noqa: B023


def take(channel, queue, body):
    method, _, found = channel.basic_get(queue, auto_ack=True)
    assert method is None or found == body
    return method is not None


def test_a_channel_number_is_used_again(connection):
    for _ in range(3):
        channel = connection.channel(channel_number=7)
        declared = channel.queue_declare("", exclusive=True)
        assert (channel.channel_number, declared.method.message_count) == (7, 0)
        channel.close()
        assert channel.is_closed
