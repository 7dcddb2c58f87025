"""WSGI and ASGI servers, one for each peer: `python gateway_server.py PEER CASE`, prints the port and serves until
killed.

Each serves the same application, which answers with 13 bytes; with ``wait`` in the case it sleeps so many seconds
before. One process, one core.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from http_server import asgi, bjoern, free_port, granian, uvicorn, wsgi

WAIT = 0.0


def waiting(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    time.sleep(WAIT)
    return wsgi(environ, start_response)


def _serve(handler: Any, address: str) -> None:
    from coro import http

    http.serve(handler, (address, 0), started=lambda server: print(server.port, flush=True))


def coro(address: str, kind: str) -> None:
    import coro as library

    if kind == "asgi":
        from coro.http.asgi import ASGIHandler

        _serve(ASGIHandler(asgi, lifespan="off"), address)
    else:
        from coro.http.wsgi import WSGIHandler

        library.install_thread_emulation()
        _serve(WSGIHandler(waiting if WAIT else wsgi), address)


def gunicorn(address: str, kind: str) -> None:
    port = free_port(address)
    print(port, flush=True)
    os.environ["WAIT"] = str(WAIT)
    where = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, "-m", "gunicorn", "-k", "gevent", "-w", "1", "-b", f"{address}:{port}", "--chdir", where]
    app = "gateway_server:waiting" if WAIT else "gateway_server:wsgi"
    os.execv(
        sys.executable, [*command, "--log-level", "error", "--keep-alive", "75", "--worker-connections", "2000", app]
    )


if __name__ == "__main__":
    case = json.loads(sys.argv[2])
    WAIT = case.get("wait", 0.0)
    kind = case.get("kind", "wsgi")
    if sys.argv[1] == "bjoern":
        bjoern(case["address"], False)
    elif sys.argv[1] == "granian":
        granian(case["address"], False, kind)
    elif sys.argv[1] == "uvicorn":
        uvicorn(case["address"], False)
    else:
        globals()[sys.argv[1]](case["address"], kind)
else:
    WAIT = float(os.environ.get("WAIT", "0"))
