"""Listening sockets from addresses as people write them; for ``coro.Server`` and ``coro.prefork``.

One function: what an address means (every address of the machine in one socket, a name with several addresses, a UNIX
path whose last owner died, a socket that is there already), and who closes what in the end.  Nothing here waits, but
for the lookup of a name.

A UNIX socket's file outlives its process, and bind(2) refuses a path that exists.  Only a socket to which nobody
listens is replaced: connect(2) to it answers ECONNREFUSED.  A file is removed at the end only by the process that made
it, and only while it is still the same file.

Closing a listening socket resets what the kernel has accepted for it and nobody has asked for, and what becomes so
between the last accept(2) and close(2).  So a socket is first made to refuse: a filter of the kernel's
(SO_ATTACH_FILTER in socket(7)) drops segments that ask for a connection, and nothing else, so that handshakes that have
begun are completed.  Such a client repeats its SYN after a second (RFC 6298 2), when it is refused, or finds the next
server.  Rejected: listen(fd, 0) alone, which still lets one connection in, and drops the last segment of other
handshakes.
"""

from __future__ import annotations

import _socket
import os
import stat
import struct
import sys
from array import array
from typing import Any

from coro import oserrors
from coro._net.constants import AF, SO, SOL
from coro._net.sock import fd_sock, has_ipv6, sock
from coro._net.spelling import host_and_port, spelled
from coro._runtime.arguments import whole
from coro._runtime.scheduler import _in_loop_os_thread, coro_is_running
from coro.exceptions import ResolverNameError
from coro.resolver import addresses

__all__ = ["Listener", "open_listeners"]

_INET, _INET6, _UNIX = int(AF.INET), int(AF.INET6), int(AF.UNIX)
#: How often a port that the system chose for one socket is given back because another socket cannot have it.
PORT_TRIES = 20


#: Not in the socket module.  Other architectures have other numbers than these.
_ATTACH_FILTER = 26 if sys.platform == "linux" and os.uname().machine not in ("sparc64", "parisc", "parisc64") else None
#: Drops a segment with SYN and without ACK. The byte of the flags is the 13th of TCP's header (RFC 9293 3.1), where the
#: kernel begins to count; the flags are 2 and 16.
_NO_SYN = struct.pack(
    "HBBI" * 5,
    *(0x30, 0, 0, 13),  # load the byte
    *(0x54, 0, 0, 0x12),  # and with both flags
    *(0x15, 0, 1, 0x02),  # if it is SYN alone, go on, else over one
    *(0x06, 0, 0, 0),  # drop it
    *(0x06, 0, 0, 0xFFFFFFFF),  # take all of it
)


class Listener:
    """A listening sock, and what there is to do when it is no longer needed."""

    __slots__ = ("_file", "_maker", "ours", "sock")

    def __init__(
        self, s: sock, ours: bool, file: tuple[str | bytes, int, int, int] | None = None, made: bool = False
    ) -> None:
        self.sock = s
        #: Whether close() closes it.
        self.ours = ours
        self._file = file  # path, device, inode, process
        self._maker = os.getpid() if made else 0

    def refuse(self) -> None:
        """Let no further connections in; those that the kernel has, or is just making, can still be accepted.

        That holds for the socket, in whichever processes it is; so it does nothing unless this process has made it. A
        socket that somebody has given us goes on in other hands.
        """
        if self._maker != os.getpid() or self.sock.closed:
            return
        self._remove_file()
        if self.sock.domain == _UNIX:
            return
        try:
            if _ATTACH_FILTER is not None:
                program = array("B", _NO_SYN)
                at, size = program.buffer_info()
                self.sock.setsockopt(SOL.SOCKET, _ATTACH_FILTER, struct.pack("HP", size // 8, at))
                return
        except OSError:
            pass  # a kernel without filters
        try:
            self.sock.listen(0)
        except OSError:
            return  # it does not listen: a port that is held for others

    def close(self) -> None:
        """Close the socket, and remove its file if it is a UNIX socket that we bound; nothing if it is not ours."""
        if not self.ours:
            return
        self.sock.close()
        self._remove_file()

    def _remove_file(self) -> None:
        file, self._file = self._file, None
        if file is None or file[3] != os.getpid():
            return
        try:
            found = os.stat(file[0])
            if (found.st_dev, found.st_ino) == file[1:3]:
                os.unlink(file[0])
        except OSError:
            return  # somebody was faster


def _cannot(address: Any, e: OSError) -> OSError:
    cls = type(e) if type(e).__module__ == oserrors.__name__ else OSError
    return cls(e.errno, f"cannot listen on {address!r}: {e.strerror}")


def _tcp(family: int, address: Any, backlog: int, reuse_port: bool, nodelay: bool, only_v6: bool) -> sock:
    s = sock(family, _socket.SOCK_STREAM)
    try:
        if reuse_port:
            s.setsockopt(SOL.SOCKET, SO.REUSEPORT, 1)
        if nodelay:
            # accepted sockets inherit it (in Linux and FreeBSD), which saves a system call a connection
            s.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        if family == _INET6:
            s.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, int(only_v6))
        s.bind(address)
        if backlog >= 0:
            s.listen(backlog)
    except OSError as e:
        s.close()
        raise _cannot(address, e) from None
    except BaseException:
        s.close()
        raise
    return s


def _unix(path: Any, backlog: int) -> Listener:
    if not path:  # Linux would choose a name that no client knows: more likely a setting that is not there
        raise ValueError(f"expected (host, port) or the path of a UNIX socket, not {path!r}; host '' is every address")
    meant = host_and_port(path) if isinstance(path, (str, bytes)) else None
    if meant is not None:
        raise ValueError(
            f"expected (host, port) or the path of a UNIX socket, not {path!r}; write {meant!r}, or "
            f"{'./' + os.fsdecode(path)!r} for a path of that look"
        )
    s = sock(_UNIX, _socket.SOCK_STREAM)
    try:
        name = os.fsencode(path)
        try:
            s.bind(path)
        except oserrors.EADDRINUSE:
            if name[0] == 0 or not _is_abandoned(name):
                raise
            os.unlink(name)
            s.bind(path)
        s.listen(backlog)
        if name[0] == 0:
            return Listener(s, True, made=True)
        made = os.stat(name)
        return Listener(s, True, (os.path.abspath(name), made.st_dev, made.st_ino, os.getpid()), made=True)
    except OSError as e:
        s.close()
        raise _cannot(path, e) from None
    except BaseException:
        s.close()
        raise


def _is_abandoned(path: bytes) -> bool:
    """Is this a UNIX socket to which nobody listens?"""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return False
    except OSError:
        return False
    probe = _socket.socket(_UNIX, _socket.SOCK_STREAM)
    try:
        probe.setblocking(False)
        return probe.connect_ex(path) == _ECONNREFUSED
    finally:
        probe.close()


_ECONNREFUSED: int = oserrors.ECONNREFUSED().errno or 0


def _adopt(given: Any) -> Listener:
    """A listening socket that somebody else made."""
    if isinstance(given, sock):
        listener = Listener(given, False)
    else:
        listener = Listener(fd_sock(os.dup(given.fileno())), True)
    try:
        listening = listener.sock.getsockopt(SOL.SOCKET, SO.ACCEPTCONN)
    except OSError:
        listener.close()
        raise
    if not listening:
        listener.close()
        raise ValueError(f"expected a listening socket; call bind() and listen() first: {given!r}")
    return listener


def _hosts(host: str) -> list[tuple[int, str]]:
    """(family, numeric address) for everything a name stands for here."""
    for family in (_INET, _INET6):
        try:
            _socket.inet_pton(family, host.partition("%")[0] if family == _INET6 else host)
        except (OSError, ValueError):
            continue
        return [(family, host)]
    found: list[tuple[int, str]] = []
    errors: list[ResolverNameError] = []
    for family in (_INET, _INET6):
        try:
            found += [(family, address) for address in _look_up(host, family)]
        except ResolverNameError as e:
            errors.append(e)
    if not found:
        raise errors[0]
    return found


def _look_up(host: str, family: int) -> list[str]:
    if coro_is_running() and _in_loop_os_thread():
        return addresses(host, family)
    try:  # no loop to hold up
        answers = _socket.getaddrinfo(host, None, family, _socket.SOCK_STREAM)
    except _socket.gaierror as e:
        raise ResolverNameError(f"no address for {host!r}: {e.strerror}") from None
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def _host_and_port(address: tuple[Any, ...], backlog: int, reuse_port: bool, nodelay: bool) -> list[Listener]:
    if len(address) < 2 or not (address[0] is None or isinstance(address[0], str)):
        swapped = spelled([*address[1:2], address[0]]) if len(address) == 2 else ""
        raise TypeError(f"an address to listen on is (host, port), host a str or None, not {address!r}{swapped}")
    host, port = address[0], address[1]
    whole(port, "the port", 0, 65535)
    options = (backlog, reuse_port, nodelay)
    if host:
        wanted = [(family, (name, *address[1:])) for family, name in _hosts(host)]
        return [Listener(s, True, made=True) for s in _same_port(wanted, options)]
    if not has_ipv6():
        return [Listener(_tcp(_INET, ("0.0.0.0", port), *options, True), True, made=True)]
    try:
        return [Listener(_tcp(_INET6, ("::", port), *options, False), True, made=True)]
    except (oserrors.EINVAL, oserrors.ENOPROTOOPT, oserrors.EADDRNOTAVAIL, oserrors.EAFNOSUPPORT):
        # a system that keeps the families apart, or IPv6 switched off
        wanted = [(_INET, ("0.0.0.0", port)), (_INET6, ("::", port))]
        return [Listener(s, True, made=True) for s in _same_port(wanted, options)]


def _same_port(wanted: list[tuple[int, Any]], options: tuple[int, bool, bool]) -> list[sock]:
    """A socket for each (family, address); where the port is 0, one free port for all.  Addresses that this machine
    does not have (a name may stand for IPv6 where there is none) are left out, unless all are."""
    for tries in range(PORT_TRIES, 0, -1):
        made: list[sock] = []
        refused: OSError | None = None
        chosen = 0
        try:
            for family, address in wanted:
                try:
                    s = _tcp(family, (address[0], address[1] or chosen, *address[2:]), *options, True)
                except (oserrors.EADDRNOTAVAIL, oserrors.EAFNOSUPPORT) as e:
                    refused = e
                    continue
                made.append(s)
                chosen = s.getsockname()[1]
            if not made and refused is not None:
                raise refused
            return made
        except BaseException as e:
            for s in made:
                s.close()
            if not (isinstance(e, oserrors.EADDRINUSE) and made and wanted[0][1][1] == 0 and tries > 1):
                raise
    raise AssertionError("the last try returns or raises")


def open_listeners(
    address: Any, *, backlog: int = 4096, reuse_port: bool = False, nodelay: bool = True
) -> list[Listener]:
    """Listening sockets for an address, or for a list of addresses, as ``coro.Server`` takes them.

    backlog: how many connections may queue in the kernel; -1 binds without listening. reuse_port, nodelay: set
    SO_REUSEPORT and TCP_NODELAY (TCP only). Returns a Listener for each socket; there may be several for one name.
    Raises what ``coro.Server`` raises; nothing stays open then.
    """
    whole(backlog, "the backlog, a number of connections,", -1, 0x7FFFFFFF)
    if reuse_port and not hasattr(SO, "REUSEPORT"):
        raise ValueError("this system has no SO_REUSEPORT; share one listener instead")
    if isinstance(address, list) and host_and_port(address) is not None:
        raise TypeError(f"a list is one of several addresses to listen on, not {address!r}{spelled(address)}")
    opened: list[Listener] = []
    try:
        for one in address if isinstance(address, (list, set, frozenset)) else [address]:
            if isinstance(one, tuple):
                opened += _host_and_port(one, backlog, reuse_port, nodelay)
            elif isinstance(one, (str, bytes, os.PathLike)):
                opened.append(_unix(one, backlog))
            elif isinstance(one, Listener):
                opened.append(one)
            elif callable(getattr(one, "fileno", None)):
                opened.append(_adopt(one))
            else:
                raise TypeError(
                    f"expected (host, port), the path of a UNIX socket, a listening socket, or a list of them, "
                    f"not {type(one).__name__}: {one!r}{spelled(one)}"
                )
        if not opened:
            raise ValueError("expected at least one address to listen on, not an empty list")
    except BaseException:
        for listener in opened:
            listener.close()
        raise
    return opened
