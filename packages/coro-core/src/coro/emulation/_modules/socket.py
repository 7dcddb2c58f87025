"""Emulated sockets: the class `socket.socket` itself, changed in place.

Sockets that exist already, subclasses, and names imported long ago are thereby emulated, too. The descriptor keeps the
mode that the program gave it (blocking without a time limit, non-blocking with one), so children and duplicates see
what they would have seen. A call that could block is made without blocking first: recv and send with MSG_DONTWAIT
directly (compiled, in `_blocking`, where there are no flags), everything else by the original method with the time
limit at 0 for the moment of the call. If there was nothing to do, the coro thread is suspended until the poller reports
the descriptor, or the socket's time limit is over.

Sockets with the time limit 0, and callers that are no coro threads, get the original.

Cost of a recv that has data: one system call; of one that waits: three.
"""

from __future__ import annotations

import errno
import os
import socket
from time import monotonic
from typing import Any

from coro.emulation import _blocking
from coro.emulation._modules import buffered as _buffered
from coro.emulation._modules import names as _names
from coro.emulation._modules import select as _select
from coro.emulation._plan import MISSING, Plan

__all__ = ["blocking_call", "plan", "wait_socket"]

_class: Any = socket.socket
_raw: Any = socket._socket.socket  # type: ignore[attr-defined]
_gettimeout: Any = _raw.gettimeout
_settimeout: Any = _raw.settimeout
_fileno: Any = _raw.fileno
_in_thread = _blocking.in_thread_of_loop
_DONTWAIT = socket.MSG_DONTWAIT
_WAITALL = socket.MSG_WAITALL
_OWN_WAY = _DONTWAIT | getattr(socket, "MSG_ERRQUEUE", 0)  # flags with which the kernel does not wait
_real_close: Any = _class._real_close


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else monotonic() + timeout


def wait_socket(sock: Any, writing: bool, deadline: float | None, what: str = "timed out") -> None:
    """Suspend until the socket is ready. TimeoutError after the deadline (monotonic seconds)."""
    if deadline is None:
        _blocking.wait_fd(_fileno(sock), writing)
        return
    left = deadline - monotonic()
    if left <= 0 or not _blocking.wait_fd(_fileno(sock), writing, left):
        raise TimeoutError(what)


def at_once(sock: Any, timeout: float | None, method: Any, *args: Any) -> Any:
    """Call a method of the original while the socket is in non-blocking mode."""
    _settimeout(sock, 0.0)
    try:
        return method(*args)
    finally:
        if _fileno(sock) != -1:
            _settimeout(sock, timeout)


def blocking_call(sock: Any, writing: bool, method: Any, *args: Any) -> Any:
    """Call a method of the original as often as it takes."""
    timeout = _gettimeout(sock)
    if timeout == 0.0 or not _in_thread():
        return method(sock, *args)
    deadline = _deadline(timeout)
    _blocking.fair()
    while True:
        try:
            return at_once(sock, timeout, method, sock, *args)
        except BlockingIOError:
            wait_socket(sock, writing, deadline)


def _is_direct(sock: Any, flags: Any) -> bool:
    """May recv or send be called directly, without the original?"""
    return isinstance(flags, int) and not flags & _OWN_WAY and _in_thread() and _gettimeout(sock) != 0.0


def _goes_its_own_way(sock: Any, flags: Any) -> bool:
    """Has the program itself asked the kernel not to wait?"""
    return isinstance(flags, int) and bool(flags & _OWN_WAY) and _gettimeout(sock) is None


def _indirect(sock: Any, writing: bool, method: Any, flags: Any, *args: Any) -> Any:
    """For calls that are not direct, and arguments that only the original understands."""
    if _goes_its_own_way(sock, flags):
        return _own_way(sock, flags, method, *args)
    return blocking_call(sock, writing, method, *args)


def _own_way(sock: Any, flags: int, method: Any, *args: Any) -> Any:
    """Not every protocol has a queue of errors: for those without, MSG_ERRQUEUE means nothing, and they would wait."""
    if flags & _DONTWAIT or not _in_thread():
        return method(sock, *args)
    return at_once(sock, None, method, sock, *args)


def recv(self: Any, bufsize: int, flags: int = 0, /) -> bytes:
    """Receive up to ``bufsize`` bytes; see socket.socket.recv."""
    if type(bufsize) is not int or bufsize < 0 or not _is_direct(self, flags):
        return _indirect(self, False, _raw.recv, flags, bufsize, flags)  # type: ignore[no-any-return]
    fd = _fileno(self)
    data = _blocking.recv_now(fd, bufsize, flags)
    if data is not None and not (flags & _WAITALL and 0 < len(data) < bufsize):
        return data
    deadline = _deadline(_gettimeout(self))
    while data is None:
        wait_socket(self, False, deadline)
        data = _blocking.recv_now(_fileno(self), bufsize, flags)
    if flags & _WAITALL and not flags & socket.MSG_PEEK and self.type == socket.SOCK_STREAM:
        parts, missing = [data], bufsize - len(data)
        while missing:
            data = _blocking.recv_now(_fileno(self), missing, flags)
            if data is None:
                wait_socket(self, False, deadline)
            elif not data:
                break
            else:
                parts.append(data)
                missing -= len(data)
        return b"".join(parts)
    return data


def recv_into(self: Any, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
    """Receive into a buffer; see socket.socket.recv_into."""
    if type(nbytes) is not int or nbytes < 0 or not _is_direct(self, flags):
        return _indirect(self, False, _raw.recv_into, flags, buffer, nbytes, flags)  # type: ignore[no-any-return]
    if flags & _WAITALL:
        with memoryview(buffer).cast("B") as view:
            if nbytes > len(view):
                raise ValueError("buffer too small for requested bytes")
            data = recv(self, nbytes or len(view), flags)
            arrived = data[: len(view)]  # MSG_TRUNC makes it longer
            view[: len(arrived)] = arrived
            return len(data)
    got = _blocking.recv_into_now(_fileno(self), buffer, nbytes, flags)
    if got is None:
        deadline = _deadline(_gettimeout(self))
        while got is None:
            wait_socket(self, False, deadline)
            got = _blocking.recv_into_now(_fileno(self), buffer, nbytes, flags)
    return got


def recvfrom(self: Any, bufsize: int, flags: int = 0, /) -> Any:
    """Receive data and the address it came from; see socket.socket.recvfrom."""
    return _indirect(self, False, _raw.recvfrom, flags, bufsize, flags)


def recvfrom_into(self: Any, buffer: Any, nbytes: int = 0, flags: int = 0) -> Any:
    """Receive into a buffer, and the address it came from; see socket.socket.recvfrom_into."""
    return _indirect(self, False, _raw.recvfrom_into, flags, buffer, nbytes, flags)


def recvmsg(self: Any, *args: Any) -> Any:
    """Receive data and ancillary data; see socket.socket.recvmsg."""
    return _indirect(self, False, _raw.recvmsg, args[2] if len(args) > 2 else 0, *args)


def recvmsg_into(self: Any, *args: Any) -> Any:
    """Receive into buffers, and ancillary data; see socket.socket.recvmsg_into."""
    return _indirect(self, False, _raw.recvmsg_into, args[2] if len(args) > 2 else 0, *args)


def _is_stream(sock: Any) -> bool:
    return bool(sock.type == socket.SOCK_STREAM)


def send(self: Any, data: Any, flags: int, begun: int | None) -> int:
    """Send data: all of it if the socket has no time limit, else what the system takes; see socket.socket.send.

    begun: what the first call of the system took, -1 if it would have had to wait; None: there was no call."""
    sent: int | None
    if begun is not None:
        sent = None if begun < 0 else begun
    elif _is_direct(self, flags):
        sent = _blocking.send_now(_fileno(self), data, 0, flags)
    else:
        return _indirect(self, True, _raw.send, flags, data, flags)  # type: ignore[no-any-return]
    timeout = _gettimeout(self)
    deadline = _deadline(timeout)
    while sent is None:
        wait_socket(self, True, deadline)
        sent = _blocking.send_now(_fileno(self), data, 0, flags)
    if timeout is None and _is_stream(self):
        return _send_rest(self, data, sent, flags)
    return sent


def _send_rest(sock: Any, data: Any, sent: int, flags: int) -> int:
    """A stream in blocking mode takes everything; an error after some of it is told by the next call."""
    size = memoryview(data).nbytes
    while sent < size:
        try:
            wait_socket(sock, True, None)
            sent += _blocking.send_now(_fileno(sock), data, sent, flags) or 0
        except OSError:
            break
    return sent


def sendall(self: Any, data: Any, flags: int, done: int = 0) -> None:
    """Send all of the data from `done` on; see socket.socket.sendall."""
    if not _is_direct(self, flags):
        _raw.sendall(self, data, flags)
        return
    with memoryview(data) as view:
        size = view.nbytes
        deadline = _deadline(_gettimeout(self))
        while True:
            sent = _blocking.send_now(_fileno(self), view, done, flags)
            if sent is not None:
                done += sent
                if done >= size:
                    return
            else:
                wait_socket(self, True, deadline)


def sendto(self: Any, *args: Any) -> int:
    """Send data to an address; see socket.socket.sendto."""
    if len(args) in (2, 3) and _in_thread():
        args = (*args[:-1], _names.numeric_address(self, args[-1]))
    return _indirect(self, True, _raw.sendto, args[1] if len(args) == 3 else 0, *args)  # type: ignore[no-any-return]


def sendmsg(self: Any, *args: Any) -> int:
    """Send buffers and ancillary data; see socket.socket.sendmsg."""
    flags = args[2] if len(args) > 2 else 0
    if _goes_its_own_way(self, flags):
        return int(_own_way(self, flags, _raw.sendmsg, *args))
    if not args or _gettimeout(self) is not None or not _is_stream(self) or not _in_thread():
        return blocking_call(self, True, _raw.sendmsg, *args)  # type: ignore[no-any-return]
    buffers = list(args[0])
    sent = int(blocking_call(self, True, _raw.sendmsg, buffers, *args[1:]))
    size = sum(memoryview(buffer).nbytes for buffer in buffers)
    return sent if sent >= size else _send_rest(self, b"".join(buffers), sent, flags)


def sendmsg_afalg(self: Any, *args: Any, **kwargs: Any) -> int:
    """Send to the kernel's cryptography; see socket.socket.sendmsg_afalg."""

    def call(sock: Any) -> Any:
        return _raw.sendmsg_afalg(sock, *args, **kwargs)

    return blocking_call(self, True, call)  # type: ignore[no-any-return]


def accept(self: Any) -> Any:
    """Accept a connection; what socket.socket.accept is made of."""
    return blocking_call(self, False, _raw._accept)


def connect(self: Any, address: Any, /) -> None:
    """Connect the socket to an address; see socket.socket.connect."""
    timeout = _gettimeout(self)
    if timeout == 0.0 or not _in_thread():
        _raw.connect(self, address)
        return
    address = _names.numeric_address(self, address)
    deadline = _deadline(timeout)
    while True:
        try:
            at_once(self, timeout, _raw.connect, self, address)
            return
        except BlockingIOError as exc:
            if exc.errno == errno.EINPROGRESS:
                break
            if exc.errno == errno.EALREADY:
                raise  # an earlier attempt is under way, perhaps to another address; the original says so, too
            # A UNIX socket whose backlog is full: nothing reports when it has room (connect(2)).
            if deadline is not None and monotonic() >= deadline:
                raise TimeoutError("timed out") from None
            _blocking.sleep_thread(0.01)
    wait_socket(self, True, deadline)
    error = self.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))


def connect_ex(self: Any, address: Any, /) -> int:
    """Connect the socket and return the error's number, 0 for none; see socket.socket.connect_ex."""
    timeout = _gettimeout(self)
    if timeout == 0.0 or not _in_thread():
        return _raw.connect_ex(self, address)  # type: ignore[no-any-return]
    try:
        connect(self, address)
    except socket.gaierror:
        raise
    except TimeoutError as exc:
        return exc.errno or errno.EWOULDBLOCK
    except OSError as exc:
        if exc.errno is None:
            raise
        return exc.errno
    return 0


def bind(self: Any, address: Any, /) -> None:
    """Bind the socket to an address; see socket.socket.bind."""
    _raw.bind(self, _names.numeric_address(self, address) if _in_thread() else address)


def real_close(self: Any, *args: Any) -> None:
    """Close the descriptor; threads that wait for it get OSError(EBADF)."""
    fd = _fileno(self)
    if fd != -1:
        _select.closing(fd)
    _real_close(self, *args)


_sendfile: Any = _class._sendfile_use_sendfile


def sendfile_use_sendfile(self: Any, file: Any, offset: int = 0, count: int | None = None) -> int:
    """Send a file with sendfile(2); what socket.socket.sendfile tries first."""
    if _gettimeout(self) == 0.0 or not _in_thread():
        return _sendfile(self, file, offset, count)  # type: ignore[no-any-return]
    self._check_sendfile_params(file, offset, count)
    try:
        source = file.fileno()
        size = os.fstat(source).st_size
    except (AttributeError, OSError) as exc:
        raise socket._GiveupOnSendfile(exc) from exc  # type: ignore[attr-defined]
    if not size:
        return 0
    timeout = _gettimeout(self)
    deadline = _deadline(timeout)
    total = 0
    try:
        while count is None or total < count:
            piece = min(size, 2**30) if count is None else min(count - total, 2**30)
            try:
                sent = at_once(self, timeout, os.sendfile, _fileno(self), source, offset, piece)
            except BlockingIOError:
                wait_socket(self, True, deadline)
                continue
            except OSError as exc:
                if total == 0:
                    raise socket._GiveupOnSendfile(exc) from exc  # type: ignore[attr-defined]
                raise
            if sent == 0:
                break
            offset += sent
            total += sent
        return total
    finally:
        if total and hasattr(file, "seek"):
            file.seek(offset)


_METHODS = {
    "recv": _blocking.socket_recv,
    "recv_into": _blocking.socket_recv_into,
    "recvfrom": recvfrom,
    "recvfrom_into": recvfrom_into,
    "recvmsg": recvmsg,
    "recvmsg_into": recvmsg_into,
    "send": _blocking.socket_send,
    "sendall": _blocking.socket_sendall,
    "sendto": sendto,
    "sendmsg": sendmsg,
    "sendmsg_afalg": sendmsg_afalg,
    "_accept": accept,
    "connect": connect,
    "connect_ex": connect_ex,
    "bind": bind,
    "_real_close": real_close,
    "_sendfile_use_sendfile": sendfile_use_sendfile,
}


def plan(p: Plan) -> None:
    """What to replace."""
    _blocking.know_sockets(_fileno, _gettimeout, recv, recv_into, send, sendall)
    for name, function in _METHODS.items():
        if getattr(_class, name, MISSING) is not MISSING:
            p.replace(_class, name, function)
    view = _buffered.io_view(
        BufferedReader=_buffered.BufferedReader,
        BufferedWriter=_buffered.BufferedWriter,
        BufferedRWPair=_buffered.BufferedRWPair,
    )
    p.replace(socket, "io", view)
    _names.plan(p)
