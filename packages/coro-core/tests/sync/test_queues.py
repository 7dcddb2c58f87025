"""fifo and channel: order, hand-over, bounds, closing; a put that raises has put nothing, a get that raises has taken
nothing, whenever the interruption strikes.
"""

import gc
import weakref

import pytest
from sync_names import ChannelClosed, Stop, channel, fifo, in_loop, settle, start

import coro

# ------------------------------------------------------------------------------------------------- fifo


def test_fifo_as_a_plain_queue():
    f = fifo()
    assert len(f) == 0 and list(f) == [] and f.maxsize is None
    for call in (f.top, f.pop_nowait):
        with pytest.raises(IndexError):
            call()
    with pytest.raises(coro.YieldFromMain):
        f.pop()
    model = []
    for n in range(1000):
        if n % 7 == 0:
            f.push_front(n)
            model.insert(0, n)
        else:
            assert f.try_push(n) is False
            model.append(n)
        if n % 3 == 0:
            assert f.pop() == model.pop(0)
        assert (len(f), f.top()) == (len(model), model[0]) if model else True
    assert list(f) == model
    assert f.pop_nowait() == model.pop(0)
    assert f.pop_all() == model
    f.push(None)
    assert f.pop() is None
    assert f.statistics() == (0, None, 0, 0, 1001, False)


@in_loop
def test_a_value_goes_to_who_waited_first():
    f, log = fifo(), []
    threads = [start(log, n, f.pop) for n in range(3)]
    settle()
    assert f.waiting == tuple(threads)
    f.push("a")
    f.push("b")
    with pytest.raises(IndexError):
        f.pop_nowait()  # both are promised
    assert len(f) == 2 and f.top() == "a"
    f.push("c")
    f.push("d")
    assert f.pop() == "a"  # there is one more than was promised, and values keep their order
    settle()
    assert log == [(0, "b"), (1, "c"), (2, "d")]
    assert "0 values" in repr(f)


@pytest.mark.parametrize("order", ["interrupt, push", "push, interrupt"])
@pytest.mark.parametrize("how", ["push", "push_front"])
def test_no_value_is_lost_with_its_waiter(order, how):
    @in_loop
    def test():
        f, log = fifo(), []
        threads = [start(log, n, f.pop) for n in range(5)]
        sixth = start(log, "sixth", f.pop)
        settle()
        for step in order.split(", "):
            if step == "push":
                getattr(f, how)("x")
            else:
                for t in threads:
                    t.shutdown()
        sixth.join()
        settle()
        assert (
            sorted(log, key=str) == sorted([(n, coro.Shutdown) for n in range(5)] + [("sixth", "x")], key=str)
            and len(f) == 0
        )

    test()


@in_loop
def test_values_keep_their_order_when_all_waiters_go():
    f, log = fifo(), []
    threads = [start(log, n, f.pop) for n in range(3)]
    settle()
    for x in "abc":
        f.push(x)
    for t in threads:
        t.raise_exception(Stop)
    assert len(f) == 3
    settle()
    assert f.pop_all() == ["a", "b", "c"]
    assert log == [(n, Stop) for n in range(3)]


@in_loop
def test_pop_all_waits_and_leaves_what_is_promised():
    f, log = fifo(), []
    start(log, "one", f.pop)
    start(log, "all", f.pop_all)
    settle()
    for n in range(4):
        f.push(n)
    settle()
    assert log == [("one", 0), ("all", [1, 2, 3])]


@in_loop
def test_spurious_wakes_of_a_consumer():
    f, log = fifo(), []
    t = start(log, "t", f.pop)
    settle()
    t.schedule("nonsense")
    settle()
    t.schedule("nonsense")
    f.push(1)
    settle()
    assert log == [("t", 1)]


@in_loop
def test_bounded_fifo():
    f, log = fifo(2), []
    f.push(1)
    f.push(2)
    assert f.try_push(3) is True and f.maxsize == 2
    threads = [start(log, n, lambda n=n: f.push(n)) for n in (3, 4, 5)]
    settle()
    assert f.waiting == tuple(threads) and len(f) == 2
    assert f.pop() == 1
    assert f.try_push("barges") is True  # the room is booked
    threads[0].raise_exception(Stop)
    settle()
    assert log == [(3, Stop), (4, None)] and list(f) == [2, 4]
    assert [f.pop() for _ in range(3)] == [2, 4, 5]
    settle()
    assert log[2:] == [(5, None)]
    for bad in (0, -1):
        with pytest.raises(ValueError):
            fifo(bad)
    with pytest.raises(TypeError):
        fifo("1")
    with pytest.raises(TypeError):
        fifo(1.5)


def test_bounded_fifo_in_main():
    f = fifo(maxsize=1)
    f.push(1)
    with pytest.raises(coro.YieldFromMain):
        f.push(2)
    assert list(f) == [1] and f.waiting == ()


def test_the_ring_forgets_what_was_taken_and_the_collector_sees_what_is_inside():
    class Thing:
        pass

    f = fifo()
    thing = Thing()
    ref = weakref.ref(thing)
    f.push(thing)
    assert f.pop() is thing
    del thing
    assert ref() is None
    thing = Thing()
    thing.f = f
    f.push(thing)
    ref = weakref.ref(thing)
    del f, thing
    gc.collect()
    assert ref() is None


@in_loop
def test_push_and_pop_from_a_finaliser():
    f = fifo()

    class Loud:
        def __del__(self):
            f.push("gone")

    f.push(Loud())
    f.pop()
    assert f.pop() == "gone"


# ------------------------------------------------------------------------------------------------- channel


@in_loop
def test_channel_from_end_to_end():
    c, log = channel(), []

    def produce():
        with c:
            for n in range(5):
                c.put(n)
                log.append(("put", n))

    t = coro.spawn(produce)
    assert list(c) == list(range(5))
    t.join()
    assert [n for _, n in log] == list(range(5))
    for call in (c.get, c.receive, c.get_nowait):
        with pytest.raises(ChannelClosed) as info:
            call()
        assert info.value.args[1] is c
    for call in (c.put, c.send, c.try_put):
        with pytest.raises(ChannelClosed):
            call(1)
    c.close()
    assert c.closed and list(c) == [] and c.statistics() == (0, 1, 0, 0, 5, True)
    assert "closed" in repr(c)


@pytest.mark.parametrize("capacity", [1, 3, 0])
def test_close_wakes_everybody(capacity):
    @in_loop
    def test():
        c, log = channel(capacity), []
        for n in range(capacity):
            c.put(n)
        for n in range(3):
            start(log, n, lambda n=n: c.put(n))
        settle()
        c.close()
        settle()
        assert log == [(n, ChannelClosed) for n in range(3)]
        assert list(c) == list(range(capacity))
        c, log = channel(capacity), []
        for n in range(3):
            start(log, n, c.get)
        settle()
        c.close()
        settle()
        assert log == [(n, ChannelClosed) for n in range(3)]

    test()


@in_loop
def test_the_last_value_of_a_closed_channel_survives_its_receiver():
    c, log = channel(), []
    first = start(log, "first", c.get)
    settle()
    start(log, "second", c.get)
    start(log, "third", c.get)
    settle()
    c.put("x")
    c.close()
    first.raise_exception(Stop)
    settle()
    assert log == [("first", Stop), ("second", "x"), ("third", ChannelClosed)]


@in_loop
def test_rendezvous():
    c, log = channel(0), []
    assert c.try_put("nobody there") is True
    start(log, "giver", lambda: c.put("a"), lambda: c.put("b"))
    settle()
    assert log == [] and len(c) == 0
    with pytest.raises(IndexError):
        c.get_nowait()
    assert c.get() == "a"
    settle()
    assert log == [("giver", None)]
    assert c.get() == "b"
    settle()
    assert log == [("giver", None)] * 2
    start(log, "taker", c.get)
    settle()
    assert c.try_put("c") is False and c.try_put("d") is True
    settle()
    assert log[2:] == [("taker", "c")]


@in_loop
def test_a_giver_whose_taker_goes_waits_on():
    c, log = channel(0), []
    first = start(log, "first", lambda: c.put("x"))
    second = start(log, "second", lambda: c.put("y"))
    settle()
    taker = start(log, "taker", c.get)

    def spoil():  # runs when the taker has stood in line and before the giver that it called
        assert first.scheduled and c.waiting == (taker, second)
        taker.raise_exception(Stop)

    coro.spawn(spoil).join()
    settle()
    assert log == [("taker", Stop)]
    assert c.waiting == (first, second)  # it kept its place
    assert (c.get(), c.get()) == ("x", "y")
    settle()
    assert log[1:] == [("first", None), ("second", None)]


@pytest.mark.parametrize("order", ["interrupt, act", "act, interrupt"])
@pytest.mark.parametrize("capacity", [0, 1, 2])
@pytest.mark.parametrize("side", ["get", "put"])
def test_five_interrupted_the_sixth_succeeds(capacity, order, side):
    @in_loop
    def test():
        c, log = channel(capacity), []
        if side == "put":
            for _ in range(capacity):
                c.put("fill")
        threads = [start(log, n, (lambda n=n: c.put(n)) if side == "put" else c.get) for n in range(5)]
        sixth = start(log, "sixth", (lambda: c.put("sixth")) if side == "put" else c.get)
        settle()
        taken = []
        for step in order.split(", "):
            if step == "interrupt":
                for t in threads:
                    t.shutdown()
            elif side == "get":
                assert c.try_put("x") is False or order.startswith("interrupt")
                if order.startswith("interrupt") and capacity == 0 and not len(c):
                    c.put("x")
            elif capacity:
                taken.append(c.get())
        if side == "put" and capacity == 0:
            assert c.get() == "sixth"
        sixth.join()
        settle()
        assert all((n, coro.Shutdown) in log for n in range(5)) and len(log) == 6
        assert ("sixth", "x" if side == "get" else None) in log
        if side == "put" and capacity:
            assert taken == ["fill"] and [c.get() for _ in range(capacity)][-1] == "sixth"
        assert len(c) == 0 and c.waiting == ()

    test()


def test_channel_without_a_loop():
    c = channel(2)
    c.put(1)
    assert c.try_put(2) is False and c.try_put(3) is True
    with pytest.raises(coro.YieldFromMain):
        c.put(3)
    assert c.get() == 1 and c.get_nowait() == 2
    with pytest.raises(coro.YieldFromMain):
        c.get()
    with pytest.raises(IndexError):
        c.get_nowait()
    c.close()
    assert next(c, "end") == "end"
    with pytest.raises(ValueError):
        channel(-1)
    with pytest.raises(TypeError):
        channel(None)


# ------------------------------------------------------------------------------------------------- fifo.cv


@in_loop
def test_the_line_of_a_fifo_shows_and_interrupts_those_who_wait():
    f, log = fifo(), []
    assert len(f.cv) == 0 and f.cv.waiting == ()
    ts = [start(log, n, f.pop) for n in range(2)]
    settle()
    assert len(f.cv) == 2 and f.cv.waiting == f.cv._waiting == tuple(ts)
    assert repr(f.cv) == f"<2 waiting for a value of {f!r}>"
    with pytest.raises(TypeError, match="exception class or instance"):
        f.cv.raise_all("x")
    f.cv.raise_all(Stop)
    assert len(f.cv) == 0
    settle()
    assert log == [(0, Stop), (1, Stop)]
    f.push("value")
    assert f.pop() == "value"


@in_loop
def test_waiting_in_the_line_of_a_fifo_takes_no_value():
    f, log = fifo(), []

    def look():
        f.cv.wait()
        log.append(list(f))

    looks = coro.spawn(look)
    takes = coro.spawn(f.pop)  # behind it in the line
    settle()
    f.push("value")
    looks.join()
    takes.join()
    assert log == [["value"]] and takes.result == "value"
    f.push("next")
    f.cv.wait()  # there is one
    assert f.pop() == "next"
