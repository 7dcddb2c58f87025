"""The scheduler and what it needs: run queue, timers, table of living threads, watchdog, output that cannot block.

`scheduler.pyx` begins with the numbered invariants. `abi.pxd` has the number by which other extensions know whether
they were compiled against this layout. Tests: `tests/runtime`.
"""
