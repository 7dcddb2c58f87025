"""The LDAP client: one connection, which any number of threads may use at the same time.

    with client("ldaps://ldap.example.org") as directory:
        directory.simple_bind("cn=reader,dc=example,dc=org", password)
        for entry in directory.search_iter("dc=example,dc=org", filter="(sn=Smith)", attributes=["cn", "mail"]):
            print(entry.dn, entry.text("mail"))

Each operation waits for its own answer; those of other threads go on meanwhile, because answers are told apart by the
id of the message.  Results are checked: what is not success raises the exception of its code.  `send_message`,
`simple_bind`, `sasl_bind` and `search` are those of the first coro.ldap and return raw answers.

Cost: the connection (_client/link.py) and, for each operation, two small objects and an event.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NoReturn, Self

import coro
from coro.asn1 import ber
from coro.ldap import controls as _controls
from coro.ldap._client.classic import (
    AUTH,
    DEREF,
    LDAP,
    RESULT,
    SCOPE,
    Reply,
    encode_abandon,
    encode_bind_request,
    encode_message,
    encode_sasl_bind,
    encode_search_request,
    encode_simple_bind,
    encode_starttls,
    filter_of,
    scope_and_names,
)
from coro.ldap._client.link import Link, LinkStatistics
from coro.ldap._client.referrals import Chase, Referrals
from coro.ldap._client.search import Search
from coro.ldap._wire import MAX_MESSAGE, Entry
from coro.ldap.controls import AnyControl, PagedResults
from coro.ldap.exceptions import (
    ConnectionLost,
    Error,
    InvalidCredentials,
    LDAPTimeout,
    LocalError,
    NoSuchObject,
    ProtocolError,
    ReferralReceived,
    SizeLimitExceeded,
    StateError,
    TLSRequired,
    error_for,
    result_string,
)
from coro.ldap.filters import Filter
from coro.ldap.protocol import (
    ADD,
    DELETE,
    INCREMENT,
    REPLACE,
    STARTTLS,
    AbandonRequest,
    AddRequest,
    BindResponse,
    Change,
    CompareRequest,
    Control,
    DelRequest,
    ExtendedRequest,
    ExtendedResponse,
    ModifyDNRequest,
    ModifyRequest,
    Operation,
    Result,
    SearchRequest,
    SearchResultReference,
    decode,
)
from coro.ldap.url import LDAPUrl, is_ldap_url

__all__ = [
    "AUTH",
    "DEREF",
    "LDAP",
    "RESULT",
    "SCOPE",
    "Client",
    "Error",
    "LinkStatistics",
    "ProtocolError",
    "Referrals",
    "Reply",
    "Search",
    "client",
    "encode_abandon",
    "encode_bind_request",
    "encode_message",
    "encode_sasl_bind",
    "encode_search_request",
    "encode_simple_bind",
    "encode_starttls",
    "result_string",
]

#: Extended operations: RFC 4532, RFC 3062, RFC 3909.
WHO_AM_I = "1.3.6.1.4.1.4203.1.11.3"
PASSWORD_MODIFY = "1.3.6.1.4.1.4203.1.11.1"
CANCEL = "1.3.6.1.1.8"

#: Entries of a page, when a search reads pages by itself.
PAGE = 1000

_OPERATIONS = {"add": ADD, "delete": DELETE, "replace": REPLACE, "increment": INCREMENT}
#: A BindResponse of success, without anything else: what nearly every answer to a bind ends with.
_PLAIN_SUCCESS = b"\x61\x07\x0a\x01\x00\x04\x00\x04\x00"
#: Controls that shape a search themselves, so it is not read in pages.
_NO_PAGES = frozenset(
    {
        _controls.PAGED_RESULTS,
        _controls.VLV_REQUEST,
        _controls.SYNC_REQUEST,
        _controls.PERSISTENT_SEARCH,
        _controls.DIR_SYNC,
        _controls.NOTIFICATION,
    }
)

_Default = Literal["default"]
_Changes = Iterable[Change | tuple[str | int, str, Sequence[bytes | str]]] | Mapping[str, Sequence[bytes | str]]
_verifying: ssl.SSLContext | None = None


def _default_tls() -> ssl.SSLContext:
    """The context of those who give none: certificates are verified.  Made once; the authorities take long to read."""
    global _verifying
    if _verifying is None:
        _verifying = ssl.create_default_context()
    return _verifying


def _plain(controls: Iterable[AnyControl]) -> list[Control]:
    if isinstance(controls, (Control, _controls.TypedControl, str)):
        raise TypeError(f"expected a list of controls, got {controls!r:.200}")
    return [one if type(one) is Control else one.control() for one in controls]  # type: ignore[union-attr]


class client:
    """client(addr, *, tls=None, starttls=False, server_hostname=None, timeout=10.0, connect_timeout=10.0, ...)

    A connection to an LDAP server.  It is made at once.

    addr: a URL (ldap://host:port, ldaps://host, ldapi://%2Frun%2Fslapd), an address tuple, or the path of a UNIX
    socket.  tls: a TLS context, an ``ssl.SSLContext`` or one with ``wrap``; None for one that verifies certificates
    with the authorities of the system.  starttls: begin TLS before anything else.  server_hostname: the name in the
    certificate, if it is not the host's.  timeout: seconds to wait for each answer, unless a call has its own.
    connect_timeout: seconds for the connection and TLS.  cleartext_passwords: True lets passwords go over the network
    without TLS; over loopback and UNIX sockets they always may.  max_message: bytes of a message at most.  on_notice:
    called with each unsolicited notification, an `ExtendedResponse`.  referrals: how those are followed; None for not
    at all.  concurrent_pages: whether several searches may be read in pages at the same time.  Active Directory lets
    them; OpenLDAP keeps the state of one for each connection, so others meanwhile are not read in pages.
    max_outstanding: operations without an answer at most; further ones wait.  OpenLDAP ends an anonymous connection
    with more than a hundred.

    Raises OSError if there is no connection, coro.NameError if the host's name is not known, LDAPTimeout, and
    coro.tls.HandshakeError and its kinds.
    """

    def __init__(
        self,
        addr: str | tuple[Any, ...] | LDAPUrl,
        *,
        tls: Any = None,
        starttls: bool = False,
        server_hostname: str | None = None,
        timeout: float | None = 10.0,
        connect_timeout: float = 10.0,
        cleartext_passwords: bool = False,
        max_message: int = MAX_MESSAGE,
        on_notice: Callable[[ExtendedResponse], object] | None = None,
        referrals: Referrals | None = None,
        concurrent_pages: bool = False,
        max_outstanding: int = 100,
    ) -> None:
        self.concurrent_pages = concurrent_pages
        self._paging = 0  # searches that are read in pages
        self.default_timeout = timeout
        self.ldap_protocol_version = 3
        self.cleartext_passwords = cleartext_passwords
        self.referrals = referrals
        #: Who was logged in last, as given; "" for nobody.
        self.bound_as = ""
        self.addr = addr
        self._settings: dict[str, Any] = {
            "tls": tls, "starttls": starttls, "server_hostname": server_hostname, "timeout": timeout,
            "connect_timeout": connect_timeout, "cleartext_passwords": cleartext_passwords,
            "max_message": max_message, "on_notice": on_notice, "referrals": referrals,
            "concurrent_pages": concurrent_pages, "max_outstanding": max_outstanding,
        }  # fmt: skip
        self._tls = tls
        if isinstance(addr, str) and is_ldap_url(addr):
            addr = LDAPUrl(addr)
        #: The URL that it was connected by, if it was one.
        self.url = addr if isinstance(addr, LDAPUrl) else None
        target, self._host, ldaps = _target(addr)
        self._hostname = server_hostname or self._host
        self.local = not isinstance(target, tuple)
        shown = str(target) if self.local else f"{target[0]}:{target[1]}"
        scope = coro.move_on_after(connect_timeout)
        sock: Any = None
        wrapped = False
        with scope:
            sock = coro.connect(target) if self.local else coro.connect(*target)
            if ldaps:
                sock = self._wrap(sock, tls, self._hostname)
            wrapped = True
        if not wrapped:
            self._give_way(sock)
            step = "a connection" if sock is None else "a TLS handshake"
            raise LDAPTimeout(f"expected {step} with {shown} within {connect_timeout:g} s, got none")
        self._loopback = self.local or _is_loopback(sock)
        self.link = Link(
            sock,
            name=shown,
            secure=ldaps or self.local,
            max_message=max_message,
            on_notice=on_notice,
            most=max_outstanding,
        )
        if starttls:
            try:
                self.starttls(timeout=connect_timeout)
            except BaseException:
                self.link.end(StateError("StartTLS failed"))
                raise

    @staticmethod
    def _give_way(sock: Any) -> None:
        if sock is not None:
            sock.close()

    @staticmethod
    def _wrap(sock: Any, tls: Any, hostname: str | None) -> Any:
        done = False
        try:
            context = coro.tls.context(_default_tls() if tls is None else tls)
            wrapped = context.wrap(sock, server_hostname=hostname)
            done = True
            return wrapped
        finally:
            if not done:
                sock.close()

    def __repr__(self) -> str:
        state = ("TLS" if self.link.secure else "clear text") if self.alive else "closed"
        return f"<ldap client of {self.link.name}, {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the connection is there."""
        return self.link.alive

    @property
    def secure(self) -> bool:
        """Whether it is encrypted, or a UNIX socket."""
        return self.link.secure

    @property
    def tls_object(self) -> Any:
        """The TLS stream, for its certificate or channel binding; None without TLS."""
        sock = self.link.sock
        return sock if hasattr(sock, "get_channel_binding") else None

    def statistics(self) -> LinkStatistics:
        """Numbers about the connection."""
        return self.link.statistics()

    def close(self) -> None:
        """Say goodbye and close (RFC 4511, 4.3).  Operations of other threads fail.  Does nothing the second time."""
        self.link.close()

    def unbind(self) -> None:
        """The same, under the name of the operation."""
        self.close()

    def clone(self) -> client:
        """Another connection to the same place with the same settings.  Nobody is logged in there."""
        return type(self)(self.addr, **self._settings)

    def _other(self, url: LDAPUrl, tls: Any) -> client:
        settings = {
            **self._settings,
            "tls": tls if tls is not None else self._settings["tls"],
            "server_hostname": None,
            "starttls": self._settings["starttls"] and url.urlscheme == "ldap",
            "referrals": None,
        }
        return type(self)(url, **settings)

    # ---- operations in general

    def _time(self, timeout: float | None | _Default) -> float | None:
        return self.default_timeout if timeout == "default" else timeout

    def send_message(self, op: bytes | Operation, controls: Iterable[AnyControl] = ()) -> Reply:
        """Send an operation and return its raw answer, whatever its result is.

        op: encoded, or an object of `coro.ldap.protocol`.  Raises LDAPTimeout and ConnectionLost.
        """
        return _reply(self.link.ask(op, _plain(controls), self.default_timeout))

    def operation(
        self,
        op: Operation,
        controls: Iterable[AnyControl] = (),
        timeout: float | None | _Default = "default",
        referrals: Referrals | None = None,
    ) -> Any:
        """Send any operation but a search or a bind, and return its `Result`.

        op: an object of `coro.ldap.protocol`.  controls: `Control` objects or those of `coro.ldap.controls`.  timeout:
        seconds to wait for the answer, None for ever.  referrals: how those are followed.  Raises the class of
        exception for the code if it is not success, LDAPTimeout, ConnectionLost, LocalError.
        """
        seconds = self._time(timeout)
        plain = _plain(controls) if controls else ()
        result = self.link.request(op, plain, seconds).op
        assert isinstance(result, Result)
        if result.code == 0 or (result.code in (5, 6) and type(op) is CompareRequest):
            return result
        policy = referrals or self.referrals
        if result.code == 10 and policy is not None:
            chase = Chase(self, policy)
            try:
                return chase.operation(op, result.referrals, plain, seconds)
            finally:
                chase.close()
        raise error_for(result)

    # ---- logging in

    def exclusive(self, timeout: float | None | _Default = "default") -> AbstractContextManager[None]:
        """Be alone on the connection within a block, as a login has to be: other threads wait with new operations.

        timeout: seconds to wait until what is under way has been answered.  Raises LDAPTimeout.
        """
        return self.link.exclusive(self._time(timeout))

    def _bind(self, op: bytes, controls: Iterable[AnyControl], timeout: float | None) -> Reply:
        payload = self.link.ask(op, _plain(controls) if controls else (), timeout)
        # Compared from behind the id on: a diagnostic message, which others may influence, must not look like this.
        if payload[1] == len(payload) - 2 and payload[4 + payload[3] :] == _PLAIN_SUCCESS:
            return Reply(("application", 1, [0, b"", b""]))
        reply = _reply(payload)
        if reply.result.code not in (0, 14):
            raise error_for(reply.result)
        return reply

    def check_secret(self, what: str = "a password") -> None:
        """Raise TLSRequired if `what` would go over the network in clear text, and that was not allowed."""
        if not (self.link.secure or self._loopback or self.cleartext_passwords):
            raise TLSRequired(
                f"expected TLS before {what} is sent: use ldaps://, starttls(), or cleartext_passwords=True"
            )

    def simple_bind(
        self,
        name: str | bytes = "",
        password: str | bytes = "",
        controls: Iterable[AnyControl] = (),
        timeout: float | None | _Default = "default",
    ) -> Reply:
        """Log in with a password (RFC 4511, 4.2), or as nobody without one.  Returns the raw answer.

        name: the entry of who logs in.  Raises InvalidCredentials and other results; LocalError for a name without a
        password, which servers take for nobody and answer with success (RFC 4513, 5.1.2); TLSRequired.
        """
        if name and not password:
            raise LocalError(
                "expected a password with a name: servers take an empty one for an anonymous login and let everybody "
                "in (RFC 4513, 5.1.2)"
            )
        link = self.link
        if password and not link.secure:
            self.check_secret()
        op = encode_simple_bind(self.ldap_protocol_version, name, password)
        seconds = self.default_timeout if timeout == "default" else timeout
        link.begin_alone(seconds)
        try:
            self.bound_as = ""
            reply = self._bind(op, controls, seconds)
            if reply[2][0]:
                raise error_for(reply.result)
            self.bound_as = name if isinstance(name, str) else name.decode("utf-8", "replace")
        finally:
            link.end_alone()
        return reply

    def bind_step(
        self,
        mechanism: str,
        credentials: bytes | None = None,
        name: str = "",
        controls: Iterable[AnyControl] = (),
        timeout: float | None | _Default = "default",
    ) -> BindResponse:
        """One step of a login by SASL (RFC 4513, 5.2), within a block of `exclusive`.

        credentials: what the mechanism wants to send, None for nothing.  Returns the answer: code 14 if the server
        wants another step, 0 if that was the last.  Raises the class of exception of other codes.
        """
        op = encode_sasl_bind(self.ldap_protocol_version, name, mechanism, credentials)
        self.bound_as = ""
        result = self._bind(op, controls, self._time(timeout)).result
        assert isinstance(result, BindResponse)
        return result

    def sasl_bind(
        self,
        name: str | bytes,
        mechanism: str | bytes,
        credentials: str | bytes | None = b"",
        controls: Iterable[AnyControl] = (),
        timeout: float | None | _Default = "default",
    ) -> Reply:
        """Log in by a mechanism of SASL of one step, such as EXTERNAL.  Returns the raw answer.

        Raises SaslBindInProgress if the server wants more steps, other results, and TLSRequired for PLAIN.
        """
        if mechanism in ("PLAIN", b"PLAIN", "LOGIN", b"LOGIN") and not (self.secure or self.cleartext_passwords):
            raise TLSRequired("expected TLS before a password is sent by PLAIN: use ldaps://, or starttls()")
        op = encode_sasl_bind(self.ldap_protocol_version, name, mechanism, credentials)
        seconds = self._time(timeout)
        with self.link.exclusive(seconds):
            self.bound_as = ""
            reply = self._bind(op, controls, seconds)
            if reply.result.code == 14:
                raise error_for(reply.result)
        return reply

    def check_password(self, name: str, password: str | bytes, timeout: float | None | _Default = "default") -> bool:
        """Whether this is the password of the entry.  Asked over a connection of its own, so this login stays.

        False also for an empty password, without asking.  Raises what the connection raises, and results that say
        nothing about the password.
        """
        if not password or not name:
            return False
        with self.clone() as other:
            try:
                other.simple_bind(name, password, timeout=timeout)
            except InvalidCredentials:
                return False
        return True

    def starttls(
        self,
        tls: Any = None,
        *,
        server_hostname: str | None = None,
        timeout: float | None | _Default = "default",
    ) -> None:
        """Encrypt the connection from here on (RFC 4511, 4.14).

        tls: a TLS context; None for the one of the connection.  server_hostname: the name in the certificate.  timeout:
        seconds for the answer and for the handshake.  Raises coro.tls.HandshakeError and its kinds, CertificateError
        for one, with the connection closed; the result if the server refuses; StateError if there is TLS already.
        """
        link = self.link
        if self.tls_object is not None:
            raise StateError("expected a connection without TLS, it has it already")
        context = tls if tls is not None else self._tls
        hostname = server_hostname or self._hostname
        seconds = self._time(timeout)
        with link.exclusive(seconds):
            pending = link.start(
                ExtendedRequest(STARTTLS), (), seconds, lambda sock: self._wrap(sock, context, hostname)
            )
            try:
                result = pending.message(seconds).op
            except ConnectionLost:
                if pending.failure is not None:
                    raise pending.failure from None
                raise
            if not isinstance(result, Result):
                # The answer may still come, and TLS with it: nothing may be sent on this connection.
                pending.give_up("the server sent something else than the answer to StartTLS")
                raise ProtocolError(f"expected the answer to StartTLS, got {result!r:.80}")
            if result.code:
                raise error_for(result)
            self.bound_as = ""

    # ---- searching

    def search(
        self,
        base_object: str,
        scope: int | None = None,
        deref_aliases: int = 0,
        size_limit: int = 0,
        time_limit: int = 0,
        types_only: bool = False,
        filter: Filter | str | bytes = "(objectClass=*)",
        which_attrs: Iterable[str] | None = None,
        compatibility: Mapping[str, Any] | None = None,
    ) -> list[list[Any]]:
        """All entries at once, as nested lists of bytes: [[dn, [[attribute, [value, ...]], ...]], ...].

        The arguments are those of `encode_search_request`.  `search_iter` is the same for new programs.  Raises the
        class of exception for a result that is not success.  References to other servers are left out.
        """
        op = encode_search_request(
            base_object, scope, deref_aliases, size_limit, time_limit, types_only, filter, which_attrs, compatibility
        )
        found: list[list[Any]] = []
        names: dict[str, bytes] = {}
        with Search(self.link, op, (), self.default_timeout) as running:
            for item in running:
                if isinstance(item, Entry):
                    held = item.attributes
                    for name in held.keys() - names.keys():
                        names[name] = _raw(name)
                    found.append([_raw(item.dn), [[names[name], values] for name, values in held.items()]])
        return found

    def stream(
        self,
        request: SearchRequest,
        controls: Iterable[AnyControl] = (),
        timeout: float | None | _Default = "default",
    ) -> Search:
        """Send a search and return it; iterate over it, and close it.  timeout: seconds from one message to the next.

        This is the search without pages and referrals, for those who look at each message.
        """
        return Search(self.link, request, _plain(controls), self._time(timeout))

    def search_iter(
        self,
        base: str = "",
        scope: int = SCOPE.SUBTREE,
        filter: Filter | str | bytes = "(objectClass=*)",
        attributes: Iterable[str] | None = None,
        *,
        deref: int = DEREF.NEVER,
        size_limit: int = 0,
        time_limit: int = 0,
        types_only: bool = False,
        controls: Iterable[AnyControl] = (),
        timeout: float | None | _Default = "default",
        page_size: int = PAGE,
        references: bool = False,
        referrals: Referrals | None = None,
    ) -> Iterator[Any]:
        """The entries of a search as they arrive, each an `Entry`.

        base: name of the entry to begin at.  scope: a number of `SCOPE`.  filter: text, or an object.  attributes:
        names, None for all user attributes, an empty list for none.  deref: a number of `DEREF`.  size_limit in
        entries, time_limit in seconds, 0 for none.  types_only: no values.  controls: also sent.  timeout: seconds from
        one message to the next.  page_size: entries of a page (RFC 2696), of which as many are asked for as there are;
        0 for none.  references: give `SearchResultReference` objects, too, which are left out otherwise.  referrals:
        how those and referrals are followed.

        Memory does not grow with the number of entries.  A loop that is left early abandons the rest.  Raises the class
        of exception for a result that is not success, behind the entries that came before it; LDAPTimeout,
        ConnectionLost, LocalError, ReferralError.
        """
        names = scope_and_names(scope, attributes, None)[1]
        wanted: Any = filter_of(filter)
        request = SearchRequest(base, scope, wanted, names, deref, size_limit, time_limit, types_only)
        plain = _plain(controls)
        options: dict[str, Any] = {"timeout": self._time(timeout), "page_size": page_size}
        policy = referrals or self.referrals
        if policy is not None:
            return self._followed(policy, request, plain, options)
        items = self._items(request, plain, **options)
        return items if references else (item for item in items if type(item) is Entry)

    def _followed(
        self, policy: Referrals, request: SearchRequest, controls: list[Control], options: dict[str, Any]
    ) -> Iterator[Entry]:
        chase = Chase(self, policy)
        try:
            try:
                for item in self._items(request, controls, **options):
                    if isinstance(item, SearchResultReference):
                        yield from chase.search(request, item.urls, controls, options, 0, True)
                    else:
                        yield item
            except ReferralReceived as exc:
                yield from chase.search(request, exc.result.referrals, controls, options)
        finally:
            chase.close()

    def _items(
        self, request: SearchRequest, controls: Sequence[Control], *, timeout: float | None, page_size: int
    ) -> Iterator[Any]:
        """Entries and references of a search, in pages if that makes sense."""
        limit = request.size_limit
        if (
            page_size <= 0
            or 0 < limit <= page_size
            or (self._paging and not self.concurrent_pages)
            or any(one.oid in _NO_PAGES for one in controls)
        ):
            yield from Search(self.link, request, controls, timeout)
            return
        cookie = b""
        count = 0
        running: Search | None = None
        self._paging += 1
        try:
            while True:
                page = PagedResults(page_size, cookie).control()
                with Search(self.link, request, [*controls, page], timeout) as running:
                    for batch in running.batches():
                        if limit:
                            count += len(batch)
                            if count > limit:
                                yield from batch[: len(batch) - (count - limit)]
                                raise SizeLimitExceeded(Result(4, "", "the size limit of the search was reached"))
                        yield from batch
                cookie = _next_page(running)
                if not cookie:
                    return
        except GeneratorExit:
            # The page has come to its end: the server keeps the state of the search for the next one (RFC 2696, 3).
            if running is not None and running.skip() and (cookie := _next_page(running)):
                self.link.send_unanswered(request, [PagedResults(0, cookie).control()])
            raise
        finally:
            self._paging -= 1

    def read(
        self,
        dn: str,
        attributes: Iterable[str] | None = None,
        *,
        filter: Filter | str | bytes = "(objectClass=*)",
        controls: Iterable[AnyControl] = (),
        timeout: float | None | _Default = "default",
    ) -> Entry:
        """One entry by its name.  Raises NoSuchObject if it is not there, or if the filter does not match."""
        found: Entry | None = None
        if self.referrals is not None:
            for entry in self.search_iter(
                dn, SCOPE.BASE, filter, attributes, controls=controls, timeout=timeout, page_size=0
            ):
                found = entry
        else:
            # The same without the rooms for pages and batches that one entry does not need.
            names = scope_and_names(SCOPE.BASE, attributes, None)[1]
            wanted: Any = filter_of(filter)
            seconds = self._time(timeout)
            request = SearchRequest(dn, SCOPE.BASE, wanted, names)
            pending = self.link.start(request, _plain(controls) if controls else (), seconds)
            tag, payload = pending.next(seconds)
            while tag != LDAP.SearchResultDone:
                if tag == LDAP.SearchResultEntry:
                    found = payload[-1]
                tag, payload = pending.next(seconds)
            result = decode(payload).op
            assert isinstance(result, Result)
            if result.code:
                raise error_for(result)
        if found is None:
            raise NoSuchObject(Result(32, "", f"nothing at {dn!r:.200} matches"))
        return found

    # ---- changing

    def compare(
        self,
        dn: str,
        attribute: str,
        value: bytes | str,
        controls: Iterable[AnyControl] = (),
        timeout: float | None | _Default = "default",
    ) -> bool:
        """Whether the entry has this value (RFC 4511, 4.10), by the server's rules."""
        found: Result = self.operation(CompareRequest(dn, attribute, value), controls, timeout)
        return found.code == 6

    def add(
        self,
        dn: str,
        attributes: Mapping[str, Sequence[bytes | str]],
        controls: Iterable[AnyControl] = (),
        timeout: float | None | _Default = "default",
    ) -> Result:
        """Add an entry (RFC 4511, 4.7).  attributes: names to lists of values."""
        result: Result = self.operation(AddRequest(dn, attributes), controls, timeout)
        return result

    def modify(
        self,
        dn: str,
        changes: _Changes,
        controls: Iterable[AnyControl] = (),
        timeout: float | None | _Default = "default",
    ) -> Result:
        """Change an entry (RFC 4511, 4.6): all changes in this order, or none.

        changes: `Change` objects, or tuples such as ("replace", "mail", ["a@example.org"]) with "add", "delete",
        "replace" or "increment" (RFC 4525); or a mapping of names to the values that replace what is there.
        """
        result: Result = self.operation(ModifyRequest(dn, _changes(changes)), controls, timeout)
        return result

    def modify_dn(
        self,
        dn: str,
        newrdn: str,
        delete_old: bool = True,
        new_superior: str | None = None,
        controls: Iterable[AnyControl] = (),
        timeout: float | None | _Default = "default",
    ) -> Result:
        """Rename an entry, or move it and all below it (RFC 4511, 4.9).

        newrdn: its new relative name.  delete_old: remove the values of the old one.  new_superior: where it goes; None
        if it stays.
        """
        result: Result = self.operation(ModifyDNRequest(dn, newrdn, delete_old, new_superior), controls, timeout)
        return result

    def delete(
        self, dn: str, controls: Iterable[AnyControl] = (), timeout: float | None | _Default = "default"
    ) -> Result:
        """Delete an entry that has none below it (RFC 4511, 4.8); `controls.TreeDelete` deletes those, too."""
        result: Result = self.operation(DelRequest(dn), controls, timeout)
        return result

    # ---- extended operations

    def extended(
        self,
        name: str,
        value: bytes | None = None,
        controls: Iterable[AnyControl] = (),
        timeout: float | None | _Default = "default",
    ) -> ExtendedResponse:
        """An extended operation (RFC 4511, 4.12) by its object identifier; not StartTLS.  value: encoded, or None."""
        if name == STARTTLS:
            raise LocalError("expected another operation than StartTLS: use starttls()")
        result = self.operation(ExtendedRequest(name, value), controls, timeout)
        if not isinstance(result, ExtendedResponse):
            raise ProtocolError(f"expected an extended response, got {type(result).__name__}")
        return result

    def whoami(self, controls: Iterable[AnyControl] = (), timeout: float | None | _Default = "default") -> str:
        """Who is logged in, as the server sees it (RFC 4532): "dn:...", "u:...", or "" for nobody."""
        return (self.extended(WHO_AM_I, None, controls, timeout).value or b"").decode("utf-8", "replace")

    def change_password(
        self,
        user: str | None = None,
        old: bytes | str | None = None,
        new: bytes | str | None = None,
        controls: Iterable[AnyControl] = (),
        timeout: float | None | _Default = "default",
    ) -> bytes | None:
        """Change a password (RFC 3062).  user: whose, None for who is logged in.  old: the present one, if the server
        wants it.  new: None lets the server make one, which is returned.  Raises TLSRequired and results."""
        self.check_secret()
        parts = [
            ber.CONTEXT(number, False, one.encode("utf-8") if isinstance(one, str) else one)
            for number, one in enumerate((user, old, new))
            if one is not None
        ]
        value = ber.SEQUENCE(*parts) if parts else None
        answer = self.extended(PASSWORD_MODIFY, value, controls, timeout).value
        if answer is None:
            return None
        made, _ = ber.decode(answer)
        if not isinstance(made, list) or any(type(one) is not tuple or type(one[2]) is not bytes for one in made):
            raise ProtocolError(f"expected a password made by the server (RFC 3062, 2), got {len(answer)} other bytes")
        return next((one[2] for one in made if one[1] == 0), None)

    def cancel(self, operation: Search | int, timeout: float | None | _Default = "default") -> None:
        """Cancel a search and have the server confirm it (RFC 3909), unlike closing it.

        operation: the `Search`, or the id of its messages.  The search then ends with `Canceled`.  Raises CannotCancel,
        TooLate, NoSuchOperation.
        """
        number = operation if isinstance(operation, int) else operation.message_id
        self.extended(CANCEL, ber.SEQUENCE(ber.INTEGER(number)), (), timeout)

    def abandon(self, operation: Search | int) -> None:
        """Tell the server that nobody wants the answer (RFC 4511, 4.11).  operation: the `Search`, or an id."""
        if isinstance(operation, int):
            pending = self.link._pending.get(operation)
            if pending is not None:
                pending.give_up()
            else:
                self.link.send_unanswered(AbandonRequest(operation))
        else:
            operation.close()

    # ---- what the server says about itself

    def root_dse(self, attributes: Iterable[str] = ("*", "+"), timeout: float | None | _Default = "default") -> Entry:
        """What the server says about itself (RFC 4512, 5.1): namingContexts, supportedControl and others."""
        return self.read("", attributes, timeout=timeout)


Client = client


def _next_page(page: Search) -> bytes:
    """The cookie for the page behind this one; empty if it was the last."""
    assert page.result is not None
    answer = _controls.find(page.result, PagedResults)
    return b"" if answer is None else answer.cookie


def _target(addr: Any) -> tuple[Any, str | None, bool]:
    """What to connect to, the host's name, and whether with TLS from the beginning."""
    if isinstance(addr, LDAPUrl):
        if addr.urlscheme == "ldapi":
            return addr.host or "/var/run/ldapi", None, False
        host = addr.host or "localhost"
        return (host, addr.port), host, addr.urlscheme == "ldaps"
    if isinstance(addr, str):
        if "://" in addr:
            raise LocalError(
                f"expected a URL with ldap, ldaps or ldapi, got one with {addr.partition('://')[0]!r:.200}"
            )
        if "/" not in addr and addr.rpartition(":")[2].isdigit():
            raise LocalError(
                f'expected a URL or the path of a UNIX socket, got {addr!r:.200}; write "ldap://{addr:.200}"'
            )
        return addr, None, False
    if isinstance(addr, tuple) and len(addr) >= 2:
        return (str(addr[0]), int(addr[1])), str(addr[0]), False
    raise TypeError(
        f"expected a URL such as ldap://host, (host, port) or the path of a UNIX socket, not {type(addr).__name__}: "
        f"{addr!r:.60}"
    )


def _is_loopback(sock: Any) -> bool:
    try:
        peer = sock.getpeername()
    except (OSError, coro.ClosedError):
        return False
    host = peer[0] if isinstance(peer, tuple) else ""
    return isinstance(host, str) and (host.startswith(("127.", "::ffff:127.")) or host == "::1")


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _reply(payload: bytes) -> Reply:
    result = decode(payload).op
    if not isinstance(result, Result):
        raise ProtocolError(f"expected an answer with a result, got {type(result).__name__}")
    return Reply(ber.decode(payload, max_element=len(payload) + 1)[0][1], result)


def _changes(changes: _Changes) -> list[Change]:
    if isinstance(changes, Mapping):
        return [Change(REPLACE, name, values) for name, values in changes.items()]
    found = []
    for one in changes:
        if isinstance(one, Change):
            found.append(one)
            continue
        operation, name, values = one
        number = _OPERATIONS.get(operation) if isinstance(operation, str) else operation
        if number is None:
            _no_operation(operation)
        found.append(Change(number, name, values))
    return found


def _no_operation(operation: object) -> NoReturn:
    raise LocalError(f'expected "add", "delete", "replace" or "increment", got {operation!r:.60}')
