"""Benchmarks of coro against its peers, as ratios measured in one run on one machine: `python -m
tools.bench run`.

Idea: absolute times say little across machines and even across minutes on a shared one, so ours and theirs
alternate (A B A B, several rounds), every measurement in a process of its own; each round gives one ratio
per peer, and the median of those is held against a bar. CPU time is what counts, not wall time. Nothing is
taken for granted from earlier runs.

Rooms: `_suites` says what is measured and the bars, `_env` provides the peers and compiled helpers,
`_measure` runs one measurement, `_results` turns measurements into ratios, a report and JSON, `_plots` and `_tables`
make pictures and tables of that JSON with the words of `_captions`, `workloads/` holds the measured programs, `*.c` the
C echo server (the physical limit) and the load client. Rejected: pyperf, which calibrates each benchmark by itself and
so cannot interleave two of them.
"""
