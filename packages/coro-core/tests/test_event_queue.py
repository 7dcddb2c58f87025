"""The priority queue by time: against a sorted list, and its memory under a load of cancelled timeouts."""

import gc
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coro.event_queue import event_queue

VALUES = [object(), object(), [], 1000001, "text"]
STEP = st.one_of(
    st.tuples(st.just("insert"), st.integers(0, 5), st.sampled_from(range(5))),
    st.tuples(st.just("remove"), st.integers(0, 5), st.sampled_from(range(5))),
    st.tuples(st.just("pop")),
    st.tuples(st.just("insert many"), st.integers(0, 5), st.integers(1, 40)),
    st.tuples(st.just("remove many"), st.integers(0, 5), st.integers(1, 40)),
)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(steps=st.lists(STEP, max_size=80))
def test_against_a_sorted_list(steps):
    queue, model = event_queue(), []

    def insert(time, value):
        assert queue.insert(time, value) is None
        model.append((time, value))
        model.sort(key=lambda entry: entry[0])  # stable

    def remove(time, value):
        for i, (t, v) in enumerate(model):
            if t == time and v is value:
                del model[i]
                assert queue.remove(time, value) == 0
                return
        with pytest.raises(IndexError):
            queue.remove(time, value)

    for what, *args in steps:
        if what == "insert":
            insert(args[0], VALUES[args[1]])
        elif what == "remove":
            remove(args[0], VALUES[args[1]])
        elif what == "insert many":
            for _ in range(args[1]):
                insert(args[0], VALUES[0])
        elif what == "remove many":
            for _ in range(args[1]):
                remove(args[0], VALUES[0])
        elif model:
            assert queue.pop() is model.pop(0)[1]
        assert len(queue) == len(model)
        if model:
            assert queue.top() is model[0][1]
        else:
            for call in (queue.top, queue.pop):
                with pytest.raises(IndexError):
                    call()
    while model:
        assert queue.pop() is model.pop(0)[1]


def test_order():
    queue = event_queue()
    for time, value in ((3, "3"), (2, "21"), (1, "1"), (2, "22")):
        queue.insert(time, value)
    assert queue.top() == "1"
    assert [queue.pop() for _ in range(4)] == ["1", "21", "22", "3"]


def test_removal_is_by_identity():
    queue = event_queue()
    first, second = [1], [1]
    queue.insert(1, first)
    queue.insert(1, second)
    with pytest.raises(IndexError):
        queue.remove(1, [1])
    with pytest.raises(IndexError):
        queue.remove(2, first)
    assert queue.remove(1, second) == 0
    assert len(queue) == 1
    assert queue.pop() is first
    with pytest.raises(IndexError):
        queue.remove(1, first)


def test_values_are_never_compared():
    class Proud:
        def __eq__(self, other):
            raise AssertionError

        __lt__ = __gt__ = __eq__
        __hash__ = None

    queue = event_queue()
    values = [Proud() for _ in range(10)]
    for v in values:
        queue.insert(7, v)
    queue.remove(7, values[3])
    assert [id(queue.pop()) for _ in range(9)] == [id(v) for v in values if v is not values[3]]


def test_times():
    queue = event_queue()
    queue.insert(2**64 - 1, "last")
    queue.insert(0, "first")
    assert queue.pop() == "first"
    for wrong in (-1, 2**64):
        with pytest.raises(OverflowError):
            queue.insert(wrong, None)
    for wrong in (1.5, "1", None):
        with pytest.raises(TypeError):
            queue.insert(wrong, None)
        with pytest.raises(TypeError):
            queue.remove(wrong, None)


def test_cancelled_timeouts_do_not_pile_up():
    """A few long timeouts stay, very many come and are cancelled."""
    queue = event_queue()
    for i in range(10):
        queue.insert(10**12 + i, i)
    for i in range(5000):
        value = object()
        queue.insert(10**6 + i * 100, value)
        queue.remove(10**6 + i * 100, value)
        assert len(queue._heap) <= 10 + 10 + 17
    assert len(queue) == 10
    assert len(queue._index) == 10
    assert [queue.pop() for _ in range(10)] == list(range(10))
    assert (queue._heap, queue._index) == ([], {})


def test_a_removed_value_is_released_at_once():
    class Value:
        pass

    queue = event_queue()
    queue.insert(1, "first")
    value = Value()
    queue.insert(2, value)
    gone = weakref.ref(value)
    queue.remove(2, value)
    del value
    gc.collect()
    assert gone() is None
    assert "1 entries" in repr(queue)
