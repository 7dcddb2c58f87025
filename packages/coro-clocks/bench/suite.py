"""What `python -m tools.bench run --suite clocks` measures of coro-clocks."""

from __future__ import annotations

from tools.bench._captions import Caption
from tools.bench._suites import Case, Rival

CAPTIONS = {"clocks": Caption("Reading a clock", "Processor time of one reading of the clock.")}
CASES = (
    # Half of what the interpreter's own clock costs is what a reading from C may cost where the processor's counter
    # is used; bench/reading.py shows all scales.
    Case("clocks", "a reading from C", "read_clock.py", {"count": 400_000}, (Rival("time.monotonic_ns", 0.5),)),
)
