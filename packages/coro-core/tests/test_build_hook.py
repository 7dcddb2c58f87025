"""The build hook: coro-core's refusals, and what it does for every distribution: the table of modules, what is compiled
again and what is not, the same result whatever runs at once, debug symbols, editable installs, and what is said."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import coro
from coro_build import compiling, readme, table

PROJECT = Path(__file__).resolve().parents[1]

GOOD = {
    "version": (3, 12, 1),
    "implementation": "cpython",
    "free_threaded": False,
    "os_name": "linux",
    "machine": "x86_64",
    "pointer": 8,
}


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    """coro-core's own hook."""
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("coro_hatch_build", PROJECT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"version": (3, 11, 0)},
        {"version": (3, 13, 9)},
        {"version": (3, 14, 2)},
        {"version": (3, 15, 0)},
        {"machine": "aarch64"},
        {"machine": "arm64", "os_name": "darwin"},
        {"machine": "amd64", "os_name": "freebsd"},
        {"machine": "i686", "pointer": 4},
        {"machine": "x86_64", "pointer": 4},
    ],
)
def test_accepted(hook: ModuleType, change: dict[str, object]) -> None:
    assert hook.refusal(**(GOOD | change)) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": (3, 10, 13)}, ["CPython 3.11 to 3.15", "3.10.13"]),
        ({"version": (3, 16, 0)}, ["CPython 3.11 to 3.15", "3.16.0"]),
        ({"version": (4, 12, 0)}, ["4.12.0"]),
        ({"implementation": "pypy"}, ["pypy"]),
        ({"free_threaded": True}, ["GIL", "free-threaded"]),
        ({"version": (3, 14, 0)}, ["3.14.0", "3.14.2 or later"]),
        ({"version": (3, 14, 1)}, ["3.14.1", "3.14.2 or later"]),
        ({"os_name": "win32"}, ["Linux, macOS and FreeBSD", "win32"]),
        ({"machine": "riscv64"}, ["x86-64, i386 and aarch64", "riscv64", "_switch"]),
        ({"machine": "aarch64", "pointer": 4}, ["32-bit"]),
    ],
)
def test_refused(hook: ModuleType, change: dict[str, object], words: list[str]) -> None:
    reason = hook.refusal(**(GOOD | change))
    assert reason is not None
    for word in words:
        assert word in reason


def test_refusal_stops_the_build(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hatchling.builders.wheel import WheelBuilder

    monkeypatch.setattr(sys, "version_info", (3, 99, 0, "final", 0))
    builder = WheelBuilder(str(PROJECT))
    config = builder.config.target_config["hooks"]["custom"]
    build_hook = hook.CustomBuildHook(
        str(PROJECT), config, builder.config, builder.metadata, str(PROJECT), "wheel", builder.app
    )
    with pytest.raises(SystemExit):
        build_hook.initialize("standard", {"force_include": {}})
    said = capsys.readouterr()
    assert "this is Python 3.99.0" in said.out + said.err


def test_every_source_is_named(hook: ModuleType) -> None:
    """No compiled module, C file or assembly file of the package is forgotten in the table of modules."""
    with open(PROJECT / "pyproject.toml", "rb") as f:
        custom = tomllib.load(f)["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    source = PROJECT / "src"
    named = {
        path
        for system in table.SYSTEMS
        for module in table.read(custom, str(source), system)
        for path in module.sources
    }
    there = {str(p.relative_to(source)) for s in ("*.pyx", "*.c", "*.S") for p in source.rglob(s)}
    assert there - named == set()


# ---- the table of modules


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder of sources in the making."""
    for name in ("a.pyx", "b.pyx", "c.c", "c_x.c", "c_y.c", "d.S"):
        path = tmp_path / "src" / "coro" / "made" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return tmp_path / "src"


def test_table(sources: Path) -> None:
    config = {
        "modules": {
            "coro.made.a": "coro/made/a.pyx",
            "coro.made.c": ["coro/made/c.c", "coro/made/c_*.c", "coro/made/none_*.S", "coro/made/c_x.c"],
        },
        "modules-linux": {"coro.made.b": ["coro/made/b.pyx", "coro/made/d.S"]},
        "modules-darwin": {"coro.made.d": "coro/made/d.S"},
        "enable-by-default": True,
    }
    assert table.read(config, str(sources), "linux") == [
        table.Module("coro.made.a", ("coro/made/a.pyx",)),
        table.Module("coro.made.c", ("coro/made/c.c", "coro/made/c_x.c", "coro/made/c_y.c")),
        table.Module("coro.made.b", ("coro/made/b.pyx", "coro/made/d.S")),
    ]
    assert [module.name for module in table.read(config, str(sources), "darwin")][2:] == ["coro.made.d"]
    assert len(table.read(config, str(sources), "freebsd")) == 2


def test_what_cython_left_beside_its_source_is_not_compiled(sources: Path) -> None:
    (sources / "coro/made/a.c").write_text("")
    (module,) = table.read({"modules": {"coro.made.a": ["coro/made/a.pyx", "coro/made/[ac].c"]}}, str(sources))
    assert module.sources == ("coro/made/a.pyx", "coro/made/c.c")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, ["expected a table of modules", "found none", "hooks.coro.modules]"]),
        ({"module": {}}, ["expected modules, modules-linux", "'module'"]),
        ({"modules-windows": {}}, ["modules-freebsd", "'modules-windows'"]),
        ({"modules": ["coro.made.a"]}, ["modules: expected a table", "['coro.made.a']"]),
        ({"modules": {"a": "coro/made/a.pyx"}}, ["full name", "'a'"]),
        ({"modules": {"coro.made.a-b": "coro/made/a.pyx"}}, ["full name", "'coro.made.a-b'"]),
        ({"modules": {"coro.made.a": "coro/made/z.pyx"}}, ["coro.made.a: its source coro/made/z.pyx is missing"]),
        ({"modules": {"coro.made.a": 7}}, ["coro.made.a: expected the path of a source", "7"]),
        ({"modules": {"coro.made.a": {"sources": []}}}, ["coro.made.a: expected the path of a source"]),
        ({"modules": {"coro.made.a": []}}, ["coro.made.a: expected at least one source"]),
        ({"modules": {"coro.made.a": "coro/made/z*.pyx"}}, ["coro.made.a: expected at least one source"]),
        ({"modules": {"coro.made.a": "/x/a.pyx"}}, ["expected a path below", "'/x/a.pyx'"]),
        ({"modules": {"coro.made.a": "../a.pyx"}}, ["expected a path below", "'../a.pyx'"]),
        ({"modules": {"coro.made.a": "coro/made/a.py"}}, ["ends in .pyx, .c, .S", "'coro/made/a.py'"]),
        (
            {"modules": {"coro.made.a": ["coro/made/a.pyx", "coro/made/b.pyx"]}},
            ["expected one .pyx", "a.pyx, coro/made/b.pyx", "a module of its own"],
        ),
        (
            {"modules": {"coro.made.a": "coro/made/a.pyx"}, "modules-linux": {"coro.made.a": "coro/made/b.pyx"}},
            ["coro.made.a", "found in both"],
        ),
    ],
)
def test_mistakes_in_the_table(sources: Path, config: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(table.BuildError) as caught:
        table.read(config, str(sources), "linux")
    for word in words:
        assert word in str(caught.value)


# ---- what is compiled

C_MODULE = """
#include <Python.h>
#include "made/answer.h"
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "NAME", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_NAME(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddIntConstant(module, "answer", ANSWER) < 0)
        Py_CLEAR(module);
    return module;
}
"""


class Project:
    """A package of modules in C, which is quick to compile, and where it is built."""

    def __init__(self, folder: Path, names: str = "ab") -> None:
        self.folder = folder
        self.source = folder / "src"
        self.said: list[str] = []
        made = self.source / "coro" / "made"
        made.mkdir(parents=True)
        (made / "answer.h").write_text("#define ANSWER 42\n")
        for name in names:
            (made / f"{name}.c").write_text(C_MODULE.replace("NAME", name))
        self.modules = [table.Module(f"coro.made.{name}", (f"coro/made/{name}.c",)) for name in names]

    def build(self, cache: str = "build") -> dict[str, bytes]:
        """Build; returns the modules' contents.  `said` is what was told."""
        self.said = []
        builder = compiling.Builder(
            "coro-made", str(self.source), coro.get_include(), str(self.folder / cache), self.said.append
        )
        return {name: Path(path).read_bytes() for name, path in builder.build(self.modules).items()}

    def steps(self) -> list[str]:
        """What was done in the last build, without the counting."""
        return sorted(line.partition("] ")[2] for line in self.said if "] " in line)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    for name in ("CORO_BUILD_CACHE", "CORO_DEBUG_SYMBOLS", "CORO_VALGRIND", "CORO_BUILD_JOBS"):
        monkeypatch.delenv(name, raising=False)
    return Project(tmp_path / "project")


def load(name: str, contents: bytes, folder: Path) -> ModuleType:
    path = folder / f"{name}.so"
    path.write_bytes(contents)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
BOTH = ["coro.made.a: compiling a.c", "coro.made.a: linking", "coro.made.b: compiling b.c", "coro.made.b: linking"]


@pytest.mark.slow
def test_only_what_changed_is_made_again(project: Project, tmp_path: Path) -> None:
    built = project.build()
    assert sorted(built) == [f"coro/made/a{SUFFIX}", f"coro/made/b{SUFFIX}"]
    assert load("a", built[f"coro/made/a{SUFFIX}"], tmp_path).answer == 42
    assert project.steps() == BOTH
    assert any("[4/4]" in line for line in project.said) and "modules: 2, sources: 2" in project.said[0]
    assert project.build() == built and project.steps() == []
    assert "4 results were there already" in project.said[-1]
    # One source.
    (project.source / "coro/made/b.c").write_text(C_MODULE.replace("NAME", "b") + "/* longer */")
    assert project.build() == built
    assert project.steps() == ["coro.made.b: compiling b.c"]  # whose object is the same, so there is nothing to link
    # What both include. A file's time plays no part.
    header = project.source / "coro/made/answer.h"
    before = header.stat()
    header.write_text("#define ANSWER 43\n")
    os.utime(header, ns=(before.st_atime_ns, before.st_mtime_ns))
    changed = project.build()
    assert project.steps() == BOTH and changed.keys() == built.keys() and changed != built
    # And back again: nothing has to be made.
    header.write_text("#define ANSWER 42\n")
    assert project.build() == built and project.steps() == []
    # A new header might stand before another one on the include path.
    (project.source / "coro/made/more.h").write_text("")
    assert project.build() == built and project.steps() == ["coro.made.a: compiling a.c", "coro.made.b: compiling b.c"]


def test_another_checkout_shares_the_cache(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORO_BUILD_CACHE", str(tmp_path / "cache"))
    built = project.build()
    # coro-core is somewhere else, too.
    core = tmp_path / "environment" / "coro"
    shutil.copytree(coro.get_include(), core, ignore=shutil.ignore_patterns("*.so", "*.py", "__pycache__"))
    monkeypatch.setattr(coro, "get_include", lambda: str(core))
    other = Project(tmp_path / "other")
    assert other.build() == built and other.steps() == []
    assert not (tmp_path / "other" / "build").exists()
    # Unless its declarations differ from those of the first.
    (core / "new.h").write_text("")
    assert other.build() == built and other.steps() == ["coro.made.a: compiling a.c", "coro.made.b: compiling b.c"]


def test_what_others_have_installed_beside_core_makes_no_difference(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "site-packages"
    core = place / "coro"
    shutil.copytree(coro.get_include(), core, ignore=shutil.ignore_patterns("*.so", "*.py", "__pycache__", "made"))
    record = place / "coro_core-0.1.0.dist-info" / "RECORD"
    record.parent.mkdir()

    def install() -> None:
        files = [path for path in core.rglob("*") if path.is_file() and "made" not in path.parts]
        lines = [f"{path.relative_to(place).as_posix()},sha256=abc,1" for path in files]
        record.write_text("\n".join([*lines, "coro_core-0.1.0.dist-info/RECORD,,", ""]))

    install()
    monkeypatch.setattr(coro, "get_include", lambda: str(core))
    built = project.build()
    # What an installed wheel of the same distribution, or of another one, leaves there.
    (core / "made").mkdir()
    for name in ("answer.h", "other.h", "other.pxd"):
        (core / "made" / name).write_text("")
    assert project.build() == built and project.steps() == []
    # A header of coro-core's own counts.
    (core / "new.h").write_text("")
    install()
    assert project.build() == built and project.steps() == ["coro.made.a: compiling a.c", "coro.made.b: compiling b.c"]


def test_what_runs_side_by_side_makes_no_difference(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORO_BUILD_JOBS", "1")
    one = project.build("one")
    assert "1 at a time" in project.said[0]
    monkeypatch.setenv("CORO_BUILD_JOBS", "4")
    assert project.build("four") == one
    assert "4 at a time" in project.said[0] and project.steps() == BOTH


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "darwin", reason="Mach-O keeps debug symbols in the objects")
def test_debug_symbols(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "0"):
        monkeypatch.setenv("CORO_DEBUG_SYMBOLS", value)
        assert not any(b".debug_info" in contents for contents in project.build().values())
        assert "without debug symbols" in project.said[0]
    # The names of functions stay, for profilers and crash reports.
    assert all(b"PyInit_" in contents and b".symtab" in contents for contents in project.build().values())
    monkeypatch.setenv("CORO_DEBUG_SYMBOLS", "1")
    assert all(b".debug_info" in contents for contents in project.build().values())
    assert "with debug symbols" in project.said[0] and project.steps() == BOTH


@pytest.mark.slow
def test_for_valgrind_only_c_written_by_hand_is_compiled_again(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (project.source / "coro/made/answer.h").write_text(
        "#ifdef CORO_VALGRIND\n#define ANSWER 43\n#else\n#define ANSWER 42\n#endif\n"
    )
    (project.source / "coro/made/c.pyx").write_text(
        "cdef extern from 'made/answer.h':\n    int ANSWER\nanswer = ANSWER\n"
    )
    project.modules.append(table.Module("coro.made.c", ("coro/made/c.pyx",)))
    usual = project.build()
    monkeypatch.setenv("CORO_VALGRIND", "1")
    built = project.build()
    assert project.steps() == BOTH
    assert load("a", built[f"coro/made/a{SUFFIX}"], tmp_path).answer == 43
    assert built[f"coro/made/c{SUFFIX}"] == usual[f"coro/made/c{SUFFIX}"]
    monkeypatch.setenv("CORO_VALGRIND", "0")
    assert project.build() == usual and project.steps() == []


def test_an_error_of_the_compiler_is_shown(project: Project) -> None:
    (project.source / "coro/made/b.c").write_text("int f(void) { return nonsense; }")
    with pytest.raises(table.BuildError) as caught:
        project.build()
    assert "coro.made.b could not be compiled" in str(caught.value) and "nonsense" in str(caught.value)
    left = [path for path in (project.folder / "build").rglob("*") if ".o." in path.name or path.name.endswith(".dep")]
    assert left == []


def test_a_source_that_changes_meanwhile(project: Project, tmp_path: Path) -> None:
    """What was made of the old contents must not be found under the name of the new ones."""
    header = project.source / "coro/made/answer.h"

    class Changing(list[str]):
        def append(self, line: str) -> None:
            super().append(line)
            if "linking" in line:
                header.write_text("#define ANSWER 430\n")

    project.said = Changing()
    builder = compiling.Builder(
        "coro-made", str(project.source), coro.get_include(), str(project.folder / "build"), project.said.append
    )
    with pytest.raises(table.BuildError, match=r"answer\.h was changed while modules were compiled; build again"):
        builder.build(project.modules)
    built = project.build()
    assert project.steps() == BOTH
    assert load("a", built[f"coro/made/a{SUFFIX}"], tmp_path).answer == 430


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("CORO_DEBUG_SYMBOLS", "yes", "0 or 1, got 'yes'"),
        ("CORO_VALGRIND", "memcheck", "0 or 1, got 'memcheck'"),
        ("CORO_BUILD_JOBS", "0", "from 1, got '0'"),
        ("CORO_BUILD_JOBS", "many", "from 1, got 'many'"),
    ],
)
def test_settings_are_checked(
    project: Project, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(table.BuildError, match=f"expected {name} to be .*{words}"):
        project.build()


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as m:
        m.setenv("CC", "no-such-compiler -x")
        with pytest.raises(table.BuildError, match="needs a C compiler; there is no 'no-such-compiler'"):
            compiling.check_tools()
    with monkeypatch.context() as m:
        m.setitem(sys.modules, "Cython", None)
        with pytest.raises(table.BuildError, match=r'needs Cython .* add "Cython>=3.1" to build-system.requires'):
            compiling.check_tools()
    with monkeypatch.context() as m:
        m.setattr(compiling, "cython_version", lambda: "3.0.12")
        with pytest.raises(table.BuildError, match=r"needs Cython>=3.1, .* has 3.0.12"):
            compiling.check_tools()
    with monkeypatch.context() as m:
        m.setattr(sysconfig, "get_path", lambda name: "/nowhere")
        with pytest.raises(table.BuildError, match="no /nowhere/Python.h"):
            compiling.check_tools()
    compiling.check_tools()


def test_old_results_are_removed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.modules = []
    folder = project.folder / "build" / "o"
    folder.mkdir(parents=True)
    now = time.time()
    for name, age in (("new", 60), ("young", 1800), ("older", 7200), ("old", 15 * 86400)):
        (folder / name).write_bytes(bytes(100))
        os.utime(folder / name, (now - age, now - age))
    project.build()
    assert sorted(path.name for path in folder.iterdir()) == ["new", "older", "young"]
    monkeypatch.setattr(compiling, "MOST", 150)
    project.build()
    assert sorted(path.name for path in folder.iterdir()) == ["new", "young"]


# ---- as a plugin


def test_the_plugin_does_not_import_the_runtime() -> None:
    program = "import sys, coro_build.hook, coro_build.compiling; print('coro' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False", done.stderr


PYPROJECT = """
[build-system]
requires = ["hatchling>=1.27", "Cython>=3.1", "setuptools>=77", "coro-core==0.1.*"]
build-backend = "hatchling.build"
[project]
name = "coro-made"
version = "1.0"
[tool.hatch.build]
dev-mode-dirs = ["src"]
[tool.hatch.build.targets.wheel]
packages = ["src/coro"]
exclude = ["*.so"]
[tool.hatch.build.targets.wheel.hooks.coro.modules]
"coro.made._ticking" = "coro/made/_ticking.pyx"
"""

TICKING = """
from coro._clock cimport ticks
from coro._runtime.abi cimport require_abi
from coro.made._own cimport LIMIT
require_abi()
def now():
    return ticks.now(), LIMIT
"""

# Calls the hook of the backend as an installer does, and says what came of it.
BACKEND = "import hatchling.build as b, sys; print('made', getattr(b, sys.argv[1])(sys.argv[2]))"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution whose module is compiled against the installed coro-core, with a declaration file of its own."""
    monkeypatch.delenv("CORO_BUILD_CACHE", raising=False)  # it may have the module already
    folder = tmp_path / "package"
    made = folder / "src" / "coro" / "made"
    made.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (made / "__init__.py").write_text("")
    (made / "_ticking.pyx").write_text(TICKING)
    (made / "_own.pxd").write_text("cdef enum:\n    LIMIT = 7\n")
    return folder


def backend(package: Path, call: str, **variables: str) -> subprocess.CompletedProcess[str]:
    wheels = package / "dist"
    wheels.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", BACKEND, call, str(wheels)],
        cwd=package,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )


def answer(path: Path) -> list[int]:
    """What the package in the folder `path` says of the limit, from a fresh interpreter."""
    program = "from coro.made import _ticking; import json; print(json.dumps(_ticking.now()))"
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", program],
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


@pytest.mark.slow
def test_a_package_needs_nothing_but_the_table(package: Path, tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    done = backend(package, "build_wheel")
    assert done.returncode == 0, done.stderr
    assert "coro-made: [1/3] coro.made._ticking: translating coro/made/_ticking.pyx" in done.stderr
    (wheel,) = (package / "dist").glob("*.whl")
    assert sysconfig.get_config_var("py_version_nodot") in wheel.name and "none-any" not in wheel.name
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "installed")
        assert sorted(name for name in packed.namelist() if name.startswith("coro/")) == [
            "coro/made/__init__.py",
            "coro/made/_own.pxd",
            f"coro/made/_ticking{SUFFIX}",
            "coro/made/_ticking.pyx",
        ]
    assert answer(tmp_path / "installed")[1] == 7
    # Nothing lies beside the sources.
    assert not list((package / "src").rglob("*.so")) and not list((package / "src").rglob("*.c"))

    # Editable: built from what there is, and put where Python looks for it.
    (package / "src/coro/made/_own.pxd").write_text("cdef enum:\n    LIMIT = 8\n")
    done = backend(package, "build_editable")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (package / "src").rglob("*.so")] == [f"_ticking{SUFFIX}"]
    assert answer(package / "src")[1] == 8


def test_a_mistake_stops_the_build(package: Path) -> None:
    pytest.importorskip("hatchling")
    text = PYPROJECT.replace("_ticking.pyx", "_tocking.pyx")
    (package / "pyproject.toml").write_text(text)
    done = backend(package, "build_wheel")
    assert done.returncode != 0
    assert "coro-made: coro.made._ticking: its source coro/made/_tocking.pyx is missing" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_source_distribution_compiles_nothing(package: Path) -> None:
    pytest.importorskip("hatchling")
    text = PYPROJECT.replace("targets.wheel.hooks.coro", "hooks.coro").replace("_ticking.pyx", "_tocking.pyx")
    (package / "pyproject.toml").write_text(text)
    done = backend(package, "build_sdist")
    assert done.returncode == 0, done.stderr


# -- the README for a package index

README = """
[relative](../../README.md), [a folder](tests/#all "title"), ![a picture](docs/a.svg)
[absolute](https://example.org/a), [mail](mailto:a@example.org), [in the page](#building)
[![a badge](badge.svg)](https://example.org)

[defined]: guide.md

```md
[code](left/alone.md)
```
"""


def test_links_in_a_readme_become_absolute() -> None:
    assert readme.relative_links(README) == [
        *("docs/a.svg", "../../README.md", "tests/#all"),
        *("badge.svg", "guide.md"),
    ]
    made = readme.absolute_links(README, "https://example.org/coro/", "packages/coro-x")
    assert "[relative](https://example.org/coro/blob/HEAD/README.md)" in made
    assert '[a folder](https://example.org/coro/blob/HEAD/packages/coro-x/tests#all "title")' in made
    assert "![a picture](https://example.org/coro/raw/HEAD/packages/coro-x/docs/a.svg)" in made
    assert "[![a badge](https://example.org/coro/raw/HEAD/packages/coro-x/badge.svg)](https://example.org)" in made
    assert "[defined]: https://example.org/coro/blob/HEAD/packages/coro-x/guide.md\n" in made
    assert "[code](left/alone.md)" in made
    assert readme.relative_links(made) == []
    assert readme.absolute_links(made, "https://example.org/coro", "packages/coro-x") == made


def test_a_link_out_of_the_repository_is_refused() -> None:
    with pytest.raises(table.BuildError, match=r"stay in the repository, got '../../../x.md' in the folder 'a/b'"):
        readme.absolute_links("[x](../../../x.md)", "https://example.org", "a/b")


def test_the_description_needs_an_address_and_a_folder(hook: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("[x](x.md)")
    found: dict[str, Any] = {"urls": {"Source": "https://example.org/coro"}}
    hook.CustomMetadataHook(str(tmp_path), {"folder": "a"}).update(found)
    assert found["readme"]["text"] == "[x](https://example.org/coro/blob/HEAD/a/x.md)"
    with pytest.raises(Exception, match='a key "folder"'):
        hook.CustomMetadataHook(str(tmp_path), {}).update(found)
    with pytest.raises(Exception, match="as Source in project.urls"):
        hook.CustomMetadataHook(str(tmp_path), {"folder": "a"}).update({})
