"""How a client proves who it is: Basic, Bearer and Digest, and the interface for other schemes.

An ``Auth`` adds its header to a request before it is sent (``prepare``), and may answer a 401 or 407 (``challenge``).
The session calls both only for the origin that the credentials are for; they know nothing of redirects.

Digest is RFC 7616: SHA-512-256, SHA-256 and MD5, each with -sess, quality "auth" and "auth-int", nonce counts, hashed
user names and UTF-8. Of several challenges the strongest is answered. Without "qop" it is RFC 2069, which old devices
speak. The server's own proof (Authentication-Info) is checked where it sends one. MD5 is what most such servers have;
it is refused with ``algorithms=("SHA-256",)``, say.

Secrets are in no repr. Cost: a header; for Digest some hashes, and one more round trip for the first request.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from coro.http.exceptions import LocalError, RemoteError

if TYPE_CHECKING:
    from coro.http._client.messages import Request, Response

__all__ = ["Auth", "BasicAuth", "BearerAuth", "DigestAuth", "as_auth", "parse_challenges"]

#: Challenges of one response that are looked at.
MOST_CHALLENGES = 32


class Auth:
    """Base class of authentication schemes."""

    #: The request's and response's fields: those for a server; a proxy has its own.
    field = "Authorization"

    def prepare(self, request: Request) -> None:
        """Add to ``request.headers`` what can be known before the server has asked."""

    def challenge(self, request: Request, response: Response) -> bool:
        """The server answered 401. Change ``request`` and return True to have it sent again, once."""
        return False

    def check(self, request: Request, response: Response) -> None:
        """Called with each response that is not 401; RemoteError if the server's own proof is wrong."""


def _text(value: Any, what: str) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8")
    if not isinstance(value, str):
        raise TypeError(f"expected {what} as a str, not {type(value).__name__}")
    if any(c < " " or c == "\x7f" for c in value):
        raise LocalError(f"{what} cannot have control characters in it")
    return value


class BasicAuth(Auth):
    """RFC 7617: the user's name and password, encoded as UTF-8. They are as good as readable: use it with https.

    user: cannot have a colon in it. LocalError for that, and for control characters.
    """

    def __init__(self, user: str, password: str) -> None:
        user, password = _text(user, "the user's name"), _text(password, "the password")
        if ":" in user:
            raise LocalError("the user's name of Basic authentication cannot have a colon in it (RFC 7617 section 2)")
        self.user = user
        self._value = "Basic " + b64encode(f"{user}:{password}".encode()).decode("ascii")

    def __repr__(self) -> str:
        return f"BasicAuth({self.user!r}, ***)"

    def prepare(self, request: Request) -> None:
        request.headers[self.field] = self._value


class BearerAuth(Auth):
    """RFC 6750: a token.

    token: the token, or a function that returns it. A function is asked for each request, and once more after a 401,
    with what it returned; so it can fetch a fresh token: ``token(old)``. LocalError for a token with blanks, control
    characters or characters beyond ASCII.
    """

    def __init__(self, token: str | Callable[[str | None], str]) -> None:
        self._source = token if callable(token) else None
        self._token = None if callable(token) else self._checked(token)

    @staticmethod
    def _checked(token: Any) -> str:
        token = _text(token, "the token")
        if not token or not token.isascii() or " " in token:
            raise LocalError("a token is ASCII without blanks, and not empty (RFC 6750 section 2.1)")
        return str(token)

    def __repr__(self) -> str:
        return "BearerAuth(***)"

    def prepare(self, request: Request) -> None:
        if self._token is None:
            assert self._source is not None
            self._token = self._checked(self._source(None))
        request.headers[self.field] = f"Bearer {self._token}"

    def challenge(self, request: Request, response: Response) -> bool:
        if self._source is None:
            return False
        old, sent = self._token, request.headers.get(self.field)
        if sent == f"Bearer {old}":
            self._token = self._checked(self._source(old))
        # Otherwise another thread has fetched a new one meanwhile.
        request.headers[self.field] = f"Bearer {self._token}"
        return request.headers[self.field] != sent


def _sha512_256(data: bytes = b"") -> Any:
    return hashlib.new("sha512_256", data)


_HASHES: dict[str, Callable[..., Any]] = {
    "SHA-512-256": _sha512_256,
    "SHA-256": hashlib.sha256,
    "MD5": lambda data=b"": hashlib.md5(data, usedforsecurity=False),
}


class DigestAuth(Auth):
    """RFC 7616: proves that the password is known without sending it.

    user, password: as people type them. algorithms: those that are accepted, the best first; with ``-sess`` as well.

    It remembers the server's nonce and answers the next requests at once. One object is for one user at one server; it
    may be used by many threads. LocalError for control characters.
    """

    def __init__(
        self, user: str, password: str, *, algorithms: Iterable[str] = ("SHA-512-256", "SHA-256", "MD5")
    ) -> None:
        self.user = _text(user, "the user's name")
        self._password = _text(password, "the password")
        self._algorithms = tuple(a.upper() for a in algorithms)
        for name in self._algorithms:
            if name not in _HASHES:
                raise ValueError(f"expected algorithms of {', '.join(_HASHES)}, not {name!r}")
        self._challenge: dict[str, str] = {}
        self._count = 0

    def __repr__(self) -> str:
        return f"DigestAuth({self.user!r}, ***)"

    def prepare(self, request: Request) -> None:
        if self._challenge:
            self._sign(request)

    def challenge(self, request: Request, response: Response) -> bool:
        field = "WWW-Authenticate" if self.field == "Authorization" else "Proxy-Authenticate"
        best: tuple[int, dict[str, str]] | None = None
        for scheme, parameters in parse_challenges(response.headers.get_list(field)):
            if scheme != "digest" or "nonce" not in parameters or "realm" not in parameters:
                continue
            name = parameters.get("algorithm", "MD5").upper().removesuffix("-SESS")
            if name not in self._algorithms or not _quality(parameters, request):
                continue
            rank = self._algorithms.index(name)
            if best is None or rank < best[0]:
                best = rank, parameters
        if best is None:
            return False
        sent = request.headers.get(self.field)
        new = best[1]
        # The same nonce again, and not because it was too old: the password is wrong.
        if sent is not None and new.get("stale", "").lower() != "true" and new["nonce"] == self._challenge.get("nonce"):
            return False
        self._challenge = new
        self._count = 0
        self._sign(request)
        return True

    def check(self, request: Request, response: Response) -> None:
        field = "Authentication-Info" if self.field == "Authorization" else "Proxy-Authentication-Info"
        line = response.headers.get(field)
        if not line or not self._challenge:
            return
        told = dict(_parameters(line))
        ours = dict(_parameters(request.headers.get(self.field, "").partition(" ")[2]))
        if told.get("rspauth") and told.get("cnonce") == ours.get("cnonce") and ours.get("qop", "auth") == "auth":
            expected = self._response(ours, "", request.target_for_digest, None)
            if not hmac.compare_digest(expected.encode(), told["rspauth"].lower().encode()):
                raise RemoteError("the server's proof in Authentication-Info is wrong: it does not know the password")
        if told.get("nextnonce"):
            self._challenge = {**self._challenge, "nonce": told["nextnonce"]}
            self._count = 0

    # -- the arithmetic of RFC 7616 section 3.4

    def _hash(self, text: str | bytes) -> str:
        name = self._challenge.get("algorithm", "MD5").upper().removesuffix("-SESS")
        return str(_HASHES[name](text.encode() if isinstance(text, str) else text).hexdigest())

    def _response(self, fields: dict[str, str], method: str, target: str, body: bytes | None) -> str:
        realm = self._challenge["realm"]
        a1 = f"{self.user}:{realm}:{self._password}"
        if self._challenge.get("algorithm", "").upper().endswith("-SESS"):
            a1 = f"{self._hash(a1)}:{fields['nonce']}:{fields['cnonce']}"
        a2 = f"{method}:{target}"
        if fields.get("qop") == "auth-int":
            a2 += ":" + self._hash(body or b"")
        if "qop" in fields:
            middle = ":".join((fields["nonce"], fields["nc"], fields["cnonce"], fields["qop"]))
        else:
            middle = fields["nonce"]
        return self._hash(f"{self._hash(a1)}:{middle}:{self._hash(a2)}")

    def _sign(self, request: Request) -> None:
        given = self._challenge
        self._count += 1
        fields = {"realm": given["realm"], "nonce": given["nonce"], "uri": request.target_for_digest}
        quality = _quality(given, request)
        sess = given.get("algorithm", "").upper().endswith("-SESS")
        if quality != "none" or sess:
            fields["cnonce"] = secrets.token_hex(16)
        if quality != "none":
            fields["qop"] = quality
            fields["nc"] = f"{self._count:08x}"
        body = request.body_bytes if quality == "auth-int" else None
        answer = self._response(fields, request.method, fields["uri"], body)
        out = [self._user_field(given)]
        for name in ("realm", "nonce", "uri"):
            out.append(f'{name}="{_escaped(fields[name])}"')
        out.append(f'response="{answer}"')
        if "algorithm" in given:
            out.append(f"algorithm={given['algorithm']}")
        if "cnonce" in fields:
            out.append(f'cnonce="{fields["cnonce"]}"')
        if "opaque" in given:
            out.append(f'opaque="{_escaped(given["opaque"])}"')
        if "qop" in fields:
            out.append(f"qop={fields['qop']}, nc={fields['nc']}")
        if given.get("userhash", "").lower() == "true":
            out.append("userhash=true")
        request.headers[self.field] = "Digest " + ", ".join(out)

    def _user_field(self, given: dict[str, str]) -> str:
        if given.get("userhash", "").lower() == "true":
            hashed = self._hash(f"{self.user}:{given['realm']}")
            return f'username="{hashed}"'
        if self.user.isascii():
            return f'username="{_escaped(self.user)}"'
        # RFC 7616 section 3.4: a name beyond ASCII stands in the extended notation of RFC 8187.
        return f"username*=UTF-8''{quote(self.user, safe='')}"


def _quality(parameters: dict[str, str], request: Request) -> str:
    """Which quality of protection to use: "auth", "auth-int", "none" (RFC 2069), or "" if there is none we can."""
    if "qop" not in parameters:
        return "none"
    offered = [q.strip().lower() for q in parameters["qop"].split(",")]
    if "auth" in offered:
        return "auth"
    return "auth-int" if "auth-int" in offered and request.body_bytes is not None else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def as_auth(given: Auth | tuple[str, str] | str | None) -> Auth | None:
    """An Auth from what a user may write: (user, password) is Basic, a str a token."""
    if given is None or isinstance(given, Auth):
        return given
    if isinstance(given, tuple) and len(given) == 2:
        return BasicAuth(*given)
    if isinstance(given, str):
        return BearerAuth(given)
    raise TypeError(f"auth is an Auth, (user, password) or a token, not {type(given).__name__}")


# -- the grammar of challenges, RFC 9110 section 11.6.1


def parse_challenges(lines: Iterable[str]) -> list[tuple[str, dict[str, str]]]:
    """(scheme in lower case, parameters) of each challenge; what is malformed is left out."""
    found: list[tuple[str, dict[str, str]]] = []
    for line in lines:
        for item in _items(line):
            name, equals, value = item.partition("=")
            # "Scheme name=value" begins a challenge, "name=value" continues it, "Scheme" or "Scheme token68" stands
            # alone. Before the equals sign of a first parameter there is a blank.
            head, _, rest = name.strip().rpartition(" ")
            if head and not value.strip("= "):
                equals = ""  # the padding of a token68
            if equals and not head:
                if found:
                    found[-1][1].setdefault(rest.lower(), _unquoted(value))
                continue
            if len(found) >= MOST_CHALLENGES:
                return found
            if equals:
                found.append((head.strip().lower(), {rest.lower(): _unquoted(value)}))
            else:
                found.append((item.strip().partition(" ")[0].lower(), {}))
    return found


def _parameters(line: str) -> Iterator[tuple[str, str]]:
    for item in _items(line):
        name, equals, value = item.partition("=")
        if equals:
            yield name.strip().lower(), _unquoted(value)


def _items(line: str) -> Iterator[str]:
    """The parts between commas, those inside quoted strings excepted."""
    start = 0
    quoted = escaped = False
    for place, c in enumerate(line):
        if escaped:
            escaped = False
        elif quoted:
            escaped = c == "\\"
            quoted = c != '"'
        elif c == '"':
            quoted = True
        elif c == ",":
            if line[start:place].strip():
                yield line[start:place].strip()
            start = place + 1
    if line[start:].strip():
        yield line[start:].strip()


def _unquoted(value: str) -> str:
    value = value.strip()
    if len(value) < 2 or not (value.startswith('"') and value.endswith('"')):
        return value
    out: list[str] = []
    escaped = False
    for c in value[1:-1]:
        if c == "\\" and not escaped:
            escaped = True
            continue
        escaped = False
        out.append(c)
    return "".join(out)
