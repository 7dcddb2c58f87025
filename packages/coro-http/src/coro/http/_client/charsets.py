"""Which codec a content type names: one of a list, because the peer chooses.

Python finds codecs by name that are no encodings of text (``hex``), that raise for most texts (``idna``), that undo
escapes, or that take quadratic time (``punycode``: seconds for a hundred kilobytes, in which nothing else runs); and it
remembers each name that it was asked for. So a name is looked up in a table of our own. The codecs in it take one pass
over the bytes. They are those of the Encoding Standard (https://encoding.spec.whatwg.org) that Python has, and their
relatives.

Cost: a table of some hundred names, made at import.
"""

from __future__ import annotations

from encodings import normalize_encoding
from encodings.aliases import aliases

__all__ = ["charset_of"]

_CODECS = frozenset(
    "ascii utf_8 utf_8_sig utf_7 utf_16 utf_16_le utf_16_be utf_32 utf_32_le utf_32_be latin_1 iso8859_1 iso8859_2 "
    "iso8859_3 iso8859_4 iso8859_5 iso8859_6 iso8859_7 iso8859_8 iso8859_9 iso8859_10 iso8859_11 iso8859_13 iso8859_14 "
    "iso8859_15 iso8859_16 cp437 cp737 cp775 cp850 cp852 cp855 cp857 cp858 cp860 cp861 cp862 cp863 cp864 cp865 cp866 "
    "cp869 cp874 cp932 cp949 cp950 cp1125 cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 koi8_r koi8_t "
    "koi8_u kz1048 mac_cyrillic mac_greek mac_iceland mac_latin2 mac_roman mac_turkish ptcp154 tis_620 gb2312 gbk "
    "gb18030 hz big5 big5hkscs euc_jp euc_jis_2004 euc_jisx0213 euc_kr johab iso2022_jp iso2022_jp_1 iso2022_jp_2 "
    "iso2022_jp_3 iso2022_jp_2004 iso2022_jp_ext iso2022_kr shift_jis shift_jis_2004 shift_jisx0213".split()
)
_NAMES = {name: name for name in _CODECS}
_NAMES.update((alias, codec) for alias, codec in aliases.items() if codec in _CODECS)
#: Names of the Encoding Standard that Python does not know.
_NAMES.update(windows_31j="cp932", x_sjis="shift_jis", windows_874="cp874", x_mac_cyrillic="mac_cyrillic")
#: Characters of the longest name, and more.
_LONGEST = 40


def charset_of(content_type: str, default: str = "utf-8") -> str:
    """Python's name of the charset that a content type names, if it is in the list, else ``default``."""
    for part in content_type.split(";")[1:]:
        name, _, value = part.partition("=")
        if name.strip().lower() == "charset":
            value = value.strip().strip("\"'")
            if len(value) > _LONGEST or not value.isascii():
                break
            return _NAMES.get(normalize_encoding(value).lower(), default).replace("_", "-")
    return default
