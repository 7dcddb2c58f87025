"""What the server adds to `coro.ldap.protocol`: limits for requests, and answers in a few words.

A client may send any message; a server takes requests only, and not each: filters have limits for their depth and their
number of parts, so that a small request cannot cost much.

Cost: beside that of `protocol.decode`, nothing that can be measured.  Plain success, the most frequent answer, is
encoded once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast, get_args

from coro.ldap import filters
from coro.ldap.controls import (
    ASSERTION,
    MANAGE_DSA_IT,
    PAGED_RESULTS,
    POST_READ,
    PRE_READ,
    TREE_DELETE,
)
from coro.ldap.exceptions import ProtocolError
from coro.ldap.protocol import (
    NOTICE_OF_DISCONNECTION,
    STARTTLS,
    AbandonRequest,
    AddRequest,
    AddResponse,
    BindRequest,
    BindResponse,
    CompareRequest,
    CompareResponse,
    Control,
    DelRequest,
    DelResponse,
    ExtendedRequest,
    ExtendedResponse,
    FilterReader,
    ModifyDNRequest,
    ModifyDNResponse,
    ModifyRequest,
    ModifyResponse,
    SASLCredentials,
    SearchRequest,
    SearchResultDone,
    UnbindRequest,
    UnknownLogin,
    decode,
    decode_filter,
    encode_op,
)
from coro.ldap.protocol import encode_controls as _encode_controls

__all__ = [
    "ANSWERS",
    "ASSERTION",
    "MANAGE_DSA_IT",
    "NOTICE_OF_DISCONNECTION",
    "PAGED_RESULTS",
    "PASSWORD_MODIFY",
    "POST_READ",
    "PRE_READ",
    "STARTTLS",
    "TREE_DELETE",
    "WHOAMI",
    "Decoder",
    "Request",
    "bind_answer",
    "encode_controls",
    "extended_answer",
    "result",
]

WHOAMI = "1.3.6.1.4.1.4203.1.11.3"
PASSWORD_MODIFY = "1.3.6.1.4.1.4203.1.11.1"

#: Names of attributes in a search, and controls of a request, at most.
_NAMES = 10_000
_CONTROLS = 100

Request = (
    BindRequest | UnbindRequest | SearchRequest | ModifyRequest | AddRequest | DelRequest | ModifyDNRequest
    | CompareRequest | AbandonRequest | ExtendedRequest
)  # fmt: skip
_REQUESTS = frozenset(get_args(Request))
_KINDS: dict[int, Any] = {
    1: BindResponse,
    5: SearchResultDone,
    7: ModifyResponse,
    9: AddResponse,
    11: DelResponse,
    13: ModifyDNResponse,
    15: CompareResponse,
    24: ExtendedResponse,
}
#: The tags of answers by those of requests (RFC 4511, appendix B).
ANSWERS = {0: 1, 3: 5, 6: 7, 8: 9, 10: 11, 12: 13, 14: 15, 23: 24}
_SUCCESS = {tag: encode_op(kind()) for tag, kind in _KINDS.items()}


class Decoder:
    """Reads requests.  depth, parts: how deep filters may be nested, and how many parts one may have."""

    def __init__(self, depth: int, parts: int) -> None:
        self._filters = FilterReader(depth, parts)

    def request(self, message: bytes) -> tuple[Request, tuple[Control, ...]]:
        """The request of a whole message, and its controls.  Raises ProtocolError."""
        try:
            found = decode(message, self._filters)
        except UnknownLogin:
            return BindRequest("", SASLCredentials("neither a password nor SASL")), ()
        op = found.op
        if type(op) not in _REQUESTS:
            raise ProtocolError(f"expected a request, got {type(op).__name__}")
        if type(op) is SearchRequest and len(op.attributes) > _NAMES:
            raise ProtocolError(f"expected at most {_NAMES} attributes, got {len(op.attributes)}", found.id, 3)
        if len(found.controls) > _CONTROLS:
            raise ProtocolError(f"expected at most {_CONTROLS} controls, got {len(found.controls)}")
        return cast("Request", op), found.controls

    def only_filter(self, data: bytes) -> filters.Filter:
        """The filter that these bytes are.  Raises ProtocolError."""
        return decode_filter(data, self._filters)


def result(tag: int, code: int = 0, matched: str = "", diagnostic: str = "") -> bytes:
    """An answer that is an LDAPResult and nothing else (RFC 4511, 4.1.9)."""
    if not code and not diagnostic:
        return _SUCCESS[tag]
    return encode_op(_KINDS[tag](code, matched, diagnostic))


def bind_answer(code: int, diagnostic: str = "", credentials: bytes | None = None) -> bytes:
    """A BindResponse, with the server's SASL credentials if there are any."""
    if credentials is None:
        return result(1, code, "", diagnostic)
    return encode_op(BindResponse(code, "", diagnostic, credentials=credentials))


def extended_answer(code: int, diagnostic: str = "", oid: str | None = None, value: bytes | None = None) -> bytes:
    """An ExtendedResponse."""
    return encode_op(ExtendedResponse(code, "", diagnostic, name=oid, value=value))


def encode_controls(controls: Iterable[tuple[str, bytes]]) -> bytes:
    """The controls of an answer: pairs of an object identifier and a value."""
    return _encode_controls([Control(oid, False, value) for oid, value in controls])
