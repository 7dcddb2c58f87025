"""The class sock and files: pipes, terminals and regular files as socks, sendfile, and file objects over socks."""

import io
import os
import pty
import socket
import tty

import pytest
from sockets_support import pattern, tcp_pair
from support import in_loop

import coro
from coro import oserrors

pytestmark = pytest.mark.poller


# -- other descriptors


@in_loop
def test_pipes():
    r, w = os.pipe()
    reader, writer = coro.fd_sock(r), coro.fd_sock(w)
    data = pattern(500_000)
    t = coro.spawn(lambda: (writer.write(data), writer.writev([data, b"end"]), writer.close()))
    assert reader.recv_exact(500_000) == data
    assert b"".join(reader.readv([500_000, 3])) == data + b"end"
    assert reader.recv(1) == b""
    t.join()
    with pytest.raises(oserrors.ENOTSOCK):
        reader.recv(1, socket.MSG_PEEK)
    reader.close()


@in_loop
def test_the_end_of_a_pipe_wakes_its_reader():
    r, w = os.pipe()
    reader = coro.fd_sock(r)
    coro.spawn(os.close, w)
    assert reader.recv(10) == b""
    reader.close()


@in_loop
def test_writing_to_a_pipe_without_reader():
    r, w = os.pipe()
    with coro.fd_sock(w) as writer:
        t = coro.spawn(lambda: (coro.yield_slice(), os.close(r)))
        with pytest.raises(oserrors.EPIPE):
            writer.write(b"x" * 1_000_000)
        t.join()


@pytest.fixture
def terminals():
    try:
        return pty.openpty()
    except OSError as e:
        pytest.skip(f"no terminals here: {e}")


@in_loop
def test_terminals(terminals):
    main_end, terminal = terminals
    tty.setraw(terminal)
    a, b = coro.fd_sock(main_end), coro.fd_sock(terminal)
    t = coro.spawn(lambda: a.write(b"typed"))
    assert b.recv_exact(5) == b"typed"
    b.write(b"shown")
    assert a.read(100) == b"shown"
    t.join()
    b.close()
    with pytest.raises(oserrors.EIO):
        a.read(1)
    a.close()


@in_loop
def test_regular_files(tmp_path):
    coro.current().set_max_selfish_acts(1)
    with coro.file_sock(open(tmp_path / "f", "w+b", buffering=0)) as s:
        for _ in range(5):
            s.write(b"0123456789")
        s.wait_for_write()
    with coro.fd_sock(os.open(tmp_path / "f", os.O_RDONLY)) as s:
        s.wait_for_read()
        got = b""
        while chunk := s.read(7):
            got += chunk
        assert got == b"0123456789" * 5
        assert s.read(7) == b""


# -- sendfile


@pytest.fixture
def big_file(tmp_path):
    path = tmp_path / "big"
    path.write_bytes(pattern(3_000_000))
    return path


@pytest.mark.parametrize("make", [tcp_pair, coro.socketpair])
@in_loop
def test_sendfile(make, big_file):
    data = pattern(3_000_000)
    a, b = make()
    with a, b, open(big_file, "rb") as file:
        for call, expected in (
            (lambda: a.sendfile(file), data),
            (lambda: a.sendfile(file.fileno(), 2_999_000), data[2_999_000:]),
            (lambda: a.sendfile(file, 10, 100), data[10:110]),
            (lambda: a.sendfile(file, offset=1_000_000, count=10**9), data[1_000_000:]),
            (lambda: a.sendfile(file, 4_000_000), b""),
            (lambda: a.sendfile(file, 0, 0), b""),
        ):
            sent = []
            t = coro.spawn(lambda call=call, sent=sent: sent.append(call()))
            assert b.recv_exact(len(expected)) == expected
            t.join()
            assert sent == [len(expected)]
        a.sendfile(file, 10, 100)
        assert file.tell() == 110


@in_loop
def test_sendfile_of_other_things(big_file):
    data = pattern(200_000)
    a, b = coro.socketpair()
    c, d = coro.socketpair()
    r, w = os.pipe()
    p, q = os.pipe()
    with a, b, c, d:
        # from memory
        t = coro.spawn(lambda: a.sendfile(io.BytesIO(data), 5, 100_000))
        assert b.recv_exact(100_000) == data[5:100_005]
        t.join()
        # from a pipe: what comes until its end
        t = coro.spawn(lambda: a.sendfile(r))
        with coro.fd_sock(w) as writer:
            writer.write(data)
        assert b.recv_exact(len(data)) == data
        t.join()
        # from a sock
        t = coro.spawn(lambda: a.sendfile(c, count=len(data)))
        u = coro.spawn(d.send, data)
        assert b.recv_exact(len(data)) == data
        t.join()
        u.join()
        # to a pipe
        with coro.fd_sock(p) as reader, coro.fd_sock(q) as writer, open(big_file, "rb") as file:
            t = coro.spawn(lambda: writer.sendfile(file))
            assert reader.recv_exact(3_000_000) == pattern(3_000_000)
            t.join()
        with pytest.raises(oserrors.EBADF):
            a.sendfile(987654)
        with open(big_file, "rb") as file, pytest.raises(oserrors.EPIPE):
            b.close()
            a.sendfile(file)
    os.close(r)


# -- file objects


@in_loop
def test_makefile():
    a, b = tcp_pair()
    with a, b:
        with a.makefile("rw", encoding="utf-8", newline="\n") as file, b.makefile("rwb") as other:
            file.write("gr\xfc\xdfe\n")
            file.flush()
            assert other.readline() == "gr\xfc\xdfe\n".encode()
            other.write(b"one\ntwo\nthree")
            other.flush()
            assert file.readline() == "one\n"
            assert file.readline() == "two\n"
        # closing the files leaves the socks open
        b.send(b"x")
        assert a.recv(1) == b"x"
        with a.makefile("rb", buffering=0) as raw, b.makefile("w", buffering=100) as text:
            assert raw.readable()
            assert not raw.writable()
            assert raw.fileno() not in (a.fd, b.fd)
            text.write("hello")
            text.flush()
            buffer = bytearray(10)
            assert raw.readinto(buffer) == 5
            with pytest.raises(io.UnsupportedOperation):
                raw.write(b"x")
        with b.makefile("wb", 0) as raw:
            assert raw.write(b"direct") == 6
            with pytest.raises(io.UnsupportedOperation):
                raw.readinto(bytearray(1))
        with a.makefile() as file:
            assert file.read(6) == "direct"
            b.close()
            assert file.read() == ""


@in_loop
def test_makefile_blocks_only_its_thread():
    a, b = coro.socketpair()
    lines = []

    def read():
        with a.makefile("rb") as file:
            lines.extend(file)

    t = coro.spawn(read)
    for i in range(5):
        coro.yield_slice()
        b.send(b"line %d\n" % i)
    b.close()
    t.join()
    assert lines == [b"line %d\n" % i for i in range(5)]
    a.close()
