"""Virtual environments below `.dev/`, and the distributions of this tree built and installed into them.

One environment for each Python and purpose. Each carries a stamp of what was put into it; as long as the stamp fits, a
command starts at once. Build requirements come from the pyproject.toml files, the one place that names them; they are
installed into an environment, so that a build needs the package index once for each environment, not once for each
build.

A wheel of each distribution is built once for each Python, in `.dev/wheels/`, and installed wherever it is needed: by
`tools.dev test`, by tox environments (`tools.dev install`) and for benchmarks. What the build hook has compiled is kept
in `.dev/build`, which all Pythons share. What is tested is what is released, without debug symbols; for a debugger
CORO_DEBUG_SYMBOLS=1 keeps them (compiling takes 40 % longer).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tools.dev import packages
from tools.dev.packages import ROOT, settings
from tools.dev.pythons import Python

__all__ = [
    "CORE",
    "DEV",
    "OTHERS",
    "ROOT",
    "Environment",
    "StepFailed",
    "call",
    "install",
    "settings",
    "unbuilt",
    "wheels",
]

DEV = ROOT / ".dev"
CORE = packages.core()
# The distributions that build on coro-core.
OTHERS = tuple(packages.others())

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
    """A virtual environment for `python`, named for its purpose and made by `prepare`; or one that is at `folder`."""

    def __init__(self, python: Python, purpose: str, folder: Path | None = None) -> None:
        self.base = python
        self.folder = folder or DEV / f"{purpose}-{python.short}"
        self.python = self.folder / "bin" / "python"

    def stamp(self, kind: str) -> str:
        path = self.folder / f"{kind}.stamp"
        return path.read_text() if path.exists() else ""

    def set_stamp(self, kind: str, value: str) -> None:
        (self.folder / f"{kind}.stamp").write_text(value)

    def pip(self, *arguments: str | Path) -> None:
        call(self.python, "-m", "pip", "--disable-pip-version-check", *arguments, quiet=True)

    def add(self, files: Sequence[Path], stamp: str) -> None:
        """Install the wheels of one distribution, unless that has been done with the same stamp."""
        kind = files[0].name.partition("-")[0]
        if self.stamp(kind) == stamp:
            return
        # No index: a package of that name must never come from anywhere but this tree.
        self.pip("install", "-q", "--no-index", "--no-deps", "--force-reinstall", *files)
        self.set_stamp(kind, stamp)

    def has(self, requirements: Iterable[str]) -> bool:
        """Was it prepared with all of these?"""
        return set(requirements) <= set(self.stamp("requirements").splitlines()[2:])

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

    def install_core(self) -> None:
        """Build and install coro-core unless it is installed as it is in the tree."""
        install(self, [CORE])

    def install_other(self, package: Path) -> None:
        """Build and install a distribution on top of the coro-core installed, unless it is as it is in the tree."""
        install(self, [package])


def variables() -> dict[str, str]:
    """The environment variables of a build: the caller's, and where the build hook keeps what it has compiled."""
    return {"CORO_BUILD_CACHE": str(DEV / "build"), **os.environ}


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Keep other processes from the same work: tox environments may run side by side."""
    DEV.mkdir(exist_ok=True)
    with open(DEV / f"{name}.lock", "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def build(python: Path, package: Path, into: Path, short: str) -> None:
    """Build the wheel of `package` with an environment that has all it needs; each module compiled is told."""
    command: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "wheel", "-v"]
    command += ["--no-index", "--no-deps", "--no-build-isolation", "--no-cache-dir", "-w", into, package]
    said: list[str] = []
    with subprocess.Popen(
        command,
        env=variables(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            said.append(line)
            # What the build hook says of each module begins with the distribution's name and a colon.
            if line.strip().startswith(f"{package.name}: ["):
                print(f"{short} | {line.strip()}", flush=True)
    if child.returncode:
        print("".join(said), flush=True)
        raise StepFailed(f"building the wheel of {package.name} ended with {child.returncode}")


class _Wheel:
    """The wheel of one package for one Python: where it is, and whether it is that of today's sources."""

    def __init__(self, base: Python, package: Path) -> None:
        settings_of_build = ("CFLAGS", "CPPFLAGS", "LDFLAGS", "CORO_DEBUG_SYMBOLS", "CORO_VALGRIND")
        flags = "\0".join(os.environ.get(name, "") for name in settings_of_build)
        # A wheel made otherwise must not take the place of the usual one.
        self.kind = base.short
        if flags.strip("\0"):
            self.kind += f"-{hashlib.sha256(flags.encode()).hexdigest()[:8]}"
        self.package = package
        self.folder = DEV / "wheels" / self.kind
        core_stamp = f"{os.path.realpath(base.path)}\n{sources_digest(CORE)}"
        self.stamp = core_stamp if package == CORE else f"{core_stamp}\n{sources_digest(package)}"
        self.stamp_file = self.folder / f"{package.name}.stamp"

    def files(self) -> list[Path]:
        return list(self.folder.glob(f"{self.package.name.replace('-', '_')}-*.whl"))

    def is_there(self) -> bool:
        return bool(self.files()) and self.stamp_file.exists() and self.stamp_file.read_text() == self.stamp

    def build(self, python: Path, short: str) -> None:
        """Build it, with the build's requirements and coro-core in that environment. Raises StepFailed."""
        for old in [*self.files(), self.stamp_file]:
            old.unlink(missing_ok=True)
        build(python, self.package, self.folder, short)
        self.stamp_file.write_text(self.stamp)


def unbuilt(base: Python, wanted: Sequence[Path]) -> list[Path]:
    """Which of coro-core and the packages `wanted` will have to be built for a Python."""
    return [package for package in dict.fromkeys([CORE, *wanted]) if not _Wheel(base, package).is_there()]


def wheels(environment: Environment, wanted: Sequence[Path]) -> list[tuple[Path, str]]:
    """The wheels of the packages `wanted` for the Python of an environment, built if their sources have changed since.

    They are built in that environment if it has what is needed, or else in one for building. Returns each wheel, and a
    stamp of what it was made of. Raises StepFailed.
    """
    base = environment.base
    needs = {requirement for package in packages.packages() for requirement in settings(package)["build"]}
    builder = environment if environment.has(needs) else Environment(base, "build")
    found = []
    with locked(f"wheels-{base.short}"):
        core = _Wheel(base, CORE)
        core.folder.mkdir(parents=True, exist_ok=True)
        for package in dict.fromkeys([CORE, *wanted]):
            wheel = core if package == CORE else _Wheel(base, package)
            if not wheel.is_there():
                if builder is not environment:
                    builder.prepare(sorted(needs))
                if package != CORE:
                    # It is compiled against that, by the hook that comes with it.
                    builder.add(core.files(), f"{core.kind}\n{core.stamp}")
                wheel.build(builder.python, base.short)
            if package in wanted:
                found.append((wheel.files()[0], f"{wheel.kind}\n{wheel.stamp}"))
    return found


def install(environment: Environment, wanted: Sequence[Path]) -> None:
    """Build the packages `wanted`, and install those that are not installed as they are in the tree.

    Raises StepFailed.
    """
    for wheel, stamp in wheels(environment, wanted):
        environment.add([wheel], stamp)
