"""The exception with which the directory refuses a request: what the client is told."""

from __future__ import annotations

from coro.ldap.exceptions import LDAPError

__all__ = ["Refused"]


class Refused(LDAPError):
    """The directory refuses a change or a search.

    code: the result code of RFC 4511, 4.1.9.  diagnostic: words for people.  matched: the name of the lowest entry
    above the missing one, for noSuchObject (32).
    """

    def __init__(self, code: int, diagnostic: str = "", matched: str = "") -> None:
        super().__init__(code, diagnostic, matched)
        self.code = code
        self.diagnostic = diagnostic
        self.matched = matched

    def __str__(self) -> str:
        return f"result {self.code}: {self.diagnostic}"
