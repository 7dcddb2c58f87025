"""A profile for other programs: ``pstats`` (and what reads its files) and speedscope.

Cost: a pass over the trees.
"""

from __future__ import annotations

import json
import marshal
import os

from coro.profiler._accounts import settle
from coro.profiler._file import Profile, ProfileError


def _need_trees(profile: Profile) -> None:
    if not profile.threads or not profile.ticks_per_second:
        raise ProfileError(
            "the profile holds no trees of calls: it was written by a program that leaves them out; "
            "print_profile shows the rest"
        )


def to_pstats(profile: Profile, filename: str | os.PathLike[str]) -> None:
    """Write a profile as ``pstats.Stats(filename)`` reads it. Times are seconds in which threads ran; the time they
    waited is not included. ProfileError when the profile holds no trees, OSError when the file cannot be written."""
    _need_trees(profile)
    second = profile.ticks_per_second
    accounts, pairs = settle([thread.nodes for thread in profile.threads], 1 + len(profile.values))
    stats = {}
    for number, account in accounts.items():
        callers = {
            profile.places[caller]: (pair.calls, pair.outermost, pair.own[1] / second, pair.aggregate[1] / second)
            for (caller, callee), pair in pairs.items()
            if callee == number
        }
        place = profile.places[number]
        stats[place] = (
            account.outermost,
            account.calls,
            account.own[1] / second,
            account.aggregate[1] / second,
            callers,
        )
    with open(filename, "wb") as file:
        marshal.dump(stats, file)


def to_speedscope(profile: Profile, filename: str | os.PathLike[str]) -> None:
    """Write a profile to ``filename`` in the JSON format of speedscope: one view for each thread, each path of calls as
    one sample that weighs what it took, in seconds. ProfileError when the profile holds no trees, OSError when the file
    cannot be written."""
    _need_trees(profile)
    views = []
    for thread in profile.threads:
        samples: list[list[int]] = []
        weights: list[float] = []
        path: list[int] = []
        for node in thread.nodes:
            del path[node[0] :]
            path.append(node[1])
            if node[4] > 0:
                samples.append(list(path))
                weights.append(node[4] / profile.ticks_per_second)
        views.append(
            {
                "type": "sampled",
                "name": f"{thread.name} #{thread.number}" if thread.number > 0 else thread.name,
                "unit": "seconds",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        )
    frames = [
        {"name": name} if file == "~" else {"name": name, "file": file, "line": line}
        for name, (file, line, _) in zip(profile.names, profile.places, strict=True)
    ]
    whole = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "coro.profiler",
        "name": f"coro profile ({profile.bench})",
        "shared": {"frames": frames},
        "profiles": views,
    }
    with open(filename, "w", encoding="utf-8") as text:
        json.dump(whole, text)
