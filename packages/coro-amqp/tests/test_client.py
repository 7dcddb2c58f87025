"""The client against the test broker, and against brokers that do what a test says."""

from __future__ import annotations

import pytest
from client_support import HANG, Gate, Scripted, in_loop

import coro
from coro import amqp
from coro.amqp import spec, testing, wire


def open_client(broker, **parameters):
    return amqp.client(port=broker.port, **{"timeout": HANG, **parameters})


@in_loop
def test_publish_and_consume_in_all_sizes() -> None:
    with testing.Broker() as broker, open_client(broker) as client, client.channel() as channel:
        queue = channel.queue_declare(exclusive=True).queue
        sizes = (0, 1, 131063, 131064, 131065, 400_000)
        for size in sizes:
            channel.basic_publish(b"b" * size, routing_key=queue, properties={"headers": {"size": size}})
        consumer = channel.consume(queue)
        for size in sizes:
            message = consumer.get(HANG)
            assert len(message.body) == size == message.headers["size"]
            message.ack()
        assert channel.basic_get(queue) is None


@in_loop
def test_pop_is_the_classic_interface() -> None:
    with testing.Broker() as broker, open_client(broker) as client, client.channel() as channel:
        channel.queue_declare("q")
        channel.basic_publish(b"one", routing_key="q", properties={"content-type": "text/plain"})
        channel.basic_publish(b"two", routing_key="q")
        consumer = channel.basic_consume("q", "tag")
        method, properties, payload = consumer.pop()
        assert (method.consumer_tag, method.delivery_tag, method.routing_key) == ("tag", 1, "q")
        assert properties == {"content-type": "text/plain"} and payload == b"one"
        assert consumer.pop(ack=False)[2] == b"two"
        consumer.cancel()
        with pytest.raises(amqp.AMQP_Consumer_Closed):
            consumer.pop()
        assert list(consumer) == []
    assert consumer.error is None


@in_loop
def test_channel_numbers_are_reused_and_end_at_the_limit() -> None:
    with testing.Broker(channel_max=3) as broker, open_client(broker) as client:
        channels = [client.channel() for _ in range(3)]
        assert [channel.num for channel in channels] == [1, 2, 3]
        with pytest.raises(amqp.StateError, match="at most 3"):
            client.channel()
        channels[1].close()
        assert client.channel().num == 2


@in_loop
def test_a_channel_error_ends_that_channel_alone() -> None:
    with testing.Broker() as broker, open_client(broker) as client:
        bad, good = client.channel(), client.channel()
        with pytest.raises(amqp.ChannelClosed, match="404") as caught:
            bad.queue_declare("absent", passive=True)
        assert (caught.value.reply_code, caught.value.class_id, caught.value.method_id) == (404, 50, 10)
        with pytest.raises(amqp.ChannelClosed):
            bad.queue_declare("q")
        good.queue_declare("q")
        assert list(client.channels) == [2]


@in_loop
def test_replies_reach_those_who_asked_on_many_channels() -> None:
    with testing.Broker() as broker, open_client(broker) as client:
        channels = [client.channel() for _ in range(20)]

        def work(number: int) -> None:
            channel = channels[number % 20]
            for i in range(5):
                name = f"q{number}-{i}"
                assert channel.queue_declare(name).queue == name
                channel.basic_publish(name.encode(), routing_key=name)
                assert channel.basic_get(name, no_ack=True).body == name.encode()

        with coro.group() as group:
            for number in range(100):
                group.spawn(work, number)


@in_loop
def test_a_hundred_threads_publish_on_one_channel() -> None:
    """Frames of messages never mix: https://github.com/pika/pika/issues/1144."""
    with testing.Broker() as broker, open_client(broker) as client, client.channel() as channel:
        channel.queue_declare("q")
        channel.confirm_select()

        def publish(number: int) -> None:
            for i in range(10):
                channel.basic_publish(bytes([number]) * (i * 5000), routing_key="q", properties={"type": str(number)})

        with coro.group() as group:
            for number in range(100):
                group.spawn(publish, number)
        seen: dict[str, list[int]] = {}
        while (message := channel.basic_get("q", no_ack=True)) is not None:
            assert set(message.body) <= {int(message.type)}
            seen.setdefault(message.type, []).append(len(message.body))
        assert len(seen) == 100
        assert all(sizes == [i * 5000 for i in range(10)] for sizes in seen.values())


@in_loop
def test_what_many_threads_publish_in_one_turn_leaves_in_one_call() -> None:
    def script(broker) -> None:
        broker.open_channel()
        for _ in range(50):
            broker.next()
        done.set()

    done = coro.event()
    with Scripted(script) as broker, open_client(broker) as client:
        channel = client.channel()
        link = client._link
        sent: list[int] = []
        real = link._send

        def send(pieces) -> None:
            sent.append(sum(map(len, pieces)))
            real(pieces)

        link._send = send
        with coro.group() as group:
            for _ in range(50):
                group.spawn(channel.basic_publish, b"x", "e", "k")
        done.wait(HANG)
        assert len(sent) == 1
        broker.close()


@in_loop
def test_confirms_one_by_one_and_pipelined() -> None:
    with testing.Broker() as broker, open_client(broker) as client, client.channel() as channel:
        channel.queue_declare("q")
        with pytest.raises(amqp.StateError, match="confirm_select"):
            channel.publish(b"x")
        channel.confirm_select(window=10)
        assert channel.confirm_mode
        channel.basic_publish(b"x", routing_key="q")
        found = [channel.publish(b"x", routing_key="q") for _ in range(100)]
        channel.wait_for_confirms()
        assert all(each.delivered for each in found) and channel.unconfirmed == 0
        assert client.statistics().confirmed == 101


@in_loop
def test_acknowledgements_of_several_at_once_and_refusals() -> None:
    def script(broker) -> None:
        broker.open_channel()
        broker.expect(spec.confirm.select)
        broker.say(1, spec.confirm.select_ok())
        for _ in range(6):
            broker.expect(wire.Message)
        broker.say(1, spec.basic.ack(3, True), spec.basic.nack(4), spec.basic.ack(5), spec.basic.nack(0, True))

    with Scripted(script) as broker, open_client(broker) as client:
        channel = client.channel()
        channel.confirm_select()
        found = [channel.publish(b"x") for _ in range(6)]
        with pytest.raises(amqp.PublishNacked) as caught:
            channel.wait_for_confirms()
        assert "1 more messages" in caught.value.__notes__[0]
        assert [each.delivered for each in found] == [True, True, True, False, True, False]
        with pytest.raises(amqp.PublishNacked):
            found[3].wait()
        statistics = client.statistics()
        assert (statistics.confirmed, statistics.nacked, statistics.unconfirmed) == (4, 2, 0)
        broker.close()


@in_loop
def test_the_window_makes_publishers_wait() -> None:
    with testing.Broker() as broker, open_client(broker) as client, client.channel() as channel:
        channel.queue_declare("q")
        channel.confirm_select(window=5)
        with broker.hold_confirms():
            for _ in range(5):
                channel.publish(b"x", routing_key="q")
            with pytest.raises(amqp.AMQPTimeout, match="one of 5"):
                channel.publish(b"x", routing_key="q", timeout=0.01)
            assert channel.unconfirmed == 5
        channel.wait_for_confirms()


@in_loop
def test_returns_belong_to_their_publish() -> None:
    with testing.Broker() as broker, open_client(broker) as client, client.channel() as channel:
        channel.queue_declare("q")
        channel.confirm_select()
        came = []
        channel.on_return(came.append)
        found = [channel.publish(str(i), routing_key="q" if i % 2 else "nowhere", mandatory=i != 4) for i in range(6)]
        with pytest.raises(amqp.PublishReturned) as caught:
            channel.wait_for_confirms()
        assert [each.delivered for each in found] == [False, True, False, True, True, True]
        assert caught.value.reply_code == spec.NO_ROUTE and caught.value.message.body == b"0"
        assert [message.body for message in came] == [b"0", b"2"]
        with pytest.raises(amqp.PublishReturned, match="'nowhere'"):
            channel.basic_publish(b"x", routing_key="nowhere", mandatory=True)


@in_loop
def test_blocked_publishers_fail_in_time_and_say_why() -> None:
    """https://github.com/celery/celery/issues/2689: a publish hung for ever while the broker was short of memory."""
    with testing.Broker() as broker:
        told: list = []
        client = open_client(broker, on_blocked=told.append, on_unblocked=lambda: told.append(None))
        with client, client.channel() as channel:
            channel.queue_declare("q")
            broker.block("low on memory")
            channel.basic_publish(b"first", routing_key="q")
            while client.blocked is None:
                coro.sleep(0.001)
            assert client.blocked == "low on memory"
            client.timeout = 0.05
            with pytest.raises(amqp.ConnectionBlocked, match="low on memory"):
                channel.basic_publish(b"second", routing_key="q")
            with pytest.raises(amqp.ConnectionBlocked, match="low on memory"):
                client.wait_unblocked()
            client.timeout = HANG
            broker.unblock()
            client.wait_unblocked()
            channel.basic_publish(b"third", routing_key="q")
        assert told == ["low on memory", None]


@in_loop
def test_close_is_bounded_while_the_broker_does_not_listen() -> None:
    """https://github.com/pika/pika/issues/764."""

    def script(broker) -> None:
        broker.say(0, spec.connection.blocked("alarm"))
        coro.sleep(HANG)

    with Scripted(script) as broker:
        client = open_client(broker, close_timeout=0.05)
        client.go()
        client.close()
        client.close()
        assert client.closed and client.error is None
        broker.thread.shutdown()


@in_loop
def test_a_silent_peer_ends_the_attempt_to_connect() -> None:
    """https://github.com/pika/pika/issues/985: a peer that does not speak AMQP."""
    with Scripted(greet=False) as broker:
        with pytest.raises(amqp.AMQPTimeout, match="within 0.05 s"):
            open_client(broker, connect_timeout=0.05).go()


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"AMQP\1\1\0\x0a", b"\x15\3\1\0\2\2\x46"])
@in_loop
def test_a_peer_that_speaks_something_else(greeting: bytes) -> None:
    def script(broker) -> None:
        broker.conn.send(greeting)

    with Scripted(script, greet=False) as broker, pytest.raises(amqp.ProtocolError, match="AMQP"):
        open_client(broker).go()


@in_loop
def test_nobody_listens_and_a_client_may_try_again() -> None:
    listener = coro.tcp_sock()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    client = amqp.client(port=port)
    with pytest.raises(OSError, match="refused"):
        client.go()
    listener.close()
    with testing.Broker() as broker:
        client = amqp.client(hosts=[("127.0.0.1", port), ("127.0.0.1", broker.port)])
        client.go()
        with pytest.raises(amqp.StateError, match="is open"):
            client.go()
        client.close()
    with pytest.raises(amqp.StateError, match="go"):
        amqp.client().channel()


@in_loop
def test_refused_logins() -> None:
    with testing.Broker() as broker:
        with pytest.raises(amqp.AuthenticationError) as caught:
            open_client(broker, auth=("guest", "wr0ng")).go()
        assert "wr0ng" not in str(caught.value)
        with pytest.raises(amqp.AuthenticationError, match="EXTERNAL"):
            open_client(broker, mechanism="EXTERNAL").go()
        with pytest.raises(amqp.ConnectionClosed, match="530"):
            open_client(broker, virtual_host="/absent").go()
        calls = []

        def credentials():
            calls.append(1)
            return "guest", "guest"

        with open_client(broker, auth=("x", "y"), credentials=credentials, mechanism="AMQPLAIN"):
            assert calls == [1]


@in_loop
def test_secrets_are_updated() -> None:
    with testing.Broker() as broker, open_client(broker) as client:
        client.update_secret("fresh", "it expires")
        assert broker.secrets == ["fresh"]


@in_loop
def test_a_lost_connection_wakes_everybody_with_one_kind_of_error() -> None:
    with testing.Broker() as broker:
        client = open_client(broker)
        client.go()
        channel, other = client.channel(), client.channel()
        channel.queue_declare("q")
        other.confirm_select()
        errors: list = []

        def note(function, *args) -> None:
            try:
                function(*args)
            except amqp.AMQPError as exc:
                errors.append(exc)

        with broker.hold_confirms():
            consumer = channel.consume("q")
            threads = [coro.spawn(note, consumer.get), coro.spawn(note, other.basic_publish, b"x", "", "absent")]
            coro.yield_slice()
            broker.cut_connections()
            for thread in threads:
                thread.join(HANG)
        note(channel.queue_declare, "q")
        note(client.channel)
        note(list, consumer)
        kinds = [type(error) for error in errors]
        assert sorted(kinds, key=str) == sorted([amqp.AMQP_Consumer_Closed] * 2 + [amqp.ConnectionLost] * 3, key=str)
        assert all(error.__cause__ is not None for error in errors)
        assert client.closed and isinstance(client.error, amqp.ConnectionLost)


@in_loop
def test_heartbeats_go_both_ways_while_a_handler_takes_its_time() -> None:
    """https://github.com/pika/pika/issues/418: a slow handler kept heartbeats from being sent."""
    with testing.Broker(heartbeat=1) as broker, open_client(broker, heartbeat=1) as client, client.channel() as channel:
        channel.queue_declare("q")
        channel.basic_publish(b"x", routing_key="q")
        message = channel.consume("q").get(HANG)
        while client.statistics().heartbeats_out < 3 or client.statistics().heartbeats_in < 2:
            coro.sleep(0.05)
        message.ack()
        channel.queue_declare("q", passive=True)
        assert not client.closed


test_heartbeats_go_both_ways_while_a_handler_takes_its_time = pytest.mark.slow(
    test_heartbeats_go_both_ways_while_a_handler_takes_its_time
)


@pytest.mark.slow
@in_loop
def test_a_broker_that_falls_silent_is_noticed() -> None:
    with Scripted(tune=(10, 4096, 1)) as broker:
        client = open_client(broker)
        client.go()
        with coro.timeout(HANG):
            client.closed_cv.wait()
        assert isinstance(client.error, amqp.ConnectionLost) and "silent" in str(client.error)


@in_loop
def test_a_full_inbox_stops_reading_but_neither_acknowledgements_nor_answers() -> None:
    """https://github.com/mosquito/aio-pika/issues/464: without acknowledgements a flood filled the memory."""
    with testing.Broker() as broker, open_client(broker) as client:
        channel, other = client.channel(), client.channel()
        channel.queue_declare("q")
        for _ in range(3000):
            other.basic_publish(b"x" * 1000, routing_key="q")
        other.queue_declare("q", passive=True)
        consumer = channel.basic_consume("q", no_ack=True, max_inbox=10)
        consumer.get(HANG)
        while not client._link._paused:
            coro.sleep(0.001)
        waiting = len(consumer)
        assert waiting < 3000
        # a question makes it read on until the answer is there
        assert other.queue_declare("other").queue == "other"
        for _ in range(2999):
            consumer.get(HANG)
        assert not client._link.full


@in_loop
def test_a_full_inbox_takes_a_little_now_and_then_up_to_a_limit(monkeypatch) -> None:
    """RabbitMQ ends the connection of a client that has taken nothing for half a minute (its limit for sending)."""
    from coro.amqp import _consumer, _link

    monkeypatch.setattr(_link, "TRICKLE", 0.001)
    monkeypatch.setattr(_consumer, "FLOOD", 3 << 20)
    with testing.Broker() as broker, open_client(broker) as client:
        channel = client.channel()
        channel.queue_declare("q")
        for _ in range(1000):
            broker.publish(b"x" * 10_000, routing_key="q")
        consumer = channel.basic_consume("q", no_ack=True, max_inbox=10)
        while not client._link.flooded:
            coro.sleep(0.001)
        # That is the limit, and not more than one piece beyond it. It goes on when somebody takes the messages.
        assert 300 < len(consumer) < 330
        for _ in range(1000):
            assert len(consumer.get(HANG).body) == 10_000
        assert not client._link.full and not client._link.flooded


@in_loop
def test_a_get_that_times_out_loses_nothing() -> None:
    """https://github.com/mosquito/aio-pika/issues/139."""
    with testing.Broker() as broker, open_client(broker) as client, client.channel() as channel:
        channel.queue_declare("q")
        consumer = channel.consume("q")
        with pytest.raises(amqp.AMQPTimeout):
            consumer.get(0.001)
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, consumer.get)
        channel.basic_publish(b"x", routing_key="q")
        assert consumer.get(HANG).body == b"x"


@in_loop
@pytest.mark.parametrize("workers", [1, 3])
def test_run_raises_why_the_broker_ended_the_consumer(workers: int) -> None:
    with testing.Broker() as broker, open_client(broker) as client:
        channel = client.channel()
        channel.queue_declare("q")
        consumer = client.channel().consume("q")
        handled = []

        def handle(message) -> None:
            handled.append(message.body)
            channel.queue_delete("q")

        channel.basic_publish(b"x", routing_key="q")
        with pytest.raises(amqp.AMQP_Consumer_Closed, match="cancelled the consumer") as caught:
            consumer.run(handle, workers)
        assert isinstance(caught.value.__cause__, amqp.ChannelClosed) and handled == [b"x"]
        with pytest.raises(amqp.AMQP_Consumer_Closed):
            consumer.run(handle, workers)
        with pytest.raises(amqp.StateError, match="without a callback"):
            client.channel().basic_consume(channel.queue_declare().queue, callback=print).run(handle)


@in_loop
def test_what_on_error_raises_ends_run_as_it_is() -> None:
    class Wrong(Exception):
        pass

    def stop(message, exc) -> None:
        raise exc

    def handle(message) -> None:
        raise Wrong(message.body)

    with testing.Broker() as broker, open_client(broker) as client:
        channel = client.channel()
        channel.queue_declare("q")
        channel.basic_publish(b"x", routing_key="q")
        with pytest.raises(Wrong, match="x"):
            channel.consume("q").run(handle, workers=2, on_error=stop)
        channel.close()
        assert client.channel().basic_get("q").body == b"x"


@in_loop
@pytest.mark.parametrize("early", [False, True])
def test_run_until_an_event_finishes_what_has_begun(early: bool) -> None:
    with testing.Broker() as broker, open_client(broker) as client:
        channel = client.channel()
        channel.queue_declare("q")
        for i in range(10):
            channel.basic_publish(str(i), routing_key="q")
        stopping, busy, finish = coro.event(), coro.event(), coro.event()
        handled = []

        def handle(message) -> None:
            handled.append(message)
            if len(handled) == 2:
                busy.set()
            finish.wait()

        if early:
            stopping.set()
            channel.consume("q").run(handle, workers=2, until=stopping)
        else:
            thread = coro.spawn(channel.consume("q").run, handle, workers=2, until=stopping)
            busy.wait()
            stopping.set()
            coro.yield_slice()
            finish.set()
            thread.get(HANG)
        done = len(handled)
        assert done == (0 if early else 2)
        channel.close()
        assert client.channel().queue_declare("q", passive=True).message_count == 10 - done
        stopping.clear()
        other = client.channel().consume("q")
        thread = coro.spawn(other.run, lambda message: other.cancel(), until=stopping)
        thread.get(HANG)
        assert not any("until" in str(each.name) for each in coro.all_threads.values() if each is not coro.current())


@in_loop
def test_workers_acknowledge_after_success_and_reject_after_failure() -> None:
    with testing.Broker() as broker, open_client(broker) as client, client.channel() as channel:
        channel.queue_declare("dead")
        channel.queue_declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
        for i in range(20):
            channel.basic_publish(str(i), routing_key="q")
        consumer = channel.consume("q", prefetch=8)
        running, most, handled = 0, 0, []
        failed = []

        def handle(message) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            coro.yield_slice()
            running -= 1
            handled.append(int(message.body))
            if int(message.body) % 5 == 0:
                raise ValueError("not this one")
            if len(handled) == 20:
                coro.spawn(consumer.cancel)

        consumer.run(handle, workers=4, on_error=lambda message, exc: failed.append(int(message.body)))
        assert sorted(handled) == list(range(20)) and most == 4
        assert sorted(failed) == [0, 5, 10, 15]
        assert channel.queue_declare("dead", passive=True).message_count == 4
        assert channel.queue_declare("q", passive=True).message_count == 0


@in_loop
def test_the_broker_cancels_a_consumer() -> None:
    with testing.Broker() as broker, open_client(broker) as client:
        channel, other = client.channel(), client.channel()
        channel.queue_declare("q")
        told = []
        channel.on_cancel(told.append)
        consumer = channel.consume("q")
        other.queue_delete("q")
        with pytest.raises(amqp.AMQP_Consumer_Closed, match="cancelled"):
            consumer.get(HANG)
        assert told == [consumer] and not channel.consumers


@in_loop
def test_settling_twice_or_for_nothing_is_refused_here() -> None:
    with testing.Broker() as broker, open_client(broker) as client, client.channel() as channel:
        channel.queue_declare("q")
        for _ in range(5):
            channel.basic_publish(b"x", routing_key="q")
        consumer = channel.consume("q")
        messages = [consumer.get(HANG) for _ in range(4)]
        messages[0].ack()
        with pytest.raises(amqp.StateError, match="had one"):
            messages[0].ack()
        messages[2].ack(multiple=True)
        with pytest.raises(amqp.StateError, match="had one"):
            messages[1].nack()
        messages[3].reject(requeue=False)
        with pytest.raises(amqp.StateError):
            messages[3].reject()
        consumer.get(HANG).nack(requeue=False)
        message = channel.basic_get("q", no_ack=True)
        assert message is None
        channel.close()
        assert broker.statistics().acknowledged >= 3
        with pytest.raises(amqp.StaleDelivery):
            channel.basic_ack(1)


@in_loop
def test_transactions() -> None:
    with testing.Broker() as broker, open_client(broker) as client, client.channel() as channel:
        channel.queue_declare("q")
        channel.tx_select()
        with pytest.raises(amqp.StateError, match="transactions"):
            channel.confirm_select()
        channel.basic_publish(b"x", routing_key="q")
        assert channel.queue_declare("q", passive=True).message_count == 0
        channel.tx_rollback()
        channel.basic_publish(b"y", routing_key="q")
        channel.tx_commit()
        assert channel.basic_get("q").body == b"y"


@in_loop
def test_exchanges_bindings_and_deleting() -> None:
    with testing.Broker() as broker, open_client(broker) as client, client.channel() as channel:
        channel.exchange_declare("source", "topic")
        channel.exchange_declare("target", "fanout")
        channel.exchange_bind("target", "source", "a.*")
        channel.queue_declare("q")
        channel.queue_bind("q", "target")
        channel.basic_publish(b"1", "source", "a.b")
        channel.basic_publish(b"2", "source", "b.b")
        assert channel.queue_purge("q").message_count == 1
        channel.exchange_unbind("target", "source", "a.*")
        channel.queue_unbind("q", "target")
        channel.basic_publish(b"1", "source", "a.b")
        assert channel.queue_delete("q").message_count == 0
        channel.exchange_delete("source")
        channel.exchange_delete("target")
        topology = client._topology
        assert not topology.exchanges and not topology.queues and not topology.bindings


@in_loop
def test_a_channel_is_closed_while_others_wait_on_it() -> None:
    """After channel.close the broker's other answers are void; whoever waits for one is told so."""
    with testing.Broker() as broker, Gate(broker.port) as gate, amqp.client(port=gate.port, timeout=HANG) as client:
        channel, other = client.channel(), client.channel()
        other.queue_declare("q")
        gate.shut()
        errors = []

        def ask() -> None:
            try:
                channel.queue_declare("q")
            except amqp.StateError as exc:
                errors.append(str(exc))

        threads = [coro.spawn(ask) for _ in range(2)]
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.002, channel.basic_get, "q")
        closer = coro.spawn(channel.close)
        coro.yield_slice()
        gate.open()
        for thread in (*threads, closer):
            thread.join(HANG)
        assert len(errors) == 2 and "closed" in errors[0]
        other.queue_declare("q", passive=True)
        assert not client.closed and client.channel().num == 1


@in_loop
def test_callbacks_that_raise_do_not_end_the_connection() -> None:
    def fail(*args, **facts):
        raise RuntimeError("not now")

    with testing.Broker() as broker, open_client(broker, on_blocked=fail) as client, client.channel() as channel:
        client.add_listener(fail)
        channel.on_return(fail)
        channel.queue_declare("q")
        channel.basic_consume("q", no_ack=True, callback=fail)
        channel.confirm_select()
        channel.basic_publish(b"x", routing_key="q")
        with pytest.raises(amqp.PublishReturned):
            channel.basic_publish(b"x", routing_key="absent", mandatory=True)
        channel.queue_delete("q")
        client.remove_listener(fail)
        channel.remove_on_return(fail)
        assert not client.closed


@in_loop
def test_numbers_for_monitoring() -> None:
    with testing.Broker() as broker, open_client(broker, name="me") as client, client.channel() as channel:
        channel.queue_declare("q")
        channel.basic_publish(b"x", routing_key="q")
        channel.consume("q").get(HANG).ack()
        found = client.statistics()
        assert (found.connections, found.channels, found.consumers) == (1, 1, 1)
        assert (found.messages_in, found.messages_out, found.blocked) == (1, 1, False)
        assert found.bytes_in > 100 and found.bytes_out > 100
        assert "'me'" in repr(client) and "channel 1" in repr(channel)
        assert client.connected and not client.closed


def test_impossible_parameters() -> None:
    for wrong in (
        {"frame_max": 5},
        {"channel_max": 0},
        {"timeout": 0},
        {"mechanism": "GSSAPI"},
        {"hosts": []},
        {"hosts": ["a:b"]},
        {"host": "[::1"},
    ):
        with pytest.raises(ValueError, match="expected"):
            amqp.client(**wrong)
    with pytest.raises(TypeError, match="expected a host"):
        amqp.client(hosts=[5])
    for rule in ({"attempts": 0}, {"first": 5, "most": 1}, {"calls": "hope"}):
        with pytest.raises(ValueError, match="expected"):
            amqp.Recovery(**rule)


@pytest.mark.parametrize(
    ("url", "facts"),
    [
        ("amqp://h", {"host": "h", "port": 5672, "virtual_host": "/"}),
        ("amqp://u:p%40@h:1/a%2Fb", {"port": 1, "virtual_host": "a/b", "_auth": ("u", "p@")}),
        ("amqp://[::1]:7/", {"host": "::1", "port": 7, "virtual_host": "/"}),
        ("amqp://h?heartbeat=7&connection_timeout=1500&name=x", {"heartbeat": 7, "connect_timeout": 1.5, "name": "x"}),
        ("amqp://h/v?auth_mechanism=external&channel_max=9", {"mechanism": "EXTERNAL"}),
        # as Celery and kombu write them
        ("pyamqp://guest@localhost//", {"host": "localhost", "virtual_host": "/", "_auth": ("guest", "")}),
        ("amqp://h//", {"virtual_host": "/"}),
        ("amqp://h//team", {"virtual_host": "/team"}),
        ("amqp://h/a/b", {"virtual_host": "a/b"}),
        ("amqp://h/%2F", {"virtual_host": "/"}),
        ("amqps://h//?server_name_indication=broker.example", {"server_hostname": "broker.example", "port": 5671}),
    ],
)
def test_urls(url: str, facts: dict) -> None:
    client = amqp.client.from_url(url)
    assert {name: getattr(client, name) for name in facts} == facts
    assert amqp.client.from_url("amqp://h?frame_max=8192")._protocol_limits["frame_max"] == 8192


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "amqp://h:99999",
        "amqp://h?cacertfile=x",
        "amqps://h?verify=perhaps",
        "amqps://h?keyfile=x",
        "amqps://h?cacertfile=",
        "amqps://h?cacertfile=/not/there.pem",
        "amqps://h?certfile=/not/there.pem",
        "amqp://u:p#x@h;amqp://h",
        "amqp://h?colour=red",
        "amqp://h?heartbeat=-1",
        "amqp://u:p#x@h",
        "",
    ],
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        amqp.client.from_url(url)
    assert "p#x" not in str(caught.value)


def test_several_urls() -> None:
    client = amqp.client.from_url(["amqp://u:p@a", "amqp://u:p@b:1"])
    assert [str(each) for each in client._addresses] == ["a:5672", "b:1"]
    # one text, as kombu has it; a password may have a semicolon
    client = amqp.client.from_url("amqp://u:p;q@a//;pyamqp://u:p;q@b:1//;")
    assert [str(each) for each in client._addresses] == ["a:5672", "b:1"] and client._auth == ("u", "p;q")
    with pytest.raises(ValueError, match="differ in host and port only"):
        amqp.client.from_url(["amqp://u:p@a", "amqp://x:p@b"])
    with pytest.raises(ValueError, match="one URL"):
        amqp.client.from_url([])
    assert amqp.client.from_url("amqps://h").tls_ctx is not None


class Names:
    """A resolver that knows one name with several addresses."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    def resolve_all(self, name: str, family: int) -> list[str]:
        if family != coro.AF.INET:
            raise coro.NameError(f"no such address of {name}")
        return list(self.addresses) if name == "cluster.example" else [name]

    def resolve_ipv4(self, name: str) -> str:
        return self.resolve_all(name, coro.AF.INET)[0]

    def resolve_ipv6(self, name: str) -> str:
        return self.resolve_all(name, coro.AF.INET6)[0]


@in_loop
def test_one_name_with_several_addresses() -> None:
    """The first accepts and ends the connection, as a balancer before a node that is starting; the second is well."""
    asked = []

    def refuse() -> None:
        while True:
            conn, _ = listener.accept()
            asked.append(conn.recv(8))
            conn.close()

    with testing.Broker() as broker:
        listener = coro.tcp_sock()
        listener.bind(("127.0.0.2", broker.address[1]))
        listener.listen()
        thread = coro.spawn(refuse, daemon=True)
        before = coro.resolver.set_resolver(Names("127.0.0.2", "127.0.0.1"))
        try:
            with amqp.connect(f"amqp://cluster.example:{broker.address[1]}//", timeout=HANG) as client:
                assert asked == [b"AMQP\0\0\x09\x01"] and client.connected
            coro.resolver.set_resolver(Names("127.0.0.2"))
            with pytest.raises(amqp.ConnectionLost, match="is it an AMQP broker"):
                amqp.connect(f"amqp://cluster.example:{broker.address[1]}//", timeout=HANG)
        finally:
            coro.resolver.set_resolver(before)
            thread.shutdown()
            listener.close()


def test_connecting_without_a_loop_says_what_to_do() -> None:
    with pytest.raises(amqp.StateError, match=r"coro\.run\(function\)"):
        amqp.connect("amqp://127.0.0.1:1")


@pytest.mark.parametrize("step", ["start", "tune"])
@pytest.mark.parametrize(
    ("code", "kind"), [(320, amqp.ConnectionClosed), (403, amqp.AuthenticationError)], ids=["forced", "refused"]
)
@in_loop
def test_a_close_in_one_packet_with_a_step_of_the_login_says_why(step: str, code: int, kind: type) -> None:
    def script(broker: Scripted) -> None:
        broker.next()
        broker.protocol.send_method(0, spec.connection.start(server_properties={}))
        if step == "tune":
            broker.flush()
            broker.expect(spec.connection.start_ok)
            broker.protocol.send_method(0, spec.connection.tune(2047, 131072, 0))
        broker.protocol.send_method(0, spec.connection.close(code, "not now", 0, 0))
        broker.flush()
        broker.expect(spec.connection.close_ok)

    with Scripted(script, greet=False) as broker:
        with pytest.raises(kind, match="not now"):
            amqp.connect(f"amqp://127.0.0.1:{broker.port}", timeout=HANG)
        broker.thread.join(HANG)
        assert not broker.errors


@pytest.mark.parametrize("method", [spec.connection.blocked("full"), spec.connection.close(320, "not now", 0, 0)])
@in_loop
def test_what_comes_in_one_packet_with_the_end_of_the_login_is_seen(method) -> None:
    def script(broker: Scripted) -> None:
        broker.next()
        broker.say(0, spec.connection.start(server_properties={}))
        broker.expect(spec.connection.start_ok)
        broker.say(0, spec.connection.tune(2047, 131072, 0))
        broker.expect(spec.connection.tune_ok)
        broker.expect(spec.connection.open)
        broker.say(0, spec.connection.open_ok(), method)

    with Scripted(script, greet=False) as broker:
        client = amqp.connect(f"amqp://127.0.0.1:{broker.port}", timeout=HANG, close_timeout=0.05)
        while client.blocked is None and client.error is None:
            coro.sleep_relative(0.001)
        if client.error is not None:
            with pytest.raises(amqp.ConnectionClosed, match="not now"):
                client.channel()
        else:
            assert client.blocked == "full"
        client.close()
