"""Refuses the import in a subinterpreter, before anything has happened there.

The loop, its poller and the state of the compiled modules exist once in a process. Modules that Cython has compiled
belong to the interpreter that imports them first, and refuse all others. So a subinterpreter that tried it first would
take coro away from the main interpreter. Therefore this is the first module that coro imports.

Cost: the import of a module that is built into Python, 0.1 ms.
"""

from __future__ import annotations

import importlib

__all__: list[str] = []

#: Python's own module about interpreters; its name has changed in Python 3.13.
_MODULES = ("_interpreters", "_xxsubinterpreters")


def _number(one: object) -> int:
    return int(one[0]) if isinstance(one, tuple) else int(one)  # type: ignore[call-overload]


def _require() -> None:
    """Raise ImportError unless this is the main interpreter of the process."""
    for name in _MODULES:
        try:
            interpreters = importlib.import_module(name)
            here, main = _number(interpreters.get_current()), _number(interpreters.get_main())
        except (ImportError, AttributeError):
            continue
        if here != main:
            raise ImportError(
                f"coro runs only in the main interpreter of a process, and this is subinterpreter {here}; import it "
                "there, or use processes (coro.prefork). For mod_wsgi: WSGIApplicationGroup %{GLOBAL}",
                name="coro",
            )
        return


_require()
