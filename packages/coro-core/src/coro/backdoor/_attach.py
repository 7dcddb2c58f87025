"""The client of a program that has no door open: it has the program call back (Python 3.14, PEP 768).

``sys.remote_exec`` has the main OS thread of another process run a file as soon as it runs Python. Ours is SCRIPT. It
connects to a UNIX socket at which this process listens, says in a line what it has found, and hands the connection over
to a thread of the loop: the session. So the other process listens nowhere, and nothing is left of the session when its
connection ends.

The file and the socket are in a new folder that only the user of that process can enter, and root. The folder is gone
before the session begins. Where the two processes see different folders (a mount namespace, systemd's PrivateTmp), it
is made where the other one sees it.

That place, and all that the process says, may be under the control of a hostile user, and the one who attaches may be
root. So what is written is written as that user, as far as the system lets us (seteuid(2)): the user gets nothing done
that way which was forbidden before. And it is written through descriptors: no symbolic link is followed below the root
folder of the process, no file that exists is opened, and what is removed at the end is named within the folder that was
made, whatever has its name by then. What the process answers is bounded, and escaped before a terminal sees it.

A loop that waits runs no Python. Its poller tells how it can be woken: it watches a pipe for signals, and a zero byte
there means that Python's own signal handling has a look, which also runs the file (see ``_poll/events.pyx``). Rejected:
a signal, because nobody knows what the program does at it; stopping and continuing the process, because its parent sees
that.

Cost for the program: nothing until somebody comes.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import secrets
import select
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from coro._runtime import escalation
from coro._runtime.output import one_line

__all__ = ["CannotAttach", "attach", "interrupt", "is_possible"]

#: Seconds for the process to run the script, and for its loop to begin the session, unless told otherwise.
PATIENCE = 10.0
#: Seconds between two attempts to wake the loop: one that was about to wait may have missed the first.
AGAIN = 0.2
#: The longest path of a UNIX socket that every system takes.
LONGEST_PATH = 100
#: The longest line that the script may send. It sends the places of five frames.
LONGEST_LINE = 64 * 1024
SCRIPT_NAME = "enter.py"
SOCKET_NAME = "socket"
#: Opens a folder to have files in it made and removed. Not a symbolic link, which Linux refuses with ENOTDIR.
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

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
    with _cleaning_up(), socket.socket(socket.AF_UNIX) as listener, _script(pid, kind, listener) as script:
        deadline = time.monotonic() + patience
        _ask(pid, script)
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


def interrupt(pid: int, patience: float = PATIENCE) -> None:
    """Have the program that is process ``pid`` end, and the thread that runs there interrupted if it does not give way:
    SIGINT, with a note for coro's handler, which has ``patience`` seconds to take it. CannotAttach when it does not, or
    unless it is a process of this user that has imported coro."""
    user = _user_of(pid)
    if user is None and not _exists(pid):
        raise CannotAttach(f"there is no process {pid}")
    if user is not None and user[0] != os.geteuid():
        raise CannotAttach(f"process {pid} belongs to user {user[0]}: run this command as that user")
    if user is not None and not _has_coro(pid):
        raise CannotAttach(f"process {pid} has not imported coro, so nobody there minds this command: kill -INT {pid}")
    try:
        note = escalation.wanted_at(pid)
        os.close(os.open(note, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        try:
            os.kill(pid, signal.SIGINT)
            deadline = time.monotonic() + patience
            while os.path.lexists(note) and time.monotonic() < deadline and _exists(pid):
                time.sleep(0.02)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(note)
                raise CannotAttach(
                    f"process {pid} was sent SIGINT, and coro did not take it within {patience:g} s: no loop runs in "
                    "its main OS thread, it handles SIGINT itself, or it is in code that does not get back to Python"
                )
    except ProcessLookupError:
        raise CannotAttach(f"process {pid} has ended") from None
    except OSError as exc:
        raise CannotAttach(f"process {pid} cannot be interrupted: {exc}") from None


def _has_coro(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            return any("/coro/_runtime/scheduler." in line for line in file)
    except OSError:
        return False


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


def _user_of(pid: int) -> tuple[int, int] | None:
    """The user and group with whose rights the process opens files; None where there is no /proc.

    Not the owner of /proc/PID, which is root for a process that may not be traced by its user."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            ids = dict(re.findall(r"^(Uid|Gid):\t\d+\t\d+\t\d+\t(\d+)$", file.read(), re.MULTILINE))
        return int(ids["Uid"]), int(ids["Gid"])
    except (OSError, KeyError):
        return None


@contextlib.contextmanager
def _acting_as(user: tuple[int, int] | None) -> Iterator[None]:
    """With the rights of that user and group, if we are root; else with our own. CannotAttach when the system refuses.

    The other OS threads of this process have them, too, meanwhile. It is a command, which has none."""
    if user is None or os.geteuid() != 0 or user[0] == 0:
        yield
        return
    group, groups = os.getegid(), os.getgroups()
    changed = False
    try:
        try:
            os.setgroups([])
            changed = True
            os.setegid(user[1])
            os.seteuid(user[0])
        except OSError as exc:
            raise CannotAttach(
                f"this command may not act as user {user[0]}, whose process it is ({exc}); run it as that user"
            ) from None
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        if changed:
            os.setgroups(groups)


class _Folder:
    """A new folder ``name`` of mode 0700 in ``parent``, a descriptor that it owns, with the rights of ``user``.

    Invariants: 1. What is made, opened or removed is named by one component, relative to a descriptor. 2. That happens
    with the rights of the user, as ``_acting_as`` gives them."""

    def __init__(self, parent: int, name: str, user: tuple[int, int] | None) -> None:
        self._parent = parent
        self._name = name
        self._user = user
        self._folder = -1

    def make(self) -> None:
        """OSError when it cannot be made; CannotAttach when something else is found at its name at once."""
        with _acting_as(self._user):
            os.mkdir(self._name, 0o700, dir_fd=self._parent)  # never one that exists; the umask only takes away
            self._folder = os.open(self._name, FOLDER_FLAGS, dir_fd=self._parent)
            made = os.fstat(self._folder)
            if made.st_uid != os.geteuid() or made.st_mode & 0o077 or os.listdir(self._folder):
                raise CannotAttach("somebody exchanges the folders that this command makes: do not trust that process")

    def write(self, text: str) -> None:
        """Make the script. OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with _acting_as(self._user):
            fd = os.open(SCRIPT_NAME, flags, 0o600, dir_fd=self._folder)
            with open(fd, "w", encoding="utf-8") as file:
                file.write(text)

    def listen(self, listener: socket.socket, path: str) -> None:
        """Have the UNIX socket listen in the folder, whose path is ``path``. OSError."""
        # bind(2) knows no descriptor of a folder. Linux has a name for one that is not resolved as a path.
        own = f"/proc/self/fd/{self._folder}"
        with _acting_as(self._user):
            listener.bind(os.path.join(own if os.path.isdir(own) else path, SOCKET_NAME))
            listener.listen(1)

    def remove(self) -> None:
        """Remove it, if it was made, and what was made in it."""
        with contextlib.suppress(OSError, CannotAttach), _acting_as(self._user):
            for name in (SCRIPT_NAME, SOCKET_NAME):
                if self._folder >= 0:
                    with contextlib.suppress(OSError):
                        os.unlink(name, dir_fd=self._folder)
            os.rmdir(self._name, dir_fd=self._parent)
        for fd in (self._folder, self._parent):
            if fd >= 0:
                os.close(fd)


@contextlib.contextmanager
def _script(pid: int, kind: str, listener: socket.socket) -> Iterator[str]:
    """The script, and the socket to which it connects, in a folder that only the user of the process can enter; the
    path of the script. CannotAttach."""
    user = _user_of(pid)
    parent = tempfile.gettempdir()
    if len(parent) > LONGEST_PATH - 40:
        parent = "/tmp"
    name = f"coro-{secrets.token_hex(8)}"
    path = os.path.join(parent, name)
    text = SCRIPT.replace("{path!r}", ascii(os.path.join(path, SOCKET_NAME))).replace("{kind!r}", ascii(kind))
    folders: list[_Folder] = []
    try:
        try:
            place, elsewhere = _open_parent(pid, parent, user)
            folders.append(_Folder(place, name, user))
            folders[0].make()
            folders[0].write(text)
            folders[0].listen(listener, path)
            if elsewhere:
                # sys.remote_exec looks here whether there is such a file, so there is one; nobody runs it.
                folders.append(_Folder(os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), name, None))
                folders[1].make()
                folders[1].write("")
        except OSError as exc:
            raise CannotAttach(
                f"a private folder cannot be made in {parent}, where process {pid} sees it ({exc}); set TMPDIR to a "
                "folder that is no symbolic link and that its user may write to"
            ) from None
        if _user_of(pid) not in (user, None):
            raise CannotAttach(f"process {pid} runs as another user than a moment ago; try again")
        yield os.path.join(path, SCRIPT_NAME)
    finally:
        for folder in folders:
            folder.remove()


def _open_parent(pid: int, path: str, user: tuple[int, int] | None) -> tuple[int, bool]:
    """A descriptor of the folder that ``path`` is for the process, and whether that is another one than for us."""
    root = f"/proc/{pid}/root"
    try:
        elsewhere = not os.path.samestat(os.stat(path), os.stat(root + path))
    except OSError:
        elsewhere = False  # there is no /proc, or we may not look, so that the process will not let us in either
    parent = os.open(root if elsewhere else path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if elsewhere:
        for component in filter(None, path.split("/")):
            try:
                with _acting_as(user):
                    inner = os.open(component, FOLDER_FLAGS, dir_fd=parent)
            finally:
                os.close(parent)
            parent = inner
    return parent, elsewhere


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
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fdinfo"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{name}") == "anon_inode:[eventpoll]":
                    with open(f"/proc/{pid}/fdinfo/{name}", encoding="latin-1") as file:
                        number = signal_pipe(file.read())
                    if number is not None:
                        _write_zero(f"/proc/{pid}/fd/{number}", _user_of(pid))


def signal_pipe(fdinfo: str) -> int | None:
    """The descriptor of the signal pipe in what proc(5) says about an epoll descriptor; None if it is not coro's.

    Known by the data of two registrations, see ``own_data()`` in ``_poll/epoll.pyx``."""
    watched = {int(data, 16): int(fd) for fd, data in re.findall(r"tfd:\s*(\d+).*?\bdata:\s*([0-9a-f]+)", fdinfo)}
    if 0x8000_0001 not in watched:
        return None
    return next((fd for data, fd in watched.items() if data & 0xFFFF_FFFF == 0x8000_0002), None)


def _write_zero(path: str, user: tuple[int, int] | None) -> None:
    """Into a pipe of that user, and nothing else: to open a device may do something already."""
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        found = os.fstat(place)
        if stat.S_ISFIFO(found.st_mode) and user is not None and found.st_uid == user[0]:
            fd = os.open(f"/proc/self/fd/{place}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(fd, b"\0")
            finally:
                os.close(fd)
    finally:
        os.close(place)


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
            if len(line) > LONGEST_LINE:
                raise CannotAttach(f"process {pid} sends no end of what should be one line: it does not run our script")
        found = _parsed(pid, line)
        if found["state"] == "no coro":
            raise CannotAttach(f"process {pid} runs Python but has not imported coro; use python -m pdb -p {pid}")
        if found["state"] == "no loop":
            raise CannotAttach(
                f"no loop of coro runs in process {pid}, so there are no threads to look at and none could serve you; "
                f"use python -m pdb -p {pid}"
            )
        sock.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        raise CannotAttach(_why_busy(pid, patience, _parsed(pid, line) if line.endswith(b"\n") else {})) from None
    sock.settimeout(None)


def _parsed(pid: int, line: bytes) -> dict[str, Any]:
    """What the script says; CannotAttach if that is not what it would say."""
    try:
        found = ast.literal_eval(line.decode("ascii"))
        if type(found["state"]) is str and type(found.get("thread", "")) is str:
            if all(type(place) is str for place in found.get("where", ())):
                return found  # type: ignore[no-any-return]
    except (ValueError, SyntaxError, TypeError, AttributeError, KeyError, MemoryError, RecursionError):
        pass
    raise CannotAttach(f"process {pid} answers something that our script does not say: {line[:100]!r}")


# ------------------------------------------------------------------------------------------- what to say


def _program(pid: int) -> str:
    try:
        return one_line(os.readlink(f"/proc/{pid}/exe"))
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
    where = "".join(f"\n  {one_line(place)}" for place in found.get("where", ()))
    who = one_line(found.get("thread", "the main OS thread"))
    return (
        f"the loop of process {pid} has not begun the session within {patience:g} s: something runs there and does not "
        f"wait. This was running ({who}, most recent call first):{where}"
    )
