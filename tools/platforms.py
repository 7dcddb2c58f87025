"""Wheels for a processor or a C library that this machine does not have, built and tested here.

    python3 tools/platforms.py arm64|musl [PACKAGE ...]

Another Python runs the build, so the wheel is what a machine of that kind would have made, and then the package's
quick tests with that wheel. For arm64 it is Debian's, unpacked, not installed, and executed by qemu's user mode
emulation. For musl there is none to be had, so it is built from Debian's sources with musl's C library, and so are the
libraries that its modules need. Only what takes long is done by other means: Cython by the Python that runs this, C for
arm64 by a cross compiler. What the tests need beside the package comes from wheels of the package index.

Cost: some four minutes of processor time for coro-core, half a minute for the tests of a small package, twelve minutes
for musl's Python; all but the tests once. 1 GB below `.dev`.

Needs Debian: for arm64 the packages mmdebstrap, qemu-user-static, gcc-aarch64-linux-gnu and libc6-dev-arm64-cross, for
musl musl-tools, make and perl; for both pip's access to a package index. PACKAGE: names of packages beside coro-core,
whose tests run (default: coro-rpc).
"""

from __future__ import annotations

import abc
import argparse
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.dev import packages as tree_packages
from tools.dev.provision import ProvisionError, apt_settings

TREE = tree_packages.ROOT
#: Where Python comes from, and which it is.
SUITE, VERSION = "bookworm", "3.11"
#: What builds wheels.
BUILDING = ("Cython>=3.1", "hatchling>=1.27", "setuptools>=77")
#: Runs hatchling in the other Python, with our own one for Cython.
BUILD = """
import sys
sys.executable = {native!r}
from hatchling.cli import hatchling
sys.exit(hatchling())
"""
#: What a program that starts sys.executable starts.
ANOTHER = "import sys\nsys.executable = {started!r}\n"


class Unavailable(Exception):
    """Something is missing here; the message says what."""


def run(*command: str | Path, cwd: Path = TREE, quiet: bool = False, **variables: str) -> None:
    """Run a command without this Python's own settings; CalledProcessError when it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    output = subprocess.DEVNULL if quiet else None
    subprocess.run([str(part) for part in command], check=True, cwd=cwd, env=environment | variables, stdout=output)


def script(path: Path, line: str) -> Path:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


class Platform(abc.ABC):
    """A Python of another kind, and what builds for it."""

    #: Program -> Debian's package.
    programs: dict[str, str]
    #: The platform tags of wheels it takes, beside "any".
    tags: tuple[str, ...]

    def __init__(self, name: str):
        self.work = TREE / ".dev" / name
        self.root = self.work / "root"
        self.site = self.work / "site"
        self.wheels = self.work / "wheels"

    @abc.abstractmethod
    def unpack(self) -> None:
        """Put Python below `root`."""

    @abc.abstractmethod
    def line(self) -> str:
        """What starts that Python, for a shell."""

    @abc.abstractmethod
    def building(self) -> dict[str, str]:
        """The environment variables a build needs."""

    def fill(self, names: list[str]) -> None:
        """Install what building and the tests of the packages need."""
        wanted = [*BUILDING]
        for name in names:
            wanted += tree_packages.table(TREE / "packages" / name)["dependency-groups"]["test"]
        shutil.rmtree(self.site, ignore_errors=True)
        platforms = [f"--platform={tag}" for tag in (*self.tags, "any")]
        version = f"--python-version={VERSION}"
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install", "--target", self.site)
        run(*pip, *platforms, version, "--only-binary=:all:", *wanted)

    def build(self, names: list[str], started: Path) -> None:
        """Build the wheels of the packages and unpack them into `site`."""
        shutil.rmtree(self.wheels, ignore_errors=True)
        program = self.work / "build.py"
        native = script(self.work / "native", f'PYTHONPATH={self.site} exec {sys.executable} "$@"')
        program.write_text(BUILD.format(native=str(native)))
        variables = self.building() | {"PYTHONPATH": str(self.site)}
        for name in names:
            # From its own folder: hatchling looks for pyproject.toml there.
            folder = TREE / "packages" / name
            run(started, program, "build", "-t", "wheel", "-d", self.wheels, cwd=folder, **variables)
            for wheel in self.wheels.glob(f"{name.replace('-', '_')}-*.whl"):
                run(sys.executable, "-m", "zipfile", "-e", wheel, self.site)

    def test(self, names: list[str], started: Path) -> None:
        """Run the quick tests of the packages."""
        another = self.site / "sitecustomize.py"
        another.write_text(ANOTHER.format(started=str(started)))
        options = ("-m", "not slow", "-o", "timeout=0", "-p", "no:cacheprovider", "-q")
        for name in names:
            run(started, "-m", "pytest", f"packages/{name}/tests", *options, PYTHONPATH=str(self.site))

    def prove(self, names: list[str]) -> None:
        lacking = sorted({package for program, package in self.programs.items() if shutil.which(program) is None})
        if lacking:
            raise Unavailable(f"expected Debian's packages {', '.join(lacking)}, which are missing; install them")
        self.work.mkdir(parents=True, exist_ok=True)
        self.unpack()
        started = script(self.work / "python", f'exec {self.line()} "$@"')
        self.fill(names)
        self.build(["coro-core", *names], started)
        self.test(names, started)
        print(*(wheel.name for wheel in sorted(self.wheels.glob("*.whl"))), sep="\n")


class Arm64(Platform):
    programs = {
        "mmdebstrap": "mmdebstrap",
        "qemu-aarch64-static": "qemu-user-static",
        "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
    }
    tags = ("manylinux_2_28_aarch64", "manylinux2014_aarch64")

    def unpack(self) -> None:
        if (self.root / "usr" / "bin" / f"python{VERSION}").exists():
            return
        shutil.rmtree(self.root, ignore_errors=True)
        include = f"--include=python{VERSION},libpython{VERSION}-dev,ca-certificates"
        run("mmdebstrap", "--quiet", "--variant=extract", "--architectures=arm64", include, SUITE, self.root)

    def line(self) -> str:
        return f"qemu-aarch64-static -L {self.root} {self.root}/usr/bin/python{VERSION}"

    def building(self) -> dict[str, str]:
        # Debian's Python names its compiler by the processor, so the cross compiler is found by itself.
        return {"CPPFLAGS": f"-idirafter {self.root}/usr/include"}


class Musl(Platform):
    programs = {"musl-gcc": "musl-tools", "make": "make", "perl": "perl"}
    machine = platform.machine()
    tags = (f"musllinux_1_2_{machine}", f"musllinux_1_1_{machine}")

    def unpack(self) -> None:
        if (self.root / "complete").exists():
            return
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        sources = self.download(f"python{VERSION}", "openssl", "zlib", "libffi")
        for name, steps in self.steps().items():
            print(f"musl: building {name}", flush=True)
            for step in steps:
                run(*step, cwd=sources[name], quiet=True, **self.building())
        (self.root / "complete").touch()

    def download(self, *names: str) -> dict[str, Path]:
        """The folders of Debian's sources."""
        try:
            settings = apt_settings(self.work / "apt", SUITE, "deb-src")
        except ProvisionError as e:
            raise Unavailable(str(e)) from e
        run("apt-get", "update", "-qq", **settings)
        run("apt-get", "source", "-qq", "--download-only", *names, cwd=self.work, **settings)
        folders = {}
        for name in names:
            # Beside it may lie its signature.
            (archive,) = (path for path in self.work.glob(f"{name}_*.orig.tar.*") if path.suffix != ".asc")
            folders[name] = self.work / name
            folders[name].mkdir()
            run("tar", "-xf", archive, "--strip-components=1", "-C", folders[name])
        return folders

    def steps(self) -> dict[str, list[list[str]]]:
        """The commands that build each source, Python last."""
        parallel = f"-j{os.cpu_count() or 1}"
        into = f"--prefix={self.root}"
        static = ["--disable-shared", "--disable-multi-os-directory"]
        # What is not wanted of it takes most of the time.
        openssl = ["no-shared", "no-module", "no-tests", "no-afalgeng", "--libdir=lib"]
        python = ["--with-ensurepip=no", "--disable-test-modules", f"--with-openssl={self.root}"]
        flags = [f"CPPFLAGS=-I{self.root}/include", f"LDFLAGS=-L{self.root}/lib"]
        return {
            "zlib": [["./configure", "--static", into], ["make", "install"]],
            "libffi": [["./configure", *static, into], ["make", parallel], ["make", "install"]],
            "openssl": [
                ["perl", "Configure", f"linux-{self.machine}", *openssl, into],
                ["make", parallel, "build_libs"],
                ["make", "install_dev"],
            ],
            f"python{VERSION}": [["./configure", *python, *flags, into], ["make", parallel], ["make", "install"]],
        }

    def line(self) -> str:
        return f"{self.root}/bin/python{VERSION}"

    def building(self) -> dict[str, str]:
        kernel = self.work / "kernel"
        if not kernel.exists():
            # The kernel's headers, which have nothing of the other C library in them.
            kernel.mkdir()
            for name in ("linux", "asm-generic", f"{self.machine}-linux-gnu/asm"):
                (kernel / Path(name).name).symlink_to(Path("/usr/include") / name)
        # Asked for the name of its libraries' folder, it would give the other C library's. Python's build asks twice:
        # where an empty answer means that there is no such folder, and where it has the build ask Debian instead.
        compiler = script(
            self.work / "cc",
            'case "$1" in --print-multiarch) exit ;; -print-multiarch) echo none; exit ;; esac\n'
            # The libraries, which are static, become part of modules.
            f'exec musl-gcc -fPIC -idirafter {kernel} "$@"',
        )
        return {"CC": str(compiler), "PKG_CONFIG_LIBDIR": f"{self.root}/lib/pkgconfig"}


PLATFORMS = {"arm64": Arm64, "musl": Musl}


def main() -> int:
    parser = argparse.ArgumentParser(description="Build wheels for another platform and test them.")
    parser.add_argument("platform", choices=PLATFORMS)
    parser.add_argument("packages", nargs="*", default=["coro-rpc"])
    arguments = parser.parse_args()
    try:
        PLATFORMS[arguments.platform](arguments.platform).prove(arguments.packages)
    except Unavailable as e:
        print(f"{arguments.platform}: {e}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as e:
        print(f"{arguments.platform}: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
