# cython: language_level=3, nonecheck=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""The frames of a packet stream: bytes in, packets out. No sockets, no clock, no threads.

Each side first sends a preamble of 16 bytes, then frames (all numbers big-endian):

    preamble  7 bytes "coro-ps", u8 version (1), u32 largest packet it accepts, u32 bytes of credit for each stream
    frame     u32 length of the payload, u8 kind, u8 flags, u16 zero, u64 id, payload

A packet larger than CHUNK is sent as several frames of the same kind and id; all but the last have the flag MORE (1).
Others' frames may stand between them. The payload of the packet is what these frames have, one after the other. A frame
but the first may have the flag PIECE (2): from here on the receiver should put the payload into memory of its own,
because it will be handed out like that. The kinds, with the side whose ids they carry:

    1 PUSH          sender's     one-way packet; ids count up
    2 REQUEST       sender's     a packet that wants an answer
    3 REPLY         receiver's   the answer, which also ends a stream
    4 FAIL          receiver's   u8 code, details: the request failed
    5 CANCEL        sender's     no payload: nobody wants the answer any more
    6 ITEM_UP       sender's     an item of the stream that goes with a request
    7 END_UP        sender's     the end of that stream; a payload is a text: it failed
    8 ITEM_DOWN     receiver's   an item of the stream that answers a request
    9 CREDIT_UP     receiver's   u32: so many more bytes may be sent up; id 0: as pushes
    10 CREDIT_DOWN  sender's     u32: so many more bytes may be sent down
    11 PING  12 PONG  id and payload (at most 64 bytes) of a PONG are those of the PING
    13 GOODBYE      u16 code, UTF-8 text: 0, no new requests please; else, what the receiver did wrong

Reading: a block of BLOCK bytes is received at once and cut into packets; each small packet costs one bytes object. What
does not fit is received right into the bytes object that will be the payload, together with the header of the next
frame if one has to follow. That object has room for one frame and grows as the bytes come (by a factor), whatever the
sender has in mind. Limits: payload of a packet (max_packet), of a frame (CHUNK, 256 KiB), packets that are incomplete
at a time (max_parts). So memory is bounded by max_parts x max_packet.

Cost: 64 KiB a connection. Rejected: a bytearray that is cut at its front (moves bytes), varints (saves nine bytes of
sixteen and costs every other language a page).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport uint8_t, uint16_t
from libc.string cimport memcmp, memcpy, memmove

from coro.rpc.exceptions import ProtocolError

__all__ = ["CHUNK", "HEADER", "KINDS", "PREAMBLE", "FrameReader", "encode", "preamble"]

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **, Py_ssize_t) except -1
    PyObject *PyBytes_New "PyBytes_FromStringAndSize"(const char *, Py_ssize_t) except NULL
    char *PyBytes_Chars "PyBytes_AS_STRING"(PyObject *)

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint32_t rpc_get32(const char *p) {
        const unsigned char *u = (const unsigned char *)p;
        return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
    }
    static inline void rpc_put32(char *p, uint32_t v) {
        p[0] = (char)(v >> 24); p[1] = (char)(v >> 16); p[2] = (char)(v >> 8); p[3] = (char)v;
    }
    #include <stdlib.h>
    /* glibc returns what is free at the end of its heap to the kernel, and large blocks at once, and each page that
    comes
       back has to be cleared: for payloads of a megabyte, that is most of the work. Freeing a larger block moves its
       limits (mallopt(3), M_MMAP_THRESHOLD). Nothing of the block is touched. */
    static void rpc_large_blocks_ahead(void) {
        void *volatile block = malloc(4 << 20);
        free(block);
    }
    static inline uint64_t rpc_get64(const char *p) { return (uint64_t)rpc_get32(p) << 32 | rpc_get32(p + 4); }
    static inline void rpc_put64(char *p, uint64_t v) { rpc_put32(p, (uint32_t)(v >> 32)); rpc_put32(p + 4,
    (uint32_t)v); }
    """
    void rpc_large_blocks_ahead()
    uint32_t rpc_get32(const char *) nogil
    void rpc_put32(char *, uint32_t) nogil
    uint64_t rpc_get64(const char *) nogil
    void rpc_put64(char *, uint64_t) nogil

cdef enum:
    BLOCK = 65536           # bytes received at once
    FIRST = 262160          # of a payload that does not fit in a block: the first allocation, at most (CHUNK + HEADER)
    SKIPPED_MOST = 1000
    LAST_KIND = 13
    CONTROL_MOST = 64       # payload of PING and PONG

KINDS = {
    "PUSH": 1, "REQUEST": 2, "REPLY": 3, "FAIL": 4, "CANCEL": 5, "ITEM_UP": 6, "END_UP": 7, "ITEM_DOWN": 8,
    "CREDIT_UP": 9, "CREDIT_DOWN": 10, "PING": 11, "PONG": 12, "GOODBYE": 13,
}
_NAMES = {number: name for name, number in KINDS.items()}
cdef bytes MAGIC = b"coro-ps"
cdef enum:
    VERSION = 1

# For Python; the enumeration of the same meaning is in frames.pxd.
globals()["HEADER"] = 16
globals()["PREAMBLE"] = 16
globals()["CHUNK"] = 262144


cdef bint prepared = False              # rpc_large_blocks_ahead() has been called


cdef void put_header(char *p, uint32_t length, int kind, int flags, uint64_t number) noexcept nogil:
    rpc_put32(p, length)
    p[4] = <char>kind
    p[5] = <char>flags
    p[6] = p[7] = 0
    rpc_put64(p + 8, number)


def preamble(max_packet=16777216, window=1048576):
    """The 16 bytes that come before everything else.

    max_packet: bytes of the largest packet that this side accepts. window: bytes that the other side may send on each
    stream before it is given credit. OverflowError above 2**32 - 1."""
    return MAGIC + bytes([VERSION]) + int(max_packet).to_bytes(4, "big") + int(window).to_bytes(4, "big")


def encode(kind, number, payload=b"", chunk=262144):
    """A packet as frames: bytes. chunk: bytes of payload in a frame, at most 256 KiB."""
    cdef bytes data = bytes(payload)
    cdef Py_ssize_t at = 0, n, size = len(data)
    cdef char header[16]
    out = []
    while True:
        n = min(<Py_ssize_t>chunk, size - at)
        put_header(header, n, kind, MORE if at + n < size else 0, number)
        out.append(header[:HEADER])
        out.append(data[at:at + n])
        at += n
        if at >= size:
            return b"".join(out)


cdef class FrameReader:
    """FrameReader(max_packet=16777216, max_parts=4)\n--\n\n\
    What the other side sends, cut into packets.

    max_packet: bytes of payload that a packet may have. max_parts: how many packets may be incomplete at a time.
    ``feed(data)`` returns the packets that are complete as ``(kind, id, payload)``. ProtocolError, from the first byte
    on that breaks the rules; then the reader is of no use any more."""

    # Invariants:
    # 1. 0 <= start <= end <= BLOCK; `data` is not NULL exactly while in_body and not skipping.
    # 2. While in_body, buf holds nothing after the payload has begun to be received directly, until it is complete;
    #    then, perhaps, the next header.

    def __cinit__(self):
        self.buf = <char *>PyMem_RawMalloc(BLOCK)
        if self.buf == NULL:
            raise MemoryError()
        self.block = BLOCK
        self.parts = {}
        self.skipped = set()

    def __init__(self, max_packet=16777216, max_parts=4):
        if max_packet < 1 or max_parts < 1:
            raise ValueError(f"expected limits of at least 1, got max_packet {max_packet} and max_parts {max_parts}")
        self.max_packet = max_packet
        self.max_parts = max_parts

    def __dealloc__(self):
        PyMem_RawFree(self.buf)
        Py_XDECREF(self.data)

    def feed(self, data):
        """The packets that are complete with these bytes, as a list of ``(kind, id, payload)``. Raises
        ProtocolError."""
        cdef const unsigned char[:] view = data
        cdef Py_ssize_t at = 0, n
        cdef char *p
        out = []
        while self.next():
            out.append((self.out_kind, self.out_number, self.whole()))
        while at < view.shape[0]:
            p = self.room(&n)
            n = min(n, view.shape[0] - at)
            memcpy(p, &view[at], n)
            at += n
            self.received(n)
            while self.next():
                out.append((self.out_kind, self.out_number, self.whole()))
        self.out_payload = None
        return out

    @property
    def pending(self):
        """Bytes that are kept of incomplete frames and packets."""
        cdef Py_ssize_t total = self.end - self.start + (self.size + self.before if self.data != NULL else 0)
        for data, size, segments, before in self.parts.values():
            total += size + before
        return total

    @property
    def idle(self):
        """Is this the border between two packets, and nothing is left?"""
        return not self.in_body and self.start == self.end and not self.parts and self.greeted

    cdef bytes whole(self):
        """The payload of the packet, whatever the pieces it came in."""
        if self.out_segments is None:
            return self.out_payload
        return b"".join([self.out_payload, *self.out_segments])

    # -- for the connection

    cdef int bound(self, Py_ssize_t max_packet, int max_parts) except -1:
        """Other limits than those that it was made with: how far the other side is trusted has changed."""
        self.max_packet = max_packet
        self.max_parts = max_parts
        self.block = min(<Py_ssize_t>BLOCK, max_packet + 4 * HEADER)
        return 0

    cdef int drop(self) except -1:
        """The end: give back what was kept, whoever still refers to this object. Nobody is receiving into it."""
        cdef PyObject *data = self.data
        cdef char *small
        self.failed = True
        self.in_body = self.skipping = self.dropping = False
        self.start = self.end = 0
        self.block = HEADER
        small = <char *>PyMem_RawRealloc(self.buf, HEADER)
        if small != NULL:
            self.buf = small
        self.data = NULL
        Py_XDECREF(data)
        self.parts.clear()
        self.skipped.clear()
        self.segments = self.out_segments = None
        self.out_payload = None
        return 0

    cdef char *room(self, Py_ssize_t *n) except NULL:
        """Where to put the next bytes, and how many there is room for."""
        cdef Py_ssize_t rest = self.end - self.start
        if self.in_body and not self.skipping and rest == 0:
            if self.size == self.room_:
                self.grow(min(self.left + HEADER, max(self.size, <Py_ssize_t>FIRST)))
            n[0] = min(self.left, self.room_ - self.size)
            if self.flags & MORE and self.room_ - self.size >= self.left + HEADER:
                n[0] = self.left + HEADER   # the next header comes along; received() moves it to buf
            return PyBytes_Chars(self.data) + self.size
        if self.start:
            if rest:
                memmove(self.buf, self.buf + self.start, rest)
            self.start = 0
            self.end = rest
        n[0] = self.block - self.end
        if self.expects_chunk and not self.in_body and self.end < HEADER:
            n[0] = HEADER - self.end    # so that the payload goes to its place without being copied
        return self.buf + self.end

    cdef int received(self, Py_ssize_t n) except -1:
        cdef Py_ssize_t beyond
        if self.in_body and not self.skipping and self.start == self.end:
            beyond = max(n - self.left, <Py_ssize_t>0)
            n -= beyond
            self.size += n
            self.left -= n
            if beyond:
                memcpy(self.buf, PyBytes_Chars(self.data) + self.size, beyond)
                self.start = 0
                self.end = beyond
        else:
            self.end += n
        return 0

    cdef bint next(self) except -1:
        """Is a packet complete? It stands in out_*."""
        cdef Py_ssize_t n
        if self.failed:
            raise ProtocolError("the stream of packets is broken; make a new connection")
        if not self.greeted:
            if self.end - self.start < PREAMBLE:
                if memcmp(self.buf + self.start, <char *>MAGIC, min(<Py_ssize_t>7, self.end - self.start)) != 0:
                    self.greet()
                return False
            self.greet()
        while True:
            if self.in_body:
                n = min(self.left, self.end - self.start)
                if n and not self.skipping:
                    if self.room_ - self.size < n:
                        self.grow(n)
                    memcpy(PyBytes_Chars(self.data) + self.size, self.buf + self.start, n)
                    self.size += n
                self.start += n
                self.left -= n
                if self.left:
                    return False
                if self.finish_frame():
                    return True
                continue
            if self.end - self.start < HEADER:
                return False
            if self.begin():
                return True

    cdef int greet(self) except -1:
        cdef char *p = self.buf + self.start
        cdef Py_ssize_t n = self.end - self.start
        if n < PREAMBLE or memcmp(p, <char *>MAGIC, 7) != 0:
            self.failed = True
            raise ProtocolError(f"expected the preamble of a packet stream, {MAGIC!r}, and got {p[:min(n, 16)]!r}: the "
                                "other side speaks another protocol (TLS on one side only?)")
        self.peer_version = p[7]
        if p[7] != VERSION:
            self.failed = True
            raise ProtocolError(f"expected version {VERSION} of the packet stream, the other side speaks {<int>p[7]}")
        self.peer_max_packet = rpc_get32(p + 8)
        self.peer_window = rpc_get32(p + 12)
        self.start += PREAMBLE
        self.greeted = True
        return 0

    cdef bint begin(self) except -1:
        """Of a header. True: the whole packet was there."""
        cdef char *p = self.buf + self.start
        cdef Py_ssize_t length = rpc_get32(p)
        cdef int kind = <uint8_t>p[4], flags = <uint8_t>p[5]
        cdef uint64_t number = rpc_get64(p + 8)
        if kind < 1 or kind > LAST_KIND or flags > (MORE | PIECE) or p[6] or p[7]:
            self.failed = True
            raise ProtocolError(f"expected a frame of a kind from 1 to {LAST_KIND}, got the header {p[:HEADER].hex()}")
        if length > CHUNK or length > self.max_packet:
            self.failed = True
            raise ProtocolError(f"expected a frame of at most {min(<Py_ssize_t>CHUNK, self.max_packet)} bytes, got one "
                                f"that announces {length}")
        if kind == CANCEL and length or (kind == CREDIT_UP or kind == CREDIT_DOWN) and length != 4 or \
                (kind == PING or kind == PONG) and length > CONTROL_MOST or \
                flags and (kind == CANCEL or kind >= CREDIT_UP or length == 0):
            self.failed = True
            raise ProtocolError(f"expected a frame of the kind {_NAMES[kind]} as the protocol has it, got one of "
                                f"{length} bytes with the flags {flags}")
        self.frames += 1
        self.start += HEADER
        self.expects_chunk = flags & MORE
        if self.parts or self.skipped or flags or self.end - self.start < length:
            self.kind = kind
            self.flags = flags
            self.number = number
            self.left = length
            self.in_body = True
            key = (kind, number)
            self.skipping = key in self.skipped
            if self.skipping:
                return False
            part = self.parts.pop(key, None)
            if part is None:
                self.segments = None
                self.before = 0
                if flags & PIECE:
                    self.failed = True
                    raise ProtocolError("expected the first frame of a packet without the flag PIECE")
                if flags and len(self.parts) >= self.max_parts:
                    self.failed = True
                    raise ProtocolError(f"expected at most {self.max_parts} incomplete packets, got one more")
                # No more than a frame can have; memory that nothing has come for is not touched.
                self.room_ = self.first_room(length, flags)
                self.data = PyBytes_New(NULL, self.room_)
                self.size = 0
            else:
                data, self.size, self.segments, self.before = part
                part = None
                if self.before + self.size + length > self.max_packet:
                    self.failed = True
                    raise ProtocolError(f"expected a packet of at most {self.max_packet} bytes, got more")
                if flags & PIECE:
                    self.before += self.size
                    self.data = <PyObject *>data
                    Py_INCREF(data)
                    data = None
                    _PyBytes_Resize(&self.data, self.size)
                    if self.segments is None:
                        self.segments = []
                    self.segments.append(<object>self.data)
                    Py_XDECREF(self.data)
                    self.room_ = self.first_room(length, flags)
                    self.data = NULL
                    self.data = PyBytes_New(NULL, self.room_)
                    self.size = 0
                    return False
                self.data = <PyObject *>data
                Py_INCREF(data)
                data = None
                self.room_ = PyBytes_GET_SIZE(<object>self.data)
            return False
        self.out_segments = None
        self.out_kind = kind
        self.out_number = number
        self.out_payload = PyBytes_FromStringAndSize(self.buf + self.start, length)
        self.start += length
        self.packets += 1
        return True

    cdef Py_ssize_t first_room(self, Py_ssize_t length, int flags) noexcept:
        """How much to allocate for a frame's payload, and for the header that has to follow it."""
        return max(<Py_ssize_t>1, min(<Py_ssize_t>FIRST, length + HEADER if flags & MORE else length))

    cdef int grow(self, Py_ssize_t wanted) except -1:
        """Room for so many more bytes. Grows by a factor, so that growing costs each byte a constant."""
        global prepared
        cdef Py_ssize_t room = max(self.size + wanted, min(self.room_ * 4, self.max_packet))
        if not prepared and room > CHUNK:
            prepared = True
            rpc_large_blocks_ahead()
        cdef PyObject *data = self.data
        self.data = NULL        # _PyBytes_Resize() frees it when it fails
        _PyBytes_Resize(&data, room)
        self.data = data
        self.room_ = room
        return 0

    cdef bint finish_frame(self) except -1:
        """All of a frame's payload is there. True: it was a packet's last."""
        cdef PyObject *data
        self.in_body = False
        if self.skipping:
            self.skipping = False
            if not self.flags & MORE:
                self.skipped.discard((self.kind, self.number))
            return False
        data = self.data
        self.data = NULL
        if self.dropping:
            self.dropping = False
            Py_DECREF(<object>data)
            return False
        if self.flags & MORE:
            whole = <object>data
            Py_DECREF(whole)
            self.parts[self.kind, self.number] = (whole, self.size, self.segments, self.before)
            self.segments = None
            return False
        if self.size != PyBytes_GET_SIZE(<object>data):
            _PyBytes_Resize(&data, self.size)
        self.out_payload = <object>data
        Py_DECREF(self.out_payload)
        self.out_segments = self.segments
        self.segments = None
        if self.out_segments is not None:
            # The first is the payload, the others are what comes behind it.
            self.out_segments.append(self.out_payload)
            self.out_payload = self.out_segments.pop(0)
        self.out_kind = self.kind
        self.out_number = self.number
        self.packets += 1
        return True

    def skip(self, kind, number):
        """Forget what has come of this packet, and let the rest of it pass: nobody wants it. Raises ProtocolError when
        the other side has left too many of such packets without an end."""
        key = (kind, number)
        if self.in_body and not self.skipping and not self.dropping and self.kind == kind and self.number == number:
            # A thread may be receiving into it right now.
            self.dropping = True
            if not self.flags & MORE:
                return
        elif self.parts.pop(key, None) is None:
            return
        self.skipped.add(key)
        if len(self.skipped) > SKIPPED_MOST:
            self.failed = True
            raise ProtocolError(f"expected packets to come to an end, {SKIPPED_MOST} that were cancelled have none")
