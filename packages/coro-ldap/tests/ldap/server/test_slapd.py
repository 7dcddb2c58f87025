"""The same searches of the same entries here and at OpenLDAP's server: 300 give equal results."""

from __future__ import annotations

import random

import pytest
from ldap_server_support import ADMIN, BASE, PASSWORD, Bare, Ours, Slapd, bind_request, entries

PEOPLE = 60
SEARCHES = 300

ITEMS = [
    "(uid=u{n})", "(cn=user {n})", "(CN=USER   {n})", "(sn=sur{k})", "(title=boss)", "(mail=u{n}@*)",
    "(mail=*{k}@example*)",
    "(cn=*er*{k})", "(cn;lang-de=benutzer {n})", "(name=user {n})", "(telephoneNumber=+4930{n:06d})",
    "(telephoneNumber=*{k})", "(givenName=*)", "(photo=*)", "(objectClass=inetOrgPerson)", "(objectClass=groupOfNames)",
    "(member=uid=u{n},ou=people,dc=example,dc=org)", "(manager=UID=u{n}, OU=people, dc=example,dc=org)",
    "(ou:dn:=people)", "(uid:caseExactMatch:=u{n})", "(uid:caseExactMatch:=U{n})", "(noSuchAttribute=x)",
    "(cn>=user 2)",
    "(description=the person with number {n})", "(description=the*with number*)", "(cn:=user {n})", "(dc=EXAMPLE)",
]  # fmt: skip


def made(depth: int) -> str:
    kind = random.random()
    if depth and kind < 0.2:
        return f"(&{made(depth - 1)}{made(depth - 1)})"
    if depth and kind < 0.4:
        return f"(|{made(depth - 1)}{made(depth - 1)}{made(depth - 1)})"
    if depth and kind < 0.5:
        return f"(!{made(depth - 1)})"
    return random.choice(ITEMS).format(n=random.randrange(PEOPLE), k=random.randrange(8))


@pytest.mark.slow
def test_equal_results() -> None:
    random.seed(18)
    text = entries(PEOPLE)
    with Slapd(text) as other, Ours(text) as ours, Bare(other.port) as theirs, Bare(ours.port) as mine:
        for client in (theirs, mine):
            assert client.ask(bind_request(ADMIN, PASSWORD))[0] == 0
        some = 0
        for _ in range(SEARCHES):
            filter = made(3)
            base = random.choice(
                [BASE, f"ou=people,{BASE}", f"OU=Groups,{BASE}", f"uid=u3,ou=people,{BASE}", f"cn=x,{BASE}"]
            )
            scope = random.randrange(3)
            names = random.choice([(), ("cn",), ("name", "uid"), ("1.1",), ("*", "entryDN"), ("CN;lang-de",)])
            results = []
            for client in (theirs, mine):
                code, found = client.search(filter, base=base, scope=scope, names=names)
                results.append(
                    (
                        code,
                        {
                            entry.dn.lower(): {name.lower(): sorted(values) for name, values in entry.items()}
                            for entry in found
                        },
                    )
                )
            assert results[0] == results[1], (filter, base, scope, names)
            some += bool(results[0][1])
        assert some > SEARCHES / 5
