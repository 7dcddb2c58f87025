"""The client of a program that has no door open: it has the program call back (Python 3.14, PEP 768).

``sys.remote_exec`` has the main OS thread of another process run a file as soon as it runs Python. Ours is SCRIPT. It
connects to a UNIX socket at which this process listens, says in a line what it has found, and hands the connection over
to a thread of the loop: the session. So the other process listens nowhere, and nothing is left of the session when its
connection ends.

The file and the socket are in a new folder that only the user of that process can enter, and root. The folder is gone
before the session begins. Where the two processes see different folders (a mount namespace, systemd's PrivateTmp), it
is made where the other one sees it.

A loop that waits runs no Python. Its poller tells how it can be woken: it watches a pipe for signals, and a zero byte
there means that Python's own signal handling has a look, which also runs the file (see ``_poll/events.pyx``). Rejected:
a signal, because nobody knows what the program does at it; stopping and continuing the process, because its parent sees
that.

Cost for the program: nothing until somebody comes.
"""

from __future__ import annotations

import ast
import contextlib
import glob
import os
import re
import select
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

__all__ = ["CannotAttach", "attach", "is_possible"]

#: Seconds for the process to run the script, and for its loop to begin the session, unless told otherwise.
PATIENCE = 10.0
#: Seconds between two attempts to wake the loop: one that was about to wait may have missed the first.
AGAIN = 0.2
#: The longest path of a UNIX socket that every system takes.
LONGEST_PATH = 100

#: What the other process runs: in any OS thread, between any two lines of it, perhaps in a process without coro. It
#: imports nothing from files before it is in a thread of the loop, and uses ``_socket`` because an emulation may have
#: replaced ``socket``. Whatever fails, the program sees nothing of it.
SCRIPT = '''\
def enter(path, kind):
    import sys
    from _socket import AF_UNIX, SOCK_STREAM, socket

    def where(frame):
        places = []
        while frame is not None and len(places) < 5:
            places.append(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}")
            frame = frame.f_back
        return places

    def session(fd):
        from coro.backdoor import _attached

        if kind == "debug":
            from coro.debug import _welcome as begin
        else:
            begin = _attached.prompt
        _attached.session(fd, begin)

    def spawn(fd):
        import coro

        coro.spawn(session, fd, thread_name="attached client", daemon=True)

    peer = socket(AF_UNIX, SOCK_STREAM)
    peer.settimeout(5)
    peer.connect(path)
    scheduler = sys.modules.get("coro._runtime.scheduler")
    found = {"state": "no loop"}
    if scheduler is None or "coro" not in sys.modules:
        found["state"] = "no coro"
    elif scheduler.coro_is_running():
        found["state"] = "ran"
        if scheduler._in_loop_os_thread():
            found["thread"] = repr(scheduler.current())
        found["where"] = where(sys._getframe(2))
    peer.sendall(ascii(found).encode() + b"\\n")
    if found["state"] == "ran":
        fd = peer.detach()
        if not scheduler._post_internal(spawn, fd):
            socket(fileno=fd).close()
    else:
        peer.close()


try:
    enter({path!r}, {kind!r})
except Exception:
    pass  # the client has gone
'''


class CannotAttach(Exception):
    """The session cannot be had. The text says why, and what to do."""


def is_possible() -> bool:
    """Does this Python have ``sys.remote_exec``?"""
    return hasattr(sys, "remote_exec")


def attach(pid: int, kind: str, patience: float = PATIENCE) -> socket.socket:
    """A connection to a session of the process ``pid``; ``kind`` is "backdoor" or "debug". ``patience`` is in seconds.

    CannotAttach when there can be none, or when the process does not answer in time."""
    _check_process(pid)
    with _cleaning_up(), _private_folder(pid) as (here, there), socket.socket(socket.AF_UNIX) as listener:
        script = os.path.join(here, "enter.py")
        path = os.path.join(here, "socket")
        listener.bind(path)
        listener.listen(1)
        text = SCRIPT.replace("{path!r}", ascii(os.path.join(there, "socket"))).replace("{kind!r}", ascii(kind))
        with open(script, "w", encoding="utf-8") as file:
            file.write(text)
        _hand_over(pid, here, script, path)
        deadline = time.monotonic() + patience
        _ask(pid, os.path.join(there, "enter.py"))
        sock = _accept(listener, pid, deadline)
        if sock is None:
            _withdraw(pid)
            raise CannotAttach(_why_silent(pid, patience))
    try:
        _expect_session(sock, pid, patience)
    except BaseException:
        sock.close()
        raise
    return sock


# ------------------------------------------------------------------------------------------- the request


def _check_process(pid: int) -> None:
    if _state_of(pid) in ("T", "t"):
        raise CannotAttach(f"process {pid} is stopped, so it runs nothing; let it go on (kill -CONT {pid})")


def _state_of(pid: int) -> str:
    """The letter of proc(5) for what the main OS thread does; "" where there is no /proc."""
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


@contextlib.contextmanager
def _cleaning_up() -> Iterator[None]:
    """SIGTERM and SIGHUP end this process in order meanwhile: nothing may be left in the file system."""

    def end(signum: int, frame: object) -> None:
        raise SystemExit(128 + signum)

    before = {}
    for signum in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is signal.SIG_DFL:
            before[signum] = signal.signal(signum, end)
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


@contextlib.contextmanager
def _private_folder(pid: int) -> Iterator[tuple[str, str]]:
    """A new folder of mode 0700: its path here, and the same for the process ``pid``."""
    parent = tempfile.gettempdir()
    if len(parent) > LONGEST_PATH - 40:
        parent = "/tmp"
    root = ""
    with contextlib.suppress(OSError):
        if not os.path.samestat(os.stat(parent), os.stat(f"/proc/{pid}/root{parent}")):
            root = f"/proc/{pid}/root"
    here = tempfile.mkdtemp(prefix="coro-", dir=root + parent)
    try:
        yield here, here[len(root) :]
    finally:
        shutil.rmtree(here, ignore_errors=True)


def _hand_over(pid: int, folder: str, *files: str) -> None:
    """Root gives folder and files to the user of the process, who could not read them otherwise."""
    if os.geteuid() != 0:
        return
    try:
        owner = os.stat(f"/proc/{pid}")
    except OSError:
        return  # there is no /proc
    if owner.st_uid != 0:
        for path in (*files, folder):
            os.chown(path, owner.st_uid, owner.st_gid)


def _ask(pid: int, script: str) -> None:
    remote_exec: Any = sys.remote_exec  # type: ignore[attr-defined,unused-ignore]
    try:
        remote_exec(pid, script)
    except PermissionError as exc:
        raise CannotAttach(_why_forbidden(pid, exc)) from None
    except ProcessLookupError:
        raise CannotAttach(f"process {pid} has ended") from None
    except (RuntimeError, OSError, NotImplementedError) as exc:
        raise CannotAttach(_why_not(pid, exc)) from None


def _withdraw(pid: int) -> None:
    """Have the process run an empty file instead of ours, which is gone: it would complain about that."""
    with contextlib.suppress(Exception):
        sys.remote_exec(pid, os.devnull)  # type: ignore[attr-defined,unused-ignore]


# ------------------------------------------------------------------------------------------- the answer


def _accept(listener: socket.socket, pid: int, deadline: float) -> socket.socket | None:
    """The connection of the process, woken if it waits; None when the time is over."""
    while True:
        _wake(pid)
        left = deadline - time.monotonic()
        ready, _, _ = select.select([listener], [], [], max(0.0, min(AGAIN, left)))
        if ready:
            return listener.accept()[0]
        if left <= 0:
            return None
        if not _exists(pid):
            raise CannotAttach(f"process {pid} has ended")


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _state_of(pid) not in ("Z", "X")


def _wake(pid: int) -> None:
    """Wake the loop of the process if it waits in epoll; does nothing where that cannot be seen."""
    for path in glob.glob(f"/proc/{pid}/fdinfo/*"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{os.path.basename(path)}") == "anon_inode:[eventpoll]":
                with open(path, encoding="latin-1") as file:
                    number = signal_pipe(file.read())
                if number is not None:
                    _write_zero(f"/proc/{pid}/fd/{number}")


def signal_pipe(fdinfo: str) -> int | None:
    """The descriptor of the signal pipe in what proc(5) says about an epoll descriptor; None if it is not coro's.

    Known by the data of two registrations, see ``own_data()`` in ``_poll/epoll.pyx``."""
    watched = {int(data, 16): int(fd) for fd, data in re.findall(r"tfd:\s*(\d+).*?\bdata:\s*([0-9a-f]+)", fdinfo)}
    if 0x8000_0001 not in watched:
        return None
    return next((fd for data, fd in watched.items() if data & 0xFFFF_FFFF == 0x8000_0002), None)


def _write_zero(path: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.write(fd, b"\0")
    finally:
        os.close(fd)


def _expect_session(sock: socket.socket, pid: int, patience: float) -> None:
    """Read the script's line, and wait until the session says something: CannotAttach when it does not."""
    sock.settimeout(patience)
    line = b""
    try:
        while not line.endswith(b"\n"):
            byte = sock.recv(1)
            if not byte:
                raise CannotAttach(f"process {pid} closed the connection at once; its loop is ending")
            line += byte
        found = ast.literal_eval(line.decode("ascii"))
        if found["state"] == "no coro":
            raise CannotAttach(f"process {pid} runs Python but has not imported coro; use python -m pdb -p {pid}")
        if found["state"] == "no loop":
            raise CannotAttach(
                f"no loop of coro runs in process {pid}, so there are no threads to look at and none could serve you; "
                f"use python -m pdb -p {pid}"
            )
        sock.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        raise CannotAttach(_why_busy(pid, patience, found if line.endswith(b"\n") else {})) from None
    sock.settimeout(None)


# ------------------------------------------------------------------------------------------- what to say


def _program(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return "another program"


def _why_forbidden(pid: int, error: PermissionError) -> str:
    text = (
        f"this user may not look into process {pid} ({error}). Run this command as the user of that process, or as "
        "root"
    )
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            scope = int(file.read())
    except (OSError, ValueError):
        scope = 0
    if scope:
        text += (
            f". This system allows it to parents of a process only (kernel.yama.ptrace_scope is {scope}): "
            "use root or CAP_SYS_PTRACE, or sysctl kernel.yama.ptrace_scope=0"
        )
    elif sys.platform == "linux":
        text += "; in a container it needs CAP_SYS_PTRACE"
    return text


def _why_not(pid: int, error: Exception) -> str:
    words = str(error)
    command = "python -m coro.backdoor"
    if "not enabled in the remote process" in words:
        return (
            f"process {pid} does not let others in: it runs with -X disable-remote-debug or "
            "PYTHON_DISABLE_REMOTE_DEBUG, or its Python was built without remote debugging"
        )
    if "Remote debugging is not enabled" in words:
        return (
            "the Python of this command has remote debugging switched off (-X disable-remote-debug or "
            "PYTHON_DISABLE_REMOTE_DEBUG); switch it on"
        )
    if "Can't send commands" in words:
        return f"{words}; use the Python of the program: {_program(pid)} {command[7:]} {pid}"
    mine = ".".join(map(str, sys.version_info[:2]))
    return (
        f"process {pid} ({_program(pid)}) runs no Python {mine} that could let this command in "
        f"(sys.remote_exec says: {words}). It needs Python 3.14 or newer, of the same version as this command"
    )


def _why_silent(pid: int, patience: float) -> str:
    doing = {
        "R": "it computes",
        "S": "it waits in a call, or for the GIL",
        "D": "it waits for a disk or another device",
        "T": f"it is stopped (kill -CONT {pid} lets it go on)",
        "t": "a debugger has stopped it",
    }
    state = doing.get(_state_of(pid), "it waits or computes")
    return (
        f"process {pid} has not let this command in within {patience:g} s: its main OS thread does not get back to "
        f"Python ({state}). Try again with a longer --wait; a watchdog (coro.set_watchdog) in the program tells where "
        "it is"
    )


def _why_busy(pid: int, patience: float, found: dict[str, Any]) -> str:
    where = "".join(f"\n  {place}" for place in found.get("where", ()))
    who = found.get("thread", "the main OS thread")
    return (
        f"the loop of process {pid} has not begun the session within {patience:g} s: something runs there and does not "
        f"wait. This was running ({who}, most recent call first):{where}"
    )
