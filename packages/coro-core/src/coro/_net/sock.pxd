# C-level face of the socket layer, for Cython code of other distributions: `cimport` the class and call the
# c_* methods without any Python call in between.  They block the running thread exactly as the Python methods
# do.  Buffers (`p`) must not lie on the C stack: while the thread waits, its stack is somebody else's.

from libc.stdint cimport uint32_t, uint64_t

from coro._net.posix cimport coro_mmsghdr
from coro._poll.descriptors cimport fd_state
from coro._runtime.scheduler cimport coro


cdef class _sender:
    # a thread in the queue for the sending side of a sock
    cdef coro thread
    cdef _sender next, prev
    cdef bint granted           # the sending side was handed to it
    cdef bint queued


cdef class _descriptor:            # the fields, and the life of the descriptor
    cdef readonly int fd                # -1 once closed
    cdef readonly int orig_fd
    cdef public int domain, stype
    cdef unsigned int bits              # B_* of _net/sock.pyx
    cdef int late_errno                 # an error accept_many() met after it had something to return
    cdef int full_errno                 # accept(2) just found no descriptor or memory left
    cdef uint32_t read_epoch, send_epoch    # of `st` when the reader, the sender began to wait
    cdef fd_state *st                   # the poller's record of this number
    cdef coro reader, sender            # the thread inside a suspended receive or send call
    cdef _sender first, last            # threads queued behind `sender`
    cdef bytes back                     # bytes an interrupted recv_exact() gave back
    cdef Py_ssize_t back_at
    cdef bytes begun                    # the socket address of a connect(2) under way, STANDS after it, else None
    cdef object keep                    # the file object that owns the descriptor (file_sock)
    cdef uint64_t closed_by             # the number of the thread that closed it
    cdef double full_said               # when "no descriptors left" was last reported
    cdef void *next_live                # the list of all, from take_over() to __dealloc__
    cdef void *prev_live
    cdef object __weakref__

    cdef int c_close(self) except -1
    cdef int check(self) except -1


cdef class _receiver(_descriptor):
    cdef object c_recv(self, Py_ssize_t n, int flags)                       # bytes
    cdef object c_recv_exact(self, Py_ssize_t n)                            # bytes
    cdef Py_ssize_t c_recv_into(self, char *p, Py_ssize_t n, int flags) except -1   # MSG_TRUNC: may be more than n
    cdef object c_recvfrom(self, Py_ssize_t n, int flags)                   # (bytes, address)
    cdef object c_accept(self)                                              # (sock, address)
    # recvmmsg(2): waits for one datagram, takes at most n; the headers must not lie on the C stack either
    cdef int c_recvmmsg(self, coro_mmsghdr *headers, unsigned int n, int flags) except -1
    # All that has come was read, and nothing more can be there yet (a new socket has just sent its question): the next
    # receive waits before it asks the kernel. Wrong if bytes are left: nobody tells of them a second time.
    cdef void c_expect(self) noexcept


cdef class sock(_receiver):
    # (c_send: all of it)
    cdef Py_ssize_t c_send(self, const char *p, Py_ssize_t n, int flags) except -1
    cdef Py_ssize_t c_sendto(self, object data, object address, int flags) except -1
    # sendmmsg(2): how many went out; fewer than n if one failed, whose error the call that begins with it raises
    cdef int c_sendmmsg(self, coro_mmsghdr *headers, unsigned int n, int flags) except -1
    cdef Py_ssize_t c_writev(self, object pieces) except -1
    cdef int c_connect(self, object address, bint resolve) except -1


# for select: somebody else receives; SimultaneousError unless he is dead
cdef int reader_busy(_receiver s, coro me) except -1
