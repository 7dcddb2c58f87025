"""What `python -m tools.bench run --suite dns` measures of coro-dns."""

from __future__ import annotations

from tools.bench._captions import Caption
from tools.bench._suites import Case, Rival

#: What pip installs for each peer; unbound and nsd are Debian packages.
DISTRIBUTIONS = {"dnspython": "dnspython", "aiodns": "aiodns", "pycares": "pycares"}
CAPTIONS = {
    "dns": Caption(
        "Name servers, caches and lookups",
        "Processor time of an answer under saturating queries, all of them asked before but for names that a zone does "
        "not have; memory of one cache entry; processor time of a lookup without a cache, a thousand at a "
        "time, from unbound on the same machine; processor time of reading and of writing one response.",
    )
}
CASES = (
    # Rivals in C; what is asked of a Python package is to be within reach.
    Case(
        "dns",
        "answers from the cache",
        "answers.py",
        {"names": 1000, "seconds": 4},
        (Rival("unbound", 2.8), Rival("dnsmasq", 2.0), Rival("nsd")),
    ),
    Case(
        "dns",
        "answers from a zone",
        "answers.py",
        {"names": 1000, "seconds": 4, "zone": True},
        (Rival("nsd", 4.0),),
    ),
    # What a flood of names by chance costs: each answer is made, none is prepared.
    Case(
        "dns",
        "names that a zone does not have",
        "answers.py",
        {"names": 1000, "seconds": 4, "zone": True, "what": "new"},
        (Rival("nsd", 4.0),),
    ),
    Case(
        "dns",
        "one of a million cache entries",
        "entries.py",
        {"count": 1_000_000},
        (Rival("dnspython", 0.15, parameters={"count": 100_000}),),
        metric="bytes",
    ),
    Case(
        "dns",
        "1000 lookups at a time",
        "lookups.py",
        {"lookups": 40_000, "concurrent": 1000},
        (Rival("dnspython", 0.125, parameters={"lookups": 5000}), Rival("aiodns", 0.67), Rival("pycares", 0.83)),
    ),
    # A sixtieth and a thirtieth: what a compiled codec has to be worth.
    Case("dns", "reading a response", "codec.py", {"what": "read", "count": 2000}, (Rival("dnspython", 1 / 60),)),
    Case("dns", "writing a response", "codec.py", {"what": "write", "count": 2000}, (Rival("dnspython", 1 / 30),)),
)
