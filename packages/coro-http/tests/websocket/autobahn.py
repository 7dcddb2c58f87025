"""Autobahn's test suite for WebSocket against our server and our client: ``python autobahn.py --cases '12.*' '13.*'``.

    [tool.coro.soaks.http-autobahn]         all of it, compression included
    test_autobahn.py                        a sample, where ``wstest`` is installed

The suite runs under Python 2.7 only. ``wstest`` is taken from the variable CORO_WSTEST or the path; without it an
environment is made below ``.dev`` (half a minute, needs Python 2.7 and the package index). A case is good if the suite
calls it OK or INFORMATIONAL, or NON-STRICT where the table below has the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coro
from coro import http
from coro.http import websocket

ROOT = Path(__file__).resolve().parents[4]
#: One or two of each kind: sizes, windows, context takeover, fragments.
SAMPLE = ["1.*", "2.*", "5.*", "7.1.*", "12.1.1", "12.2.3", "12.3.2", "12.4.4", "12.5.1", "13.1.2", "13.3.3",
          "13.4.1", "13.5.2", "13.6.1", "13.7.1"]  # fmt: skip
#: Cases that may be NON-STRICT, and why.
NON_STRICT: dict[str, str] = {}
AGENT = "coro"
#: What the suite sends at most.
MOST = 32 << 20


def find_wstest() -> str | None:
    """The program, or None."""
    return os.environ.get("CORO_WSTEST") or shutil.which("wstest")


def make_wstest() -> str:
    """The program in an environment of its own; SystemExit if there is no Python 2.7."""
    folder = ROOT / ".dev" / "autobahn"
    program = folder / "bin" / "wstest"
    if program.exists():
        return str(program)
    # What pyenv has on the path only says that no such version is chosen.
    places = [shutil.which("python2.7"), *map(str, Path.home().glob(".pyenv/versions/2.7.*/bin/python2.7"))]
    found = next(
        (place for place in places if place and not subprocess.call([place, "-c", ""], stderr=subprocess.DEVNULL)), None
    )
    if found is None:
        raise SystemExit("needs Python 2.7, on the path or of pyenv: Autobahn's test suite runs under no other")
    helper = folder.with_name("autobahn-virtualenv")
    for command in (
        [sys.executable, "-m", "venv", str(helper)],
        # the last that makes environments for Python 2.7
        [str(helper / "bin" / "pip"), "install", "-q", "virtualenv<20.22", "setuptools"],
        [str(helper / "bin" / "virtualenv"), "-q", "-p", found, str(folder)],
        [str(folder / "bin" / "pip"), "install", "-q", "autobahntestsuite"],
    ):
        print("$", *command, flush=True)
        subprocess.run(command, check=True)
    return str(program)


@contextlib.contextmanager
def running(program: str, mode: str, folder: Path, settings: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """The suite in one of its modes."""
    (folder / "settings.json").write_text(json.dumps(settings | {"outdir": str(folder / "reports")}))
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [program, "-m", mode, "-s", str(folder / "settings.json")],
            cwd=folder, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait()


def against_server(program: str, cases: list[str], folder: Path) -> None:
    """The suite is the client."""

    def echo(ws: Any) -> None:
        for message in ws:
            ws.send(message)

    limits = {"max_message": MOST, "max_inflated": MOST, "max_fragments": None}
    handler = websocket.endpoint(echo, deflate=True, origins=None, ping_interval=None, **limits)
    with http.server(handler, ("127.0.0.1", 0)) as server:
        place = {"agent": AGENT, "url": f"ws://127.0.0.1:{server.port}"}
        with running(program, "fuzzingclient", folder, {"servers": [place], "cases": cases}) as process:
            if coro.in_thread(process.wait) != 0:
                raise SystemExit((folder / "log").read_text())


def against_client(program: str, cases: list[str], folder: Path) -> None:
    """The suite is the server."""
    with coro.tcp_sock() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"ws://127.0.0.1:{port}"
    options = {"max_message": MOST, "max_inflated": MOST, "max_fragments": None, "ping_interval": None}
    with running(program, "fuzzingserver", folder, {"url": url, "cases": cases}) as process:
        for attempt in range(600):
            try:
                with websocket.connect(f"{url}/getCaseCount") as ws:
                    count = int(ws.receive())
                break
            except OSError:
                if process.poll() is not None or attempt == 599:
                    raise SystemExit((folder / "log").read_text()) from None
                coro.sleep(0.1)
        for number in range(1, count + 1):
            try:
                place = f"{url}/runCase?case={number}&agent={AGENT}"
                with websocket.connect(place, deflate=True, timeout=60, **options) as ws:
                    for message in ws:
                        ws.send(message)
            except websocket.WebSocketError:
                continue  # many cases are to end so, and the suite judges how
        with contextlib.suppress(websocket.WebSocketClosed):
            with websocket.connect(f"{url}/updateReports?agent={AGENT}") as ws:
                ws.receive(60)


def judge(folder: Path) -> tuple[Counter[str], list[str]]:
    """How often each verdict came, and the cases that are not good."""
    found = json.loads((folder / "reports" / "index.json").read_text())[AGENT]
    verdicts: Counter[str] = Counter()
    bad = []
    for case, result in found.items():
        for what in ("behavior", "behaviorClose"):
            verdict = result[what]
            if what == "behavior":
                verdicts[verdict] += 1
            if verdict not in ("OK", "INFORMATIONAL") and not (verdict == "NON-STRICT" and case in NON_STRICT):
                bad.append(f"{case} {what}: {verdict}")
    return verdicts, bad


def run(program: str, role: str, cases: list[str]) -> tuple[Counter[str], list[str]]:
    """The verdicts on one of our roles. Starts a loop."""
    side = {"server": against_server, "client": against_client}[role]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        coro.run(side, program, cases, folder)
        return judge(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description="Autobahn's test suite for WebSocket, both ways")
    parser.add_argument("--cases", nargs="+", default=["*"], help="patterns such as 12.* (all)")
    parser.add_argument("--role", choices=("server", "client"), help="only our server, or our client")
    args = parser.parse_args()
    program = find_wstest() or make_wstest()
    failed = 0
    for role in ("server", "client") if args.role is None else (args.role,):
        verdicts, bad = run(program, role, args.cases)
        print(f"our {role}: {sum(verdicts.values())} cases: {dict(verdicts)}", *bad, sep="\n  ", flush=True)
        failed += len(bad) + (not verdicts)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
