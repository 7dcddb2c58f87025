"""Build hook: compiles the extension modules of coro-core for a wheel or an editable install.

Hatchling packs files and Cython translates, but neither calls a C compiler.  This hook joins them: it checks
that the target is one the runtime was written for, has Cython write the C files and setuptools' `build_ext`
compile them together with hand-written C and assembly, then hands the results to hatchling.

Where things go.  For a wheel everything is written below `build/<tag>-<digest>/`, never beside the sources:
a `.so` of another Python lying in `src/` must not find its way into the wheel.  For an editable install the
modules are put in place, because that is where Python will look for them.  The digest covers whatever may
change the compiled result without changing a source file (interpreter, Cython, compiler flags), so that
objects can be reused between builds.  Cost: about half a minute of compiling per Python, next to nothing
when unchanged.

Refused here, at build time, because at run time the result would be memory corruption: a minor version whose
thread state the runtime does not describe, free-threaded builds, 3.14.0 and 3.14.1, unknown systems and
processors.

Settings from the environment: CC, CFLAGS and LDFLAGS as usual (CFLAGS="-O0 -DCORO_DEBUG=1", say).
"""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import shutil
import struct
import sys
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The minor versions whose interpreter state src/coro/_switch describes.
FIRST_MINOR, LAST_MINOR = 11, 15

# PyUnstable_ThreadState_SetStackProtection appeared in 3.14.2; without it the interpreter believes that a
# thread on a foreign stack has overflown its own.
BROKEN_RELEASES = {(3, 14, 0), (3, 14, 1)}

# Processor as platform.machine() names it, and pointer size in bytes -> the assembly file written for it.
PROCESSORS = {
    ("x86_64", 8): "x86_64",
    ("amd64", 8): "x86_64",
    ("x86_64", 4): "i386",  # a 32-bit Python on a 64-bit kernel
    ("i386", 4): "i386",
    ("i486", 4): "i386",
    ("i586", 4): "i386",
    ("i686", 4): "i386",
    ("aarch64", 8): "aarch64",
    ("arm64", 8): "aarch64",
}

SYSTEMS = ("linux", "darwin", "freebsd")

COMPILE_FLAGS = [
    "-O2",
    "-g",
    "-fvisibility=hidden",  # the C files of one module call each other; nobody else may
    "-fno-strict-aliasing",  # stacks are copied as bytes and read back as what they were
    "-Wno-unused-function",  # Cython emits helpers it may not need
]

# Cython's shortcut to the thread state's exception fields assumes that one function sees one set of them; a
# switch in the middle of a function replaces the set.
MACROS = [("CYTHON_FAST_THREAD_STATE", "0")]


def system() -> str:
    """The operating system: `sys.platform` without a version number."""
    return sys.platform.rstrip("0123456789.")


def refusal(
    version: tuple[int, int, int],
    implementation: str,
    free_threaded: bool,
    os_name: str,
    machine: str,
    pointer: int,
) -> str | None:
    """Why coro-core cannot be built for this target, as a sentence for the user; None when it can.

    `machine` is `platform.machine()`, `pointer` the size of a pointer in bytes.
    """
    dotted = ".".join(map(str, version))
    known = f"CPython 3.{FIRST_MINOR} to 3.{LAST_MINOR}"
    if implementation != "cpython":
        return f"coro-core needs {known}; this is {implementation}, whose state it cannot switch."
    if version[0] != 3 or not FIRST_MINOR <= version[1] <= LAST_MINOR:
        return (
            f"coro-core knows the interpreter state of {known}; this is Python {dotted}. "
            "Use one of those, or a release of coro-core that names this version."
        )
    if free_threaded:
        return (
            f"coro-core needs the GIL; this Python {dotted} is a free-threaded build. "
            "Use the ordinary build of the same version."
        )
    if version in BROKEN_RELEASES:
        return (
            f"Python {dotted} cannot be told about a foreign C stack (the call came with 3.14.2). "
            "Upgrade to Python 3.14.2 or later."
        )
    if os_name not in SYSTEMS:
        return f"coro-core runs on Linux, macOS and FreeBSD; this is {os_name!r}. On Windows use its Linux subsystem."
    if (machine.lower(), pointer) not in PROCESSORS:
        return (
            f"coro-core has a stack switch for x86-64, i386 and aarch64; this is {machine!r} with "
            f"{pointer * 8}-bit pointers. A new one goes into src/coro/_switch."
        )
    return None


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """The hook named in pyproject.toml; its configuration is the table of extension modules there."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell hatchling what to pack.  `version` is "editable" or "standard"."""
        if self.target_name != "wheel":
            return
        self.check_target()
        editable = version == "editable"
        table = dict(self.config.get("extensions", {}))
        table.update(self.config.get(f"extensions-{system()}", {}))
        compiled = self.compile(table, editable)
        if not editable:
            for relative, path in compiled.items():
                build_data["force_include"][path] = relative
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def clean(self, versions: list[str]) -> None:
        """Remove what earlier builds left (called by `hatch clean`)."""
        shutil.rmtree(os.path.join(self.root, "build"), ignore_errors=True)

    def check_target(self) -> None:
        """Stop with an explanation if this Python is none we can build for, or lacks headers or compiler."""
        reason = refusal(
            sys.version_info[:3],
            sys.implementation.name,
            bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
            system(),
            platform.machine(),
            struct.calcsize("P"),
        )
        if reason is None:
            include = sysconfig.get_path("include")
            if not os.path.exists(os.path.join(include, "Python.h")):
                reason = (
                    f"coro-core needs Python's C headers; there is no {os.path.join(include, 'Python.h')}. "
                    "Install them (Debian: python3-dev, Fedora: python3-devel)."
                )
        if reason is None:
            compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
            if shutil.which(compiler) is None:
                reason = (
                    f"coro-core needs a C compiler; there is no {compiler!r}. "
                    "Install one (Debian: gcc and libc6-dev), or name another in CC."
                )
        if reason is not None:
            self.app.abort(reason)

    def build_folder(self) -> str:
        """The folder for intermediate files, relative to the project.

        Distinct for whatever changes the objects without changing a source.
        """
        import Cython

        facts = [sys.version, sys.base_prefix, Cython.__version__]
        facts += [os.environ.get(name, "") for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS")]
        with open(os.path.join(self.root, "hatch_build.py"), encoding="utf-8") as f:
            facts.append(f.read())
        digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:8]
        return os.path.join("build", f"{sysconfig.get_config_var('SOABI')}-{digest}")

    def compile(self, table: dict[str, list[str]], editable: bool) -> dict[str, str]:
        """Compile `table` (module name -> sources below src/).

        Returns the path inside the package -> the absolute path of each compiled module.
        """
        from Cython.Build import cythonize
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext

        class BuildExt(build_ext):
            def build_extensions(self) -> None:
                # setuptools does not know that the C compiler takes assembly as well.
                if ".S" not in self.compiler.src_extensions:
                    self.compiler.src_extensions.append(".S")
                super().build_extensions()

        out = os.path.join(self.root, self.build_folder())
        before = os.getcwd()
        # Inside src/ the recorded file names are coro/_x.pyx: what linecache finds through sys.path.
        os.chdir(os.path.join(self.root, "src"))
        try:
            headers = glob.glob("coro/**/*.h", recursive=True)
            extensions = [
                Extension(
                    name,
                    self.sources(name, patterns),
                    include_dirs=["coro"],
                    extra_compile_args=COMPILE_FLAGS,
                    define_macros=MACROS,
                    depends=headers,
                )
                for name, patterns in table.items()
            ]
            extensions = cythonize(extensions, include_path=["."], build_dir=os.path.join(out, "c"), language_level=3)
            command = BuildExt(Distribution({"name": self.metadata.name, "ext_modules": extensions}))
            command.build_lib = os.path.join(out, "lib")
            command.build_temp = os.path.join(out, "tmp")
            command.parallel = min(4, os.cpu_count() or 1)
            command.ensure_finalized()
            command.run()
            compiled = {}
            for extension in extensions:
                relative = command.get_ext_filename(extension.name)
                path = os.path.join(out, "lib", relative)
                if editable:
                    # Replace, never overwrite: a running program may have the old file mapped.
                    shutil.copy2(path, relative + ".new")
                    os.replace(relative + ".new", relative)
                compiled[relative] = path
            return compiled
        finally:
            os.chdir(before)

    def sources(self, name: str, patterns: list[str]) -> list[str]:
        """Expand the patterns of module `name`, relative to the current folder; a plain name must exist."""
        found = []
        for pattern in patterns:
            matches = sorted(glob.glob(pattern))
            if not matches and not glob.has_magic(pattern):
                self.app.abort(f"coro-core: the source {pattern} of {name} is missing; the checkout is incomplete.")
            # Not what Cython wrote beside its source when somebody called it by hand.
            found += [m for m in matches if not (m.endswith(".c") and os.path.exists(m[:-2] + ".pyx"))]
        return found
