# cython: language_level=3, binding=False, auto_pickle=False, embedsignature=True, embedsignature.format=clinic
"""Reaping children, and code that no signal handler interrupts.

CPython runs Python-level signal handlers in the main OS thread, after nearly any call of a function, and what they
raise comes up right there: between a fork and the assignment of the child's number, say, or between waitpid(2) and that
of the status. Then a child is left behind that nobody knows, or one is waited for that is not there any more. Compiled
code is not interrupted like this. So a child is reaped here and its status put where it belongs in one go; and
`handlers_held` keeps the handlers waiting while Python code runs that must not be torn apart.

Cost: reaping, one system call beside the wait. `handlers_held`, a look at each signal's handler and two system calls
for each that is a Python function, ten microseconds for the usual two. Rejected: blocking the signals, which children
would inherit and which another OS thread would take; starting children in an OS thread of its own (it would be there in
every later fork, and costs more).
"""

import os as _os
import signal as _signal
import sys as _sys
from collections import deque as _deque

from libc.errno cimport ECHILD, EINTR, errno

from coro._runtime.abi cimport require_abi
from coro._runtime.scheduler cimport coro, running_thread, wake

from coro import oserrors
from coro._poll.events import EVFILT, NOTE, wait_for
from coro._poll.descriptors import kevent_key
from coro._runtime.scheduler import _CallLimit
from coro.exceptions import SimultaneousError

require_abi()

__all__ = ["handlers_held", "reap", "waitpid"]

cdef extern from *:
    """
    #include <signal.h>
    #include <sys/wait.h>
    static int coro_restarts(int number) {
        struct sigaction now;
        return sigaction(number, NULL, &now) == 0 && (now.sa_flags & SA_RESTART) != 0;
    }
    """
    bint coro_restarts(int) nogil
    int c_waitpid "waitpid"(int, int *, int) nogil
    int WNOHANG

cdef object exit_code = _os.waitstatus_to_exitcode
cdef dict waiting = {}                 # process number -> the thread that waits for it


def _after_fork_in_child():
    waiting.clear()


# -- Reaping -------------------------------------------------------------------------------------------

cdef int no_child(object pid) except -1:
    raise oserrors.ECHILD(f"process {pid} is not a child of this one, or was reaped already; "
                          "let only one place wait for it") from None


cdef bint reap_now(object pid, int *status) except -1:
    """Reap a child if it has ended."""
    cdef int found = c_waitpid(pid, status, WNOHANG)
    if found < 0 and errno != EINTR:
        if errno == ECHILD:
            no_child(pid)
        raise oserrors.make(errno)
    return found > 0


cdef int await_child(object pid) except? -1:
    """Wait for the end of a child, reap it, and return its status."""
    cdef coro me
    cdef int number = pid, status = 0
    me = running_thread()
    if number in waiting:
        raise SimultaneousError(me, waiting[number], kevent_key(EVFILT.PROC, number))
    waiting[number] = me
    try:
        while True:
            try:
                wait_for(number, EVFILT.PROC, NOTE.EXIT)
            except (ChildProcessError, ProcessLookupError):
                no_child(pid)
            if reap_now(number, &status):
                return status
    finally:
        waiting.pop(number, None)


def waitpid(pid, /, timeout=None):
    """Wait for the end of a child and reap it: ``(pid, status)`` as from ``os.waitpid``, see os.waitstatus_to_exitcode.

    Suspends the calling thread only; returns at once for a child that has ended already.  An interrupted call reaps
    nothing and can be repeated.  ``timeout`` is a number of seconds, 0 to look only, None for ever; coro.TimeoutError
    when it is over, and the child goes on.  TypeError or ValueError when it is not a number.

    Raises SimultaneousError when another thread waits for the same child, oserrors.ECHILD when there is no such child
    (or somebody else reaped it), ValueError for a pid below 1 (there is no waiting for just
    any child), TypeError when it is no int, and what every blocking call raises outside a thread.
    """
    cdef int status = 0
    limit = _CallLimit(timeout, "waitpid()")
    if not isinstance(pid, int):
        raise TypeError(f"a process is known by its number, an int, not {type(pid).__name__}: {pid!r}")
    if pid < 1:
        raise ValueError(f"expected the number of one child, not {pid}; wait for several with a thread each")
    if pid > 0x7FFFFFFF:
        running_thread()
        no_child(pid)
    if timeout is not None and pid not in waiting:
        running_thread()
        if reap_now(pid, &status):
            return pid, status
    with limit:
        return pid, await_child(pid)


def reap_if_ended(process):
    """Reap a CoroProcess that nobody waits for, if it has ended: its status is there then."""
    cdef int status = 0
    if process.pid not in waiting and reap_now(process.pid, &status):
        note_status(process, status)


cdef int note_status(object process, int status) except -1:
    process.status = status
    process._popen.returncode = exit_code(status)     # or it would warn, and reap by itself
    return 0


def reap(process):
    """Wait for the end of a CoroProcess and reap it: its status is there, or nothing has happened. Whoever else waits
    for it looks again. Raises what waitpid() raises."""
    cdef int status
    try:
        status = await_child(process.pid)
        note_status(process, status)
    finally:
        for thread in process._others:
            wake(<coro?>thread, None)


# -- Signal handlers that wait -------------------------------------------------------------------------

cdef class handlers_held:
    """``with handlers_held():`` no Python-level signal handler runs inside, but at the end, once for each signal that
    has come; what one raises leaves the block then, when all of it has been done.

    The block must not suspend the calling thread: the handlers wait in the whole process. Does nothing outside the main
    OS thread, where no handlers run."""

    cdef list held           # (signal, its handler, restarts system calls)
    cdef object noted        # (handler, signal), in the order they came

    def __cinit__(self):
        self.held = []
        self.noted = _deque()

    def __call__(self, signum, frame):
        for number, handler, _ in self.held:
            if number == signum:
                self.noted.append((handler, signum))

    def __enter__(self):
        cdef int number
        try:
            for number in range(1, _signal.NSIG):
                handler = _signal.getsignal(number)
                if callable(handler) and not isinstance(handler, _signal.Handlers):
                    self.held.append((number, handler, coro_restarts(number)))
                    _signal.signal(number, self)
        except ValueError:                        # not the main OS thread
            self.held.clear()
        except:                                   # a handler that had come just before
            self.give_back()
            raise
        return self

    cdef int give_back(self) except -1:
        # A handler that has got its signal back may run during the next call, which has not been made then.
        cdef object error = None
        for number, handler, restarts in self.held:
            while _signal.getsignal(number) is self:
                try:
                    _signal.signal(number, handler)
                except BaseException as e:
                    error = e
            if restarts:
                _signal.siginterrupt(number, False)
        self.held.clear()
        try:
            self.call_noted()
        finally:
            if error is not None:
                raise error
        return 0

    cdef int call_noted(self) except -1:
        if not self.noted:
            return 0
        handler, number = self.noted.popleft()
        try:
            handler(number, _sys._getframe())
        finally:
            self.call_noted()
        return 0

    def __exit__(self, kind, exc, traceback):
        self.give_back()
        return False
