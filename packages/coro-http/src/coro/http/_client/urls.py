"""URLs as a client needs them: parsed once, checked, and normal in form (RFC 3986, RFC 9110 section 4.2).

The idea is that nothing leaves this file that could mean something else further down. The host has no character that
is not in a host name or an address; the request target is printable ASCII without blanks. So a line break in a URL
cannot become a second header, and two parsers cannot disagree about which host is meant. What people type is still
taken: a path with blanks or letters beyond ASCII is percent-encoded as UTF-8, a host name with such letters goes
through IDNA.

Backslashes, control characters and everything else that browsers repair in silence are refused in the authority: such
URLs are how a check is made to see one host and the connection another. Dots in the path are left alone except where a
relative reference is resolved (RFC 3986 section 5.2.4).

Cost: some 5 us for a new URL. `parse` keeps the last thousand, because programs ask for the same few.
"""

from __future__ import annotations

import re
from _socket import AF_INET6, inet_pton
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlencode

from coro.http.exceptions import UnsupportedURL

__all__ = ["DEFAULT_PORTS", "URL", "Params", "join", "parse", "with_params"]

Params = Mapping[str, Any] | Iterable[tuple[str, Any]] | str

DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "socks5": 1080, "socks5h": 1080}
#: More than this in one URL is a mistake; servers refuse request lines of 8 KiB and more.
MOST_CHARACTERS = 65_536
#: How many parsed URLs are remembered.
REMEMBERED = 1024

# RFC 3986 section 3.1.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
# What stays as it is in a path and in a query: pchar and "/", and "?" in the query (RFC 3986 sections 3.3 and 3.4).
# "[" and "]" are not in the grammar, but every browser and server takes them in queries, unescaped.
_PATH_SAFE = "/!$&'()*+,;=:@-._~%"
_QUERY_SAFE = _PATH_SAFE + "?[]"
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PLAIN_PATH = re.compile(r"(?:[A-Za-z0-9/!$&'()*+,;=:@._~-]|%[0-9A-Fa-f]{2})*\Z")
# RFC 1123 names, with the underscore that real ones have.
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class URL:
    """A parsed URL; make one with ``parse``. Never changes.

    ``scheme`` and ``host`` are in lower case; the host is ASCII (IDNA), and an IPv6 address stands without brackets.
    ``port`` is the number that is connected to. ``target`` is the path with its query, as it stands in a request line.
    ``userinfo`` is the pair (user, password) from before the ``@``, or None; it is no part of ``str(url)``, so that no
    log shows it. ``fragment`` is what stands behind ``#``; it is never sent.
    """

    __slots__ = ("authority", "fragment", "host", "port", "scheme", "target", "userinfo")

    scheme: str
    host: str
    port: int
    target: str
    #: What stands in the Host header: the host, in brackets if need be, and the port unless it is the usual one.
    authority: str
    userinfo: tuple[str, str] | None
    fragment: str

    def __init__(
        self, scheme: str, host: str, port: int, target: str, userinfo: tuple[str, str] | None, fragment: str
    ) -> None:
        self.scheme = scheme
        self.host = host
        self.port = port
        self.target = target
        self.userinfo = userinfo
        self.fragment = fragment
        # RFC 6874 section 4: the zone means nothing to the server, and is not sent.
        shown = f"[{host.partition('%')[0]}]" if ":" in host else host
        self.authority = shown if DEFAULT_PORTS.get(scheme) == port else f"{shown}:{port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: what RFC 6454 section 4 compares."""
        return self.scheme, self.host, self.port

    @property
    def path(self) -> str:
        """The path, still percent-encoded."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        """What stands behind the question mark, still percent-encoded; ``""`` if there is none."""
        return self.target.partition("?")[2]

    @property
    def secure(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme in ("https", "wss")

    def __str__(self) -> str:
        fragment = f"#{self.fragment}" if self.fragment else ""
        return f"{self.scheme}://{self.authority}{self.target}{fragment}"

    def __repr__(self) -> str:
        return f"URL({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, (URL, str)) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


_known: dict[str, URL] = {}


def parse(text: str | URL, schemes: tuple[str, ...] = ("http", "https")) -> URL:
    """The URL that ``text`` writes.

    text: an absolute URL; a ``URL`` is returned as it is. schemes: which are allowed.

    Raises UnsupportedURL when it has no scheme or host, another scheme, a port that is no number from 1 to 65535,
    control characters, or a host that is no name or address; TypeError unless it is a str.
    """
    if isinstance(text, URL):
        if text.scheme not in schemes:
            raise UnsupportedURL(f"expected a URL that begins with {_listed(schemes)}, not {text!r}")
        return text
    found = _known.get(text) if isinstance(text, str) else None
    if found is not None and found.scheme in schemes:
        return found
    url = _parse(text, schemes)
    if len(_known) >= REMEMBERED:
        _known.clear()
    if len(text) < 4096:
        _known[text] = url
    return url


def _listed(schemes: tuple[str, ...]) -> str:
    return " or ".join(f"{scheme}://" for scheme in schemes)


def _check_text(text: Any) -> None:
    if not isinstance(text, str):
        raise TypeError(f"expected a URL as a str, not {type(text).__name__}: {text!r}")
    if len(text) > MOST_CHARACTERS:
        raise UnsupportedURL(f"expected a URL of at most {MOST_CHARACTERS} characters, not {len(text)}")
    bad = _CONTROL.search(text)
    if bad is not None:
        raise UnsupportedURL(f"a URL has no control characters, this one has {bad.group()!r}: {_short(text)}")


def _short(text: str) -> str:
    return repr(text) if len(text) <= 200 else repr(text[:200]) + " ..."


def _parse(text: str, schemes: tuple[str, ...]) -> URL:
    _check_text(text)
    text = text.strip(" ")
    match = _SCHEME.match(text)
    if match is None or not text.startswith("//", match.end()):
        raise UnsupportedURL(f"expected a URL that begins with {_listed(schemes)}, not {_short(text)}")
    scheme = match[1].lower()
    if scheme not in schemes:
        raise UnsupportedURL(
            f"expected a URL that begins with {_listed(schemes)}, not with {scheme}://: {_short(text)}"
        )
    rest = text[match.end() + 2 :]
    end = min((i for i in (rest.find(c) for c in "/?#") if i >= 0), default=len(rest))
    userinfo, host, port = _authority(rest[:end], scheme)
    target, fragment = _target(rest[end:])
    return URL(scheme, host, port, target, userinfo, fragment)


def _authority(text: str, scheme: str) -> tuple[tuple[str, str] | None, str, int]:
    if "\\" in text:
        raise UnsupportedURL(f"a backslash stands for another host in some programs; this is no authority: {text!r}")
    before, at, hostport = text.rpartition("@")
    userinfo = None
    if at:
        user, _, password = before.partition(":")
        userinfo = _unquoted(user), _unquoted(password)
    if hostport.startswith("["):
        host, bracket, port = hostport[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise UnsupportedURL(f"expected an IPv6 address as [address] or [address]:port, not {hostport!r}")
        port = port[1:]
        host = _ipv6(host)
    else:
        host, _, port = hostport.partition(":")
        host = _name(host)
    if not port:
        return userinfo, host, DEFAULT_PORTS[scheme]
    # ASCII digits alone: int() would take signs, blanks, underscores and the digits of other scripts.
    if not (port.isascii() and port.isdigit()) or len(port) > 5 or not 0 < int(port) < 65536:
        raise UnsupportedURL(f"expected a port from 1 to 65535 in {hostport!r}, not {port!r}")
    return userinfo, host, int(port)


def _unquoted(text: str) -> str:
    return unquote_to_bytes(text).decode("utf-8", "replace")


def _ipv6(text: str) -> str:
    # RFC 6874: a zone stands behind "%25"; people write "%" as well.
    address, _, zone = text.partition("%")
    zone = zone.removeprefix("25")
    try:
        inet_pton(AF_INET6, address)
    except OSError:
        raise UnsupportedURL(f"expected an IPv6 address between the brackets, not {text!r}") from None
    if "%" in text and not re.fullmatch(r"[A-Za-z0-9._~-]+", zone):
        raise UnsupportedURL(f"expected the name of an interface behind the % of an IPv6 address, not {text!r}")
    return address.lower() + (f"%{zone}" if zone else "")


def _name(text: str) -> str:
    host = text
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError as e:
            raise UnsupportedURL(f"{text!r} is not a host name: {e}") from None
    if not _HOST.match(host):
        raise UnsupportedURL(f"expected a host name or an address, not {text!r}" if text else "this URL names no host")
    return host.lower()


def _target(text: str) -> tuple[str, str]:
    text, _, fragment = text.partition("#")
    path, mark, query = text.partition("?")
    path = _quoted(path, _PATH_SAFE) if not _PLAIN_PATH.match(path) else path
    return (path or "/") + mark + _quoted(query, _QUERY_SAFE), _quoted(fragment, _QUERY_SAFE)


def _quoted(text: str, safe: str) -> str:
    try:
        return _STRAY_PERCENT.sub("%25", quote(text, safe=safe))
    except UnicodeError:
        raise UnsupportedURL(f"a URL is text that UTF-8 can write, this is not: {_short(text)}") from None


def with_params(url: URL, params: Params | None) -> URL:
    """The URL with ``params`` behind its query.

    params: a mapping, pairs, or a query that is encoded already. A value that is a list or tuple stands for several of
    that name; None leaves the name out; True and False become ``true`` and ``false``. Raises TypeError for other forms.
    """
    if not params:
        return url
    if isinstance(params, str):
        more = _quoted(params.removeprefix("?"), _QUERY_SAFE)
        _check_text(params)
    else:
        pairs = params.items() if isinstance(params, Mapping) else params
        flat: list[tuple[str, str]] = []
        for name, value in pairs:
            for one in value if isinstance(value, (list, tuple)) else (value,):
                if one is not None:
                    flat.append((name, ("true" if one else "false") if isinstance(one, bool) else str(one)))
        more = urlencode(flat)
    if not more:
        return url
    joint = "&" if "?" in url.target else "?"
    if url.target.endswith(("?", "&")):
        joint = ""
    return URL(url.scheme, url.host, url.port, url.target + joint + more, url.userinfo, url.fragment)


def join(base: URL, reference: str, schemes: tuple[str, ...] = ("http", "https")) -> URL:
    """What ``reference`` means in a document at ``base`` (RFC 3986 section 5.2); a redirect's Location is one.

    A reference without a fragment inherits the base's (RFC 9110 section 10.2.2). Raises UnsupportedURL as ``parse``
    does.
    """
    _check_text(reference)
    reference = reference.strip(" ")
    match = _SCHEME.match(reference)
    if match is not None:
        # "http:path" without slashes is no reference of RFC 3986 either; parse() refuses it.
        url = _parse(reference, schemes)
    elif reference.startswith("//"):
        url = _parse(f"{base.scheme}:{reference}", schemes)
    else:
        target, fragment = _target(reference)
        path, mark, query = target.partition("?")
        written = reference.partition("#")[0].partition("?")[0]
        if not written:
            path = base.path
            if not mark:
                mark, query = ("?", base.query) if "?" in base.target else ("", "")
        elif not written.startswith("/"):
            path = base.path.rpartition("/")[0] + "/" + path
        path = _without_dots(path)
        url = URL(base.scheme, base.host, base.port, path + mark + query, None, fragment)
    if not url.fragment and base.fragment:
        url = URL(url.scheme, url.host, url.port, url.target, url.userinfo, base.fragment)
    return url


def _without_dots(path: str) -> str:
    """RFC 3986 section 5.2.4; "%2e" is a dot, too."""
    if "." not in path and "%2" not in path:
        return path
    out: list[str] = []
    segments = path.split("/")[1:]
    for number, segment in enumerate(segments):
        plain = segment.lower().replace("%2e", ".")
        last = number == len(segments) - 1
        if plain == "..":
            if out:
                out.pop()
        elif plain != ".":
            out.append(segment)
            continue
        if last:
            out.append("")
    return "/" + "/".join(out)
