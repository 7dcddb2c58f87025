"""Which codec a server may choose for ``response.text``."""

from __future__ import annotations

import codecs
import sys
from encodings.aliases import aliases

import pytest
from http_support import in_loop, serving

from coro.http._client import charsets
from coro.http._client.charsets import charset_of
from coro.http.client import Client


@pytest.mark.parametrize(
    ("named", "codec"),
    [
        ("utf-8", "utf-8"), ("UTF-8", "utf-8"), ("utf8", "utf-8"), ('"utf-16"', "utf-16"), ("ISO-8859-1", "latin-1"),
        ("latin1", "latin-1"), ("us-ascii", "ascii"), ("windows-1252", "cp1252"), ("Shift_JIS", "shift-jis"),
        ("x-sjis", "shift-jis"), ("windows-31j", "cp932"), ("windows-874", "cp874"), ("gb2312", "gb2312"),
        ("GB18030", "gb18030"), ("big5", "big5"), ("euc-kr", "euc-kr"), ("koi8-r", "koi8-r"), ("utf-7", "utf-7"),
    ],
)  # fmt: skip
def test_charsets_of_the_web(named: str, codec: str) -> None:
    found = charset_of(f"text/plain; format=flowed; charset={named}")
    assert found == codec
    codecs.lookup(found)


@pytest.mark.parametrize(
    "named",
    ["idna", "undefined", "punycode", "unicode_escape", "raw-unicode-escape", "rot13", "hex", "base64", "zip", "bz2",
     "uu", "quopri", "mbcs", "oem", "no-such", "", "utf-8\u00fc", "../os", "os.path", "x" * 100_000],
)  # fmt: skip
def test_other_codecs_are_not_for_servers_to_choose(named: str) -> None:
    before = len(sys.modules)
    assert charset_of(f"text/plain; charset={named}") == "utf-8"
    assert len(sys.modules) == before


def test_each_codec_of_the_list_decodes_anything_in_one_pass() -> None:
    """Twice the bytes give twice the text, so to say: what a codec holds back or repeats would show."""
    piece = bytes(range(256)) * 16
    for name in charsets._CODECS:
        text = (piece * 2).decode(name, "replace")
        assert len(text) <= 4 * len(piece)
    assert not charsets._CODECS & {"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape"}
    assert set(charsets._NAMES.values()) <= charsets._CODECS | set(aliases.values())


@in_loop
def test_text_of_a_server_that_names_any_codec() -> None:
    """No exception from a property, and no names that pile up in Python's own table."""

    def handler(request: object) -> tuple[bytes, int, dict[str, str]]:
        name = request.path[1:]  # type: ignore[attr-defined]
        return b"-" + b"b" * 60_000, 200, {"content-type": f"text/plain; charset={name}"}

    import encodings

    known = len(encodings._cache)  # type: ignore[attr-defined]
    with serving(handler) as server, Client() as client:
        for name in ("punycode", "idna", "undefined", *(f"none-{n}" for n in range(50))):
            answer = client.get(f"http://127.0.0.1:{server.port}/{name}")
            assert answer.text == "-" + "b" * 60_000
            assert answer.encoding == "utf-8"
    assert len(encodings._cache) <= known + 1  # type: ignore[attr-defined]
