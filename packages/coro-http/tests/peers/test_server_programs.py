"""The server before real clients: curl, wget and aiohttp, and nginx, HAProxy, Caddy and Apache as proxies in front."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from http_support import in_loop, serving
from real_programs.running import Server, find_program, require_library

import coro
from coro import http
from coro.http import static

pytestmark = pytest.mark.slow

TEXT = b"".join(b"line %d\n" % i for i in range(2000))


def make_app(folder: Path) -> http.App:
    (folder / "file.txt").write_bytes(TEXT)
    app = http.App()
    app.mount("/files", static.Files(folder, prefix="/files"))

    @app.get("/stream")
    def stream(request: Any) -> Any:
        yield from TEXT.splitlines(keepends=True)

    @app.get("/text")
    def text(request: Any) -> str:
        return TEXT.decode()

    @app.put("/length")
    def length(request: Any) -> str:
        return f"{sum(map(len, request))} {request.headers.get('expect')}"

    @app.post("/form")
    def form(request: Any) -> str:
        with request.form() as found:
            return f"{found['a']} {found.files['f'].filename} {found.files['f'].size}"

    @app.get("/who")
    def who(request: Any) -> str:
        return f"{request.remote[0]} {request.scheme}"

    return app


def run(*command: str) -> bytes:
    """What a program prints, while the loop goes on."""
    done = coro.in_thread(subprocess.run, command, capture_output=True, timeout=60)
    assert done.returncode == 0, (command, done.stdout[-500:], done.stderr[-500:])
    return bytes(done.stdout)


@in_loop
@pytest.mark.parametrize("version", ["--http1.0", "--http1.1"])
def test_curl(version: str, tmp_path: Path) -> None:
    curl = (find_program("curl", "curl"), "-sS", "--fail", "--noproxy", "*", version)
    with serving(make_app(tmp_path)) as server:
        url = f"http://127.0.0.1:{server.port}"
        file = str(tmp_path / "file.txt")
        for path in ("/stream", "/text", "/files/file.txt"):
            assert run(*curl, url + path) == TEXT
        assert run(*curl, "--compressed", url + "/text") == TEXT
        assert run(*curl, "-r", "5-9", url + "/files/file.txt") == TEXT[5:10]
        assert run(*curl, "-r", "-7", url + "/files/file.txt") == TEXT[-7:]
        assert run(*curl, "-I", url + "/text").startswith(b"HTTP/1.1 200 OK\r\n")
        assert run(*curl, "-T", file, url + "/length").startswith(b"%d " % len(TEXT))
        assert run(*curl, "-F", "a=1", "-F", f"f=@{file}", url + "/form") == b"1 file.txt %d" % len(TEXT)
        etags = str(tmp_path / "etag")
        run(*curl, "--etag-save", etags, url + "/files/file.txt")
        assert run(*curl, "--etag-compare", etags, "-w", "%{http_code}", url + "/files/file.txt") == b"304"


@in_loop
def test_curl_waits_for_100(tmp_path: Path) -> None:
    curl = (find_program("curl", "curl"), "-sS", "--fail", "--noproxy", "*", "--expect100-timeout", "60")
    with serving(make_app(tmp_path)) as server:
        url = f"http://127.0.0.1:{server.port}/length"
        file = str(tmp_path / "file.txt")
        for more in ((), ("-H", "Transfer-Encoding: chunked")):
            answer = run(*curl, "-H", "Expect: 100-continue", *more, "-T", file, url)
            assert answer == b"%d 100-continue" % len(TEXT)


@in_loop
def test_wget(tmp_path: Path) -> None:
    wget = (find_program("wget", "wget"), "-q", "--no-proxy", "-O", "-")
    with serving(make_app(tmp_path)) as server:
        url = f"http://127.0.0.1:{server.port}"
        for path in ("/stream", "/text", "/files/file.txt"):
            assert run(*wget, url + path) == TEXT


class Proxy(Server):
    """nginx in front of a server on another port."""

    name = "nginx"

    def __init__(self, behind: int) -> None:
        self._behind = behind
        super().__init__()

    def find(self) -> None:
        self._nginx = find_program("nginx", "nginx-light")

    def command(self) -> list[str]:
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "".join(f"{kind}_temp_path {self.folder}/t;" for kind in kinds)
        (self.folder / "nginx.conf").write_text(
            f"daemon off; master_process off; pid {self.folder}/pid; error_log {self.folder}/log;\n"
            "events {}\n"
            f"http {{ {temporary} access_log off; upstream us {{ server 127.0.0.1:{self._behind}; keepalive 4; }}\n"
            f"server {{ listen 127.0.0.1:{self.port}; location / {{ proxy_pass http://us; proxy_http_version 1.1;\n"
            "proxy_set_header Connection ''; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n"
            "proxy_set_header X-Forwarded-Proto https; } } }\n"
        )
        return [self._nginx, "-e", str(self.folder / "log"), "-c", str(self.folder / "nginx.conf")]


class HAProxy(Server):
    """HAProxy in front of a server on another port; it says who its client is by a PROXY header, or by fields."""

    name = "haproxy"

    def __init__(self, behind: int, how: str) -> None:
        self._behind, self._how = behind, how
        super().__init__()

    def find(self) -> None:
        self._haproxy = find_program("haproxy", "haproxy")

    def command(self) -> list[str]:
        (self.folder / "haproxy.cfg").write_text(
            "defaults\n mode http\n timeout connect 60s\n timeout client 60s\n timeout server 60s\n option forwardfor\n"
            f"frontend front\n bind 127.0.0.1:{self.port}\n http-request set-header X-Forwarded-Proto https\n"
            f" default_backend behind\nbackend behind\n server one 127.0.0.1:{self._behind} {self._how}\n"
        )
        return [self._haproxy, "-db", "-f", str(self.folder / "haproxy.cfg")]


@in_loop
@pytest.mark.parametrize("how", ["", "send-proxy", "send-proxy-v2"])
def test_behind_haproxy(how: str, tmp_path: Path) -> None:
    curl = (find_program("curl", "curl"), "-sS", "--fail", "--noproxy", "*")
    settings: dict[str, Any] = {"proxy_protocol": True} if how else {"trusted_proxies": ["127.0.0.1"]}
    with serving(make_app(tmp_path), **settings) as server:
        proxy = HAProxy(server.port, how)
        coro.in_thread(proxy.__enter__)
        try:
            url = f"http://127.0.0.1:{proxy.port}"
            for path in ("/stream", "/text", "/files/file.txt"):
                assert run(*curl, url + path, url + path) == TEXT * 2
            for more in ((), ("-H", "Transfer-Encoding: chunked")):
                sent = run(*curl, *more, "-T", str(tmp_path / "file.txt"), url + "/length")
                assert sent.startswith(b"%d " % len(TEXT))
            assert run(*curl, "--interface", "127.0.0.9", url + "/who") == (
                b"127.0.0.9 http" if how else b"127.0.0.9 https"
            )
            assert server.statistics()["errors"] == 0
        finally:
            coro.in_thread(proxy.__exit__, None, None, None)


class Caddy(Server):
    """Caddy in front of a server on another port."""

    name = "caddy"

    def __init__(self, behind: int) -> None:
        self._behind = behind
        super().__init__()

    def find(self) -> None:
        self._caddy = find_program("caddy", "caddy")

    def environment(self) -> dict[str, str]:
        # It keeps a copy of its settings below the home folder.
        return os.environ | dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), str(self.folder))

    def command(self) -> list[str]:
        (self.folder / "Caddyfile").write_text(
            "{\n admin off\n auto_https off\n}\n"
            f"http://127.0.0.1:{self.port} {{\n bind 127.0.0.1\n"
            f" reverse_proxy 127.0.0.1:{self._behind} {{\n  header_up X-Forwarded-Proto https\n }}\n}}\n"
        )
        return [self._caddy, "run", "--adapter", "caddyfile", "--config", str(self.folder / "Caddyfile")]


class Apache(Server):
    """Apache in front of a server on another port."""

    name = "apache"

    def __init__(self, behind: int) -> None:
        self._behind = behind
        super().__init__()

    def find(self) -> None:
        self._apache = find_program("apache2", "apache2-bin")

    def command(self) -> list[str]:
        modules = Path("/usr/lib/apache2/modules")
        names = ("mpm_event", "authz_core", "headers", "proxy", "proxy_http")
        (self.folder / "apache.conf").write_text(
            "".join(f"LoadModule {name}_module {modules}/mod_{name}.so\n" for name in names)
            + f"ServerRoot {self.folder}\nDefaultRuntimeDir {self.folder}\nPidFile {self.folder}/pid\n"
            f"ServerName localhost\nListen 127.0.0.1:{self.port}\nErrorLog /dev/stderr\n"
            "RequestHeader set X-Forwarded-Proto https\n"
            f"ProxyPass / http://127.0.0.1:{self._behind}/\n"
        )
        return [self._apache, "-D", "FOREGROUND", "-f", str(self.folder / "apache.conf")]


@in_loop
@pytest.mark.parametrize("kind", [Caddy, Apache])
def test_behind_others(kind: type[Caddy] | type[Apache], tmp_path: Path) -> None:
    curl = (find_program("curl", "curl"), "-sS", "--fail", "--noproxy", "*")
    with serving(make_app(tmp_path), trusted_proxies=["127.0.0.1"]) as server:
        proxy = kind(server.port)
        coro.in_thread(proxy.__enter__)
        try:
            url = f"http://127.0.0.1:{proxy.port}"
            for path in ("/stream", "/text", "/files/file.txt"):
                assert run(*curl, url + path, url + path) == TEXT * 2
            file = str(tmp_path / "file.txt")
            assert run(*curl, "--compressed", url + "/text") == TEXT
            assert run(*curl, "-r", "5-9", url + "/files/file.txt") == TEXT[5:10]
            assert run(*curl, "-I", url + "/text").startswith(b"HTTP/1.1 200 OK\r\n")
            for more in ((), ("-H", "Transfer-Encoding: chunked"), ("-H", "Expect: 100-continue")):
                assert run(*curl, *more, "-T", file, url + "/length").startswith(b"%d " % len(TEXT))
            assert run(*curl, "-F", "a=1", "-F", f"f=@{file}", url + "/form") == b"1 file.txt %d" % len(TEXT)
            assert run(*curl, "--interface", "127.0.0.9", url + "/who") == b"127.0.0.9 https"
            assert server.statistics()["errors"] == 0
            # they keep their connections
            assert server.statistics()["requests"] > server.statistics()["connections"]
        finally:
            coro.in_thread(proxy.__exit__, None, None, None)


AIOHTTP = """
    import asyncio, sys, aiohttp

    async def main(url, file):
        text = open(file, "rb").read()
        async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=5)) as session:
            async def get(path, **more):
                async with session.get(path, **more) as response:
                    return response.status, await response.read()
            paths = ["/stream", "/text", "/files/file.txt"] * 20
            assert await asyncio.gather(*map(get, paths)) == [(200, text)] * 60
            assert await get("/files/file.txt", headers={"Range": "bytes=5-9"}) == (206, text[5:10])
            assert (await get("/nothing"))[0] == 404
            async def pieces():
                for at in range(0, len(text), 1000):
                    yield text[at : at + 1000]
            for data, expect in ((text, False), (text, True), (pieces(), False), (pieces(), True)):
                async with session.put("/length", data=data, expect100=expect) as response:
                    assert (await response.text()).startswith(str(len(text))), response
            form = aiohttp.FormData({"a": "1"})
            form.add_field("f", text, filename="file.txt")
            async with session.post("/form", data=form) as response:
                assert await response.text() == f"1 file.txt {len(text)}"
            async with session.head("/text") as response:
                assert (response.status, await response.read()) == (200, b"")
    asyncio.run(main(*sys.argv[1:]))
"""


@in_loop
def test_aiohttp(tmp_path: Path) -> None:
    require_library("aiohttp")
    with serving(make_app(tmp_path)) as server:
        run(
            sys.executable,
            "-c",
            textwrap.dedent(AIOHTTP),
            f"http://127.0.0.1:{server.port}",
            str(tmp_path / "file.txt"),
        )
        counts = server.statistics()
    assert counts["errors"] == 0 and counts["connections"] <= 10


@in_loop
def test_behind_nginx(tmp_path: Path) -> None:
    curl = (find_program("curl", "curl"), "-sS", "--fail", "--noproxy", "*")
    with serving(make_app(tmp_path), trusted_proxies=["127.0.0.1"]) as server:
        proxy = Proxy(server.port)
        coro.in_thread(proxy.__enter__)
        try:
            url = f"http://127.0.0.1:{proxy.port}"
            for path in ("/stream", "/text", "/files/file.txt"):
                assert run(*curl, url + path) == TEXT
            assert run(*curl, "-T", str(tmp_path / "file.txt"), url + "/length").startswith(b"%d " % len(TEXT))
            assert run(*curl, "-H", "X-Forwarded-For: 192.0.2.7", url + "/who") == b"192.0.2.7 https"
            # nginx keeps its connections
            assert server.statistics()["requests"] > server.statistics()["connections"]
        finally:
            coro.in_thread(proxy.__exit__, None, None, None)
