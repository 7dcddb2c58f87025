"""`python tests/support/manual_blocks PAGE`: run a page, from the root of the repository. What `PAGE PART` does is the
inner half, one part in this process and this folder."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

import manual_blocks  # noqa: E402
from manual_blocks import reading, running  # noqa: E402

if len(sys.argv) == 2:
    try:
        manual_blocks.check(sys.argv[1])
    except (AssertionError, reading.PageError) as error:
        sys.exit(str(error))
elif len(sys.argv) == 3:
    del sys.path[0]
    page, number = sys.argv[1], int(sys.argv[2])
    running.run(reading.parts(reading.read(manual_blocks.ROOT, page))[number])
else:
    sys.exit("expected the path of a page from the root of the repository: docs/basics/threads.rst")
