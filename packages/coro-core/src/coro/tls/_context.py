"""Contexts: what libraries take from their users, made of what users have."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat, cast

from coro._net.tls import context_class
from coro.tls._engine import Engine
from coro.tls._openssl import OpenSSL
from coro.tls._stream import HANDSHAKE_TIMEOUT, TLSStream

if TYPE_CHECKING:
    import ssl

    from coro._net.stream import Stream

__all__ = ["Context", "context", "wrapped"]


class Context(Protocol):
    """What libraries get from their users, and what ``context`` returns: something that wraps streams in TLS."""

    def wrap(self, sock: Any, server_side: bool = False, server_hostname: str | None = None) -> Any:
        """The stream over ``sock``, after the handshake in the role that ``server_side`` says. A client sends
        ``server_hostname`` and compares the certificate with it."""


class _Adapter:
    """An ``ssl.SSLContext`` as a context."""

    __slots__ = ("ssl_context",)

    def __init__(self, ssl_context: ssl.SSLContext) -> None:
        import ssl

        ssl_context.options |= ssl.OP_NO_RENEGOTIATION
        self.ssl_context = ssl_context

    def __repr__(self) -> str:
        return f"<coro.tls.context of {self.ssl_context!r}>"

    def wrap(
        self,
        sock: Stream,
        server_side: bool = False,
        server_hostname: str | None = None,
        *,
        session: Any = None,
        handshake_timeout: SupportsFloat | None = HANDSHAKE_TIMEOUT,
    ) -> TLSStream:
        """The stream over ``sock``, after the handshake."""
        return wrapped(
            sock,
            lambda: OpenSSL(self.ssl_context, server_side, server_hostname, session),
            self,
            handshake_timeout,
        )

    def accept(self, sock: Stream) -> TLSStream:
        """``wrap`` on the server's side: fits ``wrap=`` of ``coro.serve``."""
        return self.wrap(sock, server_side=True)


def wrapped(
    sock: Stream,
    engine: Callable[[], Engine],
    context: Any,
    handshake_timeout: SupportsFloat | None,
    stream_class: type[TLSStream] = TLSStream,
) -> TLSStream:
    """The stream over ``sock`` after the handshake; for back ends. ``engine`` makes the engine once ``sock`` has been
    looked at, ``context`` is the context, ``handshake_timeout`` the limit in seconds, ``stream_class`` the class of the
    result."""
    if isinstance(sock, _plain_socket()):
        raise TypeError(
            "expected a coro.sock or another coro.Stream, not a socket of the standard library, which would block the "
            "loop: use coro.fd_sock(s.detach())"
        )
    if not callable(getattr(sock, "recv", None)) or not callable(getattr(sock, "send", None)):
        raise TypeError(f"expected a coro.sock or another coro.Stream, not {type(sock).__name__}: {sock!r}")
    stream = stream_class(sock, engine(), context)
    stream.handshake(handshake_timeout)
    return stream


def _plain_socket() -> type | tuple[()]:
    module = sys.modules.get("socket")
    return getattr(module, "socket", ())


def context(obj: Any) -> Context:
    """The TLS context that a library uses for ``obj``, which its user has passed.

    ``obj`` is returned as it is if it has a method ``wrap``. An ``ssl.SSLContext`` is adapted: the result has
    ``wrap(sock, server_side=False, server_hostname=None, *, session=None, handshake_timeout=10.0)``, and
    ``accept(sock)`` for ``wrap=`` of ``coro.serve``. It is told to refuse renegotiation (``OP_NO_RENEGOTIATION``), with
    which a peer asks for the costly part of a handshake again and again. TypeError for anything else.

    A function that OpenSSL calls in the middle of a handshake, an ``sni_callback``, may block its thread. One that
    gives pre-shared keys (Python 3.13) should not: the first two handshakes of the context that wait in it at once
    fail.

    ``wrap`` returns a TLSStream after the handshake. ``sock`` is a connected ``coro.sock`` or another ``coro.Stream``
    and belongs to the result. Raises HandshakeError and its kinds CertificateError and HandshakeTimeout, with ``sock``
    closed; ValueError when the context is not made for this side, or compares host names and ``server_hostname`` is
    missing.
    """
    if callable(getattr(obj, "wrap", None)):
        return cast(Context, obj)
    known = context_class()
    if known is not None and isinstance(obj, known):
        return _Adapter(obj)
    raise TypeError(
        f"expected an ssl.SSLContext, or a context with wrap(sock, server_side, server_hostname) as coro-ssl makes "
        f"them, not {type(obj).__name__}: {obj!r}"
    )
