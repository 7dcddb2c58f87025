"""Zone transfers: AXFR (RFC 5936) and IXFR (RFC 1995), as the server that sends and as the client that takes.

`full` and `changes` make the messages of a reply one by one, so a transfer needs no memory for all of them; `Receiver`
takes records as they come, and knows when the last one has come. Neither has a socket.

A server that is asked for a transfer may send what it likes: a receiver has limits on records and bytes, takes only
whole records of the zone, and changes nothing until all has come and fits what it has.

Cost: about 4 microseconds for a record that is sent, 5 for one that is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import coro
from coro.dns import _wire
from coro.dns._packet.codec import UnpackError, value_of
from coro.dns._zone.data import SOA, Builder, Change, Data, Edit, Record, is_newer, serial_of, text_of
from coro.dns.exceptions import DNS_Transfer_Error, DNS_Zone_Error
from coro.dns.tsig import Signer

__all__ = ["AXFR", "IXFR", "Receiver", "difference", "full", "incremental", "messages"]

IXFR, AXFR = 251, 252
#: Bytes of a message: names beyond are not compressed, and a client can begin to work early.
MESSAGE = 16_000
RECORDS, BYTES = 10_000_000, 1 << 30  # of a transfer that comes in, by default
AT_ONCE = 500


def messages(question: _wire.Message, records: Iterable[Record], signer: Signer | None) -> Iterator[bytes]:
    """The reply to a question for a transfer."""
    flags = 0x8400 | question.flags & 0x0110
    room = 65535 - (signer.key.room if signer else 0)
    head: bytes | None = question.question
    some: list[Record] = []
    size = 0

    def message() -> bytes:
        out = _wire.build(question.id, flags, head, question.qtype, question.qclass, some, limit=room)
        return signer.sign(out) if signer else out

    for record in records:
        more = len(record[0]) + len(record[4]) + 10
        if some and size + more > MESSAGE:
            yield message()
            head, some, size = None, [], 0
        some.append(record)
        size += more
    yield message()


def full(zone: Data) -> Iterator[Record]:
    """All of a zone, as it is now, between its SOA record and the same again."""
    soa = zone.soa_record
    yield from zone.records()
    yield soa


def incremental(zone: Data, serial: int) -> list[Record] | None:
    """What has changed since a serial, as IXFR says it (RFC 1995, section 4); None if that is not known any more, or
    would be more than the zone."""
    soa = zone.soa_record
    if not is_newer(zone.serial, serial):
        return [soa]
    known = zone.since(serial)
    if known is None:
        return None
    out = [soa]
    for change in known:
        out += [change.old, *change.removed, change.new, *change.added]
    if len(out) > 1000 and len(out) > len(zone):
        return None
    return [*out, soa]


class Receiver:
    """Takes the records of a transfer. With `known`, a zone, differences from it may come; `done` says that all has.

    Raises DNS_Transfer_Error for records that are no transfer.
    """

    def __init__(self, origin: bytes, known: Data | None = None, most: int = RECORDS, history: int = 0) -> None:
        self.origin = origin
        self.known = known
        self.most = most
        self.history = history
        self.count = 0
        self.done = False
        #: The zone, if all of it came.
        self.zone: Data | None = None
        self.changes: list[Change] = []
        self._builder: Builder | None = None
        self._soa: Record | None = None
        self._old: Record | None = None
        self._new: Record | None = None
        self._removed: list[Record] = []
        self._added: list[Record] = []

    def _fail(self, text: str) -> DNS_Transfer_Error:
        return DNS_Transfer_Error(text_of(self.origin), "AXFR", "", text)

    def take(self, records: Iterable[Record]) -> None:
        """The records of a message."""
        for record in records:
            if self.done:
                raise self._fail("records behind the end of the transfer")
            self.count += 1
            if self.count > self.most:
                raise self._fail(f"more than {self.most} records")
            if not self.count % AT_ONCE:
                coro.yield_slice()
            if record[2] != 1:
                raise self._fail("a record of another class")
            self._record(record)

    def _record(self, record: Record) -> None:
        if record[1] == SOA and record[0] != self.origin or not _wire.below(record[0], self.origin):
            raise self._fail(f"a record of {text_of(record[0])}, which is not in the zone")
        try:
            value_of(record[1], record[4])
        except UnpackError as e:
            raise self._fail(f"a record of {text_of(record[0])} that is wrong: {e}") from e
        if self._soa is None:
            if record[1] != SOA:
                raise self._fail("a transfer begins with the SOA record")
            self._soa = record
        elif record[1] == SOA and self._builder is None:
            self._start_of_part(record)
        elif self._builder is None and self._old is None:
            self._builder = Builder(self.origin)
            self._add(self._soa)
            self._add(record)
        elif self._builder is not None:
            if record[1] != SOA:
                self._add(record)
                return
            if record[4] != self._soa[4]:
                raise self._fail("the SOA record at the end differs from the one at the beginning")
            try:
                self.zone = self._builder.finish(self.history)
            except DNS_Zone_Error as e:
                raise self._fail(str(e)) from e
            self.done = True
        elif self._new is None:
            self._removed.append(record)
        else:
            self._added.append(record)

    def _add(self, record: Record) -> None:
        assert self._builder is not None
        try:
            self._builder.add(record[0], record[1], record[3], record[4])
        except (DNS_Zone_Error, ValueError) as e:
            raise self._fail(str(e)) from e

    def _start_of_part(self, record: Record) -> None:
        """A SOA record behind the first one: of what is removed, of what is added, or the end."""
        assert self._soa is not None
        serial = serial_of(record[4])
        last = serial_of(self._soa[4])
        if self._old is None:
            if self.known is None or serial == last:
                # an empty zone: RFC 5936 has nothing against one that consists of its SOA record
                self._builder = Builder(self.origin)
                self._add(self._soa)
                return self._record(record)
            if serial != self.known.serial:
                raise self._fail(f"differences from the serial {serial}, but we have {self.known.serial}")
            self._old = record
        elif self._new is None:
            if not is_newer(serial, serial_of(self._old[4])):
                raise self._fail("differences that lead to an older serial")
            self._new = record
        else:
            if serial != serial_of(self._new[4]):
                raise self._fail("differences that do not follow from each other")
            self.changes.append(Change(self._old, self._removed, self._new, self._added))
            self._removed, self._added = [], []
            if serial == last:
                self.done = True
            self._old, self._new = record, None
        return None

    def end(self, current: int | None) -> bool:
        """Nothing more has come: has the reply said that a zone with the serial `current` is the newest?"""
        return self._soa is not None and self.count == 1 and current is not None and not is_newer(
            serial_of(self._soa[4]), current
        )  # fmt: skip

    def apply(self) -> None:
        """Make the changes that came in the zone that is known. Raises DNS_Transfer_Error if they do not fit; then some
        may have been made."""
        assert self.known is not None
        for change in self.changes:
            edit = Edit(self.known)
            try:
                for name, rtype, _, _, data in change.removed:
                    if not edit.remove(name, rtype, data):
                        raise self._fail(f"a record of {text_of(name)} is to be removed that is not there")
                for name, rtype, _, ttl, data in change.added:
                    edit.add(name, rtype, ttl, data)
                edit.replace(self.origin, SOA, change.new[3], change.new[4])
                self.known.commit(edit.plan())
            except (DNS_Zone_Error, ValueError) as e:
                raise self._fail(str(e)) from e


def difference(old: Data, new: Data) -> dict[bytes, dict[int, tuple[int, tuple[bytes, ...]]]]:
    """What makes `new` of `old`, for `commit`."""
    names = {*old.nodes, *old.hashes, *new.nodes, *new.hashes}
    plan = {}
    for i, name in enumerate(names):
        node = new.node(name)
        if node != old.node(name):
            plan[name] = node
        if not i % 10_000 and coro.coro_is_running():
            coro.yield_slice()
    return plan
