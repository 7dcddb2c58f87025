"""Proves that packages can be added to coro-core one at a time: as wheels, editable, and mixed.

Two fresh virtual environments, one with coro-core from its wheel, one with an editable coro-core.  In each,
coro-core alone is checked, then the throw-away distribution of `tests/second-distribution` is added, once as
a wheel and once editable; both are checked, and after its removal coro-core again.  Against an interface
version changed on purpose the second distribution must refuse to import.  Wheels are built isolated, as an
installer does, with a folder of wheels as the only index: nobody's upload of a name of ours can get in, and
the second build has to find coro-core's .pxd files in the wheel.  Editable builds run in a copy of the tree,
because they put compiled modules beside the sources.  About a minute, and two where nothing has been compiled
yet; needs the package index once, for the build requirements.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.dev import packages
from tools.dev.environments import DEV, ROOT

CORE = "packages/coro-core"
SECOND = "tests/second-distribution"
# Distributions of ours on top of coro-core.
OTHERS = [f"packages/{folder.name}" for folder in packages.others()]

# Imports a package, and each of its modules that is no program. A module that needs an optional library says which
# extra of its distribution brings it: "pip install coro-ssl[certificates]".
TRY = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    extra = name.replace(".", "-") + "["
    for found in pkgutil.walk_packages(getattr(package, "__path__", ()), name + "."):
        if not found.name.endswith(".__main__"):
            try:
                importlib.import_module(found.name)
            except ImportError as e:
                if extra not in str(e):
                    raise
"""

WHERE = "import coro, os; print(os.path.dirname(coro.__file__))"


def call(*command: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> None:
    """Run a command; what it prints is shown only if it fails."""
    done = subprocess.run(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        print(done.stdout)
        sys.exit(f"second distribution: {' '.join(map(str, command))} ended with {done.returncode}")
    if str(command[-2]).endswith("check.py"):
        print("   ", done.stdout.strip(), flush=True)


def copy_tree(to: Path) -> None:
    """Copy the two distributions and what their builds read from the root."""
    ignore = shutil.ignore_patterns("build", "*.so", "__pycache__")
    for part in (CORE, SECOND, *OTHERS):
        shutil.copytree(ROOT / part, to / part, ignore=ignore)
    shutil.copy(ROOT / ".gitignore", to)


def clean_environment(wheels: Path) -> dict[str, str]:
    """The environment of a pip that sees nothing but the folder `wheels`."""
    # And no debug symbols: it makes the wheels as they are released.
    ignored = ("PIP_", "PYTHON", "CORO_DEBUG_SYMBOLS", "CORO_VALGRIND")
    env = {k: v for k, v in os.environ.items() if not k.startswith(ignored)}
    env.update(
        # What is compiled here is what `tools.dev` compiles: the same sources make the same objects.
        CORO_BUILD_CACHE=os.environ.get("CORO_BUILD_CACHE", str(DEV / "build")),
        PIP_CONFIG_FILE=os.devnull,
        PIP_NO_INDEX="1",
        PIP_FIND_LINKS=str(wheels),
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        # No bytecode of Cython and others, which are installed some ten times and hardly used: a third of the time.
        PIP_COMPILE="0",
    )
    return env


def make_environment(folder: Path) -> Path:
    call(sys.executable, "-m", "venv", folder)
    return folder / "bin" / "python"


def check_stripped(wheels: Path) -> None:
    """No compiled module of our wheels has debug symbols in it."""
    for path in wheels.glob("coro_*.whl"):
        with zipfile.ZipFile(path) as wheel:
            modules = [name for name in wheel.namelist() if name.endswith(".so")]
            for name in modules:
                if b".debug_info" in wheel.read(name):
                    sys.exit(f"second distribution: expected no debug symbols in {path.name}, found some in {name}")
        print(f"    {path.name}: {path.stat().st_size / 1e6:.1f} MB, {len(modules)} modules without debug symbols")


def check_others(work: Path, wheels: Path, env: dict[str, str]) -> None:
    """Install each distribution of ours by name from its wheel where nothing else is; coro-core has to come along."""
    for part in OTHERS:
        name = Path(part).name
        print(f"{name} (wheel)", flush=True)
        with zipfile.ZipFile(next(wheels.glob(name.replace("-", "_") + "-*.whl"))) as wheel:
            packed = wheel.namelist()
        folder = "coro/" + name.removeprefix("coro-")
        if "coro/__init__.py" in packed or f"{folder}/py.typed" not in packed:
            sys.exit(f"second distribution: expected {folder}/py.typed and no coro/__init__.py in the wheel of {name}")
        python = make_environment(work / name)
        call(python, "-m", "pip", "install", "-q", name, env=env)
        call(python, "-W", "error", "-c", TRY, *packages.import_names(ROOT / part), env=env, cwd=work)
        call(python, "-m", "pip", "check", env=env, cwd=work)


def check_abi(python: Path, second: Path, env: dict[str, str], cwd: Path) -> None:
    """Compile the second distribution against a changed interface version: its import must be refused.

    `python` has coro-core installed from a wheel, whose _runtime/abi.pxd is changed and stays so.
    """
    site = subprocess.run([python, "-c", WHERE], env=env, cwd=cwd, check=True, capture_output=True, text=True)
    declaration = Path(site.stdout.strip()) / "_runtime/abi.pxd"
    text = declaration.read_text()
    changed = re.sub(r"CORO_ABI = \d+", "CORO_ABI = 987654", text)
    if changed == text:
        sys.exit(f"second distribution: expected a line CORO_ABI = <number> in {declaration}, found none")
    declaration.write_text(changed)
    call(python, "-m", "pip", "install", "-q", "--no-build-isolation", "-e", second, env=env)
    command: list[str | Path] = [python, "-c", "import coro.second"]
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True)
    if done.returncode == 0 or "987654" not in done.stderr:
        sys.exit(f"second distribution: expected a refusal of interface version 987654, got {done.stderr!r}")
    print("    another interface version is refused:", done.stderr.strip().splitlines()[-1])


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="coro-second-") as name:
        work = Path(name)
        tree = work / "tree"
        copy_tree(tree)
        wheels = work / "wheels"
        wheels.mkdir()
        with open(tree / CORE / "pyproject.toml", "rb") as f:
            requires = tomllib.load(f)["build-system"]["requires"]

        print("fetching build requirements", flush=True)
        builder = make_environment(work / "builder")
        # "editables" is what hatchling asks for when an editable wheel is built.
        theirs = packages.foreign(packages.packages(ROOT))
        call(builder, "-m", "pip", "wheel", "-q", "-w", wheels, *requires, "editables", *theirs)
        env = clean_environment(wheels)

        print("building the wheels in isolation", flush=True)
        for part in (CORE, SECOND, *OTHERS):
            call(builder, "-m", "pip", "wheel", "-q", "--no-deps", "-w", wheels, tree / part, env=env, cwd=work)

        check_stripped(wheels)
        check = ROOT / SECOND / "check.py"
        # "size changed" tells of a module compiled against another coro-core.
        strict = ["-W", "error::RuntimeWarning"]
        for core_editable in (False, True):
            core = "editable" if core_editable else "wheel"
            print(f"coro-core ({core})", flush=True)
            python = make_environment(work / f"core-{core}")
            install: list[str | Path] = [python, "-m", "pip", "install", "-q"]
            # Not isolated: an editable coro-core is found in the environment and nowhere else.
            editable = [*install, "--no-build-isolation", "-e"]
            call(*install, *requires, "editables", env=env)
            if core_editable:
                call(*editable, tree / CORE, env=env)
            else:
                call(*install, "coro-core", env=env)
            call(python, *strict, check, "core", env=env, cwd=work)
            for second_editable in (False, True):
                print(f"coro-core ({core}) + second ({'editable' if second_editable else 'wheel'})", flush=True)
                if second_editable:
                    call(*editable, tree / SECOND, env=env)
                else:
                    call(*install, "coro-second-distribution", env=env)
                call(python, *strict, check, "both", env=env, cwd=work)
                call(python, "-m", "pip", "uninstall", "-q", "-y", "coro-second-distribution", env=env)
                call(python, *strict, check, "core", env=env, cwd=work)
            if not core_editable:
                check_abi(python, tree / SECOND, env, work)
        check_others(work, wheels, env)
    print("second distribution: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
