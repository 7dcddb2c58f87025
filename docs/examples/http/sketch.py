"""A shared sketch: python docs/examples/http/sketch.py [FILE], then open http://127.0.0.1:8080/ twice.

From the browser: ``MD,x,y`` the pen is down, ``MM,x,y`` it moves, ``MU`` it is up, ``CD`` clear the drawing, ``ND`` a
new one, ``PD`` the one before. To all browsers: ``D,x0,y0,x1,y1`` a line, ``CD`` clear. The drawings are kept as JSON
in FILE, if there is one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from coro import http
from coro.http import websocket

PAGE = """<!doctype html><meta charset="utf-8"><title>Sketch</title>
<style>
  body { font: 16px sans-serif; text-align: center }
  canvas { border: 1px solid #999; touch-action: none }
</style>
<h1>Sketch</h1><canvas id="board" width="600" height="400"></canvas>
<p><button id="CD">clear</button> <button id="ND">new</button> <button id="PD">previous</button></p>
<script>
  const ws = new WebSocket(location.origin.replace("http", "ws") + "/sketch");
  const board = document.getElementById("board"), pen = board.getContext("2d");
  pen.lineWidth = 2; let down = false;
  const at = event => Math.round(event.offsetX) + "," + Math.round(event.offsetY);
  board.onpointerdown = event => { down = true; ws.send("MD," + at(event)); };
  board.onpointermove = event => { if (down) ws.send("MM," + at(event)); };
  onpointerup = () => { if (down) ws.send("MU"); down = false; };
  for (const name of ["CD", "ND", "PD"]) document.getElementById(name).onclick = () => ws.send(name);
  ws.onmessage = event => {
    const [kind, ...n] = event.data.split(",");
    if (kind === "CD") { pen.clearRect(0, 0, board.width, board.height); return; }
    pen.beginPath(); pen.moveTo(+n[0], +n[1]); pen.lineTo(+n[2], +n[3]); pen.stroke();
  };
</script>"""

#: More lines than anybody draws; a client that sends more overwrites nothing and is ignored.
MOST_LINES = 100_000

Line = tuple[int, int, int, int]


class Board:
    """The drawings, and who looks at them."""

    def __init__(self, path: str | None = None) -> None:
        self.path = Path(path) if path else None
        self.drawings: list[list[Line]] = [[]]
        self.shown = 0
        self.viewers: set[websocket.WebSocket] = set()
        if self.path is not None and self.path.exists():
            self.drawings = [[tuple(line) for line in drawing] for drawing in json.loads(self.path.read_text())]
            self.shown = len(self.drawings) - 1

    def tell(self, text: str) -> None:
        for ws in list(self.viewers):
            try:
                ws.send(text)
            except websocket.WebSocketClosed:
                continue

    def show(self, ws: websocket.WebSocket) -> None:
        for line in self.drawings[self.shown]:
            ws.send("D,{},{},{},{}".format(*line))

    def draw(self, line: Line) -> None:
        if len(self.drawings[self.shown]) < MOST_LINES:
            self.drawings[self.shown].append(line)
            self.tell("D,{},{},{},{}".format(*line))

    def turn(self, shown: int) -> None:
        """Another drawing for everybody."""
        self.shown = max(0, shown)
        if self.shown == len(self.drawings):
            self.drawings.append([])
        self.tell("CD")
        for ws in list(self.viewers):
            self.show(ws)

    def save(self) -> None:
        if self.path is not None:
            self.path.write_text(json.dumps(self.drawings))


board = Board()
app = http.App()


@app.get("/")
def page(request: http.http_request) -> http.Response:
    return http.Response(PAGE, headers={"content-type": "text/html; charset=utf-8"})


@app.get("/sketch")
def sketch(request: http.http_request) -> None:
    with websocket.accept(request, max_message=64) as ws:
        board.show(ws)
        board.viewers.add(ws)
        pen: tuple[int, int] | None = None
        try:
            for message in ws:
                kind, *numbers = str(message).split(",")
                if kind in ("MD", "MM"):
                    x, y = (min(9999, max(0, int(n))) for n in numbers)
                    if kind == "MM" and pen is not None:
                        board.draw((*pen, x, y))
                    pen = x, y
                elif kind == "MU":
                    pen = None
                    board.save()
                elif kind == "CD":
                    board.drawings[board.shown].clear()
                    board.tell("CD")
                elif kind == "ND":
                    board.turn(len(board.drawings))
                elif kind == "PD":
                    board.turn(board.shown - 1)
        finally:
            board.viewers.discard(ws)


if __name__ == "__main__":
    board = Board(sys.argv[1] if len(sys.argv) > 1 else None)
    http.serve(app, ("127.0.0.1", 8080))
