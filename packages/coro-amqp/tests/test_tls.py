"""AMQP over TLS: `tls_ctx`, amqps:// and what happens when the broker cannot prove who it is."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest
from client_support import HANG, in_loop
from real_programs import HOST, find_program

import coro
from coro import amqp
from coro.amqp import testing

pytestmark = pytest.mark.slow  # making a key takes a program of its own


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, signed by itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = [find_program("openssl", "openssl"), "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"]
    command += ["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=localhost"]
    command += ["-addext", f"subjectAltName=IP:{HOST}", "-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=HANG)
    return certificate, key


def contexts(certificate: tuple[Path, Path]) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server, and of a client that trusts it."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    return server, ssl.create_default_context(cafile=str(certificate[0]))


def test_messages_of_all_sizes_over_tls(certificate: tuple[Path, Path]) -> None:
    server, trusting = contexts(certificate)

    @in_loop
    def run() -> None:
        with (
            testing.Broker(tls_ctx=coro.tls.context(server)) as broker,
            amqp.connect(broker.url, tls_ctx=trusting, timeout=HANG) as client,
            client.channel() as channel,
        ):
            assert broker.url.startswith("amqps://")
            channel.queue_declare("q")
            channel.confirm_select()
            sizes = (0, 1, 5000, 131064, 500_000)
            for size in sizes:
                channel.publish(b"x" * size, routing_key="q")
            channel.wait_for_confirms()
            consumer = channel.consume("q")
            for size in sizes:
                message = consumer.get(HANG)
                assert len(message.body) == size
                message.ack()

    run()


def test_a_connection_over_tls_is_recovered(certificate: tuple[Path, Path]) -> None:
    server, trusting = contexts(certificate)

    @in_loop
    def run() -> None:
        rule = amqp.Recovery(first=0.01, most=0.05)
        with testing.Broker(tls_ctx=coro.tls.context(server)) as broker:
            with amqp.connect(broker.url, tls_ctx=trusting, timeout=HANG, recovery=rule) as client:
                again = coro.event()
                client.add_listener(lambda event, **facts: event == "recovered" and again.set())
                channel = client.channel()
                channel.queue_declare("q", durable=True)
                broker.cut_connections()
                again.wait(HANG)
                channel.queue_declare("q", passive=True)

    run()


def test_a_broker_that_nobody_vouches_for_is_refused(certificate: tuple[Path, Path]) -> None:
    server, trusting = contexts(certificate)

    @in_loop
    def run() -> None:
        with testing.Broker(tls_ctx=coro.tls.context(server)) as broker:
            # amqps:// alone trusts the system's certificates, and ours is not among them
            with pytest.raises(coro.tls.TLSError):
                amqp.connect(broker.url)
            with pytest.raises(coro.tls.TLSError):
                amqp.connect(broker.url, tls_ctx=trusting, server_hostname="elsewhere.example")

    run()


def test_urls_say_whom_to_trust(certificate: tuple[Path, Path]) -> None:
    server, _ = contexts(certificate)

    @in_loop
    def run() -> None:
        with testing.Broker(tls_ctx=coro.tls.context(server)) as broker:
            url = broker.url
            ours = f"cacertfile={certificate[0]}"
            cert = f"certfile={certificate[0]}&keyfile={certificate[1]}"
            for options in ours, f"{ours}&verify=verify_peer&{cert}", "verify=verify_none":
                with amqp.connect(f"{url}?{options}", timeout=HANG) as client:
                    assert client.connected
            with pytest.raises(coro.tls.TLSError):
                amqp.connect(f"{url}?{ours}&server_name_indication=elsewhere.example")
            for wrong in f"cacertfile={certificate[1]}", f"certfile={certificate[1]}":
                with pytest.raises(ValueError, match="file to be a file with certificates|certfile and keyfile to be"):
                    amqp.connect(f"{url}?{wrong}")

    run()
