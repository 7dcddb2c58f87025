"""Runs the test suite on several Pythons and sums up.

For each Python: an environment, the wheel of coro-core built from this tree and installed, the list of
public names compared with the one checked in, then pytest.  The suite tests the installed wheel, not the
source folder, so what is missing from the wheel is missing from the tests.  On Linux the tests that wait
for the kernel run a second time, on the poller of the BSDs over an imitation of kqueue(2).  Then, in an
environment of its own on top of that wheel, each other distribution with its tests.

With `jobs` > 1 Pythons run side by side; every line of output is marked with its Python, and also kept in
`.dev/log/`.  Numbers come from pytest's XML report; a run that did not live to write one counts as failed
and says how it ended.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree
from pathlib import Path

from tools.dev.environments import CORE, DEV, OTHERS, ROOT, Environment, StepFailed, settings
from tools.dev.pythons import Python

_print_lock = threading.Lock()

# The runs going on; an interrupted command must not leave them behind.
_children: set[subprocess.Popen[str]] = set()


@dataclasses.dataclass
class Result:
    """How the suite ended on one Python."""

    python: Python
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    problem: str = ""  # what ended the run early, if anything did
    failures: list[str] = dataclasses.field(default_factory=list)  # "test: the first line of what it said"

    @property
    def good(self) -> bool:
        return not self.failed and not self.problem and self.passed > 0

    def line(self) -> str:
        text = f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"
        return f"{text} ({self.problem})" if self.problem else text


def say(python: Python, text: str) -> None:
    with _print_lock:
        print(f"{python.short} | {text}", flush=True)


def kill_group(child: subprocess.Popen[str]) -> None:
    """Kill `child` with whatever it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def stream(python: Python, command: list[str | Path], log: Path, limit: float) -> int:
    """Run `command`, copying its output to the terminal and `log`; returns its exit status.

    After `limit` seconds the whole process group is killed and the status is that of SIGKILL.
    """
    environment = dict(os.environ, PYTHONUNBUFFERED="1", PYTHONNOUSERSITE="1")
    # What a caller's own environment may hold is not what is to be tested.
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONDEVMODE", "PYTHONMALLOC"):
        environment.pop(name, None)
    with open(log, "a", encoding="utf-8") as copy:
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        _children.add(child)

        def relay() -> None:
            assert child.stdout is not None
            for line in child.stdout:
                copy.write(line)
                say(python, line.rstrip())

        reader = threading.Thread(target=relay, daemon=True)
        reader.start()
        try:
            return child.wait(limit)
        except subprocess.TimeoutExpired:
            say(python, f"still running after {limit / 60:.0f} minutes: killed")
            kill_group(child)
            return child.wait()
        finally:
            kill_group(child)  # servers a test left behind
            _children.discard(child)
            # A process that left the group may hold the pipe open for ever; what it prints is not wanted.
            reader.join(5)


def count(report: Path, log: Path, result: Result) -> None:
    """Add the numbers of pytest's XML report, and which tests failed and why, to `result`; without a report the end of
    the log."""
    if not report.exists():
        result.failures += last_words(log)
        return
    for suite in xml.etree.ElementTree.parse(report).getroot().iter("testsuite"):
        total, failures, errors, skipped = (
            int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
        )
        result.failed += failures + errors
        result.skipped += skipped
        result.passed += total - failures - errors - skipped
        for case in suite.iter("testcase"):
            for kind in ("failure", "error"):
                if (found := case.find(kind)) is not None:
                    said = (found.get("message") or "").strip().splitlines() or ["no message"]
                    where = f"{case.get('classname', '')}.{case.get('name', '')}"
                    result.failures.append(f"{where}: {said[0][:300]}")


def last_words(log: Path, most: int = 60) -> list[str]:
    """The end of a log: where a run that wrote no report was, and the stacks its time limit wrote, without pytest's
    own part of them."""
    kept: list[str] = []
    of_pytest = False
    for line in log.read_text(errors="replace").splitlines()[-400:]:
        if line.lstrip().startswith("File "):
            of_pytest = "/_pytest/" in line or "/pluggy/" in line
        elif not line.startswith(" "):
            of_pytest = False
        if not of_pytest:
            kept.append(f"  {line}")
    return ["the log ends:", *kept[-most:]]


def test_other(python: Python, package: Path, arguments: list[str], log: Path, limit: float, result: Result) -> None:
    """Build, install and test a distribution that builds on coro-core; adds to `result`."""
    wanted = settings(package)
    environment = Environment(python, package.name)
    environment.prepare(wanted["build"] + wanted["test"])
    environment.install_core()
    environment.install_other(package)
    if stream(python, [environment.python, ROOT / "tools" / "public_api.py", package.name], log, 120):
        result.problem = f"the public names of {package.name} differ from the list checked in"
    report = DEV / "log" / f"test-{python.short}-{package.name}.xml"
    report.unlink(missing_ok=True)
    command: list[str | Path] = [environment.python, "-m", "pytest", f"--junitxml={report}"]
    command += ["-o", f"cache_dir={environment.folder / 'pytest'}", *(arguments or [str(package / "tests")])]
    failed_before = result.failed
    status = stream(python, command, log, limit)
    count(report, log, result)
    if status < 0 or (status and result.failed == failed_before):
        result.problem = f"pytest of {package.name} ended with {status}"


def run_one(python: Python, arguments: list[str], limit: float) -> Result:
    """Build, install and test on one Python.  Never raises for a failure: the result says it."""
    result = Result(python)
    start = time.monotonic()
    logs = DEV / "log"
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"test-{python.short}.log"
    reports = [logs / f"test-{python.short}.xml", logs / f"test-{python.short}-kqueue.xml"]
    log.write_text("")
    for report in reports:
        report.unlink(missing_ok=True)
    try:
        wanted = settings()
        environment = Environment(python, "test")
        say(python, f"preparing Python {python.full} ({python.path})")
        environment.prepare(wanted["build"] + wanted["test"])
        environment.install_core()
        say(python, f"built and installed after {time.monotonic() - start:.0f} s")
        status = stream(python, [environment.python, ROOT / "tools" / "public_api.py"], log, 120)
        if status:
            result.problem = "the public names differ from the list checked in"
        # Arguments that name another distribution are for its tests alone.
        named = [other for other in OTHERS if any(other.name in argument for argument in arguments)]
        everything: list[str | Path] = [CORE / "tests", ROOT / "tests" / "tools"]
        runs: list[list[str | Path]] = [] if named else [[*arguments] or everything]
        if not arguments and sys.platform.startswith("linux"):
            runs.append(["--poller", "fake-kqueue", "-m", "poller and not slow", *everything])
        for number, chosen in enumerate(runs):
            report = reports[number]
            command: list[str | Path] = [environment.python, "-m", "pytest", f"--junitxml={report}"]
            command += ["-o", f"cache_dir={DEV / f'test-{python.short}' / 'pytest'}", *chosen]
            failed_before = result.failed
            status = stream(python, command, log, limit)
            count(report, log, result)
            if status < 0:
                result.problem = f"ended by {signal.Signals(-status).name} after {time.monotonic() - start:.0f} s"
            elif status and result.failed == failed_before:
                result.problem = f"pytest ended with {status}"
        for other in named if arguments else OTHERS:
            test_other(python, other, arguments, log, limit, result)
    except StepFailed as e:
        result.problem = str(e)
        say(python, f"FAILED: {e}")
    if result.problem:
        result.failed += 1  # so that the sum shows it
    result.seconds = time.monotonic() - start
    return result


def run(pythons: list[Python], arguments: list[str], jobs: int, limit: float) -> list[Result]:
    """Run the suite on each of `pythons`, `jobs` at a time; `limit` in seconds for each."""
    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    try:
        return list(pool.map(lambda python: run_one(python, arguments, limit), pythons))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in list(_children):
            kill_group(child)


def summary(results: list[Result]) -> str:
    """The last lines of a run: one for each Python, then the sum."""
    lines = ["", f"Pythons tested: {', '.join(r.python.full for r in results)}"]
    for r in results:
        mark = "ok    " if r.good else "FAILED"
        lines.append(f"  {mark} {r.python.full:8} {r.line()} in {r.seconds:.0f} s")
        lines += [f"         {failure}" for failure in r.failures]
    total = [sum(getattr(r, name) for r in results) for name in ("passed", "failed", "skipped")]
    lines.append("{} passed, {} failed, {} skipped".format(*total))
    return "\n".join(lines)
