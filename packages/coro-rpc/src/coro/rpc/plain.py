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

__all__ = ["CallTimeout", "Client", "ConnectionLost", "DecodeError", "RemoteError", "RpcError"]

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


class DecodeError(RpcError):
    """The server sent bytes that are no plain value, or that cost more to read than their size allows."""


# What a value is worth: its opcode, and how it is read.
_CONSTANTS = {0x4E: None, 0x88: True, 0x89: False, 0x29: ()}
_NUMBERS = {op: struct.Struct(form) for op, form in ((0x4B, "<B"), (0x4D, "<H"), (0x4A, "<i"), (0x47, ">d"))}
_EMPTY = {0x5D: list, 0x7D: dict, 0x8F: set}
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_FILLED: dict[int, tuple[type, int]] = {
    0x65: (list, 0),
    0x75: (dict, 0),
    0x90: (set, 0),
    0x61: (list, 1),
    0x73: (dict, 2),
}
_SIZED: dict[int, tuple[struct.Struct, Any]] = {
    op: (struct.Struct(form), make)
    for forms, make in (
        (((0x8C, "<B"), (0x58, "<I"), (0x8D, "<Q")), lambda piece: str(piece, "utf-8", "surrogatepass")),
        (((0x43, "<B"), (0x42, "<I"), (0x8E, "<Q")), bytes),
        (((0x96, "<Q"),), bytearray),
        (((0x8A, "<B"), (0x8B, "<I")), lambda piece: int.from_bytes(piece, "little", signed=True)),
    )
    for op, form in forms
}
_MAX_DEPTH, _MAX_MEMORY, _KEY_WORK = 100, 1 << 28, 10_000
_STEPS_PER_BYTE, _SPARE_STEPS, _MAX_STEPS = 8, 100_000, 20_000_000


class _Value:
    """A value on the stack: how deep it is, what its hash costs, and whether it may still be filled."""

    __slots__ = ("depth", "fresh", "table", "value", "work")

    def __init__(self, value: Any, depth: int = 1, work: int = 1, fresh: bool = True) -> None:
        self.value, self.depth, self.work, self.fresh = value, depth, work, fresh
        self.table: list[list[Any]] | None = None  # of a dict or set with keys that are no texts


class _Reader:
    """Makes plain values of a pickle of protocol 5, and counts what that costs.

    Only opcodes that the pickler writes for plain values are known, so no name is looked up. A step is a value, a
    comparison, or 64 bytes; a message may cost 8 for each of its bytes and 100 000 more. A value takes 1 to 2
    microseconds, a slot of the model a tenth of one. Hashes of numbers and of tuples of them can be chosen so that they
    collide: keys that are no texts first go through a model of the interpreter's table, which counts the slots that are
    looked at."""

    def __init__(self, data: bytes, buffers: list[Any]) -> None:
        self.data, self.at, self.buffers = data, 2, iter(buffers)
        self.stack: list[_Value] = []
        self.memo: list[_Value] = []
        self.marks: list[int] = []
        self.left = min(len(data) * _STEPS_PER_BYTE + _SPARE_STEPS, _MAX_STEPS)
        self.memory = 0

    def read(self) -> Any:
        data, stack = self.data, self.stack
        if data[0] != 0x80 or data[1] > 5:
            raise DecodeError("expected a pickle of protocol 5 or less, got something else")
        while (op := data[self.at]) != 0x2E:
            self.at += 1
            self.left -= 1
            if op == 0x94 and stack:  # MEMOIZE
                self.memo.append(stack[-1])
            else:
                self._step(op)
        self._take(0)
        if self.at + 1 != len(data) or len(stack) != 1 or self.marks or next(self.buffers, None) is not None:
            raise DecodeError("expected one value and nothing behind it")
        return stack[0].value

    def _take(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise DecodeError("expected a message that costs no more than its size allows, got keys that collide")

    def _push(self, value: Any, size: int = 0, depth: int = 1, work: int = 1) -> None:
        self.memory += 64 + size
        if self.memory > _MAX_MEMORY or depth > _MAX_DEPTH:
            raise DecodeError(f"expected values of {_MAX_MEMORY} bytes at most, nested {_MAX_DEPTH} deep at most")
        self.stack.append(_Value(value, depth, work))

    def _number(self, form: struct.Struct) -> Any:
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return value

    def _pop(self, n: int) -> list[_Value]:
        if len(self.stack) - n < (self.marks[-1] if self.marks else 0):
            raise DecodeError("expected a value that is there")
        values = self.stack[len(self.stack) - n :]
        del self.stack[len(self.stack) - n :]
        return values

    def _step(self, op: int) -> None:
        if op in _CONSTANTS:
            self._push(_CONSTANTS[op])
        elif op in _NUMBERS:
            self._push(self._number(_NUMBERS[op]))
        elif op in _SIZED:
            form, make = _SIZED[op]
            size = self._number(form)
            if size > len(self.data) - self.at:
                raise DecodeError(f"expected a length within the message, got {size}")
            self._take(size >> 6)
            self._push(make(self.data[self.at : self.at + size]), size)
            self.at += size
        elif op == 0x68 or op == 0x6A:  # BINGET, LONG_BINGET
            known = self.memo[self._number(struct.Struct("<B" if op == 0x68 else "<I"))]
            self._push(known.value, 0, known.depth, known.work)
            self.stack[-1].fresh = False
        elif op == 0x28:  # MARK
            if len(self.marks) > 2 * _MAX_DEPTH:
                raise DecodeError(f"expected values nested {_MAX_DEPTH} deep at most")
            self.marks.append(len(self.stack))
        elif op in _EMPTY:
            self._push(_EMPTY[op](), 200)
        elif op in _TUPLES:
            self._make_tuple(self._pop(_TUPLES[op]))
        elif op == 0x74:  # TUPLE
            self._make_tuple(self._pop_mark())
        elif op in _FILLED:
            kind, n = _FILLED[op]
            self._fill(kind, self._pop(n) if n else self._pop_mark())
        elif op == 0x91:  # FROZENSET
            values = self._pop_mark()
            self._push(set(), 216, work=1 + sum(one.work for one in values))
            self._fill(set, values)
            self.stack[-1].value = frozenset(self.stack[-1].value)
            self.stack[-1].fresh = False
        elif op == 0x95:  # FRAME
            if self._number(struct.Struct("<Q")) > len(self.data) - self.at:
                raise DecodeError("expected a length within the message")
        elif op == 0x97:  # NEXT_BUFFER
            self._push(next(self.buffers))
        elif op == 0x98:  # READONLY_BUFFER
            (value,) = self._pop(1)
            if not isinstance(value.value, (bytes, bytearray)):
                raise DecodeError("expected a buffer")
            self._push(bytes(value.value))
        else:
            raise DecodeError(f"expected opcodes of plain values, got {op:#x} at byte {self.at - 1}")

    def _pop_mark(self) -> list[_Value]:
        mark = self.marks.pop()
        return self._pop(len(self.stack) - mark)

    def _make_tuple(self, values: list[_Value]) -> None:
        depth = 1 + max((one.depth for one in values), default=0)
        work = 1 + sum(one.work for one in values)
        self._push(tuple(one.value for one in values), 8 * len(values), depth, min(work, _KEY_WORK + 1))

    def _fill(self, kind: type, values: list[_Value]) -> None:
        (target,) = self._pop(1)
        if not target.fresh or type(target.value) is not kind:
            raise DecodeError(f"expected items for a new {kind.__name__}")
        into: Any = target.value
        if kind is list:
            into.extend(one.value for one in values)
        elif kind is set:
            for one in values:
                self._look_up(target, one)
                into.add(one.value)
        else:
            if len(values) % 2:
                raise DecodeError("expected a value for each key")
            for i in range(0, len(values), 2):
                self._look_up(target, values[i])
                into[values[i].value] = values[i + 1].value
        self.memory += 48 * len(values)
        target.depth = max((target.depth, *(one.depth + 1 for one in values)))
        if target.depth > _MAX_DEPTH or self.memory > _MAX_MEMORY:
            raise DecodeError(f"expected values of {_MAX_MEMORY} bytes at most, nested {_MAX_DEPTH} deep at most")
        self.stack.append(target)

    def _look_up(self, target: _Value, key: _Value) -> None:
        """Before a key goes into a dict or set: what that costs."""
        value = key.value
        if key.work > _KEY_WORK:
            raise DecodeError("expected keys that can be hashed, got one whose hash takes too long")
        kind = type(value)
        weight = key.work
        if kind is str or kind is bytes:
            weight += len(value) >> 6
        elif kind is int:
            weight += value.bit_length() >> 9
        self._take(weight)
        if target.table is None:
            if kind is str or kind is bytes:
                return
            target.table = [[None] * 8, []]
            for known in target.value:
                self._place(target, known, 1)
        self._place(target, value, weight)

    def _place(self, target: _Value, value: Any, weight: int) -> None:
        assert target.table is not None
        slots, keys = target.table
        hashed = hash(value)
        if not self._probe(target, slots, hashed, value, weight):
            return
        keys.append((hashed, value))
        if len(keys) * 5 >= len(slots) * 3:
            slots = target.table[0] = [None] * (4 * len(slots))
            for known, key in keys:
                self._probe(target, slots, known, key, 1)

    def _probe(self, target: _Value, slots: list[Any], hashed: int, value: Any, weight: int) -> bool:
        """Whether it is new; then it is there."""
        mask = len(slots) - 1
        perturb = hashed & 0xFFFFFFFFFFFFFFFF
        at = perturb & mask
        runs = isinstance(target.value, set)
        looked_at = 0
        most = self.left // weight
        while looked_at <= most:
            for slot in range(at, at + 10) if runs and at + 9 <= mask else (at,):
                looked_at += 1
                found = slots[slot]
                if found is None:
                    slots[slot] = (hashed, value)
                    self._take(looked_at * weight)
                    return True
                if found[0] == hashed and found[1] == value:
                    self._take(looked_at * weight)
                    return False
            perturb >>= 5
            at = (at * 5 + perturb + 1) & mask
        self._take(looked_at * weight)
        return False


def _loads(data: bytes, buffers: list[Any] | None = None) -> Any:
    """The plain value of a pickle. Raises DecodeError."""
    try:
        return _Reader(data, buffers or []).read()
    except RpcError:
        raise
    except Exception as e:
        raise DecodeError(f"expected a pickle of plain values: {type(e).__name__}: {e}") from None


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
            said = self._decode(payload, 1)
            if not isinstance(said, (list, tuple)) or len(said) != 4:
                raise DecodeError("expected an exception as four values, got something else")
            raise RemoteError(str(said[1]), code, str(said[0]))
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
        try:
            (n,) = struct.unpack_from(">H", payload, at)
            sizes = struct.unpack_from(f">{n}I", payload, at + 2)
            start = len(payload) - sum(size & 0x7FFFFFFF for size in sizes)
            if start < at + 2 + 4 * n:
                raise DecodeError("expected buffers within the packet")
            data = payload[at + 2 + 4 * n : start]
            buffers: list[Any] = []
            for size in sizes:
                piece = payload[start : start + (size & 0x7FFFFFFF)]
                buffers.append(bytearray(piece) if size >> 31 else piece)
                start += len(piece)
            return json.loads(data) if self._codec == "json" else _loads(data, buffers)
        except RpcError:
            raise
        except Exception as e:
            raise DecodeError(f"expected a value, got bytes that raise {type(e).__name__}: {e}") from None

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
