"""A chat in the browser: python docs/examples/http/web_chat.py, then open http://127.0.0.1:8080/ twice.

The first text of a connection is the name. Each person gets one of seven colours. The server sends objects of JSON:
``{"kind": "color", "color"}`` to the newcomer, and ``{"kind": "message", "time", "text", "author", "color"}`` to all.
"""

from __future__ import annotations

import itertools
import json
import time

from coro import http
from coro.http import websocket

COLORS = ("crimson", "royalblue", "seagreen", "darkorange", "purple", "teal", "saddlebrown")

PAGE = """<!doctype html><meta charset="utf-8"><title>Chat</title>
<style>
  body { font: 16px/1.4 sans-serif; max-width: 40em; margin: 2em auto; padding: 0 1em }
  #log { border: 1px solid #ccc; height: 20em; overflow-y: auto; padding: .5em; margin-bottom: .5em }
  input { width: 100%; box-sizing: border-box; font: inherit; padding: .4em }
  b { margin-right: .5em } time { color: #999; margin-right: .5em; font-size: 80% }
</style>
<h1>Chat</h1><div id="log"></div><input id="text" placeholder="your name" autofocus>
<script>
  const ws = new WebSocket(location.origin.replace("http", "ws") + "/chat");
  const log = document.getElementById("log"), text = document.getElementById("text");
  ws.onmessage = event => {
    const m = JSON.parse(event.data);
    if (m.kind === "color") { text.style.color = m.color; text.placeholder = "say something"; return; }
    const line = document.createElement("div"), author = document.createElement("b");
    const when = document.createElement("time");
    author.textContent = m.author; author.style.color = m.color; when.textContent = m.time;
    line.append(when, author, m.text); log.append(line); line.scrollIntoView();
  };
  ws.onclose = () => { text.disabled = true; text.placeholder = "disconnected"; };
  text.onkeydown = event => { if (event.key === "Enter" && text.value) { ws.send(text.value); text.value = ""; } };
</script>"""

app = http.App()
people: dict[websocket.WebSocket, str] = {}
colors = itertools.cycle(COLORS)


def tell(author: str, color: str, text: str) -> None:
    """Send a message to everybody; those who have gone are dropped by their own threads."""
    data = {"kind": "message", "time": time.strftime("%H:%M:%S"), "text": text, "author": author, "color": color}
    for ws in list(people):
        try:
            ws.send(json.dumps(data))
        except websocket.WebSocketClosed:
            continue


@app.get("/")
def page(request: http.http_request) -> http.Response:
    return http.Response(PAGE, headers={"content-type": "text/html; charset=utf-8"})


@app.get("/chat")
def chat(request: http.http_request) -> None:
    with websocket.accept(request, max_message=4096) as ws:
        color = next(colors)
        name = str(ws.receive())[:40]
        people[ws] = name
        try:
            ws.send(json.dumps({"kind": "color", "color": color}))
            tell(name, color, "has come")
            for text in ws:
                tell(name, color, str(text))
        finally:
            del people[ws]
            tell(name, color, "has left")


if __name__ == "__main__":
    http.serve(app, ("127.0.0.1", 8080))
