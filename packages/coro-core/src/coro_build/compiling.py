"""From sources to extension modules: Cython, the C compiler and the linker, side by side, and nothing done twice.

Every result (a C file, an object, a module) is kept in a folder under a name that is a digest of all that went into it:
the command, the tool's version, the source, and every file that the tool says it has read. So there are no time stamps
to be wrong, and an object made against another coro-core is never taken for a fresh one. C files are shared between
Python versions, and one folder (CORO_BUILD_CACHE) can serve many checkouts and environments at once. What nobody has
used for two weeks is removed, and the oldest results beyond a gigabyte.

A source that is changed while it is being read ends the build with an error, and what was made meanwhile is forgotten:
it could stand under the name of the new contents.

The list of what was read is known only afterwards. It is therefore kept from the last time, under a first digest of the
command, the source and the names of all declaration files there are. As long as those and the files of the list are the
same, the result is.

As many steps run at once as there are processors, the largest sources first: the last one to end decides how long a
build takes. `say` is told when a step begins. coro-core takes about a minute of processor time per Python, and a second
if nothing has changed.

Debug symbols are left out, but for CORO_DEBUG_SYMBOLS=1: they make a wheel four times as large. The names of functions,
which stay in, are what profilers and crash reports need.

CORO_VALGRIND=1 defines CORO_VALGRIND for the C sources written by hand, which then tell valgrind about the stacks. What
Cython makes has nothing to tell it, so all of that is shared with the usual build, unlike with CFLAGS=-DCORO_VALGRIND.

Settings from the environment: CC, CFLAGS, CPPFLAGS and LDFLAGS as usual (CFLAGS="-O0 -DCORO_DEBUG=1", say);
CORO_DEBUG_SYMBOLS and CORO_VALGRIND, 0 or 1; CORO_BUILD_CACHE, the folder for results (default: build/ in the project);
CORO_BUILD_JOBS, how many steps run at once.

Rejected: cythonize() and build_ext. They go by time stamps, compile the sources of one module one after another, and do
not tell how far they are.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import csv
import dataclasses
import glob
import hashlib
import importlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from .table import BuildError, Module

#: The first that knows the thread state of CPython 3.14 and 3.15.
CYTHON = (3, 1)

#: Cython's shortcut to the thread state's exception fields assumes that one function sees one set of them; a switch in
#: the middle of a function replaces the set.
MACROS = ("-DCYTHON_FAST_THREAD_STATE=0",)

COMPILE_FLAGS = (
    "-O2",
    "-fvisibility=hidden",  # the C files of one module call each other; nobody else may
    "-fno-strict-aliasing",  # stacks are copied as bytes and read back as what they were
    "-Wno-unused-function",  # Cython emits helpers it may not need
)

#: Seconds after which an unused result is removed, bytes beyond which the oldest are, and what is too young for that:
#: another build may be using it.
KEEP, MOST, YOUNG = 14 * 86400, 1 << 30, 3600


def _setting(name: str) -> str:
    return os.environ.get(name, "").strip()


def switched_on(name: str) -> bool:
    """Is a setting 1?  Raises BuildError for one that is neither 0 nor 1."""
    value = _setting(name)
    if value not in ("", "0", "1"):
        raise BuildError(f"expected {name} to be 0 or 1, got {value!r}")
    return value == "1"


def job_count() -> int:
    """How many steps run side by side.  Raises BuildError for a CORO_BUILD_JOBS that is no number from 1."""
    value = _setting("CORO_BUILD_JOBS")
    if value:
        if not value.isdecimal() or int(value) < 1:
            raise BuildError(f"expected CORO_BUILD_JOBS to be a number from 1, got {value!r}")
        return int(value)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def check_tools() -> None:
    """Raise BuildError unless there are Python's headers, a C compiler, Cython and setuptools."""
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    if not os.path.exists(header):
        raise BuildError(
            f"it needs Python's C headers; there is no {header}. "
            "Install them (Debian: python3-dev, Fedora: python3-devel)."
        )
    compiler = (_setting("CC") or str(sysconfig.get_config_var("CC") or "cc")).split()[0]
    if shutil.which(compiler) is None:
        raise BuildError(
            f"it needs a C compiler; there is no {compiler!r}. "
            "Install one (Debian: gcc and libc6-dev), or name another in CC."
        )
    wanted = f"Cython>={CYTHON[0]}.{CYTHON[1]}"
    for name, requirement in (("Cython", wanted), ("setuptools", "setuptools>=77")):
        try:
            importlib.import_module(name)
        except ImportError:
            raise BuildError(
                f"it needs {name} to be built, and the build environment has none; "
                f'add "{requirement}" to build-system.requires in pyproject.toml'
            ) from None
    version = cython_version()
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < CYTHON:
        raise BuildError(f"it needs {wanted}, and the build environment has {version}; correct build-system.requires")


def cython_version() -> str:
    import Cython

    return str(Cython.__version__)


def _compiler_and_linker() -> tuple[list[str], list[str]]:
    """The commands that setuptools has for C files and for extension modules: Python's own, changed by CC and so on."""
    importlib.import_module("setuptools")  # its distutils stands in for the one that Python 3.12 dropped
    compiler = importlib.import_module("distutils.ccompiler").new_compiler()
    importlib.import_module("distutils.sysconfig").customize_compiler(compiler)
    return list(compiler.compiler_so), list(compiler.linker_so)


def _digest(*parts: str | bytes) -> str:
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(b"%d\0" % len(data))
        total.update(data)
    return total.hexdigest()[:24]


def _dependencies(path: str) -> list[str]:
    """The prerequisites in a makefile rule, as compilers write them; a backslash hides a space or a line's end."""
    with open(path, encoding="utf-8", errors="surrogateescape") as f:
        text = f.read().replace("\\\n", " ")
    parts = re.split(r"(?<!\\)\s+", text.partition(": ")[2].strip())
    return [part.replace("\\ ", " ").replace("$$", "$") for part in parts if part]


def _files_below(folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (os.path.join(place, name) for name in files)


def _files_of_core(core: str) -> list[str]:
    """The files of coro-core's package folder.

    Other distributions, and an earlier build of the one that is built, may be installed in the same folder. What they
    declare must not enter a digest: it would depend on what happens to be installed. So the installer's own list of
    files decides (PyPA's specification "Recording installed projects"). A source tree has no such list, and no others.
    """
    place = os.path.dirname(core)
    for record in glob.glob(os.path.join(glob.escape(place), "coro_core-*.dist-info", "RECORD")):
        with open(record, encoding="utf-8", newline="") as f:
            names = [row[0] for row in csv.reader(f) if row]
        return [os.path.join(place, *name.split("/")) for name in names if name.startswith("coro/")]
    return list(_files_below(core))


def _replace(path: str, text: str) -> None:
    """Write a file so that others see all of it or nothing."""
    temporary = f"{path}.{os.getpid()}.{threading.get_ident()}"
    with open(temporary, "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(temporary, path)


@dataclasses.dataclass(frozen=True)
class _Step:
    """One call of a tool.

    kind: names the folder of its results.  name: begins their names.  module, source: what is made, of what.
    said: how it is told.  tool: identifies the tool.  command: given the file to write; the tool leaves a list of what
    it has read beside it, in FILE.dep.  declared: the names of the files that might be read.
    """

    kind: str
    name: str
    module: str
    source: str
    said: str
    tool: str
    command: Callable[[str], list[str]]
    ending: str
    declared: str


class Builder:
    """Builds the extension modules of one distribution.

    name: of the distribution, for what is said.  source: the folder that module names and sources are relative to.
    core: the package folder of coro-core.  folder: for results, where CORO_BUILD_CACHE names no other.
    say: is called with each line of progress, from any OS thread.
    """

    def __init__(
        self, name: str, source: str, core: str, folder: str, say: Callable[[str], None] = lambda line: None
    ) -> None:
        self.name = name
        self.source = os.path.abspath(source)
        self.core = os.path.abspath(core)
        self.folder = os.path.abspath(_setting("CORO_BUILD_CACHE") or folder)
        self.symbols = switched_on("CORO_DEBUG_SYMBOLS")
        self.valgrind = switched_on("CORO_VALGRIND")
        self.jobs = job_count()
        self._say = say
        self._lock = threading.Lock()
        self._begun = self._made = self._total = 0
        self._contents: dict[str, str] = {}
        self._stamps: dict[str, tuple[int, int] | None] = {}
        self._new: list[str] = []
        # Where files are: the same file of another checkout or environment gets the same name in digests and lists.
        self._roots = {self.source: "src", os.path.dirname(self.core): "core"}

    def build(self, modules: Sequence[Module]) -> dict[str, str]:
        """Make `modules`.

        Returns the path inside the wheel -> the absolute path of each compiled module.  Raises BuildError, with what
        the tool said, when a step fails.
        """
        start = time.monotonic()
        self._prepare(modules)
        units = [(module, source) for module in modules for source in module.sources]
        # A .pyx becomes ten to thirty times as much C.
        units.sort(key=lambda unit: -self._size(unit[1]) * (20 if unit[1].endswith(".pyx") else 1))
        self._begun = self._made = 0
        self._total = len(units) + sum(source.endswith(".pyx") for _, source in units) + len(modules)
        self._say(
            f"{self.name}: modules: {len(modules)}, sources: {len(units)}, for {sysconfig.get_config_var('SOABI')}, "
            f"with{'' if self.symbols else 'out'} debug symbols, {self.jobs} at a time"
        )
        pool = concurrent.futures.ThreadPoolExecutor(self.jobs)
        try:
            objects = {unit: pool.submit(self._compile, *unit) for unit in units}
            for future in concurrent.futures.as_completed(objects.values()):
                future.result()  # what fails first ends the build
            links = {
                module.name: pool.submit(self._link, module.name, [objects[module, s].result() for s in module.sources])
                for module in modules
            }
            results = {name: future.result() for name, future in links.items()}
        finally:
            pool.shutdown(cancel_futures=True)
            self._forget_unless_unchanged()
        self._remove_old()
        kept = self._total - self._made
        took = time.monotonic() - start
        self._say(f"{self.name}: {self._made} steps in {took:.0f} s, {kept} results were there already")
        suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
        return {name.replace(".", os.sep) + suffix: path for name, path in results.items()}

    def _prepare(self, modules: Sequence[Module]) -> None:
        """Find out what every step depends on."""
        compile_, link = _compiler_and_linker()
        paths = [sysconfig.get_path("include"), sysconfig.get_path("platinclude")]
        own = sorted({module.name.partition(".")[0] for module in modules})
        headers = [name for name in own if os.path.isdir(os.path.join(self.source, name))]
        if os.path.join(self.source, "coro") != self.core:
            headers.append(self.core)
        include = [f"-I{path}" for path in dict.fromkeys([*headers, *paths])]
        flags = [*COMPILE_FLAGS, "-g" if self.symbols else "-g0"]
        self._compile_command = [*compile_, *MACROS, *include, *flags]
        # -S leaves out what debug symbols the objects of others have (ld64, lld and GNU ld).
        self._link_command = [*link, *([] if self.symbols else ["-Wl,-S"])]
        # "ccache gcc -pthread ...": what comes before the options.
        compiler = itertools.takewhile(lambda part: not part.startswith("-"), compile_)
        done = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False)
        self._compiler = "\n".join([done.stdout, sys.version, sys.base_prefix])
        self._cython = cython_version()
        names: dict[str, list[str]] = {"declarations": [], "headers": []}
        core = [] if os.path.dirname(self.core) == self.source else _files_of_core(self.core)
        for path in [*_files_below(self.source), *core]:
            kind = {"pxd": "declarations", "pxi": "declarations", "h": "headers"}.get(path.rpartition(".")[2])
            if kind:
                self._stamps[path] = self._stamp(path)
                names[kind].append(self._portable(path))
        for module in modules:
            self._stamps |= {path: self._stamp(path) for path in (self._path(source) for source in module.sources)}
        self._names = {kind: "\n".join(sorted(found)) for kind, found in names.items()}

    # -- the three kinds of steps

    def _compile(self, module: Module, source: str) -> str:
        """The object made of one source."""
        path = source
        compile_command = self._compile_command
        if self.valgrind and not source.endswith(".pyx"):
            compile_command = [*compile_command, "-DCORO_VALGRIND"]
        if source.endswith(".pyx"):
            import Cython

            places = ["-I", "."]
            if os.path.dirname(self.core) != self.source:
                places += ["-I", os.path.dirname(self.core)]
            # What copy and pickle would make of an object that stands in C structures is another one in name only.
            options = ["-3", "-X", "auto_pickle=False", "--depfile", "--module-name", module.name]
            command = [sys.executable, "-m", "cython", *options, *places]
            own = os.path.dirname(os.path.abspath(Cython.__file__))
            step = _Step(
                kind="c",
                name=module.name,
                module=module.name,
                source=source,
                said=f"{module.name}: translating {source}",
                tool=f"Cython {self._cython}",
                command=lambda out: [*command, "-o", out, source],
                ending=".c",
                declared=self._names["declarations"],
            )
            # Not the interpreter's path: what Cython writes does not depend on it.
            path = self._run(step, key=command[1:], without=own)
        stem, ending = os.path.splitext(os.path.basename(source))
        step = _Step(
            kind="o",
            name=f"{module.name}-{stem}",
            module=module.name,
            source=path,
            said=f"{module.name}: compiling {stem}{ending if path == source else '.c'}",
            tool=self._compiler,
            command=lambda out: [*compile_command, "-MMD", "-MF", out + ".dep", "-c", path, "-o", out],
            ending=".o",
            declared=self._names["headers"],
        )
        return self._run(step, key=compile_command)

    def _link(self, name: str, objects: list[str]) -> str:
        """The module made of its objects."""
        contents = [self._content(path) for path in objects]
        key = _digest("so", name, self._compiler, *self._link_command, *contents)
        result = self._place("so", f"{name}-{key}.so")
        self._begin(f"{name}: linking" if not os.path.exists(result) else "")
        if os.path.exists(result):
            os.utime(result)
            return result
        temporary = f"{result}.{os.getpid()}"
        self._call(name, [*self._link_command, *objects, "-o", temporary])
        os.replace(temporary, result)
        self._new.append(result)
        return result

    def _run(self, step: _Step, key: Sequence[str], without: str | None = None) -> str:
        """The result of a step, made only if there is none.

        key: the parts of the command that matter.  without: a folder whose files the tool's version stands for.
        """
        first = _digest(
            *(step.kind, step.module, step.tool, step.declared, self._content(step.source)),
            *(self._portable_option(part) for part in key),
            # A C file of the cache is the same wherever the cache is.
            "" if os.path.isabs(step.source) else step.source,
        )
        record = self._place(step.kind, f"{step.name}-{first}.json")
        with contextlib.suppress(OSError, ValueError):
            with open(record, encoding="utf-8") as f:
                read = [str(path) for path in json.load(f)]
            result = self._result(step, first, read)
            if os.path.exists(result):
                self._begin("")
                os.utime(record)
                os.utime(result)
                return result
        self._begin(step.said)
        temporary = self._place(step.kind, f"{step.name}-{first}.{os.getpid()}.{threading.get_ident()}{step.ending}")
        try:
            self._call(step.module, step.command(temporary))
            paths = {os.path.normpath(os.path.join(self.source, path)) for path in _dependencies(temporary + ".dep")}
            paths -= {os.path.normpath(os.path.join(self.source, step.source))}
            read = sorted(self._portable(p) for p in paths if without is None or not p.startswith(without + os.sep))
            result = self._result(step, first, read)
            os.replace(temporary, result)
            self._new.append(result)
        finally:
            for path in (temporary, temporary + ".dep"):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)
        _replace(record, json.dumps(read))
        return result

    def _result(self, step: _Step, first: str, read: Sequence[str]) -> str:
        """Where the result of a step is, given the files it reads.  Raises OSError if one is missing."""
        contents = [self._content(self._real(path)) for path in read]
        return self._place(step.kind, f"{step.name}-{_digest(first, *read, *contents)}{step.ending}")

    def _call(self, module: str, command: list[str]) -> None:
        """Run a tool; what it prints is shown, and is the error if it fails."""
        done = subprocess.run(
            command,
            # The file names that a tool records are relative to it: what linecache finds through sys.path.
            cwd=self.source,
            env=dict(os.environ, PYTHONHASHSEED="0"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            raise BuildError(
                f"{module} could not be compiled: {command[0]} ended with {done.returncode}\n"
                f"{' '.join(command)}\n{done.stdout.rstrip()}"
            )
        if done.stdout.strip():
            with self._lock:
                self._say(done.stdout.rstrip())

    # -- names and contents

    def _place(self, kind: str, name: str) -> str:
        folder = os.path.join(self.folder, kind)
        os.makedirs(folder, exist_ok=True)
        return os.path.join(folder, name)

    def _portable(self, path: str) -> str:
        """A name for a file that is the same in every checkout and environment."""
        for root, mark in self._roots.items():
            if path == root or path.startswith(root + os.sep):
                return f"{mark}:{path[len(root) + 1 :]}"
        return path

    def _portable_option(self, option: str) -> str:
        return f"-I{self._portable(option[2:])}" if option.startswith("-I") else self._portable(option)

    def _real(self, name: str) -> str:
        mark, colon, rest = name.partition(":")
        for root, known in self._roots.items():
            if colon and mark == known:
                return os.path.join(root, rest)
        return name

    def _content(self, path: str) -> str:
        """A digest of a file, read once."""
        path = self._path(path)
        known = self._contents.get(path)
        if known is None:
            with open(path, "rb") as f:
                known = self._contents[path] = _digest(f.read())
        return known

    def _path(self, source: str) -> str:
        """Where a source is."""
        return os.path.join(self.source, source)

    def _size(self, source: str) -> int:
        return os.path.getsize(self._path(source))

    @staticmethod
    def _stamp(path: str) -> tuple[int, int] | None:
        """What differs when a file has been written again; None if there is none."""
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_size

    def _forget_unless_unchanged(self) -> None:
        """Raise BuildError if a source is not what it was at the start, without leaving what was made meanwhile."""
        changed = [path for path, stamp in self._stamps.items() if self._stamp(path) != stamp]
        if changed:
            for path in self._new:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)
            raise BuildError(f"{changed[0]} was changed while modules were compiled; build again")

    # -- what is said, and what is thrown away

    def _begin(self, said: str) -> None:
        """Count a step; with words for it, it is really done."""
        with self._lock:
            self._begun += 1
            self._made += bool(said)
            width = len(str(self._total))
            if said:
                self._say(f"{self.name}: [{self._begun:{width}}/{self._total}] {said}")

    def _remove_old(self) -> None:
        """Remove what nobody has used for long, and the oldest of what is too much."""
        found = []
        for folder, _, files in os.walk(self.folder):
            for name in files:
                path = os.path.join(folder, name)
                with contextlib.suppress(FileNotFoundError):  # another build does the same
                    status = os.stat(path)
                    found.append((status.st_mtime, status.st_size, path))
        total, now = 0, time.time()
        for used, size, path in sorted(found, reverse=True):
            total += size
            if now - used > KEEP or (total > MOST and now - used > YOUNG):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)
