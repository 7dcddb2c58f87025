"""Memory of one entry of a full cache, with an address record: ours in wire form, dnspython's LRUCache with Answers."""

from __future__ import annotations

import time

from _common import Figures, main, resident


def coro(count: int) -> Figures:
    from coro.dns import _wire
    from coro.dns._recursive.recursor import key_of
    from coro.dns._recursive.store import Entry, Store

    before = resident()
    store: Store[Entry] = Store(2 * count)
    now = time.monotonic()
    for i in range(count):
        key = key_of(_wire.from_text(f"host{i}.example.org"), 1)
        store.put(key, Entry(now + 300 + i / 1e6, 300, (bytes((192, 0, 2, i & 255)),)))
    assert len(store) == count
    return {"bytes": (resident() - before) / count}


def dnspython(count: int) -> Figures:
    import dns.message
    import dns.name
    import dns.rdataclass
    import dns.rdatatype
    import dns.resolver
    import dns.rrset

    before = resident()
    cache = dns.resolver.LRUCache(count)
    for i in range(count):
        name = f"host{i}.example.org."
        reply = dns.message.make_response(dns.message.make_query(name, "A"))
        reply.answer.append(dns.rrset.from_text(name, 300, "IN", "A", f"192.0.2.{i & 255}"))
        reply = dns.message.from_wire(reply.to_wire())
        answer = dns.resolver.Answer(dns.name.from_text(name), dns.rdatatype.A, dns.rdataclass.IN, reply)
        cache.put((answer.qname, answer.rdtype, answer.rdclass), answer)
    return {"bytes": (resident() - before) / count}


if __name__ == "__main__":
    main({"coro": coro, "dnspython": dnspython})
