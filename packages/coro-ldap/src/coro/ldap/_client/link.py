"""One connection to a server, from the socket to its loss: the thread that reads, the one that writes, who waits.

* Threads encode their requests, append them to a list and wake the **writer**, which sends what all of them have
  written since its last turn in one ``writev``.  An interrupted thread leaves nothing half sent.
* The **reader** cuts messages out of the stream and puts each into the `Pending` of its id.  It decodes nothing but
  entries: the thread that waits for an answer decodes it.  An id that nobody waits for is an operation that was given
  up; its answers are dropped.
* A `Pending` is registered before its request is sent.  Giving one up sends an Abandon.
* Binds and StartTLS are alone on the connection (RFC 4511, 4.2.1 and 4.14.1): `exclusive` holds new requests back and
  waits until the others have been answered.
* After the answer to StartTLS it is the reader that does the handshake, because nothing may be read in between.  What
  has arrived behind that answer in clear text is refused: somebody on the way could have put it there.

Results that nobody has fetched are counted in bytes.  Above `HIGH` the reader stops, and TCP makes the server wait,
unless some thread waits for an answer with nothing there: then reading goes on, and the search that holds most of what
is in memory is given up at `LIMIT`.

Cost: two threads a connection; for each turn of the loop one system call in each direction.

Invariants:
1. A message id is in `_pending` from before its request is sent until its last answer has come or it was given up.
2. Only the writer sends, but for the reader during a handshake, when nothing is to be sent.
3. While `_owner` is a thread, no other thread starts a request.
4. When `alive` is false, `_pending` is empty and each `Pending` that was in it has an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import coro
from coro.ldap._wire import MAX_MESSAGE, Framer, encode_message
from coro.ldap.exceptions import (
    ConnectionLost,
    LDAPError,
    LDAPTimeout,
    ProtocolError,
    StateError,
    TooMuchBuffered,
    error_for,
)
from coro.ldap.protocol import (
    NOTICE_OF_DISCONNECTION,
    AbandonRequest,
    Control,
    ExtendedResponse,
    Message,
    Operation,
    Result,
    UnbindRequest,
    decode,
    encode_controls,
    encode_op,
)
from coro.log import Facility

__all__ = ["Link", "LinkStatistics", "Pending"]

LOG = Facility("ldap")
RECEIVED = 1 << 16
#: Bytes of results that nobody has fetched: where reading stops, where it goes on, and where a search is given up.
HIGH = 1 << 20
LOW = HIGH // 2
LIMIT = 64 << 20
#: Seconds that a farewell may take.
FAREWELL = 2.0

_MAX_ID = 0x7FFFFFFF
_ENTRY, _REFERENCE, _EXTENDED, _INTERMEDIATE = 4, 19, 24, 25
#: Which answer belongs to which request (RFC 4511, 4.2 ff.), by the application tags.
_ANSWERS = {0: 1, 3: 5, 6: 7, 8: 9, 10: 11, 12: 13, 14: 15, 23: 24}


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
    #: Bytes of results that nobody has fetched.
    buffered: int


class Pending:
    """A request under way, and what has come for it.

    id: of its messages.  done: whether the last answer has come.  error: why none will come.
    """

    # What most requests never set stands here, not in each object.
    done = False
    error: BaseException | None = None
    #: For StartTLS: what to do once the server agrees, whether it was done, and why it failed.
    context: Callable[[Any], Any] | None = None
    upgraded = False
    failure: Exception | None = None
    _size = 0
    _final: bytes | None = None

    def __init__(self, link: Link, number: int, answer: int) -> None:
        self.id = number
        self._link = link
        self._answer = answer
        self._items: deque[tuple[int, Any, int]] = deque()
        self._event = coro.event()

    def __repr__(self) -> str:
        return f"<Pending {self.id}{' done' if self.done else ''}>"

    def next(self, timeout: float | None) -> tuple[int, Any]:
        """What comes next: (tag, payload), the payload a list of entries for tag 4 and the whole message otherwise.

        timeout: in seconds; None for none.  Raises LDAPTimeout, ConnectionLost and others; the operation is given up
        then, also when the thread is interrupted.
        """
        items = self._items
        if not items:
            self._wait(timeout)
        tag, payload, size = items.popleft()
        if size:
            self._size -= size
            self._link._fetched(size)
        return tag, payload

    def _wait(self, timeout: float | None) -> None:
        link = self._link
        event = self._event
        link.waiting += 1
        if link._paused:
            link._room.set()
        try:
            while not self._items:
                if self.error is not None:
                    raise again(self.error)
                event.clear()
                event.wait(timeout)
        except coro.TimeoutError as exc:
            error = self.give_up(f"expected an answer of the server within {timeout:g} s, got none")
            raise LDAPTimeout(error) from exc
        except BaseException:
            self.give_up("the thread that waited for the answer was interrupted")
            raise
        finally:
            link.waiting -= 1

    def message(self, timeout: float | None) -> Message:
        """The next message, decoded; not for searches."""
        return decode(self.next(timeout)[1])

    def last(self) -> bytes | None:
        """The last answer, if it has come and nobody has fetched it."""
        return self._final

    def give_up(self, why: str = "the operation was given up") -> str:
        """The answers are not wanted.  Sends Abandon if there are any to come; returns `why`."""
        self._link._give_up(self, why)
        return why

    # ---- what the reader calls

    def _put(self, tag: int, payload: Any, size: int) -> None:
        self._items.append((tag, payload, size))
        self._size += size
        self._event.set()

    def _finish(self, tag: int, payload: bytes) -> None:
        self.done = True
        self._final = payload
        self._items.append((tag, payload, 0))
        self._event.set()

    def _fail(self, error: BaseException) -> None:
        self.error = error
        self.done = True
        self._event.set()

    def _drop(self) -> int:
        """Forget what nobody has fetched; how many bytes that was."""
        size, self._size = self._size, 0
        self._items.clear()
        return size


class Link:
    """See above.  sock: connected, with TLS if it is to have it at once.

    name: for threads and errors.  on_notice: called with each unsolicited `ExtendedResponse` (RFC 4511, 4.4).
    """

    def __init__(
        self,
        sock: Any,
        *,
        name: str = "",
        secure: bool = False,
        max_message: int = MAX_MESSAGE,
        on_notice: Callable[[ExtendedResponse], object] | None = None,
        high: int = HIGH,
        limit: int = LIMIT,
    ) -> None:
        self.name = name
        self.alive = True
        self.error: BaseException | None = None
        self.waiting = 0  # threads that wait for an answer with nothing there
        self.sock = sock
        self.secure = secure
        self._high = high
        self._low = high // 2
        self._limit = limit
        self._framer = Framer(max_message)
        self._on_notice = on_notice
        self._pending: dict[int, Pending] = {}
        self._last_id = 0
        self._output: list[bytes] = []
        self._work = coro.event()
        self._sending = False
        self._closing = False
        self._idle = coro.event()  # the writer has sent everything, when closing
        self._room = coro.event()  # a paused reader
        self._paused = False
        self._buffered = 0
        self._owner: Any = None  # the thread within `exclusive`
        self._turn = coro.condition_variable()  # threads that `_owner` holds back
        self._drained = coro.condition_variable()  # `_owner`, for `_pending` to be empty
        self._ended = coro.event()
        self._operations = self._abandoned = self._late = self._bytes_in = self._bytes_out = 0
        coro.spawn(self._read, thread_name=f"ldap reader {name}", daemon=True)
        coro.spawn(self._write, thread_name=f"ldap writer {name}", daemon=True)

    def __repr__(self) -> str:
        state = f"{len(self._pending)} pending" if self.alive else "ended"
        return f"<Link {self.name} {state}>"

    def statistics(self) -> LinkStatistics:
        """Numbers about it."""
        return LinkStatistics(
            self._operations, len(self._pending), self._abandoned, self._late, self._bytes_in, self._bytes_out,
            self._buffered,
        )  # fmt: skip

    # ---- requests

    def start(
        self,
        op: bytes | Operation,
        controls: Sequence[Control] = (),
        timeout: float | None = None,
        context: Callable[[Any], Any] | None = None,
    ) -> Pending:
        """Send a request that has answers, and return at once, unless a login holds it back.

        op: an operation, or its encoding.  timeout: seconds to be held back at most.  Raises why the connection ended
        if it did; LocalError for what cannot be sent; LDAPTimeout.
        """
        if self._owner is not None and self._owner is not coro.current():
            self._wait_turn(timeout)
            self._next_turn()  # it does not keep the turn
        if not self.alive:
            self._raise_error()
        data = op if type(op) is bytes else encode_op(op)  # type: ignore[arg-type]
        answer = _ANSWERS.get(data[0] & 0x1F, 0) if data else 0
        if not answer:
            raise StateError(f"expected a request that has an answer, got {op!r:.200}")
        encoded = encode_controls(controls) if controls else b""
        number = self._last_id + 1
        if number > _MAX_ID or number in self._pending:
            number = self._free_id()
        self._last_id = number
        message = encode_message(number, data, encoded)
        pending = Pending(self, number, answer)
        if context is not None:
            pending.context = context
        self._pending[number] = pending
        self._operations += 1
        self._output.append(message)
        if not self._sending:
            self._work.set()
        return pending

    def request(self, op: bytes | Operation, controls: Sequence[Control] = (), timeout: float | None = None) -> Message:
        """Send a request and wait for its answer, whatever its result is.  Intermediate responses are left out.

        timeout: seconds for the answer.  Raises what `start` and `Pending.next` raise.
        """
        pending = self.start(op, controls, timeout)
        while True:
            tag, payload = pending.next(timeout)
            if tag == pending._answer:
                return decode(payload)

    def _free_id(self) -> int:
        number = self._last_id
        while True:
            number = number + 1 if number < _MAX_ID else 1
            if number not in self._pending:
                return number

    def send_unanswered(self, op: Operation, controls: Sequence[Control] = ()) -> None:
        """Send what has no answer, or one that nobody wants."""
        if not self.alive:
            return
        self._last_id = number = self._free_id()
        self._output.append(encode_message(number, encode_op(op), encode_controls(controls)))
        self._work.set()

    def _wait_turn(self, timeout: float | None) -> None:
        """Wait while another thread is within `exclusive`."""
        try:
            while self._owner is not None and self.alive:
                self._turn.wait(timeout)
        except coro.TimeoutError as exc:
            self._next_turn()
            raise LDAPTimeout(f"expected the login that is going on to end within {timeout:g} s, it has not") from exc
        except BaseException:
            self._next_turn()
            raise

    def _next_turn(self) -> None:
        if self._owner is None:
            self._turn.wake_one()

    @contextmanager
    def exclusive(self, timeout: float | None = None) -> Iterator[None]:
        """Be alone on the connection within the block: for binds and StartTLS (RFC 4511, 4.2.1 and 4.14.1).

        timeout: seconds to wait until the other operations have been answered.  Raises LDAPTimeout, and StateError if
        this thread is in such a block already.
        """
        self.begin_alone(timeout)
        try:
            yield
        finally:
            self.end_alone()

    def begin_alone(self, timeout: float | None) -> None:
        """The beginning of `exclusive`; `end_alone` has to follow unless this raises."""
        me = coro.current()
        if self._owner is not None:
            if self._owner is me:
                raise StateError("expected one login at a time, this thread is within one")
            self._wait_turn(timeout)
        if not self.alive:
            self._raise_error()
        self._owner = me
        if self._pending:
            try:
                self._wait_drained(timeout)
            except BaseException:
                self.end_alone()
                raise

    def end_alone(self) -> None:
        """Let others go on."""
        self._owner = None
        self._turn.wake_one()

    def _wait_drained(self, timeout: float | None) -> None:
        try:
            while self._pending:
                self._drained.wait(timeout)
        except coro.TimeoutError as exc:
            raise LDAPTimeout(
                f"expected the other operations of the connection to end within {timeout:g} s, because a login has to "
                f"be alone; there are {len(self._pending)}. Use a connection of its own for logins"
            ) from exc
        if not self.alive:
            self._raise_error()

    def _fetched(self, size: int) -> None:
        self._buffered -= size
        if self._paused and self._buffered <= self._low:
            self._room.set()

    def _give_up(self, pending: Pending, why: str) -> None:
        size = pending._drop()
        if size:
            self._fetched(size)
        if pending.done:
            return
        pending.done = True
        pending.error = StateError(why)
        if self._pending.pop(pending.id, None) is None:
            return
        self._abandoned += 1
        if pending._answer == 1 or pending.context is not None:
            # Nobody can tell who is logged in now, or whether TLS begins; and these cannot be abandoned (4.11).
            self.end(ConnectionLost(f"a login or StartTLS was broken off, so the connection is of no use: {why}"))
        elif self.alive:
            self.send_unanswered(AbandonRequest(pending.id))
            self._check_drained()

    def _check_drained(self) -> None:
        if not self._pending and self._owner is not None:
            self._drained.wake_all()

    # ---- the threads

    def _write(self) -> None:
        try:
            while self.alive:
                output = self._output
                if not output:
                    self._sending = False
                    if self._closing:
                        self._idle.set()
                    self._work.clear()
                    self._work.wait()
                    self._sending = True
                    continue
                self._output = []
                if len(output) == 1:
                    self._bytes_out += len(output[0])
                    self.sock.sendall(output[0])
                else:
                    self._bytes_out += sum(map(len, output))
                    self.sock.writev(output)
        except (OSError, coro.ClosedError) as exc:
            # What the server said last may explain it; the reader comes upon the end by itself, and soon.
            with coro.move_on_after(0.5):
                self._ended.wait()
            self.end(ConnectionLost(f"the connection to {self.name} broke: {exc}"), exc)
        except BaseException as exc:
            self.end(ConnectionLost("the thread that writes to the connection was interrupted"), exc)
            raise

    def _read(self) -> None:
        cause: BaseException | None = None
        try:
            while self.alive:
                if self._buffered > self._high and not self.waiting:
                    self._pause()
                    continue
                data = self.sock.recv(RECEIVED)
                if not data:
                    where = " within a message" if self._framer.buffered else " without a word"
                    raise ConnectionLost(f"{self.name} closed the connection{where}")
                self._bytes_in += len(data)
                self._take(self._framer.receive(data), len(data))
        except (LDAPError, OSError, EOFError, coro.ClosedError) as exc:
            cause = exc
        except Exception as exc:
            # A mistake here or in a callback: it must not leave others waiting.
            LOG.exc()
            cause = exc
        except BaseException as exc:
            self.end(ConnectionLost("the thread that reads the connection was interrupted"), exc)
            raise
        own = isinstance(cause, LDAPError)
        self.end(cause if own else ConnectionLost(f"the connection to {self.name} broke: {cause}"), cause)  # type: ignore[arg-type]

    def _take(self, found: list[tuple[int, int, Any]], size: int) -> None:
        table = self._pending
        share = size // len(found) if found else 0
        for place, (number, tag, payload) in enumerate(found):
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
                self._buffered += share
                pending._put(tag, payload, share)
                if pending._size > self._limit:
                    self._too_much(pending)
                continue
            if tag != pending._answer:
                raise ProtocolError(f"expected the answer {pending._answer} to an operation, got {tag}", number, tag)
            if pending.context is not None and place + 1 < len(found):
                raise ProtocolError(_INJECTED)
            if pending.context is not None:
                self._upgrade(pending, payload)
            table.pop(number, None)
            pending._finish(tag, payload)
        if self._owner is not None and not table:
            self._drained.wake_all()

    def _too_much(self, pending: Pending) -> None:
        size = pending._size
        pending.give_up("its results were not fetched")
        pending.error = TooMuchBuffered(
            f"expected the results of a search to be fetched, {size} bytes of them are waiting; use pages, or a "
            "connection of its own for the search"
        )

    def _pause(self) -> None:
        self._paused = True
        self._room.clear()
        try:
            self._room.wait()
        finally:
            self._paused = False

    def _upgrade(self, pending: Pending, payload: bytes) -> None:
        """TLS from here on, if the server agrees."""
        result = decode(payload).op
        if not isinstance(result, Result) or result.code:
            return
        if self._framer.buffered:
            raise ProtocolError(_INJECTED)
        assert pending.context is not None
        try:
            self.sock = pending.context(self.sock)
        except Exception as exc:
            pending.failure = exc
            raise
        self.secure = True
        pending.upgraded = True

    def _unsolicited(self, payload: Any) -> None:
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

    # ---- the end

    def _raise_error(self) -> NoReturn:
        raise again(self.error if self.error is not None else ConnectionLost("the connection has ended"))

    def close(self, timeout: float = FAREWELL) -> None:
        """Say goodbye (RFC 4511, 4.3) and close.  Operations under way fail.  timeout: seconds to send the farewell."""
        if not self.alive:
            return
        self._closing = True
        self.send_unanswered(UnbindRequest())
        try:
            with coro.move_on_after(timeout):
                self._idle.wait()
        finally:
            self.end(StateError(f"the connection to {self.name} has been closed"))

    def end(self, error: BaseException, cause: BaseException | None = None) -> None:
        """It is over, for `error`.  Everybody who waits gets it; once."""
        if not self.alive:
            return
        self.alive = False
        if cause is not None and cause is not error and error.__cause__ is None:
            error.__cause__ = cause
        self.error = error
        table, self._pending = self._pending, {}
        for pending in table.values():
            pending._fail(error)
        self._output = []
        self._ended.set()
        self._idle.set()
        self._work.set()
        self._room.set()
        self._turn.wake_all()
        self._drained.wake_all()
        try:
            self.sock.close()
        except (OSError, coro.ClosedError):
            pass


_INJECTED = (
    "expected nothing behind the answer to StartTLS before the handshake, got clear text: somebody on the way may have "
    "put it there"
)


def again(error: BaseException) -> BaseException:
    """A copy of an error to raise, with the same cause: each raise adds a traceback."""
    copy: BaseException
    if isinstance(error, ProtocolError):
        copy = ProtocolError(str(error), error.message_id, error.tag)
    elif isinstance(error, (ConnectionLost, StateError, TooMuchBuffered, LDAPTimeout)):
        copy = type(error)(*error.args)
    else:
        copy = ConnectionLost(f"the connection has ended: {error}")
    copy.__cause__ = error.__cause__ or error
    return copy
