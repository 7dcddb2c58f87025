"""What a form sends: urlencoded pairs and multipart/form-data (RFC 7578), read as the body arrives.

    form = request.form()
    form["name"], form.files["photo"].read()

A multipart body is never held as a whole: a part stays in memory up to ``memory`` bytes and goes to a temporary file
beyond. The boundary is searched with bytes.find in blocks, so the cost is linear whatever the blocks are. Every number
has a limit: parts, bytes of a part's head, bytes of a field, of all. What is not of the form is a `RemoteError`, what
passes a limit a `LimitError` with status 413.

Cost: a copy of each byte.
"""

# Rejected: the email package (it wants the whole, and takes line ends of any kind).

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO
from urllib.parse import parse_qsl

from coro.http.exceptions import LimitError, RemoteError

__all__ = ["Form", "Upload", "multipart", "read_form"]

#: Pairs or parts of a form.
MOST_PARTS = 1000
#: Files among them: each of some size is an open file, of which a process has not many.
MOST_FILES = 100
#: Bytes of the fields of one part.
PART_HEAD = 8192
#: Bytes of a value that is no file.
MOST_FIELD = 1024 * 1024
#: How many values as long as that there may be: bytes of all of them.
FULL_FIELDS = 16
#: Bytes of a file that stay in memory.
MEMORY = 256 * 1024
#: Bytes of a whole form.
MOST_FORM = 64 * 1024 * 1024

_PARAMETER = re.compile(r';\s*([A-Za-z0-9!#$&+.^_`|~*-]{1,64})=("(?:[^"\\\r\n]|\\.){0,4096}"|[^\s;"]{0,4096})')
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]\Z")


def parameters(value: str) -> tuple[str, dict[str, str]]:
    """``'form-data; name="x"'`` as ``("form-data", {"name": "x"})``, names in lower case."""
    kind, semicolon, rest = value.partition(";")
    found: dict[str, str] = {}
    for pair in _PARAMETER.finditer(semicolon + rest):
        text = pair[2]
        if text.startswith('"'):
            # Browsers percent-encode a quotation mark and leave backslashes alone (HTML, form submission).
            text = text[1:-1].replace('\\"', '"')
        found.setdefault(pair[1].lower(), text)
    return kind.strip().lower(), found


class Upload:
    """A file of a form: ``name`` of the field, ``filename`` as the client calls it (never to be used as a path as it
    is), ``content_type``, ``size`` in bytes; ``file`` is a binary file at its beginning, in memory or on the disk."""

    def __init__(self, name: str, filename: str, content_type: str, file: BinaryIO, size: int) -> None:
        self.name, self.filename, self.content_type = name, filename, content_type
        self.file, self.size = file, size

    def read(self, size: int = -1) -> bytes:
        """Bytes of the file; all of them by default."""
        return self.file.read(size)

    def close(self) -> None:
        """Close the file, which deletes it."""
        self.file.close()

    def __repr__(self) -> str:
        return f"<Upload {self.filename!r} of {self.size} bytes>"


class Form:
    """The values and files of a form. ``form[name]`` is the first value, ``form.values`` all pairs in order; ``files``
    maps names to the first `Upload`, ``uploads`` is the list of all. ``with`` closes the files at the end."""

    def __init__(self) -> None:
        self.values: list[tuple[str, str]] = []
        self.uploads: list[Upload] = []

    @property
    def files(self) -> dict[str, Upload]:
        found: dict[str, Upload] = {}
        for upload in self.uploads:
            found.setdefault(upload.name, upload)
        return found

    def __getitem__(self, name: str) -> str:
        for key, value in self.values:
            if key == name:
                return value
        raise KeyError(name)

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of that name, or ``default``."""
        return next((value for key, value in self.values if key == name), default)

    def get_all(self, name: str) -> list[str]:
        """All values of that name."""
        return [value for key, value in self.values if key == name]

    def __contains__(self, name: object) -> bool:
        return any(key == name for key, _ in self.values)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(key for key, _ in self.values))

    def close(self) -> None:
        """Close the files."""
        for upload in self.uploads:
            upload.close()

    def __enter__(self) -> Form:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Source:
    """The body, with what was looked at too early put back."""

    def __init__(self, body: Any, limit: int) -> None:
        self._body, self._limit, self._total = body, limit, 0
        self.held = bytearray()
        self.ended = False

    def more(self) -> bool:
        piece = self._body.read_some(65536)
        if not piece:
            self.ended = True
            return False
        self._total += len(piece)
        if self._total > self._limit:
            raise LimitError(f"the form is longer than {self._limit} bytes", 413, self._limit)
        self.held += piece
        return True

    def until(self, mark: bytes) -> Iterator[bytes]:
        """The bytes before `mark`, which is dropped, in pieces."""
        while True:
            at = self.held.find(mark)
            if at >= 0:
                if at:
                    yield bytes(self.held[:at])
                del self.held[: at + len(mark)]
                return
            safe = len(self.held) - len(mark) + 1
            if safe > 0:
                yield bytes(self.held[:safe])
                del self.held[:safe]
            if not self.more():
                raise RemoteError("the multipart body ended before its last boundary")

    def exactly(self, n: int) -> bytes:
        while len(self.held) < n and self.more():
            continue
        taken = bytes(self.held[:n])
        del self.held[:n]
        return taken


def multipart(
    body: Any,
    content_type: str,
    *,
    parts: int = MOST_PARTS,
    part_head: int = PART_HEAD,
    limit: int = MOST_FORM,
) -> Iterator[tuple[dict[str, str], Iterator[bytes]]]:
    """The parts of a multipart body as they come: ``(fields, pieces)``, ``fields`` with names in lower case. ``pieces``
    has to be read before the next part.

    ``body`` has ``read_some``. ``parts``, ``part_head`` and ``limit``: the most parts, bytes of a part's fields, bytes
    in all. RemoteError for what is no multipart body, LimitError (413) for more than that.
    """
    kind, found = parameters(content_type)
    boundary = found.get("boundary", "")
    if not kind.startswith("multipart/") or not _BOUNDARY.match(boundary):
        raise RemoteError(f"expected multipart with a boundary as Content-Type, not {content_type[:200]!r}", 415)
    source = _Source(body, limit)
    mark = b"\r\n--" + boundary.encode()
    source.held += b"\r\n"  # the first boundary may be the beginning of the body
    for _ in source.until(mark):
        continue  # the preamble says nothing
    for number in range(parts + 1):
        end = source.exactly(2)
        if end == b"--":
            return
        while end in (b"  ", b" \r", b"\t\r"):  # transport padding, RFC 2046 5.1.1
            end = end[1:] + source.exactly(1)
        if end != b"\r\n":
            raise RemoteError("expected the end of the line behind a boundary of the multipart body")
        if number == parts:
            break
        fields = _fields(source, part_head)
        pieces = source.until(mark)
        yield fields, pieces
        for _ in pieces:
            continue  # what the caller left
    raise LimitError(f"the form has more than {parts} parts", 413, parts)


def _fields(source: _Source, most: int) -> dict[str, str]:
    """The fields of a part. CR LF ends a line, as in a head of HTTP."""
    found: dict[str, str] = {}
    while True:
        line = bytearray()
        for piece in source.until(b"\r\n"):
            line += piece
            most -= len(piece)
            if most < 0:
                raise LimitError("the head of a part of the form is too long", 413, PART_HEAD)
        if not line:
            return found
        most -= 2
        name, colon, value = line.decode("utf-8", "replace").partition(":")
        if not colon or name != name.strip() or any(c in value for c in "\0\r\n"):
            raise RemoteError("expected 'Name: value' in the head of a part of the form")
        found.setdefault(name.lower(), value.strip())


def read_form(
    request: Any, *, memory: int = MEMORY, limit: int = MOST_FORM, field: int = MOST_FIELD, files: int = MOST_FILES
) -> Form:
    """Read a request's body as a form, urlencoded or multipart, by its Content-Type.

    ``memory``: bytes of a file that stay in memory; ``limit``: bytes of the body; ``field``: bytes of a value, of which
    all together may have 16 times as many; ``files``: the most files.
    RemoteError (415) for another type, LimitError (413) for too much.
    """
    content_type = request.headers.get("content-type") or ""
    form = Form()
    if content_type.partition(";")[0].strip().lower() == "application/x-www-form-urlencoded":
        text = request.read(min(limit, field * FULL_FIELDS)).decode("utf-8", "replace")
        try:
            form.values = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_PARTS)
        except ValueError:
            raise LimitError(f"the form has more than {MOST_PARTS} values", 413, MOST_PARTS) from None
        return form
    left = field * FULL_FIELDS
    try:
        for fields, pieces in multipart(request, content_type, limit=limit):
            _, found = parameters(fields.get("content-disposition", ""))
            name = found.get("name")
            if name is None:
                raise RemoteError("a part of the form has no name")
            if "filename" in found:
                if len(form.uploads) == files:
                    raise LimitError(f"the form has more than {files} files", 413, files)
                form.uploads.append(_upload(name, found["filename"], fields, pieces, memory))
            else:
                data = _value(pieces, min(field, left))
                left -= len(data)
                form.values.append((name, data.decode("utf-8", "replace")))
    except BaseException:
        form.close()
        raise
    return form


def _value(pieces: Iterator[bytes], most: int) -> bytearray:
    found = bytearray()
    for piece in pieces:
        found += piece
        if len(found) > most:
            raise LimitError(
                f"a value of the form is longer than {most} bytes, or than the others have left", 413, most
            )
    return found


def _upload(name: str, filename: str, fields: dict[str, str], pieces: Iterator[bytes], memory: int) -> Upload:
    file: Any = tempfile.SpooledTemporaryFile(memory)
    size = 0
    try:
        for piece in pieces:
            file.write(piece)
            size += len(piece)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return Upload(name, filename, fields.get("content-type", "application/octet-stream"), file, size)
