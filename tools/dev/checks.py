"""Style and types: what is checked is found by looking, so that a new package is checked without being named.

Style is ruff's, with the settings in the root's pyproject.toml; of Cython, C and assembly it is only the length of
lines, see lines.py. Types are mypy's: of each package the folder `src` and, if there is one, `bench`; of the tools
those that are typed, and the larger programs of the manual. mypy cannot look for packages by itself, so it is given
their folders here; `mypy` alone has nothing to check. A minute the first time, some seconds after that.
"""

from __future__ import annotations

import os
from pathlib import Path

from tools.dev import lines, packages
from tools.dev.environments import DEV, ROOT, Environment, StepFailed, call
from tools.dev.pythons import Python

REQUIREMENTS = [
    "ruff>=0.15,<0.16",  # a new minor version may add findings to the rules selected
    "mypy>=1.19",  # the first that knows 3.15's grammar
    "cryptography>=42",  # whose types coro-ssl is checked with
    "pytest>=8.2",  # mypy reads coro/testing/pytest_plugin.py, which imports it
]

# The tools that are typed.
TOOLS = ("tools/dev", "tools/cpython_tests.py", "tools/public_api.py", "tools/second_distribution.py", "tools/stubs.py")


def mypy_arguments(root: Path = ROOT) -> tuple[list[str], dict[str, str]]:
    """What mypy is to be given for the checkout `root`: files and folders, and environment variables."""
    typed, sources = packages.typed(root)
    builders = [package / "hatch_build.py" for package in packages.packages(root)]
    found = [*typed, *(path for path in builders if path.exists()), *(root / tool for tool in TOOLS)]
    # The programs of the manual, each in a folder of its own with its test; not those for other libraries.
    programs = sorted(path for path in (root / "docs/examples").glob("*/*.py") if not path.stem.endswith("_gevent"))
    found += programs
    # What the benchmarks of packages import from those of the tools.
    sources = [root / "tools" / "bench" / "workloads", *dict.fromkeys(path.parent for path in programs), *sources]
    return [str(path.relative_to(root)) for path in found], {"MYPYPATH": os.pathsep.join(map(str, sources))}


def lint(python: Python) -> int:
    """Run all checks, also when one has found something; the exit status."""
    environment = Environment(python, "lint")
    environment.prepare(REQUIREMENTS)
    files, variables = mypy_arguments()
    commands = [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy", "--cache-dir", str(DEV / "mypy"), *files],
    ]
    failed = []
    for command in commands:
        print(" ".join(command[:3]), flush=True)
        try:
            call(environment.python, "-m", *command, cwd=ROOT, env={**os.environ, **variables})
        except StepFailed:
            failed.append(command[0])
    print("line lengths", flush=True)
    found = lines.too_long(ROOT)
    if found:
        print("\n".join(found), flush=True)
        failed.append("line lengths")
    if failed:
        raise StepFailed(f"{', '.join(failed)}: see above")
    return 0
