"""Types of the compiled module python.pyx."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from _typeshed import ReadableBuffer

from coro.asn1.exceptions import DecodingError as DecodingError
from coro.asn1.exceptions import EncodingError as EncodingError

_T = TypeVar("_T")

MAX_DEPTH: Final[int]
MAX_SIZE: Final[int]

class Registry:
    def __init__(self) -> None: ...
    def register(
        self, cls: type[_T], name: str, to_plain: Callable[[_T], object], from_plain: Callable[[Any], _T]
    ) -> None: ...

def encode(ob: object, *, registry: Registry | None = None, canonical: bool = False) -> bytes: ...
def decode(
    data: ReadableBuffer,
    start: int = 0,
    *,
    registry: Registry | None = None,
    exact: bool = False,
    max_size: int | None = None,
) -> tuple[Any, int]: ...
