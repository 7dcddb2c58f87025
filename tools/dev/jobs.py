"""A queue of jobs for a few workers, and programs that jobs start: every line marked, a word when all is silent.

What one Python needs is a chain (build, then tests), and chains differ in length, so a worker that had one Python each
would stand idle at the end. Instead all work is cut into jobs; whoever is free takes the job from which the longest
chain hangs, as far as that is known beforehand. The tail is then one short job, whatever the numbers.

A job that fails does not keep others from running, but for those that come after it. Cost: a thread for each worker and
for each running program.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.dev.environments import ROOT, StepFailed

#: Seconds without a line of output after which it is said what goes on.
SILENCE = 30.0

_print_lock = threading.Lock()
_last_said: dict[str, float] = {}

# The programs that run now; an interrupted command must not leave them behind.
_children: set[subprocess.Popen[str]] = set()


@dataclasses.dataclass(eq=False)
class Job:
    """A piece of work. `work` raises StepFailed, or sets `problem`, when it has failed."""

    name: str
    work: Callable[[Job], None]
    expected: float = 10.0  # seconds, roughly; decides what is begun first
    after: tuple[Job, ...] = ()
    seconds: float = 0.0
    cpu: float = 0.0  # user and system time of the programs it started through `stream`
    problem: str = ""
    done: bool = False
    notes: list[str] = dataclasses.field(default_factory=list)  # for the summary, under its line


def say(name: str, text: str) -> None:
    """Print a line of a job."""
    with _print_lock:
        _last_said[name] = time.monotonic()
        print(f"{name} | {text}", flush=True)


def kill_group(child: subprocess.Popen[str]) -> None:
    """Kill `child` with whatever it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def variables() -> dict[str, str]:
    """The environment variables for a program that tests something: the caller's, but what makes another Python."""
    environment = dict(os.environ, PYTHONUNBUFFERED="1", PYTHONNOUSERSITE="1")
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONDEVMODE", "PYTHONMALLOC"):
        environment.pop(name, None)
    return environment


def _reap(child: subprocess.Popen[str], job: Job) -> bool:
    """Has the child ended? Notes its status and what it used."""
    pid, status, used = os.wait4(child.pid, os.WNOHANG)
    if not pid:
        return False
    child.returncode = os.waitstatus_to_exitcode(status)
    job.cpu += used.ru_utime + used.ru_stime
    return True


def stream(
    job: Job,
    command: Sequence[str | Path],
    log: Path,
    limit: float,
    env: Mapping[str, str] | None = None,
    where: Callable[[], str] = lambda: "",
) -> int:
    """Run `command` in the root of the tree, copying its output to the terminal and `log`; returns its exit status.

    After `limit` seconds the whole process group is killed and the status is that of SIGKILL. `where` tells what it is
    at, and is asked when it has been silent for some time.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a", encoding="utf-8") as copy:
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env=dict(variables() if env is None else env),
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
                if line.strip():
                    say(job.name, line.rstrip())

        reader = threading.Thread(target=relay, daemon=True)
        reader.start()
        begun = _last_said[job.name] = time.monotonic()
        pause = 0.01
        try:
            while not _reap(child, job):
                time.sleep(pause)
                pause = min(pause * 1.5, 0.5)
                now = time.monotonic()
                if now - begun > limit:
                    say(job.name, f"still running after {limit / 60:.0f} minutes: killed {where()}".rstrip())
                    kill_group(child)
                    while not _reap(child, job):
                        time.sleep(0.05)
                    break
                if now - _last_said[job.name] > SILENCE:
                    say(job.name, f"... {now - begun:.0f} s {where()}".rstrip())
            return child.returncode
        finally:
            kill_group(child)  # servers a test left behind
            _children.discard(child)
            # A process that left the group may hold the pipe open for ever; what it prints is not wanted.
            reader.join(5)
            if child.stdout is not None and not reader.is_alive():
                child.stdout.close()


def ended_with(status: int) -> str:
    """An exit status as text."""
    return f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with {status}"


def _lengths(jobs: Sequence[Job]) -> dict[Job, float]:
    """For each job the expected seconds of the longest chain that begins with it."""
    followers: dict[Job, list[Job]] = {job: [] for job in jobs}
    for job in jobs:
        for before in job.after:
            followers[before].append(job)
    found: dict[Job, float] = {}

    def length(job: Job) -> float:
        if job not in found:
            found[job] = job.expected + max(map(length, followers[job]), default=0.0)
        return found[job]

    return {job: length(job) for job in jobs}


def run(jobs: Sequence[Job], workers: int) -> None:
    """Do all jobs, `workers` at a time. What failed is noted in the jobs; KeyboardInterrupt ends all programs."""
    lengths = _lengths(jobs)
    waiting = sorted(jobs, key=lambda job: -lengths[job])
    changed = threading.Condition()
    stopped = False

    def take() -> Job | None:
        """The next job, once there is one that may begin; None when there is none any more. Inside `changed`."""
        while waiting and not stopped:
            for job in waiting:
                failed = [before.name for before in job.after if before.done and before.problem]
                if failed:
                    waiting.remove(job)
                    job.problem, job.done = f"not run, because {failed[0]} failed", True
                    changed.notify_all()
                    break
                if all(before.done for before in job.after):
                    waiting.remove(job)
                    return job
            else:
                changed.wait()
        return None

    def worker() -> None:
        while True:
            with changed:
                job = take()
            if job is None:
                return
            begun = time.monotonic()
            try:
                job.work(job)
            except StepFailed as e:
                job.problem = str(e).splitlines()[0]
            except Exception as e:  # a mistake in the tools must not look like success
                job.problem = f"{type(e).__name__}: {e}"
            if job.problem:
                say(job.name, f"FAILED: {job.problem}")
            with changed:
                job.seconds, job.done = time.monotonic() - begun, True
                changed.notify_all()

    threads = [threading.Thread(target=worker, daemon=True) for _ in range(min(workers, len(jobs)))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        stopped = True
        for child in list(_children):
            kill_group(child)
