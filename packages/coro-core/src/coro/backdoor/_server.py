"""Where the back door listens, and who may come in.

A session can do whatever the program can, so reaching it is a permission:

* A UNIX socket is the default. Its mode is 0600 before anybody can connect: a socket that was bound but does not listen
  refuses connections, so the mode is set between the two.
* TCP on the loopback interface lets in every user of this machine.
* TCP on any other address needs a token or TLS, and is refused otherwise.

Where a token or TLS is asked for, a connection counts as a session when it has shown the one or finished the handshake
of the other. Until then it is a stranger, see ``_strangers.py``.

A path that exists already is replaced only if it is a socket of our own user at which nobody listens any more.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
import struct
from collections.abc import Iterable, Mapping
from typing import Any

import coro
from coro import oserrors
from coro._runtime import scheduler
from coro._runtime.arguments import whole
from coro._runtime.folders import private_folder
from coro.backdoor._session import LOGIN_SECONDS, ClientClass, backdoor
from coro.backdoor._strangers import Stranger, Strangers, origin

__all__ = ["MAX_SESSIONS", "Server", "default_path", "listen_tcp", "listen_unix", "serve", "start"]

#: Ports tried in turn when TCP was asked for without naming one.
PORTS = range(8023, 8034)
#: Sessions at a time, unless told otherwise: more than people look at one program, far fewer than it has descriptors.
MAX_SESSIONS = 32
#: Connections that the kernel may keep until they are accepted; one more would be tried again after a second.
BACKLOG = 1024


def default_path(kind: str = "backdoor", pid: int | None = None) -> str:
    """The path at which ``serve()`` of the process ``pid`` (default: this one) listens. ``kind`` is "backdoor", or
    "debug" for that of ``coro.debug``."""
    return os.path.join(private_folder(), f"{os.getpid() if pid is None else pid}.{kind}")


def _remove_stale(path: str) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise FileExistsError(errno.EEXIST, "expected a free name or an old socket; this is something else", path)
    if found.st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "this socket belongs to another user; choose another path", path)
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except FileNotFoundError:
            return
        except BlockingIOError:
            pass  # a full backlog: somebody listens
    raise oserrors.EADDRINUSE(errno.EADDRINUSE, "somebody listens at this socket; choose another path", path)


def listen_unix(path: str) -> Any:
    """A listening UNIX socket with mode 0600. OSError when the path is taken or cannot be made."""
    _remove_stale(path)
    sock = coro.unix_sock()
    try:
        try:
            os.fchmod(sock.fileno(), 0o600)  # Linux gives the file this mode from the beginning
        except OSError:
            pass
        try:
            sock.bind(path)
        except OSError as exc:
            exc.filename = path
            raise
        os.chmod(path, 0o600)
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def remove_socket(path: str, file: tuple[int, int]) -> None:
    """Remove a socket of ours, known by (device, inode), unless something else has taken its name."""
    try:
        found = os.lstat(path)
        if (found.st_dev, found.st_ino) == file:
            os.unlink(path)
    except OSError:
        pass


def listen_tcp(ip: str, ports: Iterable[int], guarded: bool, guards: str = "pass token=... or tls=..., ") -> Any:
    """A listening TCP socket at the first port that is free. ``guarded``: a token or TLS is asked for; ``guards``: how
    the caller asks for them, for the error.

    ValueError for an address that is no numeric one, or not of the loopback interface and not guarded; EADDRINUSE when
    no port is free.
    """
    address = ipaddress.ip_address("127.0.0.1" if ip == "localhost" else ip)
    if not address.is_loopback and not guarded:
        raise ValueError(
            f"whoever reaches {ip} could run any code in this process; {guards}listen at 127.0.0.1, or use a UNIX "
            "socket"
        )
    for port in ports:
        sock = coro.tcp6_sock() if address.version == 6 else coro.tcp_sock()
        try:
            sock.set_reuse_addr()
            sock.bind((str(address), port))
            sock.listen(BACKLOG)
            return sock
        except OSError as exc:
            sock.close()
            if exc.errno != errno.EADDRINUSE:
                raise
        except BaseException:
            sock.close()
            raise
    raise oserrors.EADDRINUSE(errno.EADDRINUSE, f"every port of {list(ports)!r} at {ip} is in use")


def peer_uid(sock: Any) -> int | None:
    """The user at the other end of a UNIX socket; None where the system does not tell (only Linux does here)."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    raw = sock.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i"))
    return int(struct.unpack("3i", raw)[1])


def _is_ours(client_class: ClientClass) -> bool:
    return isinstance(client_class, type) and issubclass(client_class, backdoor)


class Server:
    """A back door that listens, as ``start`` returns it. ``address`` is the path of its UNIX socket, or (ip, port). The
    parameters are those of ``serve``."""

    def __init__(
        self,
        port: int | Iterable[int] | None = None,
        ip: str | None = None,
        unix_path: str | os.PathLike[str] | None = None,
        welcome_message: str | None = None,
        global_dict: Mapping[str, Any] | None = None,
        client_class: ClientClass | None = None,
        *,
        token: str | None = None,
        tls: Any = None,
        max_sessions: int = MAX_SESSIONS,
        allow_uids: Iterable[int] | None = None,
    ) -> None:
        if client_class is None:
            client_class = backdoor
        elif not callable(client_class):
            raise TypeError(f"expected a class for the sessions (see coro.backdoor.backdoor), not {client_class!r}")
        whole(max_sessions, "the number of sessions", 1)
        if token is not None and not isinstance(token, str):
            raise TypeError(f"a token is a str, not {type(token).__name__}")
        if token is not None and (not token.strip() or not token.isprintable()):
            raise ValueError("a token is one line of printable characters; secrets.token_urlsafe() makes a good one")
        self.allow_uids: frozenset[int] | None = None
        if allow_uids is not None:
            self.allow_uids = frozenset(allow_uids)
            for uid in self.allow_uids:
                if not isinstance(uid, int):
                    raise TypeError(f"expected the numbers of users (see os.getuid) in allow_uids, not {uid!r}")
        if global_dict is not None and not isinstance(global_dict, Mapping):
            raise TypeError(f"expected a dictionary of names, not {type(global_dict).__name__}")
        self.welcome_message = welcome_message
        self.global_dict = global_dict
        if token is not None and not _is_ours(client_class):
            raise TypeError(
                "a token is asked for by coro.backdoor.backdoor.login(): expected a subclass of that as client_class, "
                f"not {client_class!r}"
            )
        self.client_class = client_class
        self.token = token
        self.tls = tls
        self.max_sessions = max_sessions
        self.sessions = 0
        self.refused = 0
        self._strangers = Strangers()
        self.is_open = True
        self._threads: set[Any] = set()
        self._file: tuple[int, int] | None = None
        self.sock: Any
        self.address: Any
        if port is None and ip is None:
            path = default_path() if unix_path is None else os.fspath(unix_path)
            self.sock = listen_unix(path)
            found = os.lstat(path)
            self._file = (found.st_dev, found.st_ino)
            self.address = path
        elif unix_path is not None:
            raise TypeError("expected unix_path, or port and ip, not both")
        elif self.allow_uids is not None:
            raise TypeError("allow_uids needs a UNIX socket: TCP does not tell who is at the other end")
        else:
            ports = PORTS if port is None else (port,) if isinstance(port, int) else tuple(port)
            self.sock = listen_tcp("127.0.0.1" if ip is None else ip, ports, token is not None or tls is not None)
            self.address = self.sock.getsockname()[:2]

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<backdoor server at {self.address!r}: {state}, {self.sessions} of {self.max_sessions} sessions>"

    def run(self) -> None:
        """Accept sessions until ``close``."""
        scheduler._set_helper(True)  # a door that nobody comes through wakes nobody: no standstill is hidden by it
        try:
            while self.is_open:
                try:
                    sock, address = self.sock.accept()
                except coro.ClosedError:
                    return
                self._admit(sock, address)
                del sock, address
        finally:
            scheduler._set_helper(False)
            self.close()

    def close(self) -> None:
        """Stop listening, and end all sessions."""
        if not self.is_open:
            return
        self.is_open = False
        self.sock.close()
        if self._file is not None:
            remove_socket(self.address, self._file)
        for thread in list(self._threads):
            if thread is not coro.current():
                thread.shutdown()

    def _admit(self, sock: Any, address: Any) -> None:
        guarded = self.token is not None or self.tls is not None
        stranger = None
        text = None
        if self.allow_uids is not None and peer_uid(sock) not in self.allow_uids:
            text = "this back door is for other users\r\n"
            self._strangers.tell("the UNIX socket", f"user {peer_uid(sock)} is not one of allow_uids")
        elif not guarded:
            text = self._full(address)
        else:
            stranger = self._strangers.enter(address)
            if stranger is None:
                text = "too many wrong tokens come from this address; try again later\r\n"
        if text is not None:
            self.refused += 1
            try:
                if self.tls is None:
                    sock.send(text.encode())
            except OSError:
                pass
            sock.close()
            return
        if stranger is None:
            self.sessions += 1
        try:
            thread = coro.spawn(
                self._session, sock, address, stranger, thread_name="backdoor session", daemon=True
            )
        except BaseException:
            self._leave(stranger, stranger is None)
            raise
        self._threads.add(thread)
        if stranger is not None:
            stranger.end = lambda: self._end(thread)

    def _end(self, thread: Any) -> None:
        self.refused += 1
        self._threads.discard(thread)  # one that has not begun never gets to do so itself
        thread.shutdown()

    def _full(self, address: Any) -> str | None:
        """Why there is no place for one more session; None if there is one."""
        if self.sessions < self.max_sessions:
            return None
        why = f"{self.sessions} sessions are open, and no more are allowed"
        self._strangers.tell(origin(address), why)
        return f"{why}; close one\r\n"

    def _leave(self, stranger: Stranger | None, counted: bool) -> None:
        if stranger is not None:
            self._strangers.leave(stranger)
        if counted:
            self.sessions -= 1

    def _session(self, sock: Any, address: Any, stranger: Stranger | None) -> None:
        counted = stranger is None

        def come_in() -> str | None:
            nonlocal counted
            if counted:
                return None
            text = self._full(address)
            if text is not None:
                self.refused += 1
                return text
            counted = True
            self.sessions += 1
            if stranger is not None:
                self._strangers.leave(stranger)
            return None

        try:
            if self.tls is not None:
                try:
                    with coro.timeout(LOGIN_SECONDS):
                        sock = self.tls.wrap(sock, server_side=True)
                except (OSError, EOFError, ValueError, coro.TimeoutError) as exc:
                    if stranger is not None:
                        stranger.refuse(f"no TLS: {type(exc).__name__}")  # a port scanner, or somebody without TLS
                    return
                if self.token is None and come_in() is not None:
                    return
            if _is_ours(self.client_class):
                session: Any = self.client_class(
                    sock, welcome_message=self.welcome_message, global_dict=self.global_dict, token=self.token
                )
                session._stranger = stranger
                session._come_in = come_in
                session.read_eval_print_loop()
            else:
                self.client_class(sock, address, self.welcome_message, self.global_dict)
        except (OSError, coro.ClosedError):
            pass  # the peer has gone
        finally:
            self._leave(stranger, counted)
            self._threads.discard(coro.current())
            sock.close()


def serve(
    port: int | Iterable[int] | None = None,
    ip: str | None = None,
    unix_path: str | os.PathLike[str] | None = None,
    welcome_message: str | None = None,
    global_dict: Mapping[str, Any] | None = None,
    client_class: ClientClass | None = None,
    **options: Any,
) -> None:
    """Listen for sessions in the running thread; does not return. ``start`` does so in a thread of its own.

    unix_path: the path of the UNIX socket (mode 0600); without any address it is ``default_path()``. port, ip: listen
    at a TCP port instead, or at the first free one of several; an ip alone means ports 8023 to 8033, a port alone means
    127.0.0.1. An ip that is not of the loopback interface needs ``token`` or ``tls``. welcome_message: shown at the
    beginning of a session. global_dict: the names of a session, which works on a copy; default: those of ``__main__``.
    client_class: a subclass of ``backdoor``; or anything else that can be called as
    ``client_class(sock, address, welcome_message, global_dict)``, in the thread of each session.

    Options: token, a secret that the peer has to send as its first line; tls, an object with
    ``wrap(sock, server_side=True)``; max_sessions, 32 by default, without those who have not shown the
    token yet; allow_uids, the users that may connect to the UNIX socket (Linux).

    Raises OSError when it cannot listen there, ValueError when the address is not allowed, TypeError for options that
    do not fit. Sessions are daemon threads: they do not keep the loop from ending.
    """
    Server(port, ip, unix_path, welcome_message, global_dict, client_class, **options).run()


def start(*args: Any, **options: Any) -> Server:
    """Like ``serve``, but in a daemon thread of its own. Returns the Server, which already listens. Its ``address``
    tells where, and its ``close()`` ends it and all sessions. Parameters and errors as for ``serve``."""
    server = Server(*args, **options)
    try:
        coro.spawn(server.run, thread_name="backdoor", daemon=True)
    except BaseException:
        server.close()
        raise
    return server
