"""One program of `cases/` in a process of its own: what `tools.libraries` starts.

The report is a file of JSON: result or error, seconds, seconds of the processor, descriptors that are open afterwards.
How the process ends is the parent's to see.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any


def _descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def _work(name: str, emulated: bool, ports: dict[str, int], folder: str, report: str) -> None:
    from tools.libraries.cases import load
    from tools.libraries.work import Work

    found = load()[name]
    work = Work(ports, Path(folder), emulated, name)
    before = _descriptors()
    began, used = time.perf_counter(), time.process_time()
    outcome: dict[str, Any] = {}
    try:
        outcome["result"] = found.function(work)
    except BaseException as error:
        outcome["error"] = "".join(traceback.format_exception(error))
    outcome["seconds"] = time.perf_counter() - began
    outcome["cpu"] = time.process_time() - used
    outcome["descriptors"] = _descriptors() - before
    Path(report).write_text(json.dumps(outcome, default=repr))


def main() -> None:
    """Run the program that the command line names."""
    name, how, ports, folder, report = sys.argv[1:]
    arguments: tuple[Any, ...] = (name, how == "emulated", json.loads(ports), folder, report)
    if how == "emulated":
        import coro

        coro.install_thread_emulation()
        coro.run(_work, *arguments)
    else:
        _work(*arguments)


if __name__ == "__main__":
    main()
