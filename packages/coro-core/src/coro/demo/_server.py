"""The echo server of the demonstration: a thread per connection, each a straight line of code.

Started by c10k as a process of its own: `python -m coro.demo._server CONTROL-FD SETTINGS-AS-JSON`. Besides
echoing it answers questions over the control descriptor: "report" (memory, descriptors, switches, ...),
"drain" (the same, after the last connection has ended) and "quit". Cost of an idle connection: its thread
and its socket object.
"""

from __future__ import annotations

import gc
import json
import socket
import sys
import traceback
from typing import Any

import coro

from ._control import Line
from ._measure import descriptors, in_use, raise_descriptor_limit, resident

AT_ONCE = 65536  # bytes taken by one recv
BACKLOG = 4096
COUNTERS = (  # of coro.statistics(), those that only grow
    "switches",
    "evacuations",
    "evacuated_bytes",
    "restorations",
    "restored_bytes",
    "passes",
    "polls",
    "bounded_drains",
    "spawned",
)
DRAIN = 15.0  # seconds that the last connections get to end


class Server:
    """The listening sockets and the counters."""

    def __init__(self, addresses: list[str], descriptor_limit: int, send_buffer: int) -> None:
        self.limit = raise_descriptor_limit(descriptor_limit)
        self.accepted = 0
        self.open = 0
        self.resets = 0
        self.errors = 0
        self.first_errors: list[str] = []
        self.send_buffer = send_buffer
        self.listeners = self._listen(addresses)

    def _listen(self, addresses: list[str]) -> list[coro.sock]:
        """A listener for each address that the system has, all with one port number."""
        listeners: list[coro.sock] = []
        self.addresses: list[tuple[str, int]] = []
        port = 0
        for address in addresses:
            listener = coro.tcp_sock()
            try:
                listener.bind((address, port))
            except OSError:
                listener.close()
                if not listeners:
                    raise
                continue
            if self.send_buffer:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer)
            listener.listen(BACKLOG)
            port = listener.getsockname()[1]
            listeners.append(listener)
            self.addresses.append((address, port))
        return listeners

    def accept(self, listener: coro.sock) -> None:
        """Accept connections for ever, a thread for each."""
        while True:
            connection, _ = listener.accept()
            coro.spawn(self.session, connection)

    def session(self, connection: coro.sock) -> None:
        """One connection from its beginning to its end."""
        self.accepted += 1
        self.open += 1
        try:
            while data := connection.recv(AT_ONCE):
                connection.send(data)
        except (ConnectionResetError, BrokenPipeError):
            self.resets += 1
        finally:
            connection.close()
            self.open -= 1

    def failed(self) -> None:
        """Called for an exception that nobody caught in a thread."""
        self.errors += 1
        if len(self.first_errors) < 5:
            self.first_errors.append(traceback.format_exc())

    def report(self) -> dict[str, Any]:
        return {
            "limit": self.limit,
            "addresses": self.addresses,
            "accepted": self.accepted,
            "open": self.open,
            "resets": self.resets,
            "errors": self.errors,
            "first_errors": self.first_errors,
            "resident": resident(),
            "in_use": in_use(),
            "descriptors": descriptors(),
            "statistics": {name: getattr(coro.statistics(), name) for name in COUNTERS},
        }

    def drain(self) -> None:
        """Wait until all connections have ended, but not for ever."""
        for _ in range(int(DRAIN * 100)):
            if not self.open:
                break
            coro.sleep_relative(0.01)
        gc.collect()

    def main(self, control_fd: int) -> None:
        """Serve, and answer questions, until told to quit or left alone."""
        for listener in self.listeners:
            coro.spawn(self.accept, listener)
        control = Line(control_fd)
        # Once through the poller, which opens its descriptors when it is first needed: they are no leak.
        coro.yield_slice()
        while (question := control.hear()) is not None and question["ask"] != "quit":
            if question["ask"] == "drain":
                self.drain()
            control.say(self.report())


def main() -> None:
    """Entry of the server process."""
    server = Server(**json.loads(sys.argv[2]))
    coro.set_exception_notifier(server.failed)
    coro.run(server.main, int(sys.argv[1]))


if __name__ == "__main__":
    main()
