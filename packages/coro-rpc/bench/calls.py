"""Calls of an echo, large ones, and a stream, by each library in its own best way: client here, server in a child.

The figure is the processor time of both processes, taken exactly around the counted calls. Every server has one
process, every client one connection. Payload is a short text, or 1 MiB of bytes.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

from _common import Figures, main

TEXT = "hello, world"
LARGE = os.urandom(1 << 20)
CALLERS = 100
HOST = "127.0.0.1"
_libc = ctypes.CDLL(None)


def module(name: str) -> Any:
    """A peer's library, which is not there where types are checked."""
    return importlib.import_module(name)


def cpu_of(pid: int) -> float:
    """CPU seconds of a process (clock_getcpuclockid(3))."""
    clock = ctypes.c_int()
    if _libc.clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise OSError("the server has gone")
    return time.clock_gettime(clock.value)


class Served:
    """A server in a child process, and the clock over both."""

    def __init__(self, peer: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, __file__, "--serve", peer], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
        )
        assert self.child.stdout is not None
        self.port = int(self.child.stdout.readline())

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *exc: object) -> None:
        self.child.kill()
        self.child.wait()

    def measure(self, function: Callable[[], None], count: int) -> Figures:
        """What calling `function` costs, which makes `count` calls."""
        before = time.process_time() + cpu_of(self.child.pid)
        wall = time.perf_counter()
        function()
        wall = time.perf_counter() - wall
        return {"cpu": time.process_time() + cpu_of(self.child.pid) - before, "wall": wall, "count": count}


def ready(port: int) -> None:
    """Tell the parent where the server listens."""
    print(port, flush=True)


def in_turn(calls: dict[str, tuple[int, Callable[[], object]]], what: str) -> Callable[[], None]:
    """`sequential` or `large` as a loop."""
    count, call = calls[what]

    def run() -> None:
        for _ in range(count):
            call()

    return run


# -- coro


def coro_server() -> None:
    import coro
    from coro.rpc import fast_rpc

    registry = fast_rpc.Registry()

    @registry.export
    def echo(value: Any) -> Any:
        return value

    @registry.export
    def count(n: int) -> Any:
        yield from range(n)

    def serve() -> None:
        server = fast_rpc.Server(registry, (HOST, 0)).start()
        ready(server.addresses[0][1])
        server.wait()

    coro.run(serve)


def coro_client(what: str, count: int) -> Figures:
    import coro
    from coro.rpc import fast_rpc

    def run() -> Figures:
        with Served("coro") as server, fast_rpc.connect((HOST, server.port)) as conn:
            call = conn.call
            assert call("echo", TEXT) == TEXT and call("echo", LARGE) == LARGE

            def caller() -> None:
                for _ in range(count // CALLERS):
                    call("echo", TEXT)

            def pipelined() -> None:
                threads = [coro.spawn(caller) for _ in range(CALLERS)]
                for thread in threads:
                    thread.join()

            def stream() -> None:
                assert sum(1 for _ in conn.stream("count", count)) == count

            def sequential() -> None:
                for _ in range(count):
                    call("echo", TEXT)

            def large() -> None:
                for _ in range(count):
                    call("echo", LARGE)

            table = {"sequential": sequential, "pipelined": pipelined, "large": large, "stream": stream}
            return server.measure(table[what], count)

    return coro.run(run)


# -- multiprocessing.connection


def multiprocessing_server() -> None:
    listener = connection.Listener((HOST, 0), "AF_INET")
    ready(listener.address[1])
    conn = listener.accept()
    while True:
        conn.send(conn.recv())


def multiprocessing_client(what: str, count: int) -> Figures:
    with Served("multiprocessing") as server:
        conn = connection.Client((HOST, server.port), "AF_INET")

        def sequential() -> None:
            for _ in range(count):
                conn.send(TEXT)
                conn.recv()

        def large() -> None:
            for _ in range(count):
                conn.send(LARGE)
                conn.recv()

        def pipelined() -> None:
            for _ in range(CALLERS):
                conn.send(TEXT)
            for _ in range(count - CALLERS):
                conn.recv()
                conn.send(TEXT)
            for _ in range(CALLERS):
                conn.recv()

        return server.measure({"sequential": sequential, "pipelined": pipelined, "large": large}[what], count)


# -- rpyc


def rpyc_server() -> None:
    rpyc = module("rpyc")
    service = type("Echo", (rpyc.Service,), {"exposed_echo": lambda self, value: value})
    server = module("rpyc.utils.server").ThreadedServer(service, hostname=HOST, port=0)
    ready(server.port)
    server.start()


def rpyc_client(what: str, count: int) -> Figures:
    rpyc = module("rpyc")
    with Served("rpyc") as server:
        while True:
            try:
                conn = rpyc.connect(HOST, server.port)
                break
            except ConnectionRefusedError:
                time.sleep(0.01)  # its socket is bound before it listens
        echo = conn.root.echo
        later = rpyc.async_(echo)

        def pipelined() -> None:
            window = [later(TEXT) for _ in range(CALLERS)]
            for i in range(count - CALLERS):
                place = i % CALLERS
                window[place].wait()
                window[place] = later(TEXT)
            for one in window:
                one.wait()

        def sequential() -> None:
            for _ in range(count):
                echo(TEXT)

        def large() -> None:
            for _ in range(count):
                echo(LARGE)

        return server.measure({"sequential": sequential, "pipelined": pipelined, "large": large}[what], count)


# -- Pyro5


def pyro5_server() -> None:
    class Echo:
        def echo(self, value: Any) -> Any:
            return value

    api = module("Pyro5.api")
    daemon = api.Daemon(HOST, 0)
    daemon.register(api.expose(Echo)(), "echo")
    ready(daemon.sock.getsockname()[1])
    daemon.requestLoop()


def pyro5_client(what: str, count: int) -> Figures:
    with Served("pyro5") as server:
        proxy = module("Pyro5.api").Proxy(f"PYRO:echo@{HOST}:{server.port}")
        proxy.echo(TEXT)

        def sequential() -> None:
            for _ in range(count):
                proxy.echo(TEXT)

        return server.measure({"sequential": sequential}[what], count)


# -- zerorpc


def zerorpc_server() -> None:
    zerorpc = module("zerorpc")

    class Echo:
        def echo(self, value: Any) -> Any:
            return value

        def numbers(self, n: int) -> Any:
            return iter(range(n))

        count = zerorpc.stream(numbers)

    server = zerorpc.Server(Echo())
    server.bind(f"tcp://{HOST}:*")
    ready(int(server._events._socket.getsockopt_string(32).rpartition(":")[2]))  # ZMQ_LAST_ENDPOINT
    server.run()


def zerorpc_client(what: str, count: int) -> Figures:
    gevent, zerorpc = module("gevent"), module("zerorpc")
    with Served("zerorpc") as server:
        client = zerorpc.Client(timeout=120, heartbeat=None)
        client.connect(f"tcp://{HOST}:{server.port}")
        client.echo(TEXT)

        def sequential() -> None:
            for _ in range(count):
                client.echo(TEXT)

        def caller() -> None:
            for _ in range(count // CALLERS):
                client.echo(TEXT)

        def pipelined() -> None:
            gevent.joinall([gevent.spawn(caller) for _ in range(CALLERS)], raise_error=True)

        def stream() -> None:
            assert sum(1 for _ in client.count(count)) == count

        return server.measure({"sequential": sequential, "pipelined": pipelined, "stream": stream}[what], count)


# -- grpcio, with asyncio, as its documentation recommends for many calls

_SIZES = [("grpc.max_receive_message_length", 1 << 24), ("grpc.max_send_message_length", 1 << 24)]


def grpcio_server() -> None:
    import asyncio

    grpc = module("grpc")

    async def echo(request: bytes, context: Any) -> bytes:
        return request

    async def count(request: bytes, context: Any) -> Any:
        for i in range(int(request)):
            yield b"%d" % i

    async def serve() -> None:
        server = grpc.aio.server(options=_SIZES)
        handlers = {
            "echo": grpc.unary_unary_rpc_method_handler(echo),
            "count": grpc.unary_stream_rpc_method_handler(count),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", handlers),))
        port = server.add_insecure_port(f"{HOST}:0")
        await server.start()
        ready(port)
        await server.wait_for_termination()

    asyncio.run(serve())


def grpcio_client(what: str, count: int) -> Figures:
    import asyncio

    grpc = module("grpc")

    async def run(server: Served) -> Figures:
        async with grpc.aio.insecure_channel(f"{HOST}:{server.port}", options=_SIZES) as channel:
            echo = channel.unary_unary("/bench/echo")
            stream = channel.unary_stream("/bench/count")
            text = TEXT.encode()
            await echo(text)

            async def sequential() -> None:
                for _ in range(count):
                    await echo(text)

            async def large() -> None:
                for _ in range(count):
                    await echo(LARGE)

            async def caller() -> None:
                for _ in range(count // CALLERS):
                    await echo(text)

            async def pipelined() -> None:
                await asyncio.gather(*(caller() for _ in range(CALLERS)))

            async def streamed() -> None:
                n = 0
                async for _ in stream(b"%d" % count):
                    n += 1
                assert n == count

            table = {"sequential": sequential, "pipelined": pipelined, "large": large, "stream": streamed}
            before = time.process_time() + cpu_of(server.child.pid)
            wall = time.perf_counter()
            await table[what]()
            wall = time.perf_counter() - wall
            return {"cpu": time.process_time() + cpu_of(server.child.pid) - before, "wall": wall, "count": count}

    with Served("grpcio") as server:
        return asyncio.run(run(server))


SERVERS = {
    "coro": coro_server,
    "multiprocessing": multiprocessing_server,
    "rpyc": rpyc_server,
    "pyro5": pyro5_server,
    "zerorpc": zerorpc_server,
    "grpcio": grpcio_server,
}
CLIENTS = {
    "coro": coro_client,
    "multiprocessing": multiprocessing_client,
    "rpyc": rpyc_client,
    "pyro5": pyro5_client,
    "zerorpc": zerorpc_client,
    "grpcio": grpcio_client,
}


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        # The parent's death is the end of the pipe.
        threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
        SERVERS[sys.argv[2]]()
    else:
        main(CLIENTS)
