"""A service that has outgrown one machine: jobs in a quorum queue of a RabbitMQ cluster, and competing workers.

    python cluster_jobs.py worker   URL URL URL
    python cluster_jobs.py submit   URL URL URL --jobs 1000
    python cluster_jobs.py measure  URL URL URL --jobs 1000 --workers 1 2 4 [--wait 0.2]

The URLs are those of the nodes. Start as many workers as you like, on as many machines. What makes it safe:

- The queues are quorum queues: what the broker has confirmed is on the disks of most nodes, and stays there when one
  of them stops.
- A job is published with a confirm, and published again when the connection is lost before the confirm came.
- A worker publishes the result, waits until the broker has confirmed it, and acknowledges the job only then. If the
  worker dies before that, the broker gives the job to another.
- So a job may be done twice. Its number makes the second result recognisable, and `submit` drops it.
"""

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import subprocess
import sys
import time
from typing import Any

import coro
from coro import amqp

QUORUM = {"x-queue-type": "quorum"}
#: Reconnect at once to another node when one goes away.
RECOVERY = amqp.Recovery(first=0.1, most=2.0)


class Service:
    """What the workers do. It knows nothing of queues."""

    def __init__(self, wait: float = 0.0) -> None:
        self.wait = wait
        self.rounds = 1_000 if wait else 20_000

    def digest(self, text: str) -> str:
        """Waits first, for as long as a database or another service would take."""
        if self.wait:
            coro.sleep_relative(self.wait)
        return self.compute(text)

    def compute(self, text: str) -> str:
        """Some milliseconds of a processor, a twentieth of them for a job that waits."""
        return hashlib.pbkdf2_hmac("sha256", text.encode(), b"salt", self.rounds).hex()


def connect(urls: list[str], name: str) -> amqp.client:
    return amqp.connect(urls, recovery=RECOVERY, name=name, timeout=120)


def worker(urls: list[str], wait: float = 0.0) -> None:
    service = Service(wait)
    with connect(urls, f"worker {os.getpid()}") as connection:
        jobs, results = connection.channel(), connection.channel()
        jobs.queue_declare("jobs", durable=True, arguments=QUORUM)
        # A confirmation that is lost with its connection is asked for again by publishing again.
        results.confirm_select(republish=True)

        def handle(message: amqp.Message) -> None:
            job = message.json()
            assert message.reply_to is not None
            reply = {"id": job["id"], "digest": service.digest(job["text"]), "worker": os.getpid()}
            results.publish(json.dumps(reply), routing_key=message.reply_to, properties={"delivery-mode": 2}).wait(
                timeout=120
            )

        print("working", flush=True)
        # Several threads: while one waits for a confirm, another computes.
        jobs.consume("jobs", prefetch=8).run(handle, workers=8, requeue=True)


def submit(urls: list[str], count: int) -> dict[int, Any]:
    """Have `count` jobs done; the results by number. None is lost, and each is counted once."""
    found: dict[int, Any] = {}
    with connect(urls, "submitter") as connection:
        jobs, results = connection.channel(), connection.channel()
        jobs.confirm_select(window=200, republish=True)
        jobs.queue_declare("jobs", durable=True, arguments=QUORUM)
        # It outlives this program by an hour, so that a program that is started again could go on.
        queue = f"results {os.getpid()} {time.time_ns()}"
        results.queue_declare(queue, durable=True, arguments={**QUORUM, "x-expires": 3_600_000})

        def publish() -> None:
            for number in range(count):
                job = {"id": number, "text": f"job {number}"}
                jobs.publish(json.dumps(job), routing_key="jobs", properties={"delivery-mode": 2, "reply-to": queue})
            jobs.wait_for_confirms(timeout=120)

        with coro.group() as group:
            group.spawn(publish)
            consumer = results.consume(queue, prefetch=200)
            for message in consumer:
                reply = message.json()
                found.setdefault(reply["id"], reply)
                try:
                    message.ack()
                except amqp.StaleDelivery:
                    pass  # the connection has changed since: it comes again, and is known by its number
                if len(found) % 100 == 0:
                    print(f"{len(found)} of {count} done", file=sys.stderr, flush=True)
                if len(found) == count:
                    break
        with contextlib.suppress(amqp.ConnectionLost):
            results.queue_delete(queue)  # should a node stop right now, it expires in an hour
    return found


def measure(urls: list[str], count: int, numbers: list[int], wait: float) -> None:
    """Jobs per second for each number of worker processes."""
    command = [sys.executable, __file__, "worker", *urls, "--wait", str(wait)]
    for number in numbers:
        workers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(number)]
        try:
            for process in workers:
                assert process.stdout is not None
                coro.in_thread(process.stdout.readline)
            started = time.perf_counter()
            found = submit(urls, count)
            seconds = time.perf_counter() - started
        finally:
            for process in workers:
                process.terminate()
            for process in workers:
                process.wait()
        who = len({reply["worker"] for reply in found.values()})
        print(f"{number} worker processes: {count / seconds:.0f} jobs/s, {who} of them took part", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["worker", "submit", "measure"])
    parser.add_argument("urls", nargs="+", metavar="URL")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="each job waits so long")
    options = parser.parse_args()
    if options.what == "worker":
        worker(options.urls, options.wait)
    elif options.what == "measure":
        measure(options.urls, options.jobs, options.workers, options.wait)
    else:
        found = submit(options.urls, options.jobs)
        good = itertools.starmap(
            lambda number, reply: reply["digest"] == Service(options.wait).compute(f"job {number}"), found.items()
        )
        print(f"{len(found)} jobs done, {'all right' if all(good) else 'SOME WRONG'}", flush=True)


if __name__ == "__main__":
    coro.run(main)
