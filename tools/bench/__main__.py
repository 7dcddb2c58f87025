"""The command line: `python -m tools.bench run | compare | plot | table | instructions`.

Exit status: 0 all bars hold and nothing got worse, 1 a bar does not hold (or was not measured) or something got worse,
2 nothing could be measured or read.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from . import _compare, _instructions, _plots, _tables
from ._env import Environment, EnvironmentFailure, default_cache
from ._measure import MeasurementFailure, measure
from ._results import Record, as_json, report
from ._suites import CASES, SUITES, Case


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description="Benchmarks of coro against its peers.")
    commands = parser.add_subparsers(dest="command", required=True)
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("--python", default=sys.executable, help="the interpreter to measure on (default: this one)")
    where.add_argument(
        "--coro-path",
        type=Path,
        metavar="DIR",
        help="use the built coro in DIR instead of installing our packages",
    )
    where.add_argument(
        "--cache", type=Path, default=default_cache(), help="where environment and compiled helpers are kept"
    )
    run = commands.add_parser("run", parents=[where], help="measure and hold the ratios against their bars")
    run.add_argument("--suite", action="append", choices=SUITES, help="only this suite (may be repeated)")
    run.add_argument("--case", help="only cases whose name contains this text")
    run.add_argument(
        "--peers",
        help="only these peers, separated by commas (coro itself always takes part unless --no-coro)",
    )
    run.add_argument("--no-coro", action="store_true", help="measure the peers alone")
    run.add_argument("--rounds", type=int, default=5, help="how often each pair is measured (default 5)")
    run.add_argument("--json", type=Path, metavar="FILE", help="write everything measured to FILE")
    compare = commands.add_parser("compare", help="show what changed between two runs")
    compare.add_argument("old", type=Path, metavar="OLD.json")
    compare.add_argument("new", type=Path, metavar="NEW.json")
    compare.add_argument(
        "--threshold", type=float, default=_compare.THRESHOLD, help="growth that counts (default %(default)s)"
    )
    plot = commands.add_parser("plot", help="draw a run as SVG, a picture per suite")
    plot.add_argument("run", type=Path, metavar="RUN.json")
    plot.add_argument("--into", type=Path, required=True, metavar="FOLDER")
    table = commands.add_parser("table", help="write a run as tables for the manual")
    table.add_argument("run", type=Path, metavar="RUN.json")
    table.add_argument("--into", type=Path, required=True, metavar="FILE")
    table.add_argument("--pictures", metavar="FOLDER", help="where the manual has the pictures that `plot` made")
    count = commands.add_parser(
        "instructions", parents=[where], help="count the instructions of an operation under valgrind"
    )
    count.add_argument("--check", action="store_true", help="fail when a figure grew by more than 5 %%")
    count.add_argument("--update", action="store_true", help="write the figures to instructions.json")
    return parser


def _chosen(arguments: argparse.Namespace) -> list[Case]:
    cases = [case for case in CASES if not arguments.suite or case.suite in arguments.suite]
    return [case for case in cases if not arguments.case or arguments.case in case.name]


def _taking_part(case: Case, arguments: argparse.Namespace) -> list[str]:
    named = set(arguments.peers.split(",")) if arguments.peers else None
    peers = [peer for peer in case.peers if peer == "coro" or named is None or peer in named]
    return [peer for peer in peers if peer != "coro" or not arguments.no_coro]


def _about(environment: Environment, rounds: int) -> dict[str, Any]:
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": environment.python_version,
        "versions": environment.versions,
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": os.cpu_count(),
        "rounds": rounds,
    }


def _note(text: str) -> None:
    """Say on stderr what is being done: in one line that is rewritten, where that is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
    elif text:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _run_rounds(environment: Environment, arguments: argparse.Namespace, records: list[Record]) -> None:
    """All rounds, the peers of a case right after one another; one that fails is not tried again there.

    Every other round takes the peers backwards: on a machine that others use as well, the first one after an idle
    moment may find less of a core than those who follow it.
    """
    for turn in range(arguments.rounds):
        for record in records:
            for peer in _taking_part(record.case, arguments)[:: -1 if turn % 2 else 1]:
                lacking = environment.lacks(peer)
                if lacking:
                    record.failures[peer] = lacking
                if peer in record.failures:
                    continue
                _note(f"round {turn + 1}/{arguments.rounds}: {record.case.suite}, {record.case.name}, {peer}")
                try:
                    record.add(peer, measure(environment, record.case, peer))
                except MeasurementFailure as failure:
                    record.failures[peer] = str(failure)
                    print(f"\n{failure}", file=sys.stderr)
    _note("")


def _run(arguments: argparse.Namespace) -> int:
    records = [Record(case) for case in _chosen(arguments)]
    peers = {peer for record in records for peer in _taking_part(record.case, arguments)}
    environment = Environment(arguments.cache, arguments.python, arguments.coro_path)
    _note(f"preparing {environment.folder} (the first time, and after changes of coro-core, it takes a while)")
    needs = {need for record in records for need in record.case.needs}
    environment.install(peers, {record.case.package for record in records}, needs)
    _run_rounds(environment, arguments, records)
    about = _about(environment, arguments.rounds)
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items() if version)
    print(f"Python {about['python']}, {about['system']} {about['machine']}, {about['cores']} cores; {versions}")
    print(f"medians of {arguments.rounds} interleaved rounds (least .. greatest); CPU time per operation\n")
    print(report(records))
    if arguments.json:
        arguments.json.write_text(json.dumps(as_json(records, about), indent=1) + "\n")
    wanted = [line for record in records for line in record.lines() if line.bar is not None]
    failed = [line for line in wanted if not line.holds]
    print(f"{len(wanted) - len(failed)} of {len(wanted)} bars hold")
    return 1 if failed else 0


def _load(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def _compare_runs(arguments: argparse.Namespace) -> int:
    found = _compare.changes(_load(arguments.old), _load(arguments.new))
    print(_compare.report(found, arguments.threshold))
    return int(any(change.worse(arguments.threshold) for change in found))


def _plot(arguments: argparse.Namespace) -> int:
    for path in _plots.write(_load(arguments.run), arguments.into):
        print(path)
    return 0


def _table(arguments: argparse.Namespace) -> int:
    arguments.into.write_text(_tables.text(_load(arguments.run), arguments.pictures))
    return 0


def _count_instructions(arguments: argparse.Namespace) -> int:
    environment = Environment(arguments.cache, arguments.python, arguments.coro_path)
    environment.install({"coro"}, _instructions.measured_packages())
    return _instructions.run(environment, arguments.check, arguments.update)


COMMANDS = {
    "run": _run,
    "compare": _compare_runs,
    "plot": _plot,
    "table": _table,
    "instructions": _count_instructions,
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's) and return the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        return COMMANDS[arguments.command](arguments)
    except (EnvironmentFailure, OSError, ValueError) as failure:
        print(f"tools.bench: {failure}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
