"""python -m pytest -p coro.testing.pytest_plugin test_jobs.py"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from jobs import Jobs

import coro


@contextmanager
def serving(jobs: Jobs, workers: int = 2) -> Iterator[coro.coro]:
    with coro.group() as threads:
        yield threads.spawn(jobs.serve, workers)
        jobs.stop.set()


def put(jobs: Jobs, name: str, script: str) -> None:
    """The way a user does it: written elsewhere, then moved."""
    draft = jobs.inbox.parent / name
    draft.write_text(script)
    draft.rename(jobs.inbox / name)


def wait_for(path: Path) -> None:
    with coro.watch(path.parent) as changes:
        while not path.exists():
            changes.get()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.coro
def test_jobs_run_and_leave_their_output(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, limit=60)
    put(jobs, "before.job", "echo I was there before")
    with serving(jobs):
        wait_for(jobs.done / "before.job")
        put(jobs, "good.job", "echo fine")
        put(jobs, "bad.job", "echo oh; exit 3")
        wait_for(jobs.done / "good.job")
        wait_for(jobs.failed / "bad.job")
    assert (jobs.done / "before.log").read_text() == "I was there before\n"
    assert (jobs.done / "good.log").read_text() == "fine\n"
    assert (jobs.failed / "bad.log").read_text() == "oh\n"
    assert names(jobs.inbox) == names(jobs.running) == []


@pytest.mark.coro
def test_a_job_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, limit=0.1)
    with serving(jobs):
        put(jobs, "slow.job", "echo begun; sleep 600")
        wait_for(jobs.failed / "slow.job")
    assert (jobs.failed / "slow.log").read_text().endswith("killed after 0.1 s\n")


@pytest.mark.coro
def test_the_end_waits_for_what_runs_and_begins_nothing(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, limit=60)
    with serving(jobs, workers=1):
        put(jobs, "first.job", "touch started; while [ ! -e go ]; do sleep 0.01; done")
        wait_for(jobs.running / "started")
        put(jobs, "second.job", "true")
        jobs.stop.set()
        (jobs.running / "go").touch()
    assert names(jobs.done) == ["first.job", "first.log"]
    assert names(jobs.inbox) == ["second.job"]


@pytest.mark.coro
def test_what_is_broken_off_goes_back_to_the_inbox(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, limit=60)
    with serving(jobs) as thread:
        put(jobs, "slow.job", "touch started; sleep 600")
        wait_for(jobs.running / "started")
        thread.shutdown()
    assert names(jobs.inbox) == ["slow.job"]


def test_what_a_killed_queue_left_is_run_again(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, limit=60)
    (jobs.running / "left.job").touch()
    assert names(Jobs(tmp_path, limit=60).inbox) == ["left.job"]
