"""``coro.http.testing``: a client of an application in this process, and the mock transport."""

import pytest

import coro
from coro import http
from coro.http import testing
from coro.http.client import Client, Response
from coro.http.exceptions import ReadTimeout
from coro.testing import coro_test

pytestmark = pytest.mark.usefixtures("leaves_nothing")

app = http.App()


@app.get("/hello/{name}")
def hello(request, name):
    return f"hello {name}"


@app.post("/echo")
def echo(request):
    return request.read()


@app.get("/count")
def count(request):
    for number in range(3):
        yield f"{number}\n"


def wsgi_app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [environ["REQUEST_METHOD"].encode(), b" ", environ["PATH_INFO"].encode()]


@coro_test
def test_an_app():
    with testing.client(app) as client:
        for _ in range(3):
            assert client.get("/hello/you").text == "hello you"
        assert client.get("/nowhere").status == 404
        assert client.post("/echo", b"x" * 300_000).content == b"x" * 300_000
        with client.stream("GET", "/count") as response:
            assert list(response.iter_lines()) == ["0", "1", "2"]
        assert client.statistics().made == 1


@coro_test
def test_a_function_and_small_buffers():
    with testing.client(lambda request: b"y" * 5000, capacity=7) as client:
        for _ in range(2):
            assert client.get("/", params={"a": "b"}).content == b"y" * 5000


@coro_test
def test_a_wsgi_application():
    with testing.client(wsgi_app) as client:
        assert client.get("/a/b").text == "GET /a/b"


def test_kinds():
    assert testing._kind_of(app) == testing._kind_of(lambda request: None) == testing._kind_of(print) == "handler"
    assert testing._kind_of(wsgi_app) == "wsgi"
    with pytest.raises(ValueError, match="expected the kind"):
        testing.client(app, kind="cgi")


@coro_test
def test_a_handler_that_never_ends_is_ended():
    with testing.client(lambda request: coro.sleep(1e6)) as client:
        thread = coro.spawn(client.get, "/")
        for _ in range(5):
            coro.yield_slice()
        thread.shutdown()
        thread.join()


def test_a_mock():
    mock = testing.Mock()
    mock.get("https://api.test/user/7", json={"name": "Ada"})
    mock.get("https://api.test/user/7?full=1", "all", headers={"X": "y"})
    mock.post("https://api.test/user", status=201).post("https://api.test/user", status=409)
    mock.delete("https://api.test/user", error=ReadTimeout("silence"))
    mock.add("PATCH", "https://api.test/user", answer=lambda request: Response(200, {}, request.body.content))
    mock.put("https://api.test/moved", status=307, headers={"Location": "/to"}).put("https://api.test/to", b"there")

    def main():
        with mock, Client(base_url="https://api.test", transport=mock) as client:
            assert client.get("user/7").json() == {"name": "Ada"}
            assert client.get("/user/7", params={"full": "1"}).status == 200
            assert [client.post("/user").status for _ in range(3)] == [201, 409, 409]
            with pytest.raises(ReadTimeout):
                client.delete("/user")
            assert client.patch("/user", b"echo").content == b"echo"
            moved = client.put("/moved", b"x")
            assert moved.content == b"there" and moved.history[0].status == 307
            with client.stream("PUT", "/to") as response:
                assert b"".join(response.iter_bytes()) == b"there"
            with pytest.raises(testing.UnexpectedRequest, match="no response for GET https://api.test/other"):
                client.get("/other")
        assert mock.requests[0].headers["user-agent"].startswith("coro-http")

    coro.run(main)


def test_a_mock_that_was_not_asked():
    with pytest.raises(AssertionError, match="never asked for: GET http://a/"), testing.Mock().get("http://a/"):
        pass
