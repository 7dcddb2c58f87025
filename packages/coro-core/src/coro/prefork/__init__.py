"""``coro.prefork(workers, serve, address)``: one process per core behind one listening address, supervised.

The parent is in `_supervisor.py`, with the reasons for how it is built; what happens in a worker is in `_worker.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coro.prefork._supervisor import Prefork, PreforkError, PreforkStatistics, WorkerEvent
from coro.prefork._supervisor import prefork as _prefork
from coro.prefork._worker import Worker

if TYPE_CHECKING:
    from typing import ParamSpec, Protocol, TypeVar

    _P = ParamSpec("_P")
    _T_co = TypeVar("_T_co", covariant=True)

    class _WithNames(Protocol[_P, _T_co]):
        """The function and its attributes."""

        Prefork: type[Prefork]
        PreforkError: type[PreforkError]
        PreforkStatistics: type[PreforkStatistics]
        WorkerEvent: type[WorkerEvent]
        Worker: type[Worker]

        def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _T_co: ...


def _with_names(function: Callable[_P, _T_co]) -> _WithNames[_P, _T_co]:
    """As an attribute of the package, `coro.prefork` is the function: what belongs to it is found there as well."""
    named: Any = function
    for thing in (Prefork, PreforkError, PreforkStatistics, WorkerEvent, Worker):
        setattr(named, thing.__name__, thing)
    return named  # type: ignore[no-any-return]


prefork = _with_names(_prefork)

__all__ = ["Prefork", "PreforkError", "PreforkStatistics", "Worker", "WorkerEvent", "prefork"]
