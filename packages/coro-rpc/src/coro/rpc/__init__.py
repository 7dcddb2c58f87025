"""Packets and remote calls between processes.

    from coro.rpc import fast_rpc

    with fast_rpc.connect(("127.0.0.1", 7777)) as conn:
        print(conn.call("add", 1, 2))

``packet_stream`` carries packets over any stream and matches answers to requests; ``fast_rpc`` calls functions over it.
This file holds names only. ``coro.rpc.plain`` is a client for programs that do not run coro.
"""

from __future__ import annotations

from coro.rpc._core import explained as _explained

with _explained():
    from coro.rpc import fast_rpc, packet_stream
    from coro.rpc.exceptions import (
        AuthenticationError,
        BadArguments,
        Busy,
        CallCancelled,
        CallTimeout,
        ConnectionLost,
        DecodeError,
        EncodeError,
        ForkedError,
        GoingAway,
        LocalError,
        NoSuchMethod,
        NotPermitted,
        PacketTooBig,
        PeerUnresponsive,
        ProtocolError,
        RemoteError,
        RpcError,
        UploadError,
    )

__version__ = "0.1.0"

__all__ = [
    "AuthenticationError",
    "BadArguments",
    "Busy",
    "CallCancelled",
    "CallTimeout",
    "ConnectionLost",
    "DecodeError",
    "EncodeError",
    "ForkedError",
    "GoingAway",
    "LocalError",
    "NoSuchMethod",
    "NotPermitted",
    "PacketTooBig",
    "PeerUnresponsive",
    "ProtocolError",
    "RemoteError",
    "RpcError",
    "UploadError",
    "fast_rpc",
    "packet_stream",
]
