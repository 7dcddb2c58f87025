"""Types of the compiled module _calls.pyx. Names with an underscore are for coro.rpc's own modules and tests."""

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Self, final

from coro.rpc.packet_stream import Call, PacketStream

class Limits:
    running: int
    most: int
    def __init__(self, most: int) -> None: ...

class Method:
    name: str
    function: Any
    allow: Any
    signature: Any
    limit: int
    running: int
    max_time: float | None
    serial: str | None
    idempotent: bool
    doc: str
    calls: int
    failures: int
    def __init__(
        self,
        name: str,
        function: Any,
        *,
        limit: int = 0,
        max_time: float | None = None,
        serial: str | None = None,
        allow: frozenset[str] | None = None,
        idempotent: bool = False,
        doc: str = "",
        signature: str = "",
    ) -> None: ...
    def latencies(self) -> list[int]: ...

class IncomingCall:
    note: Any
    @property
    def id(self) -> int: ...
    @property
    def cancelled(self) -> bool: ...
    @property
    def expired(self) -> bool: ...
    @property
    def name(self) -> str: ...
    @property
    def connection(self) -> Any: ...
    @property
    def identity(self) -> str | None: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    @property
    def remaining(self) -> float: ...

class Pending(Call):
    def wait(self, timeout: float | None = None) -> Any: ...

@final
class Stream(Iterator[Any]):
    @property
    def result(self) -> Any: ...
    @property
    def done(self) -> bool: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]: ...

class RpcStream(PacketStream):
    codec: Any
    facade: Any
    identity: str | None
    registry: Any
    hooks: Any
    errors: Any
    tracebacks: bool
    slow: float | None
    on_slow: Any
    on_error: Any
    def prepare(
        self,
        *,
        facade: Any,
        methods: dict[bytes, Method],
        hooks: Any,
        limits: Limits | None,
        tracebacks: bool,
        in_order: bool,
        is_server: bool,
        greeter: Callable[[int, bytes], None] | None,
        errors: Mapping[str, type[Exception]],
        slow: float | None,
        on_slow: Any,
        on_error: Any,
        builtins: dict[bytes, Method] | None,
        greetings: int = 1,
    ) -> None: ...
    def agree(self, codec: Any, identity: str | None) -> None: ...
    def reject(self, exc: Exception) -> None: ...
    def answer(self, number: int, payload: bytes) -> None: ...
    def refuse(self, number: int, code: int, text: str) -> None: ...
    def call(
        self,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        timeout: Any = None,
        metadata: Any = None,
    ) -> Any: ...
    def call_async(
        self,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        timeout: Any = None,
        metadata: Any = None,
    ) -> Pending: ...
    def open_stream(
        self,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        timeout: Any = None,
        metadata: Any = None,
    ) -> Stream: ...
    def cast(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None, metadata: Any = None) -> None: ...
    def _is_agreed(self) -> bool: ...
    def _grant_upload(self, call: Pending, n: int) -> None: ...

def current_call() -> IncomingCall | None: ...
def _leave_call() -> None: ...
