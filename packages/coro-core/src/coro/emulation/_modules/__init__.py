"""The standard library's modules under emulation, one file for each: what is replaced in it, and by what.

Each has `plan()`, which says so; `_install.py` carries it out. Tests: `tests/emulation`.
"""
