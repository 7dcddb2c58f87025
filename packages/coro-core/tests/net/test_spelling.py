"""An address that is written in another way than coro takes it is refused with the right spelling."""

import re

import pytest
from support import in_loop

import coro
from coro._net.spelling import host_and_port, spelled


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("localhost:80", ("localhost", 80)),
        (":8080", ("", 8080)),
        ("[::1]:8080", ("::1", 8080)),
        ("tcp://host:1/", ("host", 1)),
        (b"host:1", ("host", 1)),
        (["host", 1], ("host", 1)),
        (8080, ("", 8080)),
        ("host:70000", None),
        ("::1", None),
        ("host", None),
        ("/run/a:1", None),
        ("./a:1", None),
        (b"\xff:1", None),
        (["host", "1"], None),
        (["host", True], None),
        (["a", 1, 2], None),
        (None, None),
        (True, None),
    ],
)
def test_what_was_meant(given, meant):
    assert host_and_port(given) == meant
    assert spelled(given) == ("" if meant is None else f"; write {meant!r}")


@in_loop
def test_sockets_say_how_an_address_is_written():
    right = re.escape("write ('127.0.0.1', 8080)")
    for make in (coro.tcp_sock, coro.udp_sock):
        with make() as s:
            calls = [s.bind, s.connect, s.connect_addr] if make is coro.tcp_sock else [s.bind, s.connect]
            for call in calls:
                for wrong in ("127.0.0.1:8080", ["127.0.0.1", 8080]):
                    with pytest.raises(TypeError, match=right):
                        call(wrong)
    with coro.udp_sock() as s, pytest.raises(TypeError, match=right):
        s.sendto(b"x", "127.0.0.1:8080")


@in_loop
def test_connect_says_how_an_address_is_written():
    for wrong in ("127.0.0.1:8080", b"127.0.0.1:8080"):
        with pytest.raises(ValueError, match=re.escape("write coro.connect('127.0.0.1', 8080), or './127.0.0.1:8080'")):
            coro.connect(wrong)
    with pytest.raises(ValueError, match=re.escape("write coro.connect('localhost', 8080)")):
        coro.connect("localhost:8080", 8080)
    with pytest.raises(TypeError, match=re.escape("write ('127.0.0.1', 8080)")):
        coro.connect(["127.0.0.1", 8080])


@in_loop
def test_a_name_without_a_port_is_a_path():
    with pytest.raises(FileNotFoundError, match="as the path of a UNIX socket, which it is without a port"):
        coro.connect("no-such-host-or-path")


@in_loop
def test_servers_say_how_an_address_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def handler(conn, address):
        """Never called."""

    right = re.escape("write ('127.0.0.1', 8080)")
    for wrong in ("127.0.0.1:8080", b"127.0.0.1:8080"):
        with pytest.raises(ValueError, match=right + ", or './127.0.0.1:8080' for a path"):
            coro.Server(handler, wrong)
    with pytest.raises(TypeError, match=right):
        coro.Server(handler, ["127.0.0.1", 8080])
    with pytest.raises(TypeError, match=right):
        coro.Server(handler, (8080, "127.0.0.1"))
    with pytest.raises(TypeError, match=re.escape("write ('', 8080)")):
        coro.serve(handler, 8080)
    assert not list(tmp_path.iterdir())
    with coro.Server(handler, "./127.0.0.1:8080"):
        assert (tmp_path / "127.0.0.1:8080").is_socket()
