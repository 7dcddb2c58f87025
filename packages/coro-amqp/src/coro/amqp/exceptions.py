"""Every exception of coro-amqp, with a sentence or two on when it is raised.

Two families: `LocalError` for what the caller did wrong, `RemoteError` for what the broker or the network did. Limits
of time of this package are `AMQPTimeout`; limits that the caller sets around a call with ``coro.with_timeout`` stay
``coro.TimeoutError``.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AMQPError",
    "AMQPTimeout",
    "AMQP_Consumer_Closed",
    "AuthenticationError",
    "ChannelClosed",
    "ConnectionBlocked",
    "ConnectionClosed",
    "ConnectionLost",
    "EncodeError",
    "LimitExceeded",
    "LocalError",
    "ProtocolError",
    "PublishNacked",
    "PublishReturned",
    "RemoteError",
    "StaleDelivery",
    "StateError",
    "UnexpectedClose",
]


class AMQPError(Exception):
    """The root of all errors of this package."""


class LocalError(AMQPError):
    """The caller asked for something that cannot be done. Nothing was sent."""


class EncodeError(LocalError, ValueError):
    """A name, argument or property does not fit the field that AMQP has for it."""


class StateError(LocalError):
    """The call is impossible in this state: the channel or connection was closed here, or lacks confirm mode."""


class StaleDelivery(StateError):
    """A message was to be acknowledged or rejected whose channel has been closed or opened anew since.

    Its number would mean another message now, so nothing was sent. The broker delivers the message again by itself.
    """


class RemoteError(AMQPError):
    """The broker, or the network between, failed the caller."""


class ProtocolError(RemoteError):
    """The peer sent what AMQP 0-9-1 does not allow at that point. The connection is useless after it.

    ``reply_code`` is the number with which AMQP names the fault (0-9-1 specification, section 1.2): 501 a bad frame,
    502 bad contents of a frame, 503 a method out of turn, 504 a channel that is not open, 505 a frame out of turn,
    506 too large.
    """

    def __init__(self, text: str = "", reply_code: int = 502) -> None:
        super().__init__(text)
        self.reply_code = reply_code

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.reply_code)


class LimitExceeded(ProtocolError):
    """The peer sent more than one of our own limits allows: a frame, a message, or tables within tables."""


class AuthenticationError(RemoteError):
    """The broker refuses the user, or offers no way to log in that is configured here.

    ``reply_code`` is 403 if the broker said so itself, and 0 if it follows from what the broker did.
    """

    def __init__(self, text: str = "", reply_code: int = 0) -> None:
        super().__init__(text)
        self.reply_code = reply_code

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.reply_code)


class ConnectionLost(RemoteError):
    """The connection broke, or the broker was silent for two heartbeats. What was under way may have happened or not.

    ``__cause__`` is the reason, where one is known.
    """


class UnexpectedClose(RemoteError):
    """The broker closed a channel or the connection.

    ``reply_code`` and ``reply_text`` are the broker's reason; ``class_id`` and ``method_id`` tell which method it is
    about, 0 if none.
    """

    def __init__(self, reply_code: int = 0, reply_text: str = "", class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(reply_code, reply_text, class_id, method_id)
        self.reply_code = reply_code
        self.reply_text = reply_text
        self.class_id = class_id
        self.method_id = method_id

    def __str__(self) -> str:
        about = f" (about method {self.class_id}.{self.method_id})" if self.class_id else ""
        return f"the broker said {self.reply_code} {self.reply_text}{about}"


class ChannelClosed(UnexpectedClose):
    """The broker closed the channel; the connection and its other channels go on.

    Open a new channel, unless the client has recovery: then this one opens again by itself.
    """


class ConnectionClosed(UnexpectedClose):
    """The broker closed the connection."""


class PublishNacked(RemoteError):
    """The broker could not take responsibility for a message (basic.nack in confirm mode)."""


class PublishReturned(RemoteError):
    """A message published with ``mandatory`` reached no queue (basic.return).

    ``message`` is what came back, ``reply_code`` and ``reply_text`` are the broker's reason.
    """

    def __init__(self, message: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.reply_code: int = getattr(message, "reply_code", 0)
        self.reply_text: str = getattr(message, "reply_text", "")

    def __str__(self) -> str:
        exchange, key = getattr(self.message, "exchange", ""), getattr(self.message, "routing_key", "")
        return (
            f"the broker returned a message to exchange {exchange!r} with routing key {key!r}: "
            f"{self.reply_code} {self.reply_text}"
        )


class AMQP_Consumer_Closed(AMQPError):
    """No more messages will come from this consumer: it was cancelled, or its channel or connection has ended."""


class AMQPTimeout(AMQPError, TimeoutError):
    """A time limit of this package is over: for connecting, a reply, a confirmation, or room to publish.

    The built-in ``TimeoutError`` is a base of it, ``coro.TimeoutError`` is not.
    """


class ConnectionBlocked(AMQPTimeout):
    """The time limit is over, and the broker takes no messages at present (connection.blocked); it says why."""
