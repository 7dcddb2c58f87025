"""Numbers of LDAP by name, encoders of single requests and raw answers: what programs of the first coro.ldap use.

The encoders return an operation as bytes, without the message around it: `client.send_message` takes it.  New programs
use the methods of `client`, which do the same with objects and checked results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from coro.asn1 import ber
from coro.ldap._wire import encode_simple_bind
from coro.ldap.exceptions import LocalError, result_string
from coro.ldap.filters import Filter
from coro.ldap.protocol import (
    STARTTLS,
    AbandonRequest,
    BindRequest,
    BindResponse,
    Control,
    ExtendedRequest,
    Result,
    SASLCredentials,
    SearchRequest,
    decode_filter,
    encode_message,
    encode_op,
)

__all__ = [
    "AUTH",
    "DEREF",
    "LDAP",
    "RESULT",
    "SCOPE",
    "Reply",
    "encode_abandon",
    "encode_bind_request",
    "encode_message",
    "encode_sasl_bind",
    "encode_search_request",
    "encode_simple_bind",
    "encode_starttls",
    "result_string",
]


class LDAP:
    """Application tags of the operations (RFC 4511, 4.2 ff.)."""

    BindRequest = 0
    BindResponse = 1
    UnbindRequest = 2
    SearchRequest = 3
    SearchResultEntry = 4
    SearchResultDone = 5
    ModifyRequest = 6
    ModifyResponse = 7
    AddRequest = 8
    AddResponse = 9
    DelRequest = 10
    DelResponse = 11
    ModifyDNRequest = 12
    ModifyDNResponse = 13
    CompareRequest = 14
    CompareResponse = 15
    AbandonRequest = 16
    SearchResultReference = 19
    ExtendedRequest = 23
    ExtendedResponse = 24
    IntermediateResponse = 25


class SCOPE:
    """Scopes of a search (RFC 4511, 4.5.1.2); the last one is an addition of OpenLDAP."""

    BASE = 0
    ONELEVEL = 1
    SUBTREE = 2
    SUBORDINATES = 3


class DEREF:
    """When aliases are followed (RFC 4511, 4.5.1.3)."""

    NEVER = 0
    SEARCHING = 1
    FINDING = 2
    ALWAYS = 3


class AUTH:
    """Tags of the ways to log in (RFC 4511, 4.2)."""

    simple = 0
    sasl = 3


class RESULT:
    """Result codes (RFC 4511, appendix A)."""

    success = 0
    operationsError = 1
    protocolError = 2
    timeLimitExceeded = 3
    sizeLimitExceeded = 4
    compareFalse = 5
    compareTrue = 6
    authMethodNotSupported = 7
    strongAuthRequired = 8
    strongerAuthRequired = 8
    referral = 10
    adminLimitExceeded = 11
    unavailableCriticalExtension = 12
    confidentialityRequired = 13
    saslBindInProgress = 14
    noSuchAttribute = 16
    undefinedAttributeType = 17
    inappropriateMatching = 18
    constraintViolation = 19
    attributeOrValueExists = 20
    invalidAttributeSyntax = 21
    noSuchObject = 32
    aliasProblem = 33
    invalidDNSyntax = 34
    aliasDereferencingProblem = 36
    inappropriateAuthentication = 48
    invalidCredentials = 49
    insufficientAccessRights = 50
    busy = 51
    unavailable = 52
    unwillingToPerform = 53
    loopDetect = 54
    namingViolation = 64
    objectClassViolation = 65
    notAllowedOnNonLeaf = 66
    notAllowedOnRDN = 67
    entryAlreadyExists = 68
    objectClassModsProhibited = 69
    affectsMultipleDSAs = 71
    other = 80

    _reverse_map: ClassVar[dict[int, str]]


RESULT._reverse_map = {
    number: name for name, number in vars(RESULT).items() if type(number) is int and name != "strongerAuthRequired"
}


class Reply(tuple[str, int, list[Any]]):
    """A raw answer: ("application", tag, [code, matched_dn, diagnostic, ...]) with bytes for all strings.

    `result` is the same as a `Result`, `controls` are those that came with it.
    """

    _result: Result | None = None

    def __new__(cls, raw: tuple[str, int, list[Any]], result: Result | None = None) -> Reply:
        """result: None for success of a bind."""
        made = super().__new__(cls, raw)
        if result is not None:
            made._result = result
        return made

    @property
    def result(self) -> Result:
        """The answer as an object of `coro.ldap.protocol`."""
        if self._result is None:
            self._result = BindResponse()
        return self._result

    @property
    def controls(self) -> tuple[Control, ...]:
        """The controls that came with the answer."""
        return self.result.controls


def scope_and_names(
    scope: int | None, which_attrs: Iterable[str] | None, compatibility: Mapping[str, Any] | None
) -> tuple[int, list[str]]:
    """As `encode_search_request` has them."""
    settings = compatibility or {}
    if scope is None:
        scope = settings.get("scope", SCOPE.SUBTREE)
    if isinstance(which_attrs, (str, bytes)):
        raise TypeError(f"expected a list of names of attributes, got {which_attrs!r:.60}; write [{which_attrs!r:.60}]")
    names = [] if which_attrs is None else list(which_attrs) or [settings.get("no_attr_attr", "1.1")]
    return scope, names


def filter_of(filter: Filter | str | bytes) -> Filter | str | bytes:
    """A filter as an object, as text, or as `coro.ldap.query.parse_query` has encoded it."""
    if type(filter) is bytes and filter[:1] not in (b"(", b""):
        return decode_filter(filter)
    return filter


def encode_search_request(
    base_object: str,
    scope: int | None,
    deref_aliases: int,
    size_limit: int,
    time_limit: int,
    types_only: bool,
    filter: Filter | str | bytes,
    which_attrs: Iterable[str] | None = None,
    compatibility: Mapping[str, Any] | None = None,
) -> bytes:
    """A search request (RFC 4511, 4.5.1).

    base_object: name of the entry to begin at.  scope: a number of `SCOPE`, None for `compatibility["scope"]` or the
    subtree.  deref_aliases: a number of `DEREF`.  size_limit in entries, time_limit in seconds, 0 for none.
    types_only: no values.  filter: text, an object, or encoded.  which_attrs: names; None for all user attributes, an
    empty list for none, which is sent as "1.1" or `compatibility["no_attr_attr"]`.  Raises LocalError.
    """
    scope, names = scope_and_names(scope, which_attrs, compatibility)
    found: Any = filter_of(filter)
    return encode_op(
        SearchRequest(base_object, scope, found, names, deref_aliases, size_limit, time_limit, bool(types_only))
    )


def encode_bind_request(version: int, name: str | bytes, auth_data: bytes) -> bytes:
    """A bind request (RFC 4511, 4.2).  version: 1 to 127.  auth_data: the encoded choice of how to log in."""
    if not 1 <= version <= 127:
        raise LocalError(f"expected a version from 1 to 127, got {version!r:.60} (RFC 4511, 4.2)")
    who = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name
    return ber.APPLICATION(0, True, ber.INTEGER(version) + ber.OCTET_STRING(who) + auth_data)


def encode_sasl_bind(
    version: int, name: str | bytes, mechanism: str | bytes, credentials: str | bytes | None = b""
) -> bytes:
    """A step of a bind by SASL (RFC 4511, 4.2).  credentials: None to send none, which differs from empty ones."""
    how = mechanism if isinstance(mechanism, str) else mechanism.decode("ascii")
    data = credentials.encode() if isinstance(credentials, str) else credentials
    who = name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")
    return encode_op(BindRequest(who, SASLCredentials(how, data), version))


def encode_starttls() -> bytes:
    """The request to begin TLS (RFC 4511, 4.14)."""
    return encode_op(ExtendedRequest(STARTTLS))


def encode_abandon(message_id: int) -> bytes:
    """A request to abandon an operation (RFC 4511, 4.11)."""
    return encode_op(AbandonRequest(message_id))
