"""A cookie jar for clients: RFC 6265, with what RFC 6265bis has learnt since.

    jar = CookieJar()
    client = Client(cookies=jar)
    ...
    jar.save("cookies.json")

Which host may set a cookie for which others is the dangerous part. A ``Domain`` attribute widens a cookie to all hosts
below that domain, and only a list of public suffixes (https://publicsuffix.org) tells ``example.com``, where that is
right, from ``co.uk`` or ``github.io``, where it hands a session to strangers. So: with a list, the attribute is obeyed
except for public suffixes. Without one it is not obeyed, and the cookie goes back only to the host that set it. The
list is looked for where Debian's package publicsuffix puts it, and at the first cookie that needs it; or give
``CookieJar`` a list of your own.

Cost: a dictionary of hosts, in each a dictionary by path and name. Making the header looks at the labels of the host
name, not at all cookies. Numbers and sizes are bounded as section 6.1 of the RFC proposes; the oldest go first.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from coro.http._client.urls import URL, parse
from coro.http.exceptions import LocalError

__all__ = ["Cookie", "CookieJar", "PublicSuffixes"]

#: RFC 6265 section 6.1: at least 4096 bytes a cookie, 50 cookies a domain, 3000 in all.
MOST_BYTES = 4096
MOST_PER_HOST = 50
MOST_COOKIES = 3000
#: Set-Cookie fields of one response that are looked at.
MOST_FIELDS = 64
#: RFC 6265bis section 5.5: no cookie lives longer than 400 days.
MOST_SECONDS = 400 * 86400.0

#: Where the list of public suffixes lies on Debian, Fedora and Arch.
SUFFIX_FILES = (
    "/usr/share/publicsuffix/effective_tld_names.dat",
    "/usr/share/publicsuffix/public_suffix_list.dat",
)

_MONTHS = {m: n for n, m in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}


@dataclass
class Cookie:
    """A cookie as the jar keeps it.

    host: the host that set it, or the domain that it is for when ``widened``. expires: seconds since 1970, None for
    the end of the session.
    """

    name: str
    value: str
    host: str
    path: str = "/"
    expires: float | None = None
    secure: bool = False
    http_only: bool = False
    widened: bool = False
    same_site: str = ""
    created: float = 0.0

    def __repr__(self) -> str:
        return f"<Cookie {self.name} for {'.' if self.widened else ''}{self.host}{self.path}>"


class PublicSuffixes:
    """The list of publicsuffix.org: under which domains anybody may register.

    lines: those of the file. A name is covered by its longest rule; ``*`` stands for one label, ``!`` for an exception.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules: set[str] = set()
        for line in lines:
            rule = line.split(maxsplit=1)[0] if line.strip() else ""
            if rule and not rule.startswith("//"):
                if not rule.isascii():
                    mark = rule[0] if rule[0] in "!*" else ""
                    bare = rule.removeprefix("!").removeprefix("*.")
                    try:
                        rule = (mark + "." if mark == "*" else mark) + bare.encode("idna").decode("ascii")
                    except UnicodeError:
                        continue
                self._rules.add(rule.lower())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PublicSuffixes:
        """From a file. OSError when it cannot be read."""
        with open(path, encoding="utf-8") as file:
            return cls(file)

    def __call__(self, domain: str) -> bool:
        """Whether ``domain`` is itself a public suffix."""
        if f"!{domain}" in self._rules:
            return False
        if domain in self._rules or "." not in domain:
            return True
        return "*." + domain.partition(".")[2] in self._rules

    def __len__(self) -> int:
        return len(self._rules)


def _system_suffixes() -> PublicSuffixes | None:
    for path in SUFFIX_FILES:
        try:
            return PublicSuffixes.load(path)
        except (OSError, ValueError):
            continue
    return None


def _is_address(host: str) -> bool:
    return ":" in host or host.rpartition(".")[2].isdigit()


def _is_below(host: str, domain: str) -> bool:
    """RFC 6265 section 5.1.3."""
    return host == domain or (host.endswith("." + domain) and not _is_address(host))


def _path_matches(path: str, cookie_path: str) -> bool:
    """RFC 6265 section 5.1.4."""
    if path == cookie_path:
        return True
    return path.startswith(cookie_path) and (cookie_path.endswith("/") or path[len(cookie_path)] == "/")


def parse_date(text: str) -> float | None:
    """Seconds since 1970 of a cookie's date by the lenient rules of RFC 6265 section 5.1.1; None if it is none."""
    clock: tuple[int, int, int] | None = None
    day = month = year = None
    token = ""
    tokens: list[str] = []
    for c in text[:256] + " ":
        code = ord(c)
        # The RFC's delimiters, as ranges of codes.
        if code == 9 or 0x20 <= code <= 0x2F or 0x3B <= code <= 0x40 or 0x5B <= code <= 0x60 or 0x7B <= code <= 0x7E:
            if token:
                tokens.append(token)
            token = ""
        else:
            token += c
    for token in tokens:
        if clock is None and (found := _clock(token)) is not None:
            clock = found
        elif day is None and (number := _digits(token, 1, 2)) is not None:
            day = number
        elif month is None and token[:3].lower() in _MONTHS:
            month = _MONTHS[token[:3].lower()]
        elif year is None and (number := _digits(token, 2, 4)) is not None:
            year = number
    if clock is None or day is None or month is None or year is None:
        return None
    if year < 100:
        year += 1900 if year >= 70 else 2000
    if not (1 <= day <= 31 and year >= 1601 and clock[0] <= 23 and clock[1] <= 59 and clock[2] <= 59):
        return None
    return _days(year, month, day) * 86400.0 + clock[0] * 3600 + clock[1] * 60 + clock[2]


def _days(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a date; a day too many counts into the next month."""
    from datetime import date

    return date(year, month, 1).toordinal() - date(1970, 1, 1).toordinal() + day - 1


def _digits(token: str, least: int, most: int) -> int | None:
    """The number that a token begins with, if it has so many digits and no digit follows."""
    count = 0
    while count < len(token) and token[count] in "0123456789":
        count += 1
    return int(token[:count]) if least <= count <= most else None


def _clock(token: str) -> tuple[int, int, int] | None:
    parts = token.split(":")
    if len(parts) != 3:
        return None
    numbers = [_digits(part, 1, 2) for part in parts]
    if None in numbers or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    return numbers[0], numbers[1], numbers[2]  # type: ignore[return-value]


class CookieJar:
    """Keeps cookies between requests, and says which go with which.

    suffixes: tells whether a domain is a public suffix; a ``PublicSuffixes`` or any function of a domain name. Without
    it the system's list is used, if there is one; False obeys no ``Domain`` attribute at all. clock: returns seconds
    since 1970.

    A jar may be shared by clients. Iteration gives the cookies that have not expired.
    """

    def __init__(
        self, *, suffixes: Callable[[str], bool] | bool | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        if suffixes is not None and suffixes is not False and not callable(suffixes):
            raise TypeError(f"suffixes is a function of a domain name, None or False, not {suffixes!r}")
        self._suffixes: Any = suffixes
        self._clock = clock
        self._hosts: dict[str, dict[tuple[str, str], Cookie]] = {}

    def __repr__(self) -> str:
        return f"<CookieJar: {len(self)} cookies>"

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Cookie]:
        now = self._clock()
        for cookies in self._hosts.values():
            for cookie in cookies.values():
                if cookie.expires is None or cookie.expires > now:
                    yield cookie

    # -- by hand

    def set(
        self, name: str, value: str, *, host: str, path: str = "/", secure: bool = False, expires: float | None = None
    ) -> None:
        """Put in a cookie for one host. LocalError for a name or value that would break the header; the rest of the
        characters that RFC 6265 section 4.1.1 keeps out of values are taken, because servers set such."""
        _check_text(name, value)
        self._store(Cookie(name, value, host.lower(), path, expires, secure, created=self._clock()))

    def get(self, name: str, host: str | None = None, default: str | None = None) -> str | None:
        """The value of the first cookie of that name, for that host if one is given."""
        for cookie in self:
            if cookie.name == name and (host is None or cookie.host == host.lower()):
                return cookie.value
        return default

    def delete(self, name: str, host: str | None = None) -> None:
        """Take out all cookies of that name, for that host if one is given."""
        for key, cookies in list(self._hosts.items()):
            if host is None or key == host.lower():
                for place in [p for p in cookies if p[1] == name]:
                    del cookies[place]

    def clear(self) -> None:
        """Take out all."""
        self._hosts.clear()

    def end_session(self) -> None:
        """Take out those without a date of expiry, as a browser does when it is closed."""
        for cookies in self._hosts.values():
            for place in [p for p, cookie in cookies.items() if cookie.expires is None]:
                del cookies[place]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all cookies to a file that only its owner can read. OSError when it cannot be written."""
        data = json.dumps({"cookies": [asdict(cookie) for cookie in self]}, indent=1)
        beside = f"{os.fspath(path)}.{os.getpid()}.new"
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(data)
        os.replace(beside, path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Add the cookies of a file that ``save`` wrote. OSError when it cannot be read, ValueError when it is another
        file."""
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        try:
            cookies = [Cookie(**one) for one in data["cookies"]]
            for cookie in cookies:
                _check_text(cookie.name, cookie.value)
        except (TypeError, KeyError, LocalError) as e:
            raise ValueError(f"expected a file that CookieJar.save() wrote: {os.fspath(path)}: {e}") from None
        for cookie in cookies:
            self._store(cookie)

    # -- for a client

    def header(self, url: URL | str) -> str:
        """The value of the Cookie header for a request to ``url``, ``""`` for none (RFC 6265 section 5.4)."""
        if not self._hosts:
            return ""
        url = parse(url)
        now = self._clock()
        path = url.path
        found: list[Cookie] = []
        domain = url.host
        while domain:
            for cookie in self._hosts.get(domain, {}).values():
                if (
                    (cookie.widened or domain == url.host)
                    and (cookie.expires is None or cookie.expires > now)
                    and (url.secure or not cookie.secure)
                    and _path_matches(path, cookie.path)
                ):
                    found.append(cookie)
            domain = domain.partition(".")[2] if not _is_address(url.host) else ""
        found.sort(key=lambda cookie: (-len(cookie.path), cookie.created))
        return "; ".join(f"{cookie.name}={cookie.value}" if cookie.name else cookie.value for cookie in found)

    def extract(self, url: URL | str, lines: Iterable[str]) -> None:
        """Take what the Set-Cookie fields ``lines`` of a response from ``url`` say; what is not allowed is ignored, as
        RFC 6265 section 5.3 has it."""
        url = parse(url)
        for number, line in enumerate(lines):
            if number >= MOST_FIELDS:
                return
            cookie = self._received(url, line)
            if cookie is not None:
                self._store(cookie)

    def _received(self, url: URL, line: str) -> Cookie | None:
        if any(c < " " and c != "\t" or c == "\x7f" for c in line):
            return None
        pair, _, rest = line.partition(";")
        name, equals, value = pair.partition("=")
        if not equals:
            name, value = "", pair
        name, value = name.strip(" \t"), value.strip(" \t")
        # RFC 6265bis section 5.7: one without a name could pose as any other, "=__Host-x" say.
        if len(name) + len(value) > MOST_BYTES or not name:
            return None
        attributes = _attributes(rest)
        now = self._clock()
        host, widened = self._place(url.host, attributes.get("domain", ""))
        if not host:
            return None
        path = attributes.get("path", "")
        written = path
        if not path.startswith("/"):
            head = url.path.rpartition("/")[0]
            path = head if head.startswith("/") else "/"
        cookie = Cookie(
            name,
            value,
            host,
            path,
            _expiry(attributes, now),
            "secure" in attributes,
            "httponly" in attributes,
            widened,
            attributes.get("samesite", "").lower(),
            now,
        )
        if cookie.secure and not url.secure:
            return None
        low = name.lower()
        if low.startswith("__secure-") and not cookie.secure:
            return None
        if low.startswith("__host-") and not (
            cookie.secure and written == "/" and "domain" not in attributes and not widened
        ):
            return None
        return None if not url.secure and self._covered(cookie) else cookie

    def _covered(self, new: Cookie) -> bool:
        """RFC 6265bis section 5.7, step 19: plain http does not overwrite or hide a Secure cookie."""
        now = self._clock()
        return any(
            old.secure
            and old.name == new.name
            and (old.expires is None or old.expires > now)
            and _path_matches(new.path, old.path)
            for host, cookies in self._hosts.items()
            if _is_below(host, new.host) or _is_below(new.host, host)
            for old in cookies.values()
        )

    def _place(self, host: str, domain: str) -> tuple[str, bool]:
        """The host that a cookie is kept for, and whether it is for all below it; ``""`` to ignore it."""
        domain = domain.strip(" \t").removeprefix(".").lower()
        if not domain:
            return host, False
        if not domain.isascii():
            try:
                domain = domain.encode("idna").decode("ascii")
            except UnicodeError:
                return "", False
        if not _is_below(host, domain):
            return "", False
        if _is_address(host):
            return host, False
        if self._suffixes is None:
            self._suffixes = _system_suffixes() or False
        if self._suffixes is False:
            return host, False
        if self._suffixes(domain):
            # Section 5.3, step 5: a host may be a public suffix itself, and then the cookie is its own.
            return (host, False) if host == domain else ("", False)
        return domain, True

    def _store(self, cookie: Cookie) -> None:
        cookies = self._hosts.setdefault(cookie.host, {})
        place = cookie.path, cookie.name
        old = cookies.pop(place, None)
        if old is not None:
            cookie.created = old.created
        now = self._clock()
        if cookie.expires is not None and cookie.expires <= now:
            if not cookies:
                del self._hosts[cookie.host]
            return
        cookies[place] = cookie
        if len(cookies) > MOST_PER_HOST:
            _evict(cookies, now)
        if sum(map(len, self._hosts.values())) > MOST_COOKIES:
            host = max(self._hosts, key=lambda host: len(self._hosts[host]))
            _evict(self._hosts[host], now)


def _evict(cookies: dict[tuple[str, str], Cookie], now: float) -> None:
    """Take out the expired, or the oldest, those that are not Secure first."""
    gone = [p for p, c in cookies.items() if c.expires is not None and c.expires <= now]
    if not gone:
        gone = [min(cookies, key=lambda p: (cookies[p].secure, cookies[p].created))]
    for place in gone:
        del cookies[place]


def _attributes(text: str) -> dict[str, str]:
    """The attributes of a Set-Cookie field; of two of one name the last counts (section 5.3)."""
    found: dict[str, str] = {}
    for part in text.split(";")[:32]:
        name, _, value = part.partition("=")
        value = value.strip(" \t")
        # RFC 6265bis section 5.6: an attribute longer than 1024 bytes is ignored.
        if len(value) <= 1024:
            found[name.strip(" \t").lower()] = value
    return found


def _expiry(attributes: Mapping[str, str], now: float) -> float | None:
    """Max-Age before Expires (section 5.3, step 3); None for a cookie of the session."""
    age = attributes.get("max-age", "")
    digits = age.removeprefix("-")
    if digits and digits.isascii() and digits.isdigit():
        if age.startswith("-"):
            return 0.0
        return now + min(float(age[:12]), MOST_SECONDS)
    if "expires" in attributes:
        when = parse_date(attributes["expires"])
        if when is not None:
            return min(when, now + MOST_SECONDS)
    return None


def _check_text(name: str, value: str) -> None:
    for what, text, bad in (("name", name, '()<>@,;:\\"/[]?={} \t'), ("value", value, ";")):
        if not isinstance(text, str):
            raise TypeError(f"expected the {what} of a cookie as a str, not {type(text).__name__}: {text!r}")
        for c in text:
            if c in bad or c < " " or c > "\xff" or c == "\x7f":
                raise LocalError(f"the {what} of a cookie cannot have the character {c!r} in it: {text!r}")
    if not name:
        raise LocalError("a cookie has a name")
