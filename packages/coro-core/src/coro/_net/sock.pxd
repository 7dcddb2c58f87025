# C-level face of the socket layer, for Cython code of other distributions: `cimport` the class and call the
# c_* methods without any Python call in between.  They block the running thread exactly as the Python methods
# do.  Buffers (`p`) must not lie on the C stack: while the thread waits, its stack is somebody else's.

from cpython.buffer cimport Py_buffer
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from coro._poll.descriptors cimport fd_state
from coro._runtime.scheduler cimport coro


cdef struct gathering:          # how far a recv_exact() or readv() has come
    PyObject *out               # NULL: nothing yet
    Py_ssize_t n, have, room


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
    cdef double full_said               # when "no descriptors left" was last reported
    cdef void *next_live                # the list of all, from start() to __dealloc__
    cdef void *prev_live
    cdef object __weakref__

    cdef int c_close(self) except -1
    cdef int start(self, int fd, int domain, int stype, unsigned int bits) except -1
    cdef int check(self) except -1
    cdef int forget(self, object closer) except -1


cdef class _receiver(_descriptor):
    # -- for other modules
    cdef object c_recv(self, Py_ssize_t n, int flags)                       # bytes
    cdef object c_recv_exact(self, Py_ssize_t n)                            # bytes
    cdef Py_ssize_t c_recv_into(self, char *p, Py_ssize_t n, int flags) except -1   # MSG_TRUNC: may be more than n
    cdef object c_recvfrom(self, Py_ssize_t n, int flags)                   # (bytes, address)
    cdef object c_accept(self)                                              # (sock, address)

    # -- inside
    cdef bint enter_read(self, coro me, int flags) except -1
    cdef bint before_attempt(self, coro me) except -1
    cdef bint begin_read_wait(self, coro me) except -1
    cdef int wait_readable_at_length(self, coro me) except -1
    cdef bint begin_read_pause(self, coro me) except -1
    cdef int resume_read(self, coro me) except -1
    cdef int wait_here(self, coro me) except -1
    cdef bint read_blocked(self, coro me, int flags) except -1
    cdef int reader_busy(self, coro me) except -1
    cdef object recv_try(self, coro me, Py_ssize_t n, int flags)
    cdef object recv_unprepared(self, coro me, Py_ssize_t n, int flags)
    cdef object recv_kept(self, coro me, Py_ssize_t n, int flags)
    cdef object recv_first(self, Py_ssize_t n, int flags)
    cdef object recv_again(self, Py_ssize_t n, int flags)
    cdef Py_ssize_t into_first(self, char *p, Py_ssize_t n, int flags, Py_buffer *held) except -1
    cdef Py_ssize_t into_again(self, char *p, Py_ssize_t n, int flags, Py_buffer *held) except -1
    cdef Py_ssize_t into_kept(self, coro me, char *p, Py_ssize_t n, int flags) except -1
    cdef Py_ssize_t into_try(self, coro me, char *p, Py_ssize_t n, int flags) except -1
    cdef Py_ssize_t recv_raw(self, char *p, Py_ssize_t n, int flags) except? -1
    cdef Py_ssize_t recv_failed(self, char *p, Py_ssize_t n, int flags) except? -1
    cdef object recvfrom_try(self, Py_ssize_t n, int flags)
    cdef object recvfrom_raw(self, char *p, Py_ssize_t n, int flags, Py_ssize_t *r)
    cdef object recvmsg_try(self, Py_ssize_t n, Py_ssize_t room, int flags, Py_ssize_t *told)
    cdef object receive_message(self, Py_ssize_t bufsize, Py_ssize_t ancbufsize, int flags, Py_ssize_t *told)
    cdef object take_back(self, Py_ssize_t n, bint peek)
    cdef int give_back(self, bytes data) except -1
    cdef object gather(self, coro me, Py_ssize_t n)
    cdef object gather_first(self, coro me, gathering *g)
    cdef int gather_room(self, gathering *g) except -1
    cdef object gather_on(self, coro me, gathering *g, bint resumed)
    cdef object accept_try(self)
    cdef int accept_pause(self, coro me) except -1
    cdef bint nothing_to_do(self) except -1
    cdef int raise_late(self) except -1


cdef class sock(_receiver):
    # -- for other modules (c_send: all of it)
    cdef Py_ssize_t c_send(self, const char *p, Py_ssize_t n, int flags) except -1
    cdef Py_ssize_t c_sendto(self, object data, object address, int flags) except -1
    cdef Py_ssize_t c_writev(self, object pieces) except -1
    cdef int c_connect(self, object address, bint resolve) except -1

    # -- inside
    cdef int begin_send(self, coro me) except -1
    cdef int queue_send(self, coro me) except -1
    cdef int leave_queue(self, _sender s) except -1
    cdef int end_send(self) except -1
    cdef bint begin_write_wait(self, coro me) except -1
    cdef int resume_send(self, coro me) except -1
    cdef int wait_writable(self, coro me) except -1
    cdef int pause_send(self, coro me) except -1
    cdef int send_blocked(self, coro me, int flags, bint named) except -1
    cdef Py_ssize_t send_raw(self, const char *p, Py_ssize_t n, int flags) noexcept
    cdef Py_ssize_t send_first(self, const char *p, Py_ssize_t n, int flags) except -1
    cdef Py_ssize_t send_partly(self, coro me, const char *p, Py_ssize_t n, Py_ssize_t r, int flags) except -1
    cdef Py_ssize_t send_rest(self, coro me, const char *p, Py_ssize_t n, Py_ssize_t done, int flags,
                              int step) except -1
    cdef bint begin_blocked(self, coro me, int flags) except -1
    cdef Py_ssize_t send_object(self, object data, int flags) except -1
    cdef Py_ssize_t send_views(self, coro me, list views, Py_ssize_t total, Py_ssize_t done,
                               int flags) except -1
    cdef Py_ssize_t writev_try(self, list views, Py_ssize_t first, Py_ssize_t skip) except? -1
    cdef Py_ssize_t sendto_try(self, const char *p, Py_ssize_t n, object address, int flags) except? -1
    cdef Py_ssize_t sendmsg_try(self, list views, list control, object address, int flags) except? -1
    cdef int connect_one(self, coro me, object address) except -1
    cdef int connect_try(self, object address) except? -1
    cdef int end_attempt(self) except -1
