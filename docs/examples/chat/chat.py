"""A chat server: what one member types, all others see.

    python chat.py --port 4000 --door /tmp/chat.door
    nc localhost 4000                           # a member
    python -m coro.backdoor /tmp/chat.door      # look inside: room.members, room.say("hello")

SIGTERM and Ctrl-C end it in order. Nobody can come in any more, the members are told, and they have --grace seconds to
leave.
"""

from __future__ import annotations

import argparse
import dataclasses
import queue
import signal

import coro
from coro import backdoor, signal_handler
from coro.read_stream import LimitError, sock_stream

LONGEST_LINE = 1000  # bytes
LINES_BEHIND = 100  # a member who is so many lines behind is thrown out


@dataclasses.dataclass
class Member:
    thread: coro.coro
    lines: coro.channel[str]  # what the member still has to be sent


class Room:
    def __init__(self, idle: float = 600) -> None:
        self.idle = idle  # seconds of silence that a member is allowed
        self.members: dict[str, Member] = {}

    def say(self, text: str) -> None:
        """Tell all members. This never waits, so a slow member delays nobody."""
        for member in self.members.values():
            try:
                member.lines.put_nowait(text)
            except queue.Full:
                member.thread.shutdown()

    def serve(self, conn: coro.Stream, address: object) -> None:
        """The thread of one connection. The server closes the connection afterwards."""
        stream = sock_stream(conn, limit=LONGEST_LINE)
        try:
            name = self.ask_name(conn, stream)
            if name:
                self.say(f"* {name} has come")
                lines = coro.channel[str](LINES_BEHIND)
                self.members[name] = Member(coro.current(), lines)
                try:
                    self.talk(conn, stream, name, lines)
                finally:
                    del self.members[name]
                    self.say(f"* {name} has left")
        except* LimitError:
            conn.send(b"* this line is too long, goodbye\r\n")
        except* coro.TimeoutError:
            conn.send(b"* you have been silent for too long, goodbye\r\n")
        except* ConnectionError:
            pass  # the member's machine is gone

    def ask_name(self, conn: coro.Stream, stream: sock_stream) -> str:
        conn.send(b"* your name?\r\n")
        while (name := self.read(stream)) in self.members:
            conn.send(b"* somebody has this name already, another one?\r\n")
        return name

    def talk(self, conn: coro.Stream, stream: sock_stream, name: str, lines: coro.channel[str]) -> None:
        with coro.group() as group, lines:  # the channel is closed first, and that ends the thread that sends
            group.spawn(send_lines, conn, lines)
            while text := self.read(stream):
                self.say(f"{name}: {text}")

    def read(self, stream: sock_stream) -> str:
        """The next line without its end; "" for an empty line and at the end of the stream."""
        with coro.timeout(self.idle):
            return stream.read_line(b"\n").decode(errors="replace").strip()


def send_lines(conn: coro.Stream, lines: coro.channel[str]) -> None:
    for line in lines:
        conn.send(f"{line}\r\n".encode())


def main(port: int, door: str | None, grace: float) -> None:
    room = Room()
    stop = coro.event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal_handler.register(number, lambda number: stop.set())
    if door:
        backdoor.start(unix_path=door, global_dict={"room": room})
    with coro.Server(room.serve, ("127.0.0.1", port)) as server:
        print("listening on port", server.addresses[0][1], flush=True)
        stop.wait()
        server.stop()
        room.say(f"* the server ends in {grace:g} seconds")
        everybody_left = server.drain(grace)
    print("all have left" if everybody_left else "the last ones were sent away", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A chat server.")
    parser.add_argument("--port", type=int, default=4000, help="port, 0 for any free one (default 4000)")
    parser.add_argument("--door", help="path of a UNIX socket for the back door (default: no back door)")
    parser.add_argument("--grace", type=float, default=5, help="seconds the members have to leave (default 5)")
    options = parser.parse_args()
    coro.run(main, options.port, options.door, options.grace)
