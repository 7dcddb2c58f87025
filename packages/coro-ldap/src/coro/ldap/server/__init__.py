"""A small LDAP server: entries in memory, kept in a folder if wanted, behind coro threads.

    directory = Directory("dc=example,dc=org")
    directory.load(open("init.ldif", "rb"))
    with Server(directory, ("127.0.0.1", 3389), admins={"cn=admin,dc=example,dc=org": "secret"}) as server:
        server.wait()

It is good for tests and for directories that fit into memory.  It has no replication, no referrals and no aliases, and
object classes are not enforced.

    schema      attributes and how they are compared
    matching    filters as functions
    tree        the entries
    access      who may do what
    journal     changes on disk
    passwords   hashes
    sasl        SCRAM
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import coro
from coro.ldap._wire import encode_message
from coro.ldap.dn import DN
from coro.ldap.exceptions import DNError
from coro.ldap.filters import Equal
from coro.ldap.protocol import SearchRequest
from coro.ldap.server import _messages as wire
from coro.ldap.server._connection import Connection, decoy
from coro.ldap.server._hashing import Hashing, Pace
from coro.ldap.server._operations import SUPPORTED_CONTROLS
from coro.ldap.server._places import Place, Places, client_of
from coro.ldap.server._refusal import Refused
from coro.ldap.server.access import DEFAULT_RULES, Access, Level, Rule
from coro.ldap.server.journal import Store, StoreError
from coro.ldap.server.passwords import check_password, hash_password, scram_password
from coro.ldap.server.schema import AttributeType, Schema
from coro.ldap.server.tree import Directory, Node

__all__ = [
    "DEFAULT_RULES",
    "AttributeType",
    "Directory",
    "Level",
    "Limits",
    "Refused",
    "Rule",
    "Schema",
    "Server",
    "Store",
    "StoreError",
    "check_password",
    "hash_password",
    "scram_password",
]


@dataclass(frozen=True)
class Limits:
    """What clients may use.

    connections: at a time; when all are taken, the longest silent one is closed for a new one, and if all are busy, the
    new one is.  per_address: connections of one IPv4 address or IPv6 /64 while more than half of all are taken; None: a
    quarter of all.
    message: bytes of a request.  pending: operations of a connection at a time, of which one search goes on.
    operations: the same for all connections together; when half of them are taken, connections have equal shares of the
    rest.  queued: bytes of requests that are not answered, of all connections; one may have a sixteenth, and equal
    shares hold as above.  unsent: bytes of answers that clients have not taken; when there are more, the client that
    has taken nothing for longest is cut off.
    filter_depth, filter_parts: how deep filters may be nested, and of how many parts they may be.  entries: of a
    search, or None.  time: seconds of a search.  page: entries of a page for which the client names no size.
    handshake, login, idle, send: seconds for TLS, until the first login or other request, between requests, and for a
    client to take an answer.  failed_binds: after so many a connection is closed.
    """

    connections: int = 1000
    per_address: int | None = None
    message: int = 1024 * 1024
    pending: int = 128
    operations: int = 4096
    queued: int = 64 * 1024 * 1024
    unsent: int = 64 * 1024 * 1024
    filter_depth: int = 40
    filter_parts: int = 2000
    entries: int | None = None
    time: float = 60.0
    page: int = 500
    handshake: float = 10.0
    login: float = 10.0
    idle: float = 3600.0
    send: float = 60.0
    failed_binds: int = 10


def _shut(conn: Any) -> None:
    with suppress(OSError, coro.ClosedError):
        conn.shutdown(socket.SHUT_RDWR)


class Server:
    """``with Server(directory, address) as server:`` serves a directory.

    directory: the entries.  address: as for `coro.Server`: a pair of host and port, the path of a UNIX socket (for
    ldapi addresses), or a list; port 0 is a free one, see `addresses`.  tls: a TLS context, for StartTLS and for
    `tls_address`, where TLS comes first (ldaps).  store: what keeps the changes; `commit` is waited for before a
    change is acknowledged.  rules: who may do what, see `Rule`; without any, `DEFAULT_RULES` hold.  admins: names
    with their passwords, hashed or not, who may do everything; None instead of a password if they log in otherwise.
    limits: what clients may use.
    require_tls: take passwords only over TLS and UNIX sockets.  plain_without_tls: offer the SASL mechanism PLAIN
    without TLS.  password_scheme: for new passwords.  find_user: the name of an entry for the name of a user that
    SASL gives, or None; without it, the one entry whose uid that is.  external: the name for what a certificate or
    the kernel says of a client; without it, that name itself.

    Raises what `coro.Server` raises, LocalError for malformed rules, DNError for malformed names.
    """

    def __init__(
        self,
        directory: Directory,
        address: Any = (),
        *,
        tls: Any = None,
        tls_address: Any = None,
        store: Store | None = None,
        rules: Iterable[Rule] | None = None,
        admins: Mapping[str, str | bytes | None] | None = None,
        limits: Limits | None = None,
        require_tls: bool = False,
        plain_without_tls: bool = False,
        password_scheme: str = "PBKDF2-SHA256",
        find_user: Callable[[str], str | None] | None = None,
        external: Callable[[str], str | None] | None = None,
    ) -> None:
        self.directory = directory
        self.store = store
        self.limits = limits if limits is not None else Limits()
        self.require_tls = require_tls
        self.plain_without_tls = plain_without_tls
        self.password_scheme = password_scheme
        self.external = external
        self._find_user = find_user
        self.tls: Any = None
        if tls is not None:
            from coro import tls as coro_tls

            self.tls = coro_tls.context(tls)
        if tls_address is not None and self.tls is None:
            raise ValueError("expected a TLS context for tls_address, got tls=None")
        admins = admins or {}
        self.admins = {
            DN.parse(name).normalized: password.encode() if isinstance(password, str) else password or b""
            for name, password in admins.items()
        }
        self.access = Access(
            DEFAULT_RULES if rules is None else rules, directory.schema, admins, members=directory.members
        )
        self.decoy = decoy(password_scheme if password_scheme.upper() != "CLEARTEXT" else "SSHA256")
        #: How often what was done.
        self.counted: Counter[str] = Counter()
        self.connections: dict[Connection, None] = {}
        self.sockets: dict[Connection, Any] = {}
        self.places = Places(self.limits.connections, self.limits.per_address)
        self.hashing = Hashing()
        self.pace = Pace()
        #: Held by the one search of all that works.
        self.turn = coro.mutex()
        #: Operations and bytes of requests that are not answered, and bytes of answers that are not sent.
        self.pending = self.queued = self.unsent = 0
        # Those that have not taken all, the one that began to wait first at the head.
        self._slow: dict[Connection, None] = {}
        self._servers: list[coro.Server] = []
        if address != ():
            self._servers.append(coro.Server(self._plain, address))
        if tls_address is not None:
            self._servers.append(coro.Server(self._secure, tls_address))
        if not self._servers:
            raise ValueError("expected an address to listen on, got none")
        #: Where it listens.
        self.addresses: list[Any] = [address for server in self._servers for address in server.addresses]

    def __repr__(self) -> str:
        return f"<LDAP server on {', '.join(map(str, self.addresses))}: {len(self.connections)} connections>"

    # -- its life

    def start(self) -> Server:
        """Begin to accept connections; returns the server."""
        for server in self._servers:
            server.start()
        return self

    def wait(self) -> None:
        """Wait until the server has ended."""
        for server in self._servers:
            server.wait()

    def close(self) -> None:
        """Tell the clients, close their connections, and end."""
        for server in self._servers:
            server.stop()
        for connection in list(self.connections):
            coro.spawn(connection.disconnect, 52, "the server ends", thread_name="LDAP notice")
        for server in self._servers:
            server.drain(2.0)
        self.hashing.close()

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        self.close()
        return False

    def statistics(self) -> dict[str, int]:
        """Connections, entries, and how often what was done; debugging information."""
        return {
            "connections": len(self.connections),
            "entries": len(self.directory),
            "evicted": self.places.evicted,
            **self.counted,
        }

    # -- connections

    def _plain(self, conn: Any, address: Any) -> None:
        self._admit(conn, address, False)

    def _secure(self, conn: Any, address: Any) -> None:
        self._admit(conn, address, True)

    def _admit(self, conn: Any, address: Any, secure: bool) -> None:
        local = isinstance(conn.getsockname(), (str, bytes))
        place = Place(None if local else client_of(address), lambda: _shut(conn))
        if not self.places.enter(place):
            self.counted["refused connections"] += 1
            if not secure:
                notice = wire.extended_answer(51, "too many connections", wire.NOTICE_OF_DISCONNECTION)
                with suppress(OSError, coro.TimeoutError):
                    coro.with_timeout(1.0, conn.sendall, encode_message(0, notice))
            return
        try:
            stream = conn
            if secure:
                try:
                    with coro.timeout(self.limits.handshake):
                        stream = self.tls.wrap(conn, server_side=True)
                except (coro.TimeoutError, OSError):
                    self.counted["failed handshakes"] += 1
                    return
            self._serve(stream, conn, secure, local, place)
        finally:
            self.places.leave(place)

    def _serve(self, stream: Any, conn: Any, secure: bool, local: bool, place: Place) -> None:
        connection = Connection(self, stream, secure, local, place)
        place.evict = lambda: coro.spawn(
            connection.disconnect, 51, "others need the connection, which was silent", thread_name="LDAP notice"
        )
        self.connections[connection] = None
        self.sockets[connection] = conn
        self.counted["connections"] += 1
        try:
            connection.run()
        finally:
            del self.connections[connection], self.sockets[connection]

    # -- what all connections share

    @property
    def chunk(self) -> int:
        """Bytes of results that a connection collects before it sends them."""
        return min(max(self.limits.unsent // (2 * max(len(self.connections), 1)), 4096), 65536)

    def has_room(self, connection: Connection, size: int) -> bool:
        """Whether a connection may have another operation, whose request has so many bytes."""
        mine = len(connection.operations)
        if not mine:
            return True
        limits = self.limits
        count, room = limits.pending, limits.queued // 16
        if self.pending >= limits.operations // 2 or self.queued >= limits.queued // 2:
            count = min(count, limits.operations // 2 // len(self.connections))
            room = min(room, limits.queued // 2 // len(self.connections))
        return mine < count and connection.queued + size <= room

    def begin_sending(self, connection: Connection, size: int) -> None:
        """A connection has so many bytes to send; if all have too many, those that wait longest are cut off."""
        self.unsent += size
        connection.unsent += size
        self._slow.setdefault(connection)
        over = self.unsent - self.limits.unsent
        while over > 0:
            slowest = next(iter(self._slow))
            if slowest is connection:
                return
            del self._slow[slowest]
            over -= slowest.unsent
            self.counted["cut off"] += 1
            slowest.abort()

    def end_sending(self, connection: Connection, size: int) -> None:
        """They are sent, or never will be."""
        self.unsent -= size
        connection.unsent -= size
        # One that takes something goes behind those that take nothing.
        self._slow.pop(connection, None)
        if connection.unsent:
            self._slow[connection] = None

    # -- what operations ask

    def find_user(self, user: str) -> str | None:
        """The name of an entry for the name of a user; None if there is none."""
        if self._find_user is not None:
            return self._find_user(user)
        if user.startswith("dn:"):
            try:
                return str(DN.parse(user[3:]))
            except DNError:
                return None
        found = self.directory.candidates(Equal("uid", user))
        nodes = list(found) if found is not None else []
        return nodes[0].dn if len(nodes) == 1 else None

    def special(self, request: SearchRequest, connection: Connection) -> Node | None:
        """The root DSE (RFC 4512, 5.1) and the subschema, which everybody may read."""
        if request.scope != 0:
            return None
        if not request.base:
            values = {
                "objectclass": [b"top"],
                "namingcontexts": [suffix.encode() for suffix in self.directory.suffixes],
                "supportedcontrol": [oid.encode() for oid in SUPPORTED_CONTROLS],
                "supportedextension": [
                    oid.encode()
                    for oid in (wire.WHOAMI, wire.PASSWORD_MODIFY, *([wire.STARTTLS] if self.tls is not None else ()))
                ],
                # Modify-increment, all operational attributes, absolute true and false.
                "supportedfeatures": [b"1.3.6.1.1.14", b"1.3.6.1.4.1.4203.1.5.1", b"1.3.6.1.4.1.4203.1.5.3"],
                "supportedldapversion": [b"3"],
                "supportedsaslmechanisms": [one.encode() for one in connection.mechanisms()],
                "vendorname": [b"coro"],
            }
            return Node(self.directory, "", (), values)
        if request.base.replace(" ", "").lower() == "cn=subschema":
            schema = self.directory.schema
            values = {schema.key(name): held for name, held in schema.subschema().items()}
            return Node(self.directory, "cn=Subschema", DN.parse("cn=Subschema").normalized, values)
        return None
