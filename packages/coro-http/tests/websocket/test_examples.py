"""The examples of the manual over WebSocket: by our client, and in a browser."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import client_tls
import pytest
from http_support import serving
from real_programs import missing

import coro
from coro import testing
from coro.http import websocket
from coro.http.client import Client, DigestAuth
from coro.testing import coro_test

EXAMPLES = Path(__file__).resolve().parents[4] / "docs" / "examples" / "http"


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def connect(server, path=""):
    return websocket.connect(f"ws://127.0.0.1:{server.port}/{path}", deflate=True)


@coro_test
def test_echo():
    with serving(example("echo").app) as server, connect(server) as ws:
        for message in ("text", b"bytes", "long " * 1000):
            ws.send(message)
            assert ws.receive() == message


@coro_test
def test_chat():
    with serving(example("web_chat").app) as server:
        with connect(server, "chat") as one, connect(server, "chat") as two:
            one.send("One")
            assert json.loads(one.receive())["kind"] == "color"
            assert json.loads(one.receive())["text"] == "has come"
            two.send("Two")
            color = json.loads(two.receive())["color"]
            for ws in (one, two):
                assert json.loads(ws.receive())["author"] == "Two"
            two.send("hello")
            for ws in (one, two):
                got = json.loads(ws.receive())
                assert (got["author"], got["text"], got["color"]) == ("Two", "hello", color)
            two.close()
            assert json.loads(one.receive())["text"] == "has left"


@coro_test
def test_sketch(tmp_path):
    sketch = example("sketch")
    sketch.board = sketch.Board(str(tmp_path / "drawings.json"))
    with serving(sketch.app) as server:
        with connect(server, "sketch") as one:
            for text in ("MD,1,2", "MM,3,4", "MM,5,99999", "MU", "MM,9,9"):
                one.send(text)
            assert [one.receive(), one.receive()] == ["D,1,2,3,4", "D,3,4,5,9999"]
            with connect(server, "sketch") as two:
                assert [two.receive(), two.receive()] == ["D,1,2,3,4", "D,3,4,5,9999"]
                one.send("ND")
                assert two.receive() == "CD"
                one.send("PD")
                assert [two.receive() for _ in range(3)] == ["CD", "D,1,2,3,4", "D,3,4,5,9999"]
                one.send("CD")
                assert two.receive() == "CD"
        with connect(server, "sketch") as bad:
            bad.send("MD,x,y")
            with pytest.raises(websocket.WebSocketClosed):
                bad.receive()
    assert json.loads((tmp_path / "drawings.json").read_text())[0] == [[1, 2, 3, 4], [3, 4, 5, 9999]]


@coro_test
def test_field():
    field = example("field")
    with testing.virtual_clock(autojump=True):
        field.world = world = field.World(200, 30, seed=1)
        before = {thing: (thing.x, thing.y) for thing in world.wanderers}
        threads = world.start()
        for _ in range(5):
            coro.sleep(1)
            boxes = [thing for thing in world.tree.within(0, 0, field.SIZE, field.SIZE) if not thing.round]
            assert world.tree.count == 230 and len(boxes) == 200
            assert not any(world.blocked(thing.x, thing.y, 16, 16) for thing in world.wanderers)
        assert sum(before[thing] != (thing.x, thing.y) for thing in world.wanderers) > 10
        for thread in threads:
            thread.shutdown()
            thread.join()
    everything = list(world.tree.within(0, 0, field.SIZE, field.SIZE))
    for x, y in ((0, 0), (1000, 3000), (field.SIZE - 1024, 0)):
        seen = world.picture(x, y).split("|")
        assert seen[0] == "F" and sorted(seen[1:]) == sorted(str(t) for t in everything if t.meets(x, y, 1024, 1024))
    with serving(field.app) as server, connect(server, "field") as one, connect(server, "field") as two:
        assert one.receive() == world.picture(0, 0)
        two.send("V,1000,99999")
        while two.receive() != world.picture(1000, field.SIZE - 1024):
            pass
        assert one.receive() != world.picture(1000, field.SIZE - 1024)


@coro_test
def test_term(tmp_path):
    term = example("term")
    term.users["admin"] = "secret"
    trusted = client_tls.client_context()
    with serving(term.app, tls=client_tls.server_context(tmp_path)) as server:
        host = f"localhost:{server.port}"
        with Client(tls=trusted) as c:
            assert c.get(f"https://{host}/").status == 401
            assert c.get(f"https://{host}/", auth=DigestAuth("admin", "wrong")).status == 401
            page = c.get(f"https://{host}/", auth=DigestAuth("admin", "secret"))
        assert page.status == 200 and page.headers["cache-control"] == "no-store"
        ticket = re.search(r'ws.send\("([\w-]+)"\)', page.text)[1]

        def prompt(first):
            ws = websocket.connect(f"wss://{host}/prompt", tls=trusted)
            ws.send(first)
            return ws

        def until(ws, end):
            text = ""
            while not text.endswith(end):
                text += ws.receive()
            return text

        with prompt("guess") as ws, pytest.raises(websocket.WebSocketClosed, match="1008"):
            ws.receive()
        with prompt(ticket) as ws:
            assert until(ws, ">>> ").startswith("Python 3")
            for line, answer in (
                ("6 * 7", "42\n>>> "),
                ("print('\u00e4')", "\u00e4\n>>> "),
                ("1 / 0", "ZeroDivisionError: "),
            ):
                ws.send(line + "\n")
                assert answer in until(ws, ">>> ")
            ws.send("import coro; coro.sleep(1000)\n")
            coro.testing.wait_all_blocked()
            ws.send("\x03")
            assert "KeyboardInterrupt" in until(ws, ">>> ")
            ws.send("exit()\n")
            with pytest.raises(websocket.WebSocketClosed):
                ws.receive()
        with prompt(ticket) as ws, pytest.raises(websocket.WebSocketClosed, match="1008"):
            ws.receive()
        tickets = term.tickets
        for number in range(200):
            tickets[str(number)] = 0.0
        assert not term.take("5")
        with pytest.raises(websocket.HandshakeError, match="403"):
            websocket.connect(f"wss://{host}/prompt", tls=trusted, headers=[("origin", "https://elsewhere.example")])


BROWSER = """
    import sys
    from playwright.sync_api import expect, sync_playwright

    kind, url, picture = sys.argv[1:]
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path="/usr/bin/chromium", headless=True, args=[
            "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync"])
        more = {}
        if kind == "term":
            more = {"ignore_https_errors": True, "http_credentials": {"username": "admin", "password": "secret"}}
        pages = [browser.new_page(viewport={"width": 720, "height": 620}, **more) for _ in range(2)]
        for page in pages:
            page.goto(url)
        if kind == "grid":
            for name in ("left", "left", "down"):
                pages[0].click(f"text={name} >> nth=0")
            pages[1].reload()
            for page in pages:
                expect(page.locator("#moves")).to_have_text("3")
                assert page.locator("td").all_text_contents().index("X") == 63
            pages[1].click("a")
            expect(pages[1].locator("pre")).to_contain_text("class Grid")
            pages[1].go_back()
        elif kind == "chat":
            for page, name in zip(pages, ("Ada", "Grace")):
                page.fill("#text", name); page.press("#text", "Enter")
                expect(page.locator("#log")).to_contain_text(name)
            pages[0].fill("#text", "Hello, <b>Grace</b>!"); pages[0].press("#text", "Enter")
            pages[1].fill("#text", "Hello, Ada.")
            expect(pages[1].locator("#log")).to_contain_text("Hello, <b>Grace</b>!")
            pages[1].press("#text", "Enter")
            for page in pages:
                expect(page.locator("#log")).to_contain_text("Hello, Ada.")
        elif kind == "term":
            for page in pages:
                expect(page.locator("#out")).to_contain_text(">>> ")
                for line in ("import coro", "answer = 6 * 7", "print(f'The answer is {answer}.')", "coro.current()"):
                    page.fill("#line", line); page.press("#line", "Enter")
                expect(page.locator("#out")).to_contain_text("The answer is 42.")
                expect(page.locator("#out")).to_contain_text("<coro thread")
            pages[0].press("#line", "ArrowUp")
            expect(pages[0].locator("#line")).to_have_value("coro.current()")
            pages[0].fill("#line", "exit()"); pages[0].press("#line", "Enter")
            expect(pages[0].locator("#out")).to_contain_text("the session is over")
        elif kind == "field":
            seen = "() => field.getContext('2d').getImageData(724, 0, 300, 1024).data.some(v => v)"
            for page in pages:
                page.set_viewport_size({"width": 1060, "height": 1100})
                page.wait_for_function(seen)
            pages[1].mouse.move(800, 800)
            pages[1].mouse.down()
            pages[1].mouse.move(500, 600, steps=5)
            pages[1].mouse.up()
            expect(pages[1].locator("#at")).to_have_text("300,200")
            expect(pages[0].locator("#at")).to_have_text("0,0")
            pages[1].evaluate("field.getContext('2d').clearRect(0, 0, 1024, 1024)")
            pages[1].wait_for_function(seen)
        else:
            box = pages[0].locator("#board").bounding_box()
            roof = ((100, 300), (300, 80), (500, 300), (100, 300))
            door = ((220, 300), (220, 220), (300, 220), (300, 300))
            for points in (roof, door):
                pages[0].mouse.move(box["x"] + points[0][0], box["y"] + points[0][1])
                pages[0].mouse.down()
                for x, y in points[1:]:
                    pages[0].mouse.move(box["x"] + x, box["y"] + y, steps=5)
                pages[0].mouse.up()
            drawn = "() => board.getContext('2d').getImageData(0, 0, 600, 400).data.filter(v => v).length > 1000"
            for page in pages:
                page.wait_for_function(drawn)
            pages[1].click("#ND")
            pages[0].wait_for_function("() => !board.getContext('2d').getImageData(0, 0, 600, 400).data.some(v => v)")
            pages[0].click("#PD")
            for page in pages:
                page.wait_for_function(drawn)
        pages[1].screenshot(path=picture)
        browser.close()
    print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chat", "sketch", "grid", "field", "term"])
def test_in_a_browser(kind, tmp_path):
    pytest.importorskip("playwright.sync_api", reason="install playwright to click through the examples")
    if not Path("/usr/bin/chromium").exists():
        missing("the browser is not installed: apt-get install chromium")
    script = tmp_path / "click.py"
    script.write_text(textwrap.dedent(BROWSER))
    module = example("web_chat" if kind == "chat" else kind)
    if kind == "sketch":
        module.board = module.Board()
    settings = {}
    if kind == "term":
        module.users["admin"] = "secret"
        settings["tls"] = client_tls.server_context(tmp_path)

    @coro_test
    def click():
        with serving(module.app, **settings) as server:
            command = [
                sys.executable,
                str(script),
                kind,
                f"{'https' if settings else 'http'}://localhost:{server.port}/",
                str(tmp_path / "page.png"),
            ]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            out, err = coro.in_thread(process.communicate)
            assert out.strip() == b"done", err.decode()

    click()
    assert (tmp_path / "page.png").stat().st_size > 1000
