"""The table of machines (docs/machines.md) as a Document, from the files of klat submit."""

from __future__ import annotations

from collections.abc import Mapping

from klat.compare.dataset import Dataset
from klat.compare.environment_conditions import value_of
from klat.compare.settings import Setting
from klat.compare.submitted import METRICS, measurement
from klat.record.environment import short
from klat.record.evidence import other_work
from klat.report.document import Column, Document, Row, Section, Table, Word
from klat.report.text.numbers import MISSING, plural

_PER_PROGRAM = (Column(f"{program} {metric}") for program, metric in METRICS.items())
_FIGURES = (Column("boots"), Column("runs that count"), *_PER_PROGRAM)
_FACTS = tuple(
    Column(title, left=True)
    for title in ("kernel", "preemption", "microcode", "mitigations", "settings", "file")
)  # fmt: skip
# Settings of the machine, by the keys of docs/conditions.md.
_SETTINGS = {
    "governor": "frequency governor",
    "idle-driver": "idle driver",
    "idle-governor": "idle governor",
    "smt": "SMT",
    "isolated": "isolated CPUs",
    "nohz-full": "CPUs without a tick",
}
_NOT_SET = ("", "none", "(null)", "notsupported", "notimplemented")


def document(files: Mapping[str, Dataset]) -> Document:
    """The machines by the names of their files, the earliest session first."""
    ordered = sorted(files.items(), key=lambda item: item[1].sources[0].begun)
    numbered = [(number, *item) for number, item in enumerate(ordered, 1)]
    figures = tuple(
        Row(f"{number} {_machine(label)}", _figures(label)) for number, _, label in numbered
    )
    facts = tuple(Row(str(number), (*_facts(label), file)) for number, file, label in numbered)
    sections = (
        Section("Figures", (Table("", _FIGURES, figures, "machine"),)),
        Section("The machines", (Table("", _FACTS, facts, "machine"),)),
    )
    return Document("Machines", Word(""), 0, sections, ())


def _machine(label: Dataset) -> str:
    cpu = " ".join(str(label.info.get("cpu_model") or "unknown CPU").split())
    cpus = label.info.get("cpus_online")
    virtual = ", virtual" if label.mode == "virtual" else ""
    return f"{cpu}, {plural(cpus, 'CPU')}{virtual}" if cpus else f"{cpu}{virtual}"


def _figures(label: Dataset) -> tuple[str, ...]:
    """Figures of the runs that count. If the metrics have different numbers of runs, the smallest and the largest."""
    cells, counts, recorded = [], [], 0
    for program in METRICS:
        measured = measurement(label, program)
        counts.append(len(measured[1].runs) if measured else 0)
        settings = [setting for setting in label.settings if setting.benchmark == program]
        recorded = max(recorded, sum(setting.statuses.total() for setting in settings))
        cells.append(MISSING)
        if measured:
            statistics = measured[1].statistics
            cells[-1] = f"{_us(label, statistics.median)} / {_us(label, statistics.p99)}"
    low, high = min(counts), max(counts)
    counted = f"{low:,} to {high:,}" if low < high else f"{low:,}"
    return (f"{label.boots:,}", f"{counted} of {recorded:,}", *cells)


def _us(label: Dataset, ticks: int | None) -> str:
    """Microseconds, with three digits or more."""
    time = None if ticks is None else label.nanoseconds(ticks)
    if time is None:
        return MISSING
    return f"{time / 1000:,.{0 if time >= 1e5 else 1 if time >= 1e4 else 2}f}"


def _facts(label: Dataset) -> tuple[str, ...]:
    values = label.sources[0].values
    vulnerabilities = [t for (key, _), t in values.items() if key.startswith("vulnerability.")]
    mitigated, vulnerable = (
        sum(word in text for text in vulnerabilities) for word in ("Mitigation", "Vulnerable")
    )
    mitigations = f"{mitigated} active, {vulnerable} missing" if vulnerabilities else MISSING
    set_values = [(name, value_of(values, key)) for key, name in _SETTINGS.items()]
    settings = [f"{name} {short(value)}" for name, value in set_values if value not in _NOT_SET]
    if _is_ordinary(label):
        settings.append("no real-time priority")
    if other_work(label.sessions):
        settings.append("other work on the CPUs")
    model = str(label.info.get("preemption") or "unknown")
    microcode = value_of(values, "microcode") or MISSING
    return label.kernel, model, microcode, mitigations, ", ".join(settings) or MISSING


def _is_ordinary(label: Dataset) -> bool:
    settings: list[Setting] = [pair[0] for name in METRICS if (pair := measurement(label, name))]
    policies = [setting.params.get("policy", "") for setting in settings]
    return any(policy.startswith(("other", "batch")) for policy in policies)
