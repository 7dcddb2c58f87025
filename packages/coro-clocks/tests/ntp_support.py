"""What the tests of SNTP share: servers that answer as the test says."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time

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


def replaced(packet, **changes):
    return dataclasses.replace(packet, **changes)
