"""What a sock costs in registrations with the kernel, and that lingering without one (see `_poll/descriptors.pyx`)
looks like any other wait from outside.

The order of threads is that of their starting: a reader lingers when another thread is ready to run behind it.
"""

import pytest
from sockets_support import tcp_pair
from support import in_loop, on_kqueue

import coro
from coro._poll import descriptors

pytestmark = pytest.mark.skipif(on_kqueue(), reason="with kqueue(2) a registration is no call of its own")


def changes():
    return descriptors.poller_statistics()["changes"]


def lucky():
    """Make the poller trust that lingering is worth it, whatever it has seen."""
    for _ in range(300):
        ours, theirs = tcp_pair()
        theirs.send(b"x")
        reader = coro.spawn(lambda s: (s.recv(10), s.recv(10)), ours)
        coro.spawn(theirs.close)
        reader.join()
        ours.close()


def result_of(function, *args):
    """A started thread and the list its result goes to."""
    box = []
    return coro.spawn(lambda: box.append(function(*args))), box


def start_reader(s, *, behind):
    """A thread that reads what is there and waits for more while `behind` is ready to run; its list of results."""
    box = []

    def body():
        try:
            while data := s.recv(10):
                box.append(data)
            box.append(data)
        except BaseException as e:
            box.append(e)

    thread = coro.spawn(body)
    coro.spawn(behind)
    return thread, box


@in_loop
def test_a_short_connection_is_never_registered():
    lucky()
    ours, theirs = tcp_pair()
    theirs.send(b"question")
    before = changes()
    reader, box = start_reader(ours, behind=theirs.close)
    reader.join()
    assert box == [b"question", b""]
    assert changes() == before
    ours.close()
    assert changes() == before


@in_loop
def test_lingering_in_vain():
    lucky()
    ours, theirs = tcp_pair()
    theirs.send(b"1")
    before = changes()
    reader, box = start_reader(ours, behind=lambda: None)
    for n in (2, 3):
        for _ in range(3):
            coro.yield_slice()
        theirs.send(b"%d" % n)
    theirs.close()
    reader.join()
    assert box == [b"1", b"2", b"3", b""]
    assert changes() == before + 1
    ours.close()


@in_loop
def test_nobody_lingers_for_ever_alone():
    lucky()
    ours, theirs = tcp_pair()
    theirs.send(b"1")
    reader, box = start_reader(ours, behind=lambda: None)
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.01, reader.join)
    assert box == [b"1"]
    theirs.close()
    reader.join()
    ours.close()


@in_loop
def test_lingering_stops_where_it_is_never_worth_it():
    """One in sixteen still tries; the others register at once, and are not woken in vain."""
    tries = []
    for _ in range(200):
        ours, theirs = tcp_pair()
        theirs.send(b"1")
        before = descriptors.poller_statistics()
        reader, box = start_reader(ours, behind=lambda: None)
        coro.yield_slice()
        coro.yield_slice()
        tries.append(descriptors.poller_statistics()["wakes"] - before["wakes"])
        theirs.close()
        reader.join()
        assert box == [b"1", b""]
        ours.close()
    assert sum(tries[100:]) <= 8


@in_loop
def test_closing_under_a_lingering_reader():
    lucky()
    ours, theirs = tcp_pair()
    theirs.send(b"1")
    box = []

    def close():
        box.append(coro.current())
        ours.close()

    reader, results = start_reader(ours, behind=close)
    reader.join()
    assert results[0] == b"1"
    assert isinstance(results[1], coro.ClosedError)
    assert results[1].args == (box[0],)
    theirs.close()


@in_loop
def test_interrupting_a_lingering_reader():
    lucky()
    ours, theirs = tcp_pair()
    theirs.send(b"1")
    victim = []
    reader, box = start_reader(ours, behind=lambda: victim[0].raise_exception(KeyError))
    victim.append(reader)
    reader.join()
    assert box[0] == b"1"
    assert isinstance(box[1], KeyError)
    again, box = result_of(ours.recv, 10)
    coro.yield_slice()
    theirs.send(b"2")
    again.join()
    assert box == [b"2"]
    ours.close()
    theirs.close()


@in_loop
def test_an_explicit_wait_after_an_interrupted_lingering_is_not_told_of_anything():
    lucky()
    ours, theirs = tcp_pair()
    theirs.send(b"1")
    told = []

    def body():
        assert ours.recv(10) == b"1"
        with pytest.raises(KeyError):
            ours.recv(10)
        ours.wait_for_read()
        told.append(True)

    reader = coro.spawn(body)
    coro.spawn(lambda: reader.raise_exception(KeyError))
    for _ in range(5):
        coro.yield_slice()
    assert told == []
    theirs.send(b"2")
    reader.join()
    assert told == [True]
    ours.close()
    theirs.close()


@in_loop
def test_the_number_of_a_closed_lingering_sock_is_used_again():
    lucky()
    ours, theirs = tcp_pair()
    theirs.send(b"1")
    fresh = []

    def replace():
        number = ours.fd
        ours.close()
        fresh.extend(coro.socketpair())
        assert number in {s.fd for s in fresh}

    reader, box = start_reader(ours, behind=replace)
    reader.join()
    assert isinstance(box[1], coro.ClosedError)
    other, box = result_of(fresh[0].recv, 10)
    for _ in range(3):
        coro.yield_slice()
    fresh[1].send(b"2")
    other.join()
    assert box == [b"2"]
    for s in (theirs, *fresh):
        s.close()


@in_loop
def test_writing_is_registered_when_it_first_waits():
    amount = 5_000_000
    ours, theirs = coro.socketpair()
    before = changes()
    reader, box = result_of(ours.recv, 10)
    coro.yield_slice()
    assert changes() == before + 1
    seen = []
    for _ in range(3):
        sender, sent = result_of(ours.send, b"x" * amount)
        coro.yield_slice()
        seen.append(changes() - before)
        assert len(theirs.recv_exact(amount)) == amount
        sender.join()
        assert sent == [amount]
    assert seen == [2, 3, 3], "once for our writing, once for their reading"
    theirs.send(b"end")
    reader.join()
    assert box == [b"end"]
    ours.close()
    theirs.close()


@in_loop
def test_a_new_registration_brings_no_event_of_its_own():
    ours, theirs = coro.socketpair()
    coro.yield_slice()
    before = descriptors.poller_statistics()["events"]
    reader = coro.spawn(ours.recv, 10)
    for _ in range(3):
        coro.yield_slice()
    assert descriptors.poller_statistics()["events"] == before
    theirs.send(b"x")
    reader.join()
    ours.close()
    theirs.close()


@in_loop
def test_large_results_are_read_in_place_and_cut():
    """Full reads, one that is cut after them, and one of nothing; sizes on both sides of the static buffer's."""
    for size in (16_384, 65_536, 100_000):
        ours, theirs = tcp_pair()
        data = bytes(range(256)) * (4 * size // 256)
        sender = coro.spawn(lambda s, d: (s.send(d), s.send(b"rest"), s.close()), theirs, data)
        got = []
        while piece := ours.recv(size):
            assert len(piece) <= size
            got.append(piece)
        assert b"".join(got) == data + b"rest"
        sender.join()
        ours.close()


@in_loop
def test_addresses_of_peers():
    for host in ("127.0.0.1", "127.1.20.200", "127.255.255.254", "127.10.100.99"):
        server = coro.tcp_sock()
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        client = coro.tcp_sock()
        client.bind((host, 0))
        client.connect(server.getsockname())
        connection, address = server.accept()
        assert address == client.getsockname()
        assert address[0] == host
        for s in (server, client, connection):
            s.close()
