# cython: language_level=3, nonecheck=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""What is between an engine of TLS and its stream: a `Channel`. `Memory` is that of OpenSSL's connections, which share
the memory that OpenSSL works on.

OpenSSL takes ciphertext from one memory buffer and puts it into another, and these stay as large as they have ever
been. So an OS thread has one pair for all its connections (`Buffers`). It contains the bytes of one connection at any
time; when another (`Memory`) needs the pair, these are put aside, as bytes of the connection that they belong to. Most
of the time there are none: a request is received, decrypted, answered and sent before anybody else runs. That saves 5
KB of the 22 that an idle connection would take, and lets large blocks be large, because they are paid for once.

What makes this safe: a connection may touch the pair only in `Memory`, which claims it first; a method of OpenSSL's
never finds bytes of another connection. Such a method can be left in the middle only where OpenSSL calls Python (names,
pre-shared keys, messages), or releases the GIL. A connection of a context with such a function that may wait has a pair
of its own. Where that could not be known, and two connections waited in the middle of such a method, both have failed:
see `left_within`; the next ones of these contexts have pairs of their own. Another OS thread that uses the connection
waits until nobody is in the middle.

What is in the pair is ciphertext, under keys that only the two ends of one connection have. So even a fault here could
break connections, and never tell one what was meant for another.

What else a buffer keeps is whether the last read found it empty. OpenSSL looks at that behind a read of its own only,
but for a connection that has failed: there it may say that it wants more where it would have repeated the error. So
whoever uses a channel makes no further call of a connection that has failed.

Cost: two comparisons for each call, and a copy of what is put aside. Rejected: a pair for each connection, and to give
up that of an idle one, which the `ssl` module has no call for.
"""

from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_get_thread_ident
from posix.unistd cimport usleep

cimport cython

import weakref

from coro._net.tls import TLSError
from coro._runtime.abi cimport require_abi

require_abi()

__all__ = ["Channel", "Foreign", "Memory", "waiting"]

cdef enum:
    PAUSE = 50              # microseconds between two looks whether another OS thread has left

ENDED = "EOF occurred in violation of protocol"

# Of the ssl module, which is imported when the first connection needs it.
cdef object wants = None        # ssl.SSLWantReadError
cdef object new_buffer = None   # ssl.MemoryBIO
cdef object ended_early = None  # ssl.SSLEOFError
cdef object ssl_error = None    # ssl.SSLError
cdef object ends_silently = 0   # ssl.OP_IGNORE_UNEXPECTED_EOF
cdef object idle_context = None # see forget_errors
cdef object usual_owner = None  # ssl.SSLObject
cdef object nobody = None       # one of them
# OS thread -> a weak reference to its pair
cdef dict pairs = {}
# The last one made, kept for who closes a connection and opens the next.
cdef Buffers latest = None
# Contexts whose functions turned out to wait.
waiting = weakref.WeakSet()


@cython.final
cdef class Buffers:
    """Two memory buffers of OpenSSL's.

    Invariants: (1) What is in them belongs to `holder`; nobody's if that is NULL. (2) `busy` methods of OpenSSL's are
    being called that use them, by the OS thread `runner`. More than one: the others wait in a call of Python's. (3)
    When one returns and others are still being called, they are empty.
    """

    cdef object incoming, outgoing
    cdef PyObject *holder       # a Memory, which resets it when it goes
    cdef int busy
    cdef unsigned long runner
    cdef object __weakref__

    def __cinit__(self):
        self.incoming = new_buffer()
        self.outgoing = new_buffer()


cdef Buffers of_this_thread():
    global latest
    cdef unsigned long me = <unsigned long>PyThread_get_thread_ident()
    cdef object found = pairs.get(me)
    cdef object pair = found() if found is not None else None
    if pair is None:
        pair = Buffers()
        for one in [one for one, reference in list(pairs.items()) if reference() is None]:
            pairs.pop(one, None)
        pairs[me] = weakref.ref(pair)
        latest = pair
    return pair


cdef class Channel:
    """What moves between an engine and its stream. `read` returns None, `read_into` -1, and `handshake` False when
    ciphertext is missing. Other exceptions than that are passed on."""

    cpdef object read(self, Py_ssize_t size):
        raise NotImplementedError

    cpdef Py_ssize_t read_into(self, Py_ssize_t size, object view) except -2:
        raise NotImplementedError

    cpdef Py_ssize_t write(self, data) except -1:
        raise NotImplementedError

    cpdef bint handshake(self) except -1:
        raise NotImplementedError

    cpdef bint shutdown(self) except -1:
        """Make close_notify; whether the peer's has come, too."""
        raise NotImplementedError

    cpdef Py_ssize_t pending(self) except -1:
        """How much plain text is decrypted and not read."""
        raise NotImplementedError

    cpdef object feed(self, data):
        """This came from the peer; ``b""``: the stream has ended."""
        raise NotImplementedError

    cpdef Py_ssize_t received(self) except -1:
        """How much ciphertext has been fed and not used."""
        raise NotImplementedError

    cpdef bytes take(self):
        """What is to be sent to the peer."""
        raise NotImplementedError

    cpdef Py_ssize_t unsent(self) except -1:
        """How much `take` would return."""
        raise NotImplementedError


@cython.final
cdef class Foreign(Channel):
    """For an engine with buffers of its own, which has `incoming`, `outgoing` and `tls`."""

    cdef object incoming, outgoing, want
    cdef public object tls

    def __init__(self, engine):
        self.incoming = engine.incoming
        self.outgoing = engine.outgoing
        self.want = engine.want
        self.tls = engine.tls

    cpdef object read(self, Py_ssize_t size):
        try:
            return self.tls.read(size)
        except self.want:
            return None

    cpdef Py_ssize_t read_into(self, Py_ssize_t size, object view) except -2:
        try:
            return self.tls.read(size, view)
        except self.want:
            return -1

    cpdef Py_ssize_t write(self, data) except -1:
        return self.tls.write(data)

    cpdef bint handshake(self) except -1:
        try:
            self.tls.do_handshake()
        except self.want:
            return False
        return True

    cpdef bint shutdown(self) except -1:
        try:
            self.tls.shutdown()
        except self.want:
            return False
        return True

    cpdef Py_ssize_t pending(self) except -1:
        return self.tls.pending()

    cpdef object feed(self, data):
        if len(data):
            self.incoming.write(bytes(data))
        else:
            self.incoming.write_eof()

    cpdef Py_ssize_t received(self) except -1:
        return self.incoming.pending

    cpdef bytes take(self):
        return self.outgoing.read()

    cpdef Py_ssize_t unsent(self) except -1:
        return self.outgoing.pending


# The fields have to be there when it goes, see __dealloc__.
@cython.no_gc_clear
@cython.final
cdef class Memory(Channel):
    """The share of one connection of OpenSSL's in a pair of buffers. ``own``: the pair is for it alone.

    `tls` is the connection, of the C module below `ssl`; it is made with `buffers()`. `owner` is its ssl.SSLObject,
    which is not needed after the handshake. Each use of the pair is between `enter` and `leave`, or behind `claim`
    without a call of OpenSSL's.
    """

    cdef Buffers pair
    cdef public object tls, owner
    cdef bytes came, goes       # put aside, None if nothing
    cdef bint own, spoiled
    cdef bint ended             # the stream below

    def __cinit__(self, bint own=False):
        global wants, new_buffer, ended_early, ssl_error, ends_silently, usual_owner, nobody
        if wants is None:
            import ssl
            new_buffer, ended_early, usual_owner = ssl.MemoryBIO, ssl.SSLEOFError, ssl.SSLObject
            ssl_error = ssl.SSLError
            ends_silently = getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)     # OpenSSL 3
            nobody = usual_owner.__new__(usual_owner)
            wants = ssl.SSLWantReadError
        self.own = own
        self.pair = Buffers() if own else of_this_thread()

    def __dealloc__(self):
        if self.pair is not None and self.pair.holder == <PyObject *>self:
            self.pair.holder = NULL

    def buffers(self):
        """The two, for ``wrap_bio``."""
        return self.pair.incoming, self.pair.outgoing

    # -- whose bytes are in the pair

    cdef int claim(self) except -1:
        """Have the pair contain the bytes of this connection, and no others."""
        cdef Buffers pair = self.pair
        if pair.busy and pair.runner != <unsigned long>PyThread_get_thread_ident():
            wait_for(pair)
        if pair.holder != <PyObject *>self or self.came is not None or self.goes is not None:
            self.change()
        return 0

    cdef int change(self) except -1:
        cdef Buffers pair = self.pair
        cdef bytes data
        if pair.holder != <PyObject *>self:
            if pair.holder != NULL:
                (<Memory>pair.holder).put_aside()
            else:
                empty(pair)
            pair.holder = <PyObject *>self
        if self.came is not None:
            data = self.came
            pair.incoming.write(data)
            self.came = None
        if self.goes is not None:
            data = self.goes
            pair.outgoing.write(data)
            self.goes = None
        return 0

    cdef int put_aside(self) except -1:
        # Nothing is in the pair twice, and nothing is aside that came before what is in it: `change` sees to that.
        cdef Buffers pair = self.pair
        if pair.incoming.pending != 0:
            self.came = pair.incoming.read()
        if pair.outgoing.pending != 0:
            self.goes = pair.outgoing.read()
        pair.holder = NULL
        return 0

    cdef inline int enter(self) except -1:
        if self.spoiled:
            raise mixed()
        self.claim()
        self.pair.busy += 1
        self.pair.runner = <unsigned long>PyThread_get_thread_ident()
        return 0

    cdef inline int leave(self) except -1:
        self.pair.busy -= 1
        if self.pair.busy or self.pair.holder != <PyObject *>self:
            self.left_within()
        return 0

    cdef int left_within(self) except -1:
        """A method of OpenSSL's returned that was called while another one waits in Python, or that waited itself while
        others were called."""
        cdef Buffers pair = self.pair
        cdef bytes said
        if pair.holder == <PyObject *>self:
            self.put_aside()
            return 0
        if pair.holder == NULL:
            # The others have left nothing in it, so what is there now is ours.
            if pair.outgoing.pending != 0:
                said = pair.outgoing.read()
                self.goes = said if self.goes is None else self.goes + said
            empty(pair)
            waiting.add(self.tls.context)
        else:
            # The holder waits in a call of Python's, with its bytes in the pair; we had some there, too.
            self.spoiled = (<Memory>pair.holder).spoiled = True
            waiting.add(self.tls.context)
            waiting.add((<Memory>pair.holder).tls.context)
            raise mixed()
        return 0

    # -- the calls

    cpdef object read(self, Py_ssize_t size):
        cdef object data
        while True:
            self.enter()
            try:
                data = self.tls.read(size)
            except wants:
                data = None
            except BaseException as e:
                forget_errors(e)
                raise
            finally:
                self.leave()
            if data is not None:
                return data
            if not self.missed():
                return b"" if self.ended else None

    cpdef Py_ssize_t read_into(self, Py_ssize_t size, object view) except -2:
        cdef Py_ssize_t n
        while True:
            self.enter()
            try:
                n = self.tls.read(size, view)
            except wants:
                n = -1
            except BaseException as e:
                forget_errors(e)
                raise
            finally:
                self.leave()
            if n >= 0:
                return n
            if not self.missed():
                return 0 if self.ended else -1

    cpdef Py_ssize_t write(self, data) except -1:
        self.enter()
        try:
            return self.tls.write(data)
        except BaseException as e:
            forget_errors(e)
            raise
        finally:
            self.leave()

    cpdef bint handshake(self) except -1:
        cdef bint done = True
        while True:
            self.enter()
            try:
                self.tls.do_handshake()
            except wants:
                done = False
            except BaseException as e:
                forget_errors(e)
                raise
            finally:
                self.leave()
            if done:
                if type(self.owner) is usual_owner and not self.own:
                    self.tls.owner = nobody     # and not a weak reference to nothing, 80 bytes
                    self.owner = None
                return True
            if not self.missed():
                if self.ended:
                    raise ended_early(8, ENDED)
                return False
            done = True

    cpdef bint shutdown(self) except -1:
        self.enter()
        try:
            self.tls.shutdown()
        except wants:
            return False
        except BaseException as e:
            forget_errors(e)
            raise
        finally:
            self.leave()
        return True

    cdef bint missed(self) except -1:
        """OpenSSL wants more. Is there more, which was put aside meanwhile? The stream below may have ended: that is an
        error unless the context takes it for the peer's close_notify."""
        if self.came is not None:
            return True
        if self.ended and not self.tls.context.options & ends_silently:
            raise ended_early(8, ENDED)
        return False

    cpdef Py_ssize_t pending(self) except -1:
        return self.tls.pending()

    cpdef object feed(self, data):
        if len(data):
            self.claim()
            self.pair.incoming.write(data)
            if self.pair.busy:
                self.put_aside()    # whoever is in the middle shall not find it
        else:
            self.ended = True

    cpdef Py_ssize_t received(self) except -1:
        cdef Py_ssize_t aside = PyBytes_GET_SIZE(self.came) if self.came is not None else 0
        if self.pair.holder == <PyObject *>self:
            return aside + <Py_ssize_t>self.pair.incoming.pending
        return aside

    cpdef bytes take(self):
        cdef bytes data
        if self.spoiled:
            raise mixed()
        if self.pair.holder != <PyObject *>self and self.goes is None:
            return b""
        self.claim()
        data = self.pair.outgoing.read()
        if self.pair.busy:
            self.put_aside()
        return data

    cpdef Py_ssize_t unsent(self) except -1:
        cdef Py_ssize_t aside = PyBytes_GET_SIZE(self.goes) if self.goes is not None else 0
        if self.pair.holder == <PyObject *>self:
            return aside + <Py_ssize_t>self.pair.outgoing.pending
        return aside


cdef int forget_errors(exc) except -1:
    """OpenSSL's errors are in a queue of the OS thread, which `ssl` empties when it raises one of them. The handler of
    a signal may have raised `exc` before it came to that, and the next connection would find what was this one's
    (https://github.com/python/cpython/issues/148594). Making a connection empties the queue."""
    global idle_context
    if isinstance(exc, ssl_error):
        return 0
    if idle_context is None:
        import ssl
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.check_hostname = False
        idle_context = made
    idle_context.wrap_bio(new_buffer(), new_buffer())
    return 0


cdef int empty(Buffers pair) except -1:
    if pair.incoming.pending != 0:
        pair.incoming.read()
    if pair.outgoing.pending != 0:
        pair.outgoing.read()
    return 0


cdef int wait_for(Buffers pair) except -1:
    """Another OS thread is in a method of OpenSSL's, which does not wait."""
    while pair.busy and pair.runner != <unsigned long>PyThread_get_thread_ident():
        with nogil:
            usleep(PAUSE)
    return 0


cdef object mixed():
    return TLSError(
        "two connections of one thread waited in functions that OpenSSL calls, and neither can go on: do not wait there"
    )
