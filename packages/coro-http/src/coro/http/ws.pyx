# cython: language_level=3, nonecheck=True
"""The WebSocket wire format (RFC 6455) with permessage-deflate (RFC 7692), without I/O: bytes in, events out.

    codec = Codec("server")
    codec.feed(received)
    while (event := codec.next_event()) is not None:
        if isinstance(event, Message):
            to_send = codec.message(event.data)

The idea. One object for each connection and both directions; "client" and "server" differ only in who masks. A frame
that arrives whole and alone, as nearly all do, is turned into its `str` or `bytes` straight from what was received.
Everything else goes through one buffer of the message, which grows with the bytes that have come and never by what a
length announces. Text is checked while it arrives, so that a fault is reported at the first wrong byte (RFC 6455,
section 8.1), and inflating stops as soon as a message is larger than allowed.

Limits, with their reasons:
- max_frame, max_message: bytes on the wire; 1 MiB is what other libraries allow by default ("websockets").
- max_inflated: a compressed message may be 1000 times larger than its bytes, so this has a limit of its own.
- max_fragments: a message may come in fragments without any byte in them; each costs the receiver work.

Cost: about 240 bytes an object, and the buffer of a message under way; permessage-deflate adds what zlib takes, for
windows of 12 bits about 20 KB to compress and 12 KB to inflate.
"""

# Rejected: zlib through its C interface, which would need its headers wherever this is compiled, for a microsecond a
# message.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

import os
import zlib

from coro.http.exceptions import LocalError, TooMuchData, UnknownOpcode, WebSocketProtocolError as ProtocolError

__all__ = ["Close", "Codec", "Event", "Fragment", "Message", "Ping", "Pong"]

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *) except NULL
    bint PyUnicode_IS_ASCII(object)

cdef extern from "http/_ws_bytes.h":
    void ws_mask(unsigned char *dst, const unsigned char *src, size_t n, const unsigned char *key,
                 unsigned phase) nogil
    int ws_utf8_feed(ws_utf8 *s, const unsigned char *p, size_t n) nogil

# Opcodes (RFC 6455, section 5.2).
DEF CONTINUATION = 0
DEF TEXT = 1
DEF BINARY = 2
DEF CLOSE = 8
DEF PING = 9
DEF PONG = 10

#: Bytes of a message buffer that is kept for the next message; a larger one is given back, for idle connections.
DEF KEPT = 1024
#: Bytes inflated in one go.
DEF INFLATE_STEP = 65536
#: Compressed messages may end a deflate stream and begin another (RFC 7692, section 7.2.3.4); each costs an object of
#: zlib's, so that a message made of nothing else would cost much time.
DEF MOST_STREAMS = 16

TAIL = b"\x00\x00\xff\xff"

# -- random masks: RFC 6455, section 10.3, wants them unpredictable, and a system call a frame is much

DEF POOL = 4096
cdef bytes _pool = None
cdef Py_ssize_t _pool_at = POOL


def _forget_pool():
    """In a forked process: it must not use the masks that the parent will use."""
    global _pool_at
    _pool_at = POOL


os.register_at_fork(after_in_child=_forget_pool)


cdef const unsigned char *next_mask() except NULL:
    """Four random bytes, valid until the next call."""
    global _pool, _pool_at
    if _pool_at + 4 > POOL:
        _pool = os.urandom(POOL)
        _pool_at = 0
    cdef const unsigned char *mask = <const unsigned char *> PyBytes_AS_STRING(_pool) + _pool_at
    _pool_at += 4
    return mask


# -- events

cdef class Event:
    """What ``Codec.next_event`` returns: one of the classes below."""


cdef class Message(Event):
    """A whole message. ``data``: ``str`` for text, ``bytes`` for binary."""
    __match_args__ = ("data",)

    def __init__(self, data):
        self.data = data

    def __repr__(self):
        return f"Message({_shown(self.data)})"


cdef class Fragment(Event):
    """A data frame, where messages are not assembled (``Codec(assemble=False)``).

    ``data``: the payload, as bytes. ``opcode``: 1 text, 2 binary, 0 for what continues a message. ``final``: whether
    the message ends with it. ``mask``: the four bytes that it was masked with, or None.
    """
    __match_args__ = ("data", "opcode", "final")

    def __init__(self, data, opcode, final, mask=None):
        self.data = data
        self.opcode = opcode
        self.final = final
        self.mask = mask

    def __repr__(self):
        return f"Fragment({_shown(self.data)}, opcode={self.opcode}, final={self.final})"


cdef class Ping(Event):
    """A ping; answer it with ``codec.pong(event.payload)`` (RFC 6455, section 5.5.2)."""
    __match_args__ = ("payload",)

    def __init__(self, payload=b""):
        self.payload = payload

    def __repr__(self):
        return f"Ping({self.payload!r})"


cdef class Pong(Event):
    """A pong, asked for or not."""
    __match_args__ = ("payload",)

    def __init__(self, payload=b""):
        self.payload = payload

    def __repr__(self):
        return f"Pong({self.payload!r})"


cdef class Close(Event):
    """The peer closes. ``code`` is 1005 when it gave none (RFC 6455, section 7.1.5). Answer it with
    ``codec.close(...)`` unless that was sent before; what follows on the wire is ignored."""
    __match_args__ = ("code", "reason")

    def __init__(self, code=1005, reason=""):
        self.code = code
        self.reason = reason

    def __repr__(self):
        return f"Close({self.code}, {self.reason!r})"


def _shown(data):
    """A repr that a large message does not fill a log with."""
    if len(data) <= 80:
        return repr(data)
    return f"{data[:60]!r}... {len(data)} {'characters' if isinstance(data, str) else 'bytes'}"


cpdef inline bint may_be_sent(int code):
    """Close codes that may stand in a frame: RFC 6455, section 7.4, and 1012 to 1014 of IANA's registry."""
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


cdef class Codec:
    """One side of a WebSocket connection.

    role: ``"client"`` or ``"server"``. max_frame, max_message: most bytes on the wire. max_inflated: most bytes of a
    message after inflating. max_fragments: most frames of a message. None is no limit. deflate: the parameters of
    permessage-deflate that both sides agreed on (``coro.http.websocket.Deflate``), or None. assemble: whether whole
    messages are reported; otherwise each frame is, with at most ``max_frame`` bytes at a time in memory. Compressed
    messages have to be assembled.

    Raises LocalError for wrong arguments.
    """
    # Invariants:
    #
    # 1. `step` never looks at a byte twice.
    # 2. The message buffer holds no more than twice the bytes that have arrived, or been inflated, for this message.
    # 3. After an error of the peer every further call raises it again.

    def __cinit__(self):
        self.data = b""
        self.mask_phase = 0

    def __init__(
        self,
        role,
        *,
        max_frame=1 << 20,
        max_message=1 << 20,
        max_inflated=4 << 20,
        max_fragments=4096,
        deflate=None,
        assemble=True,
    ):
        if self.max_fragments:
            raise RuntimeError("a Codec cannot be initialised twice: make a new one")
        if role not in ("client", "server"):
            raise LocalError(f"expected the role 'client' or 'server', not {role!r}")
        if deflate is not None and not assemble:
            raise LocalError("compressed messages have to be assembled: leave out deflate, or assemble=False")
        self.is_client = role == "client"
        self.max_frame = _limit(max_frame, "max_frame")
        self.max_message = _limit(max_message, "max_message")
        self.max_inflated = _limit(max_inflated, "max_inflated")
        most_fragments = _limit(max_fragments, "max_fragments")
        self.assemble = assemble
        self.deflate = deflate
        self.threshold = 0
        if deflate is not None:
            self.threshold = deflate.threshold
            if self.is_client:
                self.in_bits, self.out_bits = deflate.server_max_window_bits, deflate.client_max_window_bits
                self.in_fresh = deflate.server_no_context_takeover
                self.out_fresh = deflate.client_no_context_takeover
            else:
                self.in_bits, self.out_bits = deflate.client_max_window_bits, deflate.server_max_window_bits
                self.in_fresh = deflate.client_no_context_takeover
                self.out_fresh = deflate.server_no_context_takeover
            if self.out_bits < 9:
                raise LocalError("zlib cannot compress with a window of 8 bits: decline this offer")
        self.max_fragments = most_fragments

    def __dealloc__(self):
        PyMem_Free(self.message_data)

    def __repr__(self):
        state = (
            "failed" if self.error is not None
            else "closed" if self.close_sent and self.close_received
            else "closing" if self.close_sent or self.close_received
            else "open"
        )
        return f"<Codec: {'client' if self.is_client else 'server'}, {state}>"

    @property
    def role(self):
        """``"client"`` or ``"server"``."""
        return "client" if self.is_client else "server"

    # -- receiving

    def feed(self, data):
        """Take received bytes. Take the events out after each call, so that nothing piles up.

        Raises TypeError for something that is not bytes-like.
        """
        self.c_feed(data if type(data) is bytes else bytes(memoryview(data)))

    cdef int c_feed(self, bytes data) except -1:
        if self.close_received or self.error is not None:
            return 0
        if self.at == PyBytes_GET_SIZE(self.data):
            self.data = data
            self.at = 0
        elif self.more is None:
            self.more = [data]
        else:
            self.more.append(data)
        return 0

    def next_event(self):
        """The next event, or None when more bytes are needed.

        Raises WebSocketProtocolError, or its children TooMuchData and UnknownOpcode, when the peer breaks the rules or
        a limit: send ``close(error.code, error.reason)`` and end the connection.
        """
        cdef int kind = self.step()
        if kind == NOTHING:
            return None
        value, self.value = self.value, None
        if kind == TEXT or kind == BINARY:
            return Message(value)
        if kind == FRAGMENT:
            return value
        if kind == PING:
            return Ping(value)
        if kind == PONG:
            return Pong(value)
        return Close(self.close_code, value)

    def events(self):
        """All events that there are, as an iterator. Raises what ``next_event`` raises."""
        while True:
            event = self.next_event()
            if event is None:
                return
            yield event

    cdef int step(self) except -1:
        """The next event: its kind, and the data in ``value``. NOTHING when more bytes are needed."""
        cdef const unsigned char *p
        cdef Py_ssize_t there, n
        cdef int kind
        if self.error is not None:
            raise self.error.with_traceback(None)
        while True:
            there = PyBytes_GET_SIZE(self.data) - self.at
            if there == 0 and (self.stage == IN_HEADER or self.left > 0):
                if not self.next_chunk():
                    return NOTHING
                continue
            p = <const unsigned char *> PyBytes_AS_STRING(self.data) + self.at
            if self.stage == IN_HEADER:
                n = self.header(p, there)
                self.at += n
                continue
            n = self.left if self.left < <uint64_t> there else there
            self.at += n
            kind = self.payload(p, n)
            if kind != NOTHING:
                return kind

    cdef bint next_chunk(self):
        """Go on with what was fed while there was something left. False: there is nothing."""
        self.data = b""
        self.at = 0
        if self.more is None:
            return False
        self.data = self.more.pop(0)
        if not self.more:
            self.more = None
        return True

    cdef Py_ssize_t header(self, const unsigned char *p, Py_ssize_t there) except -1:
        """Use bytes for a header. Returns how many; when it is complete, the frame has begun."""
        cdef Py_ssize_t used = 0, need
        cdef uint8_t size
        cdef const unsigned char *h = p
        if self.header_have == 0 and there >= 2:
            need = 2 + extra_bytes(p[1])
            if there >= need:
                self.begin_frame(p, need)
                return need
        # It comes in pieces.
        while used < there:
            self.header_bytes[self.header_have] = p[used]
            self.header_have += 1
            used += 1
            if self.header_have >= 2:
                need = 2 + extra_bytes(self.header_bytes[1])
                if self.header_have == need:
                    self.header_have = 0
                    self.begin_frame(self.header_bytes, need)
                    return used
                if self.header_have == 2:
                    self.check_second(self.header_bytes[0] & 15, self.header_bytes[1])
            else:
                self.check_first(self.header_bytes[0])
        return used

    cdef int check_first(self, uint8_t first) except -1:
        """The rules for the first byte of a frame (RFC 6455, sections 5.2 and 5.4; RFC 7692, section 6)."""
        cdef int opcode = first & 15
        if first & 0x30 or (first & 0x40 and (self.deflate is None or opcode == CONTINUATION or opcode >= CLOSE)):
            self.fail(ProtocolError(
                1002, f"reserved bits {first >> 4 & 7:03b} in a frame with opcode {opcode}, expected none that was not "
                "agreed on"
            ))
        if opcode > PONG or BINARY < opcode < CLOSE:
            self.fail(UnknownOpcode(opcode))
        if opcode >= CLOSE:
            if not first & 0x80:
                self.fail(ProtocolError(1002, f"a control frame (opcode {opcode}) that is fragmented"))
        elif opcode == CONTINUATION:
            if not self.in_message:
                self.fail(ProtocolError(1002, "a continuation frame, and no message to continue"))
        elif self.in_message:
            self.fail(ProtocolError(1002, f"a new message (opcode {opcode}) before the end of the last"))
        return 0

    cdef int check_second(self, int opcode, uint8_t second) except -1:
        """Those for the second byte (sections 5.1 and 5.5)."""
        if bool(second & 0x80) == self.is_client:
            if self.is_client:
                self.fail(ProtocolError(1002, "a masked frame from a server"))
            self.fail(ProtocolError(1002, "an unmasked frame from a client"))
        if opcode >= CLOSE and second & 127 > 125:
            self.fail(ProtocolError(1002, "a control frame of more than 125 bytes"))
        return 0

    cdef int begin_frame(self, const unsigned char *h, Py_ssize_t size) except -1:
        cdef uint64_t length = h[1] & 127
        cdef int opcode = h[0] & 15
        cdef int i
        self.check_first(h[0])
        self.check_second(opcode, h[1])
        if length == 126:
            length = <uint64_t> h[2] << 8 | h[3]
            if length < 126:
                self.fail(ProtocolError(1002, f"a length of {length} in two bytes, expected the shortest form"))
        elif length == 127:
            length = 0
            for i in range(8):
                length = length << 8 | h[2 + i]
            if length < 65536:
                self.fail(ProtocolError(1002, f"a length of {length} in eight bytes, expected the shortest form"))
            if length >> 63:
                self.fail(ProtocolError(1002, "a length with its highest bit set"))
        if not self.is_client:
            memcpy(self.mask, h + size - 4, 4)
        self.mask_phase = 0
        self.opcode = opcode
        self.final = h[0] >> 7
        if opcode >= CLOSE:
            self.control_have = 0
        else:
            if length > self.max_frame:
                self.fail(
                    TooMuchData(f"a frame of {length} bytes; at most {self.max_frame} are allowed", self.max_frame)
                )
            if opcode != CONTINUATION:
                self.in_message = True
                self.message_opcode = opcode
                self.message_wire = 0
                self.message_have = 0
                self.frames = 0
                self.utf8.missing = 0
                self.compressed = h[0] >> 6 & 1
                if self.compressed and (self.inflater is None or self.in_fresh):
                    self.inflater = zlib.decompressobj(-self.in_bits)
                    self.streams = 0
            self.frames += 1
            if self.frames > self.max_fragments:
                self.fail(ProtocolError(1008, f"a message of more than {self.max_fragments} fragments"))
            self.message_wire += length
            if self.assemble and self.message_wire > self.max_message:
                self.fail(TooMuchData(
                    f"a message of at least {self.message_wire} bytes; at most {self.max_message} are allowed",
                    self.max_message,
                ))
            if not self.assemble:
                self.message_have = 0
        self.left = length
        self.stage = IN_PAYLOAD
        return 0

    cdef int payload(self, const unsigned char *p, Py_ssize_t n) except -1:
        """Use bytes of a payload, all of them. Returns the kind of event that is complete, or NOTHING."""
        cdef bint whole = <uint64_t> n == self.left
        self.left -= n
        if whole:
            self.stage = IN_HEADER
        if self.opcode >= CLOSE:
            if self.is_client:
                memcpy(self.control + self.control_have, p, n)
            else:
                ws_mask(self.control + self.control_have, p, n, self.mask, self.mask_phase)
                self.mask_phase = (self.mask_phase + n) & 3
            self.control_have += n
            return self.end_control() if whole else NOTHING
        if self.compressed:
            self.inflate(p, n)
        elif whole and self.final and self.message_have == 0 and self.assemble and (
                self.opcode == BINARY or self.opcode == TEXT):
            return self.direct(p, n)
        else:
            self.gather(p, n)
        if not whole:
            return NOTHING
        if not self.assemble:
            return self.end_fragment()
        return self.end_message() if self.final else NOTHING

    cdef int direct(self, const unsigned char *p, Py_ssize_t n) except -1:
        """A message in one frame that has come in one piece: no buffer for binary data."""
        cdef int kind = self.opcode
        self.in_message = False
        if kind == BINARY:
            data = PyBytes_FromStringAndSize(<const char *> p if self.is_client else NULL, n)
            if not self.is_client:
                ws_mask(<unsigned char *> PyBytes_AS_STRING(data), p, n, self.mask, 0)
            self.value = data
            return kind
        if not self.is_client:
            self.grow(n)
            ws_mask(self.message_data, p, n, self.mask, 0)
            p = self.message_data
        try:
            self.value = PyUnicode_DecodeUTF8(<const char *> p, n, NULL)
        except UnicodeDecodeError as e:
            self.fail(not_utf8(e))
        self.let_go()
        return kind

    cdef int gather(self, const unsigned char *p, Py_ssize_t n) except -1:
        """Append to the message buffer, unmasked, and check text."""
        cdef unsigned char *to
        if n == 0:
            return 0
        self.grow(self.message_have + n)
        to = self.message_data + self.message_have
        if self.is_client:
            memcpy(to, p, n)
        else:
            ws_mask(to, p, n, self.mask, self.mask_phase)
            self.mask_phase = (self.mask_phase + n) & 3
        self.message_have += n
        if self.message_opcode == TEXT and ws_utf8_feed(&self.utf8, to, n) < 0:
            self.fail(not_utf8(None))
        return 0

    cdef int inflate(self, const unsigned char *p, Py_ssize_t n) except -1:
        """Inflate payload bytes into the message buffer, never more than allowed."""
        # Made empty: with its byte given, an object of one byte would be the one that everybody shares.
        data = PyBytes_FromStringAndSize(NULL, n)
        if self.is_client:
            memcpy(PyBytes_AS_STRING(data), p, n)
        else:
            ws_mask(<unsigned char *> PyBytes_AS_STRING(data), p, n, self.mask, self.mask_phase)
            self.mask_phase = (self.mask_phase + n) & 3
        self.inflate_more(data)
        if self.left == 0 and self.final:
            self.inflate_more(TAIL)
        return 0

    cdef int inflate_more(self, bytes data) except -1:
        cdef Py_ssize_t room, n, step
        cdef bytes out
        while True:
            room = self.max_inflated - self.message_have
            # One more than allowed: to see that there is more. Never 0, which would mean "all of it".
            step = room + 1 if room < INFLATE_STEP else INFLATE_STEP
            try:
                out = self.inflater.decompress(data, step)
            except zlib.error as e:
                self.fail(ProtocolError(1007, f"compressed data that zlib refuses: {e}"), e)
            n = PyBytes_GET_SIZE(out)
            if n > room:
                self.fail(TooMuchData(
                    f"a message of more than {self.max_inflated} bytes when inflated", self.max_inflated
                ))
            self.grow(self.message_have + n)
            memcpy(self.message_data + self.message_have, PyBytes_AS_STRING(out), n)
            if self.message_opcode == TEXT and ws_utf8_feed(&self.utf8, self.message_data + self.message_have, n) < 0:
                self.fail(not_utf8(None))
            self.message_have += n
            data = self.inflater.unconsumed_tail
            if self.inflater.eof:
                data = self.next_stream(self.inflater.unused_data)
            # A full step may have left output inside zlib, though all input is used.
            if not data and n < step:
                return 0

    cdef bytes next_stream(self, bytes rest):
        """The last block was marked as such (RFC 7692, section 7.2.3.4). The next may refer to what came before it,
        which is still there if it is of this message. Returns what is left to inflate."""
        cdef Py_ssize_t n = min(self.message_have, <Py_ssize_t> 1 << self.in_bits)
        self.streams += 1
        if self.streams > MOST_STREAMS:
            self.fail(ProtocolError(1008, f"more than {MOST_STREAMS} compressed streams in a message"))
        if n:
            window = PyBytes_FromStringAndSize(<char *> self.message_data + self.message_have - n, n)
            self.inflater = zlib.decompressobj(-self.in_bits, window)
        else:
            self.inflater = zlib.decompressobj(-self.in_bits)
        return rest

    cdef int end_message(self) except -1:
        cdef int kind = self.message_opcode
        self.in_message = False
        if self.compressed:
            self.streams = 0
            if self.in_fresh:
                self.inflater = None
        if kind == TEXT:
            if self.utf8.missing:
                self.fail(not_utf8(None))
            self.value = PyUnicode_DecodeUTF8(<const char *> self.message_data, self.message_have, NULL)
        else:
            self.value = PyBytes_FromStringAndSize(<const char *> self.message_data, self.message_have)
        self.let_go()
        return kind

    cdef int end_fragment(self) except -1:
        if self.final:
            self.in_message = False
            if self.message_opcode == TEXT and self.utf8.missing:
                self.fail(not_utf8(None))
        self.value = Fragment(
            PyBytes_FromStringAndSize(<const char *> self.message_data, self.message_have),
            self.opcode,
            bool(self.final),
            None if self.is_client else (<char *> self.mask)[:4],
        )
        self.let_go()
        return FRAGMENT

    cdef int end_control(self) except -1:
        cdef int code
        data = PyBytes_FromStringAndSize(<const char *> self.control, self.control_have)
        if self.opcode != CLOSE:
            self.value = data
            return self.opcode
        if self.control_have == 0:
            self.close_code = 1005
            self.value = ""
        else:
            if self.control_have == 1:
                self.fail(ProtocolError(1002, "a close frame of one byte, expected none or a code of two"))
            code = self.control[0] << 8 | self.control[1]
            if not may_be_sent(code):
                self.fail(ProtocolError(1002, f"the close code {code}, which may not be sent"))
            try:
                self.value = data[2:].decode()
            except UnicodeDecodeError as e:
                self.fail(not_utf8(e))
            self.close_code = code
        self.close_received = True
        self.data = b""
        self.at = 0
        self.more = None
        self.stage = IN_HEADER
        return CLOSE

    cdef int grow(self, Py_ssize_t size) except -1:
        """Have a message buffer of at least this size."""
        cdef Py_ssize_t room = self.message_room
        cdef void *bigger
        if size <= room:
            return 0
        room *= 2
        if room < size:
            room = size
        if room < 128:
            room = 128
        bigger = PyMem_Realloc(self.message_data, room)
        if bigger == NULL:
            raise MemoryError()
        self.message_data = <unsigned char *> bigger
        self.message_room = room
        return 0

    cdef void let_go(self) noexcept:
        """The message is out: give back a large buffer."""
        self.message_have = 0
        if self.message_room > KEPT:
            PyMem_Free(self.message_data)
            self.message_data = NULL
            self.message_room = 0

    cdef int fail(self, error, cause=None) except -1:
        """The peer is at fault: now, and whenever somebody asks again."""
        self.error = error
        self.data = b""
        self.at = 0
        self.more = None
        self.message_have = 0
        self.let_go()
        raise error from cause

    # -- sending

    def message(self, data, *, compress=None):
        """A whole message as one frame: ``str`` is sent as text, anything bytes-like as binary.

        compress: whether, when permessage-deflate was agreed on; None means when it has at least ``threshold`` bytes.
        Raises LocalError for other data, for text that is not Unicode (lone surrogates), and after ``close``.
        """
        return self.c_message(data, -1 if compress is None else bool(compress))

    cdef bytes c_message(self, data, int compress):
        cdef Py_buffer view
        cdef const char *p
        cdef Py_ssize_t n
        cdef bytes owned
        if self.open_message:
            raise LocalError("a message of several fragments is under way: end it with final=True first")
        if type(data) is bytes:
            return self.data_frame(BINARY, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), compress)
        if isinstance(data, str):
            if PyUnicode_IS_ASCII(data):
                p = PyUnicode_AsUTF8AndSize(data, &n)
                return self.data_frame(TEXT, p, n, compress)
            owned = utf8_of(data)
            return self.data_frame(TEXT, PyBytes_AS_STRING(owned), PyBytes_GET_SIZE(owned), compress)
        get_view(data, &view)
        try:
            return self.data_frame(BINARY, <const char *> view.buf, view.len, compress)
        finally:
            PyBuffer_Release(&view)

    cdef bytes data_frame(self, int opcode, const char *p, Py_ssize_t n, int compress):
        if self.close_sent:
            raise LocalError("nothing can be sent after a close frame")
        if self.deflate is None or compress == 0 or (compress < 0 and n < self.threshold):
            return self.frame(0x80 | opcode, p, n)
        packed = self.packed(PyBytes_FromStringAndSize(p, n), True)
        return self.frame(0xC0 | opcode, PyBytes_AS_STRING(packed), PyBytes_GET_SIZE(packed))

    cdef bytes packed(self, bytes data, bint final):
        """Compressed (RFC 7692, section 7.2.1); the last four bytes of a message are left out."""
        if self.deflater is None:
            self.deflater = zlib.compressobj(
                self.deflate.level, zlib.DEFLATED, -self.out_bits, self.deflate.memory_level
            )
        out = self.deflater.compress(data) + self.deflater.flush(zlib.Z_SYNC_FLUSH)
        if not final:
            return out
        if self.out_fresh:
            self.deflater = None
        # An empty message would be no block at all, and needs one (section 7.2.3.6).
        return out[:-4] or b"\x00"

    def fragment(self, data, *, final):
        """A part of a message, which ends with the part that has ``final=True``. The first says whether the message is
        text (``str``) or binary; the others have to be alike. Ping, pong and close may stand between. Parts are not
        compressed, see ``fragments``.

        Raises LocalError as ``message`` does, and when text and binary are mixed.
        """
        text = isinstance(data, str)
        if self.close_sent:
            raise LocalError("nothing can be sent after a close frame")
        if self.open_message and (self.open_message == TEXT) != text:
            raise LocalError("a message is text or binary throughout: all fragments str, or all bytes-like")
        payload = utf8_of(data) if text else bytes_of(data)
        opcode = CONTINUATION if self.open_message else TEXT if text else BINARY
        self.open_message = 0 if final else TEXT if text else BINARY
        return self.frame((0x80 if final else 0) | opcode, PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))

    def fragments(self, data, size=65536, *, compress=None):
        """A whole message as an iterator of frames with at most ``size`` bytes of payload, so that control frames can
        be sent between. Compressed as a whole, as ``message`` does. Raises what ``message`` raises, at once.
        """
        if self.open_message:
            raise LocalError("a message of several fragments is under way: end it with final=True first")
        if self.close_sent:
            raise LocalError("nothing can be sent after a close frame")
        if size < 1:
            raise LocalError(f"expected fragments of at least 1 byte, not {size}")
        text = isinstance(data, str)
        payload = utf8_of(data) if text else bytes_of(data)
        first = TEXT if text else BINARY
        if self.deflate is not None and compress is not False and (compress or len(payload) >= self.threshold):
            payload = self.packed(payload, True)
            first |= 0x40
        return self._fragments(payload, first, size)

    def _fragments(self, bytes payload not None, int first, Py_ssize_t size):
        cdef Py_ssize_t at = 0, total = PyBytes_GET_SIZE(payload)
        cdef const char *p = PyBytes_AS_STRING(payload)
        while True:
            if at + size >= total:
                yield self.frame(0x80 | first, p + at, total - at)
                return
            yield self.frame(first, p + at, size)
            first = CONTINUATION
            at += size

    def ping(self, payload=b""):
        """A ping frame. Raises LocalError for more than 125 bytes, and after ``close``."""
        return self.control_frame(PING, payload)

    def pong(self, payload=b""):
        """A pong frame: the answer to a ping with the same payload. Raises LocalError as ``ping`` does."""
        return self.control_frame(PONG, payload)

    cdef bytes control_frame(self, int opcode, payload):
        if self.close_sent:
            raise LocalError("nothing can be sent after a close frame")
        data = utf8_of(payload) if isinstance(payload, str) else bytes_of(payload)
        if len(data) > 125:
            raise LocalError(f"expected at most 125 bytes in a ping or pong, not {len(data)}")
        return self.frame(0x80 | opcode, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    def close(self, code=1000, reason=""):
        """A close frame; nothing can be sent after it. code: why, see RFC 6455, section 7.4.1; None or 1005 sends none.
        reason: text for logs, of at most 123 bytes in UTF-8.

        Raises LocalError for a code that may not be sent, for a longer reason, and the second time.
        """
        if self.close_sent:
            raise LocalError("a close frame has been sent before")
        text = utf8_of(reason)
        if code is None or code == 1005:
            if text:
                raise LocalError("a reason needs a code")
            data = b""
        else:
            if not isinstance(code, int) or not may_be_sent(code if 0 <= code < 65536 else 0):
                raise LocalError(
                    f"the close code {code!r} may not be sent: expected 1000 to 1003, 1007 to 1014 or 3000 to 4999"
                )
            if len(text) > 123:
                raise LocalError(f"expected a reason of at most 123 bytes, not {len(text)}")
            data = int(code).to_bytes(2, "big") + text
        self.close_sent = True
        return self.frame(0x80 | CLOSE, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    cdef bytes frame(self, int first, const char *p, Py_ssize_t n):
        cdef unsigned char *to
        cdef Py_ssize_t size = 2
        cdef int i
        cdef const unsigned char *mask
        cdef bytes out
        if n > 65535:
            size = 10
        elif n > 125:
            size = 4
        if self.is_client:
            size += 4
        out = PyBytes_FromStringAndSize(NULL, size + n)
        to = <unsigned char *> PyBytes_AS_STRING(out)
        to[0] = first
        if n > 65535:
            to[1] = 127
            for i in range(8):
                to[2 + i] = <unsigned char> (<uint64_t> n >> (56 - 8 * i))
        elif n > 125:
            to[1] = 126
            to[2] = n >> 8
            to[3] = n & 255
        else:
            to[1] = n
        if self.is_client:
            mask = next_mask()
            to[1] |= 0x80
            memcpy(to + size - 4, mask, 4)
            ws_mask(to + size, <const unsigned char *> p, n, mask, 0)
        else:
            memcpy(to + size, p, n)
        return out

    @property
    def closing(self):
        """Whether a close frame was sent or received."""
        return self.close_sent or self.close_received

    @property
    def closed(self):
        """Whether close frames were sent and received: the connection can be ended."""
        return self.close_sent and self.close_received


cdef inline Py_ssize_t extra_bytes(uint8_t second):
    """How many bytes of a header follow the first two."""
    cdef Py_ssize_t n = 4 if second & 0x80 else 0
    second &= 127
    if second == 126:
        return n + 2
    if second == 127:
        return n + 8
    return n


cdef object not_utf8(cause):
    error = ProtocolError(1007, "text that is not UTF-8")
    error.__cause__ = cause
    return error


cdef bytes utf8_of(text):
    try:
        return text.encode()
    except UnicodeEncodeError as e:
        raise LocalError(f"expected text that can be sent as UTF-8: {e}") from e
    except AttributeError:
        raise LocalError(f"expected text as a str, not {type(text).__name__}") from None


cdef bytes bytes_of(data):
    if type(data) is bytes:
        return data
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise LocalError(
            f"expected a str to send as text, or something bytes-like to send as binary, not {type(data).__name__}"
        ) from None


cdef int get_view(data, Py_buffer *view) except -1:
    try:
        PyObject_GetBuffer(data, view, PyBUF_SIMPLE)
    except (TypeError, BufferError) as e:
        raise LocalError(
            f"expected a str to send as text, or something bytes-like and contiguous to send as binary, not "
            f"{type(data).__name__}"
        ) from e
    return 0


cdef uint64_t _limit(value, what) except? 0:
    if value is None:
        return <uint64_t> 1 << 62
    if not isinstance(value, int) or value < 0 or value > 1 << 62:
        raise LocalError(f"expected a number of at least 0 or None as {what}, not {value!r}")
    return value
