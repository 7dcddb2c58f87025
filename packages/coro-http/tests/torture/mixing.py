"""Clients that send in pieces, pipeline, break off and are interrupted: `python mixing.py --seconds 60`.

A server and its clients in one process. Each request has a word of its own in its path, in a field, in its body if
there is one, and in each piece of that. The handler waits at random places, checks that all it reads has this word, and
answers with it; the client checks that all answers are its own, whole and in order. Handlers, clients and the threads
of the server are interrupted at random moments, and connections cut or reset at random bytes. So whatever is shared by
connections (the block that all receive into, the buffer of heads, remembered environs and files, the pool of masks)
shows when it goes from one to another.

Afterwards there are as many threads, sockets and descriptors as before. The seed is printed, and CORO_MIXING_SEED
repeats it.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import coro
from coro import http, testing
from coro.http import h1, static, websocket, wsgi

CLIENTS = 30
FILES = 5


class Mixed(Exception):
    """Something was not the one's whose it should be."""


class Told(Exception):
    """An interruption of ours."""


class Torture:
    """All that happens, with one generator of random numbers."""

    def __init__(self, seed: int, folder: str) -> None:
        self.chance = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.mixed: list[str] = []
        self.words = 0
        self.folder = folder
        self.working: set[Any] = set()
        self.files = static.Files(folder, prefix="/file")
        self.shared = http.Client()
        self.wsgi = wsgi.WSGIHandler(self.app)
        for i in range(FILES):
            Path(folder, f"{i}.txt").write_bytes(f"file {i};".encode() * (1 + 9000 * i))

    def word(self) -> str:
        self.words += 1
        return f"w{self.words}." + "x" * self.chance.randrange(20)

    def must(self, fine: bool, what: str) -> None:
        if not fine:
            self.mixed.append(what)
            raise Mixed(what)

    def pause(self) -> None:
        """Let others run, often enough at any place."""
        kind = self.chance.randrange(6)
        if kind < 2:
            coro.yield_slice()
        elif kind == 2:
            coro.sleep_relative(self.chance.random() * 0.003)

    # -- the server's side

    def handler(self, request: Any) -> Any:
        me = coro.current()
        self.working.add(me)
        try:
            if request.path.startswith("/file/"):
                return self.files(request)
            if request.path.startswith("/wsgi/"):
                return self.wsgi(request)
            return self.answer(request)
        finally:
            self.working.discard(me)

    def answer(self, request: Any) -> Any:
        _, kind, word = request.path.split("/")
        if kind == "key":
            return self.keyed(request, word)
        self.must(request.headers.get("x-word") == word, f"{request.path} had the field {request.headers.items()}")
        self.pause()
        if kind == "ws":
            return self.echo(request, word)
        body = b""
        limit = self.chance.choice((1, 7, 100, 65536))
        while self.chance.random() < 0.97 and (piece := request.read_some(limit)):
            body += piece
            if len(body) < 100 or self.chance.random() < 0.1:
                self.pause()
        pattern = f"{word};".encode()
        self.must((pattern * (len(body) // len(pattern) + 1)).startswith(body), f"{word} had the body {body[:200]!r}")
        self.must(request["x-word"] == word, f"{word} had {request['x-word']!r} after its body")
        return self.reply(request, word)

    def keyed(self, request: Any, word: str) -> Any:
        body = request.read()
        self.must(body == f"{word};".encode() * (len(body) // (len(word) + 1)), f"{word} had the body {body[:200]!r}")
        self.pause()
        return self.reply(request, word)

    def reply(self, request: Any, word: str) -> Any:
        times = self.chance.choice((1, 1, 3, 500, 30000))
        how = self.chance.randrange(5)
        whole = f"{word};" * times
        self.counts[f"reply {how}"] += 1
        if how == 0:
            return whole
        if how == 1:
            request.start(200, [("x-word", word), ("content-length", str(len(whole)))])
            self.pause()
            for at in range(0, len(whole), 20000):
                request.send(whole[at : at + 20000].encode())
            return None
        if how == 2:
            return self.pieces(whole)
        request["x-word"] = word
        if how == 3:
            request.respond(200, {"x-more": word}, whole)
            return None
        request.push(whole[:50])
        self.pause()
        request.push(whole[50:])
        request.done()
        return None

    def pieces(self, whole: str) -> Iterator[bytes]:
        for at in range(0, len(whole), 7000):
            self.pause()
            yield whole[at : at + 7000].encode()

    def app(self, environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        word = environ["PATH_INFO"].rpartition("/")[2]
        self.must(environ["HTTP_X_WORD"] == word, f"{word} had the environ {environ}")
        environ["HTTP_X_WORD"] = environ["left"] = "of another"
        self.pause()
        body = environ["wsgi.input"].read()
        self.must(body == f"{word};".encode() * (len(body) // (len(word) + 1)), f"{word} had the input {body[:200]!r}")
        start("200 OK", [("X-Word", word)])
        self.pause()
        return [f"{word};".encode()] * self.chance.choice((1, 2, 3000))

    def echo(self, request: Any, word: str) -> None:
        with websocket.accept(request, deflate=True, ping_interval=None) as ws:
            for message in ws:
                text = message if isinstance(message, str) else message.decode()
                self.must(text == f"{word};" * (len(text) // (len(word) + 1)), f"{word} got the message {text[:200]!r}")
                self.pause()
                ws.send(message)

    # -- the clients

    def client(self, port: int) -> None:
        if self.chance.random() < 0.4:
            self.fetch(port)
            return
        conn = coro.tcp_sock()
        try:
            conn.connect(("127.0.0.1", port))
            if self.chance.random() < 0.2:
                self.talk(conn, port)
            else:
                self.ask(conn)
        except (OSError, EOFError, coro.ClosedError, websocket.WebSocketClosed, http.HTTPError, Told):
            self.counts["ended early"] += 1
        finally:
            conn.close()

    def request(self, codec: h1.Connection, word: str) -> bytes:
        kind = self.chance.choice(("get", "get", "sized", "chunked", "wsgi", "file"))
        if kind == "file":
            return codec.request("GET", f"/file/{self.chance.randrange(FILES)}.txt", {"host": "a", "x-word": word})
        fields = [("Host", "a"), ("x-word", word), *[("x-filler", word)] * self.chance.randrange(3)]
        path = f"/{'wsgi' if kind == 'wsgi' else kind}/{word}"
        if kind == "get":
            return codec.request("GET", path, fields)
        body = f"{word};".encode() * self.chance.choice((1, 2, 20, 9000))
        if kind == "chunked":
            data = codec.request("POST", path, [*fields, ("transfer-encoding", "chunked")])
            while body:
                n = self.chance.choice((1, 5, 1000, 50000))
                data += codec.data(body[:n])
                body = body[n:]
            return data + codec.end()
        return codec.request("POST", path, [*fields, ("content-length", str(len(body)))]) + codec.data(body)

    def ask(self, conn: Any) -> None:
        """Some requests at once, and their answers."""
        codec = h1.Connection(h1.CLIENT)
        words: list[str] = []
        data = b""
        for _ in range(self.chance.choice((1, 2, 5, 20))):
            words.append(self.word())
            data += self.request(codec, words[-1])
        if self.chance.random() < 0.2:
            data = data[: self.chance.randrange(len(data))]
        sender = coro.spawn(self.send, conn, data)
        try:
            self.answers(conn, codec, words)
        finally:
            sender.shutdown()

    def send(self, conn: Any, data: bytes) -> None:
        try:
            while data:
                n = self.chance.choice((1, 30, 1000, 100000))
                conn.send(data[:n])
                data = data[n:]
                self.pause()
            if self.chance.random() < 0.5:
                conn.shutdown(coro.SHUT.WR)
            elif self.chance.random() < 0.2:
                conn.setsockopt(coro.SOL.SOCKET, coro.SO.LINGER, b"\x01\0\0\0\0\0\0\0")
                conn.close()
        except (OSError, coro.ClosedError):
            pass

    def answers(self, conn: Any, codec: h1.Connection, words: list[str]) -> None:
        body = b""
        while words:
            event = codec.next_event()
            if event is h1.NEED_DATA:
                codec.feed(conn.recv(self.chance.choice((10, 3000, 100000))))
            elif event in (h1.CLOSED, h1.PAUSED):
                return
            elif isinstance(event, h1.Response):
                body = b""
                if event.status >= 400:
                    self.counts[f"status {event.status}"] += 1
                    return
                seen = event.headers.get_all("x-word")
                self.must(seen in ([], [words[0]]), f"{words[0]} got the answer of {seen}")
            elif isinstance(event, h1.Data):
                body += event.data
            elif isinstance(event, h1.EndOfMessage):
                word = f"{words.pop(0)};".encode()
                if not body.startswith(b"file "):
                    self.must(body == word * (len(body) // len(word)), f"{word!r} got {body[:200]!r}")
                else:
                    self.must(body == body[:7] * (len(body) // 7), f"a file had {body[:200]!r}")
                self.counts["answers"] += 1

    def fetch(self, port: int) -> None:
        """Requests by the one client of all, which keeps connections; the same URLs again and again, for its short way
        of asking."""
        word = f"k{self.chance.randrange(20)}"
        url = f"http://127.0.0.1:{port}/key/{word}"
        try:
            for _ in range(self.chance.randrange(1, 8)):
                how = self.chance.randrange(8)
                if how < 4:
                    response = self.shared.get(url)
                elif how == 4:
                    response = self.shared.get(url, timeout=self.chance.random() * 0.005 + 1e-6)
                elif how == 5:
                    response = self.shared.post(url, f"{word};" * self.chance.choice((1, 10000)))
                elif how == 6:
                    response = self.shared.head(url)
                else:
                    self.fetch_pieces(url)
                    continue
                data = response.content
                fine = response.status >= 400 or data == f"{word};".encode() * (len(data) // (len(word) + 1))
                self.must(fine, f"{word} got {data[:200]!r}")
                self.counts["fetched"] += 1
                self.pause()
        except (OSError, EOFError, coro.ClosedError, coro.TimeoutError, http.HTTPError, Told):
            self.counts["not fetched"] += 1

    def fetch_pieces(self, url: str) -> None:
        """The beginning of a response, or all of it."""
        word = f"{url.rpartition('/')[2]};".encode()
        with self.shared.stream("GET", url) as response:
            data = b""
            for piece in response.iter_bytes(self.chance.choice((1000, 100000))):
                data += piece
                if self.chance.random() < 0.2:
                    break
            whole = word * (len(data) // len(word) + 1)
            self.must(response.status >= 400 or whole.startswith(data), f"{word!r} got {data[:200]!r}")

    def talk(self, conn: Any, port: int) -> None:
        """Messages over a WebSocket."""
        word = self.word()
        url = f"ws://127.0.0.1:{port}/ws/{word}"
        compressed = self.chance.random() < 0.5
        ws = websocket.connect(url, stream=conn, headers=[("x-word", word)], deflate=compressed, ping_interval=None)
        for _ in range(self.chance.randrange(20)):
            text = f"{word};" * self.chance.choice((1, 10, 1000, 30000))
            ws.send(text if self.chance.random() < 0.5 else text.encode())
            self.pause()
            got = ws.receive()
            self.must((got if isinstance(got, str) else got.decode()) == text, f"{word} got {got[:200]!r}")
            self.counts["messages"] += 1
        if self.chance.random() < 0.7:
            ws.close()

    # -- the trouble

    def trouble(self, clients: list[Any]) -> None:
        while True:
            coro.sleep_relative(self.chance.random() * 0.02)
            thread = self.chance.choice([*clients, *self.working])
            if thread.dead or thread is coro.current():
                continue
            try:
                if self.chance.random() < 0.5:
                    thread.shutdown()
                else:
                    thread.raise_exception(Told)
            except coro.ScheduleError:
                continue  # it ends already
            self.counts["interrupted"] += 1

    def enough(self, most: int) -> bool:
        return self.counts["answers"] >= most and self.counts["interrupted"] >= most // 20

    def main(self, seconds: float, most: int) -> None:
        end = time.monotonic() + seconds
        settings = {"head_timeout": 5.0, "body_rate": 0.0, "log_limit": 0}
        with http.server(self.handler, ("127.0.0.1", 0), **settings) as server:
            clients: list[Any] = []
            trouble = coro.spawn(self.trouble, clients)
            while time.monotonic() < end and not self.mixed and not self.enough(most):
                clients[:] = [thread for thread in clients if not thread.dead]
                while len(clients) < CLIENTS:
                    clients.append(coro.spawn(self.client, server.port))
                coro.sleep_relative(0.002)
            trouble.shutdown()
            for thread in clients:
                thread.shutdown()
            for thread in clients:
                thread.join()
            self.shared.close()


def run(seed: int, seconds: float, most: int = 1 << 60) -> Torture:
    """So many seconds, or until there were so many answers and some interruptions. Raises Mixed, or LeakError."""
    with tempfile.TemporaryDirectory() as folder, testing.no_leaks(strict=True):
        torture = Torture(seed, folder)
        before = coro.set_exception_notifier(lambda *about: None)
        try:
            coro.run(torture.main, seconds, most)
        finally:
            coro.set_exception_notifier(before)
    if torture.mixed:
        raise Mixed(f"seed {seed}: {torture.mixed[0]}")
    return torture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("CORO_MIXING_SEED", time.time_ns() % 1000000)))
    given = parser.parse_args()
    print(f"CORO_MIXING_SEED={given.seed}", flush=True)
    for what, count in sorted(run(given.seed, given.seconds).counts.items()):
        print(f"{what}: {count}")


if __name__ == "__main__":
    main()
