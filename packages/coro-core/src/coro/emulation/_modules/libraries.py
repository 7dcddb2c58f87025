"""What single libraries need that call C functions which know OS threads only.

trio names its threads with pthread_setname_np(3), called through ctypes with what get_ident() says; for a coro thread
that is no address, and the C function would follow it. It does without names where the system has no such function.
"""

from __future__ import annotations

from coro.emulation._plan import Plan

__all__ = ["plan"]


def plan(p: Plan) -> None:
    """What to replace."""
    p.replace_in_each("trio._core._thread_cache", "set_os_thread_name", lambda module: None)
