"""What `python -m tools.bench run --suite amqp` measures of coro-amqp: processor time of the client for each message.

The broker is a RabbitMQ that each workload starts for itself; with CORO_AMQP_BROKER=HOST:PORT it is one that runs
already, which saves some seconds for each measurement. The peers are clients in Python and `amqp_load.c`, a program
over librabbitmq (Debian: librabbitmq-dev), which is compiled when it is first needed.
"""

from __future__ import annotations

from tools.bench._captions import Caption
from tools.bench._suites import Case, Rival

CAPTIONS = {
    "amqp": Caption(
        "AMQP: messages of 100 bytes, against one RabbitMQ",
        "Processor time of the client for one message.",
        {"c": "C, librabbitmq"},
    ),
    "amqp-codec": Caption("AMQP: the codec alone", "Processor time for a message, to bytes or back."),
}
CASES = (
    Case(
        "amqp",
        "publish without confirms",
        "messages.py",
        {"mode": "publish", "count": 40_000},
        (Rival("pika", 0.12), Rival("c", 1.8)),
    ),
    Case(
        "amqp",
        "publish with confirms, 100 in flight",
        "messages.py",
        {"mode": "confirm", "count": 20_000},
        (Rival("pika", 0.12), Rival("aio-pika", 0.1), Rival("c", 1.8)),
    ),
    Case(
        "amqp",
        "consume and acknowledge, prefetch 100",
        "messages.py",
        {"mode": "consume", "count": 20_000},
        (Rival("pika", 0.2), Rival("aio-pika", 0.07), Rival("c", 1.3)),
    ),
    Case(
        "amqp",
        "round trip of a request, 100 callers, client and server",
        "messages.py",
        {"mode": "rpc", "count": 5_000},
        (Rival("aio-pika", 0.15),),
    ),
    Case("amqp-codec", "encode", "codec.py", {"mode": "encode", "count": 100_000}, (Rival("pamqp", 0.1),)),
    Case("amqp-codec", "decode", "codec.py", {"mode": "decode", "count": 100_000}, (Rival("pamqp", 0.1),)),
)

DISTRIBUTIONS = {"pika": "pika", "aio-pika": "aio-pika", "pamqp": "pamqp<4"}
COUNTED = ("encode", "decode", "publish", "consumed")
