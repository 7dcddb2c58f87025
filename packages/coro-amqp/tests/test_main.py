"""The command line, as a user types it, against the test broker."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from broker_support import StubProgram, new_name

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker():
    with StubProgram() as server:
        yield server


def run(broker, *arguments, input=b"", status=0):
    """Standard output and the text of standard error."""
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}"
    done = subprocess.run(
        [sys.executable, "-m", "coro.amqp", "--url", url, *map(str, arguments)],
        input=input,
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == status, done.stderr.decode()
    return done.stdout, done.stderr.decode()


def definitions(tmp_path, queue):
    path = tmp_path / "definitions.json"
    facts = {
        "exchanges": [{"name": f"{queue}-events", "type": "topic"}],
        "queues": [{"name": queue, "durable": True, "arguments": {"x-max-length": 10}}],
        "bindings": [{"source": f"{queue}-events", "destination": queue, "routing_key": "#.made"}],
    }
    path.write_text(json.dumps(facts))
    return path


def test_declare_publish_look_and_consume(broker, tmp_path):
    queue = new_name("cli")
    path = definitions(tmp_path, queue)
    out, err = run(broker, "topology", path, status=1)
    assert f"queue     {queue}: NOT_FOUND".encode() in out and "2 of 2 are not there" in err
    out, _ = run(broker, "topology", path, "--declare")
    assert out.decode().splitlines() == [
        f"exchange  {queue}-events: topic",
        f"queue     {queue}: 0 messages, 0 consumers",
        f"binding   {queue}-events -> {queue} by '#.made'",
    ]
    event = ["--exchange", f"{queue}-events", "--key", "thing.made"]
    _, err = run(broker, "publish", "one", "two", *event, "--property", "type=event", "--header", "by=hand")
    assert err == "2 messages confirmed\n"
    run(broker, "publish", "--lines", "--queue", queue, input=b"three\nfour\n")
    run(broker, "publish", "--queue", queue, "--persistent", input=b"\xff\x00")
    out, _ = run(broker, "topology", "--queue", queue, "--json")
    assert json.loads(out) == {"kind": "queue", "name": queue, "there": True, "messages": 5, "consumers": 0}

    out, err = run(broker, "consume", queue, "--keep", "--count", 1, "--json")
    assert json.loads(out) == {
        "exchange": f"{queue}-events",
        "routing_key": "thing.made",
        "redelivered": False,
        "properties": {"type": "event", "headers": {"by": "hand"}},
        "body": "one",
    }
    out, _ = run(broker, "consume", queue, "--count", 4)
    assert out == b"one\ntwo\nthree\nfour\n"
    out, _ = run(broker, "consume", queue, "--wait", 0.2, "--json")
    assert json.loads(out)["body_base64"] == "/wA="


def test_what_fails_says_why(broker):
    _, err = run(broker, "publish", "x", "--queue", "no-such-queue", status=1)
    assert "NO_ROUTE" in err and "Traceback" not in err
    _, err = run(broker, "publish", "x", "--queue", "q", "--property", "type", status=2)
    assert "expected a property as NAME=VALUE, got 'type'" in err
    _, err = run(broker, "consume", "no-such-queue", status=1)
    assert "no queue 'no-such-queue'" in err
    _, err = run(broker, "topology", "no-such-file", status=2)
    assert "cannot read no-such-file: No such file or directory" in err
    _, err = run(broker, "publish", "x", "--property", "no-such-thing=1", "--queue", "q", status=1)
    assert "no-such-thing" in err
    _, err = run(broker, "--url", "amqp://127.0.0.1:1/", "publish", "x", status=1)
    assert "127.0.0.1" in err and "Traceback" not in err


def test_the_first_commands_of_the_manual(broker):
    queue = new_name("greetings")
    for _ in range(2):
        _, err = run(broker, "publish", "hello", "--queue", queue, "--declare")
        assert err == "1 message confirmed\n"
    out, _ = run(broker, "consume", queue, "--count", "2", "--declare")
    assert out == b"hello\nhello\n"
    for wrong in (["publish", "x", "--exchange", "amq.topic"], ["consume", "--exchange", "amq.topic"]):
        _, err = run(broker, *wrong, "--declare", status=2)
        assert "--declare" in err


def test_call_and_serve(broker):
    queue = new_name("cli-rpc")
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}"
    command = [sys.executable, "-c", "import sys; print(sys.stdin.read().upper(), end='')"]
    server = subprocess.Popen(
        [sys.executable, "-m", "coro.amqp", "--url", url, "rpc", queue, "--serve", *command], stderr=subprocess.PIPE
    )
    try:
        assert b"serving" in server.stderr.readline()
        out, _ = run(broker, "rpc", queue, "shout")
        assert out == b"SHOUT\n"
    finally:
        server.terminate()
        server.communicate(timeout=60)


def test_bench_measures(broker):
    out, _ = run(broker, "bench", "--messages", 500, "--json")
    facts = json.loads(out)
    assert facts["messages"] == 500 and len(facts["results"]) == 3
    assert all(each["messages_per_second"] > 0 for each in facts["results"].values())
    out, _ = run(broker, "bench", "--messages", 200, "--broker")
    assert out.count(b"messages/s") == 3
