"""Files: `Files(folder)` answers GET and HEAD with what is below a folder, and with nothing else.

    app.mount("/static", http.static.Files("/srv/www", prefix="/static"))

A path is split at its slashes, each segment is decoded once, and one that is "..", or has a slash, a backslash or NUL
in it, or begins with a dot, is not found. Then the file is opened segment by segment, each relative to the folder
before it and without following symbolic links (openat(2), O_NOFOLLOW): what is opened cannot be outside, whatever
changes on the disk meanwhile. ``follow_links=True`` follows links that lead to somewhere below the folder.

Answers have Last-Modified and a strong ETag made of the file's time, size and inode; conditions (RFC 9110 13) and one
range of bytes (14) are obeyed. The bytes go by sendfile(2). Where a client takes gzip, br or zstd, and ``name.gz``,
``name.br`` or ``name.zst`` lies beside the file, that is sent.

Answers with whole files are remembered (`_static`), so that the same request again costs nothing in Python.

Cost: two system calls besides sending for each folder on the way; three for an answer that is remembered. Opening and
sending use the disk in the loop's thread; files that are not in the kernel's cache are read by it then, which is what
nginx does by default, too.
"""

from __future__ import annotations

import mimetypes
import os
import re
import stat
from functools import lru_cache
from html import escape
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from coro.http import http_date
from coro.http._content import choose
from coro.http._static import Remembered
from coro.http.exceptions import HTTPException

__all__ = ["Files", "byte_range", "etag_matches", "not_modified", "send_file"]

#: Files whose fields are remembered.
REMEMBERED = 1024

_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})\Z", re.A)
_CONDITIONS = ("if-none-match", "if-modified-since", "if-match", "if-unmodified-since")
_PRECOMPRESSED = {"zstd": ".zst", "br": ".br", "gzip": ".gz"}
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


def etag_matches(listed: str, etag: str, weak: bool) -> bool:
    """Whether an If-Match or If-None-Match names ``etag``; ``weak``: by the weak comparison (RFC 9110 8.8.3.2)."""
    if listed.strip() == "*":
        return True
    wanted = etag.removeprefix("W/") if weak else etag
    for one in listed.split(","):
        one = one.strip()
        if weak:
            one = one.removeprefix("W/")
        if one == wanted and not (one.startswith("W/") and not weak):
            return True
    return False


def not_modified(headers: Any, etag: str | None, modified: float | None) -> int | None:
    """The status that the conditions of a request ask for: 304, 412, or None to go on (RFC 9110 13.2.2)."""
    if not any(headers.get(name) for name in _CONDITIONS):
        return None
    match = headers.get_one("if-match")
    if match is not None:
        if etag is None or not etag_matches(match, etag, False):
            return 412
    else:
        since = http_date.parse(headers.get("if-unmodified-since") or "")
        if since is not None and modified is not None and int(modified) > since:
            return 412
    none_match = headers.get_one("if-none-match")
    if none_match is not None:
        return 304 if etag is not None and etag_matches(none_match, etag, True) else None
    # the classic library's clients append "; length=N"
    since = http_date.parse((headers.get("if-modified-since") or "").partition(";")[0])
    return 304 if since is not None and modified is not None and int(modified) <= since else None


def byte_range(text: str, size: int) -> tuple[int, int] | None:
    """``(first, length)`` for a Range of one part, None if it is to be ignored. HTTPException 416 if nothing of it
    exists (RFC 9110 14.1.2)."""
    found = _RANGE.match(text.replace(" ", ""))
    if found is None or found[1] == found[2] == "":
        return None
    if found[1] == "":
        length = min(int(found[2]), size)
        if length == 0:
            raise HTTPException(416, headers=[("content-range", f"bytes */{size}")])
        return size - length, length
    first = int(found[1])
    last = int(found[2]) if found[2] else size - 1
    if found[2] and last < first:
        return None
    if first >= size:
        raise HTTPException(416, headers=[("content-range", f"bytes */{size}")])
    return first, min(last, size - 1) - first + 1


def send_file(
    request: Any, fd: int, info: os.stat_result, content_type: str, headers: list[tuple[str, str]] | None = None
) -> None:
    """Answer with an open regular file: conditions, a range, and its bytes. The descriptor stays the caller's."""
    asked = request.headers
    etag, fields = _fields_of(info, content_type)
    if headers:
        fields = [*fields, *headers]
    status = not_modified(asked, etag, info.st_mtime)
    if status is not None:
        request.respond(status, fields, b"")
        return
    first, length, code = 0, info.st_size, 200
    wanted = asked.get("range")
    if wanted is not None and request.method == "get":
        condition = asked.get("if-range")
        if condition is None or condition == etag or http_date.parse(condition) == int(info.st_mtime):
            part = byte_range(wanted, info.st_size)
            if part is not None:
                first, length = part
                code = 206
                fields = [*fields, ("content-range", f"bytes {first}-{first + length - 1}/{info.st_size}")]
    request.respond_file(code, fields, fd, first, length)


@lru_cache(maxsize=REMEMBERED)
def _fields_made(mtime_ns: int, size: int, inode: int, content_type: str) -> tuple[str, list[tuple[str, str]]]:
    etag = f'"{mtime_ns:x}-{size:x}-{inode:x}"'
    return etag, [
        ("last-modified", http_date.build_http_date(mtime_ns // 1_000_000_000)),
        ("etag", etag),
        ("accept-ranges", "bytes"),
        ("content-type", content_type),
    ]


def _fields_of(info: os.stat_result, content_type: str) -> tuple[str, list[tuple[str, str]]]:
    """The strong validator of a file's content, RFC 9110 8.8.3, which changes with its time, size and inode, and the
    fields of an answer with it."""
    return _fields_made(info.st_mtime_ns, info.st_size, info.st_ino, content_type)


@lru_cache(maxsize=REMEMBERED)
def content_type_of(name: str) -> str:
    """The Content-Type for a file of this name; text is taken for UTF-8."""
    kind, coding = mimetypes.guess_type(name)
    kind = kind if kind and not coding else "application/octet-stream"
    if kind.startswith("text/") or kind in ("application/javascript", "application/json"):
        kind += "; charset=utf-8"
    return kind


class Files:
    """A handler for the files below ``folder``.

    ``prefix`` is what stands before them in the path. ``index`` is the name that a folder is answered with, None for
    none; ``listing``: whether a folder without it is shown. ``hidden``: whether names that begin with a dot exist.
    ``follow_links``: whether symbolic links are followed, as long as they stay below the folder. ``max_age``: seconds
    for Cache-Control, None for no such field. OSError if the folder does not exist.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        prefix: str = "",
        index: str | None = "index.html",
        listing: bool = False,
        hidden: bool = False,
        follow_links: bool = False,
        precompressed: bool = True,
        max_age: int | None = None,
    ) -> None:
        self.folder = os.path.realpath(folder)
        os.close(os.open(self.folder, _OPEN | os.O_DIRECTORY))
        self.prefix = prefix.rstrip("/")
        self.index, self.listing, self.hidden = index, listing, hidden
        self.follow_links, self.precompressed = follow_links, precompressed
        self._headers = [] if max_age is None else [("cache-control", f"max-age={max_age}")]
        # A subclass may decide anew each time.
        self._remembered = Remembered(precompressed) if type(self) is Files and not follow_links else None

    def match(self, request: Any) -> bool:
        """Whether this is a path of ours."""
        path: str = request.path
        return path.startswith(self.prefix + "/") or path == self.prefix

    def segments(self, path: str) -> list[str]:
        """The names that a path stands for. HTTPException 404 for one that could lead elsewhere."""
        if not path.startswith(self.prefix):
            raise HTTPException(404)
        found: list[str] = []
        if "%" not in path and "/." not in path and "\\" not in path:
            found = [name for name in path[len(self.prefix) :].split("/") if name]
            return found
        for part in path[len(self.prefix) :].split("/"):
            name = os.fsdecode(unquote_to_bytes(part))
            if name in ("", "."):
                continue
            if name == ".." or any(c in name for c in "/\\\0") or (name[0] == "." and not self.hidden):
                raise HTTPException(404)
            found.append(name)
        return found

    def _open(self, names: list[str]) -> int:
        """A descriptor; OSError as open(2) has it."""
        if self.follow_links:
            path = os.path.realpath(os.path.join(self.folder, *names))
            if path != self.folder and not path.startswith(self.folder.rstrip("/") + "/"):
                raise FileNotFoundError(path)
            names = [name for name in path[len(self.folder) :].split("/") if name]
        if len(names) == 1:
            folder = (
                os.open(self.folder, os.O_PATH | os.O_CLOEXEC) if hasattr(os, "O_PATH") else os.open(self.folder, _OPEN)
            )
            try:
                return os.open(names[0], _OPEN | os.O_NOFOLLOW, dir_fd=folder)
            finally:
                os.close(folder)
        fd = os.open(self.folder, _OPEN | os.O_DIRECTORY)
        for i, name in enumerate(names):
            flags = _OPEN | os.O_NOFOLLOW | (os.O_DIRECTORY if i < len(names) - 1 else 0)
            try:
                below = os.open(name, flags, dir_fd=fd)
            finally:
                os.close(fd)
            fd = below
        return fd

    def __call__(self, request: Any) -> None:
        if self._remembered is not None and self._remembered.answer(request):
            return
        if request.method not in ("get", "head"):
            raise HTTPException(405, headers=[("allow", "GET, HEAD")])
        names = self.segments(request.path)
        try:
            fd = self._open(names)
        except OSError:
            raise HTTPException(404) from None
        try:
            info = os.fstat(fd)
            if stat.S_ISDIR(info.st_mode):
                self._folder(request, fd, names)
            elif stat.S_ISREG(info.st_mode) and not request.path.endswith("/"):
                self._file(request, fd, info, names)
            else:
                raise HTTPException(404)
        finally:
            os.close(fd)

    handle_request = __call__

    def _folder(self, request: Any, fd: int, names: list[str]) -> None:
        if not request.path.endswith("/"):
            # Relative links of the page need the slash. The path begins with one, and is made anew from its names, so
            # that it cannot be taken for another host ("//evil").
            path = self.prefix + "".join("/" + quote(name) for name in names) + "/"
            raise HTTPException(301, headers=[("location", path + (request.query or ""))])
        if self.index is not None:
            try:
                file = os.open(self.index, _OPEN | os.O_NOFOLLOW, dir_fd=fd)
            except OSError:
                pass
            else:
                try:
                    info = os.fstat(file)
                    if stat.S_ISREG(info.st_mode):
                        self._file(request, file, info, [*names, self.index])
                        return
                finally:
                    os.close(file)
        if not self.listing:
            raise HTTPException(404)
        self.list_folder(request, fd)

    def list_folder(self, request: Any, fd: int) -> None:
        """Answer with a page that names what is in the folder; override it for another one."""
        with os.scandir(fd) as found:
            entries = sorted(
                (e.name, e.is_dir(follow_symlinks=False)) for e in found if self.hidden or e.name[0] != "."
            )
        rows = "".join(
            f'<li><a href="{quote(os.fsencode(name))}{"/" * is_folder}">{escape(name)}{"/" * is_folder}</a></li>\n'
            for name, is_folder in entries
        )
        page = f"<!DOCTYPE html>\n<html><head><meta charset=utf-8></head><body><ul>\n{rows}</ul></body></html>\n"
        body = page.encode("utf-8", "replace")
        request.respond(200, [("content-type", "text/html; charset=utf-8")], body)

    def _file(self, request: Any, fd: int, info: os.stat_result, names: list[str]) -> None:
        name = names[-1] if names else os.path.basename(self.folder)
        kind = content_type_of(name)
        headers = self._headers
        accepted = request.headers.get_one("accept-encoding") if self.precompressed and names else None
        if accepted:
            coding = choose(accepted, tuple(_PRECOMPRESSED))
            if coding is not None:
                packed = self._packed(names, coding, info)
                if packed is not None:
                    headers = [*headers, ("content-encoding", coding), ("vary", "accept-encoding")]
                    try:
                        send_file(request, packed, os.fstat(packed), kind, headers)
                    finally:
                        os.close(packed)
                    return
        if self._remembered is not None:
            path = os.fsencode(os.path.join(self.folder, *names))
            self._remembered.remember(request, path, info, [*_fields_of(info, kind)[1], *headers])
        send_file(request, fd, info, kind, headers)

    def _packed(self, names: list[str], coding: str, info: os.stat_result) -> int | None:
        """A descriptor of the compressed file beside this one, if there is one that is not older."""
        try:
            fd = self._open([*names[:-1], names[-1] + _PRECOMPRESSED[coding]])
        except OSError:
            return None
        packed = os.fstat(fd)
        if stat.S_ISREG(packed.st_mode) and packed.st_mtime >= info.st_mtime:
            return fd
        os.close(fd)
        return None
