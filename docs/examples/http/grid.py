"""A page without scripts: python docs/examples/http/grid.py, then open http://127.0.0.1:8080/ in two windows.

Buttons of a form move an X over a grid that all visitors share. The page is compressed for browsers that take it, and
each connection is used again. ``/source`` shows this program.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from coro import http

SIZE = 10
MOVES = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}

PAGE = """<!doctype html><meta charset="utf-8"><title>Grid</title>
<style>
  body {{ font: 16px sans-serif; max-width: 30em; margin: 2em auto }}
  td {{ width: 1.6em; height: 1.6em; border: 1px solid #ccc; text-align: center; font-weight: bold; color: crimson }}
  table {{ border-collapse: collapse; margin-bottom: 1em }}
</style>
<h1>Grid</h1>
<table>{rows}</table>
<form method="post" action="/move">{buttons}</form>
<p><span id="moves">{moves}</span> moves so far. <a href="/source">The program</a></p>
"""


class Grid:
    """What all visitors share. There is no lock: no other thread runs between two calls that wait."""

    def __init__(self) -> None:
        self.x = self.y = SIZE // 2
        self.moves = 0

    def move(self, name: str) -> None:
        dx, dy = MOVES[name]
        self.x = (self.x + dx) % SIZE
        self.y = (self.y + dy) % SIZE
        self.moves += 1

    def page(self) -> str:
        rows = "".join(
            "<tr>" + "".join(f"<td>{'X' if (x, y) == (self.x, self.y) else ''}</td>" for x in range(SIZE)) + "</tr>"
            for y in range(SIZE)
        )
        buttons = " ".join(f'<button name="move" value="{name}">{name}</button>' for name in MOVES)
        return PAGE.format(rows=rows, buttons=buttons, moves=self.moves)


app = http.App()
grid = Grid()


@app.get("/")
def page(request: http.http_request) -> http.Response:
    return http.Response(grid.page(), headers={"content-type": "text/html; charset=utf-8"})


@app.post("/move")
def move(request: http.http_request) -> None:
    with request.form() as form:
        name = form.get("move")
    if name not in MOVES:
        raise http.HTTPException(400, f"expected a move, one of {', '.join(MOVES)}")
    grid.move(name)
    # After a POST the browser is sent to the page, so that loading it again moves nothing.
    raise http.HTTPException(303, headers=[("location", "/")])


@app.get("/source")
def source(request: http.http_request) -> http.Response:
    text = escape(Path(__file__).read_text("utf-8"))
    return http.Response(f"<!doctype html><pre>{text}</pre>", headers={"content-type": "text/html; charset=utf-8"})


if __name__ == "__main__":
    http.serve(app, ("127.0.0.1", 8080))
