"""A field with 1000 wanderers: python docs/examples/http/field.py, then open http://127.0.0.1:8080/ and drag it.

The world has 5000 boxes that stand still and 1000 discs, each of which is moved by a thread of its own. A browser looks
at 1024 by 1024 points of it. A quadtree finds what is there, so a look costs what is seen, not what there is.

From the browser: ``V,x,y``, the corner of what it looks at. To the browser: a picture, which is things separated by
``|``: ``F`` begins with an empty field, ``B,colour,x,y,w,h`` is a box, ``C,colour,x,y,r`` a disc. A browser that is
slow gets fewer pictures: the thread that sends them waits for it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import coro
from coro import http
from coro.http import websocket

SIZE = 8192  # of the world, each way
VIEW = 1024
BOXES, WANDERERS = 5000, 1000
STEP, PICTURE = 0.1, 0.1  # seconds between two steps, and between two pictures
COLOURS = ("crimson", "royalblue", "seagreen", "darkorange", "purple", "teal", "saddlebrown")

PAGE = """<!doctype html><meta charset="utf-8"><title>Field</title>
<style>
  body { font: 16px sans-serif; text-align: center; margin: .5em }
  canvas { border: 1px solid #999; cursor: grab; touch-action: none; max-width: 100% }
</style>
<canvas id="field" width="1024" height="1024"></canvas><p>Drag the field. You are at <span id="at">0,0</span>.</p>
<script>
  const ws = new WebSocket(location.origin.replace("http", "ws") + "/field");
  const field = document.getElementById("field"), pen = field.getContext("2d"), size = SIZE - 1024;
  let x = 0, y = 0, down = false;
  ws.onmessage = event => {
    for (const thing of event.data.split("|")) {
      const [kind, colour, ...n] = thing.split(",");
      pen.fillStyle = colour;
      if (kind === "F") pen.clearRect(0, 0, 1024, 1024);
      else if (kind === "B") pen.fillRect(n[0] - x, n[1] - y, +n[2], +n[3]);
      else { pen.beginPath(); pen.arc(n[0] - x, n[1] - y, +n[2], 0, 7); pen.fill(); }
    }
  };
  field.onpointerdown = event => { down = true; field.setPointerCapture(event.pointerId); };
  field.onpointerup = () => { down = false; };
  field.onpointermove = event => {
    if (!down) return;
    x = Math.round(Math.min(size, Math.max(0, x - event.movementX)));
    y = Math.round(Math.min(size, Math.max(0, y - event.movementY)));
    document.getElementById("at").textContent = x + "," + y;
    ws.send("V," + x + "," + y);
  };
</script>""".replace("SIZE", str(SIZE))


class Thing:
    """A box, or a disc with the radius ``w / 2``; (x, y) is the left upper corner of the square around it."""

    __slots__ = ("colour", "h", "round", "square", "w", "x", "y")

    def __init__(self, x: int, y: int, w: int, h: int, colour: str, is_round: bool = False) -> None:
        self.x, self.y, self.w, self.h, self.colour, self.round = x, y, w, h, colour, is_round
        self.square: Square | None = None

    def __str__(self) -> str:
        if self.round:
            r = self.w // 2
            return f"C,{self.colour},{self.x + r},{self.y + r},{r}"
        return f"B,{self.colour},{self.x},{self.y},{self.w},{self.h}"

    def meets(self, x: int, y: int, w: int, h: int) -> bool:
        return self.x < x + w and x < self.x + self.w and self.y < y + h and y < self.y + self.h


class Square:
    """A node of the quadtree. A thing is in the smallest square that it fits into; ``count`` includes the quarters."""

    __slots__ = ("above", "count", "quarters", "size", "things", "x", "y")

    def __init__(self, x: int, y: int, size: int, above: Square | None = None) -> None:
        self.x, self.y, self.size, self.above = x, y, size, above
        self.things: set[Thing] = set()
        self.quarters: dict[tuple[bool, bool], Square] = {}
        self.count = 0

    def add(self, thing: Thing) -> None:
        square = self
        while True:
            square.count += 1
            half = square.size // 2
            mx, my = square.x + half, square.y + half
            right, low = thing.x >= mx, thing.y >= my
            if half < 64 or (thing.x + thing.w > mx and not right) or (thing.y + thing.h > my and not low):
                break
            if (right, low) not in square.quarters:
                x, y = (mx if right else square.x), (my if low else square.y)
                square.quarters[right, low] = Square(x, y, half, square)
            square = square.quarters[right, low]
        square.things.add(thing)
        thing.square = square

    def remove(self, thing: Thing) -> None:
        square = thing.square
        assert square is not None
        square.things.remove(thing)
        while square is not None:
            square.count -= 1
            square = square.above

    def within(self, x: int, y: int, w: int, h: int) -> Iterator[Thing]:
        """All things that can be seen there."""
        waiting = [self]
        while waiting:
            square = waiting.pop()
            if not square.count or not (
                square.x < x + w and x < square.x + square.size and square.y < y + h and y < square.y + square.size
            ):
                continue
            yield from (thing for thing in square.things if thing.meets(x, y, w, h))
            waiting.extend(square.quarters.values())


class World:
    """The field, with all that is on it."""

    def __init__(self, boxes: int = BOXES, wanderers: int = WANDERERS, seed: int | None = None) -> None:
        self.chance = random.Random(seed)
        self.tree = Square(0, 0, SIZE)
        for _ in range(boxes):
            w, h = self.chance.randrange(10, 60), self.chance.randrange(10, 60)
            self.tree.add(Thing(*self.place(w, h), w, h, "#ccc"))
        self.wanderers: list[Thing] = []
        while len(self.wanderers) < wanderers:
            x, y = self.place(16, 16)
            if not self.blocked(x, y, 16, 16):
                self.wanderers.append(Thing(x, y, 16, 16, self.chance.choice(COLOURS), True))
        for thing in self.wanderers:
            self.tree.add(thing)

    def place(self, w: int, h: int) -> tuple[int, int]:
        return self.chance.randrange(SIZE - w), self.chance.randrange(SIZE - h)

    def blocked(self, x: int, y: int, w: int, h: int) -> bool:
        """By a box, or by the edge."""
        inside = 0 <= x <= SIZE - w and 0 <= y <= SIZE - h
        return not inside or any(not thing.round for thing in self.tree.within(x, y, w, h))

    def wander(self, thing: Thing) -> None:
        """What moves one disc: straight on, and another way at a box or at the edge."""
        dx = dy = 0
        while True:
            if not (dx or dy):
                dx, dy = self.chance.randint(-8, 8), self.chance.randint(-8, 8)
            coro.sleep(STEP * self.chance.uniform(0.5, 1.5))
            x, y = thing.x + dx, thing.y + dy
            if self.blocked(x, y, thing.w, thing.h):
                dx = dy = 0
                continue
            self.tree.remove(thing)
            thing.x, thing.y = x, y
            self.tree.add(thing)

    def start(self) -> list[coro.coro]:
        return [coro.spawn(self.wander, thing, daemon=True) for thing in self.wanderers]

    def picture(self, x: int, y: int) -> str:
        return "|".join(["F", *map(str, self.tree.within(x, y, VIEW, VIEW))])


app = http.App()
world: World | None = None


def the_world() -> World:
    """Made for the first who wants to see it."""
    global world
    if world is None:
        world = World()
        world.start()
    return world


@app.get("/")
def page(request: http.http_request) -> http.Response:
    return http.Response(PAGE, headers={"content-type": "text/html; charset=utf-8"})


@app.get("/field")
def field(request: http.http_request) -> None:
    at = [0, 0]

    def show() -> None:
        seen = the_world()
        while True:
            try:
                ws.send(seen.picture(*at))
            except websocket.WebSocketClosed:
                return
            coro.sleep(PICTURE)

    with websocket.accept(request, max_message=64, deflate=True) as ws:
        shows = coro.spawn(show)
        try:
            for message in ws:
                kind, x, y = str(message).split(",")
                if kind == "V":
                    at[:] = (min(SIZE - VIEW, max(0, int(n))) for n in (x, y))
        finally:
            shows.shutdown()


if __name__ == "__main__":
    http.serve(app, ("127.0.0.1", 8080))
