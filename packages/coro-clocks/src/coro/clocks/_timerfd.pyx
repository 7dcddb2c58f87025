# cython: language_level=3, nonecheck=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""timerfd(2) with TFD_TIMER_CANCEL_ON_SET: a descriptor that becomes readable when somebody sets the system's clock.

The timer itself is armed ten years ahead and never fires; what matters is that read(2) fails with ECANCELED after a
discontinuous change of CLOCK_REALTIME (timerfd_create(2)), be it by settimeofday(2), by a step of an NTP daemon, or by
a suspend.  Python has these functions from 3.13 on only, hence the wrapping.  Linux only: elsewhere `open_watch` raises
OSError with ENOSYS.
"""

from libc.errno cimport errno

import os as _os
from errno import ECANCELED as _ECANCELED

cdef extern from *:
    """
    #include <errno.h>
    #include <string.h>
    #include <time.h>
    #ifdef __linux__
    #include <sys/timerfd.h>
    #ifndef TFD_TIMER_CANCEL_ON_SET            /* since Linux 3.0; glibc has named it later */
    #define TFD_TIMER_CANCEL_ON_SET (1 << 1)
    #endif
    static int coro_watch_open(void)
    {
        return timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    }
    static int coro_watch_arm(int fd)
    {
        struct itimerspec spec;
        memset(&spec, 0, sizeof spec);
        spec.it_value.tv_sec = time(NULL) + 10L * 365 * 86400;
        return timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &spec, NULL);
    }
    #else
    static int coro_watch_open(void) { errno = ENOSYS; return -1; }
    static int coro_watch_arm(int fd) { (void)fd; errno = ENOSYS; return -1; }
    #endif
    """
    int coro_watch_open()
    int coro_watch_arm(int)


def open_watch() -> int:
    """A new descriptor, not yet armed.  OSError: ENOSYS where the system has none, or too many open files."""
    cdef int fd = coro_watch_open()
    if fd < 0:
        raise OSError(errno, _os.strerror(errno))
    return fd


def arm(int fd) -> bool:
    """From now on the descriptor tells of the clock being set.

    Returns True when it was set since the last arming (the kernel then reports it here).  OSError if the kernel
    refuses.
    """
    if coro_watch_arm(fd) == 0:
        return False
    if errno == _ECANCELED:
        return True
    raise OSError(errno, _os.strerror(errno))


def was_set(int fd) -> bool:
    """Has the clock been set?  To be asked when the descriptor is readable; False when it was not (or fired)."""
    try:
        _os.read(fd, 8)
    except BlockingIOError:
        return False
    except OSError as e:
        if e.errno == _ECANCELED:
            return True
        raise
    return False
