# Types of _static.pyx.
import os

from coro.http._connection import http_request

__all__ = ["Remembered"]

class Remembered:
    def __init__(self, codings: bool = False) -> None: ...
    def __len__(self) -> int: ...
    def answer(self, request: http_request) -> bool: ...
    def remember(
        self, request: http_request, path: bytes, info: os.stat_result, fields: list[tuple[str, str]]
    ) -> None: ...
