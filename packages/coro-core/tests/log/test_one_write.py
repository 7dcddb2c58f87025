"""Each report of several lines is one write(2), so that those of processes and OS threads do not mix. The stream is a
datagram socket: each write comes as a message of its own."""

import socket
import subprocess
import sys

import pytest
from support import LIMIT

REPORTS = {
    "traceback": ("def fail():\n    raise ValueError('a\\nb')\ncoro.spawn(fail); coro.event_loop()", 5),
    "record": ("import coro.log\ncoro.log.log('a\\nb', [1] * 3000)", 1),
    "print_stderr": ("coro.print_stderr('a\\nb\\nc')", 3),
    "write_stderr": ("coro.write_stderr('a\\n' * 5000)", 5000),
    "notifier": (
        "def broken():\n    raise KeyError('k')\ncoro.set_exception_notifier(broken)\n"
        "coro.spawn(lambda: 1 / 0); coro.event_loop()",
        None,
    ),
}


@pytest.mark.parametrize("option", [[], ["-u"]], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("name", REPORTS)
def test_one_write(name, option):
    program, lines = REPORTS[name]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        with subprocess.Popen([sys.executable, *option, "-c", "import coro\n" + program], stderr=theirs) as process:
            theirs.close()
            ours.settimeout(LIMIT)
            messages = list(iter(lambda: ours.recv(1 << 20), b""))
            assert process.wait(LIMIT) == 0
    messages = [message for message in messages if b"Exiting..." not in message]
    assert all(message.endswith(b"\n") for message in messages)
    if lines is None:  # what the notifier raised, and what it was called for: a block each
        assert [message.count(b"Traceback") for message in messages] == [1, 1], messages
    else:
        assert len(messages) == 1, messages
        assert messages[0].count(b"\n") >= lines
