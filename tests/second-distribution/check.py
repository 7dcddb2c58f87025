"""Checks one installation from the outside: `python check.py core` or `python check.py both`."""

import importlib.util
import sys

import coro


def both() -> None:
    import coro.second

    assert 0 <= coro.second.elapsed() < 1
    try:
        coro.second.yields(1)
    except coro.YieldFromMain:
        pass
    else:
        raise AssertionError("expected YieldFromMain outside a thread, got a result")

    order = []

    def work(name: str) -> None:
        for _ in range(3):
            order.append(name)
            assert coro.second.yields(1) == 1

    def main() -> None:
        threads = [coro.spawn(work, name) for name in "ab"]
        for thread in threads:
            thread.join()

    coro.run(main)
    assert order == list("ababab"), order


if __name__ == "__main__":
    if sys.argv[1] == "core":
        assert importlib.util.find_spec("coro.second") is None, "coro.second is installed"

        def nothing() -> int:
            return 7

        assert coro.run(nothing) == 7
    else:
        both()
    print(sys.argv[1], "ok:", coro.__file__)
