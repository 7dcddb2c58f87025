"""The stream that speaks TLS over another one: ``TLSStream``.

It owns the input and output, and an *engine* turns plain text into records and back, in memory. The engine never waits;
so a thread is suspended only inside of ``recv`` and ``send`` of the stream below, which can be interrupted anywhere and
lose nothing. One thread reads and others write at the same time. What stands between them is small:

* Ciphertext is sent in the order in which it was made. The lock of the sending side is held from making it to sending
  it. What an interrupted thread had made and not sent is kept, and leaves before anything else: ``_rest``.
* What reading makes the engine say (alerts, mostly) never keeps the reader: it is sent if that is possible at once,
  and by the next writer otherwise.
* An end of the stream below is a clean end only behind the peer's close_notify.

What is between the engine and the stream is a *channel*, because the connections of OpenSSL's share their memory, see
_channels.pyx.

Cost: an object of 150 bytes and a lock for each connection, beside the engine; 1 us for a call that moves a KiB, beside
what the engine and the socket take. What is asked of the stream below grows with what it gives, from 4 KiB to four
records. Rejected: a thread for each direction (a switch
for each record), and letting a reader wait until its alert is sent (two peers that only write would wait for each
other).

What each request passes through is compiled, in _records.pyx. Longer than most files here, because half of it are the
calls of a sock with what they do and raise.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple, Self, SupportsFloat, cast

from coro import oserrors
from coro._net.constants import MSG, SHUT
from coro._net.sock import sock
from coro._net.tls import HandshakeError, HandshakeTimeout, ProtocolError, TLSError
from coro._runtime import arguments, scheduler
from coro._sync.locks import mutex
from coro.exceptions import ClosedError, TimeoutError, end_of_stream
from coro.tls._channels import Channel, Foreign
from coro.tls._engine import Engine
from coro.tls._records import FIRST_BLOCK, NUMBERS, Records

__all__ = ["TLSStatistics", "TLSStream"]

_Buffer = bytes | bytearray | memoryview

#: Seconds that a handshake may take unless told otherwise.
HANDSHAKE_TIMEOUT = 10.0
#: Seconds that close() waits at most until the farewell is sent.
CLOSE_TIMEOUT = 1.0
#: Bytes of a handshake that a peer may send; the longest chains of certificates take a tenth.
HANDSHAKE_MOST = 512 * 1024
#: Answers that a peer may provoke without taking any.
ANSWERS_MOST = 65536


class _Never(Exception):
    """Stands for wishes that an engine does not have."""


#: What one record carries, and plain bytes that become records before these are sent.
RECORD, CHUNK = NUMBERS[3:]
#: What is asked of the stream below at first, and all the time during a handshake.
BLOCK_FIRST = FIRST_BLOCK
#: What is thrown away at once when the connection has failed.
BLOCK_LAST = 65536

# The state of a stream: bits.
_NEW = 0
_OPEN = 1  # the handshake is done
_PEER_ENDED = 2  # the peer's close_notify has come
_SHUT = 4  # our close_notify is made
_DOWN = 8  # the stream below was shut: its end is no attack
_CLOSING = 16
_KEPT = 32  # `_back` is not empty
_BROKEN = 64  # `_trouble` is set
_STATES = {
    _NEW: "before its handshake",
    _OPEN: "open",
    _OPEN | _SHUT: "open to receive",
    _OPEN | _PEER_ENDED: "open to send",
}
assert (_OPEN, _PEER_ENDED, _KEPT) == NUMBERS[:3]
# The class, where a parameter hides its name.
_sock = sock


class TLSStatistics(NamedTuple):
    """State of a TLSStream; debugging information."""

    #: ``"TLSv1.3"`` say; None before the handshake.
    version: str | None
    #: The name of the cipher, None before the handshake.
    cipher: str | None
    #: Whether an earlier session shortened the handshake.
    session_reused: bool
    #: Bytes that have come and are not decrypted yet.
    received: int
    #: Bytes that are encrypted and not sent yet.
    unsent: int
    #: Threads that wait for their turn to send.
    senders: int


class TLSStream(Records):
    """A ``coro.Stream`` that speaks TLS over another one. ``wrap`` of a context makes it: ``sock`` is the stream below,
    which belongs to this one from now on, and ``engine`` does the work of TLS.

    One thread may receive while others send. A call that is interrupted, by ``coro.timeout`` say, leaves the stream
    usable: nothing that was received is lost, and records that were begun are completed by the next call that sends.

    ``recv`` returns ``b""`` only if the peer has ended its side with close_notify. A stream that ends without it raises
    TruncatedError. What the peer does wrong raises ProtocolError, as does an alert of the peer's; the connection is of
    no more use then, and each later call raises the same. Errors of the stream below (ConnectionResetError, ClosedError
    and others) are passed on.
    """

    __slots__ = ("__weakref__", "_trouble")

    def __init__(self, sock: Any, engine: Engine, context: Any = None) -> None:
        """``context`` is the context that made them. The handshake is still to be done."""
        self._sock = sock
        self._engine = engine
        self._context = context
        channel: Channel | None = getattr(engine, "channel", None)
        self._uses(Foreign(engine) if channel is None else channel)
        self._lock = mutex()
        self._back = b""  # plain text that an interrupted recv_exact had gathered
        self._rest = b""  # ciphertext that an interrupted send had not sent
        self._block = BLOCK_FIRST
        self._primed = True  # there may be something to decrypt
        self._direct = isinstance(sock, _sock)
        self._state = _NEW
        self._trouble: BaseException | None = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else _STATES.get(self._state & ~_KEPT, "ended")
        return f"<TLSStream {state} over {self._sock!r}>"

    # -- the handshake

    def handshake(self, timeout: SupportsFloat | None = HANDSHAKE_TIMEOUT) -> None:
        """Do the handshake; ``wrap`` has done it. ``timeout`` is a number of seconds for all of it, None for any time.

        Raises HandshakeTimeout when the time is over, CertificateError for a certificate that is not accepted, and
        HandshakeError for all else that the peer does wrong. The stream is closed then, and when the thread is
        interrupted.
        """
        if self._state != _NEW:
            return
        try:
            if timeout is None:
                self._shake()
            else:
                self._shake_within(arguments.seconds(timeout, "the handshake's timeout"))
        except BaseException as e:
            if self._trouble is None:
                error = HandshakeError("the TLS handshake was not completed")
                error.__cause__ = e if isinstance(e, Exception) else None
                self._break(error)
            self._sock.close()
            raise
        self._state = _OPEN

    def _shake_within(self, seconds: float) -> None:
        limit = scheduler.timeout(seconds)
        try:
            with limit:
                self._shake()
        except TimeoutError:
            if not limit.expired:
                raise
            raise HandshakeTimeout(f"the peer did not complete the TLS handshake within {seconds:g} seconds") from None

    def _shake(self) -> None:
        left = HANDSHAKE_MOST
        while True:
            try:
                done = self._channel.handshake()
            except self._again:
                self._flush_to_the_living()
                scheduler.yield_slice()
                continue
            except Exception as e:
                raise self._not_shaken(e)  # noqa: B904  the cause is set there
            self._flush_to_the_living()
            if done:
                return
            data = self._sock.recv(BLOCK_FIRST)
            left -= len(data)
            if left < 0:
                raise HandshakeError(f"the peer sent {HANDSHAKE_MOST} bytes and the TLS handshake is not completed")
            self._channel.feed(data)

    def _not_shaken(self, exc: Exception) -> Exception:
        error = self._engine.error(exc, "handshake")
        if isinstance(error, TLSError):
            self._break(error)
        self._send_alert(True)
        if error is not exc:
            error.__cause__ = exc
        return error

    def _flush_to_the_living(self) -> None:
        """A peer may have said all it wanted and left. What it said is still to be received, and receiving tells how it
        ended; a server's last words are tickets for a connection that will never be."""
        try:
            self._flush()
        except ConnectionError:
            self._channel.take()
            self._rest = b""

    def _send_alert(self, last: bool) -> None:
        """Tell the peer why it ends, if that is possible at once. ``last``: and see to it that it is read. Bytes of the
        peer's that nobody has read would turn the end of the connection into a reset, which overtakes the alert."""
        if not self._channel.unsent() or self._lock.locked():
            return
        try:
            if not self._direct:
                with scheduler.move_on_after(CLOSE_TIMEOUT), self._lock:
                    self._flush()
            elif self._send_at_once() and last:
                self._sock.shutdown(SHUT.WR)
                for _ in range(16):
                    if not self._sock.recv(BLOCK_LAST, MSG.DONTWAIT):
                        break
        except OSError:
            return  # the peer has gone, or does not read

    # -- between the engine and the stream below

    @property
    def _again(self) -> type[Exception]:
        return getattr(self._engine, "again", _Never)

    def _flush(self) -> None:
        """Send what the engine has to say. The caller has the lock, or there is nobody else."""
        if self._rest:
            self._transmit(self._rest)
        while self._channel.unsent():
            self._transmit(self._channel.take())

    def _transmit(self, data: bytes) -> None:
        self._rest = data
        try:
            self._sock.send(data)
        except BaseException as e:
            self._rest = data[getattr(e, "bytes_sent", 0) :]
            raise
        self._rest = b""

    def _send_at_once(self) -> bool:
        """What _flush does, without waiting; whether all was sent. Only a sock can be asked not to wait."""
        if not self._direct:
            return not self._channel.unsent() and not self._rest
        data = self._rest + self._channel.take() if self._channel.unsent() else self._rest
        self._rest = data
        if data:
            try:
                self._sock.send(data, MSG.DONTWAIT)
            except oserrors.EAGAIN as e:
                self._rest = data[getattr(e, "bytes_sent", 0) :]
                return False
            self._rest = b""
        return True

    def _answer(self) -> None:
        """Reading has made the engine say something."""
        if not self._lock.locked():
            with self._lock:
                self._send_at_once()
        if self._channel.unsent() + len(self._rest) > ANSWERS_MOST and not self._lock.locked():
            error = ProtocolError(f"the peer provoked {ANSWERS_MOST} bytes of answers without receiving any of them")
            self._break(error)
            raise error

    def _break(self, error: TLSError) -> None:
        """The connection is of no more use: each later call raises this."""
        self._trouble = error
        self._state |= _BROKEN

    def _failed(self, exc: Exception, doing: str) -> Exception:
        """The error for what the engine raised; every later call raises the same."""
        error = self._engine.error(exc, doing)
        if isinstance(error, TLSError):
            error._sock = self._sock  # a server counts clients that have gone
            self._break(error)
            self._send_alert(False)
        if error is not exc:
            error.__cause__ = exc
        return error

    def _refuse(self) -> None:
        """What stands before everything that is not the usual case: raises unless the stream can be used."""
        if self._state == _NEW:
            raise ValueError("the TLS handshake is not done yet: call handshake() first")
        if self._sock.closed:
            what = ", which unwrap() has ended," if isinstance(self._sock, _Gone) else ""
            raise ClosedError(what=f"this TLSStream{what}")
        if self._trouble is not None:
            raise self._trouble.with_traceback(None)

    # -- receiving

    # In vars() as well, for whoever lists what a stream can do.
    recv = Records.recv

    def _recv_unusual(self, buffer_size: int, flags: int) -> bytes:
        if flags:
            raise _no_flags()
        if buffer_size <= 0:
            _check_size(buffer_size)
            return b""
        if self._back:
            if self._sock.closed:
                self._refuse()
            data = self._back[:buffer_size]
            self._keep(self._back[buffer_size:])
            return data
        return self._receive(buffer_size)

    def _keep(self, data: bytes) -> None:
        """Plain text to be received first."""
        self._back = data
        self._state = self._state | _KEPT if data else self._state & ~_KEPT

    def _more_raised(self, exc: BaseException, data: bytes) -> bytes:
        """What the engine raised in recv() behind ``data``, which is received first: the next call tells the rest. A
        signal's handler may have raised it, too."""
        if not isinstance(exc, Exception):
            self._keep(data)
            raise exc
        if isinstance(exc, self._engine.ended):
            self._state |= _PEER_ENDED
        elif not isinstance(exc, self._again):
            error = self._failed(exc, "read")
            if self._trouble is None:
                self._keep(data)
                raise error
            return data
        if self._channel.unsent():
            self._answer()
        return data

    def _recv_done(self, data: bytes) -> bytes:
        """The end has come, or the engine has to say something."""
        if not data:
            return self._at_end()
        self._answer()
        return data

    def _read_failed(self, exc: Exception, size: int) -> bytes:
        """What the engine's read raised, other than that it wants more."""
        if isinstance(exc, self._engine.ended):
            return self._at_end()
        if isinstance(exc, self._again):
            scheduler.yield_slice()
            return self._receive(size)
        raise self._failed(exc, "read")

    def _receive(self, size: int) -> bytes:
        if self._state & ~_SHUT != _OPEN:
            if self._state & (_PEER_ENDED | _BROKEN) == _PEER_ENDED and not self._sock.closed:
                return b""
            self._refuse()
        while True:
            if self._primed:
                try:
                    data = self._channel.read(size if size < RECORD else RECORD)
                except Exception as e:
                    return self._read_failed(e, size)
                if data is not None and not data:
                    return self._at_end()
                if data is not None:
                    self._primed = len(data) >= min(size, RECORD) or self._channel.received() != 0
                if self._channel.unsent():
                    self._answer()
                if data is not None:
                    return data
            if not self._pull():
                return self._at_end()

    def _pulled_end(self) -> bool:
        """The stream below has ended. False: this side has shut it."""
        if self._state & _DOWN:
            return False
        self._channel.feed(b"")
        self._primed = True
        return True

    def _at_end(self) -> bytes:
        self._state |= _PEER_ENDED
        if self._channel.unsent():
            self._answer()
        return b""

    def read(self, buffer_size: int) -> bytes:
        """The same as ``recv`` without flags."""
        return self.recv(buffer_size)

    def recv_into(self, buffer: bytearray | memoryview, nbytes: int = 0, flags: int = 0) -> int:
        """Receive into a writable buffer, at most ``nbytes`` bytes (0: what it holds); returns how many came, 0 when
        the peer has ended its side. ``flags`` and errors as for ``recv``; ValueError for more than the buffer
        holds."""
        if flags:
            raise _no_flags()
        with memoryview(buffer) as whole, whole.cast("B") as view:
            if view.readonly:
                raise BufferError(f"expected a writable buffer to receive into, not read-only {type(buffer).__name__}")
            if not 0 <= nbytes <= len(view):
                raise ValueError(f"cannot receive {nbytes} bytes into a buffer of {len(view)}: pass a larger one")
            size = nbytes or len(view)
            if not size:
                return 0
            if self._back:
                if self._sock.closed:
                    self._refuse()
                data = self._back[:size]
                self._keep(self._back[size:])
                view[: len(data)] = data
                return len(data)
            return self._receive_into(view, size)

    def _receive_into(self, view: memoryview, size: int) -> int:
        if self._state & ~_SHUT != _OPEN:
            if self._state & (_PEER_ENDED | _BROKEN) == _PEER_ENDED and not self._sock.closed:
                return 0
            self._refuse()
        while True:
            if self._primed:
                try:
                    n = self._channel.read_into(size, view)
                except Exception as e:
                    data = self._read_failed(e, size)
                    view[: len(data)] = data
                    return len(data)
                if n == 0:
                    self._at_end()
                    return 0
                if n > 0:
                    self._primed = n >= min(size, RECORD) or self._channel.received() != 0
                if self._channel.unsent():
                    self._answer()
                if n > 0:
                    return n
            if not self._pull():
                self._at_end()
                return 0

    def recv_exact(self, nbytes: int) -> bytes:
        """Receive exactly ``nbytes`` bytes.

        ``EOFError(partial)`` when the peer ends its side before; TruncatedError when the stream is cut. A call that is
        interrupted or fails loses nothing: the bytes are there for the next one.
        """
        _check_size(nbytes)
        data = self._gather(nbytes)
        if len(data) < nbytes:
            raise end_of_stream(data, nbytes)
        return data

    def _gather(self, size: int) -> bytes:
        """Exactly ``size`` bytes, fewer at the end. It grows as they come: a length that a peer made up costs no
        memory."""
        if size == 0:
            return b""
        data = self.recv(size)
        if len(data) == size or not data:
            return data
        gathered = [data]
        left = size - len(data)
        try:
            while left:
                data = self.recv(left)
                if not data:
                    break
                gathered.append(data)
                left -= len(data)
        except BaseException:
            self._keep(b"".join(gathered) + self._back)
            raise
        return b"".join(gathered)

    def readv(self, size_list: Iterable[int]) -> tuple[bytes, ...]:
        """Fill buffers of the sizes in ``size_list``. At the end of the stream only those that are complete or have a
        part. Errors are those of ``recv``."""
        sizes = list(size_list)
        for size in sizes:
            _check_size(size)
        total = sum(sizes)
        data = self._gather(total)
        out, at = [], 0
        for size in sizes:
            if at >= len(data) < total:
                break
            out.append(data[at : at + size])
            at += size
        return tuple(out)

    def wait_for_read(self) -> int:
        """Wait until there is something to receive, or the stream has ended. Returns how many bytes are there, 0 at the
        end. Errors are those of ``recv``."""
        if not self._back:
            self._keep(self._receive(RECORD))
        return len(self._back)

    def pending(self) -> int:
        """How many bytes can be received without waiting; there may be more that is not decrypted yet."""
        return len(self._back) + self._channel.pending()

    # -- sending

    send = Records.send

    def _send_unusual(self, data: _Buffer, flags: int) -> int:
        if flags & ~MSG.NOSIGNAL:
            raise _no_flags()
        if type(data) is not bytes:
            return self._send_view(data)
        with self._lock:
            try:
                self._before_sending()
            except BaseException as e:
                _tell_sent(e, 0)
                raise
            self._send_more(data, 0)
        return len(data)

    def _send_more(self, data: bytes, sent: int) -> None:
        """Send the rest of ``data``, of which ``sent`` bytes are sent, and what else the engine has to say.

        The caller has the lock. An exception has ``bytes_sent``."""
        try:
            with memoryview(data) as view:
                while sent < len(data):
                    if self._again is not _Never:
                        scheduler.yield_slice()
                    sent += self._encrypt(view[sent : sent + CHUNK])
                    self._transmit(self._channel.take())
            if self._channel.unsent():
                self._flush()
        except BaseException as e:
            _tell_sent(e, sent)
            raise

    def _tell_sent(self, exc: BaseException, sent: int) -> None:
        _tell_sent(exc, sent)

    def _send_view(self, data: Any) -> int:
        if isinstance(data, str):
            raise TypeError(f"expected bytes-like data to send, not str: encode {data[:40]!r} first")
        with memoryview(data) as whole, whole.cast("B") as view:
            size = len(view)
            if size <= CHUNK:
                return self.send(bytes(view))
            sent = 0
            with self._lock:  # a thread that has it may take it again
                try:
                    while sent < size:
                        sent += self.send(bytes(view[sent : sent + CHUNK]))
                except BaseException as e:
                    _tell_sent(e, sent + getattr(e, "bytes_sent", 0))
                    raise
            return size

    def _before_sending(self) -> None:
        self._refuse()
        if self._state & _SHUT:
            raise oserrors.EPIPE("this side was ended by shutdown(): nothing can be sent any more")
        if self._rest:
            self._transmit(self._rest)

    def _encrypt(self, data: _Buffer) -> int:
        try:
            return self._channel.write(data)
        except Exception as e:
            raise self._not_written(e)  # noqa: B904  the cause is set there

    def _not_written(self, exc: Exception) -> Exception:
        if not isinstance(exc, self._engine.want):
            return self._failed(exc, "write")
        error = ProtocolError("the peer asks for a new handshake inside of the connection")
        error.__cause__ = exc
        self._break(error)
        return error

    def sendall(self, data: _Buffer, flags: int = 0) -> int:
        """The same as ``send``."""
        return self.send(data, flags)

    def write(self, data: _Buffer) -> int:
        """The same as ``send`` without flags."""
        return self.send(data)

    def writev(self, data_list: Iterable[_Buffer]) -> int:
        """Send the pieces of ``data_list`` as if they were one; returns their total size. Small ones share records.
        Errors are those of ``send``."""
        if isinstance(data_list, (bytes, bytearray, memoryview, str)):
            raise TypeError(f"expected a sequence of bytes-like objects, not one {type(data_list).__name__}")
        pieces = list(data_list)
        if sum(map(len, pieces)) <= CHUNK:
            return self.send(b"".join(pieces))
        total = 0
        with self._lock:  # a thread that has it may take it again
            try:
                for piece in pieces:
                    total += self.send(piece)
            except BaseException as e:
                _tell_sent(e, total + getattr(e, "bytes_sent", 0))
                raise
        return total

    # -- the end

    def shutdown(self, how: int) -> None:
        """End sending (``SHUT.WR``), receiving (``SHUT.RD``) or both (``SHUT.RDWR``).

        Ending the sending side sends close_notify behind all that was sent before; the other direction goes on (RFC
        8446 section 6.1). SHUT.RDWR shuts the stream below, too. Ending the receiving side has no meaning in TLS: the
        stream below is told. Waits until it is sent; raises what ``send`` of the stream below raises, ValueError for
        another ``how``.
        """
        if how not in (SHUT.RD, SHUT.WR, SHUT.RDWR):
            raise ValueError(f"expected SHUT.RD, SHUT.WR or SHUT.RDWR, not {how!r}")
        if how != SHUT.RD:
            self._refuse()
            with self._lock:
                self._end_sending()
                self._flush()
        if how != SHUT.WR:
            self._state |= _DOWN
            self._sock.shutdown(how)

    def _end_sending(self) -> None:
        """Have the engine say close_notify. It must not find plain text on the way, so that is taken out before."""
        if self._state & _SHUT:
            return
        if self._primed and not self._state & _PEER_ENDED:
            self._keep_all()
        self._state |= _SHUT
        try:
            self._channel.shutdown()
        except self._engine.ended:
            return  # the peer has ended, too
        except Exception as e:
            if not self._channel.unsent():
                raise self._failed(e, "close")  # noqa: B904  the cause is set there

    def _keep_all(self) -> None:
        """Decrypt what is there, at most what one recv of the stream below has brought."""
        kept = [self._back]
        try:
            while True:
                data = self._channel.read(RECORD)
                if data is None:
                    self._primed = False
                    break
                if not data:
                    self._state |= _PEER_ENDED
                    break
                kept.append(data)
        except self._engine.ended:
            self._state |= _PEER_ENDED
        except Exception as e:
            self._failed(e, "read")
        self._keep(b"".join(kept))

    def close(self) -> None:
        """Send close_notify and close the stream below. Closing twice is no error.

        It does not wait for the peer's answer. Where the peer does not even receive, it waits a second at most. Threads
        that wait in the stream get ClosedError.
        """
        if self._sock.closed:
            return
        try:
            if self._state & (_OPEN | _BROKEN | _CLOSING) == _OPEN:
                self._state |= _CLOSING
                self._say_farewell()
        except (OSError, EOFError):
            return  # the peer has gone
        finally:
            self._sock.close()

    def _say_farewell(self) -> None:
        if not self._lock.locked():
            with self._lock:
                self._end_sending()
                if self._send_at_once():
                    return
        if not scheduler.coro_is_running():
            return
        with scheduler.move_on_after(CLOSE_TIMEOUT), self._lock:
            self._end_sending()
            self._flush()

    def unwrap(self, timeout: SupportsFloat | None = CLOSE_TIMEOUT) -> Any:
        """End TLS on both sides, and return the stream below, which goes on in the clear.

        Sends close_notify and waits for the peer's, ``timeout`` seconds at most (None: any time). Raises
        coro.TimeoutError when the time is over; ProtocolError when plain text comes that nobody has received, and when
        the peer has sent bytes in the clear behind its close_notify already; TruncatedError when the stream ends.
        """
        with scheduler._CallLimit(timeout, "TLSStream.unwrap()"):
            self.shutdown(SHUT.WR)
            # A byte at a time, because what comes behind the close_notify is not ours.
            self._block = 1
            if self._back or self.recv(1):
                raise ProtocolError("the peer has sent data that was not received: receive up to the end first")
        if self._channel.received():
            raise ProtocolError("the peer has sent bytes behind its close_notify already, which would be lost")
        below = self._sock
        self._direct = False
        self._sock = _Gone()
        return below

    # -- what is known of the connection

    @property
    def closed(self) -> bool:
        """Whether this side has been closed."""
        return bool(self._sock.closed)

    @property
    def sock(self) -> Any:
        """The stream below."""
        return self._sock

    @property
    def engine(self) -> Engine:
        """The back end's object; for debugging."""
        return self._engine

    @property
    def context(self) -> Any:
        """The context that made this stream."""
        return self._context

    def version(self) -> str | None:
        """The version of the protocol, ``"TLSv1.3"`` say."""
        return self._engine.version()

    def cipher(self) -> tuple[str, str, int] | None:
        """Name of the cipher, version of the protocol that defined it, and number of secret bits."""
        return self._engine.cipher()

    def selected_alpn_protocol(self) -> str | None:
        """The protocol that was agreed on by ALPN (RFC 7301), None without one."""
        return self._engine.selected_alpn_protocol()

    def getpeercert(self, binary_form: bool = False) -> Any:
        """The peer's certificate as ``ssl.SSLSocket.getpeercert`` has it: a dictionary, empty if it was not verified;
        in DER with ``binary_form``; None without one."""
        return self._engine.getpeercert(binary_form)

    def peer_chain(self) -> list[bytes]:
        """The certificates that the peer sent, its own first, each in DER. They are not verified one by one."""
        return self._engine.peer_chain()

    def get_channel_binding(self, cb_type: str = "tls-unique") -> bytes | None:
        """Bytes that identify this connection, for an authentication inside of it (RFC 5929). ``cb_type`` is
        "tls-unique" or what else the back end offers; UnsupportedError otherwise."""
        return self._engine.get_channel_binding(cb_type)

    @property
    def server_hostname(self) -> str | None:
        """The host name that a client has asked for."""
        return self._engine.server_hostname

    @property
    def session(self) -> Any:
        """The session, which shortens the handshake of a later connection to the same server; None without one. With
        TLS 1.3 it comes with the first bytes that are received."""
        return self._engine.session

    @property
    def session_reused(self) -> bool:
        """Whether the handshake was shortened by an earlier session."""
        return self._engine.session_reused

    def statistics(self) -> TLSStatistics:
        """What the stream is doing; debugging information."""
        cipher = None if self._state == _NEW else self._engine.cipher()
        return TLSStatistics(
            version=None if self._state == _NEW else self._engine.version(),
            cipher=cipher[0] if cipher else None,
            session_reused=self._state != _NEW and self._engine.session_reused,
            received=self._channel.received(),
            unsent=self._channel.unsent() + len(self._rest),
            senders=len(self._lock.waiting),
        )

    # -- what the stream below knows

    def getpeername(self) -> Any:
        """The address of the other side."""
        return self._sock.getpeername()

    def getsockname(self) -> Any:
        """The address of this side."""
        return self._sock.getsockname()

    def fileno(self) -> int:
        """The descriptor's number, -1 when closed. That it is readable says nothing about plain text."""
        return int(self._sock.fileno())

    def getsockopt(self, level: int, optname: int, buflen: int = 0) -> Any:
        """An option of the socket below; ``level``, ``optname`` and ``buflen`` are those of ``coro.sock.getsockopt``.
        """
        return self._sock.getsockopt(level, optname, buflen)

    def setsockopt(self, level: int, optname: int, value: int | bytes | bytearray | memoryview) -> None:
        """Set an option of the socket below; ``level``, ``optname`` and ``value`` are those of
        ``coro.sock.setsockopt``."""
        self._sock.setsockopt(level, optname, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Gone:
    """Stands for the stream below after unwrap()."""

    closed = True

    def __repr__(self) -> str:
        return "nothing: TLS was ended by unwrap()"

    def close(self) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        raise ClosedError(what="this TLSStream, which unwrap() has ended,")


def _no_flags() -> OSError:
    return oserrors.EOPNOTSUPP("a TLS stream knows no flags: the kernel does not see what is in a record")


def _check_size(size: int) -> None:
    if size < 0:
        raise ValueError(f"the number of bytes to receive must not be negative, not {size}")


def _tell_sent(exc: BaseException, sent: int) -> None:
    try:
        cast(Any, exc).bytes_sent = sent
    except Exception:
        return  # an exception class without a dictionary
