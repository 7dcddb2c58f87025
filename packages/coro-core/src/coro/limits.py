"""Resource limits of the process: see that they suffice, or raise them, before the load comes.

    coro.limits.raise_open_files()          # as many descriptors as the system lets us have
    coro.limits.verify({"NOFILE": 16000})   # or an error that says what to change

A server that holds a connection per thread meets RLIMIT_NOFILE first: the usual soft limit is 1024 (or 256). See
getrlimit(2). Raising a soft limit up to the hard one needs no privilege; raising the hard one does.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping

__all__ = ["DEFAULT_MINIMUMS", "raise_open_files", "verify"]

#: What ``verify`` asks for unless told otherwise: what a busy server needs at least, by the names it takes.
DEFAULT_MINIMUMS: Mapping[str, int] = {"NOFILE": 16000, "NPROC": 500}


def _less(a: int, b: int) -> bool:
    """Is limit a smaller than limit b? RLIM_INFINITY is -1 on some systems and the largest number on others."""
    if a == resource.RLIM_INFINITY:
        return False
    return b == resource.RLIM_INFINITY or a < b


def _require(name: str, number: int, wanted: int) -> tuple[int, int]:
    soft, hard = resource.getrlimit(number)
    if not _less(soft, wanted):
        return soft, hard
    new_hard = wanted if _less(hard, wanted) else hard
    try:
        resource.setrlimit(number, (wanted, new_hard))
    except (ValueError, OSError) as e:
        raise SystemError(
            f"expected a limit RLIMIT_{name} of at least {_text(wanted)}, it is {_text(soft)} "
            f"(hard limit {_text(hard)}) and cannot be raised: {e}; "
            f"raise it for the service or the login (ulimit -H, limits.conf, LimitNOFILE= and the like)"
        ) from e
    return resource.getrlimit(number)


def _text(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)


def verify(minimums: Mapping[str, int] | None = None) -> dict[str, tuple[int, int]]:
    """See that limits are at least so large; raise the soft limit, and the hard one where permitted, if they are not.

    minimums: names without ``RLIMIT_`` (``"NOFILE"``, ``"NPROC"``, ``"DATA"``, ...) and the numbers wanted, in the unit
    of getrlimit(2); ``resource.RLIM_INFINITY`` for no limit. None: ``DEFAULT_MINIMUMS``.

    Returns the limits now, ``{name: (soft, hard)}``; a name that this system lacks is left out. Never lowers one.
    Raises SystemError naming the first limit that is too small and cannot be raised (earlier ones stay raised);
    ValueError for a name no system has in that form, or a negative number.
    """
    now: dict[str, tuple[int, int]] = {}
    wanted_limits = DEFAULT_MINIMUMS if minimums is None else minimums
    for name, wanted in wanted_limits.items():
        if not name.isalpha() or not name.isupper() or name.startswith("RLIMIT"):
            raise ValueError(f"expected the name of a limit such as 'NOFILE', not {name!r}")
        if wanted < 0 and wanted != resource.RLIM_INFINITY:
            raise ValueError(f"expected a limit of at least 0 for {name}, not {wanted}")
    for name, wanted in wanted_limits.items():
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is not None:
            now[name] = _require(name, number, wanted)
    return now


def raise_open_files(wanted: int | None = None) -> int:
    """Raise the soft limit on open descriptors as far as the system lets us, at most to ``wanted``; never lower it.

    wanted: a number of descriptors, None for the hard limit. Returns the soft limit now, which may be less than wanted:
    use ``verify`` where that is an error. Raises ValueError for a number below 1.
    """
    if wanted is not None and wanted < 1:
        raise ValueError(f"expected at least 1 descriptor, not {wanted}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    goal = hard if wanted is None or _less(hard, wanted) else wanted
    if _less(soft, goal):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (goal, hard))
        except (ValueError, OSError):
            # macOS reports no hard limit and refuses more than OPEN_MAX, see its setrlimit(2).
            if goal == resource.RLIM_INFINITY or goal > 10240:
                _try_open_max(soft, hard)
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _try_open_max(soft: int, hard: int) -> None:
    if _less(soft, 10240):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (10240, hard))
        except (ValueError, OSError):
            pass  # the old limit stays, and is what the caller returns
