"""The profiler's accounts in C: trees of calls, what the interpreter reports, what functions report themselves.

`accounting.pyx` is the extension, `accounts.h` has the idea and the cost. Tests: `tests/profiler`.
"""
