"""Threads of a loop as tests, and connections of two contexts."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import coro
from coro import testing
from coro.ssl import Context, TLSStream

#: The soak does with tlslite-ng, too, what every run does with OpenSSL only, because of the time it takes.
THOROUGH = "CORO_SSL_THOROUGH" in os.environ
#: Seconds that bound a hang.
LIMIT = 600 if THOROUGH else 60


def in_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a test as a thread of its own loop; one that hangs fails after LIMIT seconds."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return coro.run(coro.with_timeout, LIMIT, function, *args, **kwargs)

    return run


def in_jumping_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same under a virtual clock that jumps when nobody can run."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with testing.virtual_clock(autojump=0.02):
            return coro.run(coro.with_timeout, 1e6, function, *args, **kwargs)

    return run


def until(condition: Callable[[], object]) -> None:
    """Let the others run until it is so."""
    while not condition():
        coro.yield_slice()


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What it returns, or the error that it raises."""
    try:
        return function(*args, **kwargs)
    except (OSError, EOFError) as e:
        return e


def wrapped(client: Context, server: Context, name: str | None = "localhost") -> tuple[TLSStream, TLSStream]:
    """A client and a server, after the handshake."""
    here, there = coro.socketpair()
    thread = coro.spawn(server.wrap, there, server_side=True)
    return client.wrap(here, server_hostname=name), thread.get()


def both_fail(client: Context, server: Context, name: str | None = "localhost") -> tuple[Any, Any]:
    """What goes wrong at the client, and at the server, in a handshake or with the first byte."""

    def talk(context: Context, end: Any, server_side: bool) -> None:
        with context.wrap(end, server_side, None if server_side else name) as conn:
            if server_side:
                conn.send(b"x")
            conn.recv(1)

    here, there = coro.socketpair()
    thread = coro.spawn(outcome, talk, server, there, True)
    mine = outcome(talk, client, here, False)
    return mine, thread.get()
