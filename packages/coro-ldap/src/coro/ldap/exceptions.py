"""Every exception of `coro.ldap`, with the moment it is raised.

What a server answers instead of success is an `Error`; for each result code of RFC 4511, appendix A, and of the
extensions in use there is a class, so a program catches `NoSuchObject` and not a number.

Longer than most files here because each class has its sentence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coro.ldap.protocol import Result

__all__ = [
    "AdminLimitExceeded",
    "AffectsMultipleDSAs",
    "AliasDereferencingProblem",
    "AliasProblem",
    "AssertionFailed",
    "AttributeOrValueExists",
    "AuthMethodNotSupported",
    "AuthorizationDenied",
    "Busy",
    "Canceled",
    "CannotCancel",
    "ConfidentialityRequired",
    "ConnectionLost",
    "ConstraintViolation",
    "DNError",
    "EntryAlreadyExists",
    "Error",
    "InappropriateAuthentication",
    "InappropriateMatching",
    "InsufficientAccessRights",
    "InvalidAttributeSyntax",
    "InvalidCredentials",
    "InvalidDNSyntax",
    "LDAPError",
    "LDAPTimeout",
    "LDIFError",
    "LocalError",
    "LoopDetect",
    "NamingViolation",
    "NoSuchAttribute",
    "NoSuchObject",
    "NoSuchOperation",
    "NotAllowedOnNonLeaf",
    "NotAllowedOnRDN",
    "ObjectClassModsProhibited",
    "ObjectClassViolation",
    "OffsetRangeError",
    "OperationsError",
    "OtherError",
    "ProtocolError",
    "ProtocolErrorResult",
    "QuerySyntaxError",
    "ReferralError",
    "ReferralReceived",
    "RemoteError",
    "SASLError",
    "SaslBindInProgress",
    "SizeLimitExceeded",
    "SortControlMissing",
    "StateError",
    "StrongerAuthRequired",
    "SyncRefreshRequired",
    "TLSRequired",
    "TimeLimitExceeded",
    "TooLate",
    "TooMuchBuffered",
    "URLError",
    "Unavailable",
    "UnavailableCriticalExtension",
    "UndefinedAttributeType",
    "UnwillingToPerform",
    "VirtualListViewError",
    "error_for",
    "result_string",
]


class LDAPError(Exception):
    """The base of all errors of this package."""


class LocalError(LDAPError, ValueError):
    """The caller's mistake: what was given cannot be sent, or is not what the text forms of LDAP allow."""


class RemoteError(LDAPError):
    """The peer's fault: what came is no LDAP, or breaks a limit."""


class QuerySyntaxError(LocalError):
    """The text of a search filter is wrong.

    QuerySyntaxError(message), or QuerySyntaxError(text, position, message): `text` and `position` are then attributes,
    and the message names the character at that place.
    """

    def __init__(self, text: str | bytes, position: int | None = None, message: str = "") -> None:
        super().__init__(text, position, message)
        self.text = text
        self.position = position
        self.message = message

    def __str__(self) -> str:
        if self.position is None:
            return self.text if isinstance(self.text, str) else self.text.decode("utf-8", "backslashreplace")
        text = self.text
        if self.position >= len(text):
            found = "the end"
        else:
            found = repr(text[self.position : self.position + 1]).removeprefix("b")
        about = f"{self.message}, got" if self.message else "unexpected"
        return f"{about} {found} at position {self.position} of {text!r:.200}"


class DNError(LocalError):
    """A text is no distinguished name (RFC 4514), or a value cannot be part of one."""


class URLError(LocalError):
    """A text is no LDAP URL (RFC 4516)."""


class LDIFError(LocalError):
    """A text is no LDIF (RFC 2849).  `line` is the number of the line where that shows, from 1."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message, line)
        self.message = message
        self.line = line

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


class StateError(LocalError):
    """The connection cannot do this now: it is closed, it has TLS already, or the thread is within a login."""


class TLSRequired(LocalError):
    """A password would go over the network in clear text.  Use ldaps or StartTLS, or say that it may."""


class SASLError(LDAPError):
    """A login by SASL failed here: the server's messages make no sense, its proof is wrong, or the mechanism is not
    there."""


class ReferralError(LDAPError):
    """A referral could not be followed: too deep, in a circle, or to a server that the policy does not allow."""


class TooMuchBuffered(LocalError):
    """A program reads the results of a search so slowly, and uses the connection for other things meanwhile, that too
    many wait in memory.  Use pages, or a connection of its own for the search."""


class ConnectionLost(LDAPError, ConnectionError):
    """The connection ended before the answer came; `__cause__` has the reason if there is one.  What was under way may
    have happened or not."""


class LDAPTimeout(LDAPError, TimeoutError):
    """The server did not answer within the time of the operation.

    The operation has been abandoned, and the connection goes on.  After a bind or StartTLS it is closed, because
    nobody can tell who is logged in then.
    """


class ProtocolError(RemoteError):
    """The peer sent what is no LDAP message (RFC 4511, 4), breaks a limit, or comes at the wrong time.

    `message_id` and `tag` tell which message it was, None if that is not known.
    """

    def __init__(self, message: str, message_id: int | None = None, tag: int | None = None) -> None:
        super().__init__(message)
        self.message_id = message_id
        self.tag = tag


class Error(LDAPError):
    """The server answered with another result than success (RFC 4511, 4.1.9).

    Error(answer): `answer` is the `Result`, or ("application", tag, [code, matched, diagnostic, ...]).  Attributes:
    `code`, the number; `name`, how RFC 4511 calls it; `result`, the `Result`; `answer`; `error_string`, the server's
    words.
    """

    code: int = 80

    def __init__(self, answer: Any) -> None:
        super().__init__(answer)
        self.answer = answer
        self.result: Result
        if isinstance(answer, tuple):
            from coro.ldap.protocol import result_of_answer

            self.result = result_of_answer(answer)
        else:
            self.result = answer
        self.code = self.result.code

    @property
    def name(self) -> str:
        """The name of the code."""
        return result_string(self.code)

    @property
    def error_string(self) -> str:
        """What the server says about it."""
        return self.result.diagnostic

    def __str__(self) -> str:
        text = f"{self.name} ({self.code})"
        if self.result.diagnostic:
            text += f": {self.result.diagnostic}"
        if self.result.matched_dn:
            text += f"; matched {self.result.matched_dn!r}"
        if self.code == 10 and self.result.referrals:
            text += f"; try {', '.join(self.result.referrals)}"
        return text


class OperationsError(Error):
    """operationsError (1): the server cannot do operations in this order, or has an internal fault."""

    code = 1


class ProtocolErrorResult(Error):
    """protocolError (2): the request breaks the protocol, as the server sees it, or the operation is unknown to it."""

    code = 2


class TimeLimitExceeded(Error):
    """timeLimitExceeded (3): the server has stopped at the limit of time that was asked for or that it has set."""

    code = 3


class SizeLimitExceeded(Error):
    """sizeLimitExceeded (4): more entries match than were asked for, or than the server gives at once; try pages."""

    code = 4


class AuthMethodNotSupported(Error):
    """authMethodNotSupported (7): the server does not know, or does not allow, this way to log in."""

    code = 7


class StrongerAuthRequired(Error):
    """strongerAuthRequired (8): the server wants a stronger login, or TLS.

    Active Directory says so where it wants messages to be signed.  This package does not sign: use TLS.
    """

    code = 8


class ReferralReceived(Error):
    """referral (10): another server has the answer: `result.referrals` names it."""

    code = 10


class AdminLimitExceeded(Error):
    """adminLimitExceeded (11): the server has stopped at a limit that its administrator has set."""

    code = 11


class UnavailableCriticalExtension(Error):
    """unavailableCriticalExtension (12): the server does not know a control that was marked critical."""

    code = 12


class ConfidentialityRequired(Error):
    """confidentialityRequired (13): the server wants TLS for this."""

    code = 13


class SaslBindInProgress(Error):
    """saslBindInProgress (14): the server wants another step of a login."""

    code = 14


class NoSuchAttribute(Error):
    """noSuchAttribute (16): the entry lacks the attribute or value."""

    code = 16


class UndefinedAttributeType(Error):
    """undefinedAttributeType (17): the schema lacks the attribute."""

    code = 17


class InappropriateMatching(Error):
    """inappropriateMatching (18): the attribute cannot be compared in this way."""

    code = 18


class ConstraintViolation(Error):
    """constraintViolation (19): the value breaks a rule, for instance one for passwords."""

    code = 19


class AttributeOrValueExists(Error):
    """attributeOrValueExists (20): the attribute or value is there already."""

    code = 20


class InvalidAttributeSyntax(Error):
    """invalidAttributeSyntax (21): the value has the wrong form."""

    code = 21


class NoSuchObject(Error):
    """noSuchObject (32): there is no such entry; `result.matched_dn` is the lowest one above it that exists."""

    code = 32


class AliasProblem(Error):
    """aliasProblem (33): an alias points to no entry."""

    code = 33


class InvalidDNSyntax(Error):
    """invalidDNSyntax (34): the name of an entry is malformed."""

    code = 34


class AliasDereferencingProblem(Error):
    """aliasDereferencingProblem (36): an alias could not be followed."""

    code = 36


class InappropriateAuthentication(Error):
    """inappropriateAuthentication (48): this way to log in does not fit; the entry may have no password."""

    code = 48


class InvalidCredentials(Error):
    """invalidCredentials (49): the user or the password is wrong."""

    code = 49


class InsufficientAccessRights(Error):
    """insufficientAccessRights (50): who is logged in may not do this."""

    code = 50


class Busy(Error):
    """busy (51): the server is too busy."""

    code = 51


class Unavailable(Error):
    """unavailable (52): the server is shutting down, or a part of it is not there."""

    code = 52


class UnwillingToPerform(Error):
    """unwillingToPerform (53): the server does not want to."""

    code = 53


class LoopDetect(Error):
    """loopDetect (54): aliases or referrals go in a circle."""

    code = 54


class SortControlMissing(Error):
    """sortControlMissing (60): a virtual list view needs the control for sorting, too."""

    code = 60


class OffsetRangeError(Error):
    """offsetRangeError (61): the offset of a virtual list view is outside of the list."""

    code = 61


class NamingViolation(Error):
    """namingViolation (64): the entry cannot have this name at this place."""

    code = 64


class ObjectClassViolation(Error):
    """objectClassViolation (65): the entry would not fit its object classes."""

    code = 65


class NotAllowedOnNonLeaf(Error):
    """notAllowedOnNonLeaf (66): there are entries below this one."""

    code = 66


class NotAllowedOnRDN(Error):
    """notAllowedOnRDN (67): the change would remove a value that is part of the entry's name."""

    code = 67


class EntryAlreadyExists(Error):
    """entryAlreadyExists (68): there is an entry of this name already."""

    code = 68


class ObjectClassModsProhibited(Error):
    """objectClassModsProhibited (69): the object class of an entry cannot be changed in this way."""

    code = 69


class AffectsMultipleDSAs(Error):
    """affectsMultipleDSAs (71): the operation concerns more than one server."""

    code = 71


class VirtualListViewError(Error):
    """virtualListViewError (76): the server cannot give a view of the list."""

    code = 76


class OtherError(Error):
    """other (80): the server gives no code that says more."""

    code = 80


class Canceled(Error):
    """canceled (118): the operation was cancelled."""

    code = 118


class NoSuchOperation(Error):
    """noSuchOperation (119): there is no such operation to cancel."""

    code = 119


class TooLate(Error):
    """tooLate (120): it is too late to cancel."""

    code = 120


class CannotCancel(Error):
    """cannotCancel (121): the operation cannot be cancelled."""

    code = 121


class AssertionFailed(Error):
    """assertionFailed (122): the filter of an assertion control did not match."""

    code = 122


class AuthorizationDenied(Error):
    """authorizationDenied (123): the server does not let one act for the other."""

    code = 123


class SyncRefreshRequired(Error):
    """syncRefreshRequired (4096): the cookie is too old: the content has to be read anew."""

    code = 4096


_CLASSES: dict[int, type[Error]] = {kind.code: kind for kind in Error.__subclasses__()}
_NAMES: dict[int, str] = {
    0: "success",
    5: "compareFalse",
    6: "compareTrue",
    **{code: kind.__name__[0].lower() + kind.__name__[1:] for code, kind in _CLASSES.items()},
    # Classes whose names say more than those of RFC 4511, or that would hide another one.
    2: "protocolError",
    10: "referral",
    80: "other",
}


def error_for(result: Result) -> Error:
    """The exception for a result: of the class that belongs to its code, or a plain `Error`."""
    return _CLASSES.get(result.code, Error)(result)


def result_string(code: int) -> str:
    """The name of a result code in RFC 4511, such as "noSuchObject"; "unknown (N)" for one that nobody has named."""
    return _NAMES.get(code) or f"unknown ({code})"
