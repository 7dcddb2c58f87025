"""Where the tests find the synchronisation primitives, and what several of those tests share."""

from __future__ import annotations

import functools

import coro
from coro._sync.conditions import barrier, condition_variable, event, inverted_semaphore, latch
from coro._sync.local import ThreadLocal
from coro._sync.locks import mutex, rw_lock, semaphore
from coro._sync.queues import channel, fifo
from coro.exceptions import ChannelClosed

__all__ = [
    "ChannelClosed",
    "Stop",
    "ThreadLocal",
    "barrier",
    "channel",
    "condition_variable",
    "event",
    "fifo",
    "in_loop",
    "inverted_semaphore",
    "latch",
    "mutex",
    "rw_lock",
    "semaphore",
    "settle",
    "start",
]


class Stop(Exception):
    """What tests interrupt threads with."""


def in_loop(function):
    """Decorator: run the test inside a loop."""

    @functools.wraps(function)
    def test(*args, **kwargs):
        coro.run(lambda: function(*args, **kwargs))

    return test


def start(log, name, *calls):
    """A thread that makes the calls one after the other and logs (name, result); an exception is logged by its
    class and ends it."""

    def body():
        for call in calls:
            try:
                log.append((name, call()))
            except BaseException as exc:
                log.append((name, type(exc)))
                return

    return coro.spawn(body)


def settle(threads=()):
    """Let everybody run until nobody (of those given) is runnable any more."""
    for _ in range(3):
        coro.yield_slice()
    while any(t.scheduled for t in threads):
        coro.yield_slice()
