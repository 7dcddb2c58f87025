"""The class sock apart from moving data: making and adopting descriptors, addresses, options, misuse."""

import _socket
import copy
import errno
import fcntl
import gc
import os
import pathlib
import pickle
import socket
import threading
import types

import pytest
from support import in_loop

import coro
from coro import oserrors

pytestmark = pytest.mark.poller


def is_cloexec(s):
    return bool(fcntl.fcntl(s.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC)


def is_nonblocking(s):
    return bool(fcntl.fcntl(s.fileno(), fcntl.F_GETFL) & os.O_NONBLOCK)


# -- making


@pytest.mark.parametrize(
    ("make", "domain", "stype"),
    [
        (coro.tcp_sock, socket.AF_INET, socket.SOCK_STREAM),
        (coro.udp_sock, socket.AF_INET, socket.SOCK_DGRAM),
        (coro.tcp6_sock, socket.AF_INET6, socket.SOCK_STREAM),
        (coro.udp6_sock, socket.AF_INET6, socket.SOCK_DGRAM),
        (coro.unix_sock, socket.AF_UNIX, socket.SOCK_STREAM),
        (coro.sock, socket.AF_INET, socket.SOCK_STREAM),
        (lambda: coro.make_socket(coro.AF.INET, coro.SOCK.DGRAM), socket.AF_INET, socket.SOCK_DGRAM),
    ],
)
def test_kinds(make, domain, stype):
    with make() as s:
        assert (s.domain, s.stype, s.family, s.type) == (domain, stype, domain, stype)
        assert s.getsockopt(coro.SOL.SOCKET, coro.SO.DOMAIN) == domain
        assert s.getsockopt(coro.SOL.SOCKET, coro.SO.TYPE) == stype
        assert is_cloexec(s)
        assert is_nonblocking(s)
        assert s.fd == s.orig_fd == s.fileno() == s.get_fileno()
    assert (s.fd, s.fileno(), s.closed) == (-1, -1, True)
    assert s.orig_fd >= 0


def test_the_domain_can_be_changed_and_descriptors_cannot():
    with coro.tcp_sock() as s:
        s.domain = 17
        s.stype = 3
        assert (s.domain, s.stype) == (17, 3)
        with pytest.raises(AttributeError):
            s.fd = 1


def test_repr():
    s = coro.tcp_sock()
    assert repr(s) == f"<sock fd={s.fd}/{s.fd} domain=2 type=1 at 0x{id(s):x}>"
    number = s.fd
    s.close()
    assert repr(s) == f"<sock fd=-1/{number} domain=2 type=1 at 0x{id(s):x}>"


def test_failed_constructors_are_not_counted():
    before = coro.get_live_sockets()
    with pytest.raises(oserrors.EAFNOSUPPORT):
        coro.sock(12345)
    with pytest.raises(oserrors.EBADF):
        coro.sock(fd=987654)
    with pytest.raises(oserrors.EBADF):
        coro.fd_sock(987654)
    with pytest.raises(ValueError, match="descriptor"):
        coro.sock(fd=-5)
    with pytest.raises(TypeError):
        coro.sock("inet")
    with pytest.raises(TypeError):
        coro.fd_sock("x")
    with pytest.raises(TypeError):
        coro.fd_sock(None)
    gc.collect()
    assert coro.get_live_sockets() == before


def test_live_counter_counts_closed_ones_too():
    before = coro.get_live_sockets()
    s = coro.tcp_sock()
    s.close()
    assert coro.get_live_sockets() == before + 1
    del s
    assert coro.get_live_sockets() == before


def test_init_twice():
    with coro.tcp_sock() as s:
        number = s.fd
        with pytest.raises(RuntimeError, match="twice"):
            s.__init__()
        assert s.fd == number


def test_subclass():
    class mine(coro.sock):
        def __init__(self, tag):
            super().__init__(coro.AF.UNIX)
            self.tag = tag

    with mine(7) as s:
        assert s.tag == 7
        assert s.domain == socket.AF_UNIX
        assert repr(s).startswith("<mine fd=")


@pytest.mark.parametrize("kind", [coro.sock, coro.fd_sock, coro.file_sock])
def test_methods_are_called_without_a_look_at_the_base_classes(kind):
    """The interpreter's direct call of a C method wants an object of exactly the class that has the method."""
    methods = {name: getattr(kind, name) for name in dir(kind) if name not in dir(object)}
    owners = {name: m.__objclass__ for name, m in methods.items() if isinstance(m, types.MethodDescriptorType)}
    assert {"recv", "send", "accept", "close"} <= owners.keys()
    assert set(owners.values()) == {kind}


def test_an_object_made_without_init_is_closed():
    s = coro.sock.__new__(coro.sock)
    assert s.fd == -1
    s.close()
    with pytest.raises(coro.ClosedError):
        s.listen()


def test_collection_closes_silently():
    a, b = socket.socketpair()
    with b:
        s = coro.fd_sock(a.detach())
        del s
        b.settimeout(60)
        assert b.recv(1) == b""


def test_collection_in_another_os_thread():
    """The poller's records belong to the loop's OS thread; the descriptor is closed there."""
    a, b = coro.socketpair()
    box = [a]
    del a

    def main():
        with pytest.raises(coro.TimeoutError):
            coro.with_timeout(0.001, box[0].recv, 1)        # registered now
        t = threading.Thread(target=box.clear)
        t.start()
        assert b.recv(1) == b""
        t.join()
        b.close()

    coro.run(coro.with_timeout, 10, main)


def test_dup():
    a, b = coro.socketpair()
    c = a.dup()
    assert c.fd != a.fd
    assert (c.domain, c.stype) == (a.domain, a.stype)
    assert is_cloexec(c)
    a.close()
    assert coro.run(lambda: (c.send(b"x"), b.recv(5))) == (1, b"x")
    c.close()
    b.close()
    with pytest.raises(coro.ClosedError):
        a.dup()


def test_detach():
    a, b = coro.socketpair()
    number = a.fd
    assert a.detach() == number
    assert a.fd == -1
    os.write(number, b"still open")
    assert coro.run(b.recv, 100) == b"still open"
    os.close(number)
    with pytest.raises(coro.ClosedError):
        a.detach()
    b.close()


def test_socketpair():
    for s in coro.socketpair():
        assert is_cloexec(s)
        assert is_nonblocking(s)
        s.close()
    a, b = coro.socketpair(coro.AF.UNIX, coro.SOCK.DGRAM)
    with a, b:
        assert a.stype == socket.SOCK_DGRAM
    with pytest.raises(oserrors.EOPNOTSUPP):
        coro.socketpair(coro.AF.INET)


def test_has_ipv6():
    assert coro.has_ipv6() is True


def test_file_sock_has_one_owner():
    r, w = os.pipe()
    file = os.fdopen(w, "wb", buffering=0)
    s = coro.file_sock(file)
    assert s.fd == w
    assert s.domain == socket.AF_UNSPEC
    s.close()
    assert file.closed
    assert os.read(r, 1) == b""
    os.close(r)


def test_file_sock_notices_that_the_file_was_closed():
    r, w = os.pipe()
    file = os.fdopen(w, "wb", buffering=0)
    s = coro.file_sock(file)
    file.close()
    other = os.open(os.devnull, os.O_RDWR)      # takes the number, most likely
    with pytest.raises(coro.ClosedError):
        coro.run(s.send, b"for somebody else")
    s.close()
    del s
    gc.collect()
    os.fstat(other)
    os.close(other)
    os.close(r)


def test_file_sock_keeps_the_file():
    r, w = os.pipe()
    s = coro.file_sock(os.fdopen(w, "wb", buffering=0))
    gc.collect()
    assert coro.run(s.write, b"x") == 1
    with pytest.raises(ValueError, match="owns"):
        s.detach()
    s.close()
    assert coro.coro_fd is coro.file_sock
    os.close(r)


def test_pickle_and_copy():
    with coro.tcp_sock() as s:
        with pytest.raises(TypeError, match="dup"):
            pickle.dumps(s)
        with pytest.raises(TypeError, match="dup"):
            copy.copy(s)


# -- constants


def test_constants_agree_with_the_standard_library():
    assert coro.AF.INET == socket.AF_INET
    assert coro.AF.LOCAL is coro.AF.UNIX
    assert coro.PF.INET6 == socket.AF_INET6
    assert coro.SOCK.DGRAM == socket.SOCK_DGRAM
    assert (coro.SHUT.RD, coro.SHUT.WR, coro.SHUT.RDWR) == (socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR)
    assert coro.SOL.SOCKET == socket.SOL_SOCKET
    names = "DEBUG REUSEADDR REUSEPORT KEEPALIVE DONTROUTE LINGER BROADCAST OOBINLINE SNDBUF RCVBUF SNDLOWAT \
             RCVLOWAT SNDTIMEO RCVTIMEO TYPE ERROR"
    for name in names.split():
        assert getattr(coro.SO, name) == getattr(socket, "SO_" + name)
    assert "REUSEADDR" in list(coro.SO)
    assert "SOCKET" in repr(coro.SOL)


# -- addresses


def bound_name(make, address):
    with make() as s:
        s.bind(address)
        return s.getsockname()


def test_ipv4_addresses():
    assert bound_name(coro.tcp_sock, ("127.0.0.1", 0))[0] == "127.0.0.1"
    assert bound_name(coro.tcp_sock, ("", 0))[0] == "0.0.0.0"
    assert bound_name(coro.tcp_sock, (None, 0))[0] == "0.0.0.0"
    assert bound_name(coro.tcp_sock, (b"127.0.0.1", 0))[0] == "127.0.0.1"
    assert bound_name(coro.udp_sock, ("<broadcast>", 0))[0] == "255.255.255.255"


def test_ipv6_addresses():
    for address in (("::1", 0), ("::1", 0, 0), ("::1", 0, 0, 0)):
        host, port, flow, scope = bound_name(coro.tcp6_sock, address)
        assert (host, flow, scope) == ("::1", 0, 0)
        assert port > 0
    assert bound_name(coro.tcp6_sock, ("", 0))[0] == "::"


def test_ipv6_zone():
    index = socket.if_nametoindex("lo")
    for zone in ("lo", str(index)):
        with coro.udp6_sock() as s:
            # lo has no link-local address: the kernel refuses, but only after it understood the zone
            with pytest.raises(oserrors.EADDRNOTAVAIL):
                s.bind((f"fe80::1%{zone}", 0))
    with coro.udp6_sock() as s:
        with pytest.raises(ValueError, match="no network interface"):
            s.bind(("fe80::1%nothere", 0))
        with pytest.raises(ValueError, match="no network interface"):
            s.bind(("fe80::1%", 0))


@pytest.mark.parametrize(
    ("make", "address", "error"),
    [
        (coro.tcp_sock, ("::1", 0), ValueError),
        (coro.tcp6_sock, ("127.0.0.1", 0), ValueError),
        (coro.tcp_sock, ("localhost", 0), ValueError),
        (coro.tcp6_sock, ("localhost", 0), ValueError),
        (coro.tcp_sock, ("1.2.3", 0), ValueError),
        (coro.tcp_sock, ("1.2.3.4\0", 0), ValueError),
        (coro.tcp_sock, ("b\xfccher", 0), ValueError),
        (coro.tcp_sock, (b"\xff", 0), ValueError),
        (coro.tcp_sock, ("127.0.0.1", 65536), OverflowError),
        (coro.tcp_sock, ("127.0.0.1", -1), OverflowError),
        (coro.tcp_sock, ("127.0.0.1", 10**30), OverflowError),
        (coro.tcp_sock, ("127.0.0.1", "80"), TypeError),
        (coro.tcp_sock, ("127.0.0.1", 80.0), TypeError),
        (coro.tcp_sock, (123, 80), TypeError),
        (coro.tcp_sock, ["127.0.0.1", 80], TypeError),
        (coro.tcp_sock, "127.0.0.1", TypeError),
        (coro.tcp_sock, None, TypeError),
        (coro.tcp_sock, ("127.0.0.1",), TypeError),
        (coro.tcp_sock, ("127.0.0.1", 80, 0), TypeError),
        (coro.tcp6_sock, ("::1", 80, 0, 0, 0), TypeError),
        (coro.tcp6_sock, ("::1", 80, 2**20), OverflowError),
        (coro.tcp6_sock, ("::1", 80, 0, 2**32), OverflowError),
        (coro.tcp6_sock, ("::1", 80, 0, "lo"), TypeError),
        (coro.unix_sock, ("127.0.0.1", 80), TypeError),
        (coro.unix_sock, 5, TypeError),
        (coro.unix_sock, "x" * 107, ValueError),
        (coro.unix_sock, "a\0b", ValueError),
        (coro.unix_sock, b"\0" + b"x" * 108, ValueError),
    ],
)
def test_bad_addresses(make, address, error):
    with make() as s:
        with pytest.raises(error):
            s.bind(address)

        def connect():
            with pytest.raises(error):
                s.connect_addr(address)

        coro.run(connect)


def test_descriptors_without_addresses():
    with coro.fd_sock(os.open(os.devnull, os.O_RDWR)) as s:
        assert s.domain == socket.AF_UNSPEC
        with pytest.raises(ValueError, match="no addresses"):
            s.bind(("127.0.0.1", 0))
        with pytest.raises(oserrors.ENOTSOCK):
            s.getsockname()
        with pytest.raises(oserrors.ENOTSOCK):
            s.getsockopt(coro.SOL.SOCKET, coro.SO.TYPE)


def test_unix_addresses(tmp_path):
    path = tmp_path / "s"
    for form in (str(path), os.fsencode(path), path, bytearray(os.fsencode(path))):
        assert bound_name(coro.unix_sock, form) == str(path)
        path.unlink()
    os.chdir(tmp_path)
    name = b"\xff" * 106
    assert bound_name(coro.unix_sock, name) == os.fsdecode(name)
    with coro.unix_sock() as s:
        assert s.getsockname() == ""


@pytest.mark.skipif(not os.sys.platform.startswith("linux"), reason="abstract names are Linux only")
def test_abstract_unix_names():
    name = b"\0coro-test-%d" % os.getpid()
    assert bound_name(coro.unix_sock, name) == name
    assert bound_name(coro.unix_sock, name.decode()) == name
    full = name.ljust(108, b"x")
    assert bound_name(coro.unix_sock, full) == full
    automatic = bound_name(coro.unix_sock, "")
    assert isinstance(automatic, bytes)
    assert automatic.startswith(b"\0")


def test_path_like_addresses(tmp_path):
    class path:
        def __fspath__(self):
            return str(tmp_path / "x")

    assert pathlib.Path(bound_name(coro.unix_sock, path())).name == "x"


# -- options


def test_options():
    with coro.tcp_sock() as s:
        s.setsockopt(coro.SOL.SOCKET, coro.SO.KEEPALIVE, 1)
        assert s.getsockopt(coro.SOL.SOCKET, coro.SO.KEEPALIVE) == 1
        s.setsockopt(coro.SOL.SOCKET, coro.SO.KEEPALIVE, True)
        linger = (1).to_bytes(4, "little") + (7).to_bytes(4, "little")
        s.setsockopt(coro.SOL.SOCKET, coro.SO.LINGER, linger)
        assert s.getsockopt(coro.SOL.SOCKET, coro.SO.LINGER, 8) == linger
        s.setsockopt(coro.SOL.SOCKET, coro.SO.LINGER, bytearray(8))
        assert s.getsockopt(coro.SOL.SOCKET, coro.SO.LINGER, 100)[:4] == bytes(4)
        assert s.getsockopt(coro.SOL.SOCKET, coro.SO.REUSEADDR) == 0
        s.set_reuse_addr()
        assert s.getsockopt(coro.SOL.SOCKET, coro.SO.REUSEADDR) == 1
        with pytest.raises(oserrors.ENOPROTOOPT):
            s.getsockopt(coro.SOL.SOCKET, 4711)
        with pytest.raises(oserrors.ENOPROTOOPT):
            s.setsockopt(coro.SOL.SOCKET, 4711, 1)
        with pytest.raises(ValueError, match="1024"):
            s.getsockopt(coro.SOL.SOCKET, coro.SO.LINGER, 1025)
        with pytest.raises(ValueError, match="1024"):
            s.getsockopt(coro.SOL.SOCKET, coro.SO.LINGER, -1)
        with pytest.raises(TypeError):
            s.setsockopt(coro.SOL.SOCKET, coro.SO.LINGER, "x")
        with pytest.raises(OverflowError):
            s.setsockopt(coro.SOL.SOCKET, coro.SO.SNDBUF, 2**40)


def test_bind_sets_reuse_addr():
    with coro.tcp_sock() as s:
        s.bind(("127.0.0.1", 0))
        assert s.getsockopt(coro.SOL.SOCKET, coro.SO.REUSEADDR) == 1


@pytest.mark.parametrize("make, address", [(coro.udp_sock, "127.0.0.1"), (coro.udp6_sock, "::1")])
def test_a_free_port_for_datagrams_is_free(make, address):
    """With the option, the kernel may give a port that another such socket has."""
    with make() as s:
        s.bind((address, 0))
        assert s.getsockopt(coro.SOL.SOCKET, coro.SO.REUSEADDR) == 0
        port = s.getsockname()[1]
    with make() as s:
        s.bind((address, port))
        assert s.getsockopt(coro.SOL.SOCKET, coro.SO.REUSEADDR) == 1


def test_system_errors_have_both_classes():
    with coro.tcp_sock() as a, coro.tcp_sock() as b:
        a.bind(("127.0.0.1", 0))
        a.listen()
        with pytest.raises(oserrors.EADDRINUSE) as e:
            b.bind(a.getsockname())
        assert isinstance(e.value, OSError)
        assert e.value.errno == errno.EADDRINUSE
        with pytest.raises(oserrors.ENOTCONN):
            a.getpeername()
        with pytest.raises(oserrors.EINVAL):
            a.shutdown(99)


# -- misuse

CLOSED_CALLS = [
    ("recv", 1),
    ("recv", 0),
    ("read", 1),
    ("recv_exact", 1),
    ("recv_exact", 0),
    ("readv", [1]),
    ("recv_into", bytearray(1)),
    ("recvfrom", 1),
    ("recvfrom_into", bytearray(1)),
    ("recvmsg", 1),
    ("recvmsg_into", [bytearray(1)]),
    ("recv_fds", 1, 1),
    ("send", b"x"),
    ("send", b""),
    ("sendall", b"x"),
    ("write", b"x"),
    ("writev", [b"x"]),
    ("sendto", b"x", ("127.0.0.1", 1)),
    ("sendmsg", [b"x"]),
    ("sendfile", 0),
    ("accept",),
    ("accept_many",),
    ("connect", ("127.0.0.1", 1)),
    ("connect_addr", ("127.0.0.1", 1)),
    ("wait_for_read",),
    ("wait_for_write",),
    ("bind", ("127.0.0.1", 1)),
    ("listen",),
    ("shutdown", 2),
    ("setsockopt", 1, 1, 1),
    ("getsockopt", 1, 1),
    ("dup",),
    ("detach",),
    ("makefile",),
]


@pytest.mark.parametrize("call", CLOSED_CALLS, ids=lambda c: c[0])
@in_loop
def test_calls_on_a_closed_sock(call):
    s = coro.tcp_sock()
    s.close()
    s.close()
    with pytest.raises(coro.ClosedError) as e:
        getattr(s, call[0])(*call[1:])
    assert e.value.args == ()


def test_names_of_a_closed_sock():
    s = coro.tcp_sock()
    s.close()
    for method in (s.getsockname, s.getpeername):
        with pytest.raises(oserrors.EBADF):
            method()
    s.set_reuse_addr()


NEVER_BLOCK = ("bind", "listen", "shutdown", "setsockopt", "getsockopt", "dup", "detach", "makefile")
BLOCKING_CALLS = [c for c in CLOSED_CALLS if c[0] not in NEVER_BLOCK]


@pytest.mark.parametrize("call", BLOCKING_CALLS, ids=lambda c: c[0])
def test_blocking_calls_in_main(call):
    with coro.tcp_sock() as s:
        with pytest.raises(coro.YieldFromMain):
            getattr(s, call[0])(*call[1:])


@pytest.mark.parametrize("call", [*BLOCKING_CALLS, ("close",)], ids=lambda c: c[0])
@in_loop
def test_calls_from_another_os_thread(call):
    caught = []
    with coro.tcp_sock() as s:

        def other():
            try:
                getattr(s, call[0])(*call[1:])
            except BaseException as e:
                caught.append(e)

        t = threading.Thread(target=other)
        t.start()
        t.join()
        assert [type(e) for e in caught] == [coro.WrongThreadError]
        assert s.fd >= 0


@in_loop
def test_making_in_another_os_thread():
    coro.sleep_relative(0.001)                            # the poller has its own descriptors now
    for make in (coro.tcp_sock, coro.socketpair, lambda: coro.fd_sock(0)):
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(coro.WrongThreadError):
            coro.in_thread(make)
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_loop_in_another_os_thread_than_the_maker():
    a, b = coro.socketpair()
    seen = []

    def main():
        a.send(b"x")
        seen.append(b.recv(1))
        a.close()

    t = threading.Thread(target=coro.run, args=(main,))
    t.start()
    t.join()
    assert seen == [b"x"]
    assert a.closed
    b.close()


@pytest.mark.parametrize("call", BLOCKING_CALLS, ids=lambda c: c[0])
@in_loop
def test_calls_inside_no_switch(call):
    with coro.tcp_sock() as s, coro.no_switch():
        with pytest.raises(coro.NoSwitchError):
            getattr(s, call[0])(*call[1:])


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (("recv", -1), ValueError),
        (("recv", "1"), TypeError),
        (("recv", 2**70), OverflowError),
        (("recv_exact", -1), ValueError),
        (("recv_exact", None), TypeError),
        (("readv", 5), TypeError),
        (("readv", [1, -1]), ValueError),
        (("readv", ["x"]), TypeError),
        (("readv", [2**62, 2**62]), OverflowError),
        (("recv_into", b"immutable"), BufferError),
        (("recv_into", "x"), TypeError),
        (("recv_into", bytearray(3), 4), ValueError),
        (("recv_into", bytearray(3), -1), ValueError),
        (("recvfrom_into", bytearray(3), 4), ValueError),
        (("recvfrom", -1), ValueError),
        (("recvmsg", -1), ValueError),
        (("recvmsg", 1, -1), ValueError),
        (("recvmsg_into", [b"immutable"]), BufferError),
        (("recvmsg_into", bytearray(3)), TypeError),
        (("recvmsg_into", [bytearray(3)], -1), ValueError),
        (("recv_fds", 1, -1), ValueError),
        (("send", "text"), TypeError),
        (("send", None), TypeError),
        (("send", [b"x"]), TypeError),
        (("sendall", 5), TypeError),
        (("write", "x"), TypeError),
        (("writev", b"not a list"), TypeError),
        (("writev", ["x"]), TypeError),
        (("writev", [5]), TypeError),
        (("writev", 5), TypeError),
        (("writev", [memoryview(b"abcd")[::2]]), BufferError),
        (("sendto", "x", "y"), TypeError),
        (("sendmsg", b"x"), TypeError),
        (("sendmsg", [b"x"], [(1, 2)]), ValueError),
        (("sendmsg", [b"x"], [("a", 2, b"")]), TypeError),
        (("send_fds", b"x", ["y"]), TypeError),
        (("sendfile", 0, -1), ValueError),
        (("sendfile", 0, 0, -1), ValueError),
        (("sendfile", None), TypeError),
        (("accept_many", -1), ValueError),
        (("connect", 5), TypeError),
        (("listen", "x"), TypeError),
        (("shutdown", "x"), TypeError),
        (("makefile", "x"), ValueError),
        (("makefile", "rr"), ValueError),
        (("makefile", "r", 0), ValueError),
        (("makefile", "rb", -2), ValueError),
    ],
    ids=str,
)
@in_loop
def test_bad_arguments(call, error):
    a, b = coro.socketpair()
    with a, b:
        with pytest.raises(error):
            getattr(a, call[0])(*call[1:])
        assert a.send(b"fine") == 4             # nothing is left in disorder
        assert b.recv(10) == b"fine"


def test_the_c_module_of_the_standard_library_is_not_ours():
    assert coro._net.sock is not _socket
