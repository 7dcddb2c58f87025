"""What a hostile broker may do to a client, over a real connection: it ends with one typed error for everybody."""

from __future__ import annotations

import pytest
from client_support import HANG, Scripted, in_loop
from protocol_support import delivery, frame, header

import coro
from coro import amqp
from coro.amqp import spec

NESTED = b"\0\0\0\0"
for _ in range(600):
    NESTED = (len(NESTED) + 3).to_bytes(4, "big") + b"\1aF" + NESTED

#: What comes instead of an answer to queue.declare.
ATTACKS = {
    "a body above the limit": delivery() + header(2 << 20),
    "a body longer than announced": delivery() + header(2) + frame(3, 1, b"xyz"),
    "a frame above the limit": b"\1\0\1" + (1 << 30).to_bytes(4, "big"),
    "tables within tables": frame(1, 1, b"\0\x28\0\x0a\0\0\1e\6direct\0" + NESTED),
    "a frame without its end": frame(1, 1, spec.queue.declare_ok("q", 0, 0).pack(), end=0),
    "an answer to nothing": frame(1, 1, spec.queue.purge_ok(5).pack()),
    "a confirmation of nothing": frame(1, 1, spec.basic.ack(1).pack()),
    "a method of a client": frame(1, 1, spec.queue.declare(0, "q").pack()),
    "another channel": frame(1, 99, spec.queue.declare_ok("q", 0, 0).pack()),
    "channel 0": frame(1, 0, spec.queue.declare_ok("q", 0, 0).pack()),
    "an unknown method": frame(1, 1, b"\xff\xff\xff\xff"),
    "another start": frame(1, 0, spec.connection.start(server_properties={}).pack()),
    "a cut string": frame(1, 1, b"\0\x32\0\x0b\xffq"),
    "no AMQP at all": b"HTTP/1.1 200 OK\r\n\r\n",
}


@pytest.mark.parametrize("name", ATTACKS)
@in_loop
def test_the_client_ends_with_a_protocol_error(name: str) -> None:
    complaint = []

    def script(broker) -> None:
        broker.open_channel()
        broker.open_channel(2)
        broker.expect(spec.queue.declare)
        broker.conn.send(ATTACKS[name])
        complaint.append(broker.expect(spec.connection.close))

    with Scripted(script) as broker:
        client = amqp.client(port=broker.port, timeout=HANG, max_body=1 << 20)
        client.go()
        channel, other = client.channel(), client.channel()
        errors = []

        def wait() -> None:
            try:
                other.basic_get("q")
            except amqp.AMQPError as exc:
                errors.append(exc)

        bystander = coro.spawn(wait)
        with pytest.raises(amqp.ProtocolError) as caught:
            channel.queue_declare("q")
        bystander.join(HANG)
        assert client.closed and type(client.error) is type(caught.value)
        assert [type(error) for error in errors] == [type(caught.value)]
        broker.thread.join(HANG) if complaint else None
        assert not complaint or complaint[0].reply_code == caught.value.reply_code


@in_loop
def test_a_broker_that_announces_much_and_sends_little() -> None:
    """The message never becomes complete; it costs what has come, and a deadline ends the wait."""

    def script(broker) -> None:
        broker.open_channel()
        broker.expect(spec.basic.get)
        broker.conn.send(frame(1, 1, spec.basic.get_ok(1, False, "", "q", 0).pack()) + header(1 << 20))
        broker.conn.send(frame(3, 1, b"x"))

    with Scripted(script) as broker:
        client = amqp.client(port=broker.port, timeout=HANG, close_timeout=0.05)
        client.go()
        channel = client.channel()
        client.timeout = 0.05
        with pytest.raises(amqp.AMQPTimeout, match="basic.get"):
            channel.basic_get("q")
        client.close()


@in_loop
def test_secrets_stay_out_of_texts() -> None:
    client = amqp.client(("user", "s3cr3t"), port=1)
    with pytest.raises(OSError) as caught:
        client.go()
    for text in (repr(client), str(caught.value), repr(spec.connection.update_secret(b"s3cr3t", ""))):
        assert "s3cr3t" not in text
