"""Logging in to RabbitMQ over TLS: by password, and by the client's certificate (EXTERNAL)."""

from __future__ import annotations

import ssl

import pytest
import real_programs

import coro
from coro import amqp
from coro.testing import coro_test

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def broker():
    with real_programs.RabbitMQ(tls=True) as server:
        yield server


def connect(broker, certificate, **more):
    """By amqps://, with the client's certificate or without."""
    context = ssl.create_default_context(cafile=str(broker.certificate))
    if certificate:
        context.load_cert_chain(broker.client_certificate, broker.client_key)
    return amqp.connect(f"amqps://127.0.0.1:{broker.tls_port}/", tls_ctx=context, **{"timeout": 60, **more})


@coro_test(timeout=200)
def test_a_certificate_is_the_login(broker):
    coro.in_thread(broker.control, "add_user", "client", "a password that nobody uses")
    coro.in_thread(broker.control, "set_permissions", "client", ".*", ".*", ".*")
    with connect(broker, True, mechanism="EXTERNAL", recovery=amqp.Recovery(first=0.05, most=0.5)) as connection:
        recovered = coro.event()
        connection.add_listener(lambda event, **facts: event == "recovered" and recovered.set())
        channel = connection.channel()
        channel.confirm_select()
        queue = channel.queue_declare("", exclusive=True).queue
        # the broker takes nobody else's name for the sender of a message
        channel.basic_publish(b"x" * 500_000, routing_key=queue, properties={"user-id": "client"})
        assert len(channel.basic_get(queue, no_ack=True).body) == 500_000
        with pytest.raises(amqp.ChannelClosed, match="user_id"), connection.channel() as other:
            other.confirm_select()
            other.basic_publish(b"", routing_key=queue, properties={"user-id": "guest"})
        coro.in_thread(broker.control, "close_all_connections", "for a test")
        recovered.wait(60)
        assert channel.queue_declare("", exclusive=True).queue


@coro_test(timeout=200)
def test_what_is_no_login(broker):
    with pytest.raises(amqp.AuthenticationError, match="EXTERNAL"):
        # without TLS
        amqp.connect(f"amqp://127.0.0.1:{broker.port}/", mechanism="EXTERNAL", timeout=60)
    with pytest.raises(amqp.AuthenticationError):
        connect(broker, False, mechanism="EXTERNAL")


@coro_test(timeout=200)
@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
def test_a_password_over_tls(broker, mechanism):
    with connect(broker, False, mechanism=mechanism) as connection:
        assert connection.channel().queue_declare("", exclusive=True).queue
    with pytest.raises(amqp.AuthenticationError):
        connect(broker, False, mechanism=mechanism, auth=("guest", "wrong"))
