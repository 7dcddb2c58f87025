"""``python -m coro.http get`` and ``bench``, against a server in another process' loop."""

import json
import subprocess
import sys
import textwrap

import pytest

from coro.http._cli_bench import Histogram

SERVER = """
    import coro
    def handle(conn, address):
        while data := conn.recv(65536):
            if data.startswith(b"GET /missing"):
                conn.send(b"HTTP/1.1 404 Not Found\\r\\nContent-Length: 2\\r\\n\\r\\nno")
            else:
                conn.send(b"HTTP/1.1 200 OK\\r\\nX: y\\r\\nContent-Length: 5\\r\\n\\r\\nhello")
    def main():
        with coro.Server(handle, ("127.0.0.1", 0)) as server:
            print(server.addresses[0][1], flush=True)
            server.wait()
    coro.run(main)
"""


@pytest.fixture
def port():
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(SERVER)], stdout=subprocess.PIPE, text=True) as server:
        yield int(server.stdout.readline())
        server.kill()


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "coro.http", *map(str, arguments)], capture_output=True, text=True, timeout=60
    )


@pytest.mark.slow
def test_get(port, tmp_path):
    done = run("get", "-i", "-H", "A: b", f"127.0.0.1:{port}/x")
    assert (done.returncode, done.stdout) == (0, "hello")
    assert "> A: b\n" in done.stderr and "< X: y\n" in done.stderr
    path = tmp_path / "out"
    assert run("get", "-o", path, f"http://127.0.0.1:{port}/").returncode == 0
    assert path.read_bytes() == b"hello"
    told = json.loads(run("get", "--json", "-u", "a:b", f"http://127.0.0.1:{port}/").stdout)
    assert (told["status"], told["bytes"], told["text"]) == (200, 5, "hello")
    missing = run("get", "-f", f"http://127.0.0.1:{port}/missing")
    assert (missing.returncode, missing.stdout) == (1, "no")


@pytest.mark.slow
def test_failures_are_sentences(port):
    for arguments, text in (
        (("get", "http://a b/"), "expected a host name"),
        (("get", "ftp://a/"), "expected a URL that begins with"),
        (("get", "-H", "x", f"127.0.0.1:{port}"), "expected a header as"),
        (("get", "-d", "@/nonexistent", f"127.0.0.1:{port}"), "there is no file"),
        (("bench", "-c", "0", f"127.0.0.1:{port}"), "at least one connection"),
        (("get",), "required"),
    ):
        done = run(*arguments)
        assert done.returncode and text in done.stderr, done
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_bench(port):
    told = json.loads(run("bench", "-n", 200, "-c", 10, "--json", f"127.0.0.1:{port}").stdout)
    assert told["requests"] == 200 and told["statuses"] == {"200": 200} and told["errors"] == {}
    assert told["bytes"] == 1000
    latency = told["latency_seconds"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["p100"]
    done = run("bench", "-n", 20, "-c", 2, "-r", 1000, "-X", "POST", "-d", "x", f"127.0.0.1:{port}/")
    assert done.returncode == 0 and "20 requests in" in done.stdout and "statuses: 200: 20" in done.stdout
    assert run("bench", "-n", 5, "--close", f"127.0.0.1:{port}/missing").stdout.count("404: 5") == 1


def test_percentiles():
    h = Histogram()
    assert h.percentile(50) == 0.0
    for number in range(1, 1001):
        h.add(number / 1000)
    for percent in (1, 50, 90, 99):
        assert abs(h.percentile(percent) - percent / 100) <= 0.011 * percent / 100 + 0.001
    assert h.percentile(100) == 1.0 and abs(h.percentile(0.0001) - 0.001) < 0.00002
    assert len(h._buckets) < 700
