"""Synchronisation: locks, conditions, queues, `select`, values of a thread.

`waiters.pyx` says who stands in which line and what an interruption does; it states the invariants. Tests:
`tests/sync`.
"""
