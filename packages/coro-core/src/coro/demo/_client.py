"""The client of the demonstration: many connections to the echo server, each kept busy by a thread of its
own.

Every thread sends a message, waits for all of it to come back, compares, and begins again; with `chaos` it
now and then resets its connection, closes half of it, or reads very slowly, and then opens another. Cost:
two clock reads and one counter per request; nothing grows with the length of the run.
"""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import coro

from ._measure import Latencies

CONNECTORS = 64  # threads that open the first connections
TURNS = 60  # exchanges of a connection before it misbehaves (chaos), on average
BULK = 128 * 1024  # bytes echoed to a slow reader
RESET = struct.pack("ii", 1, 0)  # struct linger: on, no seconds: close(2) sends RST (socket(7))


def slow_readers(connections: int) -> int:
    """How many connections beyond the regular ones may read slowly at a time."""
    return max(2, connections // 500)


class WrongEcho(Exception):
    """The server sent something else than what it got, or ended before all of it was sent back."""


class Load:
    """The connections, their counters and the switch that ends them all.

    addresses: where the server listens; taken in turn. size: bytes of a message. seed: of the random
    choices of chaos.
    """

    def __init__(
        self, addresses: list[tuple[str, int]], size: int, chaos: bool, pause: float, seed: int
    ) -> None:
        self.addresses = addresses
        self.message = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
        self.bulk = bytes(range(256)) * (BULK // 256)
        self.pause = pause
        self.chaos = random.Random(seed) if chaos else None
        self.latencies = Latencies()
        # For each of them the server holds what it could not send yet. A level that is reached at once and
        # kept lets the memory of a long run be compared with that of its beginning.
        self.slow_readers = 0
        self.most_slow_readers = 2
        self.stopping = False
        self.open = 0
        self.requests = 0
        self.errors = 0
        self.first_errors: list[str] = []
        self.events = {"resets": 0, "half-closes": 0, "slow readers": 0, "closes": 0}

    # -- opening

    def connect(self, number: int, receive_buffer: int = 0) -> coro.sock:
        """A new connection to the server's address whose turn it is."""
        connection = coro.tcp_sock()
        try:
            if receive_buffer:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            connection.connect(self.addresses[number % len(self.addresses)])
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            connection.close()
            raise
        self.open += 1
        return connection

    def close(self, connection: coro.sock) -> None:
        connection.close()
        self.open -= 1

    def open_all(self, count: int) -> list[coro.sock]:
        """Open `count` connections and make one exchange over each; those that fail are counted as errors."""
        self.most_slow_readers = slow_readers(count)
        ready: list[coro.sock] = []
        numbers = iter(range(count))

        def connector() -> None:
            for number in numbers:
                with Counted(self):
                    connection = self.connect(number)
                    self.exchange(connection)
                    ready.append(connection)

        for thread in [coro.spawn(connector) for _ in range(min(CONNECTORS, count))]:
            thread.join()
        return ready

    # -- being busy

    def exchange(self, connection: coro.sock) -> None:
        """Send the message and receive it back."""
        message = self.message
        connection.send(message)
        echo = connection.recv(len(message))
        while len(echo) < len(message):
            more = connection.recv(len(message) - len(echo))
            if not more:
                raise WrongEcho(f"expected {len(message)} bytes, the server ended after {len(echo)}")
            echo += more
        if echo != message:
            raise WrongEcho(f"sent {message[:20]!r}..., got {echo[:20]!r}...")

    def busy(self, connection: coro.sock, turns: int | None = None) -> None:
        """Exchange messages until stopped, or `turns` times."""
        clock, add, exchange = time.perf_counter, self.latencies.add, self.exchange
        while not self.stopping and turns != 0:
            began = clock()
            exchange(connection)
            add(clock() - began)
            self.requests += 1
            if turns is not None:
                turns -= 1
            if self.pause:
                coro.sleep_relative(self.pause)

    def session(self, first: dict[int, coro.sock], number: int) -> None:
        """The life of one of the many: busy on its connection and, with chaos, on the successors of that."""
        connection = first.pop(number)
        while True:
            with Counted(self):
                try:
                    if self.chaos is None:
                        self.busy(connection)
                    else:
                        self.busy(connection, self.chaos.randrange(2 * TURNS))
                        if not self.stopping:
                            self.misbehave(connection, number)
                finally:
                    self.close(connection)
            if self.stopping or self.chaos is None:
                return
            connection = self.reconnect(number)

    def reconnect(self, number: int) -> coro.sock:
        """A new connection for this thread; a failure is counted, and tried again a little later."""
        while True:
            with Counted(self):
                return self.connect(number)
            coro.sleep_relative(0.1)

    # -- chaos

    def misbehave(self, connection: coro.sock, number: int) -> None:
        """End the conversation in one of the ways clients do."""
        assert self.chaos is not None
        way = self.chaos.random()
        if way < 0.5:
            self.reset(connection)
        elif way < 0.7:
            self.half_close(connection)
        elif way < 0.75 and self.slow_readers < self.most_slow_readers:
            self.slow_readers += 1
            try:
                self.read_slowly(number)
            finally:
                self.slow_readers -= 1
        else:
            self.events["closes"] += 1

    def reset(self, connection: coro.sock) -> None:
        """Send a request and go away with a reset, which meets the server reading or sending."""
        assert self.chaos is not None
        connection.send(self.message)
        if self.chaos.random() < 0.5:
            coro.yield_slice()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.events["resets"] += 1

    def half_close(self, connection: coro.sock) -> None:
        """Send a request, end the sending direction, and still expect the whole echo and then the end."""
        connection.send(self.message)
        connection.shutdown(socket.SHUT_WR)
        echo = b""
        while more := connection.recv(65536):
            echo += more
        if echo != self.message:
            raise WrongEcho(f"after a half-close: expected {len(self.message)} bytes, got {len(echo)}")
        self.events["half-closes"] += 1

    def read_slowly(self, number: int) -> None:
        """Make the server's send block: ask for a lot of echo and take it in small sips."""
        connection = self.connect(number, receive_buffer=8192)
        try:
            sender = coro.spawn(self._send_bulk, connection)
            coro.sleep_relative(0.1)
            received = 0
            while received < BULK:
                more = connection.recv(16384)
                if more != self.bulk[received : received + len(more)] or not more:
                    raise WrongEcho(
                        f"slow reader: expected {BULK} bytes, byte {received} on is wrong or missing"
                    )
                received += len(more)
                coro.sleep_relative(0.002)
            sender.join()
        finally:
            self.close(connection)
        self.events["slow readers"] += 1

    def _send_bulk(self, connection: coro.sock) -> None:
        with Counted(self):
            connection.send(self.bulk)

    def failed(self, error: BaseException) -> None:
        """Count an error and keep the first few for the report."""
        self.errors += 1
        if len(self.first_errors) < 5:
            self.first_errors.append(f"{type(error).__name__}: {error}")


class Rate(NamedTuple):
    """What was done until the stop: requests answered, and the seconds they took."""

    requests: int
    seconds: float


class Counted:
    """`with Counted(load):` an exception of the block is counted as an error of the run and goes no further.

    Interruptions (Shutdown, timeouts) are no errors and pass.
    """

    def __init__(self, load: Load) -> None:
        self.load = load

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> bool:
        if isinstance(error, Exception):
            self.load.failed(error)
            return True
        return False


def keep_busy(
    load: Load, connections: list[coro.sock], seconds: float, tick: float, look: Callable[[], Any]
) -> Rate:
    """Run a thread per connection for `seconds`, calling `look` every `tick` seconds; empties `connections`.

    Threads that have not ended 30 s after the stop are counted as errors: their last request was lost.
    """
    began = time.perf_counter()
    # A thread keeps its arguments as long as it lives: the connection itself would be held long after its end.
    first = dict(enumerate(connections))
    connections.clear()
    threads = [coro.spawn(load.session, first, number) for number in first]
    while (left := began + seconds - time.perf_counter()) > 0:
        coro.sleep_relative(min(tick, left))
        look()
    load.stopping = True
    rate = Rate(load.requests, time.perf_counter() - began)

    def join_all() -> None:
        for thread in threads:
            thread.join()

    try:
        coro.with_timeout(30, join_all)
    except coro.TimeoutError:
        hanging = sum(not thread.dead for thread in threads)
        load.errors += hanging
        load.first_errors.append(f"{hanging} connections still waited for their echo 30 s after the end")
    return rate
