"""Types of the compiled module _sync/waiters.pyx."""

from types import TracebackType
from typing import Literal, Self

class Primitive: ...

class Counted(Primitive):
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]: ...
