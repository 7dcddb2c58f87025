# cython: language_level=3, binding=False, auto_pickle=False, embedsignature=True, embedsignature.format=clinic
"""What every poller shares: who waits for which descriptor, what was heard about it, and the event interface.

A descriptor number has one record (`fd_state`, 48 bytes) in a two-level table.  Records never move and are never
freed, so a socket keeps the address of its record for its life; the chunks (256 records, 12 KiB) are made where
numbers are used.  A record has three slots, for reading, writing and exceptional conditions, each with at most one
waiter: a second one gets SimultaneousError, because two threads that wait for the same bytes are a bug in all
programs but those that share a listening socket.

Two kinds of descriptors.  Those that a sock of ours *owns* are registered with the kernel once, edge triggered, and
what the kernel says is remembered in the record until somebody consumes it: no system call per wait.  All others
are registered for one event per wait, since other code may close such a number, and reuse it, without telling us.

Rules that keep a wake-up from being lost:

1. A poll that finds a waiter takes it out of its slot, wakes it, and leaves the readiness remembered.  The waiter
   clears that memory when it resumes normally.  One that is interrupted instead does not, so the next waiter sees it.
2. A waiter that leaves withdraws only itself: it looks whether it is still in the slot.
3. `epoch` changes whenever the number changes hands; a waiter that finds another epoch was closed, however it woke.
4. `generation` goes into the kernel's event data and changes with each registration, so an event that was meant for an
   earlier file of the same number (a duplicated descriptor keeps such registrations alive) is recognised as stale.

Everything that is not a descriptor (processes, signals, timers, changes of files) and every handler is a
`kevent_target` object in a dictionary; these are rare, so they are ordinary Python objects.

The kernel's side (epoll, kqueue) is a subclass with nine small methods, in a file of its own.
"""

import errno as _errno
import signal as _signal
from collections.abc import Mapping as _Mapping
from contextvars import copy_context as _copy_context
from operator import index as _index

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, realloc
from libc.string cimport memset
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject, PyObject_AsFileDescriptor
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF

from coro._scheduler cimport (
    Poller, TimerTarget, WAIT_EVENT, WAIT_READ, WAIT_WRITE, coro, count_io, is_daemon, poller, running_thread,
    slice as give_way, spawn_internal, suspend, suspend_fd, timer_add, timer_cancel, wake, wake_error,
)
from coro._ticks cimport from_ns, now as ticks_now

from coro import oserrors
from coro._filters import EFILT, EV, EVFILT, NOTE
from coro.exceptions import ClosedError, LoopError, SimultaneousError, YieldFromMain

__all__ = [
    "EFILT", "EV", "EVFILT", "NOTE", "event_map", "kevent_key", "kevent_target", "poller_statistics", "py_event",
    "py_kevent", "remove_handler", "set_handler", "wait_for",
]

cdef extern from *:
    """
    #include <fcntl.h>
    #include <unistd.h>
    static int coro_open_pipe(int *p) {
        if (pipe(p) < 0) return -1;
        for (int i = 0; i < 2; i++) {
            fcntl(p[i], F_SETFD, FD_CLOEXEC);
            fcntl(p[i], F_SETFL, fcntl(p[i], F_GETFL) | O_NONBLOCK);
        }
        return 0;
    }
    static int coro_fd_is_open(int fd) { return fcntl(fd, F_GETFD) != -1; }
    """
    int coro_open_pipe(int *p) nogil
    int coro_fd_is_open(int fd) nogil

cdef extern from "unistd.h" nogil:
    int close(int)
    ssize_t read(int, void *, size_t)

# The numbers of _filters.py, for C.
cdef enum:
    F_READ = -1
    F_WRITE = -2
    F_VNODE = -4
    F_PROC = -5
    F_SIGNAL = -6
    F_TIMER = -7
    F_EXCEPT = -15
    EV_ADD = 0x1
    EV_DELETE = 0x2
    EV_ENABLE = 0x4
    EV_ONESHOT = 0x10
    EV_CLEAR = 0x20
    EV_KNOWN = 0x37
    EV_ERROR = 0x4000
    FOREIGN = 0x10000        # event_flags(): what came does not belong to that filter (owned descriptors report everything)
    NOTE_SECONDS = 1
    NOTE_MSECONDS = 2
    NOTE_USECONDS = 4
    NOTE_NSECONDS = 8
    NEW = 0
    SUBMITTED = 1
    FIRED = 2
    ABORTED = 3

cdef enum:
    MAX_SIGNAL = 128
    CHUNK = 256

cdef tuple STATES = ("NEW", "SUBMITTED", "FIRED", "ABORTED")


# -- The table of descriptors ------------------------------------------------------------------------------------

cdef fd_state **table = NULL
cdef int table_len = 0


cdef fd_state *fd_lookup(int fd) noexcept nogil:
    if <unsigned int>fd // CHUNK >= <unsigned int>table_len or table[fd // CHUNK] == NULL:
        return NULL
    return &table[fd // CHUNK][fd % CHUNK]


cdef int fd_each(int fd) noexcept nogil:
    while fd // CHUNK < table_len:
        if table[fd // CHUNK] != NULL:
            return fd
        fd = (fd // CHUNK + 1) * CHUNK
    return -1


cdef fd_state *new_record(int fd) except NULL:
    global table, table_len
    cdef fd_state **grown
    cdef int chunk = fd // CHUNK, length
    # A number the process cannot have must not cost memory: ask the kernel before the table grows for it.
    if fd < 0 or not coro_fd_is_open(fd):
        raise oserrors.make(_errno.EBADF)
    if chunk >= table_len:
        length = max(chunk + 1, 2 * table_len, 16)
        grown = <fd_state **>realloc(table, length * sizeof(fd_state *))
        if grown == NULL:
            raise MemoryError()
        memset(grown + table_len, 0, (length - table_len) * sizeof(fd_state *))
        table = grown
        table_len = length
    if table[chunk] == NULL:
        table[chunk] = <fd_state *>calloc(CHUNK, sizeof(fd_state))
        if table[chunk] == NULL:
            raise MemoryError()
    return &table[chunk][fd % CHUNK]


cdef inline PyObject **slot_of(fd_state *s, uint32_t ready) noexcept:
    if ready == FD_READ_READY:
        return &s.reader
    if ready == FD_WRITE_READY:
        return &s.writer
    return &s.excepter


cdef inline bint is_target(PyObject *p) noexcept:
    return p != NULL and type(<object>p) is kevent_target


cdef inline uint32_t wants(PyObject *p, uint32_t ready) noexcept:
    # A handler whose thread still runs is deaf until that thread has ended.
    if p == NULL or (is_target(p) and (<kevent_target>p).running):
        return 0
    return ready


cdef uint32_t fd_wanted(fd_state *s) noexcept:
    return wants(s.reader, FD_READ_READY) | wants(s.writer, FD_WRITE_READY) | wants(s.excepter, FD_EXCEPT_READY)


cdef int note_handlers(fd_state *s) noexcept:
    if is_target(s.reader) or is_target(s.writer) or is_target(s.excepter):
        s.flags |= FD_HANDLERS
    else:
        s.flags &= ~<uint32_t>FD_HANDLERS
    return 0


cdef inline uint32_t ready_bit(int filter) noexcept:
    if filter == F_READ:
        return FD_READ_READY
    if filter == F_WRITE:
        return FD_WRITE_READY
    if filter == F_EXCEPT:
        return FD_EXCEPT_READY
    return 0


cdef inline int filter_of(uint32_t ready) noexcept:
    return F_READ if ready == FD_READ_READY else F_WRITE if ready == FD_WRITE_READY else F_EXCEPT


# -- Events and their names --------------------------------------------------------------------------------------

def _filter_name(filter):
    try:
        return EVFILT(filter).name
    except ValueError:
        return str(filter)


cdef class py_kevent:
    """What happened.  Read-only; made by wait_for() and for handlers.

    ``ident`` and ``filter`` say to what (``EVFILT``); ``flags`` are ``EV`` bits (``EV.EOF``: the peer ended or the
    descriptor has an error; ``EV.ERROR``: the event could not be had, ``data`` is the errno); ``fflags`` and ``data`` are
    the filter's details.  ``udata_addr`` is always 0 and there for programs that print it.
    """

    def __init__(self, *args, **kwargs):
        raise TypeError("py_kevent objects are made by wait_for() and for handlers, not by hand")

    def __repr__(self):
        return (f"<py_kevent ident={self.ident!r} filter={_filter_name(self.filter)} flags={self.flags:#x} "
                f"fflags={self.fflags:#x} data={self.data}>")


py_event = py_kevent


cdef py_kevent new_event(object ident, int filter, unsigned int flags, unsigned int fflags, int64_t data):
    cdef py_kevent e = py_kevent.__new__(py_kevent)
    e.ident = ident
    e.filter = filter
    e.flags = flags
    e.fflags = fflags
    e.data = data
    return e


cdef class kevent_key:
    """Names a registration: hashable, compared with ``==`` by ``filter`` and ``ident``."""

    def __init__(self, filter, ident):
        """A key.

        filter: an EVFILT number.  ident: what it is about (descriptor, process, signal or timer number).
        Raises TypeError for a filter that is not an integer.
        """
        self.filter = filter
        self.ident = ident

    def __eq__(self, other):
        if type(other) is not kevent_key:
            return NotImplemented
        return self.filter == (<kevent_key>other).filter and self.ident == (<kevent_key>other).ident

    def __hash__(self):
        return hash((self.filter, self.ident))

    def __reduce__(self):
        return kevent_key, (self.filter, self.ident)

    def __repr__(self):
        return f"<kevent_key filter={_filter_name(self.filter)} ident={self.ident!r}>"


cdef kevent_key new_key(int filter, object ident):
    cdef kevent_key k = kevent_key.__new__(kevent_key)
    k.filter = filter
    k.ident = ident
    return k


cdef class kevent_target:
    """Who is told about an event: one entry of ``event_map``.

    ``key`` names the registration, ``target`` is the waiting thread or the handler, ``flags`` the EV bits of the
    registration, ``status`` one of ``'NEW'``, ``'SUBMITTED'``, ``'FIRED'``, ``'ABORTED'``, ``index`` the place in a change
    list where the system has one, else -1.

    Invariants: (1) state is SUBMITTED exactly while the target stands in ``FdPoller.targets`` or in a slot of a
    descriptor; (2) a handler runs at most once at a time per registration, what happens meanwhile is added up.
    """

    def __init__(self, *args, **kwargs):
        raise TypeError("kevent_target objects are made by wait_for() and set_handler(), not by hand")

    @property
    def status(self):
        """'NEW', 'SUBMITTED', 'FIRED' or 'ABORTED'."""
        return STATES[self.state]

    def __repr__(self):
        return f"<kevent_target {self.status} key={self.key!r} target={self.target!r} flags={self.flags:#x}>"


cdef kevent_target new_target(kevent_key key, object target, unsigned int flags):
    cdef kevent_target t = kevent_target.__new__(kevent_target)
    t.key = key
    t.target = target
    t.flags = flags
    t.index = -1
    t.fd = -1
    return t


cdef class _Alarm(TimerTarget):
    """The timer behind a TIMER registration: counts periods, and re-arms itself unless it is one-shot."""

    cdef FdPoller poller
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
    fd_poller().run_handler(t, event)


# -- The base class ----------------------------------------------------------------------------------------------

cdef class FdPoller(Poller):
    """Descriptors, handlers, signals and timers; a subclass adds the kernel.  See the head of this file.

    Invariants: (1) every slot owns a reference to its waiter; (2) a thread stands in a slot only between the moment before
    it suspends and the moment somebody takes it out or it resumes; (3) n_handlers counts the handlers in `targets`.
    """

    def __cinit__(self, *args, **kwargs):
        self.targets = {}
        self.lost_signals = {}
        self.signal_read = self.signal_write = -1

    # -- owned descriptors, for sockets

    cdef fd_state *state_of(self, int fd) except NULL:
        cdef fd_state *s = fd_lookup(fd)
        if s == NULL:
            s = new_record(fd)
        return s

    cdef int own(self, int fd) except -1:
        cdef fd_state *s = self.state_of(fd)
        s.epoch += 1
        s.generation += 1
        s.armed = s.revents = 0
        # Not registered for this owner yet; where the same file is still known to the kernel, arm() gets EEXIST and changes it.
        s.flags = FD_OWNED | (s.flags & FD_HANDLERS)
        if s.reader != NULL or s.writer != NULL or s.excepter != NULL:
            self.clear_slots(fd, s, NULL, None)
        return 0

    cdef int disown(self, int fd, object closer) except -1:
        cdef fd_state *s = fd_lookup(fd)
        if s == NULL:
            return 0
        if s.flags & FD_REGISTERED:
            self.forget(fd, s)
        s.epoch += 1
        s.generation += 1
        s.armed = s.revents = 0
        s.flags &= FD_HANDLERS
        if s.reader != NULL or s.writer != NULL or s.excepter != NULL:
            self.clear_slots(fd, s, NULL, closer)
        return 0

    cdef int wait_read(self, fd_state *s, int fd) except -1:
        cdef coro me = running_thread()
        if s.flags & FD_READ_READY:
            s.flags &= ~<uint32_t>FD_READ_READY
            return 0
        self.wait_on(me, s, fd, FD_READ_READY, False)
        return 0

    cdef int wait_write(self, fd_state *s, int fd) except -1:
        cdef coro me = running_thread()
        if s.flags & FD_WRITE_READY:
            s.flags &= ~<uint32_t>FD_WRITE_READY
            return 0
        self.wait_on(me, s, fd, FD_WRITE_READY, False)
        return 0

    cdef int wait_read_fresh(self, fd_state *s, int fd) except -1:
        cdef coro me = running_thread()
        while self.wait_on(me, s, fd, FD_READ_READY, True) == 1:
            pass
        return 0

    cdef int wait_write_fresh(self, fd_state *s, int fd) except -1:
        cdef coro me = running_thread()
        while self.wait_on(me, s, fd, FD_WRITE_READY, True) == 1:
            pass
        return 0

    # The one place where a thread waits for a descriptor.  Returns 0: an event came; 1: somebody else woke the thread;
    # 2: the kernel does not watch such files, the thread only gave way.
    cdef int wait_on(self, coro me, fd_state *s, int fd, uint32_t ready, bint fresh) except -1:
        cdef PyObject **slot = slot_of(s, ready)
        cdef uint32_t epoch = s.epoch
        cdef bint counted, left = False
        cdef int refused
        if slot[0] != NULL:
            self.check_slot(fd, s, slot, me, filter_of(ready))
        if s.flags & FD_UNPOLLABLE:
            give_way(me)
            return 2
        Py_INCREF(me)
        slot[0] = <PyObject *>me
        if fresh or (s.flags & (FD_OWNED | FD_REGISTERED)) != (FD_OWNED | FD_REGISTERED):
            s.flags &= ~ready
            refused = -1
            try:
                refused = self.arm(fd, s, <PyObject *>me, fresh)
            finally:
                if refused != 0 and slot[0] == <PyObject *>me:
                    slot[0] = NULL
                    Py_DECREF(me)
            if refused:
                if s.flags & FD_OWNED:
                    s.flags |= FD_UNPOLLABLE
                give_way(me)
                return 2
        counted = not is_daemon(me)
        if counted:
            count_io(1)
        try:
            suspend_fd(me, WAIT_WRITE if ready == FD_WRITE_READY else WAIT_READ, fd)
        finally:
            if counted:
                count_io(-1)
            if slot[0] == <PyObject *>me:
                slot[0] = NULL
                Py_DECREF(me)
                left = True
                if not s.flags & FD_OWNED:
                    self.retract(fd, s)
        if s.epoch != epoch:
            raise ClosedError(None)
        if left:
            return 1
        s.flags &= ~ready
        return 0

    # A slot is taken.  Its waiter may be waiting for a file that is closed by now, its number used again: the kernel knows.
    cdef int check_slot(self, int fd, fd_state *s, PyObject **slot, object me, int filter) except -1:
        if not s.flags & FD_OWNED:
            self.retract(fd, s)
        if slot[0] != NULL:
            raise SimultaneousError(me, self_or_target(slot[0]), new_key(filter, fd))
        return 0

    # Take every waiter but one out of the slots and tell it that the descriptor was closed.
    cdef int clear_slots(self, int fd, fd_state *s, PyObject *but, object closer) except -1:
        cdef uint32_t ready
        cdef PyObject **slot
        cdef PyObject *p
        cdef kevent_target t
        for ready in (FD_READ_READY, FD_WRITE_READY, FD_EXCEPT_READY):
            slot = slot_of(s, ready)
            p = slot[0]
            if p == NULL or p == but:
                continue
            if is_target(p):
                t = <kevent_target>p
                self.remove(t)      # takes it out of the slot as well
            else:
                slot[0] = NULL
                wake_error(<coro>p, ClosedError(closer))
                Py_DECREF(<object>p)
        return 0

    # Wake whoever waits for these directions; the road for records with handlers, and for kernels that are not in a hurry.
    cdef int deliver(self, int fd, fd_state *s, uint32_t ready) except -1:
        cdef uint32_t bit
        cdef PyObject **slot
        cdef PyObject *p
        cdef int n = 0
        cdef unsigned int flags
        cdef kevent_target t
        for bit in (FD_READ_READY, FD_WRITE_READY, FD_EXCEPT_READY):
            if not ready & bit:
                continue
            slot = slot_of(s, bit)
            p = slot[0]
            if p == NULL:
                continue
            if is_target(p):
                flags = self.event_flags(filter_of(bit), s.revents)
                if not flags & FOREIGN:
                    t = <kevent_target>p       # a reference of our own: fired() may give up the slot's
                    n += self.fired(t, flags, 0, 0)
            else:
                slot[0] = NULL
                n += wake(<coro>p, None)
                Py_DECREF(<object>p)
        return n

    # -- waiting for events

    cdef py_kevent wait_event(self, object ident, int filter, unsigned int fflags, int64_t data):
        cdef coro me = running_thread()
        cdef kevent_target t
        cdef kevent_key key
        cdef bint counted
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
        counted = not is_daemon(me)
        if counted:
            count_io(1)
        try:
            while t.state == SUBMITTED:
                suspend(me, WAIT_EVENT, key)
        except:
            if t.state == SUBMITTED:
                self.remove(t)
            elif filter == F_SIGNAL and t.event is not None:
                self.lost_signals[key.ident] = self.lost_signals.get(key.ident, 0) + t.event.data
            raise
        finally:
            if counted:
                count_io(-1)
        if t.event is None:
            raise ClosedError(None)
        if t.event.flags & EV_ERROR:
            raise oserrors.make(t.event.data)
        return t.event

    cdef py_kevent wait_fd_event(self, coro me, object ident, int filter):
        cdef int fd = PyObject_AsFileDescriptor(ident), r
        cdef fd_state *s = self.state_of(fd)
        cdef uint32_t ready = ready_bit(filter)
        while True:
            r = self.wait_on(me, s, fd, ready, True)
            if r == 2:
                if filter == F_EXCEPT:
                    raise oserrors.make(_errno.EPERM)
                return new_event(fd, filter, 0, 0, 0)
            if r == 0 and not self.event_flags(filter, s.revents) & FOREIGN:
                return new_event(fd, filter, self.event_flags(filter, s.revents), 0, 0)

    # -- handlers

    cdef int handlers_registered(self):
        return self.n_handlers

    cdef int drop_handlers(self) except -1:
        cdef kevent_target t
        for t in list(self.targets.values()):
            if t.is_handler:
                self.remove(t)
        return 0

    cdef int add_handler(self, object ident, int filter, object handler, unsigned int flags, unsigned int fflags,
                         int64_t data) except -1:
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

    # Something happened to a target.  Called in main, and by threads that begin or end a registration.  Returns the number of wake-ups.
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
                raise ValueError(f"fflags of a TIMER must be one unit (NOTE.SECONDS, MSECONDS, USECONDS, NSECONDS) or 0 for "
                                 f"milliseconds, not {t.fflags:#x}")
            if data < 0 or data > 0x7FFFFFFFFFFFFFFF // unit:
                raise ValueError(f"data, the time until a TIMER fires, must be from 0 to 2**63 - 1 nanoseconds, not {data} units")
            alarm = _Alarm.__new__(_Alarm)
            alarm.poller = self
            alarm.target = t
            alarm.period = from_ns(data * unit)
            alarm.periodic = not t.flags & EV_ONESHOT
            if alarm.periodic and alarm.period < 1:
                raise ValueError("data of a periodic TIMER must be at least 1 (give EV.ONESHOT for one event as soon as possible)")
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
                _signal.signal(t.key.ident, _signal.SIG_DFL if previous is None else previous)
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
            self.wakeup_before = _signal.set_wakeup_fd(fds, warn_on_full_buffer=False)
        except ValueError:        # not the main OS thread: its signals are somebody else's business
            close(p[0])
            close(p[1])
            return 0
        self.signal_read = p[0]
        self.signal_write = p[1]
        self.watch_signals(p[0])
        return 0

    cdef int close_signals(self) except -1:
        cdef int r = self.signal_read, w = self.signal_write
        if r < 0:
            return 0
        self.signal_read = self.signal_write = -1
        try:
            now = _signal.set_wakeup_fd(-1 if self.wakeup_before is None else self.wakeup_before)
            if now != w:
                _signal.set_wakeup_fd(now)
        except ValueError:        # the earlier descriptor is gone, or this is not the main OS thread
            pass
        self.wakeup_before = None
        self.unwatch_signals(r)
        close(r)
        close(w)
        return 0

    # Called by poll() after all other events: the Python-level handlers run here, and what they raise leaves poll().
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
                if buffer[i] < MAX_SIGNAL:
                    counts[buffer[i]] += 1
        for i in range(MAX_SIGNAL):
            if counts[i]:
                t = self.targets.get(new_key(F_SIGNAL, i))
                if t is not None:
                    n_wakes += self.fired(t, 0, 0, counts[i])
        PyErr_CheckSignals()
        return n_wakes

    # -- the end

    # No registration survives the kernel object: called by shut() and after a fork.  Threads that still wait are left
    # alone (the scheduler ends them); handlers are dropped.
    cdef int forget_all(self) except -1:
        cdef kevent_target t
        cdef fd_state *s
        cdef int fd = fd_each(0)
        for t in list(self.targets.values()):
            self.remove(t)
        self.targets.clear()
        self.lost_signals.clear()
        self.n_handlers = 0
        while fd >= 0:
            s = fd_lookup(fd)
            s.flags &= FD_OWNED | FD_NO_SHORTCUT | FD_UNPOLLABLE
            s.armed = 0
            s.generation += 1
            drop_slot(&s.reader)
            drop_slot(&s.writer)
            drop_slot(&s.excepter)
            fd = fd_each(fd + 1)
        return 0

    # -- the kernel's part: see _epoll.pyx

    cdef unsigned int event_flags(self, int filter, uint32_t revents):
        return 0

    cdef int arm(self, int fd, fd_state *s, PyObject *mine, bint fresh) except -1:
        raise NotImplementedError

    cdef int retract(self, int fd, fd_state *s) except -1:
        raise NotImplementedError

    cdef int forget(self, int fd, fd_state *s) except -1:
        raise NotImplementedError

    cdef int begin_other(self, kevent_target t) except -1:
        raise NotImplementedError

    cdef int end_other(self, kevent_target t) except -1:
        raise NotImplementedError

    cdef int watch_signals(self, int fd) except -1:
        raise NotImplementedError

    cdef int unwatch_signals(self, int fd) except -1:
        raise NotImplementedError

    def statistics(self):
        """Counters since the poller was made, as a dictionary.

        ``polls``: calls of the kernel; ``blocking_polls``: those that might sleep; ``events``: what they brought;
        ``stale_events``: events for a file that no longer has the number; ``wakes``: threads woken or spawned;
        ``changes``: registrations made, changed or ended; ``interrupts``: wake-ups by other OS threads; ``handlers``:
        registered now.
        """
        return self.statistics_dict()

    cdef object statistics_dict(self):
        return {"polls": self.n_polls, "blocking_polls": self.n_blocking, "events": self.n_events,
                "stale_events": self.n_stale, "wakes": self.n_wakes, "changes": self.n_changes,
                "interrupts": self.n_interrupts, "handlers": self.n_handlers}


cdef int begin_signal(FdPoller p, kevent_target t) except -1:
    if p.signal_read < 0:
        p.open_signals()
    if p.signal_read < 0:
        raise ValueError("signals can be awaited only where the loop runs in the main OS thread of the process; run it there, "
                         "or hand the signal on from there with coro.post()")
    t.previous = _signal.signal(t.key.ident, _ignore_signal)
    return 0


cdef int drop_slot(PyObject **slot) noexcept:
    cdef PyObject *p = slot[0]
    slot[0] = NULL
    Py_XDECREF(p)
    return 0


cdef object self_or_target(PyObject *p):
    return (<kevent_target>p).target if is_target(p) else <object>p


cdef kevent_key key_of(int filter, object ident):
    if ready_bit(filter) or filter == F_VNODE:
        return new_key(filter, PyObject_AsFileDescriptor(ident))
    if filter != F_PROC and filter != F_SIGNAL and filter != F_TIMER:
        raise ValueError(f"filter must be one of EVFILT.READ, WRITE, EXCEPT, VNODE, PROC, SIGNAL, TIMER, not {_filter_name(filter)}")
    return new_key(filter, _index(ident))


cdef object caller():
    try:
        return running_thread()
    except YieldFromMain:
        return None


cdef FdPoller last_poller = None


cdef FdPoller fd_poller():
    global last_poller
    cdef Poller p = poller()
    if p is not last_poller:
        last_poller = <FdPoller?>p
    return last_poller


# -- The public functions ----------------------------------------------------------------------------------------

def wait_for(ident, filter, fflags=0, data=0):
    """Block until an event happens, once.

    ident: what it is about: for READ, WRITE, EXCEPT and VNODE a descriptor (or an object with ``fileno()``), for PROC a
    process number, for SIGNAL a signal number, for TIMER any integer.
    filter: one of ``EVFILT``.
    fflags: ``NOTE`` bits: what to look for (VNODE, at least one), the unit of ``data`` (TIMER).
    data: TIMER only: time until it fires, in milliseconds or the unit given.

    Returns a py_kevent.  Its ``data`` is the wait status for PROC (the child is not reaped), the number of
    arrivals for SIGNAL, of expirations for TIMER; ``fflags`` says what happened to a VNODE; ``flags`` has ``EV.EOF`` when a
    descriptor's other side has ended or it has an error (SO_ERROR tells which).  A regular file is always ready.
    A signal is caught only while somebody waits for it: use set_handler() to miss none.

    Raises SimultaneousError when that event has a waiter or a handler already; ClosedError when the descriptor is
    closed meanwhile; an oserrors class when the kernel refuses (ESRCH: no such process, ECHILD: not a child, EBADF);
    ValueError for arguments the filter cannot have; YieldFromMain outside a thread; and interruptions.
    """
    return fd_poller().wait_event(ident, filter, fflags, data)


def set_handler(event, handler, flags=EV_ADD | EV_ONESHOT, fflags=0, data=0):
    """Call a function in a new thread whenever an event happens.

    event: ``(ident, filter)`` as for wait_for().
    handler: called with the py_kevent as its only argument, in a copy of the context of the caller of set_handler().
    flags: ``EV.ADD``, with ``EV.ONESHOT`` for at most once.  Without it the handler stays until remove_handler(), or until the
    descriptor is closed; it is never run twice at the same time: a descriptor is watched again when the handler has
    returned, other events that come while it runs are added up and reported then.  ``EV.DELETE`` is remove_handler().
    fflags, data: as for wait_for(); without ``EV.ONESHOT`` a TIMER is periodic.

    Never blocks.  A registered handler keeps the loop from calling a standstill a deadlock, but not from ending.

    Raises TypeError when the handler cannot be called or the event is not a pair; ValueError for flags or arguments
    that do not fit; SimultaneousError when the event has a waiter or handler; an oserrors class when the kernel refuses (EPERM:
    a regular file); WrongThreadError in another OS thread.
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
    fd_poller().add_handler(ident, filter, handler, flags, fflags, data)


def remove_handler(event):
    """End a handler's registration; a call of it that has begun goes on.

    event: ``(ident, filter)`` as given to set_handler().

    Raises KeyError when that event has no handler; TypeError when the event is not a pair; WrongThreadError in another OS thread.
    """
    cdef FdPoller p = fd_poller()
    cdef kevent_target t
    cdef kevent_key key
    ident, filter = event_pair(event)
    caller()
    key = key_of(filter, ident)
    t = p.targets.get(key)
    if t is None or not t.is_handler:
        raise KeyError(key)
    p.remove(t)


# -- For tests: the C-level interface of owned descriptors, as sockets use it.

def _own(int fd):
    fd_poller().own(fd)


def _disown(int fd, closer=None):
    fd_poller().disown(fd, closer)


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


def _clear_flags(int fd, unsigned int flags):
    fd_lookup(fd).flags &= ~flags


cdef tuple event_pair(object event):
    if not isinstance(event, (tuple, list)) or len(event) != 2:
        raise TypeError(f"the event must be a pair (ident, filter), for instance (3, EVFILT.READ), not {event!r}")
    return tuple(event)


def poller_statistics():
    """The counters of the poller in use; see FdPoller.statistics().  Makes no poller where there is none yet."""
    return last_poller.statistics() if last_poller is not None else {}


cdef dict snapshot():
    cdef dict d = {}
    cdef fd_state *s
    cdef uint32_t bit
    cdef PyObject *p
    cdef kevent_target t
    cdef kevent_key key
    cdef int fd = fd_each(0)
    if last_poller is not None:
        d.update(last_poller.targets)
    while fd >= 0:
        s = fd_lookup(fd)
        for bit in (FD_READ_READY, FD_WRITE_READY, FD_EXCEPT_READY):
            p = slot_of(s, bit)[0]
            if p != NULL and not is_target(p):
                key = new_key(filter_of(bit), fd)
                t = new_target(key, <object>p, EV_ADD | EV_ONESHOT)
                t.state = SUBMITTED
                d[key] = t
        fd = fd_each(fd + 1)
    return d


cdef class EventMap:
    """Read-only mapping of everything awaited now: ``{kevent_key: kevent_target}``.

    Always up to date; each look at it walks the table of descriptors, which is made for people and tests.
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
