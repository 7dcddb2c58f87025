"""Clients of message brokers, and queues of tasks."""

from __future__ import annotations

from typing import Any

from tools.libraries.work import Work, case, library


@case("pika", servers=["rabbitmq"])
def pika(work: Work) -> Any:
    module = library("pika")
    where = module.ConnectionParameters("127.0.0.1", work.ports["rabbitmq"], socket_timeout=60, stack_timeout=90)

    def one(number: int) -> str:
        connection = module.BlockingConnection(where)
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_publish("", queue, str(number).encode())
        for _, _, body in channel.consume(queue, auto_ack=True, inactivity_timeout=60):  # noqa: B007 - used below
            break
        channel.cancel()
        connection.close()
        return str(body.decode())

    return work.at_once(one)


@case("kombu", servers=["rabbitmq"])
def kombu(work: Work) -> Any:
    module = library("kombu")
    url = f"amqp://guest:guest@127.0.0.1:{work.ports['rabbitmq']}//"

    def one(number: int) -> Any:
        with module.Connection(url) as connection:
            queue = connection.SimpleQueue(f"{work.unique}{number}")
            queue.put({"number": number})
            message = queue.get(timeout=60)
            message.ack()
            queue.close()
            return message.payload

    return work.at_once(one)


@case("Celery", "celery", servers=["redis"])
def celery(work: Work) -> Any:
    module = library("celery")
    url = f"redis://127.0.0.1:{work.ports['redis']}/{3 if work.emulated else 4}"
    app = module.Celery(work.unique, broker=url, backend=url)
    app.conf.worker_hijack_root_logger = False

    @app.task(name="square")  # type: ignore[misc, untyped-decorator, unused-ignore]
    def square(number: int) -> int:
        library("time").sleep(0.05)
        return number * number

    start_worker = library("celery.contrib.testing.worker").start_worker
    with start_worker(app, pool="threads", concurrency=20, perform_ping_check=False, shutdown_timeout=60):
        return work.at_once(lambda number: square.delay(number).get(timeout=60))


@case("huey", servers=["redis"])
def huey(work: Work) -> Any:
    module = library("huey")
    app = module.RedisHuey(work.unique, port=work.ports["redis"], max_connections=300)

    @app.task()  # type: ignore[misc, untyped-decorator, unused-ignore]
    def square(number: int) -> int:
        return number * number

    consumer = app.create_consumer(workers=10, periodic=False, initial_delay=0.01, max_delay=0.05)
    consumer.start()
    try:
        return work.at_once(lambda number: square(number)(blocking=True, timeout=60))
    finally:
        consumer.stop(graceful=True)


@case("dramatiq", servers=["redis"])
def dramatiq(work: Work) -> Any:
    module = library("dramatiq")
    backend = library("dramatiq.results.backends.redis").RedisBackend(port=work.ports["redis"], max_connections=300)
    broker = library("dramatiq.brokers.redis").RedisBroker(
        port=work.ports["redis"], namespace=work.unique, max_connections=300
    )
    broker.add_middleware(library("dramatiq.results").Results(backend=backend))
    module.set_broker(broker)

    @module.actor(store_results=True)  # type: ignore[misc, untyped-decorator, unused-ignore]
    def square(number: int) -> int:
        return number * number

    worker = module.Worker(broker, worker_threads=10, worker_timeout=100)
    worker.start()
    try:
        return work.at_once(lambda number: square.send(number).get_result(block=True, timeout=60_000))
    finally:
        worker.stop()


@case("pyzmq", compiled=True, setting="calls that wait go through ``coro.in_thread``")
def zmq(work: Work) -> Any:
    module = library("zmq")
    context = module.Context()
    server = context.socket(module.REP)
    port = server.bind_to_random_port("tcp://127.0.0.1", 20000, 32767)

    def serve() -> None:
        for _ in range(8):
            server.send(work.aside(server.recv))

    thread = library("threading").Thread(target=serve)
    thread.start()

    def one(number: int) -> int:
        client = context.socket(module.REQ)
        client.connect(f"tcp://127.0.0.1:{port}")
        client.send(str(number).encode())
        answer = work.aside(client.recv)
        client.close()
        return int(answer)

    answers = work.at_once(one, 8)
    thread.join()
    server.close()
    context.term()
    return answers
