"""A package is added by its folder alone: in a copy of this checkout, a small one is put into packages/, and every tool
finds it without being told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PYPROJECT = """
[build-system]
requires = ["hatchling>=1.27", "Cython>=3.1", "setuptools>=77", "coro-core==0.1.*"]
build-backend = "hatchling.build"
[project]
name = "coro-zebra"
version = "0.1.0"
dependencies = ["coro-core==0.1.*"]
[dependency-groups]
test = ["pytest>=8.2", "striped>=1"]
[tool.hatch.build.targets.wheel]
packages = ["src/coro"]
[tool.hatch.build.targets.wheel.hooks.coro.modules]
"coro.zebra._wire" = "coro/zebra/_wire.pyx"
"""

FILES = {
    "pyproject.toml": PYPROJECT,
    "src/coro/zebra/__init__.py": '"""Zebras."""\n\nfrom coro.zebra.client import ask\n\n__all__ = ["ask"]\n',
    "src/coro/zebra/client.py": "def ask() -> int:\n    return 1\n",
    "src/coro/zebra/_wire.pyx": "",
    "src/coro/zebra/py.typed": "",
    "tests/test_zebra.py": "",
    "newsfragments/zebra.feature.md": "Zebras.\n",
    "bench/suite.py": """
from tools.bench._suites import Case, Rival

CASES = (Case("zebra", "stripes", "stripes.py", {}, (Rival("striped", 0.5),)),)
DISTRIBUTIONS = {"striped": "striped"}
COUNTED = ("stripe",)
""",
}

# Asks the tools of the checkout that it runs in.
ASK = """
import json, sys
sys.path.insert(0, "")
from tools.bench import _instructions, _suites
from tools.dev import checks, packages, suite
import tools.second_distribution as second
zebra = packages.packages()[-1]
files, variables = checks.mypy_arguments()
(case,) = [case for case in _suites.CASES if case.suite == "zebra"]
print(json.dumps({
    "packages": [p.name for p in packages.packages()],
    "tested": [p.name for p in suite.OTHERS],
    "settings": packages.settings(zebra),
    "import": packages.import_names(zebra),
    "mypy": [f for f in files if "zebra" in f],
    "mypy_path": variables["MYPYPATH"].split(":")[-1],
    "pages": packages.pages(zebra),
    "added by name": second.OTHERS,
    "workload": str(case.folder / case.workload), "measured": case.package,
    "peer": _suites.DISTRIBUTIONS["striped"],
    "counted": sorted(_instructions.measured_packages()),
}))
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tools read of this checkout, and one more package."""
    root = tmp_path_factory.mktemp("checkout")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tools", root / "tools", ignore=ignore)
    for package in sorted((ROOT / "packages").iterdir()):
        names = root / "packages" / package.name / "src" / "coro"
        names.mkdir(parents=True)
        shutil.copy(package / "pyproject.toml", names.parents[1])
        # What is below does not matter, so the files themselves are left out.
        for init in (package / "src").glob("**/__init__.py"):
            place = names.parents[1] / init.relative_to(package)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("")
    for name, text in FILES.items():
        path = root / "packages" / "coro-zebra" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_every_tool_finds_it(checkout: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ASK], cwd=checkout, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    before = sorted(path.name for path in (ROOT / "packages").iterdir() if path.name != "coro-core")
    assert found["packages"] == ["coro-core", *sorted([*before, "coro-zebra"])]
    assert found["tested"] == found["packages"][1:]
    assert found["settings"] == {
        "build": ["hatchling>=1.27", "Cython>=3.1", "setuptools>=77"],
        "test": ["pytest>=8.2", "striped>=1"],
    }
    assert found["import"] == ["coro.zebra"]
    bench = "packages/coro-zebra/bench"
    assert [path for path in found["mypy"] if not path.startswith(bench)] == ["packages/coro-zebra/src/coro"]
    assert f"{bench}/suite.py" in found["mypy"]
    assert found["mypy_path"] == str(checkout / "packages" / "coro-zebra" / "src")
    assert found["pages"] == ["packages/zebra", "reference/zebra"]
    assert found["added by name"] == [f"packages/{name}" for name in found["packages"][1:]]
    assert found["workload"] == str(checkout / "packages" / "coro-zebra" / "bench" / "stripes.py")
    assert found["measured"] == "coro-zebra" and found["peer"] == "striped"
    assert found["counted"] == ["coro-core", "coro-zebra"]


def public_api(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The tool, in an environment where the package is importable."""
    return subprocess.run(
        [sys.executable, checkout / "tools" / "public_api.py", *arguments],
        env={**os.environ, "PYTHONPATH": str(checkout / "packages" / "coro-zebra" / "src")},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_its_public_names_are_kept(checkout: Path) -> None:
    pytest.importorskip("coro")
    listed = checkout / "packages" / "coro-zebra" / "public_api.txt"
    done = public_api(checkout, "coro-zebra")
    assert done.returncode == 1 and "+coro.zebra.ask" in done.stdout, done.stderr
    done = public_api(checkout, "--update", "coro-zebra")
    assert done.returncode == 0, done.stderr
    # `client` has no __all__: what of ours it holds is public.
    assert listed.read_text().splitlines() == [
        "# coro.zebra",
        "coro.zebra.ask",
        "# coro.zebra.client",
        "coro.zebra.client.ask",
    ]
    assert public_api(checkout, "coro-zebra").returncode == 0
    done = public_api(checkout, "coro-gnu")
    assert done.returncode == 2 and "got 'coro-gnu'" in done.stderr


@pytest.mark.parametrize("name", ["zebra", "coro-gnu"])
def test_a_folder_has_the_name_of_its_distribution(tmp_path: Path, name: str) -> None:
    sys.path.insert(0, str(ROOT))
    try:
        from tools.dev import packages
    finally:
        sys.path.remove(str(ROOT))
    folder = tmp_path / "packages" / "zebra"
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(f'[project]\nname = "{name}"\n')
    with pytest.raises(packages.PackageError, match=f'packages/zebra: expected .* got "{name}"'):
        packages.packages(tmp_path)
