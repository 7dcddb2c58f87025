"""A switch-heavy program under the profiler: what watching it costs.

requests: threads hand requests to others through queues and wait for the answers; whoever answers takes the request
apart, computes a little and puts the answer together, so that there are two switches for each dozen calls of Python
and C functions. echo: pairs of threads send messages to and fro over socket pairs. ring: nothing but switches, the
least that can happen between two of them and therefore the most that watching can cost. steps: a ring whose threads
call a small Python function before each switch. `bench` is what is measured: "" for nothing, "ticks" or "rusage". An
operation is a request, a message or a hop. Cost: `count` operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _common import Figures, Stopwatch, main

watch = Stopwatch()


def requests(count: int, threads: int) -> None:
    import coro

    places = {letter: place for place, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}

    def handle(text: str) -> str:
        words = text.split()
        values = {word: weigh(word) for word in words[1:]}
        heaviest = max(values, key=values.__getitem__)
        return f"{words[0]} {heaviest} {sum(values.values())}"

    def weigh(word: str) -> int:
        weight = 0
        for letter in word:
            weight = weight * 31 + places[letter] & 0xFFFF
        return weight

    def serve(asked: coro.fifo) -> None:
        while True:
            text, answered = asked.pop()
            answered.push(handle(text))

    def ask(asked: coro.fifo, times: int) -> None:
        answered = coro.fifo()
        for _ in range(times):
            asked.push(("weigh cooperative threads", answered))
            answered.pop()

    asked = [coro.fifo() for _ in range(threads)]
    for queue in asked:
        coro.spawn(serve, queue, daemon=True)
    watch.start()
    for asker in [coro.spawn(ask, queue, count // threads) for queue in asked]:
        asker.join()
    watch.stop()


def echo(count: int, threads: int) -> None:
    import coro

    def answer(peer: coro.sock) -> None:
        while data := peer.recv(100):
            peer.sendall(data)

    def ask(mine: coro.sock, times: int) -> None:
        for _ in range(times):
            mine.sendall(b"x" * 64)
            mine.recv(100)
        mine.close()

    pairs = [coro.socketpair() for _ in range(threads)]
    for _, peer in pairs:
        coro.spawn(answer, peer)
    watch.start()
    for asker in [coro.spawn(ask, mine, count // threads // 2) for mine, _ in pairs]:
        asker.join()
    watch.stop()


def ring(count: int, threads: int) -> None:
    import coro

    members: list[coro.coro] = []

    def member(number: int) -> None:
        wake = members[(number + 1) % threads].schedule
        _yield = coro._yield
        _yield()
        for _ in range(count // threads):
            wake()
            _yield()

    go_round(members, member, threads)


def steps(count: int, threads: int) -> None:
    import coro

    members: list[coro.coro] = []

    def step(number: int) -> int:
        return number * 31 + 7 & 0xFFFF

    def member(number: int) -> None:
        wake = members[(number + 1) % threads].schedule
        _yield = coro._yield
        _yield()
        for _ in range(count // threads):
            number = step(number)
            wake()
            _yield()

    go_round(members, member, threads)


def go_round(members: list[Any], member: Callable[[int], None], threads: int) -> None:
    import coro

    members.extend(coro.new(member, number) for number in range(threads))
    for thread in members:
        thread.start()
    coro.yield_slice()
    watch.start()
    members[0].schedule()
    members[0].join()
    watch.stop()


def coro(program: str, count: int, threads: int, bench: str) -> Figures:
    import coro

    benches = {"ticks": coro.bench, "rusage": coro.rusage_bench}
    profiler = coro.new_profiler(benches[bench]) if bench else None
    if profiler is not None:
        profiler.start()
    coro.run({"requests": requests, "echo": echo, "ring": ring, "steps": steps}[program], count, threads)
    if profiler is not None:
        profiler.stop()
    return watch.figures(count)


main({"coro": coro})
