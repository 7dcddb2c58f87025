"""A line per request: the common and the combined format of NCSA, and JSON.

    http.serve(app, address, access_log="combined")

What comes from the client is escaped, so that a request cannot forge a line or send a terminal control sequences: a
control character, a quotation mark or a backslash becomes ``\\xNN`` (the attack of CVE-2020-7694). A line is cut at a
length that no honest request reaches.

Cost: 10 us a line. The line goes to coro's captured stderr or to what ``write`` is, neither of which waits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import coro

__all__ = ["FORMATS", "combined", "common", "json_line", "to_file", "to_stderr"]

#: The most characters of one field.
LONGEST = 2048

_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x22, 0x5C, *range(0x7F, 0x100))}
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def escaped(text: str) -> str:
    """Text of a client, in printable ASCII without quotation marks."""
    if len(text) > LONGEST:
        text = text[:LONGEST] + "..."
    return text.translate(_ESCAPES)


def _host(address: Any) -> str:
    return escaped(str(address[0] if isinstance(address, tuple) and address else address or "-"))


def _when(epoch: float) -> str:
    t = time.gmtime(epoch)
    return f"{t.tm_mday:02}/{_MONTHS[t.tm_mon - 1]}/{t.tm_year}:{t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02} +0000"


def common(request: Any) -> str:
    """``host - - [day/Mon/year:time zone] "request line" status bytes``"""
    sent = request.bytes_sent or "-"
    return (
        f'{_host(request.remote)} - - [{_when(time.time())}] "{escaped(request.request)}" {request.reply_code} {sent}'
    )


def combined(request: Any) -> str:
    """The common format with the Referer and the User-Agent behind it."""
    headers = request.headers
    referer, agent = (escaped(headers.get(name) or "-") for name in ("referer", "user-agent"))
    return f'{common(request)} "{referer}" "{agent}"'


def json_line(request: Any) -> str:
    """An object of JSON on one line, with the duration in seconds."""
    headers = request.headers
    return json.dumps(
        {
            "time": time.time(),
            "client": _host(request.remote),
            "method": request.method_raw[:64],
            "target": request.uri[:LONGEST],
            "version": request.version,
            "host": (request.host or "")[:LONGEST],
            "status": request.reply_code,
            "bytes": request.bytes_sent,
            "seconds": round(request.seconds, 6),
            "referer": (headers.get("referer") or "")[:LONGEST],
            "agent": (headers.get("user-agent") or "")[:LONGEST],
        }
    )


FORMATS: dict[str, Callable[[Any], str]] = {"common": common, "combined": combined, "json": json_line}


def _format(name: str) -> Callable[[Any], str]:
    try:
        return FORMATS[name]
    except KeyError:
        raise ValueError(f"expected one of {', '.join(FORMATS)} as format of the access log, not {name!r}") from None


def to_stderr(name: str) -> Callable[[Any], None]:
    """A function for ``access_log`` that writes lines of this format to stderr. ValueError for an unknown format."""
    line = _format(name)
    return lambda request: coro.write_stderr(line(request) + "\n")


def to_file(path: str, name: str = "combined") -> Callable[[Any], None]:
    """A function for ``access_log`` that appends lines of this format to a file, a write(2) each, so that several
    processes can share it. Its attribute ``reopen()`` opens the path anew, after a rotation. Raises what ``open``
    raises; ValueError for an unknown format."""
    line = _format(name)
    file = open(path, "ab", buffering=0)

    def write(request: Any) -> None:
        file.write(line(request).encode() + b"\n")

    def reopen() -> None:
        nonlocal file
        file.close()
        file = open(path, "ab", buffering=0)

    write.reopen = reopen  # type: ignore[attr-defined]
    return write
