"""``Link``: one connection of a client to a server or proxy, and what happens on it between a request and its response.

A link belongs to one thread at a time, from the moment the pool hands it out until it is given back or closed. The
codec (`coro.http.h1`) knows what may be read and written next, this file moves its bytes and ends each wait in time.

A small body leaves together with the head, in one system call. Any other is sent by a thread of its own while this one
reads: a server may answer before it has read everything (with 413, or by echoing), and a client that only writes would
then wait for a server that only writes. When such a sender fails because the server does not take more, the response is
still read, because it says why.

A link is used again only if both sides agreed to it, the request was sent and the response read to its last byte, and
nothing came behind it. Bytes that nobody asked for are an attempt to answer the next request before it is made.

Cost: two system calls for a small request and its response, one timer for each wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from coro._clock import ticks
from coro._net.sock import sock
from coro._runtime import scheduler
from coro.exceptions import Interrupted, TimeoutError
from coro.http import h1
from coro.http._client.fast import LinkState
from coro.http._client.fields import Headers
from coro.http._client.limits import Limits, Timeout
from coro.http._decompress import Decompressor
from coro.http.exceptions import (
    DeadlineExceeded,
    ReadError,
    ReadTimeout,
    RemoteError,
    WriteError,
    WriteTimeout,
)

if TYPE_CHECKING:
    from coro.http._client.multipart import Body
    from coro.http._client.pool import Pool

__all__ = ["BodySource", "Link", "Sender"]

#: Bytes asked for at a time.
BLOCK = 65_536
#: A body of at most so many bytes is sent with the head, without a thread: kernels take as much at once.
AT_ONCE = 65_536
#: Bytes that have to be taken within the write limit: a large body may take as long as it moves on.
PIECE = 262_144
#: Interim responses (1xx) before one response: more is a way to hold a client for ever.
MOST_INTERIM = 16
#: RFC 9110 section 10.1.1: a client does not wait for 100 for ever; servers before HTTP/1.1 never send it.
CONTINUE_SECONDS = 1.0


class Link(LinkState):
    """One connection.

    stream: what carries the bytes. raw: the sock below it, which ``abort`` closes without a farewell. key: what the
    pool files it under. limits: for the codec.
    """

    __slots__ = ()

    def __init__(self, stream: Any, raw: Any, key: Any, limits: Limits) -> None:
        self.stream = stream
        self.raw = raw
        self.key = key
        self.codec = h1.Connection(h1.CLIENT, max_headers=limits.headers, max_header_count=limits.header_count)
        self.uses = 0
        self.idle_since = 0
        self.heard = False  # bytes of the present response have come
        self.continued = False  # the server said 100 (Continue)

    def __repr__(self) -> str:
        return f"<Link to {self.key!r}, {self.uses} requests>"

    # -- bytes

    def receive(self, seconds: float | None) -> bytes:
        """The next bytes, ``b""`` at the end; ReadTimeout, ReadError."""
        limit = scheduler.timeout(_FOREVER if seconds is None else seconds)
        try:
            with limit:
                data = self.stream.recv(BLOCK)
        except TimeoutError:
            if not limit.expired:
                raise
            raise ReadTimeout(f"the server sent nothing for {seconds:g} seconds") from None
        except (OSError, EOFError) as e:
            raise ReadError(f"the connection ended before the response was complete: {e}") from e
        self.heard = self.heard or bool(data)
        return bytes(data) if type(data) is not bytes else data

    def send(self, pieces: list[bytes], seconds: float | None) -> None:
        """Send all; WriteTimeout, WriteError."""
        limit = scheduler.timeout(_FOREVER if seconds is None else seconds)
        stream = self.stream
        try:
            with limit:
                if len(pieces) == 1:
                    stream.send(pieces[0])
                elif isinstance(stream, sock):
                    stream.writev(pieces)
                else:
                    stream.send(b"".join(pieces))
        except TimeoutError:
            if not limit.expired:
                raise
            raise WriteTimeout(f"the server took nothing of the request for {seconds:g} seconds") from None
        except (OSError, EOFError) as e:
            raise WriteError(f"the connection ended before the request was sent: {e}") from e

    # -- a request and the head of its response

    def exchange(
        self, method: str, target: str, headers: Headers, body: Body | None, timeout: Timeout, expect: bool
    ) -> tuple[Any, Sender | None]:
        """Send a request and return the head of its response, with the thread that still sends the body, if any.

        Whatever is raised, the link is of no more use and the caller closes it; a sender that was started is ended.
        """
        self.heard = self.continued = False
        head = self.codec.request(method.encode("ascii"), target.encode("ascii"), headers._raw())
        pieces = [head]
        sender: Sender | None = None
        if body is not None:
            content = body.content
            if isinstance(content, bytes) and len(content) <= AT_ONCE and not expect:
                if content:
                    pieces.append(self.codec.data(content))
                end = self.codec.end()
                if end:
                    pieces.append(end)
            else:
                sender = Sender(self, body, timeout.write)
        elif end := self.codec.end():
            pieces.append(end)
        self.uses += 1
        failure: WriteError | None = None
        try:
            self.send(pieces, timeout.write)
        except WriteTimeout:
            raise
        except WriteError as e:
            failure = e  # the server may have said why before it closed
        try:
            if sender is not None and failure is None:
                if expect:
                    answer = self.head(min(CONTINUE_SECONDS, timeout.read or CONTINUE_SECONDS), None, True)
                    if answer is not None:
                        return answer, sender
                sender.start()
            answer = self.head(timeout.read, sender)
        except ReadError as e:
            if sender is not None:
                sender.stop()
                if sender.error is not None:
                    raise sender.error from None
            raise failure or e from None
        except BaseException:
            if sender is not None:
                sender.stop()
            raise
        return answer, sender

    def head(self, seconds: float | None, sender: Sender | None = None, until_continue: bool = False) -> Any:
        """The head of the next response that is not interim. With ``until_continue``, None when the server said 100 or
        nothing in time."""
        codec = self.codec
        interim = 0
        while True:
            event = codec.next_event()
            if event is h1.NEED_DATA:
                try:
                    data = self.receive(seconds)
                except ReadTimeout:
                    if until_continue and not self.heard:
                        return None
                    # While the request is still being sent, the server has reason to be silent.
                    if sender is not None and sender.took_since_asked():
                        continue
                    raise
                if not data and not self.heard:
                    raise ReadError("the server closed the connection without a response")
                codec.feed(data)
            elif isinstance(event, h1.InformationalResponse):
                interim += 1
                if interim > MOST_INTERIM:
                    raise RemoteError(f"the server sent more than {MOST_INTERIM} interim responses before its response")
                if event.status == 100:
                    self.continued = True
                    if until_continue:
                        return None
            elif isinstance(event, h1.Response):
                return event
            else:
                raise ReadError("the server closed the connection without a response")

    # -- the end

    def abort(self) -> None:
        """Close at once. Never waits; may be called by a finaliser."""
        (self.stream if self.raw is None else self.raw).close()

    def close(self) -> None:
        """Close in order: over TLS with a farewell, which does not wait for an answer."""
        try:
            self.stream.close()
        except (OSError, EOFError):
            pass
        finally:
            if self.raw is not None:
                self.raw.close()


_FOREVER = 1e9


class Sender:
    """Sends a body from a thread of its own while the response is awaited and read."""

    __slots__ = ("asked", "body", "done", "error", "link", "seconds", "sent", "thread")

    def __init__(self, link: Link, body: Body, seconds: float | None) -> None:
        self.link = link
        self.body = body
        self.seconds = seconds
        self.thread: Any = None
        self.done = False
        self.sent = self.asked = 0
        #: Why the body could not be sent, if that is not that the server takes no more.
        self.error: BaseException | None = None

    def start(self) -> None:
        """Begin."""
        self.thread = scheduler.spawn(self._run, thread_name="body of a request", daemon=True)

    def took_since_asked(self) -> bool:
        """Whether the server has taken bytes since this was last asked."""
        moved = self.sent > self.asked and not self.done
        self.asked = self.sent
        return moved

    def _run(self) -> None:
        link, codec = self.link, self.link.codec
        try:
            for piece in self.body.pieces():
                # A piece may be as large as its maker likes; the limit is for each part that we hand to the kernel.
                for start in range(0, len(piece), PIECE):
                    part = piece if len(piece) <= PIECE else piece[start : start + PIECE]
                    link.send([codec.data(part)], self.seconds)
                    self.sent += len(part)
            if end := codec.end():
                link.send([end], self.seconds)
            self.done = True
        except WriteTimeout as e:
            self.error = e
            link.abort()
        except WriteError:
            pass  # whoever reads finds the response, or the end
        except Interrupted as e:
            if not isinstance(e, TimeoutError):
                raise
            self.error = e
            link.abort()
        except BaseException as e:
            self.error = e  # raised where the response is awaited
            link.abort()

    def stop(self) -> None:
        """End it. Does not wait."""
        thread = self.thread
        if thread is not None and not thread.dead:
            thread.shutdown()


class BodySource:
    """The body of a response that is on its link.

    pool: gets the link back. decoder: decompresses, None if there is nothing to. most: what ``read()`` collects. read:
    seconds of silence. deadline: the tick at which all must be over, None for no limit.
    """

    __slots__ = ("deadline", "decoder", "done", "held", "link", "most", "pool", "read", "sender", "trailers")

    def __init__(
        self,
        pool: Pool,
        link: Link,
        sender: Sender | None,
        decoder: Decompressor | None,
        most: int,
        read: float | None,
        held: Sequence[bytes] = (),
    ) -> None:
        self.pool = pool
        self.link: Link | None = link
        self.sender = sender
        self.decoder = decoder
        self.most = most
        self.read = read
        self.deadline: int | None = None
        self.done = False
        self.trailers: Headers | None = None
        self.held = list(reversed(held))  # pieces that were received already, the first one last

    def _seconds(self) -> float | None:
        if self.deadline is None:
            return self.read
        left = max(0.0, (self.deadline - ticks.get_now()) / ticks.ticks_per_sec)
        return left if self.read is None else min(self.read, left)

    def read_raw(self) -> bytes:
        """The next bytes as they came, ``b""`` at the end."""
        link = self.link
        if link is None or self.done:
            return b""
        if self.held:
            return self.held.pop()
        codec = link.codec
        while True:
            event = codec.next_event()
            if event is h1.NEED_DATA:
                codec.feed(self._receive(link))
            elif isinstance(event, h1.Data):
                if event.data:
                    return bytes(event.data)
            elif isinstance(event, h1.EndOfMessage):
                self.done = True
                if event.trailers:
                    self.trailers = Headers(event.trailers.items())
                return b""
            else:
                raise ReadError("the connection ended before the response was complete")

    def _receive(self, link: Link) -> bytes:
        try:
            return link.receive(self._seconds())
        except ReadTimeout:
            if self.deadline is not None and ticks.get_now() >= self.deadline:
                raise DeadlineExceeded("the response did not end within the total limit of its request") from None
            raise
        except ReadError:
            if self.sender is not None and self.sender.error is not None:
                raise self.sender.error from None
            raise

    def read_decoded(self) -> bytes:
        """The next bytes, decompressed, at most 64 KiB; ``b""`` at the end."""
        decoder = self.decoder
        if decoder is None:
            return self.read_raw()
        while True:
            if decoder.pending:
                out = decoder.feed(b"", BLOCK)
            else:
                raw = self.read_raw()
                if not raw:
                    decoder.finish()
                    return b""
                out = decoder.feed(raw, BLOCK)
            if out:
                return bytes(out)

    def finish(self) -> None:
        """Give the link back: to be used again if the response is complete, else closed. Never waits."""
        link, self.link = self.link, None
        if link is None:
            return
        sender = self.sender
        if sender is not None:
            sender.stop()
        whole = self.done and (sender is None or sender.done)
        self.pool.give_back(link, whole)
