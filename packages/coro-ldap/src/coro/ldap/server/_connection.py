"""One connection to the server: reading requests, logging in, StartTLS, and threads for the operations.

The thread of the connection reads.  Bind, Unbind, Abandon and StartTLS are done there and then, because nothing may go
on beside them (RFC 4511, 4.2.1 and 4.14.1).  Searches wait in a queue, as the bytes that came, and one thread does one
after the other: so a connection never holds more than one chunk of results.  Everything else gets a thread of its own.
At most `Limits.pending` wait or go on, fewer when the server has many, and more is refused as busy.  Threads start in
the order of the requests and do not wait before a change is in the tree, so a client that sends a change and a search
at once finds it changed.

Answers go through one lock.  A client that does not read has all its operations wait there, and after `Limits.send`
seconds it is cut off, or sooner if it is the one that has read nothing for longest when all clients together have left
`Limits.unsent` bytes unread.  What follows a StartTLS request in clear text is refused: somebody on the way could have
put it there (RFC 3207, 6, describes the attack for SMTP).

Invariants:
1. An id is in `operations` from the moment the request was read until its answer was sent.
2. `who` changes only while there are no operations.
3. Nothing is sent behind a notice of disconnection.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import coro
from coro.ldap._wire import Framer, encode_message
from coro.ldap.dn import DN
from coro.ldap.exceptions import DNError, ProtocolError
from coro.ldap.protocol import (
    AbandonRequest,
    BindRequest,
    Control,
    ExtendedRequest,
    SASLCredentials,
    SearchRequest,
    UnbindRequest,
)
from coro.ldap.server import _messages as wire
from coro.ldap.server._operations import HANDLERS, Operations, Page, controls_of
from coro.ldap.server._places import Place
from coro.ldap.server._refusal import Refused
from coro.ldap.server.access import Level, Name
from coro.ldap.server.passwords import check_password, hash_password, is_slow
from coro.ldap.server.sasl import MECHANISMS, Keys, Scram, keys_of_password, parse_keys, plain
from coro.log import Facility

if TYPE_CHECKING:
    from coro.ldap.server import Server

LOG = Facility("coro.ldap.server")

_RECEIVE = 64 * 1024
#: The tag of a search request.
_SEARCH = 3
#: Searches by pages that a connection may have open.
_PAGES = 8


class Operation:
    """A request that is being served."""

    __slots__ = ("_connection", "abandoned", "ahead", "controls", "id", "size")

    def __init__(self, connection: Connection, identity: int, size: int) -> None:
        self._connection = connection
        self.id = identity
        #: Bytes of the request.
        self.size = size
        self.abandoned = False
        #: Controls of the answer, encoded.
        self.controls = b""
        #: Messages that are sent together with the answer.
        self.ahead = b""

    def send(self, data: bytes) -> None:
        """Send whole messages, unless the client has abandoned the operation."""
        self.check()
        self._connection.send(data)
        self.check()

    def go_on(self) -> None:
        """Let other threads run; ends the operation if it was abandoned."""
        coro.yield_slice()
        self.check()

    def check(self) -> None:
        """End the operation if it was abandoned."""
        if self.abandoned:
            raise _Abandoned


class _Abandoned(Exception):
    """The operation was abandoned: there is no answer."""


class Connection:
    """A client's connection.  stream: what comes from `coro.Server`; `secure` if TLS is on already."""

    def __init__(self, server: Server, stream: Any, secure: bool, local: bool, place: Place) -> None:
        self.server = server
        self.place = place
        #: Who takes turns with others where passwords are checked.
        self.client = place.client
        #: Bytes of requests that are not answered, and of answers that are not sent.
        self.queued = self.unsent = 0
        self.stream = stream
        self.secure = secure
        self.local = local
        #: Who is logged in: the name as text and as it is compared.
        self.dn = ""
        self.who: Name = ()
        self.operations: dict[int, Operation] = {}
        self.pages: dict[bytes, Page] = {}
        limits = server.limits
        self.decoder = wire.Decoder(limits.filter_depth, limits.filter_parts)
        self._framer = Framer(limits.message, entries=False)
        self._lock = coro.mutex()
        self._idle = coro.condition_variable()
        self._scram: Scram | None = None
        self._failures = 0
        self._closed = False
        self._group: Any = None
        self._work = Operations(self)
        self._searches: deque[tuple[Operation, bytes]] = deque()
        self._searching = self._reading = self._greeted = False
        place.is_silent = lambda: not self.operations and not self._reading
        place.is_known = lambda: bool(self.who)

    # -- reading

    def run(self) -> None:
        """Serve until the client goes."""
        with coro.group() as self._group:
            try:
                self._read()
            except ProtocolError as exc:
                self.server.counted["protocol errors"] += 1
                self.disconnect(2, str(exc))
            except (coro.TimeoutError, coro.ClosedError, OSError, EOFError):
                pass
            finally:
                self._closed = True
                self._group.shutdown()

    def _read(self) -> None:
        limits = self.server.limits
        until = time.monotonic() + limits.login
        while not self._closed:
            seconds = limits.idle if self._greeted else max(until - time.monotonic(), 0.0)
            try:
                data = coro.with_timeout(seconds, self.stream.recv, _RECEIVE)
            except coro.TimeoutError:
                if self.operations:
                    continue
                what = "nothing came" if self._greeted else "there was neither a login nor another request"
                self.disconnect(52, f"{what} for {limits.idle if self._greeted else limits.login:g} seconds")
                return
            if not data:
                return
            messages = self._framer.receive(data)
            self._reading = True
            for number, (identity, tag, message) in enumerate(messages, 1):
                if not self._take(identity, tag, message, number == len(messages)):
                    return
            self._reading = False
            if messages:
                self.server.places.touch(self.place)
                self._framer.receive(b"")  # raises what was wrong behind them

    def _take(self, identity: int, tag: int, message: bytes, last: bool) -> bool:
        """Serve one message; False if it was the last of the connection."""
        if identity == 0:
            raise ProtocolError("expected the id of a request from 1 on, got 0")
        if identity in self.operations:
            raise ProtocolError(f"expected a new id, got {identity}, whose operation is going on")
        if tag == _SEARCH:
            self._scram = None
            op = self._begin(identity, wire.ANSWERS[tag], len(message))
            if op is not None:
                self._searches.append((op, message))
                if not self._searching:
                    self._searching = True
                    self._group.spawn(self._search, thread_name="LDAP searches")
            return True
        try:
            request, given = self.decoder.request(message)
        except ProtocolError as exc:
            self._refuse(identity, exc)
            return True
        if isinstance(request, UnbindRequest):
            return False
        if isinstance(request, AbandonRequest):
            if request.message_id in self.operations:
                self.operations[request.message_id].abandoned = True
            return True
        if isinstance(request, BindRequest):
            self._bind(identity, request, given)
            return not self._closed
        self._scram = None
        if isinstance(request, ExtendedRequest) and request.name == wire.STARTTLS:
            self._start_tls(identity, request, last)
            return True
        tag, handler = HANDLERS[type(request)]
        op = self._begin(identity, tag, len(message))
        if op is not None:
            self._group.spawn(self._operate, op, tag, handler, request, given, thread_name="LDAP operation")
        return True

    def _refuse(self, identity: int, exc: ProtocolError) -> None:
        """Answer a request that is malformed; raises the error if it is not clear what kind of request it is."""
        if exc.tag not in wire.ANSWERS:
            raise exc
        self.server.counted["protocol errors"] += 1
        self.send(encode_message(identity, wire.result(wire.ANSWERS[exc.tag], 2, "", str(exc))))

    def _begin(self, identity: int, tag: int, size: int) -> Operation | None:
        """An operation that waits or goes on from now; None if there is no room, which the client is told."""
        if not self.server.has_room(self, size):
            self.server.counted["busy"] += 1
            self.send(encode_message(identity, wire.result(tag, 51, "", "too many operations at a time")))
            return None
        self._greeted = True
        op = self.operations[identity] = Operation(self, identity, size)
        self.queued += size
        self.server.pending += 1
        self.server.queued += size
        return op

    def _end(self, op: Operation) -> None:
        del self.operations[op.id]
        self.queued -= op.size
        self.server.pending -= 1
        self.server.queued -= op.size
        if not self.operations:
            self.server.places.touch(self.place)
            self._idle.wake_all()

    def _search(self) -> None:
        """Do one search after the other."""
        try:
            while self._searches:
                op, message = self._searches.popleft()
                try:
                    op.check()
                    request, given = self.decoder.request(message)
                    assert isinstance(request, SearchRequest)
                except _Abandoned:
                    self._end(op)
                    continue
                except ProtocolError as exc:
                    try:
                        self._refuse(op.id, exc)
                    finally:
                        self._end(op)
                    continue
                self._operate(op, *HANDLERS[SearchRequest], request, given)
        except ProtocolError as exc:
            self.server.counted["protocol errors"] += 1
            self.disconnect(2, str(exc))
        except (coro.ClosedError, OSError, coro.TimeoutError):
            pass
        finally:
            self._searching = False
            while self._searches:
                self._end(self._searches.popleft()[0])

    def _operate(self, op: Operation, tag: int, handler: Callable[..., bytes], request: Any, given: Any) -> None:
        self.server.counted[handler.__name__.replace("_", "")] += 1
        try:
            try:
                answer = handler(self._work, op, request, controls_of(request, given))
            except Refused as exc:
                op.controls = b""
                answer = wire.result(tag, exc.code, exc.matched, exc.diagnostic)
            except ProtocolError as exc:
                answer = wire.result(tag, 2, "", str(exc))
            except (_Abandoned, coro.ClosedError, OSError, coro.TimeoutError, coro.Shutdown):
                raise
            except Exception:
                LOG.exc()
                self.server.counted["faults"] += 1
                answer = wire.result(tag, 80, "", "the server has an internal fault")
            op.send(op.ahead + encode_message(op.id, answer, op.controls))
        except (_Abandoned, coro.ClosedError, OSError, coro.TimeoutError):
            pass
        finally:
            self._end(op)

    # -- sending

    def send(self, data: bytes) -> None:
        """Send whole messages.  Cuts the client off when it does not read."""
        self.server.begin_sending(self, len(data))
        try:
            with self._lock:
                if self._closed:
                    raise coro.ClosedError("the connection is closed")
                try:
                    coro.with_timeout(self.server.limits.send, self.stream.sendall, data)
                except (coro.TimeoutError, coro.Interrupted):
                    # A part of a message may be on its way: nothing can follow it.
                    self.server.counted["cut off"] += 1
                    self.abort()
                    raise
        finally:
            self.server.end_sending(self, len(data))

    def disconnect(self, code: int, text: str) -> None:
        """Say why, and close (RFC 4511, 4.4.1)."""
        if self._closed:
            return
        notice = encode_message(0, wire.extended_answer(code, text, wire.NOTICE_OF_DISCONNECTION))
        try:
            # Not longer than this: a client that does not read learns it from the closed connection.
            with coro.timeout(1.0), self._lock:
                self._closed = True
                self.stream.sendall(notice)
        except (coro.TimeoutError, coro.ClosedError, OSError):
            pass
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        self._closed = True
        with contextlib.suppress(OSError, coro.ClosedError):
            self.server.sockets[self].shutdown(socket.SHUT_RDWR)

    def keep_page(self, page: Page) -> bytes:
        """Keep a search for its next page; returns its cookie."""
        while len(self.pages) >= _PAGES:
            del self.pages[next(iter(self.pages))]
        cookie = os.urandom(8)
        self.pages[cookie] = page
        return cookie

    # -- TLS

    def _start_tls(self, identity: int, request: ExtendedRequest, last: bool) -> None:
        if not last or self._framer.buffered:
            raise ProtocolError("expected nothing behind a request for TLS before the answer (RFC 4511, 4.14.1)")
        code, text = 0, ""
        if request.value is not None:
            code, text = 2, "StartTLS has no value"
        elif self.secure:
            code, text = 1, "TLS is on already"
        elif self.operations:
            code, text = 1, "operations are going on"
        elif self.server.tls is None:
            code, text = 52, "the server has no certificate"
        self.send(encode_message(identity, wire.extended_answer(code, text, wire.STARTTLS)))
        if code:
            return
        with coro.timeout(self.server.limits.handshake):
            self.stream = self.server.tls.wrap(self.stream, server_side=True)
        self.secure = True
        # What was learnt in clear text does not count any more.
        self._login("")

    # -- logging in

    def _login(self, dn: str) -> None:
        self.dn = dn
        self.who = DN.parse(dn).normalized
        self.pages.clear()

    def _bind(self, identity: int, request: BindRequest, given: tuple[Control, ...]) -> None:
        for op in self.operations.values():
            op.abandoned = True
        while self.operations:
            self._idle.wait()
        self.server.counted["bind"] += 1
        exchange, self._scram = self._scram, None
        # Whatever comes of it: who was logged in is not any more (RFC 4513, 4).
        self._login("")
        credentials: bytes | None = None
        code, text = 0, ""
        try:
            controls_of(request, given)
            if request.version != 3:
                raise Refused(2, f"this server speaks LDAP version 3, not {request.version}")
            login = request.authentication
            if isinstance(login, SASLCredentials):
                code, dn, credentials = self._sasl(login, exchange)
            else:
                dn = self._simple(request.name, login)
            if code == 0:
                self._login(dn)
                self._greeted = True
        except Refused as exc:
            code, text = exc.code, exc.diagnostic
        except DNError as exc:
            code, text = 34, str(exc)
        if code == 49:
            self._failures += 1
            self.server.counted["failed binds"] += 1
            text = "wrong user or password"
        self.send(encode_message(identity, wire.bind_answer(code, text, credentials)))
        if self._failures >= self.server.limits.failed_binds:
            self.disconnect(8, "too many failed logins")

    def _safe(self) -> bool:
        return self.secure or self.local

    def _simple(self, name: str, password: bytes) -> str:
        if not name and not password:
            return ""
        if not password:
            # RFC 4513, 5.1.2: a program that forgets the password would think that it is logged in.
            raise Refused(53, "a login with a name and without a password is refused")
        if self.server.require_tls and not self._safe():
            raise Refused(13, "passwords are taken with TLS only")
        return self._password(name, password)

    def _password(self, name: str, password: bytes) -> str:
        """The name of who has this password.  Raises Refused."""
        dn = DN.parse(name)
        key = dn.normalized
        admin = self.server.admins.get(key)
        node = self.server.directory.nodes.get(key)
        stored: list[bytes] = []
        if admin is not None:
            stored = [admin] if admin else []
            found = str(dn)
        elif node is not None and self._may_login(key, "userpassword"):
            stored = list(node.attributes.get("userpassword", ()))
            found = node.dn
        spent, slow = 0.0, False
        for value in stored:
            if is_slow(value):
                slow = True
                fits, seconds = self.server.hashing.run(self.client, check_password, value, password)
                spent += seconds
            else:
                fits = check_password(value, password)
            if fits:
                return found
        # Who does not exist, and whose hash is quick, takes as long as others.
        if not slow:
            spent += self.server.hashing.run(self.client, check_password, self.server.decoy, password)[1]
        coro.sleep_relative(self.server.pace.rest(spent))
        raise Refused(49)

    def _may_login(self, name: Name, attribute: str) -> bool:
        return self.server.access.viewer(()).view(name).level(attribute) >= Level.AUTH

    def _sasl(self, login: SASLCredentials, exchange: Scram | None) -> tuple[int, str, bytes | None]:
        mechanism = login.mechanism.upper()
        data = login.credentials
        if mechanism not in self.mechanisms():
            raise Refused(
                7, f"the mechanism {mechanism!r:.40} is not offered; these are: {', '.join(self.mechanisms())}"
            )
        if mechanism == "EXTERNAL":
            return 0, self._external(data or b""), None
        if mechanism == "PLAIN":
            authorization, user, password = plain(data or b"")
            dn = self._password(self.server.find_user(user) or "cn=nobody", password)
            self._same(authorization, dn)
            return 0, dn, None
        if exchange is None or exchange.mechanism != mechanism:
            if not data:
                # A client may begin without a message (RFC 4513, 5.2.1.2).
                self._scram = Scram(mechanism, lambda user: self._keys(mechanism, user))
                return 14, "", None
            exchange = Scram(mechanism, lambda user: self._keys(mechanism, user))
        answer = exchange.step(data or b"")
        if not exchange.done:
            self._scram = exchange
            return 14, "", answer
        found = self.server.find_user(exchange.user)
        if found is None:
            raise Refused(49)
        self._same(exchange.authorization, found)
        return 0, found, answer

    def mechanisms(self) -> list[str]:
        """The SASL mechanisms that are offered here and now."""
        found = [*MECHANISMS]
        if self.local or (self.secure and self._certificate()):
            found.append("EXTERNAL")
        if self._safe() or not self.server.require_tls and self.server.plain_without_tls:
            found.append("PLAIN")
        return found

    def _same(self, authorization: str, dn: str) -> None:
        """Nobody acts for another one here."""
        if not authorization:
            return
        name = authorization.removeprefix("u:").removeprefix("dn:")
        wanted = name if authorization.startswith("dn:") or "=" in name else self.server.find_user(name)
        if wanted is None or DN.parse(wanted) != DN.parse(dn):
            # As slapd does without rules for proxies: insufficientAccessRights.
            raise Refused(50, "nobody may act for another one here")

    def _keys(self, mechanism: str, user: str) -> Keys | None:
        dn = self.server.find_user(user)
        node = None if dn is None else self.server.directory.nodes.get(DN.parse(dn).normalized)
        found: Keys | None = None
        password: bytes | None = None
        if node is not None and self._may_login(node.name, "authpassword"):
            keys = (parse_keys(mechanism, value) for value in node.attributes.get("authpassword", ()))
            found = next((one for one in keys if one is not None), None)
        if found is None and node is not None and self._may_login(node.name, "userpassword"):
            values = node.attributes.get("userpassword", ())
            password = next((value for value in values if not value.startswith(b"{")), None)
        # Keys are computed in any case: how long that takes would tell who exists.
        made: Keys = self.server.hashing.run(
            self.client, keys_of_password, mechanism, user, password if password is not None else b"nobody"
        )[0]
        return made if password is not None else found

    def _certificate(self) -> str:
        """The subject of the client's certificate as a name; "" if it has shown none."""
        look = getattr(self.stream, "getpeercert", None)
        certificate = look() if look is not None else None
        if not certificate:
            return ""
        pairs = [tuple(rdn) for rdn in certificate.get("subject", ())]
        short = {"commonName": "cn", "organizationName": "o", "organizationalUnitName": "ou", "countryName": "c",
                 "localityName": "l", "stateOrProvinceName": "st", "domainComponent": "dc", "userId": "uid",
                 "surname": "sn", "emailAddress": "mail"}  # fmt: skip
        try:
            return str(DN(*(tuple((short.get(name, name), value) for name, value in rdn) for rdn in reversed(pairs))))
        except DNError:
            return ""

    def _external(self, authorization: bytes) -> str:
        if self.secure:
            name = self._certificate()
        else:
            pid, uid, gid = struct.unpack(
                "3i", self.stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            )
            name = f"gidNumber={gid}+uidNumber={uid},cn=peercred,cn=external,cn=auth"
        found = self.server.external(name) if self.server.external is not None else name
        if not found:
            raise Refused(49)
        self._same(authorization.decode("utf-8", "replace"), found)
        return str(found)


def decoy(scheme: str) -> bytes:
    """A password that nobody has, which takes as long to check as others."""
    return hash_password(os.urandom(16).hex(), scheme)
