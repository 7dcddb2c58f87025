"""Nodes, dumps and PEM: what keeps bytes, and what shows them."""

from __future__ import annotations

import pytest
from asn1_values import ber_values
from hypothesis import given

from coro.asn1 import DecodeError, EncodeError, Node, ber, dump, pem_decode, pem_encode

# A length in two bytes, a BOOLEAN of 01, a SET out of order: valid, and not what an encoder would write.
ODD = bytes.fromhex("30810d 010101 3106020102020101 0500")


def test_bytes_stay() -> None:
    node = Node.parse(ODD)
    assert node.encode() == ODD
    assert [child.encode().hex() for child in node] == ["010101", "3106020102020101", "0500"]
    assert node.value == [True, [2, 1], None]
    assert len(node) == 3 and node[1][0].value == 2
    assert node == Node.parse(ODD) and hash(node) == hash(Node.parse(ODD))
    assert node != Node(16, ber.FLAGS_STRUCTURED, node.children)
    assert repr(node) == "<Node SEQUENCE, 13 bytes>"
    assert repr(Node(3, 0x80, b"")) == "<Node [3], 0 bytes>"


def test_replace() -> None:
    node = Node.parse(ODD)
    first, second, third = node.children
    other = node.replace([first, second.replace([Node(2, 0, b"\x07")]), third])
    assert other.encode().hex() == "300a010101" + "3103020107" + "0500"
    with pytest.raises(EncodeError, match="primitive"):
        first.replace([third])
    with pytest.raises(DecodeError):
        node.replace(b"\x30")


@pytest.mark.slow
@given(ber_values)
def test_any_value(value: object) -> None:
    data = ber.encode(value)

    def copied(node: Node) -> Node:
        return node.replace([copied(child) for child in node] if node.constructed else node.content)

    node = Node.parse(data)
    assert node.encode() == data and copied(node) == node
    with pytest.raises(DecodeError, match="1 bytes follow"):
        Node.parse(data + b"x")
    assert len(dump(data).splitlines()) >= 1


def test_structure_is_checked() -> None:
    for wrong in ("30", "3002", "30030202", "30040203ffff", "3080"):
        with pytest.raises(DecodeError):
            Node.parse(bytes.fromhex(wrong))
    deep = ber.NULL()
    for _ in range(5):
        deep = ber.SEQUENCE(deep)
    Node.parse(deep, max_depth=5)
    with pytest.raises(DecodeError, match="at most 4 deep"):
        Node.parse(deep, max_depth=4)


def test_dump() -> None:
    data = ber.SEQUENCE(
        ber.INTEGER(34),
        ber.OCTET_STRING(b"line"),
        ber.OCTET_STRING(b"\x00\xff"),
        ber.OBJID([1, 2, 840]),
        ber.CONTEXT(3, True, ber.BITSTRING(3, b"\xf8")),
        ber.APPLICATION(4, False, b"x"),
        ber.NULL(),
        ber.INTEGER(1 << 200),
        ber.TLV(5, 0, b"wrong"),
    )
    assert (
        dump(data)
        == f"""\
   0  {len(data) - 2}: SEQUENCE
   2   1:   INTEGER 34
   5   4:   OCTET STRING 'line'
  11   2:   OCTET STRING 00ff
  15   3:   OBJID 1.2.840
  20   4:   [3]
  22   2:     BITSTRING 5 bits f8
  26   1:   [APPLICATION 4] 'x'
  29   0:   NULL
  31  26:   INTEGER 0x1{"0" * 50}
  59   5:   NULL error: expected a NULL without content, got 5 bytes at byte 2"""
    )


def test_dump_of_what_is_wrong() -> None:
    assert dump(b"") == ""
    assert dump(b"\x05\x00\x04\x05a").splitlines()[1].startswith("   2    : error: 5 bytes of content, but 1 are there")
    assert dump(ber.NULL() * 10, max_lines=3).splitlines()[-1] == "... 14 more bytes"
    deep = b""
    for _ in range(5000):
        deep = ber.TLV(16, ber.FLAGS_STRUCTURED, deep)
    assert len(dump(deep).splitlines()) < 200


def test_pem() -> None:
    text = "before\n" + pem_encode("CERTIFICATE", bytes(100)) + "between\r\n" + pem_encode("EC PRIVATE KEY", b"")
    assert pem_decode(text) == [("CERTIFICATE", bytes(100)), ("EC PRIVATE KEY", b"")]
    assert pem_decode(text.replace("\n", "\r\n").encode()) == pem_decode(text)
    assert max(map(len, text.splitlines())) == 64
    for label in ("-X", "X-", "a\nb", "é"):
        with pytest.raises(ValueError, match="label"):
            pem_encode(label, b"")


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN X-----\nAAAA\n",
        "-----BEGIN X-----\nAAAA\n-----END Y-----\n",
        "-----BEGIN X-----\nAA!A\n-----END X-----\n",
        "-----BEGIN X-----\nAAA\n-----END X-----\n",
    ],
)
def test_pem_malformed(text: str) -> None:
    with pytest.raises(DecodeError):
        pem_decode(text)
