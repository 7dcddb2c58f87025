"""Runs every program of the tutorial and the manual the way a reader would: in a process of its own.

The servers are told to take any free port and print which. Nothing waits for time to pass, except where that
is the point: the idle limit of one server (50 ms), the watchdog of one example (0.2 s). The start of each
process takes about 0.07 s.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import coro.profiler

DOCS = Path(__file__).resolve().parents[3] / "docs"
TUTORIAL = DOCS / "tutorial"
EXAMPLES = DOCS / "examples"
PATIENCE = 60  # seconds; for a machine that is busy with other things

pytestmark = pytest.mark.skipif(not TUTORIAL.is_dir(), reason="the manual is in the repository only")


def command(name: str, *arguments: Any) -> list[str]:
    return [sys.executable, str(TUTORIAL / name), *map(str, arguments)]


def run(name: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(name, *arguments), capture_output=True, text=True, timeout=PATIENCE)


class Server:
    """A running server program: its port, and later what it said after that."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def end(self, signum: int | None = signal.SIGINT) -> tuple[int, str, str]:
        """Send the signal, if any, and wait: exit status, rest of stdout, stderr."""
        if signum is not None:
            self.process.send_signal(signum)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


@contextmanager
def server(name: str, *arguments: Any) -> Iterator[Server]:
    process = subprocess.Popen(
        command(name, *arguments, "--port", 0), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("listening on port "):
                process.kill()
                err = process.communicate()[1]
                pytest.fail(f"expected {name} to say where it listens, got {line!r} and {err!r}")
            yield Server(process, int(line.split()[-1]))
        finally:
            if process.poll() is None:
                process.kill()


def read_all(s: socket.socket) -> bytes:
    return b"".join(iter(lambda: s.recv(65536), b""))


def test_every_program_is_tested() -> None:
    tested = Path(__file__).read_text()
    programs = sorted(p.name for p in TUTORIAL.glob("*.py"))
    assert len(programs) >= 7
    assert [name for name in programs if f'"{name}"' not in tested] == []


def test_hello_threads_take_turns() -> None:
    done = run("hello.py", "--count", 2, "--times", 2)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "spawned 2 threads, none has run yet",
        "hello from thread 1, turn 1",
        "hello from thread 2, turn 1",
        "hello from thread 1, turn 2",
        "hello from thread 2, turn 2",
        "4 greetings",
    ]


def test_a_thousand_sleepers_sleep_at_the_same_time() -> None:
    done = run("sleepers.py", "--count", 1000, "--seconds", 0.1)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "*" * 1000 + "\n"
    assert done.stdout.startswith("1000 threads woke up, ")


def test_echo_server_serves_several_clients_and_ends_with_ctrl_c() -> None:
    with server("echo_server.py") as echo:
        with echo.connect() as first, echo.connect() as second:
            second.sendall(b"second")
            first.sendall(b"first")
            assert first.recv(100) == b"first"
            assert second.recv(100) == b"second"
            first.sendall(b"more" * 10_000)
            first.shutdown(socket.SHUT_WR)
            assert read_all(first) == b"more" * 10_000
            status, out, err = echo.end()
            assert (status, out, err) == (0, "stopped\n", "")
            assert second.recv(100) == b""  # the session was ended in order, which closes its connection


def test_plain_sockets_serve_as_well() -> None:
    with server("plain_sockets.py") as plain:
        with plain.connect() as first, plain.connect() as second:
            second.sendall(b"second")
            first.sendall(b"first")
            assert first.recv(100) == b"first"
            assert second.recv(100) == b"second"
            status, out, err = plain.end()
            assert (status, out) == (0, "")
            assert "Exiting..." in err
            assert second.recv(100) == b""


def test_a_hundred_clients_against_the_echo_server() -> None:
    with server("echo_server.py") as echo:
        done = run("echo_client.py", "--port", echo.port, "--count", 100, "--messages", 10)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "100 clients done, 1000 messages echoed\n"
        assert done.stderr == "." * 100 + "\n"
        assert echo.end() == (0, "stopped\n", "")


def test_client_says_what_went_wrong() -> None:
    with socket.socket() as reserved:  # bound and not listening: connections to it are refused
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        done = run("echo_client.py", "--port", port, "--count", 2)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == f"[Errno 111] cannot connect to 127.0.0.1:{port} (127.0.0.1:{port}: Connection refused)\n"


def test_polite_server_hangs_up_on_silence() -> None:
    with server("polite_server.py", "--idle", 0.05) as polite:
        with polite.connect() as s:
            assert read_all(s) == b"too slow, bye\r\n"
        status, out, err = polite.end(signal.SIGTERM)
        assert (status, out) == (0, "no longer listening\n"), err


def test_polite_server_ends_when_told_to() -> None:
    with server("polite_server.py", "--idle", PATIENCE) as polite:
        with polite.connect() as s, polite.connect() as bystander:
            bystander.sendall(b"hello\r\n")  # whom the server has not accepted yet, the kernel resets in the end
            assert bystander.recv(100) == b"hello\r\n"
            s.sendall(b"quit\r\n")
            assert read_all(s) == b"quit\r\n"
            assert read_all(bystander) == b""
        status, out, err = polite.end(signum=None)
        assert (status, out) == (0, "no longer listening\n"), err


def test_proxy_shows_both_directions() -> None:
    with server("echo_server.py") as echo, server("proxy.py", "127.0.0.1", echo.port) as proxy:
        with proxy.connect() as s:
            s.sendall(b"spy on me")
            assert s.recv(100) == b"spy on me"
            s.shutdown(socket.SHUT_WR)  # goes through the proxy to the server, whose end comes back
            assert s.recv(100) == b""
        status, out, err = proxy.end()
        assert (status, err) == (0, "")
        assert out.splitlines() == [
            "==> 1 b'spy on me'",
            "<== 1 b'spy on me'",
            "==> 1 b''",
            "<== 1 b''",
            "stopped",
        ]
        assert echo.end() == (0, "stopped\n", "")


def example(name: str, *arguments: Any) -> list[str]:
    return [sys.executable, str(EXAMPLES / name), *map(str, arguments)]


def test_every_example_is_tested() -> None:
    tested = Path(__file__).read_text()
    # In test_backdoor_client.py and test_testing_plugin.py.
    elsewhere = {"record_backdoor.py", "stuck.py", "test_fetch.py"}
    programs = sorted(p.name for p in EXAMPLES.glob("*.py"))
    assert [name for name in programs if f'"{name}"' not in tested and name not in elsewhere] == []
    assert EXAMPLES.is_dir()


@pytest.mark.slow
def test_the_profiled_shop_says_how_to_start_it() -> None:
    done = subprocess.run(example("profile_shop.py"), capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("usage: python profile_shop.py PROFILE")


@pytest.mark.slow
def test_the_slow_function_of_a_server_is_found_by_the_profiler(tmp_path: Path) -> None:
    done = subprocess.run(
        example("profile_shop.py", tmp_path / "shop.bin"), capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    functions = coro.profiler.load(tmp_path / "shop.bin").functions
    own = {name.split(":")[1]: (calls, ticks[0]) for name, (calls, ticks, _) in functions.items() if "shop.py" in name}
    assert own["search"][0] == 200
    assert own["distance"][1] == max(ticks for _, ticks in own.values())


def test_interruptions_are_delivered_where_the_manual_says() -> None:
    done = subprocess.run(example("interruptions.py"), capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "interrupted, some of it went out: True",
        "too slow",
        "expired: True",
        "cleaned up",
        "ended by Shutdown",
    ]


def test_other_os_threads_take_and_bring_work() -> None:
    done = subprocess.run(example("other_os_threads.py"), capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "in_thread: 49",
        "the other thread went on meanwhile: True",
        "post: a message from outside",
    ]


def test_a_signal_asks_where_the_threads_are() -> None:
    with subprocess.Popen(
        example("where_on_signal.py"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGUSR1)
            lines = [process.stderr.readline() for _ in range(4)]
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert [" ".join(line.split()[:2]) for line in lines] == ["1 main", "2 reader", "3 sleeper", "4 report"]
    assert "where_on_signal.py main|" in lines[0]
    assert "('read', " in lines[1]
    assert (process.returncode, out, err) == (0, "stopped\n", "")


def test_an_echo_server_on_two_processes() -> None:
    with subprocess.Popen(
        example("prefork_echo.py", "--port", 0, "--workers", 2),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("listening on port ")
            with socket.create_connection(("127.0.0.1", int(line.split()[-1])), timeout=PATIENCE) as s:
                s.sendall(b"several processes")
                assert s.recv(100) == b"several processes"
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "2 workers started, 0 failed\n", "")


def test_a_dump_of_the_wrong_kind_of_lock_names_the_line() -> None:
    source = (EXAMPLES / "lock_over_switch.py").read_text().splitlines()
    wanted = 1 + next(n for n, line in enumerate(source) if line.startswith("    with lock:  # stops"))
    done = subprocess.run(
        example("lock_over_switch.py", "--seconds", 0.2), capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 1, "the process stands still until the watchdog of faulthandler ends it"
    assert f'lock_over_switch.py", line {wanted} in waiter' in done.stderr
