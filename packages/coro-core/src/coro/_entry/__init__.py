"""Beginning and ending: loops, forks, `coro.connect`, and small names of the original Shrapnel.

What a fork does to each room is put in order in `fork.py`. Tests: `tests/entry`.
"""
