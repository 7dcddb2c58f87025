"""Instructions per operation: `python -m tools.bench instructions [--check] [--update]`.

Times are worth little on a busy machine; the number of instructions hardly moves. Each workload of
`workloads/counted.py` runs twice under valgrind's cachegrind (without its cache simulation), with few operations and
with many; the difference, divided by the difference in operations, is the cost of one, start and end of the program
cancelled out. The checked-in figures stand in `instructions.json`, by Python version and processor; `--check` fails
when one has grown by more than 5 %. A package has a `bench/counted.py` of its own, and its figures beside it. Cost:
about two minutes for all of them, thirty to fifty times slower than life.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tools.dev import packages

from ._env import HERE, Environment, EnvironmentFailure
from ._suites import COUNTED, WORKLOADS

FIGURES = HERE / "instructions.json"
FEW, MANY = 10_000, 60_000
GROWTH = 0.05
_TOTAL = re.compile(r"I\s+refs:\s+([\d,]+)")


def _count(environment: Environment, program: Path, what: str, operations: int) -> int:
    valgrind = shutil.which("valgrind")
    if not valgrind:
        raise EnvironmentFailure("valgrind not found: install the package valgrind")
    command = [
        valgrind,
        "--tool=cachegrind",
        "--cache-sim=no",
        "--cachegrind-out-file=/dev/null",
        str(environment.python),
        *(str(program), what, str(operations)),
    ]
    done = subprocess.run(command, env=environment.variables, capture_output=True, text=True)
    found = _TOTAL.search(done.stderr)
    if done.returncode or not found:
        raise EnvironmentFailure(f"{' '.join(command)} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return int(found[1].replace(",", ""))


def measure(environment: Environment, program: Path, what: str) -> float:
    """Instructions of one operation of `program`. Raises EnvironmentFailure."""
    # Once outside valgrind, so that no measured run has to compile a module's bytecode first.
    command = [str(environment.python), str(program), what, str(FEW)]
    subprocess.run(command, env=environment.variables, check=True)
    return (_count(environment, program, what, MANY) - _count(environment, program, what, FEW)) / (MANY - FEW)


def measured_packages() -> set[str]:
    """The distributions whose instructions are counted."""
    return {packages.CORE_NAME, *(program.parents[1].name for program in COUNTED if program.parent != WORKLOADS)}


def _key(environment: Environment) -> str:
    return f"{'.'.join(environment.python_version.split('.')[:2])} {platform.machine()}"


def run(environment: Environment, check: bool, update: bool) -> int:
    """Measure everything and print it beside the checked-in figures; returns the exit status.

    check: 1 when something has grown by more than 5 %, or when there is nothing to compare with. update: write the
    new figures to the files.
    """
    grown: list[str] = []
    for program, what in COUNTED.items():
        figures = FIGURES if program.parent == WORKLOADS else program.parent / FIGURES.name
        grown += _run(environment, program, what, figures, update)
    if check and grown:
        print(f"{', '.join(grown)}: more than {GROWTH:.0%} above {FIGURES.name}, or not in it; mend it or run --update")
        return 1
    return 0


def _run(environment: Environment, program: Path, chosen: Iterable[str], figures: Path, update: bool) -> list[str]:
    """Measure what one program does; returns what has grown or is not checked in."""
    known = json.loads(figures.read_text()) if figures.exists() else {}
    expected: dict[str, float] = known.get(_key(environment), {})
    measured, grown = {}, []
    for what in chosen:
        measured[what] = round(measure(environment, program, what), 1)
        was = expected.get(what)
        line = f"{what:<12} {measured[what]:>10,.0f} instructions"
        if was:
            line += f"  checked in {was:,.0f}  {(measured[what] / was - 1) * 100:+.1f} %"
        if was is None or measured[what] > was * (1 + GROWTH):
            grown.append(what)
            line += "  not checked in" if was is None else "  GREW"
        print(line, flush=True)
    if update:
        known[_key(environment)] = measured
        figures.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    return grown
