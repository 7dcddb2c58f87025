"""A client of coro.rpc.fast_rpc for ordinary blocking programs: this file alone, with the standard library alone.

Copy it into a project, or import it as coro.rpc.plain; it imports nothing of coro.

    with Client(("127.0.0.1", 7777)) as client:
        print(client.call("add", 1, 2, timeout=5))
        for row in client.stream("rows"):
            print(row)

Any number of OS threads may use one client; a thread of its own receives and wakes those who wait. Limits: plain values
only, no streams to the server, no calls from the server, and no connecting anew.
"""

from __future__ import annotations

import collections
import hashlib
import hmac
import io
import json
import pickle
import secrets
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Literal, Self

__all__ = ["CallTimeout", "Client", "ConnectionLost", "RemoteError", "RpcError"]

HEADER = struct.Struct(">IBBHQ")  # length, kind, flags, zero, id
PREAMBLE = struct.Struct(">7sBII")  # "coro-ps", version, largest packet, window
CALL = struct.Struct(">BBHI")  # flags, position of a stream, length of the name, milliseconds
PUSH, REQUEST, REPLY, FAIL, CANCEL, ITEM_DOWN, CREDIT_UP, CREDIT_DOWN, PING, PONG, GOODBYE = (
    1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13
)  # fmt: skip
MORE = 1
DOWN, KEYWORDS = 2, 4
CHUNK = 262144
MAX_PACKET = 1 << 24
WINDOW = 1 << 20
EXCEPTION, DEADLINE = 4, 5


class RpcError(Exception):
    """The base of what this client raises."""


class ConnectionLost(RpcError):
    """The connection ended before the answer came, so the call may have been executed or not."""


class GoingAway(ConnectionLost):
    """The server ended in order before it had begun with the call: repeat it elsewhere."""


class CallTimeout(RpcError):
    """The time limit of a call is over; the server was told to stop."""


class RemoteError(RpcError):
    """The server refused the call, or its method raised. ``code`` is the number of the reason in the protocol (4: the
    method raised), ``type`` the class of the exception."""

    def __init__(self, message: str, code: int = 0, type: str = "") -> None:
        super().__init__(f"{type}: {message}" if type else message)
        self.message, self.code, self.type = message, code, type


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"expected plain values, got a {module}.{name}")


class _Call:
    """What one thread waits for."""

    def __init__(self) -> None:
        self.ready = threading.Condition(threading.Lock())
        self.items: collections.deque[bytes] = collections.deque()
        self.end: tuple[int, bytes] | None = None


class Client:
    """A connection to a server of fast_rpc.

    address: ``(host, port)``, or the path of a UNIX socket. timeout: seconds for a call, None for no limit. secret,
    user:
    as the server wants them. tls: an ``ssl.SSLContext``; server_hostname: the name in the certificate, None for the
    host of the address. codec: "pickle5" or "json". connect_timeout: seconds. OSError when nobody listens; RpcError
    when the handshake fails."""

    def __init__(
        self,
        address: Any,
        *,
        timeout: float | None = 60.0,
        secret: bytes | None = None,
        user: str | None = None,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
        codec: Literal["pickle5", "json"] = "pickle5",
        connect_timeout: float = 10.0,
    ) -> None:
        self.timeout = timeout
        self._codec = codec
        self._calls: dict[int, _Call] = {}
        self._last = 0
        self._lock = threading.Lock()  # of the table and of what ended the connection
        self._sending = threading.Lock()
        self._error: RpcError | None = None
        if isinstance(address, (str, bytes)):
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(connect_timeout)
            sock.connect(address)
        else:
            sock = socket.create_connection(address, connect_timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            sock = tls.wrap_socket(sock, server_hostname=server_hostname or address[0])
        sock.settimeout(None)
        self._sock = sock
        self._max_packet = MAX_PACKET
        self._window = 0
        self._credit = threading.Condition(self._lock)
        self._pushed = 0
        self._reader = threading.Thread(target=self._read, name=f"reader of {address}", daemon=True)
        sock.sendall(PREAMBLE.pack(b"coro-ps", 1, MAX_PACKET, WINDOW))
        self._reader.start()
        try:
            self._shake_hands(codec, secret, user, connect_timeout)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; calls under way raise ConnectionLost. Does nothing when it is closed."""
        self._end(ConnectionLost("the connection was closed by this side"))
        if self._reader is not threading.current_thread():
            self._reader.join()

    # -- calls

    def call(self, method: str, /, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        """Call and wait for the result. timeout: seconds, None for the client's. Raises CallTimeout, ConnectionLost,
        RemoteError."""
        seconds = self.timeout if timeout is None else timeout
        call, number = self._begin(method, args, kwargs, seconds, 0)
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            return self._result(call, number, deadline, seconds)
        finally:
            self._forget(number)

    def stream(self, method: str, /, *args: Any, timeout: float | None = None, **kwargs: Any) -> Iterator[Any]:
        """Call a method that answers with a stream; a generator of its items. timeout: seconds for the whole. Closing
        the generator stops the method."""
        call, number = self._begin(method, args, kwargs, timeout, DOWN)
        return self._items(call, number, timeout)

    def _items(self, call: _Call, number: int, timeout: float | None) -> Iterator[Any]:
        deadline = None if timeout is None else time.monotonic() + timeout
        used = 0
        try:
            while True:
                with call.ready:
                    while not call.items and call.end is None:
                        self._wait(call, number, deadline, timeout)
                    item = call.items.popleft() if call.items else None
                if item is None:
                    self._result(call, number, deadline, timeout)
                    return
                used += len(item) + HEADER.size
                if used * 2 >= WINDOW:
                    self._send(CREDIT_DOWN, number, struct.pack(">I", used))
                    used = 0
                yield self._decode(item, 0)
        finally:
            if call.end is None:
                self._forget(number)
                self._send_quietly(CANCEL, number)
            self._forget(number)

    def cast(self, method: str, /, *args: Any, **kwargs: Any) -> None:
        """Call without an answer."""
        payload = self._request(method, args, kwargs, None, 0)
        with self._credit:
            while self._window <= 0 and self._error is None:
                self._credit.wait()
            if self._error is not None:
                raise self._fresh()
            self._window -= len(payload) + HEADER.size
            self._pushed += 1
            number = self._pushed
        self._send(PUSH, number, payload)

    def ping(self, timeout: float | None = 10.0) -> float:
        """Ask for a sign of life; the seconds that it took."""
        begin = time.monotonic()
        self.call("rpc.ping", timeout=timeout)
        return time.monotonic() - begin

    def _request(
        self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], seconds: float | None, flags: int
    ) -> bytes:
        name = method.encode()
        value: Any = [list(args), kwargs] if kwargs else list(args)
        milliseconds = 0 if seconds is None or seconds > 4e6 else int(seconds * 1000) + 1
        head = CALL.pack(flags | (KEYWORDS if kwargs else 0), 0, len(name), milliseconds) + name
        return head + b"\0\0" + self._encode(value)

    def _begin(
        self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], seconds: float | None, flags: int
    ) -> tuple[_Call, int]:
        return self._put(self._request(method, args, kwargs, seconds, flags))

    def _put(self, payload: bytes) -> tuple[_Call, int]:
        if len(payload) > self._max_packet:
            raise RpcError(f"expected a call of at most {self._max_packet} bytes, got {len(payload)}")
        call = _Call()
        with self._lock:
            if self._error is not None:
                raise self._fresh()
            self._last += 1
            number = self._last
            self._calls[number] = call
        self._send(REQUEST, number, payload)
        return call, number

    def _wait(self, call: _Call, number: int, deadline: float | None, seconds: float | None) -> None:
        """Once, holding call.ready."""
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0 or not call.ready.wait(left) and call.end is None:
            self._forget(number)
            self._send_quietly(CANCEL, number)
            raise CallTimeout(f"expected an answer within {seconds:g} seconds, none came; the server was told to stop")

    def _result(self, call: _Call, number: int, deadline: float | None, seconds: float | None) -> Any:
        kind, payload = self._raw(call, number, deadline, seconds)
        if kind == REPLY:
            return self._decode(payload, 0)
        code = payload[0] if payload else 0
        if code == EXCEPTION:
            name, text, _, _ = self._decode(payload, 1)
            raise RemoteError(text, code, name)
        text = payload[1:].decode("utf-8", "replace")
        raise CallTimeout(text) if code == DEADLINE else RemoteError(text, code)

    def _raw(self, call: _Call, number: int, deadline: float | None, seconds: float | None) -> tuple[int, bytes]:
        try:
            with call.ready:
                while call.end is None:
                    self._wait(call, number, deadline, seconds)
        except BaseException:
            if call.end is None:
                self._send_quietly(CANCEL, number)
            raise
        if call.end[0] == 0:
            raise self._fresh()
        return call.end

    def _forget(self, number: int) -> None:
        with self._lock:
            self._calls.pop(number, None)

    # -- values

    def _encode(self, value: Any) -> bytes:
        if self._codec == "json":
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        return pickle.dumps(value, 5)

    def _decode(self, payload: bytes, at: int) -> Any:
        (n,) = struct.unpack_from(">H", payload, at)
        sizes = struct.unpack_from(f">{n}I", payload, at + 2)
        start = len(payload) - sum(size & 0x7FFFFFFF for size in sizes)
        data = payload[at + 2 + 4 * n : start]
        buffers: list[Any] = []
        for size in sizes:
            piece = payload[start : start + (size & 0x7FFFFFFF)]
            buffers.append(bytearray(piece) if size >> 31 else piece)
            start += len(piece)
        if self._codec == "json":
            return json.loads(data)
        return _Unpickler(io.BytesIO(data), buffers=buffers).load()

    # -- the handshake

    def _shake_hands(self, codec: str, secret: bytes | None, user: str | None, timeout: float) -> None:
        hello = json.dumps(
            {
                "rpc": 1,
                "codecs": [codec],
                "name": "coro.rpc.plain",
                "build": f"Python {sys.version.split()[0]}",
                "nonce": secrets.token_hex(32),
                "user": user,
                "secret": secret is not None,
            }
        ).encode()
        answer = self._ask(hello, timeout)
        said = json.loads(answer)
        if secret is None:
            if said["auth"] != "none":
                raise RpcError("the server wants a secret: pass secret=... (and user=... if it has several)")
            return
        if said["auth"] != "secret":
            raise RpcError("this side has a secret and the server asks for none, so it cannot prove who it is")
        transcript = hello + b"\n" + answer

        def proof(side: bytes) -> str:
            return hmac.new(secret, b"coro-rpc " + side + b"\0" + transcript, hashlib.sha256).hexdigest()

        reply = json.loads(self._ask(json.dumps({"proof": proof(b"client")}).encode(), timeout))
        if not hmac.compare_digest(str(reply["proof"]), proof(b"server")):
            raise RpcError("the server does not know the secret")

    def _ask(self, message: bytes, timeout: float) -> bytes:
        call, number = self._put(message)
        try:
            kind, payload = self._raw(call, number, time.monotonic() + timeout, timeout)
        finally:
            self._forget(number)
        if kind != REPLY:
            raise RemoteError(payload[1:].decode("utf-8", "replace"), payload[0] if payload else 0)
        return payload

    # -- frames

    def _send(self, kind: int, number: int, payload: bytes = b"") -> None:
        try:
            with self._sending:
                at = 0
                while True:
                    piece = payload[at : at + CHUNK]
                    at += len(piece)
                    more = MORE if at < len(payload) else 0
                    self._sock.sendall(HEADER.pack(len(piece), kind, more, 0, number) + piece)
                    if not more:
                        return
        except OSError as e:
            self._end(ConnectionLost(f"sending failed: {e}"))
            raise self._fresh() from e

    def _send_quietly(self, kind: int, number: int) -> None:
        try:
            self._send(kind, number)
        except RpcError:
            return  # the connection has ended, and the call with it

    def _receive(self, n: int) -> bytes:
        data = bytearray()
        while len(data) < n:
            piece = self._sock.recv(min(n - len(data), 1 << 20))
            if not piece:
                raise ConnectionLost("the server closed the connection")
            data += piece
        return bytes(data)

    def _read(self) -> None:
        parts: dict[tuple[int, int], bytearray] = {}
        try:
            magic, version, self._max_packet, window = PREAMBLE.unpack(self._receive(PREAMBLE.size))
            if magic != b"coro-ps" or version != 1:
                raise RpcError(f"expected version 1 of the packet stream, got {magic!r}, version {version}")
            with self._credit:
                self._window += window
                self._credit.notify_all()
            while True:
                length, kind, flags, _, number = HEADER.unpack(self._receive(HEADER.size))
                if length > CHUNK:
                    raise RpcError(f"expected a frame of at most {CHUNK} bytes, got {length}")
                payload = self._receive(length)
                if flags & MORE or (kind, number) in parts:
                    part = parts.setdefault((kind, number), bytearray())
                    part += payload
                    if len(part) > MAX_PACKET or len(parts) > 4:
                        raise RpcError("expected packets within the limits, got larger or more of them")
                    if flags & MORE:
                        continue
                    payload = bytes(parts.pop((kind, number)))
                self._dispatch(kind, number, payload)
        except RpcError as e:
            self._end(e)
        except Exception as e:
            self._end(ConnectionLost(f"receiving failed: {e}"))

    def _dispatch(self, kind: int, number: int, payload: bytes) -> None:
        if kind in (REPLY, FAIL, ITEM_DOWN):
            with self._lock:
                call = self._calls.get(number)
            if call is not None:
                with call.ready:
                    if kind == ITEM_DOWN:
                        call.items.append(payload)
                    elif call.end is None:
                        call.end = (kind, payload)
                    call.ready.notify_all()
        elif kind == PING:
            self._send(PONG, number, payload)
        elif kind == CREDIT_UP and number == 0:
            with self._credit:
                self._window += int.from_bytes(payload, "big")
                self._credit.notify_all()
        elif kind == REQUEST:
            self._send(FAIL, number, b"\x02this client exports nothing")
        elif kind == GOODBYE and payload[:2] == b"\0\5":
            raise GoingAway("the server has closed the connection; it did not execute what it has not answered")
        elif kind == GOODBYE and payload[:2] != b"\0\0":
            raise ConnectionLost(f"the server closed the connection: {payload[2:].decode('utf-8', 'replace')}")

    def _fresh(self) -> RpcError:
        """What ended the connection, as an exception of its own for each thread."""
        error = self._error or ConnectionLost("the connection has ended")
        return type(error)(*error.args)

    def _end(self, error: RpcError) -> None:
        with self._lock:
            if self._error is None:
                self._error = error
            calls = list(self._calls.values())
            self._calls.clear()
            self._credit.notify_all()
        for call in calls:
            with call.ready:
                if call.end is None:
                    call.end = (0, b"")
                call.ready.notify_all()
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it was not connected any more
        self._sock.close()
