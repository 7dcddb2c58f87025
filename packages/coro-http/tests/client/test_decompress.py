"""Content codings: whole, in pieces of every size, chained, and bounded."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coro.http import _decompress
from coro.http._decompress import Decompressor
from coro.http.exceptions import BombError, DecodeError


def packed(coding: str, data: bytes) -> bytes:
    if coding == "gzip":
        return gzip.compress(data)
    if coding == "deflate":
        return zlib.compress(data)
    if coding == "raw":
        engine = zlib.compressobj(wbits=-15)
        return engine.compress(data) + engine.flush()
    if coding == "br":
        return pytest.importorskip("brotli").compress(data)
    module = _decompress._module("compression.zstd", "backports.zstd", "zstandard")
    return module.compress(data)


def unpack(coding: str, pieces: list[bytes], limit: int = 65_536, **options: int) -> bytes:
    d = Decompressor({"raw": "deflate"}.get(coding, coding), **options)
    out = []
    for piece in pieces:
        out.append(d.feed(piece, limit))
        while d.pending:
            out.append(d.feed(b"", limit))
            assert len(out[-1]) <= limit
    d.finish()
    return b"".join(out)


CODINGS = ["gzip", "raw", *_decompress.available()[::-1]]
DATA = [b"", b"x", b"hello " * 1000, bytes(range(256)) * 300, bytes(200_000)]


@pytest.mark.parametrize("coding", dict.fromkeys(CODINGS))
def test_whole_and_in_pieces(coding):
    for data in DATA:
        body = packed(coding, data)
        assert unpack(coding, [body]) == data
        assert unpack(coding, [body], limit=100) == data
        if len(body) < 400:
            assert unpack(coding, [body[i : i + 1] for i in range(len(body))]) == data
            for cut in range(len(body)):
                assert unpack(coding, [body[:cut], body[cut:]]) == data


@pytest.mark.parametrize("coding", dict.fromkeys(CODINGS))
def test_cut_anywhere(coding):
    body = packed(coding, b"hello, world, " * 20)
    for cut in range(1, len(body)):
        with pytest.raises(DecodeError):
            unpack(coding, [body[:cut]])
    assert unpack(coding, []) == b""


@pytest.mark.parametrize("coding", dict.fromkeys(CODINGS))
@given(data=st.binary(max_size=300))
def test_any_bytes_give_an_error_or_an_end(coding, data):
    try:
        unpack(coding, [data[:10], data[10:]])
    except (DecodeError, BombError):
        pass


def test_members_and_padding():
    two = gzip.compress(b"one") + gzip.compress(b"two")
    assert unpack("gzip", [two]) == b"onetwo"
    assert unpack("gzip", [two[i : i + 1] for i in range(len(two))]) == b"onetwo"
    assert unpack("gzip", [gzip.compress(b"one") + b"\0\0\0", b"more"]) == b"one"


def test_chains():
    body = gzip.compress(zlib.compress(b"hello" * 10_000))
    assert unpack("deflate, GZIP", [body]) == b"hello" * 10_000
    assert unpack("deflate, gzip", [body[i : i + 3] for i in range(0, len(body), 3)], limit=10) == b"hello" * 10_000
    assert unpack("identity", [b"x"]) == b"x"
    with pytest.raises(DecodeError, match="at most 3"):
        Decompressor("gzip, gzip, gzip, gzip")
    with pytest.raises(DecodeError, match="cannot be unpacked here"):
        Decompressor("compress")


@pytest.mark.parametrize("coding", dict.fromkeys(CODINGS))
def test_bounds(coding):
    body = packed(coding, bytes(5_000_000))
    with pytest.raises(BombError):
        unpack(coding, [body], max_ratio=10, floor=1000)
    with pytest.raises(BombError):
        unpack(coding, [body], max_output=4_999_999)
    assert len(unpack(coding, [body], max_output=5_000_000)) == 5_000_000


@pytest.mark.parametrize("coding", dict.fromkeys(CODINGS))
def test_no_call_unpacks_more_than_it_was_asked_for(coding):
    d = Decompressor({"raw": "deflate"}.get(coding, coding))
    assert len(d.feed(packed(coding, bytes(2_000_000)), 1000)) <= 1000
    assert d.pending
