# cython: language_level=3, binding=False
"""Uses coro-core's C-level interface the way a protocol package does: its types, its functions, its clock."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t

from coro.capi cimport (TimerTarget, coro, deadline_after, give_way, require_abi, running_thread, sock, ticks_now,
                        ticks_to_seconds, timer_add)

# A coro-core with other structures than the one this was compiled against must not get any further.
require_abi()


def elapsed():
    """Seconds between two readings of the clock: not negative, and less than a second."""
    cdef int64_t before = ticks_now()
    return ticks_to_seconds(ticks_now() - before)


def yields(int count):
    """Let the other threads run `count` times; returns `count`.

    Raises `coro.YieldFromMain` outside a coro thread.
    """
    cdef coro me = running_thread()
    cdef int done = 0
    while done < count:
        give_way(me)
        done += 1
    return done


def ask(sock s not None, bytes question not None):
    """Send `question` over a socket that has received nothing yet; returns what comes, at most 4096 bytes."""
    s.c_send(PyBytes_AS_STRING(question), PyBytes_GET_SIZE(question), 0)
    s.c_expect()
    return s.c_recv(4096, 0)


cdef class Alarm(TimerTarget):
    """Notes in `rung`, a list, that `seconds` have passed. `kept` goes when the alarm goes; then it does not ring."""

    cdef list rung
    cdef object kept

    def __init__(self, seconds, list rung not None, kept=None):
        self.rung, self.kept = rung, kept
        timer_add(self, deadline_after(seconds))

    cdef int fire(self) except -1:
        self.rung.append(True)
        return 0
