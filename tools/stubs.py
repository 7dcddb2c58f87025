"""Compares the stubs of compiled modules with the modules themselves, by mypy's stubtest.

    python tools/stubs.py coro-core

The package has to be installed in the Python that runs this, with mypy. mypy itself believes a stub, so a parameter
that was renamed in a .pyx only would never be noticed. What differs for good is named below, with the reason;
everything else fails. Ten seconds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: Patterns of names that may differ, for all packages.
ALLOWED = {
    r".*\.__pyx_capi__": "what other extensions import",
    r".*\.__test__": "Cython's table of doctests",
    r".*\.__all__": "for `from ... import *` in our own package",
    r".*\.__class_getitem__": "the stub says that a class is generic, by its base",
    r".*\.(__init__|__new__)": "arguments are taken by __cinit__; tests compare the signature of the class",
    r"coro\._runtime\.scheduler\.(new|spawn)": "several forms, so that arguments are checked: see _Spawn in the stub",
    r"coro\._sync\.select\.Selection": "seen by other extensions only",
    r"coro\.emulation\._blocking\.(Limit|Waiter)": "seen by the emulation's own modules only",
}


def modules(package: Path) -> list[str]:
    """The compiled modules of a package that have a stub and are there on this system."""
    source = package / "src"
    stubs = [path for path in sorted(source.rglob("*.pyi")) if path.with_suffix(".pyx").exists()]
    names = [".".join(path.relative_to(source).with_suffix("").parts) for path in stubs]
    found = subprocess.run(
        [sys.executable, "-c", "import importlib.util as u, sys; print(*filter(u.find_spec, sys.argv[1:]))", *names],
        check=True,
        capture_output=True,
        text=True,
    )
    return found.stdout.split()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", help="such as coro-core")
    package = ROOT / "packages" / parser.parse_args().package
    wanted = modules(package)
    print(f"{len(wanted)} compiled modules of {package.name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        allowed = Path(folder, "allowed")
        allowed.write_text("".join(f"{pattern}  # {reason}\n" for pattern, reason in ALLOWED.items()))
        command = [sys.executable, "-m", "mypy.stubtest", *wanted, "--concise", "--allowlist", str(allowed)]
        # Every extension class is what this option is about. Not every pattern is needed by each package.
        command += ["--ignore-disjoint-bases", "--ignore-unused-allowlist"]
        return subprocess.run(command, cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
