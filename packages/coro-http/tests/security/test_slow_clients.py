"""slowhttptest, the program, against ``python -m coro.http serve``: heads, bodies and readers that take for ever, and a
normal client beside them that gets its answers. A few seconds of it here; `tools.dev soak http-slow` takes minutes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from real_programs import find_program

SECONDS = int(os.environ.get("CORO_HTTP_SLOW_SECONDS", "2"))
CONNECTIONS = int(os.environ.get("CORO_HTTP_SLOW_CONNECTIONS", "200"))

APP = """
def app(request):
    return request.read() or b"x" * 1_000_000
"""
#: What each mode adds: a line of a head every second, a piece of a body, a window of a few bytes.
MODES = {
    "head": ["-H", "-i", "1"],
    "body": ["-B", "-i", "1", "-s", "100000"],
    "read": ["-X", "-w", "10", "-y", "20", "-n", "1", "-z", "5"],
}


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    (folder / "slow_app.py").write_text(APP)
    command = [sys.executable, "-m", "coro.http", "serve", "slow_app:app", "--interface", "http", "--access-log", "off"]
    with open(folder / "log", "w+") as log:
        process = subprocess.Popen(
            [*command, "--app-dir", str(folder), "-b", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        first = process.stderr.readline()
        while first and " on http://" not in first:  # on a busy machine the loop says so first
            first = process.stderr.readline()
        drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=log)  # the pipe must not fill up
        try:
            found = re.search(r"on (http://[^, ]+)", first)
            assert found is not None, first
            yield found[1]
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(60)
            process.stderr.close()
            drain.wait(60)
        log.seek(0)
        said = log.read()
        assert code in (0, 130) and "Traceback" not in said, said
        # what is refused is told, but not a line for each of them
        assert said.count("refused") <= 100 * (2 + SECONDS // 10), said[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_slow_clients_keep_nobody_from_an_answer(mode: str, tmp_path: Path) -> None:
    program = find_program("slowhttptest", "slowhttptest")
    with serving(tmp_path) as url, open(tmp_path / "said", "w+") as report:
        attack = subprocess.Popen(
            [program, "-c", str(CONNECTIONS), "-r", str(CONNECTIONS), "-l", str(SECONDS), "-p", "60", *MODES[mode],
             "-u", url + "/"],
            stdout=report, stderr=subprocess.STDOUT,
        )  # fmt: skip
        answered = 0
        try:
            while attack.poll() is None:
                with urllib.request.urlopen(url, timeout=60) as answer:
                    assert len(answer.read()) == 1_000_000
                answered += 1
                try:
                    attack.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            attack.kill()
            attack.wait(60)
        report.seek(0)
        said = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", report.read())
        # The program asks, too, on a connection of its own.
        assert answered >= SECONDS and "service available:   YES" in said, said[-2000:]
        assert "service available:   NO" not in said
