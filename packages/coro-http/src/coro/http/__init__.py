"""HTTP/1.1 and WebSocket: servers and clients whose every request has a thread of its own.

    from coro import http

    app = http.App()

    @app.get("/hello/{name}")
    def hello(request, name):
        return f"hello, {name}\\n"

    http.serve(app, ("127.0.0.1", 8080))

This file holds names only. Each is imported when it is first asked for, so that a client does not pay for the server.
"""

from __future__ import annotations

import typing as _typing

from coro.http._core import explained as _explained

__version__ = "0.1.0"

# name -> the module that has it
_FROM = {
    "Client": "client",
    "HTTPError": "exceptions",
    "HTTPException": "exceptions",
    "HTTP_Upgrade": "exceptions",
    "LocalError": "exceptions",
    "RemoteError": "exceptions",
    "header_set": "headers",
    "App": "routing",
    "Hosts": "routing",
    "Response": "routing",
    "redirect": "routing",
    "serve": "_server",
    "server": "_server",
    "connection": "_connection",
    "http_request": "_connection",
}

if _typing.TYPE_CHECKING:
    from coro.http import h1 as h1
    from coro.http._connection import connection, http_request
    from coro.http._server import serve, server
    from coro.http.client import Client
    from coro.http.exceptions import HTTP_Upgrade, HTTPError, HTTPException, LocalError, RemoteError
    from coro.http.headers import header_set
    from coro.http.routing import App, Hosts, Response, redirect
else:

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name.startswith("_"):
            raise AttributeError(f"module 'coro.http' has no attribute {name!r}")
        with _explained():
            if name in _FROM:
                found = getattr(import_module("coro.http." + _FROM[name]), name)
            else:
                try:
                    found = import_module("coro.http." + name)
                except ModuleNotFoundError as e:
                    if e.name != "coro.http." + name:
                        raise
                    found = None
        if found is None:
            raise AttributeError(f"module 'coro.http' has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_FROM})


__all__ = [
    "App",
    "Client",
    "HTTPError",
    "HTTPException",
    "HTTP_Upgrade",
    "Hosts",
    "LocalError",
    "RemoteError",
    "Response",
    "connection",
    "header_set",
    "http_request",
    "redirect",
    "serve",
    "server",
]
