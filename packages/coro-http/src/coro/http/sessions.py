"""Sessions: a dictionary per visitor, kept in the process or in a signed cookie.

    sessions = http.sessions.Sessions()
    app.middleware(sessions)

    def handler(request):
        request.session["hits"] = request.session.get("hits", 0) + 1

`Sessions` keeps the data here and gives the visitor an identifier of 256 random bits; there is a most number of
sessions and a most age, beyond which the oldest go. `SignedSessions` keeps nothing: the data go into a cookie with an
HMAC, which anybody can read and nobody can change. Cookies are HttpOnly and SameSite=Lax; ``secure`` should be set
wherever there is TLS. Cost: a dictionary look-up; for signed ones, JSON and SHA-256 per request.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Self

from coro.http.cookies import SetCookie, parse_cookie
from coro.http.exceptions import LocalError

__all__ = ["Sessions", "SignedSessions"]

#: Seconds without a request after which a session is over.
MAX_AGE = 14 * 86400
#: Sessions kept at a time.
MOST = 10_000
#: Bytes of a cookie: browsers keep no more.
LONGEST = 3800


class Sessions:
    """A middleware that gives each request a ``session``, a dict that lasts over requests of a visitor.

    ``name`` is the cookie's; ``max_age``: seconds without a request; ``most``: sessions kept at a time; ``secure``: the
    cookie is sent over TLS only. A session that stays empty makes no cookie.
    """

    def __init__(
        self, name: str = "session", *, max_age: float = MAX_AGE, most: int = MOST, secure: bool = False
    ) -> None:
        self.name, self.max_age, self.most, self.secure = name, max_age, most, secure
        self._kept: OrderedDict[str, tuple[float, dict[str, Any]]] = OrderedDict()
        self.clock: Callable[[], float] = time.monotonic

    def __len__(self) -> int:
        return len(self._kept)

    def __call__(self, request: Any, proceed: Callable[[Any], Any]) -> Any:
        sid = parse_cookie(request.headers.get_one("cookie")).get(self.name)
        found = self._find(sid)
        fresh = found is None
        session: dict[str, Any] = {} if found is None else found
        request.session = session
        if fresh:
            sid = secrets.token_urlsafe(32)
            # The cookie has to be in the head, and whether one is needed shows while the handler runs.
            request.session = session = _Noticing(lambda: self._begin(request, sid, session))
        try:
            return proceed(request)
        finally:
            if not fresh and not session and sid is not None:
                self._kept.pop(sid, None)

    def _find(self, sid: str | None) -> dict[str, Any] | None:
        if sid is None or sid not in self._kept:
            return None
        used, session = self._kept.pop(sid)
        now = self.clock()
        if now - used > self.max_age:
            return None
        self._kept[sid] = (now, session)
        return session

    def _begin(self, request: Any, sid: str, session: dict[str, Any]) -> None:
        if request.started:
            raise LocalError("a session begins before the answer: its cookie goes into the head")
        self._kept[sid] = (self.clock(), session)
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)
        request.add_header("set-cookie", str(SetCookie(self.name, sid, secure=self.secure)))


class _Noticing(dict[str, Any]):
    """A dict that tells when the first value is put into it."""

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self._tell: Callable[[], None] | None = tell

    def __setitem__(self, key: str, value: Any) -> None:
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()
        super().__setitem__(key, value)

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc]
        self.update(other)
        return self

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value


class SignedSessions:
    """As `Sessions`, but the data are in the cookie, signed with ``key`` (bytes, at least 16): for several processes.

    The data have to be JSON, and short: a session of more than about 2.8 KB is a `LocalError`. They are signed, not
    encrypted. ValueError for a short key.
    """

    def __init__(self, key: bytes, name: str = "session", *, max_age: float = MAX_AGE, secure: bool = False) -> None:
        if len(key) < 16:
            raise ValueError("the key of signed sessions has at least 16 bytes: secrets.token_bytes(32) makes one")
        self._key, self.name, self.max_age, self.secure = key, name, max_age, secure
        self.clock: Callable[[], float] = time.time

    def _sign(self, payload: str) -> str:
        digest = hmac.digest(self._key, f"{self.name}|{payload}".encode(), "sha256")
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def pack(self, session: dict[str, Any]) -> str:
        """The cookie's value. `LocalError` if it is too long."""
        text = json.dumps([int(self.clock()), session], separators=(",", ":"))
        payload = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
        value = f"{payload}.{self._sign(payload)}"
        if len(value) > LONGEST:
            raise LocalError(f"a session in a cookie has room for {LONGEST} bytes, and this one has {len(value)}")
        return value

    def unpack(self, value: str | None) -> dict[str, Any]:
        """The data of a cookie's value; empty if it is none of ours, or too old."""
        payload, dot, signature = (value or "").partition(".")
        if not dot or not hmac.compare_digest(self._sign(payload).encode(), signature.encode("utf-8", "replace")):
            return {}
        made, session = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return session if 0 <= self.clock() - made <= self.max_age else {}

    def __call__(self, request: Any, proceed: Callable[[Any], Any]) -> Any:
        from coro.http.routing import Response

        session = self.unpack(parse_cookie(request.headers.get_one("cookie")).get(self.name))
        before = json.dumps(session)
        request.session = session
        result = proceed(request)
        if json.dumps(session) == before:
            return result
        if request.started:
            raise LocalError("the session was changed after the answer had begun: its cookie goes into the head")
        max_age = int(self.max_age) if session else 0
        cookie = SetCookie(self.name, self.pack(session), max_age=max_age, secure=self.secure)
        request.add_header("set-cookie", str(cookie))
        return Response(b"", 204) if result is None else result
