"""Files watched for changes: ``coro.watch(path)`` by name, ``file_watcher.register(fd, callback)`` for an open file.

    with coro.watch("/etc/service", recursive=True) as changes:
        for event in changes:
            print(event.kind, event.path)

Watchers are in `_watcher.py`, the tree of watched folders in `_folders.py`, the two kernels' ways of telling in
`_inotify.py` and `_vnode.py`.
"""

from __future__ import annotations

from coro.file_watcher._folders import FileEvent, WatchLimitError
from coro.file_watcher._watcher import Watcher, WatcherStatistics, register, unregister, watch

__all__ = ["FileEvent", "WatchLimitError", "Watcher", "WatcherStatistics", "register", "unregister", "watch"]
