"""A stream that misbehaves as told: ``faulty_stream`` around any stream, and the faults it can have.

    from coro.testing import faults

    conn = faults.faulty_stream(conn, faults.short(1), faults.cut(after=100), seed=7)

Faults are small records; the wrapper walks through its list at each call, and cuts what it passes on into parts so that
a fault strikes at exactly its byte. Chance comes from one generator per wrapper, so a seed and the same calls give the
same faults. Everything that was done is in ``log``, and what leaves a ``with`` block carries the seed and the last
entries as a note. Cost: some microseconds for each call and fault.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, NamedTuple

from coro import oserrors
from coro._net import stream as coro_stream
from coro._net.constants import MSG, SHUT, SO, SOL
from coro._runtime import scheduler
from coro._runtime.arguments import number_of_seconds
from coro._sync.locks import mutex
from coro.exceptions import ClosedError
from coro.testing._stream import Stream

__all__ = ["Action", "corrupt", "cut", "delay", "fail", "faulty_stream", "short", "stall"]

Side = Literal["recv", "send", "both"]

#: Entries of the log that describe() shows.
SHOWN = 20


class Action(NamedTuple):
    """An entry of the log: what a faulty_stream did."""

    side: str  #: "recv" or "send"
    call: int  #: of this side, the first is 1
    position: int  #: bytes that had passed this side
    what: str


def _check_side(side: str) -> None:
    if side not in ("recv", "send", "both"):
        raise ValueError(f"expected 'recv', 'send' or 'both' as the side, not {side!r}")


def _check_least(value: float, least: float, what: str) -> None:
    if not value >= least:
        raise ValueError(f"expected {what} of at least {least}, not {value!r}")


def _seconds(value: float, what: str) -> float:
    number = number_of_seconds(value, what)
    _check_least(number, 0, what)
    return number


@dataclass(frozen=True)
class delay:
    """Sleep before each call: ``seconds``, and a random time of up to ``jitter`` seconds more."""

    seconds: float
    jitter: float = 0.0
    side: Side = "both"

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", _seconds(self.seconds, "a delay"))
        object.__setattr__(self, "jitter", _seconds(self.jitter, "a jitter"))
        _check_side(self.side)


@dataclass(frozen=True)
class short:
    """Pass on at most ``most`` bytes at a time; with ``vary`` a random number from 1 to ``most``.

    Receiving calls return fewer bytes than asked for; what is sent goes out in pieces, between which others run.
    """

    most: int = 1
    vary: bool = False
    side: Side = "both"

    def __post_init__(self) -> None:
        _check_least(self.most, 1, "a number of bytes")
        _check_side(self.side)


@dataclass(frozen=True)
class cut:
    """Break the connection in both directions when ``after`` bytes have passed this side (with "both": either side).

    ``how``: with "eof", receiving returns the end of the stream, and sending raises ``oserrors.EPIPE``. With "reset",
    both raise ``oserrors.ECONNRESET``. The peer sees the end, or the reset if the wrapped stream can do it (a
    ``memory_stream``, a TCP socket).
    """

    after: int
    how: Literal["eof", "reset"] = "eof"
    side: Side = "both"

    def __post_init__(self) -> None:
        _check_least(self.after, 0, "a number of bytes")
        _check_side(self.side)
        if self.how not in ("eof", "reset"):
            raise ValueError(f"expected 'eof' or 'reset', not {self.how!r}")


@dataclass(frozen=True)
class corrupt:
    """Flip bits: those of ``mask`` in the bytes at the positions ``at`` (0 is the first byte that passes this side),
    and one random bit of each other byte with ``probability``."""

    at: tuple[int, ...] = ()
    probability: float = 0.0
    mask: int = 0xFF
    side: Side = "both"

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ValueError(f"expected a probability from 0 to 1, not {self.probability!r}")
        if not 1 <= self.mask <= 255:
            raise ValueError(f"expected a mask of bits from 1 to 255, not {self.mask!r}")
        _check_side(self.side)
        object.__setattr__(self, "at", tuple(self.at))


@dataclass(frozen=True)
class stall:
    """Stop when ``after`` bytes have passed this side: for ``seconds``, or (None) until the stream is closed or the
    caller is interrupted."""

    after: int = 0
    seconds: float | None = None
    side: Side = "both"

    def __post_init__(self) -> None:
        _check_least(self.after, 0, "a number of bytes")
        if self.seconds is not None:
            object.__setattr__(self, "seconds", _seconds(self.seconds, "a duration"))
        _check_side(self.side)


@dataclass(frozen=True)
class fail:
    """Raise ``error`` (an exception, its class, or a function that makes one) instead of doing call number ``call`` of
    this side; the first is 1. If ``every`` is given, do so at every ``every``-th call after that, too."""

    error: BaseException | type[BaseException] | Callable[[], BaseException]
    call: int = 1
    every: int | None = None
    side: Side = "both"

    def __post_init__(self) -> None:
        _check_least(self.call, 1, "the number of a call")
        _check_least(1 if self.every is None else self.every, 1, "a number of calls")
        _check_side(self.side)

    def due(self, call: int) -> bool:
        """Does it strike at this call?"""
        if self.every is None or call < self.call:
            return call == self.call
        return (call - self.call) % self.every == 0


Fault = delay | short | cut | corrupt | stall | fail


class _Side:
    """What a faulty_stream knows of one direction."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.call = 0
        self.position = 0
        self.over: set[int] = set()  # stalls that have ended, by their place in the list
        self.stalled: list[Any] = []  # threads


class faulty_stream(Stream):
    """``stream`` (a sock, a ``memory_stream``, anything with their calls) with faults between it and its user.

    ``faults``: what goes wrong, in the order in which it is applied; the list ``faults`` may be changed at any time.
    ``seed`` (int) drives what is left to chance; None takes a new one, see ``seed``. It has the calls of a
    ``memory_stream``; other attributes are those of the wrapped stream. ``recv_exact``, ``readv`` and ``writev`` are
    made of the simple calls, each of which counts. TypeError for something that is no fault.
    """

    def __init__(self, stream: coro_stream.Stream, *faults: Fault, seed: int | None = None) -> None:
        super().__init__()
        for fault in faults:
            if not isinstance(fault, Fault):
                raise TypeError(f"expected faults such as short(1) or cut(after=100), not {fault!r}")
        self.stream: Any = stream  # what else it has is passed on, too
        self.faults: list[Fault] = list(faults)
        #: What chance was started with.
        self.seed = random.SystemRandom().getrandbits(32) if seed is None else seed
        #: What was done, in order: a list of Action.
        self.log: list[Action] = []
        self._rng = random.Random(self.seed)
        self._sides = {"recv": _Side("recv"), "send": _Side("send")}
        self._broken: str | None = None
        self._closed = False
        self._senders = mutex()  # keeps what one call sends together

    def __getattr__(self, name: str) -> Any:
        if name == "stream" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.stream, name)

    def __repr__(self) -> str:
        return f"<faulty_stream around {self.stream!r}, seed {self.seed}, {len(self.log)} actions>"

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc is not None:
            exc.add_note(self.describe())
        self.close()

    @property
    def closed(self) -> bool:
        """True once this side is closed."""
        return self._closed or bool(self.stream.closed)

    def describe(self) -> str:
        """The seed, the faults and the last actions, as text for a report."""
        lines = [f"faulty_stream with seed {self.seed} and {', '.join(map(str, self.faults)) or 'no faults'} did:"]
        if len(self.log) > SHOWN:
            lines.append(f"  ({len(self.log) - SHOWN} earlier actions)")
        lines += [f"  {a.side} call {a.call}, byte {a.position}: {a.what}" for a in self.log[-SHOWN:]]
        return "\n".join(lines)

    # -- applying faults

    def _faults_of(self, side: _Side, kind: type[Any]) -> list[tuple[int, Any]]:
        return [(i, f) for i, f in enumerate(self.faults) if isinstance(f, kind) and f.side in (side.name, "both")]

    def _note(self, side: _Side, what: str) -> None:
        self.log.append(Action(side.name, side.call, side.position, what))

    def _begin(self, side: _Side) -> None:
        """The faults of a call as such."""
        side.call += 1
        for _, fault in self._faults_of(side, delay):
            seconds = fault.seconds + (self._rng.uniform(0, fault.jitter) if fault.jitter else 0)
            self._note(side, f"delayed by {seconds:.6g} s")
            scheduler.sleep_relative(seconds)
            self._check()
        for _, fault in self._faults_of(side, fail):
            if fault.due(side.call):
                error = fault.error if isinstance(fault.error, BaseException) else fault.error()
                self._note(side, f"failed with {error!r}")
                raise error

    def _allowed(self, side: _Side, size: int) -> int:
        """How many bytes may pass now, at least 1; 0 when the connection is broken."""
        for i, fault in self._faults_of(side, stall):
            if i not in side.over:
                if side.position >= fault.after:
                    self._stall(side, fault)
                    side.over.add(i)
                else:
                    size = min(size, fault.after - side.position)
        for _, fault in self._faults_of(side, cut):
            if side.position >= fault.after:
                self._break(side, fault.how)
            else:
                size = min(size, fault.after - side.position)
        if self._broken is not None:
            return 0
        for _, fault in self._faults_of(side, short):
            most = self._rng.randint(1, fault.most) if fault.vary else fault.most
            if size > most:
                self._note(side, f"{most} of {size} bytes")
                size = most
        return size

    def _stall(self, side: _Side, fault: stall) -> None:
        self._note(side, "stalled" + ("" if fault.seconds is None else f" for {fault.seconds:.6g} s"))
        if fault.seconds is not None:
            scheduler.sleep_relative(fault.seconds)
        else:
            me = scheduler._running_thread()
            side.stalled.append(me)
            try:
                while not self.closed:
                    scheduler._suspend(self)
            finally:
                side.stalled.remove(me)
        self._check()

    def _break(self, side: _Side, how: str) -> None:
        if self._broken is not None:
            return
        self._broken = how
        self._note(side, f"cut ({how})")
        if how == "reset" and hasattr(self.stream, "reset"):
            self.stream.reset()
        elif how == "reset":
            # l_onoff and l_linger of struct linger, see socket(7): close(2) then sends a reset on TCP
            self.stream.setsockopt(SOL.SOCKET, SO.LINGER, b"\1\0\0\0\0\0\0\0")
            self.stream.close()
        else:
            self.stream.shutdown(SHUT.RDWR)

    def _corrupted(self, side: _Side, data: bytes | memoryview) -> bytes | memoryview:
        faults = self._faults_of(side, corrupt)
        if not faults:
            return data
        changed = bytearray(data)
        for _, fault in faults:
            for i in range(len(changed)):
                if side.position + i in fault.at:
                    flipped = fault.mask
                elif fault.probability and self._rng.random() < fault.probability:
                    flipped = 1 << self._rng.randrange(8)
                else:
                    continue
                changed[i] ^= flipped
                self.log.append(Action(side.name, side.call, side.position + i, f"flipped bits {flipped:#04x}"))
        return bytes(changed)

    # -- what Stream needs

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(what=f"this {type(self).__name__}")

    def _is_broken(self) -> bool:
        return self._broken is not None

    def _receive(self, size: int, block: bool) -> bytes:
        side = self._sides["recv"]
        self._begin(side)
        size = self._allowed(side, size)
        if self._is_broken():
            return self._after_cut()
        try:
            data = bytes(self.stream.recv(size) if block else self.stream.recv(size, MSG.DONTWAIT))
        except ClosedError:
            if self._closed or not self._is_broken():
                raise
        if self._is_broken():  # by a sender, meanwhile
            return self._after_cut()
        data = bytes(self._corrupted(side, data))
        side.position += len(data)
        return data

    def _after_cut(self) -> bytes:
        if self._broken == "reset":
            raise oserrors.ECONNRESET
        return b""

    def _wait_readable(self) -> int:
        self._allowed(self._sides["recv"], 1)
        return 0 if self._broken is not None else int(self.stream.wait_for_read())

    def _transmit(self, pieces: list[memoryview], block: bool) -> int:
        side = self._sides["send"]
        sent = 0
        try:
            with self._senders:
                self._check()
                self._begin(side)
                for piece in pieces:
                    while len(piece):
                        size = self._allowed(side, len(piece))
                        if self._broken is not None:
                            raise oserrors.ECONNRESET if self._broken == "reset" else oserrors.EPIPE
                        part = self._corrupted(side, piece[:size])
                        self.stream.send(part, 0 if block else MSG.DONTWAIT)
                        sent += size
                        side.position += size
                        piece = piece[size:]
                        if len(piece):
                            scheduler.yield_slice()
                            self._check()
        except BaseException as e:
            e.bytes_sent = sent + getattr(e, "bytes_sent", 0)  # type: ignore[attr-defined]
            raise
        return sent

    def wait_for_write(self) -> int:
        """Wait until a byte could be sent, or sending would fail. Returns 0."""
        self._check()
        self._allowed(self._sides["send"], 1)
        if self._broken is None:
            self.stream.wait_for_write()
        return 0

    def shutdown(self, how: int) -> None:
        """shutdown(``how``) of the wrapped stream. Nothing happens after a cut."""
        self._check()
        if self._broken is None:
            self.stream.shutdown(how)

    def getpeername(self) -> Any:
        """getpeername() of the wrapped stream."""
        return self.stream.getpeername()

    def getsockname(self) -> Any:
        """getsockname() of the wrapped stream."""
        return self.stream.getsockname()

    def close(self) -> None:
        """Close the wrapped stream; stalled threads get ClosedError."""
        self._closed = True
        self._back = b""
        for side in self._sides.values():
            for thread in side.stalled:
                scheduler._wake(thread)
        self.stream.close()
