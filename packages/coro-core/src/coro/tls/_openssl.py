"""A connection of OpenSSL's as an engine of ``coro.tls``: between two memory buffers, without input or output.

Why memory buffers, and not the descriptor, as the emulated class has it: OpenSSL reads a record from a descriptor in
two system calls, and finds out that there is no more with a third; a write that would block has to be repeated with the
same bytes before anything else may be written, whatever interrupted its thread; and it works with a socket of the
standard library only. With memory, a request costs one recv(2) and one send(2), writing never blocks inside OpenSSL,
and the bytes can travel over anything: a sock, a tunnel, a stream of the test kit. The price is one copy more in each
direction, 0.1 us for a KiB. The buffers are shared with other connections, see _channels.pyx.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from coro._net.tls import UnsupportedError, translated, words
from coro.tls._channels import Memory, waiting

if TYPE_CHECKING:
    import ssl

__all__ = ["OpenSSL", "never_waits"]


class OpenSSL:
    """A connection of OpenSSL's between two memory buffers: an engine of ``coro.tls``. It costs what OpenSSL keeps."""

    __slots__ = ("channel",)

    def __init__(
        self,
        context: ssl.SSLContext,
        server_side: bool = False,
        server_hostname: str | None = None,
        session: ssl.SSLSession | None = None,
    ) -> None:
        """Raises ValueError for a context that is not made for this side, or one that compares host names where none is
        given."""
        import ssl

        if context.check_hostname and not server_side and not server_hostname:
            raise ValueError(
                "check_hostname requires server_hostname: pass the name that the certificate is to be compared with"
            )
        self.channel = Memory(own=_may_wait(context))
        incoming, outgoing = self.channel.buffers()
        try:
            made = context.wrap_bio(
                incoming,
                outgoing,
                server_side=server_side,
                server_hostname=None if server_side else server_hostname,
                session=session,
            )
        except ssl.SSLError as e:
            side = "server" if server_side else "client"
            raise ValueError(f"this SSLContext cannot be used on the {side}'s side: {words(e)}") from e
        # The object of the C module: one call less each time.
        self.channel.owner = made
        self.channel.tls = getattr(made, "_sslobj", made)

    @property
    def object(self) -> ssl.SSLObject:
        """The connection as `ssl` has it, for what it tells. Not for its methods that read, write or shake hands: those
        of `channel` see to it that the buffers contain the bytes of this connection. It is made again when it is asked
        for, because it takes 300 bytes."""
        import ssl

        made = self.channel.owner
        if made is None:
            made = ssl.SSLObject.__new__(ssl.SSLObject)
            made._sslobj = self.channel.tls  # type: ignore[attr-defined]
        return cast("ssl.SSLObject", made)

    @property
    def incoming(self) -> _Incoming:
        """What comes from the peer."""
        return _Incoming(self.channel)

    @property
    def outgoing(self) -> _Outgoing:
        """What goes to the peer."""
        return _Outgoing(self.channel)

    @property
    def tls(self) -> _Methods:
        """The methods of OpenSSL's."""
        return _Methods(self.channel, self.want)

    @property
    def want(self) -> type[Exception]:
        """SSLWantReadError."""
        import ssl

        return ssl.SSLWantReadError

    @property
    def ended(self) -> type[Exception]:
        """SSLZeroReturnError."""
        import ssl

        return ssl.SSLZeroReturnError

    def error(self, exc: Exception, doing: str) -> Exception:
        """The error of ``coro.tls`` for what OpenSSL raised; ``doing`` is "handshake", "read", "write" or "close"."""
        return translated(exc, doing)

    def version(self) -> str | None:
        """The version of the protocol, ``"TLSv1.3"`` say."""
        return self.object.version()

    def cipher(self) -> tuple[str, str, int] | None:
        """Name, version of the protocol that defined it, and secret bits of the cipher."""
        return self.object.cipher()

    def selected_alpn_protocol(self) -> str | None:
        """The protocol that was agreed on by ALPN, None without one."""
        return self.object.selected_alpn_protocol()

    def getpeercert(self, binary_form: bool = False) -> Any:
        """The peer's certificate as ``ssl.SSLSocket.getpeercert`` has it."""
        return self.object.getpeercert(binary_form)

    def peer_chain(self) -> list[bytes]:
        """The certificates that the peer sent, its own first, each in DER; empty where Python cannot tell."""
        if hasattr(self.object, "get_unverified_chain"):  # from 3.13 on
            return [bytes(one) for one in self.object.get_unverified_chain() or ()]
        get = getattr(self.channel.tls, "get_unverified_chain", None)
        if get is not None:
            import _ssl

            return [one.public_bytes(_ssl.ENCODING_DER) for one in get() or ()]
        own = self.object.getpeercert(True)
        return [own] if own else []

    def get_channel_binding(self, kind: str) -> bytes | None:
        """The channel binding of this kind. UnsupportedError for one that `ssl` does not offer."""
        import ssl

        if kind not in ssl.CHANNEL_BINDING_TYPES:
            raise UnsupportedError(
                f"this Python's ssl module has no channel binding {kind!r}, only {ssl.CHANNEL_BINDING_TYPES}"
            )
        return self.object.get_channel_binding(kind)

    @property
    def server_hostname(self) -> str | None:
        """The host name that the client asked for or compares with."""
        return self.object.server_hostname

    @property
    def session(self) -> Any:
        """The session, for the ``session`` of a later connection to the same server."""
        return self.object.session

    @property
    def session_reused(self) -> bool:
        """Whether the handshake was shortened by an earlier session."""
        return bool(self.object.session_reused)


def never_waits(function: Any) -> Any:
    """Mark a function that OpenSSL calls, such as an ``sni_callback``: no thread waits in it."""
    function.never_waits_in_tls = True
    return function


def _may_wait(context: ssl.SSLContext) -> bool:
    """May OpenSSL call something of this context's that waits in the middle of a handshake, while others go on?"""
    if context in waiting or getattr(context, "_msg_callback", None) is not None:
        return True
    choose = getattr(context, "sni_callback", None)
    return choose is not None and not getattr(choose, "never_waits_in_tls", False)


class _Incoming:
    __slots__ = ("_channel",)

    def __init__(self, channel: Memory) -> None:
        self._channel = channel

    @property
    def pending(self) -> int:
        return self._channel.received()

    def write(self, data: bytes, /) -> int:
        if data:
            self._channel.feed(data)
        return len(data)

    def write_eof(self) -> None:
        self._channel.feed(b"")


class _Outgoing:
    __slots__ = ("_channel",)

    def __init__(self, channel: Memory) -> None:
        self._channel = channel

    @property
    def pending(self) -> int:
        return self._channel.unsent()

    def read(self) -> bytes:
        return self._channel.take()


class _Methods:
    """A channel with the methods of ``ssl.SSLObject`` that the text of ``Engine`` names."""

    __slots__ = ("_channel", "_want")

    def __init__(self, channel: Memory, want: type[Exception]) -> None:
        self._channel = channel
        self._want = want

    def do_handshake(self) -> None:
        if not self._channel.handshake():
            raise self._want(2, "ciphertext is missing")

    def read(self, size: int, buffer: Any = None) -> Any:
        if buffer is None:
            data = self._channel.read(size)
            if data is None:
                raise self._want(2, "ciphertext is missing")
            return data
        n = self._channel.read_into(size, buffer)
        if n < 0:
            raise self._want(2, "ciphertext is missing")
        return n

    def write(self, data: bytes) -> int:
        return self._channel.write(data)

    def shutdown(self) -> None:
        if not self._channel.shutdown():
            raise self._want(2, "the peer has not ended")

    def pending(self) -> int:
        return self._channel.pending()
