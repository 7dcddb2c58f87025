"""The client against real RabbitMQ, 3 and 4: closes by force, a node that stops and starts under load, the memory
alarm, cancelled consumers, quorum queues and streams, many channels and threads, bodies of every size."""

from __future__ import annotations

import time

import pytest
from broker_support import broker_fixture, new_name
from load_support import Load

import coro
from coro import amqp
from coro.testing import coro_test

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

broker = broker_fixture("rabbitmq", "rabbitmq4")

#: Seconds that bound a hang where a node has to start, on a machine that is busy.
LONG = 500


def connect(broker, **more):
    return amqp.connect(f"amqp://guest:guest@127.0.0.1:{broker.port}", **{"timeout": 60, **more})


def control(broker, *command):
    """rabbitmqctl, while the loop goes on."""
    return coro.in_thread(broker.control, *command)


def outcome(function, *args, **more):
    """What a call raises, or None: for a thread whose failure is expected."""
    try:
        function(*args, **more)
    except amqp.AMQPError as error:
        return error
    return None


@coro_test(timeout=LONG)
def test_a_forced_close_ends_every_wait_with_the_same_error(broker):
    with connect(broker) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).queue
        consumers = [connection.channel().consume(queue) for _ in range(5)]
        threads = [coro.spawn(outcome, consumer.get) for consumer in consumers]
        control(broker, "close_all_connections", "for a test")
        errors = [thread.get() for thread in threads]
        assert all(isinstance(error.__cause__, amqp.ConnectionClosed) for error in errors)
        assert {(e.__cause__.reply_code, e.__cause__.reply_text) for e in errors} == {
            (320, "CONNECTION_FORCED - for a test")
        }
        with pytest.raises(amqp.ConnectionClosed, match="for a test"):
            channel.queue_declare("", exclusive=True)


@coro_test(timeout=LONG)
def test_forced_closes_under_load_lose_nothing(broker):
    with (
        connect(broker, recovery=amqp.Recovery(first=0.05, most=0.5)) as publishing,
        connect(broker, recovery=amqp.Recovery(first=0.05, most=0.5)) as consuming,
    ):
        load = Load(publishing, consuming, new_name("load"))
        for _ in range(3):
            load.wait_confirmed(300)
            control(broker, "close_all_connections", "for a test")
        load.wait_confirmed(300)
        assert load.finish() >= 1200
        assert publishing.statistics().connections >= 4


def wait_registered(broker, queue):
    """Until the node has written to disk which process leads a new quorum queue.

    RabbitMQ does that some seconds after it has declared the queue. If it is killed before, the queue is there when the
    node is back, but it elects no leader: every client's publish and consume waits, and ends with 541.
    """
    registry = broker.folder.glob("mnesia/*/quorum/*/names.dets")
    wanted = queue.encode()
    while not any(wanted in path.read_bytes() for path in registry):
        coro.sleep(0.05)
        registry = broker.folder.glob("mnesia/*/quorum/*/names.dets")


@coro_test(timeout=LONG)
@pytest.mark.parametrize(("way", "kind"), [("kill", "classic"), ("stop", "quorum"), ("kill", "quorum")])
def test_a_node_that_stops_and_starts_under_load_loses_nothing(broker, way, kind):
    with (
        connect(broker, recovery=amqp.Recovery(first=0.05, most=0.5), timeout=LONG) as publishing,
        connect(broker, recovery=amqp.Recovery(first=0.05, most=0.5), timeout=LONG) as consuming,
    ):
        queue = new_name("load")
        load = Load(publishing, consuming, queue, arguments={"x-queue-type": kind})
        load.wait_confirmed(500)
        if (way, kind) == ("kill", "quorum"):
            wait_registered(broker, queue)
        coro.in_thread(getattr(broker, way))
        coro.in_thread(broker.start)
        load.wait_confirmed(500)
        assert load.finish() >= 1000


def compute(seconds, between=None):
    """A handler that keeps the processor."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        sum(range(10_000))
        if between is not None:
            between()


#: Heartbeat, and how many of them a handler takes.
BEAT, INTERVALS = 1, 5


@coro_test(timeout=LONG)
def test_handlers_that_compute_for_five_heartbeats_and_let_others_run(broker):
    """https://github.com/pika/pika/issues/418 and 636, https://github.com/celery/kombu/issues/806."""
    ways = {
        "sleeps": lambda: coro.sleep_relative(INTERVALS * BEAT),
        "yields": lambda: compute(INTERVALS * BEAT, coro.yield_slice),
        "in an OS thread": lambda: coro.in_thread(compute, INTERVALS * BEAT),
    }
    done = []
    with connect(broker, heartbeat=BEAT) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).queue

        def handler(message):
            ways[message.body.decode()]()
            done.append(message.body.decode())

        for way in ways:
            channel.basic_publish(way, routing_key=queue)
        consumer = channel.consume(queue)
        threads = coro.spawn(consumer.run, handler, workers=len(ways))
        while len(done) < len(ways):
            coro.sleep_relative(0.05)
        consumer.cancel()
        threads.join()
        # the same connection, and nothing has gone back
        assert channel.queue_declare(queue, passive=True).message_count == 0
        assert connection.statistics().connections == 1 and connection.statistics().heartbeats_in


@coro_test(timeout=LONG)
def test_a_handler_that_lets_nobody_run_for_five_heartbeats_costs_the_connection_and_nothing_else(broker):
    """Nothing can be sent meanwhile, so the broker gives up. The client does not take the broker for dead, recovers,
    and gets the message again; the acknowledgement of the old one is refused here and not sent."""
    with connect(broker, heartbeat=BEAT, recovery=amqp.Recovery(first=0.01, most=0.5)) as connection:
        told = []
        connection.add_listener(lambda event, **facts: told.append((event, facts.get("error"))))
        channel = connection.channel()
        queue = channel.queue_declare(new_name("slow"), durable=True).queue
        channel.basic_publish(b"once", routing_key=queue)
        consumer = channel.consume(queue)
        message = consumer.get(timeout=60)
        compute(INTERVALS * BEAT)
        again = consumer.get(timeout=60)
        assert again.body == b"once" and again.redelivered
        with pytest.raises(amqp.StaleDelivery):
            message.ack()
        again.ack()
        assert channel.queue_delete(queue).message_count == 0
        lost = [error for event, error in told if event == "lost"]
        assert len(lost) == 1 and "silent" not in str(lost[0])


@coro_test(timeout=LONG)
def test_publishers_are_blocked_by_an_alarm_and_everything_stays_bounded(broker):
    told = []
    with connect(broker, timeout=5, close_timeout=1, on_blocked=told.append) as connection:
        channel = connection.channel()
        channel.confirm_select()
        queue = channel.queue_declare("", exclusive=True).queue
        channel.basic_publish(b"before", routing_key=queue)
        consuming = connect(broker)
        control(broker, "set_vm_memory_high_watermark", "0.00000001")
        try:
            # It blocks who publishes, not who might.
            while connection.blocked is None:
                channel.publish(b"more", routing_key=queue)
                coro.sleep_relative(0.01)
            assert connection.blocked == "low on memory" and told == ["low on memory"]
            with pytest.raises(amqp.ConnectionBlocked, match="low on memory"):
                channel.basic_publish(b"meanwhile", routing_key=queue, timeout=0.1)
            # Who only consumes is not touched.
            with consuming.channel() as other:
                other.queue_declare("", exclusive=True)
            waiting = coro.spawn(connection.wait_unblocked, 60)
            # Closing is bounded, too: the broker does not read this connection's close.
            blocked = connect(broker, close_timeout=0.2)
            own = blocked.channel()
            while blocked.blocked is None:
                own.basic_publish(b"blocks itself", routing_key="nobody")
                coro.sleep_relative(0.01)
            blocked.close()
            assert blocked.closed
        finally:
            control(broker, "set_vm_memory_high_watermark", "absolute", "512MB")
        waiting.join()
        channel.basic_publish(b"after", routing_key=queue, timeout=60)
        found = []
        while (message := channel.basic_get(queue, no_ack=True)) is not None:
            found.append(message.body)
        assert found[0] == b"before" and found[-1] == b"after"
        consuming.close()


@coro_test(timeout=LONG)
def test_a_consumer_learns_that_its_queue_was_deleted(broker):
    with connect(broker) as connection:
        channel = connection.channel()
        queue = channel.queue_declare(new_name("doomed"), durable=True).queue
        other = channel.queue_declare("", exclusive=True).queue
        consumer, staying = channel.consume(queue), channel.consume(other)
        control(broker, "delete_queue", queue)
        with pytest.raises(amqp.AMQP_Consumer_Closed):
            consumer.get(timeout=60)
        # The channel and its other consumers go on.
        channel.basic_publish(b"still here", routing_key=other)
        assert staying.get(timeout=60).body == b"still here"


@coro_test(timeout=LONG)
def test_policies_hold_for_what_the_client_declares(broker):
    prefix = new_name("by-policy")
    control(
        broker,
        "set_policy",
        prefix,
        f"^{prefix}",
        '{"max-length":2,"overflow":"reject-publish"}',
        "--apply-to",
        "queues",
    )
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_select()
        queue = channel.queue_declare(f"{prefix}-queue").queue
        refused = 0
        # RabbitMQ checks the length now and then, so a few more get in.
        for _ in range(100):
            try:
                channel.basic_publish(b"", routing_key=queue)
            except amqp.PublishNacked:
                refused += 1
        assert refused > 0
        channel.queue_delete(queue)
    control(broker, "clear_policy", prefix)


@coro_test(timeout=LONG)
def test_a_quorum_queue_ends_poison_messages(broker):
    with connect(broker) as connection:
        channel = connection.channel()
        dead = channel.queue_declare("", exclusive=True).queue
        queue = new_name("quorum")
        channel.queue_declare(
            queue,
            durable=True,
            arguments={
                "x-queue-type": "quorum",
                "x-delivery-limit": 2,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": dead,
            },
        )
        channel.basic_publish(b"poison", routing_key=queue)
        consumer = channel.consume(queue)
        for expected in range(3):
            message = consumer.get(timeout=60)
            assert message.headers.get("x-delivery-count", 0) == expected and message.redelivered == (expected > 0)
            message.reject(requeue=True)
        message = channel.consume(dead).get(timeout=60)
        assert message.body == b"poison" and message.headers["x-first-death-reason"] == "delivery_limit"
        channel.queue_delete(queue)


@coro_test(timeout=LONG)
def test_a_stream_is_read_again_from_any_place(broker):
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_select()
        queue = new_name("stream")
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "stream"})
        for number in range(20):
            channel.publish(str(number), routing_key=queue)
        channel.wait_for_confirms()
        for offset, first in (("first", 0), (7, 7)):
            with connection.channel() as reading:
                consumer = reading.consume(queue, prefetch=5, arguments={"x-stream-offset": offset})
                found = []
                while len(found) < 20 - first:
                    message = consumer.get(timeout=60)
                    # Streams are delivered in pieces; the first may begin before the offset.
                    if message.headers["x-stream-offset"] >= first:
                        found.append((message.headers["x-stream-offset"], int(message.body)))
                    message.ack()
                assert found == [(n, n) for n in range(first, 20)]
                consumer.cancel()
        channel.queue_delete(queue)


@coro_test(timeout=LONG)
def test_200_channels_of_one_connection_used_by_1000_threads(broker):
    with connect(broker) as connection:
        queue = connection.channel().queue_declare("", exclusive=True).queue
        channels = [connection.channel() for _ in range(200)]
        for channel in channels:
            channel.confirm_select()

        def work(number):
            channel = channels[number % 200]
            for step in range(3):
                channel.basic_publish(f"{number}.{step}", routing_key=queue, mandatory=True)
            assert channel.queue_declare(queue, passive=True).queue == queue

        with coro.group() as group:
            for number in range(1000):
                group.spawn(work, number)
        found = set()
        consumer = connection.channel().consume(queue, prefetch=500)
        for message in consumer:
            found.add(message.body.decode())
            message.ack()
            if len(found) == 3000:
                break
        assert found == {f"{n}.{s}" for n in range(1000) for s in range(3)}
        consumer.cancel()


@coro_test(timeout=LONG)
@pytest.mark.parametrize("frame_max", [4096, 131072, 0])
def test_bodies_across_the_edges_of_frames(broker, frame_max):
    with connect(broker, frame_max=frame_max) as connection:
        real = connection.tune.frame_max if connection.tune is not None else frame_max
        edge = (frame_max or real or 131072) - 8
        sizes = [0, 1, 2, 4088, *(edge * n + d for n in (1, 2, 3) for d in (-1, 0, 1)), 1 << 20]
        if frame_max == 131072:
            # RabbitMQ 4 takes no more than 16 MiB unless told.
            sizes.append(64 << 20 if broker.kind == "rabbitmq" else 16 << 20)
        channel = connection.channel()
        channel.confirm_select()
        queue = channel.queue_declare("", exclusive=True).queue
        consumer = channel.consume(queue, prefetch=1)
        for size in sizes:
            body = bytes(range(251)) * (size // 251 + 1)
            channel.basic_publish(body[:size], routing_key=queue)
            message = consumer.get(timeout=60)
            assert len(message.body) == size and message.body == body[:size]
            message.ack()


@coro_test(timeout=LONG)
def test_every_blocking_call_can_be_interrupted(broker):
    """Consuming, asking, publishing with confirms: whoever shares the connection notices nothing."""
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_select()
        queue = channel.queue_declare("", exclusive=True).queue
        empty = channel.consume(channel.queue_declare("", exclusive=True).queue)
        calls = [
            lambda: empty.get(),
            lambda: channel.queue_declare(queue, passive=True),
            lambda: channel.basic_publish(b"x", routing_key=queue),
            lambda: channel.basic_get(queue),
            lambda: connection.channel().close(),
            lambda: channel.exchange_declare("amq.direct", passive=True),
        ]
        stop = False
        checked = 0

        def bystander():
            nonlocal checked
            with connection.channel() as own:
                own.confirm_select()
                mine = own.queue_declare("", exclusive=True).queue
                while not stop:
                    own.basic_publish(b"%d" % checked, routing_key=mine)
                    assert own.basic_get(mine, no_ack=True).body == b"%d" % checked
                    checked += 1

        thread = coro.spawn(bystander)
        for call in calls:
            for limit in (0, 0.0001, 0.0005, 0.001, 0.002, 0.004):
                for _ in range(5):
                    try:
                        coro.with_timeout(limit, call)
                    except coro.TimeoutError:
                        pass
        stop = True
        thread.get()
        assert checked > 0
        # The channel itself still works, and its answers belong to its questions.
        assert channel.queue_declare(queue, passive=True).queue == queue
        channel.basic_publish(b"last", routing_key=queue)
