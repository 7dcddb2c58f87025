"""The smallest WebSocket server: python docs/examples/http/echo.py. It answers each message with the same."""

from __future__ import annotations

from coro import http
from coro.http import websocket

app = http.App()


def echo(ws: websocket.WebSocket) -> None:
    for message in ws:
        ws.send(message)


app.get("/")(websocket.endpoint(echo, deflate=True))

if __name__ == "__main__":
    http.serve(app, ("127.0.0.1", 8080))
