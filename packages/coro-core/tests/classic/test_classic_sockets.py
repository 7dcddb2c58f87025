"""Sockets and descriptors where the original Shrapnel did something else: what is not part of a larger subject with a
test file of its own. Also: peers that are half gone, interrupted system calls, text that pretends to be a log."""

import os
import signal
import socket

import pytest
from sockets_support import listener, os_thread, tcp_and_standard, tcp_pair
from support import in_loop, program

import coro
from coro import oserrors


@in_loop
def test_sending_nothing_is_no_system_call():
    """So it succeeds where sending something would not."""
    unconnected = coro.tcp_sock()
    a, b = coro.socketpair()
    b.close()
    for s in (unconnected, a):
        for call in (s.send, s.sendall, s.write):
            assert call(b"") == 0
            assert call(memoryview(b"")) == 0
        assert s.writev([]) == s.writev([b"", bytearray()]) == 0
    with pytest.raises(oserrors.EPIPE):
        a.send(b"something")
    with pytest.raises(oserrors.EPIPE):
        unconnected.send(b"something")
    a.close()
    unconnected.close()


@in_loop
def test_datagrams_are_not_sent_to_names():
    with coro.udp_sock() as s:
        with pytest.raises(ValueError, match="numeric"):
            s.sendto(b"x", ("localhost", 9))
        with pytest.raises(TypeError):
            s.sendto(b"x", (123, 9))
        assert s.sendto(b"x", ("127.0.0.1", 9)) == 1


def polls_during(seconds):
    before = coro.statistics().polls
    coro.sleep_relative(seconds)
    return coro.statistics().polls - before


@in_loop
@pytest.mark.parametrize("end", ["half closed", "closed", "reset"])
def test_a_peer_that_is_gone_keeps_nobody_busy(end):
    """Other servers spun on sockets whose peer had closed, because the event comes again as long as nobody reads; or
    because the writing side of a half-closed connection was polled for. Here nothing happens until somebody looks."""
    ours, theirs = tcp_and_standard()
    ours.setsockopt(coro.SOL.SOCKET, coro.SO.SNDBUF, 4096)
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.001, ours.recv, 1)  # the poller knows the descriptor
    sender = coro.spawn(ours.sendall, b"x" * 20_000_000) if end == "half closed" else None
    coro.yield_slice()
    if end == "half closed":
        theirs.shutdown(socket.SHUT_WR)
        assert ours.recv(1) == b""
    else:
        if end == "reset":
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        theirs.close()
    assert polls_during(0.02) < 10
    if sender is not None:
        assert not sender.dead
        sender.shutdown()
        sender.join()
        theirs.close()
    elif end == "closed":
        assert ours.recv(1) == b""
    else:
        with pytest.raises(oserrors.ECONNRESET):
            ours.recv(1)
    ours.close()


@in_loop
def test_a_pipe_without_writer_and_without_reader_keeps_nobody_busy():
    r, w = os.pipe()
    reader, writer = coro.fd_sock(r), coro.fd_sock(w)
    with pytest.raises(coro.TimeoutError):
        coro.with_timeout(0.001, reader.recv, 1)
    writer.close()
    assert polls_during(0.02) < 10
    assert reader.recv(1) == b""
    reader.close()


@in_loop
def test_a_storm_of_signals_disturbs_no_wait():
    """Each interrupts the system call that the loop waits in. The original began the whole wait anew with kqueue, and
    took an interrupted epoll_wait for one without events."""
    received = []
    before = signal.signal(signal.SIGALRM, lambda *_: received.append(1))
    a, b = tcp_pair()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        reader = coro.spawn(a.recv_exact, 20)
        start = coro.get_usec()
        for _ in range(20):
            coro.sleep_relative(0.002)
            b.send(b"x")
        took = coro.get_usec() - start
        reader.join()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert reader.result == b"x" * 20
    assert took >= 40_000
    assert received
    a.close()
    b.close()


@in_loop
def test_a_connection_is_refused_with_an_error():
    """On Linux, the original returned as if connected."""
    with listener() as server:
        address = server.getsockname()
    for connect in (coro.sock.connect, coro.sock.connect_addr):
        with coro.tcp_sock() as s, pytest.raises(oserrors.ECONNREFUSED):
            connect(s, address)


@in_loop
def test_echo_for_three_clients_that_come_at_once():
    """accept_many hands them out in batches, in the order in which they came."""
    server = listener()

    def clients():
        socks = [socket.create_connection(server.getsockname(), timeout=60) for _ in range(3)]
        for n, s in enumerate(socks):
            s.sendall(b"%d" % n)
        for n, s in enumerate(socks):
            assert s.recv(10) == b"%d" % n
            s.close()

    def serve(s):
        with s:
            while data := s.recv(100):
                s.send(data)

    with os_thread(clients):
        threads = []
        while len(threads) < 3:
            threads += [coro.spawn(serve, s) for s, _ in server.accept_many()]
        for t in threads:
            t.join()
    server.close()


@pytest.mark.parametrize("what", ["name", "text", "notifier"])
def test_nobody_writes_lines_of_his_own_into_the_log(what):
    """Text from outside (a request in the text of an exception, a user's name in that of a thread) stays within the
    line that reports it."""
    outcome = program(
        f"""
        import coro
        def fail(text="quiet"):
            raise ValueError(text)
        def main():
            forged = "x\\n99:\\tThu Jan  1 00:00:00 1970 thread 99 (root): all is well"
            if {what!r} == "name":
                coro.spawn(fail, thread_name=forged).join()
            else:
                if {what!r} == "notifier":
                    coro.set_exception_notifier(lambda: fail(forged))
                coro.spawn(fail, forged).join()
        coro.run(main)
        """
    )
    assert outcome.code == 0
    assert "ValueError" in outcome.err
    assert not any(line.startswith("99:") for line in outcome.err.splitlines())
