"""Which poller this process uses: the one of its system, unless the environment asks for another.

``CORO_POLLER`` is ``epoll`` or ``kqueue``.  Linux has no kqueue; for tests ``CORO_KQUEUE_LIBRARY`` names a shared
library with the functions kqueue() and kevent(), which is then used.  Looked at once, when coro is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from coro._poll import kqueue as _kqueue

__all__ = ["choose"]


def choose() -> Callable[[], object]:
    """The class of the poller.

    Raises ImportError when the environment asks for one that this system has not.
    """
    asked = "" if sys.flags.ignore_environment else os.environ.get("CORO_POLLER", "")
    if asked not in ("", "epoll", "kqueue"):
        raise ImportError(
            f"expected CORO_POLLER in the environment to be epoll or kqueue, not {asked!r}; "
            "unset it for the system's own"
        )
    if asked == "kqueue" and not _kqueue.available():
        library = os.environ.get("CORO_KQUEUE_LIBRARY")
        if not library:
            raise ImportError(
                "CORO_POLLER=kqueue in the environment, but this system has no kqueue(2); remove the variable"
            )
        _kqueue.use_library(library)
    if asked == "kqueue" or (not asked and not sys.platform.startswith("linux")):
        return _kqueue.KqueuePoller
    try:
        from coro._poll.epoll import EpollPoller
    except ImportError as e:
        raise ImportError(f"CORO_POLLER=epoll in the environment, but {sys.platform} has no epoll(7); unset it") from e
    return EpollPoller
