"""What is measured of the HTTP client: processor time of a keep-alive GET, beside the usual clients."""

from __future__ import annotations

from tools.bench._captions import Caption
from tools.bench._suites import Case, Rival

CAPTIONS = {
    "http-client": Caption(
        "HTTP client", "Processor time of the client for a GET of 12 bytes over connections that are kept open."
    )
}
CASES = (
    Case(
        "http-client",
        "GETs, 100 at a time",
        "client_get.py",
        {"connections": 100, "count": 20_000},
        (Rival("aiohttp on uvloop", 0.25), Rival("aiohttp"), Rival("httpx")),
    ),
    Case(
        "http-client",
        "GETs, one after the other",
        "client_get.py",
        {"connections": 1, "count": 5_000},
        (
            Rival("http.client", 0.6),
            Rival("requests", 0.1),
            Rival("aiohttp on uvloop"),
            Rival("aiohttp"),
            Rival("httpx"),
        ),
    ),
)
DISTRIBUTIONS = {"aiohttp": "aiohttp", "aiohttp on uvloop": "uvloop", "httpx": "httpx", "requests": "requests"}
