"""Says what to install when coro-core is missing or does not fit: a context manager around the package's imports.

The same file is in every distribution on top of coro-core, because where coro-core is missing nothing of it can be
imported. It takes the names from the package that it lies in: `coro.NAME` is in the distribution `coro-NAME`.

Without it, a missing coro-core is "No module named 'coro._runtime'", and one of another version an error about the size
of a structure. Cost: none, as long as nothing is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

_PACKAGE = __name__.rpartition(".")[0]
_DISTRIBUTION = _PACKAGE.replace(".", "-")


@contextmanager
def explained() -> Iterator[None]:
    """Around imports: what they raise because of coro-core becomes an ImportError that says what to install."""
    try:
        yield
    # An extension type of another size is a ValueError, a C function of another kind a TypeError.
    except (ImportError, ValueError, TypeError, AttributeError) as e:
        reason = _reason(e)
        if reason is None:
            raise
        raise ImportError(f"{_PACKAGE} {reason}", name=_PACKAGE) from e


def _reason(error: Exception) -> str | None:
    """What is wrong with the installation, and what to do; None if that is not the reason."""
    coro = sys.modules["coro"]
    if getattr(coro, "__file__", None) is None or find_spec("coro._runtime") is None:
        found = getattr(coro, "__file__", None)
        other = f"; the package found in {found} is another project" if found else ""
        return f"needs the distribution coro-core, which is not installed for {sys.executable}{other}: " + (
            "pip uninstall coro && pip install --force-reinstall coro-core" if found else "pip install coro-core"
        )
    missing = error.name if isinstance(error, ImportError) else None
    if missing is not None and not missing.startswith("coro."):
        return None
    if missing is not None and missing.startswith(_PACKAGE):
        return (
            f"has no compiled modules for this Python, {sys.version.split()[0]} ({error}): "
            f"pip install --force-reinstall {_DISTRIBUTION}"
        )
    installed = getattr(coro, "__version__", "?")
    return (
        f"was compiled against another coro-core than the installed one, which is {installed} ({error}). "
        f"Install both from the same release: pip install --upgrade --force-reinstall coro-core {_DISTRIBUTION}"
    )
