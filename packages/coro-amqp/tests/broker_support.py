"""What tests share that run the same programs against several brokers: one fixture, `broker`, gives each in turn."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import time
from pathlib import Path

import pytest
import real_programs

HOST = "127.0.0.1"
PEERS = Path(__file__).parent / "peers"

_names = itertools.count(1)


def new_name(what: str) -> str:
    """A name that no other test has."""
    return f"{what}-{os.getpid()}-{next(_names)}"


class StubProgram(real_programs.Script):
    """The test broker in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        super().__init__(PEERS / "stub_broker.py", *arguments)

    def answers(self) -> bool:
        with socket.create_connection((HOST, self.port), 5) as sock:
            sock.sendall(b"AMQP\0\0\x09\x01")
            return sock.recv(1) == b"\1"


KINDS = {
    "stub": StubProgram,
    "rabbitmq": real_programs.RabbitMQ,
    "rabbitmq4": real_programs.RabbitMQ4,
    "garagemq": real_programs.GarageMQ,
}


def broker_fixture(*kinds):
    """A module's fixture `broker`: every test of it runs on each of these kinds."""
    marks = {
        "stub": [],
        "garagemq": [pytest.mark.slow],
        "rabbitmq": [pytest.mark.slow],
        "rabbitmq4": [pytest.mark.slow],
    }
    params = [pytest.param(kind, marks=marks[kind]) for kind in kinds]

    @pytest.fixture(scope="module", params=params)
    def broker(request):
        with KINDS[request.param]() as server:
            server.kind = request.param
            yield server

    return broker


def wait_until(condition, what: str, limit: float = 60) -> None:
    """Poll from outside a loop; `limit` only bounds a hang."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit} s: {what}"
        time.sleep(0.005)


@contextlib.contextmanager
def pika_connection(server, **more):
    """A blocking connection of pika's."""
    import pika

    parameters = pika.ConnectionParameters(HOST, server.port, **more)
    connection = pika.BlockingConnection(parameters)
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()
