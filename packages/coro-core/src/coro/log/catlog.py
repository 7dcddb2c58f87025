"""``catlog``: show a binary log as text.

    catlog [-b] [-f] [-a 3m|1h|20d|2w] [FILE]

A line for each record: local time, then the items. Large records and strings of bytes are shown as a placeholder, so
that a terminal stays usable; see ``-b``. With ``-a`` the beginning is found by a binary search over the file, which
therefore has to be in the order of time, as logs are.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from typing import Any, BinaryIO

from coro.log import _loggers, asn1

__all__ = ["find_start", "line_of", "main"]

#: Records of this many bytes or more are large.
LARGE_RECORD = 1000
#: Strings of bytes, if they look binary.
LARGE_BYTES = 500
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
#: The binary search ends here, and reading begins.
_NEAR = 16 * 1024


class _Hex:
    """An item that is shown as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _shown(item: Any) -> Any:
    if isinstance(item, bytes) and any(byte >= 0x80 for byte in item[:10]):
        return _Hex(f"<{len(item)} bytes>" if len(item) >= LARGE_BYTES else f"<{item.hex()}>")
    if type(item) in (list, tuple, set):
        return type(item)(map(_shown, item))
    if type(item) is dict:
        return {_shown(key): _shown(value) for key, value in item.items()}
    return item


def line_of(size: int, when: float, items: tuple[Any, ...], big: bool = False) -> str:
    """A record as text; ``big``: however large it is."""
    try:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(when))
    except (ValueError, OverflowError, OSError):
        stamp = f"<{when!r} s>"
    if size >= LARGE_RECORD and not big:
        return f"{stamp} <record of {size} bytes>"
    return f"{stamp} {_loggers.text_of(tuple(map(_shown, items)))}"


def _seconds(spec: str) -> int:
    found = re.fullmatch(r"([0-9]{1,9})([smhdw])", spec)
    if not found:
        raise argparse.ArgumentTypeError(f"expected a number and one of s, m, h, d, w (3m, 1h, 20d, 2w), not {spec!r}")
    return int(found[1]) * _UNITS[found[2]]


def _last_time(f: BinaryIO, size: int) -> int | None:
    """The time of the last record."""
    window = 64 * 1024
    while True:
        begin = max(size - window, 0)
        f.seek(begin)
        last = None
        for _, _, when, _ in asn1.records(f, limit=0):
            last = when
        if last is not None or begin == 0:
            return last
        window *= 4


def find_start(f: BinaryIO, seconds: float) -> int:
    """The offset of the first record that is at most ``seconds`` older than the last one. ``f`` has to be seekable."""
    size = f.seek(0, os.SEEK_END)
    last = _last_time(f, size)
    if last is None:
        return 0
    target = last - int(seconds * 1e6)
    low, high = 0, size
    while high - low > _NEAR:
        middle = (low + high) // 2
        f.seek(middle)
        found = next(asn1.records(f, limit=0), None)
        if found is None or found[2] >= target:
            high = middle
        else:
            low = middle
    f.seek(low)
    for offset, _, when, _ in asn1.records(f, limit=0):
        if when >= target:
            return low + offset
    return size


def _has_bytes(f: BinaryIO) -> bool:
    """Whether a file that was read to its end is not simply empty; of a pipe nobody knows any more."""
    return f.seekable() and f.tell() > 0


def main(arguments: list[str] | None = None) -> int:
    """The program; returns its exit status."""
    parser = argparse.ArgumentParser(prog="catlog", description="Show a binary log of coro.log.asn1 as text.")
    parser.add_argument("-b", "--big", action="store_true", help=f"show records of {LARGE_RECORD} bytes and more, too")
    parser.add_argument("-f", "--follow", action="store_true", help="at the end wait for more records")
    parser.add_argument(
        "-a", "--ago", type=_seconds, metavar="SPEC", help="begin that long before the last record: 3m, 1h, 20d, 2w"
    )
    parser.add_argument("file", nargs="?", help="the log; standard input without it")
    options = parser.parse_args(arguments)
    try:
        f: BinaryIO = sys.stdin.buffer if options.file is None else open(options.file, "rb")
    except OSError as exc:
        print(f"catlog: {exc}", file=sys.stderr)
        return 1
    try:
        if options.ago is not None:
            if not f.seekable():
                print("catlog: -a needs a file, not a pipe", file=sys.stderr)
                return 1
            f.seek(find_start(f, options.ago))
        shown = 0
        for size, when, items in asn1.gen_log(f, limit=0, follow=options.follow):
            shown += 1
            print(line_of(size, when, items, options.big), flush=options.follow)
        sys.stdout.flush()
        if not shown and _has_bytes(f):
            name = options.file or "standard input"
            print(f"catlog: no record in {name}; expected a log that coro.log.asn1 wrote", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (head, less) has enough; Python must not complain when it flushes stdout at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as exc:
        print(f"catlog: {exc}", file=sys.stderr)
        return 1
    finally:
        if options.file is not None:
            f.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
