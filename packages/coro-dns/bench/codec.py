"""Reading and writing one typical response: a question, two addresses behind an alias, two servers with addresses,
EDNS. All names and data are read as Python values; dnspython makes these when they are asked for as text."""

from __future__ import annotations

import time
from collections.abc import Callable

from _common import Figures, main

NAME = "www.example.org"


def message() -> bytes:
    import dns.message

    query = dns.message.make_query(NAME, "A", use_edns=0)
    reply = dns.message.make_response(query)
    import dns.rrset

    reply.answer += [
        dns.rrset.from_text(NAME + ".", 300, "IN", "CNAME", "web.example.org."),
        dns.rrset.from_text("web.example.org.", 300, "IN", "A", "192.0.2.1", "192.0.2.2"),
    ]
    reply.authority.append(dns.rrset.from_text("example.org.", 300, "IN", "NS", "ns1.example.org.", "ns2.example.org."))
    for i in (1, 2):
        reply.additional.append(dns.rrset.from_text(f"ns{i}.example.org.", 300, "IN", "A", f"192.0.2.{i}"))
        reply.additional.append(dns.rrset.from_text(f"ns{i}.example.org.", 300, "IN", "AAAA", f"2001:db8::{i}"))
    return reply.to_wire()


def timed(step: Callable[[], object], count: int) -> Figures:
    step()
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        step()
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - began, "count": count}


def coro(what: str, count: int) -> Figures:
    from coro.dns.packet import Header, Packer, Unpacker

    count *= 50
    data = message()
    if what == "read":
        return timed(lambda: Unpacker(data).unpack(), count)

    def write() -> bytes:
        header = Header()
        header.id, header.qr, header.rd = 1, 1, 1
        header.qdcount, header.ancount, header.nscount, header.arcount = 1, 3, 2, 5
        p = Packer()
        p.addHeader(header)
        p.addQuestion(NAME, 1, 1)
        p.addCNAME(NAME, 1, 300, "web.example.org")
        p.addA("web.example.org", 300, "192.0.2.1")
        p.addA("web.example.org", 300, "192.0.2.2")
        p.addNS("example.org", 1, 300, "ns1.example.org")
        p.addNS("example.org", 1, 300, "ns2.example.org")
        p.addA("ns1.example.org", 300, "192.0.2.1")
        p.addAAAA("ns1.example.org", 300, "2001:db8::1")
        p.addA("ns2.example.org", 300, "192.0.2.2")
        p.addAAAA("ns2.example.org", 300, "2001:db8::2")
        p.addOPT()
        return p.getbuf()

    assert len(write()) == len(data)
    return timed(write, count)


def dnspython(what: str, count: int) -> Figures:
    import dns.message

    data = message()
    if what == "read":

        def read() -> list[tuple[str, list[str]]]:
            reply = dns.message.from_wire(data)
            return [
                (rrset.name.to_text(), [rdata.to_text() for rdata in rrset])
                for rrset in (*reply.answer, *reply.authority, *reply.additional)
            ]

        return timed(read, count)
    reply = dns.message.from_wire(data)
    return timed(reply.to_wire, count)


if __name__ == "__main__":
    main({"coro": coro, "dnspython": dnspython})
