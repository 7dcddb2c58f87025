"""Virtual environments below `.dev/`, and coro-core built and installed into them.

One environment for each Python and purpose.  Each carries a stamp of what was put into it; as long as the
stamp fits, a command starts at once, and when the sources have changed only the changed files are compiled
again (the build hook keeps its objects).  Build requirements come from pyproject.toml, the one place that
names them; they are installed into the environment, so that a build needs the package index once for each
environment, not once for each build.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

from tools.dev.pythons import Python

ROOT = Path(__file__).resolve().parents[2]
DEV = ROOT / ".dev"
CORE = ROOT / "packages" / "coro-core"
# The distributions that build on coro-core.
OTHERS = (ROOT / "packages" / "coro-clocks",)

# Not part of any build: a change there need not rebuild.
NOT_SOURCES = {"__pycache__", "build", "dist", "tests", "newsfragments"}


class StepFailed(Exception):
    """A step of a command failed; the message is for the user, the step's own output has been shown."""


def call(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None, quiet: bool = False) -> None:
    """Run a step without standard input; raises `StepFailed`, after showing what a quiet step printed."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        if quiet:
            print(done.stdout, flush=True)
        raise StepFailed(f"{' '.join(map(str, command))} ended with {done.returncode}")


def settings(package: Path = CORE) -> dict[str, list[str]]:
    """What the pyproject.toml of a distribution requires, but for our own: keys "build" and "test"."""
    with open(package / "pyproject.toml", "rb") as f:
        table = tomllib.load(f)
    build = [r for r in table["build-system"]["requires"] if not r.startswith("coro-")]
    groups = table["dependency-groups"]
    return {"build": build, "test": groups["test"] + groups.get("peers", [])}


def sources_digest(package: Path = CORE) -> str:
    """A digest of every file a build of a distribution reads."""
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(package):
        folders[:] = sorted(set(folders) - NOT_SOURCES)
        for name in sorted(files):
            if not name.endswith((".so", ".pyc")):
                path = Path(folder, name)
                if not path.is_file():  # a socket or pipe that some program left here
                    continue
                digest.update(f"{path.relative_to(package)}\0".encode())
                digest.update(path.read_bytes())
    for name in ("CC", "CFLAGS", "LDFLAGS"):
        digest.update(os.environ.get(name, "").encode() + b"\0")
    return digest.hexdigest()


class Environment:
    """A virtual environment for `python`, named for its purpose; made by `prepare`."""

    def __init__(self, python: Python, purpose: str) -> None:
        self.base = python
        self.folder = DEV / f"{purpose}-{python.short}"
        self.python = self.folder / "bin" / "python"

    def stamp(self, kind: str) -> str:
        path = self.folder / f"{kind}.stamp"
        return path.read_text() if path.exists() else ""

    def set_stamp(self, kind: str, value: str) -> None:
        (self.folder / f"{kind}.stamp").write_text(value)

    def pip(self, *arguments: str | Path) -> None:
        call(self.python, "-m", "pip", "--disable-pip-version-check", *arguments, quiet=True)

    def prepare(self, requirements: list[str]) -> None:
        """Make the environment with `requirements` unless it is there already."""
        wanted = "\n".join([os.path.realpath(self.base.path), self.base.full, *sorted(requirements)])
        if self.python.exists() and self.stamp("requirements") == wanted:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        DEV.mkdir(exist_ok=True)
        try:
            call(self.base.path, "-m", "venv", self.folder, quiet=True)
        except StepFailed:
            # Debian's venv lacks ensurepip unless one more package is there; pip itself may be.
            shutil.rmtree(self.folder, ignore_errors=True)
            call(self.base.path, "-m", "venv", "--without-pip", self.folder, quiet=True)
            call(self.base.path, "-m", "pip", "--python", self.python, "install", "-q", "pip", quiet=True)
        if requirements:
            self.pip("install", "-q", *requirements)
        self.set_stamp("requirements", wanted)

    def wheel(self) -> Path:
        """Build coro-core for this Python, if its sources have changed since; returns the wheel."""
        folder = DEV / "wheels" / self.base.short
        digest = f"{os.path.realpath(self.base.path)}\n{sources_digest()}"
        stamp = folder / "stamp"
        found = sorted(folder.glob("coro_core-*.whl"))
        if found and stamp.exists() and stamp.read_text() == digest:
            return found[0]
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.pip("wheel", "-q", "--no-build-isolation", "--no-deps", "-w", folder, CORE)
        stamp.write_text(digest)
        return next(folder.glob("coro_core-*.whl"))

    def install_core(self) -> None:
        """Build and install coro-core unless it is installed as it is in the tree."""
        wheel = self.wheel()
        wanted = (wheel.parent / "stamp").read_text()
        if self.stamp("core") == wanted:
            return
        # No index: a package of that name must never come from anywhere but this tree.
        self.pip("install", "-q", "--no-index", "--no-deps", "--force-reinstall", wheel)
        self.set_stamp("core", wanted)

    def install_other(self, package: Path) -> None:
        """Build and install a distribution on top of the coro-core installed, unless it is as it is in the tree."""
        wanted = f"{self.stamp('core')}\n{sources_digest(package)}"
        if self.stamp(package.name) == wanted:
            return
        options = ["-q", "--no-index", "--no-deps", "--no-build-isolation", "--force-reinstall"]
        self.pip("install", *options, package)
        self.set_stamp(package.name, wanted)
