"""What exceptions say: which limit ran out, what was closed and by whom; and that they stay what they were."""

import copy
import errno
import functools
import pickle
import signal
import threading

import pytest

import coro
from coro.testing import coro_test, stream_pair


def expired(function):
    with pytest.raises(coro.TimeoutError) as info:
        function()
    return str(info.value)


def sleep_within(limit):
    with limit:
        coro.sleep_relative(60)


@coro_test
def test_a_limit_says_which_it_was_and_how_long():
    me = coro.current()
    start = f"of thread {me.id} {me.name!r} ran out while it slept"
    text = expired(lambda: sleep_within(coro.timeout(0.001)))
    assert text.startswith(f"coro.timeout(0.001) {start}, in sleep_within (")
    assert expired(lambda: sleep_within(coro.shield(0.002))).startswith(f"coro.shield(0.002) {start}")
    assert expired(lambda: coro.with_timeout(0, coro.sleep_relative, 60)).startswith(f"coro.with_timeout(0) {start}")


@coro_test
def test_a_limit_says_where_the_thread_was():
    def inner():
        coro.event().wait()

    text = expired(lambda: coro.with_timeout(0.001, inner))
    line = inner.__code__.co_firstlineno + 1
    assert f"waiting for an event, in {inner.__qualname__} ({__file__}:{line})" in text


@coro_test
def test_a_limit_says_what_was_waited_for():
    a, b = coro.socketpair()
    other = coro.spawn(coro.event().wait)
    held = coro.semaphore(0)
    released = threading.Event()
    waits = {
        f"to read descriptor {a.fileno()}": lambda: a.recv(1),
        f"for the end of thread {other.id}": other.join,
        "for a fifo": coro.fifo().pop,
        "for a semaphore": lambda: held.acquire(1),
        "in a select": lambda: coro.select(coro.case.get(coro.fifo())),
        "for an event of the kernel": lambda: coro.wait_for(signal.SIGUSR2, coro.EVFILT.SIGNAL),
        "for a function in a worker OS thread": lambda: coro.in_thread(released.wait),
    }
    for words, wait in waits.items():
        assert f"ran out while waiting {words}" in expired(functools.partial(coro.with_timeout, 0.001, wait)), words
    released.set()
    other.shutdown()
    a.close()
    b.close()


@coro_test
def test_a_limit_in_a_busy_loop_waited_for_nothing():
    def busy():
        while True:
            coro.yield_slice()

    text = expired(lambda: coro.with_timeout(0.001, busy))
    assert "ran out, in " in text


@coro_test
def test_a_timeout_keeps_its_text_and_its_limit_elsewhere():
    with pytest.raises(coro.TimeoutError) as info:
        coro.with_timeout(0.001, coro.sleep_relative, 60)
    raised = info.value
    assert raised.seconds == 0.001
    assert raised.args == ()
    for other in (pickle.loads(pickle.dumps(raised)), copy.copy(raised)):
        assert type(other) is coro.TimeoutError
        assert str(other) == str(raised)
        assert other.seconds == 0.001


@coro_test
def test_a_limit_of_an_odd_number():
    class Odd:
        def __float__(self):
            if self.calls:
                raise ValueError("once only")
            self.calls = 1
            return 0.001

        calls = 0

    assert "coro.with_timeout(a Odd) of" in expired(lambda: coro.with_timeout(Odd(), coro.sleep_relative, 60))


def test_a_timeout_made_by_others():
    assert str(coro.TimeoutError()) == ""
    assert str(coro.TimeoutError("mine")) == "mine"
    assert repr(coro.TimeoutError()) == "TimeoutError()"
    assert coro.TimeoutError().seconds is None


def test_a_limit_outside_a_loop():
    def spin():
        while True:
            pass

    with pytest.raises(coro.TimeoutError, match=r"coro.with_timeout\(0.01\) ran out") as info:
        coro.with_timeout(0.01, spin)
    assert info.value.seconds == 0.01


@coro_test
def test_a_limit_holds_nothing_of_what_was_waited_for():
    # what the exception needs for its text leads to no thread, so that a thread that ends by it makes no cycle
    event = coro.event()
    with pytest.raises(coro.TimeoutError) as info:
        coro.with_timeout(0.001, event.wait)
    assert event not in info.value._wait
    assert coro.current() not in info.value._wait


# ------------------------------------------------------------------------------------------------ closed


@coro_test
def test_closed_by_another_thread():
    a, b = coro.socketpair()
    found = []

    def read():
        with pytest.raises(coro.ClosedError) as info:
            a.recv(1)
        found.append(info.value)

    number = a.fileno()
    reader = coro.spawn(read)
    coro.yield_slice()
    a.close()
    reader.join()
    me = coro.current()
    [error] = found
    by = f"thread {me.id} {me.name!r}"
    assert str(error) == f"descriptor {number} was closed by {by} while this thread was waiting for it"
    assert error.args == (me,)
    assert error.closer is me
    b.close()


@coro_test
def test_closed_before():
    a, b = coro.socketpair()
    number = a.fileno()
    closer = coro.spawn(a.close)
    closer.join()
    with pytest.raises(coro.ClosedError) as info:
        a.recv(1)
    assert str(info.value).startswith(f"this sock (descriptor {number} before) is closed, thread {closer.id} closed it")
    assert info.value.args == ()
    assert info.value.closer is None
    b.close()


@coro_test
def test_a_closed_stream_in_memory():
    a, _ = stream_pair()
    a.close()
    with pytest.raises(coro.ClosedError, match="this memory_stream .* is closed"):
        a.recv(1)


def test_closed_is_an_oserror():
    for error in (coro.ClosedError(), coro.ClosedError(None), coro.ClosedError("a sentence")):
        assert isinstance(error, OSError)
        assert error.errno == errno.EBADF
        assert error.strerror == str(error)
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.errno) == (coro.ClosedError, str(error), errno.EBADF)
    assert str(coro.ClosedError("a sentence")) == "a sentence"
    assert str(coro.ClosedError(None)) == "the descriptor was closed while this thread was waiting for it"


# ------------------------------------------------------------------------------------------------ async def


async def asynchronous():
    """Never run here."""


async def generating():
    yield


class Methods:
    async def method(self):
        """Never run here."""


@pytest.mark.parametrize(
    "function",
    [asynchronous, generating, Methods().method, functools.partial(asynchronous)],
    ids=["function", "generator", "method", "partial"],
)
def test_an_async_function_is_refused_with_the_way_to_run_it(function):
    refused = pytest.raises(TypeError, match=r"is an async def function.*coro\.asyncio_bridge\.run\(")

    @coro_test
    def inside():
        with coro.group() as g:
            for call in (coro.spawn, coro.new, coro.post, coro.in_thread, g.spawn):
                with refused:
                    call(function)
        with refused:
            coro.parallel_map(function, [1])
        with refused:
            coro.in_parallel([(function, ())])
        with refused:
            coro.Server(function, ("127.0.0.1", 0))

    with refused:
        coro.run(function)
    inside()


# ------------------------------------------------------------------------------------------------ ends


@coro_test
def test_an_end_inside_of_something_says_how_much_came():
    for a, b in (coro.socketpair(), stream_pair()):
        a.sendall(b"abc")
        a.close()
        with pytest.raises(EOFError) as info:
            b.recv_exact(10)
        assert info.value.args == (b"abc",)
        assert info.value.__notes__ == ["the stream ended after 3 of the 10 bytes asked for"]
        b.close()
