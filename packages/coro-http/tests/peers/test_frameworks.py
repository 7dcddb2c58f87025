"""Flask, Django, Starlette, FastAPI and asgiref's adapter, served; the clients are urllib, websockets, and ours."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

import pytest
from http_support import serving
from real_programs import require_library

import coro
from coro.http import websocket
from coro.http.asgi import ASGIHandler
from coro.http.client import Client
from coro.http.wsgi import WSGIHandler
from coro.testing import coro_test

pytestmark = pytest.mark.slow


@coro_test(leaks=False)
def test_flask():
    require_library("flask")
    import flask

    app = flask.Flask("served")

    @app.post("/form/<name>")
    def form(name):
        upload = flask.request.files["file"]
        return {
            "name": name,
            "field": flask.request.form["field"],
            "size": len(upload.read()),
            "q": flask.request.args["q"],
        }

    @app.get("/stream")
    def stream():
        return flask.Response((f"{i}\n" for i in range(1000)), mimetype="text/plain")

    @app.get("/cookie")
    def cookie():
        answer = flask.make_response("set")
        answer.set_cookie("seen", flask.request.cookies.get("seen", "no") + "!")
        return answer

    @app.get("/wait")
    def wait():
        coro.sleep_relative(0.001)
        return "waited"

    @app.get("/fail")
    def fail():
        raise KeyError("secret")

    with serving(WSGIHandler(app)) as server, Client(base_url=f"http://127.0.0.1:{server.port}") as client:
        answer = client.post("/form/you?q=1", data={"field": "\u00fc"}, files={"file": ("name.txt", b"x" * 100_000)})
        assert answer.json() == {"name": "you", "field": "\u00fc", "size": 100_000, "q": "1"}
        assert client.get("/stream").text.splitlines() == [str(i) for i in range(1000)]
        client.get("/cookie")
        assert "seen" in (client.get("/cookie").headers.get("set-cookie") or "")
        threads = [coro.spawn(client.get, "/wait") for _ in range(50)]
        assert {thread.get().text for thread in threads} == {"waited"}
        answer = client.get("/fail")
        assert answer.status == 500
        assert "secret" not in answer.text


DJANGO = """
    import os, sys
    import django
    from django.conf import settings

    settings.configure(
        DEBUG=False, SECRET_KEY="for tests only", ALLOWED_HOSTS=["*"], ROOT_URLCONF="project", USE_TZ=True,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["DATABASE"]}},
        INSTALLED_APPS=["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
                        "django.contrib.sessions", "django.contrib.messages"],
        MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware",
                    "django.middleware.csrf.CsrfViewMiddleware",
                    "django.contrib.auth.middleware.AuthenticationMiddleware",
                    "django.contrib.messages.middleware.MessageMiddleware"],
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
                    "OPTIONS": {"context_processors": ["django.template.context_processors.request",
                                "django.contrib.auth.context_processors.auth",
                                "django.contrib.messages.context_processors.messages"]}}],
        DEFAULT_AUTO_FIELD="django.db.models.AutoField", STATIC_URL="/static/",
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    )
    django.setup()
    from django.contrib import admin
    from django.core.management import call_command
    from django.core.wsgi import get_wsgi_application
    from django.urls import path

    urlpatterns = [path("admin/", admin.site.urls)]
    if not os.path.exists(os.environ["DATABASE"]):
        from django.contrib.auth import get_user_model
        call_command("migrate", verbosity=0)
        get_user_model().objects.create_superuser("root", "root@example.com", "secret")
    app = get_wsgi_application()
"""


def test_django_admin(tmp_path):
    """Log in, add a user, find it, delete it: a client clicks through the pages."""
    require_library("django")
    (tmp_path / "project.py").write_text(textwrap.dedent(DJANGO))
    process = subprocess.Popen(
        [sys.executable, "-m", "coro.http", "serve", "project", "--app-dir", str(tmp_path), "-b", "127.0.0.1:0",
         "--access-log", "off"],
        stderr=subprocess.PIPE, text=True, env={"DATABASE": str(tmp_path / "db"), "PATH": ""}, cwd=tmp_path,
    )  # fmt: skip
    try:
        said = ""
        while not (found := re.search(r"on (http://[^, ]+)", said)):
            line = process.stderr.readline()
            assert line, said
            said += line
        url = found[1]

        @coro_test(leaks=False)
        def click():
            with Client(base_url=url) as client:

                def submit(page, **fields):
                    form = client.get(page).text
                    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
                    assert token, form[:2000]
                    answer = client.post(page, data={"csrfmiddlewaretoken": token[1], **fields})
                    assert answer.status == 200, answer.text[:2000]
                    return answer.text

                assert "Log in" in client.get("/admin/").text
                page = submit("/admin/login/", username="root", password="secret", next="/admin/")
                assert "Site administration" in page
                page = submit(
                    "/admin/auth/user/add/",
                    username="someone",
                    password1="Long-enough-7",
                    password2="Long-enough-7",
                    usable_password="true",
                )
                assert "was added successfully" in page
                number = re.search(r"/admin/auth/user/(\d+)/", client.get("/admin/auth/user/?q=someone").text)[1]
                assert "Are you sure" in client.get(f"/admin/auth/user/{number}/delete/").text
                assert "was deleted successfully" in submit(f"/admin/auth/user/{number}/delete/", post="yes")

        click()
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


@coro_test(leaks=False)
def test_starlette():
    require_library("starlette")
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
    from starlette.routing import Route, WebSocketRoute

    ran = coro.event()

    async def form(request):
        return JSONResponse({"q": request.query_params["q"], "body": len(await request.body())})

    async def stream(request):
        async def lines():
            for i in range(1000):
                yield f"{i}\n"

        return StreamingResponse(lines(), media_type="text/plain")

    async def later(request):
        return PlainTextResponse("now", background=BackgroundTask(ran.set))

    def in_a_thread(request):
        return PlainTextResponse("from a thread")

    async def echo(ws):
        await ws.accept()
        async for text in ws.iter_text():
            await ws.send_text(text.upper())

    class Adds(BaseHTTPMiddleware):
        async def dispatch(self, request, call_next):
            answer = await call_next(request)
            answer.headers["x-added"] = "yes"
            return answer

    routes = [
        Route("/form", form, methods=["POST"]), Route("/stream", stream), Route("/thread", in_a_thread),
        WebSocketRoute("/ws", echo), Route("/later", later),
    ]  # fmt: skip
    app = Starlette(routes=routes, middleware=[Middleware(Adds)])
    with ASGIHandler(app) as handler, serving(handler) as server:
        with Client(base_url=f"http://127.0.0.1:{server.port}") as client:
            answer = client.post("/form?q=1", content=b"x" * 300_000)
            assert (answer.json(), answer.headers.get("x-added")) == ({"q": "1", "body": 300_000}, "yes")
            assert client.get("/stream").text.splitlines() == [str(i) for i in range(1000)]
            assert client.get("/thread").text == "from a thread"
        with websocket.connect(f"ws://127.0.0.1:{server.port}/ws") as ws:
            ws.send("hello")
            assert ws.receive() == "HELLO"


@coro_test(leaks=False)
def test_fastapi_and_the_client_of_websockets():
    require_library("fastapi")
    require_library("websockets")
    import asyncio

    import fastapi
    import websockets.asyncio.client

    from coro import asyncio_bridge

    app = fastapi.FastAPI()

    @app.get("/item/{number}")
    async def item(number: int, q: str | None = None):
        await asyncio.sleep(0)
        return {"number": number, "q": q}

    async def echo(ws):
        await ws.accept(subprotocol="chat")
        try:
            while True:
                await ws.send_bytes(await ws.receive_bytes())
        except fastapi.WebSocketDisconnect:
            pass

    echo.__annotations__ = {"ws": fastapi.WebSocket}  # not as text: it is no global name here
    app.websocket("/ws")(echo)

    async def talk(port):
        async with websockets.asyncio.client.connect(f"ws://127.0.0.1:{port}/ws", subprotocols=["chat"]) as ws:
            assert ws.subprotocol == "chat"
            for size in (0, 1, 125, 126, 65_536, 500_000):
                await ws.send(bytes(size))
                assert await ws.recv() == bytes(size)
            await (await ws.ping())

    with ASGIHandler(app) as handler, serving(handler) as server:
        with Client(base_url=f"http://127.0.0.1:{server.port}") as client:
            assert client.get("/item/7?q=x").json() == {"number": 7, "q": "x"}
            assert client.get("/item/seven").status == 422
            assert client.get("/openapi.json").json()["paths"]
        asyncio_bridge.run(talk(server.port))


@coro_test(leaks=False)
def test_the_adapter_of_asgiref():
    require_library("asgiref")
    from asgiref.wsgi import WsgiToAsgi

    def wsgi(environ, start_response):
        body = environ["wsgi.input"].read(100)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"got ", body]

    with serving(ASGIHandler(WsgiToAsgi(wsgi), lifespan="off")) as server:
        with Client(base_url=f"http://127.0.0.1:{server.port}") as client:
            assert client.post("/", content=b"abc").content == b"got abc"
