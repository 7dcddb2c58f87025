"""The test broker's own controls, and how this package's client fares when they are used."""

from __future__ import annotations

import pytest

import coro
from coro import amqp
from coro.amqp import spec, testing, wire
from coro.testing import coro_test, virtual_clock


def outcome(function, *args, **more):
    """What a call raises, or None: for a thread whose failure is expected."""
    try:
        function(*args, **more)
    except amqp.AMQPError as error:
        return error
    return None


def until(condition):
    """Wait inside a loop; the test's own limit bounds a hang."""
    while not condition():
        coro.sleep_relative(0.001)


@coro_test
def test_it_starts_with_nothing_and_shows_what_there_is():
    with testing.Broker() as broker:
        assert broker.url == f"amqp://guest:guest@127.0.0.1:{broker.port}/%2f"
        assert sorted(broker.exchanges) == ["", "amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.topic"]
        with amqp.connect(broker.url, name="shown") as connection:
            channel = connection.channel()
            channel.confirm_select()
            channel.queue_declare("jobs")
            channel.queue_bind("jobs", "amq.topic", "a.#")
            channel.basic_publish(b"one", "amq.topic", "a.b", properties={"type": "t"})
            assert broker.publish(b"two", routing_key="jobs") and not broker.publish(b"three", routing_key="nobody")
            assert [(m.exchange, m.routing_key, m.body) for m in broker.queues["jobs"]] == [
                ("amq.topic", "a.b", b"one"),
                ("", "jobs", b"two"),
            ]
            message = channel.basic_get("jobs")
            assert (message.type, message.body) == ("t", b"one")
            found = broker.statistics()
            assert (found.connections, found.channels, found.queues, found.ready) == (1, 1, 1, 1)
            assert (found.unacknowledged, found.published, found.unroutable) == (1, 1, 1)
            (session,) = broker.sessions
            assert session.user == "guest" and session.client_properties["product"] == "coro-amqp"
            assert "1 connections" in repr(broker)
        until(lambda: broker.statistics().connections == 0)
        assert broker.statistics().ready == 2
    assert "stopped" in repr(broker)


@coro_test
def test_logins_are_checked():
    with testing.Broker(users={"ann": "right"}, virtual_hosts=("/", "other")) as broker:
        with amqp.connect(broker.url) as connection:
            connection.channel()
        for mechanism in ("PLAIN", "AMQPLAIN"):
            with amqp.connect(f"amqp://ann:right@127.0.0.1:{broker.port}/other", mechanism=mechanism):
                pass
            with pytest.raises(amqp.AuthenticationError):
                amqp.connect(f"amqp://ann:wrong@127.0.0.1:{broker.port}", mechanism=mechanism)
        with pytest.raises(amqp.ConnectionClosed, match="vhost elsewhere not found"):
            amqp.connect(f"amqp://ann:right@127.0.0.1:{broker.port}/elsewhere")
        assert [code for code, _ in broker.refusals] == [403, 403, 530]


@coro_test
def test_what_is_not_amqp_is_answered_with_the_version_and_closed():
    with testing.Broker() as broker:
        for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"AMQP\0\1\0\0"):
            sock = coro.tcp_sock()
            sock.connect(broker.address)
            sock.send(greeting)
            assert sock.recv_exact(8) == wire.PROTOCOL_HEADER and sock.recv(1) == b""
            sock.close()


@coro_test
def test_a_block_is_told_and_ends():
    with testing.Broker() as broker, amqp.connect(broker.url, timeout=60) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare("q")
        channel.basic_publish(b"1", routing_key="q")
        broker.block("low on disk")
        channel.publish(b"the broker learns that this connection publishes", routing_key="q")
        until(lambda: connection.blocked)
        assert connection.blocked == "low on disk"
        with pytest.raises(amqp.ConnectionBlocked, match="low on disk"):
            channel.basic_publish(b"2", routing_key="q", timeout=0.02)
        broker.unblock()
        connection.wait_unblocked()
        channel.basic_publish(b"3", routing_key="q")


@coro_test
def test_refusing_and_holding_confirms():
    with testing.Broker() as broker, amqp.connect(broker.url, timeout=60) as connection:
        channel = connection.channel()
        channel.confirm_select(window=10)
        channel.queue_declare("q")
        broker.refuse_publishes(1)
        with pytest.raises(amqp.PublishNacked):
            channel.basic_publish(b"refused", routing_key="q")
        with broker.hold_confirms():
            open_ = [channel.publish(b"%d" % n, routing_key="q") for n in range(10)]
            # The window is full.
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.02, channel.publish, b"", routing_key="q")
            until(lambda: len(broker.queues["q"]) == 10)
            assert not any(confirmation.done for confirmation in open_)
        for confirmation in open_:
            confirmation.wait()
        assert [m.body for m in broker.queues["q"]] == [b"%d" % n for n in range(10)]


@coro_test
def test_closes_cuts_and_cancels():
    with testing.Broker() as broker:
        connection = amqp.connect(broker.url)
        channel = connection.channel()
        channel.queue_declare("q")
        consumer = channel.consume("q")
        assert broker.cancel_consumers("q") == 1
        with pytest.raises(amqp.AMQP_Consumer_Closed):
            consumer.get()
        waiting = coro.spawn(outcome, channel.consume("q").get)
        until(lambda: broker.queues["q"].takers)
        broker.close_channels(406, "PRECONDITION_FAILED - for a test")
        assert "for a test" in str(waiting.get().__cause__)
        channel = connection.channel()
        waiting = coro.spawn(outcome, channel.consume("q").get)
        until(lambda: broker.queues["q"].takers)
        broker.close_connections("for a test")
        error = waiting.get().__cause__
        assert isinstance(error, amqp.ConnectionClosed) and error.reply_code == 320 and "for a test" in str(error)

        connection = amqp.connect(broker.url)
        waiting = coro.spawn(outcome, connection.channel().consume("q").get)
        until(lambda: broker.queues["q"].takers)
        broker.cut_connections()
        assert isinstance(waiting.get().__cause__, amqp.ConnectionLost)


@coro_test
def test_a_restart_keeps_what_is_durable():
    with testing.Broker() as broker:
        connection = amqp.connect(broker.url)
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare("kept", durable=True)
        channel.queue_declare("gone")
        channel.exchange_declare("kept", durable=True)
        channel.exchange_declare("gone")
        channel.queue_bind("kept", "kept", "k")
        for mode in (1, 2, 2):
            channel.basic_publish(b"%d" % mode, "kept", "k", properties={"delivery-mode": mode})
        channel.basic_get("kept")  # not acknowledged: it returns
        port = broker.port
        broker.stop()
        until(lambda: connection.closed)
        with pytest.raises(OSError):
            amqp.connect(broker.url)
        broker.start()
        assert broker.port == port
        with amqp.connect(broker.url) as connection:
            channel = connection.channel()
            assert [m.body for m in broker.queues["kept"]] == [b"2", b"2"]
            assert "gone" not in broker.queues and "gone" not in broker.exchanges
            channel.basic_publish(b"again", "kept", "k")


def test_time_is_coros_own():
    @coro_test
    def body():
        with virtual_clock(autojump=True), testing.Broker(heartbeat=0) as broker:
            with amqp.connect(broker.url, heartbeat=0) as connection:
                channel = connection.channel()
                channel.queue_declare(
                    "short",
                    arguments={
                        "x-message-ttl": 3_600_000,
                        "x-dead-letter-exchange": "",
                        "x-dead-letter-routing-key": "dead",
                    },
                )
                channel.queue_declare("dead")
                channel.queue_declare("expires", arguments={"x-expires": 7_200_000})
                broker.publish(b"old", routing_key="short")
                coro.sleep_relative(3_599)
                assert len(broker.queues["short"]) == 1
                coro.sleep_relative(2)
                assert len(broker.queues["short"]) == 0 and len(broker.queues["dead"]) == 1
                coro.sleep_relative(3_600)
                assert "expires" not in broker.queues

    body()


@coro_test
def test_a_client_that_does_not_read_costs_bounded_memory():
    with testing.Broker(heartbeat=0) as broker, amqp.connect(broker.url, heartbeat=0) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        for _ in range(200):
            broker.publish(bytes(100_000), routing_key="q")
        sock = coro.tcp_sock()
        sock.connect(broker.address)
        mute = wire.Protocol("client", heartbeat=0)
        mute.send_header()

        def exchange(*methods):
            for number, method in methods:
                mute.send_method(number, method)
            sock.writev(mute.take_output())

        def expect(kind):
            while True:
                for _, event in mute.receive(sock.recv(65536)):
                    if isinstance(event, kind):
                        return event

        sock.writev(mute.take_output())
        expect(spec.connection.start)
        exchange((0, spec.connection.start_ok({}, "PLAIN", b"\0guest\0guest", "en_US")))
        tune = expect(spec.connection.tune)
        exchange((0, mute.answer_tune(tune)), (0, spec.connection.open()))
        expect(spec.connection.open_ok)
        exchange((1, spec.channel.open()))
        expect(spec.channel.open_ok)
        exchange((1, spec.basic.consume(queue="q", no_ack=True)))
        until(lambda: broker.queues["q"].takers)
        # It reads nothing more: what the kernel does not take stays in the queue.
        channel.queue_declare("q", passive=True)
        assert all(session.protocol.pending < 3 << 20 for session in broker.sessions)
        assert len(broker.queues["q"]) > 50
        sock.close()


@coro_test
def test_closing_a_consumer_without_acks_in_full_flood():
    """Deliveries that are under way when a consumer without acknowledgements is closed must not be acknowledged: the
    broker would close the channel (406 unknown delivery tag)."""
    with testing.Broker() as broker, amqp.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        for _ in range(5):
            for _ in range(2000):
                broker.publish(b"x" * 100, routing_key="q")
            consumer = channel.basic_consume("q", no_ack=True, max_inbox=100000)
            consumer.get()
            consumer.close()
            channel.queue_purge("q")
        assert broker.refusals == []


@coro_test
def test_messages_received_without_acks_survive_the_connection():
    """The broker has forgotten them, so a recovery must not drop those that wait in the inbox."""
    with testing.Broker() as broker:
        with amqp.connect(broker.url, recovery=amqp.Recovery(first=0.01, most=0.05)) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            for number in range(10):
                broker.publish(b"%d" % number, routing_key="q")
            consumer = channel.basic_consume("q", no_ack=True)
            until(lambda: len(consumer) == 10)
            lost = coro.event()
            connection.add_listener(lambda name, **facts: name == "recovered" and lost.set())
            broker.cut_connections()
            lost.wait()
            assert [consumer.get(timeout=10).body for _ in range(10)] == [b"%d" % n for n in range(10)]


@coro_test
def test_a_connection_is_lost_while_its_consumers_wake():
    """A message that is booked for a waiting thread is there and cannot be dropped. The client must recover."""
    with testing.Broker() as broker:
        with amqp.connect(broker.url, recovery=amqp.Recovery(first=0.01, most=0.05), timeout=20) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            consumer = channel.consume("q")
            found = []
            thread = coro.spawn(lambda: [found.append(consumer.get(timeout=20)) for _ in range(20)])
            for number in range(20):
                # Delivered and cut in one turn of the loop.
                broker.publish(b"%d" % number, routing_key="q")
                for session in broker.sessions:
                    if not session._ended:
                        session._flush()
                        session.cut()
                until(lambda n=number: len(found) > n)
            thread.get()


@coro_test
def test_transactions_are_ours_too():
    with testing.Broker() as broker, amqp.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.tx_select()
        channel.basic_publish(b"1", routing_key="q")
        channel.tx_rollback()
        channel.basic_publish(b"2", routing_key="q")
        channel.tx_commit()
        assert [m.body for m in broker.queues["q"]] == [b"2"]


@coro_test
def test_update_secret_reaches_it():
    with testing.Broker() as broker, amqp.connect(broker.url) as connection:
        connection.update_secret("fresh token", "the old one expires")
        assert broker.secrets == ["fresh token"]


DEATHS = [
    7,
    "a",
    {"queue": 1},
    [7],
    [{}],
    [{"queue": "q", "reason": "maxlen"}],
    [{"queue": [], "reason": {}, "count": 1}],
]


@coro_test
def test_a_history_that_no_broker_wrote_hurts_nobody():
    """The header x-death is written by brokers, and by whoever wants to. What comes of it must not end the thread that
    lets messages expire."""
    with virtual_clock(autojump=True), testing.Broker(heartbeat=0) as broker:
        with amqp.connect(broker.url, heartbeat=0) as connection:
            channel = connection.channel()
            arguments = {"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
            channel.queue_declare("short", arguments=arguments)
            channel.queue_declare("dead")
            channel.confirm_select()
            for deaths in DEATHS:
                channel.basic_publish(b"", routing_key="short", properties={"headers": {"x-death": deaths}})
            coro.sleep_relative(5)
            found = [message.properties["headers"]["x-death"] for message in broker.queues["dead"]]
            told = [[(each["queue"], each["count"]) for each in deaths] for deaths in found]
            assert told == [[("short", 1)]] * len(DEATHS)
            # and time goes on
            channel.basic_publish(b"later", routing_key="short")
            coro.sleep_relative(5)
            assert len(broker.queues["dead"]) == len(DEATHS) + 1
