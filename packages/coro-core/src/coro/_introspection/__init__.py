"""Looking at a running program: reports about threads, the wait graph, statistics, memory, the watchdog's switch.

Nothing here changes what it looks at. Tests: `tests/introspection`.
"""
