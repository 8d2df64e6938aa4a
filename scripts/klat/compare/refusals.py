"""What the head of a report says of two sides: the conditions that refuse their comparison, all differences, and
warnings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from statistics import median

from klat.base.errors import did_you_mean
from klat.compare.session_problems import frequencies_differ
from klat.compare.conditions import COMPILER, COUNTER, RECORDED, RUN, SETTINGS, UNDER_TEST
from klat.compare.conditions import Condition, Words, disagreements, is_captured, kernels_within
from klat.compare.conditions import words_under_test
from klat.compare.dataset import Dataset
from klat.compare.runs import Runs
from klat.compare.environment_conditions import PROCESS, value_of
from klat.compare.kernel_defaults import may_be_of_firmware
from klat.compare.matching import MatchedCell, SideUnits
from klat.record import environment
from klat.record.environment import ABSENT, Difference, command_line, recorded_differences, short
from klat.record.evidence import other_work
from klat.record.session import printable
from klat.stats.exceedance import fisher

Conditions = tuple[Condition, ...]


def without_effect(allow: Sequence[str], datasets: Sequence[Dataset]) -> Iterator[str]:
    """A sentence for each KEY.NAME that none of the sessions has. It may fit other sessions, so it is no error."""
    known = {key for side in datasets for source in side.sources for key, _ in source.values}
    for key in allow:
        family, dot, _ = key.partition(".")
        if not dot or key in known:
            continue
        names = sorted(name for name in known if name.startswith(f"{family}."))
        shown = ", ".join(names[:4]) + (", ..." if names[4:] else "") or f"no {family}.NAME"
        meant = did_you_mean(key, names) or f"; they have {shown}"
        yield printable(f"--allow {key}: no session has this condition{meant}")


def between(
    base: Dataset, new: Dataset, units: SideUnits, allow: Sequence[str]
) -> tuple[Conditions, Conditions]:
    """Refused and accepted."""
    sides = [[source.values for source in side.sources] for side in (base, new)]
    conditions = disagreements(*sides)
    for side in (base, new):
        conditions += kernels_within(side.name, side.sessions)
    if any(session.mode == "emulated" for side in (base, new) for session in side.sessions):
        if not any(condition.key == "mode" for condition in conditions):
            why = "a side is emulated without counting instructions, so it has no valid times"
            conditions.append(Condition("mode", "mode", "emulated", "emulated", why))
    # In counted mode the figures do not depend on the machine below the emulator.
    counted = all(session.mode == "counted" for side in (base, new) for session in side.sessions)
    one_machine = units.subject == "setting" or units.took_turns or counted
    if not one_machine and not _machine_ids(base) and not _machine_ids(new):
        why = "no session has a machine id, so the two sides may be of two machines"
        conditions.append(Condition("machine", "machine_id", ABSENT, ABSENT, why))
    if not any(condition.key == "machine" for condition in conditions):
        conditions += _frequencies(base, new)
    if units.subject == "setting" and units.took_turns:
        # One setting each: other experiments of the same labels may have had other settings.
        mixed = {c.key for values in sides for c in disagreements(values, values)}
        conditions = [c for c in conditions if c.family not in SETTINGS or c.key in mixed]
    if words := words_under_test(*sides):
        conditions = [c for c in conditions if not _follows(c, words)]
    return split(conditions, allow)


def _frequencies(base: Dataset, new: Dataset) -> list[Condition]:
    """The counter of a machine has one frequency. If two kernels measure two, the times of one of them have that
    error, or a guest moved to another host."""
    sides = [[s.khz for s in side.sessions if s.khz] for side in (base, new)]
    if not all(sides) or not frequencies_differ([khz for side in sides for khz in side]):
        return []
    texts = (" | ".join(dict.fromkeys(f"{khz:,.0f} kHz" for khz in side)) for side in sides)
    return [Condition(COUNTER, "the counter's frequency", *map(short, texts))]


def _machine_ids(side: Dataset) -> list[str]:
    ids = [session.info.get(RECORDED["machine"]) for session in side.sessions]
    return [machine for machine in ids if machine]


def split(conditions: Sequence[Condition], allow: Sequence[str]) -> tuple[Conditions, Conditions]:
    """Refused and accepted."""
    accepted = tuple(condition for condition in conditions if condition.key in allow)
    return tuple(condition for condition in conditions if condition not in accepted), accepted


def _follows(condition: Condition, words: Words) -> bool:
    """Whether it is one of the words that only one side's kernel got, or can be an effect of these
    words."""
    given = {name for side in words for name in command_line(side)}
    name = condition.key.removeprefix("cmdline.")
    return condition.family in UNDER_TEST or (condition.family == "cmdline" and name in given)


def differences(base: Dataset, new: Dataset) -> list[Difference]:
    """All differences, refused or not."""
    old, newer = base.sessions[0], new.sessions[0]
    differing = recorded_differences(old.info, newer.info)
    recorded = [source.values for source in (base.sources[0], new.sources[0])]
    for key, name in RUN.items():
        texts = [short(values[key, name]) for values in recorded]
        if texts[0] != texts[1]:
            differing.append(Difference(name, *texts))
    return differing + environment.differences(old.path / "environment", newer.path / "environment")


Info = Mapping[str, object]  # session.json

_NAMES = ("BASE", "NEW")
# The modes in which the machine can drift.
_TIMED = ("hardware", "virtual")
_UNUSABLE = ("invalid", "error")


def cautions(base: Dataset, new: Dataset, subject: str, took_turns: bool) -> Iterator[str]:
    if subject == "kernel":
        yield from _kernels(base, new)
    if subject == "kernel" and not took_turns:
        yield from _one_after_the_other(base, new)
    for name, side in zip(_NAMES, (base, new)):
        if disturbance := other_work(side.sessions):
            yield f"{name}: {disturbance}"
    values = [source.values for side in (base, new) for source in side.sources]
    if any(value_of(by_key, f"{PROCESS}.Seccomp") == "2" for by_key in values):
        yield (
            "the programs ran under a seccomp filter, and klat cannot see its rules; compare only sides that the"
            " same container or service started"
        )
    lowest = {value_of(by_key, "frequency-min") for by_key in values}
    if len(lowest) > 1 and any(map(may_be_of_firmware, values)):
        yield (
            "the lowest frequency (scaling_min_freq) differs; amd-pstate takes it from the firmware since Linux 6.16,"
            " and klat cannot see whether somebody set it instead"
        )
    sides = zip(_NAMES, (base, new))
    bare = [n for n, side in sides if not all(is_captured(s.values) for s in side.sources)]
    if bare:
        yield (
            f"the environment of {' and '.join(bare)} was not captured, so governor, idle states,"
            " mitigations and so on were not compared"
        )


def floors(pairs: Sequence[MatchedCell], unit: str, margin: float) -> Iterator[str]:
    """A sentence for each benchmark whose floors differ by more than a step and the margin of BASE's median."""
    benchmarks = set[str]()
    for pair in pairs:
        benchmark = pair.keys[0][0]
        base, new = (_typical(side, "floor") for side in (pair.base, pair.new))
        figure = _typical(pair.base, "p50")
        if benchmark in benchmarks or base is None or new is None or figure is None:
            continue
        if abs(new - base) > max(pair.base.step, pair.new.step, margin * figure):
            benchmarks.add(benchmark)
            yield (
                f"the floors of {printable(benchmark)} differ: {base:,.0f} {unit} in BASE and {new:,.0f} {unit} in"
                " NEW; each sample contains the floor, so reading the counter is a part of the difference (for example, a"
                " hypervisor traps it)"
            )


def _typical(side: Runs, column: str) -> float | None:
    """The median over the runs, in the unit of figures."""
    numbers = [(getattr(run.row, column), run.source.scale) for run in side.runs]
    values = [number * scale for number, scale in numbers if number is not None]
    return median(values) if values else None


_NO_MODEL = {"None", "unknown"}  # not recorded, or not visible
# 6.1.0-56 of 6.1.0-56-rt-amd64, 6.12.117 of 6.12.117+deb13-amd64.
_VERSION = re.compile(r"\d+(?:\.\d+)*(?:-\d+(?![^-.\s]))?")


def _kernels(base: Dataset, new: Dataset) -> Iterator[str]:
    """What is under test, with a warning if it is more than one thing."""
    values = [[source.values for source in side.sources] for side in (base, new)]
    words = words_under_test(*values)
    if words:
        shown = [printable(side) or "nothing" for side in words]
        yield f"under test: the kernel's command line, with {shown[0]} in BASE and {shown[1]} in NEW"
    infos = [side.info for side in (base, new)]
    if len({info.get("architecture") for info in infos}) > 1:
        return
    compilers = [side[0].get(COMPILER) for side in values]
    if compilers[0] != compilers[1] and all(compilers):
        yield (
            f"the compilers of the kernels differ: {compilers[0]} (BASE), {compilers[1]} (NEW). This alone can cause a"
            " difference"
        )
    names = ("kernel_release", "kernel_version", "preemption")
    of_base, of_new = ([printable(str(info.get(name))) for name in names] for info in infos)
    if of_base == of_new and not words:
        yield "both sides ran the same kernel: " + (
            "release, version and preemption agree"
            if of_base[2] not in _NO_MODEL or "PREEMPT_DYNAMIC" not in of_base[1]
            else "release and version agree. Its preemption model is unknown, and root can switch it while the kernel"
            " runs; mount debugfs on /sys/kernel/debug, and record as root"
        )
    matches = [_VERSION.match(side[0]) for side in (of_base, of_new)]
    old, current = (match[0] if match else "" for match in matches)
    kernel_changes = ["version"] if old and current and old != current else []
    if of_base[2] != of_new[2] and not _NO_MODEL & {of_base[2], of_new[2]}:
        kernel_changes.append("preemption model")
    # preempt= chooses the preemption model.
    others = {" ".join(re.sub(r"\bpreempt=\S*", "", side).split()) for side in words or ()}
    changed = [*kernel_changes, "command line"] if len(others) > 1 else kernel_changes
    if len(changed) < 2:
        return
    cure = "compare sides that differ in only one of them"
    if len(kernel_changes) > 1:
        cure = _steps((old, of_base[2], infos[0]), (current, of_new[2], infos[1]))
    yield (
        f"{', '.join(changed[:-1])} and {changed[-1]} changed together, so a difference can come"
        f" from each of them. To separate them, {cure}"
    )


def _steps(base: tuple[str, str, Info], new: tuple[str, str, Info]) -> str:
    """Comparisons that change either the version or the preemption model. A side is its version, its model and
    its session.json."""
    for (version, _, info), (_, model, _) in ((new, base), (base, new)):
        if _can_have(version, model, str(info.get("architecture"))):
            return (
                f"compare BASE with a {version} kernel of preemption {model}, then that kernel with NEW"
                + _lab_command([info], model)
            )
    return (
        f"compare BASE with a {base[0]} kernel of preemption full, that kernel with a {new[0]} kernel of"
        " preemption full, and the latter with NEW" + _lab_command([base[2], new[2]], "full")
    )


def _lab_command(infos: Sequence[Info], model: str) -> str:
    """The command that boots kernels of these versions with this model. Empty unless the lab booted the sides and
    Debian has such kernels: an RT kernel, or one that takes its model from the command line. RT kernels do so
    since 6.12."""
    variant = "-rt" if model.startswith("rt") else ""
    word = {"rt": "full", "rt-lazy": "lazy"}.get(model, model)
    kernels = []
    for info in infos:
        numbers = re.findall(r"\d+", str(info.get("kernel_release")))[:2]
        line, version = ".".join(numbers), str(info.get("kernel_version"))
        if info.get("mode") != "counted" or "Debian" not in version:
            return ""
        if not variant and "PREEMPT_DYNAMIC" not in version:
            return ""
        kernel = f"debian:{line}{variant}"
        if not variant or tuple(map(int, numbers)) >= (6, 12):
            kernel = f"{line}-{model}={kernel},append=preempt={word}"
        kernels.append(f" --kernel {kernel}")
    arch = {"aarch64": " --arch arm64", "riscv64": " --arch riscv64"}.get(
        str(infos[0].get("architecture")), ""
    )
    return f": klat lab run{arch}{''.join(kernels)}"


def _can_have(version: str, model: str, architecture: str) -> bool:
    """Whether this version certainly has this model. Any kernel can be `full`, or `rt` with a patch. Linux 6.13
    added `lazy`, for other architectures later. Linux 7.0 removed `none` and `voluntary` on architectures with
    `lazy` (kernel/Kconfig.preempt)."""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if model.endswith("lazy"):
        return numbers >= ((6, 13) if architecture in ("x86_64", "riscv64") else (7, 0))
    return numbers < (7, 0) or model not in ("none", "voluntary")


def _one_after_the_other(base: Dataset, new: Dataset) -> Iterator[str]:
    """A warning where drift over time looks like a difference of the kernels."""
    if min(base.boots, new.boots) < 2 or base.mode not in _TIMED:
        return
    if not all(source.is_dated for side in (base, new) for source in side.sources):
        yield (
            "the clock was not set in some boots, so klat cannot tell from their dates whether the kernels"
            " alternated; if they did not, a change of the machine over time looks like one of the kernel"
        )
        return
    moments = [[(s.begun, s.boot_number) for s in side.sources] for side in (base, new)]
    for first, second in ((0, 1), (1, 0)):
        if max(moments[first]) < min(moments[second]):
            yield (
                f"all boots of {_NAMES[first]} precede all of {_NAMES[second]}, so a change of the"
                " machine over time looks like one of the kernel; alternate the kernels from boot to"
                " boot (klat lab run with several --kernel does)"
            )


def uncounted_runs(
    base: Dataset, new: Dataset, compared: Set[str], alpha: float
) -> tuple[list[str], dict[str, str]]:
    """For each benchmark of which one side has more unusable runs than by chance, in more than one boot: a warning, or
    an obstacle if most runs of that side are unusable. The usable runs may then not represent the side: the breakdown
    point of a median is one half (Hampel, 1971).
    """
    warnings, obstacles = [], {}
    sides = [_by_boot(side) for side in (base, new)]
    shared = sorted(compared & sides[0].keys() & sides[1].keys())
    for benchmark in shared:
        settings = [list(side[benchmark].values()) for side in sides]
        sums = [_sum(boots) for boots in settings]
        worse = max((0, 1), key=lambda i: sums[i][0] / sums[i][1])
        kept = [boots if i != worse else _without_worst(boots) for i, boots in enumerate(settings)]
        (x, n), (y, m) = map(_sum, kept)
        still = worse == int(y * n > x * m)
        if still and fisher(x, n, y, m) <= alpha / len(shared):
            counts = [f"{bad:,} of {n:,} in {name}" for (bad, n), name in zip(sums, _NAMES)]
            runs = f"invalid or failed runs of {benchmark}: {' and '.join(counts)}, beyond chance"
            bad, n = sums[worse]
            if 2 * bad > n:
                obstacles[benchmark] = f"{runs}, so the runs that count may not represent this side"
            else:
                warnings.append(f"{runs}; find out why before you trust its verdicts")
    return warnings, obstacles


Counts = tuple[int, int]  # unusable runs, and all


def _sum(boots: Sequence[Counts]) -> Counts:
    return sum(bad for bad, _ in boots), sum(n for _, n in boots)


def _without_worst(boots: Sequence[Counts]) -> Sequence[Counts]:
    """One bad boot is not evidence against its side."""
    return sorted(boots, key=lambda boot: boot[0] / boot[1])[:-1] or boots


def _by_boot(side: Dataset) -> dict[str, dict[str, Counts]]:
    """Per benchmark and boot: unusable runs, and all runs that were not skipped."""
    by_boot: dict[str, dict[str, Counts]] = {}
    for session in side.sessions:
        runs = Counter((rows[0].benchmark, rows[0].status) for rows in session.runs)
        for (benchmark, status), count in runs.items():
            if status != "skipped":
                boots = by_boot.setdefault(benchmark, {})
                bad, n = boots.get(session.boot_id, (0, 0))
                boots[session.boot_id] = (bad + count * (status in _UNUSABLE), n + count)
    return by_boot
