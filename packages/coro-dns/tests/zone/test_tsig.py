"""Signed messages, beside dnspython's signatures."""

from __future__ import annotations

import subprocess

import dns.message
import dns.name
import dns.tsig
import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from real_programs import find_program

from coro.dns import _wire, tsig
from coro.dns.exceptions import DNS_Signature_Error
from coro.dns.tsig import ALGORITHMS, Key

QUERY = _wire.build(4711, 0x0100, _wire.from_text("www.example.org"), 1, 1, udp_size=1232)
NOW = 1_700_000_000
KEY = Key("some.Key", b"a secret that is no secret")


def theirs(key: Key) -> dict[dns.name.Name, dns.tsig.Key]:
    name = dns.name.from_text(key.name)
    return {name: dns.tsig.Key(name, key._secret, key.algorithm + ".")}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_beside_dnspython(algorithm):
    """A question and its reply, both ways."""
    key = Key("some.key", b"x" * 70, algorithm)
    signed, code = tsig.sign(QUERY, key)
    found = dns.message.from_wire(signed, keyring=theirs(key))
    assert found.had_tsig and found.mac == code
    reply = dns.message.make_response(found)
    reply.use_tsig(theirs(key), key.name)
    reply.request_mac = code
    checked = tsig.verify(reply.to_wire(), [key], code)
    assert checked is not None and checked.key is key

    query = dns.message.make_query("www.example.org", "A")
    query.use_tsig(theirs(key), key.name)
    checked = tsig.verify(query.to_wire(), [Key("other", b"1"), key])
    assert checked is not None
    back = _wire.build(query.id, 0x8000, _wire.from_text("www.example.org"), 1, 1)
    dns.message.from_wire(tsig.sign(back, key, checked.code)[0], keyring=theirs(key), request_mac=query.mac)


def test_every_bit_counts():
    """No bit of a signed message can be changed but those that only say how names are written."""
    signed, code = tsig.sign(QUERY, KEY, now=NOW)
    good = tsig.verify(signed, [KEY], now=NOW)
    assert good is not None and good.code == code and good.time == NOW
    passed = []
    for at in range(8 * len(signed)):
        changed = bytearray(signed)
        changed[at // 8] ^= 1 << at % 8
        try:
            if tsig.verify(bytes(changed), [KEY], now=NOW) is not None:
                passed.append(at // 8)
        except DNS_Signature_Error:
            pass
    # the id in front is not what is signed, the one in the record is; names may be in upper case
    owner = signed.index(KEY.wire)
    names = range(owner, owner + len(KEY.wire))
    algorithm = signed.index(b"\x0bhmac-sha256")
    letters = range(algorithm + 1, algorithm + 12)
    assert {at for at in passed if at > 1} <= {*names, *letters}


def test_time():
    signed, _ = tsig.sign(QUERY, KEY, now=NOW)
    for now in (NOW - 300, NOW + 300):
        assert tsig.verify(signed, [KEY], now=now)
    for now in (NOW - 301, NOW + 301):
        with pytest.raises(DNS_Signature_Error, match="do both clocks go right") as caught:
            tsig.verify(signed, [KEY], now=now)
        assert caught.value.code == 18
    reply = tsig.refusal(_wire.build(4711, 0x8009, _wire.from_text("www.example.org"), 1, 1), caught.value)
    with pytest.raises(dns.tsig.PeerBadTime):
        code = tsig._fields(signed).code
        dns.message.from_wire(reply, keyring=theirs(KEY), request_mac=code, ignore_trailing=False)


def test_codes_that_were_cut():
    """RFC 8945, section 5.2.2.1: fewer than half, or fewer than ten bytes, are no code; others are refused as cut."""
    fields = tsig._fields(tsig.sign(QUERY, KEY, now=NOW)[0])
    assert fields is not None
    for size in range(len(fields.code)):
        cut = (NOW, 300, fields.code[:size], 4711, 0, b"")
        with pytest.raises(DNS_Signature_Error) as caught:
            tsig.verify(tsig._with_record(QUERY, KEY.wire, KEY.algorithm, cut), [KEY], now=NOW)
        assert (caught.value.rcode, caught.value.code) == ((9, 22) if size >= 16 else (1, 0))


def test_where_the_record_is():
    signed, _ = tsig.sign(QUERY, KEY)
    twice, _ = tsig.sign(signed, KEY)
    with pytest.raises(DNS_Signature_Error, match="not the last one"):
        tsig.verify(twice, [KEY])
    with pytest.raises(DNS_Signature_Error):
        tsig.verify(signed + b"\0", [KEY])
    assert tsig.verify(QUERY, [KEY]) is None
    with pytest.raises(DNS_Signature_Error, match="without a signature"):
        tsig.verify_reply(QUERY, KEY, b"")
    with pytest.raises(DNS_Signature_Error, match=r"not known here: some\.key hmac-sha256"):
        tsig.verify(signed, [Key("some.key", KEY._secret, "hmac-sha512"), Key("other", KEY._secret)])


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=80), st.integers(0, 200), st.integers(0, 40))
def test_damaged_messages(damage, at, removed):
    signed, _ = tsig.sign(QUERY, KEY, now=NOW)
    changed = signed[:at] + damage + signed[at + removed :]
    if changed != signed:
        try:
            tsig.verify(changed, [KEY], now=NOW)
        except DNS_Signature_Error:
            pass


def test_key_files(tmp_path):
    path = tmp_path / "key"
    path.write_text(KEY.text())
    found = Key.read(path)
    assert found == KEY and hash(found) == hash(KEY) and found.name == "some.key"
    path.write_text(
        '// a comment\nKEY some.key. { # another\n algorithm "HMAC-SHA512"; /* secret "x"; */ secret YQ==;\n};'
    )
    assert Key.read(path) == Key("some.key", b"a", "hmac-sha512")
    for text in ("", "key a { algorithm hmac-sha256; };", 'key a { secret "YQ=="; }; key b { secret "YQ=="; };',
                 'key a { secret "Y"; };', 'key a { algorithm hmac-md5; secret "YQ=="; };'):  # fmt: skip
        path.write_text(text)
        with pytest.raises(ValueError):
            Key.read(path)
    assert "secret" not in repr(KEY) and "YSBz" not in repr(KEY)
    assert Key.generate("a") != Key.generate("a")
    with pytest.raises(ValueError, match="is empty"):
        Key("a", b"")


def test_keys_of_another_program(tmp_path):
    program = find_program("tsig-keygen", "bind9")
    for algorithm in ("hmac-sha256", "hmac-sha512"):
        made = subprocess.run([program, "-a", algorithm, "some.key"], capture_output=True, check=True, text=True)
        (tmp_path / "key").write_text(made.stdout)
        key = Key.read(tmp_path / "key")
        assert key.algorithm == algorithm and key.text() == made.stdout
