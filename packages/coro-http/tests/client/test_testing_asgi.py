"""``coro.http.testing.client`` with an ASGI application. In a file of its own: the event loop of asyncio that such
applications run in belongs to the loop of coro and lives as long, so what is there after a test is no leak."""

from coro.http import testing
from coro.testing import coro_test


async def asgi_app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": scope["method"].encode() + b" " + scope["path"].encode()})


@coro_test(leaks=False)
def test_an_asgi_application():
    assert testing._kind_of(asgi_app) == "asgi"
    with testing.client(asgi_app) as client:
        for _ in range(2):
            assert client.put("/a/b").text == "PUT /a/b"
