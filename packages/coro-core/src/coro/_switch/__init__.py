"""Exchanging stacks and interpreter state: the bottom of the runtime. C and assembly only.

`swap.h` and `swap_*.S` exchange two stacks. `interp.[ch]` knows which fields of CPython's thread state belong to a
thread, version by version. `slots.[ch]` and `datastack.[ch]` say where stacks live, `guard.[ch]` what happens when one
runs over, `slice.[ch]` puts these together: run a thread until it parks. `os_thread.h` tells OS threads apart, and
`signal_text.h` writes text where a signal handler may.

All of it is linked into `coro._runtime.scheduler` and into no other extension, so that its state exists once. Each
header states its invariants. Tests: `tests/switch`, and `tests/arch` for each processor.
"""
