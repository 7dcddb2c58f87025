"""For tests of the LDAP client: running a test in a loop, and a server that does what a test says.

The server is no honest one: a test gets each request and sends whatever it likes, whenever it likes.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from real_programs.running import HOST, find_program

import coro
from coro.ldap import Client
from coro.ldap.protocol import (
    MAX_MESSAGE,
    AddResponse,
    BindRequest,
    BindResponse,
    CompareResponse,
    Decoder,
    DelResponse,
    ExtendedResponse,
    Message,
    ModifyDNResponse,
    ModifyResponse,
    SearchRequest,
    SearchResultDone,
    UnbindRequest,
    encode,
    encode_entry,
)

#: Seconds after which a wait in a test is taken for a hang.
HANG = 60

ANSWERS = {
    "BindRequest": BindResponse,
    "SearchRequest": SearchResultDone,
    "ModifyRequest": ModifyResponse,
    "AddRequest": AddResponse,
    "DelRequest": DelResponse,
    "ModifyDNRequest": ModifyDNResponse,
    "CompareRequest": CompareResponse,
    "ExtendedRequest": ExtendedResponse,
}


def in_loop(test):
    """Run a test in a thread of a loop, and the loop until then."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        coro.run(coro.with_timeout, HANG, test, *args, **kwargs)

    return run


class Conversation:
    """The server's end of one connection."""

    def __init__(self, sock: Any, max_message: int = MAX_MESSAGE) -> None:
        self.sock = sock
        self.decoder = Decoder(max_message)
        self.seen: list[Message] = []

    def next(self) -> Message | None:
        """The next request; None at the end."""
        while (message := self.decoder.next_message()) is None:
            data = self.sock.recv(65536)
            if not data:
                return None
            self.decoder.feed(data)
        self.seen.append(message)
        return message

    def send(self, *messages: Message | bytes) -> None:
        self.sock.sendall(b"".join(one if isinstance(one, bytes) else encode(one) for one in messages))

    def answer(self, request: Message, code: int = 0, text: str = "", **more: Any) -> None:
        """The answer that belongs to a request."""
        kind = ANSWERS[type(request.op).__name__]
        controls = more.pop("controls", ())
        self.send(Message(request.id, kind(code, "", text, **more), controls))

    def entry(self, request: Message, dn: str = "cn=x", **attributes: list[bytes]) -> None:
        self.send(encode_entry(request.id, dn, attributes or {"cn": [b"x"]}))

    def serve(self) -> None:
        """Answer everything with success, and each search with one entry, until the client goes."""
        while (request := self.next()) is not None:
            if isinstance(request.op, UnbindRequest):
                return
            if isinstance(request.op, SearchRequest):
                self.entry(request)
            if type(request.op).__name__ in ANSWERS:
                self.answer(request)


class Scripted:
    """A server on a free port: `script(conversation)` runs for each connection, in a thread of its own."""

    def __init__(self, script: Callable[[Conversation], object] = Conversation.serve, wrap: Any = None) -> None:
        self.script = script
        self.wrap = wrap
        self.max_message = MAX_MESSAGE
        self.errors: list[BaseException] = []
        self.conversations: list[Conversation] = []
        self.listener = coro.tcp_sock()
        self.listener.bind((HOST, 0))
        self.listener.listen()
        self.port = self.listener.getsockname()[1]
        self._threads = [coro.spawn(self._accept, daemon=True)]

    @property
    def url(self) -> str:
        return f"ldap://{HOST}:{self.port}"

    def client(self, **options: Any) -> Client:
        return Client(self.url, **{"timeout": HANG, **options})

    def _accept(self) -> None:
        try:
            while True:
                sock, _ = self.listener.accept()
                self._threads.append(coro.spawn(self._serve, sock, daemon=True))
        except (OSError, coro.ClosedError):
            pass

    def _serve(self, sock: Any) -> None:
        try:
            if self.wrap is not None:
                sock = self.wrap(sock)
            conversation = Conversation(sock, self.max_message)
            self.conversations.append(conversation)
            self.script(conversation)
        except (OSError, coro.ClosedError, EOFError) as exc:
            self.errors.append(exc)
        finally:
            sock.close()

    def close(self) -> None:
        self.listener.close()
        for one in self.conversations:
            one.sock.close()

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def logged_in(request: Message) -> bool:
    return isinstance(request.op, BindRequest)


def certificate(folder: Path, name: str, host: str = HOST, issuer: str | None = None) -> None:
    """A self-signed certificate for an address, in NAME.pem and NAME.key."""
    subprocess.run(
        [find_program("openssl", "openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{host}", "-addext",
         "keyUsage=critical,digitalSignature,keyCertSign", "-keyout", str(folder / f"{name}.key"), "-out",
         str(folder / f"{name}.pem")],
        check=True, capture_output=True, timeout=HANG,
    )  # fmt: skip


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
