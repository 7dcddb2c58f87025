# The class sock itself: everything that writes, connect, and the remaining socket calls.  Part of
# _net/sock.pyx; receiving is in _net/sock_receive.pxi.
#
# A call that goes out in one system call touches neither `sender` nor the queue.  One that has to wait first
# becomes the sender (begin_send(), behind those who came before) and hands over when it leaves (end_send()),
# by whatever way.  Whoever was handed the sending side and is interrupted in the same moment passes it on.


cdef int begin_send(sock s, coro me) except -1:
    """Become the sender, after those who came before.  Each success is followed by end_send()."""
    if s.sender is not None:
        if not s.sender.dead:
            return queue_send(s, me)
        # abandoned at the end of a loop; those queued behind it are dead, too
        s.first = s.last = None
    s.sender = me
    return 0


cdef int queue_send(sock s, coro me) except -1:
    cdef _sender w = _sender.__new__(_sender)
    w.thread = me
    w.queued = True
    w.prev = s.last
    if s.last is None:
        s.first = w
    else:
        s.last.next = w
    s.last = w
    try:
        while not w.granted:
            suspend(me, WAIT_OBJECT, s)
            if s.fd < 0:
                refuse_closed(s)
    except BaseException:
        if w.granted:
            # it was handed to us in the same moment: pass it on
            end_send(s)
        elif w.queued:
            leave_queue(s, w)
        raise
    return 0


cdef int leave_queue(sock s, _sender w) except -1:
    if w.prev is None:
        s.first = w.next
    else:
        w.prev.next = w.next
    if w.next is None:
        s.last = w.prev
    else:
        w.next.prev = w.prev
    w.next = w.prev = None
    w.queued = False
    return 0


cdef int end_send(sock s) except -1:
    cdef _sender w
    while s.first is not None:
        w = s.first
        leave_queue(s, w)
        if not w.thread.dead:
            w.granted = True
            s.sender = w.thread
            # False: it is already scheduled, with an interruption, and will pass the grant on
            wake(w.thread, None)
            return 0
    s.sender = None
    return 0


cdef bint begin_write_wait(sock s, coro me) except -1:
    """As the sender, after EAGAIN.  True: park now, then resume_send().  False: try again."""
    cdef int r
    s.st.flags &= ~<uint32_t>FD_WRITE_READY
    r = begin_wait(me, s.st, s.fd, FD_WRITE_READY)
    if r == 1:
        s.send_epoch = s.st.epoch
        return True
    if r == 2:
        fd_poller().wait_write(s.st, s.fd)
        if s.fd < 0:
            refuse_closed(s)
    return False


cdef int resume_send(sock s, coro me) except -1:
    """What stands behind park()."""
    if me.kind == WAIT_SLICE:
        end_slice(me)
    else:
        end_wait(me, s.st, FD_WRITE_READY, s.send_epoch)
    if s.fd < 0:
        refuse_closed(s)
    return 0


cdef int wait_writable(sock s, coro me) except -1:
    if begin_write_wait(s, me):
        park(me)
        resume_send(s, me)
    return 0


cdef int send_blocked(sock s, coro me, int flags, bint named) except -1:
    """After EAGAIN (as the sender): wait, or report it to a caller who asked not to."""
    if flags & MSG_DONTWAIT:
        raise _error(EAGAIN)
    if named and s.domain == AF_UNIX:
        # unix(7): a full queue of an unconnected peer makes no event on this side
        _pause(QUEUE_PAUSE_FIRST)
        return s.check()
    return wait_writable(s, me)


cdef int pause_send(sock s, coro me) except -1:
    give_way(me)
    if s.fd < 0:
        refuse_closed(s)
    return 0


cdef inline Py_ssize_t send_raw(sock s, const char *p, Py_ssize_t n, int flags) noexcept:
    if s.bits & B_SOCKET:
        return c_send(s.fd, p, n, flags | MSG_NOSIGNAL)
    if flags:
        return c_send(s.fd, p, n, flags)     # ENOTSOCK
    return c_write(s.fd, p, n)


cdef Py_ssize_t send_first(sock s, const char *p, Py_ssize_t n, int flags) except -1:
    """c_send() as far as it gets without waiting: how many bytes went out.  Fewer than n: park now, as the sender,
    then send_rest()."""
    cdef PyObject *me = running_borrowed()
    cdef Py_ssize_t r
    if unlikely(s.fd < 0 or s.bits & B_FILE):
        s.check()
    if unlikely(n == 0):
        return 0
    if unlikely(s.sender is not None):
        if flags & MSG_DONTWAIT:
            raise _error(EAGAIN)
        return send_rest(s, <coro>me, p, n, 0, flags, SEND_TRY)
    if unlikely(not flags & MSG_DONTWAIT and selfish(<coro>me)):
        return send_rest(s, <coro>me, p, n, 0, flags, SEND_PAUSE)
    r = send_raw(s, p, n, flags)
    if likely(r == n):
        return n
    return send_partly(s, <coro>me, p, n, r, flags)


cdef Py_ssize_t send_partly(sock s, coro me, const char *p, Py_ssize_t n, Py_ssize_t r, int flags) except -1:
    """The first attempt's result was `r`: less than n, or less than 0 with the reason in errno."""
    cdef int e = errno
    if r >= 0:
        return send_rest(s, me, p, n, r, flags, SEND_TRY)
    if e != EAGAIN and e != EINTR:
        raise failure(s, e)
    return send_rest(s, me, p, n, 0, flags, SEND_TRY if e == EINTR else SEND_BLOCKED)


cdef Py_ssize_t send_rest(sock s, coro me, const char *p, Py_ssize_t n, Py_ssize_t done, int flags, int step) except -1:
    """The slow way: in the queue, with waiting.  Returns as send_first() does."""
    cdef bint parks = False
    cdef Py_ssize_t r
    cdef int e
    try:
        if step != SEND_RESUMED:
            begin_send(s, me)
        try:
            if step == SEND_RESUMED:
                resume_send(s, me)
            elif step == SEND_PAUSE:
                begin_slice(me)
                parks = True
            elif step == SEND_BLOCKED:
                parks = begin_blocked(s, me, flags)
            while done < n and not parks:
                r = send_raw(s, p + done, n - done, flags)
                if r >= 0:
                    done += r
                    if done < n and not flags & MSG_DONTWAIT and selfish(me):
                        begin_slice(me)
                        parks = True
                    continue
                e = errno
                if e == EAGAIN:
                    parks = begin_blocked(s, me, flags)
                elif e != EINTR:
                    raise failure(s, e)
        finally:
            if not parks:
                end_send(s)
    except BaseException as exc:
        _tell_sent(exc, done)
        raise
    return done


cdef bint begin_blocked(sock s, coro me, int flags) except -1:
    """After EAGAIN (as the sender): True to park now, or an exception for a caller who asked not to wait."""
    if flags & MSG_DONTWAIT:
        raise _error(EAGAIN)
    return begin_write_wait(s, me)


cdef Py_ssize_t send_object(sock s, object data, int flags) except -1:
    """A buffer that is not bytes."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return s.c_send(<const char *>view.buf, view.len, flags)
    finally:
        PyBuffer_Release(&view)


cdef Py_ssize_t writev_try(sock s, list views, Py_ssize_t first, Py_ssize_t skip) except? -1:
    """One gathering call from byte `skip` of piece `first` on.  -1, no exception: it would block."""
    cdef msghdr msg
    cdef Py_ssize_t n, r
    cdef int i = 0, e
    cdef const char *p
    while first < len(views) and i < IOVECS:
        p = _piece(views[first], &n)
        vectors[i].iov_base = <void *>(p + skip)
        vectors[i].iov_len = n - skip
        skip = 0
        i += 1
        first += 1
    while True:
        if s.bits & B_SOCKET:
            memset(&msg, 0, sizeof(msg))
            msg.msg_iov = vectors
            msg.msg_iovlen = i
            r = c_sendmsg(s.fd, &msg, MSG_NOSIGNAL)
        else:
            r = c_writev(s.fd, vectors, i)
        if r >= 0:
            return r
        e = errno
        if e == EAGAIN:
            return -1
        if e != EINTR:
            raise failure(s, e)


cdef Py_ssize_t send_views(sock s, coro me, list views, Py_ssize_t total, Py_ssize_t done, int flags) except -1:
    """As the sender: all pieces but the first `done` bytes."""
    cdef Py_ssize_t first = 0, skip = done, r, n
    try:
        while done < total:
            _piece(views[first], &n)
            if skip >= n:
                skip -= n
                first += 1
                continue
            if selfish(me):
                pause_send(s, me)
            r = writev_try(s, views, first, skip)
            while r < 0:
                send_blocked(s, me, flags, False)
                r = writev_try(s, views, first, skip)
            done += r
            skip += r
    except BaseException as exc:
        _tell_sent(exc, done)
        raise
    return total


cdef Py_ssize_t sendto_try(sock s, const char *p, Py_ssize_t n, object address, int flags) except? -1:
    cdef sockaddr_storage sa
    cdef socklen_t length = _parse(s.domain, address, &sa)
    cdef Py_ssize_t r
    cdef int e
    while True:
        r = c_sendto(s.fd, p, n, flags | MSG_NOSIGNAL, <sockaddr *>&sa, length)
        if r >= 0:
            return r
        e = errno
        if e == EAGAIN:
            return -1
        if e != EINTR:
            raise _error(e)


cdef Py_ssize_t sendmsg_try(sock s, list views, list control, object address, int flags) except? -1:
    """One sendmsg(2).  -1 without an exception: it would block."""
    cdef sockaddr_storage sa
    cdef msghdr msg
    cdef cmsghdr *c
    cdef Py_ssize_t r, n, room = 0
    cdef const char *p
    cdef char *buffer = NULL
    cdef int i = 0, e
    memset(&msg, 0, sizeof(msg))
    if address is not None:
        msg.msg_namelen = _parse(s.domain, address, &sa)
        msg.msg_name = &sa
    for view in views:
        p = _piece(view, &n)
        vectors[i].iov_base = <void *>p
        vectors[i].iov_len = n
        i += 1
    msg.msg_iov = vectors
    msg.msg_iovlen = i
    for level, kind, data in control:
        room += CMSG_SPACE(PyBytes_GET_SIZE(data))
    if room:
        buffer = <char *>PyMem_Malloc(room)
        if buffer == NULL:
            raise MemoryError()
        memset(buffer, 0, room)
        msg.msg_control = buffer
        msg.msg_controllen = room
    try:
        c = CMSG_FIRSTHDR(&msg) if room else NULL
        for level, kind, data in control:
            n = PyBytes_GET_SIZE(data)
            if c == NULL:
                raise RuntimeError("no room for the ancillary data: the system's CMSG_SPACE() and CMSG_NXTHDR() "
                                   "disagree")
            c.cmsg_level = level
            c.cmsg_type = kind
            c.cmsg_len = CMSG_LEN(n)
            memcpy(CMSG_DATA(c), PyBytes_AS_STRING(data), n)
            c = CMSG_NXTHDR(&msg, c)
        while True:
            r = c_sendmsg(s.fd, &msg, flags | MSG_NOSIGNAL)
            if r >= 0:
                return r
            e = errno
            if e == EAGAIN:
                return -1
            if e != EINTR:
                raise failure(s, e)
    finally:
        PyMem_Free(buffer)


cdef int connect_try(sock s, object address) except? -1:
    """0, or the errno of an attempt that goes on or may be repeated."""
    cdef sockaddr_storage sa
    cdef socklen_t length = _parse(s.domain, address, &sa)
    cdef bytes wanted = PyBytes_FromStringAndSize(<char *>&sa, length)
    cdef int e = 0
    if s.begun and s.begun != wanted:
        end_attempt(s)
    if c_connect(s.fd, <sockaddr *>&sa, length) < 0:
        e = errno
        if e == ECONNABORTED:
            # Linux reports the end of an earlier attempt (whose error SO_ERROR gave us) once more before it
            # begins a new one
            e = 0 if c_connect(s.fd, <sockaddr *>&sa, length) == 0 else errno
    if e == EINPROGRESS or e == EINTR or e == EALREADY and s.begun:
        s.begun = wanted
        return e
    if e == 0 and s.begun == STANDS:
        raise _error(EISCONN)
    s.begun = STANDS if e == 0 and s.begun is not None else None
    if e == 0 or e == EAGAIN:
        return e
    raise _error(e)


cdef int end_attempt(sock s) except -1:
    """Give up the attempt that an interrupted connect() left under way.  The kernel goes on with it, and whatever
    address the next connect(2) has, tells how that one ended."""
    cdef sockaddr sa
    cdef int error
    cdef socklen_t size = sizeof(error)
    memset(&sa, 0, sizeof(sa))
    sa.sa_family = AF_UNSPEC
    # connect(2): this dissolves the association; not every system has it for TCP
    if c_connect(s.fd, &sa, sizeof(sa)) < 0:
        raise _error(EALREADY)
    s.begun = None
    c_getsockopt(s.fd, SOL_SOCKET, SO_ERROR, &error, &size)     # (that it was given up is no news)
    return 0


cdef int connect_one(sock s, coro me, object address) except -1:
    """As the sender: connect to a numeric address."""
    cdef FdPoller p
    cdef int e, error = 0
    cdef socklen_t size = sizeof(error)
    cdef double delay = QUEUE_PAUSE_FIRST
    # what the poller remembers of the time before (an idle socket hangs up, says epoll) is about no
    # connection
    s.st.flags &= ~<uint32_t>(FD_READ_READY | FD_WRITE_READY | FD_NO_SHORTCUT)
    while True:
        e = connect_try(s, address)
        if e == 0:
            return 0
        if e != EAGAIN or s.domain != AF_UNIX:
            break
        # connect(2): the queue of a UNIX listener is full; nothing was begun and no event will come
        _pause(delay)
        s.check()
        delay = min(delay * 2, <double>QUEUE_PAUSE_MOST)
    while not coro_poll_one(s.fd, POLLOUT):
        p = fd_poller()
        p.wait_write_fresh(s.st, s.fd)
        s.check()
    s.begun = None
    if c_getsockopt(s.fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0:
        raise _error(errno)
    if error:
        raise _error(error)
    s.begun = STANDS
    return 0


cdef class sock(_receiver):
    """sock(domain=2, stype=1, protocol=0, fd=-1)\n--\n\n\
    A descriptor whose calls block only the calling thread.

    ``sock(domain=AF.INET, stype=SOCK.STREAM, protocol=0, fd=-1)`` makes a socket; with ``fd`` it adopts an
    open descriptor of any kind (and sets O_NONBLOCK on it, which everybody sharing its open file description
    sees).

    Attributes: ``fd`` (-1 once closed), ``orig_fd``, ``domain``/``family``, ``stype``/``type``.

    All calls that may wait must be made by a thread: elsewhere they raise ``YieldFromMain`` or
    ``WrongThreadError``. They raise ``ClosedError`` on a closed object, ``ClosedError(closer)`` when it is
    closed while they wait, and the classes of ``coro.oserrors`` for what the kernel reports.  An object that
    is collected closes its descriptor.
    """
    # Invariants:
    #
    # 1. `fd >= 0` means that the descriptor is open and ours to close; it becomes -1 before close(2).
    # 2. After every call that may switch, `fd` is looked at again before it is used.
    # 3. `reader`/`sender` is set by a thread right before it waits and taken back by the same thread.
    # 4. Whoever stops being `sender` hands over to the head of the queue in the same step: it is None only while the
    #    queue is empty.
    # 5. `back` is read before the kernel by everything that reads.

    # -- sending

    cdef Py_ssize_t c_send(self, const char *p, Py_ssize_t n, int flags) except -1:
        cdef Py_ssize_t done = send_first(self, p, n, flags)
        while done < n:
            park(self.sender)
            done = send_rest(self, self.sender, p, n, done, flags, SEND_RESUMED)
        return n

    def send(self, data, int flags=0):
        """Send all of ``data``, a bytes-like object. Returns its length. ``flags`` are those of send(2).

        Several threads may send: the data of each call goes out in one piece, in the order of the calls. If an
        exception ends the call, ``exc.bytes_sent`` is how many bytes were sent. With MSG_DONTWAIT the call raises
        ``oserrors.EAGAIN`` instead of waiting.
        """
        cdef Py_ssize_t done
        if type(data) is not bytes:
            return send_object(self, data, flags)
        # c_send(), but without a frame of its own
        done = send_first(self, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), flags)
        while done < PyBytes_GET_SIZE(data):
            park(self.sender)
            done = send_rest(self, self.sender, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), done, flags,
                                  SEND_RESUMED)
        return done

    def sendall(self, data, int flags=0):
        """The same as send(), with its parameters and errors."""
        if type(data) is bytes:
            return self.c_send(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), flags)
        return send_object(self, data, flags)

    def write(self, data):
        """The same as send() without ``flags``."""
        if type(data) is bytes:
            return self.c_send(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), 0)
        return send_object(self, data, 0)

    cdef Py_ssize_t c_writev(self, object pieces) except -1:
        cdef coro me = running_thread()
        cdef Py_ssize_t total
        cdef list views = _views(pieces, &total)
        cdef bytes joined
        self.check()
        if total <= JOIN:
            joined = b"".join(views)
            return self.c_send(joined, total, 0)
        try:
            begin_send(self, me)
            try:
                return send_views(self, me, views, total, 0, 0)
            finally:
                end_send(self)
        except BaseException as exc:
            if not hasattr(exc, "bytes_sent"):
                _tell_sent(exc, 0)
            raise

    def writev(self, data_list):
        """Send the pieces in ``data_list``, an iterable of bytes-like objects, as if they were one. Returns their total
        size.

        Errors and ``exc.bytes_sent`` as in send().
        """
        return self.c_writev(data_list)

    cdef Py_ssize_t c_sendto(self, object data, object address, int flags) except -1:
        cdef coro me = running_thread()
        cdef Py_ssize_t r, n
        cdef const char *p
        cdef object view = data if type(data) is bytes else memoryview(data).cast("B")
        p = _piece(view, &n)
        self.check()
        begin_send(self, me)
        try:
            if selfish(me):
                pause_send(self, me)
            while True:
                r = sendto_try(self, p, n, address, flags)
                if r >= 0:
                    return r
                send_blocked(self, me, flags, True)
        finally:
            end_send(self)

    def sendto(self, data, address, int flags=0):
        """Send ``data`` as one datagram to ``address``, which is numeric. Returns the length of the data. ``flags`` are
        those of sendto(2). Raises ``ValueError`` for a name."""
        return self.c_sendto(data, address, flags)

    def sendmsg(self, buffers, ancdata=(), int flags=0, address=None):
        """Send the pieces in ``buffers``, and ``ancdata``, the ancillary data ``[(level, type, data), ...]``. Returns
        the number of bytes.

        On a stream everything is sent, the ancillary data with the first byte. ``flags`` are those of sendmsg(2).
        ``address`` is where a datagram goes; it is numeric. Errors and ``exc.bytes_sent`` as in send().
        """
        cdef coro me = running_thread()
        cdef Py_ssize_t total, r
        cdef list views = _views(buffers, &total)
        cdef list control = []
        for level, kind, data in ancdata:
            control.append((_index(level), _index(kind), bytes(memoryview(data))))
        if len(views) > IOVECS:
            views = [b"".join(views)]
        self.check()
        try:
            begin_send(self, me)
            try:
                if not flags & MSG_DONTWAIT and selfish(me):
                    pause_send(self, me)
                while True:
                    r = sendmsg_try(self, views, control, address, flags)
                    if r >= 0:
                        break
                    send_blocked(self, me, flags, address is not None)
                if r < total and self.bits & B_STREAM:
                    r = send_views(self, me, views, total, r, flags)
                return r
            finally:
                end_send(self)
        except BaseException as exc:
            if not hasattr(exc, "bytes_sent"):
                _tell_sent(exc, 0)
            raise

    cdef int c_sendmmsg(self, coro_mmsghdr *headers, unsigned int n, int flags) except -1:
        cdef coro me = running_thread()
        cdef int r
        cdef unsigned int done = 0
        self.check()
        begin_send(self, me)
        try:
            if not flags & MSG_DONTWAIT and selfish(me):
                pause_send(self, me)
            while done < n:
                r = coro_sendmmsg(self.fd, headers + done, n - done, flags | MSG_NOSIGNAL)
                if r > 0:
                    done += r
                    continue
                if r < 0 and errno == EINTR:
                    continue
                if r < 0 and errno == EAGAIN:
                    if done and flags & MSG_DONTWAIT:
                        break
                    send_blocked(self, me, flags, headers[done].msg_hdr.msg_name != NULL)
                elif done:
                    break
                else:
                    raise failure(self, errno)
            return done
        finally:
            end_send(self)

    def sendmmsg(self, messages, int flags=0):
        """Send datagrams, the pairs ``(data, address)`` in ``messages``. Returns how many went out.

        It is sendto() for many datagrams, with one system call for up to 64 where the system has sendmmsg(2), and so
        for servers under load. Each address is numeric, or None on a connected socket.  ``flags`` are those of
        sendto(2).

        If the system refuses a datagram, the call ends there and returns how many it has taken.  If that was the first,
        it raises the error, so ``messages[sent:]`` shows the reason.  With MSG_DONTWAIT the same holds for a full
        socket. Raises ``ValueError`` for a name, before anything is sent.
        """
        cdef coro me = running_thread()
        cdef list data = [], addresses = []
        cdef Py_ssize_t n, size, at = 0, i, r
        cdef sockaddr_storage *where
        cdef coro_mmsghdr *headers
        cdef iovec *pieces
        cdef char *memory
        for piece, address in messages:
            data.append(piece if type(piece) is bytes else memoryview(piece).cast("B"))
            addresses.append(address)
        n = len(data)
        self.check()
        if not n:
            return 0
        size = sizeof(coro_mmsghdr) + sizeof(iovec) + sizeof(sockaddr_storage)
        if n > 0x7fffffff // size:
            raise ValueError(f"expected at most {0x7fffffff // size} datagrams, not {n}: send them in several calls")
        memory = <char *>PyMem_Malloc(n * size)
        if memory == NULL:
            raise MemoryError()
        try:
            memset(memory, 0, n * size)
            headers = <coro_mmsghdr *>memory
            where = <sockaddr_storage *>(memory + n * sizeof(coro_mmsghdr))
            pieces = <iovec *>(memory + n * (sizeof(coro_mmsghdr) + sizeof(sockaddr_storage)))
            for i in range(n):
                if addresses[i] is not None:
                    headers[i].msg_hdr.msg_namelen = _parse(self.domain, addresses[i], &where[i])
                    headers[i].msg_hdr.msg_name = &where[i]
                pieces[i].iov_base = <void *>_piece(data[i], &size)
                pieces[i].iov_len = size
                headers[i].msg_hdr.msg_iov = &pieces[i]
                headers[i].msg_hdr.msg_iovlen = 1
            while at < n:
                r = min(n - at, <Py_ssize_t>IOVECS)
                try:
                    size = self.c_sendmmsg(headers + at, r, flags)
                except OSError:
                    if at:
                        break
                    raise
                at += size
                if size < r:
                    break
            return at
        finally:
            PyMem_Free(memory)

    def send_fds(self, data, fds, int flags=0, address=None):
        """Send ``data`` (at least one byte) over a UNIX socket, together with open descriptors. Returns the length of
        ``data``.

        ``fds`` has numbers, or objects with ``fileno()``. The kernel duplicates the descriptors, so you may close yours
        at any time. ``flags``, ``address`` and errors as in sendmsg().
        """
        numbers = _array("i", [_number(f) for f in fds])
        return self.sendmsg([data], [(SOL_SOCKET, SCM_RIGHTS, numbers)], flags, address)

    def sendfile(self, file, offset=0, count=None):
        """Send ``count`` bytes (None: all) of a file from ``offset`` on; returns the number of bytes sent.

        ``file`` is a descriptor, an object with ``fileno()``, or one that only has ``read()``.  For regular
        files it uses sendfile(2), and reading them from the disk blocks the process.  For everything else it reads and
        writes, from the present position if the file cannot seek.  Afterwards the position of a file object is after
        what was sent.  Raises ``ValueError`` for negative numbers; ``exc.bytes_sent`` as in send().
        """
        return _sendfile(self, file, offset, count)

    def wait_for_write(self):
        """Wait until the descriptor takes data or its peer has gone.

        With kqueue, returns the number of bytes there is room for.  Otherwise returns 0, which means "ready, amount
        unknown".

        If other threads send, it first waits for its turn in their queue.
        """
        cdef coro me = running_thread()
        cdef FdPoller p
        cdef unsigned int fflags
        self.check()
        begin_send(self, me)
        try:
            p = fd_poller()
            p.wait_write_fresh(self.st, self.fd)
            self.check()
        finally:
            end_send(self)
        return p.details(self.fd, FD_WRITE_READY, &fflags)

    # -- connecting

    cdef int c_connect(self, object address, bint resolve) except -1:
        cdef coro me = running_thread()
        cdef object host, error = None
        cdef list hosts
        self.check()
        if self.domain == AF_INET or self.domain == AF_INET6:
            _check_tuple(address, self.domain)
            host = _host(address[0])
            _port(address[1])
            if resolve and not _is_literal(self.domain, host):
                from coro.resolver import addresses
                hosts = addresses(host, self.domain)
                self.check()
                begin_send(self, me)
                try:
                    for host in hosts:
                        try:
                            connect_one(self, me, (host, *address[1:]))
                            return 0
                        except OSError as e:
                            error = e
                finally:
                    end_send(self)
                raise error
        begin_send(self, me)
        try:
            connect_one(self, me, address)
        finally:
            end_send(self)
        return 0

    def connect(self, address):
        """Connect; returns when the connection is established.

        A host name is resolved by ``coro.get_resolver()``, and its addresses are tried in order; the last
        one's error is raised.  If the queue of a UNIX listener is full, it is tried again until there is room.

        An interrupted attempt continues in the kernel.  A connect() to the same address waits for it.  A connect() to
        another address first gives the attempt up, where the system can do that (Linux).  It raises
        ``oserrors.EALREADY`` elsewhere, or when others began the attempt.

        Raises ``coro.NameError`` for an unknown name, ``TypeError``/``ValueError``/``OverflowError`` for a
        malformed address.
        """
        self.c_connect(address, True)

    def connect_addr(self, address, resolve=False):
        """connect() to a numeric address.  ``ValueError`` for a name unless ``resolve`` is true."""
        self.c_connect(address, bool(resolve))

    # -- the rest of the socket calls

    def bind(self, address):
        """Give the socket its own address.  SO_REUSEADDR is set first, unless a socket for datagrams asks for any free
        port: with that option the kernel may give two of them the same port, and one the datagrams of the other.
        ``ValueError`` for a name."""
        cdef sockaddr_storage sa
        cdef socklen_t length
        self.check()
        length = _parse(self.domain, address, &sa)
        if self.bits & B_STREAM or (<sockaddr_in *>&sa).sin_family == AF_UNIX or (<sockaddr_in *>&sa).sin_port != 0:
            self.set_reuse_addr()       # the port is at the same place for both families
        if bind(self.fd, <sockaddr *>&sa, length) < 0:
            raise _error(errno)

    def listen(self, int backlog=4096):
        """Let connections queue, at most ``backlog`` of them.  The kernel may lower that number to its own limit."""
        self.check()
        if listen(self.fd, backlog) < 0:
            raise _error(errno)

    def shutdown(self, int how):
        """End receiving (``how`` is SHUT.RD), sending (SHUT.WR) or both (SHUT.RDWR) without closing."""
        self.check()
        if c_shutdown(self.fd, how) < 0:
            raise _error(errno)
        # receiving now means end of stream at once, which is nothing to wait for
        self.bits &= ~<unsigned int>B_DRAINED
        self.st.flags |= FD_NO_SHORTCUT

    def getpeername(self):
        """The peer's address.  Raises ``oserrors.EBADF`` on a closed sock, ``ENOTCONN`` without a peer."""
        cdef sockaddr_storage sa
        cdef socklen_t length = sizeof(sa)
        if c_getpeername(self.fd, <sockaddr *>&sa, &length) < 0:
            raise _error(errno)
        return _format(&sa, length)

    def getsockname(self):
        """The socket's own address.  Raises ``oserrors.EBADF`` on a closed sock."""
        cdef sockaddr_storage sa
        cdef socklen_t length = sizeof(sa)
        if c_getsockname(self.fd, <sockaddr *>&sa, &length) < 0:
            raise _error(errno)
        return _format(&sa, length)

    def getsockopt(self, int level, int optname, int buflen=0):
        """The value of the option ``optname`` of ``level``, as in getsockopt(2): an int, or, if ``buflen`` (1 to 1024)
        is given, at most so many bytes. Raises ``ValueError`` for another ``buflen``."""
        cdef int value = 0
        cdef socklen_t size = buflen if buflen else sizeof(value)
        self.check()
        if not 0 <= buflen <= 1024:
            raise ValueError(f"buflen is from 0 to 1024 (0 for an int), not {buflen}")
        # The static buffer, even for an int: SO_GET_FILTER counts in instructions of 8 bytes and writes that many.
        # It is zeroed since TCP_ZEROCOPY_RECEIVE and others read from it first, addresses among others.
        memset(scratch, 0, size)
        if c_getsockopt(self.fd, level, optname, scratch, &size) < 0:
            raise _error(errno)
        if buflen == 0:
            memcpy(&value, scratch, sizeof(value))
            return value
        return PyBytes_FromStringAndSize(scratch, min(<int>size, buflen))

    def setsockopt(self, int level, int optname, value):
        """Set the option ``optname`` of ``level``, as in setsockopt(2), to ``value``, an int or a bytes-like object."""
        cdef int number
        cdef const char *p
        cdef Py_ssize_t n
        self.check()
        if isinstance(value, (bytes, bytearray, memoryview)):
            value = bytes(value)
            p = PyBytes_AS_STRING(value)
            n = PyBytes_GET_SIZE(value)
            if n > 0x7fffffff:
                raise ValueError(f"the value of an option has at most {0x7fffffff} bytes, not {n}")
        else:
            number = value
            p = <const char *>&number
            n = sizeof(number)
        if level == SOL_SOCKET and optname == SO_LINGER:
            self.bits |= B_LINGERS
        if c_setsockopt(self.fd, level, optname, p, n) < 0:
            raise _error(errno)
        if level == IPPROTO_TCP and optname == TCP_ULP:
            self.bits &= ~<unsigned int>(B_TCP | B_DRAINED)     # kernel TLS: reads end at its records

    def set_reuse_addr(self):
        """Set SO_REUSEADDR; errors are ignored."""
        cdef int one = 1
        if self.fd >= 0:
            c_setsockopt(self.fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one))
