"""Types of the compiled module _sync/group_calls.pyx."""

from typing import Any

class GroupCall:
    group: Any
    function: Any
    def __init__(self, group: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...  # takes nothing; as the slot says

class ServerCall(GroupCall):
    def __init__(self, group: Any, handler: Any, server: Any, conn: Any, address: Any) -> None: ...
