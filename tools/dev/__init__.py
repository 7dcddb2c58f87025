"""Development commands of this repository: `python3 -m tools.dev --help`.

Needs nothing but the standard library and a Python >= 3.11; whatever else a command wants goes into
environments of its own below `.dev/`, which git ignores.
"""
