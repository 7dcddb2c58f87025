# Types of _gateway.pyx.
from typing import Any

from coro.http._connection import http_request

class Environs:
    def __init__(self, base: dict[str, Any], root: str) -> None: ...

def scope_headers(request: http_request) -> list[tuple[bytes, bytes]]: ...
def scope_path(request: http_request) -> tuple[str, bytes]: ...
