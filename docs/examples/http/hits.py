"""A session: python docs/examples/http/hits.py, then open http://127.0.0.1:8080/hits and load it again and again.

Each visitor has a thread, which counts the visits in a local variable. After ten, or half an hour without one, the
thread returns, and the session is over: the next visit begins another.
"""

from __future__ import annotations

from typing import Any

import coro
from coro import http
from coro.http.session_handler import session_handler

MOST = 10
PATIENCE = 1800  # seconds


def visitor(sid: str, requests: Any) -> None:
    for hits in range(1, MOST + 1):
        try:
            request = coro.with_timeout(PATIENCE, requests.pop)
        except coro.TimeoutError:
            return
        last = " The next visit begins another session." if hits == MOST else ""
        request["content-type"] = "text/html; charset=utf-8"
        request.push(f"<!doctype html><title>Hits</title><h1>Visit {hits} of {MOST}</h1><p>{last}</p>")
        request.done()


app = session_handler("hits", visitor)

if __name__ == "__main__":
    http.serve(app, ("127.0.0.1", 8080))
