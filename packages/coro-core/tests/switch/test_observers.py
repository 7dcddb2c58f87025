"""Tracing, profiling, monitoring and coverage may be switched on and off while threads are parked anywhere.

CPython prepares the code of the frames that it can see when something is switched on, and a parked thread's frames are
out of its sight. So each way of switching is tried on threads parked in every kind of frame; see observe_parked.py. A
fault here is a crash, so every case is a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("observe_parked.py")

OBSERVERS = {
    "by_settrace": (3, 11),
    "by_setprofile": (3, 11),
    "by_all_threads": (3, 12),
    "by_cprofile": (3, 11),
    "by_tracer_in_c": (3, 11),
    "by_tracing_parked_threads": (3, 11),
    "by_profiler": (3, 11),
    "by_monitoring": (3, 12),
    "by_monitoring_exceptions": (3, 12),
    "by_monitoring_once": (3, 12),
    "by_remote_script": (3, 14),
}


MORE = [pytest.mark.slow, pytest.mark.newest]


@pytest.mark.parametrize("slots", [pytest.param(1, marks=MORE), 3, pytest.param(64, marks=MORE)])
@pytest.mark.parametrize("observer", [name for name, since in OBSERVERS.items() if sys.version_info >= since])
def test_observers_of_threads_parked_in_every_kind_of_frame(observer, slots, tmp_path):
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(PROGRAM), observer, str(slots)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("kinds of frames\n"), done.stdout
