"""What is measured of WebSockets: processor time of a server for an echo, beside the usual libraries."""

from __future__ import annotations

from tools.bench._captions import Caption
from tools.bench._suites import Case, Rival

CAPTIONS = {
    "http-websocket": Caption("WebSocket echo", "Processor time of a server to receive a message and send it back.")
}
CASES = (
    Case(
        "http-websocket",
        "125 bytes, 100 connections",
        "ws_server.py",
        {},
        (Rival("websockets", 0.3), Rival("picows", 1.0)),
        kind="server",
        client="ws_load",
        load={"connections": 100, "size": 125, "requests": 100_000},
    ),
)
DISTRIBUTIONS = {"websockets": "websockets", "picows": "picows"}
