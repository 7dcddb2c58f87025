"""The client: one connection to a broker, or, with recovery, one after the other, and the channels on it.

`_link.py` is a connection, `_channel.py` a channel; this room opens and closes them, chooses among hosts, and after a
loss makes everything as it was: connect with growing pauses, open the channels under their numbers, declare exchanges,
queues and bindings again, then subscribe. Calls that are made meanwhile wait or fail, as `Recovery.calls` says, and
never for longer than ``timeout``.

Locks: none. Opening and recovery run in one thread each; what the reader calls never waits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import platform
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import coro
from coro import resolver
from coro._clock import ticks
from coro.amqp import _urls, spec
from coro.amqp._channel import channel as Channel
from coro.amqp._classic import ClassicFrames
from coro.amqp._link import Link, again, call_back
from coro.amqp._protocol import CHANNEL_MAX, FRAME_MAX, MAX_BODY, Protocol
from coro.amqp._sasl import KNOWN
from coro.amqp._topology import Topology
from coro.amqp.exceptions import (
    AMQPError,
    AMQPTimeout,
    AuthenticationError,
    ChannelClosed,
    ConnectionBlocked,
    ConnectionClosed,
    ConnectionLost,
    ProtocolError,
    RemoteError,
    StateError,
)
from coro.exceptions import LoopError
from coro.log import Facility

__all__ = ["Recovery", "Statistics", "client", "connect"]

LOG = Facility("amqp")
VERSION = "0.1.0"


@dataclasses.dataclass(frozen=True)
class Recovery:
    """How a client gets over the loss of its connection.

    attempts: how often to try all hosts before giving up, None for ever. first, most: seconds of the pause after the
    first round and at most; it doubles from one to the other, and up to a quarter of it by chance is added. A host that
    ends the connection with an error again, sooner than ``most`` seconds after each recovery, counts as one that cannot
    be reached: the pauses go on growing, ``attempts`` are counted on, and the next host is tried first. topology:
    declare again what was declared through this client. calls: what calls do meanwhile, "wait" (for as long as the
    client's ``timeout``) or "fail" at once with ConnectionLost.

    A channel that the broker closes is opened again at once; if it is closed again within ``most`` seconds, after the
    same pauses, and not any more after ``attempts`` of these. A close that answers a call of the program does not
    count. With calls="fail", calls raise ChannelClosed meanwhile.
    """

    attempts: int | None = None
    first: float = 0.5
    most: float = 30.0
    topology: bool = True
    calls: str = "wait"

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 1:
            raise ValueError(f"expected at least one attempt, or None, got {self.attempts}")
        if not 0 <= self.first <= self.most:
            raise ValueError(f"expected pauses of 0 <= first <= most seconds, got {self.first} and {self.most}")
        if self.calls not in ("wait", "fail"):
            raise ValueError(f"expected calls to be 'wait' or 'fail', got {self.calls!r}")


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Numbers of a client since it was made; ``channels``, ``consumers``, ``waiting_messages``, ``unconfirmed`` and
    ``pending_bytes`` are of this moment."""

    connections: int
    channels: int
    consumers: int
    waiting_messages: int
    unconfirmed: int
    confirmed: int
    nacked: int
    returned: int
    messages_in: int
    messages_out: int
    frames_in: int
    frames_out: int
    bytes_in: int
    bytes_out: int
    heartbeats_in: int
    heartbeats_out: int
    pending_bytes: int
    blocked: bool


class client(ClassicFrames):
    """A client of an AMQP 0-9-1 broker. Nothing happens until ``go()``, or the beginning of a ``with`` block. ::

        with coro.amqp.client(("guest", "guest"), "localhost") as broker:
            channel = broker.channel()

    auth: user and password. host, port: where the broker listens; a host that begins with "/" is the path of a UNIX
    socket. virtual_host: which of its virtual hosts to use. heartbeat: seconds; a sign of life is expected and given at
    least that often, 0 is never, None takes what the broker proposes. tls_ctx: a context object with
    ``wrap(sock, server_hostname=...)``, or an ``ssl.SSLContext``; without it nothing is encrypted, the password
    neither.

    hosts: several brokers of a cluster, as "host", "host:port" or pairs, in the place of ``host``; they are tried in
    this order. frame_max, channel_max: limits to propose. connect_timeout: seconds for each attempt to connect and log
    in. timeout: seconds that calls wait for an answer of the broker, a confirmation, room to publish, or another
    connection. close_timeout: the same for closing. recovery: None (a lost connection ends everything), True, or a
    ``Recovery``. mechanism: "PLAIN", "AMQPLAIN" or "EXTERNAL"; None takes PLAIN, or else AMQPLAIN. credentials: a
    function that returns user and password, called for each connection, for tokens that expire. name: shown by the
    broker's tools. server_hostname: for TLS, if it is not the host. max_body: bytes of the longest message to accept.
    properties: more client properties to tell the broker. on_blocked: called with the broker's reason when it takes no
    more messages, on_unblocked when it does again; both in the thread that reads, so they must not wait.

    ``server_properties`` and ``tune`` are what the broker said, ``channels`` maps numbers to channels, ``blocked`` is
    the broker's reason while it takes no messages, ``closed_cv`` wakes when the client has ended, ``error`` is why.
    """

    version = (0, 0, 9, 1)
    #: Log every method and message that comes.
    debug = False
    #: Told to the broker.
    properties: Mapping[str, Any] = {
        "product": "coro-amqp",
        "version": VERSION,
        "platform": f"Python {platform.python_version()}",
        "information": "https://github.com/coro-project/coro",
        "capabilities": {
            "publisher_confirms": True,
            "exchange_exchange_bindings": True,
            "basic.nack": True,
            "consumer_cancel_notify": True,
            "connection.blocked": True,
            "authentication_failure_close": True,
            "consumer_priorities": True,
        },
    }

    def __init__(
        self,
        auth: tuple[str, str] = ("guest", "guest"),
        host: str = "127.0.0.1",
        port: int = _urls.PORT,
        virtual_host: str = "/",
        heartbeat: int | None = None,
        tls_ctx: Any = None,
        *,
        hosts: Iterable[str | tuple[str, int]] | None = None,
        frame_max: int = FRAME_MAX,
        channel_max: int = CHANNEL_MAX,
        connect_timeout: float = 10.0,
        timeout: float = 30.0,
        close_timeout: float = 5.0,
        recovery: Recovery | bool | None = None,
        mechanism: str | None = None,
        credentials: Callable[[], tuple[str, str]] | None = None,
        name: str | None = None,
        server_hostname: str | None = None,
        max_body: int = MAX_BODY,
        properties: Mapping[str, Any] | None = None,
        on_blocked: Callable[[str], object] | None = None,
        on_unblocked: Callable[[], object] | None = None,
    ) -> None:
        if mechanism is not None and mechanism not in KNOWN:
            raise ValueError(f"expected a mechanism among {', '.join(KNOWN)}, got {mechanism!r}")
        if min(connect_timeout, timeout, close_timeout) <= 0:
            raise ValueError("expected connect_timeout, timeout and close_timeout to be more than 0 seconds")
        self._addresses = [_urls.address(each, port) for each in ([host] if hosts is None else hosts)]
        if not self._addresses:
            raise ValueError("expected at least one host")
        self._protocol_limits = {"frame_max": frame_max, "channel_max": channel_max, "max_body": max_body}
        self._new_protocol()  # refuses impossible limits
        self._auth = auth
        self.host, self.port = self._addresses[0].host, self._addresses[0].port
        self.virtual_host = virtual_host
        self.heartbeat = heartbeat
        self.tls_ctx = tls_ctx
        self.connect_timeout = connect_timeout
        self.timeout = timeout
        self.close_timeout = close_timeout
        self.recovery = Recovery() if recovery is True else recovery or None
        self.mechanism = mechanism
        self.name = name or f"coro-amqp {id(self):#x}"
        self.server_hostname = server_hostname
        self.channels: dict[int, Channel] = {}
        self.error: AMQPError | None = None
        self.closed_cv = coro.condition_variable()
        self._credentials = credentials
        self._properties = {**self.properties, "connection_name": self.name, **(properties or {})}
        self._listeners: list[Callable[..., object]] = []
        self._on_blocked, self._on_unblocked = on_blocked, on_unblocked
        self._topology = Topology()
        self._link: Link | None = None
        self._state = "new"  # then "opening", "open", "closing", "closed"
        self._recovering = False
        self._up = coro.event()
        self._ended = coro.event()
        self._connections = 0
        self._secret_replies: deque[tuple[coro.event, list[Any]]] = deque()
        super().__init__()
        self._recoverer: coro.coro[None] | None = None
        self._first_host = 0  # where to begin to look for a host
        self._recovered_at: int | None = None  # ticks
        self._fruitless = 0  # recoveries in a row that the broker has ended with an error at once
        self._past: dict[str, int] = dict.fromkeys(_COUNTED, 0)
        self._past_confirms = {"confirmed": 0, "nacked": 0, "returned": 0}
        self._past_heartbeats = 0

    @classmethod
    def from_url(cls, url: str | Iterable[str], **parameters: Any) -> Self:
        """A client for ``amqp://user:password@host:port/vhost`` or ``amqps://``, or for several of these, which may
        differ in host and port only: an iterable, or one text with ``;`` between them.

        Other parameters are those of the class and win over the URL. All behind the slash after the host is the virtual
        host, so that of ``amqp://host//`` is "/", as that of ``amqp://host``. A URL may have the options ``heartbeat``,
        ``connection_timeout`` (milliseconds), ``frame_max``, ``channel_max``, ``auth_mechanism`` and ``name``.

        ``amqps://`` verifies the broker against the system's certificates, or those in ``cacertfile``, unless there is
        ``verify=verify_none``. ``certfile`` and ``keyfile`` (with ``password``) are the client's certificate,
        ``server_name_indication`` is the name of the broker. A ``tls_ctx`` takes the place of these.

        ValueError for an invalid URL, and for files that cannot be used.
        """
        urls = _urls.split(url) if isinstance(url, str) else list(url)
        parts = [_urls.parse(each) for each in urls]
        if not parts:
            raise ValueError("expected at least one URL")
        first = parts[0]
        for other in parts[1:]:
            if dataclasses.replace(other, address=first.address) != first:
                raise ValueError("expected URLs that differ in host and port only")
        said = {
            "hosts": [(each.address.host, each.address.port) for each in parts],
            "auth": first.auth,
            "virtual_host": first.virtual_host,
            "heartbeat": first.heartbeat,
            "connect_timeout": first.connect_timeout,
            "frame_max": first.frame_max,
            "channel_max": first.channel_max,
            "mechanism": first.mechanism,
            "name": first.name,
            "tls_ctx": first.tls.context() if first.tls and parameters.get("tls_ctx") is None else None,
            "server_hostname": first.tls.server_name if first.tls else None,
        }
        return cls(**{**{name: value for name, value in said.items() if value is not None}, **parameters})

    # ---- opening

    def _new_protocol(self) -> Protocol:
        return Protocol("client", **self._protocol_limits)

    def go(self) -> None:
        """Connect and log in.

        Raises OSError when no host can be reached, AMQPTimeout when one is reached that does not answer,
        AuthenticationError, ConnectionClosed (there may be no such virtual host), ProtocolError (no AMQP broker), or
        what ``credentials`` raises; with several hosts, what the last one gave. StateError where no loop runs.
        """
        if self._state != "new":
            raise StateError(f"expected a client that was not started, this one is {self._state}")
        if not coro.coro_is_running():
            raise StateError("expected a loop to run: connect in a function that is started with coro.run(function)")
        self._state = "opening"
        try:
            self._take(self._connect())
        except BaseException:
            self._state = "new"
            raise
        self._state = "open"
        self._up.set()

    def _connect(self) -> Link:
        """A connection to the first host that gives one.

        ``coro.connect`` takes the first address of a name that lets itself be connected to. What is behind that one may
        still not be well, as a node of a cluster that is starting; then the other addresses of the name are tried.
        """
        error: Exception | None = None
        most = len(self._addresses)
        for number in range(most):
            host = (self._first_host + number) % most
            address = self._addresses[host]
            places = [address]
            while places:
                place = places.pop(0)
                if error is not None:
                    LOG("no connection", str(error), "trying", str(place))
                link = Link(self._new_protocol(), self._connection_method, self._link_ended)
                link.host = host
                link.debug = self.debug
                try:
                    self._open(link, place, address.host)
                except (OSError, RemoteError, AMQPTimeout, coro.NameError, EOFError) as exc:
                    error = exc
                    if isinstance(exc, EOFError):
                        error = ConnectionLost(f"the connection to {place} broke: {exc}")
                        error.__cause__ = exc
                    if place is address and link.peer:
                        places = _others(address, link.peer)
                else:
                    self._connections += 1
                    return link
        assert error is not None  # there is at least one address
        raise error

    def _open(self, link: Link, address: _urls.Address, name: str) -> None:
        credentials = self._auth if self._credentials is None else self._credentials()
        if self.tls_ctx is None and self.mechanism != "EXTERNAL" and not _is_local(address.host):
            LOG("password goes unencrypted", str(address), "use tls_ctx or amqps://")
        link.open(
            address,
            tls_ctx=self.tls_ctx,
            server_hostname=self.server_hostname or name,
            credentials=credentials,
            mechanism=self.mechanism,
            virtual_host=self.virtual_host,
            heartbeat=self.heartbeat,
            properties=self._properties,
            timeout=self.connect_timeout,
        )

    def _take(self, link: Link) -> None:
        self._link = link

    # ---- in the reader

    def _connection_method(self, link: Link, method: Any) -> None:
        expected = self._frame_came(method)
        if isinstance(method, spec.connection.close):
            error = ConnectionClosed(method.reply_code, method.reply_text, method.class_id, method.method_id)
            # close-ok is in the buffer, and the writer may not get to it any more
            with coro.move_on_after(1):
                link._send(link.protocol.take_output())
            link.end(error)
        elif isinstance(method, spec.connection.close_ok):
            link.end(StateError("the connection was closed"))
        elif isinstance(method, spec.connection.blocked):
            link.set_blocked(method.reason or "it gives no reason")
            self._notify("blocked", reason=link.blocked)
            if self._on_blocked is not None:
                call_back(self._on_blocked, link.blocked)
        elif isinstance(method, spec.connection.unblocked):
            link.set_blocked(None)
            self._notify("unblocked")
            if self._on_unblocked is not None:
                call_back(self._on_unblocked)
        elif isinstance(method, spec.connection.update_secret_ok) and self._secret_replies:
            event, answer = self._secret_replies.popleft()
            answer.append(method)
            event.set()
        elif not expected:
            raise ProtocolError(f"expected an answer to what was asked, got {method!r}", 503)

    def _link_ended(self, link: Link) -> None:
        """A connection is over; called once for each, by whoever came upon it. Never waits."""
        self._count_past(link)
        error = link.error
        assert error is not None
        if link is not self._link:
            return  # one that recovery was busy with: it finds out by itself
        self._up.clear()
        while self._secret_replies:
            self._secret_replies.popleft()[0].set()
        self._no_more_frames()
        if self._state == "open" and self.recovery is not None and not _is_final(error):
            self._judge(link, error)
            self._recovering = True
            # also the one that recovery itself may be declaring things on
            for each in {*self.channels.values(), *link.channels.values()}:
                each._lost(error)
            if self._recoverer is None:
                try:
                    self._recoverer = coro.spawn(self._recover, thread_name=f"amqp recovery {self.name}", daemon=True)
                except LoopError:
                    # The loop is ending: a new connection would have no user, and this one was not lost.
                    self._finish(error)
                    return
            self._notify("lost", error=error)
            LOG("connection lost", self.name, str(error))
        else:
            self._finish(None if self._state == "closing" else error)

    def _judge(self, link: Link, error: AMQPError) -> None:
        """Has the last recovery helped? What the broker objects to, it may object to again as soon as it is repeated;
        an operator's wish (320) and a network that breaks are over with the connection."""
        rule = self.recovery
        assert rule is not None
        objects = isinstance(error, ConnectionClosed) and error.reply_code != spec.CONNECTION_FORCED
        early = self._recovering
        if self._recovered_at is not None:
            early = early or ticks.to_duration(ticks.get_now() - self._recovered_at) < rule.most
        if objects and early:
            self._first_host = (link.host + 1) % len(self._addresses)
        if not self._recovering:
            self._fruitless = self._fruitless + 1 if objects and early else 0

    def _finish(self, error: AMQPError | None) -> None:
        """The client has ended."""
        if self._state == "closed":
            return
        self._state = "closed"
        self._recovering = False
        self.error = error
        # also the one that recovery may be declaring things on
        for each in [*self.channels.values(), *(self._link.channels.values() if self._link is not None else ())]:
            each._end(error)
        self._stop_recovery()
        self._up.set()
        self._ended.set()
        self.closed_cv.wake_all()
        self._notify("closed", error=error)

    def _keeps(self, which: Channel) -> bool:
        """Is a channel that the broker closes opened again?"""
        return self.recovery is not None and self._state == "open" and self.channels.get(which.num) is which

    def _forget(self, which: Channel) -> None:
        """A channel has ended."""
        if self.channels.get(which.num) is which:
            del self.channels[which.num]
        if self._link is not None and self._link.channels.get(which.num) is which:
            del self._link.channels[which.num]
        if which._confirms is not None:
            for name in self._past_confirms:
                self._past_confirms[name] += getattr(which._confirms, name)

    def _notify(self, event: str, **facts: Any) -> None:
        for listener in list(self._listeners):
            call_back(listener, event, **facts)

    # ---- recovery

    def _recover(self) -> None:
        try:
            self._recover_until_it_works()
        except BaseException as exc:
            if self._state == "open":
                self._finish(ConnectionLost(f"recovery was ended by {type(exc).__name__}"))
            if not isinstance(exc, Exception):
                raise
            LOG.exc()
        finally:
            self._recoverer = None

    def _stop_recovery(self) -> None:
        """Nobody wants another connection any more, so do not wait for one."""
        thread = self._recoverer
        if thread is not None and thread is not coro.current():
            thread.shutdown()

    def _recover_until_it_works(self) -> None:
        rule = self.recovery
        assert rule is not None
        pause, attempt = rule.first, 0
        while attempt < self._fruitless and self._link is not None and self._link.error is not None:
            attempt += 1
            if self._gives_up(rule, attempt, self._link.error):
                return
            if attempt == self._fruitless:
                self._rest(pause)
            pause = _longer(pause, rule)
        while self._state == "open":
            attempt += 1
            link: Link | None = None
            try:
                link = self._connect()
                if self._state != "open":
                    link.end(StateError("the connection was closed"))
                    return
                self._link = link
                self._restore(link, rule)
                if self._state != "open":
                    return  # and whoever closes it ends the connection
                if link.alive:
                    self._recovering = False
                    self._recovered_at = ticks.get_now()
                    self._up.set()
                    for each in list(self.channels.values()):
                        if each._link is link:
                            each._release()
                        elif each._held:
                            each._begin_revival(link, False)  # closed again while others were restored
                    self._notify("recovered", attempt=attempt)
                    LOG("connection recovered", self.name, attempt)
                    return
                error: BaseException = link.error or ConnectionLost("lost again")
            except AuthenticationError as exc:
                if self._credentials is None and exc.reply_code:
                    self._finish(exc)
                    return
                error = exc
            except (OSError, AMQPError, coro.NameError) as exc:
                error = exc
            if link is not None:
                self._link = None
                link.end(ConnectionLost(f"recovery failed: {error}"), error)
                for each in list(self.channels.values()):
                    if each._link is link:
                        each._lost(ConnectionLost(f"recovery failed: {error}"))
            LOG("recovery failed", self.name, attempt, str(error))
            self._notify("recovery-failed", attempt=attempt, error=error)
            if self._gives_up(rule, attempt, error):
                return
            self._rest(pause)
            pause = _longer(pause, rule)

    def _gives_up(self, rule: Recovery, attempt: int, error: BaseException) -> bool:
        """Was that the last attempt? Then the client ends."""
        if rule.attempts is None or attempt < rule.attempts:
            return False
        last = ConnectionLost(f"the connection could not be recovered in {attempt} attempts: {error}")
        last.__cause__ = error
        self._finish(last)
        return True

    def _rest(self, pause: float) -> None:
        """A pause between two attempts; the end of the client ends it."""
        with coro.move_on_after(pause + random.random() * pause / 4):
            self._ended.wait()

    def _restore(self, link: Link, rule: Recovery) -> None:
        """Channels, then what they need to be there, then what they had under way."""
        channels = [each for _, each in sorted(self.channels.items())]
        for each in channels:
            each._reopen(link)
        if rule.topology:
            self._restore_topology(link)
        for each in channels:
            try:
                each._restore(link)
            except ChannelClosed as exc:
                LOG("channel not recovered yet", each.num, str(exc))  # it goes on by itself
            except StateError:
                if not each._closing:
                    raise

    def _restore_topology(self, link: Link) -> None:
        """Each thing on a channel of its own making: what the broker refuses ends the channel, not the recovery."""
        topology = self._topology
        helper: Channel | None = None
        try:
            for method, answer in [
                *((each, spec.exchange.declare_ok) for each in topology.exchanges.values()),
                *((each, spec.queue.declare_ok) for each, _ in topology.queues.values()),
            ]:
                helper = self._repeat(link, helper, method, answer)
            # after the queues, whose names may have changed
            for binding in list(topology.bindings.values()):
                is_queue = isinstance(binding, spec.queue.bind)
                helper = self._repeat(link, helper, binding, spec.queue.bind_ok if is_queue else spec.exchange.bind_ok)
        finally:
            if helper is not None and not helper.closed:
                helper.close()

    def _repeat(self, link: Link, helper: Channel | None, method: Any, expected: type) -> Channel:
        if helper is None or helper.closed:
            helper = self._make_channel(None)
            helper._reopen(link)
        named = isinstance(method, spec.queue.declare) and not method.queue
        old = ""
        if named:
            old = next(name for name, (each, _) in self._topology.queues.items() if each is method)
        repeated = type(method)(**{**method.fields(), **({"nowait": False} if method.nowait else {})})
        try:
            answer = helper._ask(repeated, (expected,), link=link)
        except ChannelClosed as exc:
            LOG("not declared again", repr(method), str(exc))
            self._notify("topology-failed", method=method, error=exc)
        else:
            if named:
                self._topology.rename(old, answer.queue)
                if answer.queue != old:
                    self._notify("queue-renamed", old=old, new=answer.queue)
        return helper

    def _wait_up(self) -> None:
        """Wait until there is a connection; raise if there is none to wait for."""
        if self._state == "new":
            raise StateError("expected a client that has been started: call go() first")
        if self._state == "closed":
            self._raise_closed()
        if not self._recovering:
            return
        if self.recovery is not None and self.recovery.calls == "fail":
            raise ConnectionLost("the connection is lost and being recovered")
        with coro.move_on_after(self.timeout):
            while self._recovering and self._state == "open":
                self._up.wait()
        if self._state == "closed":
            self._raise_closed()
        if self._recovering:
            raise AMQPTimeout(f"expected the lost connection to be recovered within {self.timeout:g} s, it is not yet")

    def _raise_closed(self) -> None:
        if self.error is not None:
            raise again(self.error)
        raise StateError("expected a client that is connected, this one was closed")

    # ---- for users

    @property
    def server_properties(self) -> dict[str, Any]:
        """What the broker says of itself."""
        return self._link.server_properties if self._link is not None else {}

    @property
    def server_capabilities(self) -> dict[str, Any]:
        """What the broker can do beyond AMQP 0-9-1."""
        found = self.server_properties.get("capabilities", {})
        return found if isinstance(found, dict) else {}

    @property
    def tune(self) -> spec.connection.tune | None:
        """The limits that the broker proposed."""
        return self._link.tune if self._link is not None else None

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no messages at present; None if it does."""
        return self._link.blocked if self._link is not None else None

    @property
    def connected(self) -> bool:
        """There is a connection, and what it needs is restored."""
        return self._state == "open" and not self._recovering and self._link is not None and self._link.alive

    def _make_channel(self, number: int | None) -> Channel:
        link = self._link
        assert link is not None
        most = link.protocol.channel_max
        if number is None:
            free = (n for n in range(1, most + 1) if n not in self.channels and n not in link.channels)
            # one whose closing was interrupted is only free when the broker has answered
            number = next((n for n in free if link.protocol.channel_state(n) == "closed"), None)
            if number is None:
                raise StateError(f"expected at most {most} channels on a connection, all are in use; close some")
        elif not 1 <= number <= most:
            raise StateError(f"expected a channel number from 1 to {most}, got {number}")
        elif number in self.channels or link.protocol.channel_state(number) != "closed":
            raise StateError(f"expected a channel number that is free, {number} is in use")
        return Channel(self, number)

    def channel(self, out_of_band: str = "", number: int | None = None) -> Channel:
        """Open a channel. number: which, None for the lowest that is free. Raises StateError when all are in use, and
        as every call to the broker."""
        self._wait_up()
        link = self._link
        assert link is not None
        found = self._make_channel(number)
        self.channels[found.num] = found
        found._attach(link)
        try:
            found._open(link, out_of_band)
        except BaseException as exc:
            if self.channels.get(found.num) is found:
                if isinstance(exc, AMQPError):
                    found._end(exc)
                else:
                    self._give_up(found, link)
            raise
        return found

    def _give_up(self, found: Channel, link: Link) -> None:
        """Opening was interrupted: the broker opens the channel, and it is closed as soon as it answers."""
        number = found.num
        if link.protocol.channel_state(number) == "open":
            coro.spawn(found.close, thread_name=f"close channel {number}", daemon=True)
            return
        for reply in found._replies:
            reply.undo = lambda _: coro.spawn(found.close, thread_name=f"close channel {number}", daemon=True)

    def update_secret(self, secret: str | bytes, reason: str = "") -> None:
        """Give the broker a new password or token for this connection, before the old one expires
        (https://www.rabbitmq.com/docs/oauth2). Raises as every call to the broker."""
        self._wait_up()
        link = self._link
        assert link is not None
        event: coro.event = coro.event()
        answer: list[Any] = []
        data = secret.encode() if isinstance(secret, str) else secret
        link.protocol.send_method(0, spec.connection.update_secret(data, reason))
        self._secret_replies.append((event, answer))
        link.flush()
        link.begin_wait()
        try:
            with coro.move_on_after(self.timeout):
                event.wait()
        finally:
            link.waiting -= 1
        if not answer:
            if not link.alive:
                link.raise_error()
            raise AMQPTimeout(f"expected an answer to connection.update_secret within {self.timeout:g} s, none came")
        if isinstance(secret, str):
            self._auth = self._auth[0], secret

    def wait_unblocked(self, timeout: float | None = None) -> None:
        """Wait until the broker takes messages. timeout: seconds, None for the client's; then ConnectionBlocked."""
        self._wait_up()
        link = self._link
        assert link is not None
        if link.blocked is not None:
            seconds = self.timeout if timeout is None else timeout
            with coro.move_on_after(seconds):
                while link.blocked is not None and link.alive:
                    link._room.wait()
            if link.alive and link.blocked is not None:
                raise ConnectionBlocked(f"the broker has blocked publishing for {seconds:g} s and more: {link.blocked}")
        if not link.alive:
            link.raise_error()

    def add_listener(self, listener: Callable[..., object]) -> None:
        """Have ``listener(event, **facts)`` called when something happens to the connection: "blocked" (reason),
        "unblocked", "lost" (error), "recovered" (attempt), "recovery-failed" (attempt, error), "queue-renamed" (old,
        new), "topology-failed" (method, error), "channel-lost" (channel, error: the broker has closed it),
        "channel-recovered" (channel, error), "closed" (error). It must not wait."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[..., object]) -> None:
        """Undo ``add_listener``. Nothing happens if it was not added."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def close(
        self,
        reply_code: int = 200,
        reply_text: str = "normal shutdown",
        class_id: int = 0,
        method_id: int = 0,
    ) -> None:
        """Close all channels and the connection. What is published and waits to be sent goes out before.

        It takes ``close_timeout`` seconds at most, then the connection is cut; that is so for a broker that has blocked
        this connection. Never raises because of the broker; closing twice is no error.
        """
        if self._state in ("closed", "new"):
            self._state = "closed"
            return
        self._state = "closing"
        self._stop_recovery()
        link = self._link
        if link is None or not link.alive:
            self._finish(None)
            return
        try:
            link.begin_wait()
            link.protocol.send_method(0, spec.connection.close(reply_code, reply_text, class_id, method_id))
            link.flush()
            link.wait_end(self.close_timeout)
        except AMQPError:
            pass  # it was about to end anyway
        finally:
            link.waiting -= 1
            link.end(StateError("the connection was closed"))
            self._finish(None)

    @property
    def closed(self) -> bool:
        """The client has ended."""
        return self._state == "closed"

    def _count_past(self, link: Link) -> None:
        for name in _COUNTED:
            self._past[name] += getattr(link.protocol, name)
        self._past_heartbeats += link.heartbeats_out

    def statistics(self) -> Statistics:
        """Numbers for monitoring."""
        link = self._link if self._link is not None and self._link.alive else None
        now = {name: getattr(link.protocol, name) if link is not None else 0 for name in _COUNTED}
        confirms = [each._confirms for each in self.channels.values() if each._confirms is not None]
        consumers = [each for found in self.channels.values() for each in found.consumers.values()]
        return Statistics(
            connections=self._connections,
            channels=len(self.channels),
            consumers=len(consumers),
            waiting_messages=sum(map(len, consumers)),
            unconfirmed=sum(map(len, confirms)),
            **{
                name: past + sum(getattr(each, name) for each in confirms) for name, past in self._past_confirms.items()
            },
            **{name: self._past[name] + now[name] for name in _COUNTED},
            heartbeats_out=self._past_heartbeats + (link.heartbeats_out if link is not None else 0),
            pending_bytes=link.protocol.pending if link is not None else 0,
            blocked=self.blocked is not None,
        )

    def __enter__(self) -> Self:
        if self._state == "new":
            self.go()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "recovering" if self._recovering else self._state
        return f"<amqp client {self.name!r} of {self._addresses[0]}, {state}, {len(self.channels)} channels>"


_COUNTED = ("messages_in", "messages_out", "frames_in", "frames_out", "bytes_in", "bytes_out", "heartbeats_in")


def _others(address: _urls.Address, peer: str) -> list[_urls.Address]:
    """The other addresses of a name than the one that was connected to; none if the host is an address."""
    if address.host.startswith("/"):
        return []
    found = [peer]
    for family in (coro.AF.INET6, coro.AF.INET):
        with contextlib.suppress(OSError, coro.NameError):
            found += [each for each in resolver.addresses(address.host, family) if each not in found]
    return [_urls.Address(each, address.port) for each in found[1:]]


def _is_local(host: str) -> bool:
    if host.startswith("/") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _longer(pause: float, rule: Recovery) -> float:
    return min(rule.most, max(pause * 2, 0.05))


def _is_final(error: AMQPError) -> bool:
    """Would another connection end the same way? The broker said that we break the protocol or must not be here."""
    return isinstance(error, ConnectionClosed) and error.reply_code in _FINAL


_FINAL = (spec.ACCESS_REFUSED, spec.SYNTAX_ERROR, spec.NOT_ALLOWED, spec.NOT_IMPLEMENTED)


def connect(url: str | Iterable[str] = "amqp://guest:guest@127.0.0.1/", **parameters: Any) -> client:
    """A client for a URL, or several URLs, that has been started; see ``client.from_url`` and ``client.go``."""
    found = client.from_url(url, **parameters)
    found.go()
    return found
