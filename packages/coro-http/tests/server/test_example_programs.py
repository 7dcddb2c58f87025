"""The examples of the manual for the server: a grid, sessions and JSON-RPC."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from http_support import in_loop, serving

from coro.http import json_rpc
from coro.http.client import Client

EXAMPLES = Path(__file__).resolve().parents[4] / "docs" / "examples" / "http"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def place(page: str) -> tuple[int, int]:
    """Where the X is, by column and row."""
    cells = re.findall(r"<td>(X?)</td>", page)
    row, column = divmod(cells.index("X"), 10)
    return column, row


@in_loop
def test_grid() -> None:
    with serving(example("grid").app) as server:
        base = f"http://127.0.0.1:{server.port}"
        with Client(base_url=base) as one, Client(base_url=base) as two:
            first = one.get("/")
            assert first.headers["content-encoding"] in ("gzip", "br", "zstd") and place(first.text) == (5, 5)
            for name, found in (("left", (4, 5)), ("up", (4, 4)), ("right", (5, 4)), *[("down", (5, 5))]):
                assert place(one.post("/move", data={"move": name}).text) == place(two.get("/").text) == found
            for _ in range(6):
                moved = two.post("/move", data={"move": "right"})
            assert place(moved.text) == (1, 5) and '<span id="moves">10<' in moved.text
            for data in ({"move": "away"}, {}):
                assert one.post("/move", data=data).status == 400
            assert "class Grid" in one.get("/source").text
            assert one.statistics().made == two.statistics().made == 1


@in_loop
def test_hits() -> None:
    with serving(example("hits").app) as server:
        base = f"http://127.0.0.1:{server.port}"
        with Client(base_url=base) as one, Client(base_url=base) as two:
            for number in range(1, 11):
                assert f"Visit {number} of 10" in one.get("/hits").text
            assert "Visit 1 of 10" in two.get("/hits").text
            assert "Visit 1 of 10" in one.get("/hits").text
            assert "Visit 2 of 10" in two.get("/hits").text
            assert one.get("/elsewhere").status == 404
            for client, first in ((one, 2), (two, 3)):  # or the sessions would wait for half an hour
                for number in range(first, 11):
                    assert f"Visit {number} of 10" in client.get("/hits").text


@in_loop
def test_json_sum() -> None:
    program = example("json_sum")
    with serving(program.app) as server:
        url = f"http://127.0.0.1:{server.port}/jsonrpc"
        assert program.call(url, [1, 2, 3.5]) == 6.5
        with json_rpc.json_rpc_remote(url) as remote:
            assert remote.batch([("sum", 1, 2), ("sum",)]) == [3, 0]
            with pytest.raises(json_rpc.RPCError, match="method not found"):
                remote.product(1, 2)
            with pytest.raises(json_rpc.RPCError, match="expected a list of numbers"):
                remote.sum("a")
