"""LDIF (RFC 2849): entries and changes as text, both ways, one record at a time.

    for record in read(open("dump.ldif", "rb")):
        if isinstance(record, Entry):
            print(record.dn, record.attributes["cn"])

    with open("dump.ldif", "w") as f:
        write(f, [Entry("cn=x,dc=example", {"objectClass": [b"person"], "cn": [b"x"], "sn": [b"y"]})])

Values are bytes.  A reader keeps one record in memory, which has a limit.  `<url>` values are refused unless the caller
says how to open them: a file from a stranger must not read other files.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from coro.ldap.exceptions import LDIFError

__all__ = ["MAX_RECORD", "Add", "Control", "Delete", "Entry", "Modify", "ModifyDN", "Record", "read", "write"]

#: Bytes of a record.
MAX_RECORD = 64 * 1024 * 1024
#: Columns of a line that is written; longer ones are folded (RFC 2849, note 2).
_COLUMNS = 76

# RFC 2849: SAFE-STRING, whose first character is none of NUL LF CR blank : <; a blank at the end needs base64, too.
_SAFE = re.compile(rb"(?:[^\0\n\r :<\x80-\xff](?:[^\0\n\r\x80-\xff]*[^\0\n\r \x80-\xff])?)?")
_DESCRIPTION = re.compile(rb"(?:[A-Za-z][A-Za-z0-9-]*|[0-9]+(?:\.[0-9]+)*)(?:;[A-Za-z0-9-]+)*")
_CONTROL = re.compile(rb" *([0-9]+(?:\.[0-9]+)*)(?: +(true|false))?(?=:|$|\n)")


@dataclass(frozen=True, slots=True)
class Control:
    """A control of a change record: object identifier, criticality, and value or None."""

    oid: str
    critical: bool = False
    value: bytes | None = None


@dataclass(slots=True)
class Entry:
    """An entry: its name, and for each attribute its values.  Names of attributes are as they were written."""

    dn: str
    attributes: dict[str, list[bytes]] = field(default_factory=dict)


@dataclass(slots=True)
class Add(Entry):
    """`changetype: add`."""

    controls: tuple[Control, ...] = ()


@dataclass(slots=True)
class Delete:
    """`changetype: delete`."""

    dn: str
    controls: tuple[Control, ...] = ()


@dataclass(slots=True)
class Modify:
    """`changetype: modify`: (operation, attribute, values), the operation one of add, delete, replace, increment."""

    dn: str
    changes: list[tuple[str, str, list[bytes]]] = field(default_factory=list)
    controls: tuple[Control, ...] = ()


@dataclass(slots=True)
class ModifyDN:
    """`changetype: modrdn`: the new relative name, whether the old one goes, and the new superior or None."""

    dn: str
    newrdn: str
    deleteoldrdn: bool = True
    newsuperior: str | None = None
    controls: tuple[Control, ...] = ()


Record = Entry | Add | Delete | Modify | ModifyDN

# ---- reading


class _Lines:
    """Logical lines of one record: unfolded, without comments, each with its number."""

    def __init__(self, source: Iterable[bytes | str], max_record: int) -> None:
        self.lines = enumerate(source, 1)
        self.max_record = max_record

    def record(self) -> list[tuple[int, bytes]]:
        """The lines up to the next empty one; none at the end."""
        found: list[tuple[int, bytearray]] = []
        comment = False
        size = 0
        for number, line in self.lines:
            if isinstance(line, str):
                line = line.encode("utf-8")
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            size += len(line) + 1
            if size > self.max_record:
                raise LDIFError(f"expected a record of at most {self.max_record} bytes, got a longer one", number)
            if line.startswith(b" "):
                if comment:
                    continue
                if not found:
                    raise LDIFError("expected a line to continue before one that begins with a blank", number)
                found[-1][1].extend(line[1:])
                continue
            comment = line.startswith(b"#")
            if comment:
                continue
            if not line:
                if found:
                    break
                continue
            found.append((number, bytearray(line)))
        return [(number, bytes(line)) for number, line in found]


def read(
    source: IO[bytes] | Iterable[bytes | str],
    *,
    open_url: Callable[[str], bytes] | None = None,
    max_record: int = MAX_RECORD,
) -> Iterator[Record]:
    """The records of a file, or of anything that gives lines.

    open_url: called with the URL of a value that is given as `attribute:< url`, returns its bytes; without it such a
    value is an error.  max_record: bytes of a record at most.

    Raises LDIFError, and what the source and open_url raise.
    """
    lines = _Lines(source, max_record)
    first = True
    while record := lines.record():
        if first:
            first = False
            number, line = record[0]
            if line.lower().startswith(b"version:"):
                if line[8:].strip() != b"1":
                    raise LDIFError(f"expected version 1, got {line[8:].strip()!r:.40}", number)
                del record[0]
                if not record:
                    continue
        yield _Reader(record, open_url).record()


class _Reader:
    """The lines of one record, taken from the first to the last."""

    def __init__(self, lines: list[tuple[int, bytes]], open_url: Callable[[str], bytes] | None) -> None:
        self.lines = lines
        self.at = 0
        self.open_url = open_url

    def wrong(self, message: str) -> LDIFError:
        return LDIFError(message, self.lines[min(self.at, len(self.lines) - 1)][0])

    def sees(self) -> bytes:
        """The name on this line in lower case; b"" behind the last."""
        return self.lines[self.at][1].partition(b":")[0].lower() if self.at < len(self.lines) else b""

    def pair(self, expected: str = "an attribute") -> tuple[str, bytes]:
        """The name and the value of this line; the next one is the next to be taken."""
        if self.at >= len(self.lines):
            raise self.wrong(f"expected {expected}, but the record ends here")
        line = self.lines[self.at][1]
        name, colon, rest = line.partition(b":")
        if not colon or _DESCRIPTION.fullmatch(name) is None:
            raise self.wrong(f"expected {expected} and ':', got {line!r:.80}")
        value = self.value(rest)
        self.at += 1
        return name.decode("ascii"), value

    def value(self, rest: bytes) -> bytes:
        """What stands behind the colon of a name."""
        if rest.startswith(b":"):
            try:
                return base64.b64decode(rest[1:].strip(b" "), validate=True)
            except binascii.Error as exc:
                raise self.wrong(f"expected base64 behind '::': {exc}") from None
        if rest.startswith(b"<"):
            url = rest[1:].strip(b" ").decode("ascii", "backslashreplace")
            if self.open_url is None:
                raise self.wrong(f"expected values in the file, got the address {url!r:.80}; open_url= allows it")
            return self.open_url(url)
        value = rest.lstrip(b" ")
        if b"\0" in value:
            raise self.wrong("expected a value with NUL in base64")
        return value

    def text(self, expected: str) -> str:
        value = self.pair(expected)[1]
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            self.at -= 1
            raise self.wrong(f"expected UTF-8 in {expected}, got {value!r:.80}") from None

    def record(self) -> Record:
        if self.sees() != b"dn":
            raise self.wrong(f"expected 'dn:' at the beginning of a record, got {self.lines[self.at][1]!r:.80}")
        dn = self.text("dn")
        controls = self.controls()
        if self.sees() != b"changetype":
            if controls:
                raise self.wrong("expected changetype behind controls")
            return Entry(dn, self.attributes())
        kind = self.text("changetype").lower().strip()
        if kind == "add":
            return Add(dn, self.attributes(), controls)
        if kind == "delete":
            if self.at < len(self.lines):
                raise self.wrong("expected nothing behind 'changetype: delete'")
            return Delete(dn, controls)
        if kind == "modify":
            return Modify(dn, self.changes(), controls)
        if kind in ("modrdn", "moddn"):
            return self.renaming(dn, controls)
        self.at -= 1
        raise self.wrong(f"expected add, delete, modify, modrdn or moddn, got {kind!r:.40}")

    def controls(self) -> tuple[Control, ...]:
        found = []
        while self.sees() == b"control":
            rest = self.lines[self.at][1].partition(b":")[2]
            match = _CONTROL.match(rest)
            if match is None:
                raise self.wrong(f"expected an object identifier and true or false, got {rest!r:.80}")
            behind = rest[match.end() :]
            value = self.value(behind[1:]) if behind.startswith(b":") else None
            found.append(Control(match[1].decode("ascii"), match[2] == b"true", value))
            self.at += 1
        return tuple(found)

    def attributes(self) -> dict[str, list[bytes]]:
        found: dict[str, list[bytes]] = {}
        spelt: dict[str, str] = {}
        while self.at < len(self.lines):
            name, value = self.pair()
            # The first spelling counts: an entry may have cn and CN.
            found.setdefault(spelt.setdefault(name.lower(), name), []).append(value)
        if not found:
            raise self.wrong("expected one attribute at least")
        return found

    def changes(self) -> list[tuple[str, str, list[bytes]]]:
        found = []
        while self.at < len(self.lines):
            operation, attribute = self.pair("add, delete, replace or increment")
            operation = operation.lower()
            if operation not in ("add", "delete", "replace", "increment"):
                self.at -= 1
                raise self.wrong(f"expected add, delete, replace or increment, got {operation!r:.40}")
            name = attribute.strip().decode("ascii", "backslashreplace")
            values = []
            while self.at < len(self.lines) and self.lines[self.at][1] != b"-":
                given, value = self.pair()
                if given.lower() != name.lower():
                    self.at -= 1
                    raise self.wrong(f"expected a value of {name}, or '-' on a line of its own, got {given!r:.40}")
                values.append(value)
            # RFC 2849 wants a line with "-" behind each, the last one included; many files leave that out.
            self.at += 1
            found.append((operation, name, values))
        return found

    def renaming(self, dn: str, controls: tuple[Control, ...]) -> ModifyDN:
        if self.sees() != b"newrdn":
            raise self.wrong("expected newrdn")
        newrdn = self.text("newrdn")
        if self.sees() != b"deleteoldrdn":
            raise self.wrong("expected deleteoldrdn")
        flag = self.text("deleteoldrdn").strip()
        if flag not in ("0", "1"):
            self.at -= 1
            raise self.wrong(f"expected 0 or 1 for deleteoldrdn, got {flag!r:.40}")
        superior = self.text("newsuperior") if self.sees() == b"newsuperior" else None
        if self.at < len(self.lines):
            raise self.wrong("expected the end of the record behind newsuperior")
        return ModifyDN(dn, newrdn, flag == "1", superior, controls)


# ---- writing


def _line(name: str, value: bytes | str) -> str:
    """A folded line; base64 where the value is not safe."""
    raw = value.encode("utf-8") if isinstance(value, str) else bytes(value)
    if _SAFE.fullmatch(raw):
        line = f"{name}: {raw.decode('ascii')}" if raw else f"{name}:"
    else:
        line = f"{name}:: {base64.b64encode(raw).decode('ascii')}"
    if len(line) <= _COLUMNS:
        return line + "\n"
    parts = [line[:_COLUMNS], *(line[at : at + _COLUMNS - 1] for at in range(_COLUMNS, len(line), _COLUMNS - 1))]
    return "\n ".join(parts) + "\n"


def _named(name: str) -> str:
    if _DESCRIPTION.fullmatch(name.encode("utf-8", "backslashreplace")) is None:
        raise LDIFError(f"expected the name of an attribute, got {name!r:.60}")
    return name


def _attributes(attributes: Mapping[str, Sequence[bytes | str]]) -> str:
    return "".join(_line(_named(name), value) for name, values in attributes.items() for value in values)


def _controls(controls: tuple[Control, ...]) -> str:
    lines = []
    for control in controls:
        head = f"control: {control.oid} {'true' if control.critical else 'false'}"
        lines.append(_line(head, control.value) if control.value is not None else head + "\n")
    return "".join(lines)


def format_record(record: Record) -> str:
    """The text of one record, without the empty line behind it.  Raises LDIFError for names that are no attributes."""
    text = _line("dn", record.dn)
    if not isinstance(record, (Add, Delete, Modify, ModifyDN)):
        return text + _attributes(record.attributes)
    text += _controls(record.controls)
    if isinstance(record, Add):
        return text + "changetype: add\n" + _attributes(record.attributes)
    if isinstance(record, Delete):
        return text + "changetype: delete\n"
    if isinstance(record, Modify):
        text += "changetype: modify\n"
        for operation, attribute, values in record.changes:
            if operation not in ("add", "delete", "replace", "increment"):
                raise LDIFError(f"expected add, delete, replace or increment, got {operation!r:.40}")
            text += _line(operation, _named(attribute)) + "".join(_line(attribute, value) for value in values) + "-\n"
        return text
    text += "changetype: modrdn\n" + _line("newrdn", record.newrdn) + f"deleteoldrdn: {int(record.deleteoldrdn)}\n"
    return text if record.newsuperior is None else text + _line("newsuperior", record.newsuperior)


def write(f: IO[str], records: Iterable[Record]) -> None:
    """Write records to a text file, with `version: 1` before the first and an empty line behind each.

    Raises LDIFError for names that are no attributes, and what the file raises.
    """
    f.write("version: 1\n\n")
    for record in records:
        f.write(format_record(record) + "\n")
