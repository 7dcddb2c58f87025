"""``coro.connect(host, port)``: one call from a name to a connected sock, whichever of its addresses works.

The addresses of both families are tried after RFC 8305 ("Happy Eyeballs Version 2"): both lookups run side by side and
IPv6 has a head start of 50 ms over IPv4 where its answer is slower (section 3); the addresses take turns by family
(section 4); every quarter of a second, or as soon as an attempt has failed, the next one begins beside those under way
(section 5); the first that stands wins and the others are closed.  A dead address thus costs a quarter of a second,
not a minute or two of TCP's patience.

Invariant: a descriptor belongs to the thread that makes it until that thread has put it into ``_Race.winner``, in the
same step in which it was connected; whoever finds that place taken closes its own.  So an interruption at whatever
moment leaves nothing behind.

Cost: for a literal address or a UNIX path nothing beyond the system calls; for a name a thread a lookup and a thread
an attempt.  Rejected: one thread that polls all attempts by hand (the errors, the timers and the clean-up would all
have to be written again), reordering by RFC 6724 here (the resolver's order within a family is kept).
"""

from __future__ import annotations

import _socket
import os
from typing import Any

from coro import oserrors
from coro._net.constants import AF
from coro._net.sock import sock
from coro._net.spelling import host_and_port, spelled
from coro._runtime import arguments, scheduler
from coro._sync.conditions import event
from coro.exceptions import ResolverNameError, TimeoutError
from coro.groups import group
from coro.resolver import addresses

__all__ = ["connect"]

#: RFC 8305 section 8: the recommended Connection Attempt Delay and its lower bound, and the Resolution Delay.
ATTEMPT_DELAY = 0.25
ATTEMPT_DELAY_LEAST = 0.01
RESOLUTION_DELAY = 0.05

_INET, _INET6, _UNIX = int(AF.INET), int(AF.INET6), int(AF.UNIX)
_NODELAY = (int(_socket.IPPROTO_TCP), int(_socket.TCP_NODELAY))

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_Failures = list[tuple[Any, OSError]]

# Errors that say something about this machine (it has no IPv6, say), not about the peer.
_LOCAL = (oserrors.ENETUNREACH, oserrors.EADDRNOTAVAIL, oserrors.EAFNOSUPPORT, oserrors.EHOSTUNREACH, oserrors.EINVAL)


def _family_of(host: str) -> int:
    """The family of a literal address, 0 for a name."""
    for family in (_INET, _INET6):
        try:
            _socket.inet_pton(family, host.partition("%")[0] if family == _INET6 else host)
        except (OSError, ValueError):
            continue
        return family
    return 0


def _attempt(family: int, address: Any, source: Any, nodelay: bool) -> sock:
    """One connection, or its error."""
    s = sock(family, _socket.SOCK_STREAM)
    try:
        if source is not None:
            s.bind(source)
        if nodelay and family != _UNIX:
            s.setsockopt(*_NODELAY, 1)
        s.connect_addr(address)
    except BaseException:
        s.close()
        raise
    return s


def _show(address: Any) -> str:
    if not isinstance(address, tuple):
        return repr(address)
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _error(target: str, failures: _Failures, cause: type[OSError] | None = None, why: str = "") -> OSError:
    """One exception for all that happened.  ``cause``: its class, by default that of the most telling failure."""
    if cause is None:
        telling = next((e for _, e in failures if not isinstance(e, _LOCAL)), failures[0][1])
        cause = type(telling)
    told = "; ".join(f"{_show(address)}: {e.strerror or e}" for address, e in failures)
    text = f"cannot connect to {target}" + (f" {why}" if why else "") + (f" ({told})" if told else "")
    exc = cause(text) if cause.__module__ == oserrors.__name__ else OSError(failures[0][1].errno, text)
    exc.attempts = failures  # type: ignore[attr-defined]
    return exc


class _Race:
    """The attempts for one name.  Runs in the thread that wants the connection; lookups and attempts are its
    children, which only note what happened and ring the bell."""

    def __init__(
        self, host: str, port: int, families: tuple[int, ...], source: Any, nodelay: bool, resolver: Any
    ) -> None:
        self.host = host
        self.resolver = resolver
        self.port = port
        self.source = source
        self.nodelay = nodelay
        self.bell = event()
        self.unanswered = set(families)
        self.lookup_errors: list[BaseException] = []
        self.found: dict[int, list[str]] = {family: [] for family in families}  # not tried yet
        self.last_family = 0
        self.tried: list[Any] = []
        self.under_way = 0
        self.failures: _Failures = []
        self.broken: BaseException | None = None  # a mistake of ours or the resolver's: not an OSError
        self.winner: sock | None = None

    # -- in the children

    def look_up(self, family: int) -> None:
        try:
            answer = addresses(self.host, family, self.resolver)
            if not all(isinstance(host, str) for host in answer):
                raise TypeError(f"the resolver should give addresses as a list of str, not {answer!r}")
            self.found[family] += answer
        except (ResolverNameError, OSError) as e:
            self.lookup_errors.append(e)
        except Exception as e:
            self.broken = e
        finally:
            self.unanswered.discard(family)
            self.bell.set()

    def try_one(self, family: int, address: Any) -> None:
        try:
            s = _attempt(family, address, self.source, self.nodelay)
            if self.winner is None:
                self.winner = s
            else:
                s.close()
        except OSError as e:
            self.failures.append((address, e))
        except Exception as e:
            self.broken = e
        finally:
            self.under_way -= 1
            self.bell.set()

    # -- in the thread that called

    def next_address(self) -> tuple[int, Any] | None:
        """The address whose turn it is; the families alternate, and IPv6 begins."""
        order = sorted(self.found, key=lambda family: (family == self.last_family, family != _INET6))
        for family in order:
            if self.found[family]:
                self.last_family = family
                return family, (self.found[family].pop(0), self.port)
        return None

    def wait(self, seconds: float | None) -> bool:
        """Until something happened; False if nothing did in time."""
        if seconds is None:
            self.bell.wait()
        else:
            with scheduler.move_on_after(seconds) as scope:
                self.bell.wait()
            if scope.expired:
                return False
        self.bell.clear()
        return True

    def wait_for_names(self) -> None:
        """RFC 8305 section 3: not before there is an address, and a moment longer for IPv6."""
        while self.unanswered and not any(self.found.values()) and self.broken is None:
            self.wait(None)
        if _INET6 in self.unanswered and self.broken is None:
            end = scheduler.timeout(RESOLUTION_DELAY)
            try:
                with end:
                    while _INET6 in self.unanswered and self.broken is None:
                        self.wait(None)
            except TimeoutError:
                if not end.expired:
                    raise

    def run(self, delay: float) -> None:
        """Until there is a winner, or nothing is left to try."""
        with group() as children:
            for family in sorted(self.unanswered, reverse=True):
                children.spawn(self.look_up, family, thread_name=f"lookup of {self.host}")
            self.wait_for_names()
            while self.winner is None and self.broken is None:
                chosen = self.next_address()
                if chosen is None:
                    if not self.under_way and not self.unanswered:
                        break
                    self.wait(None)
                    continue
                self.tried.append(chosen[1])
                self.under_way += 1
                children.spawn(self.try_one, *chosen, thread_name=f"connect to {_show(chosen[1])}")
                failed = len(self.failures)
                head_start = scheduler.timeout(delay)
                try:
                    with head_start:
                        # an answer of the resolver is no reason to hurry
                        while self.winner is None and self.broken is None and len(self.failures) == failed:
                            self.wait(None)
                except TimeoutError:
                    if not head_start.expired:
                        raise
            children.shutdown()

    def connect(self, target: str, delay: float) -> sock:
        done = False
        try:
            self.run(delay)
            if self.winner is not None:
                done = True
                return self.winner
            if self.broken is not None:
                raise self.broken
            if self.failures:
                raise _error(target, self.failures)
            raise self.lookup_errors[0]
        finally:
            if not done and self.winner is not None:
                self.winner.close()
            self.broken = None  # its traceback names this frame


def _source(given: Any) -> Any:
    if given is None:
        return None
    address = (given, 0) if isinstance(given, str) else given
    if not isinstance(address, tuple) or len(address) < 2:
        raise TypeError(f"source_address is a numeric address, or (address, port), not {given!r}")
    if not isinstance(address[0], str) or not _family_of(address[0]):
        raise ValueError(f"source_address is a numeric address of this machine, not {address[0]!r}")
    return address


def _families(family: int, source: Any) -> tuple[int, ...]:
    if not isinstance(family, int) or family not in (0, _INET, _INET6):
        raise ValueError(f"family is coro.AF.INET, coro.AF.INET6 or 0 for both, not {family!r}")
    wanted = (int(family),) if family else (_INET6, _INET)
    if source is None:
        return wanted
    mine = _family_of(source[0])
    if mine not in wanted:
        raise ValueError(f"the source address {source[0]!r} is not of the family asked for")
    return (mine,)


def _connect(
    host: Any, port: Any, family: int, source: Any, nodelay: bool, delay: float, resolver: Any, pending: list[Any]
) -> sock:
    if port is None:
        if isinstance(host, tuple):
            if len(host) < 2:
                raise TypeError(f"an address is (host, port[, flowinfo[, scope_id]]), not {host!r}")
            whole, host, port = host, host[0], host[1]
        else:
            if source is not None:
                raise ValueError("a connection to a UNIX path has no source_address")
            if not isinstance(host, (str, bytes, os.PathLike)):
                raise TypeError(
                    f"expected a host and a port, an address tuple, or the path of a UNIX socket, not {host!r}"
                    + spelled(host)
                )
            _refuse_port_in(host)
            pending.append(host)
            return _single(_UNIX, host, None, False)
    else:
        whole = (host, port)
    if not isinstance(host, str):
        raise TypeError(f"a host is a str (a name or an address), not {type(host).__name__}: {host!r}")
    if not 0 <= arguments.whole(port, "the port") <= 65535:
        raise OverflowError(f"a port is an int from 0 to 65535, not {port}")
    families = _families(family, source)
    literal = _family_of(host)
    if not literal:
        _refuse_port_in(host)
    if literal:
        if literal not in families:
            raise ValueError(f"the address {host!r} is not of the family that family or source_address ask for")
        pending.append(whole)
        return _single(literal, whole, source, nodelay)
    race = _Race(host, port, families, source, nodelay, resolver)
    pending.append(race)
    return race.connect(_show((host, port)), delay)


def _refuse_port_in(host: Any) -> None:
    """A path or a name that is a host with its port in one str, most likely."""
    meant = host_and_port(host) if isinstance(host, (str, bytes)) else None
    if meant is not None:
        raise ValueError(
            f"expected a host and a port, not {host!r}; write coro.connect({meant[0]!r}, {meant[1]}), or "
            f"{'./' + os.fsdecode(host)!r} for the path of a UNIX socket of that look"
        )


def _single(family: int, address: Any, source: Any, nodelay: bool) -> sock:
    try:
        return _attempt(family, address, source, nodelay)
    except OSError as e:
        why = ""
        if isinstance(e, oserrors.ENOENT) and os.sep not in os.fsdecode(address):
            why = "as the path of a UNIX socket, which it is without a port"
        raise _error(_show(address), [(address, e)], why=why) from e


def _too_late(target: str, seconds: float, pending: list[Any]) -> OSError:
    failures: _Failures = []
    still: list[Any] = []
    for one in pending:
        if isinstance(one, _Race):
            failures += one.failures
            failed = [address for address, _ in failures]
            still += [address for address in one.tried if address not in failed]
        else:
            still.append(one)
    tried = [*failures, *((address, oserrors.ETIMEDOUT("no answer yet")) for address in still)]
    why = f"in {seconds:g} seconds" + ("" if tried else ", not even its name could be looked up")
    return _error(target, tried, oserrors.ETIMEDOUT, why)


def connect(
    host: Any,
    port: int | None = None,
    *,
    timeout: float | None = None,
    family: int = 0,
    source_address: Any = None,
    nodelay: bool = True,
    attempt_delay: float = ATTEMPT_DELAY,
    resolver: Any = None,
) -> sock:
    """Connect a stream socket and return it.

    host: a name or a numeric address with ``port``; without ``port`` an address tuple as ``sock.connect`` takes it, or
    the path of a UNIX socket (str, bytes, path object). timeout: seconds for the whole call, lookup included; None for
    no limit. family: ``coro.AF.INET`` or ``coro.AF.INET6`` to use only that family. source_address: a numeric address
    of this machine to connect from, or ``(address, port)``; only addresses of its family are tried. nodelay: sets
    TCP_NODELAY, so that small messages leave at once. attempt_delay: seconds after which the next address of a name is
    tried while the attempt before continues. resolver: who looks up the name; None is ``coro.get_resolver()``.

    All addresses of a name are tried, IPv6 and IPv4 in turn, as RFC 8305 says. An interruption leaves nothing open.

    Raises OSError when no address works: of the class in ``coro.oserrors`` that fits the most telling failure
    (ETIMEDOUT when ``timeout`` is over), with a text that names each address and its error, and with an attribute
    ``attempts``, a list of ``(address, OSError)``. Raises coro.NameError when the name has no address; TypeError,
    ValueError and OverflowError for malformed arguments; and what every blocking call raises outside a thread.
    """
    scheduler._running_thread()  # refuse before anything is made
    source = _source(source_address)
    delay = arguments.seconds(attempt_delay, "attempt_delay", ATTEMPT_DELAY_LEAST)
    pending: list[Any] = []
    if timeout is None:
        return _connect(host, port, family, source, nodelay, delay, resolver, pending)
    seconds = arguments.number_of_seconds(timeout, "timeout")
    limit = scheduler.timeout(seconds)
    try:
        with limit:
            return _connect(host, port, family, source, nodelay, delay, resolver, pending)
    except TimeoutError:
        if not limit.expired:
            raise
        target = _show((host, port) if port is not None else host)
        raise _too_late(target, seconds, pending) from None
