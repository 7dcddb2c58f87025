# The C face of coro-core: the one file that Cython modules of other distributions cimport. No module stands behind it;
# a name that is cimported from here is fetched from the extension that defines it, and nothing is imported besides.
#
# Whoever uses it calls `require_abi()` once at import: it refuses a coro-core with other structures than the module was
# compiled against. `CORO_ABI` is raised whenever any .pxd or header below changes its meaning; a test ties it to a
# digest of them. What is not listed here may change without notice. Add what a package needs, with a word for it in the
# manual's chapter on extensions.
# cython: language_level=3

from coro._runtime.abi cimport CORO_ABI, require_abi

# -- threads: who runs, waiting and waking, giving way, starting one
from coro._runtime.scheduler cimport (
    WAIT_OBJECT,
    coro,
    give_way,
    running_thread,
    spawn_internal,
    suspend,
    wake,
    wake_error,
)

# -- timers: something that happens in the scheduler at a certain tick; deadlines in ticks
from coro._runtime.scheduler cimport TimerTarget, deadline_after, is_past, timer_add, timer_cancel

# -- the clock: functions that do all, and the inline readers of the one state that ticks_clock() points to
from coro._clock.ticks cimport (
    CORO_CLOCK_VIRTUAL,
    CORO_TICKS_FOREVER,
    coro_clock,
    coro_clock_due,
    coro_now,
    clock as ticks_clock,
    from_ns as ticks_from_ns,
    from_seconds as ticks_from_seconds,
    now as ticks_now,
    posix_usec as ticks_posix_usec,
    relation as ticks_relation,
    tend as ticks_tend,
    to_ns as ticks_to_ns,
    to_seconds as ticks_to_seconds,
)

# -- descriptors: wait for one without a sock
from coro._poll.descriptors cimport FdPoller, fd_poller, fd_state

# -- sockets: the class and its c_* methods
from coro._net.posix cimport coro_mmsghdr
from coro._net.sock cimport sock
