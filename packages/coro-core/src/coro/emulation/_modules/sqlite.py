"""Emulated `sqlite3`: who waits for a lock of the database suspends only the calling coro thread.

SQLite waits by sleeping, in C, and then nobody else runs; when the lock's owner is a thread of the same process, it
could never let go. So SQLite itself gets a time limit of 0 here, and the classes that stand for Connection and Cursor
ask again, as often and as long as SQLite would have. Where SQLite does not wait either, because the transaction has
read already and both sides would wait for each other (sqlite3_busy_handler, in SQLite's manual), the error comes at
once. A time limit that a program sets by a PRAGMA is taken over.

The check that objects stay in the thread that made them, which SQLite's module makes for OS threads, is made for coro
threads, too.

Cost: half a microsecond a statement.
"""

from __future__ import annotations

import functools
import itertools
import re
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

from coro.emulation import _blocking
from coro.emulation._plan import Plan

__all__ = ["plan"]

_BUSY, _BUSY_SNAPSHOT = 5, 517  # result codes of SQLite's
#: Milliseconds between two attempts: the intervals that SQLite takes, the last one again and again.
_PAUSES = (1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100)
_PRAGMA = re.compile(r"\s*pragma\s[^;]*busy_timeout", re.IGNORECASE)
_BEGIN = re.compile(r"\s*(begin|savepoint)\b", re.IGNORECASE)
_NOTHING: Any = object()


def _classes(module: types.ModuleType) -> dict[str, Any]:
    """What stands for Connection, Cursor and connect of one copy of the C module."""
    found = _made.get(id(module))
    if found is None or found[0] is not module:
        found = _made[id(module)] = (module, _make_classes(module))
    return found[1]


_made: dict[int, tuple[types.ModuleType, dict[str, Any]]] = {}


def _make_classes(module: types.ModuleType) -> dict[str, Any]:
    names = vars(module)
    native_connection: Any = names["Connection"]
    native_cursor: Any = names["Cursor"]
    operational: Any = names["OperationalError"]
    programming: Any = names["ProgrammingError"]

    class Connection(native_connection):  # type: ignore[misc]
        __doc__ = native_connection.__doc__
        # Of one whose __init__ was not called, or failed.
        _coro_patience, _coro_owner, _coro_has_read = 5.0, 0, False

        def __init__(self, database: Any, *args: Any, **kwargs: Any) -> None:
            # (timeout, detect_types, isolation_level, check_same_thread, ...)
            timeout = args[0] if args else kwargs.get("timeout", 5.0)
            same = args[3] if len(args) > 3 else kwargs.get("check_same_thread", True)
            super().__init__(database, *args, **kwargs)  # which, called again, forgets all attributes
            self._coro_patience = max(0.0, float(timeout))
            self._coro_owner = _blocking.get_ident() if same else 0
            native_cursor(self).execute("PRAGMA busy_timeout = 0").close()

        def _coro_check(self) -> None:
            owner = self._coro_owner
            if owner and owner != _blocking.get_ident():
                raise programming(
                    "SQLite objects created in a thread can only be used in that same thread. The object was created "
                    f"in thread id {owner} and this is thread id {_blocking.get_ident()}."
                )

        def _coro_insist(self, attempt: Callable[[], Any]) -> Any:
            """The outcome of `attempt`, made until the database is not locked or time is up."""
            end = None
            for pause in itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1])):
                try:
                    return attempt()
                except operational as e:
                    code = getattr(e, "sqlite_errorcode", 0)
                    if code & 0xFF != _BUSY or code == _BUSY_SNAPSHOT:
                        raise
                    now = time.monotonic()
                    if end is None:
                        end = now + self._coro_patience
                    if now >= end:
                        raise
                    left = end - now
                time.sleep(min(pause / 1000, left))
            raise AssertionError("the pauses do not end")

        def cursor(self, factory: Any = native_cursor) -> Any:
            """Return a cursor for the connection."""
            self._coro_check()
            return super().cursor(Cursor if factory is native_cursor else factory)

        def execute(self, sql: Any, parameters: Any = _NOTHING, /) -> Any:
            """Executes an SQL statement."""
            cursor = self.cursor()
            return cursor.execute(sql) if parameters is _NOTHING else cursor.execute(sql, parameters)

        def executemany(self, sql: Any, parameters: Any, /) -> Any:
            """Repeatedly executes an SQL statement."""
            return self.cursor().executemany(sql, parameters)

        def executescript(self, sql_script: Any, /) -> Any:
            """Executes multiple SQL statements at once."""
            return self.cursor().executescript(sql_script)

        def commit(self) -> None:
            """Commit any pending transaction to the database."""
            self._coro_check()
            self._coro_insist(super().commit)
            self._coro_has_read = False

        def rollback(self) -> None:
            """Roll back to the start of any pending transaction."""
            self._coro_check()
            super().rollback()
            self._coro_has_read = False

        def close(self) -> None:
            """Close the database connection."""
            self._coro_check()
            super().close()

        def __exit__(self, kind: Any, value: Any, traceback: Any) -> Any:
            if kind is not None or not self.in_transaction:
                return super().__exit__(kind, value, traceback)
            try:
                self.commit()
            except BaseException:
                self.rollback()  # as the original: it unlocks the database
                raise
            return False

    class Cursor(native_cursor):  # type: ignore[misc]
        __doc__ = native_cursor.__doc__

        def _coro_run(self, sql: Any, attempt: Callable[[], Any]) -> Any:
            connection = self.connection
            if not isinstance(connection, Connection):
                return attempt()  # made before the emulation
            connection._coro_check()
            if connection._coro_has_read and connection.in_transaction:
                result = attempt()
            else:
                result = connection._coro_insist(attempt)
            begun = connection.in_transaction
            connection._coro_has_read = begun and not (isinstance(sql, str) and _BEGIN.match(sql))
            if isinstance(sql, str) and _PRAGMA.match(sql):
                self._coro_take_over_limit(connection)
            return result

        def _coro_take_over_limit(self, connection: Any) -> None:
            plain = native_cursor(connection)
            plain.row_factory = None
            limit = plain.execute("PRAGMA busy_timeout").fetchone()[0]
            if limit:
                connection._coro_patience = limit / 1000
                plain.execute("PRAGMA busy_timeout = 0").close()

        def execute(self, sql: Any, parameters: Any = _NOTHING, /) -> Any:
            """Executes an SQL statement."""
            run = super().execute
            return self._coro_run(sql, lambda: run(sql) if parameters is _NOTHING else run(sql, parameters))

        def executemany(self, sql: Any, seq_of_parameters: Any, /) -> Any:
            """Repeatedly executes an SQL statement."""
            run = super().executemany
            try:
                rows = iter(seq_of_parameters)
            except TypeError:
                return run(sql, seq_of_parameters)
            again: list[Any] = []  # the row that met a locked database: nothing was done with it

            def each() -> Iterator[Any]:
                if again:
                    yield again[0]
                for row in rows:
                    again[:] = [row]
                    yield row

            return self._coro_run(sql, lambda: run(sql, each()))

        def executescript(self, sql_script: Any, /) -> Any:
            """Executes multiple SQL statements at once."""
            connection = self.connection
            if not isinstance(sql_script, str) or not isinstance(connection, Connection):
                return super().executescript(sql_script)
            scratch = native_cursor(connection)

            def run(statement: str) -> None:
                scratch.execute(statement)
                for _ in scratch:
                    pass  # the original steps through all rows, too

            statements = list(_split(sql_script, names["complete_statement"]))
            legacy = getattr(connection, "autocommit", -1) == -1
            begin = super().executescript
            self._coro_run("", lambda: begin(""))  # which commits, and knows whether the cursor may be used
            level = connection.isolation_level
            try:
                if legacy:
                    connection.isolation_level = None  # or each would begin a transaction
                for statement in statements:
                    self._coro_run(statement, functools.partial(run, statement))
            finally:
                if legacy:
                    _set_level(connection, level)
            return self

    for cls, native, methods in (
        (Connection, native_connection, [name for name in vars(native_connection) if not name.startswith("_")]),
        (Cursor, native_cursor, ["close", "fetchall", "fetchmany", "fetchone"]),
    ):
        for name in methods:
            if name not in vars(cls) and type(getattr(native, name)) is types.MethodDescriptorType:
                setattr(cls, name, _blocking.owned(getattr(native, name), cls is Cursor))

    def connect(*args: Any, **kwargs: Any) -> Any:
        factory = args[5] if len(args) > 5 else kwargs.get("factory")
        return (Connection if factory is None or factory is native_connection else factory)(*args, **kwargs)

    connect.__doc__ = names["connect"].__doc__
    for cls in (Connection, Cursor):
        cls.__module__, cls.__qualname__ = "sqlite3", cls.__name__
    return {"Connection": Connection, "Cursor": Cursor, "connect": connect}


def _set_level(connection: Any, level: Any) -> None:
    """Put an isolation level back. To set None commits, which is not for a script that leaves a transaction open."""
    if level is not None:
        connection.isolation_level = level


def _split(script: str, is_complete: Callable[[str], bool]) -> Iterator[str]:
    """The statements of a script."""
    statement = ""
    for part in re.split(r"(?<=;)", script):
        statement += part
        if is_complete(statement):
            if statement.strip(" \t\r\n;"):
                yield statement
            statement = ""
    if statement.strip():
        yield statement


def _class(name: str, module: types.ModuleType) -> Any:
    return _classes(module)[name]


def plan(p: Plan) -> None:
    """What to replace."""
    for name in ("Connection", "Cursor", "connect"):
        p.replace_in_each("_sqlite3", name, functools.partial(_class, name))
