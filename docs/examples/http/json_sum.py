"""JSON-RPC: python docs/examples/http/json_sum.py serves; python docs/examples/http/json_sum.py 1 2 3 calls it.

With numbers on the command line it is the client, and prints what the server makes of them.
"""

from __future__ import annotations

import sys
from typing import Any

from coro import http
from coro.http import json_rpc

URL = "http://127.0.0.1:8080/jsonrpc"


class Sums:
    """What can be called."""

    def handle_json_rpc(self, method: str, params: Any) -> Any:
        if method == "sum":
            if not isinstance(params, list) or not all(isinstance(value, int | float) for value in params):
                raise json_rpc.RPCError(json_rpc.INVALID_PARAMS, data="expected a list of numbers")
            return sum(params)
        raise json_rpc.RPCError(json_rpc.METHOD_NOT_FOUND)


app = json_rpc.json_rpc_handler(Sums())


def call(url: str, numbers: list[float]) -> float:
    """Have a server add these."""
    with json_rpc.json_rpc_remote(url) as remote:
        return float(remote.sum(*numbers))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(call(URL, [float(word) for word in sys.argv[1:]]))
    else:
        http.serve(app, ("127.0.0.1", 8080))
