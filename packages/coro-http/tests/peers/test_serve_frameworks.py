"""Frameworks under plain ``python -m coro.http serve``: ordinary and asynchronous endpoints, many connections at once,
workers. What the interface is, serve finds out by itself. A framework is an application with ``/sync`` and, if it can,
``/async``, and a line in the table."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from http.client import HTTPConnection

import pytest
from real_programs import require_library

pytestmark = [pytest.mark.slow, pytest.mark.newest]

LIMIT = 60  # seconds, for a hang only
CONNECTIONS, REQUESTS = 20, 10

FASTAPI = """
    import asyncio
    from fastapi import FastAPI
    app = FastAPI()

    @app.get("/sync")
    def sync():
        return "done"

    @app.get("/async")
    async def wait():
        await asyncio.sleep(0)
        return "done"
"""
STARLETTE = """
    import asyncio
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    def sync(request):
        return PlainTextResponse("done")

    async def wait(request):
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(3)))
        return PlainTextResponse("done")

    app = Starlette(routes=[Route("/sync", sync), Route("/async", wait)])
"""
FLASK = """
    import time
    from flask import Flask
    app = Flask(__name__)

    @app.get("/sync")
    def sync():
        time.sleep(0.001)
        return "done"
"""
DJANGO = """
    import asyncio
    from django.conf import settings
    settings.configure(SECRET_KEY="for tests only", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__)
    from django.core.{kind} import get_{kind}_application
    from django.http import HttpResponse
    from django.urls import path

    def sync(request):
        return HttpResponse("done")

    async def wait(request):
        await asyncio.sleep(0)
        return HttpResponse("done")

    urlpatterns = [path("sync", sync), path("async", wait)]
    app = get_{kind}_application()
"""
#: library, interface, its source, and the paths asked for.
APPLICATIONS = {
    "fastapi": ("fastapi", "ASGI", FASTAPI, ("/sync", "/async")),
    "starlette": ("starlette", "ASGI", STARLETTE, ("/sync", "/async")),
    "flask": ("flask", "WSGI", FLASK, ("/sync",)),
    "django-asgi": ("django", "ASGI", DJANGO.format(kind="asgi"), ("/sync", "/async")),
    "django-wsgi": ("django", "WSGI", DJANGO.format(kind="wsgi"), ("/sync",)),
}


def ask(port: int, path: str, seen: Counter[object]) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    try:
        for _ in range(REQUESTS):
            connection.request("GET", path)
            answer = connection.getresponse()
            seen[answer.status, answer.read().strip(b'"')] += 1
    except Exception as e:
        seen[repr(e)] += 1
    finally:
        connection.close()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", APPLICATIONS)
def test_many_connections(name, workers, tmp_path):
    library, interface, source, paths = APPLICATIONS[name]
    require_library(library)
    (tmp_path / "served_framework.py").write_text(textwrap.dedent(source))
    process = subprocess.Popen(
        [sys.executable, "-m", "coro.http", "serve", "served_framework:app", "--app-dir", str(tmp_path),
         "-b", "127.0.0.1:0", "-w", str(workers), "--access-log", "off"],
        stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    said: list[str] = []
    # Nobody may have to wait for a reader of what it says.
    reader = threading.Thread(target=lambda: said.extend(process.stderr), daemon=True)
    try:
        while not (found := re.search(r"\((\w+)\) on http://127\.0\.0\.1:(\d+)", said[-1] if said else "")):
            said.append(process.stderr.readline())
            assert said[-1], said
        reader.start()
        assert found[1] == interface
        seen: Counter[object] = Counter()
        threads = [
            threading.Thread(target=ask, args=(int(found[2]), path, seen)) for path in paths for _ in range(CONNECTIONS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == {(200, b"done"): len(threads) * REQUESTS}, "".join(said)[-4000:]
    finally:
        process.terminate()
        process.wait(LIMIT)
        if reader.ident is not None:
            reader.join(LIMIT)
        process.stderr.close()
    assert process.returncode == 0, "".join(said)[-4000:]
