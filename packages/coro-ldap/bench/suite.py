"""What `python -m tools.bench run --suite ldap` measures of coro-ldap."""

from __future__ import annotations

from tools.bench._captions import Caption
from tools.bench._suites import Case, Rival

#: What pip installs for each peer.
DISTRIBUTIONS = {
    "pyasn1": "pyasn1",
    "asn1crypto": "asn1crypto",
    "ldap3": "ldap3",
    "python-ldap": "python-ldap",
    "bonsai": "bonsai",
}
CAPTIONS = {
    "ldap": Caption("BER", "Processor time of reading or writing all values of one message, and of writing it again."),
    "ldap-client": Caption(
        "LDAP: a client against one slapd",
        "Processor time of the client for one entry of twenty attributes, or for one login.",
        {"c": "C, libldap"},
    ),
    "ldap-server": Caption(
        "LDAP: our server beside slapd",
        "Processor time of the server for one operation. Ours is a program for tests and small directories.",
    ),
}
RIVALS = (Rival("pyasn1", 0.025), Rival("asn1crypto", 0.083))
CASES = (
    # A fortieth of pyasn1 and a twelfth of asn1crypto: what a compiled codec has to be worth.
    Case("ldap", "reading a certificate", "codec.py", {"what": "read-certificate", "count": 300}, RIVALS),
    Case("ldap", "writing a certificate", "codec.py", {"what": "write-certificate", "count": 300}, RIVALS),
    Case("ldap", "reading an entry of a search", "codec.py", {"what": "read-entry", "count": 300}, RIVALS),
    Case("ldap", "writing an entry of a search", "codec.py", {"what": "write-entry", "count": 300}, RIVALS),
    Case(
        "ldap-client",
        "search of 10 000 entries",
        "directory.py",
        {"what": "search", "count": 30_000},
        (Rival("ldap3", 0.08), Rival("python-ldap", 0.5), Rival("bonsai"), Rival("c", 1.0)),
    ),
    Case(
        "ldap-client",
        "200 concurrent binds",
        "directory.py",
        {"what": "bind", "count": 4_000},
        (Rival("ldap3", 0.15), Rival("python-ldap", 1.0), Rival("c")),
    ),
    Case(
        "ldap-client",
        "one entry by its name, 200 threads",
        "directory.py",
        {"what": "read", "count": 4_000},
        (Rival("ldap3", 0.15), Rival("python-ldap", 1.0), Rival("bonsai")),
    ),
    *(
        Case("ldap-server", name, "served.py", {"what": what, "count": count}, (Rival("slapd"),))
        for what, name, count in (
            ("read", "one entry by its name", 8_000),
            ("find", "one entry by an index", 8_000),
            ("search", "an entry of 10 000", 30_000),
            ("bind", "a login", 4_000),
            ("modify", "a change on the disk, eight clients", 2_000),
        )
    ),
)
