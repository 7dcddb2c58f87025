"""Bytes per thread, biggest first, and what has grown."""

import sys

import pytest

import coro

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def deep(n):
    if n:
        deep(n - 1)
    else:
        coro._yield()


def through_c(n):
    if n:
        min([0], key=lambda _: through_c(n - 1) or 0)
    else:
        coro._yield()


def test_rows_and_sums():
    def main():
        small = coro.spawn(coro._yield, thread_name="small")
        big = coro.spawn(deep, 200, thread_name="big")
        wide = coro.spawn(through_c, 20, thread_name="wide")
        coro.yield_slice()
        report = coro.memory()
        rows = {row.name: row for row in report}
        assert len(report) == 4 and set(rows) == {"small", "big", "wide", rows[coro.current().name].name}
        for row in report:
            assert row.total == row.object + row.stack + row.data_stack == row.growth
            assert row.object == sys.getsizeof(small) and row.data_stack >= 256
        assert rows["big"].data_stack > rows["small"].data_stack + 200 * 50
        assert rows["wide"].stack > rows["small"].stack + 20 * 200
        assert [row.total for row in report] == sorted((row.total for row in report), reverse=True)
        assert report.total == report.growth == sum(row.total for row in report)
        for thread in (small, big, wide):
            thread.shutdown()

    coro.run(main)


def test_growth_since_an_earlier_report():
    def grows():
        coro._yield()
        deep(300)

    def main():
        other = coro.spawn(coro._yield, thread_name="same")
        growing = coro.spawn(grows, thread_name="grows")
        gone = coro.spawn(coro._yield, thread_name="gone")
        coro.yield_slice()
        before = coro.memory()
        gone.schedule()
        growing.schedule()
        fresh = coro.spawn(coro._yield, thread_name="fresh")
        coro.yield_slice()
        report = coro.memory(before)
        rows = {row.name: row for row in report}
        assert report.threads[0].name == "grows" and rows["grows"].growth > 10_000
        assert rows["same"].growth == 0
        assert rows["fresh"].growth == rows["fresh"].total
        assert "gone" not in rows
        assert report.growth == report.total - before.total
        assert report.since.threads == before.threads
        assert coro.memory(report).since.since is None
        for thread in (other, growing, fresh):
            thread.shutdown()

    coro.run(main)


def test_the_table():
    def main():
        threads = [coro.spawn(coro._yield, thread_name=f"t{n}") for n in range(30)]
        coro.yield_slice()
        text = str(coro.memory())
        assert text == repr(coro.memory()) or len(text.splitlines()) == 23
        lines = text.splitlines()
        assert lines[0].split() == ["thread", "object", "stack", "data", "total", "growth", "name"]
        assert lines[-2].endswith("11 more") and lines[-1].endswith("31 threads")
        for thread in threads:
            thread.shutdown()

    coro.run(main)


def test_evacuated_compressed_and_unstarted_threads():
    def main():
        threads = [coro.spawn(through_c, 10) for _ in range(200)]
        fresh = coro.new(coro._yield)
        coro.yield_slice()
        coro.compress(threads[0])
        rows = coro.memory()
        assert len(rows) == 201
        assert min(row.stack for row in rows if row.id != coro.current().id) > 500
        for thread in threads:
            thread.shutdown()
        assert coro._runtime.scheduler._thread_memory(fresh)[1:] == (0, 0)

    coro.run(main)


def test_misuse():
    with pytest.raises(TypeError, match="earlier report"):
        coro.memory(5)
    with pytest.raises(TypeError):
        coro._runtime.scheduler._thread_memory(5)
    assert len(coro.memory()) == 0
