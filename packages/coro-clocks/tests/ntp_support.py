"""What the tests of SNTP share: servers that answer as the test says, and a real one as a child of the test."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest

from coro.clocks.sntp_packet import SERVER, Packet, decode, encode, from_posix_ns

#: What a decent server says, 7 seconds ahead of this machine.
AHEAD = 7.0


def honest(question, ahead=AHEAD, **changes):
    """The answer of a decent server, with what the test changes about it."""
    now = from_posix_ns(time.time_ns() + round(ahead * 1e9))
    fields = {
        "mode": SERVER,
        "stratum": 2,
        "precision": -20,
        "root_delay": 100,
        "root_dispersion": 100,
        "reference_id": b"\x7f\0\0\1",
        "reference": now - (1 << 32),
        "originate": question.transmit,
        "receive": now,
        "transmit": now,
    }
    return Packet(**{**fields, **changes})


class Server:
    """An NTP server in an OS thread: `answer(question)` gives packets, bytes, or pairs (socket, packet or bytes)."""

    def __init__(self, answer):
        self.answer = answer
        self.questions = []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.other.bind(("127.0.0.1", 0))
        self.address = self.socket.getsockname()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while True:
            data, peer = self.socket.recvfrom(2048)
            if data == b"end":
                return
            question = decode(data)
            self.questions.append(question)
            for each in self.answer(question):
                via, what = each if isinstance(each, tuple) else (self.socket, each)
                via.sendto(encode(what) if isinstance(what, Packet) else what, peer)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exc):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto(b"end", self.address)
        self.thread.join()
        self.socket.close()
        self.other.close()


def server(**changes):
    """A decent server, with what the test changes about its answers."""
    return Server(lambda question: [honest(question, **changes)])


def free_udp_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def chrony(folder):
    """A chronyd on loopback that never touches the system's clock; gives its port."""
    program = shutil.which("chronyd") or shutil.which("chronyd", path="/usr/sbin:/sbin")
    if program is None:
        reason = "no chronyd: install chrony"
        pytest.fail(reason) if os.environ.get("CORO_REQUIRE_SERVERS") == "1" else pytest.skip(reason)
    if not sys.platform.startswith("linux") or os.getuid() != 0:
        pytest.skip("chronyd starts as root only")
    port = free_udp_port()
    settings = folder / "chrony.conf"
    settings.write_text(
        f"local stratum 3\nport {port}\ncmdport 0\nbindaddress 127.0.0.1\nallow 127.0.0.1\n"
        f"pidfile {folder}/pid\nbindcmdaddress /\n"
    )
    with open(folder / "log", "wb") as log:
        child = subprocess.Popen([program, "-d", "-x", "-u", "root", "-f", str(settings)], stdout=log, stderr=log)
    try:
        question = encode(Packet(transmit=1))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(("127.0.0.1", port))
            s.settimeout(1)
            for _ in range(400):
                assert child.poll() is None, (folder / "log").read_text()
                with contextlib.suppress(OSError):  # refused while it starts
                    s.send(question)
                    if decode(s.recv(1024)).leap != 3:
                        break
                time.sleep(0.025)
            else:
                pytest.fail("chronyd did not answer within ten seconds: " + (folder / "log").read_text())
        yield port
    finally:
        child.terminate()
        child.wait(20)


def replaced(packet, **changes):
    return dataclasses.replace(packet, **changes)
