"""Following the changes of a directory: the Content Synchronization Operation (RFC 4533), also known as syncrepl.

    copy = Copy()
    with Listener("ldaps://ldap.example.org", "dc=example,dc=org", bind=login) as listener:
        for event in listener:
            for change in copy.apply(event):
                print(change.before, change.after)

A synchronisation begins with a *refresh*: the server sends what has changed since a cookie, or everything.  It names
what is gone (`Deleted`), or it names all that is still there (`Changed`, `Present`) and the rest is gone; `Refreshed`
says which.  Then, if the program wants to go on, changes come as they are made.

The cookie says where the program's copy is.  The program keeps it, with its copy: it is valid once the event that
brought it has been applied.  During a refresh no cookie is passed on, though servers may send some, because a refresh
that is broken off in between would leave entries behind that nobody names again.  When a connection is lost, the
listener makes another one and begins with the last cookie.

Entries are told apart by their entryUUID and never by their names (RFC 4533, 3.6).

Cost: a connection; for each event the control is decoded and one object made.  `Copy` has all entries in memory, a
listener has none.
"""

from __future__ import annotations

import random
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self
from uuid import UUID

import coro
from coro.ldap import controls as _controls
from coro.ldap._client.classic import DEREF, SCOPE, filter_of, scope_and_names
from coro.ldap._client.search import Search
from coro.ldap._wire import Entry
from coro.ldap.client import client
from coro.ldap.controls import AnyControl, SyncDone, SyncInfo, SyncRequest, SyncState
from coro.ldap.exceptions import (
    Busy,
    ConnectionLost,
    Error,
    LDAPTimeout,
    LocalError,
    ProtocolError,
    StateError,
    SyncRefreshRequired,
    Unavailable,
)
from coro.ldap.filters import Filter
from coro.ldap.protocol import IntermediateResponse, Message, Result, SearchRequest, SearchResultReference, encode
from coro.ldap.url import LDAPUrl, is_ldap_url
from coro.log import Facility

__all__ = [
    "Change",
    "Changed",
    "Copy",
    "Deleted",
    "Event",
    "Listener",
    "ListenerStatistics",
    "Lost",
    "NewCookie",
    "Present",
    "Reference",
    "Refreshed",
    "Refreshing",
]

LOG = Facility("ldap.sync")
#: A cookie of OpenLDAP that names the consumer and no state.  slapd sends some with changes that several clients
#: make at the same time.  If it gets one, it sends everything, but says that it has named what is gone.
_NO_STATE = re.compile(rb"rid=[0-9]*(,sid=[0-9A-Fa-f]*)?")
_ONCE, _ON = 1, 3  # refreshOnly, refreshAndPersist (RFC 4533, 2.2)
_STATES: tuple[Literal["add", "modify"], ...] = ("add", "add", "modify")
#: After what another attempt may do better.
_AGAIN = (OSError, coro.NameError, LDAPTimeout, ConnectionLost, Unavailable, Busy, coro.ClosedError)


@dataclass(frozen=True, slots=True)
class Event:
    """What all events have.  cookie: where the copy is when this has been applied; None if that is not known yet."""

    cookie: bytes | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Refreshing(Event):
    """A refresh begins.  full: no cookie was sent, so everything will come."""

    full: bool


@dataclass(frozen=True, slots=True)
class Changed(Event):
    """An entry as it is now: put it in place of the one with this UUID, or add it.

    state: "add" or "modify".  During a refresh it is "add" for both.
    """

    uuid: UUID
    entry: Entry
    state: Literal["add", "modify"]


@dataclass(frozen=True, slots=True)
class Reference(Event):
    """A reference to other servers as it is now; its entries are not part of this synchronisation (RFC 4533, 3.2)."""

    uuid: UUID
    urls: tuple[str, ...]
    state: Literal["add", "modify"]


@dataclass(frozen=True, slots=True)
class Present(Event):
    """These are there and have not changed.  They come only during a refresh."""

    uuids: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class Deleted(Event):
    """These are gone, or not part of the search any more.  dn: the name if the server tells it, for a single one."""

    uuids: tuple[UUID, ...]
    dn: str = ""


@dataclass(frozen=True, slots=True)
class Refreshed(Event):
    """The refresh is complete: the copy is what the server has.

    complete: whatever was not named since `Refreshing`, by `Changed`, `Reference` or `Present`, is gone.  If it is
    False, only what was `Deleted` is.
    """

    complete: bool


@dataclass(frozen=True, slots=True)
class NewCookie(Event):
    """Nothing has changed but the cookie."""


@dataclass(frozen=True, slots=True)
class Lost(Event):
    """The connection was lost, or could not be made.  pause: seconds until the next attempt, about."""

    error: Exception
    pause: float


class ListenerStatistics(NamedTuple):
    """Numbers about a listener."""

    #: Connections made, and those lost or not made.
    connected: int
    lost: int
    #: Events given, refreshes completed, and those among them that began without a cookie.
    events: int
    refreshes: int
    full: int


class Listener:
    """Listener(addr, base="", scope=2, filter="(objectClass=*)", attributes=None, *, cookie=None, persist=True, ...)

    An iterator of the changes of a directory, each an `Event`; nothing is sent before the first is asked for.

    addr: of the server, as for `Client`.  base, scope, filter, attributes: what is followed, as in
    `Client.search_iter`; they must be the same as when the cookie was made.  cookie: of the last event that the program
    has applied, None to begin with everything.  persist: True to go on with changes as they are made; False to end
    behind the refresh.  bind: called with each new `Client` to log in.  reload: whether to begin with everything if the
    server cannot go on from the cookie; otherwise SyncRefreshRequired is raised then.  retry: seconds before the next
    attempt after a loss, and the most they grow to; None to raise the error.  probe: seconds of silence after which the
    server is asked something, to learn whether it is still there.  find_aliases: True to follow aliases when the base
    is looked for.  controls: also sent.  Further arguments are those of `Client`.

    Each `next` may be interrupted, such as by `coro.with_timeout`, and asked again: no event is lost.  It raises the
    class of exception for a result that is not success; ProtocolError for what is no synchronisation; what `bind`
    raises; with ``retry=None`` also OSError, coro.NameError, ConnectionLost and LDAPTimeout.  A `next` after that
    begins again with the cookie.  StateError if two threads ask at the same time.
    """

    def __init__(
        self,
        addr: str | tuple[Any, ...] | LDAPUrl,
        base: str = "",
        scope: int = SCOPE.SUBTREE,
        filter: Filter | str | bytes = "(objectClass=*)",
        attributes: Iterable[str] | None = None,
        *,
        cookie: bytes | None = None,
        persist: bool = True,
        bind: Callable[[client], object] | None = None,
        reload: bool = True,
        retry: tuple[float, float] | None = (1.0, 60.0),
        probe: float = 60.0,
        find_aliases: bool = False,
        controls: Iterable[AnyControl] = (),
        **options: Any,
    ) -> None:
        if retry is not None and not 0 <= retry[0] <= retry[1]:
            raise LocalError(f"expected the first pause and the longest one in seconds, got {retry!r}")
        if cookie is not None and not isinstance(cookie, bytes):
            raise TypeError(f"expected a cookie of bytes or None, not {type(cookie).__name__}")
        names = scope_and_names(scope, attributes, None)[1]
        wanted: Any = filter_of(filter)
        # Following aliases within the search is refused (RFC 4533, 3.5.2).
        deref = DEREF.FINDING if find_aliases else DEREF.NEVER
        self._request = SearchRequest(base, scope, wanted, names, deref)
        self._controls = tuple(controls)
        encode(Message(1, self._request))  # what is wrong with it shows here, and not later
        #: Where the copy is once the events given so far have been applied; None for nowhere.
        self.cookie = cookie
        self.persist = persist
        self._addr = addr
        # The rest of a URL may hold a password.
        url = LDAPUrl(addr) if isinstance(addr, str) and is_ldap_url(addr) else addr
        self._shown = f"{url.urlscheme}://{url.host}:{url.port}" if isinstance(url, LDAPUrl) else str(addr)
        self._bind = bind
        self._reload = reload
        self._retry = retry
        self._probe = probe
        self._options = options
        self._client: client | None = None
        self._search: Search | None = None
        self._batches: Iterator[list[Any]] = iter(())
        self._events: deque[Event] = deque()
        self._refreshing = False
        self._sent: bytes | None = None  # the cookie that this refresh began with
        self._complete = False  # whether what this refresh does not name is gone
        self._latest: bytes | None = None  # the last cookie that came during this refresh
        self._refused = False  # the server has refused to go on from a cookie since the last refresh
        self._pause = 0.0
        self._due = 0.0
        self._asking = False
        self._done = False
        self._closing = coro.event()
        self._connected = self._lost_count = self._given = self._refreshes = self._full = 0

    def __repr__(self) -> str:
        if self._closing.is_set():
            state = "closed"
        elif self._search is None:
            state = "not connected"
        else:
            state = "refreshing" if self._refreshing else "following"
        return f"<Listener of {self._shown}, {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a thread that waits for an event finds the end.  Does nothing the second time."""
        self._closing.set()
        self._events.clear()
        self._drop()

    def statistics(self) -> ListenerStatistics:
        """Numbers about it."""
        return ListenerStatistics(self._connected, self._lost_count, self._given, self._refreshes, self._full)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        if self._asking:
            raise StateError("expected one thread at a time to ask for events, another one is waiting")
        self._asking = True
        try:
            while not self._events:
                if self._done or self._closing.is_set():
                    self.close()
                    raise StopIteration
                try:
                    self._step()
                except _AGAIN as exc:
                    if not self._closing.is_set():
                        self._lose(exc)
                except Exception:
                    self._drop()
                    if not self._closing.is_set():
                        raise
        finally:
            self._asking = False
        event = self._events.popleft()
        self._given += 1
        if event.cookie is not None:
            self.cookie = event.cookie
        return event

    # ---- the connection

    def _step(self) -> None:
        """Bring events, or get nearer to some."""
        search = self._search
        if search is None:
            self._begin()
            return
        directory = self._client
        assert directory is not None
        while not search.ready(self._probe):
            try:
                directory.read("", ["1.1"])
            except Error:
                pass  # any answer shows that the server is there
        try:
            batch = next(self._batches)
        except StopIteration:
            self._end(search)
            return
        except SyncRefreshRequired as exc:
            self._refuse(exc)
            return
        for item in batch:
            if isinstance(item, Entry):
                self._entry(item)
            elif isinstance(item, SearchResultReference):
                self._reference(item, search)
            elif isinstance(item, IntermediateResponse) and item.name == SyncInfo.oid:
                self._info(SyncInfo.decode(item.value))

    def _begin(self) -> None:
        if self._client is None or not self._client.alive:
            left = self._due - time.monotonic()
            if left > 0:
                with coro.move_on_after(left):
                    self._closing.wait()
                if self._closing.is_set():
                    return
            self._connect()
        directory = self._client
        if self._closing.is_set() or directory is None:
            self._drop()
            return
        self._sent = _stateful(self.cookie)
        hint = self._reload and self._sent is not None
        control = SyncRequest(_ON if self.persist else _ONCE, self.cookie, hint)
        self._search = directory.stream(self._request, [control, *self._controls])
        self._batches = self._search.batches()
        self._refreshing = True
        self._latest = None
        self._complete = self._sent is None
        self._events.append(Refreshing(self._sent is None))

    def _connect(self) -> None:
        directory = client(self._addr, **self._options)
        self._client = directory  # for close()
        done = False
        try:
            if self._bind is not None and not self._closing.is_set():
                self._bind(directory)
            done = True
        finally:
            if not done:
                self._drop()
        self._connected += 1

    def _drop(self) -> None:
        self._search = None
        self._refreshing = False
        directory, self._client = self._client, None
        if directory is not None:
            directory.close()

    def _lose(self, error: Exception) -> None:
        self._drop()
        self._lost_count += 1
        if self._retry is None:
            raise error
        least, most = self._retry
        self._pause = min(max(self._pause * 2, least), most)
        # Not all at the same time, when a server has many listeners.
        self._due = time.monotonic() + self._pause * random.uniform(0.75, 1.0)
        LOG("lost", self._shown, str(error))
        self._events.append(Lost(error, self._pause))

    # ---- what comes

    def _end(self, search: Search) -> None:
        """The search has ended with success."""
        result = search.result
        done = None if result is None else _controls.find(result, SyncDone)
        if done is None:
            raise ProtocolError("expected a Sync Done control with the result (RFC 4533, 3.3), got none", None, 5)
        self._search = None
        self._complete = self._complete or not done.deletes
        if self.persist:
            # No server should: the persist stage ends with another result, or not at all.
            cookie = self._safe(done.cookie)
            if cookie is not None:
                self._events.append(NewCookie(cookie=cookie))
            raise ConnectionLost("the server ended the synchronisation, which was to go on")
        self._refreshed(done.cookie)
        self._done = True

    def _refuse(self, error: SyncRefreshRequired) -> None:
        """The server cannot go on from here (RFC 4533, 3.8)."""
        assert isinstance(error.result, Result)
        done = _controls.find(error.result, SyncDone)
        cookie = None if done is None else _stateful(done.cookie)
        again, self._refused = self._refused, True
        self._search = None
        if cookie is None and (not self._reload or (self._refreshing and self._sent is None)):
            raise error
        self.cookie = cookie
        if again:
            # Not as fast as both sides can.
            self._lose(error)

    def _refreshed(self, cookie: bytes | None) -> None:
        self._pause = 0.0
        self._refreshes += 1
        self._full += self._sent is None
        self._safe(cookie)
        self._refreshing = self._refused = False
        self._events.append(Refreshed(self._complete, cookie=self._latest))

    def _safe(self, cookie: bytes | None) -> bytes | None:
        """The cookie of an event, if the program may begin with it."""
        cookie = _stateful(cookie)
        if not self._refreshing:
            return cookie
        if cookie is not None:
            self._latest = cookie
        return None

    def _entry(self, entry: Entry) -> None:
        state = _state(_controls.find(entry, SyncState))
        cookie = self._safe(state.cookie)
        if state.state in (1, 2):
            self._events.append(Changed(state.uuid, entry, _STATES[state.state], cookie=cookie))
        else:
            self._unchanged(state, entry.dn, cookie)

    def _reference(self, reference: SearchResultReference, search: Search) -> None:
        state = _state(_controls.find(search, SyncState))
        cookie = self._safe(state.cookie)
        if state.state in (1, 2):
            self._events.append(Reference(state.uuid, reference.urls, _STATES[state.state], cookie=cookie))
        else:
            self._unchanged(state, "", cookie)

    def _unchanged(self, state: SyncState, dn: str, cookie: bytes | None) -> None:
        if state.state == 0:
            self._events.append(Present((state.uuid,), cookie=cookie))
        else:
            self._events.append(Deleted((state.uuid,), dn, cookie=cookie))

    def _info(self, info: SyncInfo) -> None:
        if info.kind == "ids":
            kind = Deleted if info.deletes else Present
            self._events.append(kind(info.uuids, cookie=self._safe(info.cookie)))
        elif info.kind == "cookie":
            cookie = self._safe(info.cookie)
            if cookie is not None:
                self._events.append(NewCookie(cookie=cookie))
        elif self._refreshing:
            # The end of a phase: of one that names what is there, or of one that names what is gone.
            self._complete = self._complete or info.kind == "present"
            if info.done and self.persist:
                self._refreshed(info.cookie)
            else:
                self._safe(info.cookie)
        else:
            raise ProtocolError("expected the end of a refresh once (RFC 4533, 3.4.1), got another one", None, 25)


def _stateful(cookie: bytes | None) -> bytes | None:
    """A cookie that says where a copy is; None for one that does not."""
    return None if cookie is None or _NO_STATE.fullmatch(cookie) else cookie


def _state(state: SyncState | None) -> SyncState:
    if state is None or not 0 <= state.state <= 3:
        raise ProtocolError(
            "expected a Sync State control with an entry or a reference (RFC 4533, 2.3), got none", None, 4
        )
    return state


class Change(NamedTuple):
    """What an event has changed in a `Copy`: the entry before and after, None for none."""

    uuid: UUID
    before: Entry | None
    after: Entry | None


class Copy(Mapping[UUID, Entry]):
    """Copy(entries=(), cookie=None)

    The entries of a synchronisation in memory, by their UUIDs.

    entries: pairs of a UUID and an `Entry`, to go on from a copy that was saved.  cookie: the one that belongs to it.
    """

    def __init__(self, entries: Iterable[tuple[UUID, Entry]] = (), cookie: bytes | None = None) -> None:
        self._entries = dict(entries)
        self._forget()
        #: Where the copy is, None for nowhere.  Save it with the entries.
        self.cookie = cookie

    def __getitem__(self, uuid: UUID) -> Entry:
        return self._entries[uuid]

    def __iter__(self) -> Iterator[UUID]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<Copy of {len(self._entries)} entries>"

    def apply(self, event: Event) -> list[Change]:
        """Do what an event says, and return what that has changed.

        An entry that comes again as it was is no change.  OpenLDAP names only the entry that was renamed and not those
        below it, as RFC 4533 allows (4.1); the names of these are changed here.
        """
        changes: list[Change] = []
        match event:
            case Refreshing():
                self._forget()
                self._refreshing = True
            case Changed(uuid=uuid, entry=entry):
                before = self._entries.get(uuid)
                self._entries[uuid] = entry
                if before != entry:
                    changes.append(Change(uuid, before, entry))
                moves = {before.dn.lower(): entry.dn} if before is not None and before.dn != entry.dn else {}
                if self._refreshing:
                    # Names may have been exchanged: all are changed at once, at the end.
                    self._named.add(uuid)
                    self._sent.add(uuid)
                    self._moves.update(moves)
                elif moves:
                    self._move(moves, {uuid}, changes)
            case Reference(uuid=uuid):
                self._named.add(uuid)
                self._remove((uuid,), changes)
            case Present(uuids=uuids):
                self._named.update(uuids)
            case Deleted(uuids=uuids):
                self._remove(uuids, changes)
            case Refreshed(complete=complete):
                if complete:
                    self._remove(self._entries.keys() - self._named, changes)
                if self._moves:
                    self._move(self._moves, self._sent, changes)
                self._forget()
        if event.cookie is not None:
            self.cookie = event.cookie
        return changes

    def _forget(self) -> None:
        """What belongs to one refresh."""
        self._refreshing = False
        self._named: set[UUID] = set()
        self._sent: set[UUID] = set()
        self._moves: dict[str, str] = {}

    def _remove(self, uuids: Iterable[UUID], changes: list[Change]) -> None:
        for uuid in uuids:
            before = self._entries.pop(uuid, None)
            if before is not None:
                changes.append(Change(uuid, before, None))

    def _move(self, moves: dict[str, str], sent: set[UUID], changes: list[Change]) -> None:
        """New names for what is below the keys of `moves`, and was not sent itself."""
        for uuid, before in self._entries.items():
            if uuid in sent:
                continue
            dn = before.dn
            place = dn.find(",")
            while place >= 0:
                new = moves.get(dn[place + 1 :].lower())
                if new is not None:
                    after = Entry(dn[: place + 1] + new, before.attributes, before.controls)
                    self._entries[uuid] = after
                    changes.append(Change(uuid, before, after))
                    break
                place = dn.find(",", place + 1)
