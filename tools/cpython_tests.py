"""CPython's own test modules, run with and without `coro.emulation`, test by test.

    python tools/cpython_tests.py run --python PYTHON [--module test_socket ...] [--quick]
    python tools/cpython_tests.py table

`run` runs every module twice in a process of its own: as it is, and in a coro thread under emulation. What passes
without has to pass with it, but for the tests that `cpython_tests.toml` names with a reason. The outcome is kept in
`tools/cpython_tests.json`, from which `table` writes the table of the manual. A test that starts another interpreter to
do its work there (test.support.script_helper) says nothing about emulation and is not counted, unless it hangs or takes
the process with it: then its own part, which waits for the other interpreter, did that.

A test that says nothing for a while is noted as hanging and its process killed; another process goes on behind it. So
one bad test costs one line in the table, not the run. Needs the `test` package of the Python in question, which
distributions pack separately (Debian: libpython3.x-testsuite). The Pythons that `python3 -m tools.dev pythons
--provision` makes have it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

#: All that use threads, sockets, processes, signals or files. What a Python does not have is passed over.
MODULES = (
    # Threads, their locks, and what they share.
    "test_threading test_thread test_threading_local test_threadedtempfile test_threadsignals test_queue "
    "test_sched test_concurrent_futures test_contextlib test_context test_weakref test_gc test_functools "
    "test_logging test_generators test_coroutines test_asyncgen test_importlib test_import test_sys "
    "test_sys_settrace test_sys_setprofile test_tracemalloc test_exceptions test_traceback test_warnings "
    "test_asyncio "
    # Sockets, and clients and servers over them.
    "test_socket test_select test_selectors test_poll test_epoll test_timeout test_socketserver test_ssl "
    "test_httplib test_httpservers test_http_cookiejar test_ftplib test_smtplib test_poplib test_imaplib "
    "test_telnetlib test_nntplib test_urllib test_urllib2 test_urllib2_localnet test_xmlrpc test_docxmlrpc "
    "test_wsgiref test_robotparser test_asyncore test_asynchat test_smtpd test_uuid test_cgi test_webbrowser "
    # Processes and signals.
    "test_subprocess test_popen test_wait3 test_wait4 test_fork1 test_posix test_os test_pty test_openpty "
    "test_tty test_ioctl test_fcntl test_pipes test_signal test_atexit test_resource test_faulthandler "
    "test_eintr test_file_eintr test_platform test_cmd_line test_cmd_line_script test_runpy test_compileall "
    "test_bdb test_pdb test_readline test_script_helper test_support test_multiprocessing_fork "
    "test_multiprocessing_spawn test_multiprocessing_forkserver test_multiprocessing_main_handling "
    # Files.
    "test_io test_file test_fileio test_bufio test_memoryio test_largefile test_fileinput test_tempfile "
    "test_shutil test_pathlib test_glob test_filecmp test_mmap test_zipfile test_zipimport test_zipapp "
    "test_tarfile test_gzip test_bz2 test_lzma test_zlib test_dbm test_dbm_dumb test_dbm_gnu test_dbm_sqlite3 "
    "test_shelve test_mailbox test_linecache test_stat test_genericpath test_posixpath test_univnewlines "
    "test_print test_codecs test_pickle test_configparser test_netrc test_mimetypes test_pkgutil test_sqlite3 "
    "test_syslog test_time test_timeit test_getpass test_code_module "
).split()
#: What is fast enough, and different enough, to run at every change.
QUICK = [
    "test_thread",
    "test_queue",
    "test_select",
    "test_selectors",
    "test_socketserver",
    "test_poplib",
    "test_ftplib",
]
#: What regrtest's -u would allow. This module talks to this machine only, though it asks for more.
RESOURCES = {"test_socketserver": ("network",)}
#: Tests that hang without emulation on many machines: the kernel has virtual sockets, but nobody at the other end.
NEVER = re.compile(r"VSOCK")
#: Seconds without a word after which a test counts as hanging.
PATIENCE = 90.0
#: Shares that may differ: of all tests together, and of any module.
MOST_OVER_ALL, MOST_OF_A_MODULE = 0.03, 0.10

HERE = Path(__file__).parent
EXPECTED = HERE / "cpython_tests.toml"
RESULTS = HERE / "cpython_tests.json"
TABLE = HERE.parent / "docs" / "other_code" / "emulation_table.inc"

Outcome = dict[str, str]  # test -> pass, fail, error, skip, xfail, hang, crash


# -- In the child process ------------------------------------------------------------------------------


def child(module: str, emulated: bool, report: str, done: set[str]) -> None:
    """Run the tests of a module that are not done yet, and write down what happens to them."""
    if emulated:
        import coro

        coro.install_thread_emulation()
        try:
            coro.run(_child, module, report, done)
        except SystemExit:
            pass
    else:
        _child(module, report, done)
    os._exit(0)  # threads that tests have left behind are nobody's business


def _child(module: str, report: str, done: set[str]) -> None:
    import unittest

    support: Any = importlib.import_module("test.support")
    script_helper: Any = importlib.import_module("test.support.script_helper")
    support.use_resources = RESOURCES.get(module, ())
    support.verbose = 0
    out = open(report, "a", buffering=1)
    children: set[str] = set()
    now: list[str] = [""]

    def tell(event: str, test: str) -> None:
        out.write(json.dumps([event, test]) + "\n")

    def mark(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            children.add(now[0])
            return function(*args, **kwargs)

        return call

    for name in ("run_python_until_end", "spawn_python", "_assert_python"):
        if hasattr(script_helper, name):
            setattr(script_helper, name, mark(getattr(script_helper, name)))

    class Result(unittest.TextTestResult):
        def startTest(self, test: Any) -> None:
            super().startTest(test)
            now[0] = test.id()
            self.outcome = "pass"
            tell("start", test.id())

        def stopTest(self, test: Any) -> None:
            super().stopTest(test)
            if test.id() in children:
                tell("child", test.id())
            tell(self.outcome, test.id())

        def addFailure(self, test: Any, err: Any) -> None:
            super().addFailure(test, err)
            self.outcome = "fail"

        def addError(self, test: Any, err: Any) -> None:
            super().addError(test, err)
            if not hasattr(test, "_testMethodName"):  # setUpModule, setUpClass
                tell("error", str(test))
            self.outcome = "error"

        def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
            super().addSubTest(test, subtest, err)
            if err is not None:
                self.outcome = "fail"

        def addSkip(self, test: Any, reason: str) -> None:
            super().addSkip(test, reason)
            if not hasattr(test, "_testMethodName"):
                tell("skip", str(test))
            self.outcome = "skip"

        def addExpectedFailure(self, test: Any, err: Any) -> None:
            super().addExpectedFailure(test, err)
            self.outcome = "xfail"

        def addUnexpectedSuccess(self, test: Any) -> None:
            super().addUnexpectedSuccess(test)
            self.outcome = "fail"

    suite = unittest.defaultTestLoader.loadTestsFromName("test." + module)
    wanted = unittest.TestSuite()
    for test in _flat(suite):
        if test.id() not in done and not NEVER.search(test.id()):
            wanted.addTest(test)
    result: Any = Result
    unittest.TextTestRunner(stream=sys.stderr, verbosity=2, resultclass=result).run(wanted)
    tell("end", "")
    out.close()


def _flat(suite: Any) -> Any:
    for item in suite:
        if hasattr(item, "_testMethodName") or not hasattr(item, "__iter__"):
            yield item
        else:
            yield from _flat(item)


# -- In the parent -------------------------------------------------------------------------------------


def run_module(
    python: str, module: str, emulated: bool, only: str | None, log: Path | None, patience: float
) -> tuple[Outcome, set[str]]:
    """Outcomes of a module's tests, and which of them work in another interpreter."""
    outcomes: Outcome = {}
    others: set[str] = set()
    done: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report")
        while True:
            report.write_text("")
            skip = Path(folder, "done")
            skip.write_text(json.dumps([sorted(done), only]))
            command = [python, "-X", "faulthandler", __file__, "child", module, str(report), str(skip)]
            if emulated:
                command.append("--emulated")
            with open(log, "ab") if log else open(os.devnull, "wb") as output:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, start_new_session=True
                )
                why = _watch(process, report, patience)
            last, ended = "", False
            for line in report.read_text().splitlines():
                event, test = json.loads(line)
                if event == "start":
                    last = test
                    outcomes[test] = "crash"
                elif event == "end":
                    ended = True
                elif event == "child":
                    others.add(test)
                else:
                    outcomes[test] = event
                    if test == last:
                        last = ""
            if last:
                outcomes[last] = why
            if ended or not (set(outcomes) - done):
                return outcomes, others
            done = set(outcomes)


def _watch(process: subprocess.Popen[bytes], report: Path, patience: float) -> str:
    """Wait for the process, or for its silence. Returns what became of the test that it was at."""
    size, since = -1, time.monotonic()
    try:
        while process.poll() is None:
            if report.stat().st_size != size:
                size, since = report.stat().st_size, time.monotonic()
            elif time.monotonic() - since > patience:
                os.kill(process.pid, signal.SIGABRT)  # faulthandler writes where it hangs
                time.sleep(1)
                return "hang"
            time.sleep(0.05)
        return "crash"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def version_of(python: str) -> str:
    code = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def present(python: str, modules: list[str]) -> list[str]:
    """Those of the modules that a Python has."""
    code = "import importlib.util as u, sys; print(*(m for m in sys.argv[1:] if u.find_spec('test.' + m)))"
    return subprocess.run([python, "-c", code, *modules], check=True, capture_output=True, text=True).stdout.split()


def load_expected() -> list[tuple[re.Pattern[str], str, str]]:
    """Patterns of tests that may differ: (pattern, prefix of the version or "", reason)."""
    if not EXPECTED.exists():
        return []
    entries = tomllib.loads(EXPECTED.read_text())["difference"]
    found = []
    for entry in entries:
        tests = entry["tests"]
        for version in entry.get("pythons", [""]):
            found += [(re.compile(test), version, entry["reason"]) for test in tests]
    return found


def compare(plain: Outcome, emulated: Outcome, others: set[str]) -> tuple[int, list[str]]:
    """How many tests count, and those of them that pass (or fail as expected) only without emulation."""
    counted = [
        test
        for test, outcome in plain.items()
        if outcome in ("pass", "xfail") and (test not in others or emulated.get(test) in ("hang", "crash"))
    ]
    different = [test for test in counted if emulated.get(test, "missing") not in ("pass", "xfail")]
    return len(counted), sorted(different)


def run(arguments: argparse.Namespace) -> int:
    import concurrent.futures  # which the children must not find loaded: they run this file, too

    expected = load_expected()
    results: dict[str, Any] = {}
    bad = 0
    aside = concurrent.futures.ThreadPoolExecutor(1)
    for python in arguments.python or [sys.executable]:
        version = version_of(python)
        total = total_different = 0
        for module in arguments.module or present(python, QUICK if arguments.quick else MODULES):
            log = Path(arguments.logs, f"{version}-{module}.log") if arguments.logs else None
            kept = Path(arguments.plain, f"{version}-{module}.json") if arguments.plain else None
            for path in (log, kept):
                if path:
                    path.parent.mkdir(parents=True, exist_ok=True)
            if log:
                log.unlink(missing_ok=True)
            if kept is not None and kept.exists():
                plain, others_list = json.loads(kept.read_text())
                others = set(others_list)
                emulated, more = run_module(python, module, True, arguments.only, log, arguments.patience)
            else:
                without = aside.submit(run_module, python, module, False, arguments.only, None, arguments.patience)
                if not arguments.quick:
                    concurrent.futures.wait([without])
                emulated, more = run_module(python, module, True, arguments.only, log, arguments.patience)
                plain, others = without.result()
                if kept is not None and not arguments.only:
                    kept.write_text(json.dumps([plain, sorted(others)]))
            others |= more
            if arguments.only:
                plain = {test: outcome for test, outcome in plain.items() if re.search(arguments.only, test)}
            counted, different = compare(plain, emulated, others)
            skipped = [test for test, found in emulated.items() if found == "skip" and plain.get(test) != "skip"]
            total += counted
            total_different += len(different)
            print(f"{version} {module}: {counted} counted, {len(different)} differ", flush=True)
            unknown = [
                test
                for test in different
                if not any(pattern.search(test) and version.startswith(on) for pattern, on, _ in expected)
            ]
            for test in different:
                print(f"  {'UNEXPECTED' if test in unknown else 'known'} {emulated.get(test, 'missing')} {test}")
            for test in skipped:
                print(f"  UNEXPECTED skip {test}")
            bad += len(unknown) + len(skipped)
            if counted and len(different) > MOST_OF_A_MODULE * counted:
                print(f"  more than {MOST_OF_A_MODULE:.0%} of the module differ")
                bad += 1
            if not arguments.only:
                results.setdefault(version, {})[module] = {
                    "counted": counted,
                    "different": len(different),
                    "skipped": len(skipped),
                    "elsewhere": len([test for test in others if plain.get(test) == "pass"]),
                }
        if total:
            print(f"{version}: {total} counted, {total_different} differ ({total_different / total:.1%})")
            if total_different > MOST_OVER_ALL * total:
                bad += 1
    if arguments.save:
        kept_results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        for version, found in results.items():
            kept_results.setdefault(version, {}).update(found)
        results = kept_results
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    return 1 if bad else 0


def table() -> int:
    """Write the table of the manual."""
    results = json.loads(RESULTS.read_text())
    versions = sorted(results, key=lambda text: [int(part) for part in text.split(".")])
    lines = [
        ".. Written by tools/cpython_tests.py; do not edit.",
        "",
        ".. list-table:: Tests that pass without emulation, and how many of them do not pass with it",
        "   :header-rows: 1",
        "",
        "   * - module",
    ]
    lines += [f"     - Python {version}" for version in versions]
    totals = {version: [0, 0] for version in versions}
    for module in MODULES:
        lines.append(f"   * - ``{module}``")
        for version in versions:
            cell = results[version].get(module)
            if cell is None:
                lines.append("     - not run")
                continue
            totals[version][0] += cell["counted"]
            totals[version][1] += cell["different"]
            lines.append(f"     - {cell['counted']}, {cell['different']} differ")
    lines.append("   * - all")
    for version in versions:
        counted, different = totals[version]
        share = different / counted if counted else 0.0
        lines.append(f"     - {counted}, {different} differ ({share:.1%})")
    TABLE.write_text("\n".join(lines) + "\n")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run test modules with and without emulation")
    runs.add_argument("--python", action="append", help="an interpreter that has coro (default: this one)")
    runs.add_argument("--module", action="append", help="a module (default: all that this Python has)")
    runs.add_argument("--quick", action="store_true", help="the quick modules only, both ways side by side")
    runs.add_argument("--only", help="tests that match this regular expression only")
    runs.add_argument("--logs", help="folder for the output of the emulated runs")
    runs.add_argument("--plain", help="folder to keep the outcomes without emulation in, and to take them from")
    runs.add_argument("--save", action="store_true", help="put the outcome into cpython_tests.json")
    runs.add_argument("--patience", type=float, default=PATIENCE, help="seconds of silence that make a hanging test")
    commands.add_parser("table", help="write the table of the manual")
    inner = commands.add_parser("child")
    inner.add_argument("module")
    inner.add_argument("report")
    inner.add_argument("done")
    inner.add_argument("--emulated", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "run":
        return run(arguments)
    if arguments.command == "table":
        return table()
    done, only = json.loads(Path(arguments.done).read_text())
    if only:
        global NEVER
        NEVER = re.compile(f"VSOCK|^(?!.*(?:{only}))")
    child(arguments.module, arguments.emulated, arguments.report, set(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
