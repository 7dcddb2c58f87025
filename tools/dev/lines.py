"""The length of lines where ruff does not look: Cython, C and assembly.

The limit is ruff's own, from the root's pyproject.toml. What is checked is every such file that git knows of or would
take, so that a new package is checked without being named.
"""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

SUFFIXES = ("pyx", "pxd", "pxi", "h", "c", "S")


def limit(root: Path) -> int:
    """The longest line that the checkout `root` allows, in characters."""
    with open(root / "pyproject.toml", "rb") as file:
        return int(tomllib.load(file)["tool"]["ruff"]["line-length"])


def too_long(root: Path) -> list[str]:
    """One text for each line that is too long: file, number of the line, its length.

    Raises `subprocess.CalledProcessError` where `root` is no checkout.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    patterns = [f"*.{suffix}" for suffix in SUFFIXES]
    names = subprocess.run([*command, *patterns], cwd=root, check=True, capture_output=True, text=True).stdout
    most, found = limit(root), []
    for name in sorted(filter(None, names.split("\0"))):
        path = root / name
        if path.exists():  # one that was deleted is known to git until that is committed
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if len(line) > most:
                    found.append(f"{name}:{number}: {len(line)} characters, and {most} are allowed")
    return found
