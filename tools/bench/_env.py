"""The place where measurements run: a virtual environment with the peers and our packages, and the compiled C helpers.

All of it lies in a cache folder ($XDG_CACHE_HOME/coro-bench, or --cache), a part per Python, made at the first run and
kept: some seconds and about 60 MB. Our packages are those of this repository, built by `tools.dev` whenever their
sources have changed and shared with the tests; with a folder given by --coro-path that folder is put on PYTHONPATH
instead and nothing of ours is installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tools.dev import environments, packages, pythons

from ._suites import DISTRIBUTIONS, WORKLOADS

HERE = Path(__file__).resolve().parent

_ASK = """
import importlib.metadata as m, json, platform, sys
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
print(json.dumps({"python": platform.python_version(), "tag": sys.implementation.cache_tag,
                  "peers": {n: version(n) for n in sys.argv[1:]}}))
"""


class EnvironmentFailure(Exception):
    """The environment cannot be made (no C compiler, pip failed, ...); the message says what to do."""


def default_cache() -> Path:
    """The folder used when --cache is not given."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coro-bench"


def _run(command: list[str], purpose: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise EnvironmentFailure(f"{purpose} failed with exit status {done.returncode}:\n{tail}")
    return done.stdout


def _digest(paths: Iterable[Path]) -> str:
    """A digest over names and contents, so that changed sources are noticed without trusting file times."""
    total = hashlib.sha256()
    for path in paths:
        total.update(f"{path}\0".encode())
        total.update(path.read_bytes())
    return total.hexdigest()


class Environment:
    """The interpreter for the workloads, with what is installed beside it.

    python: the interpreter whose version is measured. coro_path: a folder that holds a built `coro`, or
    None to install it. Raises EnvironmentFailure where something is missing.
    """

    def __init__(self, cache: Path, python: str = sys.executable, coro_path: Path | None = None) -> None:
        self.cache = cache
        self.coro_path = coro_path
        described = json.loads(_run([python, "-c", _ASK], f"asking {python} for its version"))
        self.folder = cache / described["tag"]
        self.python = self.folder / "bin" / "python"
        if not self.python.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            _run([python, "-m", "venv", str(self.folder)], "making a virtual environment")
        self.variables = dict(os.environ, PYTHONHASHSEED="0")
        # Workloads of packages share what those here share.
        folders = [str(WORKLOADS)] if coro_path is None else [str(coro_path.resolve()), str(WORKLOADS)]
        self.variables["PYTHONPATH"] = os.pathsep.join(folders)
        self.versions: dict[str, str | None] = {}
        self.python_version: str = described["python"]
        self.missing: dict[str, str] = {}

    def _pip(self, *arguments: str) -> None:
        _run(
            [str(self.python), "-m", "pip", "--disable-pip-version-check", "-q", "install", *arguments],
            f"pip install {arguments[-1]}",
        )

    def install(self, peers: set[str], ours: Iterable[str] = (packages.CORE_NAME,), needs: Iterable[str] = ()) -> None:
        """Install what these peers need, what everybody `needs`, and if "coro" is one of the peers, coro-core and the
        packages `ours`.

        What cannot be installed lands in `missing`, with the reason.
        """
        wanted = sorted({*needs, *(DISTRIBUTIONS[peer] for peer in peers if peer in DISTRIBUTIONS)})
        self._look(wanted)
        for name in wanted:
            if self.versions[name] is None:
                try:
                    self._pip("--only-binary", ":all:", name)
                except EnvironmentFailure as error:
                    self.missing[name] = str(error)
        if "coro" in peers and self.coro_path is None:
            self._install_ours({packages.CORE_NAME, *ours})
        self._look(wanted)

    def _look(self, names: list[str]) -> None:
        answer = _run([str(self.python), "-c", _ASK, "coro-core", *names], "listing installed packages")
        self.versions = json.loads(answer)["peers"]

    def _install_ours(self, names: set[str]) -> None:
        python, problem = pythons.probe(self.python, int(self.python_version.split(".")[1]))
        if python is None:
            raise EnvironmentFailure(f"coro cannot be built for {self.python}: {problem or 'not a Python it knows'}")
        wanted = [package for package in packages.packages() if package.name in names]
        try:
            environments.install(environments.Environment(python, "", self.folder), wanted)
        except environments.StepFailed as error:
            raise EnvironmentFailure(str(error)) from error

    def lacks(self, peer: str) -> str | None:
        """Why this peer cannot be measured, or None."""
        return self.missing.get(DISTRIBUTIONS.get(peer, ""))

    def compiled(self, name: str, folder: Path = HERE) -> Path:
        """The program made from `name`.c in `folder` or here, compiled when it is missing or its source has changed.
        A line of the source that ends with "Link with: -lNAME ..." says what libraries it needs."""
        source = folder / f"{name}.c"
        if not source.exists():
            source = HERE / f"{name}.c"
        program = self.cache / f"{name}-{_digest([source])[:16]}"
        if not program.exists():
            compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
            if not compiler:
                raise EnvironmentFailure("no C compiler found: install one, or name it in the variable CC")
            partial = program.with_suffix(".new")
            libraries = re.search(r"Link with: ([-\w ]+)$", source.read_text(), re.MULTILINE)
            command = [*compiler.split(), "-O2", "-o", str(partial), str(source)]
            _run(command + (libraries[1].split() if libraries else []), f"compiling {source.name}")
            partial.rename(program)
        return program
