"""Filters: their text, objects and encodings, and what is refused."""

from __future__ import annotations

import os
import random
import socket
import string
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_programs.running import HOST, LIMIT, find_program

from coro.asn1 import IncrementalDecoder, Node, ber
from coro.ldap import LocalError, QuerySyntaxError, escape_filter_value, filters, format_filter, query
from coro.ldap.filters import (
    And,
    Approximate,
    Equal,
    Extensible,
    GreaterOrEqual,
    LessOrEqual,
    Not,
    Or,
    Present,
    Substrings,
)


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("(xxx=yyy)", "a30a 0403787878 0403797979"),
        ("(|(xx=y)(zz=*))", "a10d a307 04027878 040179 87027a7a"),
        (
            "(|(a=b)(c=d)(e=f)(g=h)(i=j)(k=l))",
            "a130 a306040161040162 a306040163040164 a306040165040166 a306040167040168 a30604016904016aa30604016b04016c",
        ),
        (
            "(|(!(a=*))(&(b=c)(d=e))(x<=y))",
            "a11f a203870161 a010a306040162040163a306040164040165 a606040178040179",
        ),
        ("(zz~=yy)", "a808 04027a7a 04027979"),
        ("(a=ins*tiga*tor)", "a415 040161 3010 8003696e73 810474696761 8203746f72"),
        ("(a=*y)", "a408 040161 3003 820179"),
        ("(a=y*)", "a408 040161 3003 800179"),
        ("(a=*y*)", "a408 040161 3003 810179"),
        ("(a=*x*y)", "a40b 040161 3006 810178 820179"),
        ("(a=*x*y*)", "a40b 040161 3006 810178 810179"),
        ("(a=*x*y*z)", "a40e 040161 3009 810178 810179 82017a"),
        ("(a=some\\AAthing)", "a30f 040161 040a736f6d65aa7468696e67"),
        ("(a=xy\\Aaz)", "a309 040161 04047879aa7a"),
        ("(a=x*y\\2az)", "a40d 040161 3008 800178 8203792a7a"),
        (
            "(!" * 10 + "(x=y)" + ")" * 10,
            "a21a a218 a216 a214 a212 a210 a20e a20c a20a a208 a306040178040179",
        ),
    ],
)
def test_vectors(text: str, encoded: str) -> None:
    data = query.parse_query(text)
    assert data == bytes.fromhex(encoded)
    assert ber.decode(data)[1] == len(data)
    assert query.parse_query(text.encode()) == data
    assert query.parse(str(query.parse(text))) == query.parse(text)
    assert str(query.parse(text)).lower() == text.lower()


def test_encodings() -> None:
    assert query.parse_query("(xxx=yyy)").hex() == "a30a04037878780403797979"
    context = "context"
    decoded = [
        ("(|(xx=y)(zz=*))", (context, 1, [(context, 3, [b"xx", b"y"]), (context, 7, b"zz")])),
        ("(a=ins*tiga*tor)", (context, 4, [b"a", [(context, 0, b"ins"), (context, 1, b"tiga"), (context, 2, b"tor")]])),
        ("(x>=1)", (context, 5, [b"x", b"1"])),
        ("(x<=1)", (context, 6, [b"x", b"1"])),
        ("(zz~=yy)", (context, 8, [b"zz", b"yy"])),
        ("(a=)", (context, 3, [b"a", b""])),
        ("(&)", (context, 0, [])),
        ("(|)", (context, 1, [])),
        ("(a=x*y\\2az)", (context, 4, [b"a", [(context, 0, b"x"), (context, 2, b"y*z")]])),
        # The examples of RFC 4515, 4.
        (
            "(cn:caseExactMatch:=Fred Flintstone)",
            (context, 9, [(context, 1, b"caseExactMatch"), (context, 2, b"cn"), (context, 3, b"Fred Flintstone")]),
        ),
        ("(cn:=Betty Rubble)", (context, 9, [(context, 2, b"cn"), (context, 3, b"Betty Rubble")])),
        (
            "(sn:dn:2.4.6.8.10:=Barney Rubble)",
            (
                context,
                9,
                [
                    (context, 1, b"2.4.6.8.10"),
                    (context, 2, b"sn"),
                    (context, 3, b"Barney Rubble"),
                    (context, 4, b"\xff"),
                ],
            ),
        ),
        (
            "(o:dn:=Ace Industry)",
            (context, 9, [(context, 2, b"o"), (context, 3, b"Ace Industry"), (context, 4, b"\xff")]),
        ),
        ("(:1.2.3:=Wilma)", (context, 9, [(context, 1, b"1.2.3"), (context, 3, b"Wilma")])),
        (
            "(:DN:2.4.6.8.10:=Dino)",
            (context, 9, [(context, 1, b"2.4.6.8.10"), (context, 3, b"Dino"), (context, 4, b"\xff")]),
        ),
        (
            "(o=Parens R Us \\28for all your parenthetical needs\\29)",
            (context, 3, [b"o", b"Parens R Us (for all your parenthetical needs)"]),
        ),
        ("(cn=*\\2A*)", (context, 4, [b"cn", [(context, 1, b"*")]])),
        ("(bin=\\00\\00\\00\\04)", (context, 3, [b"bin", b"\0\0\0\4"])),
        ("(sn=Lu\\c4\\8di\\c4\\87)", (context, 3, [b"sn", "Lučić".encode()])),
        ("(1.3.6.1.4.1.1466.0=\\04\\02\\48\\69)", (context, 3, [b"1.3.6.1.4.1.1466.0", b"\4\2Hi"])),
        ("(cn;lang-de;binary=x)", (context, 3, [b"cn;lang-de;binary", b"x"])),
    ]
    for text, expected in decoded:
        assert ber.decode(query.parse_query(text))[0] == expected, text


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("(a=", 3),
        ("(a<b)", 2),
        ("(a=some\\AZthing)", 8),
        ("(a~=sam*son)", 7),
        ("junk", 0),
        ("", 0),
        ("(" * 100, 1),
        ("(!" * 55 + "(x=y)" + ")" * 55, 100),
        ("(!)", 2),
        ("(!(a=b)(c=d))", 7),
        ("(a=b)x", 5),
        ("(a=b) ", 5),
        ("(a=**)", 4),
        ("(a=x**y)", 5),
        ("(a=b(c)", 4),
        ("(a=b\0c)", 4),
        ("(:=x)", 1),
        ("(:dn:=x)", 1),
        ("(a::=x)", 2),
        ("(a_b=c)", 1),
        ("(=c)", 1),
        ("(a:=b*)", 5),
        ("(é=x)", 1),
        ("(a:dn:=x", 8),
        ("(cn=é\\zz)", 6),
        ("(&(a=b)", 7),
        ("(&(a=b)c)", 7),
        ("()", 1),
    ],
)
def test_wrong(text: str, position: int) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        query.parse_query(text)
    assert caught.value.position == position
    found = "the end" if position >= len(text) else repr(text[position])
    assert f"got {found} at position {position} of" in str(caught.value)
    with pytest.raises(QuerySyntaxError) as caught:
        query.parse(text.encode())
    assert text.encode()[: caught.value.position].decode() == text[:position]


def test_errors_without_a_position() -> None:
    assert str(QuerySyntaxError("some words")) == "some words"
    assert "unexpected '<' at position 1" in str(QuerySyntaxError("a<b", 1))


def test_limits() -> None:
    query.parse(f"({'a' * 4095}={'b' * 4095})")
    for text in (f"({'a' * 4096}=b)", f"(a={'b' * 4096})"):
        with pytest.raises(QuerySyntaxError, match="fewer than 4096 bytes"):
            query.parse(text)
    fifty = "(!" * 49 + "(x=y)" + ")" * 49
    assert query.parse_query(fifty)
    deep = query.parse(fifty)
    with pytest.raises(LocalError, match="at most 50 deep"):
        Not(deep).encode()


def test_from_the_middle() -> None:
    assert query.parse("filter: (é=x)(a=b)".replace("é", "e"), 13) == Equal("a", "b")
    assert query.parse("é(a=b)", 1) == Equal("a", "b")


def test_escapes() -> None:
    assert query.query_escape("a\\(b)=<>~*\0é") == b"a\\5c\\28b\\29\\3d\\3c\\3e\\7e\\2a\\00\xc3\xa9"
    assert query.ue(query.query_escape(bytes(range(256)))) == bytes(range(256))
    with pytest.raises(QuerySyntaxError):
        query.ue("a\\2")
    assert escape_filter_value("a*(b)\\\0=é") == "a\\2a\\28b\\29\\5c\\00=é"
    assert escape_filter_value(b"\xff*a") == "\\ff\\2aa"
    assert escape_filter_value(True) == "TRUE"
    assert escape_filter_value(-5) == "-5"
    with pytest.raises(TypeError, match="expected a str"):
        escape_filter_value(None)  # type: ignore[arg-type]


# -- objects

names = st.sampled_from(["cn", "objectClass", "sn;lang-de", "1.2.840.113556.1.4.803"])
some_values = st.one_of(
    st.binary(max_size=20), st.text(st.characters(exclude_categories=("Cs",)), max_size=20), st.integers()
)
pieces = some_values.filter(lambda value: value not in ("", b""))
leaves = st.one_of(
    st.builds(Equal, names, some_values),
    st.builds(GreaterOrEqual, names, some_values),
    st.builds(LessOrEqual, names, some_values),
    st.builds(Approximate, names, some_values),
    st.builds(Present, names),
    st.builds(Substrings, names, pieces, st.lists(pieces, max_size=3), st.none() | pieces),
    st.builds(Extensible, names, some_values, st.none() | names.filter(lambda n: ";" not in n), st.booleans()),
    st.builds(Extensible, st.none(), some_values, st.just("caseExactMatch"), st.booleans()),
)
some_filters = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda parts: And(*parts)),
        st.lists(inner, max_size=4).map(lambda parts: Or(*parts)),
        inner.map(Not),
    ),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=150)
@given(some_filters)
def test_round_trip(one: filters.Filter) -> None:
    again = query.parse(str(one))
    assert again == one and hash(again) == hash(one)
    assert again.encode() == one.encode() == query.parse_query(str(one))


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_value_changes_a_filter(one: str, other: str) -> None:
    """Injection: whatever is typed is compared as it is."""
    try:
        expected = And(Equal("cn", one), Equal("mail", other))
    except LocalError:
        return  # lone surrogates
    assert format_filter("(&(cn={a})(mail={b}))", a=one, b=other) == expected
    assert query.parse(str(expected)) == expected


def test_templates() -> None:
    assert str(format_filter("(cn=*{name}*)", name="*")) == "(cn=*\\2a*)"
    assert str(format_filter("(x>={n})", n=5)) == "(x>=5)"
    assert str(format_filter("(cn:dn:1.2.3:={v})", v="(")) == "(cn:dn:1.2.3:=\\28)"
    with pytest.raises(KeyError):
        format_filter("(cn={name})")
    for template in ("({name}=x)", "(&{name})", "(cn={0})", "(cn={a.b})", "(cn={a!r})", "(cn={a:>5})", "{a}"):
        with pytest.raises(LocalError):
            format_filter(template, name="x", a="y")


def test_combining() -> None:
    a, b, c = Equal("a", 1), Present("b"), Equal("c", "x")
    assert str(a & b & c) == "(&(a=1)(b=*)(c=x))"
    assert str(a | b & ~c) == "(|(a=1)(&(b=*)(!(c=x))))"
    assert a == Equal("A", "1") and a != Equal("a", "2") and a != b and a != 5
    assert repr(~a) == "<Filter (!(a=1))>"
    for wrong in ("(a=b)", 5, None):
        with pytest.raises(TypeError):
            a & wrong  # type: ignore[operator]
        with pytest.raises(TypeError):
            a | wrong  # type: ignore[operator]
        with pytest.raises(TypeError):
            And(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            Not(wrong)  # type: ignore[arg-type]


def test_what_cannot_be_a_filter() -> None:
    for name in ("", "a b", "a=", "1", "1.", "01.2", "-a", "cn;", "é"):
        with pytest.raises(LocalError, match="name of an attribute"):
            Present(name)
    with pytest.raises(TypeError, match="name of an attribute"):
        Present(5)  # type: ignore[arg-type]
    with pytest.raises(LocalError, match="not empty"):
        Substrings("a", "", ["b"])
    with pytest.raises(LocalError, match="one piece"):
        Substrings("a")
    with pytest.raises(TypeError, match="list of pieces"):
        Substrings("a", any="xyz")
    with pytest.raises(LocalError, match="neither"):
        Extensible(None, "x")
    with pytest.raises(LocalError, match="matching rule"):
        Extensible("cn", "x", "a:b")
    with pytest.raises(LocalError, match="UTF-8"):
        Equal("cn", "\ud800")
    with pytest.raises(QuerySyntaxError):
        query.parse("(cn=\ud800)")
    with pytest.raises(TypeError):
        query.parse(None)  # type: ignore[arg-type]


#: How many filters are compared with what others make of their text; a soak sets it.
COMPARED = int(os.environ.get("CORO_LDAP_FILTERS", "300"))
#: What values consist of: all that can be typed, and what has to be escaped or has several bytes.
CHARACTERS = string.printable[:95] + "é中"


def generated(choice: random.Random, value: Callable[[], str]) -> filters.Filter:
    """A filter with all kinds of items, up to four levels deep."""

    def leaf() -> filters.Filter:
        name = choice.choice(["cn", "sn", "description", "1.2.3"])
        kind = choice.randrange(7)
        if kind < 4:
            return (Equal, GreaterOrEqual, LessOrEqual, Approximate)[kind](name, value())
        if kind == 4:
            return Present(name)
        if kind == 5:
            return Substrings(name, value(), [value() for _ in range(choice.randrange(3))], value())
        return Extensible(name, value(), choice.choice([None, "1.2.840.113556.1.4.803"]), choice.random() < 0.5)

    def tree(depth: int) -> filters.Filter:
        kind = choice.randrange(5) if depth < 4 else 4
        if kind < 2:
            return (And, Or)[kind](*[tree(depth + 1) for _ in range(choice.randrange(1, 4))])
        return Not(tree(depth + 1)) if kind == 2 else leaf()

    return tree(0)


@pytest.mark.slow
def test_the_same_as_ldap3() -> None:
    """Generated filters have the encodings that ldap3 gives them."""

    pytest.importorskip("ldap3", reason="pip install ldap3 to compare encodings")
    from ldap3.operation.search import compile_filter, parse_filter
    from pyasn1.codec.ber import encoder

    choice = random.Random(4)

    def value() -> str:
        raw = "".join(choice.choice(CHARACTERS) for _ in range(choice.randrange(1, 9)))
        # ldap3 strips blanks and changes the case of nothing else.
        return raw.strip() or "x"

    for _ in range(COMPARED):
        one = generated(choice, value)
        theirs = compile_filter(parse_filter(str(one), None, False, False, None, False).elements[0])
        # True is ff in LDAP (RFC 4511, 5.1); pyasn1's BER encoder writes 01.
        assert encoder.encode(theirs).replace(b"\x84\x01\x01", b"\x84\x01\xff") == one.encode(), str(one)


class Listening(threading.Thread):
    """A server that keeps the filters of all searches as they came, and finds nothing."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server((HOST, 0))
        self.listener.settimeout(LIMIT)
        self.url = f"ldap://{HOST}:{self.listener.getsockname()[1]}"
        self.filters: list[bytes] = []

    def run(self) -> None:
        with self.listener, self.listener.accept()[0] as sock:
            sock.settimeout(LIMIT)
            stream = IncrementalDecoder()
            while data := sock.recv(1 << 16):
                stream.feed(data)
                while isinstance(element := stream.next_element(), bytes):
                    number, request = Node.parse(element).children[:2]
                    if request.tag == 3:
                        self.filters.append(request.children[6].encode())
                    if request.tag in (0, 3):  # a login, a search
                        success = ber.ENUMERATED(0) + ber.OCTET_STRING(b"") * 2
                        answer = ber.APPLICATION(5 if request.tag else 1, True, success)
                        sock.sendall(ber.SEQUENCE(number.encode(), answer))


@pytest.mark.slow
def test_the_same_as_ldapsearch(tmp_path: Path) -> None:
    """Generated filters have the encodings that OpenLDAP's ldapsearch sends for their text."""
    program = find_program("ldapsearch", "ldap-utils")
    choice = random.Random(5)

    def value() -> str:
        return "".join(choice.choice(CHARACTERS + "\0\x01\x7f\n") for _ in range(choice.randrange(1, 9)))

    ours = [And(), Or(), Equal("cn", ""), Equal("cn", bytes(range(256))), Extensible(None, "x", "1.2.3", True)]
    ours += [Substrings("cn", any=["a"]), Substrings("cn", final="a"), Substrings("cn", "a"), Present("cn;lang-de")]
    while len(ours) < COMPARED:
        one = generated(choice, value)
        # It reads lines of that length.
        if len(str(one).encode()) < 4000:
            ours.append(one)
    # A line for each, which it puts into "(%s)"; only values have line feeds in them.
    text = "".join(str(one)[1:-1].replace("\n", "\\0a") + "\n" for one in ours)
    (tmp_path / "filters").write_text(text, encoding="utf-8", newline="")
    server = Listening()
    server.start()
    done = subprocess.run(
        [program, "-x", "-c", "-LLL", "-H", server.url, "-b", "dc=x", "-f", str(tmp_path / "filters"), "(%s)", "1.1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=10 * LIMIT,
    )  # fmt: skip
    server.join(LIMIT)
    assert done.returncode == 0, done.stderr
    assert len(server.filters) == len(ours)
    for one, theirs in zip(ours, server.filters, strict=True):
        assert theirs == one.encode(), str(one)
