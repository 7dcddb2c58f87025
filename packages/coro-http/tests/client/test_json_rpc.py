"""JSON-RPC: the examples of the specification, and the proxy against the handler."""

import json

import pytest

from coro import http
from coro.http import json_rpc, testing
from coro.testing import coro_test

pytestmark = pytest.mark.usefixtures("leaves_nothing")


class Root:
    def __init__(self):
        self.told = []

    def handle_json_rpc(self, method, params):
        call = getattr(self, "do_" + method)
        return call(**params) if isinstance(params, dict) else call(*params)

    def do_subtract(self, minuend, subtrahend):
        return minuend - subtrahend

    def do_sum(self, *numbers):
        return sum(numbers)

    def do_get_data(self):
        return ["hello", 5]

    def do_update(self, *values):
        self.told.append(values)

    def do_notify_hello(self, *values):
        self.told.append(values)

    def do_broken(self):
        raise RuntimeError("a secret path /etc/shadow")

    def do_refuse(self):
        raise json_rpc.RPCError(-32000, "not today", {"why": 1})

    def do_unwritable(self):
        return object()


# https://www.jsonrpc.org/specification, section 7
EXAMPLES = [
    (
        '{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}',
        {"jsonrpc": "2.0", "result": 19, "id": 1},
    ),
    (
        '{"jsonrpc": "2.0", "method": "subtract", "params": {"subtrahend": 23, "minuend": 42}, "id": 3}',
        {"jsonrpc": "2.0", "result": 19, "id": 3},
    ),
    ('{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}', None),
    ('{"jsonrpc": "2.0", "method": "foobar"}', None),
    ('{"jsonrpc": "2.0", "method": "foobar", "id": "1"}', (-32601, "1")),
    ('{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]', (-32700, None)),
    ('{"jsonrpc": "2.0", "method": 1, "params": "bar"}', (-32600, None)),
    ("[]", (-32600, None)),
    ("[" * 100_000, (-32700, None)),
    ("{}", (-32600, None)),
    ('{"jsonrpc": "1.5", "method": "sum", "id": 1}', (-32600, 1)),
    ('{"jsonrpc": "2.0", "method": "broken", "id": 1}', (-32603, 1)),
    ('{"jsonrpc": "2.0", "method": "unwritable", "id": 1}', (-32603, 1)),
    ('{"jsonrpc": "2.0", "method": "refuse", "id": 1}', (-32000, 1)),
]


@pytest.mark.parametrize(("request_text", "answer"), EXAMPLES)
def test_examples(request_text, answer):
    got = json_rpc.json_rpc_handler(Root()).answer(request_text.encode())
    if answer is None:
        assert got is None
        return
    found = json.loads(got)
    if isinstance(answer, dict):
        assert found == answer
    else:
        # A request without "method" has no "jsonrpc" either: it is answered in the form of 1.0.
        assert (found["error"]["code"], found["id"]) == answer
        assert "shadow" not in got.decode()


def test_batches():
    handler = json_rpc.json_rpc_handler(Root())
    batch = (
        '[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"}, '
        '{"jsonrpc": "2.0", "method": "notify_hello", "params": [7]}, 1, {"foo": "boo"}, '
        '{"jsonrpc": "2.0", "method": "get_data", "id": "9"}]'
    )
    answers = json.loads(handler.answer(batch.encode()))
    assert [a.get("id") for a in answers] == ["1", None, None, "9"]
    assert answers[0]["result"] == 7 and answers[3]["result"] == ["hello", 5]
    assert handler.answer(b'[{"jsonrpc": "2.0", "method": "notify_hello"}]') is None


def test_the_form_of_1_0():
    got = json.loads(json_rpc.json_rpc_handler(Root()).answer(b'{"method": "sum", "params": [1, 2], "id": 5}'))
    assert got == {"result": 3, "error": None, "id": 5}


@coro_test
def test_the_proxy():
    root = Root()
    server = http.server()
    server.push_handler(json_rpc.json_rpc_handler(root))
    client = testing.InProcessClient(server.handler if server.handlers == [] else _Classic(server), 65536)
    with client, json_rpc.json_rpc_remote("http://testserver/jsonrpc", client=client) as remote:
        assert remote.sum(1, 2) == 3
        assert remote.invoke("subtract", minuend=5, subtrahend=2) == 3
        remote.notify("update", 1)
        assert root.told == [(1,)]
        assert remote.batch([("sum", 1), ("get_data",)]) == [1, ["hello", 5]]
        with pytest.raises(json_rpc.RPCError, match=r"not today \(-32000\): \{'why': 1\}"):
            remote.refuse()
        with pytest.raises(json_rpc.RPCError, match="method not found"):
            remote.nothing()
        with pytest.raises(TypeError, match="not both"):
            remote.sum(1, a=2)
        failed = remote.batch([("broken",), ("sum", 2)])
        assert isinstance(failed[0], json_rpc.RPCError) and failed[1] == 2
    assert client.statistics().used == 0


class _Classic:
    """All classic handlers of a server as one."""

    def __init__(self, server):
        self.server = server

    def __call__(self, request):
        return next(h for h in self.server.handlers if h.match(request)).handle_request(request)


@coro_test
def test_pages_of_other_sites_may_not_call():
    """A browser sends what any page tells it, without asking first if the type is text/plain, or none."""
    call = b'{"jsonrpc": "2.0", "method": "update", "params": [1], "id": 1}'
    for origins, evil in (("same", 403), (["https://Evil.example", "https://evil.example"], 200), (None, 200)):
        root = Root()
        with testing.client(json_rpc.json_rpc_handler(root, origins=origins)) as client:
            for kind in ("text/plain", "application/json"):
                fields = {"Content-Type": kind, "Origin": "https://evil.example"}
                assert client.post("http://test/jsonrpc", content=call, headers=fields).status == evil
            assert client.post("http://test/jsonrpc", content=call, headers={"Origin": "null"}).status == (
                200 if origins is None else 403
            )
            assert client.post("http://test/jsonrpc", content=call).status == 200
            if origins == "same":
                fields = {"Origin": "http://test"}
                assert client.post("http://test/jsonrpc", content=call, headers=fields).status == 200
                assert len(root.told) == 2
