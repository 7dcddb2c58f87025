"""Types of the compiled module packet_stream.pyx. Names with an underscore are for coro.rpc's own modules and tests."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from _typeshed import ReadableBuffer

DEFAULT_TIMEOUT: float
KEEPALIVE: float
KEEPALIVE_TIMEOUT: float

class PacketStatistics(NamedTuple):
    outstanding: int
    running: int
    queued_bytes: int
    packets_sent: int
    packets_received: int
    bytes_sent: int
    bytes_received: int
    writes: int
    reads: int
    calls: int
    failed: int
    timeouts: int
    cancelled: int
    served: int
    refused: int
    late_replies: int
    unknown_replies: int
    pushes: int
    latencies: tuple[int, ...]
    state: str

class Outstanding(NamedTuple):
    kind: str
    id: int
    what: str
    age: float
    thread: object

class Call:
    @property
    def id(self) -> int: ...
    @property
    def done(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> Any: ...
    def cancel(self) -> None: ...

class PacketStream:
    def __init__(
        self,
        stream: Any,
        *,
        handler: Callable[[bytes], ReadableBuffer] | None = None,
        push_handler: Callable[[bytes], object] | None = None,
        timeout: float | None = 60.0,
        max_packet: int = 16777216,
        max_queued: int = 16777216,
        max_outstanding: int = 1000,
        max_running: int = 1000,
        max_held: int = 67108864,
        window: int = 1048576,
        keepalive: float | None = 20.0,
        keepalive_timeout: float | None = 20.0,
        write_timeout: float | None = 60.0,
        idle_timeout: float | None = None,
        tell_errors: bool = False,
        name: str | None = None,
        on_close: Callable[[PacketStream], object] | None = None,
    ) -> None: ...
    @property
    def stream(self) -> Any: ...
    @property
    def name(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    @property
    def closing(self) -> bool: ...
    @property
    def error(self) -> Exception | None: ...
    def start(self) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]: ...
    def close(self, timeout: float = 5.0) -> bool: ...
    def abort(self) -> None: ...
    def wait_closed(self, timeout: float | None = None) -> None: ...
    def begin(self, data: ReadableBuffer, timeout: float | None = None) -> Call: ...
    def request(self, data: ReadableBuffer, timeout: float | None = None) -> bytes: ...
    def push(self, data: ReadableBuffer) -> None: ...
    def ping(self, timeout: float | None = None) -> float: ...
    def statistics(self) -> PacketStatistics: ...
    def dump(self) -> list[Outstanding]: ...
    def _set_next_id(self, number: int) -> None: ...
    def _grant_pushes(self, n: int) -> None: ...
    def _reject(self, error: Exception) -> None: ...
