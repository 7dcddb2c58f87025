"""Calls of libraries that go to worker OS threads by their names."""

from __future__ import annotations

import pytest
from emulation_support import emulated
from support import ok

import coro.emulation

#: A library that waits in a way that the emulation does not reach: in the select() of before.
LIBRARY = """
    import sys, threading, time, types
    select = coro.emulation.original("select").select
    where = set()

    def wait(seconds=0.02):
        where.add(coro.emulation.original("threading").get_ident())
        select([], [], [], seconds)
        return "waited"

    class Cursor:
        def execute(self, seconds=0.02):
            return self, wait(seconds)

        @classmethod
        def make(cls):
            return cls, wait()

        @staticmethod
        def help():
            return wait()

    def library(name="library"):
        module = types.ModuleType(name)
        wait.__module__ = Cursor.__module__ = name
        module.wait, module.Cursor = wait, Cursor
        return module

    def goes_on(call, *args):
        # Whether another thread runs while the call waits.
        ticks, over = [0], []
        def tick():
            while not over:
                time.sleep(0.001)
                ticks[0] += 1
        thread = threading.Thread(target=tick)
        thread.start()
        time.sleep(0.001)
        before = ticks[0]
        outcome = call(*args)
        after = ticks[0]
        over.append(True)
        thread.join()
        return after > before, outcome
"""


def test_functions_and_methods_of_what_is_loaded():
    assert emulated(
        LIBRARY
        + """
    def main():
        sys.modules["library"] = module = library()
        copy = module.wait
        user = types.ModuleType("user")
        user.wait = copy
        sys.modules["user"] = user
        assert not goes_on(user.wait)[0]
        for name in ("library.wait", "library.Cursor.execute", "library.Cursor.make", "library.Cursor.help"):
            coro.emulation.offload(name)
            coro.emulation.offload(name)                       # once is enough
        cursor = module.Cursor()
        print(goes_on(user.wait), goes_on(module.wait)[0])
        print(goes_on(cursor.execute) == (True, (cursor, "waited")), module.Cursor.execute.__qualname__)
        print(goes_on(Cursor.make) == (True, (Cursor, "waited")), goes_on(cursor.help))
        import io
        print(isinstance(io.FileIO(0, closefd=False), io.FileIO), end=" ")
        coro.uninstall_thread_emulation()
        print(user.wait is copy is module.wait, Cursor.execute.__code__.co_name)
    """
    ) == [
        "(True, 'waited') True",
        "True Cursor.execute",
        "True (True, 'waited')",
        "True True execute",
    ]


def test_what_is_loaded_later(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("from package.inner import wait, Cursor\n")
    (tmp_path / "package" / "inner.py").write_text(
        "import select, coro\nwait_ = coro.emulation.original('select').select\n"
        "def wait(): wait_([], [], [], 0.02); return 'waited'\n"
        "class Cursor:\n    def execute(self): return wait()\n"
    )
    assert (
        ok(f"""
        import coro, sys, threading, time
        sys.path.insert(0, {str(tmp_path)!r})
        coro.emulation.offload("package.inner.wait")
        coro.emulation.offload("package.inner.Cursor.execute")
        coro.emulation.offload("package.inner.no_such_thing")
        coro.emulation.offload("package.inner.NoSuchClass.__init__")
        coro.emulation.offload("no_such_package.Class.method")
        coro.install_thread_emulation()
        def main():
            import package
            ticks = []
            def tick():
                while True:
                    time.sleep(0.001)
                    ticks.append(1)
            threading.Thread(target=tick, daemon=True).start()
            time.sleep(0.001)
            for call in (package.wait, package.Cursor().execute):
                before = len(ticks)
                print(call(), len(ticks) > before)
        coro.run(main)
    """)
        == ["waited True"] * 2
    )


def test_only_calls_that_may_wait():
    assert emulated(
        LIBRARY
        + """
    def main():
        sys.modules["library"] = module = library()
        coro.emulation.offload("library.wait", when=lambda seconds=0.02: seconds > 0)
        module.wait(0)
        print(len(where), where == {threading.main_thread().ident})
        module.wait()
        print(len(where))
        def in_an_os_thread():
            where.clear()
            module.wait()
            return where == {coro.emulation.original("threading").get_ident()}
        print(coro.in_thread(in_an_os_thread))
    """
    ) == ["1 True", "2", "True"]


def test_calls_that_wait_for_one_another():
    """More of them than coro.in_thread() has workers."""
    assert emulated(
        LIBRARY
        + """
    def main():
        sys.modules["library"] = module = library()
        gate = coro.emulation.original("threading").Barrier(40)
        module.meet = lambda: gate.wait(60)
        coro.offload.set_max_workers(1)
        coro.emulation.offload("library.meet")
        threads = [threading.Thread(target=module.meet) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(gate.broken, coro.in_thread(int, "7"), coro.offload.statistics()["most"])
        try:
            with coro.timeout(0.001):
                module.meet()
        except coro.TimeoutError:
            print("left")
        gate.abort()
    """
    ) == ["False 7 1", "left"]


def test_a_class_in_c():
    assert emulated(
        LIBRARY
        + """
    import decimal, itertools

    def main():
        native = decimal.Decimal
        coro.emulation.offload("decimal.Decimal.sqrt")
        made = decimal.Decimal(2)
        print(isinstance(made, native), type(made).__name__, str(made.sqrt())[:5], str(native(2).sqrt())[:5])
        for name in ("library", "", ".", "a..b", "a.b c", 5, None):
            try:
                coro.emulation.offload(name)
            except (TypeError, ValueError) as error:
                print(type(error).__name__, end=" ")
        try:
            coro.emulation.offload("library.wait", when=5)
        except TypeError:
            print("TypeError")
        sys.modules["library"] = module = library()
        module.iterator = type(iter([]))
        try:
            coro.emulation.offload("library.iterator.__next__")
        except TypeError as error:
            print(error)
    """
    ) == [
        "True Decimal 1.414 1.414",
        "ValueError ValueError ValueError ValueError ValueError TypeError TypeError TypeError",
        "cannot send list_iterator.__next__ to a worker: the class can neither be changed nor derived from; "
        "name a function that calls it",
    ]


@pytest.mark.parametrize("library", ["MySQLdb", "confluent_kafka", "zmq", "pyarrow", "scipy"])
def test_ready_made_entries_name_what_exists(library):
    """Where the library is installed."""
    from coro.emulation import _offloaded

    names = [name for name in _offloaded._entries if name.startswith(library + ".")]
    assert len(names) >= 4
    pytest.importorskip(library)
    for name in names:
        parts = name.split(".")
        for end in range(len(parts) - 1, 0, -1):
            try:
                owner = __import__(".".join(parts[:end]), fromlist=["x"])
            except ImportError:
                continue
            break
        for part in parts[end:]:
            owner = getattr(owner, part)
        assert callable(owner), name


def test_it_is_public():
    assert "offload" in coro.emulation.__all__


def test_calls_that_ask_only_are_made_directly():
    from coro.emulation import _offloaded

    poll, recv = _offloaded._has_limit, _offloaded._may_wait_zmq
    assert [poll(None), poll(None, 0.5), poll(None, 0), poll(None, timeout=0)] == [True, True, False, False]
    assert [recv(None), recv(None, 1), recv(None, b"x"), recv(None, b"x", 1), recv(None, b"x", flags=3)] == [
        True, False, True, False, False
    ]  # fmt: skip


def test_what_scipy_keeps_for_each_os_thread_is_not_shared():
    """Each of these gave wrong values or crashed."""
    pytest.importorskip("scipy")
    assert emulated("""
        import threading, time
        import scipy.integrate, scipy.optimize
        failed = []
        def main():
            def late(value):
                time.sleep(0.0001)
                return value
            def work(n):
                found = [
                    scipy.integrate.quad(lambda x: late(n), 0, 1)[0],
                    scipy.integrate.odeint(lambda y, t: late([float(n)]), [0.0], [0, 1])[-1][0],
                    scipy.optimize.root(lambda x: late(x - n), [0.5]).x[0],
                    scipy.optimize.leastsq(lambda x: late([x[0] - n, 0]), [0.5])[0][0],
                ]
                if not all(abs(value - n) < 1e-3 for value in found):
                    failed.append((n, found))
            threads = [threading.Thread(target=work, args=(n,)) for n in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(failed)
    """) == ["[]"]
