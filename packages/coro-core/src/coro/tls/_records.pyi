"""Types of the compiled module tls/_records.pyx."""

from typing import Any

from _typeshed import ReadableBuffer

from coro._sync.locks import mutex
from coro.tls._channels import Channel
from coro.tls._engine import Engine

NUMBERS: tuple[int, int, int, int, int]
FIRST_BLOCK: int

class Records:
    _sock: Any
    _engine: Engine
    _context: Any
    @property
    def _channel(self) -> Channel: ...
    _lock: mutex
    _back: bytes
    _rest: bytes
    _block: int
    _state: int
    _primed: bool
    _direct: bool
    def _uses(self, channel: Channel) -> None: ...
    def _pull(self) -> bool: ...
    def recv(self, buffer_size: int, flags: int = 0) -> bytes: ...
    def send(self, data: ReadableBuffer, flags: int = 0) -> int: ...
