"""Types of the epoll poller (compiled module)."""

from coro._events import EventPoller

class EpollPoller(EventPoller):
    def _round_to_milliseconds(self, yes: bool) -> None: ...
