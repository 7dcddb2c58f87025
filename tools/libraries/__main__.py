"""Run real libraries with and without emulation, and write the table of the manual.

    python -m tools.libraries                # all
    python -m tools.libraries --quick        # those that are quick to install and to run
    python -m tools.libraries redis Flask    # these
    python -m tools.libraries --table        # write the table again from what was kept
    python -m tools.libraries --keep         # all, and keep the outcome

A library works if its program returns the same as under OS threads, ends, takes not much longer, leaves not more
descriptors open, and has not more OS threads than a few workers of the loop. What a program says about itself (`fails`)
has to be so, too: a library that works all of a sudden belongs into the table as one that works. With --keep, what was
as expected is kept in `results.json`, from which the table comes. The exit status says whether all was as expected.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tools.libraries.cases import load
from tools.libraries.work import THREADS, Case

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results.json"
TABLE = ROOT / "docs" / "other_code" / "libraries_table.inc"

#: Seconds for a program, and for its end after its report.
LIMIT, END = 120.0, 20.0
#: How many times what it takes under OS threads a program may take, and seconds on top: the machine may be busy. One
#: thread after the other takes more, because the servers keep each waiting.
TIMES, SPARE = 3.0, 6.0
#: Descriptors of the loop itself, and its worker OS threads.
DESCRIPTORS, WORKERS = 16, 40


def run(case: Case, emulated: bool, ports: dict[str, int]) -> dict[str, Any]:
    """What became of a program."""
    how = "emulated" if emulated else "threads"
    with tempfile.TemporaryDirectory(prefix="coro-library-") as folder:
        report, output, work = Path(folder, "report"), Path(folder, "output"), Path(folder, "work")
        work.mkdir()
        arguments = [case.name, how, json.dumps(ports), str(work), str(report)]
        command = [sys.executable, "-W", "ignore", "-m", "tools.libraries._child", *arguments]
        with open(output, "wb") as out:
            child = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, process_group=0)
        most, began, over = 0, time.monotonic(), None
        while child.poll() is None:
            with contextlib.suppress(OSError):
                most = max(most, len(os.listdir(f"/proc/{child.pid}/task")))
            now = time.monotonic()
            if over is None and report.exists():
                over = now
            if now - began > LIMIT or (over is not None and now - over > END):
                break
            time.sleep(0.02)
        ended = child.poll() is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, 9)
        status = child.wait()
        text = output.read_text(errors="replace")[-6000:]
        outcome: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            outcome = json.loads(report.read_text())
        if "result" not in outcome and "error" not in outcome:
            outcome["error"] = f"no report; status {status if ended else 'hanging'}\n{text}"
        elif not ended:
            outcome["error"] = f"reported, but did not end\n{text}"
        elif status:
            outcome["error"] = f"ended with status {status}\n{text}\n{outcome.get('error', '')}"
        outcome["os_threads"] = most
        return outcome


def judge(plain: dict[str, Any], emulated: dict[str, Any]) -> str:
    """Why a library does not work under emulation; nothing if it does."""
    if "error" in emulated:
        return str(emulated["error"])
    if emulated["result"] != plain["result"]:
        return f"expected what OS threads give, {str(plain['result'])[:500]}, got {str(emulated['result'])[:500]}"
    if emulated["seconds"] > TIMES * plain["seconds"] + SPARE:
        return f"took {emulated['seconds']:.1f} s, with OS threads {plain['seconds']:.1f} s"
    if emulated["descriptors"] > plain["descriptors"] + DESCRIPTORS:
        return f"leaves {emulated['descriptors']} descriptors open, with OS threads {plain['descriptors']}"
    if emulated["os_threads"] > WORKERS:
        return f"has {emulated['os_threads']} OS threads, expected at most {WORKERS}"
    return ""


def measure(case: Case, ports: dict[str, int]) -> dict[str, Any]:
    """Run a program both ways. The row of the table, and `wrong`: what is not as expected."""
    row: dict[str, Any] = {
        "version": importlib.metadata.version(case.distribution),
        "compiled": case.compiled,
        "setting": case.setting,
        "fails": case.fails,
    }
    plain = run(case, False, ports)
    if "error" in plain:
        return row | {"wrong": f"fails under OS threads: {plain['error']}"}
    emulated = run(case, True, ports)
    why = judge(plain, emulated)
    row["wrong"] = why if not case.fails else "" if why else f"works, though expected not to: {case.fails}"
    row["threads"] = {key: round(plain[key], 2) for key in ("seconds", "cpu", "descriptors", "os_threads")}
    if "seconds" in emulated:
        row["emulated"] = {key: round(emulated[key], 2) for key in ("seconds", "cpu", "descriptors", "os_threads")}
    return row


def table(rows: dict[str, Any]) -> str:
    """The table of the manual."""
    lines = [
        ".. Written by python -m tools.libraries; do not edit.",
        "",
        f".. list-table:: Libraries used from many threads at once, mostly {THREADS}, under emulation",
        "   :header-rows: 1",
        "",
        "   * - library",
        "     - version",
        "     - C code",
        "     - works",
    ]
    for name in sorted(rows, key=str.lower):
        row = rows[name]
        how = f"no: {row['fails']}" if row["fails"] else f"yes; {row['setting']}" if row["setting"] else "yes"
        cells = [name, row["version"], "yes" if row["compiled"] else "", how]
        lines += ["   * - " + cells[0], *(f"     - {cell}".rstrip() for cell in cells[1:])]
    return "\n".join(lines) + "\n"


def _line(name: str, row: dict[str, Any]) -> str:
    """One line about a program that ran."""
    plain, emulated = row.get("threads"), row.get("emulated")
    text = f"{name} {row['version']}: "
    text += "not as expected" if row["wrong"] else "does not work, as expected" if row["fails"] else "works"
    if plain and emulated:
        for key, unit in (("seconds", " s"), ("cpu", " s CPU"), ("descriptors", " fds"), ("os_threads", " OS threads")):
            text += f"; {plain[key]:g} -> {emulated[key]:g}{unit}"
    return text + (f"\n    {row['wrong']}".replace("\n", "\n    ") if row["wrong"] else "")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="tools.libraries", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="programs to run (default: all)")
    parser.add_argument("--quick", action="store_true", help="only those that run at each change")
    parser.add_argument("--table", action="store_true", help="only write the table, from what was kept")
    parser.add_argument("--keep", action="store_true", help="keep the outcome of these programs, and write the table")
    options = parser.parse_args()
    if options.table:
        TABLE.write_text(table(json.loads(RESULTS.read_text())))
        return 0
    cases = load()
    if unknown := set(options.names) - set(cases):
        parser.error(f"expected names of programs ({', '.join(cases)}), got {', '.join(sorted(unknown))}")
    chosen = [
        c for n, c in cases.items() if (not options.names or n in options.names) and (c.quick or not options.quick)
    ]
    rows: dict[str, Any] = {}
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    with contextlib.ExitStack() as stack:
        from tools.libraries.servers import start

        ports = start({name for case in chosen for name in case.servers}, stack)
        for case in chosen:
            if not set(case.servers) <= set(ports):
                print(f"{case.name}: not run, for want of a server", flush=True)
                continue
            rows[case.name] = measure(case, ports)
            print(_line(case.name, rows[case.name]), flush=True)
            if options.keep and not rows[case.name]["wrong"]:
                kept = {name: row for name, row in (kept | rows).items() if name in cases and not row["wrong"]}
                RESULTS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
                TABLE.write_text(table(kept))
    wrong = [name for name, row in rows.items() if row["wrong"]]
    print(f"{len(rows)} libraries, {len(wrong)} not as expected{': ' if wrong else ''}{', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
