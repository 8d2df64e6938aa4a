"""What a reader has to know of two sides before the verdicts: sentences for the head of a report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set

from klat.comparability import is_captured, words_under_test
from klat.inference.proportion import fisher
from klat.other_work import other_work
from klat.session import printable
from klat.sides import Side

_NAMES = ("BASE", "NEW")
# Of the modes in which time passes for the machine too, so that it can drift.
_TIMED = ("hardware", "virtual")
_UNUSABLE = ("invalid", "error")


def cautions(
    base: Side, new: Side, subject: str, took_turns: bool, compared: Set[str], alpha: float
) -> Iterator[str]:
    """`compared` are the benchmarks that there is a verdict on."""
    if subject == "kernel":
        yield from _kernels(base, new)
    if subject == "kernel" and not took_turns:
        yield from _one_after_the_other(base, new)
    yield from _unusable(base, new, compared, alpha)
    for name, side in zip(_NAMES, (base, new)):
        if disturbance := other_work(side.sessions):
            yield f"{name}: {disturbance}"
    bare = [
        name
        for name, side in zip(_NAMES, (base, new))
        if not all(is_captured(source.values) for source in side.sources)
    ]
    if bare:
        yield (
            f"the environment of {' and '.join(bare)} was not captured, so that governor, idle states,"
            " mitigations and the like could not be held against each other"
        )


# 6.1.0-56 of 6.1.0-56-rt-amd64, 6.12.117 of 6.12.117+deb13-amd64.
_VERSION = re.compile(r"\d+(?:\.\d+)*(?:-\d+(?![^-.\s]))?")


def _kernels(base: Side, new: Side) -> Iterator[str]:
    """What is under test besides the kernel, and where it is more than one thing."""
    values = [[source.values for source in side.sources] for side in (base, new)]
    words = words_under_test(*values)
    if words:
        told = [printable(side) or "nothing" for side in words]
        yield f"under test are words of the kernel's command line: {told[0]} in BASE, {told[1]} in NEW"
    infos = [side.sessions[0].info for side in (base, new)]
    names = ("kernel_release", "kernel_version", "preemption")
    one, two = ([printable(str(info.get(name))) for name in names] for info in infos)
    if one == two and not words:
        yield "both sides ran the same kernel: release, version and preemption agree"
    matches = [_VERSION.match(side[0]) for side in (one, two)]
    old, current = (match[0] if match else "" for match in matches)
    told = ["version"] if old and current and old != current else []
    if one[2] != two[2] and not {"None", "unknown"} & {one[2], two[2]}:
        told.append("preemption model")
    changed = [*told, "command line"] if words else told
    if len(changed) < 2:
        return
    cure = "compare sides that differ in one of them alone"
    if len(told) > 1:
        cure = f"compare BASE with a {current} kernel of preemption {one[2]}, and that one with NEW"
    yield (
        f"{', '.join(changed[:-1])} and {changed[-1]} changed together: this comparison cannot say"
        f" which of them made a difference. To tell them apart, {cure}"
    )


def _one_after_the_other(base: Side, new: Side) -> Iterator[str]:
    """Where time and kernel cannot be told apart."""
    if min(len(base.boots), len(new.boots)) < 2 or base.sessions[0].mode not in _TIMED:
        return
    moments = [[(s.begun, s.boot_number) for s in side.sources] for side in (base, new)]
    for first, second in ((0, 1), (1, 0)):
        if max(moments[first]) < min(moments[second]):
            yield (
                f"all boots of {_NAMES[first]} precede all of {_NAMES[second]}, so that any change of"
                " the machine between them counts as one of the kernel; alternate the kernels from boot"
                " to boot (klat lab run with several --kernel does)"
            )


def _unusable(base: Side, new: Side, compared: Set[str], alpha: float) -> Iterator[str]:
    """Where more runs of one side do not count than of the other, and not by one boot alone."""
    sides = [_by_boot(side) for side in (base, new)]
    shared = sorted(compared & sides[0].keys() & sides[1].keys())
    for benchmark in shared:
        held = [list(side[benchmark].values()) for side in sides]
        sums = [_sum(boots) for boots in held]
        worse = max((0, 1), key=lambda i: sums[i][0] / sums[i][1])
        kept = [boots if i != worse else _without_worst(boots) for i, boots in enumerate(held)]
        (x, n), (y, m) = map(_sum, kept)
        still = worse == int(y * n > x * m)
        if still and fisher(x, n, y, m) <= alpha / len(shared):
            told = [f"{bad:,} of {n:,} in {name}" for (bad, n), name in zip(sums, _NAMES)]
            yield (
                f"runs of {benchmark} that are invalid or failed: {' and '.join(told)}, which is no"
                " chance; find out why before you trust its verdicts"
            )


Counts = tuple[int, int]  # unusable runs, and all


def _sum(boots: Sequence[Counts]) -> Counts:
    return sum(bad for bad, _ in boots), sum(n for _, n in boots)


def _without_worst(boots: Sequence[Counts]) -> Sequence[Counts]:
    """What one boot does may be its own."""
    return sorted(boots, key=lambda boot: boot[0] / boot[1])[:-1] or boots


def _by_boot(side: Side) -> dict[str, dict[str, Counts]]:
    """Of each benchmark and boot, unusable runs and all that were not skipped."""
    found: dict[str, dict[str, Counts]] = {}
    for session in side.sessions:
        for rows in session.runs():
            if rows[0].status != "skipped":
                boots = found.setdefault(rows[0].benchmark, {})
                bad, n = boots.get(session.boot_id, (0, 0))
                boots[session.boot_id] = (bad + (rows[0].status in _UNUSABLE), n + 1)
    return found
