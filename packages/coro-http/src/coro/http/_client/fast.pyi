"""Types of the compiled module fast.pyx."""

from collections.abc import Sequence
from typing import Any, final

from coro._sync.locks import semaphore
from coro.http import h1
from coro.http._client.links import Link
from coro.http._client.messages import Request, Response
from coro.http._client.pool import Pool

__all__ = ["LinkState", "Plan", "PoolState", "ResponseState", "quick"]

class LinkState:
    codec: h1.Connection
    stream: Any
    raw: Any
    key: Any
    uses: Any
    idle_since: int
    heard: bool
    continued: bool
    def is_quiet(self) -> bool: ...

class PoolState:
    _places: semaphore
    _idle: dict[Any, list[Link]]
    _idle_count: int
    _most_idle: int
    _used: int
    _made: int
    _reused: int
    _closed: bool
    _per_origin: bool
    _next_look: int
    _idle_ticks: int

class ResponseState:
    status: int
    elapsed: float
    _used: bool
    _head: Any
    _headers: Any
    _content: Any
    _source: Any
    _encoding: Any
    _reason: Any
    _request: Any
    _plan: Any
    _history: Any
    _trailers: Any

@final
class Plan:
    def __init__(
        self,
        key: Any,
        head: bytes,
        request: Request,
        version: int,
        read: float | None,
        total: float | None,
        most: int,
    ) -> None: ...
    @property
    def key(self) -> Any: ...
    @property
    def head(self) -> bytes: ...
    @property
    def request(self) -> Request: ...
    @property
    def version(self) -> int: ...
    @property
    def read(self) -> float | None: ...
    @property
    def total(self) -> float | None: ...
    @property
    def most(self) -> int: ...

def quick(
    pool: Pool, plan: Plan, head: bytes, cls: type[Response]
) -> Response | tuple[Link, Any, Sequence[bytes]] | None: ...
