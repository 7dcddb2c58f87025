"""HTTP servers, one for each peer: `python http_server.py PEER CASE`, prints the port and serves until killed.

Each answers GET /13 with the same 13 bytes of text, as its users would write it: a route for coro, a raw ASGI function
for uvicorn (on uvloop with httptools) and granian, a WSGI function for gevent and bjoern, a line of its configuration
for nginx. With ``static`` in the case GET /102400 is a file of that size, which nginx sends, too.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from importlib import import_module
from typing import Any

TEXT = "Hello, world!"
FILE_SIZE = 102_400


def free_port(address: str) -> int:
    """For servers that cannot say which port they were given."""
    with socket.socket() as s:
        s.bind((address, 0))
        return int(s.getsockname()[1])


def folder() -> str:
    made = tempfile.mkdtemp(prefix="coro-http-bench-")
    os.chmod(made, 0o755)
    with open(os.path.join(made, str(FILE_SIZE)), "wb") as f:
        f.write(os.urandom(FILE_SIZE))
    return made


def coro(address: str, static: bool) -> None:
    from coro import http
    from coro.http.static import Files

    app = http.App()

    @app.get("/13")
    def hello(request: http.http_request) -> str:
        return TEXT

    http.serve(
        Files(folder()) if static else app,
        (address, 0),
        started=lambda server: print(server.port, flush=True),
    )


def wsgi(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(TEXT)))])
    return [TEXT.encode()]


async def asgi(scope: dict[str, Any], receive: Any, send: Any) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(TEXT))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": TEXT.encode()})


def gevent(address: str, static: bool) -> None:
    server = import_module("gevent.pywsgi").WSGIServer((address, 0), wsgi, log=None)
    server.start()
    print(server.server_port, flush=True)
    server.serve_forever()


def bjoern(address: str, static: bool) -> None:
    library: Any = import_module("bjoern")
    sock = library.listen(wsgi, address, 0)
    print((sock or library._default_instance[0]).getsockname()[1], flush=True)
    library.run()


def uvicorn(address: str, static: bool) -> None:
    library: Any = import_module("uvicorn")
    listener = socket.socket()
    listener.bind((address, 0))
    listener.listen(4096)
    print(listener.getsockname()[1], flush=True)
    config = library.Config(
        asgi, loop="uvloop", http="httptools", lifespan="off", log_level="error", access_log=False, backlog=4096
    )
    library.Server(config).run(sockets=[listener])


def granian(address: str, static: bool, interface: str = "asgi") -> None:
    """One worker with one thread for its runtime and one for the application; a process that watches it beside it."""
    port = free_port(address)
    print(port, flush=True)
    here = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, "-m", "granian", "--interface", interface, "--host", address, "--port", str(port)]
    command += ["--workers", "1", "--runtime-threads", "1", "--http", "1", "--no-ws", "--no-log", "--no-access-log"]
    command += ["--backlog", "4096", "--backpressure", "2048", "--working-dir", here]
    if interface == "wsgi":
        command += ["--blocking-threads", "1"]
    os.execv(sys.executable, [*command, f"http_server:{interface}"])


def nginx(address: str, static: bool) -> None:
    where, port = folder(), free_port(address)
    temporary = "".join(f"{n}_temp_path {where}/t;" for n in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    with open(os.path.join(where, "nginx.conf"), "w") as f:
        f.write(
            f"daemon off; master_process off; pid {where}/pid; error_log {where}/log;\n"
            "events { worker_connections 10000; }\n"
            f"http {{ {temporary} access_log off; sendfile on; tcp_nopush on; keepalive_requests 10000000;\n"
            f"server {{ listen {address}:{port} backlog=4096; root {where};\n"
            f"location = /13 {{ default_type text/plain; return 200 '{TEXT}'; }} }} }}\n"
        )
    print(port, flush=True)
    os.execvp("nginx", ["nginx", "-e", f"{where}/log", "-c", f"{where}/nginx.conf"])


if __name__ == "__main__":
    case = json.loads(sys.argv[2])
    globals()[sys.argv[1]](case["address"], case.get("static", False))
