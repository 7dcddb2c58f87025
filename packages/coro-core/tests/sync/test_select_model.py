"""coro.select beside ordinary waiters: random interleavings with interruptions, compared with a pure model.

A driver performs random actions (start a thread that wants the first of several things, or just one; put, take,
release; interrupt a blocked thread, wake one for no reason; let some run), then lets everything come to rest. 10 000
actions; the seed is a new one each time, a failure names it, and CORO_MODEL_SEED=n repeats exactly that run. hypothesis
chooses the seeds of short runs.
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sync_names import Stop, channel, event, fifo, mutex, semaphore

import coro
from coro._sync import select as _select
from coro._sync.select import case, select

ACTIONS = int(os.environ.get("CORO_MODEL_ACTIONS", "10_000"))
#: Actions in one world. What is held there grows with them, and looking at all of it takes ever longer.
LIFE = 1250
SEED = int(os.environ.get("CORO_MODEL_SEED") or random.randrange(2**32))


class Job:
    """One operation, of a select or an ordinary one, in a worker thread of its own."""

    def __init__(self, world, wants, call):
        self.world, self.wants, self.call = world, wants, call
        self.sent = False
        self.got = None
        self.state = "blocked"
        self.thread = coro.spawn(self.run)

    def run(self):
        world = self.world
        world.begun.append(self)
        try:
            self.got = self.call()
        except (Stop, coro.Shutdown):
            assert self.sent, "nobody had interrupted it"
            self.state = "interrupted"
            return
        self.state = "done"
        world.happened(self)


class World:
    """Queues, semaphores, an event, and threads that want the first of some of these.

    The model is what a few lines of plain Python know: how many values went into each queue and came out in which
    order, how many units there are, and that at rest nobody is blocked who wants something that is to be had and that
    nobody was before him in line for."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        _select._seed(seed)
        pick = self.random
        self.queues = [fifo() if pick.random() < 0.4 else channel(pick.randint(0, 2)) for _ in range(3)]
        self.semaphore, self.units = semaphore(2), 2
        self.event, self.was_set = event(), False
        self.mutex = mutex()
        self.inside = {q: [] for q in self.queues}
        self.out = {q: [] for q in self.queues}
        self.jobs, self.begun, self.serial = [], [], 0

    # -- operations

    def some_case(self):
        choice = self.random.random()
        q = self.random.choice(self.queues)
        if choice < 0.4:
            return case.get(q), ("get", q, None)
        if choice < 0.7:
            self.serial += 1
            return case.put(q, self.serial), ("put", q, self.serial)
        if choice < 0.85:
            n = self.random.randint(1, 3)
            return case.acquire(self.semaphore, n), ("acquire", self.semaphore, n)
        if choice < 0.95:
            return case.lock(self.mutex), ("lock", self.mutex, None)
        return case.wait(self.event), ("wait", self.event, None)

    def begin(self):
        made = [self.some_case() for _ in range(self.random.randint(1, 6))]
        cases, wants = [m[0] for m in made], [m[1] for m in made]
        if len(made) == 1:
            return Job(self, wants, lambda: (self.plainly(wants[0]), wants[0]))

        def call():
            first = select(*cases)
            at = cases.index(first)
            for n, one in enumerate(cases):
                assert n == at or one.value is None
            return first.value, wants[at]

        return Job(self, wants, call)

    def plainly(self, want):
        kind, what, amount = want
        if kind == "get":
            return what.pop() if isinstance(what, fifo) else what.get()
        if kind == "put":
            return what.push(amount) if isinstance(what, fifo) else what.put(amount)
        if kind == "acquire":
            return what.acquire(amount)
        if kind == "lock":
            what.lock()
            return None
        return what.wait()

    def happened(self, job):
        value, (kind, what, amount) = job.got
        if kind == "get":
            self.out[what].append(value)
        elif kind == "put":
            self.inside[what].append(amount)
        elif kind == "acquire":
            self.units -= amount
        elif kind == "lock":
            assert self.mutex.owner is coro.current()
            self.mutex.unlock()

    def step(self):
        choice = self.random.random()
        waiting = [job for job in self.jobs if job.state == "blocked" and job.thread.started]
        if choice < 0.35 and sum(job.state == "blocked" for job in self.jobs) < 10:
            self.jobs.append(self.begin())
        elif choice < 0.45:
            self.units += 1
            self.semaphore.release()
        elif choice < 0.60:
            self.from_outside()
        elif choice < 0.65:
            self.was_set = not self.was_set
            self.event.set() if self.was_set else self.event.clear()
        elif choice < 0.80 and waiting:
            job = self.random.choice(waiting)
            job.sent = True
            if self.random.random() < 0.5:
                job.thread.shutdown()
            else:
                job.thread.raise_exception(Stop())
        elif choice < 0.90 and waiting:
            job = self.random.choice(waiting)
            if not job.thread.scheduled:
                job.thread.schedule("for no reason")
        else:
            coro.yield_slice()

    def from_outside(self):
        """The driver tries an operation itself, by a select that does not wait or by the ordinary call."""
        one, (kind, what, amount) = self.some_case()
        if kind in ("get", "put"):
            if select(one, timeout=0) is one:
                if kind == "get":
                    self.out[what].append(one.value)
                else:
                    self.inside[what].append(amount)
        elif kind == "acquire":
            if not self.semaphore.try_acquire(amount):
                self.units -= amount

    # -- at rest

    def rest(self):
        coro.yield_slice()
        while any(job.thread.scheduled for job in self.jobs):
            coro.yield_slice()
        for job in self.jobs:
            assert job.thread.exception is None or job.state == "interrupted", job.thread.exception
            assert not (job.sent and job.state == "blocked"), "an interruption was lost"
        blocked = [job for job in self.begun if job.state == "blocked"]
        self.check(blocked)
        self.begun[:] = blocked
        self.jobs = [job for job in self.jobs if not job.thread.dead]

    def check(self, blocked):
        for q in self.queues:
            assert self.out[q] == self.inside[q][: len(self.out[q])], "lost, doubled, or out of order"
            del self.inside[q][: len(self.out[q])]
            self.out[q].clear()
            assert len(q) == len(self.inside[q])
            takers = [job for job in blocked for want in job.wants if want[:2] == ("get", q)]
            givers = [job for job in blocked for want in job.wants if want[:2] == ("put", q)]
            assert q.waiting == tuple(job.thread for job in takers + givers)
            assert not (takers and len(q)), "a value is there and somebody waits for it"
            if isinstance(q, fifo):
                assert not givers
            elif q.maxsize:
                assert not givers or len(q) == q.maxsize
            else:
                assert not [1 for taker in takers for giver in givers if taker is not giver], "these two do not meet"
        wanted = [(want[2], job.thread) for job in blocked for want in job.wants if want[0] == "acquire"]
        assert self.semaphore._waiting == wanted and self.semaphore.avail == self.units
        assert not wanted or wanted[0][0] > self.units
        assert self.mutex.owner is None and self.mutex.waiting == ()
        assert not any(want[0] == "lock" for job in blocked for want in job.wants)
        waiting = [job.thread for job in blocked for want in job.wants if want[0] == "wait"]
        assert self.event.waiting == tuple(waiting) and not (waiting and self.was_set)

    def run(self, actions):
        try:
            done = 0
            while done < actions:
                for _ in range(self.random.randint(1, 6)):
                    self.step()
                    done += 1
                self.rest()
        finally:
            for job in self.jobs:
                job.sent = True
                job.thread.shutdown()


def play(seed, actions):
    def main():
        try:
            World(seed).run(actions)
        except AssertionError as exc:
            raise AssertionError(f"seed {seed}: {exc}; CORO_MODEL_SEED repeats it") from exc

    coro.run(main)


@pytest.mark.slow
def test_many_actions():
    print(f"CORO_MODEL_SEED={SEED}")
    for part in range(-(-ACTIONS // LIFE)):
        play(SEED + part, LIFE)


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), actions=st.integers(1, 80))
def test_few_actions(seed, actions):
    play(seed, actions)
