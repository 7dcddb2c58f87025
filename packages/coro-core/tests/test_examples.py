"""The programs in docs/examples/*/: their own tests, and each of them used by somebody who knows nothing of its inside.

A program runs in a process of its own, its user is the test: plain blocking sockets, files, signals. Nothing waits for
time to pass. Each test takes about 0.3 s, a run of the program's own tests somewhat longer.
"""

from __future__ import annotations

import http.server
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
# Folders named for another package are examples of that one, whose tests run them.
OTHERS = {path.name.removeprefix("coro-") for path in EXAMPLES.parents[1].glob("packages/coro-*")}
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*/") if list(path.glob("*.py")) and path.name not in OTHERS)
PATIENCE = 60  # seconds; for a machine that is busy with other things

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the manual is in the repository only"),
]


def test_there_are_programs_and_each_is_used_here() -> None:
    text = Path(__file__).read_text()
    assert len(PROGRAMS) >= 4
    assert [name for name in PROGRAMS if f'{name}/' not in text] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_its_own_tests(name: str, tmp_path: Path) -> None:
    # Away from the settings and plugins of the repository: a reader has none of them.
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "coro.testing.pytest_plugin"]
    command += ["-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", "--confcutdir", ".", "."]
    command += ["--basetemp", str(tmp_path / "files")]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(
        command, cwd=EXAMPLES / name, env=env, capture_output=True, text=True, timeout=4 * PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def program(name: str, *arguments: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


class Member:
    """Somebody who has connected to the chat with a tool like netcat."""

    def __init__(self, port: int) -> None:
        self.conn = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.file = self.conn.makefile("rw", newline="")

    def type(self, text: str) -> None:
        self.file.write(f"{text}\n")
        self.file.flush()

    def read(self) -> str:
        return self.file.readline().rstrip("\r\n")

    def leave(self) -> None:
        self.file.close()
        self.conn.close()


def test_a_chat(tmp_path: Path) -> None:
    door = tmp_path / "door"
    with program("chat/chat.py", "--port", 0, "--door", door, "--grace", PATIENCE) as chat:
        words = line_of(chat).rpartition(" ")
        assert words[0] == "listening on port"
        ann, bob = Member(int(words[2])), Member(int(words[2]))
        assert ann.read() == "* your name?"
        ann.type("ann")
        ann.type("is anybody here?")
        assert ann.read() == "ann: is anybody here?"
        assert bob.read() == "* your name?"
        bob.type("bob")
        assert ann.read() == "* bob has come"
        ann.type("hello")
        assert ann.read() == bob.read() == "ann: hello"

        done = subprocess.run(
            [sys.executable, "-m", "coro.backdoor", str(door)],
            input="print(sorted(room.members))\nroom.say('* tea is ready')\n",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert "['ann', 'bob']" in done.stdout, done.stderr
        assert ann.read() == bob.read() == "* tea is ready"

        chat.send_signal(signal.SIGTERM)
        assert ann.read() == bob.read() == f"* the server ends in {PATIENCE} seconds"
        bob.leave()
        assert ann.read() == "* bob has left"
        ann.leave()
        out, err = chat.communicate(timeout=PATIENCE)
        assert (chat.returncode, out, err) == (0, "all have left\n", "")
        assert not door.exists()


def test_a_chat_sends_the_last_ones_away() -> None:
    with program("chat/chat.py", "--port", 0, "--grace", 0.1) as chat:
        ann = Member(int(line_of(chat).rpartition(" ")[2]))
        assert ann.read() == "* your name?"
        chat.send_signal(signal.SIGINT)
        assert ann.read() == ""
        ann.leave()
        out, err = chat.communicate(timeout=PATIENCE)
        assert (chat.returncode, out, err) == (0, "the last ones were sent away\n", "")


class Site(http.server.BaseHTTPRequestHandler):
    """A page with a link to one that exists and to one that is broken."""

    def do_GET(self) -> None:
        self.send_response({"/": 200, "/news": 200}.get(self.path, 500))
        self.end_headers()
        if self.path == "/":
            self.wfile.write(b'<a href="/news">news</a> <a href="/broken">broken</a>')

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def site() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


def test_a_crawl() -> None:
    with site() as start:
        with program("crawler/crawler.py", start, "--rate", 1000, "--attempts", 2, "--back-off", 0) as crawler:
            out, err = crawler.communicate(timeout=PATIENCE)
    assert out.splitlines() == [f"200 {start}", f"200 {start}news", f"--- {start}broken (status 500)"], err
    assert "\n3 done, 1 failed, 0 under way, 0 waiting" in err
    assert crawler.returncode == 1


def test_a_job_queue(tmp_path: Path) -> None:
    with program("job_queue/jobs.py", tmp_path / "jobs", "--workers", 2, "--grace", 0.1) as queue:
        inbox = tmp_path / "jobs" / "inbox"
        assert line_of(queue) == f"waiting for jobs in {inbox}"
        for name, script in [("good", "echo fine"), ("bad", "exit 1")]:
            (tmp_path / f"{name}.job").write_text(script)
            (tmp_path / f"{name}.job").rename(inbox / f"{name}.job")
        assert sorted([line_of(queue), line_of(queue)]) == ["bad.job: failed", "good.job: done"]
        assert (inbox.parent / "done" / "good.log").read_text() == "fine\n"

        os.mkfifo(tmp_path / "begun")
        (tmp_path / "long.job").write_text(f"echo begun > {tmp_path / 'begun'}; sleep 600")
        (tmp_path / "long.job").rename(inbox / "long.job")
        assert (tmp_path / "begun").read_text() == "begun\n"
        queue.send_signal(signal.SIGTERM)
        out, err = queue.communicate(timeout=PATIENCE)
        assert (queue.returncode, out, err) == (0, "", "")
        assert [path.name for path in inbox.iterdir()] == ["long.job"]


def greet_once(listener: socket.socket) -> None:
    conn, _ = listener.accept()
    with conn:
        conn.sendall(b"220 ready\r\n")


@pytest.mark.parametrize("version", ["coro", "gevent"])
def test_a_program_for_gevent_and_what_became_of_it(version: str) -> None:
    if importlib.util.find_spec(version) is None:
        pytest.skip("gevent is not installed")
    with socket.create_server(("127.0.0.1", 0)) as speaks, socket.socket() as refuses:
        refuses.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=greet_once, args=(speaks,))
        thread.start()
        targets = [f"127.0.0.1:{s.getsockname()[1]}" for s in (speaks, refuses)]
        with program(f"from_gevent/checker_{version}.py", *targets, "--rounds", 100, "--pause", PATIENCE) as checker:
            lines = sorted([line_of(checker), line_of(checker)], key=lambda line: "ready" not in line)
            assert lines[0] == f"{targets[0]}: 220 ready"
            assert lines[1].startswith(f"{targets[1]}: ") and "refused" in lines[1].lower()
            checker.send_signal(signal.SIGTERM)
            out, err = checker.communicate(timeout=PATIENCE)
            assert (checker.returncode, out, err) == (0, "", "")
        thread.join()
