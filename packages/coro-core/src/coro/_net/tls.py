"""What OpenSSL wants, and what it says: the part below ``coro.tls`` that knows the standard library's `ssl` module.

Two things are here. ``until_done`` calls a method of OpenSSL's until it wants nothing any more. The caller knows how to
wait: the emulated ``ssl.SSLSocket`` waits for its descriptor. ``translated`` makes an error of ``coro.tls`` out
of what OpenSSL raised. How ``coro.tls`` uses OpenSSL is in tls/_openssl.py.

Nothing here imports `ssl` before the first context is at hand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl

__all__ = [
    "ALERTS",
    "CertificateError",
    "HandshakeError",
    "HandshakeTimeout",
    "ProtocolError",
    "TLSError",
    "TruncatedError",
    "UnsupportedError",
    "until_done",
]

# The alerts of TLS 1.3, and those of earlier versions that are still seen (RFC 8446 section 6, RFC 5246 section 7.2).
ALERTS = {
    0: "close_notify",
    10: "unexpected_message",
    20: "bad_record_mac",
    21: "decryption_failed",
    22: "record_overflow",
    30: "decompression_failure",
    40: "handshake_failure",
    41: "no_certificate",
    42: "bad_certificate",
    43: "unsupported_certificate",
    44: "certificate_revoked",
    45: "certificate_expired",
    46: "certificate_unknown",
    47: "illegal_parameter",
    48: "unknown_ca",
    49: "access_denied",
    50: "decode_error",
    51: "decrypt_error",
    60: "export_restriction",
    70: "protocol_version",
    71: "insufficient_security",
    80: "internal_error",
    86: "inappropriate_fallback",
    90: "user_canceled",
    100: "no_renegotiation",
    109: "missing_extension",
    110: "unsupported_extension",
    111: "certificate_unobtainable",
    112: "unrecognized_name",
    113: "bad_certificate_status_response",
    114: "bad_certificate_hash_value",
    115: "unknown_psk_identity",
    116: "certificate_required",
    120: "no_application_protocol",
}
_ALERT_NUMBERS = {name: number for number, name in ALERTS.items()}


class TLSError(OSError):
    """Something went wrong in TLS; the connection is of no more use. The base of the other errors of ``coro.tls``.

    ``alert`` is the number of the alert that the peer sent (RFC 8446 section 6), None when it sent none;
    ``alert_name`` its name. The cause (``__cause__``) is the back end's own exception, if there is one.
    """

    alert: int | None = None
    _sock: Any = None

    def __init__(self, message: str, *, alert: int | None = None) -> None:
        super().__init__(message)
        self.alert = alert

    @property
    def alert_name(self) -> str | None:
        """The name of the peer's alert, ``"unknown_ca"`` say; None without one."""
        return None if self.alert is None else ALERTS.get(self.alert, f"alert {self.alert}")


class HandshakeError(TLSError):
    """The handshake failed: the two sides have no version or cipher in common, the peer refused with an alert, sent
    what is no TLS, or ended the stream."""


class CertificateError(HandshakeError):
    """The peer's certificate is not accepted: expired, of an unknown issuer, revoked, or for another name.

    ``verify_code`` is OpenSSL's number of the reason (``X509_V_ERR_...``), 0 where it is not known;
    ``verify_message`` says it in words.
    """

    def __init__(
        self, message: str, *, alert: int | None = None, verify_code: int = 0, verify_message: str = ""
    ) -> None:
        super().__init__(message, alert=alert)
        self.verify_code = verify_code
        self.verify_message = verify_message or message


class HandshakeTimeout(HandshakeError, TimeoutError):
    """The peer did not complete the handshake in time. It is a built-in ``TimeoutError``, too."""


class TruncatedError(TLSError, ConnectionError):
    """The stream ended without the peer's close_notify: somebody on the way may have cut it (RFC 8446 section 6.1).

    What was received before may be incomplete. A clean end is ``b""`` from ``recv`` instead.
    """


class ProtocolError(TLSError):
    """The peer broke the rules of TLS after the handshake: a record that does not decrypt, a message out of place; or
    it ended the connection with an alert."""


class UnsupportedError(TLSError):
    """This back end, or this version of it, cannot do what was asked for."""


def until_done(
    wants_read: type[BaseException],
    wants_write: type[BaseException],
    wait: Callable[[bool], object],
    method: Callable[..., Any],
    *args: Any,
) -> Any:
    """Call ``method`` until it raises neither of the two, with ``wait(writing)`` between the attempts; what it returns.
    It gets the same arguments each time, as OpenSSL demands. Other exceptions, and those of ``wait``, are passed on."""
    while True:
        try:
            return method(*args)
        except wants_read:
            writing = False
        except wants_write:
            writing = True
        wait(writing)


def context_class() -> type[ssl.SSLContext] | None:
    """``ssl.SSLContext`` if the program has imported `ssl`; without that it cannot have a context."""
    module = sys.modules.get("ssl")
    return getattr(module, "SSLContext", None)


def words(exc: BaseException) -> str:
    """What OpenSSL said, without the place in a C file."""
    text = str(exc.args[1] if len(exc.args) > 1 else exc)
    text = text.partition(" (_ssl.c")[0]
    return text.partition("] ")[2] or text


def _alert(reason: str) -> int | None:
    """The number of the alert in OpenSSL's name for an error that the peer told of: SSLV3_ALERT_BAD_CERTIFICATE."""
    before, found, name = reason.partition("_ALERT_")
    return _ALERT_NUMBERS.get(name.lower()) if found and before[:3] in ("SSL", "TLS") else None


def translated(exc: Exception, doing: str) -> Exception:
    """The error of ``coro.tls`` for what OpenSSL raised; what is none of OpenSSL's errors is returned as it is."""
    import ssl

    if not isinstance(exc, ssl.SSLError):
        return exc
    reason = getattr(exc, "reason", None) or ""
    said = words(exc)
    if isinstance(exc, ssl.SSLCertVerificationError):
        message = exc.verify_message or said
        return CertificateError(
            f"the peer's certificate is not accepted: {message}",
            verify_code=exc.verify_code,
            verify_message=message,
        )
    if isinstance(exc, ssl.SSLEOFError) or reason == "UNEXPECTED_EOF_WHILE_READING":
        if doing == "handshake":
            return HandshakeError("the peer ended the stream during the TLS handshake")
        return TruncatedError("the stream ended without close_notify: what came before may be incomplete")
    alert = _alert(reason)
    if alert is not None:
        what = f"the peer sent the alert {ALERTS[alert]}"
    else:
        what = said
    if doing == "handshake":
        return HandshakeError(f"the TLS handshake failed: {what}", alert=alert)
    return ProtocolError(f"TLS failed in {doing}: {what}", alert=alert)
