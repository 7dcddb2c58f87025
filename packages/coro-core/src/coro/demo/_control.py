"""Conversation between the two processes of the demonstration: one JSON object per line over a UNIX socket
pair.

Cost: one thread of the server is parked in `recv` while nobody asks. End of stream from either side means
that the other process is gone, and is an answer of its own (None), so neither can outlive the other.
"""

from __future__ import annotations

import json
from typing import Any

import coro


class Line:
    """One end of the conversation, over an open descriptor that this object takes over."""

    def __init__(self, fd: int) -> None:
        self._sock = coro.fd_sock(fd)
        self._rest = b""

    def say(self, message: dict[str, Any]) -> None:
        """Send one message. OSError when the other process is gone."""
        self._sock.send(json.dumps(message).encode() + b"\n")

    def hear(self) -> dict[str, Any] | None:
        """The next message, or None when the other process is gone."""
        while b"\n" not in self._rest:
            try:
                more = self._sock.recv(65536)
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return dict(json.loads(line))

    def ask(self, question: str) -> dict[str, Any]:
        """Send `{"ask": question}` and return the answer. EOFError when the other process is gone."""
        self.say({"ask": question})
        answer = self.hear()
        if answer is None:
            raise EOFError(
                f"the other process ended while it was asked for {question!r}; its own output says why"
            )
        return answer

    def close(self) -> None:
        self._sock.close()
