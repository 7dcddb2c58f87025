"""The constants, methods and properties of AMQP: a class for each method, its arguments as slots.

Made from amqp-rabbitmq-0.9.1.json (AMQP 0-9-1), whose SHA-256 is
48dd1bb5374de5db3a0d789899a8cc2fbbe7f9a3d4efc69c8daf79dfb0591303.
Do not change it by hand: `python -m tools.codegen PATH/amqp-rabbitmq-0.9.1.json` makes it again.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from coro.amqp import _spec_codec as _codec
from coro.amqp._method import REQUIRED, Method

VERSION = (0, 9, 1)
PORT = 5672

FRAME_METHOD = 1
FRAME_HEADER = 2
FRAME_BODY = 3
FRAME_HEARTBEAT = 8
FRAME_MIN_SIZE = 4096
FRAME_END = 206
REPLY_SUCCESS = 200
CONTENT_TOO_LARGE = 311  # soft-error
NO_ROUTE = 312  # soft-error
NO_CONSUMERS = 313  # soft-error
ACCESS_REFUSED = 403  # soft-error
NOT_FOUND = 404  # soft-error
RESOURCE_LOCKED = 405  # soft-error
PRECONDITION_FAILED = 406  # soft-error
CONNECTION_FORCED = 320  # hard-error
INVALID_PATH = 402  # hard-error
FRAME_ERROR = 501  # hard-error
SYNTAX_ERROR = 502  # hard-error
COMMAND_INVALID = 503  # hard-error
CHANNEL_ERROR = 504  # hard-error
UNEXPECTED_FRAME = 505  # hard-error
RESOURCE_ERROR = 506  # hard-error
NOT_ALLOWED = 530  # hard-error
NOT_IMPLEMENTED = 540  # hard-error
INTERNAL_ERROR = 541  # hard-error


class connection:
    """Class 10, connection."""

    id: ClassVar[int] = 10

    class start(Method):
        """connection.start: synchronous."""

        __slots__ = ("version_major", "version_minor", "server_properties", "mechanisms", "locales")
        _name: ClassVar[str] = "connection.start"
        id: ClassVar[tuple[int, int]] = (10, 10)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            version_major: int = 0,
            version_minor: int = 9,
            server_properties: dict[str, Any] = REQUIRED,
            mechanisms: bytes = b"PLAIN",
            locales: bytes = b"en_US",
        ) -> None:
            self.version_major = version_major
            self.version_minor = version_minor
            self.server_properties = server_properties
            self.mechanisms = mechanisms
            self.locales = locales

        def pack(self) -> bytes:
            return _codec.pack_connection_start(
                self.version_major,
                self.version_minor,
                self.server_properties,
                self.mechanisms,
                self.locales,
            )

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_connection_start(data, pos))

    class start_ok(Method):
        """connection.start-ok: asynchronous."""

        __slots__ = ("client_properties", "mechanism", "response", "locale")
        _name: ClassVar[str] = "connection.start_ok"
        id: ClassVar[tuple[int, int]] = (10, 11)

        def __init__(
            self,
            client_properties: dict[str, Any] = REQUIRED,
            mechanism: str = "PLAIN",
            response: bytes = REQUIRED,
            locale: str = "en_US",
        ) -> None:
            self.client_properties = client_properties
            self.mechanism = mechanism
            self.response = response
            self.locale = locale

        def pack(self) -> bytes:
            return _codec.pack_connection_start_ok(self.client_properties, self.mechanism, self.response, self.locale)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_connection_start_ok(data, pos))

    class secure(Method):
        """connection.secure: synchronous."""

        __slots__ = ("challenge",)
        _name: ClassVar[str] = "connection.secure"
        id: ClassVar[tuple[int, int]] = (10, 20)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            challenge: bytes = REQUIRED,
        ) -> None:
            self.challenge = challenge

        def pack(self) -> bytes:
            return _codec.pack_connection_secure(self.challenge)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_connection_secure(data, pos))

    class secure_ok(Method):
        """connection.secure-ok: asynchronous."""

        __slots__ = ("response",)
        _name: ClassVar[str] = "connection.secure_ok"
        id: ClassVar[tuple[int, int]] = (10, 21)

        def __init__(
            self,
            response: bytes = REQUIRED,
        ) -> None:
            self.response = response

        def pack(self) -> bytes:
            return _codec.pack_connection_secure_ok(self.response)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_connection_secure_ok(data, pos))

    class tune(Method):
        """connection.tune: synchronous."""

        __slots__ = ("channel_max", "frame_max", "heartbeat")
        _name: ClassVar[str] = "connection.tune"
        id: ClassVar[tuple[int, int]] = (10, 30)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            channel_max: int = 0,
            frame_max: int = 0,
            heartbeat: int = 0,
        ) -> None:
            self.channel_max = channel_max
            self.frame_max = frame_max
            self.heartbeat = heartbeat

        def pack(self) -> bytes:
            return _codec.pack_connection_tune(self.channel_max, self.frame_max, self.heartbeat)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_connection_tune(data, pos))

    class tune_ok(Method):
        """connection.tune-ok: asynchronous."""

        __slots__ = ("channel_max", "frame_max", "heartbeat")
        _name: ClassVar[str] = "connection.tune_ok"
        id: ClassVar[tuple[int, int]] = (10, 31)

        def __init__(
            self,
            channel_max: int = 0,
            frame_max: int = 0,
            heartbeat: int = 0,
        ) -> None:
            self.channel_max = channel_max
            self.frame_max = frame_max
            self.heartbeat = heartbeat

        def pack(self) -> bytes:
            return _codec.pack_connection_tune_ok(self.channel_max, self.frame_max, self.heartbeat)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_connection_tune_ok(data, pos))

    class open(Method):
        """connection.open: synchronous."""

        __slots__ = ("virtual_host", "capabilities", "insist")
        _name: ClassVar[str] = "connection.open"
        id: ClassVar[tuple[int, int]] = (10, 40)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            virtual_host: str = "/",
            capabilities: str = "",
            insist: bool = False,
        ) -> None:
            self.virtual_host = virtual_host
            self.capabilities = capabilities
            self.insist = insist

        def pack(self) -> bytes:
            return _codec.pack_connection_open(self.virtual_host, self.capabilities, self.insist)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_connection_open(data, pos))

    class open_ok(Method):
        """connection.open-ok: asynchronous."""

        __slots__ = ("known_hosts",)
        _name: ClassVar[str] = "connection.open_ok"
        id: ClassVar[tuple[int, int]] = (10, 41)

        def __init__(
            self,
            known_hosts: str = "",
        ) -> None:
            self.known_hosts = known_hosts

        def pack(self) -> bytes:
            return _codec.pack_connection_open_ok(self.known_hosts)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_connection_open_ok(data, pos))

    class close(Method):
        """connection.close: synchronous."""

        __slots__ = ("reply_code", "reply_text", "class_id", "method_id")
        _name: ClassVar[str] = "connection.close"
        id: ClassVar[tuple[int, int]] = (10, 50)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            reply_code: int = REQUIRED,
            reply_text: str = "",
            class_id: int = REQUIRED,
            method_id: int = REQUIRED,
        ) -> None:
            self.reply_code = reply_code
            self.reply_text = reply_text
            self.class_id = class_id
            self.method_id = method_id

        def pack(self) -> bytes:
            return _codec.pack_connection_close(self.reply_code, self.reply_text, self.class_id, self.method_id)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_connection_close(data, pos))

    class close_ok(Method):
        """connection.close-ok: asynchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "connection.close_ok"
        id: ClassVar[tuple[int, int]] = (10, 51)

        def pack(self) -> bytes:
            return _codec.pack_connection_close_ok()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_connection_close_ok(data, pos))

    class blocked(Method):
        """connection.blocked: asynchronous."""

        __slots__ = ("reason",)
        _name: ClassVar[str] = "connection.blocked"
        id: ClassVar[tuple[int, int]] = (10, 60)

        def __init__(
            self,
            reason: str = "",
        ) -> None:
            self.reason = reason

        def pack(self) -> bytes:
            return _codec.pack_connection_blocked(self.reason)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_connection_blocked(data, pos))

    class unblocked(Method):
        """connection.unblocked: asynchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "connection.unblocked"
        id: ClassVar[tuple[int, int]] = (10, 61)

        def pack(self) -> bytes:
            return _codec.pack_connection_unblocked()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_connection_unblocked(data, pos))

    class update_secret(Method):
        """connection.update-secret: synchronous."""

        __slots__ = ("new_secret", "reason")
        _name: ClassVar[str] = "connection.update_secret"
        id: ClassVar[tuple[int, int]] = (10, 70)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            new_secret: bytes = REQUIRED,
            reason: str = REQUIRED,
        ) -> None:
            self.new_secret = new_secret
            self.reason = reason

        def pack(self) -> bytes:
            return _codec.pack_connection_update_secret(self.new_secret, self.reason)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_connection_update_secret(data, pos))

    class update_secret_ok(Method):
        """connection.update-secret-ok: asynchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "connection.update_secret_ok"
        id: ClassVar[tuple[int, int]] = (10, 71)

        def pack(self) -> bytes:
            return _codec.pack_connection_update_secret_ok()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_connection_update_secret_ok(data, pos))


class channel:
    """Class 20, channel."""

    id: ClassVar[int] = 20

    class open(Method):
        """channel.open: synchronous."""

        __slots__ = ("out_of_band",)
        _name: ClassVar[str] = "channel.open"
        id: ClassVar[tuple[int, int]] = (20, 10)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            out_of_band: str = "",
        ) -> None:
            self.out_of_band = out_of_band

        def pack(self) -> bytes:
            return _codec.pack_channel_open(self.out_of_band)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_channel_open(data, pos))

    class open_ok(Method):
        """channel.open-ok: asynchronous."""

        __slots__ = ("channel_id",)
        _name: ClassVar[str] = "channel.open_ok"
        id: ClassVar[tuple[int, int]] = (20, 11)

        def __init__(
            self,
            channel_id: bytes = b"",
        ) -> None:
            self.channel_id = channel_id

        def pack(self) -> bytes:
            return _codec.pack_channel_open_ok(self.channel_id)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_channel_open_ok(data, pos))

    class flow(Method):
        """channel.flow: synchronous."""

        __slots__ = ("active",)
        _name: ClassVar[str] = "channel.flow"
        id: ClassVar[tuple[int, int]] = (20, 20)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            active: bool = REQUIRED,
        ) -> None:
            self.active = active

        def pack(self) -> bytes:
            return _codec.pack_channel_flow(self.active)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_channel_flow(data, pos))

    class flow_ok(Method):
        """channel.flow-ok: asynchronous."""

        __slots__ = ("active",)
        _name: ClassVar[str] = "channel.flow_ok"
        id: ClassVar[tuple[int, int]] = (20, 21)

        def __init__(
            self,
            active: bool = REQUIRED,
        ) -> None:
            self.active = active

        def pack(self) -> bytes:
            return _codec.pack_channel_flow_ok(self.active)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_channel_flow_ok(data, pos))

    class close(Method):
        """channel.close: synchronous."""

        __slots__ = ("reply_code", "reply_text", "class_id", "method_id")
        _name: ClassVar[str] = "channel.close"
        id: ClassVar[tuple[int, int]] = (20, 40)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            reply_code: int = REQUIRED,
            reply_text: str = "",
            class_id: int = REQUIRED,
            method_id: int = REQUIRED,
        ) -> None:
            self.reply_code = reply_code
            self.reply_text = reply_text
            self.class_id = class_id
            self.method_id = method_id

        def pack(self) -> bytes:
            return _codec.pack_channel_close(self.reply_code, self.reply_text, self.class_id, self.method_id)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_channel_close(data, pos))

    class close_ok(Method):
        """channel.close-ok: asynchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "channel.close_ok"
        id: ClassVar[tuple[int, int]] = (20, 41)

        def pack(self) -> bytes:
            return _codec.pack_channel_close_ok()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_channel_close_ok(data, pos))


class access:
    """Class 30, access."""

    id: ClassVar[int] = 30

    class request(Method):
        """access.request: synchronous."""

        __slots__ = ("realm", "exclusive", "passive", "active", "write", "read")
        _name: ClassVar[str] = "access.request"
        id: ClassVar[tuple[int, int]] = (30, 10)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            realm: str = "/data",
            exclusive: bool = False,
            passive: bool = True,
            active: bool = True,
            write: bool = True,
            read: bool = True,
        ) -> None:
            self.realm = realm
            self.exclusive = exclusive
            self.passive = passive
            self.active = active
            self.write = write
            self.read = read

        def pack(self) -> bytes:
            return _codec.pack_access_request(
                self.realm,
                self.exclusive,
                self.passive,
                self.active,
                self.write,
                self.read,
            )

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_access_request(data, pos))

    class request_ok(Method):
        """access.request-ok: asynchronous."""

        __slots__ = ("ticket",)
        _name: ClassVar[str] = "access.request_ok"
        id: ClassVar[tuple[int, int]] = (30, 11)

        def __init__(
            self,
            ticket: int = 1,
        ) -> None:
            self.ticket = ticket

        def pack(self) -> bytes:
            return _codec.pack_access_request_ok(self.ticket)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_access_request_ok(data, pos))


class exchange:
    """Class 40, exchange."""

    id: ClassVar[int] = 40

    class declare(Method):
        """exchange.declare: synchronous."""

        __slots__ = (
            "ticket",
            "exchange",
            "type",
            "passive",
            "durable",
            "auto_delete",
            "internal",
            "nowait",
            "arguments",
        )
        _name: ClassVar[str] = "exchange.declare"
        id: ClassVar[tuple[int, int]] = (40, 10)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            ticket: int = 0,
            exchange: str = REQUIRED,
            type: str = "direct",
            passive: bool = False,
            durable: bool = False,
            auto_delete: bool = False,
            internal: bool = False,
            nowait: bool = False,
            arguments: dict[str, Any] | None = None,
        ) -> None:
            self.ticket = ticket
            self.exchange = exchange
            self.type = type
            self.passive = passive
            self.durable = durable
            self.auto_delete = auto_delete
            self.internal = internal
            self.nowait = nowait
            self.arguments = {} if arguments is None else arguments

        def pack(self) -> bytes:
            return _codec.pack_exchange_declare(
                self.ticket,
                self.exchange,
                self.type,
                self.passive,
                self.durable,
                self.auto_delete,
                self.internal,
                self.nowait,
                self.arguments,
            )

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_exchange_declare(data, pos))

    class declare_ok(Method):
        """exchange.declare-ok: asynchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "exchange.declare_ok"
        id: ClassVar[tuple[int, int]] = (40, 11)

        def pack(self) -> bytes:
            return _codec.pack_exchange_declare_ok()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_exchange_declare_ok(data, pos))

    class delete(Method):
        """exchange.delete: synchronous."""

        __slots__ = ("ticket", "exchange", "if_unused", "nowait")
        _name: ClassVar[str] = "exchange.delete"
        id: ClassVar[tuple[int, int]] = (40, 20)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            ticket: int = 0,
            exchange: str = REQUIRED,
            if_unused: bool = False,
            nowait: bool = False,
        ) -> None:
            self.ticket = ticket
            self.exchange = exchange
            self.if_unused = if_unused
            self.nowait = nowait

        def pack(self) -> bytes:
            return _codec.pack_exchange_delete(self.ticket, self.exchange, self.if_unused, self.nowait)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_exchange_delete(data, pos))

    class delete_ok(Method):
        """exchange.delete-ok: asynchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "exchange.delete_ok"
        id: ClassVar[tuple[int, int]] = (40, 21)

        def pack(self) -> bytes:
            return _codec.pack_exchange_delete_ok()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_exchange_delete_ok(data, pos))

    class bind(Method):
        """exchange.bind: synchronous."""

        __slots__ = ("ticket", "destination", "source", "routing_key", "nowait", "arguments")
        _name: ClassVar[str] = "exchange.bind"
        id: ClassVar[tuple[int, int]] = (40, 30)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            ticket: int = 0,
            destination: str = REQUIRED,
            source: str = REQUIRED,
            routing_key: str = "",
            nowait: bool = False,
            arguments: dict[str, Any] | None = None,
        ) -> None:
            self.ticket = ticket
            self.destination = destination
            self.source = source
            self.routing_key = routing_key
            self.nowait = nowait
            self.arguments = {} if arguments is None else arguments

        def pack(self) -> bytes:
            return _codec.pack_exchange_bind(
                self.ticket,
                self.destination,
                self.source,
                self.routing_key,
                self.nowait,
                self.arguments,
            )

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_exchange_bind(data, pos))

    class bind_ok(Method):
        """exchange.bind-ok: asynchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "exchange.bind_ok"
        id: ClassVar[tuple[int, int]] = (40, 31)

        def pack(self) -> bytes:
            return _codec.pack_exchange_bind_ok()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_exchange_bind_ok(data, pos))

    class unbind(Method):
        """exchange.unbind: synchronous."""

        __slots__ = ("ticket", "destination", "source", "routing_key", "nowait", "arguments")
        _name: ClassVar[str] = "exchange.unbind"
        id: ClassVar[tuple[int, int]] = (40, 40)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            ticket: int = 0,
            destination: str = REQUIRED,
            source: str = REQUIRED,
            routing_key: str = "",
            nowait: bool = False,
            arguments: dict[str, Any] | None = None,
        ) -> None:
            self.ticket = ticket
            self.destination = destination
            self.source = source
            self.routing_key = routing_key
            self.nowait = nowait
            self.arguments = {} if arguments is None else arguments

        def pack(self) -> bytes:
            return _codec.pack_exchange_unbind(
                self.ticket,
                self.destination,
                self.source,
                self.routing_key,
                self.nowait,
                self.arguments,
            )

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_exchange_unbind(data, pos))

    class unbind_ok(Method):
        """exchange.unbind-ok: asynchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "exchange.unbind_ok"
        id: ClassVar[tuple[int, int]] = (40, 51)

        def pack(self) -> bytes:
            return _codec.pack_exchange_unbind_ok()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_exchange_unbind_ok(data, pos))


class queue:
    """Class 50, queue."""

    id: ClassVar[int] = 50

    class declare(Method):
        """queue.declare: synchronous."""

        __slots__ = ("ticket", "queue", "passive", "durable", "exclusive", "auto_delete", "nowait", "arguments")
        _name: ClassVar[str] = "queue.declare"
        id: ClassVar[tuple[int, int]] = (50, 10)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            ticket: int = 0,
            queue: str = "",
            passive: bool = False,
            durable: bool = False,
            exclusive: bool = False,
            auto_delete: bool = False,
            nowait: bool = False,
            arguments: dict[str, Any] | None = None,
        ) -> None:
            self.ticket = ticket
            self.queue = queue
            self.passive = passive
            self.durable = durable
            self.exclusive = exclusive
            self.auto_delete = auto_delete
            self.nowait = nowait
            self.arguments = {} if arguments is None else arguments

        def pack(self) -> bytes:
            return _codec.pack_queue_declare(
                self.ticket,
                self.queue,
                self.passive,
                self.durable,
                self.exclusive,
                self.auto_delete,
                self.nowait,
                self.arguments,
            )

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_queue_declare(data, pos))

    class declare_ok(Method):
        """queue.declare-ok: asynchronous."""

        __slots__ = ("queue", "message_count", "consumer_count")
        _name: ClassVar[str] = "queue.declare_ok"
        id: ClassVar[tuple[int, int]] = (50, 11)

        def __init__(
            self,
            queue: str = REQUIRED,
            message_count: int = REQUIRED,
            consumer_count: int = REQUIRED,
        ) -> None:
            self.queue = queue
            self.message_count = message_count
            self.consumer_count = consumer_count

        def pack(self) -> bytes:
            return _codec.pack_queue_declare_ok(self.queue, self.message_count, self.consumer_count)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_queue_declare_ok(data, pos))

    class bind(Method):
        """queue.bind: synchronous."""

        __slots__ = ("ticket", "queue", "exchange", "routing_key", "nowait", "arguments")
        _name: ClassVar[str] = "queue.bind"
        id: ClassVar[tuple[int, int]] = (50, 20)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            ticket: int = 0,
            queue: str = "",
            exchange: str = REQUIRED,
            routing_key: str = "",
            nowait: bool = False,
            arguments: dict[str, Any] | None = None,
        ) -> None:
            self.ticket = ticket
            self.queue = queue
            self.exchange = exchange
            self.routing_key = routing_key
            self.nowait = nowait
            self.arguments = {} if arguments is None else arguments

        def pack(self) -> bytes:
            return _codec.pack_queue_bind(
                self.ticket,
                self.queue,
                self.exchange,
                self.routing_key,
                self.nowait,
                self.arguments,
            )

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_queue_bind(data, pos))

    class bind_ok(Method):
        """queue.bind-ok: asynchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "queue.bind_ok"
        id: ClassVar[tuple[int, int]] = (50, 21)

        def pack(self) -> bytes:
            return _codec.pack_queue_bind_ok()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_queue_bind_ok(data, pos))

    class purge(Method):
        """queue.purge: synchronous."""

        __slots__ = ("ticket", "queue", "nowait")
        _name: ClassVar[str] = "queue.purge"
        id: ClassVar[tuple[int, int]] = (50, 30)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            ticket: int = 0,
            queue: str = "",
            nowait: bool = False,
        ) -> None:
            self.ticket = ticket
            self.queue = queue
            self.nowait = nowait

        def pack(self) -> bytes:
            return _codec.pack_queue_purge(self.ticket, self.queue, self.nowait)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_queue_purge(data, pos))

    class purge_ok(Method):
        """queue.purge-ok: asynchronous."""

        __slots__ = ("message_count",)
        _name: ClassVar[str] = "queue.purge_ok"
        id: ClassVar[tuple[int, int]] = (50, 31)

        def __init__(
            self,
            message_count: int = REQUIRED,
        ) -> None:
            self.message_count = message_count

        def pack(self) -> bytes:
            return _codec.pack_queue_purge_ok(self.message_count)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_queue_purge_ok(data, pos))

    class delete(Method):
        """queue.delete: synchronous."""

        __slots__ = ("ticket", "queue", "if_unused", "if_empty", "nowait")
        _name: ClassVar[str] = "queue.delete"
        id: ClassVar[tuple[int, int]] = (50, 40)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            ticket: int = 0,
            queue: str = "",
            if_unused: bool = False,
            if_empty: bool = False,
            nowait: bool = False,
        ) -> None:
            self.ticket = ticket
            self.queue = queue
            self.if_unused = if_unused
            self.if_empty = if_empty
            self.nowait = nowait

        def pack(self) -> bytes:
            return _codec.pack_queue_delete(self.ticket, self.queue, self.if_unused, self.if_empty, self.nowait)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_queue_delete(data, pos))

    class delete_ok(Method):
        """queue.delete-ok: asynchronous."""

        __slots__ = ("message_count",)
        _name: ClassVar[str] = "queue.delete_ok"
        id: ClassVar[tuple[int, int]] = (50, 41)

        def __init__(
            self,
            message_count: int = REQUIRED,
        ) -> None:
            self.message_count = message_count

        def pack(self) -> bytes:
            return _codec.pack_queue_delete_ok(self.message_count)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_queue_delete_ok(data, pos))

    class unbind(Method):
        """queue.unbind: synchronous."""

        __slots__ = ("ticket", "queue", "exchange", "routing_key", "arguments")
        _name: ClassVar[str] = "queue.unbind"
        id: ClassVar[tuple[int, int]] = (50, 50)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            ticket: int = 0,
            queue: str = "",
            exchange: str = REQUIRED,
            routing_key: str = "",
            arguments: dict[str, Any] | None = None,
        ) -> None:
            self.ticket = ticket
            self.queue = queue
            self.exchange = exchange
            self.routing_key = routing_key
            self.arguments = {} if arguments is None else arguments

        def pack(self) -> bytes:
            return _codec.pack_queue_unbind(self.ticket, self.queue, self.exchange, self.routing_key, self.arguments)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_queue_unbind(data, pos))

    class unbind_ok(Method):
        """queue.unbind-ok: asynchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "queue.unbind_ok"
        id: ClassVar[tuple[int, int]] = (50, 51)

        def pack(self) -> bytes:
            return _codec.pack_queue_unbind_ok()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_queue_unbind_ok(data, pos))


class basic:
    """Class 60, basic."""

    id: ClassVar[int] = 60

    class qos(Method):
        """basic.qos: synchronous."""

        __slots__ = ("prefetch_size", "prefetch_count", "_global")
        _name: ClassVar[str] = "basic.qos"
        id: ClassVar[tuple[int, int]] = (60, 10)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            prefetch_size: int = 0,
            prefetch_count: int = 0,
            _global: bool = False,
        ) -> None:
            self.prefetch_size = prefetch_size
            self.prefetch_count = prefetch_count
            self._global = _global

        def pack(self) -> bytes:
            return _codec.pack_basic_qos(self.prefetch_size, self.prefetch_count, self._global)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_qos(data, pos))

    class qos_ok(Method):
        """basic.qos-ok: asynchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "basic.qos_ok"
        id: ClassVar[tuple[int, int]] = (60, 11)

        def pack(self) -> bytes:
            return _codec.pack_basic_qos_ok()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_qos_ok(data, pos))

    class consume(Method):
        """basic.consume: synchronous."""

        __slots__ = ("ticket", "queue", "consumer_tag", "no_local", "no_ack", "exclusive", "nowait", "arguments")
        _name: ClassVar[str] = "basic.consume"
        id: ClassVar[tuple[int, int]] = (60, 20)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            ticket: int = 0,
            queue: str = "",
            consumer_tag: str = "",
            no_local: bool = False,
            no_ack: bool = False,
            exclusive: bool = False,
            nowait: bool = False,
            arguments: dict[str, Any] | None = None,
        ) -> None:
            self.ticket = ticket
            self.queue = queue
            self.consumer_tag = consumer_tag
            self.no_local = no_local
            self.no_ack = no_ack
            self.exclusive = exclusive
            self.nowait = nowait
            self.arguments = {} if arguments is None else arguments

        def pack(self) -> bytes:
            return _codec.pack_basic_consume(
                self.ticket,
                self.queue,
                self.consumer_tag,
                self.no_local,
                self.no_ack,
                self.exclusive,
                self.nowait,
                self.arguments,
            )

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_consume(data, pos))

    class consume_ok(Method):
        """basic.consume-ok: asynchronous."""

        __slots__ = ("consumer_tag",)
        _name: ClassVar[str] = "basic.consume_ok"
        id: ClassVar[tuple[int, int]] = (60, 21)

        def __init__(
            self,
            consumer_tag: str = REQUIRED,
        ) -> None:
            self.consumer_tag = consumer_tag

        def pack(self) -> bytes:
            return _codec.pack_basic_consume_ok(self.consumer_tag)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_consume_ok(data, pos))

    class cancel(Method):
        """basic.cancel: synchronous."""

        __slots__ = ("consumer_tag", "nowait")
        _name: ClassVar[str] = "basic.cancel"
        id: ClassVar[tuple[int, int]] = (60, 30)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            consumer_tag: str = REQUIRED,
            nowait: bool = False,
        ) -> None:
            self.consumer_tag = consumer_tag
            self.nowait = nowait

        def pack(self) -> bytes:
            return _codec.pack_basic_cancel(self.consumer_tag, self.nowait)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_cancel(data, pos))

    class cancel_ok(Method):
        """basic.cancel-ok: asynchronous."""

        __slots__ = ("consumer_tag",)
        _name: ClassVar[str] = "basic.cancel_ok"
        id: ClassVar[tuple[int, int]] = (60, 31)

        def __init__(
            self,
            consumer_tag: str = REQUIRED,
        ) -> None:
            self.consumer_tag = consumer_tag

        def pack(self) -> bytes:
            return _codec.pack_basic_cancel_ok(self.consumer_tag)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_cancel_ok(data, pos))

    class publish(Method):
        """basic.publish: asynchronous, with content."""

        __slots__ = ("ticket", "exchange", "routing_key", "mandatory", "immediate")
        _name: ClassVar[str] = "basic.publish"
        id: ClassVar[tuple[int, int]] = (60, 40)
        content: ClassVar[bool] = True

        def __init__(
            self,
            ticket: int = 0,
            exchange: str = "",
            routing_key: str = "",
            mandatory: bool = False,
            immediate: bool = False,
        ) -> None:
            self.ticket = ticket
            self.exchange = exchange
            self.routing_key = routing_key
            self.mandatory = mandatory
            self.immediate = immediate

        def pack(self) -> bytes:
            return _codec.pack_basic_publish(
                self.ticket,
                self.exchange,
                self.routing_key,
                self.mandatory,
                self.immediate,
            )

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_publish(data, pos))

    class _return(Method):
        """basic.return: asynchronous, with content."""

        __slots__ = ("reply_code", "reply_text", "exchange", "routing_key")
        _name: ClassVar[str] = "basic.return"
        id: ClassVar[tuple[int, int]] = (60, 50)
        content: ClassVar[bool] = True

        def __init__(
            self,
            reply_code: int = REQUIRED,
            reply_text: str = "",
            exchange: str = REQUIRED,
            routing_key: str = REQUIRED,
        ) -> None:
            self.reply_code = reply_code
            self.reply_text = reply_text
            self.exchange = exchange
            self.routing_key = routing_key

        def pack(self) -> bytes:
            return _codec.pack_basic_return(self.reply_code, self.reply_text, self.exchange, self.routing_key)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_return(data, pos))

    class deliver(Method):
        """basic.deliver: asynchronous, with content."""

        __slots__ = ("consumer_tag", "delivery_tag", "redelivered", "exchange", "routing_key")
        _name: ClassVar[str] = "basic.deliver"
        id: ClassVar[tuple[int, int]] = (60, 60)
        content: ClassVar[bool] = True

        def __init__(
            self,
            consumer_tag: str = REQUIRED,
            delivery_tag: int = REQUIRED,
            redelivered: bool = False,
            exchange: str = REQUIRED,
            routing_key: str = REQUIRED,
        ) -> None:
            self.consumer_tag = consumer_tag
            self.delivery_tag = delivery_tag
            self.redelivered = redelivered
            self.exchange = exchange
            self.routing_key = routing_key

        def pack(self) -> bytes:
            return _codec.pack_basic_deliver(
                self.consumer_tag,
                self.delivery_tag,
                self.redelivered,
                self.exchange,
                self.routing_key,
            )

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_deliver(data, pos))

    class get(Method):
        """basic.get: synchronous."""

        __slots__ = ("ticket", "queue", "no_ack")
        _name: ClassVar[str] = "basic.get"
        id: ClassVar[tuple[int, int]] = (60, 70)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            ticket: int = 0,
            queue: str = "",
            no_ack: bool = False,
        ) -> None:
            self.ticket = ticket
            self.queue = queue
            self.no_ack = no_ack

        def pack(self) -> bytes:
            return _codec.pack_basic_get(self.ticket, self.queue, self.no_ack)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_get(data, pos))

    class get_ok(Method):
        """basic.get-ok: asynchronous, with content."""

        __slots__ = ("delivery_tag", "redelivered", "exchange", "routing_key", "message_count")
        _name: ClassVar[str] = "basic.get_ok"
        id: ClassVar[tuple[int, int]] = (60, 71)
        content: ClassVar[bool] = True

        def __init__(
            self,
            delivery_tag: int = REQUIRED,
            redelivered: bool = False,
            exchange: str = REQUIRED,
            routing_key: str = REQUIRED,
            message_count: int = REQUIRED,
        ) -> None:
            self.delivery_tag = delivery_tag
            self.redelivered = redelivered
            self.exchange = exchange
            self.routing_key = routing_key
            self.message_count = message_count

        def pack(self) -> bytes:
            return _codec.pack_basic_get_ok(
                self.delivery_tag,
                self.redelivered,
                self.exchange,
                self.routing_key,
                self.message_count,
            )

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_get_ok(data, pos))

    class get_empty(Method):
        """basic.get-empty: asynchronous."""

        __slots__ = ("cluster_id",)
        _name: ClassVar[str] = "basic.get_empty"
        id: ClassVar[tuple[int, int]] = (60, 72)

        def __init__(
            self,
            cluster_id: str = "",
        ) -> None:
            self.cluster_id = cluster_id

        def pack(self) -> bytes:
            return _codec.pack_basic_get_empty(self.cluster_id)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_get_empty(data, pos))

    class ack(Method):
        """basic.ack: asynchronous."""

        __slots__ = ("delivery_tag", "multiple")
        _name: ClassVar[str] = "basic.ack"
        id: ClassVar[tuple[int, int]] = (60, 80)

        def __init__(
            self,
            delivery_tag: int = 0,
            multiple: bool = False,
        ) -> None:
            self.delivery_tag = delivery_tag
            self.multiple = multiple

        def pack(self) -> bytes:
            return _codec.pack_basic_ack(self.delivery_tag, self.multiple)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_ack(data, pos))

    class reject(Method):
        """basic.reject: asynchronous."""

        __slots__ = ("delivery_tag", "requeue")
        _name: ClassVar[str] = "basic.reject"
        id: ClassVar[tuple[int, int]] = (60, 90)

        def __init__(
            self,
            delivery_tag: int = REQUIRED,
            requeue: bool = True,
        ) -> None:
            self.delivery_tag = delivery_tag
            self.requeue = requeue

        def pack(self) -> bytes:
            return _codec.pack_basic_reject(self.delivery_tag, self.requeue)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_reject(data, pos))

    class recover_async(Method):
        """basic.recover-async: asynchronous."""

        __slots__ = ("requeue",)
        _name: ClassVar[str] = "basic.recover_async"
        id: ClassVar[tuple[int, int]] = (60, 100)

        def __init__(
            self,
            requeue: bool = False,
        ) -> None:
            self.requeue = requeue

        def pack(self) -> bytes:
            return _codec.pack_basic_recover_async(self.requeue)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_recover_async(data, pos))

    class recover(Method):
        """basic.recover: synchronous."""

        __slots__ = ("requeue",)
        _name: ClassVar[str] = "basic.recover"
        id: ClassVar[tuple[int, int]] = (60, 110)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            requeue: bool = False,
        ) -> None:
            self.requeue = requeue

        def pack(self) -> bytes:
            return _codec.pack_basic_recover(self.requeue)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_recover(data, pos))

    class recover_ok(Method):
        """basic.recover-ok: asynchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "basic.recover_ok"
        id: ClassVar[tuple[int, int]] = (60, 111)

        def pack(self) -> bytes:
            return _codec.pack_basic_recover_ok()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_recover_ok(data, pos))

    class nack(Method):
        """basic.nack: asynchronous."""

        __slots__ = ("delivery_tag", "multiple", "requeue")
        _name: ClassVar[str] = "basic.nack"
        id: ClassVar[tuple[int, int]] = (60, 120)

        def __init__(
            self,
            delivery_tag: int = 0,
            multiple: bool = False,
            requeue: bool = True,
        ) -> None:
            self.delivery_tag = delivery_tag
            self.multiple = multiple
            self.requeue = requeue

        def pack(self) -> bytes:
            return _codec.pack_basic_nack(self.delivery_tag, self.multiple, self.requeue)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_basic_nack(data, pos))

    class properties:
        """The properties of a message of class basic, in the order of their bits."""

        n_properties: ClassVar[int] = 14
        #: Bit of the flags -> name and type.
        bit_map: ClassVar[dict[int, tuple[str, str]]] = {
            15: ("content-type", "shortstr"),
            14: ("content-encoding", "shortstr"),
            13: ("headers", "table"),
            12: ("delivery-mode", "octet"),
            11: ("priority", "octet"),
            10: ("correlation-id", "shortstr"),
            9: ("reply-to", "shortstr"),
            8: ("expiration", "shortstr"),
            7: ("message-id", "shortstr"),
            6: ("timestamp", "timestamp"),
            5: ("type", "shortstr"),
            4: ("user-id", "shortstr"),
            3: ("app-id", "shortstr"),
            2: ("cluster-id", "shortstr"),
        }
        #: Name -> bit of the flags and type.
        name_map: ClassVar[dict[str, tuple[int, str]]] = {
            "content-type": (15, "shortstr"),
            "content-encoding": (14, "shortstr"),
            "headers": (13, "table"),
            "delivery-mode": (12, "octet"),
            "priority": (11, "octet"),
            "correlation-id": (10, "shortstr"),
            "reply-to": (9, "shortstr"),
            "expiration": (8, "shortstr"),
            "message-id": (7, "shortstr"),
            "timestamp": (6, "timestamp"),
            "type": (5, "shortstr"),
            "user-id": (4, "shortstr"),
            "app-id": (3, "shortstr"),
            "cluster-id": (2, "shortstr"),
        }


class tx:
    """Class 90, tx."""

    id: ClassVar[int] = 90

    class select(Method):
        """tx.select: synchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "tx.select"
        id: ClassVar[tuple[int, int]] = (90, 10)
        synchronous: ClassVar[bool] = True

        def pack(self) -> bytes:
            return _codec.pack_tx_select()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_tx_select(data, pos))

    class select_ok(Method):
        """tx.select-ok: asynchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "tx.select_ok"
        id: ClassVar[tuple[int, int]] = (90, 11)

        def pack(self) -> bytes:
            return _codec.pack_tx_select_ok()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_tx_select_ok(data, pos))

    class commit(Method):
        """tx.commit: synchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "tx.commit"
        id: ClassVar[tuple[int, int]] = (90, 20)
        synchronous: ClassVar[bool] = True

        def pack(self) -> bytes:
            return _codec.pack_tx_commit()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_tx_commit(data, pos))

    class commit_ok(Method):
        """tx.commit-ok: asynchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "tx.commit_ok"
        id: ClassVar[tuple[int, int]] = (90, 21)

        def pack(self) -> bytes:
            return _codec.pack_tx_commit_ok()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_tx_commit_ok(data, pos))

    class rollback(Method):
        """tx.rollback: synchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "tx.rollback"
        id: ClassVar[tuple[int, int]] = (90, 30)
        synchronous: ClassVar[bool] = True

        def pack(self) -> bytes:
            return _codec.pack_tx_rollback()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_tx_rollback(data, pos))

    class rollback_ok(Method):
        """tx.rollback-ok: asynchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "tx.rollback_ok"
        id: ClassVar[tuple[int, int]] = (90, 31)

        def pack(self) -> bytes:
            return _codec.pack_tx_rollback_ok()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_tx_rollback_ok(data, pos))


class confirm:
    """Class 85, confirm."""

    id: ClassVar[int] = 85

    class select(Method):
        """confirm.select: synchronous."""

        __slots__ = ("nowait",)
        _name: ClassVar[str] = "confirm.select"
        id: ClassVar[tuple[int, int]] = (85, 10)
        synchronous: ClassVar[bool] = True

        def __init__(
            self,
            nowait: bool = False,
        ) -> None:
            self.nowait = nowait

        def pack(self) -> bytes:
            return _codec.pack_confirm_select(self.nowait)

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_confirm_select(data, pos))

    class select_ok(Method):
        """confirm.select-ok: asynchronous."""

        __slots__ = ()
        _name: ClassVar[str] = "confirm.select_ok"
        id: ClassVar[tuple[int, int]] = (85, 11)

        def pack(self) -> bytes:
            return _codec.pack_confirm_select_ok()

        @classmethod
        def unpack(cls, data: bytes, pos: int = 0) -> Self:
            return cls(*_codec.unpack_confirm_select_ok(data, pos))


#: (class id, method id) -> the class of the method.
method_map: dict[tuple[int, int], type[Method]] = {
    (10, 10): connection.start,
    (10, 11): connection.start_ok,
    (10, 20): connection.secure,
    (10, 21): connection.secure_ok,
    (10, 30): connection.tune,
    (10, 31): connection.tune_ok,
    (10, 40): connection.open,
    (10, 41): connection.open_ok,
    (10, 50): connection.close,
    (10, 51): connection.close_ok,
    (10, 60): connection.blocked,
    (10, 61): connection.unblocked,
    (10, 70): connection.update_secret,
    (10, 71): connection.update_secret_ok,
    (20, 10): channel.open,
    (20, 11): channel.open_ok,
    (20, 20): channel.flow,
    (20, 21): channel.flow_ok,
    (20, 40): channel.close,
    (20, 41): channel.close_ok,
    (30, 10): access.request,
    (30, 11): access.request_ok,
    (40, 10): exchange.declare,
    (40, 11): exchange.declare_ok,
    (40, 20): exchange.delete,
    (40, 21): exchange.delete_ok,
    (40, 30): exchange.bind,
    (40, 31): exchange.bind_ok,
    (40, 40): exchange.unbind,
    (40, 51): exchange.unbind_ok,
    (50, 10): queue.declare,
    (50, 11): queue.declare_ok,
    (50, 20): queue.bind,
    (50, 21): queue.bind_ok,
    (50, 30): queue.purge,
    (50, 31): queue.purge_ok,
    (50, 40): queue.delete,
    (50, 41): queue.delete_ok,
    (50, 50): queue.unbind,
    (50, 51): queue.unbind_ok,
    (60, 10): basic.qos,
    (60, 11): basic.qos_ok,
    (60, 20): basic.consume,
    (60, 21): basic.consume_ok,
    (60, 30): basic.cancel,
    (60, 31): basic.cancel_ok,
    (60, 40): basic.publish,
    (60, 50): basic._return,
    (60, 60): basic.deliver,
    (60, 70): basic.get,
    (60, 71): basic.get_ok,
    (60, 72): basic.get_empty,
    (60, 80): basic.ack,
    (60, 90): basic.reject,
    (60, 100): basic.recover_async,
    (60, 110): basic.recover,
    (60, 111): basic.recover_ok,
    (60, 120): basic.nack,
    (90, 10): tx.select,
    (90, 11): tx.select_ok,
    (90, 20): tx.commit,
    (90, 21): tx.commit_ok,
    (90, 30): tx.rollback,
    (90, 31): tx.rollback_ok,
    (85, 10): confirm.select,
    (85, 11): confirm.select_ok,
}
