"""What `python -m tools.bench run --suite http-server` and others measure of coro-http.

The server is here; other parts are in files of their own.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tools.bench._captions import Caption
from tools.bench._suites import KIB, Case, Rival

CAPTIONS = {
    "http-server": Caption("HTTP server", "Processor time of a server for a GET over connections that are kept open."),
    "http-memory": Caption("HTTP server, memory", "Memory of an idle connection that has served a request."),
    "http-parser": Caption("HTTP parser", "Processor time to read a browser's request and collect its fields."),
}


def _server(
    name: str, rivals: tuple[Rival, ...], connections: int = 100, size: int = 13, requests: int = 60_000
) -> Case:
    return Case(
        "http-server",
        name,
        "http_server.py",
        {"static": size > 13},
        rivals,
        kind="server",
        client="http_load",
        load={"connections": connections, "size": size, "requests": requests},
    )


CASES = (
    _server(
        "13 bytes, 100 connections",
        (
            Rival("bjoern", 1.0),
            Rival("uvicorn", 0.4),
            Rival("gevent", 0.1),
            Rival("granian"),
            Rival("nginx"),
        ),
    ),
    _server("a file of 100 KiB, 50 connections", (Rival("nginx", 1.5),), 50, 102_400, 20_000),
    _server("13 bytes, 9000 connections", (Rival("coro, 1", 1.5, "coro", load={"connections": 1}),), 9_000, 13, 90_000),
    Case(
        "http-memory",
        "an idle connection",
        "http_server.py",
        {},
        (Rival("gevent"), Rival("uvicorn")),
        kind="server",
        metric="bytes",
        client="http_load",
        own_bar=3 * KIB,
        load={"connections": 9_000, "size": 13, "requests": 9_000},
    ),
    Case("http-parser", "a browser's request", "parse.py", {"count": 200_000}, (Rival("httptools", 1.0),)),
)
DISTRIBUTIONS = {
    "uvicorn": "uvicorn[standard]",
    "gevent": "gevent",
    "bjoern": "bjoern",
    "granian": "granian",
    "httptools": "httptools",
}

# The cases of the other parts lie beside this file.
for _path in sorted(Path(__file__).parent.glob("*_cases.py")):
    _spec = importlib.util.spec_from_file_location(f"coro_http_{_path.stem}", _path)
    assert _spec is not None and _spec.loader is not None
    _module = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)
    CAPTIONS.update(_module.CAPTIONS)
    CASES += _module.CASES
    DISTRIBUTIONS.update(_module.DISTRIBUTIONS)
