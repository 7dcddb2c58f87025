"""Who is there: the handshake of fast_rpc, with a secret that never crosses the wire.

Two or three messages, JSON in ordinary requests and replies, before anything can be called:

    client  {"rpc": 1, "codecs": [...], "name", "build", "nonce": 64 hex digits, "user": name or null, "secret": bool}
    server  {"rpc": 1, "codec", "name", "build", "nonce", "auth": "secret" or "none", "identity"}
    client  {"proof": HMAC-SHA256(secret, "coro-rpc client\\0" + both messages above, a newline between), in hex}
    server  {"proof": HMAC-SHA256(secret, "coro-rpc server\\0" + the same), in hex, "identity"}

The last two only with "auth": "secret". The proofs cover both messages byte for byte, so whoever stands between cannot
change the codec or anything else; and nonces of both sides, so nothing can be played again. Each side insists on what
it was told to insist on: a client with a secret leaves a server that asks for none. Proofs are compared in constant
time, for unknown users too. The challenge tells who is there, it does not encrypt: on a network that others can
change, use TLS as well.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import socket
import struct
import sys
from collections.abc import Mapping
from typing import Any

from coro.rpc.exceptions import AuthenticationError, ProtocolError

__all__ = ["BUILD", "PROTOCOL", "certificate_name", "dump", "load", "new_nonce", "peer_user", "proof", "same"]

PROTOCOL = 1
BUILD = f"coro-rpc 0.1.0, Python {sys.version.split()[0]}"
#: Bytes of a message of the handshake.
LARGEST = 8192


def new_nonce() -> str:
    """32 random bytes, as hex digits."""
    return secrets.token_hex(32)


def dump(message: Mapping[str, Any]) -> bytes:
    """A message of the handshake."""
    return json.dumps(message, separators=(",", ":")).encode()


def load(data: bytes, **kinds: type | tuple[type, ...]) -> dict[str, Any]:
    """The same back. kinds: what has to be in it. Raises ProtocolError."""
    try:
        if len(data) > LARGEST:
            raise ValueError(f"{len(data)} bytes")
        message = json.loads(data)
        if not isinstance(message, dict):
            raise ValueError("no object")
        for name, kind in kinds.items():
            if not isinstance(message.get(name), kind):
                raise ValueError(f"{name!r} is missing or of another type")
    except (ValueError, RecursionError) as e:
        raise ProtocolError(f"expected a message of the handshake of fast_rpc, got something else: {e}") from None
    return message


def proof(secret: bytes, side: str, transcript: bytes) -> str:
    """What proves that a side knows the secret."""
    return hmac.new(secret, f"coro-rpc {side}\0".encode() + transcript, hashlib.sha256).hexdigest()


def same(a: str, b: str) -> bool:
    """Compare two proofs in a time that does not tell where they differ."""
    return hmac.compare_digest(a.encode("utf-8", "replace"), b.encode("utf-8", "replace"))


def check_secret(secret: Any) -> bytes:
    """The secret as bytes; ValueError for one that can be guessed."""
    if isinstance(secret, str):
        secret = secret.encode()
    if not isinstance(secret, bytes) or len(secret) < 16:
        raise ValueError("expected a secret of at least 16 bytes; make one: secrets.token_bytes(32)")
    return secret


def secret_of(secrets_: Mapping[str, bytes], user: str | None) -> tuple[bytes, bool]:
    """The secret of a user, and whether there is one: else a random one, which nothing proves."""
    found = secrets_.get(user or "")
    return (found, True) if found is not None else (secrets.token_bytes(32), False)


def peer_user(stream: Any) -> int | None:
    """The user id of the process at the other end of a UNIX socket, as the kernel knows it; None for other streams."""
    if getattr(stream, "family", None) != socket.AF_UNIX or not hasattr(stream, "getsockopt"):
        return None
    try:
        if hasattr(socket, "SO_PEERCRED"):
            data = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            return int(struct.unpack("3i", data)[1])
        if hasattr(socket, "LOCAL_PEERCRED"):  # FreeBSD, macOS: struct xucred of unix(4)
            data = stream.getsockopt(0, socket.LOCAL_PEERCRED, 76)
            return int(struct.unpack_from("2I", data)[1])
    except (OSError, struct.error):
        return None
    return None


def certificate_name(stream: Any) -> str | None:
    """The common name (or first DNS name) of the certificate that TLS has verified for the other side; None without
    one."""
    get = getattr(stream, "getpeercert", None)
    if get is None:
        return None
    certificate = get()
    if not isinstance(certificate, dict) or not certificate:
        return None
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    for key, value in certificate.get("subjectAltName", ()):
        if key in ("DNS", "URI"):
            return str(value)
    return None


def same_user(stream: Any) -> bool:
    """Does the other end of a UNIX socket belong to the user of this process?"""
    return peer_user(stream) == os.geteuid()


def refuse_user(user: int | None, wanted: Any) -> None:
    """AuthenticationError unless the user is among those wanted ("same", or a set of ids)."""
    if user is None:
        raise AuthenticationError("expected a UNIX socket, whose other end's user the kernel knows")
    if user != os.geteuid() if wanted == "same" else user not in wanted:
        raise AuthenticationError(f"user {user} may not connect")
