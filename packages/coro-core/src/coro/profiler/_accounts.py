"""From trees of calls to accounts of functions.

A tree is a list of nodes, callers before callees: (depth, function, calls, ticks waited, own values...). What a
function took with all it called is counted at the outermost of its active calls only, so that a recursive function
never comes to more than there was. Cost: two passes over the nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Node = tuple[int, ...]


class Account:
    """What one function came to. `own` and `aggregate` begin with the ticks waited. `outermost`: calls that were not
    made while the function was active already."""

    __slots__ = ("aggregate", "calls", "outermost", "own")

    def __init__(self, width: int) -> None:
        self.calls = 0
        self.outermost = 0
        self.own = [0] * width
        self.aggregate = [0] * width

    def add(self, calls: int, own: Sequence[int], total: Sequence[int], outermost: bool) -> None:
        self.calls += calls
        for i, value in enumerate(own):
            self.own[i] += value
        if outermost:
            self.outermost += calls
            for i, value in enumerate(total):
                self.aggregate[i] += value


def totals(nodes: Sequence[Node]) -> list[Sequence[int]]:
    """For each node the values of itself and everything below, the ticks waited first."""
    result: list[Sequence[int]] = [()] * len(nodes)
    pending: dict[int, list[int]] = {}
    for i in range(len(nodes) - 1, -1, -1):
        node = nodes[i]
        depth, own = node[0], node[3:]
        below = pending.pop(depth + 1, None)
        total = own if below is None else [a + b for a, b in zip(own, below, strict=True)]
        result[i] = total
        beside = pending.get(depth)
        pending[depth] = list(total) if beside is None else [a + b for a, b in zip(beside, total, strict=True)]
    return result


def settle(trees: Iterable[Sequence[Node]], width: int) -> tuple[dict[int, Account], dict[tuple[int, int], Account]]:
    """Accounts by function, and by pair of caller and callee, over several trees. `width`: values of a node with the
    ticks waited."""
    functions: dict[int, Account] = {}
    pairs: dict[tuple[int, int], Account] = {}
    for nodes in trees:
        path: list[int] = []
        active: dict[int, int] = {}
        for node, total in zip(nodes, totals(nodes), strict=True):
            depth, function, calls = node[:3]
            while len(path) > depth:
                active[path.pop()] -= 1
            outermost = not active.get(function)
            account = functions.get(function)
            if account is None:
                account = functions[function] = Account(width)
            account.add(calls, node[3:], total, outermost)
            if path:
                pair = (path[-1], function)
                account = pairs.get(pair)
                if account is None:
                    account = pairs[pair] = Account(width)
                account.add(calls, node[3:], total, outermost)
            path.append(function)
            active[function] = active.get(function, 0) + 1
    return functions, pairs
