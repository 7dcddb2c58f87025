"""Makes CPython 3.14 and 3.15 available on a Debian machine that has neither.

Debian's development branch has both.  `mmdebstrap --variant=extract` unpacks them and what they need into a
folder, running no maintainer script; it takes seconds and about 310 MB, 75 of them CPython's own tests, for
tools/cpython_tests.py.  Such a Python wants its own, newer C library, which is why people enter the folder
with chroot.  That costs privileges and bind mounts, and hides the repository, gdb and every other tool from
the tests.  Instead the two executables are made to find their loader and libraries by absolute path
(patchelf: ELF interpreter and DT_RPATH), and then are ordinary programs: they start from anywhere, can be
debugged, make virtual environments, and compile extensions with the machine's own compiler.  An extension
built against the machine's older C library runs on the newer one, by glibc's promise of backward
compatibility.

The paths are written into the executables, so the folder cannot be moved.  It is made under another name,
checked, and a stamp file is written last: a folder without its stamp is an interrupted attempt and is made
again.

Needs root (or whatever mmdebstrap accepts instead), mmdebstrap and patchelf.  The package mirror is the one
in the machine's own apt sources.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

MINORS = (14, 15)
SUITE = "sid"

# Part of the folder's name: raise it when the recipe below changes, and old folders are left alone.
RECIPE = 3

CHECK = """
import _tkinter, ctypes, lzma, os, sqlite3, ssl, subprocess, sys, zlib
assert sys.prefix.startswith(sys.argv[1]), sys.prefix
subprocess.run([sys.executable, "-c", "import socket; socket.getaddrinfo('127.0.0.1', 1)"], check=True)
"""


class ProvisionError(Exception):
    """The root could not be made; the message says which step failed and what to do."""


def home() -> Path:
    """The folder that holds the root: the system's cache for root, the user's own otherwise."""
    if os.environ.get("CORO_PYTHONS_CACHE"):
        return Path(os.environ["CORO_PYTHONS_CACHE"])
    if os.geteuid() == 0:
        return Path("/var/cache/coro-pythons")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coro-pythons"


def root() -> Path:
    """The provisioned root; it need not exist."""
    return home() / f"{SUITE}-{RECIPE}"


def python_path(minor: int) -> Path:
    """The provisioned Python 3.`minor`; it need not exist, and does not count before the stamp is there."""
    folder = root()
    return folder / "usr/bin" / f"python3.{minor}" if (folder / "complete").exists() else folder / "incomplete"


def mirror() -> str:
    """The package mirror of this machine: the first one its apt sources name."""
    etc = Path("/etc/apt")
    for path in [
        *sorted(etc.glob("sources.list.d/*.sources")),
        etc / "sources.list",
        *etc.glob("sources.list.d/*.list"),
    ]:
        if not path.exists():
            continue
        text = path.read_text(errors="replace")
        if "debian" not in text.lower():
            continue
        found = re.search(r"^URIs:\s*(\S+)", text, re.M) or re.search(r"^deb\s+(?:\[[^]]*\]\s+)?(\S+)", text, re.M)
        if found:
            return found[1]
    raise ProvisionError("expected a Debian mirror in /etc/apt/sources.list(.d), found none; name one there")


def apt_settings(folder: Path, suite: str, kind: str = "deb") -> dict[str, str]:
    """What makes apt use `suite` of this machine's mirror alone: a variable for its environment.

    Everything apt keeps goes below `folder`, which is made; the machine's own lists stay as they are. `kind` is "deb"
    or "deb-src". Raises ProvisionError where there is no mirror or no keyring.
    """
    keys = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    if shutil.which("apt-get") is None or not keys.exists():
        raise ProvisionError("expected Debian's apt-get and the package debian-archive-keyring; they are missing here")
    uri = mirror()
    for name in ("parts", "state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").write_text("")
    (folder / "parts" / "only.sources").write_text(
        f"Types: {kind}\nURIs: {uri}\nSuites: {suite}\nComponents: main\nSigned-By: {keys}\n"
    )
    settings = folder / "apt.conf"
    settings.write_text(
        'Dir::Etc::sourcelist "/dev/null";\n'
        f'Dir::Etc::sourceparts "{folder}/parts";\n'
        f'Dir::State "{folder}/state";\n'
        f'Dir::State::status "{folder}/status";\n'
        f'Dir::Cache "{folder}/cache";\n'
        'APT::Sandbox::User "root";\n'
        'Acquire::Check-Valid-Until "false";\n'  # a mirror that is a snapshot
    )
    return {"APT_CONFIG": str(settings)}


def run(step: str, *command: str | Path) -> None:
    """Run one step, quietly; what it printed goes into the error if it fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except FileNotFoundError as e:
        raise ProvisionError(f"{step}: {command[0]} is not installed (Debian package {command[0]})") from e
    if done.returncode:
        raise ProvisionError(f"{step}: {command[0]} ended with {done.returncode}:\n{done.stdout[-4000:]}")


def works() -> bool:
    """Whether the root is complete and its Pythons start."""
    for minor in MINORS:
        path = python_path(minor)
        if not path.exists():
            return False
        if subprocess.run([path, "-I", "-c", CHECK, root()], check=False, capture_output=True).returncode:
            return False
    return True


def provision() -> Path:
    """Make the root unless a working one is there; returns its path.  Raises `ProvisionError`.

    Two calls at the same time are serialised by a lock file.
    """
    home().mkdir(parents=True, exist_ok=True)
    with open(home() / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not works():
            make(root())
    return root()


def make(folder: Path) -> None:
    """Unpack, patch and check; `folder` is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    # Debian's Pythons come without Tk; one package has it for all of them.
    packages = ["base-files", "libc-bin", "ca-certificates", "tzdata", "python3-tk"]
    for minor in MINORS:
        packages += [f"python3.{minor}", f"python3.{minor}-dev", f"python3.{minor}-venv"]
        packages.append(f"libpython3.{minor}-testsuite")
    run(
        "unpacking the Pythons",
        "mmdebstrap",
        # A mirror that is a snapshot keeps Release files past their date.
        '--aptopt=Acquire::Check-Valid-Until "false"',
        "--variant=extract",
        f"--include={','.join(packages)}",
        SUITE,
        folder,
        mirror(),
    )
    # For a run as root with a strict umask: tests may drop their privileges.
    folder.chmod(0o755)
    libraries = [p.parent for p in folder.glob("usr/lib/*-linux-gnu*/libc.so.6")]
    if not libraries:
        raise ProvisionError(f"expected a C library in {folder}/usr/lib, found none; the suite {SUITE} has changed")
    library = libraries[0]
    for minor in MINORS:
        adapt(folder, library, minor)
    (folder / "complete").write_text("made by tools.dev pythons --provision\n")
    if not works():
        (folder / "complete").unlink()
        raise ProvisionError(f"the Pythons in {folder} do not start; try {folder}/usr/bin/python3.14 by hand")


def adapt(folder: Path, library: Path, minor: int) -> None:
    """Make Python 3.`minor` below `folder` run where it lies."""
    name = f"python3.{minor}"
    loader = next(iter(sorted(library.glob("ld-linux*.so.*"))), None)
    if loader is None:
        raise ProvisionError(f"expected a loader ld-linux*.so.* in {library}, found none")
    run(
        f"patching {name}",
        "patchelf",
        # DT_RPATH, not DT_RUNPATH: only the former also serves the libraries of libraries.
        "--force-rpath",
        "--set-rpath",
        library,
        "--set-interpreter",
        loader,
        folder / "usr/bin" / name,
    )
    # Debian's pyconfig.h includes <triplet/python3.x/pyconfig.h>, relative to /usr/include. Its include
    # folder proper must not be on the compiler's path: the C library's own headers lie there.
    link = folder / "usr/include" / name / library.name
    if not link.exists():
        link.symlink_to(Path("..") / library.name)
    # ensurepip takes pip's wheel from an absolute path, where an older Debian may have one that is too old.
    for data in (folder / "usr/lib" / name).glob("_sysconfig*"):
        text = data.read_text()
        if not data.is_symlink() and f"{folder}/usr/share" not in text:
            data.write_text(text.replace("/usr/share/python-wheels", f"{folder}/usr/share/python-wheels"))
