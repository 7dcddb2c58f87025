"""The clock: what a tick is, how ticks become seconds and times of day, the virtual clock of tests.

The idea and the cost stand in `ticks.h`. Tests: `tests/clock`.
"""
