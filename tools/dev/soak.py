"""Long proofs, which would make every test run too long: `python3 -m tools.dev soak [NAME ...]`.

A package names its soaks in its pyproject.toml, and that is all there is to do:

    [tool.coro.soaks.NAME]
    about = "one line: what it proves"
    command = ["packages/coro-core/tests/torture/finalisers.py"]   # for Python, from the root of the tree
    full = ["--seconds", "60"]                                     # the rest of the command
    short = ["--seconds", "3"]      # in place of that at every change; without it the soak does not run there
    seconds = 60                    # what the full form takes, roughly
    pythons = ["3.11", "3.15"]      # default: every Python
    short-pythons = ["3.12"]        # default: the same
    variables = { NAME = "value" }  # environment variables of the full form
    needs = ["mypy>=1.19"]          # what has to be installed beside the package and what it is tested with

A soak fails by its exit status. It prints what it does, the seed of everything random among it. Each runs in an
environment with the package, and is marked in the output like a test.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.dev import jobs, packages
from tools.dev.environments import CORE, DEV, Environment, StepFailed, install, settings
from tools.dev.jobs import Job
from tools.dev.pythons import Python

#: How many times what it is expected to take a soak may take, and seconds on top of that.
PATIENCE, SPARE = 10.0, 600.0
#: Roughly the seconds of a short form.
SHORT = 15.0


@dataclasses.dataclass(frozen=True)
class Soak:
    """One entry of the table."""

    name: str
    package: Path
    about: str
    command: list[str]
    full: list[str]
    short: list[str] | None
    seconds: float
    pythons: list[str]
    short_pythons: list[str]
    variables: dict[str, str]
    needs: list[str]


def soaks() -> dict[str, Soak]:
    """All there are, by name. Raises PackageError for an entry that cannot be understood."""
    found: dict[str, Soak] = {}
    for package in packages.packages():
        for name, entry in packages.table(package).get("tool", {}).get("coro", {}).get("soaks", {}).items():
            known = {"about", "command", "full", "short", "seconds", "pythons", "short-pythons", "variables", "needs"}
            if name in found or not {"about", "command", "seconds"} <= set(entry) <= known:
                raise packages.PackageError(
                    f"packages/{package.name}: expected the soak {name} to have a name of its own, about, command and "
                    f"seconds, and nothing but {', '.join(sorted(known))}; got {', '.join(entry)}"
                )
            versions = entry.get("pythons", [])
            found[name] = Soak(
                name,
                package,
                entry["about"],
                entry["command"],
                entry.get("full", []),
                entry.get("short"),
                entry["seconds"],
                versions,
                entry.get("short-pythons", versions),
                entry.get("variables", {}),
                entry.get("needs", []),
            )
    return found


def listing() -> list[str]:
    """What --list prints."""
    lines = []
    for soak in soaks().values():
        where = ", ".join(soak.pythons) or "every Python"
        lines.append(f"{soak.name:14} {soak.about} ({soak.seconds:.0f} s on {where})")
    return lines


def jobs_for(
    pythons: Sequence[Python], names: Sequence[str], short: bool, after: Mapping[int, Job] | None = None
) -> list[Job]:
    """The jobs of the soaks `names` (default: all). Raises StepFailed for an unknown name."""
    there = soaks()
    if unknown := [name for name in names if name not in there]:
        raise StepFailed(f"expected names of soaks ({', '.join(there)}), got {', '.join(unknown)}")
    found = []
    for soak in [there[name] for name in names] or list(there.values()):
        if short and soak.short is None:
            continue
        wanted = soak.short_pythons if short else soak.pythons
        for python in pythons:
            if not wanted or python.short in wanted:
                before = [(after or {})[python.minor]] if python.minor in (after or {}) else []
                found.append(_job(soak, python, short, before))
    return found


def _job(soak: Soak, python: Python, short: bool, after: list[Job]) -> Job:
    expected = SHORT if short else soak.seconds

    def work(job: Job) -> None:
        wanted = settings(soak.package)
        purpose = f"soak-{soak.name}" if soak.needs else "test" if soak.package == CORE else soak.package.name
        environment = Environment(python, purpose)
        environment.prepare(wanted["build"] + wanted["test"] + soak.needs)
        install(environment, list(dict.fromkeys([CORE, soak.package])))
        command = [*soak.command, *((soak.short or []) if short else soak.full)]
        jobs.say(job.name, f"{soak.about}: python {' '.join(command)}")
        log = DEV / "log" / f"soak-{soak.name}-{python.short}.log"
        log.unlink(missing_ok=True)
        env = jobs.variables() | ({} if short else soak.variables)
        status = jobs.stream(job, [environment.python, *command], log, PATIENCE * expected + SPARE, env)
        if status:
            raise StepFailed(f"the soak {jobs.ended_with(status)}; its output is in {log}")

    return Job(f"{python.short} soak {soak.name}", work, expected, tuple(after))
