"""Resource limits of the process: see that they suffice, or raise them, before the load comes.

    coro.limits.raise_open_files()          # as many descriptors as the system lets us have
    coro.limits.verify({"NOFILE": 16000})   # or an error that says what to change

A server that holds a connection per thread meets RLIMIT_NOFILE first: the usual soft limit is 1024 (or 256). See
getrlimit(2). Raising a soft limit up to the hard one needs no privilege; raising the hard one does. Beyond the limits
of the process there are those of the kernel, which only its administrator can change; `check_sysctls` gives advice.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from collections.abc import Mapping

from coro._runtime.arguments import whole

__all__ = ["DEFAULT_MINIMUMS", "DEFAULT_SYSCTLS", "check_sysctls", "raise_open_files", "verify"]

_LINUX: bool = sys.platform.startswith("linux")

#: What ``verify`` asks for unless told otherwise: what a busy server needs at least, by the names it takes.
DEFAULT_MINIMUMS: Mapping[str, int] = {"NOFILE": 16000, "NPROC": 500}

#: What ``check_sysctls`` compares with unless told otherwise: for a server with tens of thousands of connections, by
#: the names of Linux, FreeBSD and macOS together; what a system lacks is passed over there. See listen(2), socket(7),
#: ip(7), tcp(7) and proc_sys_vm(5) of Linux, tuning(7) of FreeBSD.
DEFAULT_SYSCTLS: Mapping[str, int] = {
    "fs.file-max": 100_000,  # descriptors of the whole system
    "fs.nr_open": 100_000,  # the highest hard limit a process may have
    "net.core.somaxconn": 4096,  # the longest queue of listen()
    "net.ipv4.tcp_max_syn_backlog": 4096,  # connections not yet confirmed by the peer
    "vm.max_map_count": 65_530,  # mappings of a process; its stack slots take two each
    "kern.maxfiles": 100_000,
    "kern.maxfilesperproc": 50_000,
    "kern.ipc.somaxconn": 4096,
    "kern.ipc.soacceptqueue": 4096,
}


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
    """Make sure that limits of the process are large enough. A soft limit that is too small is raised, and so is a hard
    limit where that is permitted. No limit is ever lowered.

    minimums: names without ``RLIMIT_`` (``"NOFILE"``, ``"NPROC"``, ``"DATA"``, ...) and the least numbers wanted, in
    the unit of getrlimit(2); ``resource.RLIM_INFINITY`` for no limit. None means ``DEFAULT_MINIMUMS``.

    Returns the limits now, ``{name: (soft, hard)}``; a name that this system lacks is left out. Raises SystemError that
    names the first limit that is too small and cannot be raised (earlier ones stay raised); ValueError for a name that
    no system has in that form, or a negative number.
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
    """Raise the soft limit on open descriptors as far as the system permits, but not above ``wanted``. Never lowers it.

    wanted: a number of descriptors; None for the hard limit. Returns the soft limit now, which may be less than wanted;
    use ``verify`` if that is an error. Raises ValueError for a number below 1, TypeError for a value that is no int.
    """
    if wanted is not None:
        whole(wanted, "the number of descriptors, or None,", 1)
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


def _read_sysctl(name: str) -> int | None:
    """The present value, None where the system has none of that name, or none that is one number."""
    try:
        if _LINUX:
            with open("/proc/sys/" + name.replace(".", "/")) as f:
                return int(f.read())
        # The function sysctl(3) takes numbers of its own on each system; the program knows the names.
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=10)
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def check_sysctls(minimums: Mapping[str, int] | None = None) -> list[str]:
    """Compare settings of the kernel with what a busy server wants, and give advice. Nothing is changed.

    minimums: names as sysctl(8) prints them, and numbers. None means ``DEFAULT_SYSCTLS``. Returns a sentence for each
    setting that is too small; settings that this system does not have are skipped. On systems other than Linux it runs
    a program for each name, so call it at the start. ValueError for a name with characters that such names do not have.
    """
    wanted_values = DEFAULT_SYSCTLS if minimums is None else minimums
    for name in wanted_values:
        if not re.fullmatch(r"\w[\w-]*(\.[\w-]+)+", name, re.ASCII):
            raise ValueError(f"expected the name of a setting such as 'net.core.somaxconn', not {name!r}")
    advice = []
    for name, wanted in wanted_values.items():
        value = _read_sysctl(name)
        if value is not None and value < wanted:
            advice.append(f"{name} is {value}, a busy server wants at least {wanted}: sysctl -w {name}={wanted}")
    return advice
