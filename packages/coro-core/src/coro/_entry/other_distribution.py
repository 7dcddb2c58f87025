"""Warns of a distribution that is named `coro` and is not ours, where it is installed beside coro-core.

Package indexes have had a distribution "coro" for many years: another project, for Python 2, whose files go into a
folder of the same name. `pip install coro` gives that one. pip does not see that two distributions share files: what
was installed last has overwritten the other, and removing one takes files of the other away. Then errors appear that
say nothing about the reason, so the reason is said here.

If it was installed last, its `__init__.py` runs and not ours, and nobody can warn; the manual's page on installation
says so.

Cost: reading the names in one folder at import, 0.1 ms for 400 of them. `importlib.metadata` would take a hundred times
that for being imported.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable

# "coro-1.0.5.dist-info", "coro-1.0.5-py2.7.egg-info", "coro.egg-info"; ours are "coro_core-...", "coro_clocks-...".
_METADATA = re.compile(r"coro(-\d[^/]*)?\.(dist-info|egg-info|egg)", re.IGNORECASE)


def warn(path: Iterable[str]) -> None:
    """Warn (RuntimeWarning) if the metadata of such a distribution lies beside one of the package folders `path`."""
    for folder in sorted({os.path.dirname(os.path.abspath(each)) for each in path}):
        try:
            names = os.listdir(folder)
        except OSError:  # a package in an archive
            continue
        for name in names:
            if _METADATA.fullmatch(name):
                warnings.warn(
                    f'the distribution "coro" ({name} in {folder}) is another project than coro-core, and installs '
                    'files into the same folder "coro". Remove it and repair this one: '
                    "pip uninstall coro && pip install --force-reinstall coro-core",
                    RuntimeWarning,
                    stacklevel=3,
                )
