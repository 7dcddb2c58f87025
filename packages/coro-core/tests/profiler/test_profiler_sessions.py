"""The profiler's sessions: beginning and ending, misuse, what getrusage(2) tells, and the front end."""

import gc
import sys
import threading
import weakref

import pytest
from profiler_support import charge, names, pass_time, profiled
from support import ok, virtual_clock

import coro
from coro import profiler

pytestmark = pytest.mark.usefixtures("leaves_nothing", "leaves_no_profiler")


def test_sessions_do_not_mix():
    def first():
        sorted("ab")

    def second():
        sum([1, 2])

    one = profiled(first)
    two = profiled(second, bench=coro.rusage_bench)
    three = profiled(second)
    assert charge(one, "builtins:sorted").calls == 1
    assert not [n for n in two.charges if "first" in n or "sorted" in n]
    assert len(two.charges["<main>"].own) == 17
    assert len(three.charges["<main>"].own) == 1


def test_misuse_is_told():
    p = coro.new_profiler(coro.bench)
    with pytest.raises(RuntimeError, match="not active"):
        p.stop()
    with pytest.raises(RuntimeError, match="stop"):
        p.profile()
    with pytest.raises(RuntimeError, match="no profiler is active"):
        profiler.stop()
    assert coro.get_the_profiler() is None
    p.start()
    assert coro.get_the_profiler() is p
    try:
        with pytest.raises(SystemError, match="active already"):
            coro.new_profiler(coro.bench)
        with pytest.raises(SystemError, match="active already"):
            p.start()
    finally:
        assert p.stop() > 0
    with pytest.raises(SystemError, match="has run already"):
        p.start()
    for wrong in (int, None, "ticks", coro.bench()):
        with pytest.raises(TypeError, match="coro.bench"):
            coro.new_profiler(wrong)


def test_another_os_thread_cannot_stop_it():
    p = coro.new_profiler(coro.bench)
    caught = []

    def elsewhere():
        try:
            p.stop()
        except RuntimeError as e:
            caught.append(e)

    p.start()
    other = threading.Thread(target=elsewhere)
    other.start()
    other.join()
    p.stop()
    assert "another OS thread" in str(caught[0])


def test_hooks_that_are_taken_are_told_and_left_alone():
    if sys.version_info >= (3, 12):
        for tool in (2, 3, 4):
            sys.monitoring.use_tool_id(tool, f"theirs {tool}")
        try:
            with pytest.raises(RuntimeError, match="theirs 2"):
                coro.new_profiler(coro.bench).start()
        finally:
            for tool in (2, 3, 4):
                sys.monitoring.free_tool_id(tool)
    else:
        sys.setprofile(lambda *args: None)
        try:
            with pytest.raises(RuntimeError, match="setprofile"):
                coro.new_profiler(coro.bench).start()
        finally:
            sys.setprofile(None)
    assert coro.get_the_profiler() is None

    def afterwards():
        pass

    assert charge(profiled(afterwards), "afterwards").calls == 1


def test_nothing_is_left_when_it_has_stopped():
    profiled(coro.yield_slice)
    if sys.version_info >= (3, 12):
        assert all(sys.monitoring.get_tool(tool) != "coro.profiler" for tool in range(6))
    assert sys.getprofile() is None
    gone = profile_a_class_that_goes()
    gc.collect()
    assert gone() is None


def profile_a_class_that_goes():
    class Held:
        pass

    def main():
        Held()

    profiled(main)
    return weakref.ref(Held)


def test_a_subclass_tells_the_numbers_its_own_way():
    class Milliseconds(coro.bench):
        @classmethod
        def get_headings(cls):
            return ("ms", "ms waited")

        def get_data(self):
            own, whole = (round(1000 * v[0] / coro.ticks_per_sec) for v in (self.own, self.aggregate))
            return self.calls, (own, 0), (whole, round(1000 * self.aggregate_waited / coro.ticks_per_sec))

    def main():
        pass_time(2)

    with virtual_clock():
        p = profiled(main, bench=Milliseconds)
    profile = p.profile()
    assert profile.headings == ("ms", "ms waited")
    (data,) = [data for name, data in profile.functions.items() if name in names(p, "main")]
    assert data == (1, (0, 0), (2000, 0))
    assert repr(charge(p, "main")).startswith("<Milliseconds calls=1 ms=0")


# ---------------------------------------------------------------------------------------------- usage


def test_faults_are_charged_to_who_made_them():
    def touch():
        return bytearray(64 * 1024 * 1024).count(1)

    p = profiled(touch, bench=coro.rusage_bench)
    headings = coro.rusage_bench.get_headings()
    assert headings[:3] == ("ticks", "utime", "stime")
    assert headings[-1] == "nivcsw"
    account = charge(p, "touch")
    values = dict(zip(headings, account.aggregate, strict=True))
    assert values["minflt"] > 0
    assert values["utime"] + values["stime"] > 0
    assert isinstance(values["utime"], float)
    whole = dict(zip(headings, p.charges["<main>"].aggregate, strict=True))
    assert values["minflt"] <= whole["minflt"]


def test_rusage_samples_copies_adds_and_subtracts():
    before = coro.rusage()
    assert before.utime == before.minflt == 0
    assert before.get() is before
    after = coro.rusage().get()
    used = after - before
    assert used.minflt == after.minflt - before.minflt >= 0
    assert used.utime >= 0
    assert used.maxrss == after.maxrss
    again = before + used
    assert (again.minflt, again.maxrss) == (after.minflt, before.maxrss)
    assert again.stime == pytest.approx(after.stime)
    copied = coro.rusage()
    copied.set(after)
    assert repr(copied) == repr(after)
    assert repr(after).startswith("<rusage utime=")
    with pytest.raises(TypeError, match="coro.rusage"):
        copied.set(3)
    with pytest.raises(TypeError):
        after - 1


# ---------------------------------------------------------------------------------------------- front end


def test_go_returns_what_the_function_returns_and_writes_the_file(tmp_path):
    name = tmp_path / "profile.bin"

    def main(a, *, b):
        return a + b

    assert profiler.go(coro.run, main, 1, b=2, profile_filename=name, profile_bench=coro.bench) == 3
    loaded = profiler.load(name)
    assert loaded.bench == "bench"
    assert any("writes_the_file.<locals>.main" in function for function in loaded.functions)

    def fails():
        raise LookupError("passed on")

    with pytest.raises(LookupError, match="passed on"):
        profiler.go(coro.run, fails, profile_filename=name)
    assert any("fails" in function for function in profiler.load(name).functions)
    assert profiler.load(name).bench == "rusage_bench"


def test_the_file_goes_to_the_folder_for_temporary_files_by_default(tmp_path, monkeypatch):
    monkeypatch.setattr(profiler.tempfile, "tempdir", str(tmp_path))
    profiler.start()
    profiler.stop()
    assert [p.name for p in tmp_path.iterdir()] == ["coro_profile.bin"]
    assert (tmp_path / "coro_profile.bin").stat().st_mode & 0o777 == 0o600


def test_a_profile_goes_on_over_several_loops_and_a_fork():
    lines = ok("""
        import coro, os
        def work():
            coro.yield_slice()
        p = coro.new_profiler(coro.bench)
        p.start()
        for _ in range(3):
            coro.run(work)
        def forks():
            pid = coro.fork()
            if pid == 0:
                work()
                p.stop()
                os._exit(0 if [b.calls for n, b in p.charges.items() if ":work:" in n] == [4] else 1)
            print(coro.waitpid(pid)[1])
        coro.run(forks)
        p.stop()
        print([b.calls for n, b in p.charges.items() if ":work:" in n])
    """)
    assert lines == ["0", "[3]"]
