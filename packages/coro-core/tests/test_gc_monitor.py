"""Reports about the cyclic collector: the virtual clock makes the hours pass."""

import gc

import pytest
from support import advance, virtual_clock

import coro
from coro import gc_monitor


class Kind:
    pass


@pytest.fixture
def garbage():
    """gc.garbage, emptied afterwards."""
    assert gc.garbage == []
    yield gc.garbage
    gc.garbage.clear()


def test_garbage(garbage):
    assert gc_monitor.garbage_report() is None
    garbage.extend(Kind() for _ in range(2))
    line = gc_monitor.garbage_report()
    assert "2 objects" in line and f"Kind at {id(garbage[1]):#x}" in line and "..." not in line
    garbage.extend(Kind() for _ in range(5))
    line = gc_monitor.garbage_report()
    assert line.count("Kind at") == 5 and line.endswith(", ...")


def test_growth():
    line, before = gc_monitor.growth_report()
    assert line is None
    crowd = [Kind() for _ in range(300)]
    line, now = gc_monitor.growth_report(before, 200)
    assert f"{__name__}.Kind +300 (300)" in line
    del crowd
    assert gc_monitor.growth_report(now, 200)[0] is None
    with pytest.raises(ValueError, match="at least 1"):
        gc_monitor.growth_report(least=0)


def test_the_thread_reports_once_an_interval(garbage):
    lines, crowd = [], []

    def pass_time(seconds):
        advance(seconds)
        coro.sleep_relative(0)
        coro.yield_slice()

    def main():
        t = coro.spawn(gc_monitor.monitor_thread, lines.append, 500, daemon=True)
        coro.yield_slice()
        pass_time(3599)
        crowd.extend(Kind() for _ in range(1000))
        garbage.append(Kind())
        pass_time(0.5)
        assert lines == []
        pass_time(1)
        assert len(lines) == 2 and "could not free 1 objects" in lines[0] and "Kind +100" in lines[1]
        garbage.clear()
        pass_time(3600)
        assert len(lines) == 2
        t.shutdown()
        t.join()

    with virtual_clock():
        coro.run(main)


def test_outside_a_thread():
    coro.run(int)
    with pytest.raises(ValueError, match="at least 1"):
        gc_monitor.monitor_thread(growth=0)
