"""Pictures of pages of the manual as a browser shows them, light and dark, to be looked at by a person.

    sphinx-build -b html docs docs/_build/html
    python3 tools/manual_screens.py docs/_build/html .dev/screens [PAGE ...]

needs Chromium (Debian: chromium). It reads the pages from the disk and is cut off from the network, so what is missing
in a picture is missing without a network. Two seconds for each picture.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PAGES = ("index", "tutorial/echo", "basics/waiting", "reference/threads")
SIZES = {"wide": "1400,3200", "narrow": "480,1200"}
# No name is resolved, so nothing is fetched.
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND")
# The theme asks for what the reader has chosen before, and follows the system otherwise.
CHOICE = 'localStorage.getItem("theme") || "auto"'


def picture(browser: str, page: Path, theme: str, size: str, into: Path) -> None:
    """Write a PNG of a page. Raises CalledProcessError if the browser fails."""
    copy = page.with_name(f"screen-{theme}-{page.name}")
    text = page.read_text(encoding="utf-8")
    if CHOICE not in text:
        raise SystemExit(
            f"{page}: expected the theme to ask {CHOICE}, it does not; see how it chooses light or dark now"
        )
    copy.write_text(text.replace(CHOICE, f'"{theme}"'), encoding="utf-8")
    try:
        with tempfile.TemporaryDirectory() as profile:
            subprocess.run(
                [
                    browser,
                    *OPTIONS,
                    f"--user-data-dir={profile}",
                    f"--window-size={size}",
                    f"--screenshot={into.resolve()}",
                    copy.resolve().as_uri(),
                ],
                check=True,
                capture_output=True,
                timeout=120,
            )
    finally:
        copy.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("manual", type=Path, help="the folder with the pages")
    parser.add_argument("into", type=Path, help="the folder for the pictures")
    parser.add_argument("pages", nargs="*", default=PAGES, help=f"default: {', '.join(PAGES)}")
    arguments = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("expected Chromium on PATH, found none; Debian: apt install chromium")
    arguments.into.mkdir(parents=True, exist_ok=True)
    for page in arguments.pages:
        for theme in ("light", "dark"):
            for name, size in SIZES.items():
                into = arguments.into / f"{page.replace('/', '-')}-{theme}-{name}.png"
                picture(browser, arguments.manual / f"{page}.html", theme, size, into)
                print(into, flush=True)


if __name__ == "__main__":
    main()
