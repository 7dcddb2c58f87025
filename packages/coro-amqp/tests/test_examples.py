"""The programs in docs/examples/amqp: against the test broker and RabbitMQ; the one about jobs against a cluster."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
import real_programs
from broker_support import broker_fixture

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples" / "amqp"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

broker = broker_fixture("stub", "rabbitmq")


def url(broker):
    return f"amqp://guest:guest@127.0.0.1:{broker.port}/%2f"


def run(name, *arguments, limit=300):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)], capture_output=True, text=True, timeout=limit
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@contextlib.contextmanager
def running(name, *arguments):
    """A program that runs until it ends, or the block does; it has said that it is ready."""
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() in ("waiting\n", "working\n")
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.parametrize("publisher", ["publish.py", "publish_confirmed.py", "publish_pika.py"])
def test_publishers_and_the_receiver(broker, publisher):
    words = {"publish.py": "message", "publish_confirmed.py": "confirmed", "publish_pika.py": "from pika"}[publisher]
    if publisher == "publish_pika.py":
        real_programs.require_library("pika")
    with running("receive.py", url(broker), 3) as receiver:
        run(publisher, url(broker))
        found, _ = receiver.communicate(timeout=60)
    assert found.splitlines() == [f"{words} {n}" for n in range(3)]


def test_rpc(broker):
    with running("rpc_server.py", url(broker)):
        assert run("rpc_client.py", url(broker)) == ["0 1 1 2 3 5 8 13 21 34"]


def urls(cluster):
    return [f"amqp://guest:guest@{host}:{port}/%2f" for host, port in cluster.addresses]


def test_no_job_is_lost_when_a_node_stops(cluster):
    """Two workers, and one node after the other is stopped and started again while the jobs are being done: the one
    that leads the queue is among them."""
    with (
        running("cluster_jobs.py", "worker", *urls(cluster)),
        running("cluster_jobs.py", "worker", *reversed(urls(cluster))),
    ):
        submitter = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "cluster_jobs.py"), "submit", *urls(cluster), "--jobs", "1500"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            stops = 0
            lines = []
            for line in submitter.stderr:
                lines.append(line)
                if line.startswith(("300 of", "700 of")):
                    node = cluster.nodes[stops]
                    node.stop() if stops == 0 else node.kill()
                    node.start()
                    stops += 1
            out = submitter.stdout.read()
            assert submitter.wait(timeout=300) == 0, "".join(lines)
        finally:
            submitter.kill()
            submitter.communicate()
    assert stops == 2 and out == "1500 jobs done, all right\n"


def test_more_workers_take_part(cluster):
    """How much faster they are depends on the machine; what is shown is that all of them work."""
    lines = run("cluster_jobs.py", "measure", *urls(cluster), "--jobs", 200, "--workers", 1, 2, 4, "--wait", 0.1)
    assert [line.partition(":")[0] for line in lines] == [f"{n} worker processes" for n in (1, 2, 4)]
    for line, number in zip(lines, (1, 2, 4), strict=True):
        assert line.endswith(f"{number} of them took part"), line
