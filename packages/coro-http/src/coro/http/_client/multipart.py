"""Bodies of requests: bytes, text, JSON, forms, files, uploads (multipart/form-data), and anything that is iterated.

A ``Body`` knows its type, its length if that can be known, and how to be read, and whether it can be read again: a
request that is redirected with its method, challenged, or tried again needs that. Files are read a block at a time in a
worker OS thread, so that a slow disk holds up nobody else, and nothing is read before it is sent.

multipart/form-data is RFC 7578, with names and file names escaped as the HTML standard has it (section 4.10.21.8,
"multipart form data"): quotes and line breaks are percent-encoded, the rest is UTF-8. So no file name can end its
header.
"""

from __future__ import annotations

import json as _json
import mimetypes
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from coro.http.exceptions import LocalError
from coro.offload import in_thread

__all__ = ["Body", "make_body"]

#: Bytes that are read from a file at a time.
BLOCK = 131_072

Files = Mapping[str, Any] | Iterable[tuple[str, Any]]


class Body:
    """What is sent behind the head of a request.

    content: bytes, or a function that returns a new iterator over pieces of bytes each time. length: in bytes, None if
    unknown. again: whether it can be read more than once.
    """

    __slots__ = ("again", "content", "content_type", "length")

    def __init__(
        self,
        content: bytes | Callable[[], Iterator[bytes]],
        content_type: str | None = None,
        length: int | None = None,
        again: bool = True,
    ) -> None:
        self.content = content
        self.content_type = content_type
        self.length = len(content) if isinstance(content, bytes) else length
        self.again = again

    def pieces(self) -> Iterator[bytes]:
        """The bytes, in pieces."""
        if isinstance(self.content, bytes):
            return iter((self.content,) if self.content else ())
        return self.content()


def make_body(
    content: Any = None, data: Any = None, json: Any = None, files: Files | None = None, *, has_json: bool = False
) -> Body | None:
    """The body that a request's arguments describe, None for none; see ``Client.request``. TypeError when two of them
    exclude each other, or for something that is no body."""
    given = [name for name, there in (("content", content is not None), ("json", has_json)) if there]
    if len(given) + (data is not None or files is not None) > 1:
        raise TypeError("a request has one body: give content, json, or data with files, and only one of these")
    if has_json:
        text = _json.dumps(json, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return Body(text.encode("utf-8"), "application/json")
    if files is not None:
        return _multipart(data, files)
    if data is not None:
        if isinstance(data, (bytes, bytearray, memoryview, str)) or hasattr(data, "read"):
            return _plain(data)
        return Body(urlencode(_pairs(data)).encode("ascii"), "application/x-www-form-urlencoded")
    return None if content is None else _plain(content)


def _plain(content: Any) -> Body:
    if isinstance(content, Body):
        return content
    if isinstance(content, str):
        return Body(content.encode("utf-8"), "text/plain; charset=utf-8")
    if isinstance(content, (bytes, bytearray, memoryview)):
        return Body(bytes(content))
    if isinstance(content, os.PathLike):
        return _path(content)
    if hasattr(content, "read"):
        return _file(content)
    if isinstance(content, Iterable) and not isinstance(content, Mapping):
        return _iterated(content)
    raise TypeError(
        f"expected a body as bytes, str, a path, an open file or an iterable of bytes, not {type(content).__name__}; "
        f"a form goes into data=, a JSON value into json="
    )


def _iterated(content: Iterable[Any]) -> Body:
    source = iter(content)
    once = source is content

    def pieces() -> Iterator[bytes]:
        for piece in source if once else content:
            yield _as_bytes(piece)

    return Body(pieces, again=not once)


def _as_bytes(piece: Any) -> bytes:
    if type(piece) is bytes:
        return piece
    if isinstance(piece, str):
        return piece.encode("utf-8")
    if isinstance(piece, (bytearray, memoryview)):
        return bytes(piece)
    raise TypeError(f"expected pieces of a body as bytes or str, not {type(piece).__name__}")


def _size(file: Any) -> int | None:
    """How many bytes there are from the file's position to its end, None if it cannot tell."""
    try:
        at = file.tell()
        end = file.seek(0, os.SEEK_END)
        file.seek(at)
    except (OSError, AttributeError, ValueError):
        return None
    return max(0, int(end) - int(at))


def _file(file: Any) -> Body:
    if isinstance(getattr(file, "encoding", None), str):
        raise TypeError("expected a file that was opened in binary mode ('rb')")
    length = _size(file)
    start = file.tell() if length is not None else 0

    def pieces() -> Iterator[bytes]:
        if length is not None:
            file.seek(start)
        yield from _blocks(file, length)

    return Body(pieces, None, length, length is not None)


def _path(path: os.PathLike[Any]) -> Body:
    length = os.stat(path).st_size

    def pieces() -> Iterator[bytes]:
        with open(path, "rb") as file:
            yield from _blocks(file, length)

    return Body(pieces, mimetypes.guess_type(os.fspath(path))[0], length)


def _blocks(file: Any, length: int | None) -> Iterator[bytes]:
    """The file's bytes, not more than ``length``: what grows meanwhile was not announced."""
    try:
        file.fileno()
        read: Callable[[int], Any] = lambda n: in_thread(file.read, n)  # noqa: E731
    except (AttributeError, OSError):
        read = file.read
    left = length
    while left is None or left > 0:
        block = _as_bytes(read(BLOCK if left is None else min(BLOCK, left)))
        if not block:
            if left:
                raise LocalError(f"the file ended {left} bytes before its announced length; it was cut meanwhile")
            return
        if left is not None:
            left -= len(block)
        yield block


def _pairs(fields: Any) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    for name, value in fields.items() if isinstance(fields, Mapping) else fields:
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if one is None:
                continue
            if isinstance(one, bytes):
                one = one.decode("utf-8")
            out.append((str(name), ("true" if one else "false") if isinstance(one, bool) else str(one)))
    return out


def _multipart(data: Any, files: Files) -> Body:
    boundary = "coro-" + secrets.token_hex(16)
    parts = [_part(name, None, Body(value.encode("utf-8"))) for name, value in (_pairs(data) if data else ())]
    for name, given in files.items() if isinstance(files, Mapping) else files:
        for one in given if isinstance(given, list) else (given,):
            parts.append(_upload(str(name), one))
    opening = f"--{boundary}\r\n".encode("ascii")
    closing = f"--{boundary}--\r\n".encode("ascii")
    length: int | None = len(closing)
    for head, body in parts:
        length = None if length is None or body.length is None else length + len(opening) + len(head) + body.length + 2

    def pieces() -> Iterator[bytes]:
        for head, body in parts:
            yield opening + head
            yield from body.pieces()
            yield b"\r\n"
        yield closing

    again = all(body.again for _, body in parts)
    return Body(pieces, f"multipart/form-data; boundary={boundary}", length, again)


def _upload(name: str, given: Any) -> tuple[bytes, Body]:
    """A file: what is in it, (file name, that) or (file name, that, content type)."""
    filename: Any = None
    kind: Any = None
    if isinstance(given, tuple):
        if not 2 <= len(given) <= 3:
            raise TypeError(f"expected (file name, content) or (file name, content, content type), not {given!r}")
        filename, content = given[:2]
        kind = given[2] if len(given) == 3 else None
    else:
        content = given
        path = os.fspath(given) if isinstance(given, os.PathLike) else getattr(given, "name", None)
        filename = os.path.basename(os.fsdecode(path)) if isinstance(path, (str, bytes)) else "upload"
    body = _plain(content)
    if kind is None and filename:
        kind = mimetypes.guess_type(filename)[0]
    return _part(name, filename, body, kind or "application/octet-stream")


def _part(name: str, filename: str | None, body: Body, kind: str | None = None) -> tuple[bytes, Body]:
    head = f'Content-Disposition: form-data; name="{_escaped(name)}"'
    if filename is not None:
        head += f'; filename="{_escaped(filename)}"'
    if kind is not None:
        if not kind.isascii() or any(c < " " or c == "\x7f" for c in kind):
            raise LocalError(f"a content type is ASCII without control characters, not {kind!r}")
        head += f"\r\nContent-Type: {kind}"
    return head.encode("utf-8") + b"\r\n\r\n", body


def _escaped(text: str) -> str:
    if "\0" in text:
        raise LocalError(f"the name of a form's field or file cannot have a NUL in it: {text!r}")
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
