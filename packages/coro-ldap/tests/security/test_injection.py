"""What a user types must stay a value: in filters, in names, in URLs and in LDIF. The texts are of the kind that
attackers try (CWE-90)."""

from __future__ import annotations

import io

import pytest

from coro.ldap import ldif, query
from coro.ldap.dn import DN, escape_dn_value
from coro.ldap.filters import Equal, escape_filter_value
from coro.ldap.url import LDAPUrl

TYPED = [
    "*",
    "*)(uid=*))(|(uid=*",
    "admin)(&)",
    "admin)(!(&(1=0",
    "*)(|(objectClass=*",
    "\0",
    "admin\0)(cn=*",
    "\\2a",
    "\\",
    ")",
    "a,ou=admins",
    "a+cn=b",
    "#04024869",
    " a ",
    "a\ndn: cn=other",
    "\N{FULLWIDTH ASTERISK}",
]


@pytest.mark.parametrize("typed", TYPED)
def test_filters(typed: str) -> None:
    """However a filter is made, it asks for one attribute and this value."""
    wanted = Equal("uid", typed)
    for text in (str(wanted), f"(uid={escape_filter_value(typed)})", str(query.format_filter("(uid={u})", u=typed))):
        assert query.parse(text) == wanted
        assert query.parse_query(text) == wanted.encode()


@pytest.mark.parametrize("typed", TYPED)
def test_names(typed: str) -> None:
    base = DN.parse("ou=people,dc=example,dc=org")
    name = DN.parse(f"uid={escape_dn_value(typed)},{base}")
    assert name.rdns[0] == base.child(uid=typed).rdns[0] and name.parent == base


@pytest.mark.parametrize("typed", TYPED)
def test_urls(typed: str) -> None:
    url = LDAPUrl(hostport="h", dn=str(DN.parse("dc=example").child(uid=typed)), filterstr=str(Equal("uid", typed)))
    again = LDAPUrl(url.unparse())
    assert (again.hostport, again.dn, again.filterstr) == ("h", url.dn, url.filterstr)


@pytest.mark.parametrize("typed", TYPED)
def test_ldif(typed: str) -> None:
    """A value does not begin a line, or a record, of its own."""
    file = io.StringIO()
    ldif.write(file, [ldif.Entry("cn=a", {"description": [typed.encode()]})])
    (found,) = ldif.read(io.StringIO(file.getvalue()))
    assert found.dn == "cn=a" and list(found.attributes) == ["description"]
    assert [bytes(one) for one in found.attributes["description"]] == [typed.encode()]
