"""`python -m tools.codegen PATH`: see tools/codegen/__init__.py."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

from . import cython_file, needs, python_file
from .schema import Schema, SchemaError, load

#: Where the files belong.
PACKAGE = Path(__file__).resolve().parents[2] / "packages" / "coro-amqp" / "src" / "coro" / "amqp"

FILES = {
    "spec.py": python_file.spec,
    "_spec_codec.pyx": cython_file.pyx,
    "_spec_codec.pxd": cython_file.pxd,
    "_spec_codec.pyi": cython_file.pyi,
}


def make(schema: Schema) -> dict[str, str]:
    """The text of each file, by its name."""
    return {name: writer(schema) for name, writer in FILES.items()}


def _check(folder: Path, texts: dict[str, str]) -> int:
    differing = 0
    for name, text in texts.items():
        path = folder / name
        there = path.read_text() if path.exists() else ""
        if there != text:
            differing += 1
            lines = difflib.unified_diff(there.splitlines(), text.splitlines(), str(path), "made now", lineterm="")
            print("\n".join(list(lines)[:40]))
    if differing:
        print(f"{differing} of {len(texts)} files differ from what is made now; run without --check", file=sys.stderr)
        return 1
    print(f"{', '.join(texts)}: as they would be made now")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """0; 1 where --check finds a difference; 2 for a file that cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.codegen",
        description="Make coro-amqp's spec.py and codec from RabbitMQ's description of AMQP 0-9-1.",
        epilog="The file is deps/rabbitmq_codegen/amqp-rabbitmq-0.9.1.json in "
        "https://github.com/rabbitmq/rabbitmq-server.",
    )
    parser.add_argument("path", type=Path, help="amqp-rabbitmq-0.9.1.json")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the files would change")
    parser.add_argument("--output", type=Path, default=PACKAGE, help="another folder (default: coro-amqp's sources)")
    options = parser.parse_args(arguments)
    try:
        schema = load(options.path)
    except SchemaError as exc:
        print(exc, file=sys.stderr)
        return 2
    texts = make(schema)
    lacking = needs.missing(texts["spec.py"], PACKAGE)
    if lacking is not None:
        print(f"{options.path.name}: {lacking}", file=sys.stderr)
        return 2
    if options.check:
        return _check(options.output, texts)
    if not options.output.is_dir():
        print(f"{options.output}: expected a folder that exists", file=sys.stderr)
        return 2
    for name, text in texts.items():
        (options.output / name).write_text(text)
    print(f"{', '.join(texts)}: written to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
