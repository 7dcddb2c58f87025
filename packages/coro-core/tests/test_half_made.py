"""No object of a compiled class can crash the process, whole or half made; see half_made in tests/support."""

import half_made
import pytest

import coro

# Not for programs: the pollers are the inside of the loop, and to call them is to be the loop.
POLLERS = frozenset({"EpollPoller", "KqueuePoller", "EventPoller", "FdPoller", "Poller"})

outcomes = half_made.fixture("coro-core")


@pytest.mark.parametrize("name", half_made.names("coro-core", but=POLLERS))
def test_no_use_of_a_class_crashes(outcomes, name):
    outcomes.check(name)


def test_classes_are_found():
    found = set(half_made.classes("coro-core").values())
    assert {coro.sock, coro.case, coro.mutex, coro.fifo, coro.coro, coro.timeout} <= found


def test_a_select_of_a_case_about_nothing():
    nothing = coro.case.__new__(coro.case)
    with pytest.raises(TypeError, match="about nothing"):
        coro.run(coro.select, nothing)
