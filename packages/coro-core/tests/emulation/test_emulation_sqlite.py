"""sqlite3 under emulation: waiting for a lock of the database suspends one thread."""

from __future__ import annotations

from emulation_support import emulated


def test_writers_wait_for_a_transaction_that_sleeps(tmp_path):
    assert emulated(f"""
        import sqlite3, threading, time

        def main():
            path = {str(tmp_path / "a.db")!r}
            here = sqlite3.connect(path)
            here.execute("create table t(n)")
            ticks = []

            def work(n):
                c = sqlite3.connect(path, timeout=60)
                for k in range(3):
                    with c:
                        c.execute("insert into t values(?)", (n,))
                        time.sleep(0.002)              # others run, and must not freeze the process
                        c.executemany("insert into t values(?)", ((n,) for _ in range(3)))
                c.close()

            threads = [threading.Thread(target=work, args=(n,)) for n in range(5)]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                ticks.append(time.monotonic())
                time.sleep(0.001)
            print(here.execute("select count(*), count(distinct n) from t").fetchall())
            here.close()
    """) == ["[(60, 5)]"]


def test_every_way_to_write_waits(tmp_path):
    emulated(f"""
        import sqlite3, threading

        def main():
            path = {str(tmp_path / "a.db")!r}
            holder = sqlite3.connect(path, isolation_level=None)
            holder.execute("create table t(n)")
            script = "begin; insert into t values(';'); insert into t values(2); commit; create table {{}}(n);"

            def by_script(c, number):
                c.executescript(script.format("u" + str(number)))

            def by_rows(c, number):
                c.executemany("insert into t values(?)", iter([(1,), (2,)]))
                c.commit()

            def by_commit(c, number):
                c.execute("begin immediate")
                c.execute("insert into t values(1)")
                c.execute("insert into t values(2)")
                c.commit()

            def by_pragma(c, number):
                c.execute("PRAGMA busy_timeout = 60000")
                assert c.execute("pragma Busy_Timeout").fetchone()[0] == 0     # SQLite itself does not wait
                with c:
                    c.execute("insert into t values(1)")
                    c.execute("insert into t values(2)")

            for number, way in enumerate((by_script, by_rows, by_commit, by_pragma)):
                for limit in (60, 0.01):
                    holder.execute("begin exclusive")
                    holder.execute("delete from t")
                    started, outcome = threading.Event(), []

                    def work():
                        c = sqlite3.connect(path, timeout=limit)
                        started.set()
                        try:
                            way(c, number)
                            outcome.append("done")
                        except sqlite3.OperationalError as e:
                            outcome.append(str(e))
                        c.close()

                    thread = threading.Thread(target=work)
                    thread.start()
                    started.wait()
                    if limit == 60 or way is by_pragma:
                        coro.sleep(0.005)
                        assert not outcome, (way, outcome)
                        holder.execute("commit")
                    thread.join()
                    if holder.in_transaction:
                        assert outcome == ["database is locked"], (way, outcome)
                        holder.execute("commit")
                    else:
                        assert outcome == ["done"], (way, outcome)
                        assert holder.execute("select count(*) from t").fetchone() == (2,), way
            holder.close()
    """)


def test_where_both_would_wait_for_each_other_the_error_comes_at_once(tmp_path):
    assert emulated(f"""
        import sqlite3

        def main():
            path = {str(tmp_path / "a.db")!r}
            one, two = (sqlite3.connect(path, timeout=3600, isolation_level=None) for _ in range(2))
            one.execute("create table t(n)")
            for c in (one, two):
                c.execute("begin")
                c.execute("select * from t").fetchall()
            one.execute("insert into t values(1)")
            try:
                two.execute("insert into t values(2)")
            except sqlite3.OperationalError as e:
                print(e)
            two.rollback()
            one.commit()
            one.close()
            two.close()
    """) == ["database is locked"]


def test_an_object_of_another_thread_is_refused(tmp_path):
    assert emulated("""
        import sqlite3, threading

        def main():
            here = sqlite3.connect(":memory:")
            anywhere = sqlite3.connect(":memory:", check_same_thread=False)
            cursor = here.cursor()
            told = []

            def use(function, *args):
                try:
                    told.append(function(*args).fetchall())
                except sqlite3.ProgrammingError as e:
                    told.append(type(e).__name__)

            for function in (here.execute, cursor.execute, anywhere.execute):
                thread = threading.Thread(target=use, args=(function, "select 1"))
                thread.start()
                thread.join()
            print(told)
            here.close()
            anywhere.close()
    """) == ["['ProgrammingError', 'ProgrammingError', [(1,)]]"]


def test_classes_of_programs_and_what_they_return():
    emulated("""
        import contextlib, sqlite3
        from sqlite3 import dbapi2

        class Rows(sqlite3.Cursor):
            pass

        class Mine(sqlite3.Connection):
            def cursor(self):
                return super().cursor(Rows)

        def main():
            with contextlib.closing(sqlite3.connect(":memory:", factory=Mine)) as c:
                assert type(c) is Mine and type(c.execute("select 1")) is Rows
            assert dbapi2.Connection is sqlite3.Connection
            c = sqlite3.connect(":memory:")
            with c:
                assert c.total_changes == 0
                assert isinstance(c, sqlite3.Connection) and isinstance(c.cursor(), sqlite3.Cursor)
                cursor = c.cursor()
                assert cursor.execute("create table t(n)") is cursor and cursor.connection is c
                assert cursor.executescript("insert into t values(1); -- a comment; with a semicolon") is cursor
                assert c.in_transaction is False and c.isolation_level == ""
                c.row_factory = sqlite3.Row
                assert c.execute("select n from t").fetchone()["n"] == 1
                for wrong in (lambda: c.execute(1), lambda: c.executemany("select 1", 1), lambda: c.executescript(1)):
                    try:
                        wrong()
                    except (TypeError, sqlite3.Error):
                        pass
                    else:
                        raise AssertionError("nothing was raised")
            try:
                with c:
                    c.execute("insert into t values(2)")
                    raise KeyError
            except KeyError:
                pass
            assert c.execute("select count(*) from t").fetchone()[0] == 1
            c.close()
    """)
