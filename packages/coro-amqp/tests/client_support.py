"""A broker that does what a test says, frame by frame; running a test in a loop."""

from __future__ import annotations

import functools

import coro
from coro.amqp import spec, wire

#: Seconds after which a wait in a test is taken for a hang.
HANG = 60


def in_loop(test):
    """Run a test in a thread of a loop, and the loop until then."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        coro.run(coro.with_timeout, HANG, test, *args, **kwargs)

    return run


class Scripted:
    """One connection of a broker on a free port: `script(broker)` runs when the client has logged in.

    Without a script it answers nothing any more. `greet` is False for one that does not even do the handshake.
    """

    def __init__(self, script=None, greet: bool = True, tune: tuple[int, int, int] = (2047, 131072, 0)) -> None:
        self.script = script
        self.greet = greet
        self.tune = tune
        self.seen: list = []
        self.errors: list[BaseException] = []
        self.protocol = wire.Protocol("server", channel_max=tune[0], frame_max=tune[1])
        self.events: list = []
        self.conn = None
        self.listener = coro.tcp_sock()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        self.port = self.listener.getsockname()[1]
        self.thread = coro.spawn(self.serve, daemon=True)

    def serve(self) -> None:
        try:
            self.conn, _ = self.listener.accept()
            if self.greet:
                self.handshake()
            if self.script is not None:
                self.script(self)
            while self.conn.recv(65536):
                pass
        except OSError as exc:
            self.errors.append(exc)

    def flush(self) -> None:
        self.conn.writev(self.protocol.take_output())

    def next(self):
        """The next event, as (channel, what)."""
        while not self.events:
            data = self.conn.recv(65536)
            if not data:
                raise OSError("the client has closed the connection")
            self.events += self.protocol.receive(data)
            self.flush()
        event = self.events.pop(0)
        self.seen.append(event[1])
        return event

    def expect(self, cls):
        number, what = self.next()
        assert isinstance(what, cls), what
        return what

    def say(self, number, *methods) -> None:
        for method in methods:
            self.protocol.send_method(number, method)
        self.flush()

    def handshake(self) -> None:
        self.next()
        capabilities = {"publisher_confirms": True, "connection.blocked": True}
        self.say(0, spec.connection.start(server_properties={"capabilities": capabilities}))
        self.expect(spec.connection.start_ok)
        self.say(0, spec.connection.tune(*self.tune))
        self.expect(spec.connection.tune_ok)
        self.expect(spec.connection.open)
        self.say(0, spec.connection.open_ok())

    def open_channel(self, number: int = 1) -> None:
        self.expect(spec.channel.open)
        self.say(number, spec.channel.open_ok())

    def close(self) -> None:
        if self.conn is not None:
            self.conn.close()
        self.listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc) -> None:
        self.close()


class Gate:
    """A proxy before a broker that can hold back what the broker says: `shut` and `open`. One connection."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._open = coro.event()
        self._open.set()
        self._listener = coro.tcp_sock()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.port = self._listener.getsockname()[1]
        self._threads = [coro.spawn(self._serve, daemon=True)]

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        broker = coro.connect("127.0.0.1", self._target)
        self._threads.append(coro.spawn(self._copy, client, broker, False, daemon=True))
        self._copy(broker, client, True)

    def _copy(self, source, target, gated: bool) -> None:
        try:
            while data := source.recv(65536):
                if gated:
                    self._open.wait()
                target.send(data)
        except (OSError, coro.ClosedError):
            pass
        finally:
            source.close()
            target.close()

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def __enter__(self):
        return self

    def __exit__(self, *exc) -> None:
        self.open()
        self._listener.close()
        for thread in self._threads:
            thread.shutdown()
