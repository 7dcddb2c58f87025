"""A search under way: entries as they arrive, the result at the end, Abandon when nobody wants the rest.

The reader of the connection puts lists of entries here, of what one read from the socket brought.  Nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from coro.ldap._wire import Entry
from coro.ldap.exceptions import ProtocolError, error_for
from coro.ldap.protocol import (
    Control,
    IntermediateResponse,
    SearchRequest,
    SearchResultDone,
    SearchResultReference,
    decode,
)

if TYPE_CHECKING:
    from coro.ldap._client.link import Link

__all__ = ["Item", "Search"]

Item = Entry | SearchResultReference | IntermediateResponse


class Search:
    """A search that has been sent; `client.stream` makes it.

    Iterating gives `Entry`, `SearchResultReference` and `IntermediateResponse` objects as they arrive; for the last
    two, `controls` of this object are those that came with the one given last.  An `Entry` has its own, encoded.  At
    the end, `result` is the `SearchResultDone`; if its code is not success, the class of exception for it is raised,
    behind all entries.  Leaving the `with` block, or `close`, abandons what has not come yet.
    """

    def __init__(
        self, link: Link, request: SearchRequest | bytes, controls: Sequence[Control], timeout: float | None
    ) -> None:
        self.timeout = timeout
        self.result: SearchResultDone | None = None
        self.controls: tuple[Control, ...] = ()
        self._pending = link.start(request, controls, timeout)

    def __repr__(self) -> str:
        return f"<Search {self._pending.id}{'' if self.result is None else ' done'}>"

    @property
    def message_id(self) -> int:
        """The id of its messages, for Cancel (RFC 3909)."""
        return self._pending.id

    def batches(self) -> Iterator[list[Any]]:
        """Lists of what has arrived: the same objects, several at a time.  Raises at the end as iterating does."""
        if self.result is not None:
            return
        pending = self._pending
        while True:
            tag, payload = pending.next(self.timeout)
            if tag == 4:
                yield payload
                continue
            message = decode(payload)
            op = message.op
            if isinstance(op, SearchResultDone):
                self.result = op
                break
            if not isinstance(op, (SearchResultReference, IntermediateResponse)):
                raise ProtocolError(f"expected results of a search, got {type(op).__name__}", message.id, tag)
            self.controls = message.controls
            yield [op]
        if op.code:
            raise error_for(op)

    def __iter__(self) -> Iterator[Item]:
        try:
            for batch in self.batches():
                yield from batch
        finally:
            self.close()

    def ready(self, timeout: float | None) -> bool:
        """Wait until there is something to take, or the end; whether that is so after `timeout` seconds.

        The search goes on if not, and also if the thread is interrupted, which otherwise abandons it.
        """
        return self.result is not None or self._pending.ready(timeout)

    def skip(self) -> bool:
        """Pass over what has arrived; whether that was the end, and `result` is there.  Does not wait."""
        op = None if self.result is not None else self._pending.last()
        if op is not None:
            found = decode(op).op
            self.result = found if isinstance(found, SearchResultDone) else None
        return self.result is not None and not self.result.code

    def close(self) -> None:
        """Abandon what has not come yet (RFC 4511, 4.11)."""
        self._pending.give_up()

    def __del__(self) -> None:
        pending = getattr(self, "_pending", None)
        if pending is not None and not pending.done:
            pending.give_up("the search was forgotten")

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
