"""Show a profile in a browser: ``python -m coro.print_profile FILE [OTHER] > out.html``.

With a second file the tables show what has changed from the first to the second. The page holds everything it needs.
``--pstats OUT`` and ``--speedscope OUT`` write the profile in those formats instead. Cost: see coro.profiler._report.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from coro.profiler import ProfileError, load, to_pstats, to_speedscope
from coro.profiler._report import report

USAGE = """\
usage: python -m coro.print_profile FILE [OTHER] > out.html
       python -m coro.print_profile FILE --pstats OUT.prof
       python -m coro.print_profile FILE --speedscope OUT.json

FILE is what coro.profiler wrote. With OTHER, a later profile of the same kind, the tables show the differences.
"""


def main(baseline: str | os.PathLike[str], otherfile: str | os.PathLike[str] | None = None) -> None:
    """Print the report of a profile, or of what has changed from ``baseline`` to ``otherfile``, as HTML to stdout.

    SystemExit with status 1, after a message on stderr, when a file is no profile, cannot be read, or the two cannot be
    compared."""
    try:
        first = load(baseline)
        second = None if otherfile is None else load(otherfile)
        page = report(first, second)
        for part in page:
            sys.stdout.write(part)
    except (ProfileError, OSError) as e:
        print(f"print_profile: {e}", file=sys.stderr)
        raise SystemExit(1) from None


def _command(arguments: Sequence[str]) -> None:
    exports = {"--pstats": to_pstats, "--speedscope": to_speedscope}
    if len(arguments) == 3 and arguments[1] in exports:
        try:
            exports[arguments[1]](load(arguments[0]), arguments[2])
        except (ProfileError, OSError) as e:
            print(f"print_profile: {e}", file=sys.stderr)
            raise SystemExit(1) from None
    elif len(arguments) in (1, 2) and not any(a.startswith("-") for a in arguments):
        main(*arguments)
    else:
        sys.stderr.write(USAGE)
        raise SystemExit(2)


if __name__ == "__main__":
    _command(sys.argv[1:])
