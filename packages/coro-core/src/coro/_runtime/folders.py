"""Where programs and commands of one user meet: sockets of back doors, and notes from one to the other."""

from __future__ import annotations

import errno
import os
import stat

__all__ = ["private_folder"]


def private_folder() -> str:
    """A folder that only our user can enter, made if need be: below XDG_RUNTIME_DIR, or else in the folder for
    temporary files. OSError when somebody else has put something there."""
    import tempfile  # not at the import of coro: few programs come here

    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        path = os.path.join(runtime, "coro")
    else:
        path = os.path.join(tempfile.gettempdir(), f"coro-{os.getuid()}")
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(
            errno.EPERM, "expected a folder of our own that nobody else can enter (mode 0700); remove it", path
        )
    return path
