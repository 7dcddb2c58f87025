"""Changing an entry as if it were a dict: what is different at the end is sent as one Modify (RFC 4511, 4.6).

    with Draft(directory, directory.read(dn)) as draft:
        draft["mail"] = ["fred@example.org"]
        draft.add("description", "on leave")
        del draft["title"]

The draft has a copy of the values as they were read.  `changes` compares: values that came are added, values that went
are deleted, and an attribute where both happened is replaced.  So a value that somebody else has added to a group in
the meantime stays there.

Cost: a copy of the lists of values, and a set of the values of each attribute that was touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Self

from coro.ldap._wire import Entry
from coro.ldap.exceptions import LocalError
from coro.ldap.protocol import ADD, DELETE, REPLACE, Change, Result

if TYPE_CHECKING:
    from coro.ldap.client import client
    from coro.ldap.controls import AnyControl

__all__ = ["Draft"]


def _values(values: bytes | str | Iterable[bytes | str]) -> list[bytes]:
    """A list of different values as bytes.  One value may stand for itself."""
    given = [values] if isinstance(values, (bytes, str)) else list(values)
    found: dict[bytes, None] = {}
    for one in given:
        if not isinstance(one, (bytes, str)):
            raise LocalError(f"expected values of bytes or str, got {type(one).__name__}: {one!r:.60}")
        found[one.encode("utf-8") if isinstance(one, str) else one] = None
    return list(found)


class Draft(MutableMapping[str, "list[bytes]"]):
    """Draft(directory, entry)

    The attributes of an entry, to be changed; the case of their names does not matter.  A `with` block saves at its
    end, unless it is left by an exception.

    directory: a client.  entry: as it was read.  An attribute that was not read counts as one without values: read all
    that are to be changed.

    Setting takes a value or several, bytes or text; no values are the same as deleting.  `draft["x"]` is a list of
    bytes; to change it in place is not noticed, use `add`, `remove`, or set it.
    """

    def __init__(self, directory: client, entry: Entry) -> None:
        self._directory = directory
        #: The name of the entry.
        self.dn = entry.dn
        self._take(entry)

    def _take(self, entry: Entry) -> None:
        # By the name in lower case: the name as it is shown, and the values.
        self._before = {name.lower(): (name, list(values)) for name, values in entry.items()}
        self._after = dict(self._before)

    def __repr__(self) -> str:
        return f"<Draft of {self.dn!r:.200}, {len(self.changes())} changes>"

    def __getitem__(self, name: str) -> list[bytes]:
        return list(self._after[name.lower()][1])

    def __setitem__(self, name: str, values: bytes | str | Iterable[bytes | str]) -> None:
        key = name.lower()
        wanted = _values(values)
        if wanted:
            self._after[key] = (self._after.get(key, (name,))[0], wanted)
        else:
            self._after.pop(key, None)

    def __delitem__(self, name: str) -> None:
        del self._after[name.lower()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._after

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, _ in self._after.values()])

    def __len__(self) -> int:
        return len(self._after)

    def add(self, name: str, *values: bytes | str) -> None:
        """Add values; those that are there already stay once."""
        self[name] = [*self.get(name, ()), *_values(values)]

    def remove(self, name: str, *values: bytes | str) -> None:
        """Remove values; those that are not there are passed over."""
        gone = set(_values(values))
        self[name] = [one for one in self.get(name, ()) if one not in gone]

    def changes(self) -> list[Change]:
        """What is different, as it would be sent; nothing for the same values in another order."""
        found = []
        for key in (*self._before, *(key for key in self._after if key not in self._before)):
            name, old = self._before.get(key, (key, []))
            shown, new = self._after.get(key, (name, []))
            if new is old:
                continue  # not touched
            there, wanted = set(old), set(new)
            went = [one for one in old if one not in wanted]
            came = [one for one in new if one not in there]
            if not new:
                found.append(Change(DELETE, name, ()))
            elif came and went:
                found.append(Change(REPLACE, shown, new))
            elif came or went:
                found.append(Change(ADD if came else DELETE, shown, came or went))
        return found

    def save(self, controls: Iterable[AnyControl] = (), **options: Any) -> Result | None:
        """Send the changes, all or none; None if there are none.

        controls: also sent, such as `controls.Assertion` to change the entry only if it still is as expected.  Further
        arguments are those of `Client.modify`.  Raises what that raises; the draft then keeps its changes.
        """
        changes = self.changes()
        if not changes:
            return None
        result = self._directory.modify(self.dn, changes, controls, **options)
        self._before = dict(self._after)
        return result

    def discard(self) -> None:
        """Forget the changes."""
        self._after = dict(self._before)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self.save()
