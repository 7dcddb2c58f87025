# cython: language_level=3, nonecheck=True, boundscheck=False, wraparound=False
# cython: embedsignature=True, embedsignature.format=clinic
"""The state machines of a connection and its channels, in both roles, without I/O: bytes in, events out, and back.

What a frame is: section 4.2.3 of the specification; contents 4.2.6; the order of the handshake 2.2.4; channels 2.2.5.
A peer that breaks it gets no second chance: `receive` raises ProtocolError, with the events before it returned first.

Idea: what millions of messages need makes one Python object each, the `Message`. Methods that carry a message are read
from the frame into C structures; strings that are the same as in the message before (its consumer tag, exchange,
routing key) are that same `str`; properties stay encoded until somebody asks. Frames are written into one buffer, from
which the caller takes all at once. Bodies above COPIED bytes are not copied but handed out as slices.

Limits: a frame is refused by its announced length before its bytes are waited for; a message by its announced size
before its body. What is kept grows as bytes arrive. Cost: about a third of a microsecond for a message in either
direction.

Invariants:

1. `out` and `pieces` hold whole frames, and the frames of one message follow one another.
2. An encoding error leaves `out` as it was.
3. After an error nothing is parsed any more.
4. `late` has the numbers that the server has closed, until it opens them again. What comes on them is of the opening
   before: RabbitMQ's reader sends channel.close while the channel's writer may have deliveries left to send.

Longer than most files: reading, writing and the states of channels share one buffer and its invariants.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove

from coro.amqp._spec_codec cimport (
    basic_deliver,
    basic_get_ok,
    basic_publish,
    basic_return,
    get_basic_deliver,
    get_basic_get_ok,
    get_basic_properties,
    get_basic_publish,
    get_basic_return,
    put_basic_ack,
    put_basic_deliver,
    put_basic_nack,
    put_basic_properties,
    put_basic_publish,
    put_basic_reject,
)
from coro.amqp._values cimport (
    Output,
    cursor,
    read_u16,
    read_u32,
    read_u64,
    text,
    text_str,
    write_u16,
    write_u32,
    write_u64,
)

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    void *PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)

import json as _json

from coro.amqp import _spec_codec, spec
from coro.amqp.exceptions import EncodeError, LimitExceeded, ProtocolError, StateError

cdef enum:
    METHOD = 1
    HEADER = 2
    BODY = 3
    HEARTBEAT = 8
    END = 0xce
    FRAME_ROOM = 8              # of a frame around its payload: type, channel, length, end
    BASIC = 60                  # the one class with content
    COPIED = 16384              # bodies up to this many bytes are copied into the buffer
    SPARE = 4096                # bytes of memory for the head of a message that is kept for the next one
    SMALL_FRAME = 1 << 20       # methods and headers, where frames have no limit
    LARGE_FRAME = 1 << 20       # bodies that we send, where frames have no limit
    LATE_FRAMES = 1 << 20       # that may come on a channel which the server has closed, until it is open again
    NO_TAG = 0

# The states of a connection.
cdef enum:
    AT_HEADER, AT_START, AT_SECURE, AT_TUNE, AT_OPEN, OPENED, CLOSING, CLOSED

# The states of a channel; and what a message came with.
cdef enum:
    CHANNEL_OPENING, CHANNEL_OPEN, CHANNEL_CLOSING, CHANNEL_CLOSED
cdef enum:
    DELIVER, GET_OK, RETURNED, PUBLISH

cdef tuple STATES = ("header", "start", "secure", "tune", "open", "opened", "closing", "closed")
cdef tuple CHANNEL_STATES = ("opening", "open", "closing")
cdef tuple KINDS = ("deliver", "get_ok", "return", "publish")

MAX_BODY = 128 << 20
FRAME_MAX = 128 << 10
CHANNEL_MAX = 2047
HEARTBEAT_SECONDS = 60
PROTOCOL_HEADER = b"AMQP\0\0\x09\x01"

cdef bytes WHOLE_HEADER = PROTOCOL_HEADER
cdef bytes NO_PROPERTIES = b"\0\0"
cdef bytes HEARTBEAT_FRAME = b"\x08\0\0\0\0\0\0\xce"


def _unpackers():
    """(class id << 16 | method id) -> the class of the method, and the function that reads its arguments."""
    found = {}
    for (class_id, method_id), cls in spec.method_map.items():
        name = f"{class_id}"
        for holder in vars(spec).values():
            if getattr(holder, "id", None) == class_id:
                name = holder.__name__
        found[class_id << 16 | method_id] = cls, getattr(_spec_codec, f"unpack_{name}_{cls.__name__.lstrip('_')}")
    return found


cdef dict UNPACK = _unpackers()


def _numbers(*classes):
    return {cls.id[0] << 16 | cls.id[1] for cls in classes}


# What a client may be sent; a server the rest, and what both may.
cdef set BOTH = _numbers(
    spec.connection.close, spec.connection.close_ok, spec.channel.close, spec.channel.close_ok, spec.channel.flow,
    spec.channel.flow_ok, spec.basic.cancel, spec.basic.cancel_ok, spec.basic.ack, spec.basic.nack,
)
cdef set TO_CLIENT = BOTH | _numbers(
    spec.connection.start, spec.connection.secure, spec.connection.tune, spec.connection.open_ok,
    spec.connection.blocked, spec.connection.unblocked, spec.connection.update_secret_ok, spec.channel.open_ok,
    spec.access.request_ok, spec.exchange.declare_ok, spec.exchange.delete_ok, spec.exchange.bind_ok,
    spec.exchange.unbind_ok, spec.queue.declare_ok, spec.queue.bind_ok, spec.queue.purge_ok, spec.queue.delete_ok,
    spec.queue.unbind_ok, spec.basic.qos_ok, spec.basic.consume_ok, spec.basic._return, spec.basic.deliver,
    spec.basic.get_ok, spec.basic.get_empty, spec.basic.recover_ok, spec.tx.select_ok, spec.tx.commit_ok,
    spec.tx.rollback_ok, spec.confirm.select_ok,
)
cdef set TO_SERVER = (set(UNPACK) - TO_CLIENT) | BOTH

# Which methods of class connection may come in which state; closing may always.
cdef dict EXPECTED_BY_CLIENT = {
    AT_START: _numbers(spec.connection.start),
    AT_SECURE: _numbers(spec.connection.secure, spec.connection.tune),
    AT_OPEN: _numbers(spec.connection.open_ok),
    OPENED: _numbers(spec.connection.blocked, spec.connection.unblocked, spec.connection.update_secret_ok),
}
cdef dict EXPECTED_BY_SERVER = {
    AT_START: _numbers(spec.connection.start_ok),
    AT_SECURE: _numbers(spec.connection.secure_ok),
    AT_TUNE: _numbers(spec.connection.tune_ok),
    AT_OPEN: _numbers(spec.connection.open),
    OPENED: _numbers(spec.connection.update_secret),
}

cdef enum:
    CONNECTION_CLOSE = 0x000a0032
    CONNECTION_CLOSE_OK = 0x000a0033
    CONNECTION_START = 0x000a000a
    CONNECTION_START_OK = 0x000a000b
    CONNECTION_SECURE = 0x000a0014
    CONNECTION_SECURE_OK = 0x000a0015
    CONNECTION_TUNE = 0x000a001e
    CONNECTION_TUNE_OK = 0x000a001f
    CONNECTION_OPEN = 0x000a0028
    CONNECTION_OPEN_OK = 0x000a0029
    CHANNEL_OPEN_METHOD = 0x0014000a
    CHANNEL_OPEN_OK = 0x0014000b
    CHANNEL_CLOSE = 0x00140028
    CHANNEL_CLOSE_OK = 0x00140029
    BASIC_PUBLISH = 0x003c0028
    BASIC_RETURN = 0x003c0032
    BASIC_DELIVER = 0x003c003c
    BASIC_GET_OK = 0x003c0047


cdef str name_of(uint32_t number):
    found = UNPACK.get(number)
    return found[0]._name if found is not None else f"method {number >> 16}.{number & 0xffff}"


class HeaderOK:
    """What a server is told first: the client speaks AMQP 0-9-1."""

    __slots__ = ()

    def __repr__(self):
        return "wire.HEADER_OK"


HEADER_OK = HeaderOK()


class VersionRefused:
    """What a client is told when the server speaks another version, ``version``, and closes."""

    __slots__ = ("version",)

    def __init__(self, version):
        self.version = version

    def __repr__(self):
        return f"wire.VersionRefused({self.version!r})"


@cython.final
cdef class Properties:
    """Properties(mapping=None, /, **properties)\n--\n\n\
    Properties of a message, encoded once and for many messages.

    mapping: names as AMQP writes them (``"content-type"``) or with underscores; keywords likewise. None leaves a
    property out. Raises EncodeError for an unknown name or a value that does not fit.

    ``dict(properties)`` gives them back; ``properties[name]`` one of them.
    """
    cdef bytes data             # flags and values
    cdef dict found
    cdef int depth

    def __init__(self, mapping=None, /, **properties):
        cdef Output o = Output.__new__(Output)
        given = dict(mapping or {}, **properties)
        put_basic_properties(o, given)
        self.data = o.take()
        self.found = None
        self.depth = 16

    cdef bytes encoding(self):
        # (None: __init__ was not called)
        return NO_PROPERTIES if self.data is None else self.data

    cdef dict decoded(self):
        if self.found is None:
            self.found = decode_properties(self.encoding(), self.depth)
        return self.found

    @property
    def encoded(self):
        """Flags and values as they stand in a content header."""
        return self.encoding()

    def keys(self):
        """The names of those that are set."""
        return self.decoded().keys()

    def __getitem__(self, name):
        return self.decoded()[name.replace("_", "-")]

    def __iter__(self):
        return iter(self.decoded())

    def __len__(self):
        return len(self.decoded())

    def __eq__(self, other):
        if not isinstance(other, Properties):
            return NotImplemented
        return self.encoding() == (<Properties>other).encoding()

    def __hash__(self):
        return hash(self.encoding())

    def __repr__(self):
        return f"Properties({self.decoded()!r})"


cdef dict decode_properties(bytes data, int depth):
    cdef cursor c
    c.at = <const unsigned char *>PyBytes_AS_STRING(data)
    c.end = c.at + PyBytes_GET_SIZE(data)
    c.depth = depth
    found = get_basic_properties(&c)
    if c.at != c.end:
        raise ProtocolError(f"expected properties to end with their header, got {c.end - c.at} bytes more", 502)
    return found


def pack_properties(mapping):
    """``(flags, bytes)`` of a mapping. EncodeError for an unknown name or a value that does not fit."""
    cdef Output o = Output.__new__(Output)
    put_basic_properties(o, mapping)
    data = o.take()
    return data[0] << 8 | data[1], data[2:]


def unpack_properties(flags, data):
    """The dict that ``pack_properties`` has made this of. ProtocolError for damaged data."""
    return decode_properties(bytes((flags >> 8 & 255, flags & 255)) + bytes(data), 16)


cdef class Protocol
cdef class _Channel


@cython.final
@cython.freelist(256)
cdef class Message:
    """A message with what came around it. Its parts are decoded when they are asked for.

    ``body`` is bytes. ``kind`` is "deliver", "get_ok", "return" or, in a server, "publish", and decides which of the
    other attributes mean something: ``consumer_tag``, ``delivery_tag``, ``redelivered``, ``exchange``,
    ``routing_key``, ``message_count`` (get_ok), ``reply_code`` and ``reply_text`` (return), ``mandatory`` and
    ``immediate`` (publish). ``properties`` is a dict; each property is also an attribute, None where it is not set
    (``headers``: an empty dict).

    Asking for properties raises ProtocolError where the sender has damaged them.
    """
    cdef readonly bytes body
    cdef readonly str consumer_tag
    cdef readonly str exchange
    cdef readonly str routing_key
    cdef readonly str reply_text
    cdef readonly uint64_t delivery_tag
    cdef readonly uint32_t message_count
    cdef readonly uint16_t reply_code
    cdef readonly uint16_t channel_number
    cdef readonly bint redelivered
    cdef readonly bint mandatory
    cdef readonly bint immediate
    cdef int how
    cdef int depth
    cdef bytes header
    cdef dict found
    cdef public object channel
    cdef public bint _settled
    cdef _Channel record        # by which an acknowledgement may leave without the channel object
    cdef Protocol protocol

    @property
    def kind(self):
        return KINDS[self.how]

    @property
    def properties(self):
        """The properties that are set, by the names that AMQP gives them."""
        if self.found is None:
            self.found = decode_properties(NO_PROPERTIES if self.header is None else self.header, self.depth)
        return self.found

    @property
    def encoded_properties(self):
        """The same as they came, to pass the message on untouched."""
        cdef Properties p = Properties.__new__(Properties)
        p.data = self.header
        p.depth = self.depth
        return p

    @property
    def content_type(self):
        return self.properties.get("content-type")

    @property
    def content_encoding(self):
        return self.properties.get("content-encoding")

    @property
    def headers(self):
        return self.properties.get("headers", {})

    @property
    def delivery_mode(self):
        return self.properties.get("delivery-mode")

    @property
    def priority(self):
        return self.properties.get("priority")

    @property
    def correlation_id(self):
        return self.properties.get("correlation-id")

    @property
    def reply_to(self):
        return self.properties.get("reply-to")

    @property
    def expiration(self):
        return self.properties.get("expiration")

    @property
    def message_id(self):
        return self.properties.get("message-id")

    @property
    def timestamp(self):
        return self.properties.get("timestamp")

    @property
    def type(self):
        return self.properties.get("type")

    @property
    def user_id(self):
        return self.properties.get("user-id")

    @property
    def app_id(self):
        return self.properties.get("app-id")

    @property
    def cluster_id(self):
        return self.properties.get("cluster-id")

    def deliver_method(self):
        """The method that the message came with, as an object of ``spec``."""
        if self.how == DELIVER:
            return spec.basic.deliver(
                self.consumer_tag, self.delivery_tag, self.redelivered, self.exchange, self.routing_key
            )
        if self.how == GET_OK:
            return spec.basic.get_ok(
                self.delivery_tag, self.redelivered, self.exchange, self.routing_key, self.message_count
            )
        if self.how == RETURNED:
            return spec.basic._return(self.reply_code, self.reply_text, self.exchange, self.routing_key)
        return spec.basic.publish(0, self.exchange, self.routing_key, self.mandatory, self.immediate)

    def json(self):
        """The body read as JSON. ValueError if it is not."""
        return _json.loads(self.body)

    cdef object settler(self):
        if self.channel is None:
            raise StateError("expected a message that a client has received, got one without a channel")
        return self.channel

    def ack(self, multiple=False):
        """Tell the broker that the message is dealt with; ``multiple``: and all before it on its channel.

        Raises StaleDelivery when the channel has been closed or opened anew since; StateError when the message needs
        no acknowledgement, or has had one.
        """
        cdef _Channel record = self.record
        cdef Protocol protocol
        if record is not None and record.direct and record.state == CHANNEL_OPEN and not self._settled and not multiple:
            protocol = self.protocol
            if protocol.at == OPENED:
                self._settled = True
                protocol.put_ack(record.number, self.delivery_tag - record.tag_base)
                return
        self.settler()._settle(self, "ack", multiple, False)

    def nack(self, requeue=True, multiple=False):
        """Give the message back to its queue, or, with ``requeue=False``, drop or dead-letter it. Raises as ``ack``."""
        self.settler()._settle(self, "nack", multiple, requeue)

    def reject(self, requeue=True):
        """As ``nack``, for this message alone, by the method that AMQP had first."""
        self.settler()._settle(self, "reject", False, requeue)

    def __repr__(self):
        return (
            f"<Message {KINDS[self.how]} tag={self.delivery_tag} exchange={self.exchange!r} "
            f"routing_key={self.routing_key!r} {len(self.body or b'')} bytes>"
        )


@cython.final
cdef class _Channel:
    # What the protocol knows of a channel, from its opening to its closing. A number that is used again gets another
    # record, so what keeps one (a message, the owner) knows whether the channel is still the one that it came on.
    cdef int number
    cdef int state
    cdef Message message        # whose content is not complete
    cdef bint wants_header
    cdef uint64_t missing       # bytes of its body
    cdef list chunks
    cdef object owner           # becomes `channel` of the messages
    cdef uint64_t tag_base      # added to delivery tags
    cdef readonly uint64_t last_tag     # the highest number of a message that has come
    cdef bint direct            # acknowledgements need not go by the owner

    @property
    def is_open(self):
        return self.state == CHANNEL_OPEN


cdef str same_or_new(text t, str before):
    """`before` if it says the same, which saves making a str."""
    if before is not None and PyUnicode_IS_COMPACT_ASCII(before) and PyUnicode_GET_LENGTH(before) == t.size:
        if memcmp(PyUnicode_DATA(before), t.at, t.size) == 0:
            return before
    return text_str(t)


cdef class Protocol:
    """\
Protocol(role, *, frame_max=131072, channel_max=2047, heartbeat=60, max_body=134217728, max_table_depth=16)\n--\n\n\
    One end of an AMQP connection, without a socket: ``receive`` takes what came, ``take_output`` gives what is to go.

    role: "client" or "server". frame_max: the longest frame to propose, in bytes, 4096 or more; 0 is no limit.
    channel_max: the highest channel number to propose. heartbeat: seconds to propose. max_body: the longest message
    to accept, in bytes. max_table_depth: how deep tables may lie within one another. Raises ValueError for impossible
    limits.

    After the tuning, ``frame_max``, ``channel_max`` and ``heartbeat`` are what both ends agreed on.
    """
    cdef readonly str role
    cdef readonly uint64_t frame_max
    cdef readonly int channel_max
    cdef readonly int heartbeat
    cdef readonly uint64_t max_body
    cdef readonly int max_table_depth
    cdef readonly object error          # the ProtocolError after which nothing is parsed, else None
    cdef readonly uint64_t frames_in
    cdef readonly uint64_t frames_out
    cdef readonly uint64_t bytes_in
    cdef readonly uint64_t bytes_out
    cdef readonly uint64_t heartbeats_in
    cdef readonly uint64_t messages_in
    cdef readonly uint64_t messages_out

    cdef public bint idle               # nobody will call take_output until `waker` is called
    cdef public object waker
    cdef bint server
    cdef int at                         # the state of the connection
    cdef bint tune_sent
    cdef set acceptable
    cdef dict expected
    cdef uint64_t most_payload          # of frames that come
    cdef Py_ssize_t cut                 # bodies that go are cut to this
    cdef dict channels
    cdef dict late                      # number -> how many frames have been dropped; see invariant 4
    cdef _Channel last
    cdef unsigned char *tail            # a part of a frame
    cdef Py_ssize_t tail_size, tail_room
    cdef Output out
    cdef Output spare                   # see scratch()
    cdef bint receiving
    cdef list pieces
    cdef Py_ssize_t pieces_size
    cdef str seen_tag, last_exchange, last_key

    def __cinit__(self):
        self.tail = NULL
        self.tail_size = self.tail_room = 0

    def __dealloc__(self):
        PyMem_Free(self.tail)

    def __init__(
        self, role, *, frame_max=131072, channel_max=2047, heartbeat=60, max_body=134217728, max_table_depth=16
    ):
        if self.out is not None:
            raise RuntimeError("a Protocol cannot be initialised twice: make a new one")
        if role not in ("client", "server"):
            raise ValueError(f"expected the role 'client' or 'server', got {role!r}")
        if frame_max != 0 and not 4096 <= frame_max <= 0xffffffff:
            raise ValueError(f"expected frame_max to be 0 or from 4096 to {0xffffffff}, got {frame_max}")
        if not 1 <= channel_max <= 65535:
            raise ValueError(f"expected channel_max to be from 1 to 65535, got {channel_max}")
        if not 0 <= heartbeat <= 65535:
            raise ValueError(f"expected heartbeat to be from 0 to 65535 seconds, got {heartbeat}")
        if max_body < 0:
            raise ValueError(f"expected max_body to be 0 or more bytes, got {max_body}")
        if not 1 <= max_table_depth <= 100:
            raise ValueError(f"expected max_table_depth to be from 1 to 100, got {max_table_depth}")
        self.role = role
        self.server = role == "server"
        self.frame_max = frame_max
        self.channel_max = channel_max
        self.heartbeat = heartbeat
        self.max_body = max_body
        self.max_table_depth = max_table_depth
        self.acceptable = TO_SERVER if self.server else TO_CLIENT
        self.expected = EXPECTED_BY_SERVER if self.server else EXPECTED_BY_CLIENT
        self.at = AT_HEADER
        self.channels = {}
        self.late = {}
        self.out = Output.__new__(Output)
        self.pieces = []
        self.set_frame_max(frame_max)

    cdef int set_frame_max(self, uint64_t frame_max) except -1:
        self.frame_max = frame_max
        if frame_max:
            self.most_payload = frame_max - FRAME_ROOM
            self.cut = <Py_ssize_t>self.most_payload
        else:
            self.most_payload = max(self.max_body, <uint64_t>SMALL_FRAME)
            self.cut = LARGE_FRAME
        return 0

    @property
    def state(self):
        """Where the connection is: "header", "start", "secure", "tune", "open", "opened", "closing" or "closed"."""
        return STATES[self.at]

    @property
    def pending(self):
        """How many bytes `take_output` would give."""
        return self.pieces_size + self.out.size

    def channel_state(self, number):
        """"closed", "opening", "open" or "closing"."""
        found = self.channels.get(number)
        return "closed" if found is None else CHANNEL_STATES[(<_Channel>found).state]

    # ---- what comes

    def receive(self, bytes data not None):
        """Take what came. Returns a list of events, each a tuple ``(channel number, what)``.

        What it is: a method, as an object of ``spec``; a ``Message``; ``HEADER_OK`` or a ``VersionRefused``. Raises
        ProtocolError when the peer breaks the protocol; if there are events before that, they are returned, the error
        is in ``error``, and the next call raises it.
        """
        cdef const unsigned char *p = <const unsigned char *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t n = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t used
        cdef list events = []
        if self.error is not None:
            raise self.error
        if self.receiving:
            raise StateError("expected receive() to return before it is called again")
        self.bytes_in += n
        if self.tail_size:
            self.keep(p, n)
            p = self.tail
            n = self.tail_size
        used = 0
        self.receiving = True
        try:
            self.parse(p, n, &used, events)
        except ProtocolError as exc:
            self.error = exc
            self.tail_size = 0
            if not events:
                raise
            return events
        finally:
            self.receiving = False
        if p == self.tail:
            if used:
                memmove(self.tail, self.tail + used, n - used)
                self.tail_size = n - used
                if self.tail_size == 0 and self.tail_room > (1 << 18):
                    PyMem_Free(self.tail)
                    self.tail = NULL
                    self.tail_room = 0
        elif used < n:
            self.keep(p + used, n - used)
        return events

    cdef int keep(self, const unsigned char *p, Py_ssize_t n) except -1:
        cdef Py_ssize_t room = self.tail_room
        cdef unsigned char *tail
        if self.tail_size + n > room:
            room = max(room * 2, self.tail_size + n)
            tail = <unsigned char *>PyMem_Realloc(self.tail, room)
            if tail == NULL:
                raise MemoryError()
            self.tail = tail
            self.tail_room = room
        memcpy(self.tail + self.tail_size, p, n)
        self.tail_size += n
        return 0

    def eof(self):
        """Take the end of the stream. Raises ProtocolError unless it came between two frames, and not in a message."""
        if self.error is not None:
            raise self.error
        if self.tail_size:
            self.error = ProtocolError(f"the connection ended after {self.tail_size} bytes of a frame", 501)
            raise self.error
        for channel in self.channels.values():
            if (<_Channel>channel).message is not None:
                self.error = ProtocolError("the connection ended within a message", 501)
                raise self.error

    cdef int parse(self, const unsigned char *p, Py_ssize_t n, Py_ssize_t *used, list events) except -1:
        cdef Py_ssize_t i = 0
        cdef int kind, number
        cdef uint64_t size
        if self.at == AT_HEADER or (self.at == AT_START and not self.server and n and p[0] == c'A'):
            i = self.parse_header(p, n, events)
            used[0] = i
            if i == 0:
                return 0
        while i < n:
            if self.at == CLOSED:
                # both ends are done; what may follow is nobody's
                i = n
                break
            kind = p[i]
            if kind != METHOD and kind != BODY and kind != HEADER and kind != HEARTBEAT:
                raise ProtocolError(
                    f"expected a frame, got bytes that begin with {bytes(p[i:min(n, i + 16)])!r}: "
                    "does the peer speak AMQP 0-9-1?", 501)
            if n - i < 7:
                break
            number = read_u16(p + i + 1)
            size = read_u32(p + i + 3)
            if size > self.most_payload or (kind != BODY and size > SMALL_FRAME):
                most = self.most_payload if kind == BODY else min(self.most_payload, <uint64_t>SMALL_FRAME)
                raise LimitExceeded(f"expected frames of at most {most} bytes, got one of {size}", 501)
            if <uint64_t>(n - i) < size + FRAME_ROOM:
                break
            if p[i + 7 + size] != END:
                raise ProtocolError(f"expected a frame to end with 0xce, got {p[i + 7 + size]:#04x}", 501)
            self.frames_in += 1
            if kind == METHOD:
                self.method(number, p + i + 7, <Py_ssize_t>size, events)
            elif kind == BODY:
                self.body(number, p + i + 7, <Py_ssize_t>size, events)
            elif kind == HEADER:
                self.header(number, p + i + 7, <Py_ssize_t>size, events)
            else:
                if number != 0 or size != 0:
                    raise ProtocolError("expected an empty heartbeat on channel 0, got another one", 501)
                self.heartbeats_in += 1
            i += FRAME_ROOM + <Py_ssize_t>size
            used[0] = i
        used[0] = i
        return 0

    cdef Py_ssize_t parse_header(self, const unsigned char *p, Py_ssize_t n, list events) except -1:
        """The eight bytes before the first frame (4.2.2). A client sees them where the server refuses its version."""
        cdef bytes head = bytes(p[:min(n, 8)])
        if not self.server and self.at == AT_HEADER:
            raise ProtocolError("expected nothing before our header was sent, got bytes", 501)
        if head[:4] != WHOLE_HEADER[:len(head[:4])]:
            raise ProtocolError(f"expected b'AMQP' and a version, got {head!r}: does the peer speak AMQP?", 501)
        if n < 8:
            return 0
        if not self.server:
            self.at = CLOSED
            events.append((0, VersionRefused(tuple(head[4:]))))
            return n
        if head != WHOLE_HEADER:
            raise ProtocolError(f"expected version 0-9-1 ({WHOLE_HEADER!r}), got {head!r}", 501)
        self.at = AT_START
        events.append((0, HEADER_OK))
        return 8

    cdef _Channel find(self, int number):
        """The channel; None where it is closed."""
        if self.last is not None and self.last.number == number:
            return self.last
        found = self.channels.get(number)
        if found is None:
            return None
        self.last = found
        return found

    cdef int forget(self, int number) except -1:
        """The channel is closed: nothing is sent on behalf of its messages any more."""
        cdef _Channel channel = self.channels.pop(number)
        channel.state = CHANNEL_CLOSED
        self.last = None
        return 0

    cdef int forget_all(self) except -1:
        for channel in self.channels.values():
            (<_Channel>channel).state = CHANNEL_CLOSED
        self.channels.clear()
        self.late.clear()
        self.last = None
        return 0

    cdef bint is_late(self, int number) except -1:
        """Is what came on this channel, which is not open, of an opening that the server has ended?"""
        cdef uint32_t count
        if number not in self.late:
            return False
        count = self.late[number]
        if count == LATE_FRAMES:
            raise ProtocolError(
                f"expected channel.close to be the end of channel {number}, got {count} frames after it", 504)
        self.late[number] = count + 1
        return True

    cdef int method(self, int number, const unsigned char *p, Py_ssize_t n, list events) except -1:
        cdef uint32_t what
        cdef _Channel channel
        if n < 4:
            raise ProtocolError(f"expected a method frame of at least 4 bytes, got {n}", 502)
        what = read_u32(p)
        if number == 0:
            return self.connection_method(what, p, n, events)
        if self.at != OPENED:
            if self.at == CLOSING:
                return 0
            raise ProtocolError(f"expected methods of the connection at first, got {name_of(what)}", 503)
        channel = self.find(number)
        if channel is not None and channel.state == CHANNEL_OPEN:
            if channel.message is not None and what != CHANNEL_CLOSE:
                raise ProtocolError(
                    f"expected the content of a message on channel {number}, got {name_of(what)}", 505)
            if what == BASIC_DELIVER and not self.server:
                return self.deliver_begins(channel, p, n)
            if what >> 16 == BASIC and self.content_begins(channel, what, p, n):
                return 0
        return self.channel_method(number, channel, what, p, n, events)

    cdef object decoded(self, uint32_t what, const unsigned char *p, Py_ssize_t n):
        """The method as an object."""
        found = UNPACK.get(what)
        if found is None:
            raise ProtocolError(f"expected a method of AMQP 0-9-1, got {name_of(what)}", 503)
        if what not in self.acceptable:
            peer = "client" if self.server else "server"
            raise ProtocolError(f"expected what a {peer} sends, got {name_of(what)}", 503)
        cls, unpack = <tuple>found
        return cls(*unpack(PyBytes_FromStringAndSize(<const char *>p, n), 4, self.max_table_depth))

    cdef int connection_method(self, uint32_t what, const unsigned char *p, Py_ssize_t n, list events) except -1:
        if what >> 16 != 10:
            raise ProtocolError(f"expected a method of the connection on channel 0, got {name_of(what)}", 503)
        if self.at == CLOSING and what != CONNECTION_CLOSE and what != CONNECTION_CLOSE_OK:
            return 0
        ob = self.decoded(what, p, n)
        if what == CONNECTION_CLOSE:
            # ours may have crossed it: each end answers the other's
            self.frame(0, spec.connection.close_ok())
            if self.at != CLOSING:
                self.at = CLOSED
            self.forget_all()
        elif what == CONNECTION_CLOSE_OK:
            if self.at != CLOSING:
                raise ProtocolError("expected connection.close-ok only after connection.close, got it now", 503)
            self.at = CLOSED
            self.forget_all()
        else:
            if what not in self.expected.get(self.at, ()):
                wanted = ", ".join(sorted(name_of(each) for each in self.expected.get(self.at, ()))) or "nothing yet"
                raise ProtocolError(f"expected {wanted}, got {name_of(what)}", 503)
            self.advance(what, ob)
        events.append((0, ob))
        return 0

    cdef int advance(self, uint32_t what, object ob) except -1:
        """The handshake goes on because of what came."""
        if what == CONNECTION_START or what == CONNECTION_START_OK:
            self.at = AT_SECURE
        elif what == CONNECTION_TUNE:
            self.at = AT_TUNE
        elif what == CONNECTION_TUNE_OK:
            self.tuned(ob)
            self.at = AT_OPEN
        elif what == CONNECTION_OPEN_OK:
            self.at = OPENED
        return 0

    cdef int tuned(self, object ob) except -1:
        """Both ends now know the limits: those of tune-ok, 0 being no limit."""
        if ob.frame_max and ob.frame_max < 4096:
            raise ProtocolError(f"expected a frame-max of 0, or 4096 and more, got {ob.frame_max}", 501)
        if self.frame_max and (ob.frame_max == 0 or ob.frame_max > self.frame_max):
            raise ProtocolError(f"expected a frame-max of at most {self.frame_max}, got {ob.frame_max}", 501)
        if ob.channel_max > self.channel_max:
            raise ProtocolError(f"expected a channel-max of at most {self.channel_max}, got {ob.channel_max}", 501)
        self.set_frame_max(ob.frame_max)
        if ob.channel_max:
            self.channel_max = ob.channel_max
        self.heartbeat = ob.heartbeat
        return 0

    cdef int channel_method(
        self, int number, _Channel channel, uint32_t what, const unsigned char *p, Py_ssize_t n, list events
    ) except -1:
        """A method without content."""
        if channel is None or channel.state == CHANNEL_OPENING and what != CHANNEL_OPEN_OK and what != CHANNEL_CLOSE:
            if self.is_late(number):
                return 0
        if channel is None:
            if what == CHANNEL_OPEN_METHOD and self.server:
                if number > self.channel_max:
                    raise ProtocolError(f"expected channels from 1 to {self.channel_max}, got {number}", 504)
                channel = _Channel.__new__(_Channel)
                channel.number = number
                channel.state = CHANNEL_OPENING
                self.channels[number] = channel
                events.append((number, self.decoded(what, p, n)))
                return 0
            raise ProtocolError(f"expected channel {number} to be open, got {name_of(what)} on it", 504)
        if channel.state == CHANNEL_CLOSING and what != CHANNEL_CLOSE and what != CHANNEL_CLOSE_OK:
            return 0
        ob = self.decoded(what, p, n)
        if what >> 16 == 10:
            raise ProtocolError(f"expected {name_of(what)} on channel 0, got it on {number}", 503)
        if what == CHANNEL_CLOSE:
            self.frame(number, spec.channel.close_ok())
            if not self.server:
                self.late[number] = 0
            if channel.state != CHANNEL_CLOSING:
                self.forget(number)
        elif what == CHANNEL_CLOSE_OK:
            if channel.state != CHANNEL_CLOSING:
                raise ProtocolError("expected channel.close-ok only after channel.close, got it now", 503)
            self.forget(number)
        elif channel.state == CHANNEL_OPENING:
            if what != CHANNEL_OPEN_OK:
                raise ProtocolError(f"expected channel.open-ok on channel {number}, got {name_of(what)}", 503)
            channel.state = CHANNEL_OPEN
            self.late.pop(number, None)
        elif what == CHANNEL_OPEN_METHOD or what == CHANNEL_OPEN_OK:
            raise ProtocolError(f"expected nothing more of that, channel {number} being open, got {name_of(what)}", 504)
        events.append((number, ob))
        return 0

    cdef int deliver_begins(self, _Channel channel, const unsigned char *p, Py_ssize_t n) except -1:
        cdef basic_deliver found
        cdef cursor c
        cdef Message message = Message.__new__(Message)
        c.at = p + 4
        c.end = p + n
        get_basic_deliver(&c, &found)
        message.how = DELIVER
        message.consumer_tag = self.seen_tag = same_or_new(found.consumer_tag, self.seen_tag)
        message.exchange = self.last_exchange = same_or_new(found.exchange, self.last_exchange)
        message.routing_key = self.last_key = same_or_new(found.routing_key, self.last_key)
        message.delivery_tag = channel.last_tag = found.delivery_tag + channel.tag_base
        message.redelivered = found.redelivered
        message.record = channel
        message.protocol = self
        return self.expect_content(channel, message)

    cdef bint content_begins(self, _Channel channel, uint32_t what, const unsigned char *p, Py_ssize_t n) except -1:
        """The other methods that a message follows. False: it is none of them."""
        cdef basic_publish published
        cdef basic_get_ok got
        cdef basic_return returned
        cdef cursor c
        cdef Message message
        if what not in self.acceptable:
            return False
        c.at = p + 4
        c.end = p + n
        if what == BASIC_PUBLISH:
            get_basic_publish(&c, &published)
            message = Message.__new__(Message)
            message.how = PUBLISH
            message.exchange = self.last_exchange = same_or_new(published.exchange, self.last_exchange)
            message.routing_key = self.last_key = same_or_new(published.routing_key, self.last_key)
            message.mandatory = published.mandatory
            message.immediate = published.immediate
        elif what == BASIC_GET_OK:
            get_basic_get_ok(&c, &got)
            message = Message.__new__(Message)
            message.how = GET_OK
            message.exchange = same_or_new(got.exchange, self.last_exchange)
            message.routing_key = same_or_new(got.routing_key, self.last_key)
            message.delivery_tag = channel.last_tag = got.delivery_tag + channel.tag_base
            message.record = channel
            message.protocol = self
            message.redelivered = got.redelivered
            message.message_count = got.message_count
        elif what == BASIC_RETURN:
            get_basic_return(&c, &returned)
            message = Message.__new__(Message)
            message.how = RETURNED
            message.exchange = same_or_new(returned.exchange, self.last_exchange)
            message.routing_key = same_or_new(returned.routing_key, self.last_key)
            message.reply_code = returned.reply_code
            message.reply_text = text_str(returned.reply_text)
        else:
            return False
        self.expect_content(channel, message)
        return True

    cdef int expect_content(self, _Channel channel, Message message) except -1:
        message.channel_number = channel.number
        message.channel = channel.owner
        message.depth = self.max_table_depth
        channel.message = message
        channel.wants_header = True
        return 0

    cdef _Channel content_channel(self, int number, str what):
        """The channel that a content frame belongs to; None where it is to be dropped."""
        cdef _Channel channel
        if self.at == CLOSING:
            return None
        channel = self.find(number)
        if (channel is None or channel.state == CHANNEL_OPENING) and self.is_late(number):
            return None
        if channel is None:
            raise ProtocolError(f"expected channel {number} to be open, got {what} on it", 504)
        if channel.state == CHANNEL_CLOSING:
            return None
        return channel

    cdef int header(self, int number, const unsigned char *p, Py_ssize_t n, list events) except -1:
        cdef _Channel channel = self.content_channel(number, "a content header")
        cdef uint64_t size
        if channel is None:
            return 0
        if channel.message is None or not channel.wants_header:
            raise ProtocolError(f"expected no content header on channel {number}, got one", 505)
        if n < 14:
            raise ProtocolError(f"expected a content header of at least 14 bytes, got {n}", 502)
        if read_u16(p) != BASIC or read_u16(p + 2) != 0:
            raise ProtocolError(
                f"expected a header of class 60 and weight 0, got {read_u16(p)} and {read_u16(p + 2)}", 502)
        size = read_u64(p + 4)
        if size > self.max_body:
            raise LimitExceeded(f"expected messages of at most {self.max_body} bytes, got one of {size}", 506)
        if n == 14 and p[12] == 0 and p[13] == 0:
            channel.message.header = NO_PROPERTIES
        else:
            channel.message.header = PyBytes_FromStringAndSize(<const char *>p + 12, n - 12)
        channel.wants_header = False
        channel.missing = size
        if size == 0:
            channel.message.body = b""
            self.complete(channel, events)
        return 0

    cdef int body(self, int number, const unsigned char *p, Py_ssize_t n, list events) except -1:
        cdef _Channel channel = self.content_channel(number, "a part of a message")
        if channel is None:
            return 0
        if channel.message is None or channel.wants_header:
            raise ProtocolError(f"expected no part of a message on channel {number}, got one", 505)
        if <uint64_t>n > channel.missing:
            raise ProtocolError(
                f"expected {channel.missing} more bytes of a message, as its header says, got {n}", 501)
        if n == 0:
            return 0
        chunk = PyBytes_FromStringAndSize(<const char *>p, n)
        channel.missing -= n
        if channel.missing == 0:
            if channel.chunks is None:
                channel.message.body = chunk
            else:
                channel.chunks.append(chunk)
                channel.message.body = b"".join(channel.chunks)
                channel.chunks = None
            self.complete(channel, events)
        elif channel.chunks is None:
            channel.chunks = [chunk]
        else:
            channel.chunks.append(chunk)
        return 0

    cdef int complete(self, _Channel channel, list events) except -1:
        self.messages_in += 1
        events.append((channel.number, channel.message))
        channel.message = None
        return 0

    # ---- what goes

    def send_header(self):
        """The eight bytes with which a client begins; a server answers a wrong version with them. Raises StateError
        when something has been sent already."""
        if self.at != AT_HEADER and not self.server:
            raise StateError(f"expected to send the header first, the connection is in state {self.state!r}")
        self.raw(WHOLE_HEADER)
        if not self.server:
            self.at = AT_START

    def send_heartbeat(self):
        """An empty frame that only says: still there."""
        self.frames_out += 1
        self.raw(HEARTBEAT_FRAME)

    cdef int raw(self, bytes data) except -1:
        cdef Py_ssize_t n = PyBytes_GET_SIZE(data)
        memcpy(self.out.extend(n), PyBytes_AS_STRING(data), n)
        self.bytes_out += n
        return 0

    cdef Output scratch(self):
        """Memory for what is made of a program's values: its code may run meanwhile, and send something else, so the
        frames are put into `out` when they are complete (`put_scratch`). One is kept for the next message."""
        cdef Output o = self.spare
        if o is None:
            return Output.__new__(Output)
        self.spare = None
        o.size = 0
        return o

    cdef int put_scratch(self, Output o) except -1:
        memcpy(self.out.extend(o.size), o.data, o.size)
        self.bytes_out += o.size
        if o.room <= SPARE:
            self.spare = o
        return 0

    cdef unsigned char *begin_frame(self, Output out, int kind, int number) except NULL:
        cdef unsigned char *p = out.extend(7)
        p[0] = <unsigned char>kind
        write_u16(p + 1, number)
        return p

    cdef int end_frame(self, Output out, Py_ssize_t start) except -1:
        """Fill in the length of the frame that began at `start`."""
        cdef Py_ssize_t n = out.size - start - 7
        if self.frame_max and <uint64_t>n > self.frame_max - FRAME_ROOM or n > <Py_ssize_t>0xffffffff:
            raise EncodeError(
                f"expected arguments that fit a frame of {self.frame_max} bytes, which cannot be cut, got {n} bytes")
        write_u32(out.data + start + 3, <uint32_t>n)
        out.extend(1)[0] = END
        self.frames_out += 1
        return 0

    cdef int frame(self, int number, object method) except -1:
        """A method frame, unchecked."""
        cdef bytes payload = method.pack()
        cdef Py_ssize_t start = self.out.size
        cdef Py_ssize_t n = PyBytes_GET_SIZE(payload)
        if self.frame_max and <uint64_t>n > self.frame_max - FRAME_ROOM:
            raise EncodeError(
                f"{method._name}: expected arguments that fit a frame of {self.frame_max} bytes, got {n} bytes")
        self.begin_frame(self.out, METHOD, number)
        memcpy(self.out.extend(n), PyBytes_AS_STRING(payload), n)
        self.end_frame(self.out, start)
        self.bytes_out += self.out.size - start
        return 0

    cdef _Channel usable(self, int number):
        """The channel to send on. StateError unless it is open."""
        cdef _Channel channel
        if self.at != OPENED:
            raise StateError(f"expected an open connection, it is in state {self.state!r}")
        channel = self.find(number)
        if channel is None or channel.state != CHANNEL_OPEN:
            raise StateError(f"expected channel {number} to be open, it is {self.channel_state(number)}")
        return channel

    def send_method(self, int number, method):
        """A method without content. Raises StateError when it must not be sent now, EncodeError when a value does not
        fit."""
        cdef uint32_t what = method.id[0] << 16 | method.id[1]
        cdef _Channel channel
        if method.content:
            raise StateError(f"{method._name}: expected a method without content; use send_content")
        if what >> 16 == 10:
            if number != 0:
                raise StateError(f"{method._name}: expected channel 0, got {number}")
            self.send_connection_method(what, method)
            return
        if self.at != OPENED:
            raise StateError(f"{method._name}: expected an open connection, it is in state {self.state!r}")
        if what == CHANNEL_OPEN_METHOD:
            if not 1 <= number <= self.channel_max:
                raise StateError(f"expected a channel from 1 to {self.channel_max}, got {number}")
            if number in self.channels:
                raise StateError(f"expected channel {number} to be closed, it is {self.channel_state(number)}")
            self.frame(number, method)
            channel = _Channel.__new__(_Channel)
            channel.number = number
            channel.state = CHANNEL_OPENING
            self.channels[number] = channel
            return
        channel = self.find(number)
        if channel is None or channel.state == CHANNEL_CLOSING:
            state = self.channel_state(number)
            raise StateError(f"{method._name}: expected channel {number} to be open, it is {state}")
        if what == CHANNEL_OPEN_OK:
            if channel.state != CHANNEL_OPENING:
                raise StateError(f"expected channel {number} to be opening, it is open")
            self.frame(number, method)
            channel.state = CHANNEL_OPEN
            return
        if channel.state == CHANNEL_OPENING and what != CHANNEL_CLOSE:
            raise StateError(f"{method._name}: expected channel {number} to be open, it is opening")
        self.frame(number, method)
        if what == CHANNEL_CLOSE:
            channel.state = CHANNEL_CLOSING
            channel.message = None
            channel.chunks = None

    cdef int send_connection_method(self, uint32_t what, object method) except -1:
        if self.at == CLOSED or (self.at == CLOSING and what != CONNECTION_CLOSE_OK):
            raise StateError(f"{method._name}: expected a connection that is open, it is {self.state!r}")
        if self.at == AT_HEADER:
            raise StateError(f"{method._name}: expected the header to be sent before")
        self.frame(0, method)
        if what == CONNECTION_CLOSE:
            self.at = CLOSING
        elif what == CONNECTION_TUNE and self.server:
            self.at = AT_TUNE
        elif what == CONNECTION_TUNE_OK and not self.server:
            self.set_frame_max(method.frame_max)
            if method.channel_max:
                self.channel_max = method.channel_max
            self.heartbeat = method.heartbeat
        elif what == CONNECTION_OPEN and not self.server:
            self.at = AT_OPEN
        elif what == CONNECTION_OPEN_OK and self.server:
            self.at = OPENED
        return 0

    def answer_tune(self, tune, heartbeat=None):
        """The tune-ok that fits a server's tune: of each limit the lower one, 0 being none. ``heartbeat``: seconds of
        our own choice instead of the lower."""
        frame_max = min(tune.frame_max or self.frame_max, self.frame_max or tune.frame_max)
        channel_max = min(tune.channel_max or self.channel_max, self.channel_max)
        if heartbeat is None:
            heartbeat = min(tune.heartbeat or self.heartbeat, self.heartbeat or tune.heartbeat)
        return spec.connection.tune_ok(channel_max, frame_max, heartbeat)

    def publish(
        self, int number, exchange, routing_key, body, properties=None, bint mandatory=False, bint immediate=False
    ):
        """basic.publish with its message. Raises StateError when the channel is not open, EncodeError when a value does
        not fit."""
        cdef Output out = self.scratch()
        cdef bytes data
        if self.last is None or self.last.number != number or self.last.state != CHANNEL_OPEN or self.at != OPENED:
            self.usable(number)
        data = <bytes>body if type(body) is bytes else as_bytes(body)
        self.begin_frame(out, METHOD, number)
        put_basic_publish(out, exchange, routing_key, mandatory, immediate)
        self.end_frame(out, 0)
        self.content(out, number, data, properties)

    def deliver(
        self, int number, consumer_tag, uint64_t delivery_tag, bint redelivered, exchange, routing_key, properties, body
    ):
        """basic.deliver with its message. Raises as ``publish`` does."""
        cdef Output out = self.scratch()
        cdef bytes data
        self.usable(number)
        data = <bytes>body if type(body) is bytes else as_bytes(body)
        self.begin_frame(out, METHOD, number)
        put_basic_deliver(out, consumer_tag, delivery_tag, redelivered, exchange, routing_key)
        self.end_frame(out, 0)
        self.content(out, number, data, properties)

    def send_content(self, int number, method, properties, body):
        """A method that a message follows, and the message. Raises as ``publish`` does."""
        cdef Output out = self.scratch()
        cdef bytes payload, data
        if not method.content:
            raise StateError(f"{method._name}: expected a method with content; use send_method")
        self.usable(number)
        data = <bytes>body if type(body) is bytes else as_bytes(body)
        payload = method.pack()
        self.begin_frame(out, METHOD, number)
        memcpy(out.extend(PyBytes_GET_SIZE(payload)), PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
        self.end_frame(out, 0)
        self.content(out, number, data, properties)

    cdef int content(self, Output out, int number, bytes body, object properties) except -1:
        """The header and the body, behind the method's frame, which `out` of scratch() has."""
        cdef Py_ssize_t at = out.size
        cdef Py_ssize_t size = PyBytes_GET_SIZE(body)
        cdef unsigned char *p
        self.begin_frame(out, HEADER, number)
        p = out.extend(12)
        write_u32(p, BASIC << 16)
        write_u64(p + 4, size)
        if properties is None:
            write_u16(out.extend(2), 0)
        elif type(properties) is Properties:
            encoded = (<Properties>properties).encoding()
            memcpy(out.extend(PyBytes_GET_SIZE(encoded)), PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded))
        else:
            put_basic_properties(out, properties)
            # Still? The code of a program may have run.
            if self.last is None or self.last.number != number or self.last.state != CHANNEL_OPEN or self.at != OPENED:
                self.usable(number)
        self.end_frame(out, at)
        self.put_scratch(out)
        self.messages_out += 1
        if size <= COPIED and size <= self.cut:
            if size:
                p = self.begin_frame(self.out, BODY, number)
                write_u32(p + 3, <uint32_t>size)
                memcpy(self.out.extend(size), PyBytes_AS_STRING(body), size)
                self.out.extend(1)[0] = END
                self.frames_out += 1
                self.bytes_out += size + FRAME_ROOM
            return 0
        return self.long_body(number, body)

    cdef int long_body(self, int number, bytes body) except -1:
        """Frames around slices of the body, which is not copied."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(body), i = 0, n
        cdef unsigned char *p
        view = memoryview(body)
        while i < size:
            n = min(self.cut, size - i)
            p = self.begin_frame(self.out, BODY, number)
            write_u32(p + 3, <uint32_t>n)
            if n <= COPIED:
                memcpy(self.out.extend(n), PyBytes_AS_STRING(body) + i, n)
            else:
                self.seal()
                self.pieces.append(view[i:i + n])
                self.pieces_size += n
            self.out.extend(1)[0] = END
            self.frames_out += 1
            self.bytes_out += n + FRAME_ROOM
            i += n
        return 0

    cdef int seal(self) except -1:
        """What is in the buffer becomes a piece."""
        if self.out.size:
            self.pieces_size += self.out.size
            self.pieces.append(self.out.take())
        return 0

    def own(self, int number, owner, uint64_t tag_base=0, bint direct=True):
        """For a client: messages of this channel get ``owner`` as their ``channel``, and numbers after ``tag_base``.

        direct: ``Message.ack`` need not go by the owner. Returns the record of this opening of the channel, which has
        ``is_open`` and ``last_tag``, the highest number of a message that came. StateError when the channel is closed.
        """
        cdef _Channel channel = self.find(number)
        if channel is None:
            raise StateError(f"expected channel {number} to be open, it is closed")
        channel.owner = owner
        channel.tag_base = tag_base
        channel.last_tag = tag_base
        channel.direct = direct
        return channel

    def be_direct(self, int number, bint direct):
        """Change what ``own`` has set; nothing if the channel is closed."""
        cdef _Channel channel = self.find(number)
        if channel is not None:
            channel.direct = direct

    def abandon(self):
        """The connection broke: nothing can be sent any more."""
        self.at = CLOSED

    cdef int put_ack(self, int number, uint64_t delivery_tag) except -1:
        cdef Py_ssize_t start = self.out.size
        self.begin_frame(self.out, METHOD, number)
        put_basic_ack(self.out, delivery_tag, False)
        self.end_frame(self.out, start)
        self.bytes_out += self.out.size - start
        if self.idle:
            self.waker()
        return 0

    def ack(self, int number, uint64_t delivery_tag, bint multiple=False):
        """basic.ack. Raises StateError when the channel is not open."""
        cdef Py_ssize_t start = self.out.size
        if self.last is None or self.last.number != number or self.last.state != CHANNEL_OPEN or self.at != OPENED:
            self.usable(number)
        self.begin_frame(self.out, METHOD, number)
        put_basic_ack(self.out, delivery_tag, multiple)
        self.end_frame(self.out, start)
        self.bytes_out += self.out.size - start

    def nack(self, int number, uint64_t delivery_tag, bint multiple=False, bint requeue=True):
        """basic.nack. Raises StateError when the channel is not open."""
        cdef Py_ssize_t start = self.out.size
        self.usable(number)
        self.begin_frame(self.out, METHOD, number)
        put_basic_nack(self.out, delivery_tag, multiple, requeue)
        self.end_frame(self.out, start)
        self.bytes_out += self.out.size - start

    def reject(self, int number, uint64_t delivery_tag, bint requeue=True):
        """basic.reject. Raises StateError when the channel is not open."""
        cdef Py_ssize_t start = self.out.size
        self.usable(number)
        self.begin_frame(self.out, METHOD, number)
        put_basic_reject(self.out, delivery_tag, requeue)
        self.end_frame(self.out, start)
        self.bytes_out += self.out.size - start

    def take_output(self):
        """What is to be sent, as a list of pieces in their order; an empty list for nothing. They are no longer here
        after it."""
        cdef list pieces
        self.seal()
        pieces = self.pieces
        self.pieces = []
        self.pieces_size = 0
        return pieces

    def __repr__(self):
        return f"<Protocol {self.role} {self.state}, {len(self.channels)} channels>"


cdef bytes as_bytes(object body):
    """The payload of a message: text goes as UTF-8."""
    if isinstance(body, bytes):
        return bytes(body)
    if isinstance(body, str):
        try:
            return (<str>body).encode()
        except UnicodeEncodeError as exc:
            raise EncodeError(f"body: expected text that UTF-8 can express: {exc}") from exc
    if isinstance(body, (bytearray, memoryview)):
        return bytes(body)
    raise EncodeError(f"body: expected bytes, bytearray, memoryview or str, got {type(body).__name__}")
