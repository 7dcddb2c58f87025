"""What single libraries need, because they wait in C or call C functions that know OS threads only.

trio names its threads with pthread_setname_np(3), called through ctypes with what get_ident() says; for a coro thread
that is no address, and the C function would follow it. It does without names where the system has no such function.

psycopg2 waits in libpq, and psycopg 3 in C of its own. Both can be told to wait with a function in Python: psycopg2 by
set_wait_callback(), psycopg 3 by choosing among those it has. A program that wants the C functions back says so by the
same means after the import.

uvicorn takes uvloop if that is installed, and a loop in C keeps all threads waiting. Its choice is asyncio's own loop
here; a program that names uvloop gets it.
"""

from __future__ import annotations

import importlib
import select
import sys
import types
from typing import Any

from coro.emulation._plan import Plan

__all__ = ["plan"]


def _wait_for_psycopg2(connection: Any) -> None:
    """Wait until the call that a connection is busy with is over."""
    extensions: Any = sys.modules["psycopg2.extensions"]
    while True:
        state = connection.poll()
        if state == extensions.POLL_OK:
            return
        if state not in (extensions.POLL_READ, extensions.POLL_WRITE):
            raise extensions.OperationalError(f"psycopg2 is in a state that nobody can wait for: {state!r}")
        fd = connection.fileno()
        reads = state == extensions.POLL_READ
        select.select([fd] if reads else [], [] if reads else [fd], [])


def _set_wait_callback(module: types.ModuleType) -> Any:
    vars(module)["set_wait_callback"](_wait_for_psycopg2)
    return vars(module)["set_wait_callback"]


def _choose_asyncio(name: str) -> Any:
    def make(module: types.ModuleType) -> Any:
        return getattr(importlib.import_module("uvicorn.loops.asyncio"), name.replace("auto", "asyncio"), None)

    return make


def plan(p: Plan) -> None:
    """What to replace."""
    p.replace_in_each("trio._core._thread_cache", "set_os_thread_name", lambda module: None)
    for name in ("auto_loop_factory", "auto_loop_setup"):
        p.replace_in_each("uvicorn.loops.auto", name, _choose_asyncio(name))
    p.replace_in_each("psycopg2.extensions", "set_wait_callback", _set_wait_callback)
    p.replace_in_each("psycopg.waiting", "wait", lambda module: vars(module)["wait_selector"])
