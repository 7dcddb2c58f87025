"""Checks one installation from the outside: `python check.py core` or `python check.py both`."""

import importlib.util
import socket
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
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        for late in (False, True):
            assert coro.run(answer, kind, late) == b"answer to a question"
    coro.run(alarms)


def answer(kind: int, late: bool) -> bytes:
    """What `ask` gets from somebody who answers after it waits, or has answered before it asked."""
    ours, theirs = (coro.sock(fd=end.detach()) for end in socket.socketpair(socket.AF_UNIX, kind))

    def reply() -> None:
        theirs.send(b"answer to " + theirs.recv(100) if late else b"answer to a question")

    replier = coro.spawn(reply)
    if not late:
        replier.join()
    try:
        return coro.second.ask(ours, b"a question")
    finally:
        ours.close()
        replier.join()
        theirs.close()


class Sleepy:
    """Lets the timers run while what keeps it goes."""

    def __del__(self) -> None:
        coro.sleep_relative(0.01)


def alarms() -> None:
    rung: list[bool] = []
    alarm = coro.second.Alarm(0.001, rung)
    while not rung:
        coro.sleep_relative(0.001)
    rung.clear()
    alarm = coro.second.Alarm(0.001, rung, Sleepy())
    del alarm
    assert not rung, "an alarm rang that was going"


if __name__ == "__main__":
    if sys.argv[1] == "core":
        assert importlib.util.find_spec("coro.second") is None, "coro.second is installed"

        def nothing() -> int:
            return 7

        assert coro.run(nothing) == 7
    else:
        both()
    print(sys.argv[1], "ok:", coro.__file__)
