# Watching for the ends of many threads, for coro.wait and coro.as_completed: each thread that dies links a note, which
# was made beforehand, to its watch. So a death allocates nothing and cannot fail, whoever watches learns the order of
# the ends, and going through n threads costs O(n) in all.

@cython.final
@cython.internal
cdef class EndNote:
    """Stands among the joiners of a thread for a watch."""
    cdef coro thread
    cdef _EndWatch watch
    cdef EndNote next       # the one whose thread has ended after this one's


@cython.final
cdef class _EndWatch:
    """Which of some threads have ended, in the order of their ends. Those that have at the beginning come first, in the
    order given. For one thread at a time, which calls leave() at the end: until then the threads know the watch."""
    cdef EndNote first, last
    cdef list notes
    cdef coro waiter
    cdef readonly Py_ssize_t missing    # threads that have not ended

    def __init__(self, threads):
        cdef coro t
        cdef EndNote note
        check_os_thread()
        self.notes = []
        for t in threads:
            note = EndNote.__new__(EndNote)
            note.thread = t
            note.watch = self
            self.missing += 1
            if t.link.flags & DEAD:
                note_end(note)
            else:
                self.notes.append(note)
                add_joiner(t, note)

    @property
    def threads(self):
        """For reports: the threads that have not ended."""
        return tuple([(<EndNote>note).thread for note in self.notes if not (<EndNote>note).thread.link.flags & DEAD])

    def take(self):
        """The next thread that has ended; None when none has, or all were taken."""
        cdef EndNote note = self.first
        if note is None:
            return None
        self.first = note.next
        if self.first is None:
            self.last = None
        return note.thread

    def wait(self):
        """Wait until there is something to take. Some thread has to be missing."""
        cdef coro me = running_thread()
        if self.waiter is not None:
            raise RuntimeError(f"{self.waiter!r} waits for these threads with the same iterator already; "
                               f"let one thread go through it")
        self.waiter = me
        try:
            while self.first is None:
                suspend(me, WAIT_OBJECT, self)
        finally:
            self.waiter = None

    def leave(self):
        cdef EndNote note
        notes, self.notes = self.notes, []
        self.first = self.last = None
        for note in notes:
            remove_joiner(note.thread, note)

    def __repr__(self):
        return f"<the end of any of {self.missing} threads>"


cdef void note_end(EndNote note) noexcept:
    """Its thread has ended."""
    cdef _EndWatch watch = note.watch
    if watch.last is None:
        watch.first = note
    else:
        watch.last.next = note
    watch.last = note
    watch.missing -= 1
    if watch.waiter is not None:
        wake(watch.waiter, None)
