# cython: language_level=3, binding=False, auto_pickle=False, embedsignature=True, embedsignature.format=clinic
"""The event interface: waiting for anything the kernel reports, and handlers that are called when it happens.

This is kqueue's interface (kqueue(2)) on every system: an event has an identity and a filter, and either one
thread waits for it or one handler is called for it in a thread of its own.  Descriptors go through the table
of `_poll/descriptors.pyx`.  Everything else (processes, signals, timers, changes of files) and every handler is a
`kevent_target` in a dictionary: these are rare, so they are ordinary objects.

Signals come through signal.set_wakeup_fd() and a pipe, so no signal is ever blocked and children inherit
nothing. Timers are those of the scheduler.  Processes and files are the kernel's business: see `_poll/epoll.pyx` and
`_poll/kqueue.pyx`.

Before a loop sleeps it releases the GIL. Where there are other OS threads it asks the kernel first, with the GIL: if
there are events it need not release it, which is cheaper and shares it fairly (see looks_with_gil() of
_runtime/parts/loop.pxi). A look that found nothing is a system call too many. So after one there is none before
the next UNLOOKED sleeps, while a loop that finds events looks every time.

A handler runs at most once at a time.  A level-triggered descriptor whose handler has not read yet would
otherwise start a thread at every poll; so the descriptor is watched again when the handler has returned.

Longer than most files: waiting and handlers are two ends of one table of targets, and signals lead into it, too.
"""

import errno as _errno
import signal as _signal
from collections.abc import Mapping as _Mapping
from contextvars import copy_context as _copy_context
from operator import index as _index
from os import fstat as _fstat, get_blocking as _get_blocking, strerror as _strerror

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset
from cpython.exc cimport PyErr_CheckSignals, PyErr_WriteUnraisable
from cpython.object cimport PyObject, PyObject_AsFileDescriptor
from cpython.ref cimport Py_DECREF, Py_INCREF

from coro._poll.descriptors cimport (ABORTED, EV_ADD, EV_DELETE, EV_ERROR, EV_ONESHOT, FD_EXCEPT_READY, FD_OWNED,
                                     FD_READ_READY, FD_WRITE_READY, FIRED, FOREIGN, F_EXCEPT, F_PROC, F_SIGNAL, F_TIMER,
                                     F_VNODE, F_WRITE, FdPoller, SUBMITTED, current_targets, fd_each, fd_lookup,
                                     fd_poller, fd_state, filter_name, filter_of, kevent_key, kevent_target, new_event,
                                     new_key, new_target, note_handlers, py_kevent, ready_bit, slot_of)
from coro._runtime.abi cimport require_abi
from coro._runtime.scheduler cimport (TimerTarget, WAIT_EVENT, coro, looks_with_gil, running_thread,
                                      spawn_internal, suspend_outside, timer_add, timer_cancel, wake)
from coro._clock.ticks cimport from_ns, now as ticks_now

from coro import oserrors
from coro._poll.filters import EFILT, EV, EVFILT, NOTE
from coro._runtime.scheduler import _CallLimit
from coro.exceptions import ClosedError, LoopError, SimultaneousError, YieldFromMain

require_abi()

__all__ = ["EFILT", "EV", "EVFILT", "NOTE", "event_map", "remove_handler", "set_handler", "wait_for"]

cdef extern from *:
    void __atomic_store_n(int *, int, int) noexcept nogil
    int __atomic_load_n(int *, int) noexcept nogil
    void __atomic_thread_fence(int) noexcept nogil
    int __ATOMIC_SEQ_CST, __ATOMIC_RELAXED

cdef extern from *:
    """
    #include <fcntl.h>
    #include <pthread.h>
    #include <signal.h>
    #include <unistd.h>
    static int coro_open_pipe(int *p) {
        if (pipe(p) < 0) return -1;
        for (int i = 0; i < 2; i++) {
            fcntl(p[i], F_SETFD, FD_CLOEXEC);
            fcntl(p[i], F_SETFL, fcntl(p[i], F_GETFL) | O_NONBLOCK);
        }
        return 0;
    }

    /* The signal pipe across a fork. What Python's signal handler wrote in the child before the interpreter's own hooks
       run would reach the parent, which shares the pipe; so the child gets another under the same numbers inside
       fork(2), and no signal is taken from before the fork until then. Where the interpreter's hooks are to follow, the
       child waits for them: they put back the handlers from before the loop, and drop what came in the meantime. */
    static int coro_signal_pipe[2] = {-1, -1};
    static __thread sigset_t coro_mask_before;
    static __thread int coro_masked, coro_hooks_follow;

    static void coro_before_fork(void) {
        sigset_t all;
        if (coro_signal_pipe[0] < 0) return;
        sigfillset(&all);
        coro_masked = pthread_sigmask(SIG_SETMASK, &all, &coro_mask_before) == 0;
    }

    static void coro_after_fork(void) {
        if (!coro_masked) return;
        coro_masked = 0;
        pthread_sigmask(SIG_SETMASK, &coro_mask_before, NULL);
    }

    static void coro_after_fork_in_child(void) {
        int p[2];
        if (coro_signal_pipe[0] >= 0 && coro_open_pipe(p) == 0) {
            for (int i = 0; i < 2; i++) {
                dup2(p[i], coro_signal_pipe[i]);
                fcntl(coro_signal_pipe[i], F_SETFD, FD_CLOEXEC);
                close(p[i]);
            }
        }
        if (!coro_hooks_follow) coro_after_fork();
    }

    static void coro_hook_forks(void) {
        pthread_atfork(coro_before_fork, coro_after_fork, coro_after_fork_in_child);
    }
    """
    int coro_open_pipe(int *p) nogil
    int coro_signal_pipe[2]
    int coro_hooks_follow
    void coro_after_fork() nogil
    void coro_hook_forks() nogil

cdef extern from "unistd.h" nogil:
    int close(int)
    ssize_t read(int, void *, size_t)
    ssize_t write(int, const void *, size_t)

cdef extern from "signal.h":
    int SIGCHLD

cdef enum:
    EV_KNOWN = 0x37          # ADD, DELETE, ENABLE, ONESHOT, CLEAR
    NOTE_SECONDS = 1
    NOTE_MSECONDS = 2
    NOTE_USECONDS = 4
    NOTE_NSECONDS = 8
    MAX_SIGNAL = 128


coro_hook_forks()


def _before_fork():
    global coro_hooks_follow
    coro_hooks_follow = 1


def _after_fork():
    """In parent and child."""
    global coro_hooks_follow
    coro_hooks_follow = 0
    coro_after_fork()


cdef class _Alarm(TimerTarget):
    """The timer behind a TIMER registration: counts periods, and re-arms itself unless it is one-shot."""

    cdef EventPoller poller
    cdef kevent_target target
    cdef int64_t due, period      # ticks
    cdef bint periodic

    cdef int fire(self) except -1:
        cdef kevent_target t = self.target
        cdef int64_t count = 1
        if t is None or t.state != SUBMITTED:
            return 0
        if self.periodic:
            count += (ticks_now() - self.due) // self.period
            if count < 1:
                count = 1
            self.due += count * self.period
            timer_add(self, self.due)
        self.poller.fired(t, 0, 0, count)
        return 0


def _ignore_signal(signum, frame):
    """Stands in as the Python-level handler of a signal somebody waits for: its arrival is what counts."""


def _run_handler(kevent_target t, py_kevent event):
    (<EventPoller>fd_poller()).run_handler(t, event)


# -- The class ---------------------------------------------------------------------------------------

cdef class EventPoller(FdPoller):
    """Waits and handlers for every filter.

    Invariants: those of FdPoller, and (1) a target is SUBMITTED exactly while it stands in `targets`; (2) the
    Python-level handler of a signal is ours exactly while a SIGNAL target is SUBMITTED, unless the program
    replaced it.
    """

    def __cinit__(self, *args, **kwargs):
        self.lost_signals = {}
        self.signal_read = self.signal_write = self.program_fd = -1
        self.program_warned = True

    # -- the end, and interruptions by other OS threads

    cdef int shut(self) except -1:
        self.forget_all()
        self.close_signals()
        self.close_kernel()
        return 0

    cdef int after_fork(self) noexcept:
        # First of all, so that nothing below can change the parent's registrations.
        self.leave_kernel()
        try:
            self.close_signals()
            self.forget_all()
        except BaseException:
            pass            # the child works without; there is nobody to tell
        self.sleeping = self.interrupted = 0
        return 0

    cdef int interrupt(self) noexcept nogil:
        __atomic_store_n(&self.interrupted, 1, __ATOMIC_SEQ_CST)
        if __atomic_load_n(&self.sleeping, __ATOMIC_SEQ_CST):
            self.trigger()
        return 0

    cdef bint going_to_sleep(self) noexcept:
        # Either the interrupter sees `sleeping` and triggers, or we see its mark here.
        __atomic_store_n(&self.sleeping, 1, __ATOMIC_RELAXED)
        __atomic_thread_fence(__ATOMIC_SEQ_CST)
        if __atomic_load_n(&self.interrupted, __ATOMIC_RELAXED):
            __atomic_store_n(&self.interrupted, 0, __ATOMIC_SEQ_CST)
            self.woke_up()
            return False
        return True

    cdef bint looks_first(self) noexcept:
        if self.unlooked:
            self.unlooked -= 1
            return False
        return looks_with_gil()

    cdef void woke_up(self) noexcept:
        # An interrupter who does not see it yet triggers once for nothing.
        __atomic_store_n(&self.sleeping, 0, __ATOMIC_RELAXED)

    cdef int close_kernel(self) noexcept:
        return 0

    cdef int leave_kernel(self) noexcept:
        return self.close_kernel()

    cdef int trigger(self) noexcept nogil:
        return 0

    # -- waiting for events

    cdef py_kevent wait_event(self, object ident, int filter, unsigned int fflags, int64_t data):
        cdef coro me = running_thread()
        cdef kevent_target t
        cdef kevent_key key
        if ready_bit(filter):
            return self.wait_fd_event(me, ident, filter)
        key = key_of(filter, ident)
        t = self.targets.get(key)
        if t is not None:
            raise SimultaneousError(me, t.target, key)
        if filter == F_SIGNAL and key.ident in self.lost_signals:
            return new_event(key.ident, filter, 0, 0, self.lost_signals.pop(key.ident))
        t = new_target(key, me, EV_ADD | EV_ONESHOT)
        t.fflags = fflags
        self.begin(t, data)
        if t.event is not None:
            return t.event
        try:
            while t.state == SUBMITTED:
                suspend_outside(me, WAIT_EVENT, key, False)
        except:
            if t.state == SUBMITTED:
                self.remove(t)
            elif filter == F_SIGNAL and t.event is not None:
                self.lost_signals[key.ident] = self.lost_signals.get(key.ident, 0) + t.event.data
            raise
        if t.event is None:
            raise ClosedError(None, what=f"what {key!r} is about")
        if t.event.flags & EV_ERROR:
            raise oserrors.make(t.event.data)
        return t.event

    cdef py_kevent wait_fd_event(self, coro me, object ident, int filter):
        cdef int fd = PyObject_AsFileDescriptor(ident), r
        cdef fd_state *s = self.state_of(fd)
        cdef uint32_t ready = ready_bit(filter)
        cdef unsigned int fflags = 0
        cdef int64_t data
        while True:
            r = self.wait_on(me, s, fd, ready, True)
            if r == 2:
                if filter == F_EXCEPT:
                    raise oserrors.make(_errno.EPERM)
                return new_event(fd, filter, 0, 0, 0)
            if r == 0 and not self.event_flags(filter, s.revents) & FOREIGN:
                data = self.details(fd, ready, &fflags)
                return new_event(fd, filter, self.event_flags(filter, s.revents), fflags, data)

    # -- handlers

    cdef int drop_handlers(self) except -1:
        cdef kevent_target t
        for t in list(self.targets.values()):
            if t.is_handler:
                self.remove(t)
        return 0

    cdef int add_handler(self, object ident, int filter, object handler, unsigned int flags,
                         unsigned int fflags, int64_t data) except -1:
        cdef kevent_target t
        cdef kevent_key key
        cdef fd_state *s
        cdef PyObject **slot
        cdef uint32_t bit = ready_bit(filter)
        cdef int fd, refused = -1
        key = key_of(filter, ident)
        t = self.targets.get(key)
        if t is not None and not bit:
            raise SimultaneousError(caller(), t.target, key)
        t = new_target(key, handler, flags)
        t.fflags = fflags
        t.is_handler = True
        t.context = _copy_context()
        label = getattr(handler, "__qualname__", None)
        t.label = label if type(label) is str else type(handler).__qualname__
        if not bit:
            self.begin(t, data)
            if t.event is not None:       # a child that is dead already
                self.fired(t, t.event.flags, t.event.fflags, t.event.data)
            return 0
        fd = key.ident
        s = self.state_of(fd)
        slot = slot_of(s, bit)
        if slot[0] != NULL:
            self.check_slot(fd, s, slot, caller(), filter)
        Py_INCREF(t)
        slot[0] = <PyObject *>t
        t.state = SUBMITTED
        self.targets[key] = t
        self.n_handlers += 1
        note_handlers(s)
        s.flags &= ~bit
        try:
            refused = self.arm(fd, s, <PyObject *>t, True)
        finally:
            if refused != 0:
                self.remove(t)
        if refused:
            raise oserrors.make(_errno.EPERM)
        return 0

    # End a registration, whatever its kind.  Safe to call twice.
    cdef int remove(self, kevent_target t) except -1:
        cdef fd_state *s
        cdef PyObject **slot
        cdef uint32_t bit
        if t.state != SUBMITTED:
            return 0
        t.state = ABORTED
        if self.targets.get(t.key) is t:
            del self.targets[t.key]
        if t.is_handler:
            self.n_handlers -= 1
        bit = ready_bit(t.key.filter)
        if not bit:
            return self.end(t)
        s = fd_lookup(t.key.ident)
        if s == NULL:
            return 0
        slot = slot_of(s, bit)
        if slot[0] == <PyObject *>t:
            slot[0] = NULL
            note_handlers(s)
            if not s.flags & FD_OWNED and s.armed & bit:
                self.retract(t.key.ident, s)
            Py_DECREF(t)
        return 0

    # Something happened to a target.  Called in main, and by threads that begin or end a registration.
    # Returns the number of wake-ups.
    cdef int fired(self, kevent_target t, unsigned int flags, unsigned int fflags, int64_t data) except -1:
        cdef py_kevent event
        cdef coro thread
        if t.state != SUBMITTED:
            return 0
        if t.running:
            t.missed = True
            t.missed_fflags |= fflags
            t.missed_data += data
            return 0
        event = new_event(t.key.ident, t.key.filter, flags, fflags, data)
        if not t.is_handler:
            self.remove(t)
            t.state = FIRED
            t.event = event
            return wake(<coro>t.target, None)
        if t.flags & EV_ONESHOT or t.key.filter == F_PROC or flags & EV_ERROR:
            self.remove(t)
            t.state = FIRED
        else:
            t.running = True
        try:
            thread = spawn_internal(_run_handler, (t, event), False)
            thread.label = t.label
        except LoopError:         # the loop is ending, which drops handlers
            t.running = False
            self.remove(t)
            return 0
        return 1

    # Runs in the handler's own thread.
    cdef int run_handler(self, kevent_target t, py_kevent event) except -1:
        try:
            t.context.copy().run(t.target, event)
        finally:
            self.handler_done(t)
        return 0

    cdef int handler_done(self, kevent_target t) except -1:
        cdef fd_state *s
        cdef PyObject **slot
        cdef int refused = -1
        t.running = False
        if t.state != SUBMITTED:
            return 0
        if ready_bit(t.key.filter):
            s = self.state_of(t.key.ident)
            slot = slot_of(s, ready_bit(t.key.filter))
            if slot[0] != <PyObject *>t:
                return 0
            try:
                refused = self.arm(t.key.ident, s, <PyObject *>t, True)
            finally:
                if refused != 0:
                    self.remove(t)
        elif t.missed:
            t.missed = False
            fflags, data = t.missed_fflags, t.missed_data
            t.missed_fflags = 0
            t.missed_data = 0
            self.fired(t, 0, fflags, data)
        return 0

    # -- everything that is not a descriptor

    cdef int begin(self, kevent_target t, int64_t data) except -1:
        cdef int filter = t.key.filter
        cdef _Alarm alarm = None
        cdef int64_t unit
        if filter == F_TIMER:
            unit = (1_000_000_000 if t.fflags == NOTE_SECONDS else 1000 if t.fflags == NOTE_USECONDS
                    else 1 if t.fflags == NOTE_NSECONDS else 1_000_000)
            if t.fflags not in (0, NOTE_SECONDS, NOTE_MSECONDS, NOTE_USECONDS, NOTE_NSECONDS):
                raise ValueError("fflags of a TIMER must be one unit (NOTE.SECONDS, MSECONDS, USECONDS, "
                                 f"NSECONDS) or 0 for milliseconds, not {t.fflags:#x}")
            if data < 0 or data > 0x7FFFFFFFFFFFFFFF // unit:
                raise ValueError("data, the time until a TIMER fires, must be from 0 to 2**63 - 1 "
                                 f"nanoseconds, not {data} units")
            alarm = _Alarm.__new__(_Alarm)
            alarm.poller = self
            alarm.target = t
            alarm.period = from_ns(data * unit)
            alarm.periodic = not t.flags & EV_ONESHOT
            if alarm.periodic and alarm.period < 1:
                raise ValueError("data of a periodic TIMER must be at least 1; "
                                 "give EV.ONESHOT for one event as soon as possible")
            alarm.due = ticks_now() + alarm.period
            t.timer = alarm
        elif filter == F_SIGNAL:
            begin_signal(self, t)
        else:
            self.begin_other(t)
        t.state = SUBMITTED
        if t.event is not None and not t.is_handler:
            t.state = FIRED
            self.end(t)
            return 0
        self.targets[t.key] = t
        if t.is_handler:
            self.n_handlers += 1
        if filter == F_TIMER:
            timer_add(alarm, alarm.due)
        return 0

    cdef int end(self, kevent_target t) except -1:
        cdef _Alarm alarm
        if t.key.filter == F_TIMER:
            alarm = <_Alarm>t.timer
            if alarm is not None:
                timer_cancel(alarm)
                alarm.target = None
                t.timer = None
            return 0
        if t.key.filter == F_SIGNAL:
            previous, t.previous = t.previous, None
            # Only undo what is still ours: the program may have installed something else meanwhile.
            if _signal.getsignal(t.key.ident) is _ignore_signal:
                if previous is None or previous is _ignore_signal:
                    previous = _signal.SIG_DFL
                _signal.signal(t.key.ident, previous)
            if t.key.ident == SIGCHLD:
                self.want_child_signals()
            return 0
        return self.end_other(t)

    # -- signals

    cdef int open_signals(self) except -1:
        cdef int p[2]
        cdef int fds
        if self.signal_read >= 0 or coro_open_pipe(p) < 0:
            return 0
        fds = p[1]
        try:
            self.program_fd = _signal.set_wakeup_fd(fds, warn_on_full_buffer=False)
        except ValueError:        # not the main OS thread: its signals are somebody else's business
            close(p[0])
            close(p[1])
            return 0
        self.signal_read = p[0]
        self.signal_write = p[1]
        coro_signal_pipe[0] = p[0]
        coro_signal_pipe[1] = p[1]
        # A signal that came before, and whose Python-level handler has not run yet, left no mark in the pipe: the first
        # poll has to look.
        write(p[1], b"\0", 1)
        self.watch_signals(p[0])
        return 0

    cdef int close_signals(self) except -1:
        cdef int r = self.signal_read, w = self.signal_write
        if r < 0:
            return 0
        self.signal_read = self.signal_write = -1
        coro_signal_pipe[0] = coro_signal_pipe[1] = -1
        try:
            try:
                now = _signal.set_wakeup_fd(self.program_fd, warn_on_full_buffer=self.program_warned)
            except (OSError, ValueError):     # it was closed, or blocks by now; or this is not the main OS thread
                now = _signal.set_wakeup_fd(-1)
            if now != w:
                _signal.set_wakeup_fd(now)
        except (OSError, ValueError):
            pass
        self.program_fd = -1
        self.program_warned = True
        self.unwatch_signals(r)
        close(r)
        close(w)
        return 0

    # Called by poll() after all other events: the Python-level handlers run here, and what they raise leaves
    # poll().
    cdef int read_signals(self) except -1:
        cdef unsigned char buffer[256]
        cdef int counts[MAX_SIGNAL]
        cdef ssize_t n, i
        cdef int n_wakes = 0
        cdef kevent_target t
        memset(counts, 0, sizeof(counts))
        while True:
            n = read(self.signal_read, buffer, sizeof(buffer))
            if n <= 0:
                if n < 0 and errno == EINTR:
                    continue
                break
            for i in range(n):
                if 0 < buffer[i] < MAX_SIGNAL:
                    counts[buffer[i]] += 1
            if self.program_fd >= 0:
                self.tell_program(buffer, n)
        for i in range(MAX_SIGNAL):
            if counts[i]:
                t = self.targets.get(new_key(F_SIGNAL, i))
                if t is not None:
                    n_wakes += self.fired(t, 0, 0, counts[i])
        if counts[SIGCHLD]:
            n_wakes += self.look_at_children()
        PyErr_CheckSignals()
        return n_wakes

    # The program's own wake-up descriptor gets the numbers, too, late by the time to the next poll.
    cdef int tell_program(self, unsigned char *numbers, ssize_t n) except -1:
        cdef ssize_t i
        for i in range(n):
            if numbers[i] == 0 or write(self.program_fd, &numbers[i], 1) == 1:
                continue
            if errno != EAGAIN:
                return 0              # closed meanwhile
            if self.program_warned:
                report_full(self.program_fd)
            return 0
        return 0

    cdef int forget_all(self) except -1:
        FdPoller.forget_all(self)
        self.lost_signals.clear()
        return 0

    # -- the kernel's part, see _poll/epoll.pyx and _poll/kqueue.pyx

    cdef int begin_other(self, kevent_target t) except -1:
        raise NotImplementedError

    cdef int end_other(self, kevent_target t) except -1:
        raise NotImplementedError

    # Where the kernel does not tell of children by itself: SIGCHLD came; and somebody needs it.
    cdef int look_at_children(self) except -1:
        return 0

    cdef int want_child_signals(self) except -1:
        return 0

    cdef int watch_signals(self, int fd) except -1:
        raise NotImplementedError

    cdef int unwatch_signals(self, int fd) except -1:
        raise NotImplementedError


cdef int report_full(int fd) except -1:
    # In the words of the interpreter's own signal handler.
    try:
        raise BlockingIOError(_errno.EAGAIN, _strerror(_errno.EAGAIN))
    except OSError:
        PyErr_WriteUnraisable(f"the signal wake-up descriptor {fd}, which takes no more")
    return 0


def _set_wakeup_fd(number, warn_on_full_buffer):
    """signal.set_wakeup_fd() for a program that runs in this loop: the loop's own descriptor stays, and the program's
    gets from it what comes. Returns the program's earlier one; None where the loop has none: the original is due.

    ValueError for a descriptor in blocking mode, OSError for none."""
    cdef EventPoller p = event_poller()
    cdef int fd = _index(number)
    p.open_signals()
    if p.signal_read < 0:
        return None
    if fd >= 0:
        _fstat(fd)
        if _get_blocking(fd):
            raise ValueError(f"the fd {fd} must be in non-blocking mode")
    before = p.program_fd
    p.program_fd = fd if fd >= 0 else -1
    p.program_warned = warn_on_full_buffer
    return before


cdef int begin_signal(EventPoller p, kevent_target t) except -1:
    if p.signal_read < 0:
        p.open_signals()
    if p.signal_read < 0:
        raise ValueError("signals can be awaited only where the loop runs in the main OS thread of the "
                         "process; run it there, or hand the signal on from there with coro.post()")
    t.previous = _signal.signal(t.key.ident, _ignore_signal)
    return 0


cdef kevent_key key_of(int filter, object ident):
    if ready_bit(filter) or filter == F_VNODE:
        return new_key(filter, PyObject_AsFileDescriptor(ident))
    if filter != F_PROC and filter != F_SIGNAL and filter != F_TIMER:
        raise ValueError("filter must be one of EVFILT.READ, WRITE, EXCEPT, VNODE, PROC, SIGNAL, TIMER, "
                         f"not {filter_name(filter)}")
    return new_key(filter, _index(ident))


cdef object caller():
    try:
        return running_thread()
    except YieldFromMain:
        return None


cdef EventPoller event_poller():
    return <EventPoller?>fd_poller()


# -- The public functions ----------------------------------------------------------------------------

def wait_for(ident, filter, fflags=0, data=0, timeout=None):
    """Wait until an event happens, once.

    ident: what it is about: for READ, WRITE, EXCEPT and VNODE a descriptor (or an object with ``fileno()``),
    for PROC a process number, for SIGNAL a signal number, for TIMER any integer.
    filter: one of ``EVFILT``.
    fflags: ``NOTE`` bits: what to look for (VNODE, at least one), the unit of ``data`` (TIMER).
    data: TIMER only: time until it fires, in milliseconds or the unit given.
    timeout: a number of seconds, None for ever; coro.TimeoutError when it is over. With 0 that is always so, since it
    is the loop that asks the kernel.

    Returns a py_kevent.  Its ``data`` is the wait status for PROC (the child is not reaped), the number of
    arrivals for SIGNAL, of expirations for TIMER; ``fflags`` says what happened to a VNODE; ``flags`` has
    ``EV.EOF`` when a descriptor's other side has ended or it has an error (SO_ERROR tells which).  A regular
    file is always ready. A signal is caught only while a thread waits for it: use set_handler() to miss none.

    Raises SimultaneousError when that event has a waiter or a handler already; ClosedError when the
    descriptor is closed meanwhile; an oserrors class when the kernel refuses (ESRCH: no such process, ECHILD:
    not a child, EBADF); ValueError for arguments the filter cannot have, TypeError for a filter that is no int;
    TypeError or ValueError for a timeout that is not a number;
    YieldFromMain outside a thread; and interruptions.
    """
    limit = None if timeout is None else _CallLimit(timeout, "wait_for()")
    check_filter(filter)
    if limit is None:
        return event_poller().wait_event(ident, filter, fflags, data)
    with limit:
        return event_poller().wait_event(ident, filter, fflags, data)


# EV.ADD | EV.ONESHOT: inspect.signature can show a number, but no constant of C.
def set_handler(event, handler, flags=0x11, fflags=0, data=0):
    """Call a function in a new thread whenever an event happens.

    event: ``(ident, filter)`` as for wait_for().
    handler: called with the py_kevent as its only argument, in a copy of the context of the caller of
    set_handler().
    flags: ``EV.ADD``, with ``EV.ONESHOT`` for at most once.  Without it the handler stays until
    remove_handler(), or until the descriptor is closed; it is never run twice at the same time: a descriptor
    is watched again when the handler has returned, other events that come while it runs are added up and
    reported then.  ``EV.DELETE`` is remove_handler().
    fflags, data: as for wait_for(); without ``EV.ONESHOT`` a TIMER is periodic.

    Never waits.  While a handler is registered, a standstill is not called a deadlock; but the loop may end.

    Raises TypeError when the handler cannot be called or the event is not a pair; ValueError for flags or
    arguments that do not fit; SimultaneousError when the event has a waiter or handler; an oserrors class
    when the kernel refuses (EPERM: a regular file); WrongThreadError in another OS thread.
    """
    ident, filter = event_pair(event)
    caller()          # raises WrongThreadError where it must
    if flags & EV_DELETE:
        remove_handler(event)
        return
    if not callable(handler):
        raise TypeError(f"handler must be callable with one argument, not {type(handler).__name__}")
    if flags & ~EV_KNOWN:
        raise ValueError(f"flags may be EV.ADD, ENABLE, ONESHOT and CLEAR, or EV.DELETE, not {int(flags):#x}")
    event_poller().add_handler(ident, filter, handler, flags, fflags, data)


def remove_handler(event):
    """End the registration of a handler. A call of it that has begun goes on.

    event: ``(ident, filter)`` as given to set_handler().

    Raises KeyError when that event has no handler; TypeError when the event is not a pair; WrongThreadError
    in another OS thread.
    """
    cdef EventPoller p = event_poller()
    cdef kevent_target t
    cdef kevent_key key
    ident, filter = event_pair(event)
    caller()
    key = key_of(filter, ident)
    t = p.targets.get(key)
    if t is None or not t.is_handler:
        raise KeyError(key)
    p.remove(t)


cdef tuple event_pair(object event):
    if not isinstance(event, (tuple, list)) or len(event) != 2:
        raise TypeError("the event must be a pair (ident, filter), for instance (3, EVFILT.READ), "
                        f"not {event!r}")
    check_filter(event[1])
    return tuple(event)


cdef int check_filter(object filter) except -1:
    if not isinstance(filter, int):
        raise TypeError("a filter is one of EVFILT, for instance EVFILT.READ, "
                        f"not {type(filter).__name__}: {filter!r}")
    return 0


cdef dict snapshot():
    cdef dict d = {}
    cdef fd_state *s
    cdef uint32_t bit
    cdef PyObject *p
    cdef kevent_target t
    cdef kevent_key key
    cdef int fd = fd_each(0)
    d.update(current_targets())
    while fd >= 0:
        s = fd_lookup(fd)
        for bit in (FD_READ_READY, FD_WRITE_READY, FD_EXCEPT_READY):
            p = slot_of(s, bit)[0]
            if p != NULL and type(<object>p) is not kevent_target:
                key = new_key(filter_of(bit), fd)
                t = new_target(key, <object>p, EV_ADD | EV_ONESHOT)
                t.state = SUBMITTED
                d[key] = t
        fd = fd_each(fd + 1)
    return d


cdef class EventMap:
    """Read-only mapping of everything awaited now: ``{kevent_key: kevent_target}``.

    It is always up to date. Each look at it walks the table of descriptors, so use it for debugging and in tests.
    """

    def __getitem__(self, key):
        return snapshot()[key]

    def __iter__(self):
        return iter(snapshot())

    def __len__(self):
        return len(snapshot())

    def __contains__(self, key):
        return key in snapshot()

    def __eq__(self, other):
        return snapshot() == other

    __hash__ = None

    def get(self, key, default=None):
        """The target of a key, or the default."""
        return snapshot().get(key, default)

    def keys(self):
        """The keys at this moment."""
        return snapshot().keys()

    def values(self):
        """The targets at this moment."""
        return snapshot().values()

    def items(self):
        """The pairs at this moment."""
        return snapshot().items()

    def __repr__(self):
        return repr(snapshot())


_Mapping.register(EventMap)
event_map = EventMap()


# -- For tests: the C-level interface of owned descriptors, as sockets use it.

def _own(int fd):
    fd_poller().own(fd)


def _disown(int fd, closer=None):
    cdef FdPoller p = fd_poller()
    p.disown(fd, closer)
    p.released(fd, p.state_of(fd))


def _wait_owned(int fd, int filter, bint fresh=False):
    cdef FdPoller p = fd_poller()
    cdef fd_state *s = p.state_of(fd)
    if filter == F_WRITE and fresh:
        p.wait_write_fresh(s, fd)
    elif filter == F_WRITE:
        p.wait_write(s, fd)
    elif fresh:
        p.wait_read_fresh(s, fd)
    else:
        p.wait_read(s, fd)


def _fd_flags(int fd):
    cdef fd_state *s = fd_lookup(fd)
    return 0 if s == NULL else s.flags


def _round_to_milliseconds(yes):
    fd_poller()._round_to_milliseconds(yes)


def _alarm_rings_at():
    return fd_poller()._alarm_rings_at()


def _clear_flags(int fd, unsigned int flags):
    fd_lookup(fd).flags &= ~flags
