"""Types of the compiled module tsc_time.pyx."""

from coro._clock.ticks import ClockInfo
from coro.clocks._scale import *  # noqa: F403 - all of it is the interface

def describe() -> ClockInfo: ...
def _cost(count: int) -> float: ...
