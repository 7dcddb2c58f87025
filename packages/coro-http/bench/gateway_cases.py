"""What is measured of WSGI and ASGI: processor time of a server for an application that answers at once, and requests
a second of one that waits."""

from __future__ import annotations

from tools.bench._captions import Caption
from tools.bench._suites import Case, Rival

CAPTIONS = {
    "http-gateway": Caption(
        "WSGI and ASGI", "Processor time of a server for a GET that an application answers with 13 bytes."
    ),
    "http-waiting": Caption(
        "WSGI, an application that waits",
        "Time per request, 512 clients, of an application that sleeps for 10 ms; one process.",
    ),
}


def _case(name: str, kind: str, rivals: tuple[Rival, ...]) -> Case:
    return Case(
        "http-gateway",
        name,
        "gateway_server.py",
        {"kind": kind},
        rivals,
        kind="server",
        client="http_load",
        load={"connections": 100, "size": 13, "requests": 60_000},
    )


CASES = (
    _case("WSGI, 13 bytes", "wsgi", (Rival("bjoern", 1.2), Rival("gunicorn", 0.3), Rival("granian"))),
    _case("ASGI, 13 bytes", "asgi", (Rival("uvicorn", 0.75), Rival("granian"))),
    Case(
        "http-waiting",
        "10 ms, 512 clients",
        "gateway_server.py",
        {"kind": "wsgi", "wait": 0.01},
        (Rival("gunicorn", 0.25),),
        kind="server",
        metric="wall",
        client="http_load",
        load={"connections": 512, "size": 13, "requests": 30_000},
    ),
)
DISTRIBUTIONS = {"gunicorn": "gunicorn[gevent]"}
