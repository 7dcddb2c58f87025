"""Arguments that are streams, for callers that may repeat a call.

An iterator can be read once. So a call may be repeated only as long as nobody has asked its iterator for an item, which
``OneShot`` remembers, or if the caller gave a function that makes the iterator again, which is ``Items``. Costs one
look at each argument of a call of a client or a pool; a Connection repeats nothing and looks at none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from coro.rpc.exceptions import LocalError

__all__ = ["Items", "OneShot", "one_shot"]


class Items:
    """``Items(make)``: an argument that is a stream, of the items of ``make()``.

    make: a function without parameters that returns an iterable. It is called once for each attempt to make the call,
    in the calling thread, so a client or a pool may repeat a call after items have been sent. TypeError if it cannot be
    called.
    """

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Iterable[Any]]) -> None:
        if not callable(make):
            raise TypeError(f"expected a function that makes an iterable, got {make!r}; pass lambda: iterable")
        self.make = make

    def _iterator(self) -> Iterator[Any]:
        """A new one. Raises LocalError if the function returns nothing to iterate over, and what it raises."""
        made = self.make()
        try:
            return iter(made)
        except TypeError:
            raise LocalError(f"expected the function of Items to return an iterable, got {made!r}") from None

    def __repr__(self) -> str:
        return f"<Items of {self.make!r}>"


class OneShot:
    """An iterator on its way, and whether it has been asked for an item."""

    __slots__ = ("begun", "iterator")

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.iterator = iterator
        self.begun = False


def one_shot(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], OneShot | None]:
    """The arguments with the first iterator among them wrapped, and its wrapper."""
    for i, arg in enumerate(args):
        if hasattr(type(arg), "__next__"):
            wrapper = OneShot(arg)
            return (*args[:i], wrapper, *args[i + 1 :]), wrapper
    return args, None
