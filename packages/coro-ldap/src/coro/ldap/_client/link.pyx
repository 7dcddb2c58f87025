# cython: language_level=3, nonecheck=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""One connection to a server, from the socket to its loss: the thread that reads, the one that writes, who waits.

* Threads encode their requests, append them to a list and wake the **writer**, which sends what all of them have
  written since its last turn in one ``writev``.  An interrupted thread leaves nothing half sent.  When nothing else is
  under way, nothing could be sent together with a request: then the thread gives it to the kernel itself, as far as
  that takes it without waiting, and one switch is saved.
* The **reader** cuts messages out of the stream and puts each into the `Pending` of its id.  It decodes nothing but
  entries: the thread that waits for an answer decodes it.  An id that nobody waits for is an operation that was given
  up; its answers are dropped.
* A `Pending` is registered before its request is sent.  Giving one up sends an Abandon.
* Binds and StartTLS are alone on the connection (RFC 4511, 4.2.1 and 4.14.1): `exclusive` holds new requests back and
  waits until the others have been answered.
* No more than `most` requests are under way.  OpenLDAP's server ends an anonymous connection with more than a hundred
  (slapd.conf(5), conn_max_pending), without a word.
* Whoever has to wait for one of these two reasons stands in one line, so nobody is overtaken.
* After the answer to StartTLS it is the reader that does the handshake, because nothing may be read in between.  What
  has arrived behind that answer in clear text is refused: somebody on the way could have put it there.

Results that nobody has fetched are counted with the memory that they take.  Above `HIGH` the reader stops, and TCP
makes the server wait, unless some thread waits for an answer with nothing there: then reading goes on, and the search
that holds most of what is in memory is given up at `LIMIT`, which is for all searches of the connection together.

Cost: two threads a connection; for each turn of the loop one system call in each direction; for a request one object
and two switches.  It is compiled because logins by the hundred thousand are what directories are for: the same in
Python cost 30 us a login, half of them outside the kernel.

Invariants:
1. A message id is in `_pending` from before its request is sent until its last answer has come or it was given up.
2. Only the writer sends while it has something to send; the reader sends during a handshake, when nothing else may be.
3. While `_owner` is a thread, no other thread starts a request, but for those that were let go before (`_granted`),
   whom the owner awaits.
4. When `alive` is false, `_pending` is empty and each `Pending` that was in it has an error.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t

from coro.capi cimport (WAIT_OBJECT, TimerTarget, coro, deadline_after, require_abi, running_thread, sock, suspend,
                        timer_add, timer_cancel, wake)

from collections import deque
from typing import NamedTuple

import coro as _coro
from coro.exceptions import ClosedError, SimultaneousError
from coro.ldap._wire import MAX_MESSAGE, Framer, encode_message
from coro.ldap.exceptions import (ConnectionLost, LDAPError, LDAPTimeout, ProtocolError, StateError, TooMuchBuffered,
                                  error_for)
from coro.ldap.protocol import (NOTICE_OF_DISCONNECTION, AbandonRequest, ExtendedResponse, Result, UnbindRequest,
                                decode, encode_controls, encode_op)
from coro.log import Facility

require_abi()

__all__ = ["Link", "LinkStatistics", "Pending"]

cdef extern from *:
    """
    #include <sys/types.h>
    #include <sys/socket.h>
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif
    #ifndef MSG_DONTWAIT
    #define MSG_DONTWAIT 0
    #endif
    static Py_ssize_t send_now(int fd, const char *p, Py_ssize_t n)
    {
        return MSG_DONTWAIT ? send(fd, p, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) : -1;
    }
    /* Which answer belongs to which request (RFC 4511, 4.2 ff.), by the application tags; 0 for none. */
    static const unsigned char answers[32] = {
        [0] = 1, [3] = 5, [6] = 7, [8] = 9, [10] = 11, [12] = 13, [14] = 15, [23] = 24
    };
    """
    Py_ssize_t send_now(int fd, const char *p, Py_ssize_t n) nogil
    const unsigned char answers[32]

LOG = Facility("ldap")
RECEIVED = 1 << 16
#: Bytes of memory of results that nobody has fetched: where reading stops, and where a search is given up.
HIGH = 4 << 20
LIMIT = 256 << 20
#: Requests under way at most.
MOST = 100
#: Seconds that a farewell may take.
FAREWELL = 2.0

cdef enum:
    _RECEIVED = 65536
    _MAX_ID = 0x7FFFFFFF
    # What a message that waits costs beside its bytes: bytes object, tuple, numbers.
    _MESSAGE_WEIGHT = 192
    _ENTRY = 4
    _REFERENCE = 19
    _INTERMEDIATE = 25


class LinkStatistics(NamedTuple):
    """Numbers about a connection."""

    operations: int
    #: Operations whose answer has not come.
    pending: int
    #: Operations given up: after a timeout, an interruption, or by the program.
    abandoned: int
    #: Messages for operations that had been given up.
    late: int
    bytes_in: int
    bytes_out: int
    #: Bytes of memory that results take which nobody has fetched.
    buffered: int


cdef class Waiter(TimerTarget):
    """A thread in the line of a connection, or one that waits until it is alone there."""

    cdef coro thread
    cdef bint alone         # it wants to be
    cdef bint granted
    cdef bint expired

    cdef int fire(self) except -1:
        self.expired = True
        wake(self.thread, None)
        return 0

    cdef int limit(self, object timeout) except -1:
        if timeout is not None:
            timer_add(self, deadline_after(timeout))
        return 0


cdef class Pending(TimerTarget):
    """A request under way, and what has come for it; made by `Link.start`.

    id: of its messages.  done: whether the last answer has come.  error: why none will come.
    """

    cdef readonly int id
    cdef readonly bint done
    cdef readonly object error
    # For StartTLS: what to do once the server agrees, whether it was done, and why it failed.
    cdef readonly object context
    cdef readonly bint upgraded
    cdef readonly object failure
    cdef Link _link
    cdef int _answer
    cdef object _items          # deque of (tag, payload, size); None for nothing
    cdef Py_ssize_t _size
    cdef bytes _final
    cdef bint _final_fetched
    cdef bint _expired
    cdef coro _thread           # it waits

    def __del__(self):
        # Done and forgotten, with results that nobody has fetched.
        if self._size and self._link is not None:
            self._link._fetched(self._drop())

    def __repr__(self):
        return f"<Pending {self.id}{' done' if self.done else ''}>"

    cdef int fire(self) except -1:
        self._expired = True
        if self._thread is not None:
            wake(self._thread, None)
        return 0

    def next(self, timeout):
        """What comes next: (tag, payload), the payload a list of entries for tag 4 and the whole message otherwise.

        timeout: in seconds; None for none.  Raises LDAPTimeout, ConnectionLost and others; the operation is given up
        then, also when the thread is interrupted.  StateError behind the last answer.
        """
        cdef Py_ssize_t size
        if not self._ready():
            self._wait(timeout, 0)
        if self._items:
            tag, payload, size = self._items.popleft()
            if size:
                self._size -= size
                self._link._fetched(size)
            return tag, payload
        self._final_fetched = True
        return self._answer, self._final

    cdef bint _ready(self):
        return bool(self._items) or (self._final is not None and not self._final_fetched)

    def ready(self, timeout):
        """Wait until `next` need not wait; whether that is so after `timeout` seconds, None for any time.

        The operation goes on if not, and also if the thread is interrupted.
        """
        if not self._ready() and self.error is None:
            self._check_alone()
            self._wait_until(timeout, 0)
        return self._ready() or self.error is not None

    cdef int _wait(self, object timeout, int64_t deadline) except -1:
        self._check_alone()
        try:
            self._wait_until(timeout, deadline)
            if not self._ready():
                if self.error is not None:
                    raise again(self.error)
                raise LDAPTimeout(self.give_up(f"expected an answer of the server within {timeout:g} s, got none"))
        except BaseException:
            self.give_up("the thread that waited for the answer was interrupted")
            raise
        return 0

    cdef int _check_alone(self) except -1:
        if self._thread is not None:
            raise SimultaneousError(running_thread(), self._thread, self)
        if self._final_fetched and self.error is None:
            raise StateError("expected to be asked before the last answer was fetched: there is no other")
        return 0

    cdef int _wait_until(self, object timeout, int64_t deadline) except -1:
        """Wait for something, the end, or the time: `deadline` in ticks, or if it is 0, `timeout` seconds from now."""
        cdef Link link = self._link
        cdef coro me = running_thread()
        link.waiting += 1
        if link._paused:
            link._resume()
        self._thread = me
        self._expired = False
        try:
            if timeout is not None and self.error is None:
                timer_add(self, deadline if deadline else deadline_after(timeout))
            while not (self._ready() or self.error is not None or self._expired):
                suspend(me, WAIT_OBJECT, link)
        finally:
            timer_cancel(self)
            self._thread = None
            link.waiting -= 1
        return 0

    def message(self, timeout):
        """The next message, decoded; not for searches."""
        return decode(self.next(timeout)[1])

    def last(self):
        """The last answer, if it has come."""
        return self._final

    def give_up(self, why="the operation was given up"):
        """The answers are not wanted.  Sends Abandon if there are any to come; returns `why`."""
        self._link._give_up(self, why)
        return why

    # ---- what the reader calls

    cdef int _put(self, int tag, object payload, Py_ssize_t size) except -1:
        if self._items is None:
            self._items = deque()
        self._items.append((tag, payload, size))
        self._size += size
        if self._thread is not None:
            wake(self._thread, None)
        return 0

    cdef int _finish(self, bytes payload) except -1:
        self.done = True
        self._final = payload
        if self._thread is not None:
            wake(self._thread, None)
        return 0

    cdef int _fail(self, object error) except -1:
        self.error = error
        self.done = True
        if self._thread is not None:
            wake(self._thread, None)
        return 0

    cdef Py_ssize_t _drop(self) except -1:
        """Forget what nobody has fetched; how many bytes that was."""
        cdef Py_ssize_t size = self._size
        self._size = 0
        self._items = None
        self._final_fetched = True
        return size


cdef class Alone:
    """The block of `Link.exclusive`."""

    cdef Link link
    cdef object timeout

    def __enter__(self):
        self.link.begin_alone(self.timeout)

    def __exit__(self, *exc):
        self.link.end_alone()


cdef class Link:
    """Link(sock, *, name="", secure=False, max_message=1048576, on_notice=None, high=4194304, limit=268435456,
         most=100)

    See above.  sock: connected, with TLS if it is to have it at once.

    name: for threads and errors.  on_notice: called with each unsolicited `ExtendedResponse` (RFC 4511, 4.4).  most:
    requests under way at most; further ones wait.  high, limit: bytes of memory, see above.
    """

    cdef readonly str name
    cdef readonly bint alive
    cdef readonly object error
    cdef readonly Py_ssize_t waiting        # threads that wait for an answer with nothing there
    cdef readonly object sock
    cdef readonly bint secure
    cdef sock _direct                       # the same if it is a plain socket
    cdef Py_ssize_t _high, _low
    cdef public Py_ssize_t _limit
    cdef object _framer, _on_notice
    cdef readonly dict _pending
    cdef public int _last_id
    cdef readonly Py_ssize_t logins         # requests sent that may have changed who is logged in
    cdef list _output
    cdef coro _writer, _reader
    cdef bint _writer_waits, _closing, _paused
    cdef object _idle                       # the writer has sent everything, when closing
    cdef readonly Py_ssize_t _buffered
    cdef readonly coro _owner               # the thread within `exclusive`
    cdef Waiter _drainer                    # the same while it waits for the others
    cdef object _line
    cdef Py_ssize_t _granted, _most
    cdef object _ended
    cdef Py_ssize_t _operations, _abandoned, _late, _bytes_in, _bytes_out
    cdef object __weakref__

    def __init__(self, sock, *, name="", secure=False, max_message=MAX_MESSAGE, on_notice=None, high=HIGH, limit=LIMIT,
                 most=MOST):
        if self._framer is not None:
            raise RuntimeError("a Link cannot be initialised twice: make a new one")
        if most < 1:
            raise ValueError(f"expected at least one request under way, got {most}")
        self.name = name
        self.alive = True
        self._use(sock)
        self.secure = secure
        self._high = high
        self._low = high // 2
        self._limit = limit
        self._most = most
        self._framer = Framer(max_message)
        self._on_notice = on_notice
        self._pending = {}
        self._output = []
        self._line = deque()
        self._idle = _coro.event()
        self._ended = _coro.event()
        _coro.spawn(self._read, thread_name=f"ldap reader {name}", daemon=True)
        _coro.spawn(self._write, thread_name=f"ldap writer {name}", daemon=True)

    cdef int _use(self, object stream) except -1:
        self.sock = stream
        self._direct = stream if type(stream) is sock else None
        return 0

    def __repr__(self):
        state = f"{len(self._pending)} pending" if self.alive else "ended"
        return f"<Link {self.name} {state}>"

    def statistics(self):
        """Numbers about it."""
        return LinkStatistics(self._operations, len(self._pending), self._abandoned, self._late, self._bytes_in,
                              self._bytes_out, self._buffered)

    # ---- requests

    cpdef Pending start(self, op, controls=(), timeout=None, context=None):
        """Send a request that has answers, and return at once, unless a login holds it back, or too many are under way.

        op: an operation, or its encoding.  timeout: seconds to be held back at most.  Raises why the connection ended
        if it did; LocalError for what cannot be sent; LDAPTimeout.
        """
        cdef coro me = running_thread()
        cdef bytes data = op if type(op) is bytes else encode_op(op)
        cdef int answer = answers[data[0] & 0x1F] if PyBytes_GET_SIZE(data) else 0
        cdef Pending pending
        cdef bytes encoded, message
        cdef int number
        cdef bint idle
        if not answer:
            raise StateError(f"expected a request that has an answer, got {op!r:.200}")
        if not self.alive:
            raise again(self.error)
        encoded = encode_controls(controls) if controls else b""
        if self._owner is not me and (
            self._owner is not None or self._line or <Py_ssize_t>len(self._pending) + self._granted >= self._most
        ):
            self._stand(me, False, timeout)
            self._granted -= 1
        idle = not self._pending or self._owner is me
        number = self._last_id + 1 if self._last_id < _MAX_ID else 1
        while number in self._pending:
            number = number + 1 if number < _MAX_ID else 1
        self._last_id = number
        try:
            message = encode_message(number, data, encoded)
        except BaseException:
            self._check_drained()
            self._go_on()
            raise
        pending = Pending.__new__(Pending)
        pending.id = number
        pending._link = self
        pending._answer = answer
        pending.context = context
        self._pending[number] = pending
        self._operations += 1
        if answer == 1 or context is not None:
            self.logins += 1
        self._send(message, idle)
        return pending

    cpdef bytes ask(self, op, controls=(), timeout=None):
        """Send a request and wait for its answer, whatever its result is: the whole message, not decoded.

        Intermediate responses are left out, and move no deadline; neither are the results of a search, which do.
        timeout: seconds for the answer.  Raises what `start` and `Pending.next`
        raise.
        """
        cdef Pending pending = self.start(op, controls, timeout)
        return self._answer_to(pending, timeout)

    cdef bytes _answer_to(self, Pending pending, object timeout):
        cdef int64_t deadline = 0
        if timeout is not None and pending._answer != 5 and not pending._ready() and pending.error is None:
            deadline = deadline_after(timeout)
        while True:
            if not pending._ready():
                pending._wait(timeout, deadline)
            if not pending._items:
                pending._final_fetched = True
                return pending._final
            pending.next(timeout)

    def request(self, op, controls=(), timeout=None):
        """The same with the answer decoded."""
        return decode(self.ask(op, controls, timeout))

    cdef int _send(self, bytes message, bint idle) except -1:
        cdef Py_ssize_t sent
        if idle and self._writer_waits and self._direct is not None and not self._output:
            sent = send_now(self._direct.fd, PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message))
            if sent > 0:
                self._bytes_out += sent
                if sent == PyBytes_GET_SIZE(message):
                    return 0
                message = message[sent:]
            # The writer waits until there is room, or finds out what is wrong.
        self._output.append(message)
        if self._writer_waits:
            self._writer_waits = False
            wake(self._writer, None)
        return 0

    def send_unanswered(self, op, controls=()):
        """Send what has no answer, or one that nobody wants."""
        cdef int number
        if not self.alive:
            return
        number = self._last_id + 1 if self._last_id < _MAX_ID else 1
        while number in self._pending:
            number = number + 1 if number < _MAX_ID else 1
        self._last_id = number
        self._send(encode_message(number, encode_op(op), encode_controls(controls)), False)

    # ---- the line

    cdef int _stand(self, coro me, bint alone, object timeout) except -1:
        """Wait for a turn.  Afterwards the thread is the owner if it wants to be alone; else it is one of `_granted`,
        which it has to lower again."""
        cdef Waiter waiter = Waiter.__new__(Waiter)
        waiter.thread = me
        waiter.alone = alone
        try:
            waiter.limit(timeout)
            self._line.append(waiter)
            while not waiter.granted and self.alive:
                if waiter.expired:
                    reason = (
                        "the login that is going on to end" if self._owner is not None
                        else f"one of {len(self._pending)} operations under way to end"
                    )
                    raise LDAPTimeout(f"expected {reason} within {timeout:g} s, it has not")
                suspend(me, WAIT_OBJECT, self)
            timer_cancel(waiter)
            if not self.alive:
                raise again(self.error)
        except BaseException:
            timer_cancel(waiter)
            if not waiter.granted:
                if waiter in self._line:
                    self._line.remove(waiter)
            elif alone:
                self._owner = None
            else:
                self._granted -= 1
                self._check_drained()
            self._go_on()
            raise
        return 0

    cdef int _go_on(self) except -1:
        """Let those go on whose turn it is."""
        cdef Waiter waiter
        while self._line and self._owner is None:
            waiter = <Waiter>self._line[0]
            if waiter.alone:
                self._owner = waiter.thread
            elif <Py_ssize_t>len(self._pending) + self._granted >= self._most:
                return 0
            else:
                self._granted += 1
            self._line.popleft()
            waiter.granted = True
            wake(waiter.thread, None)
        return 0

    def exclusive(self, timeout=None):
        """Be alone on the connection within a ``with`` block: for binds and StartTLS (RFC 4511, 4.2.1 and 4.14.1).

        timeout: seconds to wait until the other operations have been answered.  Raises LDAPTimeout, and StateError if
        this thread is in such a block already.
        """
        cdef Alone block = Alone.__new__(Alone)
        block.link = self
        block.timeout = timeout
        return block

    cpdef begin_alone(self, timeout):
        """The beginning of `exclusive`; `end_alone` has to follow unless this raises."""
        cdef coro me = running_thread()
        if self._owner is me:
            raise StateError("expected one login at a time, this thread is within one")
        if not self.alive:
            raise again(self.error)
        if self._owner is not None or self._line:
            self._stand(me, True, timeout)
        else:
            self._owner = me
        if self._pending or self._granted:
            try:
                self._wait_drained(me, timeout)
            except BaseException:
                self.end_alone()
                raise

    cpdef end_alone(self):
        """Let others go on."""
        self._owner = None
        self._go_on()

    cdef int _wait_drained(self, coro me, object timeout) except -1:
        cdef Waiter waiter = Waiter.__new__(Waiter)
        waiter.thread = me
        self._drainer = waiter
        try:
            waiter.limit(timeout)
            while (self._pending or self._granted) and self.alive:
                if waiter.expired:
                    raise LDAPTimeout(
                        f"expected the other operations of the connection to end within {timeout:g} s, because a login "
                        f"has to be alone; there are {len(self._pending)}. Use a connection of its own for logins"
                    )
                suspend(me, WAIT_OBJECT, self)
        finally:
            timer_cancel(waiter)
            self._drainer = None
        if not self.alive:
            raise again(self.error)
        return 0

    cdef int _check_drained(self) except -1:
        if self._drainer is not None and not self._pending and not self._granted:
            wake(self._drainer.thread, None)
        return 0

    cdef int _fetched(self, Py_ssize_t size) except -1:
        self._buffered -= size
        if self._paused and self._buffered <= self._low:
            self._resume()
        return 0

    cdef int _give_up(self, Pending pending, object why) except -1:
        cdef Py_ssize_t size = pending._drop()
        if size:
            self._fetched(size)
        if pending.done:
            return 0
        pending._fail(StateError(why))
        if self._pending.pop(pending.id, None) is None:
            return 0
        self._abandoned += 1
        if pending._answer == 1 or pending.context is not None:
            # Nobody can tell who is logged in now, or whether TLS begins; and these cannot be abandoned (4.11).
            self.end(ConnectionLost(f"a login or StartTLS was broken off, so the connection is of no use: {why}"))
        elif self.alive:
            self.send_unanswered(AbandonRequest(pending.id))
            self._check_drained()
            self._go_on()
        return 0

    # ---- the threads

    def _write(self):
        cdef coro me = running_thread()
        cdef list output
        cdef bytes message
        self._writer = me
        try:
            while self.alive:
                output = self._output
                if not output:
                    if self._closing:
                        self._idle.set()
                    self._writer_waits = True
                    try:
                        suspend(me, WAIT_OBJECT, self)
                    finally:
                        self._writer_waits = False
                    continue
                self._output = []
                for message in output:
                    self._bytes_out += PyBytes_GET_SIZE(message)
                if len(output) > 1:
                    self.sock.writev(output)
                elif self._direct is not None:
                    message = output[0]
                    self._direct.c_send(PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message), 0)
                else:
                    self.sock.sendall(output[0])
        except (OSError, ClosedError) as exc:
            # What the server said last may explain it; the reader comes upon the end by itself, and soon.
            try:
                with _coro.move_on_after(0.5):
                    self._ended.wait()
            finally:
                self.end(ConnectionLost(f"the connection to {self.name} broke: {exc}"), exc)
        except BaseException as exc:
            self.end(ConnectionLost("the thread that writes to the connection was interrupted"), exc)
            raise

    def _read(self):
        cdef bytes data
        cdef Py_ssize_t size
        cause = failed = None
        self._reader = running_thread()
        try:
            while self.alive:
                if self._buffered > self._high and not self.waiting:
                    self._pause()
                    continue
                data = self._direct.c_recv(_RECEIVED, 0) if self._direct is not None else self.sock.recv(_RECEIVED)
                size = PyBytes_GET_SIZE(data)
                if not size:
                    where = " within a message" if self._framer.buffered else " without a word"
                    raise ConnectionLost(f"{self.name} closed the connection{where}")
                self._bytes_in += size
                self._take(self._framer.receive(data))
                # A bad message behind good ones: nobody has to wait until more comes.
                failed = self._framer.failed
                if failed is not None:
                    raise failed
        except (LDAPError, OSError, EOFError, ClosedError) as exc:
            cause = exc
        except Exception as exc:
            # A mistake here or in a callback: it must not leave others waiting.
            LOG.exc()
            cause = exc
        except BaseException as exc:
            self.end(ConnectionLost("the thread that reads the connection was interrupted"), exc)
            raise
        own = isinstance(cause, LDAPError)
        self.end(cause if own else ConnectionLost(f"the connection to {self.name} broke: {cause}"), cause)

    cdef int _take(self, list found) except -1:
        cdef dict table = self._pending
        cdef list weights = self._framer.weights
        cdef Py_ssize_t place = 0, count = len(found), batch = 0, share = 0
        cdef Pending pending
        cdef int tag
        for number, kind, payload in found:
            place += 1
            tag = kind
            if tag == _ENTRY:
                share = weights[batch]
                batch += 1
            pending = table.get(number)
            if pending is None:
                if number == 0:
                    self._unsolicited(payload)
                else:
                    self._late += 1
                continue
            if tag == _ENTRY or tag == _REFERENCE or tag == _INTERMEDIATE:
                if tag != _INTERMEDIATE and pending._answer != 5:
                    raise ProtocolError(
                        f"expected the answer {pending._answer} to an operation, got {tag}", number, tag
                    )
                if tag != _ENTRY:
                    share = PyBytes_GET_SIZE(payload) + _MESSAGE_WEIGHT
                self._buffered += share
                pending._put(tag, payload, share)
                if self._buffered > self._limit:
                    self._too_much()
                continue
            if tag != pending._answer:
                raise ProtocolError(f"expected the answer {pending._answer} to an operation, got {tag}", number, tag)
            if pending.context is not None:
                if place < count:
                    raise ProtocolError(INJECTED)
                self._upgrade(pending, payload)
            table.pop(number, None)
            pending._finish(payload)
        if not self.alive:
            return 0
        if self._drainer is not None:
            self._check_drained()
        if self._line:
            self._go_on()
        return 0

    cdef int _too_much(self) except -1:
        """Give up what holds most."""
        cdef Pending pending = None, one
        cdef Py_ssize_t size = 0
        for each in self._pending.values():
            one = <Pending>each
            if one._size > size:
                pending = one
                size = one._size
        if pending is None:
            return 0
        pending.give_up("its results were not fetched")
        pending.error = TooMuchBuffered(
            f"expected the results of a search to be fetched, {size} bytes of them are waiting; use pages, or a "
            "connection of its own for the search"
        )
        return 0

    cdef int _pause(self) except -1:
        self._paused = True
        try:
            while self._paused and self.alive:
                suspend(self._reader, WAIT_OBJECT, self)
        finally:
            self._paused = False
        return 0

    cdef int _resume(self) except -1:
        self._paused = False
        wake(self._reader, None)
        return 0

    cdef int _upgrade(self, Pending pending, bytes payload) except -1:
        """TLS from here on, if the server agrees."""
        result = decode(payload).op
        if not isinstance(result, Result) or result.code:
            return 0
        if self._framer.buffered or self._framer.failed is not None:
            raise ProtocolError(INJECTED)
        try:
            self._use(pending.context(self.sock))
        except Exception as exc:
            pending.failure = exc
            raise
        self.secure = True
        pending.upgraded = True
        return 0

    cdef int _unsolicited(self, object payload) except -1:
        """RFC 4511, 4.4."""
        message = decode(payload) if type(payload) is bytes else None
        if message is None or not isinstance(message.op, ExtendedResponse):
            raise ProtocolError("expected an extended response as unsolicited notification (RFC 4511, 4.4)", 0)
        notice = message.op
        if self._on_notice is not None:
            try:
                self._on_notice(notice)
            except Exception:
                LOG.exc()
        if notice.name == NOTICE_OF_DISCONNECTION:
            reason = error_for(notice)
            error = ConnectionLost(f"{self.name} ended the connection: {reason}")
            raise error from reason
        LOG("unsolicited notification", notice.name, notice.code)
        return 0

    # ---- the end

    def close(self, timeout=FAREWELL):
        """Say goodbye (RFC 4511, 4.3) and close.  Operations under way fail.  timeout: seconds to send the farewell."""
        if not self.alive:
            return
        self._closing = True
        self.send_unanswered(UnbindRequest())
        try:
            with _coro.move_on_after(timeout):
                self._idle.wait()
        finally:
            self.end(StateError(f"the connection to {self.name} has been closed"))

    def end(self, error, cause=None):
        """It is over, for `error`.  Everybody who waits gets it; once."""
        cdef dict table
        cdef Waiter waiter
        if not self.alive:
            return
        self.alive = False
        if cause is not None and cause is not error and error.__cause__ is None:
            error.__cause__ = cause
        self.error = error
        table = self._pending
        self._pending = {}
        for pending in table.values():
            (<Pending>pending)._fail(error)
        self._output = []
        self._ended.set()
        self._idle.set()
        if self._writer_waits:
            self._writer_waits = False
            wake(self._writer, None)
        if self._paused:
            self._resume()
        for one in self._line:
            waiter = <Waiter>one
            wake(waiter.thread, None)
        self._line.clear()
        if self._drainer is not None:
            wake(self._drainer.thread, None)
        try:
            self.sock.close()
        except (OSError, ClosedError):
            pass


cdef str INJECTED = (
    "expected nothing behind the answer to StartTLS before the handshake, got clear text: somebody on the way may have "
    "put it there"
)


def again(error):
    """A copy of an error to raise, with the same cause: each raise adds a traceback."""
    if error is None:
        return ConnectionLost("the connection has ended")
    if isinstance(error, ProtocolError):
        copy = ProtocolError(str(error), error.message_id, error.tag)
    elif isinstance(error, (ConnectionLost, StateError, TooMuchBuffered, LDAPTimeout)):
        copy = type(error)(*error.args)
    else:
        copy = ConnectionLost(f"the connection has ended: {error}")
    copy.__cause__ = error.__cause__ or error
    return copy
