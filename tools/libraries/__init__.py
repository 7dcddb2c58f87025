"""Real libraries under `coro.emulation`, compared with themselves under OS threads: `python -m tools.libraries`.

`cases/` has a short program for each library, which uses it from 100 threads at once, with real servers where it needs
one. `__main__.py` runs each program twice, each time in a process of its own: under OS threads, and under emulation.
Results, time, descriptors and OS threads are compared. From that comes the table of the manual.
"""
