"""Compiles swap_test.c with the stack swap of each processor and runs it, foreign ones under an emulator.

    python run.py [--require] [NAME ...]

NAME is x86_64, i386 or aarch64; all of them without one.  A processor without compiler or emulator on this
machine is left out, or with --require is a failure.  Needs nothing but the standard library.  About five
seconds.

On Debian for x86-64: gcc-12-multilib (by this name: the package gcc-multilib excludes every cross compiler),
gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user-static.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORO = HERE.parents[1] / "src" / "coro"
SWAP = CORO / "_switch"

FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-frounding-math", "-I", str(CORO)]

# What changes which registers are in use across the swap, and how the entry is reached.
VARIANTS = [["-O0"], ["-O2"], ["-O3", "-fomit-frame-pointer"], ["-O2", "-fPIC", "-fno-omit-frame-pointer"]]

NAMES = ("x86_64", "i386", "aarch64")


def toolchain(name: str) -> tuple[list[str], list[str], list[list[str]]] | str:
    """Compiler command, emulator command and extra variants for `name`, or what is missing."""
    machine = platform.machine()
    native = os.environ.get("CC", "cc").split()
    if name == "aarch64":
        extra = [["-O2", "-mbranch-protection=standard"]]
        if machine in ("aarch64", "arm64"):
            return native, [], extra
        emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
        compiler = shutil.which("aarch64-linux-gnu-gcc")
        if compiler is None or emulator is None:
            return "aarch64-linux-gnu-gcc" if compiler is None else "qemu-aarch64-static"
        return [compiler, "-static"], [emulator], extra
    if machine not in ("x86_64", "i386", "i686"):
        return f"an x86 machine (this is {machine})"
    if shutil.which(native[0]) is None:
        return native[0]
    if name == "x86_64":
        return (native, [], [["-O2", "-fcf-protection=full"]]) if machine == "x86_64" else "a 64-bit machine"
    # With and without SSE, which has a control word of its own. Static: then no 32-bit loader is needed.
    extra = [["-O2", "-msse2", "-mfpmath=sse"], ["-O0", "-msse2"]]
    return ([*native, "-m32", "-static"] if machine == "x86_64" else native), [], extra


def works(compiler: list[str], folder: Path) -> bool:
    """Whether `compiler` can make a program at all (`-m32` needs libraries of its own)."""
    source = folder / "empty.c"
    source.write_text("#include <stdio.h>\nint main(void) { return 0; }\n")
    done = subprocess.run([*compiler, source, "-o", folder / "empty"], capture_output=True, check=False)
    return done.returncode == 0


def run(name: str, folder: Path) -> str | None:
    """Build and run every variant for `name`; None if all is well, or what is missing.

    Raises `subprocess.CalledProcessError` for a failed compilation or test.
    """
    tools = toolchain(name)
    if isinstance(tools, str):
        return tools
    compiler, emulator, extra = tools
    if not works(compiler, folder):
        return f"{' '.join(compiler)} that can build programs"
    for variant in [*VARIANTS, *extra]:
        program = folder / f"swap_{name}"
        # All assembly files, as the extension is built: each must be empty for the others' processors.
        sources = [HERE / "swap_test.c", HERE / "swap_probe.S", *sorted(SWAP.glob("*.S"))]
        subprocess.run([*compiler, *FLAGS, *variant, *sources, "-lm", "-o", program], check=True)
        done = subprocess.run(
            [*emulator, program], check=False, stdout=subprocess.PIPE, text=True, timeout=120
        )
        print(f"{name:8} {' '.join(variant):36} {done.stdout.strip()}", flush=True)
        done.check_returncode()
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--require", action="store_true", help="fail where a compiler or emulator is missing")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    options = parser.parse_args()
    missing = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names or NAMES:
            try:
                lacks = run(name, Path(folder))
            except subprocess.CalledProcessError as e:
                print(f"{name}: FAILED: {' '.join(map(str, e.cmd))} ended with {e.returncode}")
                return 1
            if lacks is not None:
                missing += 1
                print(f"{name:8} not tested: needs {lacks}")
    return 1 if missing and options.require else 0


if __name__ == "__main__":
    sys.exit(main())
