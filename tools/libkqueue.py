"""Runs the poller of the BSDs against libkqueue: somebody else's kqueue(2) and <sys/event.h>, on Linux.

A smoke test.  It shows that the poller compiles against a header that is not ours and that sockets work; it cannot show
that the poller is right on a BSD, because libkqueue leaves much out, see LEFT_OUT.  What the poller has to do is tested
against our own imitation (`pytest --poller fake-kqueue`).

The library is in Debian's experimental branch only; its two packages (50 kB) are fetched with a temporary configuration
of apt, unpacked below `.dev`, and not installed.  coro-core must be installed in the Python that runs this: only
`coro._poll.kqueue` is compiled anew, against the header, and put beside it for the time of the tests.  About a minute.

    python tools/libkqueue.py [--require] [arguments for pytest]

Without `--require` and without the library it says so and ends well.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "packages" / "coro-core"
WORK = ROOT / ".dev" / "libkqueue"
PACKAGES = ("libkqueue0t64", "libkqueue-dev")

sys.path.insert(0, str(ROOT))

WHOLE = (
    *("net/test_socket.py", "net/test_socket_close.py"),
    *("runtime/test_timeout.py", "runtime/test_timeout_scopes.py", "test_read_stream.py"),
)

# Tests of these files that libkqueue cannot carry: where reading and writing of one descriptor are both awaited
# it reports reading only, ...
MOSTLY = tuple(f"net/test_socket_{part}.py" for part in ("io", "messages", "connecting", "files"))
LEFT_OUT = (
    "test_writev",
    "test_reading_and_writing_at_once",
    "test_send_returns_everything",
    "test_sends_of_several_threads_do_not_mix",
    "test_interrupted_senders_leave_the_queue_in_order",
    "test_an_undisturbed_send_waits_behind_a_queue",
    "test_a_spurious_wake_up_gives_nobody_the_sending_side",
    "test_sendmsg_sends_everything",
    "test_wait_for_read_and_write",
    "test_wait_for_write_waits",
    "test_sendfile",
    "test_data_and_reset",
    # ... it does not see the other end of a pipe close, ...
    "test_pipes",
    # ... and it has no filter for urgent data.
    "test_urgent_data",
)


class Unavailable(Exception):
    """The library cannot be had here; the message says why."""


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a quiet command and return what it printed; Unavailable when it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as e:
        raise Unavailable(f"{command[0]}: {e}") from e
    if done.returncode:
        raise Unavailable(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return done.stdout


def fetch() -> tuple[Path, Path]:
    """The folder of the header, and the library."""
    from tools.dev.provision import ProvisionError, apt_settings

    if not list(WORK.glob("root/usr/lib/*/libkqueue.so.0")):
        shutil.rmtree(WORK, ignore_errors=True)
        try:
            env = os.environ | apt_settings(WORK, "experimental")
        except ProvisionError as e:
            raise Unavailable(str(e)) from e
        run("apt-get", "update", "-qq", env=env)
        run("apt-get", "download", "-qq", *PACKAGES, env=env, cwd=WORK)
        for package in WORK.glob("*.deb"):
            run("dpkg-deb", "-x", package, WORK / "root")
    found = list(WORK.glob("root/usr/lib/*/libkqueue.so.0"))
    header = WORK / "root/usr/include/kqueue"
    if not found or not (header / "sys/event.h").exists():
        raise Unavailable("the packages of libkqueue do not hold what they used to")
    return header, found[0]


def compile_poller(header: Path, folder: Path) -> tuple[str, str]:
    """Compile the poller against the library's header; returns its place beside the package, and where it is."""
    from coro_build import compiling, table

    os.environ["CFLAGS"] = f"{os.environ.get('CFLAGS', '')} -I{header} -DCORO_KQUEUE_HEADER=1"
    source = CORE / "src"
    builder = compiling.Builder("coro-kqueue", str(source), str(source / "coro"), str(folder), print)
    (made,) = builder.build([table.Module("coro._poll.kqueue", ("coro/_poll/kqueue.pyx",))]).items()
    return made


def main(arguments: list[str]) -> int:
    required = "--require" in arguments
    arguments = [a for a in arguments if a != "--require"]
    try:
        header, library = fetch()
    except Unavailable as e:
        print(f"libkqueue cannot be had here: {e}", file=sys.stderr)
        return 1 if required else 0
    import coro

    folder = WORK / f"python-{sysconfig.get_config_var('SOABI')}"
    place, module = compile_poller(header, folder)
    # A copy of the installed package, with the one module exchanged.
    package = folder / "package" / "coro"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(coro.get_include(), package, ignore=shutil.ignore_patterns("__pycache__", "*.pyx", "*.c"))
    exchanged = package.parent / place
    exchanged.unlink()  # FileNotFoundError if the poller is somewhere else by now
    shutil.copy2(module, exchanged)
    tests = CORE / "tests"
    chosen = arguments or [
        *(str(tests / name) for name in (*WHOLE, *MOSTLY)),
        *(f"--deselect={(tests / file).relative_to(ROOT)}::{name}" for file in MOSTLY for name in LEFT_OUT),
    ]
    path = os.pathsep.join(filter(None, [str(package.parent), os.environ.get("PYTHONPATH")]))
    env = dict(os.environ, CORO_POLLER="kqueue", CORO_KQUEUE_LIBRARY=str(library), PYTHONPATH=path)
    check = f"import coro; assert coro.get_include() == {str(package)!r}, coro.get_include()"
    subprocess.run([sys.executable, "-c", check], env=env, check=True)
    return subprocess.run([sys.executable, "-m", "pytest", "-q", "--timeout=60", *chosen], env=env, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
