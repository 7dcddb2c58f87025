"""Waiting for the kernel: who waits for which descriptor, other events and handlers, epoll(7) and kqueue(2).

`descriptors.pyx` is the table of descriptors and states its invariants; `events.pyx` adds processes, signals, timers,
files and handlers; `epoll.pyx` and `kqueue.pyx` talk to the kernel; `choose.py` picks one of them. Tests: `tests/poll`.
"""
