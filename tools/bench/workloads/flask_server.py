"""A Flask program on werkzeug's own server, a thread for each connection: `python flask_server.py PEER CASE`.

The program is the one of Flask's first page; only the line before its imports differs. It prints its port and serves
until killed.
"""

from __future__ import annotations

import json
import sys


def serve(address: str) -> None:
    import logging

    from flask import Flask
    from werkzeug.serving import make_server

    # A line for each request would be measured as well.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = Flask("bench")

    @app.route("/")
    def hello() -> str:
        return "Hello, World!"

    server = make_server(address, 0, app, threaded=True)
    print(server.server_port, flush=True)
    server.serve_forever()


def coro(address: str) -> None:
    import coro

    coro.install_thread_emulation()
    coro.set_latency_warning(0)
    coro.run(serve, address)


def gevent(address: str) -> None:
    from gevent import monkey

    monkey.patch_all()
    serve(address)


def threads(address: str) -> None:
    serve(address)


globals()[sys.argv[1]](json.loads(sys.argv[2])["address"])
