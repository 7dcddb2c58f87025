# cython: language_level=3, nonecheck=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""Calls over a packet stream: methods, values, deadlines, streams. The part of fast_rpc that every call goes through.

A request (and a push, which is a call without an answer) begins with (big-endian)

    u8 flags        1 a stream goes up with it, 2 the caller wants a stream down, 4 keyword arguments, 8 metadata
    u8 position     of the argument that the stream up stands for (flag 1), else 0
    u16 length      of the method's name
    u32 deadline    milliseconds that the caller waits; 0: no limit
    name            UTF-8
    u16 length, metadata    (flag 8) UTF-8, a JSON object of strings
    value           the list of arguments; with flag 4, a list of them and an object of keyword arguments

A value, also that of a reply or an item, is

    u16 number of buffers, u32 length of each (bit 31: it is mutable), encoded value, the buffers

Encoding and decoding are done in the thread that calls or executes, never in the reader: so an error fails this call
and nothing else. With pickle and no registered classes both are one call of the interpreter's pickle module and a look
through the result (_wire/values.pyx).

A handler that is a generator answers with a stream. Both directions of a stream send as long as the receiver has given
credit (bytes); it gives more when half of the window is used up. So a slow reader stops the writer, and nobody else.

Longer than most files: both ends of a call and of a stream are here, because each end may call the other.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.contextvars cimport PyContextVar_Get, PyContextVar_Set
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from coro.capi cimport (WAIT_OBJECT, coro, give_way, require_abi, running_thread, spawn_internal, suspend,
                        ticks_from_ns, ticks_now, ticks_to_ns, ticks_to_seconds, timer_add, timer_cancel, wake)
from coro.rpc._wire.frames cimport (CREDIT_DOWN, CREDIT_UP, END_UP, FAIL, HEADER, ITEM_DOWN, ITEM_UP, PUSH, REPLY,
                                    REQUEST)
from coro.rpc._wire.values cimport check_pickle
from coro.rpc.packet_stream cimport *

import contextvars
import inspect
import json
import math
import pickle
import traceback
import types

import coro as _coro
from coro._runtime import scheduler
from coro.exceptions import Interrupted, Shutdown, SimultaneousError
from coro.rpc._arguments import Items, OneShot
from coro.rpc.codecs import Pickle
from coro.rpc.exceptions import (BadArguments, Busy, CallTimeout, ConnectionLost, DecodeError, EncodeError, LocalError,
                                 NotPermitted, PacketTooBig, ProtocolError, RemoteError, RpcError, UploadError)
from coro.rpc.packet_stream import _failure, _positive, _text

require_abi()

__all__ = ["IncomingCall", "Limits", "Method", "Pending", "RpcStream", "Stream", "current_call"]

cdef enum:
    UP = 1
    DOWN = 2
    KEYWORDS = 4
    METADATA = 8

    OUT_OF_BAND = 65536     # bytes from this size on travel beside the pickle
    PATIENCE = 128          # items that a stream hands out or in before others get their turn
    WAITING_HELLO = 100     # requests kept while the handshake is under way
    EARLY_CLIENT = 1048576  # bytes of these that a client keeps
    EARLY_SERVER = 65536
    UNKNOWN = 8192          # bytes of a packet of somebody who has not said who he is
    PARTS = 4
    RATHER_VIEW = 4096      # of a value from this size on, no copy is made to decode it

cdef str SHORT_HEAD = "expected a call, the message ended within its head"

cdef object dumps = pickle.dumps
cdef object loads = pickle.loads
cdef object current_var = contextvars.ContextVar("coro.rpc call", default=None)
cdef object _generator = types.GeneratorType
cdef tuple nothing = ()


def current_call():
    """The call that the running thread executes (an IncomingCall), or None. Threads that a handler starts inherit
    it."""
    return current_var.get()


def _leave_call():
    """The running thread belongs to no call any more: it works for several."""
    current_var.set(None)


cdef class Limits:
    """How many calls a server executes at a time, over all connections."""

    cdef public int running, most

    def __init__(self, most):
        self.most = most


cdef class Lane:
    """Calls that are executed one after the other."""

    cdef bint busy
    cdef list queue

    def __cinit__(self):
        self.queue = []


cdef class Method:
    """An exported callable and what was said about it; made by a registry."""

    cdef public str name
    cdef public object function, allow, signature
    cdef public int limit, running
    cdef public object max_time
    cdef public object serial
    cdef public bint idempotent
    cdef public str doc
    cdef public unsigned long long calls, failures
    cdef Lane lane
    cdef uint64_t histogram[32]

    def __init__(self, name, function, *, limit=0, max_time=None, serial=None, allow=None, idempotent=False, doc="",
                 signature=""):
        self.name = name
        self.function = function
        self.limit = limit
        self.max_time = max_time
        self.serial = serial
        self.allow = allow
        self.idempotent = idempotent
        self.doc = doc
        self.signature = signature
        self.lane = Lane() if serial == "method" else None

    cdef int note(self, int64_t ticks) except -1:
        cdef int64_t micro = ticks_to_ns(ticks) // 1000
        cdef int bit = 0
        while micro and bit < 31:
            micro >>= 1
            bit += 1
        self.histogram[bit] += 1
        return 0

    def latencies(self):
        """How many executions took less than 2**i microseconds, and not less than half of it; i from 0 to 31."""
        cdef int i
        return [self.histogram[i] for i in range(32)]


cdef class Upload:
    """The items of a stream that a caller sends: an iterator for the method that it is an argument of."""

    cdef RpcStream stream
    cdef uint64_t number
    cdef list items
    cdef Py_ssize_t head, held, used
    cdef bint ended
    cdef object error
    cdef coro waiter
    cdef int patience

    def __cinit__(self):
        self.items = []

    def __iter__(self):
        return self

    def __next__(self):
        cdef bytes payload
        cdef Py_ssize_t n
        cdef coro me
        while self.head == <Py_ssize_t>len(self.items):
            if self.ended:
                if self.error is not None:
                    raise self.error
                raise StopIteration
            me = running_thread()
            if self.waiter is not None:
                raise SimultaneousError(me, self.waiter, self)
            self.waiter = me
            try:
                suspend(me, WAIT_OBJECT, self.stream)
            finally:
                self.waiter = None
        payload = self.items[self.head]
        self.head += 1
        if self.head == <Py_ssize_t>len(self.items):
            self.items = []
            self.head = 0
        n = PyBytes_GET_SIZE(payload) + HEADER
        self.held -= n
        self.used += n
        if self.used * 2 >= <Py_ssize_t>self.stream.window and not self.ended:
            self.stream.put_credit(CREDIT_UP, self.number, self.used)
            self.used = 0
        self.patience += 1
        if self.patience >= PATIENCE:
            self.patience = 0
            give_way(running_thread())
        return self.stream.decode(payload, 0)

    cdef int end(self, object error) except -1:
        self.ended = True
        self.error = error
        if self.waiter is not None:
            wake(self.waiter, None)
        return 0


cdef class IncomingCall(Incoming):
    """A call of the other side that is being executed here: what ``fast_rpc.current_call()`` returns."""

    cdef int flags, position
    cdef Py_ssize_t at
    cdef object meta
    cdef Lane lane
    cdef public object note

    @property
    def name(self):
        """The method's name."""
        return (<Method>self.method).name

    @property
    def connection(self):
        """The connection that it came over: its ``call`` calls the caller back."""
        return (<RpcStream>self.stream).facade

    @property
    def identity(self):
        """Who calls: what the handshake has established, a str, or None for a stranger."""
        return (<RpcStream>self.stream).identity

    @property
    def metadata(self):
        """A dict of strings that the caller sent along (a tracing context, for example)."""
        if self.meta is None:
            return {}
        if type(self.meta) is bytes:
            try:
                found = json.loads(self.meta)
                self.meta = {k: v for k, v in found.items() if isinstance(v, str)}
            except (ValueError, AttributeError, RecursionError):
                self.meta = {}
        return dict(self.meta)

    @property
    def remaining(self):
        """Seconds until nobody waits for the answer any more; ``math.inf`` without a limit."""
        if not self.deadline:
            return math.inf
        return max(0.0, ticks_to_seconds(self.deadline - ticks_now()))

    def __repr__(self):
        return f"<IncomingCall {self.id} of {self.name} from {self.stream.name}>"


cdef class Pending(Call):
    """A call on its way: the handle that ``call_async`` returns.

    It ends exactly once: by an answer, its time limit, ``cancel()``, or the end of the connection."""

    cdef coro uploader
    cdef int64_t up_credit
    cdef coro credit_waiter
    cdef bint one_shot

    cdef object outcome(self):
        if self.state == REPLIED:
            if self.segments is not None:
                return (<RpcStream>self.stream).decode_pieces(<bytes>self.payload, 0, self.segments)
            return (<RpcStream>self.stream).decode(<bytes>self.payload, 0)
        raise self.stream.failure(self)

    cdef int finish(self, int state, object payload) except -1:
        Call.finish(self, state, payload)
        if self.uploader is not None and not self.uploader.dead and self.uploader is not scheduler.current():
            self.uploader.shutdown()
        return 0

    cdef int take_credit(self, int64_t n) except -1:
        self.up_credit += n
        if self.up_credit > 0x7fffffff:
            raise ProtocolError("expected no more credit for a stream than was used up")
        if self.credit_waiter is not None and self.up_credit > 0:
            wake(self.credit_waiter, None)
        return 0

    def wait(self, timeout=None):
        """The result. Raises what ``call`` raises. Any thread may call it, one at a time, and again after the end.
        timeout: seconds for this call of ``wait`` alone, after which ``coro.TimeoutError`` is raised, and the call goes
        on."""
        return Call.wait(self, timeout)


cdef class Download(Pending):
    """The far end of a Stream: it stays in the table of calls when the user drops that."""

    cdef list items
    cdef Py_ssize_t head, held, used
    cdef int patience

    def __cinit__(self):
        self.items = []

    cdef int take_item(self, object payload) except -1:
        self.held += PyBytes_GET_SIZE(<bytes>payload) + HEADER
        if self.held > <Py_ssize_t>self.stream.window + self.stream.max_packet + HEADER:
            raise ProtocolError(f"expected {self.stream.window} bytes of a stream without credit, got more")
        self.items.append(payload)
        if self.thread is not None:
            wake(self.thread, None)
        return 0


@cython.final
cdef class Stream:
    """What a streaming method answers with: an iterator over its items.

    ``result`` is what the method returned, after the last item. ``close()``, leaving a ``with`` block, or dropping the
    object stops the method. One thread at a time may iterate. Iterating raises what ``call`` raises, after the items
    that came before the failure."""

    cdef Download call
    cdef object value
    cdef object __weakref__

    def __iter__(self):
        return self

    def __next__(self):
        cdef Download call = self.call
        cdef RpcStream stream = <RpcStream>call.stream
        cdef bytes payload
        cdef Py_ssize_t n
        cdef coro me
        while call.head == <Py_ssize_t>len(call.items):
            if call.state != WAITING:
                if call.state == REPLIED:
                    self.value = call.outcome()
                    raise StopIteration
                raise call.stream.failure(call)
            me = running_thread()
            if call.thread is not None:
                raise SimultaneousError(me, call.thread, self)
            call.thread = me
            try:
                suspend(me, WAIT_OBJECT, self)
            finally:
                call.thread = None
        payload = <bytes>call.items[call.head]
        call.head += 1
        if call.head == <Py_ssize_t>len(call.items):
            call.items = []
            call.head = 0
        n = PyBytes_GET_SIZE(payload) + HEADER
        call.held -= n
        call.used += n
        if call.used * 2 >= <Py_ssize_t>stream.window and call.state == WAITING:
            stream.put_credit(CREDIT_DOWN, call.id, call.used)
            call.used = 0
        call.patience += 1
        if call.patience >= PATIENCE:
            call.patience = 0
            give_way(running_thread())
        return stream.decode(payload, 0)

    @property
    def result(self):
        """What the method returned; None before the last item has been taken."""
        return self.value

    @property
    def done(self):
        """Has the method ended? Items may be left."""
        return self.call.state != WAITING

    def close(self):
        """Stop the method, and forget the items that are left. Does not wait."""
        self.call.items = []
        self.call.head = 0
        if self.call.state == WAITING:
            self.call.stream.n_cancelled += 1
            self.call.abandon(CANCELLED)

    def __enter__(self):
        return self

    def __exit__(self, kind, exc, traceback):
        self.close()
        return False

    def __del__(self):
        # Nothing here waits, whoever runs it: it puts a frame into a buffer.
        if self.call is not None and self.call.state == WAITING:
            if _coro.coro_is_running():
                try:
                    scheduler._check_os_thread()
                except Exception:
                    try:
                        scheduler._post_internal(self.call.cancel)
                    except Exception:
                        pass
                    return
                self.close()

    def __repr__(self):
        return f"<Stream of {self.call.what}: {'ended' if self.call.state != WAITING else 'open'}>"


def _upload(Pending call not None, iterator, once):
    if once is not None:
        once.begun = True
    (<RpcStream>call.stream).send_up(call, iterator)


cdef class RpcStream(PacketStream):
    """A connection of fast_rpc; the classes there are what users see."""

    cdef public object codec
    cdef bint quick                     # pickle without classes
    cdef public object facade, identity, registry, hooks, errors
    cdef dict methods, builtins
    cdef public bint tracebacks
    cdef object greeter
    cdef bint agreed, is_server, replaying
    cdef list early
    cdef int hellos, greetings
    cdef Py_ssize_t early_held
    cdef Limits limits
    cdef Lane lane
    cdef bint in_order
    cdef dict names
    cdef public object slow, on_slow, on_error

    def prepare(self, *, facade, methods, hooks, limits, tracebacks, in_order, is_server, greeter, errors, slow,
                on_slow, on_error, builtins, greetings=1):
        """Before start(): what a packet stream has not."""
        self.facade = facade
        self.methods = methods
        self.builtins = builtins
        self.hooks = hooks
        self.limits = limits
        self.tracebacks = tracebacks
        self.in_order = in_order
        self.lane = Lane()
        self.is_server = is_server
        self.greeter = greeter
        self.errors = errors
        self.slow = slow
        self.on_slow = on_slow
        self.on_error = on_error
        self.takes_pieces = True
        self.early = []
        self.names = {}
        self.greetings = greetings
        if is_server:
            self.frames.bound(min(<Py_ssize_t>UNKNOWN, self.max_packet), 1)

    def agree(self, codec, identity):
        """The handshake is over: from now on calls are executed."""
        self.codec = codec
        self.quick = type(codec) is Pickle and codec.plain
        self.identity = identity
        self.agreed = True
        if self.state == CLOSED:
            return
        self.frames.bound(self.max_packet, PARTS)
        early, self.early = self.early, []
        self.replaying = True
        for kind, number, payload in early:
            if self.state == CLOSED:
                break
            if kind == REQUEST:
                self.on_request(number, payload)
            else:
                self.on_push(number, payload)
        self.replaying = False

    def _forget(self):
        self.greeter = None
        self.early = []

    def _is_agreed(self):
        return bool(self.agreed)

    def reject(self, exc):
        """The handshake has failed: tell the other side why, and end."""
        self._reject(exc)
        self.kick(None)

    # -- values

    cdef list encode(self, object value):
        """A value as pieces: [prefix + encoded value, buffers ...]. Raises EncodeError."""
        cdef bytes body
        if self.quick and not large(value):
            try:
                body = <bytes>dumps(value, 5)
            except Exception as e:
                raise EncodeError(f"expected a value that can be sent, got a {type(value).__name__}: "
                                  f"{type(e).__name__}: {e}") from e
            try:
                if not check_pickle(PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body), 0, self.codec.max_depth,
                                    self.codec.max_memory):
                    return [body]
            except DecodeError:
                pass            # the codec finds it, too, and says what to do
        body, buffers = self.codec.encode(value)
        if not buffers:
            return [body]
        if len(buffers) > 0xffff:
            raise EncodeError(f"expected at most 65535 large buffers, got {len(buffers)}")
        prefix = bytearray(len(buffers).to_bytes(2, "big"))
        for buffer in buffers:
            prefix += (len(buffer) | (0x80000000 if type(buffer) is bytearray else 0)).to_bytes(4, "big")
        return [bytes(prefix), body, *buffers]

    cdef object decode(self, bytes payload, Py_ssize_t at):
        """The value that begins at byte `at`. Raises DecodeError."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(payload), n, i, start, length
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(payload)
        cdef list buffers
        cdef uint32_t word
        if size - at < 2:
            raise DecodeError("expected a value, the message ended before it")
        n = p[at] << 8 | p[at + 1]
        at += 2
        if n == 0:
            if self.quick:
                if check_pickle(<const char *>p + at, size - at, 0, self.codec.max_depth, self.codec.max_memory):
                    return self.codec.decode(payload[at:], ())
                try:
                    if size - at >= RATHER_VIEW:
                        return loads(memoryview(payload)[at:])
                    return loads(PyBytes_FromStringAndSize(<const char *>p + at, size - at))
                except Exception as e:
                    raise DecodeError(f"expected a pickle of known values: {type(e).__name__}: {e}") from e
            return self.codec.decode(payload[at:], ())
        if size - at < 4 * n:
            raise DecodeError("expected the lengths of buffers, the message ended before them")
        length = 0
        for i in range(n):
            word = p[at + 4 * i] << 24 | p[at + 4 * i + 1] << 16 | p[at + 4 * i + 2] << 8 | p[at + 4 * i + 3]
            length += word & 0x7fffffff
        start = size - length
        if start < at + 4 * n:
            raise DecodeError("expected buffers, the message ended before them")
        buffers = []
        for i in range(n):
            word = p[at] << 24 | p[at + 1] << 16 | p[at + 2] << 8 | p[at + 3]
            at += 4
            length = word & 0x7fffffff
            data = PyBytes_FromStringAndSize(<const char *>p + start, length) if not word & 0x80000000 else \
                bytearray(memoryview(payload)[start:start + length])
            buffers.append(data)
            start += length
        start = size - sum([len(b) for b in buffers])
        return self.codec.decode(payload[at:start], buffers)

    cdef object decode_pieces(self, bytes payload, Py_ssize_t at, list pieces):
        """The same, where the buffers have come into memory of their own."""
        cdef Py_ssize_t n, i
        cdef uint32_t word
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(payload)
        if PyBytes_GET_SIZE(payload) - at >= 2:
            n = p[at] << 8 | p[at + 1]
            at += 2
            if n == len(pieces) and PyBytes_GET_SIZE(payload) - at >= 4 * n:
                buffers = []
                for i in range(n):
                    word = p[at] << 24 | p[at + 1] << 16 | p[at + 2] << 8 | p[at + 3]
                    at += 4
                    if (word & 0x7fffffff) != <uint32_t>PyBytes_GET_SIZE(<bytes>pieces[i]):
                        break
                    buffers.append(bytearray(pieces[i]) if word & 0x80000000 else pieces[i])
                else:
                    return self.codec.decode(payload[at:], buffers)
                at -= 4 * (i + 1)
            at -= 2
        return self.decode(b"".join([payload, *pieces]), at)

    cdef int put_value(self, int kind, uint64_t number, bytes head, list pieces) except -1:
        """A packet: `head` and a value. Raises PacketTooBig."""
        cdef bytes body
        cdef Py_ssize_t total, n
        cdef bytes prefix
        if len(pieces) == 1:
            body = <bytes>pieces[0]
            n = PyBytes_GET_SIZE(head) + 2
            total = n + PyBytes_GET_SIZE(body)
            if total > self.max_packet or total > <Py_ssize_t>self.frames.peer_max_packet:
                self.check_size(total)
            prefix = head + b"\0\0" if PyBytes_GET_SIZE(head) else b"\0\0"
            if total <= 65536:
                return self.put(kind, number, PyBytes_AS_STRING(prefix), n, PyBytes_AS_STRING(body),
                                PyBytes_GET_SIZE(body))
            return self.put_pieces(kind, number, [prefix, body], total)
        pieces = [head, *pieces]
        total = 0
        for piece in pieces:
            total += len(piece)
        self.check_size(total)
        return self.put_pieces(kind, number, pieces, total)

    cdef int check_value(self, bytes head, list pieces) except -1:
        cdef Py_ssize_t total = PyBytes_GET_SIZE(head) + 2
        for piece in pieces:
            total += len(piece)
        return self.check_size(total)

    # -- calling

    cdef bytes head(self, str method, int flags, int position, int64_t milliseconds, object metadata):
        cdef bytes name = self.names.get(method)
        cdef char start[8]
        cdef bytes out
        cdef char *p
        cdef Py_ssize_t n
        if name is None:
            name = method.encode()
            if not 0 < len(name) <= 1000:
                raise LocalError(f"expected the name of a method, of at most 1000 bytes, got {method[:80]!r}")
            if len(self.names) < 1000:
                self.names[method] = name
        if metadata:
            extra = json.dumps({str(k): str(v) for k, v in metadata.items()}).encode()
            if len(extra) > 65535:
                raise LocalError(f"expected at most 65535 bytes of metadata, got {len(extra)}")
            name_and = name + len(extra).to_bytes(2, "big") + extra
            flags |= METADATA
        else:
            name_and = name
        n = PyBytes_GET_SIZE(name)
        if milliseconds > 0xffffffff:
            milliseconds = 0xffffffff
        out = PyBytes_FromStringAndSize(NULL, 8 + len(name_and))
        p = PyBytes_AS_STRING(out)
        p[0] = <char>flags
        p[1] = <char>position
        p[2] = <char>(n >> 8)
        p[3] = <char>n
        p[4] = <char>(milliseconds >> 24)
        p[5] = <char>(milliseconds >> 16)
        p[6] = <char>(milliseconds >> 8)
        p[7] = <char>milliseconds
        memcpy(p + 8, PyBytes_AS_STRING(<bytes>name_and), PyBytes_GET_SIZE(<bytes>name_and))
        return out

    cdef Pending begin_value(self, str method, tuple args, dict kwargs, object timeout, object metadata, bint down):
        cdef Pending call
        cdef coro me = running_thread()
        cdef int flags = DOWN if down else 0, position = 0
        cdef int64_t milliseconds = 0
        cdef double seconds, rest
        cdef Py_ssize_t i
        cdef list pieces
        cdef bytes head
        cdef IncomingCall above
        cdef object iterator = None, once = None
        self.check_usable()
        if not self.agreed:
            raise LocalError("expected the handshake before the first call")
        for i in range(len(args)):
            arg = args[i]
            if type(arg) is not str and type(arg) is not int and type(arg) is not bytes and arg is not None:
                if type(arg) is OneShot or type(arg) is Items or hasattr(type(arg), "__next__"):
                    if iterator is not None or i > 254:
                        raise LocalError("expected at most one iterator among the arguments, before the 256th")
                    if type(arg) is OneShot:
                        once = arg
                        iterator = arg.iterator
                    else:
                        iterator = arg._iterator() if type(arg) is Items else arg
                    position = i
        if iterator is not None:
            flags |= UP
            args = args[:position] + (None,) + args[position + 1:]
        call = <Pending>(Download.__new__(Download) if down else Pending.__new__(Pending))
        call.stream = self
        call.caller = me
        call.what = method
        if timeout is None:
            seconds = math.inf if down else self.timeout
        else:
            seconds = timeout
            if not seconds > 0:
                raise CallTimeout(f"no time is left for the call of {method}", seconds)
        above = current_var.get()
        if above is not None and above.deadline and not above.done:
            rest = ticks_to_seconds(above.deadline - ticks_now())
            if rest < seconds:
                if rest <= 0:
                    raise CallTimeout(f"the time of the call that calls {method} is over")
                seconds = rest
                call.inherited = True
        if above is not None and above.stream is self and not above.done and \
                <Py_ssize_t>len(self.pending) >= self.max_outstanding:
            # Its caller may be waiting for this call, and so on: room might never come.
            raise Busy(f"{len(self.pending)} calls to {self.name} are under way, as many as may be, and {method} is "
                       "called by a method that is executed for the same connection, perhaps for one of them; nest "
                       "calls less deeply, or raise max_outstanding")
        if seconds < 4e6:
            milliseconds = <int64_t>(seconds * 1000.0) + 1
            call.limit(seconds)
        else:
            call.limit(None)
        if kwargs:
            flags |= KEYWORDS
            pieces = self.encode((args, kwargs))
        else:
            pieces = self.encode(args)
        try:
            self.begin_call(call, me)
            head = self.head(method, flags, position, milliseconds, metadata)
            self.check_value(head, pieces)
        except BaseException:
            call.abandon(CANCELLED)
            raise
        self.active = call.started
        self.n_calls += 1
        self.pending[call.id] = call
        self.put_value(REQUEST, call.id, head, pieces)
        if iterator is not None:
            call.up_credit = self.frames.peer_window
            call.uploader = spawn_internal(_upload, (call, iterator, once), True)
        return call

    def call(self, str method, tuple args, dict kwargs, timeout=None, metadata=None):
        """Call and wait."""
        cdef Pending call = self.begin_value(method, args, kwargs, timeout, metadata, False)
        try:
            call.await_end(running_thread())
        except BaseException:
            self.n_cancelled += 1
            call.abandon(CANCELLED)
            raise
        return call.outcome()

    def call_async(self, str method, tuple args, dict kwargs, timeout=None, metadata=None):
        """The handle of a call."""
        return self.begin_value(method, args, kwargs, timeout, metadata, False)

    def open_stream(self, str method, tuple args, dict kwargs, timeout=None, metadata=None):
        """The Stream of a call."""
        cdef Stream stream = Stream.__new__(Stream)
        stream.call = <Download>self.begin_value(method, args, kwargs, timeout, metadata, True)
        return stream

    def cast(self, str method, tuple args, dict kwargs, metadata=None):
        """A call without an answer."""
        cdef bytes head
        cdef list pieces
        self.check_usable()
        if not self.agreed:
            raise LocalError("expected the handshake before the first call")
        head = self.head(method, KEYWORDS if kwargs else 0, 0, 0, metadata)
        pieces = self.encode((args, kwargs) if kwargs else args)
        if len(pieces) == 1:
            pieces = [b"\0\0", pieces[0]]
        self._push(b"".join([head, *pieces]))

    cdef int send_up(self, Pending call, object iterator) except -1:
        """In a thread of its own: the items of a stream that goes with a call."""
        cdef coro me = running_thread()
        cdef list pieces
        cdef int patience = 0
        cdef Py_ssize_t n
        try:
            try:
                for item in iterator:
                    pieces = self.encode(item)
                    self.check_value(b"", pieces)
                    while call.state == WAITING and call.up_credit <= 0:
                        call.credit_waiter = me
                        try:
                            suspend(me, WAIT_OBJECT, self)
                        finally:
                            call.credit_waiter = None
                    if self.queued > self.max_queued:
                        self.wait_for_room(me, None)
                    if call.state != WAITING:
                        return 0
                    n = 2 + HEADER
                    for piece in pieces:
                        n += len(piece)
                    call.up_credit -= n
                    self.put_value(ITEM_UP, call.id, b"", pieces)
                    patience += 1
                    if patience >= PATIENCE:
                        patience = 0
                        give_way(me)
            except Exception as e:
                if call.state == WAITING:
                    self.put_bytes(END_UP, call.id, (_text(e).encode("utf-8", "replace") or b"?")[:65536])
            else:
                if call.state == WAITING:
                    self.put(END_UP, call.id, NULL, 0, NULL, 0)
        finally:
            call.uploader = None
            close = getattr(iterator, "close", None)
            if close is not None:
                close()
        return 0

    # -- being called

    cdef int on_request(self, uint64_t number, bytes payload) except -1:
        cdef IncomingCall inc
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(payload)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(payload)
        if not self.agreed:
            return self.before_agreed(REQUEST, number, self.frames.whole())
        inc = self.parse(number, payload, False)
        if inc is not None and self.admit_call(inc):
            self.launch(inc)
        return 0

    cdef int before_agreed(self, int kind, uint64_t number, bytes payload) except -1:
        if not self.is_server or self.hellos >= self.greetings:
            # All messages of the handshake have come, and a thread is looking at them.
            self.early_held += PyBytes_GET_SIZE(payload)
            if len(self.early) >= WAITING_HELLO or \
                    self.early_held > (EARLY_SERVER if self.is_server else EARLY_CLIENT):
                raise ProtocolError("expected an end of the handshake before so many calls")
            self.early.append((kind, number, payload))
            return 0
        self.hellos += 1
        if kind != REQUEST or self.greeter is None:
            raise ProtocolError("expected the handshake before the first call")
        spawn_internal(self.greeter, (number, payload), True)
        return 0

    def answer(self, uint64_t number, bytes payload not None):
        """For the handshake."""
        self.put_bytes(REPLY, number, payload)

    def refuse(self, uint64_t number, int code, str text):
        """For the handshake."""
        self.fail(number, code, text)

    cdef IncomingCall parse(self, uint64_t number, bytes payload, bint one_way):
        """The head of a call; None: it was refused."""
        cdef IncomingCall inc
        cdef Method method
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(payload)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(payload), n, at
        cdef int64_t milliseconds
        if size < 10:
            return self.refused(number, one_way, CODE_BAD_ENCODING, SHORT_HEAD)
        n = p[2] << 8 | p[3]
        at = 8 + n
        if at > size:
            return self.refused(number, one_way, CODE_BAD_ENCODING, SHORT_HEAD)
        found = self.methods.get(PyBytes_FromStringAndSize(<const char *>p + 8, n))
        if found is None and self.builtins is not None:
            found = self.builtins.get(PyBytes_FromStringAndSize(<const char *>p + 8, n))
        if found is None:
            return self.refused(number, one_way, CODE_NO_METHOD,
                                f"no method {payload[8:at][:100].decode('utf-8', 'replace')!r} is exported")
        method = <Method>found
        if method.allow is not None and self.identity not in method.allow:
            return self.refused(number, one_way, CODE_NOT_PERMITTED,
                                f"{self.identity or 'a stranger'} may not call {method.name}")
        inc = <IncomingCall>IncomingCall.__new__(IncomingCall)
        inc.stream = self
        inc.id = number
        inc.payload = payload
        if not one_way and not self.replaying:
            inc.segments = self.frames.out_segments
        inc.method = method
        inc.one_way = one_way
        inc.flags = p[0]
        inc.position = p[1]
        if inc.flags & METADATA:
            if size - at < 2:
                return self.refused(number, one_way, CODE_BAD_ENCODING, "expected metadata, the message ended")
            n = p[at] << 8 | p[at + 1]
            at += 2
            if size - at < n:
                return self.refused(number, one_way, CODE_BAD_ENCODING, "expected metadata, the message ended")
            inc.meta = payload[at:at + n]
            at += n
        inc.at = at
        milliseconds = <int64_t>p[4] << 24 | <int64_t>p[5] << 16 | <int64_t>p[6] << 8 | p[7]
        if method.max_time is not None:
            n = <Py_ssize_t>(<double>method.max_time * 1000)
            if milliseconds == 0 or n < milliseconds:
                milliseconds = n
        if milliseconds:
            inc.deadline = self.heard + ticks_from_ns(milliseconds * 1000000)
        if inc.flags & UP:
            upload = Upload.__new__(Upload)
            (<Upload>upload).stream = self
            (<Upload>upload).number = number
            inc.upload = upload
        return inc

    cdef IncomingCall refused(self, uint64_t number, bint one_way, int code, str text):
        if not one_way:
            self.fail(number, code, text)
        return None

    cdef int admit_call(self, IncomingCall inc) except -1:
        cdef Method method = <Method>inc.method
        if not self.admit(inc):
            return 0
        if self.limits is not None and self.limits.running >= self.limits.most:
            self.n_busy += 1
            self.fail(inc.id, CODE_BUSY, f"the server executes {self.limits.running} calls, as many as it may; repeat "
                      "it later")
            return 0
        if method.limit and method.running >= method.limit:
            self.n_busy += 1
            self.fail(inc.id, CODE_BUSY, f"{method.running} calls of {method.name} are executed, as many as may be; "
                      "repeat it later")
            return 0
        return 1

    cdef int launch(self, IncomingCall inc) except -1:
        cdef Method method = <Method>inc.method
        cdef Lane lane = None
        self.held += inc.size
        inc.started = self.heard
        inc.credit = self.frames.peer_window
        if not inc.one_way:
            self.serving[inc.id] = inc
        method.running += 1
        if self.limits is not None:
            self.limits.running += 1
        if self.in_order:
            lane = self.lane
        elif method.serial is not None:
            lane = method.lane if method.lane is not None else self.lane
        if inc.deadline:
            timer_add(inc, inc.deadline)
        if lane is not None:
            inc.lane = lane
            if lane.busy:
                lane.queue.append(inc)
                return 0
            lane.busy = True
        self.run_thread(inc)
        return 0

    cdef int run_thread(self, IncomingCall inc) except -1:
        inc.thread = spawn_internal(_serve_call, (inc,), True)
        inc.thread.label = (<Method>inc.method).name
        return 0

    cdef int on_push(self, uint64_t number, bytes payload) except -1:
        cdef IncomingCall inc
        if not self.agreed:
            return self.before_agreed(PUSH, number, payload)
        inc = self.parse(number, payload, True)
        if inc is None or self.state != OPEN:
            return self.return_push_credit(PyBytes_GET_SIZE(payload) + HEADER)
        self.launch(inc)
        return 0

    cdef int on_item_up(self, uint64_t number, bytes payload) except -1:
        cdef Upload upload
        found = self.serving.get(number)
        if found is None:
            return 0
        upload = (<Incoming>found).upload
        if upload is None or upload.ended:
            raise ProtocolError(f"expected no item of a stream with request {number}")
        upload.held += PyBytes_GET_SIZE(payload) + HEADER
        if upload.held > <Py_ssize_t>self.window + self.max_packet + HEADER:
            raise ProtocolError(f"expected {self.window} bytes of a stream without credit, got more")
        upload.items.append(payload)
        if upload.waiter is not None:
            wake(upload.waiter, None)
        return 0

    cdef int on_end_up(self, uint64_t number, bytes payload) except -1:
        found = self.serving.get(number)
        if found is not None and (<Incoming>found).upload is not None:
            (<Upload>(<Incoming>found).upload).end(
                UploadError(payload.decode("utf-8", "replace")) if payload else None)
        return 0

    cdef int serve(self, Incoming incoming) except -1:
        """In a thread of its own: a call."""
        cdef IncomingCall inc = <IncomingCall>incoming
        cdef Method method = <Method>inc.method
        cdef list pieces
        cdef tuple args
        error = None
        after = None
        if inc.expired or inc.cancelled:
            if inc.expired and not inc.cancelled:
                self.say_expired(inc)
            return 0
        try:
            try:
                if inc.segments is not None:
                    arguments = self.decode_pieces(<bytes>inc.payload, inc.at, inc.segments)
                else:
                    arguments = self.decode(<bytes>inc.payload, inc.at)
                kwargs = None
                if inc.flags & KEYWORDS:
                    arguments, kwargs = arguments
                    if type(kwargs) is not dict:
                        raise DecodeError("expected keyword arguments")
                if type(arguments) is not tuple:
                    if type(arguments) is not list:
                        raise DecodeError("expected a list of arguments")
                    arguments = tuple(arguments)
                args = <tuple>arguments
                if inc.upload is not None:
                    if inc.position >= len(args):
                        raise DecodeError("expected the stream to stand for an argument")
                    args = args[:inc.position] + (inc.upload,) + args[inc.position + 1:]
            except (DecodeError, TypeError, ValueError) as e:
                self.answer_failure(inc, CODE_BAD_ENCODING, str(e))
                return 0
            # The reader need not keep it.
            self.after_payload(inc)
            current_var.set(inc)
            if self.hooks is not None:
                for hook in self.hooks.before:
                    hook(inc, args, kwargs or {})
            if kwargs:
                result = method.function(*args, **kwargs)
            else:
                result = method.function(*args)
            if type(result) is _generator:
                result = self.send_down(inc, result)
                if inc.done:
                    return 0
            elif inc.flags & DOWN and not inc.one_way:
                self.answer_failure(inc, CODE_BAD_ARGUMENTS, f"{method.name} is no stream: use call()")
                return 0
            if self.hooks is not None and self.hooks.after:
                for hook in self.hooks.after:
                    hook(inc, result)
            if not inc.one_way and not inc.cancelled:
                pieces = self.encode(result)
                if self.queued > self.max_queued:
                    self.wait_for_room(running_thread(), None)
                self.put_value(REPLY, inc.id, b"", pieces)
        except Interrupted as e:
            method.failures += 1
            if inc.expired:
                self.say_expired(inc)
                if not isinstance(e, Shutdown):
                    raise
            elif inc.cancelled:
                if not isinstance(e, Shutdown):
                    raise
            else:
                # Not CODE_GOING_AWAY, which promises that nothing was executed.
                self.answer_failure(inc, CODE_CANCELLED if isinstance(e, Shutdown) else CODE_EXCEPTION,
                                    f"{method.name} was stopped by the server")
                raise
        except (EncodeError, PacketTooBig) as e:
            method.failures += 1
            self.answer_failure(inc, CODE_TOO_BIG if isinstance(e, PacketTooBig) else CODE_BAD_ENCODING,
                                f"the result of {method.name} cannot be sent: {e}")
            self.note_error(inc, e)
        except Exception as e:
            method.failures += 1
            self.say_exception(inc, e)
            self.note_error(inc, e)
        except BaseException as e:
            # SystemExit, KeyboardInterrupt: the thread ends by it, as any other would, and the caller is told.
            method.failures += 1
            self.say_exception(inc, e)
            raise
        return 0

    cdef int after_payload(self, IncomingCall inc) except -1:
        cdef Py_ssize_t n = PyBytes_GET_SIZE(<bytes>inc.payload) + HEADER
        self.held -= inc.size
        inc.size = 0
        inc.payload = b""
        inc.segments = None
        if inc.one_way:
            self.return_push_credit(n)
        return 0

    cdef int answer_failure(self, Incoming inc, int code, str text) except -1:
        if not inc.one_way and not inc.cancelled:
            self.fail(inc.id, code, text)
        return 0

    cdef int say_expired(self, Incoming inc) except -1:
        return self.answer_failure(inc, CODE_DEADLINE,
                                   f"the time for {(<Method>inc.method).name} was over before it ended")

    cdef int note_error(self, IncomingCall inc, object exc) except -1:
        if self.on_error is not None:
            try:
                self.on_error(inc, exc)
            except Exception:
                scheduler._notify()
        return 0

    cdef int say_exception(self, IncomingCall inc, object exc) except -1:
        """What a handler raised crosses the wire as text and plain values."""
        cdef list pieces
        if inc.one_way or inc.cancelled:
            return 0
        if type(exc) is TypeError and (exc.__traceback__ is None or exc.__traceback__.tb_next is None):
            return self.answer_failure(inc, CODE_BAD_ARGUMENTS, f"{(<Method>inc.method).name}: {exc}")
        if isinstance(exc, BadArguments) or isinstance(exc, NotPermitted):
            return self.answer_failure(inc, CODE_BAD_ARGUMENTS if isinstance(exc, BadArguments) else CODE_NOT_PERMITTED,
                                       str(exc.message))
        kind = type(exc)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        try:
            text = str(exc)[:20000]
        except Exception:
            text = "(its text cannot be made)"
        trace = None
        if self.tracebacks:
            trace = "".join(traceback.format_exception(exc))[-60000:]
        details = [] if exc.args and not isinstance(exc.args, tuple) else list(exc.args)
        # The arguments may be what cannot be sent, and all of it more than the other side takes.
        for parts in ([name, text, details, trace], [name, text, [], trace], [name[:200], text[:200], [], None]):
            try:
                pieces = self.encode(parts)
                self.check_value(b"\4", pieces)
            except Exception:
                continue
            self.put_value(FAIL, inc.id, b"\4", pieces)
            return 0
        return self.answer_failure(inc, CODE_TOO_BIG, f"{(<Method>inc.method).name} raised {name[:200]}")

    cdef object send_down(self, IncomingCall inc, object generator):
        """The items of a generator; returns what it returned."""
        cdef coro me = running_thread()
        cdef list pieces
        cdef int patience = 0
        cdef Py_ssize_t n
        if inc.one_way or not inc.flags & DOWN:
            generator.close()
            self.answer_failure(inc, CODE_BAD_ARGUMENTS, f"{(<Method>inc.method).name} answers with a stream: use "
                                "stream() in place of call()")
            inc.done = True
            return None
        try:
            while True:
                try:
                    item = next(generator)
                except StopIteration as e:
                    return e.value
                pieces = self.encode(item)
                while inc.credit <= 0 and not inc.cancelled:
                    inc.credit_waiter = me
                    try:
                        suspend(me, WAIT_OBJECT, self)
                    finally:
                        inc.credit_waiter = None
                if self.queued > self.max_queued:
                    self.wait_for_room(me, None)
                if inc.cancelled:
                    raise Shutdown("the caller has closed the stream")
                n = 2 + HEADER
                for piece in pieces:
                    n += len(piece)
                inc.credit -= n
                self.put_value(ITEM_DOWN, inc.id, b"", pieces)
                patience += 1
                if patience >= PATIENCE:
                    patience = 0
                    give_way(me)
        finally:
            generator.close()

    cdef int served(self, Incoming incoming) except -1:
        cdef IncomingCall inc = <IncomingCall>incoming
        cdef Method method = <Method>inc.method
        cdef int64_t took = ticks_now() - inc.started
        cdef IncomingCall after
        inc.done = True
        inc.thread = None
        timer_cancel(inc)
        if PyBytes_GET_SIZE(<bytes>inc.payload):
            self.after_payload(inc)
        if not inc.one_way:
            self.serving.pop(inc.id, None)
        if inc.upload is not None:
            (<Upload>inc.upload).end(None)
        self.n_served += 1
        method.running -= 1
        method.calls += 1
        method.note(took)
        if self.limits is not None:
            self.limits.running -= 1
        if inc.lane is not None:
            inc.lane.busy = False
            while inc.lane.queue:
                after = inc.lane.queue.pop(0)
                inc.lane.busy = True
                (<RpcStream>after.stream).run_thread(after)
                break
        if self.slow is not None and self.on_slow is not None and ticks_to_seconds(took) >= self.slow:
            try:
                self.on_slow(inc, ticks_to_seconds(took))
            except Exception:
                scheduler._notify()
        if self.end_waiters:
            self.wake_room()
        return 0

    cdef object failure(self, Call call):
        cdef bytes data
        if call.state != FAILED:
            return PacketStream.failure(self, call)
        data = <bytes>call.payload
        if not data or data[0] != CODE_EXCEPTION:
            return PacketStream.failure(self, call)
        try:
            name, text, details, trace = self.decode(data, 1)
            if type(name) is not str or type(text) is not str:
                raise TypeError
            details = tuple(details)
        except DecodeError as e:
            return e
        except Exception:
            return DecodeError("expected an exception as four values, got something else")
        kind = self.errors.get(name) if self.errors else None
        if kind is not None:
            try:
                found = kind(*details)
            except Exception:
                found = None
            if isinstance(found, BaseException):
                if trace:
                    found.add_note(f"Remote traceback:\n{trace}")
                return found
        return RemoteError(text, name, details, trace if type(trace) is str else None)

    def _grant_upload(self, Pending call not None, n):
        """For tests: send more than the other side allows."""
        call.up_credit += n


def _serve_call(IncomingCall inc):
    cdef RpcStream s = <RpcStream>inc.stream
    inc.begun = True
    try:
        s.serve(inc)
    finally:
        s.served(inc)


cdef bint large(object value) except -1:
    """Are there bytes in it that should not be copied into a pickle? Looks two levels deep."""
    cdef object one, two
    if type(value) is bytes:
        return PyBytes_GET_SIZE(<bytes>value) >= OUT_OF_BAND
    if type(value) is tuple or type(value) is list:
        if len(value) > 64:
            return False
        for one in value:
            if type(one) is bytes:
                if PyBytes_GET_SIZE(<bytes>one) >= OUT_OF_BAND:
                    return True
            elif type(one) is tuple or type(one) is list:
                if len(one) <= 64:
                    for two in one:
                        if type(two) is bytes and PyBytes_GET_SIZE(<bytes>two) >= OUT_OF_BAND:
                            return True
            elif type(one) is dict:
                if len(one) <= 64:
                    for two in (<dict>one).values():
                        if type(two) is bytes and PyBytes_GET_SIZE(<bytes>two) >= OUT_OF_BAND:
                            return True
    elif type(value) is dict and len(value) <= 64:
        for one in (<dict>value).values():
            if type(one) is bytes and PyBytes_GET_SIZE(<bytes>one) >= OUT_OF_BAND:
                return True
    return False
