"""C libraries that are known to block the loop's OS thread, and what to do instead.

The emulation changes Python modules. What a C function waits for by itself is out of its reach: while it waits, no
thread of the loop runs. The table names those modules that people meet, by the compiled module that waits. Under
emulation the import of one gives an EmulationWarning, once; check() lists those that are loaded.

A module belongs here if a call of it waits for something outside the process and neither the emulation nor the library
itself can wait in another way by default. Those that only compute do not belong here. What is in the table was seen to
block under the emulation, or its manual says that it waits in C.
"""

from __future__ import annotations

import sys
import warnings
from typing import NamedTuple

from coro._runtime import others
from coro.emulation._warning import EmulationWarning

__all__ = ["KNOWN", "Blocker", "check", "warn_of"]


class Blocker(NamedTuple):
    """A compiled module that blocks the loop's OS thread."""

    module: str  #: the compiled module
    library: str  #: what one installs to have it
    blocks: str  #: what it waits for
    instead: str  #: the way out

    def __str__(self) -> str:
        if self.library in _REFUSED:
            return f"{self.library} ({self.module}) lets no thread of the loop wait {self.blocks}; {self.instead}"
        return f"{self.library} ({self.module}) blocks all threads of the loop {self.blocks}; {self.instead}"


_ASIDE = "call it with coro.in_thread()"
_QUERY = "while a query runs"
_FEEDS = "while it reads a Python file that one of them feeds"
_WHILE_IT_RUNS = "as long as its own loop runs"
_LOOP_OF_ITS_OWN = "run that loop in an OS thread: coro.in_thread(), or coro.emulation.original('threading').Thread"

_TABLE = (
    ("_mysql_connector", "mysql-connector-python", _QUERY, "connect with use_pure=True, or " + _ASIDE),
    ("mariadb._mariadb", "mariadb", _QUERY, "use PyMySQL, or " + _ASIDE),
    ("pyodbc", "pyodbc", _QUERY, _ASIDE),
    ("cx_Oracle", "cx_Oracle", _QUERY, "use oracledb in its thin mode, or " + _ASIDE),
    ("pymssql._mssql", "pymssql", _QUERY, "use python-tds, or " + _ASIDE),
    ("ibm_db", "ibm_db", _QUERY, _ASIDE),
    ("apsw", "apsw", "while another connection has locked the database", "use sqlite3, or " + _ASIDE),
    ("_ldap", "python-ldap", "while it waits for an answer", "use ldap3 or coro-ldap, or " + _ASIDE),
    ("pylibmc._pylibmc", "pylibmc", "while it waits for an answer", "use pymemcache, or " + _ASIDE),
    ("pycurl", "pycurl", "in perform() and select()", "use requests or httpx, or " + _ASIDE),
    ("pygit2._pygit2", "pygit2", "while it talks to a remote repository", _ASIDE),
    ("ssh2.session", "ssh2-python", "while it waits for an answer", "use paramiko, or " + _ASIDE),
    ("grpc._cython.cygrpc", "grpcio", "from the first call on", "use coro-rpc, or keep it in a process of its own"),
    ("pyarrow.lib", "pyarrow", _FEEDS, "read with read_csv, read_json or read_table, or " + _ASIDE),
    ("_pulsar", "pulsar-client", "while it waits for an answer", _ASIDE),
    ("uvloop.loop", "uvloop", _WHILE_IT_RUNS, "use asyncio's own (uvicorn: --loop asyncio), or " + _LOOP_OF_ITS_OWN),
    ("gevent._gevent_c_hub_local", "gevent", _WHILE_IT_RUNS, "do not use both in one process"),
    ("_tkinter", "tkinter", _WHILE_IT_RUNS, _LOOP_OF_ITS_OWN),
    ("PyQt5.QtCore", "PyQt5", _WHILE_IT_RUNS, _LOOP_OF_ITS_OWN),
    ("PyQt6.QtCore", "PyQt6", _WHILE_IT_RUNS, _LOOP_OF_ITS_OWN),
    ("PySide6.QtCore", "PySide6", _WHILE_IT_RUNS, _LOOP_OF_ITS_OWN),
    ("gi._gi", "PyGObject", _WHILE_IT_RUNS, _LOOP_OF_ITS_OWN),
    ("watchfiles._rust_notify", "watchfiles", "while it waits for changes", "use coro.file_watcher, or " + _ASIDE),
)
#: What does not bear a switch at certain moments (`_runtime/others.py`): when a wait is refused, and the way out.
_REFUSED = {
    "greenlet": ("in a greenlet other than the main one", "wait in the main greenlet, or run it in coro.in_thread()"),
    "pybind11": ("in Python code that a call into it runs", _ASIDE),
}
#: By module.
KNOWN = {row[0]: Blocker(*row) for row in _TABLE}
_warned: set[str] = set()


def check() -> list[Blocker]:
    """The loaded C modules that are known to block the OS thread of the loop, each with what it waits for and the way
    out; and greenlet and modules made with pybind11, which do not block, but let no thread wait at certain moments.
    Empty when there are none. Whether the emulation is installed makes no difference.

        for blocker in coro.emulation.check():
            print(blocker)

    A module that is not in the list may block all the same: coro.set_watchdog() says which C code it is in while that
    happens."""
    others.look_at_loaded()
    refusing = [Blocker(name, library, *_REFUSED[library]) for name, library in others.found.items()]
    return [blocker for name, blocker in KNOWN.items() if sys.modules.get(name) is not None] + refusing


def warn_of(name: str, stacklevel: int) -> None:
    """Warn of a module that is loaded while the emulation is installed, unless that was done. As in warnings.warn(),
    `stacklevel` says whose line the warning names; frames of the import system do not count."""
    if name in KNOWN and name not in _warned:
        _warned.add(name)
        warnings.warn(str(KNOWN[name]), EmulationWarning, stacklevel=stacklevel + 1)
