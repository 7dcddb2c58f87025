"""A resolver's only upstream, in the hands of the test: zones that are signed here, record by record, so that a test
can leave out, replay and sign whatever it likes. `Signing` signs for one zone, `World` is the table of replies."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from dns_support import fakes, name, reply, soa

from coro.dns import _wire
from coro.dns._dnssec.signatures import Key, RRset, Signature, signed_data
from coro.dns._recursive.recursor import ROOT, Recursor
from coro.dns.packet import TYPE, rdata_from_text

Record = tuple[bytes, int, int, int, bytes]


class Signing:
    """A zone's key (ECDSA on P-256), and what it signs."""

    def __init__(self, zone: str) -> None:
        self.zone = name(zone)
        self.private = ec.generate_private_key(ec.SECP256R1())
        point = self.private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        key = Key.read(b"\1\1\3\x0d" + point[1:])
        assert key is not None
        self.key = key

    def ds(self, zone: bytes | None = None, digest: int = 2) -> bytes:
        how = {1: hashlib.sha1, 2: hashlib.sha256}[digest]
        made = how((self.zone if zone is None else zone) + self.key.data).digest()
        return self.key.tag.to_bytes(2, "big") + bytes((self.key.algorithm, digest)) + made

    def signed(
        self,
        records: Sequence[Record],
        *,
        labels: int | None = None,
        since: int = -100,
        until: int = 1000,
        signer: bytes | None = None,
        shown: str | None = None,
    ) -> list[Record]:
        """The records (of one name and type) and their signature. `labels`: that of the name that was signed; `shown`:
        another name that the result has, as if it was made of a wildcard."""
        owner, rtype, _, ttl, _ = records[0]
        now = int(time.time())
        count = _wire.labels(owner) - (owner[:2] == b"\1*") if labels is None else labels
        head = (
            rtype.to_bytes(2, "big") + bytes((13, count)) + ttl.to_bytes(4, "big") + (now + until).to_bytes(4, "big")
            + (now + since).to_bytes(4, "big") + self.key.tag.to_bytes(2, "big")
            + (self.zone if signer is None else signer)
        )  # fmt: skip
        signature = Signature.read(head)
        assert signature is not None
        data = signed_data(signature, RRset(owner, rtype, ttl, tuple(record[4] for record in records)))
        r, s = utils.decode_dss_signature(self.private.sign(data, ec.ECDSA(hashes.SHA256())))
        owner = owner if shown is None else name(shown)
        return [
            *((owner, *record[1:]) for record in records),
            (owner, TYPE.RRSIG, 1, ttl, head + r.to_bytes(32, "big") + s.to_bytes(32, "big")),
        ]

    def one(self, owner: str, kind: int, data: str | bytes, ttl: int = 300, **how) -> list[Record]:
        """One record, signed; `data` may be text as in a zone file."""
        wire = rdata_from_text(kind, data) if isinstance(data, str) else data
        return self.signed([(name(owner), kind, 1, ttl, wire)], **how)

    def soa(self, **how) -> list[Record]:
        """The zone's SOA record, signed."""
        return self.signed([soa(_wire.to_text(self.zone))], **how)


class World:
    """Replies by question: `(answer, authority, rcode)`. The zones `.`, `test` and `bank.test` are signed, `plain.test`
    is not."""

    def __init__(self) -> None:
        self.root, self.test, self.bank = Signing("."), Signing("test"), Signing("bank.test")
        self.replies: dict[tuple[str, int], tuple[Sequence[Record], Sequence[Record], int]] = {}
        self.asked: list[tuple[str, int]] = []
        for above, zone in ((None, self.root), (self.root, self.test), (self.test, self.bank)):
            text = _wire.to_text(zone.zone)
            self.put(text, TYPE.DNSKEY, zone.one(text, TYPE.DNSKEY, zone.key.data))
            if above is not None:
                self.put(text, TYPE.DS, above.one(text, TYPE.DS, zone.ds()))
        self.put("plain.test", TYPE.DS, (), self.test.one("plain.test", TYPE.NSEC, "q.test. NS") + self.test.soa())
        self.put("www.bank.test", TYPE.A, self.bank.one("www.bank.test", TYPE.A, "192.0.2.1"))
        self.put("www.plain.test", TYPE.A, [(name("www.plain.test"), 1, 1, 300, b"\xc0\0\2\2")])

    def put(self, owner: str, kind: int, answer=(), authority=(), rcode: int = 0) -> None:
        self.replies[owner, kind] = answer, authority, rcode

    def answer(self, query: _wire.Message) -> bytes:
        text = _wire.to_text(query.qname)
        self.asked.append((text, query.qtype))
        if (text, query.qtype) in self.replies:
            answer, authority, rcode = self.replies[text, query.qtype]
        else:
            answer, authority, rcode = (), [soa(text)], 0
        return reply(query, answer, authority, rcode=rcode)

    @contextmanager
    def resolver(self, anchors: dict[bytes, list[bytes]] | None = None, **settings) -> Iterator[Recursor]:
        """A resolver that asks nobody else, and trusts the key of the root."""
        with fakes({1: self.answer}) as servers:
            trusted = {ROOT: [self.root.ds()]} if anchors is None else anchors
            yield Recursor([], {ROOT: ([servers.root], True)}, port=servers.port, anchors=trusted, **settings)
