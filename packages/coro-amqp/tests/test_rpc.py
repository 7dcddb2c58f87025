"""coro.amqp.rpc: who gets which reply, and what happens when there is none. On the test broker, and on RabbitMQ."""

from __future__ import annotations

import pytest
from broker_support import PEERS, broker_fixture, new_name
from real_programs import run_peer

import coro
from coro import amqp
from coro.amqp import rpc, testing
from coro.testing import coro_test, run_in_loop

broker = broker_fixture("stub", "rabbitmq")


def url(broker):
    return f"amqp://guest:guest@127.0.0.1:{broker.port}"


def in_loop(test):
    """A test in a loop, with a connection to each of the brokers."""

    def run(broker):
        def main():
            with amqp.connect(url(broker), timeout=30) as connection:
                test(connection)

        run_in_loop(main)

    run.__name__ = test.__name__
    return run


def serve(connection, **more):
    """A server on a new queue; both."""
    channel = connection.channel()
    queue = channel.queue_declare(new_name("rpc"), auto_delete=True).queue
    return queue, rpc.server(channel, queue, **more)


def outcome(function, *args, **more):
    """What a call raises, or None: for a thread whose failure is expected."""
    try:
        function(*args, **more)
    except amqp.AMQPError as error:
        return error
    return None


def twice(message):
    return str(int(message.body) * 2)


@pytest.mark.parametrize("replies", ["", rpc.DIRECT])
def test_each_of_many_callers_gets_its_own_reply(broker, replies):
    @in_loop
    def body(connection):
        queue, server = serve(connection, handler=twice, workers=5)
        with server, rpc.client(connection.channel(), replies) as caller:
            numbers = range(200)
            found = coro.parallel_map(lambda n: int(caller.request(str(n), queue).body), numbers)
            assert list(found) == [2 * n for n in numbers]
            assert caller.statistics() == (0, 200, 200, 0, 0)
            if not replies:
                assert caller.queue.startswith("amq.gen-")

    body(broker)


def test_the_classic_form(broker):
    class Doubling(rpc.server):
        def handle_request(self, properties, request):
            return {"content-type": properties["content-type"]}, request * 2

    @in_loop
    def body(connection):
        channel = connection.channel()
        queue = channel.queue_declare(new_name("rpc"), auto_delete=True).queue
        server = Doubling(channel, queue, "")
        caller = rpc.client(connection.channel(), uuid_fun=iter(["first", "second"]).__next__)
        asked = {"content-type": "text/x-test"}
        frame, properties, reply = caller.call(asked, b"ab", "", queue)
        assert (frame._name, properties["correlation-id"], reply) == ("basic.deliver", "first", b"abab")
        assert properties["content-type"] == "text/x-test" and asked == {"content-type": "text/x-test"}
        caller.cancel()
        server.cancel()
        caller.cancel()
        with pytest.raises(amqp.StateError):
            caller.call({}, b"", "", queue)

    body(broker)


def test_no_more_are_handled_at_once_than_there_are_workers(broker):
    @in_loop
    def body(connection):
        most, now, full, go_on = 0, 0, coro.event(), coro.event()

        def handler(message):
            nonlocal most, now
            now += 1
            most = max(most, now)
            if now == 3:
                full.set()
            go_on.wait()
            now -= 1
            return message.body

        queue, server = serve(connection, handler=handler, workers=3)
        with server, rpc.client(connection.channel()) as caller:
            threads = [coro.spawn(caller.request, b"%d" % n, queue) for n in range(10)]
            full.wait()
            assert server.statistics().active == 3
            go_on.set()
            assert [t.get().body for t in threads] == [b"%d" % n for n in range(10)]
            assert most == 3

    body(broker)


def test_failures_travel_and_the_server_goes_on(broker):
    class Unsayable(Exception):
        pass

    def handler(message):
        if message.body == b"polite":
            raise rpc.RPCError("no such customer")
        if message.body == b"rude":
            raise Unsayable("the password is 1234")
        if message.body == b"odd":
            return object()
        return b"well"

    @in_loop
    def body(connection):
        queue, server = serve(connection, handler=handler)
        with server, rpc.client(connection.channel()) as caller:
            with pytest.raises(rpc.RPCFailed) as caught:
                caller.request(b"polite", queue)
            assert (caught.value.kind, caught.value.text) == ("RPCError", "no such customer")
            with pytest.raises(rpc.RPCFailed) as caught:
                caller.request(b"rude", queue)
            assert (caught.value.kind, caught.value.text) == ("Unsayable", "")
            with pytest.raises(rpc.RPCFailed) as caught:
                caller.request(b"odd", queue)
            assert caught.value.kind == "EncodeError"
            assert caller.request(b"good", queue).body == b"well"
            assert server.statistics() == (0, 4, 3, 0, 0)

    body(broker)


def test_a_call_times_out_alone_and_its_late_reply_is_dropped(broker):
    @in_loop
    def body(connection):
        late, answered = coro.event(), coro.event()

        def handler(message):
            if message.body == b"slow":
                late.wait()
            return message.body

        queue, server = serve(connection, handler=handler, time_limit=60)
        with server, rpc.client(connection.channel()) as caller:
            with pytest.raises(rpc.RPCTimeout, match="expected a reply .* within 0.05 s, none came"):
                caller.request(b"slow", queue, timeout=0.05)
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.05, caller.request, b"slow", queue)
            late.set()
            assert caller.request(b"fast", queue).body == b"fast"
            while caller.statistics().late < 2:
                coro.sleep_relative(0.001)
            assert caller.statistics()[:3] == (0, 3, 1)
            answered.set()

    body(broker)


def test_a_handler_works_no_longer_than_its_caller_waits(broker):
    @in_loop
    def body(connection):
        ended = []

        def handler(message):
            try:
                coro.event().wait()
            finally:
                ended.append(message.body)

        queue, server = serve(connection, handler=handler)
        with server, rpc.client(connection.channel()) as caller:
            with pytest.raises((rpc.RPCTimeout, rpc.RPCFailed)):
                caller.request(b"for ever", queue, timeout=0.1)
            while server.statistics().active:
                coro.sleep_relative(0.001)
            assert ended == [b"for ever"]

    body(broker)


def test_a_request_that_nobody_can_get_comes_back(broker):
    @in_loop
    def body(connection):
        with rpc.client(connection.channel()) as caller:
            with pytest.raises(rpc.RPCUnroutable, match="312 NO_ROUTE"):
                caller.request(b"", new_name("no-such-queue"))

    body(broker)


def test_all_callers_learn_that_there_will_be_no_reply(broker):
    @in_loop
    def body(connection):
        queue = connection.channel().queue_declare(new_name("rpc"), auto_delete=False, exclusive=True).queue
        caller = rpc.client(connection.channel())
        threads = [coro.spawn(outcome, caller.request, b"", queue, timeout=60) for _ in range(10)]
        while caller.statistics().waiting < 10:
            coro.sleep_relative(0.001)
        # Somebody deletes the queue of the replies.
        with connection.channel() as other:
            other.queue_delete(caller.queue)
        for thread in threads:
            error = thread.get()
            assert isinstance(error, rpc.RPC_Client_Error) and "the consumer of the replies has ended" in str(error)
        with pytest.raises(rpc.RPC_Client_Error, match="has ended"):
            caller.request(b"", queue)
        caller.cancel()

    body(broker)


@pytest.mark.slow
def test_our_server_for_pikas_client(broker):
    def main():
        with amqp.connect(url(broker)) as connection:
            queue, server = serve(connection, handler=twice)
            with server:
                return coro.in_thread(run_peer, PEERS / "pika_rpc_client.py", broker.port, queue)

    assert run_in_loop(main) == [str(2 * n) for n in range(20)]


@pytest.mark.slow
def test_our_client_for_pikas_server(broker):
    def main():
        with amqp.connect(url(broker)) as connection:
            channel = connection.channel()
            queue = channel.queue_declare(new_name("rpc"), auto_delete=False).queue
            peer = coro.spawn(coro.in_thread, run_peer, PEERS / "pika_rpc_server.py", broker.port, queue, 20)
            with rpc.client(connection.channel(), timeout=60) as caller:
                found = [int(caller.request(str(n), queue).body) for n in range(20)]
            peer.get()
            channel.queue_delete(queue)
            return found

    assert run_in_loop(main) == [2 * n for n in range(20)]


# -- on the test broker alone, which can be told to misbehave


@coro_test
def test_a_lost_connection_ends_every_call():
    with testing.Broker() as broker:
        connection = amqp.connect(broker.url)
        connection.channel().queue_declare("rpc")
        caller = rpc.client(connection.channel())
        threads = [coro.spawn(outcome, caller.request, b"", "rpc", timeout=60) for _ in range(5)]
        while len(broker.queues["rpc"]) < 5:
            coro.sleep_relative(0.001)
        broker.cut_connections()
        for thread in threads:
            error = thread.get()
            assert isinstance(error, rpc.RPC_Client_Error) and isinstance(error.__cause__, amqp.ConnectionLost)
        connection.close()


@coro_test
def test_calls_go_on_after_a_recovery():
    with testing.Broker() as broker:
        recovery = amqp.Recovery(first=0.01, most=0.05)
        with (
            amqp.connect(broker.url, recovery=recovery) as connection,
            amqp.connect(broker.url, recovery=recovery) as other,
        ):
            other.channel().queue_declare("rpc")
            server = rpc.server(other.channel(), "rpc", handler=twice)
            caller = rpc.client(connection.channel())
            assert caller.request("1", "rpc").body == b"2"
            broker.cut_connections()
            replies = None
            while replies is None:
                try:
                    replies = caller.request("2", "rpc", timeout=5)
                except (amqp.AMQPError, coro.TimeoutError):
                    coro.sleep_relative(0.01)
            assert replies.body == b"4"
            caller.cancel()
            server.cancel()


@coro_test
def test_a_request_that_a_server_dies_of_goes_to_another():
    with testing.Broker() as broker, amqp.connect(broker.url) as connection:
        connection.channel().queue_declare("rpc")
        first = amqp.connect(broker.url)
        taken = coro.event()

        def dies(message):
            taken.set()
            coro.event().wait()

        doomed = rpc.server(first.channel(), "rpc", handler=dies)
        with rpc.client(connection.channel()) as caller:
            thread = coro.spawn(caller.request, "4", "rpc", timeout=60)
            taken.wait()
            for session in broker.sessions:
                if any(
                    consumer.queue.name == "rpc" for c in session.channels.values() for consumer in c.consumers.values()
                ):
                    session.cut()
            with rpc.server(connection.channel(), "rpc", handler=twice):
                assert thread.get().body == b"8"
        doomed.cancel(0)
        first.close()


@coro_test
def test_calls_are_interrupted_wherever_they_wait():
    """For their turn, for a broker that takes nothing, for the reply: each leaves the others and the client as they
    were."""
    with testing.Broker() as broker, amqp.connect(broker.url) as connection:
        connection.channel().queue_declare("rpc")
        caller = rpc.client(connection.channel(), limit=1)
        waiting = coro.spawn(caller.request, "1", "rpc", timeout=60)
        while not len(broker.queues["rpc"]):
            coro.sleep_relative(0.001)
        for _ in range(10):
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.002, caller.request, "2", "rpc")
            with pytest.raises(rpc.RPCTimeout):
                caller.request("2", "rpc", timeout=0.002)
        broker.block("test")
        other = rpc.client(connection.channel())
        # The broker takes the first, and blocks its sender.
        for _ in range(3):
            with pytest.raises(coro.TimeoutError):
                coro.with_timeout(0.02, other.request, "3", "rpc")
        assert connection.blocked == "test"
        broker.unblock()
        with rpc.server(connection.channel(), "rpc", handler=twice):
            assert waiting.get().body == b"2"
            assert caller.request("5", "rpc").body == b"10"
        assert caller.statistics().waiting == other.statistics().waiting == 0
        caller.cancel()
        other.cancel()


@coro_test
def test_a_client_that_has_ended_leaves_nothing_on_its_channel():
    """Callbacks of clients that come and go on one channel would be called, and keep them in memory, for ever."""
    with testing.Broker() as broker, amqp.connect(broker.url, timeout=30) as connection:
        channel = connection.channel()
        queue, server = serve(connection, handler=twice)
        for _ in range(3):
            with rpc.client(channel) as caller:
                assert caller.request(b"1", queue).body == b"2"
            caller.cancel()
        assert not channel._on_return and not channel.consumers and not connection._listeners
        server.cancel()


def test_a_call_that_is_interrupted_is_taken_back(broker):
    """The handler is interrupted; a request that is still in the queue is dropped; others go on."""
    started, ended = [], []

    def handler(message):
        started.append(message.body)
        try:
            if message.body == b"slow":
                coro.sleep(1000)
            return message.body
        finally:
            ended.append(message.body)

    @in_loop
    def body(connection):
        cancels = new_name("cancels")
        queue, server = serve(connection, handler=handler, workers=1, cancels=cancels)
        _, idle = serve(connection, handler=handler, cancels=cancels)
        with server, idle, rpc.client(connection.channel(), cancels=cancels, timeout=60) as caller:
            slow = coro.spawn(outcome, caller.request, b"slow", queue)
            while not started:
                coro.sleep(0.001)
            waits = coro.spawn(outcome, caller.request, b"waits", queue)
            patient = coro.spawn(caller.request, b"patient", queue)
            while caller.statistics().waiting < 3:
                coro.sleep(0.001)
            waits.shutdown()  # it is in the queue
            while not server._taken_back:
                coro.sleep(0.001)
            slow.shutdown()
            assert patient.get().body == b"patient"
            assert started == ended == [b"slow", b"patient"]
            assert server.statistics().cancelled == 2 and server.statistics().answered == 1
            assert not server._handling and not server._taken_back
            # Somebody else's request is not known here, and forgotten in time.
            assert idle.statistics().cancelled == 0 and len(idle._taken_back) == 2
            with pytest.raises(rpc.RPCTimeout):
                caller.request(b"slow", queue, timeout=0.05)
            assert caller.request(b"after", queue).body == b"after"
        connection.channel().exchange_delete(cancels)

    body(broker)


@coro_test
def test_one_way_requests_and_damaged_ones_hurt_nobody():
    with testing.Broker() as broker, amqp.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("rpc")
        seen = []
        with rpc.server(connection.channel(), "rpc", handler=lambda m: seen.append(m.body)) as server:
            channel.basic_publish(b"one way", routing_key="rpc")
            with rpc.client(connection.channel()) as caller:
                # A reply to nobody's request, and one without any properties.
                channel.basic_publish(b"", routing_key=caller.queue, properties={"correlation-id": "unknown"})
                channel.basic_publish(b"", routing_key=caller.queue)
                assert caller.request(b"two way", "rpc").body == b""
                assert caller.statistics().late == 2
        assert seen == [b"one way", b"two way"] and server.statistics().one_way == 1
