"""What a package index shows of each distribution: addresses of the one repository, no link that leads nowhere there,
classifiers that are true. The wheels are made and tried by `python3 -m tools.dev wheels`; here are the rules."""

from __future__ import annotations

import email.parser
import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.dev import packages, pythons, release  # noqa: E402

PACKAGES = packages.packages()
NAMES = [package.name for package in PACKAGES]


@pytest.mark.parametrize("package", PACKAGES, ids=NAMES)
def test_addresses_are_those_of_the_one_repository(package: Path) -> None:
    repository = packages.repository()
    urls = packages.table(package)["project"]["urls"]
    assert {"Source", "Documentation", "Changelog", "Issues"} <= urls.keys()
    assert urls["Source"] == repository
    assert [url for url in urls.values() if not url.startswith(repository)] == []
    paths = [url.partition("/HEAD/")[2] for url in urls.values() if "/HEAD/" in url]
    assert paths and [path for path in paths if not (ROOT / path).exists()] == []


def test_the_readme_has_all_packages_in_one_table() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `packages/(coro-[a-z]+)` \| .*\[README\]\(packages/\1/README\.md\)", text, re.MULTILINE)
    assert sorted(named) == sorted(NAMES) and named[0] == "coro-core" and named[1:] == sorted(named[1:])


@pytest.mark.parametrize("package", PACKAGES, ids=NAMES)
def test_classifiers_say_what_is_tested(package: Path) -> None:
    project = packages.table(package)["project"]
    minors = [int(m[1]) for c in project["classifiers"] if (m := re.fullmatch(r"Programming .* :: 3\.(\d+)", c))]
    assert tuple(minors) == pythons.MINORS
    assert project["requires-python"] == f">=3.{pythons.MINORS[0]}"
    # The parts for other systems were never run there.
    systems = [c for c in project["classifiers"] if c.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]


@pytest.mark.parametrize("file", sorted([ROOT / "README.md", *(p / "README.md" for p in PACKAGES)]), ids=str)
def test_links_of_readmes_lead_to_files(file: Path) -> None:
    links = [link.partition("#")[0] for link in release.relative_links(file.read_text())]
    assert [link for link in links if not (file.parent / link).exists()] == []


@pytest.mark.parametrize("name", NAMES)
def test_an_installed_wheel_has_no_relative_link(name: str) -> None:
    try:
        found = metadata(name)
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed here; `tools.dev wheels` looks at the wheel")
    assert release.faults(found) == []


def test_each_package_says_in_the_same_words_that_coro_core_is_missing() -> None:
    """The file is a copy in each, because where coro-core is missing there is nothing to import it from."""
    folders = [package / "src" / "coro" / package.name.removeprefix("coro-") for package in PACKAGES[1:]]
    assert len({(folder / "_core.py").read_text() for folder in folders}) == 1
    for folder in folders:
        # Around the imports, or in the function that makes them when a name is first asked for.
        assert re.search(r"^ *with _explained\(\):$", (folder / "__init__.py").read_text(), re.MULTILINE)


def test_faults_are_found() -> None:
    text = """Project-URL: Source, https://example.org/other
Description-Content-Type: text/markdown

See [the manual](docs/index.rst).
"""
    wrong = release.faults(email.parser.Parser().parsestr(text))
    assert len(wrong) == 3
    assert wrong[0] == "the link to 'docs/index.rst' leads nowhere on an index"
    assert "as the project's URL" in wrong[1] and "expected Source below" in wrong[2]
