"""aio-pika: port read|write queue. Reads three messages and prints them as JSON, or writes three."""

import asyncio
import json
import sys
from datetime import UTC, datetime

import aio_pika

port, way, queue = int(sys.argv[1]), sys.argv[2], sys.argv[3]
HEADERS = {"text": "grün", "number": 7, "long": 1 << 40, "yes": True, "list": [1, "two"], "nested": {"a": {"b": 1}}}
BODIES = [b"", b"one", bytes(range(256)) * 1200]


async def main() -> None:
    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/")
    async with connection:
        channel = await connection.channel()
        if way == "write":
            for body in BODIES:
                message = aio_pika.Message(
                    body,
                    headers=HEADERS,
                    content_type="application/json",
                    content_encoding="utf-8",
                    delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                    priority=3,
                    correlation_id="c-1",
                    reply_to="answers",
                    expiration=60,
                    message_id="m-1",
                    timestamp=datetime.fromtimestamp(1_700_000_000, UTC),
                    type="event",
                    app_id="tests",
                )
                await channel.default_exchange.publish(message, queue)
            return
        read = 0
        async with (await channel.get_queue(queue)).iterator() as messages:
            async for message in messages:
                async with message.process():
                    properties = {
                        "content-type": message.content_type,
                        "content-encoding": message.content_encoding,
                        "headers": dict(message.headers),
                        "delivery-mode": int(message.delivery_mode),
                        "priority": message.priority,
                        "correlation-id": message.correlation_id,
                        "reply-to": message.reply_to,
                        "expiration": str(round(message.expiration * 1000)),
                        "message-id": message.message_id,
                        "timestamp": int(message.timestamp.timestamp()),
                        "type": message.type,
                        "app-id": message.app_id,
                    }
                    print(json.dumps({"body": message.body.hex(), "properties": properties}))
                read += 1
                if read == len(BODIES):
                    break


asyncio.run(main())
