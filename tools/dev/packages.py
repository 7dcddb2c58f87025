"""Which distributions there are: every folder in `packages/` with a pyproject.toml, and nobody keeps a list.

All that the tools want to know of a package is found by looking, too: what it is built with and tested with stands in
its pyproject.toml; its types, tests, benchmarks, changelog fragments and list of public names have their places in its
folder.  docs/contributing/index.rst shows a package from within.  Reading them takes a millisecond.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: The one that all others are compiled against.
CORE_NAME = "coro-core"


class PackageError(Exception):
    """Something about a package is not as it has to be; the message says where, and what is expected."""


def packages(root: Path = ROOT) -> list[Path]:
    """The folders of all distributions of the checkout `root`: coro-core first, the others by name.

    Raises PackageError for a folder that is not named after its distribution, or has no name that begins with "coro-".
    """
    found = sorted(path.parent for path in (root / "packages").glob("*/pyproject.toml"))
    for folder in found:
        name = table(folder)["project"]["name"]
        if name != folder.name or not name.startswith("coro-"):
            raise PackageError(f'packages/{folder.name}: expected a distribution "coro-..." of that name, got "{name}"')
    return sorted(found, key=lambda folder: (folder.name != CORE_NAME, folder.name))


def core(root: Path = ROOT) -> Path:
    """The folder of coro-core."""
    return root / "packages" / CORE_NAME


def others(root: Path = ROOT) -> list[Path]:
    """The folders of the distributions that build on coro-core."""
    return [folder for folder in packages(root) if folder.name != CORE_NAME]


def table(package: Path) -> dict[str, Any]:
    """The pyproject.toml of a distribution."""
    with open(package / "pyproject.toml", "rb") as f:
        return tomllib.load(f)


def repository(root: Path = ROOT) -> str:
    """The address of the repository, from the pyproject.toml of the root."""
    return str(table(root)["tool"]["coro"]["repository"])


def settings(package: Path | None = None) -> dict[str, list[str]]:
    """What a distribution (default: coro-core) needs, but for our own: keys "build" and "test"."""
    content = table(package or core())
    requires: list[str] = content["build-system"]["requires"]
    groups: dict[str, list[str]] = content.get("dependency-groups", {})
    build = [requirement for requirement in requires if not requirement.startswith("coro-")]
    # Wheels of ours are installed without what they depend on, because that is looked for in an index.
    needed = foreign([package]) if package is not None else []
    # "peers" are other people's programs and libraries that tests talk to.
    return {"build": build, "test": needed + groups.get("test", []) + groups.get("peers", [])}


def foreign(of: list[Path]) -> list[str]:
    """What these packages depend on besides each other."""
    found = {one for package in of for one in table(package)["project"].get("dependencies", [])}
    return sorted(one for one in found if not one.startswith("coro-"))


def import_names(package: Path) -> list[str]:
    """What a distribution brings to import: "coro.clocks"; for coro-core "coro" and what is beside it."""
    source = package / "src"
    if package.name == CORE_NAME:
        return sorted(path.parent.name for path in source.glob("*/__init__.py"))
    found = [path.parent for path in (source / "coro").glob("*/__init__.py")]
    found += [path for path in (source / "coro").glob("*.py") if path.name != "__init__.py"]
    return sorted(f"coro.{path.stem}" for path in found)


def pages(package: Path) -> list[str]:
    """The pages of the manual that a distribution other than coro-core has, without their ending."""
    name = package.name.removeprefix("coro-")
    return [f"packages/{name}", f"reference/{name}"]


def typed(root: Path = ROOT) -> tuple[list[Path], list[Path]]:
    """What is type-checked of the packages, and the folders that their imports are looked for in.

    mypy takes one module of a name, and every package has a `bench/suite.py`: the first is checked, the others are
    tables of the same form, which each run of the benchmarks reads.
    """
    found: list[Path] = []
    names: set[str] = set()
    for package in packages(root):
        found += sorted(path for path in (package / "src").iterdir() if path.name.isidentifier())
        benches = [path for path in sorted((package / "bench").glob("*.py")) if path.name not in names]
        names.update(path.name for path in benches)
        found += benches
    return found, [package / "src" for package in packages(root)]
