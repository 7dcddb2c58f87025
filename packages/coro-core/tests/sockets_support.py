"""What the tests of sockets share: tests as threads of a loop, connected pairs, blocking functions beside the loop."""

import contextlib
import functools
import socket
import threading

import coro


def in_loop(function):
    """Run a test as a thread of its own loop; one that hangs fails after twenty seconds."""

    @functools.wraps(function)
    def run(*args, **kwargs):
        return coro.run(coro.with_timeout, 20, function, *args, **kwargs)

    return run


@contextlib.contextmanager
def os_thread(function, *args):
    """Run a blocking function beside the loop; its failure is the test's."""
    failed = []

    def body():
        try:
            function(*args)
        except BaseException as e:
            failed.append(e)

    t = threading.Thread(target=body)
    t.start()
    yield
    coro.in_thread(t.join)
    if failed:
        raise failed[0]


def listener(make=coro.tcp_sock, address=("127.0.0.1", 0)):
    """A listening sock of ours, by default on a free port of 127.0.0.1."""
    s = make()
    s.bind(address)
    s.listen()
    return s


def tcp_pair():
    """Two socks of ours, connected over TCP."""
    with listener() as server:
        a = coro.tcp_sock()
        a.connect(server.getsockname())
        b, address = server.accept()
        assert address == a.getsockname()
        return a, b


def tcp_and_standard():
    """A sock of ours and a blocking one of the standard library."""
    with listener() as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
        theirs.settimeout(10)
        return ours, theirs
