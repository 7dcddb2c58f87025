"""A server's counts as text for Prometheus (exposition format 0.0.4).

    app.add_route("/metrics", http.metrics.handler(server))

The counts are numbers that the connections keep anyway. Cost: none until somebody asks. The page is for whoever can
reach it: mount it where only your monitoring can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import coro
from coro.http._connection import BOUNDS

__all__ = ["handler", "render"]


def render(server: Any) -> str:
    """The counts of a `coro.http.server`."""
    counts = server.registry.counts()
    lines: list[str] = []

    def metric(name: str, kind: str, about: str, *samples: tuple[str, float]) -> None:
        lines.append(f"# HELP coro_http_{name} {about}\n# TYPE coro_http_{name} {kind}\n")
        lines.extend(f"coro_http_{name}{labels} {value:g}\n" for labels, value in samples)

    by_class = [(f'{{status="{name}"}}', float(n)) for name, n in counts["by_class"].items()]
    metric("requests_total", "counter", "Requests answered, by class of status.", *by_class)
    metric("connections_total", "counter", "Connections accepted.", ("", counts["connections"]))
    metric("connections", "gauge", "Connections that are open.", ("", counts["open"]))
    metric("received_bytes_total", "counter", "Bytes received.", ("", counts["bytes_in"]))
    metric("sent_bytes_total", "counter", "Bytes sent.", ("", counts["bytes_out"]))
    metric("errors_total", "counter", "Handlers that failed, and messages that were no HTTP.", ("", counts["errors"]))
    metric("timeouts_total", "counter", "Connections ended because the client was too slow.", ("", counts["expired"]))
    total = 0
    buckets = []
    for bound, n in zip((*BOUNDS, None), counts["durations"], strict=True):
        total += n
        buckets.append((f'_bucket{{le="{"+Inf" if bound is None else format(bound, "g")}"}}', float(total)))
    metric(
        "request_seconds",
        "histogram",
        "Time from a request's head to the end of its answer.",
        *buckets,
        ("_sum", counts["seconds"]),
        ("_count", total),
    )
    metric("threads", "gauge", "Cooperative threads of the process.", ("", coro.get_live_coros()))
    return "".join(lines)


def handler(server: Any) -> Callable[[Any], Any]:
    """A handler that answers with `render` of ``server``, or of the server that gets the request if it is None."""

    def metrics(request: Any) -> Any:
        from coro.http.routing import Response

        return Response(
            render(server or request.server).encode(), content_type="text/plain; version=0.0.4; charset=utf-8"
        )

    return metrics
