"""Distinguished names: the examples of RFC 4514, both ways, and comparison."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coro.ldap import DN, DNError, escape_dn_value
from coro.ldap.dn import match_leaf, normalize_dn


@pytest.mark.parametrize(
    ("text", "rdns"),
    [
        ("UID=jsmith,DC=example,DC=net", [[("UID", "jsmith")], [("DC", "example")], [("DC", "net")]]),
        ("OU=Sales+CN=J.  Smith,DC=net", [[("OU", "Sales"), ("CN", "J.  Smith")], [("DC", "net")]]),
        ('CN=James \\"Jim\\" Smith\\, III,DC=net', [[("CN", 'James "Jim" Smith, III')], [("DC", "net")]]),
        ("CN=Before\\0dAfter", [[("CN", "Before\rAfter")]]),
        ("1.3.6.1.4.1.1466.0=#04024869", [[("1.3.6.1.4.1.1466.0", b"\4\2Hi")]]),
        ("CN=Lu\\C4\\8Di\\C4\\87", [[("CN", "Lučić")]]),
        ("CN=Lučić", [[("CN", "Lučić")]]),
        ("cn = a , dc= b ;dc=c", [[("cn", "a")], [("dc", "b")], [("dc", "c")]]),
        ("cn=\\ a\\ ,dc=x", [[("cn", " a ")], [("dc", "x")]]),
        ("cn=\\ ", [[("cn", " ")]]),
        ("cn=a\\\\ ", [[("cn", "a\\")]]),
        ("cn=\\#a", [[("cn", "#a")]]),
        ("cn=", [[("cn", "")]]),
        ("cn=a=b", [[("cn", "a=b")]]),
        ("OID.2.5.4.3=x", [[("2.5.4.3", "x")]]),
        ("", []),
        ("  ", []),
    ],
)
def test_parse(text: str, rdns: list[list[tuple[str, str | bytes]]]) -> None:
    dn = DN.parse(text)
    assert [list(rdn) for rdn in dn] == rdns
    assert DN.parse(str(dn)).rdns == dn.rdns
    assert DN.parse(text.encode()) == dn


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "cn",
        "cn=a,",
        "cn=a,,dc=b",
        ",cn=a",
        "cn=a+",
        'cn="x"',
        "cn=a\\",
        "cn=\\g",
        "=x",
        "cn=#0",
        "cn=#",
        "cn=a<",
        "cn=\0",
        "c n=a",
        "cn=a+cn=b",
        "1=a",
        "01.2=a",
        "cn=\\ff",
    ],
)
def test_wrong(text: str) -> None:
    with pytest.raises(DNError, match="expected"):
        DN.parse(text)


def test_limits() -> None:
    with pytest.raises(DNError, match="1024 relative names"):
        DN.parse(",".join(["cn=a"] * 1025))
    with pytest.raises(DNError, match="65536 characters"):
        DN.parse("cn=" + "a" * 70_000)
    with pytest.raises(DNError, match="UTF-8"):
        DN.parse(b"cn=\xff")


values = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
pairs = st.tuples(st.sampled_from(["cn", "OU", "2.5.4.3", "x-y"]), values | st.binary(min_size=1, max_size=5))


@given(st.lists(pairs, max_size=4))
def test_round_trip(rdns: list[tuple[str, str | bytes]]) -> None:
    dn = DN(*rdns)
    assert DN.parse(str(dn)).rdns == dn.rdns
    assert DN.parse(str(dn)) == dn and hash(DN.parse(str(dn))) == hash(dn)


@given(values)
def test_no_value_changes_a_name(value: str) -> None:
    base = DN.parse("dc=example,dc=org")
    made = DN.parse(f"cn={escape_dn_value(value)},dc=example,dc=org")
    assert made.rdns == base.child(cn=value).rdns
    assert made.parent == base and made.is_below(base) and len(made) == 3


def test_comparison() -> None:
    dn = DN.parse("CN=Fred  Smith,DC=Example,DC=org")
    for other in (
        "cn=fred smith,dc=EXAMPLE,dc=org",
        "2.5.4.3=Fred Smith, DC=example, DC=org",
        "commonName=FRED SMITH,dc=example,dc=org",
    ):
        assert DN.parse(other) == dn and hash(DN.parse(other)) == hash(dn)
        assert normalize_dn(other) == "cn=fred smith,dc=example,dc=org"
    assert DN.parse("ou=a+cn=b") == DN.parse("CN=B+OU=A")
    assert DN.parse("cn=a") != DN.parse("cn=b") and DN.parse("cn=a") != "cn=a"
    assert DN.parse("cn=straße") == DN.parse("cn=STRASSE")
    assert not dn.is_below(dn) and DN.parse("dc=org").is_below(DN()) and not DN().is_below(DN())
    assert not DN.parse("dc=notorg").is_below(DN.parse("dc=org"))


def test_parts() -> None:
    dn = DN.parse("cn=a+ou=b,dc=x")
    assert dn.rdn == "cn=a+ou=b" and str(dn.parent) == "dc=x" and dn.parent.parent == DN()
    assert not DN() and repr(dn) == "DN.parse('cn=a+ou=b,dc=x')"
    assert DN.parse("cn=a") + DN.parse("dc=x") == DN.parse("cn=a,dc=x")
    assert str(DN().child(("cn", "a"), ("uid", "1"))) == "cn=a+uid=1"
    with pytest.raises(DNError, match="parent"):
        _ = DN().parent
    for wrong in ((), ("a b", "x"), (("cn", "a"), ("CN", "b"))):
        with pytest.raises((DNError, ValueError)):
            DN(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        DN(("cn", 5))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        escape_dn_value(b"x")  # type: ignore[arg-type]


def test_match_leaf() -> None:
    base = "dc=example,dc=org"
    assert match_leaf("cn=a,DC=example,dc=org", 1, "CN=A", base)
    assert not match_leaf("cn=a,ou=x,dc=example,dc=org", 1, "cn=a", base)
    assert match_leaf("cn=a,ou=x,dc=example,dc=org", 2, "cn=a", base)
    assert match_leaf(base, 0, "", base) and match_leaf(base, 2, "dc=example", base)
    assert not match_leaf("cn=b,dc=example,dc=org", 2, "cn=a", base)
