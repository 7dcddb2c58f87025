"""``coro.ssl.sock``: the classic socket that speaks TLS, from the listening socket on.

    listener = coro.ssl.sock(context)
    listener.bind(("", 443))
    listener.listen()
    conn, address = listener.accept()       # no handshake yet: a silent client keeps nobody waiting
    conn.recv(100)                          # the first call that needs it does it

It owns a ``coro.sock`` and, after the handshake, a ``TLSStream``. New programs use the two directly.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import coro
from coro import AF, SHUT
from coro.ssl._context import Context
from coro.tls import TLSStream

__all__ = ["sock"]

_Buffer = bytes | bytearray | memoryview

#: What a user may do with the socket below, because no byte of the connection passes through it.
_PASSED_ON = frozenset(
    "bind detach domain family fd fileno get_fileno getpeername getsockname getsockopt listen orig_fd set_reuse_addr "
    "setsockopt stype type wait_for_write".split()
)
#: What would send in the clear on a connection of TLS, or receive what is not decrypted.
_MOVES_DATA = frozenset(
    "accept_many connect_addr dup makefile recv_fds recvfrom_into recvmmsg recvmsg recvmsg_into send_fds sendfile "
    "sendmmsg sendmsg".split()
)


class sock:
    """A TCP socket with TLS.

    ctx: made by ``new_ctx``. fd: the descriptor of a connected socket that is to be taken over, -1 for a new one;
    ``ssl_connect`` or ``ssl_accept`` then does the handshake. verify: must be true; whether certificates are verified
    is up to the context. domain: AF.INET or AF.INET6. server_hostname: the name to ask for and compare with, if it is
    not what ``connect`` is given.

    Attributes: ``ctx``, and ``ssl``, the TLSStream once the handshake is done, else None. Errors are those of
    ``coro.sock`` and of ``Context.wrap``.
    """

    def __init__(
        self,
        ctx: Context,
        fd: int = -1,
        verify: bool = True,
        domain: int = AF.INET,
        *,
        server_hostname: str | None = None,
    ) -> None:
        if not verify:
            raise ValueError("whether certificates are verified is up to the context: new_ctx(..., verify=False)")
        self.ctx = ctx
        self.ssl: TLSStream | None = None
        self._below: Any = coro.sock(domain, 1) if fd == -1 else coro.fd_sock(fd)
        self._server: bool | None = None
        self._hostname = server_hostname
        self._lock = coro.mutex()

    @classmethod
    def _accepted(cls, ctx: Context, conn: Any) -> sock:
        made = cls.__new__(cls)
        made.ctx = ctx
        made.ssl = None
        made._below = conn
        made._server = True
        made._hostname = None
        made._lock = coro.mutex()
        return made

    def __repr__(self) -> str:
        return f"<coro.ssl.sock {self.ssl or self._below!r}>"

    # -- the handshake

    def set_accept_state(self) -> None:
        """The handshake, when it is needed, is the server's."""
        self._server = True

    def set_connect_state(self) -> None:
        """The handshake, when it is needed, is the client's."""
        self._server = False

    def ssl_accept(self) -> None:
        """Do the server's handshake on a connected socket."""
        self._server = True
        self._stream()

    def ssl_connect(self, server_hostname: str | None = None) -> None:
        """Do the client's handshake on a connected socket. server_hostname: the name to ask for and compare with, if it
        is not known from ``connect``."""
        self._server = False
        self._hostname = server_hostname or self._hostname
        self._stream()

    def _stream(self) -> TLSStream:
        if self.ssl is None:
            with self._lock:
                if self.ssl is None:
                    if self._server is None:
                        raise ValueError("connect first, or say with ssl_accept() or ssl_connect() which side this is")
                    self.ssl = self.ctx.wrap(self._below, self._server, self._hostname)
        return self.ssl

    def connect(self, address: tuple[Any, ...]) -> None:
        """Connect to ``address``, host and port, and do the handshake. The host is looked up if it is a name, and is
        what the certificate is compared with."""
        host = address[0]
        self._hostname = self._hostname or host
        try:
            ipaddress.ip_address(host)
        except ValueError:
            self._below.close()
            self._below = coro.connect((host, address[1]))
        else:
            self._below.connect(address)
        self.ssl_connect()

    def accept(self) -> tuple[sock, Any]:
        """The next connection and its address. Its handshake is done by the first call that needs it, in the thread
        that makes the call."""
        conn, address = self._below.accept()
        return type(self)._accepted(self.ctx, conn), address

    # -- receiving and sending

    def recv(self, buffer_size: int) -> bytes:
        """Receive at most ``buffer_size`` bytes; ``b""`` at the peer's end. See TLSStream."""
        return self._stream().recv(buffer_size)

    def read(self, buffer_size: int) -> bytes:
        """The same as ``recv``."""
        return self._stream().recv(buffer_size)

    def recv_into(self, buffer: bytearray | memoryview, nbytes: int = 0) -> int:
        """Receive into ``buffer``, at most ``nbytes`` bytes (0: what it holds); returns how many came."""
        return self._stream().recv_into(buffer, nbytes)

    def recv_exact(self, nbytes: int) -> bytes:
        """Receive exactly ``nbytes`` bytes; ``EOFError(partial)`` if the peer ends before."""
        return self._stream().recv_exact(nbytes)

    def wait_for_read(self) -> int:
        """Wait until there is something to receive, see TLSStream. Of a listening socket: until somebody connects."""
        if self.ssl is None and self._server is None:
            return int(self._below.wait_for_read())
        return self._stream().wait_for_read()

    def readv(self, size_list: Iterable[int]) -> tuple[bytes, ...]:
        """NotImplementedError, as ever; TLSStream has it. ``size_list`` is not looked at."""
        raise NotImplementedError("coro.ssl.sock has no readv(): use the attribute ssl, which has")

    def recvfrom(self, buffer_size: int, flags: int = 0) -> Any:
        """SystemError: TLS is a stream. ``buffer_size`` and ``flags`` are not looked at."""
        raise SystemError("a TLS stream has no datagrams: use recv()")

    def sendto(self, data: _Buffer, address: Any, flags: int = 0) -> int:
        """SystemError: TLS is a stream. ``data``, ``address`` and ``flags`` are not looked at."""
        raise SystemError("a TLS stream has no datagrams: use send()")

    def send(self, data: _Buffer) -> int:
        """Send all of ``data``; returns its length."""
        return self._stream().send(data)

    def sendall(self, data: _Buffer) -> int:
        """The same as ``send``."""
        return self._stream().send(data)

    def write(self, data: _Buffer) -> int:
        """The same as ``send``."""
        return self._stream().send(data)

    def writev(self, data_list: Iterable[_Buffer]) -> int:
        """Send the pieces of ``data_list`` as if they were one."""
        return self._stream().writev(data_list)

    # -- the end

    def shutdown(self, how: int | None = None) -> None:
        """Send close_notify. ``how``: with SHUT.RD or SHUT.RDWR the socket below is shut, too. Errors of the system are
        ignored."""
        try:
            if self.ssl is not None:
                self.ssl.shutdown(SHUT.WR if how is None else how)
        except OSError:
            return  # the peer has gone

    def close(self) -> None:
        """Send close_notify if the handshake was done, waiting a second at most, and close."""
        if self.ssl is not None:
            self.ssl.close()
        self._below.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return bool(self._below.closed)

    # -- what is known

    def getCipher(self) -> str | None:
        """The name of the cipher."""
        found = self._stream().cipher()
        return found[0] if found else None

    def getProtocol(self) -> str | None:
        """The version of the protocol, ``"TLSv1.3"`` say."""
        return self._stream().version()

    def selected_alpn_protocol(self) -> str | None:
        """The protocol agreed on by ALPN; None without one."""
        return self._stream().selected_alpn_protocol()

    def getpeercert(self, binary_form: bool = False) -> Any:
        """The peer's certificate, see TLSStream; in DER with ``binary_form``."""
        return self._stream().getpeercert(binary_form)

    def __getattr__(self, name: str) -> Any:
        if name in _MOVES_DATA:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}: what it moves would bypass TLS, so use "
                f"send() and recv(), or the attribute ssl"
            )
        if name.startswith("_") or name not in _PASSED_ON:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._below, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
