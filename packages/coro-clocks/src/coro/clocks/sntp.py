"""SNTP (RFC 4330, RFC 5905): asks time servers and corrects the time of day of this process.

    from coro.clocks import sntp

    client = sntp.Client(["ntp1.example.org", "ntp2.example.org", "ntp3.example.org"])
    client.start()                          # a daemon thread that asks now and then

The system's clock is never set, so this needs no privilege. It changes the relation of ticks to the time of day in this
process: `coro.get_usec()`, `coro.now_usec`, all scales of `coro.clocks` and `sleep_until` show the servers' time.
`time.time()` does not.

Which answers are believed: a question carries 64 random bits, and an answer counts only if it returns them. Other
packets are ignored. The server has to say that it is synchronised, and its times have to be plausible. Each answer
allows a range of offsets. If the ranges of more than half of the servers share a point, the answer with the narrowest
of these ranges is used. A correction beyond `limit` is refused.

When the servers are asked: first after a random part of `poll` seconds, then every `poll` seconds, and at once after
the system's clock was set. A failed round doubles the pause, up to `MOST_POLL`; a good one resets it. After a kiss of
death with DENY or RSTR a server is not asked any more; RATE doubles the pause for that server.

Not supported: broadcasts, symmetric modes, authentication, slewing. A correction is a step; durations are measured in
ticks, which it does not change.
"""

# What is believed.  The question's random bits are its transmit timestamp, so nobody off the path can forge an answer,
# and the local time of sending never leaves the process; the socket is connected, so the kernel drops what comes from
# another address or port.  A packet that fails is ignored, not taken for a failure: a forger must not be able to hide
# the real answer behind it.  The range of an answer is half the round trip plus the root distance to each side.
# `limit` is RFC 5905's panic threshold; for kisses of death see its section 7.4.
#
# Cost: one datagram each way, a socket and a thread for each server while a round goes on.

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import coro
from coro._clock import ticks
from coro._runtime import scheduler
from coro.clocks import _wall, sleeping
from coro.clocks.sntp_packet import MOST_BYTES, SERVER, Packet, PeerError, decode, encode, to_posix_ns
from coro.exceptions import ResolverNameError
from coro.resolver import addresses

__all__ = ["MOST_POLL", "PORT", "Client", "NoAgreement", "PeerError", "Sample", "Status", "agree", "query"]

PORT = 123
#: Seconds between two questions to one server: RFC 4330 section 10 asks for 15 at least.
LEAST_POLL = 15.0
#: The longest pause between two rounds, however many have failed.
MOST_POLL = 36 * 3600.0
#: RFC 5905 section 7.2, MAXDIST and MAXSTRAT: a server this far from the truth, or more, is of no use.
MOST_DISTANCE = 1.5
MOST_STRATUM = 15
#: Packets that are no answer are ignored; after so many the question counts as failed.
MOST_WRONG = 100

#: Nanoseconds by which the system's time of day has to move at once to count as having been set.
_SET = 50_000_000

Address = str | tuple[str, int]


class NoAgreement(PeerError):
    """The servers that answered do not agree on the time, or what they agree on is too far away."""


class Sample(NamedTuple):
    """One server's answer."""

    #: Who was asked: host and port.
    server: tuple[str, int]
    #: Nanoseconds to add to this process's time of day to have the server's.
    offset_ns: int
    #: Nanoseconds that the question and the answer were on their way together.
    delay_ns: int
    #: Nanoseconds by which the offset may be wrong: half the delay, and what the server says of its own time.
    error_ns: int
    stratum: int
    #: 1 or 2: a leap second is added or removed at the end of the day; else 0.
    leap: int


class Status(NamedTuple):
    """State of a client: `Client.status()`."""

    #: Rounds so far, and how many of them gave no result.
    rounds: int
    failures: int
    #: The latest sample that was used, None before.
    sample: Sample | None
    #: What the latest failure was, None after a good round.
    problem: str | None
    #: Servers that sent DENY or RSTR and are asked no more.
    dropped: tuple[tuple[str, int], ...]
    #: Seconds until the next round begins, counted from the end of the latest.
    pause: float


def _address(server: Address) -> tuple[str, int]:
    pair = (server, PORT) if isinstance(server, str) else server
    host, port = pair if isinstance(pair, (tuple, list)) and len(pair) == 2 else (None, None)
    if not isinstance(host, str) or not isinstance(port, int):
        raise TypeError(f"expected a server as a host name or a pair (host, port), got {server!r}")
    if not host or not 0 < port < 65536:
        raise ValueError(f"expected a host name and a port from 1 to 65535, got {server!r}")
    return host, port


def _system_ahead() -> int:
    """Nanoseconds by which the system's time of day is ahead of CLOCK_MONOTONIC: changes when somebody sets it."""
    return time.time_ns() - time.monotonic_ns()


def _local_ns(tick: int) -> int:
    """A tick as POSIX nanoseconds of this process, without what a simulation adds."""
    usec = ticks.relative_usec_time - _wall.simulated_usec()
    return usec * 1000 + (tick - ticks.relative_tsc_time) * 10**9 // ticks.ticks_per_sec


def check(packet: Packet, cookie: int) -> bool:
    """Is this the answer to the question with that cookie?

    False for a packet that is to be ignored because anybody may have sent it.  Raises PeerError for an answer that
    cannot be used.
    """
    if packet.mode != SERVER or packet.originate != cookie:
        return False
    if packet.kiss is not None:
        raise PeerError(f"the server refused to answer: {packet.kiss!r}", packet.kiss)
    if packet.leap == 3:
        raise PeerError("the server's clock is not synchronised")
    if packet.stratum > MOST_STRATUM:
        raise PeerError(f"expected a stratum from 1 to {MOST_STRATUM}, got {packet.stratum}")
    if packet.root_distance >= MOST_DISTANCE:
        raise PeerError(f"the server's time may be wrong by {packet.root_distance:.3f} s, {MOST_DISTANCE} is allowed")
    if packet.transmit == 0 or packet.receive == 0:
        raise PeerError("the answer has no time in it")
    return True


def _sample(server: tuple[str, int], packet: Packet, sent_ns: int, back_ns: int) -> Sample:
    received = to_posix_ns(packet.receive, sent_ns)
    answered = to_posix_ns(packet.transmit, received)
    if answered < received:
        raise PeerError(f"the server says that it answered {received - answered} ns before it was asked")
    delay = (back_ns - sent_ns) - (answered - received)
    # The clocks have a resolution; beyond that, time spent in the server is more than there was.
    if delay < -(2_000 + (10**9 >> -min(packet.precision, -1))):
        raise PeerError(f"the server says it took {answered - received} ns to answer, all took {back_ns - sent_ns} ns")
    offset = (received - sent_ns + answered - back_ns) // 2
    error = max(delay, 0) // 2 + round(packet.root_distance * 1e9) + 1000
    return Sample(server, offset, max(delay, 0), error, packet.stratum, packet.leap)


def _ask(server: tuple[str, int], family: int, address: str) -> Sample:
    make = coro.udp6_sock if family == coro.AF.INET6 else coro.udp_sock
    with make() as s:
        s.connect((address, server[1]))
        cookie = secrets.randbits(64) or 1
        question = encode(Packet(transmit=cookie))
        relation = ticks.relative_tsc_time, ticks.relative_usec_time
        sent = ticks.rdtsc()
        s.send(question)
        problem = "nothing came"
        for _ in range(MOST_WRONG):
            data = s.recv(MOST_BYTES + 1)
            back = ticks.rdtsc()
            try:
                packet = decode(data)
            except PeerError as e:
                problem = str(e)
                continue
            if not check(packet, cookie):
                problem = "a packet came that is no answer to this question"
                continue
            if relation != (ticks.relative_tsc_time, ticks.relative_usec_time):
                raise PeerError("the time of day was changed while the question was on its way")
            return _sample(server, packet, _local_ns(sent), _local_ns(back))
        raise PeerError(f"{MOST_WRONG} packets came and none was an answer; the last: {problem}")


def query(server: Address, *, timeout: float = 5.0) -> Sample:
    """Ask one server for the time; changes nothing.

    server: a host name or address, or a pair of it and a port other than 123.
    timeout: seconds for everything, the lookup of the name included.

    Raises PeerError when no usable answer comes in time, coro.NameError for an unknown name, OSError from the network
    (ECONNREFUSED: nobody listens there), TypeError and ValueError for arguments, YieldFromMain outside a thread, and
    what interrupts the thread.
    """
    host, port = _address(server)
    limit = scheduler.timeout(timeout)
    try:
        with limit:
            return _ask((host, port), *_resolve(host))
    except coro.TimeoutError:
        if not limit.expired:
            raise
    raise PeerError(f"no usable answer from {host} within {timeout} s")


def _resolve(host: str) -> tuple[int, str]:
    families = (coro.AF.INET6, coro.AF.INET) if ":" in host else (coro.AF.INET, coro.AF.INET6)
    try:
        return families[0], addresses(host, families[0])[0]
    except ResolverNameError:
        return families[1], addresses(host, families[1])[0]


def agree(samples: Iterable[Sample], asked: int = 0) -> Sample:
    """The best of those samples whose intervals share a point, if they are the majority.

    samples: at most one of each server.
    asked: a number of servers of which more than half must agree; 0 for the number of samples.

    Raises NoAgreement when there is no such majority, or no sample.
    """
    known = list(samples)
    edges = sorted(edge for s in known for edge in ((s.offset_ns - s.error_ns, 0), (s.offset_ns + s.error_ns, 1)))
    depth = deepest = 0
    point = 0
    for where, ends in edges:
        depth += -1 if ends else 1
        if depth > deepest:
            deepest, point = depth, where
    if deepest * 2 <= max(len(known), asked):
        raise NoAgreement(f"{deepest} of {max(len(known), asked)} servers agree on a time; more than half have to")
    return min((s for s in known if abs(s.offset_ns - point) <= s.error_ns), key=lambda s: s.error_ns)


class Client:
    """Asks several servers regularly, and corrects the time of day of this process.

    servers: host names, addresses or pairs with a port; three or more, so that a wrong one is outvoted.
    poll: seconds between two rounds, at least 15; use 64 or more with servers that are not yours.
    timeout: seconds that a server has for its answer.
    limit: seconds; a larger correction is refused and reported.  None: no limit.
    on_round: called after each round with the `Status`; an exception in it goes to the exception notifier.

    Raises TypeError and ValueError for arguments.
    """

    def __init__(
        self,
        servers: Iterable[Address],
        *,
        poll: float = 1024.0,
        timeout: float = 5.0,
        limit: float | None = 1000.0,
        on_round: Callable[[Status], object] | None = None,
    ) -> None:
        if isinstance(servers, str):
            raise TypeError(f"expected a list of servers, got a str; write [{servers!r}]")
        if not isinstance(servers, Iterable):
            raise TypeError(f"expected a list of servers, got {type(servers).__name__}")
        self._servers = list(dict.fromkeys(_address(s) for s in servers))
        if not self._servers:
            raise ValueError("expected at least one server, got none")
        if not LEAST_POLL <= poll <= MOST_POLL:
            raise ValueError(f"expected a poll interval from {LEAST_POLL:.0f} to {MOST_POLL:.0f} s, got {poll!r}")
        if not 0 < timeout < poll:
            raise ValueError(f"expected a timeout above 0 and below the poll interval, got {timeout!r}")
        if limit is not None and not limit > 0:
            raise ValueError(f"expected a limit above 0 s, got {limit!r}; None stands for no limit")
        self._poll = float(poll)
        self._timeout = float(timeout)
        self._limit = limit
        self._on_round = on_round
        self._thread: Any = None
        self._rounds = self._failures = 0
        self._sample: Sample | None = None
        self._problem: str | None = None
        self._dropped: list[tuple[str, int]] = []
        self._pause = self._poll
        #: For servers that sent RATE: rounds between two questions, and rounds still to wait.
        self._spacing: dict[tuple[str, int], int] = {}
        self._skip: dict[tuple[str, int], int] = {}

    def __repr__(self) -> str:
        state = "stopped" if self._thread is None or self._thread.dead else "running"
        return f"<sntp.Client of {len(self._servers)} servers: {state}, {self._rounds} rounds>"

    def status(self) -> Status:
        """The state of the client."""
        dropped = tuple(self._dropped)
        return Status(self._rounds, self._failures, self._sample, self._problem, dropped, self._pause)

    def start(self) -> None:
        """Start the daemon thread that asks, unless it runs already.  RuntimeError when no server is left."""
        if self._thread is not None and not self._thread.dead:
            return
        if not self._servers:
            raise RuntimeError("every server has refused to be asked; make a client with others")
        self._thread = coro.spawn(self._run, daemon=True, thread_name="sntp client")

    def stop(self) -> None:
        """End the thread.  The correction stays; `forget()` takes it back."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def forget(self) -> None:
        """Go back to the system's time of day."""
        _wall.correct(0)

    def _run(self) -> None:
        # RFC 4330 section 10: not all clients of a building at the same moment after a power failure.
        self._wait(min(self._poll, 64.0) * random.random() / 4)
        while self._servers:
            try:
                self.round()
            except PeerError:
                pass  # told by status()
            if self._on_round is not None:
                try:
                    self._on_round(self.status())
                except Exception:
                    coro.default_exception_notifier()
            self._wait(self._pause)

    def _wait(self, seconds: float) -> None:
        """Wait so long, or until the system's clock is set."""
        until = coro.get_now() + ticks.from_duration(seconds)
        before = _system_ahead()
        sleeping._watch.enter()
        try:
            while (left := ticks.to_duration(until - coro.get_now())) > 0:
                sleeping._wait(min(left, sleeping.LONGEST))
                sleeping._agree()
                if abs(_system_ahead() - before) > _SET:
                    return
        finally:
            sleeping._watch.leave()

    def round(self) -> Sample:
        """Ask all servers once, side by side, and correct the time of day by what they say.

        Returns the sample that was used.  Raises PeerError (NoAgreement) when there is none; `status()` then says why.
        """
        self._rounds += 1
        try:
            sample = self._ask_all()
        except PeerError as e:
            self._failures += 1
            self._problem = str(e)
            self._pause = min(max(self._pause, self._poll) * 2, MOST_POLL)
            raise
        self._sample, self._problem, self._pause = sample, None, self._poll
        return sample

    def _ask_all(self) -> Sample:
        due = []
        for server in self._servers:
            wait = self._skip.get(server, 0)
            if wait:
                self._skip[server] = wait - 1
            else:
                due.append(server)
        correction = ticks.correction
        samples: list[Sample] = []
        problems: list[str] = []
        with coro.group() as g:
            for server in due:
                g.spawn(self._ask_one, server, samples, problems)
        if not samples:
            raise PeerError("; ".join(problems) or "every server wants to be asked less often")
        best = agree(samples)
        if self._limit is not None and abs(best.offset_ns) > self._limit * 1e9:
            raise NoAgreement(
                f"the servers are {best.offset_ns / 1e9:+.3f} s away, more than the limit of {self._limit} s; set the "
                "system's clock, or raise the limit"
            )
        if correction != ticks.correction:
            raise PeerError("the time of day was changed while the servers were asked")
        _wall.correct(_wall.measured_usec() + round(best.offset_ns / 1000))
        return best

    def _ask_one(self, server: tuple[str, int], samples: list[Sample], problems: list[str]) -> None:
        try:
            samples.append(query(server, timeout=self._timeout))
            self._spacing.pop(server, None)
        except PeerError as e:
            problems.append(f"{server[0]}: {e}")
            if e.kiss in ("DENY", "RSTR"):
                self._servers.remove(server)
                self._dropped.append(server)
            elif e.kiss == "RATE":
                self._spacing[server] = min(self._spacing.get(server, 1) * 2, 64)
                self._skip[server] = self._spacing[server] - 1
        except (ResolverNameError, OSError) as e:
            problems.append(f"{server[0]}: {e}")
