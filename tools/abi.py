"""The layout of coro-core's C interface, tied to its number: `python3 tools/abi.py [--update] [FOLDER]`.

Extensions compiled against coro-core check `CORO_ABI` at import; that only helps if the number is raised whenever a
structure, a function or the order of methods changes. So `_runtime/abi.pxd` also has a digest of all .pxd files and of
the headers they name, without comments and white space, together with the number. Here it is computed and compared;
`--update` writes it, with the next number. A digest that fits without a new number cannot be written by this program.

FOLDER: the package folder to look at (default: that of the checkout). Ends with 1 where they differ.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "packages" / "coro-core" / "src" / "coro"
ABI = "_runtime/abi.pxd"
_NUMBER = re.compile(r"\bCORO_ABI = (\d+)")
_DIGEST = re.compile(r"^# layout: (\w+)$", re.M)


def bare(text: str, c: bool) -> str:
    """The text without comments and differences of white space; the indentation of Cython counts."""
    if c:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
        return " ".join(text.split())
    # A comment of Cython has a space behind its sign; a line of C in a string, "#define" say, has none.
    lines = (re.split(r"#(?= |$)", line)[0].rstrip() for line in text.splitlines())
    return "\n".join(re.sub(r"(?<=\S)\s+", " ", line) for line in lines if line.strip())


def headers(folder: Path) -> list[Path]:
    """The headers that .pxd files name, and those which these include, in the order of their names."""
    found: set[Path] = set()
    texts = [path.read_text() for path in folder.rglob("*.pxd")]
    waiting = [name for text in texts for name in re.findall(r'cdef extern from "([^"<>]+)"', text)]
    while waiting:
        path = folder / waiting.pop()
        if path.is_file() and path not in found:
            found.add(path)
            waiting += re.findall(r'#\s*include\s+"([^"]+)"', path.read_text())
    return sorted(found)


def layout(folder: Path) -> str:
    """The digest of the interface in `folder`, the number included."""
    digest = hashlib.sha256()
    files = sorted(p for p in folder.rglob("*.pxd") if p != folder / ABI)
    for path in [*files, *headers(folder)]:
        digest.update(f"{path.relative_to(folder)}\0{bare(path.read_text(), path.suffix == '.h')}\0".encode())
    digest.update(str(number(folder)).encode())
    return digest.hexdigest()[:16]


def number(folder: Path) -> int:
    """`CORO_ABI` as it stands in `folder`."""
    found = _NUMBER.search((folder / ABI).read_text())
    if found is None:
        raise SystemExit(f"expected a line 'CORO_ABI = <number>' in {folder / ABI}, found none")
    return int(found[1])


def recorded(folder: Path) -> str:
    """The digest as it stands in `folder`."""
    found = _DIGEST.search((folder / ABI).read_text())
    if found is None:
        raise SystemExit(f"expected a line '# layout: <digest>' in {folder / ABI}, found none")
    return found[1]


def main(arguments: list[str]) -> int:
    update = "--update" in arguments
    rest = [a for a in arguments if a != "--update"]
    folder = Path(rest[0]) if rest else PACKAGE
    if layout(folder) == recorded(folder):
        print(f"CORO_ABI {number(folder)}: the layout is the one recorded")
        return 0
    if not update:
        print(
            f"The .pxd files and headers of coro-core differ from those that CORO_ABI {number(folder)} stands for. "
            "Extensions must be compiled anew for them: python3 tools/abi.py --update raises the number.",
            file=sys.stderr,
        )
        return 1
    path = folder / ABI
    path.write_text(_NUMBER.sub(f"CORO_ABI = {number(folder) + 1}", path.read_text()))
    path.write_text(_DIGEST.sub(f"# layout: {layout(folder)}", path.read_text()))
    print(f"CORO_ABI is {number(folder)} now")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
