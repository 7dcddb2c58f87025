"""py-amqp, which kombu and celery speak with: port read|write queue. Reads three messages, or writes three."""

import json
import sys

import amqp

port, way, queue = int(sys.argv[1]), sys.argv[2], sys.argv[3]
HEADERS = {"text": "grün", "number": 7, "long": 1 << 40, "yes": True, "list": [1, "two"], "nested": {"a": {"b": 1}}}
BODIES = [b"", b"one", bytes(range(256)) * 1200]

with amqp.Connection(f"127.0.0.1:{port}") as connection:
    channel = connection.channel()
    if way == "write":
        for body in BODIES:
            message = amqp.Message(
                body,
                content_type="application/json",
                content_encoding="utf-8",
                application_headers=HEADERS,
                delivery_mode=2,
                priority=3,
                correlation_id="c-1",
                reply_to="answers",
                expiration="60000",
                message_id="m-1",
                timestamp=1_700_000_000,
                type="event",
                app_id="tests",
            )
            channel.basic_publish(message, routing_key=queue)
    else:
        found = []
        while len(found) < len(BODIES):
            message = channel.basic_get(queue)
            if message is None:
                continue
            channel.basic_ack(message.delivery_tag)
            body = message.body if isinstance(message.body, bytes) else message.body.encode("utf-8")
            found.append(body)
            properties = {name.replace("_", "-"): value for name, value in message.properties.items()}
            properties["headers"] = properties.pop("application-headers")
            print(json.dumps({"body": body.hex(), "properties": properties}))
