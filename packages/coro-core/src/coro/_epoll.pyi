"""Types of the epoll poller (compiled module)."""

from coro._poller import FdPoller

class EpollPoller(FdPoller):
    def _round_to_milliseconds(self, yes: bool) -> None: ...
