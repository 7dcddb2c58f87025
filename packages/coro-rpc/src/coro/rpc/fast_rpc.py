"""Remote calls: names only, the errors among them.

registry = fast_rpc.Registry()

@registry.export
def add(a, b):
    return a + b

with fast_rpc.Server(registry, ("127.0.0.1", 0)) as server, fast_rpc.connect(server.addresses[0]) as conn:
    assert conn.call("add", 1, 2) == 3
"""

from __future__ import annotations

from coro.rpc._arguments import Items
from coro.rpc._calls import IncomingCall, Limits, Pending, Stream, current_call
from coro.rpc._registry import Registry, ServiceError
from coro.rpc.client import Client, ClientStatistics, Member, Pool, connect
from coro.rpc.codecs import JSON, Codec, MessagePack, Pickle
from coro.rpc.connection import Caller, Connection
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
from coro.rpc.server import Server, prefork, serve

__all__ = [
    "JSON",
    "AuthenticationError",
    "BadArguments",
    "Busy",
    "CallCancelled",
    "CallTimeout",
    "Caller",
    "Client",
    "ClientStatistics",
    "Codec",
    "Connection",
    "ConnectionLost",
    "DecodeError",
    "EncodeError",
    "ForkedError",
    "GoingAway",
    "IncomingCall",
    "Items",
    "Limits",
    "LocalError",
    "Member",
    "MessagePack",
    "NoSuchMethod",
    "NotPermitted",
    "PacketTooBig",
    "PeerUnresponsive",
    "Pending",
    "Pickle",
    "Pool",
    "ProtocolError",
    "Registry",
    "RemoteError",
    "RpcError",
    "Server",
    "ServiceError",
    "Stream",
    "UploadError",
    "connect",
    "current_call",
    "prefork",
    "serve",
]
