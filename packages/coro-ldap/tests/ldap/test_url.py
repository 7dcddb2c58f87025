"""LDAP URLs: the examples of RFC 4516, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coro.ldap import LDAPUrl, URLError
from coro.ldap.url import LDAPUrlExtension, isLDAPUrl, ldapUrlEscape


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ldap:///o=University%20of%20Michigan,c=US", ("", 389, "o=University of Michigan,c=US", None, None, None)),
        (
            "ldap://ldap1.example.net/o=UoM,c=US?postalAddress",
            ("ldap1.example.net", 389, "o=UoM,c=US", ["postalAddress"], None, None),
        ),
        (
            "ldap://ldap1.example.net:6666/o=UoM??sub?(cn=Babs%20Jensen)",
            ("ldap1.example.net", 6666, "o=UoM", None, 2, "(cn=Babs Jensen)"),
        ),
        ("LDAP://ldap1.example.com/c=GB?objectClass?ONE", ("ldap1.example.com", 389, "c=GB", ["objectClass"], 1, None)),
        (
            "ldap://ldap2.example.com/o=Question%3f,c=US?mail",
            ("ldap2.example.com", 389, "o=Question?,c=US", ["mail"], None, None),
        ),
        (
            "ldap://ldap3.example.com/o=Babsco,c=US???(four-octet=%5c00%5c00%5c00%5c04)",
            ("ldap3.example.com", 389, "o=Babsco,c=US", None, None, "(four-octet=\\00\\00\\00\\04)"),
        ),
        ("ldaps://[::1]:636/", ("::1", 636, "", None, None, None)),
        ("ldap://[fe80::1%25eth0]", ("fe80::1%eth0", 389, "", None, None, None)),
        ("ldapi://%2frun%2fldapi/dc=x", ("/run/ldapi", 0, "dc=x", None, None, None)),
    ],
)
def test_parse(text: str, parts: tuple[object, ...]) -> None:
    url = LDAPUrl(text)
    assert (url.host, url.port, url.dn, url.attrs, url.scope, url.filterstr) == parts
    assert LDAPUrl(url.unparse()) == url and hash(LDAPUrl(str(url))) == hash(url)
    assert isLDAPUrl(text)


@pytest.mark.parametrize(
    "text",
    [
        "http://x/",
        "ldap:/x",
        "ldap://host?cn",
        "ldap://host/a?b?c?d?e?f",
        "ldap://host/??tree",
        "ldap://host:0/",
        "ldap://host:70000/",
        "ldap://host:1:2/",
        "ldap://u@host/",
        "ldap://[::1/",
        "ldap:///%zz",
        "ldap:///%ff",
        "ldap:///a#b",
        "ldap:///????!",
        "ldap:///????e=1,e=2",
        "ldap:///????a b=c",
    ],
)
def test_wrong(text: str) -> None:
    with pytest.raises(URLError, match="expected"):
        LDAPUrl(text)


def test_extensions() -> None:
    url = LDAPUrl("ldap:///??sub??e-bindname=cn=Manager%2cdc=example%2cdc=com,!1.2.3")
    assert url.extensions["E-BINDNAME"].exvalue == "cn=Manager,dc=example,dc=com"
    assert url.extensions["1.2.3"].critical and url.extensions["1.2.3"].exvalue is None
    assert list(url.extensions) == ["e-bindname", "1.2.3"] and len(url.extensions) == 2
    assert LDAPUrl(str(url)) == url
    assert LDAPUrlExtension("!a=b") == LDAPUrlExtension(critical=True, extype="A", exvalue="b")


def test_who_and_cred() -> None:
    url = LDAPUrl("ldap://h/dc=x", who="cn=a,dc=x", cred="secret,?")
    assert LDAPUrl(url.unparse()).cred == "secret,?" and LDAPUrl(url.unparse()).who == "cn=a,dc=x"
    assert "secret" not in repr(url) and "secret" not in repr(url.extensions["X-BINDPW"])
    url.cred = None
    url.who = "other"
    assert url.cred is None and url.unparse() == "ldap://h/dc=x????bindname=other"


def test_defaults_and_links() -> None:
    url = LDAPUrl("ldap://h/dc=x?cn")
    url.applyDefaults({"scope": 2, "filterstr": '(a<="b")', "attrs": ["sn"]})
    assert (url.scope, url.attrs) == (2, ["cn"])
    assert url.initializeUrl() == "ldap://h"
    assert url.htmlHREF(hrefText="<x>", hrefTarget='"') == (
        '<a href="ldap://h/dc=x?cn?sub?(a%3C=%22b%22)" target="&quot;">&lt;x&gt;</a>'
    )
    with pytest.raises(URLError):
        url.applyDefaults({"colour": 1})
    for wrong in ({"urlscheme": "http"}, {"scope": 7}, {"hostport": "a b"}):
        with pytest.raises(URLError):
            LDAPUrl(**wrong)  # type: ignore[arg-type]
    assert ldapUrlEscape("a?b,c d/é") == "a%3Fb%2Cc%20d/%C3%A9"


@given(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20),
)
def test_round_trip(dn: str, text: str) -> None:
    url = LDAPUrl(hostport="h:1", dn=dn, filterstr=text, scope=0, who=text)
    again = LDAPUrl(url.unparse())
    assert (again.dn, again.filterstr, again.scope) == (dn, text, 0)
    assert again.who == text
