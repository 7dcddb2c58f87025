"""Reading master files, the text of zones (RFC 1035, section 5; RFC 2308, section 4; RFC 3597), and writing them.

A line is cut into words by one regular expression, and by `str.split` if nothing in it needs more; lines within
parentheses are one. The data of records goes to `_packet/text.py`. Beside the RFCs' there are the extensions that all
name servers share: TTLs and times with units (``1h30m``), and ``$GENERATE``.

What is wrong is a DNS_Zone_Error with the file and the line. Whoever writes a file chooses how long it is, so limits
are about what a short file can cause: files in files, and generated records.

Cost: about 8 microseconds for a record; other threads run after each thousand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import coro
from coro.dns import _wire
from coro.dns._packet.codec import PackError
from coro.dns._packet.numbers import class_number, type_number, type_text
from coro.dns._packet.text import Quoted, rdata_from_text, rdata_to_text
from coro.dns._packet.words import absolute
from coro.dns._zone.data import HISTORY, SOA, Builder, Data, order_of, text_of, type_of
from coro.dns.exceptions import DNS_Zone_Error

__all__ = ["read", "write"]

#: Files within files (nsd allows as many), and records that $GENERATE may make: a /16 network's addresses, and more.
DEPTH = 10
GENERATED = 100_000
#: Characters of a line, or of several within parentheses: more than the longest data of a record needs.
ENTRY = 1 << 20
TTL_MAX = 0x7FFFFFFF  # RFC 2181, section 8
AT_ONCE = 1000

_WORD = re.compile(
    r"""[ \t\r\f\v]+|;.*|([()])|((?:="(?:[^"\\]|\\.)*"|[^\s;()"\\]|\\\d{3}|\\[^\d])+)|"((?:[^"\\]|\\.)*)\""""
)
_SPECIAL = re.compile(r'["();\\]')
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_TIME = re.compile(r"(\d{1,10})([smhdw]?)", re.IGNORECASE | re.ASCII)
_TIMES = re.compile(rf"(?:{_TIME.pattern})+", re.IGNORECASE | re.ASCII)
_RANGE = re.compile(r"(\d{1,10})-(\d{1,10})(?:/(\d{1,10}))?", re.ASCII)
_DOLLAR = re.compile(r"\\\$|\$\$|\$\{(-?\d{1,10})(?:,(\d{1,3})(?:,([doxXnN]))?)?\}|\$")


class Entry(NamedTuple):
    """The words of one or several lines, the first of which has the number `line`."""

    line: int
    words: list[str]
    #: Does it begin with a space, so without an owner?
    indented: bool


def seconds_of(text: str) -> int:
    """A TTL or a time: a number, or numbers with units such as 1h30m. Raises DNS_Zone_Error."""
    if not _TIMES.fullmatch(text):
        raise DNS_Zone_Error(f"expected a number of seconds, or numbers with units such as 1h30m, not {text!r}")
    total = sum(int(number) * _SECONDS[unit.lower()] for number, unit in _TIME.findall(text))
    if total > 0xFFFFFFFF:
        raise DNS_Zone_Error(f"expected at most {0xFFFFFFFF} seconds, not {text}")
    return total


def _ttl(text: str) -> int:
    ttl = seconds_of(text)
    if ttl > TTL_MAX:
        raise DNS_Zone_Error(f"a TTL is at most {TTL_MAX} seconds, not {ttl} (RFC 2181, section 8)")
    return ttl


def entries(lines: Iterable[str], where: str) -> Iterator[Entry]:
    """The entries of a file. Raises DNS_Zone_Error with the line."""
    words: list[str] = []
    first = depth = size = number = 0
    indented = False
    for number, line in enumerate(lines, 1):
        if not depth:
            first, words, size, indented = number, [], 0, line[:1] in (" ", "\t")
        if _SPECIAL.search(line) is None and not depth:
            words = line.split()
        else:
            at, end = 0, len(line.rstrip("\n"))
            while at < end:
                found = _WORD.match(line, at, end)
                if found is None:
                    raise DNS_Zone_Error("a quote or a backslash without its other part", where, number)
                at = found.end()
                if found[2] is not None:
                    words.append(found[2])
                elif found[3] is not None:
                    words.append(Quoted(found[3]))
                elif found[1] is not None:
                    depth += 1 if found[1] == "(" else -1
                    if depth < 0:
                        raise DNS_Zone_Error("a closing parenthesis without an opening one", where, number)
            size += end
            if size > ENTRY:
                raise DNS_Zone_Error(f"an entry of more than {ENTRY} characters", where, first)
        if words and not depth:
            yield Entry(first, words, indented)
    if depth:
        raise DNS_Zone_Error("the file ends within parentheses that were opened here", where, first)


class Reader:
    """Reads one zone, from a file and those that it includes."""

    def __init__(self, origin: bytes, klass: int, ttl: int | None, include: bool, limit: int) -> None:
        self.builder = Builder(origin, klass)
        self.origin = _wire.to_text(origin)
        self.owner: bytes | None = None
        self.klass = klass
        #: Of $TTL, and of the last record that has one.
        self.default = ttl
        self.last: int | None = None
        self.include = include
        self.limit = limit
        self.generated = 0
        self.names: dict[str, bytes] = {}

    def name(self, text: str) -> bytes:
        """A name in wire form."""
        found = self.names.get(text)
        if found is None:
            if len(self.names) > 10_000:
                self.names.clear()
            found = self.names[text] = _wire.from_text(absolute(text, "" if self.origin == "." else self.origin))
        return found

    def file(self, path: Path, depth: int = 0) -> None:
        """A file. Raises DNS_Zone_Error."""
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as lines:
                self.lines(lines, str(path), path.parent, depth)
        except OSError as e:
            raise DNS_Zone_Error(f"{path} cannot be read: {e.strerror or e}") from e

    def lines(self, lines: Iterable[str], where: str, folder: Path | None = None, depth: int = 0) -> None:
        """Lines. Raises DNS_Zone_Error with the line."""
        count = 0
        running = coro.coro_is_running()
        for entry in entries(lines, where):
            try:
                if entry.words[0][:1] == "$" and not entry.indented:
                    self.directive(entry, where, folder, depth)
                else:
                    self.record(entry.words, entry.indented)
            except DNS_Zone_Error as e:
                if e.line:
                    raise
                raise DNS_Zone_Error(e.error_string, where, entry.line) from None
            except ValueError as e:
                raise DNS_Zone_Error(str(e), where, entry.line) from None
            count += 1
            if running and not count % AT_ONCE:
                coro.yield_slice()

    def directive(self, entry: Entry, where: str, folder: Path | None, depth: int) -> None:
        """$ORIGIN, $TTL, $INCLUDE, $GENERATE."""
        kind, *words = entry.words
        kind = kind.upper()
        if kind == "$ORIGIN" and len(words) == 1:
            self.origin = _wire.to_text(self.name(words[0]))
            self.names.clear()
        elif kind == "$TTL" and len(words) == 1:
            self.default = _ttl(words[0])
        elif kind == "$INCLUDE" and 1 <= len(words) <= 2:
            if folder is None or not self.include:
                raise DNS_Zone_Error("$INCLUDE is not allowed here")
            if depth + 1 >= DEPTH:
                raise DNS_Zone_Error(f"files within files, more than {DEPTH} deep")
            before = self.origin, self.owner
            if len(words) == 2:
                self.origin = _wire.to_text(self.name(words[1]))
            self.names.clear()
            self.file(folder / words[0], depth + 1)
            self.origin, self.owner = before
            self.names.clear()
        elif kind == "$GENERATE" and len(words) >= 4:
            self.generate(words)
        elif kind in ("$ORIGIN", "$TTL", "$INCLUDE", "$GENERATE"):
            expected = {"$ORIGIN": "a name", "$TTL": "a TTL", "$INCLUDE": "a file, and perhaps an origin",
                        "$GENERATE": "a range, an owner, a type and data"}  # fmt: skip
            raise DNS_Zone_Error(f"expected {expected[kind]} behind {kind}, not {' '.join(words)!r}")
        else:
            raise DNS_Zone_Error(f"expected $ORIGIN, $TTL, $INCLUDE, $GENERATE or a record, not {kind}")

    def generate(self, words: list[str]) -> None:
        """A record for each number of a range (as BIND has it): $ is the number, ${offset,width,base} says how."""
        found = _RANGE.fullmatch(words[0])
        if found is None:
            raise DNS_Zone_Error(f"expected a range such as 1-254 or 0-100/2, not {words[0]!r}")
        first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
        if first > last or not step:
            raise DNS_Zone_Error(f"expected a range that goes up, not {words[0]}")
        self.generated += (last - first) // step + 1
        if self.generated > GENERATED:
            raise DNS_Zone_Error(f"$GENERATE for more than {GENERATED} records")
        for number in range(first, last + 1, step):
            self.record([type(word)(_DOLLAR.sub(lambda m: _numbered(m, number), word)) for word in words[1:]], False)  # noqa: B023

    def record(self, words: list[str], indented: bool) -> None:
        """A record."""
        at = 0
        if not indented:
            self.owner = self.name(words[0])
            at = 1
        if self.owner is None:
            raise DNS_Zone_Error("the first record has no owner")
        ttl: int | None = None
        klass = 0
        while True:
            if at >= len(words):
                raise DNS_Zone_Error("expected the type of a record, found the end of the line")
            word = words[at]
            at += 1
            if ttl is None and word[:1].isdigit() and _TIMES.fullmatch(word):
                ttl = _ttl(word)
                continue
            try:
                rtype = type_number(word)
                break
            except ValueError:
                pass
            try:
                if klass:
                    raise ValueError
                klass = class_number(word)
            except ValueError:
                raise DNS_Zone_Error(f"expected a TTL, a class or the type of a record, not {word!r}") from None
            if klass != self.klass:
                raise DNS_Zone_Error(f"a record of the class {word}: all of a zone have the same one")
        rest = words[at:]
        if rtype == SOA and len(rest) == 7:
            rest[3:] = [str(seconds_of(word)) for word in rest[3:]]
        try:
            data = rdata_from_text(rtype, rest, "" if self.origin == "." else self.origin, self.klass)
        except PackError as e:
            raise DNS_Zone_Error(f"{type_text(rtype)}: {e}") from None
        if ttl is not None:
            self.last = ttl
        elif self.default is not None:
            ttl = self.default
        elif self.last is not None:
            ttl = self.last
        elif rtype == SOA:
            ttl = self.last = min(int.from_bytes(data[-4:], "big"), TTL_MAX)  # as BIND does
        else:
            raise DNS_Zone_Error("no TTL is known: write $TTL before the first record")
        if self.builder.count >= self.limit:
            raise DNS_Zone_Error(f"more than {self.limit} records")
        self.builder.add(self.owner, rtype, ttl, data)


def _numbered(found: re.Match[str], number: int) -> str:
    text = found[0]
    if text in ("\\$", "$$"):
        return "\\$" if text == "\\$" else "$"
    number += int(found[1] or 0)
    width, base = int(found[2] or 0), found[3] or "d"
    if width > 255:
        raise DNS_Zone_Error(f"expected a width up to 255, not {width}")
    if base in "nN":  # hexadecimal digits as labels, the last one first, as reverse zones of IPv6 have them
        digits = f"{number:0{max(width // 2, 1)}{'x' if base == 'n' else 'X'}}"
        return ".".join(reversed(digits))
    return f"{number:0{width}{base}}" if width else f"{number:{base}}"


def read(
    source: str | Path,
    origin: bytes,
    *,
    klass: int = 1,
    ttl: int | None = None,
    include: bool = True,
    limit: int = 10_000_000,
    history: int = HISTORY,
) -> Data:
    """A zone from a file (a Path) or from text. Raises DNS_Zone_Error."""
    reader = Reader(origin, klass, ttl, include, limit)
    if isinstance(source, Path):
        reader.file(source)
    else:
        reader.lines(source.split("\n"), "<text>")
    try:
        return reader.builder.finish(history)
    except DNS_Zone_Error as e:
        raise DNS_Zone_Error(e.error_string, str(source) if isinstance(source, Path) else "<text>") from None


def write(zone: Data) -> Iterator[str]:
    """The lines of a zone's text: the SOA record first, the rest in the canonical order of names, all absolute."""
    yield f"; {text_of(zone.origin)} serial {zone.serial}\n"
    soa = zone.soa_record
    yield f"{text_of(zone.origin)}\t{soa[3]}\tIN\tSOA\t{rdata_to_text(SOA, soa[4])}\n"
    running = coro.coro_is_running()
    for i, (name, node) in enumerate(sorted(zone.all_nodes(), key=lambda item: order_of(item[0])), 1):
        owner = text_of(name)
        for key, (ttl, datas) in node.items():
            if key != SOA:
                rtype = type_of(key)
                for data in datas:
                    yield f"{owner}\t{ttl}\tIN\t{type_text(rtype)}\t{rdata_to_text(rtype, data, zone.klass)}\n"
        if running and not i % AT_ONCE:
            coro.yield_slice()
