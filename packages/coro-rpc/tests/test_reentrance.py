"""Code of a program that runs while a packet is put, and streams that do not do what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import rpc_samples

import coro
from coro.rpc import packet_stream
from coro.rpc.exceptions import ConnectionLost, LocalError


class Greedy(rpc_samples.Stream):
    """A stream that gives more than it is asked for."""

    def recv(self, size: int, flags: int = 0) -> bytes:
        return b"x" * (size + 1)


def run(test: Any) -> None:
    coro.run(coro.with_timeout, 60, test)


def test_a_stream_that_gives_more_than_it_is_asked_for() -> None:
    def main() -> None:
        packets = packet_stream.PacketStream(Greedy())
        packets.start()
        packets.wait_closed()
        assert isinstance(packets.error, ConnectionLost)
        assert "bytes of the stream's recv()" in str(packets.error)

    run(main)


def test_a_packet_stream_is_initialised_once() -> None:
    def main() -> None:
        packets = rpc_samples.packets()
        with pytest.raises(RuntimeError, match="cannot be initialised twice: make a new one"):
            packets.__init__(rpc_samples.Stream())
        packets.abort()

    run(main)


@pytest.mark.parametrize("name", ["_read_all", "_write_all"])
def test_nobody_else_is_the_reader_or_the_writer(name: str) -> None:
    def main() -> None:
        packets = rpc_samples.packets()
        with pytest.raises(LocalError, match="is the packet stream's own"):
            getattr(packets, name)()
        packets.abort()

    run(main)


DROPPED = """
import coro, rpc_samples

def main():
    packets = rpc_samples.packets()
    for i in range(100):
        packets.begin(b"x", timeout=0.001 * (i + 1))
    while packets.statistics().timeouts < 100:
        coro.sleep_relative(0.001)
    assert packets.statistics().outstanding == 0
    packets.abort()
    print("done")

coro.run(main)
"""


def test_the_limit_of_a_request_whose_handle_was_dropped() -> None:
    """The table of requests has the only reference, which goes in the midst of the end."""
    done = subprocess.run(
        [sys.executable, "-c", DROPPED],
        env={**os.environ, "PYTHONMALLOC": "debug", "PYTHONPATH": str(Path(rpc_samples.__file__).parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "done\n", done.stderr
