"""Single frames of a connection, as Shrapnel's client had them: `send_frame`, `expect_frame`, and what goes with them.

Programs that speak methods of their own use these. Everything else here works above frames, and so does what is sent by
these: a message whose frames are given one by one is kept until it is whole and then sent at once, so that the frames
of other threads cannot come between. Only methods of the connection (channel 0) can be waited for, because those of a
channel belong to whoever asked on it. Cost: nothing, unless it is used.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import coro
from coro._clock import ticks
from coro.amqp import spec
from coro.amqp._method import Method
from coro.amqp.exceptions import AMQPTimeout, ConnectionLost, EncodeError, ProtocolError, StateError
from coro.amqp.wire import unpack_properties

if TYPE_CHECKING:
    from coro.amqp._channel import channel
    from coro.amqp._link import Link

__all__ = ["ClassicFrames"]

#: Class, weight and size of the body in a content header (specification, 4.2.6.1), and the flags of its properties.
HEADER = 14


class _Content:
    """A message that is being given in frames."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.size: int | None = None
        self.properties: dict[str, Any] = {}
        self.body = bytearray()


class ClassicFrames:
    """The part of ``client`` that is described above."""

    channels: dict[int, channel]
    timeout: float
    _link: Link | None

    def __init__(self) -> None:
        self._awaited: deque[tuple[coro.event, list[Method]]] = deque()
        self._contents: dict[int, _Content] = {}

    def _wait_up(self) -> None:
        raise NotImplementedError

    # ---- in the reader

    def _frame_came(self, method: Method) -> bool:
        """Has somebody waited for a method of the connection?"""
        if not self._awaited:
            return False
        event, answer = self._awaited.popleft()
        answer.append(method)
        event.set()
        return True

    def _no_more_frames(self) -> None:
        self._contents.clear()
        while self._awaited:
            self._awaited.popleft()[0].set()

    # ---- for users

    @property
    def last_send(self) -> int:
        """When something was last sent, in ticks (``coro.get_now()``); 0 before."""
        return self._link.last_send if self._link is not None else 0

    def secs_since_send(self) -> float:
        """Seconds since something was last sent. Raises StateError before that."""
        if not self.last_send:
            raise StateError("expected a client that has sent something: call go() first")
        return ticks.to_duration(ticks.get_now() - self.last_send)

    def expect_frame(self, ftype: int, *names: str, timeout: float | None = None) -> tuple[int, int, Method]:
        """Wait for the next method of the connection: returns ``(ftype, 0, method)``.

        ftype: ``spec.FRAME_METHOD``, as connections have no other frames to wait for. names: those that the method may
        have, such as "connection.update_secret_ok". timeout: seconds, None for the client's. Several threads get one
        method each, in the order of their calls. Raises ProtocolError for a method of another name, AMQPTimeout when
        none comes, and ConnectionLost or another error when the connection ends.
        """
        if ftype != spec.FRAME_METHOD:
            raise StateError(f"expected the frame type {spec.FRAME_METHOD} (method), got {ftype}")
        self._wait_up()
        link = self._link
        assert link is not None
        waiting: tuple[coro.event, list[Method]] = coro.event(), []
        event, answer = waiting
        seconds = self.timeout if timeout is None else timeout
        self._awaited.append(waiting)
        link.begin_wait()
        try:
            with coro.move_on_after(seconds):
                event.wait()
        finally:
            link.waiting -= 1
            if waiting in self._awaited:
                self._awaited.remove(waiting)
        if not answer:
            if not link.alive:
                link.raise_error()
            raise AMQPTimeout(f"expected {' or '.join(names)} within {seconds:g} s, none came")
        method = answer[0]
        if method._name not in names:
            raise ProtocolError(f"expected {' or '.join(names)}, got {method!r}", 503)
        return ftype, 0, method

    def send_frame(self, ftype: int, channel: int, ob: Method | bytes) -> None:
        """Send one frame, without waiting for anything but a lost connection that is being recovered.

        ftype: ``spec.FRAME_METHOD``, with a method as ``ob``; ``spec.FRAME_HEADER`` and ``spec.FRAME_BODY``, with the
        payload as bytes; or ``spec.FRAME_HEARTBEAT``. channel: its number, which must be open, 0 for the connection. A
        method with a content is sent when its header and its whole body have been given. Its answer goes to nobody, so
        ask by the methods of ``channel`` where there are any. Raises StateError for a frame out of its order, or in
        confirm mode; EncodeError for a damaged header or a body longer than it says; ConnectionLost and others.
        """
        self._wait_up()
        link = self._link
        if link is None or not link.alive:
            raise ConnectionLost("the connection is lost")
        if ftype == spec.FRAME_HEARTBEAT:
            link.protocol.send_heartbeat()
        elif ftype == spec.FRAME_METHOD:
            self._send_method_frame(link, channel, ob)
        elif ftype in (spec.FRAME_HEADER, spec.FRAME_BODY):
            self._send_content_frame(link, ftype, channel, ob)
        else:
            raise StateError(f"expected a frame type among 1, 2, 3 and 8, got {ftype}")
        link.flush()

    def _send_method_frame(self, link: Link, number: int, method: Any) -> None:
        if not isinstance(method, Method):
            raise StateError(f"expected a method for a method frame, got {type(method).__name__}")
        if number in self._contents:
            raise StateError(f"expected the rest of {self._contents[number].method._name} on channel {number}")
        if not method.content:
            link.protocol.send_method(number, method)
            return
        found = self.channels.get(number)
        if found is not None and found.confirm_mode:
            raise StateError("expected a channel without confirm mode, which counts messages; use channel.publish")
        self._contents[number] = _Content(method)

    def _send_content_frame(self, link: Link, ftype: int, number: int, data: Any) -> None:
        content = self._contents.get(number)
        if content is None or (ftype == spec.FRAME_HEADER) != (content.size is None):
            raise StateError(f"expected a method with a content, then its header, then its body on channel {number}")
        data = bytes(data)
        if content.size is None:
            if len(data) < HEADER:
                raise EncodeError(f"expected a content header of at least {HEADER} bytes, got {len(data)}")
            content.properties = unpack_properties(int.from_bytes(data[12:14]), data[14:])
            content.size = int.from_bytes(data[4:12])
        else:
            content.body += data
        if len(content.body) > content.size:
            del self._contents[number]
            raise EncodeError(f"expected a body of {content.size} bytes, as its header says, got more")
        if len(content.body) == content.size:
            del self._contents[number]
            link.protocol.send_content(number, content.method, content.properties, bytes(content.body))

    def forget_channel(self, n: int) -> None:
        """Drop the channel of this number without telling the broker: who waits on it gets StateError. Nothing happens
        if there is none. The number is free again only when the broker has closed the channel, too."""
        found = self.channels.get(n)
        if found is not None:
            found._end(None)

    def notify_channels_of_close(self) -> None:
        """Do that for all channels, so that all consumers end."""
        for number in list(self.channels):
            self.forget_channel(number)
