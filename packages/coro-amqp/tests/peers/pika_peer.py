"""pika: port read|write queue. Reads three messages and prints them as JSON, or writes three."""

import json
import sys

import pika

port, way, queue = int(sys.argv[1]), sys.argv[2], sys.argv[3]
HEADERS = {"text": "grün", "number": 7, "long": 1 << 40, "yes": True, "list": [1, "two"], "nested": {"a": {"b": 1}}}
BODIES = [b"", b"one", bytes(range(256)) * 1200]

connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
channel = connection.channel()
if way == "write":
    properties = pika.BasicProperties(
        "application/json",
        "utf-8",
        HEADERS,
        2,
        3,
        "c-1",
        "answers",
        "60000",
        "m-1",
        1_700_000_000,
        "event",
        None,
        "tests",
    )
    for body in BODIES:
        channel.basic_publish("", queue, body, properties)
else:
    for method, properties, body in channel.consume(queue):
        found = {name.replace("_", "-"): value for name, value in vars(properties).items() if value is not None}
        print(json.dumps({"body": body.hex(), "properties": found}))
        channel.basic_ack(method.delivery_tag)
        if method.delivery_tag == len(BODIES):
            break
connection.close()
