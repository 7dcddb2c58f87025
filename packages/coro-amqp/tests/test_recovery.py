"""A lost connection comes back with all it had."""

from __future__ import annotations

import pytest
from client_support import HANG, Scripted, in_loop

import coro
from coro import amqp
from coro.amqp import spec, testing
from coro.amqp._broker.sessions import Session

QUICK = amqp.Recovery(first=0.005, most=0.02)


class Events:
    """What a client tells, to wait for."""

    def __init__(self, client: amqp.client) -> None:
        self.seen: list[tuple[str, dict]] = []
        self._more = coro.condition_variable()
        client.add_listener(self._note)

    def _note(self, event: str, **facts) -> None:
        self.seen.append((event, facts))
        self._more.wake_all()

    def wait(self, event: str, times: int = 1) -> dict:
        with coro.timeout(HANG):
            while sum(name == event for name, _ in self.seen) < times:
                self._more.wait()
        return [facts for name, facts in self.seen if name == event][times - 1]


def recovering(broker, **parameters):
    return amqp.connect(broker.url, **{"timeout": HANG, "recovery": QUICK, **parameters})


@in_loop
def test_channels_topology_and_consumers_come_back() -> None:
    with testing.Broker() as broker, recovering(broker) as client:
        events = Events(client)
        channel, other = client.channel(), client.channel()
        channel.exchange_declare("e", "topic")
        channel.exchange_declare("f", "fanout")
        channel.exchange_bind("f", "e", "a.#")
        channel.queue_declare("q", exclusive=True)
        named = channel.queue_declare(exclusive=True).queue
        channel.queue_bind("q", "f")
        channel.queue_bind(named, "e", "b")
        channel.exchange_declare("gone", "direct")
        channel.exchange_delete("gone")
        other.confirm_select()
        first, second = channel.consume("q", prefetch=7), channel.consume(named)
        broker.cut_connections()
        events.wait("recovered")
        renamed = [facts for name, facts in events.seen if name == "queue-renamed"]
        assert not renamed or renamed == [{"old": named, "new": second.queue}]
        other.basic_publish(b"1", "e", "a.x", mandatory=True)
        other.basic_publish(b"2", "e", "b", mandatory=True)
        assert first.get(HANG).body == b"1" and second.get(HANG).body == b"2"
        with pytest.raises(amqp.ChannelClosed, match="404"):
            client.channel().exchange_declare("gone", passive=True)
        assert client.statistics().connections == 2 and client.connected


@in_loop
def test_old_messages_are_never_acknowledged_on_a_new_connection() -> None:
    """https://github.com/mosquito/aio-pika/issues/312: their numbers mean other messages there."""
    with testing.Broker() as broker, recovering(broker) as client:
        events = Events(client)
        channel = client.channel()
        channel.queue_declare("q", durable=True)
        for i in range(3):
            channel.basic_publish(str(i), routing_key="q", properties={"delivery-mode": 2})
        consumer = channel.consume("q")
        old = [consumer.get(HANG) for _ in range(2)]
        broker.cut_connections()
        for call in (old[0].ack, lambda: channel.basic_ack(old[1].delivery_tag), old[1].reject):
            with coro.timeout(HANG):
                while not any(name == "lost" for name, _ in events.seen):
                    coro.sleep(0.001)
            with pytest.raises(amqp.StaleDelivery):
                call()
        events.wait("recovered")
        for call in (old[0].ack, lambda: channel.basic_nack(old[1].delivery_tag), lambda: old[1].ack(multiple=True)):
            with pytest.raises(amqp.StaleDelivery):
                call()
        again = [consumer.get(HANG) for _ in range(3)]
        assert [message.body for message in again] == [b"0", b"1", b"2"]
        assert min(message.delivery_tag for message in again) > max(message.delivery_tag for message in old)
        assert again[0].redelivered
        for message in again:
            message.ack()
        assert channel.queue_declare("q", passive=True).message_count == 0
        assert broker.statistics().acknowledged == 3


@in_loop
def test_publishes_without_an_answer_fail_or_go_again() -> None:
    with testing.Broker() as broker, recovering(broker) as client:
        events = Events(client)
        plain, again = client.channel(), client.channel()
        plain.queue_declare("q", durable=True)
        plain.confirm_select()
        again.confirm_select(republish=True)
        with broker.hold_confirms():
            lost = plain.publish(b"lost", routing_key="q", properties={"delivery-mode": 2})
            kept = [again.publish(str(i), routing_key="q", properties={"delivery-mode": 2}) for i in range(3)]
            client._link.flush()
            coro.yield_slice()
            broker.cut_connections()
            events.wait("lost")
            with pytest.raises(amqp.ConnectionLost):
                lost.wait()
        again.wait_for_confirms()
        assert all(each.delivered for each in kept)
        bodies = []
        while (message := again.basic_get("q", no_ack=True)) is not None:
            bodies.append(message.body)
        assert {b"0", b"1", b"2"} <= set(bodies)


@in_loop
def test_calls_meanwhile_wait_or_fail() -> None:
    with testing.Broker() as broker:
        waits = recovering(broker)
        fails = recovering(broker, recovery=amqp.Recovery(first=0.005, most=0.02, calls="fail"))
        impatient = recovering(broker)
        for client in (waits, fails, impatient):
            client.events = Events(client)
            client.held = client.channel()
        impatient.timeout = 0.02
        broker.stop(crash=True)
        for client in (waits, fails, impatient):
            client.events.wait("recovery-failed")
        with pytest.raises(amqp.ConnectionLost, match="being recovered"):
            fails.held.queue_declare("q")
        with pytest.raises(amqp.AMQPTimeout, match="recovered within"):
            impatient.held.basic_publish(b"x")
        thread = coro.spawn(waits.held.queue_declare, "q")
        coro.yield_slice()
        broker.start()
        assert thread.get(HANG).queue == "q"
        for client in (waits, fails, impatient):
            client.close()


@in_loop
def test_recovery_gives_up_after_its_attempts() -> None:
    with testing.Broker() as broker:
        client = recovering(broker, recovery=amqp.Recovery(attempts=2, first=0.001, most=0.001))
        events = Events(client)
        channel = client.channel()
        channel.queue_declare("q")
        consumer = channel.consume("q")
        broker.stop(crash=True)
        error = events.wait("closed")["error"]
        assert isinstance(error, amqp.ConnectionLost) and "2 attempts" in str(error)
        assert isinstance(error.__cause__, OSError)
        with pytest.raises(amqp.AMQP_Consumer_Closed, match="2 attempts"):
            consumer.get(HANG)
        with pytest.raises(amqp.ConnectionLost):
            channel.queue_declare("q")


@in_loop
def test_another_host_takes_over() -> None:
    with testing.Broker() as first, testing.Broker() as second:
        client = amqp.connect([first.url, second.url], timeout=HANG, recovery=QUICK)
        events = Events(client)
        channel = client.channel()
        channel.queue_declare("q")
        consumer = channel.consume("q")
        first.stop(crash=True)
        events.wait("recovered")
        assert "q" in second.queues
        channel.basic_publish(b"x", routing_key="q")
        assert consumer.get(HANG).body == b"x"
        client.close()


def object_to_all(broker: testing.Broker) -> None:
    """The broker ends every connection as RabbitMQ does when a process of its own has failed."""
    for session in broker.sessions:
        session.close(541, "INTERNAL_ERROR")


@in_loop
def test_a_host_that_fails_after_each_recovery_is_left_and_spared() -> None:
    with testing.Broker() as first, testing.Broker() as second:
        rule = amqp.Recovery(first=0.001, most=1000)  # all that happens here is soon after a recovery
        client = amqp.connect([first.url, second.url], timeout=HANG, recovery=rule)
        events = Events(client)
        channel = client.channel()
        for number, (failing, next_one) in enumerate([(first, first), (first, second), (second, first)], 1):
            object_to_all(failing)
            # the attempts of recoveries that have not helped are counted on, and so the pauses grow
            assert events.wait("recovered", number)["attempt"] == number
            channel.queue_declare(f"q{number}")
            assert f"q{number}" in next_one.queues
        # a network that breaks is another matter: it begins anew
        first.cut_connections()
        assert events.wait("recovered", 4)["attempt"] == 1
        client.close()


@in_loop
def test_recoveries_that_do_not_help_are_attempts() -> None:
    with testing.Broker() as broker:
        client = recovering(broker, recovery=amqp.Recovery(attempts=2, first=0.001, most=1000))
        events = Events(client)
        for number in (1, 2):
            object_to_all(broker)
            events.wait("recovered", number)
        object_to_all(broker)
        error = events.wait("closed")["error"]
        assert "2 attempts" in str(error) and "541" in str(error), error


@in_loop
def test_what_one_host_refuses_to_restore_another_may() -> None:
    """A consumer that ends each connection to the first host, while it is being restored."""

    def refuse(broker: Scripted) -> None:
        broker.open_channel()
        broker.expect(spec.basic.consume)
        broker.say(1, spec.basic.consume_ok("tag"))
        broker.listener.close()
        broker.conn.close()

    def refuse_again(broker: Scripted) -> None:
        broker.open_channel()
        broker.expect(spec.basic.consume)
        broker.say(0, spec.connection.close(541, "INTERNAL_ERROR", 60, 20))

    with Scripted(refuse) as gone, Scripted(refuse_again) as ill, testing.Broker() as well:
        world = amqp.connect(well.url)
        world.channel().queue_declare("q")
        hosts = [f"amqp://127.0.0.1:{port}" for port in (gone.port, ill.port, well.address[1])]
        client = amqp.connect(hosts, timeout=HANG, recovery=QUICK)
        events = Events(client)
        consumer = client.channel().basic_consume("q", "tag")
        events.wait("recovered")
        assert [name for name, _ in events.seen] == ["lost", "lost", "recovery-failed", "recovered"]
        well.publish(b"x", routing_key="q")
        assert consumer.get(HANG).body == b"x"
        client.close()
        world.close()


@in_loop
def test_a_transaction_that_was_cut_is_not_committed() -> None:
    with testing.Broker() as broker, recovering(broker) as client:
        events = Events(client)
        channel = client.channel()
        channel.queue_declare("q", durable=True)
        channel.tx_select()
        channel.basic_publish(b"half", routing_key="q")
        broker.cut_connections()
        events.wait("recovered")
        with pytest.raises(amqp.ConnectionLost, match="within this transaction"):
            channel.tx_commit()
        channel.basic_publish(b"whole", routing_key="q")
        channel.tx_commit()
        assert channel.basic_get("q").body == b"whole"


@in_loop
def test_a_refused_login_ends_recovery_unless_credentials_are_asked_for() -> None:
    with testing.Broker() as broker:
        client = recovering(broker)
        events = Events(client)
        tokens = iter(["guest", "expired", "fresh", "fresh"])
        renewing = recovering(broker, credentials=lambda: ("guest", next(tokens)))
        renewed = Events(renewing)
        broker.users["guest"] = "fresh"
        broker.cut_connections()
        assert isinstance(events.wait("closed")["error"], amqp.AuthenticationError)
        renewed.wait("recovered")
        renewing.close()


@in_loop
def test_what_cannot_be_declared_again_is_told() -> None:
    with testing.Broker() as broker, recovering(broker) as client:
        events = Events(client)
        channel = client.channel()
        channel.queue_declare("q", durable=True)
        channel.queue_declare("r", durable=True)
        with amqp.connect(broker.url, timeout=HANG) as another, another.channel() as its:
            its.queue_delete("q")
            its.queue_declare("q")
        broker.cut_connections()
        facts = events.wait("topology-failed")
        assert facts["method"].queue == "q" and facts["error"].reply_code == 406
        events.wait("recovered")
        channel.queue_declare("r", passive=True)


def test_a_loop_that_ends_with_a_connection_open_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """The reader is told to end, and must not start a recovery in a loop that takes no more threads."""
    kept = []

    def main() -> None:
        broker = testing.Broker().__enter__()
        kept.extend([broker, recovering(broker)])

    coro.run(main)
    assert kept[1].closed
    assert "Traceback" not in capfd.readouterr().err


def recovery_threads() -> list[str]:
    return [str(thread.name) for thread in coro.all_threads.values() if "amqp recovery" in str(thread.name)]


@in_loop
def test_closing_ends_a_recovery_that_waits_for_the_login() -> None:
    with testing.Broker() as broker:
        client = recovering(broker)
        client.channel().queue_declare("q")
        broker.silent = True
        (old,) = broker.sessions
        old.cut()
        with coro.timeout(HANG):
            while not any(each is not old and each.protocol.bytes_in for each in broker.sessions):
                coro.yield_slice()
        assert recovery_threads()
        client.close()
        with coro.timeout(HANG / 2):
            while recovery_threads() or broker.sessions:
                coro.sleep_relative(0.001)
        assert client.closed and client.error is None


@in_loop
@pytest.mark.parametrize("channels", [1, 2])
def test_closing_ends_a_recovery_that_declares_anew(monkeypatch, channels: int) -> None:
    """Its waits are on the channels of the program, then on one that only recovery has."""
    with testing.Broker() as broker:
        client = recovering(broker, close_timeout=0.01)
        client.channel().queue_declare("q", durable=True)
        (old,) = broker.sessions
        old.cut()
        flush = Session._flush
        monkeypatch.setattr(Session, "_flush", lambda self: flush(self) if len(self.channels) < channels else None)
        with coro.timeout(HANG):
            while not any(each is not old and len(each.channels) == channels for each in broker.sessions):
                coro.yield_slice()
        assert recovery_threads()
        client.close()
        with coro.timeout(HANG / 2):
            while recovery_threads() or broker.sessions:
                coro.sleep_relative(0.001)
        assert client.closed and client.error is None


@in_loop
def test_closing_as_recovery_gets_its_connection_leaves_none(monkeypatch) -> None:
    with testing.Broker() as broker:
        client = recovering(broker)
        client.channel()
        connect = client._connect

        def late():
            link = connect()
            client.close()
            return link

        monkeypatch.setattr(client, "_connect", late)
        broker.cut_connections()
        with coro.timeout(HANG / 2):
            while recovery_threads() or broker.sessions or not client.closed:
                coro.sleep_relative(0.001)
        assert client.error is None
