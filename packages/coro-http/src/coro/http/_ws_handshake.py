"""The opening handshake of WebSocket, without I/O: what a server and a client check, and what they agree on.

RFC 6455, section 4, for the handshake, and RFC 7692, sections 5 and 7, for permessage-deflate. The functions take the
values of headers and return those to send. They raise `HandshakeError`, with the status of a server's answer.

Cost: some 10 us a handshake. Rejected: other extensions; none is registered that servers use.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from coro.http.exceptions import HandshakeError

__all__ = ["Deflate", "accept_key", "agree_deflate", "check_answer", "check_request", "choose_subprotocol", "new_key"]

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_VERSION = "13"

# token and quoted-string of RFC 9110, section 5.6; RFC 6455, section 9.1, wants a quoted value to be a token, too.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PARAMETER = re.compile(
    r"[ \t]*;[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?:[ \t]*=[ \t]*(?:([!#$%&'*+.^_`|~0-9A-Za-z-]+)"
    r'|"([!#$%&\'*+.^_`|~0-9A-Za-z-]+)"))?'
)
_NAME = re.compile(r"[ \t,]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)")
_BITS = re.compile(r"[89]|1[0-5]")

#: Offers of one header that are looked at; more is no client's honest wish.
MOST_OFFERS = 16


@dataclass(frozen=True)
class Deflate:
    """What a side wants of permessage-deflate (RFC 7692, section 7.1), and what both agreed on.

    A window of 12 bits instead of 15 costs a few per cent of the compression and saves most of the memory: about 20 KB
    a connection to compress and 12 KB to inflate, instead of 270 KB and 40 KB. ``no_context_takeover`` gives that
    memory back after each message, and compresses short messages worse.
    """

    #: The server, or the client, compresses each message by itself.
    server_no_context_takeover: bool = False
    client_no_context_takeover: bool = False
    #: The windows that the server, and the client, compress with: 9 to 15 bits.
    server_max_window_bits: int = 12
    client_max_window_bits: int = 12
    #: Bytes of a message from which on it is compressed.
    threshold: int = 256
    #: zlib's level, 1 to 9, and its memory level, 1 to 9: 2 to the power of that + 9 bytes.
    level: int = 6
    memory_level: int = 5

    def __post_init__(self) -> None:
        for name in ("server_max_window_bits", "client_max_window_bits"):
            bits = getattr(self, name)
            if not isinstance(bits, int) or not 8 <= bits <= 15:
                raise ValueError(f"expected 9 to 15 bits as {name}, not {bits!r}")
        if not 0 <= self.level <= 9 or not 1 <= self.memory_level <= 9 or self.threshold < 0:
            raise ValueError(
                "expected a level of 0 to 9, a memory level of 1 to 9 and a threshold of at least 0 bytes, not "
                f"{self.level!r}, {self.memory_level!r} and {self.threshold!r}"
            )


def new_key() -> str:
    """The value of Sec-WebSocket-Key of a client (RFC 6455, section 4.1)."""
    return base64.b64encode(os.urandom(16)).decode()


def accept_key(key: str) -> str:
    """The value of Sec-WebSocket-Accept that answers a key (RFC 6455, section 4.2.2)."""
    return base64.b64encode(hashlib.sha1(key.encode("latin-1") + _GUID).digest()).decode()


def tokens(values: Iterable[str] | None) -> list[str]:
    """The elements of a header that is a list of tokens. HandshakeError for anything else."""
    found = []
    for value in values or ():
        for part in value.split(","):
            part = part.strip(" \t")
            if not part:
                continue
            if not _TOKEN.fullmatch(part):
                raise HandshakeError(f"expected a list of tokens, not {value!r}", 400)
            found.append(part)
    return found


def extensions(values: Iterable[str] | None) -> list[tuple[str, list[tuple[str, str | None]]]]:
    """The elements of Sec-WebSocket-Extensions (RFC 6455, section 9.1): names and their parameters."""
    found: list[tuple[str, list[tuple[str, str | None]]]] = []
    for value in values or ():
        at = 0
        while value[at:].strip(" \t,"):
            match = _NAME.match(value, at)
            if match is None or len(found) >= MOST_OFFERS:
                raise HandshakeError(f"expected at most {MOST_OFFERS} extensions, not {value!r}", 400)
            name, at = match[1], match.end()
            parameters = []
            while (match := _PARAMETER.match(value, at)) is not None:
                parameters.append((match[1], match[2] or match[3]))
                at = match.end()
            if value[at:].lstrip(" \t")[:1] not in ("", ","):
                raise HandshakeError(f"expected parameters of extensions, not {value[at:]!r}", 400)
            found.append((name, parameters))
    return found


# -- a server


def check_request(method: str, version: tuple[int, int] | str, get_all: Callable[[str], Sequence[str] | None]) -> str:
    """Whether a request asks for a WebSocket as it should (RFC 6455, section 4.2.1). Returns its key.

    Raises HandshakeError: status 405 for another method than GET, 426 for another version or protocol, 400 otherwise.
    """
    if method.upper() != "GET":
        raise HandshakeError(f"a WebSocket begins with GET, not {method}", 405)
    if version in ("0.9", "1.0") or version in ((0, 9), (1, 0)):
        raise HandshakeError("a WebSocket needs HTTP/1.1", 426)
    if "websocket" not in [token.lower() for token in tokens(get_all("upgrade"))]:
        raise HandshakeError("expected a request with the header Upgrade: websocket", 426)
    if "upgrade" not in [token.lower() for token in tokens(get_all("connection"))]:
        raise HandshakeError("expected a request with the header Connection: Upgrade", 400)
    if get_all("sec-websocket-key1"):
        raise HandshakeError("this is a draft of the protocol that browsers gave up in 2011", 426)
    found = get_all("sec-websocket-version") or ()
    if len(found) != 1 or found[0].strip() != _VERSION:
        raise HandshakeError(f"expected the header Sec-WebSocket-Version: {_VERSION}, not {', '.join(found)!r}", 426)
    keys = get_all("sec-websocket-key") or ()
    if len(keys) != 1:
        raise HandshakeError(f"expected one header Sec-WebSocket-Key, not {len(keys)}", 400)
    key = keys[0].strip()
    try:
        size = len(base64.b64decode(key, validate=True))
    except (binascii.Error, ValueError):
        size = -1
    if size != 16:
        raise HandshakeError(f"expected 16 bytes in base64 as Sec-WebSocket-Key, not {key!r}", 400)
    return key


def check_origin(origin: str | None, host: str, scheme: str, allowed: str | Iterable[str | None] | None) -> None:
    """Whether a page of this origin may connect; see ``accept``. Raises HandshakeError with status 403."""
    if allowed is None:
        return
    if allowed == "same":
        # A browser always sends the origin. The scheme is not compared: a proxy may have taken TLS away.
        if origin is None or origin.lower().partition("://")[2] == host.lower():
            return
        listed: object = f"{scheme}://{host}"
    else:
        listed = list(allowed)
        if origin in listed or (origin is not None and origin.lower() in listed):
            return
    raise HandshakeError(f"pages of the origin {origin!r} may not connect, only those of {listed!r}", 403)


def choose_subprotocol(
    offered: Sequence[str], known: Sequence[str] | Callable[[Sequence[str]], str | None] | None
) -> str | None:
    """The subprotocol of a connection: the first of ``known`` that the client offers, or what a function says.

    Never one that was not offered (RFC 6455, section 4.2.2): ValueError if a function says so.
    """
    if callable(known):
        chosen = known(offered)
        if chosen is not None and chosen not in offered:
            raise ValueError(f"expected one of the offered subprotocols {list(offered)}, or None, not {chosen!r}")
        return chosen
    return next((name for name in known or () if name in offered), None)


def agree_deflate(wanted: Deflate | None, offers: Iterable[str] | None) -> tuple[Deflate, str] | None:
    """What a server agrees on: the first offer of permessage-deflate that it can keep, and the header to answer with;
    None when there is none (RFC 7692, sections 5.1 and 7.1)."""
    if wanted is None:
        return None
    for name, parameters in extensions(offers):
        if name == "permessage-deflate":
            agreed = _accept_offer(wanted, parameters)
            if agreed is not None:
                return agreed
    return None


def _accept_offer(wanted: Deflate, parameters: list[tuple[str, str | None]]) -> tuple[Deflate, str] | None:
    given = dict(parameters)
    if len(given) != len(parameters):
        return None
    server_fresh, client_fresh = wanted.server_no_context_takeover, wanted.client_no_context_takeover
    server_bits, client_bits = wanted.server_max_window_bits, 15
    for name, value in parameters:
        if name == "server_no_context_takeover" and value is None:
            server_fresh = True
        elif name == "client_no_context_takeover" and value is None:
            client_fresh = True
        elif name == "server_max_window_bits" and value is not None and _BITS.fullmatch(value):
            server_bits = min(server_bits, int(value))
        elif name == "client_max_window_bits" and (value is None or _BITS.fullmatch(value)):
            client_bits = min(wanted.client_max_window_bits, int(value or 15))
        else:
            return None
    if server_bits < 9:
        return None  # zlib cannot
    answer = "permessage-deflate"
    if server_fresh:
        answer += "; server_no_context_takeover"
    if client_fresh:
        answer += "; client_no_context_takeover"
    if server_bits < 15:
        answer += f"; server_max_window_bits={server_bits}"
    if client_bits < 15:
        answer += f"; client_max_window_bits={client_bits}"
    return replace(
        wanted,
        server_no_context_takeover=server_fresh,
        client_no_context_takeover=client_fresh,
        server_max_window_bits=server_bits,
        client_max_window_bits=client_bits,
    ), answer


# -- a client


def offer_deflate(wanted: Deflate) -> str:
    """The value of Sec-WebSocket-Extensions of a client."""
    offer = "permessage-deflate"
    if wanted.server_no_context_takeover:
        offer += "; server_no_context_takeover"
    if wanted.client_no_context_takeover:
        offer += "; client_no_context_takeover"
    if wanted.server_max_window_bits < 15:
        offer += f"; server_max_window_bits={wanted.server_max_window_bits}"
    offer += "; client_max_window_bits"
    if wanted.client_max_window_bits < 15:
        offer += f"={wanted.client_max_window_bits}"
    return offer


def check_answer(
    status: int,
    get_all: Callable[[str], Sequence[str] | None],
    key: str,
    subprotocols: Sequence[str],
    wanted: Deflate | None,
) -> tuple[str | None, Deflate | None]:
    """Whether a server's response agrees to a WebSocket (RFC 6455, section 4.1). Returns the subprotocol and what was
    agreed on of permessage-deflate. Raises HandshakeError."""
    if status != 101:
        raise HandshakeError(f"expected the status 101, not {status}", status)
    if "websocket" not in [token.lower() for token in tokens(get_all("upgrade"))]:
        raise HandshakeError(f"expected Upgrade: websocket in the answer, not {get_all('upgrade')!r}")
    if "upgrade" not in [token.lower() for token in tokens(get_all("connection"))]:
        raise HandshakeError(f"expected Connection: Upgrade in the answer, not {get_all('connection')!r}")
    accepted = [value.strip() for value in get_all("sec-websocket-accept") or ()]
    if accepted != [accept_key(key)]:
        raise HandshakeError(f"expected Sec-WebSocket-Accept: {accept_key(key)} in the answer, not {accepted!r}")
    chosen = tokens(get_all("sec-websocket-protocol"))
    if len(chosen) > 1 or (chosen and chosen[0] not in subprotocols):
        raise HandshakeError(f"expected one of the subprotocols {list(subprotocols)}, not {chosen!r}")
    agreed: Deflate | None = None
    for name, parameters in extensions(get_all("sec-websocket-extensions")):
        if name != "permessage-deflate" or wanted is None or agreed is not None:
            raise HandshakeError(f"the server uses the extension {name!r}, which was not offered, or twice")
        agreed = _check_agreed(wanted, parameters)
    return chosen[0] if chosen else None, agreed


def _check_agreed(wanted: Deflate, parameters: list[tuple[str, str | None]]) -> Deflate:
    """What a server agreed on has to be within what was offered (RFC 7692, section 7.1)."""
    server_fresh, client_fresh, server_bits, client_bits = False, wanted.client_no_context_takeover, 15, 15
    seen = set()
    for name, value in parameters:
        if name == "server_no_context_takeover" and value is None:
            server_fresh = True
        elif name == "client_no_context_takeover" and value is None:
            client_fresh = True
        elif name == "server_max_window_bits" and value is not None and _BITS.fullmatch(value):
            server_bits = int(value)
        elif name == "client_max_window_bits" and value is not None and _BITS.fullmatch(value):
            client_bits = int(value)
        else:
            raise HandshakeError(f"an unknown parameter of permessage-deflate: {name}={value}")
        if name in seen:
            raise HandshakeError(f"the parameter {name} of permessage-deflate came twice")
        seen.add(name)
    if server_bits > wanted.server_max_window_bits or server_fresh < wanted.server_no_context_takeover:
        raise HandshakeError(f"the server did not agree to the offer {offer_deflate(wanted)!r}: {parameters!r}")
    if client_bits < 9:
        raise HandshakeError("the server wants a window of 8 bits, with which zlib cannot compress")
    return replace(
        wanted,
        server_no_context_takeover=server_fresh,
        client_no_context_takeover=client_fresh,
        server_max_window_bits=server_bits,
        client_max_window_bits=min(client_bits, wanted.client_max_window_bits),
    )
