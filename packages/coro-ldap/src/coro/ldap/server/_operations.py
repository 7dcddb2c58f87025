"""What the server does for a request: search, compare, changes, extended operations (RFC 4511, 4.5 to 4.12).

Each function here runs in a thread that the connection has started (_connection.py), and returns the answer or raises
`Refused`.  A search sends what it has found as soon as that fills a chunk, and waits while the client does not read: so
memory does not grow with results.

A search works for a moment, and then only in its turn, a millisecond at a time: of all searches of the server one works
between two turns of the other threads, whatever their filters cost.

Controls: paged results (RFC 2696), assertion (RFC 4528), pre- and post-read (RFC 4527), ManageDsaIT (RFC 3296, which
changes nothing here: there are no referrals), tree delete.

Longer than most files because each operation is short and all share the same few steps.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import coro
from coro.asn1 import ber
from coro.asn1.exceptions import DecodeError
from coro.ldap import filters
from coro.ldap._wire import encode_entry, encode_message
from coro.ldap.dn import DN
from coro.ldap.exceptions import DNError
from coro.ldap.protocol import (
    AddRequest,
    CompareRequest,
    Control,
    DelRequest,
    ExtendedRequest,
    ModifyDNRequest,
    ModifyRequest,
    SearchRequest,
    octets,
)
from coro.ldap.server import _messages as wire
from coro.ldap.server._refusal import Refused
from coro.ldap.server.access import Level, View, Viewer
from coro.ldap.server.matching import UNITS, Matcher, Work
from coro.ldap.server.passwords import check_password, hash_password, scram_password
from coro.ldap.server.tree import Node

if TYPE_CHECKING:
    from coro.ldap.server._connection import Connection, Operation

#: Seconds that a search works in its turn, and before it needs one.
_SLICE = 0.001
_FIRST_SLICE = 0.0002
#: Times that an assertion is tried again because the entry has changed meanwhile.
_ATTEMPTS = 3

_EVERY = frozenset({wire.MANAGE_DSA_IT})
_KNOWN: dict[type, frozenset[str]] = {
    SearchRequest: _EVERY | {wire.PAGED_RESULTS, wire.ASSERTION},
    CompareRequest: _EVERY | {wire.ASSERTION},
    AddRequest: _EVERY | {wire.POST_READ},
    ModifyRequest: _EVERY | {wire.ASSERTION, wire.PRE_READ, wire.POST_READ},
    ModifyDNRequest: _EVERY | {wire.ASSERTION, wire.PRE_READ, wire.POST_READ},
    DelRequest: _EVERY | {wire.ASSERTION, wire.PRE_READ, wire.TREE_DELETE},
}
SUPPORTED_CONTROLS = sorted(frozenset[str]().union(*_KNOWN.values()))


def controls_of(request: wire.Request, given: tuple[Control, ...]) -> dict[str, Control]:
    """The controls that count here.  Raises Refused for an unknown one that is critical, and for one given twice."""
    known = _KNOWN.get(type(request), frozenset())
    found: dict[str, Control] = {}
    for control in given:
        if control.oid not in known:
            if control.critical:
                raise Refused(12, f"the control {control.oid} is not known here for this operation")
        elif control.oid in found:
            raise Refused(2, f"the control {control.oid} is there twice")
        else:
            found[control.oid] = control
    return found


def _filter(request: SearchRequest) -> filters.Filter:
    """The filter of a request that was read, where it is never text."""
    assert isinstance(request.filter, filters.Filter)
    return request.filter


# ---- what is sent of an entry


class Selection:
    """Which attributes of an entry are sent (RFC 4511, 4.5.1.8; RFC 3673)."""

    def __init__(self, server: Any, names: tuple[str, ...], types_only: bool = False) -> None:
        schema = server.directory.schema
        self.types_only = types_only
        self._schema = schema
        self._user = not names or "*" in names
        self._operational = "+" in names
        self._named: dict[str, tuple[set[str], ...]] = {}
        for name in names:
            if name not in ("*", "+", "1.1"):
                base, options = schema.split(name)
                for kind in schema.kinds(base):
                    self._named[kind] = (*self._named.get(kind, ()), set(options))
        self._wanted: dict[str, bool] = {}
        #: Equal selections have equal keys.
        self.key = (names, types_only)
        self._computed = self._operational or any(
            name in self._named for name in ("entrydn", "hassubordinates", "subschemasubentry")
        )

    def wants(self, key: str) -> bool:
        """Whether an attribute is sent."""
        found = self._wanted.get(key)
        if found is None:
            base, _, options = key.partition(";")
            type = self._schema.types.get(base)
            named = self._named.get(base)
            found = (self._operational if type is not None and type.operational else self._user) or (
                named is not None and any(wanted <= set(options.split(";")) for wanted in named)
            )
            self._wanted[key] = found
        return found

    def attributes(self, node: Node, view: View) -> list[tuple[str, list[bytes]]]:
        """The attributes of an entry, as they are sent to one who asks."""
        shown, wants, level = self._schema.shown, self.wants, view.level
        found = [
            (shown(key), values) for key, values in node.attributes.items() if wants(key) and level(key) >= Level.READ
        ]
        if self._computed:
            found += [
                (shown(key), values)
                for key, values in node.computed().items()
                if wants(key) and level(key) >= Level.READ
            ]
        return found

    def entry(self, node: Node, view: View) -> bytes:
        """The operation of RFC 4511, 4.5.2; kept with the entry for the next search of the same kind."""
        if self._computed:
            return self._entry(node, view)
        key = (self.key, view.key)
        if node.encoded is not None and node.encoded[0] == key:
            return node.encoded[1]
        found = self._entry(node, view)
        node.encoded = (key, found)
        return found

    def _entry(self, node: Node, view: View) -> bytes:
        message: bytes = encode_entry(0, node.dn, self.attributes(node, view), self.types_only)
        # A header, and the three bytes of the id 0.
        return message[(2 if message[1] < 0x80 else 2 + (message[1] & 0x7F)) + 3 :]


class Turns(Work):
    """The work of one search or assertion: lets other threads run, and looks at the clock."""

    __slots__ = ("_allowed", "_deadline", "_held", "_op", "_since", "_turn")

    def __init__(self, op: Operation, turn: coro.mutex, deadline: float | None) -> None:
        super().__init__()
        self._turn = turn
        self._held = False
        self.begin(op, deadline)

    def begin(self, op: Operation, deadline: float | None) -> None:
        """Work for this operation from now on: a page of a search."""
        self._op = op
        self._deadline = deadline
        self.pause()

    def pause(self) -> None:
        """Give the turn back, before waiting and at the end."""
        self._allowed = _FIRST_SLICE
        self._since = time.perf_counter()
        if self._held:
            self._held = False
            self._turn.unlock()

    def rest(self) -> None:
        """See whether the time is over: that of the turn, and that of the search.  Raises Refused."""
        self.spent = 0
        if time.perf_counter() - self._since < self._allowed:
            return
        self.pause()
        self._turn.lock()
        self._held = True
        # Others run between two turns, too, and not only all searches once.
        self._op.go_on()
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise Refused(3, "the time for this search is over")
        self._since = time.perf_counter()
        self._allowed = _SLICE

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *exc: object) -> None:
        self.pause()


@dataclass(slots=True)
class Page:
    """A search that goes on with the next page."""

    question: object
    work: Turns
    found: Iterator[tuple[Node, View]]
    #: One that is already known to match.
    ahead: tuple[Node, View] | None
    sent: int


# ---- the operations


class Operations:
    """The operations of one connection for who is logged in now."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.server = connection.server
        self.directory = connection.server.directory

    def viewer(self) -> Viewer:
        return self.server.access.viewer(self.connection.who)

    # -- what all need

    def visible(self, dn: str, viewer: Viewer) -> tuple[Node, View]:
        """The entry of a name.  Raises Refused, also if who asks may not know that it is there."""
        try:
            node = self.directory.node(dn)
        except Refused as exc:
            if exc.code == 32 and exc.matched and not self._may(exc.matched, viewer):
                raise Refused(32, exc.diagnostic) from None
            raise
        view = viewer.view(node.name)
        if view.level("entry") < Level.COMPARE:
            raise Refused(32, f"there is no entry {dn!r:.200}")
        return node, view

    def _may(self, dn: str, viewer: Viewer) -> bool:
        return viewer.view(DN.parse(dn).normalized).level("entry") >= Level.COMPARE

    @staticmethod
    def forbid(what: str) -> Refused:
        return Refused(50, f"no right to {what}")

    def compiled(
        self, filter: filters.Filter, work: Work | None = None
    ) -> tuple[Callable[[Node, Any], bool | None], set[str]]:
        matcher = Matcher(self.directory.schema, work)
        return matcher.compile(filter), matcher.attributes

    @staticmethod
    def forbidden(attributes: set[str], view: View) -> frozenset[str]:
        """The attributes of a filter that may not be asked for."""
        return frozenset(name for name in attributes if view.level(name) < Level.SEARCH)

    def asserted(self, op: Operation, node: Node, view: View, controls: dict[str, Control]) -> None:
        """See that the filter of an assertion control matches (RFC 4528), and nothing has changed since."""
        control = controls.get(wire.ASSERTION)
        if control is None:
            return
        filter = self.connection.decoder.only_filter(control.value or b"")
        with Turns(op, self.server.turn, None) as work:
            matches, attributes = self.compiled(filter, work)
            for _ in range(_ATTEMPTS):
                held, name = node.attributes, node.name
                holds = matches(node, self.forbidden(attributes, view))
                if node.attributes is held and node.name is name and self.directory.nodes.get(name) is node:
                    break
            else:
                raise Refused(51, "the entry changes too often to compare it; try again")
        if not holds:
            raise Refused(122, "the assertion does not hold")

    def read_control(
        self, oid: str, node: Node, viewer: Viewer, controls: dict[str, Control]
    ) -> list[tuple[str, bytes]]:
        """The answer to a pre- or post-read control (RFC 4527)."""
        control = controls.get(oid)
        if control is None:
            return []
        try:
            names, _ = ber.decode(control.value or b"")
            names = tuple(name.decode("utf-8") for name in names)
        except (DecodeError, AttributeError, TypeError, UnicodeDecodeError):
            raise Refused(2, f"the value of the control {oid} is no list of attributes") from None
        entry = Selection(self.server, names)._entry(node, viewer.view(node.name))
        # The same fields as a SEQUENCE, not as an operation.
        return [(oid, b"\x30" + entry[1:])]

    # -- searching

    def search(self, op: Operation, request: SearchRequest, controls: dict[str, Control]) -> bytes:
        viewer = self.viewer()
        selection = Selection(self.server, tuple(request.attributes), request.types_only)
        special = self.server.special(request, self.connection)
        paged = controls.get(wire.PAGED_RESULTS)
        limits = self.server.limits
        size = min(filter(None, (request.size_limit, limits.entries)), default=0)
        seconds = min(filter(None, (float(request.time_limit), limits.time)), default=0.0)
        deadline = time.monotonic() + seconds if seconds else None
        with Turns(op, self.server.turn, deadline) as work:
            if special is not None:
                matches = self.compiled(_filter(request), work)[0]
                if wire.ASSERTION not in controls and matches(special, ()):
                    view = self.server.access.viewer(None).view(())
                    op.ahead = encode_message(op.id, selection.entry(special, view))
                return wire.result(5)
        base, view = self.visible(request.base, viewer)
        self.asserted(op, base, view, controls)
        page_size, page = 0, None
        if paged is not None:
            page_size, page = self._page(paged, request)
            if page_size == 0 and page is not None:
                return self._paged_done(op, b"")
        if page is None:
            page = Page(self._question(request), work, self._matches(work, base, request, viewer), None, 0)
        else:
            page.work.begin(op, deadline)
        with page.work:
            code, cookie = self._send(op, page, page_size, size, selection)
        if code:
            return wire.result(5, code)
        return self._paged_done(op, cookie) if paged is not None else wire.result(5)

    def _page(self, control: Control, request: SearchRequest) -> tuple[int, Page | None]:
        try:
            (size, cookie), _ = ber.decode(control.value or b"")
            if type(size) is not int or not 0 <= size <= 0x7FFFFFFF or type(cookie) is not bytes:
                raise ValueError
        except (DecodeError, ValueError, TypeError):
            raise Refused(2, "the value of the control for paged results is no size and cookie") from None
        if not cookie:
            return size or self.server.limits.page, None
        page = self.connection.pages.pop(cookie, None)
        if page is None or page.question != self._question(request):
            raise Refused(53, "the cookie is of another search, or too old")
        return size, page

    def _question(self, request: SearchRequest) -> object:
        return (request.base, request.scope, request.filter, tuple(request.attributes), self.connection.who)

    @staticmethod
    def _paged_done(op: Operation, cookie: bytes) -> bytes:
        value = ber.SEQUENCE(ber.INTEGER(0), ber.OCTET_STRING(cookie))
        op.controls = wire.encode_controls([(wire.PAGED_RESULTS, value)])
        return wire.result(5)

    def _matches(self, work: Turns, base: Node, request: SearchRequest, viewer: Viewer) -> Iterator[tuple[Node, View]]:
        """The entries that match and may be seen.  Raises Refused when the time is over."""
        wanted = _filter(request)
        matches, attributes = self.compiled(wanted, work)
        forbidden: dict[View, frozenset[str]] = {}
        nodes = self.directory.nodes
        for node in self.directory.scan(base, request.scope, wanted):
            name = None
            # An entry that gets another name while its values are compared may be one that must not be seen.
            while name is not node.name:
                work.spent += 1
                if work.spent > UNITS:
                    work.rest()
                name = node.name
                view = viewer.view(name)
                hidden = forbidden.get(view)
                if hidden is None:
                    hidden = forbidden[view] = (
                        frozenset({"*"}) if view.level("entry") < Level.READ else self.forbidden(attributes, view)
                    )
                found = "*" not in hidden and matches(node, hidden)
            if found and nodes.get(name) is node:
                yield node, view

    def _send(self, op: Operation, page: Page, page_size: int, size: int, selection: Selection) -> tuple[int, bytes]:
        """Send the entries of a search, or of a page; returns the code, and the cookie for the next page."""
        chunks: list[bytes] = []
        collected = on_page = 0
        identity, entry, work = op.id, selection.entry, page.work
        cookie = b""
        code = 0
        try:
            while True:
                pair = page.ahead if page.ahead is not None else next(page.found, None)
                page.ahead = None
                if pair is None:
                    break
                if size and page.sent >= size:
                    code = 4
                    break
                if page_size and on_page >= page_size:
                    page.ahead = pair
                    cookie = self.connection.keep_page(page)
                    break
                message = encode_message(identity, entry(*pair))
                chunks.append(message)
                collected += len(message)
                work.spent += 4 + (len(message) >> 8)
                page.sent += 1
                on_page += 1
                if collected >= self.server.chunk:
                    data = b"".join(chunks)
                    chunks.clear()
                    collected = 0
                    work.pause()
                    op.send(data)
                    data = b""
        except Refused as exc:
            if exc.code != 3:
                raise
            code = 3
        op.ahead = b"".join(chunks)
        return code, cookie

    def compare(self, op: Operation, request: CompareRequest, controls: dict[str, Control]) -> bytes:
        viewer = self.viewer()
        node, view = self.visible(request.dn, viewer)
        self.asserted(op, node, view, controls)
        schema = self.directory.schema
        base, _ = schema.split(request.attribute)
        type = schema.types.get(base)
        if type is None:
            raise Refused(17, f"there is no attribute {request.attribute!r:.60}")
        if view.level(base) < Level.COMPARE:
            raise self.forbid(f"compare {request.attribute}")
        if type.equality is None:
            raise Refused(18, f"values of {request.attribute} cannot be compared")
        key = schema.key(request.attribute)
        if key not in node.attributes and key not in node.computed():
            raise Refused(16, f"the entry has no {request.attribute}")
        try:
            wanted = type.normalize(octets(request.value))
        except (ValueError, UnicodeDecodeError) as exc:
            raise Refused(21, str(exc)) from None
        return wire.result(15, 6 if wanted in node.values(key) else 5)

    # -- changing

    def saved(self) -> None:
        if self.server.store is not None:
            self.server.store.commit()

    def begin(self) -> None:
        if self.server.store is not None:
            self.server.store.check()

    def add(self, op: Operation, request: AddRequest, controls: dict[str, Control]) -> bytes:
        self.begin()
        viewer = self.viewer()
        try:
            name = DN.parse(request.dn).normalized
        except DNError as exc:
            raise Refused(34, str(exc)) from None
        above = self.directory.nodes.get(name[1:])
        if above is not None:
            view = viewer.view(above.name)
            if view.level("entry") < Level.COMPARE:
                raise Refused(32, "the entry above is missing")
            if view.level("children") < Level.WRITE:
                raise self.forbid(f"add entries below {above.dn!r:.200}")
        view = viewer.view(name)
        if view.level("entry") < Level.WRITE:
            raise self.forbid(f"add {request.dn!r:.200}")
        for attribute in request.attributes:
            if view.level(self.directory.schema.key(attribute)) < Level.WRITE:
                raise self.forbid(f"set {attribute}")
        self.directory.add(request.dn, request.attributes, by=self.connection.dn)
        node = self.directory.node(request.dn)
        op.controls = wire.encode_controls(self.read_control(wire.POST_READ, node, viewer, controls))
        self.saved()
        return wire.result(9)

    def modify(self, op: Operation, request: ModifyRequest, controls: dict[str, Control]) -> bytes:
        self.begin()
        viewer = self.viewer()
        node, view = self.visible(request.dn, viewer)
        self.asserted(op, node, view, controls)
        for change in request.changes:
            attribute = change.attribute
            if view.level(self.directory.schema.key(attribute)) < Level.WRITE:
                raise self.forbid(f"change {attribute}")
        before = self.read_control(wire.PRE_READ, node, viewer, controls)
        self.directory.modify(
            node.dn, [(one.operation, one.attribute, one.values) for one in request.changes], by=self.connection.dn
        )
        after = self.read_control(wire.POST_READ, node, viewer, controls)
        op.controls = wire.encode_controls(before + after)
        self.saved()
        return wire.result(7)

    def delete(self, op: Operation, request: DelRequest, controls: dict[str, Control]) -> bytes:
        self.begin()
        viewer = self.viewer()
        node, view = self.visible(request.dn, viewer)
        self.asserted(op, node, view, controls)
        tree = wire.TREE_DELETE in controls
        for one in self.directory.walk(node) if tree else (node,):
            if viewer.view(one.name).level("entry") < Level.WRITE or (
                one.parent is not None and viewer.view(one.parent.name).level("children") < Level.WRITE
            ):
                raise self.forbid(f"delete {one.dn!r:.200}")
        op.controls = wire.encode_controls(self.read_control(wire.PRE_READ, node, viewer, controls))
        self.directory.delete(node.dn, tree)
        self.saved()
        return wire.result(11)

    def modify_dn(self, op: Operation, request: ModifyDNRequest, controls: dict[str, Control]) -> bytes:
        self.begin()
        viewer = self.viewer()
        node, view = self.visible(request.dn, viewer)
        self.asserted(op, node, view, controls)
        above = [node.parent] if node.parent is not None else []
        if request.new_superior is not None:
            above.append(self.visible(request.new_superior, viewer)[0])
        if view.level("entry") < Level.WRITE or any(
            viewer.view(one.name).level("children") < Level.WRITE for one in above
        ):
            raise self.forbid(f"rename {node.dn!r:.200}")
        try:
            pairs = [pair for rdn in DN.parse(request.newrdn).rdns for pair in rdn]
        except DNError as exc:
            raise Refused(34, str(exc)) from None
        for attribute, _ in (*pairs, *(node.parsed().rdns[0] if request.delete_old else ())):
            if view.level(self.directory.schema.key(attribute)) < Level.WRITE:
                raise self.forbid(f"change {attribute}")
        before = self.read_control(wire.PRE_READ, node, viewer, controls)
        self.directory.rename(node.dn, request.newrdn, request.delete_old, request.new_superior, by=self.connection.dn)
        after = self.read_control(wire.POST_READ, node, viewer, controls)
        op.controls = wire.encode_controls(before + after)
        self.saved()
        return wire.result(13)

    # -- extended operations

    def extended(self, op: Operation, request: ExtendedRequest, controls: dict[str, Control]) -> bytes:
        if request.name == wire.WHOAMI:
            if request.value is not None:
                raise Refused(2, "Who am I? has no value")
            dn = self.connection.dn
            return wire.extended_answer(0, value=f"dn:{dn}".encode() if dn else b"")
        if request.name == wire.PASSWORD_MODIFY:
            return self._password(request.value)
        raise Refused(2, f"the extended operation {request.name} is not known here")

    def _hash(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.server.hashing.run(self.connection.client, function, *args)[0]

    def _password(self, value: bytes | None) -> bytes:
        """Password Modify (RFC 3062)."""
        self.begin()
        parts: dict[int, bytes] = {}
        try:
            for _, tag, data in ber.decode(value)[0] if value is not None else ():
                if tag not in (0, 1, 2) or type(data) is not bytes:
                    raise ValueError
                parts[tag] = data
        except (DecodeError, ValueError, TypeError):
            raise Refused(2, "the value is no request to change a password") from None
        text = parts.get(0, b"").decode("utf-8", "replace").removeprefix("dn:")
        target = self.server.find_user(text) if text and "=" not in text else text or self.connection.dn
        if not target:
            raise Refused(53, "whose password? Nobody is logged in, and no user was named")
        viewer = self.viewer()
        node, view = self.visible(target, viewer)
        if view.level("userpassword") < Level.WRITE:
            raise self.forbid("change this password")
        old = parts.get(1)
        if old is not None and not any(
            self._hash(check_password, stored, old) for stored in list(node.attributes.get("userpassword", ()))
        ):
            raise Refused(53, "the old password is wrong")
        new = parts.get(2)
        if new == b"":
            raise Refused(19, "a password cannot be empty")
        made = None
        if new is None:
            made = new = secrets.token_urlsafe(12).encode()
        hashed = self._hash(hash_password, new, self.server.password_scheme)
        # Keys for SCRAM belong to the old password: those that were there are made anew.
        kinds = {held.partition(b"$")[0].decode("ascii", "replace") for held in node.attributes.get("authpassword", ())}
        keys = [
            self._hash(scram_password, new.decode("utf-8", "replace"), kind)
            for kind in sorted(kinds & {"SCRAM-SHA-1", "SCRAM-SHA-256"})
        ]
        self.begin()
        self.directory.modify(
            node.dn, [("replace", "userPassword", [hashed]), ("replace", "authPassword", keys)], by=self.connection.dn
        )
        self.saved()
        answer = None if made is None else ber.SEQUENCE(ber.CONTEXT(0, False, made))
        return wire.extended_answer(0, value=answer)


HANDLERS: dict[type, tuple[int, Callable[..., bytes]]] = {
    SearchRequest: (5, Operations.search),
    CompareRequest: (15, Operations.compare),
    AddRequest: (9, Operations.add),
    ModifyRequest: (7, Operations.modify),
    DelRequest: (11, Operations.delete),
    ModifyDNRequest: (13, Operations.modify_dn),
    ExtendedRequest: (24, Operations.extended),
}
