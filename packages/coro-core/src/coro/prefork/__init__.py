"""``coro.prefork(workers, serve, address)``: one process per core behind one listening address, supervised.

The parent is in `_supervisor.py`, with the reasons for how it is built; what happens in a worker is in `_worker.py`.
"""

from __future__ import annotations

from coro.prefork._supervisor import Prefork, PreforkError, PreforkStatistics, WorkerEvent, prefork
from coro.prefork._worker import Worker

__all__ = ["Prefork", "PreforkError", "PreforkStatistics", "Worker", "WorkerEvent", "prefork"]
