"""Programs of Debian 13 on an older Debian: unpacked into a folder of their own, and made to run from there.

As tools/dev/provision.py makes Pythons: `mmdebstrap --variant=extract` unpacks packages without running anything of
them, and patchelf(1) makes the executables find their loader and their libraries by absolute paths, so that they start
like any program, without chroot(2) and its privileges. A stamp is written last; a folder without one is made again.

Cost: 12 s and 190 MB for RabbitMQ with Erlang, once for each machine. It is kept in the system's cache for root, in
the user's own otherwise (CORO_PROGRAMS_CACHE names another place).
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

from .running import find_program, missing

SUITE = "trixie"

#: Raise it when what is done to the files changes, and old folders are left alone.
RECIPE = 1


def _provision() -> ModuleType:
    """tools/dev/provision.py, by its path: where tests of one package run, `tools` cannot be imported."""
    path = Path(__file__).resolve().parents[3] / "tools" / "dev" / "provision.py"
    spec = importlib.util.spec_from_file_location("coro_provision", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _home() -> Path:
    if os.environ.get("CORO_PROGRAMS_CACHE"):
        return Path(os.environ["CORO_PROGRAMS_CACHE"])
    if os.geteuid() == 0:
        return Path("/var/cache/coro-programs")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coro-programs"


def rabbitmq() -> Path:
    """The folder with RabbitMQ 4 and its Erlang in it; made if it is not there. Skips where that is impossible."""
    folder = _home() / f"rabbitmq-{SUITE}-{RECIPE}"
    if (folder / "complete").exists():
        return folder
    for program in ("mmdebstrap", "patchelf"):
        find_program(program, program)
    folder.parent.mkdir(parents=True, exist_ok=True)
    provision = _provision()
    with open(folder.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            try:
                _make(folder, provision)
            except provision.ProvisionError as error:
                missing(f"needs RabbitMQ 4 out of Debian 13, which could not be made: {error}")
    return folder


def _make(folder: Path, provision: ModuleType) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    provision.run(
        "unpacking RabbitMQ 4",
        "mmdebstrap",
        # A mirror that is a snapshot keeps Release files past their date.
        '--aptopt=Acquire::Check-Valid-Until "false"',
        "--variant=extract",
        "--include=rabbitmq-server,base-files,libc-bin",
        SUITE,
        folder,
        provision.mirror(),
    )
    folder.chmod(0o755)
    libraries = next(iter(folder.glob("usr/lib/*-linux-gnu*/libc.so.6")), None)
    if libraries is None:
        raise provision.ProvisionError(f"expected a C library in {folder}/usr/lib, found none")
    library = libraries.parent
    loader = next(iter(library.glob("ld-linux*.so.*")))
    for pattern in ("bin/*", "erts-*/bin/*", "lib/*/priv/bin/*"):
        for path in (folder / "usr/lib/erlang").glob(pattern):
            if not path.is_file() or path.is_symlink():
                continue
            data = path.read_bytes()
            if data[:4] == b"\x7fELF":
                # DT_RPATH, not DT_RUNPATH: only the former also serves what is loaded later, as Erlang's crypto is.
                provision.run(
                    f"patching {path.name}",
                    *("patchelf", "--force-rpath", "--set-rpath", library, "--set-interpreter", loader, path),
                )
            elif b"ROOTDIR=/usr/lib/erlang" in data:
                path.write_bytes(data.replace(b"ROOTDIR=/usr/lib/erlang", f"ROOTDIR={folder}/usr/lib/erlang".encode()))
    erl = folder / "usr/lib/erlang/bin/erl"
    done = subprocess.run(
        [erl, "-noshell", "-eval", "application:ensure_all_started(crypto), halt()."],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise provision.ProvisionError(f"the Erlang in {folder} does not start: {done.stdout}{done.stderr}")
    (folder / "complete").write_text("made by tests/support/real_programs/debian13.py\n")
