"""Entry of `python3 -m tools.dev`.

The file is written so that an old Python can read it: where `python3` is too old, a newer one is looked for
and takes over, so that the commands in the README work as they stand on a machine whose default Python is
not the right one.
"""

import os
import shutil
import subprocess
import sys


def take_over() -> None:
    """Run the same command under a Python >= 3.11 from PATH, or end with an explanation."""
    for minor in range(15, 10, -1):
        path = shutil.which(f"python3.{minor}")
        # Started once to see: a version manager may have put a name on PATH that leads nowhere.
        if path is not None and subprocess.call([path, "-c", "import venv"], stderr=subprocess.DEVNULL) == 0:
            os.execv(path, [path, "-m", "tools.dev", *sys.argv[1:]])
    sys.exit(
        f"tools.dev needs Python 3.11 or later; this is {sys.version.split()[0]} ({sys.executable}) and no "
        "newer one is on PATH. Install one and start it by name: python3.12 -m tools.dev ..."
    )


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036
        take_over()
    from tools.dev.commands import main

    sys.exit(main(sys.argv[1:]))
