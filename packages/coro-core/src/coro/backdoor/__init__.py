"""The back door: a Python prompt inside a running program, for the people who run it.

    coro.backdoor.start(unix_path="/run/app/backdoor")      # in the program
    $ python -m coro.backdoor /run/app/backdoor              # in a terminal

A session is a thread like any other, and the program continues meanwhile. The client edits lines, keeps a history and
completes names; telnet, nc and socat work without these. See ``serve`` for who may connect.
"""

from __future__ import annotations

from coro.backdoor._server import Server, default_path, serve, start
from coro.backdoor._session import backdoor

__all__ = ["Server", "backdoor", "default_path", "serve", "start"]
