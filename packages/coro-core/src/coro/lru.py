"""Maps of bounded size that forget what was not used for longest: ``lru``, and ``lru_with_pin``.

An ``OrderedDict`` in order of use, least recent first: every operation is O(1), an entry costs about 150 bytes above
its key and value. Looking up and assigning counts as use; asking whether a key is there and iterating does not.

Iteration yields pairs, from most to least recent, over a snapshot: the map may be used and changed meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar, overload

from coro._runtime.arguments import whole

__all__ = ["lru", "lru_with_pin"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")


class lru(Generic[K, V]):
    """A map of at most ``size`` entries. One more displaces the entry that was not used for longest.

    size: at least 1, otherwise ValueError. Looking up or deleting a key that is not there raises KeyError. A displaced
    or replaced value is dropped when the map has its new state, so its finaliser may use the map.
    """

    __slots__ = ("_entries", "size")

    def __init__(self, size: int) -> None:
        self.size = whole(size, "the number of entries", 1)
        self._entries: OrderedDict[K, V] = OrderedDict()  # least recent first

    @property
    def d(self) -> Mapping[K, V]:
        """The entries as a read-only mapping, least recent first. Looking something up in it does not count as use."""
        return MappingProxyType(self._entries)

    def __getitem__(self, key: K) -> V:
        value = self._entries[key]
        self._entries.move_to_end(key)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        entries = self._entries
        displaced: object = entries.get(key)
        entries[key] = value
        entries.move_to_end(key)
        if len(entries) > self.size:
            displaced = entries.popitem(last=False)
        del displaced

    def __delitem__(self, key: K) -> None:
        del self._entries[key]

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return iter(self.items())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} entries, size {self.size}>"

    def has_key(self, key: object) -> bool:
        """The same as ``key in lru``. It does not count as use."""
        return key in self

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, instead: D) -> V | D: ...
    def get(self, key: K, instead: D | None = None) -> V | D | None:
        """The value of a key, or ``instead`` if it is not there. It counts as use."""
        try:
            return self[key]
        except KeyError:
            return instead

    def items(self) -> list[tuple[K, V]]:
        """``(key, value)`` pairs from most to least recent."""
        return list(reversed(self._entries.items()))

    def keys(self) -> list[K]:
        """Keys from most to least recent."""
        return [key for key, _ in self.items()]

    def values(self) -> list[V]:
        """Values from most to least recent."""
        return [value for _, value in self.items()]

    def empty(self) -> None:
        """Forget all entries."""
        dropped, self._entries = self._entries, OrderedDict()
        del dropped


class lru_with_pin(lru[K, V]):
    """An ``lru`` in which keys can be pinned.

    A pinned entry is never displaced and takes none of the ``size`` places. It hides an ordinary entry of the same key,
    which goes on aging. Assigning to a pinned key does nothing; deleting it raises KeyError. ``len`` counts both kinds.
    Iteration, ``keys``, ``values`` and ``items`` skip pinned keys.
    """

    __slots__ = ("_pinned",)

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._pinned: dict[K, V] = {}

    def pin(self, key: K, value: V) -> None:
        """Pin the entry of ``key`` with ``value``, or replace the value of a pinned one."""
        self._pinned[key] = value

    def unpin(self, key: K) -> None:
        """Forget a pinned entry; an ordinary one of that key that is still there becomes visible. KeyError when the key
        is not pinned."""
        del self._pinned[key]

    def is_pinned(self, key: object) -> bool:
        """Is this key pinned?"""
        return key in self._pinned

    def __getitem__(self, key: K) -> V:
        if key in self._pinned:
            return self._pinned[key]
        return super().__getitem__(key)

    def __setitem__(self, key: K, value: V) -> None:
        if key not in self._pinned:
            super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        if key in self._pinned:
            raise KeyError(key)
        super().__delitem__(key)

    def __len__(self) -> int:
        return len(self._entries) + len(self._pinned)

    def __contains__(self, key: object) -> bool:
        return key in self._pinned or key in self._entries

    def items(self) -> list[tuple[K, V]]:
        """``(key, value)`` pairs of the keys that are not pinned, from most to least recent."""
        return [pair for pair in super().items() if pair[0] not in self._pinned]

    def empty(self, pinned_as_well: bool = False) -> None:
        """Forget all ordinary entries, and with ``pinned_as_well`` also the pinned ones."""
        super().empty()
        if pinned_as_well:
            dropped, self._pinned = self._pinned, {}
            del dropped
