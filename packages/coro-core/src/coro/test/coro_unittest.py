"""``run_tests()``: a ``unittest`` program inside one loop, under the name and with the meaning it always had.

    from coro.test import coro_unittest

    if __name__ == "__main__":
        coro_unittest.run_tests()

All tests run in one thread of one loop, in which they may block. ``coro.testing.coro_test`` gives each test a loop of
its own, a time limit and a leak check, and is what new tests should use.
"""

from __future__ import annotations

import sys
import unittest
from typing import Any, NoReturn

from coro._entry import loop
from coro._runtime import scheduler
from coro.testing._runner import ThreadCrashed, Watch

__all__ = ["run_tests"]

#: What unittest exits with when no test was run, since Python 3.12.
NO_TESTS = 5


def run_tests(*args: Any, **kwargs: Any) -> NoReturn:
    """Run the tests of a program inside a loop and exit with their status: 0, 1 after failures, 5 if there were none.

    The parameters are those of ``unittest.main`` (but ``exit`` and ``testRunner``). A test during which an exception
    ends another thread counts as an error, with that thread's traceback; one that comes after the last test makes the
    status 1. A deadlock fails the test that is blocked by it. SIGINT and SIGTERM raise KeyboardInterrupt in the test
    that runs, and here.
    """
    raise SystemExit(loop.run(_run, args, kwargs))


def _run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    with Watch(None, terminate=True) as watch:

        class Result(unittest.TextTestResult):
            def stopTest(self, test: unittest.TestCase) -> None:
                try:
                    watch.raise_crashes()
                except ThreadCrashed:
                    self.addError(test, sys.exc_info())
                super().stopTest(test)

        class Runner(unittest.TextTestRunner):
            resultclass: Any = Result

        options: dict[str, Any] = {**kwargs, "testRunner": Runner, "exit": False}
        result = unittest.main(*args, **options).result
        scheduler.yield_slice()  # threads that were runnable when the last test ended may fail, too
        if watch.crashes:
            print("after the last test", watch.describe_crashes(), file=sys.stderr)
            watch.crashes = []
            return 1
    if not result.wasSuccessful():
        return 1
    return NO_TESTS if result.testsRun == 0 and not result.skipped else 0
