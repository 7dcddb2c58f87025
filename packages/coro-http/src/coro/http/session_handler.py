"""The classic sessions: a thread per visitor that gets the visitor's requests out of a fifo.

    def visitor(sid, fifo):
        for hits in range(10):
            request = coro.with_timeout(1800, fifo.pop)
            request.push(f"hit {hits}")
            request.done()

    server.push_handler(session_handler("hits", visitor))

When the function returns, the session is over; requests that wait in the fifo then are answered with 410 (Gone). There
is a most number of sessions, beyond which new visitors get 503. Cost: a thread per session.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import coro
from coro.http.cookies import SetCookie, parse_cookie
from coro.http.exceptions import HTTPException

__all__ = ["session_handler"]

#: Sessions at a time.
MOST = 10_000


class session_handler:
    """Requests whose path begins with ``/name`` go to the visitor's thread, which runs ``function(sid, fifo)``.

    ``most``: sessions at a time; ``secure``: the cookie is sent over TLS only.
    """

    def __init__(self, name: str, function: Callable[[str, Any], object], *, most: int = MOST, secure: bool = False):
        self.name, self.function, self.most, self.secure = name, function, most, secure
        self.sessions: dict[str, Any] = {}

    def match(self, request: Any) -> bool:
        """Whether the first segment of the path is ours."""
        return bool(request.path.split("/")[1:2] == [self.name])

    def gen_session_id(self) -> str:
        """A new identifier of 256 random bits."""
        return secrets.token_urlsafe(32)

    def extract_session(self, cookie: str) -> str | None:
        """The identifier in a Cookie field."""
        return parse_cookie(cookie).get("session")

    def find_session(self, request: Any) -> tuple[str | None, Any]:
        """The identifier and the fifo of a request's session, ``(None, None)`` without one."""
        sid = self.extract_session(request.request_headers.get_one("cookie") or "")
        fifo = None if sid is None else self.sessions.get(sid)
        return (None, None) if fifo is None else (sid, fifo)

    def handle_request(self, request: Any) -> None:
        """Put the request into its session's fifo; a new visitor gets one."""
        sid, fifo = self.find_session(request)
        if sid is None:
            if len(self.sessions) >= self.most:
                raise HTTPException(503, "too many sessions", [("retry-after", "60")])
            sid = self.gen_session_id()
            fifo = self.sessions[sid] = coro.fifo()
            request.reply_headers["set-cookie"] = str(SetCookie("session", sid, secure=self.secure))
            coro.spawn(self._run, sid, fifo, thread_name=f"session of {self.name}")
        fifo.push(request)

    def _run(self, sid: str, fifo: Any) -> None:
        try:
            self.function(sid, fifo)
        finally:
            del self.sessions[sid]
            while len(fifo):
                request = fifo.pop()
                if not request.started:
                    request.error(410, "this session is over")
