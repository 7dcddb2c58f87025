"""Reading and writing master files."""

from __future__ import annotations

import subprocess

import pytest
from dns_support import in_loop
from hypothesis import given, settings
from hypothesis import strategies as st
from real_programs import find_program
from zone_servers import plain

from coro.dns import DNS_Zone_Error
from coro.dns.zone import Zone

HEAD = "$TTL 300\n@ SOA ns admin 1 2 3 4 5\n@ NS ns\n"


def zone(text, origin="example.test", **settings):
    return Zone.from_text(HEAD + text, origin, **settings)


def records(zone):
    return sorted(map(str, zone.records()))


def test_the_example_of_the_rfc(tmp_path):
    """RFC 1035, section 5.3, with its included file."""
    (tmp_path / "zone").write_text("""
@   IN  SOA     VENERA      Action\\.domains (
                                 20     ; SERIAL
                                 7200   ; REFRESH
                                 600    ; RETRY
                                 3600000; EXPIRE
                                 60)    ; MINIMUM

        NS      A.ISI.EDU.
        NS      VENERA
        NS      VAXA
        MX      10      VENERA
        MX      20      VAXA

A       A       26.3.0.103

VENERA  A       10.1.0.52
        A       128.9.0.32

VAXA    A       10.2.0.27
        A       128.9.0.33


$INCLUDE MAILBOXES.TXT
""")
    (tmp_path / "MAILBOXES.TXT").write_text("""
MOE     MB      A.ISI.EDU.
LARRY   MB      A.ISI.EDU.
CURLEY  MB      A.ISI.EDU.
STOOGES MG      MOE
        MG      LARRY
        MG      CURLEY
""")
    found = Zone.read(tmp_path / "zone", "ISI.EDU")
    assert len(found) == 17
    soa = found.get("isi.edu", "SOA")
    assert soa == [(60, ("venera.isi.edu", "action\\.domains.isi.edu", 20, 7200, 600, 3600000, 60))]
    assert found.get("vaxa.isi.edu.", "A") == [(60, "10.2.0.27"), (60, "128.9.0.33")]
    assert [value for _, value in found.get("stooges.isi.edu", "MG")] == [
        "moe.isi.edu",
        "larry.isi.edu",
        "curley.isi.edu",
    ]
    with pytest.raises(DNS_Zone_Error, match=r"zone:24: \$INCLUDE is not allowed here"):
        Zone.read(tmp_path / "zone", "ISI.EDU", include=False)


def test_owners_ttls_and_classes():
    found = zone("""
a 60 IN A 192.0.2.1
a IN 90 AAAA 2001:db8::1
b IN A 192.0.2.2
 1h30m A 192.0.2.3
	TXT x
$ORIGIN sub
c A 192.0.2.4
$ORIGIN other.example.test.
@ A 192.0.2.5
d.example.test. 2W A 192.0.2.6
$TTL 1d
e\\.f A 192.0.2.7
\\097\\098 A 192.0.2.8
""")
    assert found.get("a.example.test", "A") == [(60, "192.0.2.1")]
    assert found.get("a.example.test", "AAAA") == [(90, "2001:db8::1")]
    assert found.get("b.example.test", "A") == [(300, "192.0.2.2"), (300, "192.0.2.3")]  # the lowest of a set
    assert found.get("b.example.test", "TXT") == [(300, [b"x"])]
    assert found.get("c.sub.example.test", "A") == [(300, "192.0.2.4")]
    assert found.get("other.example.test", "A") == [(300, "192.0.2.5")]
    assert found.get("d.example.test", "A") == [(1209600, "192.0.2.6")]
    assert found.get("e\\.f.other.example.test", "A") == [(86400, "192.0.2.7")]
    assert found.get("ab.other.example.test", "A") == [(86400, "192.0.2.8")]


def test_ttls_without_a_default():
    """RFC 1035: the last one; before that, the SOA record's minimum."""
    found = Zone.from_text("@ SOA ns admin 1 2 3 4 55\na A 192.0.2.1\nb 7 A 192.0.2.2\nc A 192.0.2.3\n", "x")
    assert [found.get(name + ".x", "A")[0][0] for name in "abc"] == [55, 7, 7]
    assert Zone.from_text("a A 192.0.2.1\n@ SOA ns admin 1 2 3 4 5", "x", ttl=9).get("a.x", "A")[0][0] == 9
    with pytest.raises(DNS_Zone_Error, match="<text>:1: no TTL is known"):
        Zone.from_text("a A 192.0.2.1\n@ SOA ns admin 1 2 3 4 5", "x")


def test_quotes_parentheses_and_comments():
    found = zone(
        """
a TXT ("one" ; "not this"
   "t;w(o" three)
b TXT "say \\"hi\\"" \\; ; end
c TXT "a\\
" x""".replace("\\\n", "\\010")
        + """
( d TXT x )
e HINFO ( "vax"
"vms" )
f SVCB 1 . alpn="h2,h3" port=443
"""
    )
    assert found.get("a.example.test", "TXT") == [(300, [b"one", b"t;w(o", b"three"])]
    assert found.get("b.example.test", "TXT") == [(300, [b'say "hi"', b";"])]
    assert found.get("c.example.test", "TXT") == [(300, [b"a\n", b"x"])]
    assert found.get("d.example.test", "TXT") == [(300, [b"x"])]
    assert found.get("e.example.test", "HINFO") == [(300, (b"vax", b"vms"))]
    assert found.get("f.example.test", "SVCB")


def test_generate():
    found = zone("""
$GENERATE 1-3 host$ A 192.0.2.$
$GENERATE 0-4/2 $.rev 60 IN PTR a-${0,3}.example.test.
$GENERATE 10-11 x${-10,2,x} TXT "$$ ${0,4,X} $"
$GENERATE 18-18 ${0,8,n}.ip6 TXT x
""")
    assert [found.get(f"host{i}.example.test", "A")[0][1] for i in (1, 2, 3)] == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
    assert found.get("2.rev.example.test", "PTR") == [(60, "a-002.example.test")]
    assert not found.get("1.rev.example.test", "PTR")
    assert found.get("x01.example.test", "TXT") == [(300, [b"$ 000B 11"])]
    assert found.get("2.1.0.0.ip6.example.test", "TXT")


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a A 192.0.2.300", 4, "A: expected an IPv4 address"),
        ("a A", 4, "A: the data of the record ends too early"),
        ("a A 192.0.2.1 x", 4, "more than belongs to the type A"),
        ("a WHAT x", 4, "expected a TTL, a class or the type of a record, not 'WHAT'"),
        ("a IN IN A 192.0.2.1", 4, "expected a TTL, a class or the type"),
        ("a 60", 4, "expected the type of a record"),
        ("a CH A 192.0.2.1", 4, "a record of the class CH"),
        ("\n\na.other. A 192.0.2.1", 6, "a.other. is not in the zone example.test."),
        ("a SOA ns admin 1 2 3 4 5", 4, "a SOA record at a.example.test."),
        ("a ANY x", 4, "ANY"),
        ("a 9999999999 A 192.0.2.1", 4, "expected at most 4294967295 seconds"),
        ("a 3000000000 A 192.0.2.1", 4, "a TTL is at most 2147483647 seconds"),
        ("a..b A 192.0.2.1", 4, "no empty labels"),
        (f"{'x' * 64} A 192.0.2.1", 4, "at most 63 bytes"),
        (f"{'x.' * 125}x A 192.0.2.1", 4, "at most 255 bytes"),
        ('a TXT "x', 4, "a quote or a backslash without its other part"),
        ("a TXT x)", 4, "a closing parenthesis without an opening one"),
        ("b A 192.0.2.1\na TXT (x\ny", 5, "the file ends within parentheses"),
        ("$TTL", 4, "expected a TTL behind $TTL"),
        ("$ORIGIN a b", 4, "expected a name behind $ORIGIN"),
        ("$INCLUDE x", 4, "$INCLUDE is not allowed here"),
        ("$WHAT x", 4, "expected $ORIGIN, $TTL, $INCLUDE, $GENERATE or a record"),
        ("$GENERATE 1 a A 192.0.2.1", 4, "expected a range"),
        ("$GENERATE 2-1 a A 192.0.2.1", 4, "expected a range that goes up"),
        ("$GENERATE 1-99999999 a$ A 192.0.2.1", 4, "$GENERATE for more than 100000 records"),
        ("$GENERATE 1-2 a${0,999} A 192.0.2.1", 4, "expected a width up to 255"),
        ("a A \\# 3 010203", 4, "data that does not fit the type A"),
        ("a TYPE65280 x", 4, "written as \\# LENGTH HEX"),
    ],
)
def test_errors_have_the_line(text, line, says):
    with pytest.raises(DNS_Zone_Error) as caught:
        zone(text)
    assert caught.value.line == line
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"<text>:{line}: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a CNAME b\na A 192.0.2.1", "a.example.test. has a CNAME record and others: A"),
        ("a CNAME b\na CNAME c", "a.example.test. has 2 CNAME records"),
        ("a DNAME b\na DNAME c", "a.example.test. has 2 DNAME records"),
        ("@ SOA ns admin 2 2 3 4 5", "has 2 SOA records"),
    ],
)
def test_what_cannot_be_a_zone(text, says):
    with pytest.raises(DNS_Zone_Error, match=says.replace(".", r"\.")):
        zone(text)


def test_no_soa_record():
    with pytest.raises(DNS_Zone_Error, match=r"expected a SOA record for example\.test\., found none"):
        Zone.from_text("a 1 A 192.0.2.1", "example.test")


def test_repeated_records_are_one():
    """RFC 2181, section 5. Names in data are equal whatever their letters are; texts are not."""
    found = zone("a A 192.0.2.1\na A 192.0.2.1\nm MX 1 Mail\nm MX 1 mail\nt TXT X\nt TXT x\n")
    assert len(found.get("a.example.test", "A")) == 1
    assert len(found.get("m.example.test", "MX")) == 1
    assert len(found.get("t.example.test", "TXT")) == 2


def test_limits(tmp_path):
    with pytest.raises(DNS_Zone_Error, match="<text>:5: more than 3 records"):
        zone("a A 192.0.2.1\nb A 192.0.2.1", limit=3)
    (tmp_path / "loop").write_text(HEAD + "$INCLUDE loop\n")
    with pytest.raises(DNS_Zone_Error, match=r"loop:4: files within files, more than 10 deep"):
        Zone.read(tmp_path / "loop", "example.test")
    (tmp_path / "none").write_text(HEAD + "$INCLUDE missing.txt\n")
    with pytest.raises(DNS_Zone_Error, match=r"none:4: .*missing\.txt cannot be read"):
        Zone.read(tmp_path / "none", "example.test")
    with pytest.raises(DNS_Zone_Error, match="an entry of more than 1048576 characters"):
        zone("a TXT (" + ("x" * 1000 + "\n") * 1100)


def test_included_files_have_their_own_origin_and_owner(tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "zone").write_text(HEAD + "a A 192.0.2.1\n$INCLUDE more/one sub\n AAAA 2001:db8::1\nb A 192.0.2.2\n")
    (tmp_path / "more" / "one").write_text("$INCLUDE two\n$ORIGIN deep\nc A 192.0.2.3\n")
    (tmp_path / "more" / "two").write_text("d A 192.0.2.4\n")
    found = Zone.read(tmp_path / "zone", "example.test")
    for name, rtype in (("a", "AAAA"), ("b", "A"), ("c.deep.sub", "A"), ("d.sub", "A")):
        assert found.get(f"{name}.example.test", rtype), name


def test_text_and_back():
    first = Zone.from_text(plain(), "example.test")
    second = Zone.from_text(first.to_text(), "example.test")
    assert first._data.nodes == second._data.nodes
    assert first.to_text() == second.to_text()
    assert records(first) == records(second)
    root = Zone.from_text(". 5 SOA ns. admin. 1 2 3 4 5\n@ 5 NS a\na 5 A 192.0.2.1\n", ".")
    assert Zone.from_text(root.to_text(), ".").get("a", "A") == [(5, "192.0.2.1")]
    assert next(root.records())[0] == ""


def test_saved_files_are_whole(tmp_path):
    path = tmp_path / "zone"
    zone("a A 192.0.2.1").save(path)
    assert Zone.read(path, "example.test").get("a.example.test", "A")
    assert [one.name for one in tmp_path.iterdir()] == ["zone"]

    @in_loop
    def within():
        zone("b A 192.0.2.1").save(path)

    within()
    assert Zone.read(path, "example.test").get("b.example.test", "A")


def test_ldns_and_bind_read_it_as_we_do(tmp_path):
    """Two other readers make the same records of a file, and of what we write."""
    first = Zone.from_text(plain(), "example.test")
    (tmp_path / "given").write_text(plain())
    first.save(tmp_path / "written")
    compilezone = find_program("named-compilezone", "bind9-utils")
    texts = []
    for name in ("given", "written"):
        command = [compilezone, "-q", "-i", "none", "-k", "ignore", "-r", "ignore", "-o", "-", "example.test", name]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert not done.returncode, done.stderr
        texts.append(done.stdout)
    assert texts[0] == texts[1]
    assert records(Zone.from_text(texts[0], "example.test")) == records(first)
    ldns = find_program("ldns-read-zone", "ldnsutils")
    done = subprocess.run([ldns, "-c", "written"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert not done.returncode, done.stderr
    assert Zone.from_text(done.stdout, "example.test")._data.nodes.keys() == first._data.nodes.keys()


@settings(deadline=None, max_examples=300)
@given(st.text(st.sampled_from('a1 \t\n"();\\$@.{},AINTXSO-#'), max_size=60))
def test_any_text_is_a_zone_or_an_error(text):
    try:
        zone(text)
    except DNS_Zone_Error as e:
        assert e.line >= 0 and str(e)


def test_a_large_file_lets_others_run(tmp_path):
    import coro

    (tmp_path / "zone").write_text(HEAD + "".join(f"n{i} A 192.0.2.1\n" for i in range(5000)))
    turns = []

    @in_loop
    def test():
        done = []

        def other():
            while not done:
                turns.append(1)
                coro.yield_slice()

        thread = coro.spawn(other)
        assert len(Zone.read(tmp_path / "zone", "example.test")) == 5002
        done.append(1)
        thread.join()

    test()
    assert len(turns) > 3
