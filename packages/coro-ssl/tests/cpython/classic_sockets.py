"""CPython's own test_ssl, with `coro.ssl.sock` in the place of its sockets.

    python classic_sockets.py REPORT [TEST ...]

Runs the tests of the installed `test.test_ssl` that make connections, in a thread of a loop under emulation, and writes
a line of JSON for each: what became of it, and how many connections of `coro.ssl.sock` it has made. The contexts, the
certificates and what is expected are CPython's; the handshake, the reading, writing and ending are those of this
package. Where the tests expect an error of the `ssl` module they get the one that OpenSSL raised, which is the cause of
ours.

A `Socket` stands between: it has the methods of `ssl.SSLSocket` and calls those of `coro.ssl.sock`.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

#: The classes of test_ssl whose tests make connections.
CLASSES = ("SimpleBackgroundTests", "ThreadedTests", "TestPostHandshakeAuth", "TestSSLDebug", "TestPreHandshakeClose")
#: Tests that say nothing about `coro.ssl.sock`, with the reason; patterns for the names of tests.
NOT_RUN = {
    r"non_?blocking|test_handshake_timeout|test_get_server_certificate_timeout": "sockets here have no time limits of "
    "their own and no mode without waiting: threads are interrupted instead",
    r"test_makefile_close|test_socketserver": "coro.ssl.sock has no makefile(), nor a count of files that keep it open",
    r"test_context_setget": "the context of a connection is not exchanged",
    r"TestPostHandshakeAuth": "a certificate is asked for in the handshake only: post-handshake authentication is not "
    "offered, and the tests reach it through ssl.SSLSocket",
    r"test_asyncore|test_bio_|test_transport_eof|test_msg_callback|test_connect_fail": "no socket of this package",
    r"test_got_eof": "calls the object below ssl.SSLSocket, which this package has between two buffers",
}
#: Tests that fail for a reason that is none of this package's.
DIFFERENT = {
    r"test_preauth_data_to_tls_(server|client)": "expects CPython's words for what came in the clear before the "
    "handshake; here the handshake itself refuses it, see test_what_came_in_the_clear_is_never_taken_for_protected",
}
#: Seconds that bound a hang of one test.
LIMIT = 60


def socket_class() -> type:
    """The class, made when the modules that it needs are those of emulation."""
    import socket
    import ssl

    import coro
    import coro.ssl
    from coro import tls

    class OneContext:
        """A context for one connection: that of a test, with the session that the test asks for."""

        def __init__(self, context: Any, session: Any) -> None:
            self._context = tls.context(context)
            self._session = session

        def wrap(self, sock: Any, server_side: bool = False, server_hostname: str | None = None) -> Any:
            return self._context.wrap(
                sock, server_side, server_hostname, session=self._session, handshake_timeout=LIMIT
            )  # type: ignore[call-arg]

    def as_the_module_says(function: Callable[..., Any]) -> Callable[..., Any]:
        """Errors of coro.tls become those of `ssl`, closed sockets those of `socket`."""

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return function(self, *args, **kwargs)
            except tls.TruncatedError as e:
                raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, str(e)) from e
            except tls.TLSError as e:
                if isinstance(e.__cause__, ssl.SSLError):
                    raise e.__cause__ from None
                raise ssl.SSLError(ssl.SSL_ERROR_SSL, str(e)) from e
            except ValueError as e:  # a context that is made for the other side
                if isinstance(e.__cause__, ssl.SSLError):
                    raise e.__cause__ from None
                raise

        return call

    def was_connected(sock: Any) -> bool:
        """Whether it is connected, or was: the peer may have gone and left something to read."""
        try:
            sock.getpeername()
        except OSError:
            try:
                sock.setblocking(False)
                sock.recv(1, socket.MSG_PEEK)
            except OSError as e:
                return e.errno == errno.ECONNRESET
            finally:
                sock.setblocking(True)
        return True

    class Socket:
        made = 0

        def __init__(
            self,
            context: Any,
            sock: Any,
            server_side: bool = False,
            do_handshake_on_connect: bool = True,
            suppress_ragged_eofs: bool = True,
            server_hostname: str | None = None,
            session: Any = None,
        ) -> None:
            if sock.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) != socket.SOCK_STREAM:
                raise NotImplementedError("only stream sockets are supported")
            if server_side and server_hostname:
                raise ValueError("server_hostname can only be specified in client mode")
            if server_side and session is not None:
                raise ValueError("session can only be specified in client mode")
            if context.check_hostname and not server_hostname:
                raise ValueError("check_hostname requires server_hostname")
            self.context = context
            self.server_side = server_side
            try:
                self._name = context._encode_hostname(server_hostname)
            except UnicodeError:
                sock.close()  # it belongs to this one already
                raise
            self._lenient = suppress_ragged_eofs
            self._early = do_handshake_on_connect
            self._used: Any = OneContext(context, session)
            self._limit = sock.gettimeout()
            connected = was_connected(sock)
            self._plain: Any = None if connected else sock
            self._sock: Any = None
            if connected:
                self._take_over(sock)
                if self._early:
                    self.do_handshake()

        # -- which one it is

        def _take_over(self, sock: Any) -> None:
            self._sock = coro.ssl.sock(self._used, sock.detach(), server_hostname=self._name)
            if self.server_side:
                self._sock.set_accept_state()
            else:
                self._sock.set_connect_state()
            self._plain = None
            type(self).made += 1

        def _stream(self) -> Any:
            if self._sock is None or self._sock.ssl is None:
                if self._sock is not None:
                    raise ValueError("handshake not done yet")
                raise OSError(107, "Socket not connected")
            return self._sock.ssl

        @as_the_module_says
        def do_handshake(self, block: bool = False) -> None:
            if self._sock is None:
                raise OSError(107, "Socket not connected")
            if self.server_side:
                self._sock.ssl_accept()
            else:
                self._sock.ssl_connect(self._name)

        @as_the_module_says
        def connect(self, address: Any) -> None:
            if self.server_side:
                raise ValueError("can't connect in server-side mode")
            if self._plain is None:
                raise ValueError("attempt to connect already-connected SSLSocket!")
            if self._name and self._early:  # the name of the host would be compared otherwise
                self._plain.close()
                self._plain = None
                type(self).made += 1
                self._sock = coro.ssl.sock(self._used, server_hostname=self._name)
                self._sock.connect(address)
                return
            self._plain.connect(address)
            self._take_over(self._plain)
            if self._early:
                self.do_handshake()

        def connect_ex(self, address: Any) -> int:
            try:
                self.connect(address)
            except ssl.SSLError:
                raise
            except OSError as e:
                return e.errno or 0
            return 0

        def accept(self) -> Any:
            conn, address = self._plain.accept()
            return type(self)(self.context, conn, True, self._early, self._lenient), address

        # -- data

        @as_the_module_says
        def recv(self, size: int = 1024, flags: int = 0) -> bytes:
            if flags:
                raise ValueError("non-zero flags not allowed")
            try:
                return self._sock.recv(size) if self._sock is not None else self._plain.recv(size)
            except tls.TruncatedError:
                if self._lenient:
                    return b""
                raise

        def read(self, size: int = 1024, buffer: Any = None) -> Any:
            if self._sock is None or self._sock.closed:
                raise ValueError("Read on closed or unwrapped SSL socket.")
            return self.recv(size) if buffer is None else self.recv_into(buffer, size)

        @as_the_module_says
        def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
            if flags:
                raise ValueError("non-zero flags not allowed")
            with memoryview(buffer) as view, view.cast("B") as flat:
                try:
                    return int(self._sock.recv_into(flat, max(nbytes or 0, 0))) if len(flat) else 0
                except tls.TruncatedError:
                    if self._lenient:
                        return 0
                    raise

        @as_the_module_says
        def send(self, data: Any, flags: int = 0) -> int:
            if flags:
                raise ValueError("non-zero flags not allowed")
            return int(self._sock.send(data))

        def sendall(self, data: Any, flags: int = 0) -> None:
            self.send(data, flags)

        def write(self, data: Any) -> int:
            if self._sock is None or self._sock.closed:
                raise ValueError("Write on closed or unwrapped SSL socket.")
            return self.send(data)

        def sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> int:
            file.seek(offset)
            return self.send(file.read() if count is None else file.read(count))

        def makefile(self, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if self._sock is None:
                return self._plain.makefile(mode, *args, **kwargs)
            raise NotImplementedError("coro.ssl.sock has no makefile()")

        def dup(self) -> Any:
            assert not hasattr(self._sock, "dup")
            raise NotImplementedError("coro.ssl.sock has no dup()")

        # -- the end

        @as_the_module_says
        def unwrap(self) -> Any:
            below = self._stream().unwrap()
            return socket.socket(fileno=below.detach())

        def shutdown(self, how: int) -> None:
            self._sock.shutdown(how)

        def close(self) -> None:
            for one in (self._sock, self._plain):
                if one is not None:
                    one.close()

        def detach(self) -> int:
            return int(self._sock.detach() if self._sock is not None else self._plain.detach())

        # -- what is known

        def version(self) -> Any:
            return self._sock.ssl.version() if self._sslobj is not None else None

        def cipher(self) -> Any:
            return self._sock.ssl.cipher() if self._sock is not None and self._sock.ssl is not None else None

        def getpeercert(self, binary_form: bool = False) -> Any:
            return self._stream().getpeercert(binary_form)

        def get_channel_binding(self, cb_type: str = "tls-unique") -> Any:
            if cb_type not in ssl.CHANNEL_BINDING_TYPES:
                raise ValueError(f"{cb_type} channel binding type not implemented")
            if self._sock is None or self._sock.ssl is None:
                return None
            return self._sock.ssl.get_channel_binding(cb_type)

        def selected_alpn_protocol(self) -> Any:
            return self._stream().selected_alpn_protocol()

        def selected_npn_protocol(self) -> None:
            return None

        def compression(self) -> None:
            return None

        def pending(self) -> int:
            return int(self._stream().pending())

        @property
        def server_hostname(self) -> Any:
            if self._sock is not None and self._sock.ssl is not None:
                return self._sock.ssl.server_hostname
            return self._name

        @property
        def session(self) -> Any:
            return self._sock.ssl.session if self._sock is not None and self._sock.ssl is not None else None

        @session.setter
        def session(self, value: Any) -> None:
            if not isinstance(value, ssl.SSLSession):
                raise TypeError("Value is not a SSLSession.")
            if self.version() is not None:
                raise ValueError("Cannot set session after handshake.")
            self._used = OneContext(self.context, value)

        @property
        def session_reused(self) -> Any:
            return self._sock.ssl.session_reused if self._sock is not None and self._sock.ssl is not None else None

        @property
        def _sslobj(self) -> Any:
            if self._sock is None or self._sock.ssl is None or self._sock.closed:
                return None
            return self._sock.ssl.engine.object._sslobj

        def shared_ciphers(self) -> Any:
            return self._stream().engine.object.shared_ciphers()

        def _asked(self, method: str) -> Any:
            return getattr(self._sock.ssl.engine.object, method)() if self._sslobj is not None else None

        def group(self) -> Any:  # this and the next two are new in Python 3.15
            return self._asked("group")

        def client_sigalg(self) -> Any:
            return self._asked("client_sigalg")

        def server_sigalg(self) -> Any:
            return self._asked("server_sigalg")

        # -- what the socket below knows

        def settimeout(self, limit: float | None) -> None:
            self._limit = limit

        def gettimeout(self) -> float | None:
            return self._limit  # type: ignore[no-any-return]

        def setblocking(self, flag: bool) -> None:
            self._limit = None if flag else 0.0

        def fileno(self) -> int:
            return int(self._sock.fileno() if self._sock is not None else self._plain.fileno())

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return getattr(self.__dict__.get("_sock") or self.__dict__["_plain"], name)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: Any) -> None:
            self.close()

    def without(name: str, error: type[Exception]) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            raise error(f"{name} not allowed on instances of {type(self)}")

        return call

    for name in ("recvfrom", "recvfrom_into", "sendto"):
        setattr(Socket, name, without(name, ValueError))
    for name in ("recvmsg", "recvmsg_into", "sendmsg"):
        setattr(Socket, name, without(name, NotImplementedError))
    return Socket


def run(report: str, wanted: list[str]) -> None:
    import ssl
    import unittest

    import coro

    support: Any = importlib.import_module("test.support")
    support.verbose = 0
    Socket: Any = socket_class()

    def wrap_socket(self: Any, sock: Any, *args: Any, **kwargs: Any) -> Any:
        return Socket(self, sock, *args, **kwargs)

    ssl.SSLContext.wrap_socket = wrap_socket  # type: ignore[method-assign]
    ssl.SSLSocket = Socket  # type: ignore[misc]
    suite = unittest.defaultTestLoader.loadTestsFromNames([f"test.test_ssl.{name}" for name in wanted or CLASSES])
    module: Any = sys.modules["test.test_ssl"]
    module.setUpModule()
    with open(report, "a", buffering=1) as out:
        for test in _flat(suite):
            name = test.id().partition("test_ssl.")[2]
            if not wanted and any(re.search(pattern, name) for pattern in NOT_RUN):
                continue
            out.write(json.dumps([name, "hang", 0, ""]) + "\n")
            before = Socket.made
            result = unittest.TestResult()
            try:
                coro.with_timeout(LIMIT, test, result)
                what = "skip" if result.skipped else "pass" if result.wasSuccessful() else "fail"
            except coro.TimeoutError:
                what = "hang"
            said = "".join(text for _, text in result.failures + result.errors)
            out.write(json.dumps([name, what, Socket.made - before, said]) + "\n")
        out.write(json.dumps(["", "end", 0, ""]) + "\n")


def _flat(suite: Any) -> Any:
    for item in suite:
        if hasattr(item, "_testMethodName"):
            yield item
        else:
            yield from _flat(item)


if __name__ == "__main__":
    import coro

    coro.install_thread_emulation()
    coro.run(partial(run, sys.argv[1], sys.argv[2:]))
    os._exit(0)  # threads that tests have left behind are nobody's business
