# cython: language_level=3, binding=False, embedsignature=True, embedsignature.format=clinic
"""Sockets (and pipes, ttys, any descriptor) that block the calling thread and nothing else.

Every data call tries its system call first.  When the kernel says "would block" the thread waits in the
poller and tries again.  Four short cuts keep system calls down: the poller remembers readiness, so that
waiting costs no `epoll_ctl`; a short read of a TCP socket proves that nothing is left, so the next call waits
at once instead of provoking EAGAIN (not with urgent data, peeking, or after the peer hung up, where the proof
fails); where that is the first wait, and other threads are ready to run, it lingers for their turn before it
registers, which a short connection then never does; and small reads go through one static buffer, which is
safe because nobody else runs between the read and the copy.  A large read that follows one that got all it
asked for goes straight into its result.  The GIL is kept: the calls never block.

One extension of four files, longer than most here: a Cython class cannot be spread over modules, and its halves share
the fields.

The receiving side admits one thread at a time (two would tear each other's messages), the sending side keeps
a FIFO queue, so that a `send` is never cut in two by another thread's.  A thread is entered as reader or
sender only when it has to wait: an undisturbed call costs two comparisons for this.

Cost: an object of about 200 bytes, no Python object per call but the result.  Receiving is in
_net/sock_receive.pxi, sending and connecting in _net/sock_send.pxi; addresses are in _net/address.pxi, constants in
_net/constants.py, file objects in _net/sockfile.py.

Rejected: `poll(2)` before each call (a system call more), a buffer per socket (memory for idle connections),
releasing the GIL around calls that do not block (other OS threads would take it away for 5 ms at a time).
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport (EAGAIN, EALREADY, ECONNABORTED, ECONNRESET, EINPROGRESS, EINTR, EINVAL, EISCONN, EMFILE,
                         ENFILE, ENOBUFS, ENOMEM, ENOSYS, ENOTCONN, ENOTSOCK, EOPNOTSUPP, EPIPE, EPROTO, ESPIPE, errno)
from libc.stdint cimport uint32_t
from libc.string cimport memcpy, memset

from coro._poll.descriptors cimport (FD_LINGERS, FD_NO_SHORTCUT, FD_OWNED, FD_READ_READY, FD_REGISTERED, FD_UNPOLLABLE,
                                     FD_WRITE_READY, FdPoller, begin_wait, end_wait, fd_poller, fd_state, stand)
from coro._runtime.abi cimport require_abi
from coro._runtime.likely cimport likely, unlikely
from coro._net.posix cimport *
from coro._runtime.scheduler cimport (THREAD_LOST, WAIT_OBJECT, WAIT_READ, WAIT_SLICE, begin_io, begin_slice, coro,
                                      end_slice, give_way, is_foreign, others_run, park, running_borrowed,
                                      running_thread, selfish, suspend, wake, wake_error, whoever)

import operator
import os
import sys
import time
from array import array as _array

from coro import oserrors
from coro._net.constants import AF, MSG, PF, SHUT, SO, SOCK, SOL
from coro._runtime.scheduler import _post_internal, sleep_relative
from coro.exceptions import ClosedError, SimultaneousError, WrongThreadError, end_of_stream

require_abi()

__all__ = [
    "AF", "MSG", "PF", "SHUT", "SO", "SOCK", "SOL", "coro_fd", "fd_sock", "file_sock", "get_live_sockets",
    "has_ipv6", "make_socket", "sock", "socketpair", "tcp6_sock", "tcp_sock", "udp6_sock", "udp_sock",
    "unix_sock",
]


cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **, Py_ssize_t) except -1
    PyObject *PyBytes_New "PyBytes_FromStringAndSize"(const char *, Py_ssize_t) except NULL
    Py_buffer *PyMemoryView_GET_BUFFER(object)
    str PyUnicode_FromString(const char *)
    str PyUnicode_DecodeFSDefaultAndSize(const char *, Py_ssize_t)

cdef extern from "string.h":
    size_t strnlen(const char *, size_t)

cdef enum:
    B_LIVE = 1              # construction succeeded; counted
    B_SOCKET = 2            # the descriptor is a socket
    B_TCP = 4               # a TCP stream: a short read proves that the receive buffer is empty
    B_OWNED = 8             # we made the descriptor
    B_DRAINED = 16          # the last read was such a short one, or c_expect() says that there is nothing
    B_FILE = 32             # `keep` owns the descriptor
    B_STREAM = 64
    B_FULL = 128            # the last recv() got all it asked for, and that was DIRECT bytes or more
    B_RESET = 256           # a call has failed because the peer had gone
    B_LINGERS = 512         # SO_LINGER has been set, or on the listening socket from which this one comes

    SCRATCH = 65536         # bytes of the static buffer for reads
    DIRECT = 16384          # from here on copying out of that buffer costs more than a result that must be cut
    BIG = 1048576           # most bytes asked of a stream at once beyond that
    IOVECS = 64             # pieces per gathering call
    JOIN = 16384            # pieces smaller than this in total are joined: a copy is cheaper than the vectors

    MUST_WAIT = -2          # in place of a number of bytes: park now
    SEND_TRY = 0            # how send_rest() begins: with an attempt, after one that would have blocked, after a wait
    SEND_BLOCKED = 1
    SEND_RESUMED = 2
    SEND_PAUSE = 3          # by letting others run

# In `begun`: the attempt has succeeded, and we know.  The kernel tells of it once more, whatever address the next
# connect(2) has.
cdef bytes STANDS = b""

cdef char scratch[SCRATCH]
cdef iovec vectors[IOVECS]
cdef coro_mmsghdr batch[IOVECS]         # for recvmmsg(), with `vectors`
cdef sockaddr_storage names[IOVECS]
cdef long live = 0
cdef void *first_live = NULL    # _descriptor; the list that a forked child goes through

cdef object _index = operator.index
cdef object _fsencode = os.fsencode
cdef bint _LINUX = sys.platform.startswith("linux")

# pauses while the system refuses (seconds): no descriptors left; full queue of a UNIX peer, which sends no
# event
FULL_PAUSE = 0.05
FULL_SAY_EVERY = 60.0
QUEUE_PAUSE_FIRST = 0.001
QUEUE_PAUSE_MOST = 0.05

include "address.pxi"


cdef object _error(int e):
    return oserrors.make(e)


cdef int _pause(double seconds) except -1:
    sleep_relative(seconds)
    return 0


cdef int _say(str text) except -1:
    # one line on coro's captured stderr; a report must never break what it reports on
    try:
        from coro._runtime.output import print_stderr
        print_stderr(text)
    except Exception:
        pass
    return 0


cdef inline const char *_piece(object v, Py_ssize_t *n):
    # the bytes of an element of _views()
    if type(v) is bytes:
        n[0] = PyBytes_GET_SIZE(v)
        return PyBytes_AS_STRING(v)
    n[0] = PyMemoryView_GET_BUFFER(v).len
    return <const char *>PyMemoryView_GET_BUFFER(v).buf


cdef list _views(object pieces, Py_ssize_t *total):
    """A list of bytes and contiguous memoryviews: pins the memory without a Py_buffer on the stack."""
    cdef Py_ssize_t n
    cdef list out = []
    if isinstance(pieces, (bytes, bytearray, memoryview, str)):
        raise TypeError(f"a sequence of bytes-like objects is wanted, not one {type(pieces).__name__}: "
                        "put it in a list")
    total[0] = 0
    for p in pieces:
        if type(p) is not bytes:
            if isinstance(p, str):
                raise TypeError(f"the pieces must be bytes-like objects, not str: encode {p[:40]!r} first")
            p = memoryview(p)
            if not p.c_contiguous:
                raise BufferError("the pieces must be contiguous buffers: make a bytes copy of this one")
        _piece(p, &n)
        total[0] += n
        out.append(p)
    return out


cdef Py_ssize_t _room(Py_ssize_t nbytes, Py_ssize_t size) except -1:
    if nbytes < 0:
        raise ValueError(f"the number of bytes to receive must not be negative, not {nbytes}")
    if nbytes > size:
        raise ValueError(f"cannot receive {nbytes} bytes into a buffer of {size}: "
                         "ask for less or pass a larger one")
    return nbytes or size


# With MSG_TRUNC the kernel says how long a datagram was, not how much of it there is, and of a TCP stream how much it
# threw away (recv(2), tcp(7)).  The standard library makes the result that long and leaves whatever memory held before
# in it; here it is zeros.

cdef object _blank(Py_ssize_t n, int flags):
    """Bytes to receive into; never the static buffer with MSG_TRUNC, which has other connections' data."""
    if flags & MSG_TRUNC:
        return bytes(n)     # zeros of calloc(3), which touches no memory for them
    return PyBytes_FromStringAndSize(NULL, n)


cdef object _as_told(object data, Py_ssize_t n, Py_ssize_t r, int flags):
    """What came of _blank(n, flags) when the kernel said `r`."""
    if r < n:
        return data[:r]
    if r > n and flags & MSG_TRUNC:
        return data + bytes(r - n)
    return data


cdef Py_ssize_t _hold(object buffer, Py_buffer *view, Py_ssize_t nbytes) except -1:
    """Fill in `view`, which is to be released; returns how many bytes to receive into it."""
    cdef bint fits = False
    PyObject_GetBuffer(buffer, view, PyBUF_WRITABLE)
    try:
        nbytes = _room(nbytes, view.len)
        fits = True
    finally:
        if not fits:
            PyBuffer_Release(view)
    return nbytes


cdef int _tell_sent(object exc, Py_ssize_t n) except -1:
    try:
        exc.bytes_sent = n
    except Exception:
        pass                # an exception class without a dictionary
    return 0


cdef list _numbers(list ancillary):
    """The descriptors in ancillary data."""
    cdef list out = []
    for level, kind, data in ancillary:
        if level == SOL_SOCKET and kind == SCM_RIGHTS:
            numbers = _array("i")
            numbers.frombytes(data[:len(data) - len(data) % sizeof(int)])
            out.extend(numbers)
    return out


cdef int _close_passed(msghdr *msg, char *control) noexcept:
    cdef cmsghdr *c = CMSG_FIRSTHDR(msg) if control != NULL else NULL
    cdef int *number
    while c != NULL:
        if c.cmsg_level == SOL_SOCKET and c.cmsg_type == SCM_RIGHTS:
            number = <int *>CMSG_DATA(c)
            while <char *>(number + 1) <= control + msg.msg_controllen and \
                    <char *>(number + 1) <= <char *>c + c.cmsg_len:
                c_close(number[0])
                number += 1
        c = CMSG_NXTHDR(msg, c)
    return 0


cdef class _sender:
    pass


cdef int take_over(_descriptor s, int fd, int domain, int stype, unsigned int bits) except -1:
    """Take the descriptor over.  On failure the object stays without one."""
    global live, first_live
    cdef FdPoller p
    if is_foreign():
        raise WrongThreadError("socks are made in the OS thread of the running loop; "
                               "from another one use coro.post(function, *args)")
    p = fd_poller()
    s.st = p.state_of(fd)
    if bits & B_OWNED:
        p.own(fd)
    else:
        # whoever still waits for this number waits for something that is gone
        p.disown(fd, whoever())
    s.fd = s.orig_fd = fd
    s.domain = domain
    s.stype = stype
    s.bits = bits | B_LIVE
    live += 1
    s.next_live = first_live
    if first_live != NULL:
        (<_descriptor>first_live).prev_live = <void *>s
    first_live = <void *>s
    return 0


cdef object failure(_descriptor s, int e):
    """The exception for an error of a data call; a peer that has gone stays known."""
    if e == ECONNRESET or e == EPIPE:
        s.bits |= B_RESET
    return _error(e)


cdef int refuse_closed(_descriptor s) except -1:
    raise ClosedError(what=f"this {type(s).__name__} (descriptor {s.orig_fd} before)", by=s.closed_by)


cdef int forget_lingering(int fd) noexcept:
    """Nobody can wait here for what has not been sent: have the kernel send it in the background. What is to be reset
    is reset."""
    cdef int[2] option      # struct linger
    cdef socklen_t size = sizeof(option)
    if c_getsockopt(fd, SOL_SOCKET, SO_LINGER, option, &size) == 0 and option[0] and option[1] > 0:
        option[0] = option[1] = 0
        c_setsockopt(fd, SOL_SOCKET, SO_LINGER, option, size)
    return 0


cdef int let_go(_descriptor s, object closer) except -1:
    """Everything of close() but close(2): wake whoever waits, leave the poller."""
    cdef int fd = s.fd
    cdef _sender w = s.first, after
    s.fd = -1
    if type(closer) is coro:
        s.closed_by = (<coro>closer).number
    s.back = None
    s.first = s.last = None
    while w is not None:
        after = w.next
        w.next = w.prev = None
        w.queued = False
        wake_error(w.thread, ClosedError(closer, what=f"descriptor {fd}"))
        w = after
    if fd >= 0:
        fd_poller().disown(fd, closer)
    return 0


cdef class _descriptor:
    """What a sock is before it can do anything: its descriptor, from taking it over to closing it."""

    def __cinit__(self):
        self.fd = -1
        self.orig_fd = -1
        self.full_said = -1e9

    def __init__(self, domain=AF_INET, stype=SOCK_STREAM, protocol=0, fd=-1):
        cdef int d = _index(domain), t = _index(stype), p = _index(protocol), number
        cdef unsigned int bits
        if self.bits & B_LIVE:
            raise RuntimeError("a sock cannot be initialised twice: make a new one")
        number = _index(fd)
        if number == -1:
            number = coro_socket(d, t, p)
            if number < 0:
                raise _error(errno)
            bits = B_SOCKET | B_OWNED
            if t == SOCK_STREAM:
                bits |= B_STREAM
                if (d == AF_INET or d == AF_INET6) and (p == 0 or p == IPPROTO_TCP):
                    bits |= B_TCP
            try:
                take_over(self, number, d, t, bits)
            except BaseException:
                c_close(number)
                raise
            return
        if number < 0:
            raise ValueError(f"a descriptor is an int >= 0 (or -1 to make a new socket), not {number}")
        if coro_set_flags(number, 0) < 0:
            raise _error(errno)
        take_over(self, number, d, t, _kind_of(number))

    def __dealloc__(self):
        global live, first_live
        cdef int fd = self.fd
        if self.bits & B_LIVE:
            live -= 1
            if self.next_live != NULL:
                (<_descriptor>self.next_live).prev_live = self.prev_live
            if self.prev_live != NULL:
                (<_descriptor>self.prev_live).next_live = self.next_live
            else:
                first_live = self.next_live
        if fd < 0:
            return
        self.fd = -1
        if self.bits & B_LINGERS:
            forget_lingering(fd)
        try:
            if is_foreign():
                # another OS thread happened to collect: the poller's records are not its to change
                if _post_internal(_close_late, fd, (self.bits & B_FILE) == 0, self.keep):
                    return
        except BaseException:
            pass                # the interpreter is being taken down: nobody uses the records any more
        try:
            if self.st.flags or self.st.reader != NULL or self.st.writer != NULL:
                fd_poller().disown(fd, None)
        except BaseException:
            pass
        if not self.bits & B_FILE:
            c_close(fd)

    def __repr__(self):
        return "<%s fd=%d/%d domain=%d type=%d at 0x%x>" % (
            type(self).__name__, self.fd, self.orig_fd, self.domain, self.stype, <Py_ssize_t><void *>self)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.c_close()

    def __reduce__(self):
        raise TypeError("a sock cannot be pickled or copied: dup() makes a second one on the same socket")

    @property
    def family(self):
        """The same as ``domain``."""
        return self.domain

    @property
    def type(self):
        """The same as ``stype``."""
        return self.stype

    @property
    def closed(self):
        """True after the descriptor was closed or detached."""
        return self.fd < 0

    @property
    def _peer_reset(self):
        """For servers: whether a call has failed because the peer had reset or closed the connection."""
        return (self.bits & B_RESET) != 0

    # -- the ends of a life

    cdef int check(self) except -1:
        """ClosedError unless the descriptor is usable."""
        if self.fd < 0:
            refuse_closed(self)
        if self.bits & B_FILE and self.keep is not None and getattr(self.keep, "closed", False):
            # the file object closed the number behind our back; it may be somebody else's by now
            let_go(self, None)
            refuse_closed(self)
        return 0

    cdef int c_close(self) except -1:
        cdef int fd = self.fd, e
        cdef object keep
        if fd < 0:
            return 0
        if is_foreign():
            raise WrongThreadError("socks are closed in the OS thread of the running loop; "
                                   "from another one use coro.post(s.close)")
        try:
            let_go(self, whoever())
        finally:
            keep = self.keep
            self.keep = None
            if self.bits & B_LINGERS:
                from coro._net import lingering
                lingering.close(fd)
            elif not self.bits & B_FILE:
                e = errno if c_close(fd) < 0 else 0
                # the number is free again whatever close(2) says (close(2), "Dealing with error returns")
                if e and e != EINTR and e != EINPROGRESS and e != ECONNRESET and e != ENOTCONN:
                    raise _error(e)
        if keep is not None:
            keep.close()
        return 0

    def close(self):
        """Close the descriptor. Does nothing when it is closed already. Waits only if SO_LINGER is set with a time, for
        what has not been sent: in a worker OS thread, so that other threads run.

        Threads waiting for it get ``ClosedError(closer)``.  The object forgets the descriptor whatever
        close(2) reports.
        """
        self.c_close()

    def detach(self):
        """Give up the descriptor without closing it: returns its number, and the object counts as closed.

        Threads waiting for it get ``ClosedError``.  The descriptor stays non-blocking.

        Raises ``ClosedError``, and ``ValueError`` for a file_sock and while bytes are left that an interrupted
        recv_exact() or readv() put back: the new owner of the descriptor would never see them.  Receive them first.
        """
        cdef int fd
        self.check()
        if self.bits & B_FILE:
            raise ValueError("a file_sock cannot be detached: its file object owns the descriptor")
        if self.back is not None:
            left = len(self.back) - self.back_at
            raise ValueError(f"a sock with bytes that an interrupted call put back cannot be detached: receive them "
                             f"first, with recv({left})")
        if is_foreign():
            raise WrongThreadError("socks are detached in the OS thread of the running loop: use coro.post")
        fd = self.fd
        let_go(self, whoever())
        fd_poller().released(fd, self.st)
        return fd

    def dup(self):
        """A second sock on the same socket, with a descriptor of its own (close-on-exec).

        Bytes that an interrupted recv_exact() or readv() put back stay with this sock; the other begins after them.
        """
        cdef int fd
        cdef sock s
        self.check()
        fd = c_fcntl(self.fd, F_DUPFD_CLOEXEC, <int>0)
        if fd < 0:
            raise _error(errno)
        return _adopt(fd, self.domain, self.stype, (self.bits & (B_SOCKET | B_TCP | B_STREAM)) | B_OWNED)

    def _give_kept(self, _descriptor heir):
        """Hand the bytes that an interrupted call put back to a dup() that replaces this sock as the reader."""
        if self.back is not None:
            heir.back = self.back
            heir.back_at = self.back_at
            self.back = None
            self.back_at = 0

    def fileno(self):
        """The descriptor's number, -1 when closed."""
        return self.fd

    def get_fileno(self):
        """Deprecated alias of fileno()."""
        return self.fd

    def makefile(self, mode="r", buffering=None, *, encoding=None, errors=None, newline=None):
        """A file object over a duplicate of the descriptor (closing it does not close the sock).

        A file for reading begins with the bytes that an interrupted recv_exact() or readv() put back, if there are any.
        The sock no longer has them.

        The parameters are those of ``socket.makefile``: ``mode`` of the letters r, w, b; ``buffering`` -1 or
        None for the default, 0 for none (binary only), else a size in bytes.  Raises ``ValueError`` for a
        mode of other letters.
        """
        from coro._net.sockfile import makefile
        self.check()
        return makefile(self, mode, buffering, encoding=encoding, errors=errors, newline=newline)


include "sock_receive.pxi"
include "sock_send.pxi"


cdef class fd_sock(sock):
    """fd_sock(fd)\n--\n\n\
    ``fd_sock(fd)``: a sock on an open descriptor of any kind.  The sock owns the descriptor and closes it."""

    def __init__(self, fd):
        cdef int domain = AF_UNSPEC, stype = 0, number = _number(fd)
        cdef socklen_t size = sizeof(int)
        if number < 0:
            raise ValueError(f"a descriptor is an int >= 0, not {number}")
        if c_getsockopt(number, SOL_SOCKET, SO_TYPE, &stype, &size) == 0:
            size = sizeof(int)
            c_getsockopt(number, SOL_SOCKET, SO_DOMAIN, &domain, &size)
        sock.__init__(self, domain, stype, 0, number)


cdef class file_sock(fd_sock):
    """file_sock(fileobj)\n--\n\n\
    ``file_sock(fileobj)``: a sock on the descriptor of an object with ``fileno()``, which is kept alive.

    The object still owns the descriptor: close() closes the object, and if other code closes the object, the sock is
    closed, too.
    """

    def __init__(self, fileobj):
        if not callable(getattr(fileobj, "fileno", None)):
            raise TypeError(f"expected an object with fileno(), not {type(fileobj).__name__}: {fileobj!r}; "
                            "a descriptor number goes to fd_sock()")
        fd_sock.__init__(self, fileobj.fileno())
        self.keep = fileobj
        self.bits |= B_FILE


coro_fd = file_sock


cdef int _number(object file) except? -1:
    # a descriptor number, or the object that has one
    if hasattr(file, "fileno"):
        file = file.fileno()
    try:
        return _index(file)
    except TypeError:
        raise TypeError(f"a descriptor is an int or an object with fileno(), not {type(file).__name__}: "
                        f"{file!r}") from None


cdef unsigned int _kind_of(int fd) noexcept:
    """The B_* bits of a foreign descriptor."""
    cdef int domain = -1, kind = 0, protocol = -1
    cdef socklen_t size = sizeof(int)
    if c_getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &size) < 0:
        return 0
    if kind != SOCK_STREAM:
        return B_SOCKET
    size = sizeof(int)
    c_getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size)
    size = sizeof(int)
    c_getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size)
    if (domain == AF_INET or domain == AF_INET6) and protocol == IPPROTO_TCP:
        return B_SOCKET | B_STREAM | B_TCP
    return B_SOCKET | B_STREAM


cdef sock _adopt(int fd, int domain, int stype, unsigned int bits):
    """A sock on a descriptor that nobody else knows; it is closed when that fails."""
    cdef sock s = None
    cdef bint adopted = False
    try:            # not `except`, which would save the exception being handled at every connection
        s = sock.__new__(sock)
        take_over(s, fd, domain, stype, bits)
        adopted = True
    finally:
        if not adopted:
            c_close(fd)
    return s


cdef bint is_lost(coro thread) noexcept:
    return thread is not None and (thread.link.flags & THREAD_LOST) != 0


def _after_fork_in_child():
    """In a forked child, where other threads were lost: close every descriptor that one of them was using."""
    cdef _descriptor d
    cdef void *p = first_live
    cdef list theirs = []
    cdef int fd
    while p != NULL:
        d = <_descriptor>p
        if is_lost(d.reader) or is_lost(d.sender):
            theirs.append(d)
        p = d.next_live
    for d in theirs:
        fd = d.fd
        d.reader = d.sender = d.first = d.last = None
        if fd >= 0 and not d.bits & B_FILE:
            let_go(d, None)
            c_close(fd)


def _close_late(int fd, bint ours, keep):
    """In main, for a sock that another OS thread collected (`keep`: the number stays taken until here)."""
    try:
        fd_poller().disown(fd, None)
    finally:
        if ours:
            c_close(fd)


# -- sendfile

def _sendfile(sock s, file, offset, count):
    cdef coro me = running_thread()
    cdef Py_ssize_t done = 0
    cdef object start = 0 if offset is None else _index(offset)
    cdef object most = None if count is None else _index(count)
    cdef int fd
    if start < 0 or most is not None and most < 0:
        raise ValueError(f"offset and count must not be negative, not {offset!r} and {count!r}")
    if isinstance(file, int):
        if not 0 <= file <= 0x7fffffff:
            raise ValueError(f"a descriptor is an int >= 0, not {file}")
        fd = file
    else:
        try:
            fd = file.fileno()
        except (AttributeError, OSError, ValueError):
            fd = -1
            if not hasattr(file, "read"):
                raise TypeError("a file to send is a descriptor, or an object with fileno() or read(), not "
                                f"{type(file).__name__}: {file!r}") from None
    s.check()
    try:
        begin_send(s, me)
        try:
            if fd < 0 or not _send_direct(s, me, fd, start, most, &done):
                _send_copied(s, me, file, fd, start, most, &done)
        finally:
            end_send(s)
    except BaseException as exc:
        _tell_sent(exc, done)
        raise
    finally:
        if not isinstance(file, (int, sock)) and fd >= 0 and hasattr(file, "seek"):
            try:
                file.seek(start + done)
            except (OSError, ValueError):
                pass
    return done


cdef bint _send_direct(sock s, coro me, int fd, object start, object most, Py_ssize_t *done) except -1:
    """sendfile(2).  False: this pair of descriptors cannot do it, and nothing was sent."""
    cdef Py_ssize_t r, n
    cdef off_t at
    cdef int e
    while most is None or done[0] < most:
        n = BIG if most is None else min(BIG, most - done[0])
        if selfish(me):
            pause_send(s, me)
        at = start + done[0]
        r = coro_sendfile(s.fd, fd, at, 1, n)
        if r > 0:
            done[0] += r
            continue
        if r == 0:
            break
        e = errno
        if e == EAGAIN:
            wait_writable(s, me)
        elif done[0] == 0 and (e == EINVAL or e == ENOSYS or e == ESPIPE or e == EOPNOTSUPP or e == ENOTSOCK):
            return False
        elif e != EINTR:
            raise _error(e)
    return True


cdef int _send_copied(sock s, coro me, object file, int fd, object start, object most,
                      Py_ssize_t *done) except -1:
    cdef Py_ssize_t n, before
    cdef bint seekable = True
    cdef bytes chunk
    if fd < 0 and start:
        file.seek(start)
    while most is None or done[0] < most:
        n = SCRATCH if most is None else min(SCRATCH, most - done[0])
        if isinstance(file, sock):
            chunk = (<sock>file).c_recv(n, 0)
        elif fd < 0:
            chunk = bytes(file.read(n))
        else:
            chunk = None
            if seekable:
                try:
                    chunk = os.pread(fd, n, start + done[0])
                except OSError as e:
                    if e.errno != ESPIPE:
                        raise _error(e.errno) from None
                    seekable = False
            if chunk is None:
                chunk = _read_when_ready(fd, n)
        s.check()
        if not chunk:
            break
        before = done[0]
        try:
            send_views(s, me, [chunk], len(chunk), 0, 0)
        except BaseException as exc:
            done[0] = before + getattr(exc, "bytes_sent", 0)
            raise
        done[0] = before + len(chunk)
    return 0


cdef bytes _read_when_ready(int fd, Py_ssize_t n):
    # a pipe or terminal, perhaps in blocking mode
    cdef FdPoller p
    while True:
        p = fd_poller()
        p.wait_read_fresh(p.state_of(fd), fd)
        try:
            return os.read(fd, n)
        except BlockingIOError:
            continue
        except OSError as e:
            raise _error(e.errno) from None


# -- functions

def tcp_sock():
    """A TCP socket over IPv4."""
    return sock(AF_INET, SOCK_STREAM)


def udp_sock():
    """A UDP socket over IPv4."""
    return sock(AF_INET, SOCK_DGRAM)


def tcp6_sock():
    """A TCP socket over IPv6."""
    return sock(AF_INET6, SOCK_STREAM)


def udp6_sock():
    """A UDP socket over IPv6."""
    return sock(AF_INET6, SOCK_DGRAM)


def unix_sock():
    """A UNIX stream socket."""
    return sock(AF_UNIX, SOCK_STREAM)


def make_socket(domain, stype):
    """The same as ``sock(domain, stype)``, for old programs."""
    return sock(domain, stype)


# AF_UNIX and SOCK_STREAM, which are 1 everywhere: inspect.signature can show a number, but no constant of C.
def socketpair(domain=1, stype=1, protocol=0):
    """Two connected socks (close-on-exec). ``domain``, ``stype`` and ``protocol`` are those of socketpair(2); by
    default a UNIX stream. Raises the classes of ``coro.oserrors``, and TypeError for an argument that is no integer."""
    cdef int a, b, d = _index(domain), t = _index(stype), p = _index(protocol)
    cdef sock one
    cdef unsigned int bits = B_SOCKET | B_OWNED | (B_STREAM if t == SOCK_STREAM else 0)
    if coro_socketpair(d, t, p, &a, &b) < 0:
        raise _error(errno)
    try:
        one = _adopt(a, d, t, bits)
    except BaseException:
        c_close(b)
        raise
    return one, _adopt(b, d, t, bits)


def has_ipv6():
    """Can an IPv6 socket be made on this machine?"""
    cdef int fd = coro_socket(AF_INET6, SOCK_STREAM, 0)
    if fd < 0:
        return False
    c_close(fd)
    return True


def get_live_sockets():
    """The number of sock objects in memory, closed ones included."""
    return live


# -- methods as their class's own

cdef extern from "Python.h":
    object PyDescr_NewMethod(type, PyMethodDef *)
    void PyType_Modified(type)
    ctypedef struct PyMethodDef:
        pass
    ctypedef struct PyMethodDescrObject:
        PyMethodDef *d_method
    ctypedef struct PyTypeObject:
        PyObject *tp_dict


# From 3.11 on the interpreter calls a C method straight from the instruction where the object is exactly of the class
# that the method was defined for; inherited methods take the general way, which costs a request some 200 instructions.
cdef int _own_methods(type cls) except -1:
    """Enter what `cls` inherits from the other classes of this module as if it were defined there."""
    cdef dict own = <dict>(<PyTypeObject *>cls).tp_dict
    cdef type method = type(str.join)
    for base in cls.__mro__[1:-1]:
        for name, value in base.__dict__.items():
            if name not in own and type(value) is method:
                own[name] = PyDescr_NewMethod(cls, (<PyMethodDescrObject *>value).d_method)
    PyType_Modified(cls)
    return 0


_own_methods(sock)
_own_methods(fd_sock)
_own_methods(file_sock)
