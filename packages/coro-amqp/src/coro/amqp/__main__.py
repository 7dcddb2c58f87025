"""``python -m coro.amqp``: publish, consume, call, measure and look, from the command line.

    python -m coro.amqp publish hello --queue greetings --declare
    python -m coro.amqp consume greetings --count 1
    python -m coro.amqp rpc double 21
    python -m coro.amqp bench --messages 100000
    python -m coro.amqp topology definitions.json --declare
    python -m coro.amqp broker --port 5672

Where the broker is says ``--url``, or the variable AMQP_URL. Exit status: 0 when all went well, 1 when the broker or
the network failed, 2 for wrong arguments. Messages and results go to standard output, everything else to standard
error.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coro
from coro import amqp
from coro.amqp import rpc, testing

#: Of ``bench``: messages that may wait for their confirmation.
WINDOW = 100


class Mistake(Exception):
    """Something is wrong with the arguments."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m coro.amqp", description="Publish, consume, call, measure and look at an AMQP 0-9-1 broker."
    )
    top.add_argument(
        "--url",
        default=os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2f"),
        help="amqp://user:password@host:port/vhost, or amqps://... (default: AMQP_URL, or guest on this machine)",
    )
    top.add_argument("--timeout", type=float, default=30.0, help="seconds to wait for the broker (default: 30)")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    one = commands.add_parser("publish", help="publish messages, with confirms")
    one.add_argument("bodies", nargs="*", metavar="BODY", help="the messages; without any, standard input is one")
    one.add_argument("--lines", action="store_true", help="each line of standard input is a message")
    one.add_argument("--queue", help="publish to this queue, by the default exchange")
    one.add_argument("--declare", action="store_true", help="make the queue first if there is none (a durable one)")
    one.add_argument("--exchange", default="", help="publish to this exchange")
    one.add_argument("--key", default="", help="the routing key")
    one.add_argument("--property", action="append", default=[], metavar="NAME=VALUE", help="such as type=event")
    one.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
    one.add_argument("--persistent", action="store_true", help="survive a restart of the broker (delivery-mode 2)")

    one = commands.add_parser("consume", help="print messages of a queue")
    one.add_argument("queue", nargs="?", help="the queue; without it a temporary one, for --exchange")
    one.add_argument("--declare", action="store_true", help="make the queue first if there is none (a durable one)")
    one.add_argument("--exchange", help="bind a temporary queue to this exchange")
    one.add_argument("--key", action="append", default=[], help="its routing keys (default: all, '#')")
    one.add_argument("--count", type=int, help="end after so many messages")
    one.add_argument("--wait", type=float, metavar="SECONDS", help="end when nothing came for so long")
    one.add_argument("--keep", action="store_true", help="only look: the messages stay in the queue")
    one.add_argument("--json", action="store_true", help="one object a line, with everything that came with a message")

    one = commands.add_parser("rpc", help="call a server, or be one")
    one.add_argument("queue", help="where the server takes its requests from")
    one.add_argument("body", nargs="?", help="the request (default: standard input)")
    one.add_argument(
        "--serve",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="run this for each request: it gets the request on its standard input, and what it prints is the reply",
    )
    one.add_argument("--workers", type=int, default=4, help="with --serve: requests at once (default: 4)")

    one = commands.add_parser("bench", help="measure publishing and consuming")
    one.add_argument("--messages", type=int, default=50_000)
    one.add_argument("--size", type=int, default=100, help="bytes of a message (default: 100)")
    one.add_argument("--broker", action="store_true", help="against the broker of coro.amqp.testing, in this process")
    one.add_argument("--json", action="store_true")

    one = commands.add_parser("topology", help="declare exchanges, queues and bindings, or see which are there")
    one.add_argument("file", nargs="?", type=Path, help="definitions as RabbitMQ exports them (JSON)")
    one.add_argument("--declare", action="store_true", help="declare what the file says")
    one.add_argument("--queue", action="append", default=[], help="look for this queue, too")
    one.add_argument("--exchange", action="append", default=[], help="look for this exchange, too")
    one.add_argument("--json", action="store_true")

    one = commands.add_parser("broker", help="run the broker of coro.amqp.testing, which keeps everything in memory")
    one.add_argument("--port", type=int, default=5672, help="0 for a free one (default: 5672)")
    return top


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def pairs(given: list[str], what: str) -> dict[str, str]:
    """NAME=VALUE arguments."""
    found = {}
    for each in given:
        name, sign, value = each.partition("=")
        if not sign or not name:
            raise Mistake(f"expected {what} as NAME=VALUE, got {each!r}")
        found[name] = value
    return found


def connect(options: argparse.Namespace, **more: Any) -> amqp.client:
    return amqp.connect(options.url, timeout=options.timeout, connect_timeout=options.timeout, **more)


def ensure(connection: amqp.client, queue: str) -> None:
    """Make a queue unless there is one, with whatever arguments."""
    try:
        with connection.channel() as channel:
            channel.queue_declare(queue, passive=True)
    except amqp.ChannelClosed as e:
        if e.reply_code != 404:
            raise
        with connection.channel() as channel:
            channel.queue_declare(queue, durable=True)


# -- publish


def publish(options: argparse.Namespace) -> None:
    """Returns when the broker has confirmed all of them."""
    if options.queue is not None and (options.exchange or options.key):
        raise Mistake("expected either --queue, or --exchange and --key")
    if options.declare and options.queue is None:
        raise Mistake("expected --queue with --declare")
    if options.lines and options.bodies:
        raise Mistake("expected messages as arguments, or --lines, which reads them")
    properties: dict[str, Any] = {}
    for name, value in pairs(options.property, "a property").items():
        number = name.replace("_", "-") in ("delivery-mode", "priority", "timestamp")
        properties[name] = int(value) if number else value
    headers = pairs(options.header, "a header")
    if headers:
        properties["headers"] = headers
    if options.persistent:
        properties["delivery-mode"] = 2
    key = options.key if options.queue is None else options.queue
    count = 0
    with connect(options) as connection:
        if options.declare:
            ensure(connection, options.queue)
        channel = connection.channel()
        channel.confirm_select()
        for body in bodies(options):
            channel.publish(body, options.exchange, key, properties=properties, mandatory=True)
            count += 1
        channel.wait_for_confirms()
        channel.close()
    say(f"{count} message{'s' * (count != 1)} confirmed")


def bodies(options: argparse.Namespace) -> Iterator[bytes]:
    if options.bodies:
        yield from (body.encode("utf-8", "surrogateescape") for body in options.bodies)
    elif options.lines:
        yield from (line.rstrip(b"\n") for line in sys.stdin.buffer)
    else:
        yield sys.stdin.buffer.read()


# -- consume


def consume(options: argparse.Namespace) -> None:
    if (options.queue is None) == (options.exchange is None):
        raise Mistake("expected the name of a queue, or --exchange")
    if options.count is not None and options.count < 1:
        raise Mistake(f"expected a count of at least 1, got {options.count}")
    if options.declare and options.queue is None:
        raise Mistake("expected the name of a queue with --declare")
    with connect(options) as connection:
        queue = options.queue
        if options.declare:
            ensure(connection, queue)
        channel = connection.channel()
        if queue is None:
            answer = channel.queue_declare("", exclusive=True)
            assert answer is not None
            queue = answer.queue
            for key in options.key or ["#"]:
                channel.queue_bind(queue, options.exchange, key)
        # No more than will be printed, so that the rest stays for others, in its order.
        prefetch = min(options.count or 100, 100) if not options.keep else options.count or 0
        consumer = channel.consume(queue, prefetch=prefetch)
        count = 0
        while options.count is None or count < options.count:
            try:
                message = consumer.get(options.wait)
            except amqp.AMQPTimeout:
                break
            show(message, options.json)
            count += 1
            if not options.keep:
                message.ack()
    say(f"{count} message{'s' * (count != 1)}")


def show(message: amqp.Message, as_json: bool) -> None:
    out = sys.stdout.buffer
    if not as_json:
        out.write(message.body + b"\n")
        out.flush()
        return
    try:
        body: dict[str, Any] = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(message.body).decode()}
    facts = {
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "redelivered": message.redelivered,
        "properties": message.properties,
        **body,
    }
    out.write(json.dumps(facts, default=str).encode() + b"\n")
    out.flush()


# -- rpc


def call(options: argparse.Namespace) -> None:
    if options.serve is not None:
        serve(options)
        return
    body = sys.stdin.buffer.read() if options.body is None else options.body.encode("utf-8", "surrogateescape")
    with connect(options) as connection, rpc.client(connection.channel(), timeout=options.timeout) as caller:
        reply = caller.request(body, options.queue)
    sys.stdout.buffer.write(reply.body + b"\n")
    sys.stdout.buffer.flush()


def serve(options: argparse.Namespace) -> None:
    if not options.serve:
        raise Mistake("expected a command after --serve")

    def handler(message: amqp.Message) -> bytes:
        done = coro.in_thread(subprocess.run, options.serve, input=message.body, stdout=subprocess.PIPE)
        if done.returncode:
            raise rpc.RPCError(f"the command ended with {done.returncode}")
        return bytes(done.stdout)

    with connect(options, recovery=True) as connection:
        channel = connection.channel()
        channel.queue_declare(options.queue)
        with rpc.server(channel, options.queue, handler=handler, workers=options.workers):
            say(f"serving requests of queue {options.queue}")
            forever()


def forever() -> None:
    coro.event().wait()


# -- bench


def bench(options: argparse.Namespace) -> None:
    if options.messages < 1 or options.size < 0:
        raise Mistake("expected at least one message, of at least 0 bytes")
    if options.broker:
        with testing.Broker() as broker:
            options.url = broker.url
            measure(options)
    else:
        measure(options)


def measure(options: argparse.Namespace) -> None:
    body, count = b"x" * options.size, options.messages
    results: dict[str, dict[str, float]] = {}

    def timed(name: str, function: Any) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        function()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        results[name] = {"messages_per_second": count / wall, "cpu_us_per_message": cpu / count * 1e6}
        if not options.json:
            print(f"{name:28} {count / wall:12,.0f} messages/s   {cpu / count * 1e6:8.2f} us of processor each")

    with connect(options) as connection:
        channel = connection.channel()
        answer = channel.queue_declare("", exclusive=True)
        assert answer is not None
        queue = answer.queue

        def plain() -> None:
            for _ in range(count):
                channel.basic_publish(body, "", queue)
            # Its answer comes when the broker has taken all before it.
            channel.queue_declare(queue, passive=True)

        def consumed() -> None:
            consumer = channel.consume(queue, prefetch=WINDOW)
            for number, message in enumerate(consumer, 1):
                message.ack()
                if number == count:
                    break
            consumer.cancel()

        def confirmed() -> None:
            with connection.channel() as own:
                own.confirm_select(window=WINDOW)
                for _ in range(count):
                    own.publish(body, "", queue)
                own.wait_for_confirms()

        timed("publish", plain)
        timed(f"consume, prefetch {WINDOW}, ack", consumed)
        timed(f"publish, {WINDOW} in flight", confirmed)
    if options.json:
        print(json.dumps({"messages": count, "size": options.size, "results": results}))


# -- topology


def topology(options: argparse.Namespace) -> None:
    """AMQP has no method to list anything, so what is looked for has to be named: by a file of definitions, or by
    options."""
    wanted = definitions(options.file) if options.file is not None else {"exchanges": [], "queues": [], "bindings": []}
    wanted["exchanges"] += [{"name": name} for name in options.exchange]
    wanted["queues"] += [{"name": name} for name in options.queue]
    if options.declare and options.file is None:
        raise Mistake("expected a file of definitions to declare")
    if not wanted["exchanges"] and not wanted["queues"]:
        raise Mistake("expected a file of definitions, --queue or --exchange: AMQP cannot list what there is")
    with connect(options) as connection:
        if options.declare:
            declare(connection, wanted)
        found = [look_for_exchange(connection, each) for each in wanted["exchanges"]]
        found += [look_for_queue(connection, each) for each in wanted["queues"]]
        if options.declare:
            found += [{"kind": "binding", "there": True, **each} for each in wanted["bindings"]]
    if options.json:
        for fact in found:
            print(json.dumps(fact))
    else:
        for fact in found:
            print(described(fact))
    missing = [fact for fact in found if not fact["there"]]
    if missing:
        raise amqp.AMQPError(f"{len(missing)} of {len(found)} are not there")


def definitions(path: Path) -> dict[str, list[dict[str, Any]]]:
    try:
        data = json.loads(path.read_text())
    except OSError as e:
        raise Mistake(f"cannot read {path}: {e.strerror}") from None
    except ValueError as e:
        raise Mistake(f"expected JSON in {path}: {e}") from None
    parts = {}
    for part, needed in (("exchanges", "name"), ("queues", "name"), ("bindings", "destination")):
        entries = data.get(part, []) if isinstance(data, dict) else None
        if not isinstance(entries, list) or not all(isinstance(e, dict) and needed in e for e in entries):
            raise Mistake(f"expected {part} in {path} to be a list of objects with {needed!r}")
        parts[part] = entries
    return parts


def declare(connection: amqp.client, wanted: dict[str, list[dict[str, Any]]]) -> None:
    with connection.channel() as channel:
        for each in wanted["exchanges"]:
            if "type" in each:
                channel.exchange_declare(
                    each["name"],
                    each["type"],
                    durable=each.get("durable", True),
                    auto_delete=each.get("auto_delete", False),
                    internal=each.get("internal", False),
                    arguments=each.get("arguments") or {},
                )
        for each in wanted["queues"]:
            channel.queue_declare(
                each["name"],
                durable=each.get("durable", True),
                auto_delete=each.get("auto_delete", False),
                arguments=each.get("arguments") or {},
            )
        for each in wanted["bindings"]:
            key, arguments = each.get("routing_key", ""), each.get("arguments") or {}
            if each.get("destination_type", "queue") == "queue":
                channel.queue_bind(each["destination"], each.get("source", ""), key, arguments=arguments)
            else:
                channel.exchange_bind(each["destination"], each.get("source", ""), key, arguments=arguments)


def look_for_exchange(connection: amqp.client, each: dict[str, Any]) -> dict[str, Any]:
    fact = {"kind": "exchange", "name": each["name"], "there": True}
    if "type" in each:
        fact["type"] = each["type"]
    channel = connection.channel()
    try:
        channel.exchange_declare(each["name"], passive=True)
    except amqp.ChannelClosed as e:
        return {**fact, "there": False, "why": e.reply_text}
    channel.close()
    return fact


def look_for_queue(connection: amqp.client, each: dict[str, Any]) -> dict[str, Any]:
    fact = {"kind": "queue", "name": each["name"], "there": True}
    channel = connection.channel()
    try:
        answer = channel.queue_declare(each["name"], passive=True)
    except amqp.ChannelClosed as e:
        return {**fact, "there": False, "why": e.reply_text}
    channel.close()
    assert answer is not None
    return {**fact, "messages": answer.message_count, "consumers": answer.consumer_count}


def described(fact: dict[str, Any]) -> str:
    if fact["kind"] == "binding":
        return f"binding   {fact.get('source', '')} -> {fact['destination']} by {fact.get('routing_key', '')!r}"
    if not fact["there"]:
        return f"{fact['kind']:9} {fact['name']}: {fact['why']}"
    if fact["kind"] == "queue":
        return f"queue     {fact['name']}: {fact['messages']} messages, {fact['consumers']} consumers"
    return f"exchange  {fact['name']}: {fact.get('type', 'there')}"


# -- broker


def broker(options: argparse.Namespace) -> None:
    with testing.Broker(options.port) as running:
        print(running.url, flush=True)
        forever()


COMMANDS = {
    "publish": publish,
    "consume": consume,
    "rpc": call,
    "bench": bench,
    "topology": topology,
    "broker": broker,
}


def main() -> int:
    """Run a command; the exit status."""
    options = parser().parse_args()
    try:
        coro.run(COMMANDS[options.command], options)
    except Mistake as e:
        say(f"python -m coro.amqp {options.command}: {e}")
        return 2
    except (amqp.AMQPError, OSError, coro.NameError, coro.TimeoutError) as e:
        say(f"python -m coro.amqp {options.command}: {e}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
