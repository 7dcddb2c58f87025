"""``coro.prefork(workers, serve, address)``: one process per core behind one listening address, supervised.

The parent is in `_supervisor.py`, with the reasons for how it is built; what happens in a worker is in `_worker.py`.
"""

from __future__ import annotations

from coro.prefork._supervisor import Prefork, PreforkError, PreforkStatistics, WorkerEvent, prefork
from coro.prefork._worker import Worker

# As an attribute of the package, `coro.prefork` is the function: what belongs to it is found there as well.
for _thing in (Prefork, PreforkError, PreforkStatistics, WorkerEvent, Worker):
    setattr(prefork, _thing.__name__, _thing)

__all__ = ["Prefork", "PreforkError", "PreforkStatistics", "Worker", "WorkerEvent", "prefork"]
