"""The test suites of all packages on several Pythons, as jobs for the queue, and the sum at the end.

For each Python: an environment, the wheel of coro-core built from this tree and installed, the list of public names
compared with the one checked in, then pytest. The suite tests the installed wheel, not the source folder, so what is
missing from the wheel is missing from the tests. Then, in an environment of its own on top of that wheel, each other
distribution with its tests.

Where several jobs run side by side a suite is cut into parts, each with some of the files: by the seconds that they
took last time, kept in `.dev/log/seconds.json`, or else by a guess. What runs on which Python is decided in plan.py.
Every line of output is marked with its job, and also kept in `.dev/log/`. Numbers come from pytest's XML report; a run
that did not live to write one counts as failed and says how it ended.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import xml.etree.ElementTree
from collections.abc import Sequence
from pathlib import Path

from tools.dev import jobs, keywords, plan
from tools.dev.environments import CORE, DEV, OTHERS, ROOT, Environment, StepFailed, settings, unbuilt
from tools.dev.jobs import Job
from tools.dev.pythons import Python

LOGS = DEV / "log"
SECONDS = LOGS / "seconds.json"

#: About the seconds of a part: starting pytest costs one, and the last part that runs keeps the other workers waiting.
PART = 25.0
#: The processor time that building takes for each byte of Cython or C, as measured on a machine of 2026.
SECONDS_A_BYTE = 2.5e-4
#: pytest's exit status when no test was selected.
NOTHING_SELECTED = 5

#: Options of pytest whose next argument is not a path, even if there is a file of that name.
WITH_VALUE = ("-k", "-m", "-p", "-o", "-c", "-W", "-r", "--maxfail", "--poller", "--durations", "--tb", "--deselect")


@dataclasses.dataclass
class Result:
    """How one run of pytest ended."""

    python: Python
    suite: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    nothing: bool = False  # no test was selected
    problem: str = ""  # what ended the run early, if anything did
    failures: list[str] = dataclasses.field(default_factory=list)  # "test: the first line of what it said"


@dataclasses.dataclass(frozen=True)
class Suite:
    """The tests of one distribution, or of the tools."""

    name: str
    package: Path
    folders: tuple[Path, ...]

    def files(self) -> list[Path]:
        return sorted(path for folder in self.folders for path in folder.rglob("test_*.py"))


TOOLS = Suite("tools", CORE, (ROOT / "tests" / "tools",))


def suites() -> list[Suite]:
    """One for each distribution, coro-core first, and that of the tools."""
    return [*(Suite(package.name, package, (package / "tests",)) for package in (CORE, *OTHERS)), TOOLS]


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options among arguments for pytest, and the paths (with "::test" behind them).

    Raises StepFailed for a path that does not exist.
    """
    options: list[str] = []
    paths: list[str] = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if before in WITH_VALUE or argument.startswith("-"):
            options.append(argument)
        elif (ROOT / argument.partition("::")[0]).exists():
            paths.append(argument)
        elif before.startswith("-") and "/" not in argument and "::" not in argument and not argument.endswith(".py"):
            options.append(argument)  # the value of an option that is not in WITH_VALUE
        else:
            raise StepFailed(f"expected options of pytest or paths of tests, got {argument!r}: there is no such file")
    return options, paths


def chosen(arguments: Sequence[str]) -> list[tuple[Suite, list[str]]]:
    """Which suites run with which arguments, none of them left out without a word. Raises StepFailed."""
    options, paths = split(arguments)
    if not paths:
        return [(suite, list(arguments)) for suite in selected_by_words(options)]
    found = []
    for suite in suites():
        own: list[str] = []
        for path in paths:
            place = (ROOT / path.partition("::")[0]).resolve()
            if any(place == folder or folder in place.parents for folder in suite.folders):
                own.append(path)
            elif any(place in folder.parents for folder in suite.folders):
                own += map(str, suite.folders)
        if own:
            found.append((suite, [*options, *own]))
    if not found:
        folders = ", ".join(str(folder.relative_to(ROOT)) for suite in suites() for folder in suite.folders)
        raise StepFailed(f"expected paths of tests, below {folders}; got {' '.join(paths)}")
    left = [suite.name for suite in suites() if suite.name not in [s.name for s, _ in found]]
    print(f"testing {', '.join(s.name for s, _ in found)} alone: the paths named lie there, none in {', '.join(left)}")
    return found


def selected_by_words(options: Sequence[str]) -> list[Suite]:
    """The suites that have a test with a word of `-k` in its name; all of them without `-k`. Raises StepFailed."""
    words = keywords.words_of(options)
    found = [suite for suite in suites() if not words or keywords.selects(words, suite.files(), ROOT)]
    if not found:
        raise StepFailed(f"expected words in the names of tests after -k, got {' '.join(words)}: no test has one")
    if left := [suite.name for suite in suites() if suite not in found]:
        print(f"testing {', '.join(s.name for s in found)} alone: -k selects nothing in {', '.join(left)}", end="; ")
        print("a path selects tests there all the same")
    return found


def sources_size(package: Path) -> int:
    """The bytes of what a package's build translates and compiles."""
    return sum(path.stat().st_size for ending in ("pyx", "pxi", "c") for path in package.glob(f"src/**/*.{ending}"))


def guess(file: Path, slow: bool) -> float:
    """Roughly the seconds that a file of tests takes, from its text; with or without tests that run on some Pythons."""
    text = file.read_text(encoding="utf-8")
    number = len(re.findall(r"^def test_", text, re.MULTILINE))
    if re.search(r"^pytestmark.*slow|^    pytest\.mark\.slow,", text, re.MULTILINE):
        return 0.2 + (1.5 * number if slow or "mark.each_python" in text else 0.0)
    marked = len(re.findall(r"^@pytest\.mark\.slow", text, re.MULTILINE))
    everywhere = len(re.findall(r"^@pytest\.mark\.each_python", text, re.MULTILINE))
    return 0.2 + 0.05 * (number - marked) + 1.5 * (marked if slow else everywhere)


def parts(files: Sequence[Path], side_by_side: bool, slow: bool = True) -> list[tuple[float, list[Path]]]:
    """The files of a suite in parts of about the same length, with the expected seconds of each. `slow`: with the tests
    that run on some Pythons only."""
    # What is known is how long all tests of a file take.
    known: dict[str, float] = json.loads(SECONDS.read_text()) if slow and SECONDS.exists() else {}
    seconds = {file: known.get(str(file.relative_to(ROOT)), 0.0) or guess(file, slow) for file in files}
    number = max(1, round(sum(seconds.values()) / PART)) if side_by_side else 1
    bins: list[tuple[float, list[Path]]] = [(0.0, []) for _ in range(number)]
    for file in sorted(files, key=lambda file: (-seconds[file], file)):
        least = min(range(number), key=lambda n: bins[n][0])
        bins[least] = (bins[least][0] + seconds[file], [*bins[least][1], file])
    return [(expected, sorted(found)) for expected, found in bins if found]


def seconds_of_files(report: Path) -> dict[str, float]:
    """How long each file took, from one XML report."""
    found: dict[str, float] = {}
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        # "packages.coro-core.tests.net.test_socket", perhaps with the name of a class behind it
        match = re.match(r"(.*?\.test_\w+)", case.get("classname", ""))
        if match:
            file = match[1].replace(".", "/") + ".py"
            found[file] = found.get(file, 0.0) + float(case.get("time", "0"))
    return found


def longest(reports: Sequence[Path], most: int = 10) -> list[str]:
    """Lines that name the files that took longest, all Pythons together; none where there is but one."""
    total: dict[str, float] = {}
    for report in reports:
        for file, seconds in seconds_of_files(report).items():
            total[file] = total.get(file, 0.0) + seconds
    ranking = sorted(total, key=lambda file: -total[file])[:most]
    return ["longest files:", *(f"  {total[file]:5.0f} s  {file}" for file in ranking)] if len(total) > 1 else []


def remember(results: Sequence[Path]) -> None:
    """Keep how long each file took, from the XML reports, for the next run."""
    known: dict[str, float] = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
    for report in results:
        found = seconds_of_files(report)
        # The greatest of all Pythons; falling slowly, so that one bad day is forgotten.
        known |= {file: round(max(seconds, 0.8 * known.get(file, 0.0)), 2) for file, seconds in found.items()}
    SECONDS.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")


def count(report: Path, log: Path, result: Result) -> None:
    """Add the numbers of pytest's XML report, and which tests failed and why, to `result`; without a report the end of
    the log."""
    if not report.exists():
        result.failures += last_words(log)
        return
    for suite in xml.etree.ElementTree.parse(report).getroot().iter("testsuite"):
        total, failures, errors, skipped = (
            int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
        )
        result.failed += failures + errors
        result.skipped += skipped
        result.passed += total - failures - errors - skipped
        for case in suite.iter("testcase"):
            for kind in ("failure", "error"):
                if (found := case.find(kind)) is not None:
                    said = (found.get("message") or "").strip().splitlines() or ["no message"]
                    where = f"{case.get('classname', '')}.{case.get('name', '')}"
                    result.failures.append(f"{where}: {said[0][:300]}")


def last_words(log: Path, most: int = 60) -> list[str]:
    """The end of a log: where a run that wrote no report was, and the stacks its time limit wrote, without pytest's
    own part of them."""
    kept: list[str] = []
    of_pytest = False
    for line in log.read_text(errors="replace").splitlines()[-400:]:
        if line.lstrip().startswith("File "):
            of_pytest = "/_pytest/" in line or "/pluggy/" in line
        elif not line.startswith(" "):
            of_pytest = False
        if not of_pytest:
            kept.append(f"  {line}")
    return ["the log ends:", *kept[-most:]]


class Run:
    """One `tools.dev test`: its jobs, and what has come of them."""

    def __init__(
        self, pythons: Sequence[Python], arguments: Sequence[str], limit: float, everything: bool, side_by_side: bool
    ) -> None:
        self.pythons = pythons
        self.limit = limit
        self.side_by_side = side_by_side and not arguments
        self.results: list[Result] = []
        self.jobs: list[Job] = []
        #: The job that builds coro-core, for each Python: others may want that wheel, too.
        self.built: dict[int, Job] = {}
        self._reports: list[Path] = []
        # What somebody chooses by hand is not narrowed any further.
        self._plan = plan.Plan([python.minor for python in pythons], everything or bool(arguments))
        LOGS.mkdir(parents=True, exist_ok=True)
        selected = chosen(arguments)
        self._announce_builds([suite.package for suite, _ in selected])
        for python in pythons:
            for suite, own in selected:
                if suite != TOOLS or python.minor in self._plan.tools_on:
                    self._add(python, suite, own)
        if arguments and "--poller" not in arguments and sys.platform.startswith("linux"):
            print("on the system's own poller; --poller fake-kqueue takes that of the BSDs", flush=True)

    def _announce_builds(self, wanted: Sequence[Path]) -> None:
        """Say what will be built, and how many minutes that may take."""
        count = {python.short: unbuilt(python, wanted) for python in self.pythons}
        names = list(dict.fromkeys(package.name for found in count.values() for package in found))
        if names:
            # An upper bound: only the builder knows what has been compiled before.
            bytes_ = sum(sources_size(package) for found in count.values() for package in found)
            minutes = max(1, round(bytes_ * SECONDS_A_BYTE / (os.cpu_count() or 1) / 60))
            versions = ", ".join(short for short, found in count.items() if found)
            print(f"building {', '.join(names)} for Python {versions}: up to {minutes} min", end=", ")
            print("less what has been compiled before", flush=True)

    def _add(self, python: Python, suite: Suite, arguments: list[str]) -> None:
        """The jobs of one suite on one Python."""
        core = suite.package == CORE
        environment = Environment(python, "test" if core else suite.name)
        build = self.built.get(python.minor) if core else None
        if build is None:
            name = f"{python.short} build of {suite.package.name}"
            build = Job(name, lambda job: self._build(job, python, suite.package, environment), 50.0 if core else 30.0)
            # The C sources that Cython makes serve all Pythons: the first build makes them, others would do so again.
            before = self.built.get(python.minor) or next(iter(self.built.values()), None)
            build.after = (before,) if before else ()
            self.jobs.append(build)
            self.built.setdefault(python.minor, build)
        if arguments:
            self._add_tests(build, python, suite, environment, "", arguments, 10.0)
            return
        runs: list[tuple[str, list[str]]] = [("", self._plan.marks(python.minor))]
        if suite != TOOLS and sys.platform.startswith("linux") and python.minor in self._plan.kqueue_on:
            runs.append(("kqueue", ["--poller", "fake-kqueue", "-m", "poller and not slow"]))
        for kind, options in runs:
            files = suite.files()
            if kind:
                files = [file for file in files if "mark.poller" in file.read_text(encoding="utf-8")]
            found = parts(files, self.side_by_side, slow=not kind and python.minor in self._plan.slow_on)
            for number, (expected, some) in enumerate(found, 1):
                part = f"{number}/{len(found)}" if len(found) > 1 else ""
                label = " ".join(filter(None, [kind, part]))
                self._add_tests(build, python, suite, environment, label, [*options, *map(str, some)], expected)

    def _add_tests(
        self,
        build: Job,
        python: Python,
        suite: Suite,
        environment: Environment,
        label: str,
        arguments: list[str],
        expected: float,
    ) -> None:
        name = f"{python.short} {suite.name} {label}".rstrip()
        result = Result(python, suite.name)
        self.results.append(result)
        work = lambda job: self._test(job, result, environment, suite, arguments)  # noqa: E731
        self.jobs.append(Job(name, work, expected, (build,)))

    def _build(self, job: Job, python: Python, package: Path, environment: Environment) -> None:
        """Make the environment, build and install, compare the public names."""
        jobs.say(job.name, f"Python {python.full} ({python.path})")
        wanted = settings(package)
        environment.prepare(wanted["build"] + wanted["test"])
        environment.install_core()
        if package != CORE:
            environment.install_other(package)
        command: list[str | Path] = [environment.python, ROOT / "tools" / "public_api.py", package.name]
        if jobs.stream(job, command, LOGS / f"names-{python.short}-{package.name}.log", 120):
            raise StepFailed(f"the public names of {package.name} differ from the list checked in")

    def _test(self, job: Job, result: Result, environment: Environment, suite: Suite, arguments: list[str]) -> None:
        """Run pytest once."""
        kind = re.sub(r"[^\w.-]+", "-", job.name)
        log, report, status_file = (LOGS / f"test-{kind}.{ending}" for ending in ("log", "xml", "now"))
        for file in (log, report, status_file):
            file.unlink(missing_ok=True)
        command: list[str | Path] = [environment.python, "-m", "pytest", "-p", "tools.dev.pytest_progress", "-q"]
        # A cache for each: those of parts that run side by side would be written by two at once.
        command += [f"--junitxml={report}", "-o", f"cache_dir={environment.folder / 'pytest' / kind}"]
        command += ["-o", "console_output_style=classic", *arguments]
        if not split(arguments)[1]:
            command += suite.folders

        def where() -> str:
            return f"in {status_file.read_text()}" if status_file.exists() else "collecting the tests"

        env = jobs.variables() | {"CORO_TEST_STATUS": str(status_file)}
        status = jobs.stream(job, command, log, self.limit, env, where)
        result.nothing = status == NOTHING_SELECTED
        if result.nothing:
            jobs.say(job.name, f"no test of {suite.name} is selected")
            return
        count(report, log, result)
        if report.exists():
            self._reports.append(report)
        if status < 0 or (status and not result.failed):
            result.problem = f"pytest {jobs.ended_with(status)}"
        job.notes += result.failures
        if result.failed:
            job.problem = f"{result.failed} failed"
        elif result.problem:
            job.problem = result.problem

    def finish(self) -> bool:
        """Sum up when all jobs are done; true when all is well."""
        remember(self._reports)
        return all(not job.problem for job in self.jobs) and any(result.passed for result in self.results)

    def summary(self) -> list[str]:
        """Lines for people: for each Python, then what went wrong, then the sum."""
        lines = [f"Pythons tested: {', '.join(python.full for python in self.pythons)}"]
        for python in self.pythons:
            own = [result for result in self.results if result.python == python]
            mine = [job for job in self.jobs if job.name.split()[0] == python.short]
            bad = [job for job in mine if job.problem]
            seconds, cpu = sum(job.seconds for job in mine), sum(job.cpu for job in mine)
            building = sum(job.seconds for job in mine if " build of " in job.name)
            mark = "FAILED" if bad else "ok    "
            lines.append(
                f"  {mark} {python.full:8} {numbers(own)} in {seconds:.0f} s, {building:.0f} of them building; "
                f"the tests took {cpu:.0f} s of processor time"
            )
            for job in bad:
                lines += [f"         {job.name}: {job.problem}", *(f"           {note}" for note in job.notes)]
        for suite in dict.fromkeys(result.suite for result in self.results):
            if all(result.nothing for result in self.results if result.suite == suite):
                lines.append(f"  no test of {suite} is selected by these arguments")
        lines.append(numbers(self.results))
        lines += longest(self._reports)
        if not any(result.passed or result.failed for result in self.results):
            lines.append("no test was run")
        return lines


def numbers(results: Sequence[Result]) -> str:
    """How many tests passed and so on; a run that did not come to its end counts as a failure."""
    failed = sum(result.failed or bool(result.problem) for result in results)
    passed, skipped = sum(result.passed for result in results), sum(result.skipped for result in results)
    return f"{passed} passed, {failed} failed, {skipped} skipped"
