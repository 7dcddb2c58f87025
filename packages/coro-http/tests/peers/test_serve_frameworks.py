"""Frameworks under plain ``python -m coro.http serve``. What the interface is, serve finds out by itself.

A framework is an application of its own words with the same paths, and a line in the table: ``/sync`` and ``/async``
answer, ``/slow`` takes its time, ``/upload`` tells how much came, ``/events`` is a stream of events without an end
that leaves a mark in a file when it is closed, ``/ws`` echoes, and ``/denied`` is a WebSocket that is refused with 403.
All of them go through the same life: many connections at once, an upload, events, WebSockets, a client that leaves,
SIGHUP and SIGTERM with all of these open. The environment CORO_HTTP_FRAMEWORKS=all takes each with TLS and without,
with one worker and with two; else each framework is taken once, these by turns.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import client_tls
import pytest
from real_programs import require_library

pytestmark = pytest.mark.slow  # not on the newest Python, where half of the frameworks do not install

LIMIT = 40  # seconds, for a hang only
CONNECTIONS, REQUESTS = 50, 5

#: Events, with and without asyncio; the end of the stream leaves a mark.
EVENTS = """
    import asyncio, time

    def ticks(kind=str):
        try:
            while True:
                yield kind("data: tick\\n\\n", *[] if kind is str else ["utf-8"])
                time.sleep(0.02)
        finally:
            open("closed", "a").write("x")

    async def aticks(kind=str):
        try:
            while True:
                yield kind("data: tick\\n\\n", *[] if kind is str else ["utf-8"])
                await asyncio.sleep(0.02)
        finally:
            open("closed", "a").write("x")
"""
FASTAPI = """
    from fastapi import FastAPI, Request, WebSocket, WebSocketException, HTTPException
    from fastapi.responses import PlainTextResponse, StreamingResponse
    app = FastAPI()

    @app.get("/sync", response_class=PlainTextResponse)
    def sync():
        time.sleep(0.001)
        return "done"

    @app.get("/async", response_class=PlainTextResponse)
    async def wait():
        await asyncio.sleep(0)
        return "done"

    @app.get("/slow", response_class=PlainTextResponse)
    async def slow():
        await asyncio.sleep(0.5)
        return "done"

    @app.post("/upload", response_class=PlainTextResponse)
    async def upload(request: Request):
        return str(sum([len(part) async for part in request.stream()]))

    @app.get("/events")
    async def events():
        return StreamingResponse(aticks(), media_type="text/event-stream")

    @app.websocket("/ws")
    async def echo(ws: WebSocket):
        await ws.accept()
        async for text in ws.iter_text():
            await ws.send_text(text)

    @app.websocket("/denied")
    async def denied(ws: WebSocket):
        raise HTTPException(403, "no")
"""
STARLETTE = """
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.responses import PlainTextResponse, StreamingResponse
    from starlette.routing import Route, WebSocketRoute

    def sync(request):
        return PlainTextResponse("done")

    async def wait(request):
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(3)))
        return PlainTextResponse("done")

    async def slow(request):
        await asyncio.sleep(0.5)
        return PlainTextResponse("done")

    async def upload(request):
        return PlainTextResponse(str(sum([len(part) async for part in request.stream()])))

    async def events(request):
        {events}

    async def echo(ws):
        await ws.accept()
        async for text in ws.iter_text():
            await ws.send_text(text)

    async def denied(ws):
        await ws.send_denial_response(PlainTextResponse("no", 403))

    app = Starlette(routes=[
        Route("/sync", sync), Route("/async", wait), Route("/slow", slow), Route("/events", events),
        Route("/upload", upload, methods=["POST"]), WebSocketRoute("/ws", echo), WebSocketRoute("/denied", denied),
    ])
"""
FLASK = """
    from flask import Flask, request, Response
    app = Flask(__name__)

    @app.get("/sync")
    def sync():
        time.sleep(0.001)
        return "done"

    @app.get("/async")
    def wait():
        time.sleep(0)
        return "done"

    @app.get("/slow")
    def slow():
        time.sleep(0.5)
        return "done"

    @app.post("/upload")
    def upload():
        return str(len(request.get_data()))

    @app.get("/events")
    def events():
        return Response(ticks(), mimetype="text/event-stream")
"""
DJANGO = """
    import sys
    from django.conf import settings
    settings.configure(
        SECRET_KEY="for tests only", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, STATIC_URL="/static/",
        DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "db"}}}},
        INSTALLED_APPS=["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
                        "django.contrib.sessions", "django.contrib.messages"],
        MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware",
                    "django.contrib.auth.middleware.AuthenticationMiddleware",
                    "django.contrib.messages.middleware.MessageMiddleware"],
        TEMPLATES=[{{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
                    "OPTIONS": {{"context_processors": ["django.template.context_processors.request",
                                "django.contrib.auth.context_processors.auth",
                                "django.contrib.messages.context_processors.messages"]}}}}],
    )
    from django.core.{kind} import get_{kind}_application
    app = get_{kind}_application()
    from django.contrib import admin
    from django.http import HttpResponse, StreamingHttpResponse
    from django.urls import path

    def sync(request):
        return HttpResponse("done")

    async def wait(request):
        await asyncio.sleep(0)
        return HttpResponse("done")

    def slow(request):
        time.sleep(0.5)
        return HttpResponse("done")

    def upload(request):
        return HttpResponse(str(len(request.read())))

    def events(request):
        return StreamingHttpResponse({ticks}(), content_type="text/event-stream")

    urlpatterns = [path("sync", sync), path("async", wait), path("slow", slow), path("upload", upload),
                   path("events", events), path("admin/", admin.site.urls)]
"""
LITESTAR = """
    from litestar import Litestar, Request, WebSocket, get, post, websocket
    from litestar.exceptions import PermissionDeniedException
    from litestar.response import Stream

    @get("/sync", sync_to_thread=True)
    def sync() -> str:
        return "done"

    @get("/async")
    async def wait() -> str:
        await asyncio.sleep(0)
        return "done"

    @get("/slow")
    async def slow() -> str:
        await asyncio.sleep(0.5)
        return "done"

    @post("/upload", status_code=200)
    async def upload(request: Request) -> str:
        return str(sum([len(part) async for part in request.stream()]))

    @get("/events")
    async def events() -> Stream:
        return Stream(aticks(), media_type="text/event-stream")

    @websocket("/ws")
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        async for text in socket.iter_data():
            await socket.send_text(text)

    @websocket("/denied")
    async def denied(socket: WebSocket) -> None:
        raise PermissionDeniedException("no")

    app = Litestar([sync, wait, slow, upload, events, echo, denied], request_max_body_size=None)
"""
FALCON_WSGI = """
    import falcon

    class Done:
        def __init__(self, seconds):
            self.seconds = seconds

        def on_get(self, request, response):
            time.sleep(self.seconds)
            response.text = "done"

    class Upload:
        def on_post(self, request, response):
            response.text = str(len(request.bounded_stream.read()))

    class Events:
        def on_get(self, request, response):
            response.content_type = "text/event-stream"
            response.stream = ticks(bytes)

    app = falcon.App()
    for path, resource in (("sync", Done(0.001)), ("async", Done(0)), ("slow", Done(0.5)), ("upload", Upload()),
                           ("events", Events())):
        app.add_route("/" + path, resource)
"""
QUART = """
    from quart import Quart, Response, abort, request, websocket
    app = Quart(__name__)
    app.config["RESPONSE_TIMEOUT"] = None

    @app.get("/sync")
    def sync():
        time.sleep(0.001)
        return "done"

    @app.get("/async")
    async def wait():
        await asyncio.sleep(0)
        return "done"

    @app.get("/slow")
    async def slow():
        await asyncio.sleep(0.5)
        return "done"

    @app.post("/upload")
    async def upload():
        return str(len(await request.get_data()))

    @app.get("/events")
    async def events():
        return Response(aticks(), mimetype="text/event-stream")

    @app.websocket("/ws")
    async def echo():
        while True:
            await websocket.send(await websocket.receive())

    @app.websocket("/denied")
    async def denied():
        abort(403)
"""
BOTTLE = """
    from bottle import Bottle, request, response
    app = Bottle()

    @app.get("/sync")
    @app.get("/async")
    def sync():
        time.sleep(0.001)
        return "done"

    @app.get("/slow")
    def slow():
        time.sleep(0.5)
        return "done"

    @app.post("/upload")
    def upload():
        return str(len(request.body.read()))

    @app.get("/events")
    def events():
        response.content_type = "text/event-stream"
        return ticks(bytes)
"""
PYRAMID = """
    from pyramid.config import Configurator
    from pyramid.response import Response

    def done(request):
        time.sleep(0.5 if request.path == "/slow" else 0.001)
        return Response("done")

    def upload(request):
        return Response(str(len(request.body)))

    def events(request):
        return Response(app_iter=ticks(bytes), content_type="text/event-stream")

    with Configurator() as made:
        for name, view in (("sync", done), ("async", done), ("slow", done), ("upload", upload), ("events", events)):
            made.add_route(name, "/" + name)
            made.add_view(view, route_name=name)
        app = made.make_wsgi_app()
"""
STREAMING = 'return StreamingResponse(aticks(), media_type="text/event-stream")'
SSE = """from sse_starlette import EventSourceResponse

        async def parts():
            async for _ in aticks():
                yield {"data": "tick"}
        return EventSourceResponse(parts())"""
#: library, interface, source, and whether it has WebSockets.
APPLICATIONS = {
    "fastapi": ("fastapi", "ASGI", FASTAPI, True),
    "starlette": ("starlette", "ASGI", STARLETTE.format(events=STREAMING), True),
    "sse-starlette": ("sse_starlette", "ASGI", STARLETTE.replace("{events}", SSE), True),
    "litestar": ("litestar", "ASGI", LITESTAR, True),
    "falcon-wsgi": ("falcon", "WSGI", FALCON_WSGI, False),
    "quart": ("quart", "ASGI", QUART, True),
    "flask": ("flask", "WSGI", FLASK, False),
    "django-asgi": ("django", "ASGI", DJANGO.format(kind="asgi", ticks="aticks"), False),
    "django-wsgi": ("django", "WSGI", DJANGO.format(kind="wsgi", ticks="ticks"), False),
    "pyramid": ("pyramid", "WSGI", PYRAMID, False),
    "bottle": ("bottle", "WSGI", BOTTLE, False),
}
MODES = [(False, 1), (True, 2), (True, 1), (False, 2)]  # over TLS, workers


class Served:
    """An application behind ``serve``: its process, and what its clients need."""

    def __init__(self, folder: Path, source: str, over_tls: bool, workers: int) -> None:
        (folder / "served_framework.py").write_text(textwrap.dedent(EVENTS) + textwrap.dedent(source))
        options = []
        self.context: ssl.SSLContext | None = None
        if over_tls:
            (folder / "certificate.pem").write_text(client_tls.CERTIFICATE)
            options = ["--cert", str(folder / "certificate.pem"), "--key", str(folder / "certificate.pem")]
            self.context = client_tls.client_context()
        self.folder = folder
        self.said: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "coro.http", "serve", "served_framework:app", "--app-dir", str(folder),
             "-b", "127.0.0.1:0", "-w", str(workers), "--access-log", "off", "--drain-timeout", "1", *options],
            stderr=subprocess.PIPE, text=True, cwd=folder,
        )  # fmt: skip
        assert self.process.stderr is not None
        self.stderr = self.process.stderr
        while not (found := re.search(r"\((\w+)\) on https?://127\.0\.0\.1:(\d+)", self.said[-1] if self.said else "")):
            self.said.append(self.stderr.readline())
            assert self.said[-1], self.said
        self.interface, self.port = found[1], int(found[2])
        # Nobody may have to wait for a reader of what it says.
        self.reader = threading.Thread(target=lambda: self.said.extend(self.stderr), daemon=True)
        self.reader.start()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(LIMIT)
        self.reader.join(LIMIT)
        self.stderr.close()

    def connection(self) -> HTTPConnection:
        if self.context is not None:
            return HTTPSConnection("127.0.0.1", self.port, timeout=LIMIT, context=self.context)
        return HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        with contextlib.closing(self.connection()) as connection:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()

    @contextlib.contextmanager
    def events(self) -> Iterator[tuple[HTTPConnection, Any]]:
        """A stream of events of which the first was read."""
        with contextlib.closing(self.connection()) as connection:
            connection.request("GET", "/events")
            answer = connection.getresponse()
            assert answer.status == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.readline().strip() == b"data: tick"
            yield connection, answer
            answer.close()

    def websocket(self, path: str) -> Any:
        from websockets.sync.client import connect

        scheme = "wss" if self.context else "ws"
        return connect(f"{scheme}://127.0.0.1:{self.port}{path}", ssl=self.context, proxy=None, open_timeout=LIMIT)

    def closed_streams(self) -> int:
        path = self.folder / "closed"
        return len(path.read_text()) if path.exists() else 0


def wait_until(true: Any) -> None:
    end = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def many(served: Served) -> None:
    """Ordinary and asynchronous endpoints, from many connections at once."""
    seen: Counter[object] = Counter()

    def client(path: str) -> None:
        try:
            with contextlib.closing(served.connection()) as connection:
                for _ in range(REQUESTS):
                    connection.request("GET", path)
                    answer = connection.getresponse()
                    seen[answer.status, answer.read()] += 1
        except Exception as e:
            seen[repr(e)] += 1

    threads = [
        threading.Thread(target=client, args=(path,)) for path in ("/sync", "/async") for _ in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {(200, b"done"): len(threads) * REQUESTS}


def leave(served: Served) -> None:
    """A client that is cut in the middle of events: their generator is closed."""
    before = served.closed_streams()
    with served.events() as (connection, _):
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: served.closed_streams() > before)


def signalled(served: Served, number: int, with_websockets: bool) -> None:
    """A slow request, events and a WebSocket are open at the signal: the answer arrives, the others are ended."""
    from websockets.exceptions import ConnectionClosed

    before = served.closed_streams()
    with contextlib.ExitStack() as stack:
        _, events = stack.enter_context(served.events())
        if with_websockets:
            ws = stack.enter_context(served.websocket("/ws"))
            ws.send("open")
            assert ws.recv() == "open"
        slow = stack.enter_context(contextlib.closing(served.connection()))
        slow.request("GET", "/slow")
        time.sleep(0.1)  # it is with the application; were it not, it would be served as well
        served.process.send_signal(number)
        answer = slow.getresponse()
        assert (answer.status, answer.read()) == (200, b"done")
        if with_websockets:
            with pytest.raises(ConnectionClosed) as told:
                ws.recv(LIMIT)
            assert told.value.rcvd is not None
            assert told.value.rcvd.code == 1012
        with contextlib.suppress(Exception):  # ended in order or cut, as the framework lets it
            while events.read(100):
                pass
    if number == signal.SIGHUP:  # with SIGTERM the whole process ends
        wait_until(lambda: served.closed_streams() > before)


ALL = os.environ.get("CORO_HTTP_FRAMEWORKS") == "all"
CASES = [(name, *mode) for n, name in enumerate(APPLICATIONS) for mode in (MODES if ALL else [MODES[n % len(MODES)]])]


@pytest.mark.parametrize(("name", "over_tls", "workers"), CASES)
def test_a_framework_is_served(name: str, over_tls: bool, workers: int, tmp_path: Path) -> None:
    from websockets.exceptions import InvalidStatus

    library, interface, source, with_websockets = APPLICATIONS[name]
    require_library(library, "websockets")
    served = Served(tmp_path, source, over_tls, workers)
    try:
        assert served.interface == interface
        many(served)
        assert served.ask("POST", "/upload", bytes(1_000_000)) == (200, b"1000000")
        assert served.ask("GET", "/nowhere")[0] == 404
        if with_websockets:
            with served.websocket("/ws") as ws:
                ws.send("\u00fc")
                assert ws.recv() == "\u00fc"
            with pytest.raises(InvalidStatus) as refused:
                served.websocket("/denied")
            assert refused.value.response.status_code == 403
        if name.startswith("django"):
            assert b"Log in" in served.ask("GET", "/admin/login/")[1]
        leave(served)
        signalled(served, signal.SIGHUP, with_websockets)
        many(served)
        signalled(served, signal.SIGTERM, with_websockets)
        assert served.process.wait(LIMIT) == 0
        served.reader.join(LIMIT)
        if name != "quart":  # it raises ClientDisconnectedError where the end of the drain cuts a stream
            assert "Traceback" not in "".join(served.said)
    except BaseException:
        print("".join(served.said)[-6000:])
        raise
    finally:
        served.close()
