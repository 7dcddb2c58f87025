"""Several connections to one or more LDAP servers with the same entries: fail-over, load balancing, shared searches.

    with Pool(["ldaps://one.example.org", "ldaps://two.example.org"], bind=login, size=4) as pool:
        with pool.connection() as directory:        # a `coro.ldap.Client`, for this thread alone
            directory.modify(...)
        entries = pool.search("dc=example,dc=org", filter=Equal("uid", name))

A connection is lent to one thread at a time, so a login or a slow search of one does not hold up the others.  There are
as many as are in use at the same time, up to `size`; the rest of the threads wait in line.

A server that cannot be reached is left alone for `retry` seconds.  `search` asks again, elsewhere if that is possible,
if the connection was lost: reading twice does no harm.  What changes entries is never repeated.

Equal searches that threads make at the same time go to the server once, and with `ttl` their results are kept.

A program that knows its directories by name keeps a pool for each in the registry: `create_server_group`,
`get_server_group`, `remove_server_group`.

Cost: for each loan a few operations on a list; memory for `size` connections and `cache_size` results.
"""

from __future__ import annotations

import copy
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import coro
from coro.ldap._wire import Entry
from coro.ldap.client import SCOPE, client
from coro.ldap.exceptions import (
    Busy,
    ConnectionLost,
    InvalidCredentials,
    LDAPError,
    LDAPTimeout,
    LocalError,
    NoSuchObject,
    StateError,
    Unavailable,
    URLError,
)
from coro.ldap.filters import Filter
from coro.ldap.url import LDAPUrl
from coro.log import Facility

__all__ = [
    "Pool",
    "PoolStatistics",
    "clear_all_caches",
    "create_server_group",
    "get_server_group",
    "remove_all_server_groups",
    "remove_server_group",
    "server_groups",
]

LOG = Facility("ldap.pool")
#: Seconds after which an unused connection is tried before it is lent.
CHECK = 30.0
#: What means that another server may do better.
_ELSEWHERE = (OSError, coro.NameError, LDAPTimeout, ConnectionLost, Unavailable, Busy, StateError, coro.ClosedError)


class PoolStatistics(NamedTuple):
    """Numbers about a pool."""

    #: Connections that are lent, and those that are not.
    lent: int
    idle: int
    #: Connections made since the beginning, and attempts that failed.
    connected: int
    failed: int
    #: Searches that were asked of a server, and those that took the result of another one.
    searches: int
    shared: int
    #: Servers that are left alone for now: scheme and address of their URLs.
    down: tuple[str, ...]


def _shown(url: str) -> str:
    """A URL for logs and errors: nothing but the server, for the rest may hold a password (X-BINDPW)."""
    try:
        parsed = LDAPUrl(url)
    except URLError:
        return "the server"
    return f"{parsed.urlscheme}://{parsed.hostport}"


class _Server:
    def __init__(self, url: str) -> None:
        self.url = url
        self.shown = _shown(url)
        self.down_until = 0.0
        self.lent = 0


class _Loan:
    """A connection, where it leads, and since when it is there and unused."""

    __slots__ = ("born", "directory", "server", "used")

    def __init__(self, server: _Server, directory: client) -> None:
        self.server = server
        self.directory = directory
        self.born = self.used = time.monotonic()


def _copy(error: Exception) -> Exception:
    try:
        made = copy.copy(error)
    except Exception:
        return error
    made.__cause__ = error
    return made


class _Flight:
    """A search that is being made, for everybody who wants the same."""

    def __init__(self) -> None:
        self.event = coro.event()
        self.found: tuple[Entry, ...] | None = None
        self.error: Exception | None = None


class Pool:
    """Pool(urls, *, bind=None, balance=False, size=8, wait=30.0, retry=30.0, max_age=21600.0, ...)

    Connections to servers that have the same entries.  None is made before it is needed.

    urls: of the servers.  bind: called with each new `Client` to log in.  balance: False to use the first server
    whenever it is up, True to use all by turns.  size: connections at most.  wait: seconds to wait for a free one.
    retry: seconds for which a server is left alone that could not be reached.  max_age: seconds after which a
    connection is not lent again.  ttl: seconds for which results of `search` are kept, 0 for not at all; cache_size:
    how many of them.  Further arguments are those of `Client`.

    Raises LocalError for no URL or a size below 1.
    """

    def __init__(
        self,
        urls: Iterable[str],
        *,
        bind: Callable[[client], object] | None = None,
        balance: bool = False,
        size: int = 8,
        wait: float | None = 30.0,
        retry: float = 30.0,
        max_age: float = 21600.0,
        ttl: float = 0.0,
        cache_size: int = 10_000,
        **options: Any,
    ) -> None:
        self._servers = [_Server(url) for url in ([urls] if isinstance(urls, str) else urls)]
        if not self._servers or size < 1:
            raise LocalError("expected at least one URL and a size of at least one connection")
        self._bind = bind
        self._balance = balance
        self._wait = wait
        self._retry = retry
        self._max_age = max_age
        self._ttl = ttl
        self._cache_size = cache_size
        self._options = options
        self._size = size
        self._free = coro.semaphore(size)
        self._idle: list[_Loan] = []
        self._out: set[_Loan] = set()
        self._closed = False
        self._next = 0
        self._connected = self._failed = self._searches = self._shared = 0
        self._flights: dict[Any, _Flight] = {}
        self._cache: OrderedDict[Any, tuple[float, tuple[Entry, ...]]] = OrderedDict()
        self._era = 0  # how often the cache was cleared

    def __repr__(self) -> str:
        return f"<Pool of {len(self._servers)} LDAP servers, {len(self._out)} of {self._size} connections in use>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def statistics(self) -> PoolStatistics:
        """Numbers about it."""
        now = time.monotonic()
        down = tuple(one.shown for one in self._servers if one.down_until > now)
        return PoolStatistics(
            len(self._out), len(self._idle), self._connected, self._failed, self._searches, self._shared, down
        )

    def close(self) -> None:
        """Close all connections, also those that are lent.  Does nothing the second time."""
        self._closed = True
        idle, self._idle = self._idle, []
        for loan in [*idle, *self._out]:
            loan.directory.close()
        self._cache.clear()

    # ---- lending

    @contextmanager
    def connection(self) -> Iterator[client]:
        """A connection for the thread that runs the block, logged in as `bind` does it.

        A login of another user belongs on a connection of its own, see `check_password`; if there was one, of
        whatever kind, or an attempt at one, the connection is closed behind the block.  So it is if there are
        operations that the block has begun and not ended.  Raises LDAPTimeout if none was free in time; if no server
        can be reached, the error of the only one, or a ConnectionLost that names each; what `bind` raises; StateError
        if the pool is closed.
        """
        loan = self._borrow()
        link = loan.directory.link
        logins = link.logins
        try:
            yield loan.directory
        finally:
            # Not who was logged in last as far as this side knows: a login may have been interrupted past its success.
            self._give_back(loan, link.logins == logins and not link.statistics().pending)

    def _borrow(self) -> _Loan:
        try:
            self._free.acquire(timeout=self._wait)
        except coro.TimeoutError as exc:
            raise LDAPTimeout(
                f"expected one of {self._size} connections to become free within {self._wait:g} s, none has; a larger "
                "`size` allows more"
            ) from exc
        try:
            loan = self._find()
            if self._closed:
                loan.directory.close()
                raise StateError("expected an open pool, it has been closed")
        except BaseException:
            self._free.release()
            raise
        return loan

    def _give_back(self, loan: _Loan, as_it_was: bool) -> None:
        self._out.discard(loan)
        loan.server.lent -= 1
        loan.used = time.monotonic()
        young = loan.used - loan.born < self._max_age
        try:
            if loan.directory.alive and as_it_was and young and not self._closed:
                self._idle.append(loan)
            else:
                loan.directory.close()
        finally:
            self._free.release()

    def _order(self) -> list[_Server]:
        """The servers in the order in which they are tried: those that are up first."""
        servers = self._servers
        if self._balance:
            first = self._next % len(servers)
            self._next += 1
            servers = sorted(servers[first:] + servers[:first], key=lambda one: one.lent)
        now = time.monotonic()
        return sorted(servers, key=lambda one: one.down_until if one.down_until > now else 0.0)

    def _find(self) -> _Loan:
        """A connection to the best server that can be had: an unused one, or a new one."""
        failures: list[tuple[_Server, Exception]] = []
        for server in self._order():
            if self._closed:
                break
            while (loan := self._unused(server)) is not None:
                self._lend(loan)
                if self._works(loan):
                    return loan
                self._out.discard(loan)
                server.lent -= 1
            try:
                return self._connect(server)
            except _ELSEWHERE as exc:
                self._failed += 1
                server.down_until = time.monotonic() + self._retry
                failures.append((server, exc))
                LOG("cannot use server", server.shown, repr(exc))
        if self._closed:
            raise StateError("expected an open pool, it has been closed")
        if len(failures) == 1:
            raise failures[0][1]
        text = "; ".join(f"{server.shown}: {exc}" for server, exc in failures)
        raise ConnectionLost(f"expected one of {len(failures)} servers to be there, none is: {text}") from failures[0][
            1
        ]

    def _unused(self, server: _Server) -> _Loan | None:
        for place in range(len(self._idle) - 1, -1, -1):
            if self._idle[place].server is server:
                return self._idle.pop(place)
        return None

    def _lend(self, loan: _Loan) -> None:
        self._out.add(loan)
        loan.server.lent += 1

    def _works(self, loan: _Loan) -> bool:
        directory = loan.directory
        now = time.monotonic()
        if directory.alive and now - loan.born < self._max_age:
            if now - loan.used < CHECK:
                return True
            try:
                # The root DSE, which everybody may read, without its attributes.
                for _ in directory.search_iter("", SCOPE.BASE, attributes=[], page_size=0):
                    pass
                return True
            except LDAPError as exc:
                LOG("connection no longer works", loan.server.shown, repr(exc))
            except BaseException:
                self._out.discard(loan)
                loan.server.lent -= 1
                directory.close()
                raise
        directory.close()
        return False

    def _connect(self, server: _Server) -> _Loan:
        # Unused connections to other servers count, too: the pool never has more than `size`.
        if len(self._idle) + len(self._out) >= self._size and self._idle:
            self._idle.pop(0).directory.close()
        directory = client(server.url, **self._options)
        loan = _Loan(server, directory)
        self._lend(loan)
        done = False
        try:
            if self._bind is not None:
                self._bind(directory)
            done = True
        finally:
            if not done:
                self._out.discard(loan)
                server.lent -= 1
                directory.close()
        self._connected += 1
        server.down_until = 0.0
        return loan

    # ---- what needs no loan of one's own

    def search(
        self,
        base: str = "",
        scope: int = SCOPE.SUBTREE,
        filter: Filter | str | bytes = "(objectClass=*)",
        attributes: Iterable[str] | None = None,
        *,
        refresh: bool = False,
    ) -> list[Entry]:
        """The entries of a search.  Who searches the same at the same time gets the same `Entry` objects.

        base, scope, filter, attributes: as `Client.search_iter` has them.  refresh: do not take a result that was
        kept.  An entry that does not exist counts as one without results.  If the connection is lost, the search is
        repeated, once for each server and once more.  Raises what `connection` and `Client.search_iter` raise.
        """
        names = None if attributes is None else tuple(attributes)
        key = (base, scope, str(filter) if isinstance(filter, Filter) else filter, names)
        while not self._closed:
            kept = self._kept(key, refresh)
            if kept is not None:
                return list(kept)
            flight = self._flights.get(key)
            if flight is None:
                return list(self._fly(key, base, scope, filter, names))
            self._shared += 1
            flight.event.wait()
            if flight.found is not None:
                return list(flight.found)
            if flight.error is not None:
                # Each raise adds a traceback, so everybody gets one of his own.
                raise _copy(flight.error)
            # The thread that searched was interrupted: this one does it now.
        raise StateError("expected an open pool, it has been closed")

    def _kept(self, key: Any, refresh: bool) -> tuple[Entry, ...] | None:
        kept = self._cache.get(key)
        if kept is None or refresh:
            return None
        if kept[0] < time.monotonic():
            del self._cache[key]
            return None
        self._cache.move_to_end(key)
        self._shared += 1
        return kept[1]

    def _fly(self, key: Any, base: str, scope: int, filter: Any, names: Any) -> tuple[Entry, ...]:
        flight = self._flights[key] = _Flight()
        era = self._era
        try:
            found = self._search(base, scope, filter, names)
            flight.found = found
            if self._ttl > 0 and not self._closed and era == self._era:
                self._cache[key] = time.monotonic() + self._ttl, found
                self._cache.move_to_end(key)
                while len(self._cache) > self._cache_size:
                    self._cache.popitem(last=False)
            return found
        except Exception as exc:
            # Of all kinds: were it only the results of servers, everybody would try by turns to reach one that is down.
            flight.error = exc
            raise
        finally:
            if self._flights.get(key) is flight:
                del self._flights[key]
            flight.event.set()

    def _search(self, base: str, scope: int, filter: Any, names: Any) -> tuple[Entry, ...]:
        left = len(self._servers) + 1
        while True:
            left -= 1
            with self.connection() as directory:
                self._searches += 1
                try:
                    return tuple(directory.search_iter(base, scope, filter, names))
                except NoSuchObject:
                    return ()
                except (ConnectionLost, StateError, Unavailable, Busy) as exc:
                    if self._closed or not left:
                        raise
                    LOG("search is repeated", repr(exc))
                    directory.close()

    def check_password(self, name: str, password: str | bytes) -> bool:
        """Whether this is the password of the entry `name`.  It is asked over a connection made for that alone.

        False for an empty one, without asking.  Raises what `connection` raises, and results that say nothing about the
        password.
        """
        if not name or not password:
            return False
        failure: Exception | None = None
        for server in self._order():
            try:
                with client(server.url, **self._options) as directory:
                    directory.simple_bind(name, password)
                    return True
            except InvalidCredentials:
                return False
            except _ELSEWHERE as exc:
                server.down_until = time.monotonic() + self._retry
                failure = exc
        assert failure is not None
        raise failure

    def clear(self) -> None:
        """Forget the results that are kept, and do not keep those of searches that are under way."""
        self._era += 1
        self._cache.clear()
        self._flights.clear()


# ---- groups of servers that have a name

_groups: dict[str, Pool] = {}


def create_server_group(name: str, urls: Iterable[str], **settings: Any) -> Pool:
    """Make a `Pool` that the whole program knows by a name, for the servers of one directory.

    name: any str.  urls, settings: those of `Pool`; ``balance=False`` prefers the first server, True takes turns.
    Raises StateError if there is a group of that name, and what `Pool` raises.
    """
    if name in _groups:
        raise StateError(
            f"expected a name that no server group has, {name!r} is {_groups[name]!r}: take it with "
            "get_server_group(name), or remove it before"
        )
    made = _groups[name] = Pool(urls, **settings)
    return made


def get_server_group(name: str) -> Pool:
    """The pool of this name.  Raises LocalError, with the names that there are, if there is none."""
    try:
        return _groups[name]
    except KeyError:
        known = ", ".join(sorted(_groups)) or "none"
        raise LocalError(f"expected the name of a server group ({known}), got {name!r}") from None


def remove_server_group(name: str) -> None:
    """Forget the pool of this name and close its connections, also those that are lent.  Raises LocalError as
    `get_server_group` does."""
    found = get_server_group(name)
    del _groups[name]
    found.close()


def remove_all_server_groups() -> None:
    """Forget and close all of them."""
    for name in list(_groups):
        remove_server_group(name)


def server_groups() -> dict[str, Pool]:
    """All groups by their names, in the order in which they were made.  The dict is a copy."""
    return dict(_groups)


def clear_all_caches() -> None:
    """Forget the results that the groups keep."""
    for one in _groups.values():
        one.clear()
