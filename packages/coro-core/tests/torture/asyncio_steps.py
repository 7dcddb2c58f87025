"""Torture of asyncio in coro threads: `python asyncio_steps.py --seconds 60 --seed 1 [--emulation] [--debug]`.
Ends with status 0 and what was done how often, or with status 1 and what went wrong.

Hundreds of tasks on the loop of `coro.asyncio_bridge`, begun by `run` and `start_task`, use what asyncio and anyio
offer: executors, worker threads, task groups, time limits, context variables, streams, subprocesses, futures that OS
threads resolve, asynchronous generators, and tasks that begin at once. Beside them, threads have loops of their own by
`asyncio.run`, and others have none. Everybody lets other threads run wherever it comes to its mind, also in the middle
of a step, between two `await`. After each of these, each looks around:

* The running loop, the current task, the hooks for asynchronous generators and the context are its own, or nobody's.
* No other code of the bridge's loop has run in the middle of the step.

Costs as many seconds as it is given.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import contextvars
import gc
import importlib
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import coro
from coro import asyncio_bridge

anyio: Any = None  # imported by main, when the emulation is there; without it a part is left out, as the last line says
EAGER = sys.version_info >= (3, 12)
LIMIT = 60.0  # seconds, for what hangs
variable: contextvars.ContextVar[object] = contextvars.ContextVar("variable")


class Wrong(Exception):
    """Something is not as it has to be."""


class World:
    """What all have in common."""

    def __init__(self, seed: int, seconds: float) -> None:
        self.random = random.Random(seed)
        self.end = time.monotonic() + seconds
        self.done: Counter[str] = Counter()
        self.failures: list[str] = []
        self.stepping: object = None  # who is in the middle of a step on the bridge's loop
        self.resolvers: list[Resolver] = []
        self.port = 0
        self.processes = 0
        self.generators_closed = 0

    def over(self) -> bool:
        return bool(self.failures) or time.monotonic() > self.end

    def fail(self, who: str) -> None:
        self.failures.append(f"{who}: {traceback.format_exc()}")


class Resolver:
    """An OS thread that calls back into loops."""

    def __init__(self) -> None:
        self.wanted: list[tuple[Any, Callable[..., object], tuple[Any, ...]]] = []
        self.there = threading.Condition()
        self.thread = threading.Thread(target=self.body, name="resolver", daemon=True)
        self.thread.start()

    def ask(self, loop: Any, function: Callable[..., object], *args: Any) -> None:
        with self.there:
            self.wanted.append((loop, function, args))
            self.there.notify()

    def body(self) -> None:
        while True:
            with self.there:
                while not self.wanted:
                    self.there.wait()
                wanted, self.wanted = self.wanted, []
            for loop, function, args in wanted:
                if loop is None:
                    return
                with contextlib.suppress(RuntimeError):  # a loop of its own that has ended
                    loop.call_soon_threadsafe(function, *args)


class Steps:
    """What one task does on its loop; `shared` if that is the bridge's."""

    def __init__(self, world: World, shared: bool, value: object) -> None:
        self.world = world
        self.shared = shared
        self.value = value
        self.loop = asyncio.get_running_loop()
        self.task = asyncio.current_task()
        self.hooks = sys.get_asyncgen_hooks()
        if self.task is None or self.hooks.finalizer is None:
            raise Wrong(f"a task begins without {self.task!r} or {self.hooks}")

    def look(self) -> None:
        """All that is mine is there."""
        if asyncio.get_running_loop() is not self.loop:
            raise Wrong(f"the running loop is {asyncio.get_running_loop()!r}, not {self.loop!r}")
        if asyncio.current_task() is not self.task:
            raise Wrong(f"the current task is {asyncio.current_task()!r}, not {self.task!r}")
        if sys.get_asyncgen_hooks() != self.hooks:
            raise Wrong(f"the hooks are {sys.get_asyncgen_hooks()}, not {self.hooks}")
        if variable.get(None) is not self.value:
            raise Wrong(f"the context has {variable.get(None)!r}, not {self.value!r}")
        if self.shared and self.world.stepping is not None:
            raise Wrong(f"{self.task!r} runs while {self.world.stepping!r} is in the middle of a step")

    def switch(self) -> None:
        """Let others run, in the middle of a step."""
        self.look()
        if self.shared:
            self.world.stepping = self.task
        for _ in range(self.world.random.randrange(1, 4)):
            if self.world.random.random() < 0.9:
                coro.yield_slice()
            else:
                coro.sleep_relative(self.world.random.random() * 0.002)
        if self.shared:
            self.world.stepping = None
        self.look()

    # -- what a task may do

    async def executor(self) -> None:
        number = self.world.random.randrange(1000)
        future = self.loop.run_in_executor(None, lambda: (time.sleep(0.0005), number)[1])
        self.switch()
        if await future != number:
            raise Wrong("an executor returned what another one asked for")

    async def to_thread(self) -> None:
        if await asyncio.to_thread(variable.get, None) is not self.value:
            raise Wrong("to_thread() lost the context")

    async def anyio_thread(self) -> None:
        if anyio is not None:
            if await anyio.to_thread.run_sync(variable.get, None) is not self.value:
                raise Wrong("anyio's thread lost the context")

    async def anyio_group(self) -> None:
        if anyio is None:
            return
        seen: list[int] = []

        async def one(number: int) -> None:
            with anyio.CancelScope():
                await anyio.sleep(0)
                seen.append(number)

        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(one, number)
                if number == 1:
                    self.switch()
        if sorted(seen) != [0, 1, 2]:
            raise Wrong(f"a task group ran {seen}")
        with anyio.move_on_after(0.001) as scope:
            await anyio.sleep(LIMIT)
        if not scope.cancelled_caught:
            raise Wrong("a cancel scope did not cancel")

    async def group(self) -> None:
        async def one(number: int) -> int:
            inner = Steps(self.world, self.shared, self.value)
            await asyncio.sleep(0)
            inner.switch()
            return number

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(number)) for number in range(3)]
            self.switch()
        if [task.result() for task in tasks] != [0, 1, 2]:
            raise Wrong("a task group mixed its results up")

    async def limit(self) -> None:
        try:
            async with asyncio.timeout(0.001):
                self.switch()
                await asyncio.sleep(LIMIT)
        except TimeoutError:
            return
        raise Wrong("asyncio.timeout() did not end")

    async def context(self) -> None:
        async def inner() -> object:
            variable.set("changed")
            await asyncio.sleep(0)
            coro.yield_slice()
            return variable.get()

        if await asyncio.create_task(inner()) != "changed":
            raise Wrong("a task lost what it had set")

    async def stream(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.world.port)
        for _ in range(2):
            data = self.world.random.randbytes(self.world.random.randrange(1, 20_000))
            writer.write(data)
            self.switch()
            await writer.drain()
            if await reader.readexactly(len(data)) != data:
                raise Wrong("a stream brought other bytes")
        writer.close()
        await writer.wait_closed()

    async def subprocess(self) -> None:
        if self.world.processes >= 4 or not self.shared:
            return
        self.world.processes += 1
        try:
            process = await asyncio.create_subprocess_exec(
                "cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
            self.switch()
            out, _ = await process.communicate(b"through a pipe")
            if (out, process.returncode) != (b"through a pipe", 0):
                raise Wrong(f"cat returned {out!r} and {process.returncode}")
        finally:
            self.world.processes -= 1

    async def threadsafe(self) -> None:
        futures = [self.loop.create_future() for _ in range(3)]
        for number, future in enumerate(futures):
            self.world.random.choice(self.world.resolvers).ask(self.loop, future.set_result, number)
        self.switch()
        if await asyncio.gather(*futures) != [0, 1, 2]:
            raise Wrong("futures were mixed up")

    async def generator(self) -> None:
        world = self.world

        async def numbers() -> AsyncIterator[int]:
            try:
                for number in range(10):
                    yield number
                    await asyncio.sleep(0)
            finally:
                await asyncio.sleep(0)
                world.generators_closed += 1

        async for number in numbers():
            self.switch()
            if number == self.world.random.randrange(5):
                break  # given up: the hook of its loop has it closed

    async def at_once(self) -> None:
        """A task that begins within this step."""
        if not EAGER:
            return

        async def inner(wait: bool) -> object:
            mine = Steps(self.world, False, self.value)
            mine.look()
            if wait:
                await asyncio.sleep(0)
                mine.look()
            return mine.task

        for wait in (False, True):
            task = asyncio.Task(inner(wait), loop=self.loop, eager_start=True)  # type: ignore[call-arg]
            self.look()
            if await task is not task:
                raise Wrong("a task that began at once was not the current one")

    async def cancelled(self) -> None:
        task = asyncio.create_task(asyncio.sleep(LIMIT))
        await asyncio.sleep(0)
        self.switch()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if not task.cancelled():
            raise Wrong("a task was not cancelled")

    async def many(self, number: int) -> None:
        """So many of these in some order."""
        deeds = [
            self.executor, self.to_thread, self.anyio_thread, self.anyio_group, self.group, self.limit, self.context,
            self.stream, self.subprocess, self.threadsafe, self.generator, self.at_once, self.cancelled,
        ]  # fmt: skip
        for _ in range(number):
            deed = self.world.random.choice(deeds)
            self.switch()
            await deed()
            self.look()
            self.world.done[deed.__name__] += 1


async def shared_task(world: World, value: object, number: int) -> None:
    steps = Steps(world, True, value)
    steps.switch()
    if world.random.random() < 0.5:
        await asyncio.sleep(0)
        steps.look()
    await steps.many(number)


def begins_tasks(world: World) -> None:
    """A thread of coro: it has asyncio's loop run tasks, and sees no loop itself."""
    while not world.over():
        value = object()
        variable.set(value)
        if world.random.random() < 0.5:
            asyncio_bridge.run(shared_task(world, value, world.random.randrange(4)))
        else:
            ended, tasks = coro.event(), []

            def created(task: asyncio.Task[None], ended: Any = ended, tasks: list[Any] = tasks) -> None:
                tasks.append(task)
                task.add_done_callback(lambda _: ended.set())

            task = asyncio_bridge.start_task(shared_task(world, value, world.random.randrange(4)), created)
            world.done["deferred" if task is None else "begun at once"] += 1
            if task is not None:
                created(task)
            ended.wait()
            tasks.pop().result()
        sees_nothing(variable.get() is value)


def sees_nothing(context_is_mine: bool = True) -> None:
    loop, hooks = asyncio._get_running_loop(), sys.get_asyncgen_hooks()
    if loop is not None or hooks != (None, None) or not context_is_mine:
        raise Wrong(f"a thread without asyncio sees {loop!r} and {hooks}; the context is its own: {context_is_mine}")


def has_its_own_loop(world: World) -> None:
    """A thread of coro that calls asyncio.run. Without the emulation that blocks all others for its waits."""

    async def work(value: object) -> None:
        steps = Steps(world, False, value)
        for _ in range(world.random.randrange(5)):
            await asyncio.sleep(0)
            steps.switch()
            await world.random.choice((steps.context, steps.threadsafe, steps.at_once, steps.generator))()
            steps.look()
        world.done["asyncio.run"] += 1

    while not world.over():
        value = object()
        variable.set(value)
        asyncio.run(work(value))
        sees_nothing(variable.get() is value)
        coro.sleep_relative(0.001)


def has_no_loop(world: World) -> None:
    while not world.over():
        sees_nothing()
        coro.yield_slice()
        sees_nothing()
        coro.sleep_relative(world.random.random() * 0.001)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(10_000):
            writer.write(data)
            await writer.drain()
    writer.close()


def torture(world: World, tasks: int) -> None:
    def guarded(function: Callable[[World], None]) -> None:
        try:
            function(world)
        except BaseException:
            world.fail(function.__name__)

    world.resolvers = [Resolver() for _ in range(8)]
    server = asyncio_bridge.run(asyncio.start_server(echo, "127.0.0.1", 0, backlog=1000))
    world.port = server.sockets[0].getsockname()[1]
    kinds = [begins_tasks] * tasks + [has_its_own_loop] * 6 + [has_no_loop] * 10
    threads = [coro.spawn(guarded, kind, thread_name=kind.__name__) for kind in kinds]
    try:
        with coro.timeout(LIMIT * 10):
            for thread in threads:
                thread.join()
    except coro.TimeoutError:
        where = "\n".join(f"{thread} {coro.where(thread)}" for thread in threads if not thread.dead)
        world.failures.append(f"these have not ended:\n{where}")
    server.close()
    for resolver in world.resolvers:
        resolver.ask(None, print)
        resolver.thread.join()
    asyncio_bridge.run(ends_workers())
    gc.collect()


async def ends_workers() -> None:
    """Under the emulation they are threads of coro, which else the end of its loop would have to end."""
    await asyncio.get_running_loop().shutdown_default_executor()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--tasks", type=int, default=300, help="threads that have the bridge run tasks")
    parser.add_argument("--emulation", action="store_true")
    parser.add_argument("--debug", action="store_true", help="asyncio's debug mode")
    options = parser.parse_args()
    print("torture of asyncio", *(f"{k}={v}" for k, v in vars(options).items()), sys.version.split()[0], flush=True)
    coro.set_latency_warning(0)
    coro.set_stack_slots(options.slots, 1 << 20)
    world = World(options.seed, options.seconds)
    if options.emulation:
        coro.install_thread_emulation()
    # Not before: what keeps data of OS threads by then, as sniffio below older versions of anyio, is warned of.
    global anyio
    with contextlib.suppress(ImportError):
        importlib.import_module("anyio.to_thread")
        anyio = importlib.import_module("anyio")

    def run() -> None:
        asyncio_bridge.get_loop().set_debug(options.debug)
        # Warnings of slow steps: others run in the middle of them.
        asyncio_bridge.get_loop().slow_callback_duration = LIMIT * 10
        torture(world, options.tasks)

    coro.run(run)
    for failure in world.failures[:3]:
        print(failure, file=sys.stderr)
    # All kinds of deeds have to have been done, or this proves nothing.
    kinds = {"executor", "threadsafe", "generator", "group", "limit", "stream", "subprocess", "asyncio.run", "deferred"}
    missing = (kinds | ({"at_once", "begun at once"} if EAGER and not options.debug else set())) - set(world.done)
    if missing:
        print(f"in {options.seconds} s nobody came to: {', '.join(sorted(missing))}", file=sys.stderr)
    print(", ".join(f"{kind} {number}" for kind, number in sorted(world.done.items())), end="")
    print(f", generators closed {world.generators_closed}" + ("" if anyio else "; anyio is not installed"))
    return 1 if world.failures or missing else 0


if __name__ == "__main__":
    sys.exit(main())
