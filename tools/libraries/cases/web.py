"""Web frameworks and the servers that they run in. Each server is asked by http.client from 100 threads."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tools.libraries.work import Work, case, library


def _get(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = f"{answer.status} {answer.read().decode()}"
    connection.close()
    return text


def _hello(work: Work) -> Callable[..., Any]:
    """A program for WSGI that takes its time."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        library("time").sleep(work.pause)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [environ["PATH_INFO"].encode()]

    return application


def _serve(work: Work, start: Callable[[], Any], stop: Callable[[], Any], port: int) -> list[Any]:
    """Start a server in a thread, ask it from all the others, stop it."""
    thread = library("threading").Thread(target=start)
    thread.start()
    work.wait_for_port(port)
    answers = work.at_once(lambda number: _get(port, f"/{number}"))
    stop()
    thread.join()
    return answers


def _flask(work: Work) -> Any:
    app = library("flask").Flask("app")
    g = library("flask").g

    @app.route("/<int:number>")  # type: ignore[misc, untyped-decorator, unused-ignore]
    def square(number: int) -> str:
        g.number = number
        library("time").sleep(work.pause)
        return str(g.number * g.number)

    return app


def _werkzeug(work: Work, app: Any) -> list[Any]:
    library("logging").getLogger("werkzeug").setLevel("ERROR")
    server = library("werkzeug.serving").make_server("127.0.0.1", 0, app, threaded=True)
    answers = _serve(work, server.serve_forever, server.shutdown, server.server_port)
    server.server_close()
    return answers


@case("Flask", quick=True)
def flask(work: Work) -> Any:
    return _werkzeug(work, _flask(work))


@case("Werkzeug", quick=True)
def werkzeug(work: Work) -> Any:
    return _werkzeug(work, _hello(work))


@case("bottle")
def bottle(work: Work) -> Any:
    app = library("bottle").Bottle()

    @app.route("/<number:int>")  # type: ignore[misc, untyped-decorator, unused-ignore]
    def square(number: int) -> str:
        library("time").sleep(work.pause)
        return str(library("bottle").request.path)

    return _werkzeug(work, app)


@case("FastAPI", "fastapi", compiled=True)
def fastapi(work: Work) -> Any:
    """Through its test client, which runs a loop of asyncio in a thread, and the function in another."""
    app = library("fastapi").FastAPI()

    def square(number: int) -> int:
        library("time").sleep(0.01)
        return number * number

    app.get("/{number}")(square)
    client = library("fastapi.testclient").TestClient(app)
    return work.at_once(lambda number: client.get(f"/{number}").json())


@case("waitress", quick=True)
def waitress(work: Work) -> Any:
    server = library("waitress.server").create_server(_hello(work), host="127.0.0.1", port=0, threads=50)
    port = server.effective_port

    def serve() -> None:
        try:
            server.run()
        except OSError:  # its own way to end: the map of sockets is closed under it
            pass

    thread = library("threading").Thread(target=serve, daemon=True)
    thread.start()
    answers = work.at_once(lambda number: _get(port, f"/{number}"))
    server.task_dispatcher.shutdown()
    return answers


@case("cheroot")
def cheroot(work: Work) -> Any:
    server = library("cheroot.wsgi").Server(("127.0.0.1", 0), _hello(work), numthreads=50, request_queue_size=200)
    server.prepare()
    return _serve(work, server.serve, server.stop, server.bind_addr[1])


@case("uvicorn")
def uvicorn(work: Work) -> Any:
    """A server for ASGI in a thread, on asyncio's own loop."""

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await library("asyncio").sleep(work.pause)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    with socket.create_server(("127.0.0.1", 0), backlog=200) as listener:
        options = {"loop": "asyncio", "lifespan": "off", "log_level": "error"}
        server = library("uvicorn").Server(library("uvicorn").Config(application, **options))

        def stop() -> None:
            server.should_exit = True

        port = listener.getsockname()[1]
        return _serve(work, lambda: server.run(sockets=[listener]), stop, port)


@case("Twisted")
def twisted(work: Work) -> Any:
    reactor = library("twisted.internet.reactor")
    site = library("twisted.web.server").Site
    resource = library("twisted.web.wsgi").WSGIResource(reactor, reactor.getThreadPool(), _hello(work))
    reactor.suggestThreadPoolSize(50)
    port = reactor.listenTCP(0, site(resource), interface="127.0.0.1", backlog=200).getHost().port

    def start() -> None:
        reactor.run(installSignalHandlers=False)

    return _serve(work, start, lambda: reactor.callFromThread(reactor.stop), port)


@case("trio")
def trio(work: Work) -> Any:
    """A loop in each of the threads, which itself asks threads."""
    module = library("trio")

    async def main(number: int) -> Any:
        await module.sleep(work.pause)
        return await module.to_thread.run_sync(lambda: number * number)

    return work.at_once(lambda number: module.run(main, number))


@case("anyio")
def anyio(work: Work) -> Any:
    module = library("anyio")

    async def main(number: int) -> Any:
        await module.sleep(work.pause)
        return await module.to_thread.run_sync(lambda: number * number)

    return work.at_once(lambda number: module.run(main, number, backend="trio" if number % 2 else "asyncio"))


@case("uvloop", compiled=True, setting="its loop runs in a worker OS thread: ``coro.in_thread(uvloop.run, main())``")
def uvloop(work: Work) -> Any:
    module = library("uvloop")

    async def main(number: int) -> Any:
        await library("asyncio").sleep(work.pause)
        return number * number

    return work.at_once(lambda number: work.aside(module.run, main(number)), 8)


_GUNICORN = """
import sys
if {emulated}:
    import coro
    coro.install_thread_emulation()
import time
from gunicorn.app.base import BaseApplication

def application(environ, start_response):
    time.sleep({pause})
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [environ["PATH_INFO"].encode()]

class Program(BaseApplication):
    def load_config(self):
        for name, value in {options}.items():
            self.cfg.set(name, value)

    def load(self):
        return application

if {emulated}:
    coro.run(Program().run)
else:
    Program().run()
"""


def _gunicorn(work: Work, pause: float, **options: Any) -> list[Any]:
    """Started, asked, told to start new workers, asked again, told to end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options |= {"bind": f"127.0.0.1:{port}", "loglevel": "warning", "timeout": 60, "graceful_timeout": 10}
    path = work.folder / "program.py"
    path.write_text(_GUNICORN.format(emulated=work.emulated, pause=pause, options=options))
    child = subprocess.Popen([sys.executable, str(path)], cwd=work.folder)
    try:
        work.wait_for_port(port)
        first = work.at_once(lambda number: _get(port, f"/{number}"))
        os.kill(child.pid, signal.SIGHUP)
        second = work.at_once(lambda number: _get(port, f"/{number}"))
        os.kill(child.pid, signal.SIGTERM)
        return [first, second, child.wait(60)]
    finally:
        child.kill()
        child.wait()


@case("gunicorn (gthread)", "gunicorn")
def gunicorn_threads(work: Work) -> Any:
    return _gunicorn(work, work.pause, worker_class="gthread", threads=50, workers=2)


@case("gunicorn (sync)", "gunicorn")
def gunicorn_sync(work: Work) -> Any:
    return _gunicorn(work, 0.0, worker_class="sync", workers=2)
