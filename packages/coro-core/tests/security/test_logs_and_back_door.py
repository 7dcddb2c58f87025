"""Known kinds of attack, tried on what takes bytes from elsewhere here: logs (read by catlog, written to syslog and
text files) and the back door. What a hostile terminal does to a session is in test_backdoor.py."""

import io
import os
import socket
import tracemalloc

import pytest

import coro
from coro import backdoor, log
from coro.log import _ber, asn1, catlog

HOSTILE = "x\r\n2026-01-01T00:00:00 'root' 'logged in'\x1b]0;title\x07\x00\x9b31m\u2028"


class Hostile:
    def __repr__(self):
        return HOSTILE


@pytest.mark.parametrize("item", [HOSTILE, Hostile(), HOSTILE.encode(), {HOSTILE: [Hostile()]}])
def test_log_injection(item, tmp_path):
    out = io.StringIO()
    log.FileLogger(out).log(item)
    text = out.getvalue()
    assert text.count("\n") == 1 and text.endswith("\n") and text[:-1].isprintable()

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str(tmp_path / "log"))
        logger = log.SysLogger(str(tmp_path / "log"))
        logger.log(item)
        logger.close()
        packet = daemon.recv(10_000)
    assert packet.endswith(b"\0") and b"\0" not in packet[:-1] and b"\n" not in packet

    binary = io.BytesIO()
    asn1.Logger(binary).log(item)
    binary.seek(0)
    ((size, when, items),) = asn1.gen_log(binary)
    assert catlog.line_of(size, when, items).isprintable()


def test_nesting_bomb():
    # Depth is limited before the interpreter's own limit is near: 2 bytes a level cost nothing to send.
    data = b""
    for _ in range(20_000):
        data = _ber._element(0x30, data) if len(data) < 60_000 else data
    with pytest.raises(_ber.DecodeError, match="deep"):
        _ber.decode(data)


@pytest.mark.parametrize("tag", [b"\x02", b"\x04", b"\x0c", b"\x30", b"\xa1", b"\x83"])
def test_length_checked_against_the_bytes_there_before_allocating(tag):
    data = tag + b"\x84\x0f\xff\xff\xff" + b"x" * 100
    record = asn1.MAGIC + b"\x0f\xff\xff\xff" + data
    tracemalloc.start()
    try:
        with pytest.raises(_ber.DecodeError):
            _ber.decode(data)
        assert list(asn1.gen_log(io.BytesIO(record))) == []
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_long_tags_and_indefinite_lengths_are_refused():
    for data in (b"\x1f\x80\x80\x80\x01\x00", b"\x30\x80\x05\x00\x00\x00", b"\x02\x89" + b"\x00" * 9, b"\x09\x01\x40"):
        with pytest.raises(_ber.DecodeError):
            _ber.decode(data)


def test_symlink_where_the_socket_goes(tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "door").symlink_to(tmp_path / "precious")
    with pytest.raises(FileExistsError):
        backdoor.Server(unix_path=tmp_path / "door")
    assert (tmp_path / "precious").read_text() == "kept"
    assert os.path.islink(tmp_path / "door")


def test_guessing_the_token(leaves_nothing, monkeypatch):
    monkeypatch.setattr("coro.backdoor._strangers.FIRST_PAUSE", 0.001)
    seen = []

    def main():
        server = backdoor.start(0, token="secret", global_dict={"seen": seen})
        for guess in ("", "secre", "secrets", "Secret", "\ud800", "secretsecret"):
            peer = coro.tcp_sock()
            peer.connect(server.address)
            peer.send(guess.encode("utf-8", "surrogatepass") + b"\nseen.append(1)\n")
            got = b""
            while data := peer.recv(1000):
                got += data
            assert b"wrong token" in got and b"Python" not in got
            peer.close()
        server.close()
        coro.sleep_relative(0)

    coro.run(lambda: coro.with_timeout(60, main))
    assert seen == []
