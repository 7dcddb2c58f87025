"""The cyclic collector and threads: nothing blocks under it, nothing is hidden from it for ever, and nothing leaks."""

import gc
import threading
import weakref

import pytest

import coro

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture
def refusals():
    """Finalisers record here what a blocking call got them."""
    return []


def blocking_finaliser(refusals, block):
    class Cyclic:
        def __init__(self):
            self.me = self

        def __del__(self):
            try:
                block()
                refusals.append("blocked")
            except BaseException as exc:
                refusals.append(type(exc))

    return Cyclic


@pytest.mark.parametrize(
    "block",
    [
        coro.yield_slice,
        coro._yield,
        lambda: coro.sleep_relative(0.001),
        lambda: coro.with_timeout(1, coro._yield),
        lambda: coro.spawn(int).join(),
        lambda: coro.wait_for(0, coro.EVFILT.READ),
    ],
)
def test_a_finaliser_run_by_the_collector_may_not_block(refusals, block):
    def main():
        blocking_finaliser(refusals, block)()
        gc.collect()
        coro.yield_slice()

    coro.run(main)
    assert refusals == [coro.NoSwitchError]


def test_a_finaliser_run_by_reference_count_may_block(refusals):
    def main():
        thing = blocking_finaliser(refusals, coro.yield_slice)()
        thing.me = None
        other = coro.spawn(refusals.append, "other")
        del thing
        refusals.append("main")
        other.join()

    coro.run(main)
    assert refusals == ["other", "blocked", "main"]


def test_a_finaliser_of_the_collector_may_spawn(refusals):
    ran = []

    def main():
        blocking_finaliser(refusals, lambda: coro.spawn(ran.append, 1))()
        gc.collect()
        coro.yield_slice()

    coro.run(main)
    assert refusals == ["blocked"] and ran == [1]


def test_callbacks_of_weak_references_and_of_the_collector(refusals):
    class Thing:
        pass

    def blocks(*_):
        try:
            coro.yield_slice()
        except coro.NoSwitchError:
            refusals.append("refused")

    def main():
        thing = Thing()
        thing.me = thing
        ref = weakref.ref(thing, blocks)
        del thing
        gc.collect()
        assert refusals == ["refused"] and ref() is None
        thing = Thing()
        ref = weakref.ref(thing, blocks)
        del thing
        assert refusals == ["refused"]
        gc.callbacks.append(blocks)
        try:
            gc.collect()
        finally:
            gc.callbacks.remove(blocks)
        assert refusals == ["refused"] * 3
        coro.yield_slice()

    coro.run(main)


def test_no_switch():
    def main():
        for block in (coro.yield_slice, coro._yield, lambda: coro.sleep_relative(0)):
            with coro.no_switch(), pytest.raises(coro.NoSwitchError, match="no_switch"):
                block()
            with coro.no_switch():
                with coro.no_switch(), pytest.raises(coro.NoSwitchError):
                    block()
                with pytest.raises(coro.NoSwitchError):
                    block()
        guard = coro.no_switch()
        for _ in range(2):
            with guard:
                # what does not block is allowed
                child = coro.spawn(int)
                assert coro.current() is not None
        coro.yield_slice()
        assert child.dead
        with pytest.raises(ValueError), guard:
            raise ValueError
        coro.yield_slice()

    coro.run(main)
    with coro.no_switch():
        pass


def test_no_switch_holds_one_thread_only():
    order = []

    def main():
        with coro.no_switch():
            other = coro.spawn(lambda: (coro.yield_slice(), order.append("other")))
        other.join()
        order.append("main")

    coro.run(main)
    assert order == ["other", "main"]


def test_a_collection_in_another_os_thread_hinders_nobody():
    """The other OS thread stays inside a finaliser that the collector runs while this one switches."""
    inside, leave = threading.Event(), threading.Event()

    class Cyclic:
        def __init__(self):
            self.me = self

        def __del__(self):
            inside.set()
            leave.wait(60)

    def collects():
        Cyclic()
        gc.collect()

    def main():
        other = threading.Thread(target=collects)
        other.start()
        try:
            assert inside.wait(60)
            for _ in range(100):
                coro.yield_slice()
            coro.sleep_relative(0.001)
            coro.spawn(coro.yield_slice).join()
        finally:
            leave.set()
            other.join()

    gc.disable()
    try:
        coro.run(main)
    finally:
        gc.enable()


def test_objects_of_ours_may_be_finalised_in_any_os_thread():
    def main():
        things = [coro.new(int), coro.timeout(3), coro.shield(3), coro.no_switch()]
        cycle = [things]
        cycle.append(cycle)
        del cycle, things
        other = threading.Thread(target=gc.collect)
        other.start()
        other.join()
        assert coro.get_live_coros() == 1

    coro.run(main)


def test_cycles_through_threads_are_collected():
    class Node:
        pass

    refs = []

    def returns_itself():
        return coro.current()

    def returns_a_cycle():
        node = Node()
        node.thread = coro.current()
        refs.append(weakref.ref(node))
        return node

    def raises_a_cycle():
        node = Node()
        node.thread = coro.current()
        refs.append(weakref.ref(node))
        raise ValueError(node)

    def main():
        before = coro.get_live_coros()
        for function in (returns_itself, returns_a_cycle, raises_a_cycle):
            for _ in range(5):
                thread = coro.spawn(function)
                thread.join()
                if function is returns_itself:
                    assert thread.result is thread
        node = Node()
        node.thread = coro.new(lambda n: n, node)
        refs.append(weakref.ref(node))
        del node, thread
        gc.collect()
        assert [ref() for ref in refs] == [None] * 11
        assert coro.get_live_coros() == before

    notifier = coro.set_exception_notifier(lambda: None)
    try:
        coro.run(main)
    finally:
        coro.set_exception_notifier(notifier)


def test_a_suspended_thread_keeps_what_its_frames_hold():
    class Thing:
        pass

    def holder(ref):
        thing = Thing()
        thing.me = thing
        ref.append(weakref.ref(thing))
        coro._yield()

    def main():
        ref = []
        thread = coro.spawn(holder, ref)
        coro.yield_slice()
        gc.collect()
        assert ref[0]() is not None
        thread.schedule()
        thread.join()
        gc.collect()
        assert ref[0]() is None

    coro.run(main)


class Tells:
    """Says where it was finalised, and whether it could block there."""

    def __init__(self, told):
        self.told = told

    def __del__(self):
        coro.yield_slice()
        self.told.append(coro.current().name)


@pytest.mark.parametrize("joined", [False, True])
def test_what_a_thread_leaves_is_finalised_in_a_thread(joined):
    told = []

    def returns():
        return (Tells(told),)

    def raises():
        here = Tells(told)
        raise ValueError(here)

    def holds_arguments(thing):
        pass

    def main():
        for function, arguments in ((returns, ()), (raises, ()), (holds_arguments, (Tells(told),))):
            thread = coro.spawn(function, *arguments)
            del arguments
            if joined:
                thread.join()
            del thread
            coro.yield_slice()
            coro.yield_slice()
            coro.yield_slice()

    notifier = coro.set_exception_notifier(lambda: None)
    try:
        coro.run(main)
    finally:
        coro.set_exception_notifier(notifier)
    assert set(told) <= {f"{main.__qualname__}", *(f.__qualname__ for f in (returns, raises, holds_arguments))}
    assert len(told) == 3


def test_a_finaliser_sees_no_object_that_is_going_away():
    seen = []

    class Looks:
        def __del__(self):
            me = coro.current()
            seen.append((me.result, me.exception, me.value))
            gc.collect()

    def main():
        coro.spawn(lambda: (Looks(),))
        coro.yield_slice()
        coro.spawn(lambda *things: None, (Looks(),), {"x": Looks()})
        coro.yield_slice()

    coro.run(main)
    assert seen == [(None, None, None)] * 3


def test_weak_references_to_threads():
    told = []

    def main():
        thread = coro.spawn(int)
        ref = weakref.ref(thread, lambda _: told.append(coro.current().name))
        assert ref() is thread
        del thread
        coro.yield_slice()
        coro.yield_slice()
        assert ref() is None

    coro.run(main)
    assert len(told) == 1 and told != ["main/scheduler"]
