"""The end of a thread, whichever way it comes: what it leaves in order, and who may still ask for its outcome."""

import contextvars
import gc
import weakref

import pytest
from support import in_loop, program

import coro


class Unnameable:
    """Something to call whose attributes cannot be asked for."""

    def __init__(self, error=ValueError):
        self.error = error

    def __call__(self):
        return "called"

    def __getattr__(self, name):
        raise self.error(f"no {name}")


@in_loop
def test_a_thread_whose_name_cannot_be_asked_for_can_be_cancelled():
    before = coro.statistics()
    thread = coro.spawn(Unnameable())
    thread.shutdown()
    assert thread.dead and thread.name == "Unnameable"
    with pytest.raises(KeyError):
        coro.get_thread_by_id(thread.id)
    after = coro.statistics()
    assert (after.threads, after.counted_threads) == (before.threads, before.counted_threads)


def test_a_thread_whose_name_cannot_be_asked_for_ends_with_its_loop():
    """Main asks no object for its name: that may be any code."""
    asked = []

    class Telling(Unnameable):
        def __getattr__(self, name):
            asked.append(coro.current().id)
            raise ValueError(name)

    def main():
        coro.set_exit(3, grace=0)
        coro.spawn(Telling())
        coro._yield()

    with pytest.raises(SystemExit):
        coro.run(main)
    assert len(coro.all_threads) == 0
    assert -1 not in asked


@in_loop
def test_a_thread_whose_name_cannot_be_asked_for_runs_like_any_other():
    thread = coro.spawn(Unnameable())
    thread.join()
    assert thread.result == "called" and thread.name == "Unnameable"


@in_loop
def test_the_joiners_of_a_cancelled_thread_go_on_even_if_its_name_interrupts():
    thread = coro.spawn(Unnameable(KeyboardInterrupt))
    waiter = coro.spawn(thread.join)
    coro.yield_slice()
    late = coro.new(Unnameable(KeyboardInterrupt))
    joins = coro.spawn(late.join)
    coro.yield_slice()
    with pytest.raises(KeyboardInterrupt):
        late.shutdown()
    assert late.dead
    joins.join()
    waiter.join()


class Slow:
    """Waits when it is freed, until the test lets it go on."""

    def __init__(self, gate):
        self.gate = gate

    def __del__(self):
        self.gate.wait()


@pytest.mark.parametrize("fails", [False, True])
@in_loop
def test_a_result_is_there_for_whoever_finds_the_thread_while_it_ends(fails):
    """Its context is being released, which may take a while."""
    variable = contextvars.ContextVar("variable")
    gate = coro.latch(1)

    def work():
        variable.set(Slow(gate))
        if fails:
            raise ValueError("failed")
        return 42

    before = coro.set_exception_notifier(lambda: None)
    try:
        number = coro.spawn(work).id
        coro.yield_slice()
        thread = coro.get_thread_by_id(number)
        assert not thread.dead
        gate.count_down()
        thread.join()
    finally:
        coro.set_exception_notifier(before)
    if fails:
        assert str(thread.exception) == "failed"
    else:
        assert thread.result == 42


@in_loop
def test_who_is_being_forgotten_cannot_be_found():
    """Nobody has the thread, so nobody can ask for its result, which waits while it is freed."""
    gate = coro.latch(1)
    number = coro.spawn(Slow, gate).id
    coro.yield_slice()
    assert number in [t.id for t in coro.wait_graph().threads]  # it is there to be seen
    with pytest.raises(KeyError):
        coro.get_thread_by_id(number)
    assert number not in coro.all_threads and number not in list(coro.all_threads)
    assert len(coro.all_threads) == 1
    gate.count_down()
    coro.yield_slice()
    coro.yield_slice()
    assert number not in [t.id for t in coro.wait_graph().threads]


@in_loop
def test_a_weak_reference_is_enough_to_ask_for_a_result():
    gate = coro.latch(1)
    gone = []

    def work():
        return Slow(gate)

    thread = coro.spawn(work)
    reference = weakref.ref(thread, gone.append)
    number = thread.id
    del thread
    coro.yield_slice()
    found = reference()
    assert found is None or type(found.result) is Slow
    del found
    gate.count_down()
    while not gone:
        coro.yield_slice()
        gc.collect()
    with pytest.raises(KeyError):
        coro.get_thread_by_id(number)


def test_a_thread_given_up_in_the_finaliser_of_its_result_is_counted_no_more():
    outcome = program(
        """
        import coro
        from coro._runtime import scheduler

        class Stubborn:
            def __del__(self):
                while True:
                    try:
                        coro.sleep_relative(1000)
                    except BaseException:
                        pass

        def main():
            coro.spawn(Stubborn)
            coro.yield_slice()
            coro.set_exit(3, grace=0)
            coro.sleep_relative(1000)

        try:
            coro.run(main)
        except SystemExit as e:
            print(e.code, scheduler._thread_count())
        coro.run(lambda: print(scheduler._thread_count()))
        """
    )
    assert outcome.code == 0, outcome.err
    assert outcome.lines == ["3 0", "1"]
