"""LDAP URLs (RFC 4516): ldap, ldaps and ldapi, both ways.

url = LDAPUrl("ldap://ldap.example.org/dc=example,dc=org?cn,mail?sub?(sn=Smith)?!bindname=cn=Reader")
url.dn, url.attrs, url.scope, url.filterstr, url.who

scheme://host:port/dn?attributes?scope?filter?extensions
"""

from __future__ import annotations

import html
import re
import urllib.parse
from collections.abc import Iterator, Mapping

from coro.ldap.exceptions import URLError

__all__ = [
    "LDAPUrl",
    "LDAPUrlExtension",
    "LDAPUrlExtensions",
    "SCOPES",
    "is_ldap_url",
    "isLDAPUrl",
    "ldapUrlEscape",
    "ldap_url_escape",
]

#: The scopes of RFC 4516, 2, and "subordinates", which OpenLDAP adds.
SCOPES = {"base": 0, "one": 1, "sub": 2, "subordinates": 3}
_SCOPE_NAMES = {number: name for name, number in SCOPES.items()}
_PORTS = {"ldap": 389, "ldaps": 636}
_START = re.compile(r"(ldaps?|ldapi)://", re.IGNORECASE)
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+(?:%25[0-9A-Za-z._~-]+)?\]|[^:\[\]@/?# ]*)(?::([0-9]{1,5}))?", re.ASCII)


def is_ldap_url(text: str) -> bool:
    """Whether the text begins as an LDAP URL does: ldap://, ldaps:// or ldapi://."""
    return isinstance(text, str) and _START.match(text) is not None


def ldap_url_escape(text: str) -> str:
    """The text with everything percent-encoded that cannot stand in a part of an LDAP URL, `?` and `,` included."""
    return urllib.parse.quote(text, safe="-._~!$&'()*+;=:@/")


def _escaped(text: str) -> str:
    """The same for a name or a filter, where a comma separates nothing."""
    return urllib.parse.quote(text, safe="-._~!$&'()*+,;=:@/")


isLDAPUrl = is_ldap_url
ldapUrlEscape = ldap_url_escape


def _unquoted(text: str) -> str:
    if bad := _BAD_PERCENT.search(text):
        raise URLError(f"expected two hexadecimal digits behind '%' in {text!r:.200} at position {bad.start()}")
    try:
        return urllib.parse.unquote(text, errors="strict")
    except UnicodeDecodeError as exc:
        raise URLError(f"expected UTF-8 behind the percent signs of {text!r:.200}: {exc}") from None


class LDAPUrlExtension:
    """An extension: its type, its value or None, and whether it is critical, which `!` says."""

    __slots__ = ("critical", "extype", "exvalue")

    def __init__(
        self, text: str | None = None, *, critical: bool = False, extype: str = "", exvalue: str | None = None
    ) -> None:
        """Of a text such as "!bindname=cn=x", or of its parts.  Raises URLError if there is no type."""
        if text is not None:
            text = text.strip()
            critical = text.startswith("!")
            extype, sign, value = text.removeprefix("!").partition("=")
            extype = extype.strip()
            exvalue = _unquoted(value.strip()) if sign else None
        if not re.fullmatch(r"[A-Za-z0-9.-]+", extype, re.ASCII):
            raise URLError(f"expected the type of an extension, got {extype!r:.60}")
        self.critical, self.extype, self.exvalue = bool(critical), extype, exvalue

    def unparse(self) -> str:
        """Its text."""
        value = "" if self.exvalue is None else "=" + ldap_url_escape(self.exvalue)
        return f"{'!' if self.critical else ''}{self.extype}{value}"

    __str__ = unparse

    def __repr__(self) -> str:
        hidden = self.extype.lower() == "x-bindpw" and self.exvalue is not None
        return f"<LDAPUrlExtension {self.extype}=...>" if hidden else f"<LDAPUrlExtension {self.unparse()}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LDAPUrlExtension):
            return NotImplemented
        mine = (self.critical, self.extype.lower(), self.exvalue)
        return mine == (other.critical, other.extype.lower(), other.exvalue)

    def __hash__(self) -> int:
        return hash((self.critical, self.extype.lower(), self.exvalue))


class LDAPUrlExtensions(Mapping[str, LDAPUrlExtension]):
    """The extensions of a URL by their types, whose case does not matter."""

    def __init__(self, extensions: Mapping[str, LDAPUrlExtension] | None = None) -> None:
        self._items: dict[str, LDAPUrlExtension] = {}
        for extension in (extensions or {}).values():
            self.add(extension)

    @classmethod
    def parse(cls, text: str) -> LDAPUrlExtensions:
        """Of the last part of a URL.  Raises URLError, also if a type is there twice."""
        found = cls()
        for part in text.split(",") if text.strip() else ():
            extension = LDAPUrlExtension(part)
            if extension.extype in found:
                raise URLError(f"expected each extension once, got {extension.extype!r} twice")
            found.add(extension)
        return found

    def add(self, extension: LDAPUrlExtension) -> None:
        """Put an extension in, instead of the one of its type."""
        self._items[extension.extype.lower()] = extension

    def discard(self, extype: str) -> None:
        """Leave the extension of this type out, if it is there."""
        self._items.pop(extype.lower(), None)

    def __getitem__(self, extype: str) -> LDAPUrlExtension:
        return self._items[extype.lower()]

    def __contains__(self, extype: object) -> bool:
        return isinstance(extype, str) and extype.lower() in self._items

    def __iter__(self) -> Iterator[str]:
        return iter([extension.extype for extension in self._items.values()])

    def __len__(self) -> int:
        return len(self._items)

    def unparse(self) -> str:
        """Their text, with commas in between."""
        return ",".join(extension.unparse() for extension in self._items.values())


class LDAPUrl:
    """The parts of an LDAP URL.  None stands for a part that is not there.

    urlscheme: "ldap", "ldaps" or "ldapi".  hostport: "host:port"; the path of the socket for ldapi.  dn: text.  attrs:
    a list of names.  scope: 0 base, 1 one level, 2 subtree.  filterstr: text.  extensions: `LDAPUrlExtensions`.
    who, cred: name and password for a bind, kept as the extensions bindname and X-BINDPW.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        urlscheme: str = "ldap",
        hostport: str = "",
        dn: str = "",
        attrs: list[str] | None = None,
        scope: int | None = None,
        filterstr: str | None = None,
        extensions: LDAPUrlExtensions | None = None,
        who: str | None = None,
        cred: str | None = None,
    ) -> None:
        """Of a text, or of its parts.  Raises URLError."""
        self.urlscheme, self.hostport, self.dn, self.attrs = urlscheme, hostport, dn, attrs
        self.scope, self.filterstr = scope, filterstr
        self.extensions = LDAPUrlExtensions(extensions)
        if url is not None:
            self._parse(url)
        if who is not None:
            self.who = who
        if cred is not None:
            self.cred = cred
        if self.urlscheme not in ("ldap", "ldaps", "ldapi"):
            raise URLError(f"expected the scheme ldap, ldaps or ldapi, got {self.urlscheme!r:.60}")
        if self.scope is not None and self.scope not in _SCOPE_NAMES:
            raise URLError(f"expected the scope 0, 1, 2 or 3, got {self.scope!r:.60}")
        self._address()

    def _parse(self, url: str) -> None:
        if not isinstance(url, str):
            raise TypeError(f"expected a URL as str, not {type(url).__name__}: {url!r:.60}")
        match = _START.match(url)
        if match is None:
            raise URLError(f"expected a URL that begins with ldap://, ldaps:// or ldapi://, got {url!r:.200}")
        if "#" in url:
            raise URLError(f"expected no fragment, and '#' as %23, got {url!r:.200}")
        self.urlscheme = match[1].lower()
        hostport, _, rest = url[match.end() :].partition("/")
        if not rest and "?" in hostport:
            # OpenLDAP's tools accept ldap://host?... without the slash; RFC 4516 wants it.
            raise URLError(f"expected '/' before '?', got {url!r:.200}")
        self.hostport = _unquoted(hostport) if self.urlscheme == "ldapi" else hostport
        parts = rest.split("?")
        if len(parts) > 5:
            raise URLError(f"expected at most four '?' and others as %3F, got {url!r:.200}")
        parts += [""] * (5 - len(parts))
        self.dn = _unquoted(parts[0])
        self.attrs = [_unquoted(name.strip()) for name in parts[1].split(",")] if parts[1].strip() else None
        scope = parts[2].strip().lower()
        if scope and scope not in SCOPES:
            raise URLError(f"expected the scope base, one or sub, got {scope!r:.60}")
        self.scope = SCOPES[scope] if scope else None
        self.filterstr = _unquoted(parts[3]) or None
        self.extensions = LDAPUrlExtensions.parse(parts[4])

    def _address(self) -> tuple[str, int]:
        if self.urlscheme == "ldapi":
            return self.hostport, 0
        match = _HOST.fullmatch(self.hostport)
        if match is None or (match[2] and not 1 <= int(match[2]) <= 65535):
            raise URLError(f"expected host:port, a port from 1 to 65535, got {self.hostport!r:.200}")
        host = _unquoted(match[1]).strip("[]")
        return host, int(match[2]) if match[2] else _PORTS[self.urlscheme]

    @property
    def host(self) -> str:
        """The host's name or address, "" if there is none; for ldapi the path of the socket."""
        return self._address()[0]

    @property
    def port(self) -> int:
        """The port, 389 or 636 if none is given; 0 for ldapi."""
        return self._address()[1]

    @property
    def who(self) -> str | None:
        """The name to bind as, from the extension bindname."""
        return self.extensions["bindname"].exvalue if "bindname" in self.extensions else None

    @who.setter
    def who(self, who: str | None) -> None:
        self._set("bindname", who)

    @property
    def cred(self) -> str | None:
        """The password, from the extension X-BINDPW.  A URL is a bad place for one: it ends up in logs."""
        return self.extensions["X-BINDPW"].exvalue if "X-BINDPW" in self.extensions else None

    @cred.setter
    def cred(self, cred: str | None) -> None:
        self._set("X-BINDPW", cred)

    def _set(self, extype: str, value: str | None) -> None:
        if value is None:
            self.extensions.discard(extype)
        else:
            self.extensions.add(LDAPUrlExtension(extype=extype, exvalue=value))

    def applyDefaults(self, defaults: Mapping[str, object]) -> None:
        """Set the attributes of this mapping that are not set: None, or empty."""
        for name, value in defaults.items():
            if name.startswith("_") or not hasattr(self, name):
                raise URLError(f"expected names of parts, such as scope or filterstr, got {name!r:.60}")
            if getattr(self, name) in (None, ""):
                setattr(self, name, value)

    def initializeUrl(self) -> str:
        """The part up to the host: what a connection needs."""
        host = urllib.parse.quote(self.hostport, safe="") if self.urlscheme == "ldapi" else self.hostport
        return f"{self.urlscheme}://{host}"

    def unparse(self) -> str:
        """The text of the URL, without the question marks that are not needed."""
        parts = [
            _escaped(self.dn),
            ",".join(map(ldap_url_escape, self.attrs or [])),
            "" if self.scope is None else _SCOPE_NAMES[self.scope],
            _escaped(self.filterstr or ""),
            self.extensions.unparse(),
        ]
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
        return f"{self.initializeUrl()}/{'?'.join(parts)}"

    def htmlHREF(self, urlPrefix: str = "", hrefText: str | None = None, hrefTarget: str | None = None) -> str:
        """An HTML link to the URL.

        urlPrefix: put before the URL.  hrefText: what is shown, the URL unless given.  hrefTarget: the window.
        All are escaped.
        """
        address = html.escape(urlPrefix + self.unparse())
        target = "" if hrefTarget is None else f' target="{html.escape(hrefTarget)}"'
        text = html.escape(self.unparse() if hrefText is None else hrefText)
        return f'<a href="{address}"{target}>{text}</a>'

    __str__ = unparse

    def __repr__(self) -> str:
        if self.cred is None:
            return f"<LDAPUrl {self.unparse()}>"
        shown = LDAPUrl(self.unparse())
        shown.cred = "..."
        return f"<LDAPUrl {shown.unparse()}>"

    def __eq__(self, other: object) -> bool:
        return self.unparse() == other.unparse() if isinstance(other, LDAPUrl) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.unparse())
