"""Cookies as a server sees them, RFC 6265: what a client sent, and what it is to keep.

Names and values are checked against the grammar of section 4.1.1, so that a value from elsewhere cannot add an
attribute or a line. The defaults of `SetCookie` are the careful ones: not for scripts, not for other sites' requests.
Cost: a microsecond per cookie.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from coro.http.exceptions import LocalError
from coro.http.http_date import build_http_date

__all__ = ["SetCookie", "parse_cookie"]

#: Cookies of one request that are read; browsers keep some 180 per site.
MOST_COOKIES = 200

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_VALUE = re.compile(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*\Z")
_ATTRIBUTE = re.compile(r"[\x20-\x3a\x3c-\x7e]*\Z")


def parse_cookie(text: str | None) -> dict[str, str]:
    """The cookies of a Cookie field, the first of each name; what is not of the form name=value is left out."""
    found: dict[str, str] = {}
    for part in (text or "").split(";", MOST_COOKIES)[:MOST_COOKIES]:
        name, equals, value = part.strip(" \t").partition("=")
        if equals and _NAME.match(name):
            if len(value) >= 2 and value[0] == value[-1] == '"':
                value = value[1:-1]
            found.setdefault(name, value)
    return found


@dataclass
class SetCookie:
    """A cookie for a client: ``str()`` is the value of a Set-Cookie field.

    ``max_age``: seconds, None for the session; ``expires``: seconds since 1970; ``path`` and ``domain``: where it is
    sent; ``secure``: over TLS only; ``http_only``: not for scripts; ``same_site``: "Lax", "Strict" or "None" (which
    needs ``secure``). `LocalError` for a name, value or attribute that the grammar has no form for.
    """

    name: str
    value: str = ""
    max_age: int | None = None
    expires: float | None = None
    path: str | None = "/"
    domain: str | None = None
    secure: bool = False
    http_only: bool = True
    same_site: str | None = "Lax"

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise LocalError(f"expected letters, digits and !#$%&'*+.^_`|~- as the name of a cookie, not {self.name!r}")
        if not _VALUE.match(self.value):
            raise LocalError(
                f"a cookie's value has no blanks, quotation marks, commas, semicolons or backslashes: encode "
                f"it, {self.value!r}"
            )
        for text in (self.path, self.domain):
            if text is not None and not _ATTRIBUTE.match(text):
                raise LocalError(f"an attribute of a cookie has no semicolons and no control characters: {text!r}")
        if self.same_site not in (None, "Lax", "Strict", "None"):
            raise LocalError(f"expected 'Lax', 'Strict', 'None' or None as same_site, not {self.same_site!r}")
        if self.same_site == "None" and not self.secure:
            raise LocalError("a cookie with same_site='None' has to be secure: browsers refuse it otherwise")

    def __str__(self) -> str:
        parts = [f"{self.name}={self.value}"]
        if self.max_age is not None:
            parts.append(f"Max-Age={self.max_age}")
        if self.expires is not None:
            parts.append(f"Expires={build_http_date(self.expires)}")
        if self.domain:
            parts.append(f"Domain={self.domain}")
        if self.path:
            parts.append(f"Path={self.path}")
        if self.secure:
            parts.append("Secure")
        if self.http_only:
            parts.append("HttpOnly")
        if self.same_site:
            parts.append(f"SameSite={self.same_site}")
        return "; ".join(parts)
