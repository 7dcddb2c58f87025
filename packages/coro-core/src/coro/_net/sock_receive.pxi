# The receiving half of the class sock, accept included: part of _net/sock.pyx (a class of its own only because
# a Cython class cannot be spread over two files). First the functions that do the work, then the class. They are
# functions and not methods so that they are called directly, and nobody else has to know of them.
#
# The shape is always the same: enter_read() refuses a second reader, waits at once where the last short read
# proved that nothing is left, or lets others run when the thread was selfish for too long; then the system
# call is tried until it does not say "would block".  The *_try functions make one attempt; they never switch,
# so they may use the static buffer and structures on the C stack.
#
# What is on the C stack while a thread waits is copied whenever two threads share a slot, so none of these functions
# waits itself.  They say "park now" (True, or None or MUST_WAIT in place of a result), and the method that Python
# called does: its frame and the interpreter's are all there is.  resume_read() is what follows.


cdef int reader_busy(_receiver s, coro me) except -1:
    if s.reader.dead:
        s.reader = None          # abandoned at the end of a loop
        return 0
    from coro._poll.filters import EVFILT
    from coro._poll.descriptors import kevent_key
    raise SimultaneousError(me, s.reader, kevent_key(EVFILT.READ, s.fd))


cdef inline bint enter_read(_receiver s, coro me, int flags) except -1:
    """What stands before the first attempt of each receiving call.  True: park now."""
    if s.fd < 0 or s.bits & B_FILE:
        s.check()
    if s.reader is not None:
        reader_busy(s, me)
    if not flags & (MSG_DONTWAIT | MSG_OOB | MSG_ERRQUEUE):
        if s.back is None:
            return before_attempt(s, me)
        if selfish(me):
            return begin_read_pause(s, me)
    return False


cdef inline bint before_attempt(_receiver s, coro me) except -1:
    """Wait at once where the last short read proved that nothing is there; else count one selfish act.  True: park
    now."""
    if s.bits & B_DRAINED and not s.st.flags & (FD_READ_READY | FD_NO_SHORTCUT):
        if not s.st.flags & FD_REGISTERED and others_run():
            s.st.flags |= FD_LINGERS
        return begin_read_wait(s, me)
    if selfish(me):
        return begin_read_pause(s, me)
    return False


cdef bint nothing_to_do(_receiver s) except -1:
    """May a call for no bytes return at once?  (On a datagram socket it consumes a datagram.)"""
    s.check()
    return s.bits & B_STREAM or not s.bits & B_SOCKET


cdef bint begin_read_wait(_receiver s, coro me) except -1:
    """True: park now.  False: try again."""
    cdef int r
    s.bits &= ~<unsigned int>B_DRAINED
    r = begin_wait(me, s.st, s.fd, FD_READ_READY)
    if r == 1:
        s.reader = me
        s.read_epoch = s.st.epoch
        return True
    if r == 2:
        wait_readable_at_length(s, me)
    return False


cdef int wait_readable_at_length(_receiver s, coro me) except -1:
    s.reader = me
    try:
        fd_poller().wait_read(s.st, s.fd)
    finally:
        s.reader = None
    if s.fd < 0:
        refuse_closed(s)
    return 0


cdef bint begin_read_pause(_receiver s, coro me) except -1:
    begin_slice(me)
    s.reader = me
    return True


cdef int resume_read(_receiver s, coro me) except -1:
    """What stands behind park()."""
    s.reader = None
    if me.kind == WAIT_SLICE:
        end_slice(me)
    else:
        end_wait(me, s.st, FD_READ_READY, s.read_epoch)
    if s.fd < 0:
        refuse_closed(s)
    return 0


cdef inline int wait_here(_receiver s, coro me) except -1:
    park(me)
    return resume_read(s, me)


cdef bint read_blocked(_receiver s, coro me, int flags) except -1:
    """After EAGAIN: have the caller wait (True: park now), or report it to one who asked not to."""
    if flags & (MSG_DONTWAIT | MSG_ERRQUEUE):
        raise _error(EAGAIN)
    s.st.flags &= ~<uint32_t>FD_READ_READY
    return begin_read_wait(s, me)


cdef inline Py_ssize_t recv_raw(_receiver s, char *p, Py_ssize_t n, int flags) except? -1:
    """One attempt.  -1 without an exception: it would block."""
    cdef Py_ssize_t r
    if flags or s.bits & B_SOCKET:
        r = c_recv(s.fd, p, n, flags)
    else:
        r = c_read(s.fd, p, n)
    if unlikely(r < 0):
        return recv_failed(s, p, n, flags)
    if 0 < r < n and s.bits & (B_TCP | B_OWNED) == (B_TCP | B_OWNED) \
            and not flags & (MSG_PEEK | MSG_OOB | MSG_ERRQUEUE):
        s.bits |= B_DRAINED
    else:
        s.bits &= ~<unsigned int>B_DRAINED
    return r


cdef Py_ssize_t recv_failed(_receiver s, char *p, Py_ssize_t n, int flags) except? -1:
    cdef int e = errno
    if e == EAGAIN:
        return -1
    if e != EINTR:
        raise failure(s, e)
    return recv_raw(s, p, n, flags)


cdef object recv_try(_receiver s, coro me, Py_ssize_t n, int flags):
    """bytes; None: park now."""
    cdef Py_ssize_t r
    cdef PyObject *big
    cdef object result
    if n <= SCRATCH and not (s.bits & B_FULL and n >= DIRECT) and not flags & MSG_TRUNC:
        while True:
            r = recv_raw(s, scratch, n, flags)
            if r >= 0:
                if r >= n:
                    r = n
                    if n >= DIRECT:
                        s.bits |= B_FULL
                return PyBytes_FromStringAndSize(scratch, r)
            if read_blocked(s, me, flags):
                return None
    if n > BIG and (s.bits & B_STREAM or not s.bits & B_SOCKET):
        n = BIG                     # a stream may return less; a datagram would be cut
    result = _blank(n, flags)
    r = recv_raw(s, PyBytes_AS_STRING(result), n, flags)
    while r < 0:
        if read_blocked(s, me, flags):
            return None
        r = recv_raw(s, PyBytes_AS_STRING(result), n, flags)
    if r >= n:
        return _as_told(result, n, r, flags)
    s.bits &= ~<unsigned int>B_FULL
    big = <PyObject *>result
    Py_INCREF(result)
    result = None                   # what is cut must have one reference
    _PyBytes_Resize(&big, r)
    result = <object>big
    Py_DECREF(result)
    return result


cdef object take_back(_receiver s, Py_ssize_t n, bint peek):
    """At most n of the bytes given back before."""
    cdef Py_ssize_t have = PyBytes_GET_SIZE(s.back) - s.back_at
    cdef object out
    if n > have:
        n = have
    if n == PyBytes_GET_SIZE(s.back):
        out = s.back
    else:
        out = PyBytes_FromStringAndSize(PyBytes_AS_STRING(s.back) + s.back_at, n)
    if not peek:
        if n == have:
            s.back = None
            s.back_at = 0
        else:
            s.back_at += n
    return out


cdef int give_back(_receiver s, bytes data) except -1:
    if s.fd >= 0 and len(data):
        s.back = data if s.back is None else data + s.back[s.back_at:]
        s.back_at = 0
    return 0


cdef object recv_first(_receiver s, Py_ssize_t n, int flags):
    """recv() as far as it gets without waiting.  None: park now, then recv_again()."""
    cdef PyObject *me = running_borrowed()
    if likely(n > 0 and not flags and s.fd >= 0 and s.reader is None and s.back is None
              and s.bits & (B_DRAINED | B_FILE) == B_DRAINED
              and s.st.flags & (FD_OWNED | FD_REGISTERED | FD_UNPOLLABLE | FD_READ_READY | FD_NO_SHORTCUT)
              == (FD_OWNED | FD_REGISTERED)
              and s.st.reader == NULL and not (<coro>me).link.attention):
        # enter_read() and begin_wait() of a server's thread that has answered and waits for more, without their
        # calls. With this and its like in recv_again() in plain form a request over TCP takes 1880 instructions, not
        # 1770.
        s.bits &= ~<unsigned int>B_DRAINED
        stand(&s.st.reader, <coro>me)
        begin_io(<coro>me, WAIT_READ, s.fd)
        s.reader = <coro>me
        s.read_epoch = s.st.epoch
        return None
    return recv_unprepared(s, <coro>me, n, flags)


cdef object recv_unprepared(_receiver s, coro me, Py_ssize_t n, int flags):
    """recv_first() of everybody else."""
    if n < 0:
        raise ValueError(f"the number of bytes to receive must not be negative, not {n}")
    if n == 0 and nothing_to_do(s):
        return b""
    if enter_read(s, me, flags):
        return None
    if s.back is None:
        return recv_try(s, me, n, flags)
    return recv_kept(s, me, n, flags)


cdef object recv_kept(_receiver s, coro me, Py_ssize_t n, int flags):
    """recv_try(), but what was given back comes first: before the first attempt, and after each pause."""
    if s.back is not None and not flags & (MSG_OOB | MSG_ERRQUEUE):
        return take_back(s, n, (flags & MSG_PEEK) != 0)
    return recv_try(s, me, n, flags)


cdef object recv_again(_receiver s, Py_ssize_t n, int flags):
    cdef PyObject *me = <PyObject *>s.reader     # it runs, so somebody else holds it, too
    cdef Py_ssize_t r
    if unlikely((<coro>me).kind != WAIT_READ or s.fd < 0):
        resume_read(s, <coro>me)
        return recv_kept(s, <coro>me, n, flags)
    # resume_read(), without its call (nobody waits for the kernel while bytes that were given back are left)
    s.reader = None
    end_wait(<coro>me, s.st, FD_READ_READY, s.read_epoch)
    if n > SCRATCH or flags or s.bits & (B_TCP | B_OWNED | B_FULL) != (B_TCP | B_OWNED):
        return recv_try(s, <coro>me, n, flags)
    # and recv_try() of a TCP stream, without its calls
    r = c_recv(s.fd, scratch, n, 0)
    if unlikely(r < 0):
        r = recv_failed(s, scratch, n, 0)
        if r < 0:
            return recv_try(s, <coro>me, n, 0)
    if likely(0 < r < n):
        s.bits |= B_DRAINED
    else:
        s.bits &= ~<unsigned int>B_DRAINED
        if r >= DIRECT:
            s.bits |= B_FULL
    return PyBytes_FromStringAndSize(scratch, r)


cdef struct gathering:          # how far a recv_exact() or readv() has come
    PyObject *out               # NULL: nothing yet
    Py_ssize_t n, have, room


cdef object gather(_receiver s, coro me, Py_ssize_t n):
    """Exactly n bytes, fewer at the end of the stream.  Interrupted: what was read is given back.

    The result grows as bytes arrive: a length that a peer made up costs no memory.
    """
    cdef gathering g
    cdef object data
    if n == 0:
        s.check()
        return b""
    if enter_read(s, me, 0):
        wait_here(s, me)
    g.n = n
    data = gather_first(s, me, &g)
    while data is None:
        park(me)
        data = gather_on(s, me, &g, True)
    return data


cdef object gather_first(_receiver s, coro me, gathering *g):
    """The first attempt.  None: park now, then gather_on()."""
    cdef object data
    g.out = NULL
    g.have = 0
    if s.back is not None:
        data = take_back(s, g.n, False)
    else:
        data = recv_try(s, me, g.n, 0)
        if data is None or PyBytes_GET_SIZE(data) == 0:
            return data
    g.have = PyBytes_GET_SIZE(data)
    if g.have == g.n:
        return data
    try:
        gather_room(s, g)
    except MemoryError:
        give_back(s, data)
        raise
    memcpy(PyBytes_AS_STRING(<object>g.out), PyBytes_AS_STRING(data), g.have)
    return gather_on(s, me, g, False)


cdef int gather_room(_receiver s, gathering *g) except -1:
    g.room = g.n if g.n <= SCRATCH else max(<Py_ssize_t>SCRATCH, min(g.n, 2 * g.have))
    g.out = PyBytes_New(NULL, g.room)
    return 0


cdef object gather_on(_receiver s, coro me, gathering *g, bint resumed):
    """The others.  None: park now, then once more."""
    cdef Py_ssize_t r
    cdef object data
    try:
        if resumed:
            resume_read(s, me)
        if g.out == NULL:
            gather_room(s, g)
        while g.have < g.n:
            if g.have == g.room:
                g.room = min(g.n, 2 * g.room)
                _PyBytes_Resize(&g.out, g.room)     # g.out is NULL after a failure
            r = recv_raw(s, PyBytes_AS_STRING(<object>g.out) + g.have, g.room - g.have, 0)
            if r == 0:
                break
            if r < 0:
                if read_blocked(s, me, 0):
                    return None
                continue
            g.have += r
            if g.have < g.n and before_attempt(s, me):
                return None
    except BaseException:
        if g.out != NULL:
            data = PyBytes_FromStringAndSize(PyBytes_AS_STRING(<object>g.out), g.have)
            Py_DECREF(<object>g.out)
            give_back(s, data)
        raise
    if g.have < g.room:
        _PyBytes_Resize(&g.out, g.have)
    data = <object>g.out
    Py_DECREF(data)
    return data


cdef Py_ssize_t into_first(_receiver s, char *p, Py_ssize_t n, int flags, Py_buffer *held) except -1:
    """recv_into() as far as it gets without waiting.  MUST_WAIT: park now, then into_again().  `held`, if not NULL,
    is the buffer to be released in all other cases."""
    cdef Py_ssize_t r = -1
    cdef coro me
    try:
        me = running_thread()
        if n == 0 and nothing_to_do(s):
            r = 0
        elif enter_read(s, me, flags):
            r = MUST_WAIT
        else:
            r = into_kept(s, me, p, n, flags)
    finally:
        if held != NULL and r != MUST_WAIT:
            PyBuffer_Release(held)
    return r


cdef Py_ssize_t into_again(_receiver s, char *p, Py_ssize_t n, int flags, Py_buffer *held) except -1:
    cdef Py_ssize_t r = -1
    cdef coro me = s.reader
    try:
        resume_read(s, me)
        r = into_kept(s, me, p, n, flags)
    finally:
        if held != NULL and r != MUST_WAIT:
            PyBuffer_Release(held)
    return r


cdef Py_ssize_t into_kept(_receiver s, coro me, char *p, Py_ssize_t n, int flags) except -1:
    """into_try(), but what was given back comes first."""
    cdef object data
    if s.back is None or flags & (MSG_OOB | MSG_ERRQUEUE):
        return into_try(s, me, p, n, flags)
    data = take_back(s, n, (flags & MSG_PEEK) != 0)
    memcpy(p, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return PyBytes_GET_SIZE(data)


cdef Py_ssize_t into_try(_receiver s, coro me, char *p, Py_ssize_t n, int flags) except -1:
    cdef Py_ssize_t r
    while True:
        r = recv_raw(s, p, n, flags)
        if r >= 0:
            return r
        if read_blocked(s, me, flags):
            return MUST_WAIT


cdef object recvfrom_raw(_receiver s, char *p, Py_ssize_t n, int flags, Py_ssize_t *r):
    """One attempt: the address, and in `r` what recvfrom(2) returned; -1 when it would block."""
    cdef sockaddr_storage sa
    cdef socklen_t length
    cdef int e
    while True:
        sa.ss_family = AF_UNSPEC
        length = sizeof(sa)
        r[0] = c_recvfrom(s.fd, p, n, flags, <sockaddr *>&sa, &length)
        if r[0] >= 0:
            s.bits &= ~<unsigned int>B_DRAINED
            # (a stream gives no sender's address)
            return _format(&sa, length) if sa.ss_family != AF_UNSPEC else None
        e = errno
        if e == EAGAIN:
            return None
        if e != EINTR:
            raise failure(s, e)


cdef object recvfrom_try(_receiver s, Py_ssize_t n, int flags):
    """(bytes, address), or None when it would block."""
    cdef Py_ssize_t r = -1
    cdef object address, data
    if n <= SCRATCH and not flags & MSG_TRUNC:
        address = recvfrom_raw(s, scratch, n, flags, &r)
        return None if r < 0 else (PyBytes_FromStringAndSize(scratch, min(r, n)), address)
    if n > BIG and s.bits & B_STREAM:
        n = BIG
    data = _blank(n, flags)
    address = recvfrom_raw(s, PyBytes_AS_STRING(data), n, flags, &r)
    return None if r < 0 else (_as_told(data, n, r, flags), address)


cdef object recvmsg_try(_receiver s, Py_ssize_t n, Py_ssize_t room, int flags, Py_ssize_t *told):
    """(bytes, ancillary data, message flags, address), or None when it would block.  In `told`: what recvmsg(2)
    returned, which may be more than n with MSG_TRUNC."""
    cdef sockaddr_storage sa
    cdef msghdr msg
    cdef iovec v
    cdef cmsghdr *c
    cdef Py_ssize_t r, size
    cdef char *control = NULL
    cdef int e
    cdef object data = _blank(n, flags)
    cdef list ancillary = []
    memset(&msg, 0, sizeof(msg))
    v.iov_base = PyBytes_AS_STRING(data)
    v.iov_len = n
    sa.ss_family = AF_UNSPEC
    msg.msg_name = &sa
    msg.msg_namelen = sizeof(sa)
    msg.msg_iov = &v
    msg.msg_iovlen = 1
    if room:
        control = <char *>PyMem_Malloc(room)
        if control == NULL:
            raise MemoryError()
        msg.msg_control = control
        msg.msg_controllen = room
    try:
        while True:
            r = c_recvmsg(s.fd, &msg, flags | MSG_CMSG_CLOEXEC)
            if r >= 0:
                break
            e = errno
            if e == EAGAIN:
                return None
            if e != EINTR:
                raise failure(s, e)
        s.bits &= ~<unsigned int>B_DRAINED
        told[0] = r
        if <Py_ssize_t>msg.msg_controllen > room:
            msg.msg_controllen = room
        try:
            c = CMSG_FIRSTHDR(&msg) if room else NULL
            while c != NULL:
                size = c.cmsg_len - CMSG_LEN(0)
                # a header that the buffer cut short says more than there is
                size = max(0, min(size, control + msg.msg_controllen - <char *>CMSG_DATA(c)))
                ancillary.append((c.cmsg_level, c.cmsg_type,
                                  PyBytes_FromStringAndSize(<char *>CMSG_DATA(c), size)))
                c = CMSG_NXTHDR(&msg, c)
            return (data if r >= n else data[:r], ancillary, msg.msg_flags & ~MSG_CMSG_CLOEXEC,
                    _format(&sa, msg.msg_namelen) if msg.msg_namelen else None)
        except BaseException:
            # nobody will ever see these numbers
            _close_passed(&msg, control)
            raise
    finally:
        PyMem_Free(control)


cdef object receive_message(_receiver s, Py_ssize_t bufsize, Py_ssize_t ancbufsize, int flags, Py_ssize_t *told):
    cdef coro me = running_thread()
    cdef object data
    if bufsize < 0 or ancbufsize < 0 or ancbufsize > 0x7fffffff:
        raise ValueError("the sizes must not be negative (nor the ancillary one more than 2 GiB), "
                         f"not {bufsize} and {ancbufsize}")
    if bufsize > BIG and s.bits & B_STREAM:
        bufsize = BIG
    if enter_read(s, me, flags):
        wait_here(s, me)
    if s.back is not None and not flags & (MSG_OOB | MSG_ERRQUEUE):
        data = take_back(s, bufsize, (flags & MSG_PEEK) != 0)
        told[0] = PyBytes_GET_SIZE(data)
        return data, [], 0, None
    while True:
        result = recvmsg_try(s, bufsize, ancbufsize, flags, told)
        if result is not None:
            return result
        if read_blocked(s, me, flags):
            wait_here(s, me)


cdef int batch_try(_receiver s, coro_mmsghdr *headers, unsigned int n, int flags) except? -1:
    """One recvmmsg(2): the number of datagrams.  -1 without an exception: it would block."""
    cdef int r, e
    while True:
        r = coro_recvmmsg(s.fd, headers, n, flags)
        if r >= 0:
            s.bits &= ~<unsigned int>B_DRAINED
            return r
        e = errno
        if e == EAGAIN:
            return -1
        if e != EINTR:
            raise failure(s, e)


cdef list batch_objects_try(_receiver s, Py_ssize_t size, unsigned int n, int flags):
    """[(bytes, address), ...], or None when it would block."""
    cdef Py_ssize_t room = size or 1
    cdef unsigned int i
    cdef int r
    cdef list out
    cdef char *memory = scratch
    if room * n > SCRATCH:
        memory = <char *>PyMem_Malloc(room * n)
        if memory == NULL:
            raise MemoryError()
    try:
        for i in range(n):
            memset(&batch[i], 0, sizeof(coro_mmsghdr))
            names[i].ss_family = AF_UNSPEC
            vectors[i].iov_base = memory + i * room
            vectors[i].iov_len = size
            batch[i].msg_hdr.msg_name = &names[i]
            batch[i].msg_hdr.msg_namelen = sizeof(sockaddr_storage)
            batch[i].msg_hdr.msg_iov = &vectors[i]
            batch[i].msg_hdr.msg_iovlen = 1
        r = batch_try(s, batch, n, flags)
        if r < 0:
            return None
        out = []
        for i in range(<unsigned int>r):
            out.append((PyBytes_FromStringAndSize(memory + i * room, min(<Py_ssize_t>batch[i].msg_len, size)),
                        _format(&names[i], batch[i].msg_hdr.msg_namelen) if batch[i].msg_hdr.msg_namelen else None))
        return out
    finally:
        if memory != scratch:
            PyMem_Free(memory)


cdef object accept_try(_receiver s):
    """(sock, address), or None: nobody is there, or (full_errno is set) no descriptors are left."""
    cdef sockaddr_storage sa
    cdef socklen_t length
    cdef int fd, e
    cdef unsigned int bits
    s.full_errno = 0
    while True:
        length = sizeof(sa)
        sa.ss_family = AF_UNSPEC
        fd = coro_accept(s.fd, <sockaddr *>&sa, &length)
        if fd >= 0:
            # (_adopt closes the descriptor when it fails)
            bits = B_SOCKET | B_OWNED | (s.bits & (B_TCP | B_STREAM | B_LINGERS))
            return _adopt(fd, s.domain, s.stype, bits), _format(&sa, length)
        e = errno
        if e == EAGAIN:
            return None
        if e == EMFILE or e == ENFILE or e == ENOBUFS or e == ENOMEM:
            s.full_errno = e
            return None
        # accept(2), "Error handling": these belong to a connection that ended while it was queued
        if e != EINTR and e != ECONNABORTED and e != EPROTO:
            raise _error(e)


cdef int accept_pause(_receiver s, coro me) except -1:
    """The connection stays queued in the kernel, readable at once: waiting for readiness would spin."""
    cdef double now = time.monotonic()
    if now - s.full_said >= FULL_SAY_EVERY:
        s.full_said = now
        _say(f"accept on {s!r}: {os.strerror(s.full_errno)}; trying again every "
             f"{FULL_PAUSE * 1000:.0f} ms. Raise the limit (ulimit -n) or close something.")
    s.reader = me
    try:
        _pause(FULL_PAUSE)
    finally:
        s.reader = None
    return s.check()


cdef int raise_late(_receiver s) except -1:
    cdef int e = s.late_errno
    if e:
        s.late_errno = 0
        raise _error(e)
    return 0


cdef class _receiver(_descriptor):
    """Everything of a sock that reads, and accept."""

    cdef object c_recv(self, Py_ssize_t n, int flags):
        cdef object data = recv_first(self, n, flags)
        while data is None:
            park(self.reader)
            data = recv_again(self, n, flags)
        return data

    cdef void c_expect(self) noexcept:
        self.bits |= B_DRAINED

    def recv(self, Py_ssize_t buffer_size, int flags=0):
        """Receive at most ``buffer_size`` bytes; ``b''`` at the end of the stream.

        ``flags`` are those of recv(2). With MSG_DONTWAIT the call never waits and raises ``oserrors.EAGAIN``
        instead. With MSG_TRUNC the result has the length that the kernel reports: the real length of a datagram, even
        beyond ``buffer_size``, or the number of bytes that a TCP socket discarded. Bytes that the kernel did not
        deliver are zeros.

        Raises ``ValueError`` for a negative size and ``SimultaneousError`` while another thread receives.
        """
        # c_recv(), but without a frame of its own
        cdef object data = recv_first(self, buffer_size, flags)
        cdef PyObject *me
        while data is None:
            me = <PyObject *>self.reader
            park(<coro>me)
            data = recv_again(self, buffer_size, flags)
        return data

    def read(self, Py_ssize_t buffer_size):
        """Receive at most ``buffer_size`` bytes: the same as recv() without ``flags``."""
        return self.c_recv(buffer_size, 0)

    cdef object c_recv_exact(self, Py_ssize_t n):
        cdef coro me = running_thread()
        cdef object data
        if n < 0:
            raise ValueError(f"the number of bytes to receive must not be negative, not {n}")
        data = gather(self, me, n)
        if PyBytes_GET_SIZE(data) < n:
            raise end_of_stream(data, n)
        return data

    def recv_exact(self, Py_ssize_t nbytes):
        """Receive exactly ``nbytes`` bytes.

        Raises ``EOFError(partial)`` when the stream ends before.  An interruption (by a timeout, for example) loses
        nothing: the next call that receives returns the bytes read so far first.
        """
        return self.c_recv_exact(nbytes)

    def readv(self, size_list):
        """Fill buffers of the sizes in ``size_list``. Returns them as a tuple of bytes.

        At the end of the stream only complete and partially filled buffers are returned, ``()`` if nothing came.
        An interrupted call puts back what it read, as recv_exact() does.  Raises ``ValueError`` for a negative
        size.
        """
        cdef coro me = running_thread()
        cdef list sizes = []
        cdef Py_ssize_t total = 0, at = 0, n
        for size in size_list:
            n = _index(size)
            if n < 0:
                raise ValueError(f"a size must not be negative, not {n}")
            if n > sys.maxsize - total:
                raise OverflowError("the sizes add up to more than an object can hold")
            total += n
            sizes.append(n)
        data = gather(self, me, total)
        out = []
        for n in sizes:
            if at >= PyBytes_GET_SIZE(data) and PyBytes_GET_SIZE(data) < total:
                break
            out.append(data[at:at + n])
            at += n
        return tuple(out)

    cdef Py_ssize_t c_recv_into(self, char *p, Py_ssize_t n, int flags) except -1:
        cdef Py_ssize_t r = into_first(self, p, n, flags, NULL)
        while r == MUST_WAIT:
            park(self.reader)
            r = into_again(self, p, n, flags, NULL)
        return r

    def recv_into(self, buffer, Py_ssize_t nbytes=0, int flags=0):
        """Receive into a writable buffer, at most ``nbytes`` (0: what it holds). Returns the number of bytes.
        ``flags`` as in recv().

        With MSG_TRUNC the number is a datagram's real length, even beyond ``nbytes``.  A TCP socket discards the bytes
        and leaves the buffer as it was.

        Raises ``ValueError`` when ``nbytes`` is negative or more than the buffer holds.
        """
        cdef Py_buffer view
        cdef Py_ssize_t r
        nbytes = _hold(buffer, &view, nbytes)
        r = into_first(self, <char *>view.buf, nbytes, flags, &view)
        while r == MUST_WAIT:
            park(self.reader)
            r = into_again(self, <char *>view.buf, nbytes, flags, &view)
        return r

    cdef object c_recvfrom(self, Py_ssize_t n, int flags):
        cdef coro me = running_thread()
        if n < 0:
            raise ValueError(f"the number of bytes to receive must not be negative, not {n}")
        if enter_read(self, me, flags):
            wait_here(self, me)
        if self.back is not None and not flags & (MSG_OOB | MSG_ERRQUEUE):
            return take_back(self, n, (flags & MSG_PEEK) != 0), None
        while True:
            result = recvfrom_try(self, n, flags)
            if result is not None:
                return result
            if read_blocked(self, me, flags):
                wait_here(self, me)

    def recvfrom(self, Py_ssize_t buffer_size, int flags=0):
        """One datagram of at most ``buffer_size`` bytes and its sender: ``(bytes, address)``.

        ``flags`` and errors as in recv().
        """
        return self.c_recvfrom(buffer_size, flags)

    def recvfrom_into(self, buffer, Py_ssize_t nbytes=0, int flags=0):
        """recvfrom() into a writable ``buffer``, at most ``nbytes`` (0: what it holds): ``(number of bytes, address)``.

        ``flags``, the number with MSG_TRUNC, and errors as in recv_into().
        """
        cdef coro me = running_thread()
        cdef Py_buffer view
        cdef Py_ssize_t r = -1
        cdef object address
        nbytes = _hold(buffer, &view, nbytes)
        try:
            if enter_read(self, me, flags):
                wait_here(self, me)
            if self.back is not None and not flags & (MSG_OOB | MSG_ERRQUEUE):
                return into_kept(self, me, <char *>view.buf, nbytes, flags), None
            while True:
                address = recvfrom_raw(self, <char *>view.buf, nbytes, flags, &r)
                if r >= 0:
                    return r, address
                if read_blocked(self, me, flags):
                    wait_here(self, me)
        finally:
            PyBuffer_Release(&view)

    def recvmsg(self, Py_ssize_t bufsize, Py_ssize_t ancbufsize=0, int flags=0):
        """Receive data and ancillary data: ``(bytes, [(level, type, bytes)], message flags, address)``.

        Passed descriptors are close-on-exec.  ``ancbufsize`` is the room for ancillary data in bytes
        (``CMSG_SPACE``).  There are never more than ``bufsize`` bytes; MSG_TRUNC in the message flags says that the
        datagram was longer.  Raises ``ValueError`` for a negative size.
        """
        cdef Py_ssize_t told = 0
        return receive_message(self, bufsize, ancbufsize, flags, &told)

    def recvmsg_into(self, buffers, Py_ssize_t ancbufsize=0, int flags=0):
        """recvmsg() into writable ``buffers``, which are filled one after the other. ``ancbufsize`` and ``flags`` as
        there.

        Returns ``(number of bytes, [(level, type, bytes)], message flags, address)``.  ``buffers`` is any
        iterable of writable, contiguous buffers.  With MSG_TRUNC the number is a datagram's real length, even
        beyond what the buffers hold.  Raises ``BufferError`` for one that is read-only, and as recvmsg() does.
        """
        cdef list views = [], spans = []
        cdef Py_ssize_t total = 0, at = 0, n, told = 0
        try:
            for buffer in buffers:
                view = memoryview(buffer)
                views.append(view)
                if view.readonly:
                    raise BufferError(f"expected writable buffers, not {type(buffer).__name__}")
                if view.nbytes:             # (nothing to cast in an empty one, whatever its shape)
                    total += view.nbytes
                    spans.append(view.cast("B"))
            data, ancillary, msg_flags, address = receive_message(self, total, ancbufsize, flags, &told)
            for span in spans:
                n = min(<Py_ssize_t>len(span), PyBytes_GET_SIZE(data) - at)
                span[:n] = data[at:at + n]
                at += n
            return told, ancillary, msg_flags, address
        finally:
            for view in spans + views:
                view.release()

    cdef int c_recvmmsg(self, coro_mmsghdr *headers, unsigned int n, int flags) except -1:
        # (of datagrams, so nothing was ever put back)
        cdef coro me = running_thread()
        cdef int r
        if enter_read(self, me, flags):
            wait_here(self, me)
        while True:
            r = batch_try(self, headers, n, flags)
            if r >= 0:
                return r
            if read_blocked(self, me, flags):
                wait_here(self, me)

    def recvmmsg(self, Py_ssize_t buffer_size, int max=32, int flags=0):
        """Wait for a datagram and take all that are there, at most ``max`` (1 to 64): ``[(bytes, address), ...]``.

        It is recvfrom() for many datagrams with one system call where the system has recvmmsg(2), and so for servers
        under load. Of each datagram there are at most ``buffer_size`` bytes.  ``flags`` as in recv(), but for
        MSG_TRUNC, which changes nothing.

        An error after the first datagram is raised by the next call, if it lasts.  Raises ``ValueError`` for a negative
        size and for another ``max``, and otherwise what recv() raises.
        """
        cdef coro me = running_thread()
        cdef list out
        if not 0 <= buffer_size <= BIG:
            raise ValueError(f"the number of bytes to receive of each datagram is from 0 to {BIG}, not {buffer_size}")
        if not 1 <= max <= IOVECS:
            raise ValueError(f"the most datagrams to receive at once is from 1 to {IOVECS}, not {max}")
        if enter_read(self, me, flags):
            wait_here(self, me)
        if self.back is not None and not flags & (MSG_OOB | MSG_ERRQUEUE):
            return [(take_back(self, buffer_size, (flags & MSG_PEEK) != 0), None)]
        while True:
            out = batch_objects_try(self, buffer_size, max, flags & ~MSG_TRUNC)
            if out is not None:
                return out
            if read_blocked(self, me, flags):
                wait_here(self, me)

    def recv_fds(self, Py_ssize_t bufsize, int maxfds, int flags=0):
        """Receive at most ``bufsize`` bytes, and at most ``maxfds`` (0 to 4096) descriptors that send_fds() has passed.

        Returns ``(bytes, [descriptor numbers], message flags, address)``; the numbers are close-on-exec and
        the caller's to close.  MSG_CTRUNC in the flags means that more were sent (the kernel closed those).
        """
        if not 0 <= maxfds <= 4096:
            raise ValueError(f"the number of descriptors is from 0 to 4096, not {maxfds}")
        # CMSG_LEN, not CMSG_SPACE: the padding could take in one more descriptor than was asked for
        room = CMSG_LEN(maxfds * sizeof(int)) if maxfds else 0
        data, ancillary, msg_flags, address = self.recvmsg(bufsize, room, flags)
        return data, _numbers(ancillary), msg_flags, address

    def wait_for_read(self):
        """Wait until the descriptor is readable or its peer has gone.

        With kqueue, returns the number of bytes that can be read (for a listening socket: of connections).  Otherwise
        returns 0, which means "ready, amount unknown".  Each call asks the kernel again.
        Raises ``SimultaneousError`` while another thread receives.
        """
        cdef coro me = running_thread()
        cdef FdPoller p
        cdef unsigned int fflags
        self.check()
        if self.reader is not None:
            reader_busy(self, me)
        if self.back is not None:
            return len(self.back) - self.back_at
        p = fd_poller()
        self.reader = me
        try:
            p.wait_read_fresh(self.st, self.fd)
        finally:
            self.reader = None
        self.check()
        self.bits &= ~<unsigned int>B_DRAINED
        return p.details(self.fd, FD_READ_READY, &fflags)

    # -- accepting

    cdef object c_accept(self):
        cdef coro me = running_thread()
        cdef object pair
        if enter_read(self, me, 0):
            wait_here(self, me)
        raise_late(self)
        while True:
            pair = accept_try(self)
            if pair is not None:
                return pair
            if self.full_errno:
                accept_pause(self, me)
            elif read_blocked(self, me, 0):
                wait_here(self, me)

    def accept(self):
        """Wait for a connection: ``(sock, address)``.

        The new descriptor is close-on-exec.  Connections that ended while they were queued are skipped.  If the process
        has no free descriptor, it tries again twenty times a second, and says so on stderr once a minute.
        """
        return self.c_accept()

    def accept_many(self, int max=0):
        """Wait for connections and accept all, or at most ``max`` if not 0: ``[(sock, address), ...]``.

        The list may be empty.  An error after the first connection is raised by the next call.  Raises
        ``ValueError`` for a negative ``max``.
        """
        cdef coro me = running_thread()
        cdef list out = []
        cdef object pair
        if max < 0:
            raise ValueError(f"the most connections to accept is an int >= 0 (0: no limit), not {max}")
        self.check()
        raise_late(self)
        self.wait_for_read()
        while not max or len(out) < max:
            try:
                pair = accept_try(self)
            except OSError as e:
                if not out:
                    raise
                self.late_errno = e.errno or EINVAL
                break
            if pair is not None:
                out.append(pair)
            elif self.full_errno and not out:
                accept_pause(self, me)
            else:
                break
        return out
