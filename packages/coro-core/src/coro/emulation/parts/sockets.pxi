# recv, recv_into, send and sendall of socket.socket, for what nearly all programs do: no flags, a time limit or none.
# Whatever else they are called with, and what remains when the kernel did not take everything at once, is left to the
# functions of `_modules.socket`.
#
# Cost of a call that finds data: the system call, and two questions to the socket object, for its descriptor and its
# time limit.

cdef object raw_fileno = None              # what know_sockets() was given
cdef object raw_gettimeout = None
cdef object recv_else = None
cdef object recv_into_else = None
cdef object send_else = None
cdef object sendall_else = None

cdef extern from *:
    """
    #include <sys/socket.h>
    enum { CORO_SMALL = 4096 };

    /* A function of its own, because its array must not lie in the stack of a thread that waits. */
    static __attribute__((noinline)) PyObject *coro_recv_small(int fd, Py_ssize_t size, int *error) {
        char room[CORO_SMALL];
        ssize_t got;
        Py_BEGIN_ALLOW_THREADS
        got = recv(fd, room, (size_t)size, MSG_DONTWAIT);
        *error = got < 0 ? errno : 0;
        Py_END_ALLOW_THREADS
        if (got < 0) {
            Py_INCREF(Py_None);
            return Py_None;
        }
        return PyBytes_FromStringAndSize(room, got);
    }

    /* The bytes that came; None, and the number of the error, if there are none. */
    static PyObject *coro_recv_bytes(int fd, Py_ssize_t size, int *error) {
        PyObject *data;
        ssize_t got;
        if (size <= CORO_SMALL)
            return coro_recv_small(fd, size, error);
        data = PyBytes_FromStringAndSize(NULL, size);
        if (data == NULL)
            return NULL;
        Py_BEGIN_ALLOW_THREADS
        got = recv(fd, PyBytes_AS_STRING(data), (size_t)size, MSG_DONTWAIT);
        *error = got < 0 ? errno : 0;
        Py_END_ALLOW_THREADS
        if (got < 0) {
            Py_DECREF(data);
            Py_INCREF(Py_None);
            return Py_None;
        }
        if (got < size)
            _PyBytes_Resize(&data, got);
        return data;
    }
    """
    object coro_recv_bytes(int, Py_ssize_t, int *)


def know_sockets(fileno, gettimeout, recv, recv_into, send, sendall):
    """The original methods that tell a socket's descriptor and time limit, and what to call for everything else: those
    for sending also get how much has gone out, None for nothing yet."""
    global raw_fileno, raw_gettimeout, recv_else, recv_into_else, send_else, sendall_else
    raw_fileno, raw_gettimeout = fileno, gettimeout
    recv_else, recv_into_else, send_else, sendall_else = recv, recv_into, send, sendall


cdef inline bint is_zero(flags) noexcept:
    return type(flags) is int and flags == 0


cdef int wait_to_read(sock, object timeout, double *deadline) except -1:
    """Suspend until there is something to read. TimeoutError after the deadline, in monotonic seconds, which is set
    when there is none yet (0)."""
    cdef double left = -1
    if timeout is not None:
        if deadline[0] == 0:
            deadline[0] = <double>monotonic() + <double>timeout
        left = deadline[0] - <double>monotonic()
    if timeout is not None and left <= 0 or not wait_for_fd(<int>raw_fileno(sock), False, False, left):
        raise TimeoutError("timed out")
    return 0


@cython.binding(True)
def socket_recv(self, bufsize, flags=0, /):
    """Receive up to ``bufsize`` bytes; see socket.socket.recv."""
    cdef int error = 0
    cdef Py_ssize_t size
    cdef double deadline = 0
    if type(bufsize) is not int or not is_zero(flags) or bufsize < 0 or here() is None:
        return recv_else(self, bufsize, flags)
    timeout = raw_gettimeout(self)
    if timeout is not None:
        if <double>timeout == 0:
            return recv_else(self, bufsize, flags)
    size = bufsize
    be_fair()
    while True:
        data = coro_recv_bytes(<int>raw_fileno(self), size, &error)
        if data is not None:
            return data
        if would_wait(error):
            wait_to_read(self, timeout, &deadline)


@cython.binding(True)
def socket_recv_into(self, buffer, nbytes=0, flags=0):
    """Receive into a buffer; see socket.socket.recv_into."""
    cdef Py_ssize_t size
    cdef object got
    cdef double deadline = 0
    if type(nbytes) is not int or not is_zero(flags) or nbytes < 0 or here() is None:
        return recv_into_else(self, buffer, nbytes, flags)
    timeout = raw_gettimeout(self)
    if timeout is not None:
        if <double>timeout == 0:
            return recv_into_else(self, buffer, nbytes, flags)
    size = nbytes
    while True:
        got = receive_into(<int>raw_fileno(self), buffer, size, 0)
        if got is not None:
            return got
        wait_to_read(self, timeout, &deadline)


@cython.binding(True)
def socket_send(self, data, flags=0, /):
    """Send data: all of it if the socket has no time limit, else what the system takes; see socket.socket.send."""
    cdef Py_ssize_t size = 0
    if not is_zero(flags) or here() is None:
        return send_else(self, data, flags, None)
    timeout = raw_gettimeout(self)
    if timeout is not None and <double>timeout == 0:
        return send_else(self, data, flags, None)
    sent = transmit(<int>raw_fileno(self), data, 0, 0, &size)
    if sent is not None and (<Py_ssize_t>sent == size or timeout is not None):
        return sent
    return send_else(self, data, flags, -1 if sent is None else sent)


@cython.binding(True)
def socket_sendall(self, data, flags=0, /):
    """Send all of the data; see socket.socket.sendall."""
    cdef Py_ssize_t size = 0
    if not is_zero(flags) or here() is None:
        return sendall_else(self, data, flags)
    timeout = raw_gettimeout(self)
    if timeout is not None and <double>timeout == 0:
        return sendall_else(self, data, flags)
    sent = transmit(<int>raw_fileno(self), data, 0, 0, &size)
    if sent is None or <Py_ssize_t>sent != size:
        sendall_else(self, data, flags, 0 if sent is None else sent)
