"""The back door: interactive Python inside a running program, for the people who run it.

    coro.backdoor.start(unix_path="/run/app/backdoor")      # in the program
    $ python -m coro.backdoor /run/app/backdoor              # in a terminal

A session is a thread among the others: the program goes on while somebody looks at it. telnet, nc and socat work as
well as the client, which adds line editing, history and completion. See ``serve`` for who may come in.
"""

from __future__ import annotations

from coro.backdoor._server import Server, default_path, serve, start
from coro.backdoor._session import backdoor

__all__ = ["Server", "backdoor", "default_path", "serve", "start"]
