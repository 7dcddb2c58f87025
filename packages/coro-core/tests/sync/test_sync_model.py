"""Random interleavings with interruptions, compared with pure models.

A round: a driver thread performs a handful of random actions on one primitive (start an operation in a worker, release,
interrupt a blocked worker, wake one for no reason, let some threads run), then lets everything come to rest. Some
operations have a time limit, which is over in the next pass of the loop. At rest the model, a few lines of plain Python
that know nothing of scheduling, says which workers must be blocked, what the primitive must hold, and that nobody was
overtaken. Operations that were interrupted must have raised exactly what was sent, and must have had no effect.

Each primitive gets 10 000 actions. The seed is a new one each time; a failure names it, and CORO_MODEL_SEED=n repeats
exactly that run. The second half lets hypothesis choose the seeds of short runs, so that a failure is found with few
actions.
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sync_names import (
    Stop,
    barrier,
    channel,
    condition_variable,
    event,
    fifo,
    inverted_semaphore,
    latch,
    mutex,
    rw_lock,
    semaphore,
)

import coro

ACTIONS = int(os.environ.get("CORO_MODEL_ACTIONS", "10_000"))
#: Actions in one world. What is held there grows with them, and looking at all of it takes ever longer.
LIFE = 1250
SEED = int(os.environ.get("CORO_MODEL_SEED") or random.randrange(2**32))
MOST_BLOCKED = 8


class Job:
    """One blocking operation in a worker thread of its own."""

    def __init__(self, world, kind, call, amount=0):
        self.world, self.kind, self.call, self.amount = world, kind, call, amount
        self.limited = world.random.random() < 0.15
        self.sent = None
        self.state = "blocked"
        self.value = None
        self.go_on = False
        self.thread = coro.spawn(self.run)

    def run(self):
        self.world.begun.append(self)
        try:
            self.value = self.call(timeout=1e-9) if self.limited else self.call()
        except coro.TimeoutError as exc:
            self.state = "interrupted"
            assert self.limited and "had to wait" in str(exc)
            return
        except (Stop, coro.Shutdown) as exc:
            self.state = "interrupted"
            assert self.sent is not None, f"{exc!r} was never sent"
            return
        self.state = "done"
        self.world.ended.append(self)
        self.world.completed(self)
        while not self.go_on:  # the thread stays: it may own what it got
            coro._yield()
        self.world.undo(self)

    def let_go(self):
        """Undo the operation (unlock) in the thread that did it."""
        self.go_on = True
        if not self.thread.scheduled:
            self.thread.schedule()


class World:
    """A primitive, its jobs, and its model. Subclasses say what can be done and what must hold at rest."""

    fair = True  # within one kind, nobody is served while another waits that came earlier

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.jobs, self.begun, self.ended = [], [], []
        self.make()

    def make(self):
        raise NotImplementedError

    def begin(self):
        """Start a random operation that may block; returns its Job."""
        raise NotImplementedError

    def act(self):
        """Do something random that does not block."""

    def check(self, blocked):
        """At rest."""

    def completed(self, job):
        pass

    def undo(self, job):
        pass

    def blocked(self):
        return [job for job in self.jobs if job.state == "blocked"]

    def step(self):
        choice = self.random.random()
        waiting = [job for job in self.jobs if job.state == "blocked" and job.thread.started]
        if choice < 0.35 and len(self.blocked()) < MOST_BLOCKED:
            self.jobs.append(self.begin())
        elif choice < 0.65:
            self.act()
        elif choice < 0.80 and waiting:
            job = self.random.choice(waiting)
            job.sent = Stop
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

    def rest(self):
        coro.yield_slice()
        while any(job.thread.scheduled for job in self.jobs):
            coro.yield_slice()
        for job in self.jobs:
            if job.sent is not None or job.limited:
                assert job.state != "blocked", "an interruption was lost"
        blocked = [job for job in self.begun if job.state == "blocked"]
        if self.fair:
            for kind in {job.kind for job in blocked}:
                first = next(job for job in blocked if job.kind == kind)
                for job in self.ended:
                    overtook = job.kind == kind and self.begun.index(job) > self.begun.index(first)
                    assert not overtook, f"{kind}: one that came later was served first"
        self.check(blocked)
        self.ended.clear()
        self.begun[:] = blocked
        self.jobs = [job for job in self.jobs if not job.thread.dead]

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
                job.sent = Stop
                job.go_on = True
                job.thread.shutdown()

    def held(self):
        return [job for job in self.jobs if job.state == "done" and not job.go_on and not job.thread.dead]

    def let_somebody_go(self):
        held = self.held()
        if held:
            self.random.choice(held).let_go()


class MutexWorld(World):
    def make(self):
        self.m = mutex()

    def begin(self):
        return Job(self, "lock", self.m.lock)

    def act(self):
        if self.random.random() < 0.2:
            if not self.m.trylock():
                self.m.unlock()
        else:
            self.let_somebody_go()

    def undo(self, job):
        assert self.m.owner is job.thread
        self.m.unlock()

    def check(self, blocked):
        held = self.held()
        assert self.m.owner is (held[0].thread if held else None) and len(held) <= 1
        assert self.m.waiting == tuple(job.thread for job in blocked)
        assert held or not blocked


class SemaphoreWorld(World):
    def make(self):
        self.total = self.random.randint(1, 6)
        self.s = semaphore(self.total)

    def begin(self):
        n = self.random.randint(1, 4)
        return Job(self, "acquire", lambda **limit: self.s.acquire(n, **limit), n)

    def act(self):
        choice = self.random.random()
        n = self.random.randint(1, 3)
        if choice < 0.2:
            self.s.release(n)
            self.total += n
        elif choice < 0.5:
            if not self.s.try_acquire(n):
                self.total -= n
        else:
            self.let_somebody_go()

    def undo(self, job):
        self.s.release(job.amount)

    def check(self, blocked):
        assert self.s.avail == self.total - sum(job.amount for job in self.held()) >= 0
        assert self.s._waiting == [(job.amount, job.thread) for job in blocked]
        assert not blocked or blocked[0].amount > self.s.avail


class RWLockWorld(World):
    def make(self):
        self.lock = rw_lock()

    def begin(self):
        if self.random.random() < 0.6:
            return Job(self, "read", self.lock.read_lock)
        return Job(self, "write", self.lock.write_lock)

    def act(self):
        if self.random.random() < 0.2:
            if not self.lock.try_read_lock():
                self.lock.read_unlock()
            if not self.lock.try_write_lock():
                self.lock.write_unlock()
        else:
            self.let_somebody_go()

    def undo(self, job):
        if job.kind == "read":
            self.lock.read_unlock()
        else:
            self.lock.write_unlock()

    def check(self, blocked):
        held = self.held()
        readers = [job.thread for job in held if job.kind == "read"]
        writers = [job.thread for job in held if job.kind == "write"]
        assert len(writers) <= 1 and not (readers and writers)
        assert set(self.lock.owners) == {*readers, *writers}
        want_write = [job for job in blocked if job.kind == "write"]
        want_read = [job for job in blocked if job.kind == "read"]
        assert self.lock.waiting == tuple(job.thread for job in want_write + want_read)
        assert not want_write or held
        assert not want_read or writers or want_write


class CountWorld(World):
    """inverted_semaphore, event, latch: one thing to wait for, everybody goes together."""

    fair = False

    def make(self):
        self.n = 0
        self.which = self.random.choice(["zero", "event", "latch"])
        self.what = {"zero": inverted_semaphore, "event": event, "latch": lambda: latch(3)}[self.which]()
        self.must_go = []

    def begin(self):
        wait = self.what.block_till_zero if self.which == "zero" else self.what.wait
        return Job(self, "wait", wait)

    def satisfied(self):
        if self.which == "zero":
            return self.what.value == 0
        return self.what.is_set() if self.which == "event" else self.what.is_open

    def act(self):
        up = self.random.random() < 0.5
        if self.which == "zero":
            self.what.acquire() if up or not self.what.value else self.what.release()
        elif self.which == "event":
            self.what.set() if up else self.what.clear()
        elif self.what.is_open:
            if not self.what.waiting:
                self.what = latch(3)
        else:
            self.what.count_down()
        if self.satisfied():
            # Whoever is in line goes, even if it rises again before they run.
            assert self.what.waiting == ()
            self.must_go += [job for job in self.begun if job.state == "blocked" and not (job.sent or job.limited)]

    def check(self, blocked):
        assert not any(job.state == "blocked" for job in self.must_go)
        self.must_go.clear()
        assert not (blocked and self.satisfied())
        if self.which != "latch":
            assert self.what.waiting == tuple(job.thread for job in blocked)


class ConditionWorld(World):
    def make(self):
        self.c = condition_variable()
        self.owed = self.got = 0
        self.hoped = set()

    def begin(self):
        return Job(self, "wait", self.c.wait)

    def act(self):
        if self.random.random() < 0.1:
            self.c.wake_all("all")
            return
        if self.hoped:
            return  # once between rests, so that a loss can be told from a wake-up that had nobody left to go to
        n = self.random.randint(1, 3)
        self.hoped.update(self.c.waiting)
        woken = self.c.wake_n(n, "some")
        assert woken <= n
        self.owed += woken

    def completed(self, job):
        assert job.value in ("all", "some")
        self.got += job.value == "some"

    def check(self, blocked):
        # A wake-up is lost only when nobody is left of those who waited when it was given.
        assert self.got <= self.owed
        if self.got < self.owed:
            assert not any(job.thread in self.hoped for job in blocked)
        self.got = self.owed = 0
        self.hoped.clear()
        assert self.c.waiting == tuple(job.thread for job in blocked)


class BarrierWorld(World):
    fair = False

    def make(self):
        self.parties = self.random.randint(1, 4)
        self.b = barrier(self.parties)
        self.rounds = 0
        self.places = []

    def begin(self):
        return Job(self, "wait", self.b.wait)

    def completed(self, job):
        self.places.append(job.value)

    def check(self, blocked):
        assert len(blocked) < self.parties
        assert self.b.waiting == tuple(job.thread for job in blocked)
        rounds = self.b.statistics().rounds
        for place in range(self.parties):
            assert self.places.count(place) <= rounds - self.rounds
        self.rounds = rounds
        self.places.clear()


class QueueWorld(World):
    """fifo (bounded or not) and channel: every value comes out once, in order; interrupted operations do nothing."""

    def make(self):
        self.capacity = self.random.choice([None, 1, 2, 0])
        self.q = channel(0) if self.capacity == 0 else fifo(self.capacity)
        if self.capacity and self.random.random() < 0.5:
            self.q = channel(self.capacity)
        self.is_fifo = isinstance(self.q, fifo)
        self.put = self.q.push if self.is_fifo else self.q.put
        self.get = self.q.pop if self.is_fifo else self.q.get
        self.serial = 0
        self.inside, self.taken = [], []

    def next_value(self):
        self.serial += 1
        return self.serial

    def begin(self):
        if self.random.random() < 0.5:
            return Job(self, "get", self.take_all if self.is_fifo and self.random.random() < 0.1 else self.take)
        return Job(self, "put", self.give)

    def take(self, **limit):
        value = self.get(**limit)
        self.taken.append(value)
        return value

    def take_all(self, **limit):
        values = self.q.pop_all(**limit)
        self.taken += values
        return values

    def give(self, **limit):
        value = self.next_value()
        self.put(value, **limit)
        self.inside.append(value)

    def act(self):
        choice = self.random.random()
        if choice < 0.3:
            value = self.next_value()
            failed = self.q.try_push(value) if self.is_fifo else self.q.try_put(value)
            if not failed:
                self.inside.append(value)
        elif choice < 0.6:
            try:
                self.taken.append(self.q.pop_nowait() if self.is_fifo else self.q.get_nowait())
            except IndexError:
                pass

    def check(self, blocked):
        # Order in which puts and gets came to their end is the order of the values.
        assert self.taken == self.inside[: len(self.taken)]
        del self.inside[: len(self.taken)]
        self.taken.clear()
        assert len(self.q) == len(self.inside)
        getters = [job for job in blocked if job.kind == "get"]
        putters = [job for job in blocked if job.kind == "put"]
        assert self.q.waiting == tuple(job.thread for job in getters + putters)
        assert not (getters and self.inside) and not (getters and putters)
        if self.capacity is None:
            assert not putters
        elif self.capacity:
            assert len(self.q) <= self.capacity and (not putters or len(self.q) == self.capacity)
        for job in self.held():
            job.let_go()


WORLDS = [
    MutexWorld,
    SemaphoreWorld,
    RWLockWorld,
    CountWorld,
    ConditionWorld,
    BarrierWorld,
    QueueWorld,
]


def play(world, seed, actions):
    def main():
        try:
            world(seed).run(actions)
        except AssertionError as exc:
            raise AssertionError(f"{world.__name__}, seed {seed}: {exc}; CORO_MODEL_SEED repeats it") from exc

    coro.run(main)


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_many_actions(world):
    """Several worlds of one kind, since some draw their shape (capacity, parties) when they are made."""
    print(f"CORO_MODEL_SEED={SEED}")
    for part in range(-(-ACTIONS // LIFE)):
        play(world, SEED + part, LIFE)


@pytest.mark.parametrize("world", WORLDS)
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), actions=st.integers(1, 60))
def test_few_actions(world, seed, actions):
    play(world, seed, actions)
