"""The classic handlers: objects with ``match(request)`` and ``handle_request(request)``, for ``server.push_handler``.

`file_handler`, `favicon_handler`, `auth_handler`, `coro_status_handler`, and the templates `post_handler` and
`put_handler`. They keep their names and differ where the old ones were unsafe: files cannot be left by their path, the
status page asks for a permission, digests know their nonces. New programs use routes and `coro.http.static`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable
from html import escape
from typing import Any

import coro
from coro.http.exceptions import HTTPException
from coro.http.static import Files

__all__ = ["auth_handler", "coro_status_handler", "favicon_handler", "file_handler", "post_handler", "put_handler"]


class post_handler:
    """A template: POST with a body that is read as a whole."""

    method = "post"

    def match(self, request: Any) -> bool:
        """Whether the method is ours."""
        return bool(request.method == self.method)

    def handle_request(self, request: Any) -> None:
        """Read the body and answer with its length; override it."""
        data = request.file.read() if request.file is not None else b""
        request.push(f"{len(data)} bytes\n")
        request.done()


class put_handler(post_handler):
    """A template: PUT with a body that is read line by line."""

    method = "put"

    def handle_request(self, request: Any) -> None:
        """Read the lines of the body and answer with their number; override it."""
        lines = sum(1 for _ in request.file) if request.file is not None else 0
        request.push(f"{lines} lines\n")
        request.done()


class coro_status_handler:
    """A page with the threads of the process and their stacks, on paths that begin with ``/status``.

    ``allow``: a function of a request that says who may see it; by default only clients of the same machine that come
    without a proxy. Others are answered as if there were no such page.
    """

    def __init__(self, allow: Callable[[Any], bool] | None = None) -> None:
        self._allow = allow or _is_local

    def match(self, request: Any) -> bool:
        """Whether the first segment of the path is ``status``."""
        return bool(request.path.split("/")[1:2] == ["status"])

    def handle_request(self, request: Any) -> None:
        """Answer with the page."""
        if not self._allow(request):
            raise HTTPException(404)
        rows = "".join(
            f"<tr><td>{thread.id}</td><td>{escape(str(thread.name))}</td><td><pre>{escape(coro.where(thread))}</pre></td></tr>\n"
            for thread in sorted(coro.all_threads.values(), key=lambda t: t.id)
        )
        page = (
            "<!DOCTYPE html>\n<html><head><meta charset=utf-8><title>status</title></head><body>"
            f"<p>Listening on {escape(str(request.server.addr))}</p>\n"
            f"<table border=1><tr><th>thread</th><th>name</th><th>where</th></tr>\n{rows}</table></body></html>\n"
        )
        request.respond(200, [("content-type", "text/html; charset=utf-8"), ("cache-control", "no-store")], page)


def _is_local(request: Any) -> bool:
    host = request.peer[0] if isinstance(request.peer, tuple) and request.peer else "unix"
    proxied = "x-forwarded-for" in request.headers or "forwarded" in request.headers
    return host in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "unix") and not proxied


class file_handler:
    """The files below ``doc_root``, as `coro.http.static.Files` answers them; ``handle_directory_listing`` is called
    for folders without index.html."""

    def __init__(self, doc_root: str) -> None:
        self.doc_root = doc_root
        self._files = _Listed(doc_root, self)

    def match(self, request: Any) -> bool:
        """Whether there is such a file or folder."""
        try:
            names = self._files.segments(request.path)
            import os

            os.close(self._files._open(names))
        except (HTTPException, OSError):
            return False
        return True

    def handle_request(self, request: Any) -> None:
        """Answer with the file."""
        self._files(request)

    def handle_directory_listing(self, request: Any, path: str) -> None:
        """Answer for a folder without index.html: 404; override it."""
        raise HTTPException(404)


class _Listed(Files):
    def __init__(self, folder: str, handler: file_handler) -> None:
        super().__init__(folder, listing=True)
        self._handler = handler

    def list_folder(self, request: Any, fd: int) -> None:
        import os

        self._handler.handle_directory_listing(request, os.path.join(self.folder, *self.segments(request.path)))


# A white square of 16 by 16 pixels in an ICO of one bit per pixel, made here.
_ICON = (
    b"\0\0\1\0\1\0\x10\x10\2\0\1\0\1\0\xb0\0\0\0\x16\0\0\0"
    + b"\x28\0\0\0\x10\0\0\0\x20\0\0\0\1\0\1\0\0\0\0\0\x80\0\0\0\0\0\0\0\0\0\0\0\2\0\0\0\2\0\0\0"
    + b"\x20\x60\xa0\0\xff\xff\xff\0"
    + b"".join(bytes(row) + b"\0\0" for row in [(0x3C, 0x3C)] * 16)
    + bytes(64)
)


class favicon_handler:
    """``/favicon.ico``. ``data``: the icon, compressed by zlib as the classic library wants it, or None for one of
    ours."""

    def __init__(self, data: bytes | None = None) -> None:
        self._icon = _ICON if data is None else zlib.decompress(data)
        self._etag = f'"{zlib.crc32(self._icon):08x}"'

    def match(self, request: Any) -> bool:
        """Whether the path is /favicon.ico."""
        return bool(request.path == "/favicon.ico")

    def handle_request(self, request: Any) -> None:
        """Answer with the icon, or 304."""
        fields = [("etag", self._etag), ("cache-control", "max-age=86400")]
        if "if-modified-since" in request.headers or request.headers.get_one("if-none-match") == self._etag:
            request.respond(304, fields, b"")
        else:
            request.respond(200, [*fields, ("content-type", "image/x-icon")], self._icon)


_DIGEST = re.compile(r'([A-Za-z0-9_-]{1,32})=("(?:[^"\\]|\\.){0,2048}"|[^\s,"]{0,2048})')
#: Seconds that a nonce is good for, and how many are known at a time.
NONCE_AGE = 300.0
NONCES = 10_000


class auth_handler:
    """Digest authentication (RFC 7616) before another handler: SHA-256 and MD5, ``qop=auth`` with counted nonces.

    ``users`` maps names to passwords, ``handler`` is who answers those that are known, ``realm`` what the browser
    shows. A nonce is made here, good for five minutes, and each of its counts once, so that what was overheard cannot
    be sent again.
    """

    def __init__(self, users: dict[str, str], handler: Any, realm: str = "default") -> None:
        self.users, self.handler, self.realm = users, handler, realm
        self.pass_count = self.fail_count = 0
        self._nonces: OrderedDict[str, list[Any]] = OrderedDict()  # nonce -> [time, greatest count]
        self.clock: Callable[[], float] = time.monotonic

    def match(self, request: Any) -> bool:
        """Whether the other handler matches."""
        return bool(self.handler.match(request))

    def get_nonce(self) -> str:
        """A new nonce."""
        nonce = secrets.token_hex(16)
        self._nonces[nonce] = [self.clock(), 0]
        while len(self._nonces) > NONCES:
            self._nonces.popitem(last=False)
        return nonce

    def parse_authorization(self, header: str) -> dict[str, str] | None:
        """The parameters of ``Digest ...``, None for something else."""
        kind, _, rest = header.partition(" ")
        if kind.lower() != "digest":
            return None
        return {m[1].lower(): re.sub(r"\\(.)", r"\1", m[2].strip('"')) for m in _DIGEST.finditer(rest[:8192])}

    def check_response(self, request: Any, digest: dict[str, str]) -> bool:
        """Whether the client knows the password of the user it names."""
        needed = ("username", "realm", "nonce", "uri", "response", "qop", "nc", "cnonce")
        if any(name not in digest for name in needed) or digest["realm"] != self.realm or digest["qop"] != "auth":
            return False
        if digest["uri"] != request.uri or not re.fullmatch(r"[0-9a-fA-F]{8}", digest["nc"]):
            return False
        algorithm = digest.get("algorithm", "MD5").upper()
        if algorithm not in ("MD5", "SHA-256"):
            return False

        def h(text: str) -> str:
            name = "sha256" if algorithm == "SHA-256" else "md5"
            return hashlib.new(name, text.encode(), usedforsecurity=False).hexdigest()

        password = self.users.get(digest["username"])
        # (an unknown name takes as long as a wrong password)
        ha1 = h(f"{digest['username']}:{self.realm}:{secrets.token_hex() if password is None else password}")
        ha2 = h(f"{request.method_raw}:{digest['uri']}")
        wanted = h(f"{ha1}:{digest['nonce']}:{digest['nc']}:{digest['cnonce']}:auth:{ha2}")
        if not hmac.compare_digest(wanted.encode(), digest["response"].lower().encode("utf-8", "replace")):
            return False
        known = self._nonces.get(digest["nonce"])
        count = int(digest["nc"], 16)
        if known is None or self.clock() - known[0] > NONCE_AGE or count <= known[1]:
            return False
        known[1] = count
        return password is not None

    def handle_unauthorized(self, request: Any) -> None:
        """Answer 401 with a fresh nonce."""
        nonce = self.get_nonce()
        for algorithm in ("SHA-256", "MD5"):
            request.add_header(
                "www-authenticate",
                f'Digest realm="{self.realm}", nonce="{nonce}", qop="auth", algorithm={algorithm}, charset=UTF-8',
            )
        request.error(401)

    def handle_request(self, request: Any) -> Any:
        """Let the other handler answer, or say 401."""
        header = request.request_headers.get("authorization")
        digest = None if header is None else self.parse_authorization(header)
        if digest is not None and self.check_response(request, digest):
            self.pass_count += 1
            return self.handler.handle_request(request)
        self.fail_count += 1
        self.handle_unauthorized(request)
        return None
