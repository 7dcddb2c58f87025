"""Server-sent events (the HTML standard, 9.2): a stream of messages to a browser's EventSource.

    @app.get("/ticks")
    def ticks(request):
        with sse.stream(request) as events:
            while True:
                events.send(f"{time.time()}", event="tick")
                coro.sleep(1)

The handler's thread is the stream: it waits for whatever it waits for, and ``send`` raises when the client has gone. A
comment goes out every ``ping`` seconds of silence, so that proxies keep the connection and a vanished client is
noticed. Cost: a thread for the comments while a stream is open.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal, Self

import coro
from coro.http.exceptions import LocalError

__all__ = ["Events", "event_bytes", "stream"]

#: Seconds of silence after which a comment is sent.
PING = 15.0


def event_bytes(data: str, event: str | None = None, id: str | None = None, retry: int | None = None) -> bytes:
    """A message as it goes over the wire. `LocalError` for an event or id with a line end."""
    lines = []
    for name, value in (("event", event), ("id", id)):
        if value is not None:
            if any(c in value for c in "\r\n\0"):
                raise LocalError(f"the {name} of a message has no line ends: {value!r}")
            lines.append(f"{name}: {value}\n")
    if retry is not None:
        lines.append(f"retry: {retry}\n")
    lines += [f"data: {line}\n" for line in data.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    return ("".join(lines) + "\n").encode()


class Events:
    """An open stream; `stream` makes it. ``last_id`` is the id after which the client wants to go on, or None."""

    def __init__(self, request: Any, ping: float = PING) -> None:
        self._request = request
        self._lock = coro.mutex()
        self._quiet = True
        self._ping = ping
        self._pinger: Any = None
        self.last_id: str | None = request.headers.get("last-event-id")

    def send(self, data: str, event: str | None = None, id: str | None = None, retry: int | None = None) -> None:
        """Send a message. ``event``: its type; ``id``: what the client tells when it comes back; ``retry``:
        milliseconds until it does. OSError when the client has gone."""
        self._send(event_bytes(data, event, id, retry))

    def comment(self, text: str = "") -> None:
        """Send a comment, which the browser drops."""
        self._send(f": {text}".replace("\r", " ").replace("\n", " ").encode() + b"\n\n")

    def _send(self, data: bytes) -> None:
        with self._lock:
            self._quiet = False
            self._request.send(data)

    def _keep_alive(self) -> None:
        while True:
            self._quiet = True
            coro.sleep_relative(self._ping)
            if self._quiet:
                try:
                    self.comment("ping")
                except (OSError, LocalError):
                    return  # the handler's next message says so

    def __enter__(self) -> Self:
        headers = [("content-type", "text/event-stream"), ("cache-control", "no-store"), ("x-accel-buffering", "no")]
        self._request.start(200, headers)
        if self._ping:
            self._pinger = coro.spawn(self._keep_alive, thread_name="pings of an event stream", daemon=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        if self._pinger is not None:
            self._pinger.shutdown()
        if kind is None:
            self._request.finish()
        return False


def stream(request: Any, ping: float = PING) -> Events:
    """A stream of events as the answer to ``request``, for a ``with`` block. ``ping``: seconds of silence after which a
    comment is sent, 0 for never."""
    return Events(request, ping)
