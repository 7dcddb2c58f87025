"""Messages of 100 bytes between one client and one RabbitMQ: published, published with confirms, consumed, and asked.

Every peer does the same work in the way that its manual shows as the fast one. "publish" goes to an exchange without
queues and ends with a question, whose answer means that everything has been read. In "consume" the queue is filled
before the clock starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _common import Figures, Stopwatch, main

SIZE = 100
BODY = b"x" * SIZE
WINDOW = 100
HERE = Path(__file__).resolve().parent


@contextlib.contextmanager
def broker() -> Iterator[tuple[str, int]]:
    """Host and port of a RabbitMQ."""
    named = os.environ.get("CORO_AMQP_BROKER")
    if named:
        host, _, port = named.rpartition(":")
        yield host, int(port)
        return
    sys.path.insert(0, str(HERE.parents[2] / "tests" / "support"))
    from real_programs import RabbitMQ  # type: ignore[import-not-found,unused-ignore]

    with RabbitMQ() as server:
        yield "127.0.0.1", server.port


# ---- ours


def coro(mode: str, count: int) -> Figures:
    import coro
    from coro import amqp
    from coro.amqp import rpc

    watch = Stopwatch()

    def work(host: str, port: int) -> None:
        with amqp.client(host=host, port=port) as client, client.channel() as channel:
            queue = channel.queue_declare(exclusive=True).queue
            if mode == "publish":
                watch.start()
                for _ in range(count):
                    channel.basic_publish(BODY, "amq.fanout", queue)
                channel.queue_declare(queue, passive=True)
            elif mode == "confirm":
                channel.confirm_select(window=WINDOW)
                watch.start()
                for _ in range(count):
                    channel.publish(BODY, "amq.fanout", queue)
                channel.wait_for_confirms()
            elif mode == "consume":
                for _ in range(count):
                    channel.basic_publish(BODY, "", queue)
                while channel.queue_declare(queue, passive=True).message_count < count:
                    coro.sleep(0.02)
                watch.start()
                consumer = channel.consume(queue, prefetch=WINDOW)
                for _ in range(count):
                    consumer.get().ack()
            else:
                ask(client, channel, queue)
            watch.stop()

    def ask(client: amqp.client, channel: amqp.channel, queue: str) -> None:
        class Echo(rpc.server):
            def handle_request(self, properties: Any, request: bytes) -> tuple[dict[str, Any], bytes]:
                return {}, request

        Echo(client.channel(), queue, "")
        caller = rpc.client(channel)

        def calls() -> None:
            for _ in range(count // WINDOW):
                caller.call({}, BODY, "", queue)

        watch.start()
        with coro.group() as group:
            for _ in range(WINDOW):
                group.spawn(calls)

    with broker() as (host, port):
        coro.run(work, host, port)
    return watch.figures(count)


# ---- the others


def pika(mode: str, count: int) -> Figures:
    import pika  # type: ignore[import-not-found,unused-ignore]

    watch = Stopwatch()
    with broker() as (host, port):
        connection = pika.BlockingConnection(pika.ConnectionParameters(host, port))
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        if mode == "consume":
            for _ in range(count):
                channel.basic_publish("", queue, BODY)
            while channel.queue_declare(queue, passive=True).method.message_count < count:
                connection.sleep(0.02)
            watch.start()
            channel.basic_qos(prefetch_count=WINDOW)
            for done, (method, _, _) in enumerate(channel.consume(queue), 1):
                channel.basic_ack(method.delivery_tag)
                if done == count:
                    break
        else:
            if mode == "confirm":
                channel.confirm_delivery()
            watch.start()
            for _ in range(count):
                channel.basic_publish("amq.fanout", queue, BODY)
            channel.queue_declare(queue, passive=True)
        watch.stop()
    return watch.figures(count)


def aio_pika(mode: str, count: int) -> Figures:
    import aio_pika  # type: ignore[import-not-found,unused-ignore]
    from aio_pika.patterns import RPC  # type: ignore[import-not-found,unused-ignore]

    watch = Stopwatch()

    async def work(host: str, port: int) -> None:
        connection = await aio_pika.connect(f"amqp://guest:guest@{host}:{port}/")
        channel = await connection.channel(publisher_confirms=mode != "publish")
        queue = await channel.declare_queue(exclusive=True)
        fanout = await channel.get_exchange("amq.fanout")

        async def publish(times: int, exchange: aio_pika.abc.AbstractExchange) -> None:
            for _ in range(times):
                await exchange.publish(aio_pika.Message(BODY), queue.name, mandatory=False)

        if mode == "rpc":
            rpc = await RPC.create(channel)

            async def echo(*, data: bytes) -> bytes:
                return data

            async def calls() -> None:
                for _ in range(count // WINDOW):
                    await rpc.call("echo", {"data": BODY})

            await rpc.register("echo", echo, auto_delete=True)
            watch.start()
            await asyncio.gather(*(calls() for _ in range(WINDOW)))
            watch.stop()
        elif mode == "consume":
            await asyncio.gather(*(publish(count // WINDOW, channel.default_exchange) for _ in range(WINDOW)))
            await channel.set_qos(prefetch_count=WINDOW)
            watch.start()
            done = 0
            async with queue.iterator() as messages:
                async for message in messages:
                    await message.ack()
                    done += 1
                    if done == count:
                        break
            watch.stop()
        else:
            watch.start()
            await asyncio.gather(*(publish(count // WINDOW, fanout) for _ in range(WINDOW)))
            await channel.declare_queue(queue.name, passive=True)
            watch.stop()
        await connection.close()

    with broker() as (host, port):
        asyncio.run(work(host, port))
    return watch.figures(count)


def c(mode: str, count: int) -> Figures:
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "amqp_load")
        source = HERE / "amqp_load.c"
        subprocess.run([*compiler.split(), "-O2", "-o", str(program), str(source), "-lrabbitmq"], check=True)
        with broker() as (host, port):
            command = [str(program), host, str(port), mode, str(count), str(SIZE)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    main({"coro": coro, "pika": pika, "aio-pika": aio_pika, "c": c})
