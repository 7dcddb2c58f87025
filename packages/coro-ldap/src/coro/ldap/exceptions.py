"""Every exception of `coro.ldap`, with the moment it is raised."""

from __future__ import annotations

__all__ = [
    "DNError",
    "LDAPError",
    "LDIFError",
    "LocalError",
    "ProtocolError",
    "QuerySyntaxError",
    "RemoteError",
    "URLError",
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


class ProtocolError(RemoteError):
    """The peer sent what is no LDAP message (RFC 4511, 4), breaks a limit, or comes at the wrong time.

    `message_id` and `tag` tell which message it was, None if that is not known.
    """

    def __init__(self, message: str, message_id: int | None = None, tag: int | None = None) -> None:
        super().__init__(message)
        self.message_id = message_id
        self.tag = tag
