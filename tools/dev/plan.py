"""What runs where: not everything has to run on every Python. `--everything` runs all on all.

Each choice says why it is safe. All of them have one form: a set of minor versions. When none of a set is among the
Pythons of a run, the newest of the run takes its place; so a run on a single Python is always a whole one.

Also the other checks of a whole run (`tools.dev test --checks`): environments of tox.ini, and the soaks in their short
form.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

#: Slow tests without another mark: other programs and libraries, pages of the manual, many processes, real time that
#: has to pass. The code they test is compiled from the same C everywhere. How it meets the interpreter is gone through
#: by the fast tests and by those marked `each_python`, and these do run everywhere. 3.12 has every library and tool
#: that tests work with.
SLOW_ON = (12,)

#: Slow tests marked `newest`: those whose subject is a part of Python's library or of the interpreter that changes with
#: versions (its prompt, multiprocessing, tracing, its own profilers). Where something is new it is in the newest; what
#: one of the versions between has of its own the tests marked `each_python` are for. A tool's test sees that every slow
#: test runs on a Python that it is not skipped on.
NEWEST_ON = (15,)

#: The poller of the BSDs, over the imitation of kqueue(2): one C source, whose calls into the interpreter are the same
#: as those of the other poller, which is tested everywhere. The oldest and the newest, because what Cython makes of a
#: source depends on the version.
KQUEUE_ON = (11, 15)

#: Tests of the tools themselves: pure Python that has to run on the oldest Python there is.
TOOLS_ON = (11,)


class Plan:
    """The choices for a run on some Pythons."""

    def __init__(self, minors: Sequence[int], everything: bool) -> None:
        def on(wanted: tuple[int, ...]) -> set[int]:
            return set(minors) if everything else set(wanted) & set(minors) or {max(minors)}

        self.slow_on, self.newest_on = on(SLOW_ON), on(NEWEST_ON)
        self.kqueue_on, self.tools_on = on(KQUEUE_ON), on(TOOLS_ON)

    def marks(self, minor: int) -> list[str]:
        """The options that select tests on one Python."""
        if minor in self.slow_on:
            return []
        return ["-m", "not slow or each_python" + (" or newest" if minor in self.newest_on else "")]


@dataclasses.dataclass(frozen=True)
class Check:
    """An environment of tox.ini: how long it takes, roughly, and the Python whose wheels, or whose compiled modules, it
    wants to be there: nothing is compiled twice, side by side."""

    name: str
    seconds: float
    minor: int | None = None


#: None of these is about a version of Python, but for those that name one, in tox.ini with the reason.
CHECKS = (
    Check("lint", 30),
    Check("arch", 20),
    Check("second-distribution", 90, 11),
    Check("wheels", 60, 12),
    Check("docs", 60, 11),
    Check("kqueue", 60, 11),
    Check("emulation", 90, 11),
    Check("emulation-newest", 90, 14),
    Check("instructions", 90, 12),
    Check("valgrind", 60, 12),
)
