# cython: language_level=3, binding=False, auto_pickle=False, embedsignature=True, embedsignature.format=clinic
"""The side of the poller for FreeBSD and macOS: kqueue(2).

Changes of registrations are collected and handed to the kernel by the call that waits, so they cost no system call of
their own.  The kernel applies them before it looks for events.

What is registered how:

* Reading of owned descriptors: once, EV_CLEAR, until the descriptor is closed.  A wait is then no change at all.
* Writing of owned descriptors: for each wait, EV_DISPATCH (fires once, then sleeps in the kernel).  With EV_CLEAR every
  acknowledged packet would wake the loop, though nobody waits: the socket's buffer has more room each time.
* Descriptors we do not own: for each wait and direction, EV_DISPATCH.  A number that other code closed has lost its
  registration, so where one that ought to be there is enabled again (a "probe"), ENOENT says that its waiter waits for
  a file that is gone.
* Processes (EVFILT_PROC), files (EVFILT_VNODE), the signal pipe, and EVFILT_USER for interrupt(): at once, because
  they are rare and their errors belong to the caller.

Collected changes are of two kinds, and those that delete go first: what a number meant before is ended before it begins
to mean something else.  Within a kind order does not matter, since there is at most one addition for each descriptor
and filter; a later one replaces it, and a waiter that leaves before the poll takes it back.

`udata` carries the generation of the descriptor's record and what the change was.  An addition that the kernel refuses
comes back as an event with EV_ERROR and wakes its waiter with that error; a refused deletion (ENOENT or EBADF: closed
meanwhile) means nothing.  A call never hands over more changes than there is room for refusals.

A child that ends between two looks: it is looked at before the registration, and once more when the registration is
refused with ESRCH, which is macOS's answer for a process that is dead but not reaped.

kqueue(2) is not inherited by fork(2): the child has nothing to close.

Cost: one kevent(2) per turn; about 60 bytes for each descriptor number, and 96 KiB for buffers; three descriptors.

Longer than most files here for the same reason as _poll/epoll.pyx: one event buffer and one way of dispatching.

Rejected: EV_ONESHOT (its registration is gone after the event, so "closed" and "fired" could not be told apart);
EVFILT_SIGNAL and EVFILT_TIMER (signals come through a pipe and timers from the scheduler, on every system alike).
"""

from libc.errno cimport EBADF, ECHILD, EINTR, EINVAL, ENOENT, EPERM, ESRCH, errno
from libc.stdint cimport int32_t, int64_t, intptr_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

from coro._poll.events cimport EventPoller, UNLOOKED
from coro._poll.descriptors cimport (EV_EOF as FLAG_EOF, EV_ERROR as FLAG_ERROR, FD_EXCEPT_READY, FD_HANDLERS,
                                     FD_NO_SHORTCUT, FD_OWNED, FD_READ_READY, FD_REGISTERED, FD_UNPOLLABLE,
                                     FD_WRITE_READY, F_PROC, F_VNODE, fd_lookup, fd_state, fd_wanted, filter_of,
                                     kevent_target, new_event, new_key, ready_bit, slot_of)
from coro._runtime.abi cimport require_abi
from coro._runtime.scheduler cimport coro, sleep_note, wake, wake_error

from coro import oserrors
from coro.exceptions import ClosedError, LoopError

require_abi()

cdef int *asleep = sleep_note()

cdef extern from "_poll/children.h" nogil:
    int coro_child_ended(int, int *)
    int coro_child_ends(int, int *)

cdef extern from "_poll/kqueue.h" nogil:
    """
    #ifndef ENODEV
    #define ENODEV 19
    #endif
    """
    cdef struct kevent:
        uintptr_t ident
        short filter
        unsigned short flags
        unsigned int fflags
        intptr_t data
        void *udata
    cdef struct coro_kq_table:
        int (*close)(int)
        void *kqueue
        int sloppy_close
    coro_kq_table coro_kq
    int EVFILT_READ, EVFILT_WRITE, EVFILT_VNODE, EVFILT_PROC, EVFILT_USER
    int CORO_EVFILT_EXCEPT, CORO_NOTE_OOB
    unsigned int EV_ADD, EV_DELETE, EV_ENABLE, EV_ONESHOT, EV_CLEAR, EV_RECEIPT, EV_DISPATCH
    unsigned int EV_OOBAND, EV_ERROR, EV_EOF, NOTE_EXIT
    int ENODEV, EOPNOTSUPP
    const char *coro_kq_load(const char *)
    int coro_kq_open()
    int coro_kq_call(int, const kevent *, int, kevent *, int, int64_t)
    void coro_kq_set(kevent *, uintptr_t, int, unsigned int, unsigned int, uintptr_t)
    int coro_kq_apply(int, uintptr_t, int, unsigned int, unsigned int, uintptr_t)
    void coro_kq_trigger(int)
    int coro_kq_is_file(int)

cdef extern from *:
    void __atomic_store_n(int *, int, int) noexcept nogil
    int __atomic_load_n(int *, int) noexcept nogil
    int __ATOMIC_SEQ_CST

cdef enum:
    ROOM = 1024              # events fetched, and changes handed over, in one call
    READING = 0              # index of a direction
    WRITING = 1
    EXCEPTING = 2
    ADDED = 0                # what a change was, in the low bits of udata
    DELETED = 1
    PROBED = 2
    NOTE_VNODE = 0x7F


cdef struct kq_record:
    # What we know of one descriptor number, by direction.
    int64_t data[3]          # the last event's
    uint32_t fflags[3]
    int32_t place[3]         # 1 + index of the collected addition, 0: none
    uint8_t known            # FD_*_READY bits: the kernel ought to have a registration, asleep or not


cdef struct kq_changes:
    kevent *items
    int count, room


cdef inline uint32_t bit_of(int direction) noexcept:
    return FD_READ_READY if direction == READING else FD_WRITE_READY if direction == WRITING else FD_EXCEPT_READY


cdef inline int direction_of(uint32_t bit) noexcept:
    return READING if bit == FD_READ_READY else WRITING if bit == FD_WRITE_READY else EXCEPTING


cdef inline int kernel_filter(int direction) noexcept:
    return EVFILT_READ if direction == READING else EVFILT_WRITE if direction == WRITING else CORO_EVFILT_EXCEPT


cdef inline uintptr_t make_udata(uint32_t generation, int what) noexcept:
    return (<uintptr_t>generation << 2) | what


cdef inline bint same_generation(const kevent *ev, fd_state *s) noexcept:
    return (<uintptr_t>ev.udata & ~<uintptr_t>3) == <uintptr_t>s.generation << 2


cdef kevent *one_more(kq_changes *c) except NULL:
    cdef kevent *grown
    cdef int room
    if c.count == c.room:
        room = max(2 * c.room, 256)
        grown = <kevent *>realloc(c.items, room * sizeof(kevent))
        if grown == NULL:
            raise MemoryError()
        c.items = grown
        c.room = room
    c.count += 1
    return &c.items[c.count - 1]


cdef int empty(kq_changes *c) noexcept:
    free(c.items)
    memset(c, 0, sizeof(kq_changes))
    return 0


cdef class KqueuePoller(EventPoller):
    """The poller of FreeBSD and macOS.

    Invariants: (1) events before `position` in the buffer are done, those up to `filled` are not: an exception out of
    poll() loses none; (2) `sleeping` is set only around a call that may sleep, and interrupt() makes a call only then;
    (3) for each descriptor and filter there is at most one collected addition, and `place` says where; (4) while kq is
    -1 nothing is registered or collected.
    """

    cdef int kq
    cdef kevent *events
    cdef int position, filled
    cdef kq_changes additions, deletions, batch
    cdef kq_record *records
    cdef int n_records

    def __cinit__(self):
        self.kq = -1

    def __dealloc__(self):
        # shut() was not called: the process is ending, or a loop was never run.
        self.close_kernel()

    # -- kernel objects

    cdef int open_kernel(self) except -1:
        cdef int e
        if self.kq >= 0:
            return 0
        if coro_kq.kqueue == NULL:
            raise LoopError("this system has no kqueue(2); let coro choose the poller")
        if self.events == NULL:
            self.events = <kevent *>malloc(ROOM * sizeof(kevent))
            if self.events == NULL:
                raise MemoryError()
        __atomic_store_n(&self.kq, coro_kq_open(), __ATOMIC_SEQ_CST)
        if self.kq < 0:
            raise oserrors.make(errno)
        e = coro_kq_apply(self.kq, 0, EVFILT_USER, EV_ADD | EV_CLEAR, 0, 0)
        if e:
            self.close_kernel()
            raise oserrors.make(e)
        self.open_signals()
        return 0

    cdef int close_kernel(self) noexcept:
        cdef int kq = self.kq
        __atomic_store_n(&self.kq, -1, __ATOMIC_SEQ_CST)
        if kq >= 0:
            coro_kq.close(kq)
        self.forget_kernel()
        return 0

    cdef int leave_kernel(self) noexcept:
        # The queue stayed with the parent, and its number may be another file's here.
        return self.forget_kernel()

    # Everything that belongs to a kernel object, when there is none any more.
    cdef int forget_kernel(self) noexcept:
        __atomic_store_n(&self.kq, -1, __ATOMIC_SEQ_CST)
        empty(&self.additions)
        empty(&self.deletions)
        empty(&self.batch)
        free(self.events)
        self.events = NULL
        free(self.records)
        self.records = NULL
        self.n_records = self.position = self.filled = 0
        return 0

    cdef int trigger(self) noexcept nogil:
        coro_kq_trigger(__atomic_load_n(&self.kq, __ATOMIC_SEQ_CST))
        return 0

    # -- collected changes

    cdef kq_record *record(self, int fd) except NULL:
        # Valid until the next call.
        cdef kq_record *grown
        cdef int length
        if fd >= self.n_records:
            length = max(fd + 1, 2 * self.n_records, 64)
            grown = <kq_record *>realloc(self.records, length * sizeof(kq_record))
            if grown == NULL:
                raise MemoryError()
            memset(grown + self.n_records, 0, (length - self.n_records) * sizeof(kq_record))
            self.records = grown
            self.n_records = length
        return &self.records[fd]

    cdef int add(self, int fd, fd_state *s, int direction, unsigned int flags, int what) except -1:
        cdef kq_record *r = self.record(fd)
        cdef kevent *change
        if r.place[direction]:
            change = &self.additions.items[r.place[direction] - 1]
            if what == PROBED:
                return 0
        else:
            change = one_more(&self.additions)
            r.place[direction] = self.additions.count
            self.n_changes += 1
        coro_kq_set(change, fd, kernel_filter(direction), flags, CORO_NOTE_OOB if direction == EXCEPTING else 0,
                    make_udata(s.generation, what))
        return 0

    cdef int delete(self, int fd, fd_state *s, int direction) except -1:
        self.n_changes += 1
        self.record(fd).known &= ~<uint8_t>bit_of(direction)
        if coro_kq.sloppy_close:
            coro_kq_apply(self.kq, fd, kernel_filter(direction), EV_DELETE, 0, make_udata(s.generation, DELETED))
        else:
            coro_kq_set(one_more(&self.deletions), fd, kernel_filter(direction), EV_DELETE, 0,
                        make_udata(s.generation, DELETED))
        return 0

    # Take back a collected addition; whatever the kernel has stays.
    cdef int take_back(self, int fd, int direction) except -1:
        cdef kq_record *r = self.record(fd)
        cdef kevent *last
        cdef int at = r.place[direction] - 1
        if at < 0:
            return 0
        r.place[direction] = 0
        self.additions.count -= 1
        if at < self.additions.count:
            last = &self.additions.items[self.additions.count]
            self.additions.items[at] = last[0]
            self.records[<int>last.ident].place[direction_of(ready_bit_of(last.filter))] = at + 1
        return 0

    cdef int end_direction(self, int fd, fd_state *s, int direction) except -1:
        self.take_back(fd, direction)
        if self.record(fd).known & bit_of(direction):
            self.delete(fd, s, direction)
        return 0

    # Move all collected changes to `batch`, so that more may be collected while the kernel's answers are read, and
    # hand over those a single call has no room for.  Returns how many of them are left at the end of the batch.
    cdef int prepare(self, int *first) except -1:
        cdef kq_changes *from_
        cdef kevent *change
        cdef int total = self.additions.count + self.deletions.count, i, n, part
        first[0] = 0
        while self.batch.count < total:
            one_more(&self.batch)
        if self.deletions.count:
            memcpy(self.batch.items, self.deletions.items, self.deletions.count * sizeof(kevent))
        if self.additions.count:
            memcpy(self.batch.items + self.deletions.count, self.additions.items,
                   self.additions.count * sizeof(kevent))
        for i in range(self.additions.count):
            change = &self.additions.items[i]
            self.records[<int>change.ident].place[direction_of(ready_bit_of(change.filter))] = 0
            self.records[<int>change.ident].known |= <uint8_t>ready_bit_of(change.filter)
        self.additions.count = self.deletions.count = self.batch.count = 0
        while total - first[0] > ROOM:
            part = min(ROOM, total - first[0] - ROOM)
            for i in range(first[0], first[0] + part):
                self.batch.items[i].flags |= EV_RECEIPT      # fills the room with receipts, so no event is fetched
            n = coro_kq_call(self.kq, self.batch.items + first[0], part, self.events, part, 0)
            first[0] += part
            if n < 0 and n != -EINTR:
                self.failed(-n)
            for i in range(n):
                if self.events[i].flags & EV_ERROR:
                    self.n_wakes += self.refused(&self.events[i])
        return total - first[0]

    cdef int failed(self, int e) except -1:
        if e == EINTR:           # the changes were applied, kevent(2)
            PyErr_CheckSignals()
            return 0
        if e == EBADF or e == EINVAL:
            raise LoopError(f"the kqueue descriptor {self.kq} of the loop was closed by other code "
                            f"({oserrors.make(e)}); close only descriptors you opened")
        raise oserrors.make(e)

    # -- the poll

    cdef int poll(self, int64_t timeout_ns) except -1:
        cdef int n = 0, left = 0, first = 0
        cdef uint64_t wakes = self.n_wakes
        if self.position >= self.filled:
            if self.kq < 0:
                self.open_kernel()
            self.position = self.filled = 0
            if self.additions.count or self.deletions.count:
                left = self.prepare(&first)
                if self.n_wakes != wakes:
                    timeout_ns = 0
            self.n_polls += 1
            if timeout_ns != 0 and not self.going_to_sleep():
                timeout_ns = 0
            if timeout_ns == 0:
                n = coro_kq_call(self.kq, self.batch.items + first, left, self.events, ROOM, 0)
            else:
                if self.looks_first():
                    n = coro_kq_call(self.kq, self.batch.items + first, left, self.events, ROOM, 0)
                    if n == 0:
                        left = 0        # the kernel has the changes now
                        self.unlooked = UNLOOKED
                        self.n_polls += 1
                if n == 0:
                    self.n_blocking += 1
                    with nogil:
                        asleep[0] = 1
                        n = coro_kq_call(self.kq, self.batch.items + first, left, self.events, ROOM, timeout_ns)
                        asleep[0] = 0
                self.woke_up()
            if n < 0:
                self.failed(-n)
                return 0
            self.filled = n
            self.n_events += n
        n = self.dispatch()
        self.n_wakes += n
        return n

    cdef int dispatch(self) except -1:
        cdef kevent *ev
        cdef fd_state *s
        cdef kq_record *r
        cdef uint32_t ready
        cdef PyObject **slot
        cdef PyObject *p
        cdef int n = 0, fd
        cdef bint signals = False
        while self.position < self.filled:
            ev = &self.events[self.position]
            self.position += 1
            if ev.flags & EV_ERROR:
                n += self.refused(ev)
                continue
            ready = ready_bit_of(ev.filter)
            if not ready:
                n += self.own_event(ev)
                continue
            fd = <int>ev.ident
            if fd == self.signal_read:
                signals = True
                continue
            s = fd_lookup(fd)
            if s == NULL or not same_generation(ev, s):
                self.n_stale += 1
                self.stale(fd, s, ready)
                continue
            r = self.record(fd)
            r.data[direction_of(ready)] = ev.data
            r.fflags[direction_of(ready)] = ev.fflags
            s.revents &= ~ready
            if ev.flags & EV_EOF:
                s.revents |= ready
            if s.flags & FD_OWNED:
                if ev.flags & (EV_EOF | EV_OOBAND) or ready == FD_EXCEPT_READY:
                    s.flags |= FD_NO_SHORTCUT
                s.flags |= ready
            else:
                s.armed &= ~ready
            if s.flags & FD_HANDLERS:
                n += self.deliver(fd, s, ready)
            else:
                slot = slot_of(s, ready)
                p = slot[0]
                if p != NULL:
                    slot[0] = NULL
                    n += wake(<coro>p, None)
                    Py_DECREF(<object>p)
        if signals:
            n += self.read_signals()
        return n

    # An event for an earlier file of this number, which is still open under it: its owner gave it away.
    cdef int stale(self, int fd, fd_state *s, uint32_t ready) except -1:
        cdef kq_record *r = self.record(fd)
        if s != NULL and not r.known & ready and not r.place[direction_of(ready)]:
            self.delete(fd, s, direction_of(ready))
        return 0

    # The kernel refused a change.
    cdef int refused(self, kevent *ev) except -1:
        cdef int e = <int>ev.data, fd = <int>ev.ident, n
        cdef uint32_t ready = ready_bit_of(ev.filter)
        cdef int what = <int>(<uintptr_t>ev.udata & 3)
        cdef fd_state *s
        cdef PyObject **slot
        cdef PyObject *p
        cdef kevent_target t
        if e == 0 or not ready or what == DELETED:
            return 0
        s = fd_lookup(fd)
        if s == NULL or not same_generation(ev, s):
            self.n_stale += 1
            return 0
        self.record(fd).known &= ~<uint8_t>ready
        s.armed &= ~ready
        if ready == FD_READ_READY:
            s.flags &= ~<uint32_t>FD_REGISTERED
        slot = slot_of(s, ready)
        p = slot[0]
        if ready != FD_EXCEPT_READY and (e == EPERM or e == ENODEV or e == EOPNOTSUPP):
            # The kernel does not watch such devices: as good as ready, the call itself will tell.
            if s.flags & FD_OWNED:
                s.flags |= FD_UNPOLLABLE
            s.revents &= ~ready
            self.forget_details(fd, ready)
            return self.deliver(fd, s, ready)
        if p == NULL:
            return 0
        if type(<object>p) is kevent_target:
            t = <kevent_target>p
            if what == PROBED and e == ENOENT:
                self.remove(t)
                return 1
            return self.fired(t, FLAG_ERROR, 0, e)
        slot[0] = NULL
        n = wake_error(<coro>p, ClosedError(None, what=f"descriptor {fd}") if what == PROBED and e == ENOENT
                       else oserrors.make(e))
        Py_DECREF(<object>p)
        return n

    cdef int own_event(self, kevent *ev) except -1:
        cdef kevent_target t
        cdef int status = 0, r, pid
        if ev.filter == EVFILT_USER:
            self.n_interrupts += 1
            return 0
        if ev.filter == EVFILT_PROC:
            t = self.targets.get(new_key(F_PROC, <int>ev.ident))
            if t is None:
                return 0
            t.fd = -1                    # one-shot: the kernel has forgotten it
            pid = <int>ev.ident
            with nogil:
                r = coro_child_ends(pid, &status)
            if r < 0:
                return self.fired(t, FLAG_ERROR, 0, -r)
            return self.fired(t, 0, NOTE_EXIT, status)
        t = self.targets.get(new_key(F_VNODE, <int>ev.ident))
        if t is None or not ev.fflags & t.fflags:
            return 0
        return self.fired(t, 0, ev.fflags & t.fflags, 0)

    # -- registrations of descriptors

    cdef int arm_writing(self, int fd, fd_state *s) except -1:
        return self.add(fd, s, WRITING, EV_ADD | EV_ENABLE | EV_DISPATCH, ADDED)

    cdef int arm(self, int fd, fd_state *s, PyObject *mine, bint fresh) except -1:
        cdef uint32_t wanted = fd_wanted(s)
        cdef int r, direction
        if self.kq < 0:
            self.open_kernel()
        if not s.flags & FD_OWNED:
            return self.arm_foreign(fd, s, wanted)
        if not s.flags & FD_REGISTERED:
            r = coro_kq_is_file(fd)
            if r < 0:
                raise oserrors.make(-r)
            s.generation += 1
            for direction in range(3):
                self.end_direction(fd, s, direction)
                self.forget_details(fd, bit_of(direction))
            if r:
                return 1
            check_wanted(wanted)
            self.add(fd, s, READING, EV_ADD | EV_CLEAR, ADDED)
            s.flags |= FD_REGISTERED
        elif fresh and s.reader != NULL and s.reader == mine:
            # Only a new registration is sure to report what is there already.
            self.end_direction(fd, s, READING)
            self.add(fd, s, READING, EV_ADD | EV_CLEAR, ADDED)
        if wanted & FD_WRITE_READY:
            self.arm_writing(fd, s)
        if wanted & FD_EXCEPT_READY:
            check_wanted(wanted)
            self.add(fd, s, EXCEPTING, EV_ADD | EV_ENABLE | EV_DISPATCH, ADDED)
        return 0

    cdef int arm_foreign(self, int fd, fd_state *s, uint32_t wanted) except -1:
        cdef int r = coro_kq_is_file(fd), direction
        cdef uint32_t bit
        if r < 0:
            raise oserrors.make(-r)
        if r:
            self.lost(fd, s)
            return 1
        check_wanted(wanted)
        if not s.armed:
            s.generation += 1
        for direction in range(3):
            bit = bit_of(direction)
            if not wanted & bit:
                continue
            if s.armed & bit:
                if self.record(fd).known & bit:
                    self.add(fd, s, direction, EV_ENABLE, PROBED)
            else:
                self.add(fd, s, direction, EV_ADD | EV_ENABLE | EV_DISPATCH, ADDED)
        s.armed |= wanted
        s.flags |= FD_REGISTERED
        return 0

    # Not owned: end what nobody waits for any more.  For the others ask whether theirs is still the same file.
    cdef int retract(self, int fd, fd_state *s) except -1:
        cdef uint32_t wanted = fd_wanted(s), bit
        cdef int direction
        cdef bint gone = False
        if self.kq < 0 or not s.flags & FD_REGISTERED:
            return 0
        for direction in range(3):
            bit = bit_of(direction)
            if not s.armed & bit:
                continue
            if not wanted & bit:
                s.armed &= ~bit
                self.end_direction(fd, s, direction)
            elif self.record(fd).known & bit and not self.record(fd).place[direction]:
                self.n_changes += 1
                if coro_kq_apply(self.kq, fd, kernel_filter(direction), EV_ENABLE,
                                 CORO_NOTE_OOB if direction == EXCEPTING else 0,
                                 make_udata(s.generation, ADDED)) in (ENOENT, EBADF):
                    gone = True
        if gone:
            self.lost(fd, s)
            self.clear_slots(fd, s, NULL, None)
        return 0

    # The number was closed: its registrations are gone with it, and what was collected is not for its next file.
    cdef int lost(self, int fd, fd_state *s) except -1:
        cdef int direction
        for direction in range(3):
            self.take_back(fd, direction)
        memset(self.record(fd), 0, sizeof(kq_record))
        s.armed = 0
        s.generation += 1
        return 0

    cdef int forget(self, int fd, fd_state *s) except -1:
        cdef int direction
        s.flags &= ~<uint32_t>FD_REGISTERED
        if self.kq < 0:
            s.armed = 0
            s.generation += 1
            return 0
        if not s.flags & FD_OWNED or coro_kq.sloppy_close:
            for direction in range(3):
                self.end_direction(fd, s, direction)
        # Otherwise its owner closes it now, which ends the registrations.
        return self.lost(fd, s)

    cdef int released(self, int fd, fd_state *s) except -1:
        if self.kq >= 0:
            self.delete(fd, s, READING)
            self.delete(fd, s, WRITING)
        return 0

    # -- what events say

    cdef unsigned int event_flags(self, int filter, uint32_t revents):
        return FLAG_EOF if revents & ready_bit(filter) else 0

    cdef int64_t details(self, int fd, uint32_t ready, unsigned int *fflags) except? -1:
        cdef int direction = direction_of(ready)
        if fd >= self.n_records:
            return 0
        fflags[0] = self.records[fd].fflags[direction]
        return self.records[fd].data[direction]

    cdef int forget_details(self, int fd, uint32_t ready) except -1:
        cdef kq_record *r = self.record(fd)
        r.data[direction_of(ready)] = 0
        r.fflags[direction_of(ready)] = 0
        return 0

    # -- processes and files

    cdef int begin_other(self, kevent_target t) except -1:
        if self.kq < 0:
            self.open_kernel()
        if t.key.filter == F_PROC:
            return self.begin_child(t)
        return self.begin_file(t)

    cdef int begin_child(self, kevent_target t) except -1:
        cdef int pid, status = 0, r, e
        if t.fflags & ~NOTE_EXIT:
            raise ValueError("fflags of PROC may be NOTE.EXIT only, nothing else is reported, "
                             f"not {t.fflags:#x}")
        pid = t.key.ident
        if pid <= 0:
            raise oserrors.make(EINVAL)
        r = coro_child_ended(pid, &status)
        if r == 0:
            e = coro_kq_apply(self.kq, pid, EVFILT_PROC, EV_ADD | EV_ONESHOT, NOTE_EXIT, 0)
            if e == 0:
                t.fd = 0                 # end_other() has something to do
                return 0
            r = coro_child_ended(pid, &status) if e == ESRCH else -e
        if r > 0:
            t.event = new_event(t.key.ident, F_PROC, 0, NOTE_EXIT, status)
            return 0
        raise oserrors.make(ESRCH if r == 0 or (r == -ECHILD and coro_no_process(pid)) else -r)

    cdef int begin_file(self, kevent_target t) except -1:
        cdef int e
        if not t.fflags or t.fflags & ~<uint32_t>NOTE_VNODE:
            raise ValueError("fflags of VNODE must be made of NOTE.DELETE, WRITE, EXTEND, ATTRIB, LINK, RENAME "
                             f"and REVOKE, at least one, not {t.fflags:#x}")
        e = coro_kq_apply(self.kq, t.key.ident, EVFILT_VNODE, EV_ADD | EV_CLEAR, t.fflags, 0)
        if e:
            raise oserrors.make(e)
        t.fd = 0
        return 0

    cdef int end_other(self, kevent_target t) except -1:
        if t.fd >= 0 and self.kq >= 0:
            # ENOENT, EBADF: fired, or closed by other code
            coro_kq_apply(self.kq, t.key.ident, EVFILT_PROC if t.key.filter == F_PROC else EVFILT_VNODE, EV_DELETE,
                          0, 0)
        t.fd = -1
        return 0

    # -- signals

    cdef int watch_signals(self, int fd) except -1:
        cdef int e
        if self.kq < 0:
            self.open_kernel()           # comes back to open_signals(), which has nothing left to do
        e = coro_kq_apply(self.kq, fd, EVFILT_READ, EV_ADD, 0, 0)
        if e:
            raise oserrors.make(e)
        return 0

    cdef int unwatch_signals(self, int fd) except -1:
        if self.kq >= 0 and coro_kq.sloppy_close:
            coro_kq_apply(self.kq, fd, EVFILT_READ, EV_DELETE, 0, 0)
        return 0


cdef inline uint32_t ready_bit_of(int filter) noexcept:
    if filter == EVFILT_READ:
        return FD_READ_READY
    if filter == EVFILT_WRITE:
        return FD_WRITE_READY
    if filter == CORO_EVFILT_EXCEPT:
        return FD_EXCEPT_READY
    return 0


cdef extern from *:
    """
    static int coro_no_process(int pid) { return kill(pid, 0) < 0 && errno == ESRCH; }
    """
    bint coro_no_process(int) nogil


cdef int check_wanted(uint32_t wanted) except -1:
    if wanted & FD_EXCEPT_READY and not CORO_EVFILT_EXCEPT:
        raise oserrors.make(EOPNOTSUPP)     # FreeBSD does not report urgent data
    return 0


def available():
    """Does this process have kqueue(2), from the system or from a library?"""
    return coro_kq.kqueue != NULL


def use_library(path):
    """Take kqueue() and kevent() from a shared library, on a system that has none of its own.

    For tests.  path: the library.  Raises OSError when it cannot be loaded or lacks them; LoopError where the system
    has its own.
    """
    cdef bytes name = _fsencode(path)
    cdef const char *problem
    if _NATIVE:
        raise LoopError("this system has a kqueue(2) of its own, which is the one to use")
    problem = coro_kq_load(name)
    if problem != NULL:
        raise OSError(f"{path} cannot be used as a kqueue library: {problem.decode(errors='replace')}")


cdef object _fsencode = __import__("os").fsencode
cdef bint _NATIVE = coro_kq.kqueue != NULL
