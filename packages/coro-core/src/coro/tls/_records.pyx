# cython: language_level=3, nonecheck=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""The usual case of receiving and sending over TLS: the part of TLSStream that each request passes through.

Compiled for two reasons. A frame of the interpreter between a handler and its sock is one too many for the small piece
of memory that a thread's frames begin in, and an idle connection would then hold 16 KiB more. And the seven calls that
a request makes of the engine cost a third less from here: 1 us of 10. All that is unusual is in _stream.py, whose class
derives from Records: errors, ends, what was interrupted, pieces of more than CHUNK bytes, other things than bytes. The
state is one number, and it is OPEN as long as everything is usual.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.string cimport memcpy

from coro._net.sock cimport sock
from coro._runtime.abi cimport require_abi
from coro._sync.locks cimport mutex
from coro.tls._channels cimport Channel

require_abi()

__all__ = ["Records"]

cdef enum:
    OPEN = 1                # as in _stream.py, which compares
    PEER_ENDED = 2
    KEPT = 32
    RECORD = 16384          # the most that one record carries (RFC 8446 section 5.1)
    CHUNK = 4 * RECORD      # plain bytes that become records before these are sent
    BLOCK_FIRST = 4096      # what is asked of the stream below: at first,
    # and once a peer has filled that: four full records as nearly everybody makes them (with 5 bytes of a head, 1 of
    # the type, 16 of the tag), so that none is cut, and the engine need not be asked in vain.
    BLOCK_MOST = 4 * (RECORD + 22)

NUMBERS = (OPEN, PEER_ENDED, KEPT, RECORD, CHUNK)
FIRST_BLOCK = BLOCK_FIRST

# What large blocks are received into. Nobody else runs between the end of recv(2) and the moment when the engine has
# copied it.
cdef char shared[BLOCK_MOST]


cdef class Records:
    """The fields of a TLSStream, and the calls that must be fast.

    Invariants: (1) `_rest` is empty unless a thread that sends holds `_lock`, or one was interrupted. (2) The engine is
    asked for ciphertext and the ciphertext is handed to the stream below under `_lock`.
    """

    cdef public object _sock, _engine, _context
    cdef readonly Channel _channel
    cdef public mutex _lock
    cdef public bytes _back, _rest
    cdef public int _block, _state
    cdef public bint _primed, _direct

    def _uses(self, Channel channel not None):
        self._channel = channel

    def recv(self, Py_ssize_t buffer_size, int flags=0):
        """Receive at most ``buffer_size`` bytes, of the records that have come: ``b''`` when the peer has ended its
        side. ``flags`` must be 0: the kernel does not know what is in a record.

        Raises TruncatedError, ProtocolError; ValueError for a negative size; what ``recv`` of the stream below raises;
        SimultaneousError while another thread receives.
        """
        cdef object got
        if self._state != OPEN or buffer_size <= 0 or flags:
            return self._recv_unusual(buffer_size, flags)
        while True:
            if not self._primed and not pull(self):
                return self._recv_done(b"")
            got = self.decrypted(buffer_size)
            if got is not None:
                return got

    cdef object decrypted(self, Py_ssize_t size):
        """None: the engine wants more. A method, so that the compiler does not make it a part of recv(), whose frame is
        kept for each connection that waits."""
        cdef object got
        cdef Py_ssize_t n
        try:
            got = self._channel.read(min(size, RECORD))
        except Exception as e:
            return self._read_failed(e, size)
        if got is None:
            self._primed = False
            if self._channel.unsent() == 0:
                return None
            self._answer()
            return self._receive(size)
        n = PyBytes_GET_SIZE(<bytes?>got)
        self._primed = n >= min(size, RECORD) or self._channel.received() != 0
        if n == 0 or self._channel.unsent() != 0:
            return self._recv_done(got)
        if n >= RECORD and n < size and self._channel.received() != 0:
            return more(self, <bytes>got, size)
        return got

    def _pull(self):
        """Wait for more ciphertext, and give it to the engine. False: this side has shut the stream below, and it has
        ended."""
        return pull(self)

    def send(self, data, int flags=0):
        """Send all of ``data``; returns its length. ``flags`` must be 0, or MSG.NOSIGNAL, which changes nothing.

        Threads that send at the same time take turns, a whole call each. An exception that ends the call has
        ``bytes_sent``: so many bytes were sent, or are in records that the next call sends first. Raises what ``send``
        of the stream below raises, ProtocolError or TruncatedError after one, and BrokenPipeError after
        ``shutdown(SHUT.WR)``.
        """
        cdef bytes out
        cdef Py_ssize_t size, sent = 0
        cdef bint told = False
        if type(data) is not bytes or flags:
            return self._send_unusual(data, flags)
        size = PyBytes_GET_SIZE(<bytes>data)
        if self._state & ~(PEER_ENDED | KEPT) != OPEN or not 0 < size <= CHUNK:
            return self._send_unusual(data, flags)
        if self._lock.owner is not None or not self._lock.take_now():
            return self._send_unusual(data, flags)
        try:
            if PyBytes_GET_SIZE(self._rest):
                self._before_sending()
            try:
                sent = self._channel.write(data)
            except Exception as e:
                raise self._not_written(e)
            out = self._channel.take()
            if self._direct:
                self._rest = out
                try:
                    (<sock?>self._sock).c_send(PyBytes_AS_STRING(out), PyBytes_GET_SIZE(out), 0)
                except BaseException as e:
                    self._rest = out[getattr(e, "bytes_sent", 0):]
                    raise
                self._rest = b""
            else:
                self._transmit(out)
            if sent < size or self._channel.unsent() != 0:
                told = True
                self._send_more(data, sent)
        except BaseException as e:
            if not told:
                self._tell_sent(e, sent)
            raise
        finally:
            self._lock.leave()
        return size


cdef bytes more(Records self, bytes first, Py_ssize_t size):
    """``first``, a full record, and what is behind it and here already: whoever handles a bulk of data then makes one
    call, and one send(2), where it would make one for each record."""
    cdef Py_ssize_t n, got = PyBytes_GET_SIZE(first), most
    cdef bytes data
    cdef char *into
    # No more plain text than ciphertext, and OpenSSL has nothing decrypted that a full record left.
    most = min(size, got + self._channel.received())
    data = PyBytes_FromStringAndSize(NULL, most)
    into = PyBytes_AS_STRING(data)
    memcpy(into, PyBytes_AS_STRING(first), got)
    while got < most and self._channel.received() != 0 and self._channel.unsent() == 0:
        try:
            # The view is gone before the bytes are anybody else's.
            n = self._channel.read_into(most - got, PyMemoryView_FromMemory(into + got, most - got, PyBUF_WRITE))
        except BaseException as e:
            return self._more_raised(e, data[:got])
        if n < 0:
            self._primed = False
            break
        if n == 0:
            self._at_end()
            break
        self._primed = n >= min(most - got, RECORD) or self._channel.received() != 0
        got += n
    if got < most:
        data = data[:got]
    return self._recv_done(data) if self._channel.unsent() != 0 else data


cdef bint pull(Records self) except -1:
    cdef int asked = self._block
    cdef Py_ssize_t n
    cdef bytes data
    if self._direct and asked > BLOCK_FIRST:
        n = (<sock?>self._sock).c_recv_into(shared, min(asked, BLOCK_MOST), 0)
        if n:
            self._channel.feed(PyMemoryView_FromMemory(shared, n, PyBUF_READ))
    else:
        data = (<sock?>self._sock).c_recv(asked, 0) if self._direct else self._sock.recv(asked)
        n = PyBytes_GET_SIZE(data)
        if n:
            self._channel.feed(data)
    if n == 0:
        return self._pulled_end()
    self._primed = True
    if n == BLOCK_FIRST:        # unwrap() asks for less
        self._block = BLOCK_MOST
    return True
