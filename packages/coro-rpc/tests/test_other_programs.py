"""Programs that do not run coro: the plain client from OS threads, a client in JavaScript, the command."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from real_programs import running

from coro.rpc import plain

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SECRET = "a secret for these tests"


class Served:
    def __init__(self, secret: str | None = None) -> None:
        env = {**os.environ, **({"TEST_SECRET": secret} if secret else {})}
        self.child = subprocess.Popen(
            [sys.executable, HERE / "serving.py"], stdout=subprocess.PIPE, text=True, cwd=HERE, env=env
        )
        assert self.child.stdout is not None
        self.port = int(self.child.stdout.readline())
        self.address = ("127.0.0.1", self.port)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *exc: object) -> None:
        self.child.kill()
        self.child.wait()
        assert self.child.stdout is not None
        self.child.stdout.close()


@pytest.fixture(scope="module")
def server() -> Any:
    with Served() as served:
        yield served


def test_the_plain_client_imports_nothing_of_coro() -> None:
    tree = ast.parse(Path(plain.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["pickle5", "json"])
def test_plain_client(server: Served, codec: Any) -> None:
    with plain.Client(server.address, codec=codec) as client:
        assert client.call("add", 1) == 3 and client.call("add", 1, b=1) == 2
        assert list(client.stream("count", 50_000)) == list(range(50_000))
        text = "x" * 2_000_000
        assert client.call("echo", text) == text
        with pytest.raises(plain.RemoteError, match="KeyError"):
            client.call("fail", "KeyError", "a")
        with pytest.raises(plain.RemoteError) as caught:
            client.call("nothing")
        assert caught.value.code == 2
        with pytest.raises(plain.CallTimeout, match="within 0.05 seconds|was over"):
            client.call("sleep", 1000, timeout=0.05)
        stream = client.stream("count", 10**9)
        assert next(stream) == 0
        stream.close()
        client.cast("note", codec)
        assert client.ping() > 0
        while codec not in client.call("noted"):
            pass
    with pytest.raises(plain.ConnectionLost):
        client.call("add", 1)


@pytest.mark.slow
def test_plain_client_in_many_os_threads(server: Served) -> None:
    results: dict[int, list[int]] = {}
    with plain.Client(server.address) as client:
        if client._codec == "pickle5":
            assert client.call("echo", b"y" * 300_000) == b"y" * 300_000

        def work(i: int) -> None:
            results[i] = [client.call("echo", i * 1000 + j) for j in range(50)]

        threads = [threading.Thread(target=work, args=(i,)) for i in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {i: [i * 1000 + j for j in range(50)] for i in range(20)}


@pytest.mark.slow
def test_plain_client_with_a_secret() -> None:
    with Served(SECRET) as served:
        with plain.Client(served.address, secret=SECRET.encode()) as client:
            assert client.call("add", 1) == 3
            waiting = threading.Thread(target=lambda: pytest.raises(plain.ConnectionLost, client.call, "sleep", 1000))
            waiting.start()
            with pytest.raises(plain.RpcError):
                plain.Client(served.address, secret=b"another one, as long")
            with pytest.raises(plain.RpcError, match="wants a secret"):
                plain.Client(served.address)
            served.child.kill()
            waiting.join()


@pytest.mark.slow
def test_a_client_in_javascript() -> None:
    program = ROOT / "docs" / "examples" / "rpc" / "client.js"
    assert len(program.read_text().splitlines()) < 200
    node = shutil.which("node")
    if node is None:
        running.missing("node is not installed; Debian has it in nodejs")
    for secret in (None, SECRET):
        with Served(secret) as served:
            arguments = [node, program, "127.0.0.1", str(served.port), *([secret] if secret else [])]
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            assert [json.loads(line) for line in done.stdout.splitlines()] == [
                ["add", 3],
                ["together", 3, 2, 1],
                ["large", 1000000],
                ["stream", "end", [0, 1, 2, 3, 4]],
                ["credit", 100000],
                ["failure", 4, "ValueError", ""],
                ["unknown", 2],
                ["noted", ["from Node"]],
            ]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "coro.rpc", *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.slow
def test_the_command(server: Served, tmp_path: Path) -> None:
    where = f"127.0.0.1:{server.port}"
    done = command("ping", where, "--count", "2", "--interval", "0.01")
    assert done.returncode == 0 and done.stdout.count("answer") == 3, done
    assert float(json.loads(command("ping", where, "--count", "1", "--json").stdout)["seconds"]) > 0
    assert command("call", where, "add", "1", "b=5").stdout == "6\n"
    assert command("call", where, "echo", "[1, 'x']", "--json").stdout == '[1, "x"]\n'
    assert command("call", where, "count", "3").stdout == "0\n1\n2\n"
    done = command("list", where)
    assert "add(a: " in done.stdout and "Add two numbers." in done.stdout and "[stream]" in done.stdout
    done = command("call", where, "nothing")
    assert done.returncode == 1 and done.stderr.startswith("NoSuchMethod: ")
    done = command("top", where)
    assert done.returncode == 1 and "NotPermitted" in done.stderr
    done = command("ping", str(tmp_path / "nobody"))
    assert done.returncode == 2 and "cannot connect" in done.stderr
    assert command("ping", "host:port").returncode == 2


@pytest.mark.slow
def test_top(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    with Served(SECRET) as served, plain.Client(served.address, secret=SECRET.encode()) as client:
        where = f"127.0.0.1:{served.port}"
        held = threading.Thread(target=lambda: pytest.raises(plain.RpcError, client.call, "sleep", 1000))
        held.start()
        client.call("add", 1)
        done = command("top", where, "--secret-file", str(file), "--count", "2", "--interval", "0.01")
        assert done.returncode == 0, done.stderr
        assert "METHOD" in done.stdout and "sleep" in done.stdout and "AGE" in done.stdout
        shown = json.loads(command("top", where, "--secret-file", str(file), "--json").stdout)
        assert [one["method"] for one in shown["calls"]] == ["sleep"]
        served.child.kill()
        held.join()
