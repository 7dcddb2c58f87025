"""Pictures of what readers and users see, to be looked at by a person: pages of the manual, the profiler's report, and
a traceback on a terminal.

    sphinx-build -b html docs docs/_build/html
    python3 tools/manual_screens.py docs/_build/html .dev/screens [PAGE ...]

needs Chromium (Debian: chromium), and coro-core for the last two. It reads the pages from the disk and is cut off from
the network, so what is missing in a picture is missing without a network. With names of pages, each is shown light and
dark, wide and narrow. Two seconds of a processor for each picture.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SIZES = {"wide": "1400,3200", "narrow": "480,1200"}
# One of each kind: page, theme, size.
PICTURES = (
    ("index", "light", "wide"),
    ("index", "dark", "narrow"),
    ("tutorial/echo", "light", "wide"),
    ("basics/waiting", "dark", "wide"),
)
# No name is resolved, so nothing is fetched.
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND")
# The theme asks for what the reader has chosen before, and follows the system otherwise.
CHOICE = 'localStorage.getItem("theme") || "auto"'

# What a terminal shows when a thread fails.
FAILING = """\
import coro

def price_of(thing, prices={"lamp": 12}):
    return prices[thing]

def main():
    coro.spawn(price_of, "sofa", thread_name="customer 1").join()

coro.run(main)
"""
COLOURS = {"1": "font-weight:bold", "31": "color:#e06c75", "32": "color:#98c379", "33": "color:#e5c07b"}
COLOURS |= {"34": "color:#61afef", "35": "color:#c678dd", "36": "color:#56b6c2"}
TERMINAL = """<!doctype html><meta charset="utf-8"><title>terminal</title>
<body style="margin:0;background:#1e1e1e"><pre style="margin:1em;color:#ddd;font:15px monospace">{}</pre>"""


def shoot(browser: str, page: Path, size: str, into: Path) -> None:
    """Write a PNG of a page. Raises CalledProcessError if the browser fails."""
    with tempfile.TemporaryDirectory() as profile:
        places = [f"--user-data-dir={profile}", f"--window-size={size}", f"--screenshot={into.resolve()}"]
        subprocess.run(
            [browser, *OPTIONS, *places, page.resolve().as_uri()], check=True, capture_output=True, timeout=120
        )


def page_of_manual(browser: str, page: Path, theme: str, size: str, into: Path) -> None:
    """A page in one theme: of a copy, beside the page because of its links, that does not ask the reader's choice."""
    copy = page.with_name(f"screen-{theme}-{size.partition(',')[0]}-{page.name}")
    text = page.read_text(encoding="utf-8")
    if CHOICE not in text:
        raise SystemExit(
            f"{page}: expected the theme to ask {CHOICE}, it does not; see how it chooses light or dark now"
        )
    copy.write_text(text.replace(CHOICE, f'"{theme}"'), encoding="utf-8")
    try:
        shoot(browser, copy, size, into)
    finally:
        copy.unlink()


def report(browser: str, into: Path) -> None:
    """The report of the profiler about the manual's example."""
    with tempfile.TemporaryDirectory() as folder:
        profile, page = Path(folder, "shop.bin"), Path(folder, "shop.html")
        shop = ROOT / "docs/examples/profile_shop.py"
        subprocess.run([sys.executable, str(shop), str(profile)], check=True, capture_output=True, timeout=120)
        with page.open("wb") as file:
            subprocess.run([sys.executable, "-m", "coro.print_profile", str(profile)], check=True, stdout=file)
        shoot(browser, page, "1100,1000", into)


def coloured(text: str) -> str:
    """HTML of what a program wrote for a terminal, with the colours of its escape sequences."""
    out, is_open = [], False
    for i, part in enumerate(re.split(r"\x1b\[([0-9;]*)m", text)):
        if i % 2 == 0:
            out.append(html.escape(part))
            continue
        if is_open:
            out.append("</span>")
        style = ";".join(COLOURS[code] for code in part.split(";") if code in COLOURS)
        is_open = bool(style)
        if is_open:
            out.append(f'<span style="{style}">')
    return "".join(out) + ("</span>" if is_open else "")


def traceback(browser: str, into: Path) -> None:
    """What a failing thread writes to a terminal, in colour if this Python has colours for tracebacks (3.13)."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "shop.py").write_text(FAILING, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "shop.py"],
            cwd=folder,
            env={**os.environ, "FORCE_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        page = Path(folder, "terminal.html")
        page.write_text(TERMINAL.format(coloured(f"$ python shop.py\n{done.stderr}")), encoding="utf-8")
        shoot(browser, page, "1000,180", into)


def main() -> None:
    parser = argparse.ArgumentParser(description="Pictures of pages of the manual, of a report, and of a terminal.")
    parser.add_argument("manual", type=Path, help="the folder with the pages")
    parser.add_argument("into", type=Path, help="the folder for the pictures")
    parser.add_argument("pages", nargs="*", help="pages to show in all forms; default: one picture of each kind")
    parser.add_argument("--if-possible", action="store_true", help="without Chromium say so, and do not fail")
    arguments = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        text = "expected Chromium on PATH, found none; Debian: apt install chromium"
        if not arguments.if_possible:
            sys.exit(text)
        print(f"no pictures: {text}")
        return
    arguments.into.mkdir(parents=True, exist_ok=True)
    wanted = [(page, theme, size) for page in arguments.pages for theme in ("light", "dark") for size in SIZES]
    # A browser waits half of its time.
    with ThreadPoolExecutor(3) as pool:
        jobs = []
        if not wanted:
            jobs.append(pool.submit(report, browser, arguments.into / "profiler-report.png"))
            jobs.append(pool.submit(traceback, browser, arguments.into / "terminal-traceback.png"))
        for page, theme, size in wanted or PICTURES:
            into = arguments.into / f"{page.replace('/', '-')}-{theme}-{size}.png"
            source = arguments.manual / f"{page}.html"
            jobs.append(pool.submit(page_of_manual, browser, source, theme, SIZES[size], into))
        for job in jobs:
            job.result()
    print(f"pictures to look at: {arguments.into.resolve()}", flush=True)


if __name__ == "__main__":
    main()
