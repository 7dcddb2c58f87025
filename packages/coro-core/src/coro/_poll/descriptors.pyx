# cython: language_level=3, binding=False, auto_pickle=False, embedsignature=True, embedsignature.format=clinic
"""The table of descriptors: who waits for which number, and what was heard about it.

A descriptor number has one record (`fd_state`, 48 bytes) in a two-level table.  Records never move and are
never freed, so a socket keeps the address of its record for its life; the chunks (256 records, 12 KiB) are
made where numbers are used.  A record has three slots, for reading, writing and exceptional conditions, each with
at most one waiter: a second one gets SimultaneousError, because two threads that wait for the same bytes are a bug in
all programs but those that share a listening socket.

Two kinds of descriptors.  Those that a sock of ours *owns* are registered with the kernel once, edge
triggered, and what the kernel says is remembered in the record until somebody consumes it: no system call per
wait.  All others are registered for one event per wait, since other code may close such a number, and reuse
it, without telling us.

Rules that keep a wake-up from being lost:

1. A poll that finds a waiter takes it out of its slot, wakes it, and leaves the readiness remembered.  The
   waiter clears that memory when it resumes normally.  One that is interrupted instead does not, so the next
   waiter sees it.
2. A waiter that leaves withdraws only itself: it looks whether it is still in the slot.
3. `epoch` changes whenever the number changes hands; a waiter that finds another epoch was closed, however it
   woke.
4. A reader that lingers (see linger()) is known to no kernel: no poll sleeps while there is one.
5. `generation` goes into the kernel's event data and changes with each registration, so an event that was
   meant for an earlier file of the same number (a duplicate keeps such registrations alive) is recognised as
   stale.

Above this stands the event interface (`_poll/events.pyx`: wait_for, handlers, signals, timers), and above that the
kernel's side (`_poll/epoll.pyx`, `_poll/kqueue.pyx`), each a subclass.  Slots hold threads, or the kevent_target
objects of handlers.
"""

import errno as _errno

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF

from coro._runtime.abi cimport require_abi
from coro._runtime.scheduler cimport (Poller, WAIT_READ, WAIT_WRITE, begin_io, coro, end_io, give_way, poller,
                                      raise_due, running_thread, suspend_fd, wake, wake_error)

from coro import oserrors
from coro._poll.filters import EVFILT
from coro.exceptions import ClosedError, SimultaneousError

require_abi()

__all__ = ["kevent_key", "kevent_target", "poller_statistics", "py_event", "py_kevent"]

cdef extern from *:
    """
    #include <fcntl.h>
    static int coro_fd_is_open(int fd) { return fcntl(fd, F_GETFD) != -1; }
    """
    int coro_fd_is_open(int fd) nogil

cdef enum:
    CHUNK = 256
    LUCK = 16

cdef tuple STATES = ("NEW", "SUBMITTED", "FIRED", "ABORTED")


# -- The table of descriptors ------------------------------------------------------------------------

cdef fd_state **table = NULL
cdef int table_len = 0


cdef fd_state *fd_lookup(int fd) noexcept nogil:
    cdef unsigned int n = <unsigned int>fd      # divided by shifting
    if n // CHUNK >= <unsigned int>table_len or table[n // CHUNK] == NULL:
        return NULL
    return &table[n // CHUNK][n % CHUNK]


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


cdef inline bint is_target(PyObject *p) noexcept:
    return p != NULL and type(<object>p) is kevent_target


cdef inline uint32_t wants(PyObject *p, uint32_t ready) noexcept:
    # A handler whose thread still runs is deaf until that thread has ended.
    if p == NULL or (is_target(p) and (<kevent_target>p).running):
        return 0
    return ready


cdef uint32_t fd_wanted(fd_state *s) noexcept:
    return (wants(s.reader, FD_READ_READY) | wants(s.writer, FD_WRITE_READY)
            | wants(s.excepter, FD_EXCEPT_READY))


cdef int note_handlers(fd_state *s) noexcept:
    if is_target(s.reader) or is_target(s.writer) or is_target(s.excepter):
        s.flags |= FD_HANDLERS
    else:
        s.flags &= ~<uint32_t>FD_HANDLERS
    return 0


# -- Events and their names --------------------------------------------------------------------------

cdef object filter_name(int filter):
    try:
        return EVFILT(filter).name
    except ValueError:
        return str(filter)


cdef class py_kevent:
    """What happened.  ``wait_for()`` returns one, and handlers get one.  Read-only.

    ``ident`` and ``filter`` say to what (``EVFILT``); ``flags`` are ``EV`` bits (``EV.EOF``: the peer ended
    or the descriptor has an error; ``EV.ERROR``: the event could not be had, ``data`` is the errno);
    ``fflags`` and ``data`` are the filter's details.  ``udata_addr`` is always 0 and there for programs that
    print it.
    """

    def __init__(self, *args, **kwargs):
        raise TypeError("py_kevent objects are made by wait_for() and for handlers, not by hand")

    def __repr__(self):
        return (f"<py_kevent ident={self.ident!r} filter={filter_name(self.filter)} flags={self.flags:#x} "
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
    """kevent_key(filter, ident)\n--\n\n\
    Names a registration: hashable, compared with ``==`` by ``filter`` and ``ident``."""

    def __init__(self, filter, ident):
        """A key.

        filter: an EVFILT number.  ident: what it is about (descriptor, process, signal or timer number).
        Raises TypeError for a filter that is not an integer.
        """
        if not isinstance(filter, int):
            raise TypeError("expected one of EVFILT, for instance EVFILT.READ, not "
                            f"{type(filter).__name__}: {filter!r}")
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
        return f"<kevent_key filter={filter_name(self.filter)} ident={self.ident!r}>"


cdef kevent_key new_key(int filter, object ident):
    cdef kevent_key k = kevent_key.__new__(kevent_key)
    k.filter = filter
    k.ident = ident
    return k


cdef class kevent_target:
    """The thread or handler that waits for an event: one entry of ``event_map``.

    ``key`` names the registration, ``target`` is the waiting thread or the handler, ``flags`` the EV bits of
    the registration, ``status`` one of ``'NEW'``, ``'SUBMITTED'``, ``'FIRED'``, ``'ABORTED'``, ``index`` the
    place in a change list where the system has one, else -1.
    """
    # Invariants: (1) state is SUBMITTED exactly while the target stands in `FdPoller.targets` or in a slot of a
    # descriptor; (2) a handler runs at most once at a time per registration, what happens meanwhile is added up.

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


# -- The base class ----------------------------------------------------------------------------------

cdef class FdPoller(Poller):
    """Threads that wait for descriptors; see the head of this file.

    Invariants: (1) every slot owns a reference to its waiter; (2) a thread stands in a slot only between the
    moment before it suspends and the moment somebody takes it out or it resumes; (3) n_handlers counts the
    handlers in `targets`, and a handler of a descriptor stands in its slot exactly while it stands in
    `targets`.
    """

    def __cinit__(self, *args, **kwargs):
        self.targets = {}

    def __dealloc__(self):
        free(self.lingering)

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
        # Not registered for this owner yet; where the same file is still known to the kernel, arm() gets
        # EEXIST and changes it.
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
        elif s.flags & FD_LINGERED:
            self.judge(s, True)
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

    # A wait without the kernel, for a descriptor that is not registered and has just been read empty while other
    # threads are ready to run: what comes next may well be there when they have had their turn, above all the end of a
    # short connection, and then two epoll_ctl(2) calls are saved (to register, and to unregister before closing). Where
    # it is not, one recv(2) was in vain; where that is the rule (the peer is far away), only one in sixteen tries.
    # False: not now.
    cdef bint linger(self, int fd) noexcept:
        cdef int *grown
        cdef int room
        if not self.can_linger:
            return False
        if self.luck < 0:
            self.declined += 1
            if self.declined % 16:
                return False
        if self.n_lingering == self.lingering_room:
            room = 2 * self.lingering_room + 64
            grown = <int *>realloc(self.lingering, room * sizeof(int))
            if grown == NULL:
                return False
            self.lingering = grown
            self.lingering_room = room
        self.lingering[self.n_lingering] = fd
        self.n_lingering += 1
        return True

    cdef int judge(self, fd_state *s, bint worth_it) noexcept:
        s.flags &= ~<uint32_t>FD_LINGERED
        if worth_it and self.luck < LUCK:
            self.luck += 1
        elif not worth_it and self.luck > -LUCK:
            self.luck -= 1
        return 0

    # Let those who linger try again.
    cdef int end_lingering(self) except -1:
        cdef fd_state *s
        cdef PyObject *p
        cdef int i, n = 0, count = self.n_lingering
        self.n_lingering = 0
        for i in range(count):
            s = fd_lookup(self.lingering[i])
            if not s.flags & FD_LINGERS:
                continue            # closed meanwhile, or no longer waiting
            s.flags = s.flags & ~<uint32_t>FD_LINGERS | FD_LINGERED
            p = s.reader
            if p != NULL and not is_target(p):
                s.reader = NULL
                n += wake(<coro>p, None)
                Py_DECREF(<object>p)
        return n

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

    # The one place where a thread waits for a descriptor.  Returns 0: an event came; 1: somebody else woke
    # the thread; 2: the kernel does not watch such files, the thread only gave way.
    cdef int wait_on(self, coro me, fd_state *s, int fd, uint32_t ready, bint fresh) except -1:
        cdef PyObject **slot = slot_of(s, ready)
        cdef uint32_t epoch = s.epoch
        cdef bint left = False
        cdef int refused
        if slot[0] != NULL:
            self.check_slot(fd, s, slot, me, filter_of(ready))
        if s.flags & FD_UNPOLLABLE:
            give_way(me)
            return 2
        if (ready == FD_WRITE_READY and not fresh
                and (s.flags & (FD_OWNED | FD_REGISTERED)) == (FD_OWNED | FD_REGISTERED)):
            self.arm_writing(fd, s)
        stand(slot, me)
        if fresh or (s.flags & (FD_OWNED | FD_REGISTERED)) != (FD_OWNED | FD_REGISTERED):
            s.flags &= ~ready
            refused = -1
            try:
                refused = self.arm(fd, s, <PyObject *>me, fresh)
            finally:
                if refused != 0:
                    stand_down(slot, me)
            if refused:
                if s.flags & FD_OWNED:
                    s.flags |= FD_UNPOLLABLE
                give_way(me)
                return 2
        try:
            suspend_fd(me, WAIT_WRITE if ready == FD_WRITE_READY else WAIT_READ, fd)
        finally:
            if stand_down(slot, me):
                left = True
                if not s.flags & FD_OWNED:
                    self.retract(fd, s)
        if s.epoch != epoch:
            raise ClosedError(None, what=f"descriptor {fd}")
        if left:
            return 1
        s.flags &= ~ready
        return 0

    # A slot is taken.  Its waiter may be waiting for a file that is closed by now, its number used again: the
    # kernel knows.
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
                wake_error(<coro>p, ClosedError(closer, what=f"descriptor {fd}"))
                Py_DECREF(<object>p)
        return 0

    # Wake whoever waits for these directions; the road for records with handlers, and for kernels that are
    # not in a hurry.
    cdef int deliver(self, int fd, fd_state *s, uint32_t ready) except -1:
        cdef uint32_t bit
        cdef PyObject **slot
        cdef PyObject *p
        cdef int n = 0
        cdef unsigned int flags, fflags
        cdef int64_t data
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
                    fflags = 0
                    data = self.details(fd, bit, &fflags)
                    n += self.fired(t, flags, fflags, data)
            else:
                slot[0] = NULL
                n += wake(<coro>p, None)
                Py_DECREF(<object>p)
        return n

    # -- the end

    cdef int handlers_registered(self):
        return self.n_handlers

    # No registration survives the kernel object: called by shut() and after a fork.  Threads that still wait
    # are left alone (the scheduler ends them); handlers are dropped.
    cdef int forget_all(self) except -1:
        cdef kevent_target t
        cdef fd_state *s
        cdef int fd = fd_each(0)
        for t in list(self.targets.values()):
            self.remove(t)
        self.targets.clear()
        self.n_handlers = self.n_lingering = 0
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

    # -- what _poll/events.pyx adds

    cdef int remove(self, kevent_target t) except -1:
        raise NotImplementedError

    cdef int fired(self, kevent_target t, unsigned int flags, unsigned int fflags, int64_t data) except -1:
        raise NotImplementedError

    # -- the kernel's part, see _poll/epoll.pyx and _poll/kqueue.pyx

    cdef unsigned int event_flags(self, int filter, uint32_t revents):
        return 0

    cdef int arm(self, int fd, fd_state *s, PyObject *mine, bint fresh) except -1:
        raise NotImplementedError

    cdef int arm_writing(self, int fd, fd_state *s) except -1:
        return 0

    cdef int retract(self, int fd, fd_state *s) except -1:
        raise NotImplementedError

    cdef int forget(self, int fd, fd_state *s) except -1:
        raise NotImplementedError

    cdef int released(self, int fd, fd_state *s) except -1:
        return 0

    cdef int64_t details(self, int fd, uint32_t ready, unsigned int *fflags) except? -1:
        return 0

    def statistics(self):
        """Counters since the poller was made, as a dictionary.

        ``polls``: calls of the kernel; ``blocking_polls``: those that might sleep; ``events``: what they
        brought; ``stale_events``: events for a file that no longer has the number; ``wakes``: threads woken
        or spawned; ``changes``: registrations made, changed or ended; ``interrupts``: wake-ups by other OS
        threads; ``handlers``: registered now.
        """
        return self.statistics_dict()

    cdef object statistics_dict(self):
        return {"polls": self.n_polls, "blocking_polls": self.n_blocking, "events": self.n_events,
                "stale_events": self.n_stale, "wakes": self.n_wakes, "changes": self.n_changes,
                "interrupts": self.n_interrupts, "handlers": self.n_handlers}


# begin_wait() where more is to be done than to stand in the slot.
cdef int begin_unusual_wait(coro me, fd_state *s, int fd, uint32_t ready) except -1:
    cdef PyObject **slot = slot_of(s, ready)
    cdef FdPoller p
    cdef bint lingers = False
    cdef int refused = -1
    if s.flags & ready:
        s.flags &= ~ready
        return 0
    p = fd_poller()
    if ready == FD_READ_READY:
        lingers = (s.flags & FD_LINGERS) != 0
        s.flags &= ~<uint32_t>FD_LINGERS
        if s.flags & FD_LINGERED:
            p.judge(s, lingers)
    if slot[0] != NULL or me.link.attention or (s.flags & (FD_OWNED | FD_UNPOLLABLE)) != FD_OWNED:
        return 2
    if s.flags & FD_REGISTERED and ready == FD_WRITE_READY:
        p.arm_writing(fd, s)
    stand(slot, me)
    if s.flags & FD_REGISTERED:
        pass
    elif lingers and p.linger(fd):
        s.flags |= FD_LINGERS
    else:
        try:
            refused = p.arm(fd, s, <PyObject *>me, False)
        finally:
            if refused:
                stand_down(slot, me)
        if refused:
            s.flags |= FD_UNPOLLABLE
            return 2
    begin_io(me, WAIT_READ if ready == FD_READ_READY else WAIT_WRITE, fd)
    return 1


# end_wait() where nobody took the thread out of the slot, the number has changed hands, or it lingered.
cdef int end_unusual_wait(coro me, fd_state *s, uint32_t ready, uint32_t epoch) except -1:
    cdef PyObject **slot = slot_of(s, ready)
    cdef bint raises = end_io(me), closed = s.epoch != epoch
    if ready == FD_READ_READY and not closed:
        s.flags &= ~<uint32_t>FD_LINGERS
    if stand_down(slot, me):
        pass
    elif not raises and not closed:
        s.flags &= ~ready
    if raises:
        raise_due(me)
    if closed:
        raise ClosedError(None, what=f"descriptor {me.ident}")
    return 0


cdef int drop_slot(PyObject **slot) noexcept:
    cdef PyObject *p = slot[0]
    slot[0] = NULL
    Py_XDECREF(p)
    return 0


cdef object self_or_target(PyObject *p):
    return (<kevent_target>p).target if is_target(p) else <object>p


cdef FdPoller last_poller = None


cdef FdPoller fd_poller():
    global last_poller
    cdef Poller p = poller()
    if p is not last_poller:
        last_poller = <FdPoller?>p
    return last_poller


def poller_statistics():
    """The counters of the poller in use; see FdPoller.statistics().  Makes no poller where there is none
    yet."""
    return last_poller.statistics() if last_poller is not None else {}


cdef dict current_targets():
    return last_poller.targets if last_poller is not None else {}
