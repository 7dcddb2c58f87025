"""The development commands: what `python3 -m tools.dev` can do, as its --help shows."""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import time
from pathlib import Path

from tools.dev import checks, jobs, packages, plan, provision, pythons, release, soak, suite
from tools.dev.environments import DEV, ROOT, Environment, StepFailed, call, install, settings


def version(text: str) -> int:
    """A minor version from "3.12" or "12"."""
    minor = text.removeprefix("3.")
    if not minor.isdecimal() or int(minor) not in pythons.MINORS:
        raise argparse.ArgumentTypeError(f"expected 3.{pythons.MINORS[0]} to 3.{pythons.MINORS[-1]}, got {text!r}")
    return int(minor)


def pick(minor: int | None) -> pythons.Python:
    """The Python for a command that needs one: `minor`, or else the running one, or else the newest found."""
    wanted = pythons.MINORS if minor is None else (minor,)
    if minor is None and sys.version_info[1] in pythons.MINORS:
        found, problems = pythons.find((sys.version_info[1],))
        if found:
            return found[sys.version_info[1]]
    found, problems = pythons.find(wanted)
    if not found:
        notes = [note for each in problems.values() for note in each]
        raise StepFailed(
            "expected a CPython 3.11 to 3.15 with its headers and venv, found none; install one"
            + "".join(f"\n  {note}" for note in notes)
        )
    return found[max(found)]


def cmd_c10k(options: argparse.Namespace) -> int:
    """Set up an environment with coro-core and run the ten thousand connections in it."""
    environment = Environment(pick(options.python), "run")
    where = environment.folder.relative_to(ROOT)
    print(f"setting up {where} with Python {environment.base.full}; a minute or two the first time", flush=True)
    environment.prepare([])
    environment.install_core()
    command = [str(environment.python), "-m", "coro.demo.c10k", *options.arguments]
    print(" ".join(["running", *command[1:]]), flush=True)
    os.execv(command[0], command)


def find_pythons(options: argparse.Namespace) -> list[pythons.Python]:
    """The Pythons wanted by --python and --require-all; StepFailed where one is missing."""
    minors = tuple(options.python or pythons.MINORS)
    found, problems = pythons.find(minors)
    for minor, notes in problems.items():
        print(f"Python 3.{minor}: not found", *(f"\n  {note}" for note in notes), flush=True)
    if not found or (problems and (options.require_all or options.python)):
        wanted = ", ".join(f"3.{m}" for m in minors)
        raise StepFailed(
            f"expected Python {wanted}; `python3 -m tools.dev pythons --provision` makes 3.14 and 3.15 "
            "available on Debian, and CORO_PYTHONS may name others, separated as in PATH"
        )
    return list(found.values())


def cmd_test(options: argparse.Namespace) -> int:
    """Run the tests on every Python found; with --checks, the other checks and the short soaks in the same queue."""
    begun = time.monotonic()
    found = find_pythons(options)
    run = suite.Run(found, options.arguments, options.limit * 60, options.everything, options.jobs > 1)
    others = checks_beside(run, found, options.limit * 60) if options.checks else []
    jobs.run([*run.jobs, *others], options.jobs)
    return conclude(run, others, begun)


def duration(seconds: float) -> str:
    """Seconds for people: "52 s", "24 min 10 s"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def conclude(run: suite.Run, others: list[jobs.Job], begun: float) -> int:
    """Print and keep the sum of a run of tests that began at that monotonic time, and of other jobs beside it; the exit
    status."""
    good = run.finish() and not any(job.problem for job in others)
    lines = ["", *run.summary()]
    for job in others:
        mark = "FAILED" if job.problem else "ok    "
        lines.append(f"  {mark} {job.name} in {job.seconds:.0f} s, {job.cpu:.0f} s of processor time")
        lines += [f"         {line}" for line in ([job.problem, *job.notes] if job.problem else [])]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    took, cpu = duration(time.monotonic() - begun), duration(used.ru_utime + used.ru_stime)
    lines.append(f"{'all passed' if good else 'FAILED'} in {took}; {cpu} of processor time, building included")
    text = "\n".join(lines)
    (DEV / "log" / "summary.txt").write_text(f"{text}\n")
    print(text, flush=True)
    return 0 if good else 1


def cmd_pythons(options: argparse.Namespace) -> int:
    """Show the Pythons found; with --provision, first make 3.14 and 3.15 available."""
    if options.provision:
        print(f"3.14 and 3.15 in {provision.provision()}", flush=True)
    found, problems = pythons.find()
    if options.path:
        print(os.pathsep.join(str(p.path.parent) for p in found.values()))
        return 0
    for python in found.values():
        print(f"{python.full:8} {python.path}")
    for minor, notes in problems.items():
        print(f"3.{minor:<6} not found", *(f"\n  {note}" for note in notes))
    return 1 if problems else 0


def cmd_api(options: argparse.Namespace) -> int:
    """Compare the public names of all packages with the lists checked in, or write the lists."""
    environment = Environment(pick(options.python), "run")
    environment.prepare([])
    install(environment, packages.packages())
    call(environment.python, ROOT / "tools" / "public_api.py", *(["--update"] if options.update else []))
    return 0


def cmd_install(options: argparse.Namespace) -> int:
    """Build packages of this tree and install them into the environment that runs this."""
    if sys.prefix == sys.base_prefix:
        raise StepFailed(f"expected to run in a virtual environment, which it installs into; this is {sys.executable}")
    there = {package.name: package for package in packages.packages()}
    wanted = options.names or list(there)
    if unknown := [name for name in wanted if name not in there]:
        raise StepFailed(f"expected packages of this tree ({', '.join(there)}), got {', '.join(unknown)}")
    python, problem = pythons.probe(Path(sys.executable), sys.version_info[1])
    if python is None:
        raise StepFailed(problem or f"expected CPython 3.{pythons.MINORS[0]} or later, got {sys.executable}")
    environment = Environment(python, "", Path(sys.prefix))
    if options.for_tests:
        needs = [settings(there[name]) for name in wanted]
        environment.pip("install", "-q", *sorted({r for need in needs for r in need["build"] + need["test"]}))
    install(environment, [there[name] for name in wanted])
    return 0


def cmd_wheels(options: argparse.Namespace) -> int:
    """Make what is uploaded to a package index, and try it."""
    for path in release.release(find_pythons(options)):
        print(f"  {path.relative_to(ROOT)} ({path.stat().st_size / 1e6:.1f} MB)")
    return 0


def cmd_lint(options: argparse.Namespace) -> int:
    """Check style, and the types of everything that has types."""
    return checks.lint(pick(options.python))


def tox_command(*arguments: str) -> tuple[list[str], dict[str, str]]:
    """How to start tox, and its environment variables: with the Pythons found on its PATH."""
    found, _ = pythons.find()
    environment = Environment(pick(None), "tox")
    environment.prepare(["tox>=4.22"])  # the version tox.ini asks for; an older one would fetch it at each run
    folders = [str(p.path.parent) for p in found.values()]
    path = os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])
    return [str(environment.python), "-m", "tox", "run", *arguments], dict(os.environ, PATH=path)


def checks_beside(run: suite.Run, found: list[pythons.Python], limit: float) -> list[jobs.Job]:
    """Jobs for the checks in tools/dev/plan.py and for the soaks in their short form, beside a run of tests.

    None of them may take longer than `limit` seconds.
    """
    others = []
    for check in plan.CHECKS:
        command, variables = tox_command("-e", check.name, "--", "--require")

        def work(job: jobs.Job, command: list[str] = command, variables: dict[str, str] = variables) -> None:
            log = DEV / "log" / f"{job.name}.log"
            log.unlink(missing_ok=True)
            if status := jobs.stream(job, command, log, limit, variables):
                job.notes += suite.last_words(log, 30)
                raise StepFailed(f"tox {jobs.ended_with(status)}")

        # What it needs is built once, not by two at the same time.
        after = [run.built[minor] for minor in [check.minor] if minor in run.built]
        others.append(jobs.Job(check.name, work, check.seconds, tuple(after)))
    return others + soak.jobs_for(found, [], short=True, after=run.built)


def cmd_soak(options: argparse.Namespace) -> int:
    """Long proofs that are not part of the tests."""
    if options.list:
        print("\n".join(soak.listing()))
        return 0
    wanted = soak.jobs_for(find_pythons(options), options.names, short=options.short)
    jobs.run(wanted, options.jobs)
    print("")
    for job in wanted:
        print(
            f"{'FAILED' if job.problem else 'ok    '} {job.name} in {job.seconds:.0f} s", *filter(None, [job.problem])
        )
    return 1 if any(job.problem for job in wanted) else 0


def cmd_tox(options: argparse.Namespace) -> int:
    """Run tox with the Pythons found on its PATH."""
    command, variables = tox_command(*options.arguments)
    os.execve(command[0], command, variables)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python3 -m tools.dev", description="Development commands of this repository.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    c = commands.add_parser("c10k", help="set up and run ten thousand echo connections")
    c.add_argument("--python", type=version, help="minor version to use, such as 3.12 (default: this one)")
    c.set_defaults(run=cmd_c10k, passes=True)

    c = commands.add_parser(
        "test",
        help="set up and run the tests of all packages on the Pythons found among 3.11 to 3.15",
        epilog="Other arguments go to pytest, for each package; paths choose the packages that they lie in.",
    )
    c.add_argument("--python", type=version, action="append", help="only this version; may be repeated")
    c.add_argument("--require-all", action="store_true", help="fail where a version is missing")
    c.add_argument("--jobs", type=int, default=1, help="how much runs side by side (default: 1)")
    c.add_argument("--limit", type=float, default=20, help="minutes each run of pytest may take (default: 20)")
    everything = "run all tests on each Python; without it some run on two of them, tools/dev/plan.py says which"
    c.add_argument("--everything", action="store_true", help=everything)
    beside = "also run style, types, the manual, the environments of tox.ini and the short soaks, as .ci/run does"
    c.add_argument("--checks", action="store_true", help=beside)
    c.set_defaults(run=cmd_test, passes=True)

    c = commands.add_parser("soak", help="run long proofs, or all of them", epilog="--list shows which there are")
    c.add_argument("names", nargs="*", metavar="NAME", help="which (default: all)")
    c.add_argument("--list", action="store_true", help="show the names, and what each proves")
    c.add_argument("--short", action="store_true", help="the short form that runs at every change")
    c.add_argument("--python", type=version, action="append", help="only this version; may be repeated")
    c.add_argument("--jobs", type=int, default=1, help="how many run side by side (default: 1)")
    c.set_defaults(run=cmd_soak, passes=False, require_all=False)

    c = commands.add_parser("pythons", help="show the Pythons found")
    c.add_argument("--provision", action="store_true", help="make 3.14 and 3.15 available (Debian, root)")
    c.add_argument("--path", action="store_true", help="print their folders in the form of PATH, for tox")
    c.set_defaults(run=cmd_pythons, passes=False)

    c = commands.add_parser("tox", help="run tox (see tox.ini) with the Pythons found on its path")
    c.set_defaults(run=cmd_tox, passes=True)

    c = commands.add_parser("api", help="compare the public names with packages/*/public_api.txt")
    c.add_argument("--python", type=version, help="minor version to use (default: this one)")
    c.add_argument("--update", action="store_true", help="write the files instead")
    c.set_defaults(run=cmd_api, passes=False)

    c = commands.add_parser("lint", help="check style and types of everything in the tree")
    c.add_argument("--python", type=version, help="minor version to use (default: this one)")
    c.set_defaults(run=cmd_lint, passes=False)

    c = commands.add_parser("wheels", help="make wheels and source distributions for a package index, and try them")
    c.add_argument("--python", type=version, action="append", help="only this version; may be repeated")
    c.add_argument("--require-all", action="store_true", help="fail where a version is missing")
    c.set_defaults(run=cmd_wheels, passes=False)

    c = commands.add_parser("install", help="build packages and install them into the environment that runs this")
    c.add_argument("names", nargs="*", metavar="NAME", help="such as coro-clocks (default: all)")
    c.add_argument("--for-tests", action="store_true", help="also what they are built and tested with")
    c.set_defaults(run=cmd_install, passes=False)
    return top


def main(arguments: list[str]) -> int:
    """Run one command; returns its exit status.  Arguments unknown here go to the program or to pytest."""
    top = parser()
    options, rest = top.parse_known_args(arguments)
    if rest and not options.passes:
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    # tox wants its "--": what follows is for the commands it runs.
    options.arguments = rest if options.run is cmd_tox else [a for a in rest if a != "--"]
    # Ended from outside is like Ctrl-C: what was started is ended too. SIGINT is ignored by what a shell starts in the
    # background, and every program from here on would inherit that.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return int(options.run(options))
    except (StepFailed, packages.PackageError, provision.ProvisionError) as e:
        print(f"tools.dev: {e}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        return 130
