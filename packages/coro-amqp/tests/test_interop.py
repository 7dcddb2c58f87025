"""Both ways with other people's clients, over RabbitMQ and the test broker: what one publishes the other reads.

pika, aio-pika and py-amqp in Python; amqp-publish and amqp-get of librabbitmq in C; amqplib in Node where it is there
(`npm install amqplib`, NODE_PATH).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import UTC, datetime

import pytest
import real_programs
from broker_support import PEERS, broker_fixture, new_name

import coro
from coro import amqp
from coro.testing import run_in_loop

pytestmark = pytest.mark.slow

broker = broker_fixture("stub", "rabbitmq")

#: What every client can express.
HEADERS = {"text": "grün", "number": 7, "long": 1 << 40, "yes": True, "list": [1, "two"], "nested": {"a": {"b": 1}}}
PROPERTIES = {
    "content-type": "application/json",
    "content-encoding": "utf-8",
    "delivery-mode": 2,
    "priority": 3,
    "correlation-id": "c-1",
    "reply-to": "answers",
    "expiration": "60000",
    "message-id": "m-1",
    "timestamp": datetime.fromtimestamp(1_700_000_000, UTC),
    "type": "event",
    "app-id": "tests",
}
BODIES = [b"", b"one", bytes(range(256)) * 1200]


def shown(properties):
    """As the peers print them: JSON."""
    return {
        name: int(value.timestamp()) if isinstance(value, datetime) else value for name, value in properties.items()
    }


def ours_to(broker, read):
    """Publish with our client; `read(queue)` returns lines of JSON with what another client got."""
    queue = new_name("interop")

    def main():
        with amqp.connect(f"amqp://guest:guest@127.0.0.1:{broker.port}") as connection:
            channel = connection.channel()
            channel.confirm_select()
            channel.queue_declare(queue, auto_delete=False)
            for body in BODIES:
                channel.basic_publish(body, routing_key=queue, properties={**PROPERTIES, "headers": HEADERS})
            lines = coro.in_thread(read, queue)
            channel.queue_delete(queue)
            return lines

    found = [json.loads(line) for line in run_in_loop(main)]
    assert [bytes.fromhex(each["body"]) for each in found] == BODIES
    for each in found:
        assert each["properties"] == {**shown(PROPERTIES), "headers": HEADERS}


def theirs_to_us(broker, write, expected=True):
    """`write(queue)` publishes BODIES with another client; we read them."""
    queue = new_name("interop")

    def main():
        with amqp.connect(f"amqp://guest:guest@127.0.0.1:{broker.port}") as connection:
            channel = connection.channel()
            channel.queue_declare(queue)
            coro.in_thread(write, queue)
            consumer = channel.consume(queue)
            found = [consumer.get(timeout=60) for _ in BODIES]
            channel.queue_delete(queue)
            return found

    found = run_in_loop(main)
    assert [message.body for message in found] == BODIES
    for message in found:
        if expected:
            assert shown(message.properties) == {**shown(PROPERTIES), "headers": HEADERS}


@pytest.mark.parametrize("library", ["pika", "aio_pika", "amqp"])
@pytest.mark.parametrize("way", ["read", "write"])
def test_python_clients(broker, library, way):
    real_programs.require_library(library)

    def run(queue):
        return real_programs.run_peer(PEERS / f"{library}_peer.py", broker.port, way, queue)

    ours_to(broker, run) if way == "read" else theirs_to_us(broker, run)


@pytest.mark.parametrize("way", ["read", "write"])
def test_node(broker, way):
    node = real_programs.find_program("node", "nodejs")
    found = subprocess.run([node, "-e", "require('amqplib')"], capture_output=True, env=node_environment())
    if found.returncode:
        real_programs.missing("needs amqplib for Node: npm install amqplib, and NODE_PATH", required=False)

    def run(queue):
        done = subprocess.run(
            [node, str(PEERS / "node_peer.js"), str(broker.port), way, queue],
            capture_output=True,
            text=True,
            timeout=120,
            env=node_environment(),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    ours_to(broker, run) if way == "read" else theirs_to_us(broker, run)


def node_environment():
    return {**os.environ, "NODE_PATH": os.environ.get("NODE_PATH", "/usr/share/nodejs:/usr/lib/node_modules")}


def tool(broker, name, *arguments, input=None):
    program = real_programs.find_program(name, "amqp-tools")
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}/%2f"
    done = subprocess.run([program, "--url", url, *arguments], input=input, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tools_of_librabbitmq(broker):
    if shutil.which("amqp-publish") is None:
        real_programs.find_program("amqp-publish", "amqp-tools")

    def write(queue):
        for body in BODIES:
            tool(broker, "amqp-publish", "-r", queue, "-p", "-C", "text/plain", input=body)

    theirs_to_us(broker, write, expected=False)

    def read(queue):
        found = [tool(broker, "amqp-get", "-q", queue) for _ in BODIES]
        return [
            json.dumps({"body": body.hex(), "properties": {**shown(PROPERTIES), "headers": HEADERS}}) for body in found
        ]

    ours_to(broker, read)
