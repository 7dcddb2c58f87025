"""All zones of a server: which one a message is about, and what it gets.

A question is answered at once, from memory. Nothing here waits but an update of a zone that is kept in a file. Signed
messages (TSIG) are checked here, and their replies signed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from coro.dns import _wire, tsig
from coro.dns._zone import transfer
from coro.dns._zone.answers import Found, answer
from coro.dns._zone.data import Record
from coro.dns._zone.service import Primary, Secondary, Service
from coro.dns._zone.update import update
from coro.dns.tsig import Key, Signature, Signer

__all__ = ["Authority", "Signed"]

NOERROR, FORMERR, SERVFAIL, NOTIMP, REFUSED, NOTAUTH = 0, 1, 2, 4, 5, 9
SOA, DS = 6, 43
IXFR, AXFR = 251, 252
TSIG = 250
#: Transfers that may go out at a time: each keeps a list of the zone's names.
TRANSFERS = 20


class Signed(NamedTuple):
    """A message that was signed: with what, and how to sign the reply."""

    signature: Signature

    def sign(self, reply: bytes) -> bytes:
        """The reply, signed."""
        return tsig.sign(reply, self.signature.key, self.signature.code)[0]


class Authority:
    """The zones. `on_change` is called when answers may be others than before."""

    def __init__(self, services: Iterable[Service], on_change: Callable[[], object]) -> None:
        self.services: dict[bytes, Service] = {}
        self.keys: list[Key] = []
        self.answers = self.transfers = self.updates = self.notifications = 0
        self.transfers_open = 0
        for service in services:
            if service.origin in self.services:
                raise ValueError(f"the zone {service.name} is there twice")
            self.services[service.origin] = service
            service.on_change = on_change
            for key in service.keys:
                if key not in self.keys:
                    if any(one.wire == key.wire for one in self.keys):
                        raise ValueError(f"two keys have the name {key.name}")
                    self.keys.append(key)

    def __bool__(self) -> bool:
        return bool(self.services)

    def start(self) -> None:
        """Begin what the zones do by themselves."""
        for service in self.services.values():
            service.start()

    def stop(self) -> None:
        """End that."""
        for service in self.services.values():
            service.stop()

    def find(self, name: bytes, rtype: int = 0) -> Service | None:
        """The zone that a name is in; for DS records the zone above, if we have it (RFC 4035, section 3.1.4.1)."""
        services = self.services
        if rtype == DS and name in services and len(name) > 1:
            return self.find(_wire.parent(name)) or services[name]
        while True:
            found = services.get(name)
            if found is not None or len(name) == 1:
                return found
            name = _wire.parent(name)

    def signed(self, query: bytes, question: _wire.Message) -> Signed | None:
        """The message's signature; None if it has none. Raises tsig.Refused."""
        if not any(record[1] == TSIG for record in question.additional):
            return None
        found = tsig.verify(query, self.keys)
        return Signed(found) if found else None

    # -- questions

    def answer(self, service: Service, question: _wire.Message, host: str, key: Key | None, stream: bool
               ) -> tuple[int, Found | None]:  # fmt: skip
        """The response code, and what was found."""
        if service.may_ask is not None and not service.may_ask(host, key):
            return REFUSED, None
        if service.data is None:
            return SERVFAIL, None
        self.answers += 1
        found = answer(service.data, question.qname, question.qtype, question.dnssec_ok, stream)
        return found.rcode, found

    # -- transfers

    def transfer(self, question: _wire.Message, host: str, signed: Signed | None, limit: int
                 ) -> tuple[int, Iterator[bytes]]:  # fmt: skip
        """The reply to AXFR or IXFR: the response code, and its messages. `limit` is the size that a reply over UDP may
        have, 0 for TCP."""
        service = self.services.get(question.qname)
        key = signed.signature.key if signed else None
        if service is None:
            return NOTAUTH, iter(())
        if not service.may_transfer(host, key):
            return REFUSED, iter(())
        if service.data is None:
            return SERVFAIL, iter(())
        zone = service.data
        records = None
        if question.qtype == IXFR:
            known = [data for name, rtype, _, _, data in question.authority if rtype == SOA and name == zone.origin]
            if len(known) != 1 or len(known[0]) < 22:
                return FORMERR, iter(())
            records = transfer.incremental(zone, int.from_bytes(known[0][-20:-16], "big"))
            if limit:
                return NOERROR, self._datagram(question, zone.soa_record, records, signed, limit)
        elif limit:
            return FORMERR, iter(())  # RFC 5936, section 4.2: over TCP only
        if self.transfers_open >= TRANSFERS:
            return SERVFAIL, iter(())
        signer = Signer(key, signed.signature.code) if signed and key else None
        return NOERROR, self._stream(transfer.messages(question, records or transfer.full(zone), signer))

    def _datagram(self, question: _wire.Message, soa: Record, records: list[Record] | None,
                  signed: Signed | None, limit: int) -> Iterator[bytes]:  # fmt: skip
        """What fits, or the SOA record: then the client asks over TCP (RFC 1995, section 2)."""
        room = limit - (signed.signature.key.room if signed else 0)
        for some in (records, [soa]):
            if some is not None and len(some) <= room // 12:
                reply = _wire.build(
                    question.id, 0x8400, question.question, question.qtype, question.qclass, some, limit=room
                )
                if not reply[2] & 2:
                    break
        self.transfers += 1
        yield signed.sign(reply) if signed else reply

    def _stream(self, messages: Iterator[bytes]) -> Iterator[bytes]:
        self.transfers_open += 1
        try:
            self.transfers += 1
            yield from messages
        finally:
            self.transfers_open -= 1

    # -- notifications and updates

    def notify(self, question: _wire.Message, host: str, key: Key | None) -> int:
        """The response code for a notification (RFC 1996)."""
        if not question.questions or question.qtype != SOA or question.qclass != 1:
            return FORMERR
        service = self.services.get(question.qname)
        if service is None:
            return NOTAUTH
        if not isinstance(service, Secondary) or not service.may_notify(host, key):
            return REFUSED
        self.notifications += 1
        service.notified(host)
        return NOERROR

    def is_kept(self, question: _wire.Message) -> bool:
        """Would an update have to wait for a file?"""
        service = self.services.get(question.qname)
        return isinstance(service, Primary) and service.path is not None

    def update(self, question: _wire.Message, key: Key | None) -> int:
        """The response code for an update (RFC 2136)."""
        if not question.questions or question.qtype != SOA or question.qclass != 1:
            return FORMERR
        service = self.services.get(question.qname)
        if service is None:
            return NOTAUTH
        if not isinstance(service, Primary) or key is None or not service.may_update("::", key):
            return REFUSED
        serial = service.data.serial
        code = update(service.data, question.answer, question.authority)
        if not code:
            self.updates += 1
            if service.data.serial != serial and not service.is_saved():
                return SERVFAIL
        return code
