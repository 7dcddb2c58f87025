"""One test per attack: pickles that execute, bombs of memory, hashes and depth, floods, and names from the wire."""

from __future__ import annotations

import copyreg
import enum
import gc
import json
import os
import pickle
import pickletools
from typing import Any

import pytest
from rpc_support import Raw, methods, served

import coro
from coro import testing
from coro.rpc import ConnectionLost, DecodeError, NoSuchMethod, RemoteError, fast_rpc
from coro.rpc._wire import frames, values
from coro.rpc.codecs import Pickle
from coro.rpc.packet_stream import PacketStream
from coro.testing import coro_test


class Executes:
    """What unpickling calls."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.what = function, args

    def __reduce__(self) -> Any:
        return self.what


class Known:
    """A class that is registered."""

    attribute = "as it was"

    def __init__(self, value: Any = None) -> None:
        self.value = value


def short(text: str) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text.encode()


def name(module: str, thing: str) -> bytes:
    return short(module) + short(thing) + b"\x93"


KNOWN = name(Known.__module__, "Known")
HOSTILE = {
    "os.system, protocol 0": pickle.dumps(Executes(os.system, "true"), 0),
    "os.system, protocol 2": pickle.dumps(Executes(os.system, "true"), 2),
    "os.system, protocol 5": pickle.dumps(Executes(os.system, "true"), 5),
    "eval": pickle.dumps(Executes(eval, "1"), 5),
    "getattr": pickle.dumps(Executes(getattr, "", "upper"), 5),
    "import by a nested name": b"\x80\x05" + name("os", "path.os.system") + short("true") + b"\x85R.",
    "GLOBAL": b"\x80\x05cos\nsystem\n(X\x04\0\0\0truetR.",
    "INST": b"\x80\x02(S'true'\nios\nsystem\n.",
    "OBJ": b"\x80\x02(cos\nsystem\nX\x04\0\0\0trueo.",
    "extension registry": b"\x80\x05\x82\x01.",
    "copyreg.__newobj__": b"\x80\x05" + name("copyreg", "__newobj__") + b")R.",
    "copyreg._reconstructor": pickle.dumps(Executes(copyreg._reconstructor, object, object, None), 5),  # type: ignore[attr-defined]
    "persistent id": b"\x80\x05K\x01Q.",
    "a name made of a number": b"\x80\x05K\x01K\x02\x93.",
    "a name from bytes": b"\x80\x05C\x02osC\x06system\x93.",
    "call of a string": b"\x80\x05" + short("x") + b")R.",
    "call of a list": b"\x80\x05])\x81.",
    "BUILD on a class": b"\x80\x05" + KNOWN + b"}" + short("attribute") + short("changed") + b"sb.",
    "BUILD on a class from the memo": b"\x80\x05" + KNOWN + b"\x940h\x00}b.",
    "BUILD on a dict": b"\x80\x05}}b.",
    "APPENDS to a class": b"\x80\x05" + KNOWN + b"(K\x01e.",
    "SETITEMS on an object": b"\x80\x05" + KNOWN + b")\x81(K\x01K\x02u.",
    "NEWOBJ_EX with a list": b"\x80\x05" + KNOWN + b")]\x92.",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_no_global_is_resolved_outside_the_allow_list(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """rpyc, CVE-2019-16328 and CVE-2024-27758: what comes decided what was called."""
    called: list[Any] = []
    monkeypatch.setattr(os, "system", called.append)
    for codec in (Pickle(), Pickle([Known])):
        with pytest.raises(DecodeError):
            codec.decode(HOSTILE[what], [])
    assert not called and Known.attribute == "as it was"


def test_every_opcode_that_finds_names_is_refused() -> None:
    """Of the opcodes that the pickle module has, those pass that write plain values or are looked up by us."""
    passes = set()
    for opcode in pickletools.opcodes:
        data = b"\x80\x05NNN" + opcode.code.encode("latin-1") + bytes(20) + b"."
        try:
            values.check(data)
            passes.add(opcode.name)
        except DecodeError as e:
            if "does not write" not in str(e):
                passes.add(opcode.name)
    finds_names = {"GLOBAL", "INST", "OBJ", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID"}
    older = {
        "PUT",
        "BINPUT",
        "LONG_BINPUT",
        "GET",
        "DUP",
        "POP",
        "POP_MARK",
        "INT",
        "LONG",
        "FLOAT",
        "STRING",
        "UNICODE",
    }
    assert not passes & (finds_names | older)


def test_damage_of_pickles_with_classes_finds_no_other_name() -> None:
    """Each byte of a pickle with a registered class, changed to each other value."""
    codec = Pickle()
    codec.register(Known, state=True)
    wire, _ = codec.encode([Known(1), "abc"])
    for at in range(len(wire)):
        for value in range(0, 256, 7):
            changed = wire[:at] + bytes([value]) + wire[at + 1 :]
            try:
                got = codec.decode(changed, [])
            except DecodeError:
                continue
            assert not callable(got)


class Role(enum.Enum):
    GUEST = "guest"
    ADMIN = "admin"


STATES = {
    "BUILD on a member": short("guest") + b"\x85R}" + short("_value_") + short("admin") + b"sb.",
    "BUILD with a slot state": short("guest") + b"\x85RN}" + short("__class__") + KNOWN + b"s\x86b.",
    "NEWOBJ of a member": short("guest") + b"\x85\x81.",
    "a class as a value": b".",
    "a class as an item": b"\x85.",
}


@pytest.mark.parametrize("what", STATES)
def test_nothing_that_was_there_before_is_changed(what: str) -> None:
    """A registered class may return what is there already, such as a member of an Enum."""
    codec = Pickle([Role, Known])
    with pytest.raises(DecodeError):
        codec.decode(b"\x80\x05" + name(Role.__module__, "Role") + STATES[what], [])
    assert Role.GUEST.value == "guest" and codec.decode(codec.encode(Role.GUEST)[0], []) is Role.GUEST


def test_bomb_of_hashes() -> None:
    """t = (t, t) fifty times is a hundred bytes; its hash takes 2**50 steps."""
    bomb = b"K\x01\x85\x94"
    for i in range(50):
        bomb += b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86\x94"
    # In a list it is harmless: each of the fifty is there once, the others refer to it.
    assert not values.check(b"\x80\x05](" + bomb + b"e.")
    last = b"](" + bomb + b"e"  # makes them known; the fiftieth is then referred to
    for start, end in ((b"}(h\x32", b"K\x01u"), (b"\x8f(h\x32", b"\x90"), (b"(h\x32", b"\x91")):
        with pytest.raises(DecodeError, match="hash"):
            values.check(b"\x80\x05" + last + start + end + b"\x86.")


def test_bomb_of_integers_with_the_same_hash() -> None:
    modulus = 2**61 - 1
    with pytest.raises(DecodeError, match="collide"):
        values.check(pickle.dumps({i * modulus * 2**10: None for i in range(1, 2000)}, 5))


def test_bomb_of_depth() -> None:
    with pytest.raises(DecodeError, match="max_depth"):
        values.check(b"\x80\x05)" + b"\x85" * 100_000 + b".")
    with pytest.raises(DecodeError, match="max_depth"):
        values.check(b"\x80\x05" + b"(" * 100_000 + b".")
    # Depth that is built up piece by piece over the memo.
    bomb = b"\x80\x05]\x94"
    for i in range(200):
        bomb += b"]\x94h" + bytes([i]) + b"a" if i < 250 else b""
    with pytest.raises(DecodeError):
        values.check(bomb + b".")


def test_bomb_of_depth_around_the_memo() -> None:
    """A reference to what stands unfinished on the stack counts with its depth at that moment, and what was referred to
    cannot be filled later."""
    deep = b"]\x94" + b"\x85" * 60
    with pytest.raises(DecodeError, match="max_depth|new list"):
        values.check(b"\x80\x05(" + deep + b"\x94" + b"h\x01" + b"\x85" * 60 + b"t.")
    with pytest.raises(DecodeError, match="new list"):
        values.check(b"\x80\x05(]\x94h\x00K\x01at.")


@pytest.mark.parametrize("opcode, size", [(b"\x96", 8), (b"\x8e", 8), (b"\x8d", 8), (b"B", 4), (b"X", 4), (b"\x8b", 4)])
def test_bomb_of_length(opcode: bytes, size: int) -> None:
    for length in (2 ** (8 * size - 1) - 1, 2 ** (8 * size) - 1, 1000):
        with pytest.raises(DecodeError):
            values.check(b"\x80\x05" + opcode + length.to_bytes(size, "little") + b"short.")


def test_bomb_of_memo() -> None:
    """LONG_BINPUT with a large number makes a memo of that size in the interpreter's unpickler."""
    with pytest.raises(DecodeError):
        values.check(b"\x80\x05Nr\xff\xff\xff\x7f.")
    with pytest.raises(DecodeError, match="has not come"):
        values.check(b"\x80\x05j\xff\xff\xff\x7f.")


def test_bomb_of_objects() -> None:
    """An empty set is one byte in a pickle and 216 in memory."""
    with pytest.raises(DecodeError, match="max_memory"):
        values.check(b"\x80\x05](" + b"\x8f" * 2_000_000 + b"e.")
    with pytest.raises(DecodeError, match="memory"):
        values.check_text(b"[" + b"[]," * 3_000_000 + b"[]]")
    with pytest.raises(DecodeError, match="memory"):
        values.check_message_pack(b"\xdd" + (5_000_000).to_bytes(4, "big") + b"\x80" * 5_000_000)


def test_billion_laughs_is_small() -> None:
    """Ten lists of ten references each are ten lists, not 10**10 values."""
    bomb: Any = "lol"
    for _ in range(10):
        bomb = [bomb] * 10
    got = Pickle().decode(Pickle().encode(bomb)[0], [])
    assert len(got) == 10 and got[0] is got[9]


@coro_test
def test_no_attribute_is_reached_by_name() -> None:
    with served() as (_, connect):
        conn = connect()
        for name_ in (
            "__class__",
            "add.__globals__",
            "add.__call__",
            "_x",
            "registry",
            "export",
            "rpc.__class__",
            "rpc.list.x",
        ):
            with pytest.raises(NoSuchMethod):
                conn.call(name_)
        assert conn.call("add", 1) == 3


@coro_test
def test_nothing_is_callable_before_the_handshake() -> None:
    registry = methods()
    ran: list[int] = []
    registry.export(lambda: ran.append(1), "run")
    call = b"\0\0\0\3" + bytes(4) + b"run" + b"\0\0" + pickle.dumps((), 5)
    for secret in (None, b"0123456789abcdef"):
        with served(registry, secret=secret) as (server, _):
            for kind in ("REQUEST", "PUSH"):
                conn = coro.connect(*server.addresses[0])
                raw = Raw(conn)
                raw.send(kind, 1, call)
                assert raw.receive()[0] == "GOODBYE"
                with pytest.raises((EOFError, OSError)):
                    raw.receive()
                conn.close()
    assert not ran


@coro_test
def test_hostile_pickles_over_the_wire_fail_one_call_each() -> None:
    """The connection is as good as before."""
    with served() as (server, connect):
        conn = connect()
        rpc = conn._connection()
        for data in HOSTILE.values():
            payload = b"\0\0\0\4" + bytes(4) + b"echo" + b"\0\0" + data
            with pytest.raises(DecodeError):
                rpc.begin(payload).wait()
        for payload in (b"", b"\0", b"\0\0\0\xff" + bytes(4), b"\x08\0\0\4" + bytes(4) + b"echo\xff\xff"):
            with pytest.raises(DecodeError):
                rpc.begin(payload).wait()
        with pytest.raises(DecodeError):
            rpc.begin(b"\0\0\0\4" + bytes(4) + b"echo" + b"\xff\xff\0\0\0\1").wait()
        assert conn.call("echo", 1) == 1


@coro_test
def test_flood_of_pings() -> None:
    """Whoever pings and does not read gets one answer, not a queue of them."""
    a, b = testing.stream_pair(1000)
    with PacketStream(a) as ours:
        raw = Raw(b)
        for i in range(3000):
            raw.send("PING", i, b"12345678")
        testing.wait_all_blocked()
        assert ours.statistics().queued_bytes < 3000
        ours.abort()


@coro_test
def test_flood_of_requests_without_reading() -> None:
    """Answers that nobody reads do not pile up: the connection is ended."""
    a, b = testing.stream_pair(1000)
    with PacketStream(a, max_queued=10_000) as ours:
        raw = Raw(b)
        with pytest.raises((OSError, EOFError)):
            for i in range(1, 100_000):
                raw.send("REQUEST", i)
                if i % 100 == 0:
                    coro.yield_slice()
        assert ours.closed
        with pytest.raises(ConnectionLost, match="without reading"):
            raise ours.error  # type: ignore[misc]


@coro_test
def test_rapid_cancelling_runs_no_more_than_allowed() -> None:
    """Requests that are cancelled at once count until they have ended (as in HTTP/2, CVE-2023-44487)."""
    running: list[int] = []
    most: list[int] = []
    gate = coro.event()

    def handler(data: bytes) -> bytes:
        running.append(1)
        most.append(len(running))
        try:
            with coro.shield(60):
                gate.wait()
        finally:
            running.pop()
        return data

    a, b = testing.stream_pair()
    with PacketStream(a, handler=handler, max_running=10) as ours:
        raw = Raw(b)
        for i in range(1, 500):
            raw.send("REQUEST", i)
            raw.send("CANCEL", i)
            if i % 5 == 0:
                coro.yield_slice()
        raw.send("PING", 1)
        while raw.receive()[0] != "PONG":
            pass
        gate.set()
        assert max(most, default=0) <= 10
        ours.abort()


@coro_test
def test_more_than_the_credit() -> None:
    gate = coro.event()
    for kind in ("PUSH", "ITEM_UP"):
        registry = fast_rpc.Registry()
        registry.export(lambda items=None: gate.wait(), "hold")
        with served(registry, window=1000, max_packet=10_000) as (server, connect):
            conn = connect(options={"max_packet": 10_000})
            rpc = conn._connection()
            if kind == "PUSH":
                rpc._grant_pushes(10**6)
                with pytest.raises(ConnectionLost):
                    for _ in range(10_000):
                        conn.cast("hold", bytes(1000))
            else:

                def endless() -> Any:
                    while True:
                        yield bytes(1000)

                call = conn.call_async("hold", endless())
                rpc._grant_upload(call, 10**6)
                with pytest.raises(ConnectionLost):
                    call.wait()


@coro_test
def test_credit_that_was_not_used_up() -> None:
    a, b = testing.stream_pair()
    with PacketStream(a) as ours:
        raw = Raw(b)
        raw.send("CREDIT_UP", 0, b"\xff\xff\xff\xff")
        assert raw.receive()[0] == "GOODBYE"
        ours.abort()


@coro_test
def test_the_same_id_twice() -> None:
    gate = coro.event()
    a, b = testing.stream_pair()
    with PacketStream(a, handler=lambda data: gate.wait() or data) as ours:
        raw = Raw(b)
        raw.send("REQUEST", 1)
        raw.send("REQUEST", 1)
        assert raw.receive()[0] == "GOODBYE"
        gate.set()
        ours.abort()


@coro_test
def test_no_traceback_and_no_path_reaches_a_stranger() -> None:
    with served() as (_, connect):
        with pytest.raises(RemoteError) as caught:
            connect().call("fail")
        text = str(caught.value) + repr(caught.value.__dict__)
        assert "/" not in text and ".py" not in text


def test_the_plain_client_finds_no_name_and_refuses_what_costs_too_much() -> None:
    from coro.rpc import plain

    bombs = {
        "a length": b"\x80\x05\x96" + (3 << 30).to_bytes(8, "little") + b"x.",
        "a hash": b"\x80\x05](K\x01\x85\x94"
        + b"".join(b"h" + bytes([i]) * 1 + b"h" + bytes([i]) + b"\x86\x94" for i in range(50))
        + b"e}(h\x32K\x01u\x86.",
        "one hash": pickle.dumps({i * (2**61 - 1) * 2**10: None for i in range(1, 4000)}, 5),
        "one hash, in a set": pickle.dumps({i * (2**61 - 1) * 2**10 for i in range(1, 4000)}, 5),
        "depth": b"\x80\x05)" + b"\x85" * 100_000 + b".",
        "marks": b"\x80\x05" + b"(" * 100_000 + b".",
        "objects": b"\x80\x05](" + b"\x8f" * 2_000_000 + b"e.",
        "a memo": b"\x80\x05Nr\xff\xff\xff\x7f.",
        "a reference": b"\x80\x05j\xff\xff\xff\x7f.",
        "filled later": b"\x80\x05(]\x94h\x00K\x01at.",
    }
    for data in (*HOSTILE.values(), *bombs.values(), b"", b"\x80", b"\x80\x05", b"\x80\x05N"):
        with pytest.raises(plain.DecodeError, match="expected"):
            plain._loads(data)


@coro_test
def test_before_the_handshake_packets_are_small() -> None:
    """8 KiB until both sides have agreed, and nothing is kept afterwards, without the cycle collector."""
    with served(secret=b"0123456789abcdef") as (server, _):
        gc.disable()
        try:
            for _i in range(3):
                conn = coro.connect(*server.addresses[0])
                raw = Raw(conn)
                try:
                    for i in range(1, 5):
                        raw.stream.send(frames.encode(2, i, bytes(20_000), chunk=4000)[:12_000])
                except OSError:
                    pass
                while server.connections:
                    coro.yield_slice()
                conn.close()
            kept = sum(len(o) for o in gc.get_objects() if type(o) is tuple and o and type(o[0]) is bytes)
            assert kept < 100_000
        finally:
            gc.enable()


@coro_test
def test_bytes_in_the_handshake_are_answered() -> None:
    """Texts that cannot be encoded, and a call right behind the hello."""
    hello = {"rpc": 1, "codecs": ["json"], "nonce": "0" * 64, "user": "\ud800", "secret": True}
    call = b"\0\0\0\4" + bytes(4) + b"echo" + b"\0\0[7]"
    with served(secret={"alice": b"0123456789abcdef"}) as (server, _):
        conn = coro.connect(*server.addresses[0])
        raw = Raw(conn)
        raw.send("REQUEST", 1, json.dumps(hello).encode())
        raw.send("REQUEST", 2, b'{"proof":"\\ud800"}')
        assert [raw.receive()[0], raw.receive()[0]] == ["REPLY", "GOODBYE"]
        conn.close()
    with served() as (server, _):
        conn = coro.connect(*server.addresses[0])
        raw = Raw(conn, greet=False)
        together = frames.preamble() + frames.encode(2, 1, json.dumps(hello).encode()) + frames.encode(2, 2, call)
        conn.send(together)
        assert raw.receive()[0] == "REPLY"
        kind, number, payload = raw.receive()
        assert (kind, number, payload) == ("REPLY", 2, b"\0\x007")
        conn.close()
