"""The scheduler and what it needs: timers, the table of living threads, the watchdog, output that cannot block.

`scheduler.pyx` begins with the numbered invariants. `abi.pxd` has the number by which other extensions know whether
they were compiled against this layout. Tests: `tests/runtime`.
"""
