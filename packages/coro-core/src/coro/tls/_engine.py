"""What a back end of TLS gives to a TLSStream: an object that turns plain text into records and back, in memory."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Engine"]


class _Incoming(Protocol):
    @property
    def pending(self) -> int: ...
    def write(self, data: bytes, /) -> int: ...
    def write_eof(self) -> None: ...


class _Outgoing(Protocol):
    @property
    def pending(self) -> int: ...
    def read(self) -> bytes: ...


class Engine(Protocol):
    """What turns plain text into TLS records and back, in memory. Back ends implement it; programs do not meet it.

    Ciphertext goes into ``incoming`` and comes out of ``outgoing``. ``tls`` has ``do_handshake()``, ``read(size)``,
    ``read(size, buffer)``, ``write(data)``, ``shutdown()`` and ``pending()`` with the meaning that they have in
    ``ssl.SSLObject``. They never wait: ``want`` is the exception that says that ciphertext is missing, and the call is
    repeated after more was fed. ``ended`` is raised, or ``b""`` returned, by ``read`` behind the peer's close_notify.

    An engine that computes for long may have an attribute ``again``: an exception that ``do_handshake`` and ``read``
    raise to let other threads run, and are then called again. ``write`` may take less than it was given for the same
    reason.
    """

    @property
    def incoming(self) -> _Incoming:
        """What comes from the peer: ``write(data)``, ``write_eof()``, ``pending``."""

    @property
    def outgoing(self) -> _Outgoing:
        """What goes to the peer: ``read()`` takes all that is there, ``pending`` is how much that is."""

    @property
    def tls(self) -> Any:
        """The object whose methods do the work."""

    @property
    def want(self) -> type[Exception]:
        """Raised by ``tls`` when more ciphertext is needed."""

    @property
    def ended(self) -> type[Exception]:
        """Raised by ``tls.read`` when the peer has ended its side with close_notify."""

    def error(self, exc: Exception, doing: str, /) -> Exception:
        """The error of ``coro.tls`` for ``exc``, which a method of ``tls`` raised; ``doing`` is "handshake", "read",
        "write" or "close"."""

    def version(self) -> str | None:
        """The version of the protocol, ``"TLSv1.3"`` say."""

    def cipher(self) -> tuple[str, str, int] | None:
        """Name, version of the protocol that defined it, and secret bits of the cipher."""

    def selected_alpn_protocol(self) -> str | None:
        """The protocol that was agreed on by ALPN, None without one."""

    def getpeercert(self, binary_form: bool = False, /) -> Any:
        """The peer's certificate as ``ssl.SSLSocket.getpeercert`` has it; with ``binary_form`` in DER."""

    def peer_chain(self) -> list[bytes]:
        """The certificates that the peer sent, its own first, each in DER."""

    def get_channel_binding(self, kind: str, /) -> bytes | None:
        """The channel binding of this kind."""

    @property
    def server_hostname(self) -> str | None:
        """The host name that the client asked for or compares with."""

    @property
    def session(self) -> Any:
        """The session, for the ``session`` of a later connection to the same server."""

    @property
    def session_reused(self) -> bool:
        """Whether the handshake was shortened by an earlier session."""
