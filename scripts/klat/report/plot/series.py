"""The series of one figure: the same metric of the same setting, once per label or session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from klat.base.errors import unique_file_name
from klat.compare.dataset import Dataset
from klat.report.text.numbers import plural
from klat.report.text.columns import params_text
from klat.report.text.parameters import parameters
from klat.record.session import printable
from klat.compare.settings import Setting, common_params
from klat.compare.runs import Runs

_MOST_CURVES = 8
_NAME_LENGTH = 32


@dataclass(frozen=True)
class Curve:
    """One of the series that a figure lays over each other."""

    name: str
    label: Dataset
    setting: Setting
    measurement: Runs


@dataclass(frozen=True)
class Overlay:
    """The curves of one figure."""

    slug: str
    title: str
    subtitle: str
    curves: list[Curve]


def overlays(labels: Sequence[Dataset], per_session: Sequence[Dataset]) -> list[Overlay]:
    """One for each metric of each setting. The figure lays several labels over each other, with a
    label's sessions pooled. For a single label it lays the label's sessions over each other
    (`per_session` has them one by one)."""
    shown = per_session if len(labels) == 1 and 1 < len(per_session) <= _MOST_CURVES else labels
    groups: dict[tuple[str, tuple[tuple[str, str], ...], str, str], list[Curve]] = {}
    for label, name in zip(shown, curve_names(shown)):
        for setting in label.settings:
            params = tuple(setting.params.items())
            for metric, measurement in setting.measurements.items():
                if measurement.sampled:
                    key = (setting.benchmark, params, setting.placement, metric)
                    curve = Curve(name, label, setting, measurement)
                    groups.setdefault(key, []).append(curve)
    settings = [setting for label in shown for setting in label.settings]
    slugs = _slugs(settings, list(groups))
    return [
        Overlay(slugs[key], _title(key), _subtitle(curves, settings), curves)
        for key, curves in groups.items()
    ]


def curve_names(labels: Sequence[Dataset]) -> list[str]:
    """A unique name for each: the label, and if needed the session or the conditions that differ."""
    names = [label.name for label in labels]
    if len(set(names)) < len(names):
        names = [
            f"{label.name}/{printable(label.sessions[0].path.name)}"
            if len(label.sessions) == 1
            else " ".join([label.name, *(value for _, value in label.apart)])
            for label in labels
        ]
    return [shortened(name, _NAME_LENGTH) for name in names]


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def _title(key: tuple[str, tuple[tuple[str, str], ...], str, str]) -> str:
    benchmark, _, _, metric = key
    return f"{benchmark} {metric}"


def _subtitle(curves: Sequence[Curve], settings: Sequence[Setting]) -> str:
    setting = curves[0].setting
    others = [other.params for other in settings if other.benchmark == setting.benchmark]
    shown = params_text(parameters(setting.benchmark, setting.params, others))
    return f"{shown}  {setting.placement}".strip()


def describe(curve: Curve, runs: int) -> str:
    """`stock: Linux 6.1.0, 2 boots, 1,000 runs`."""
    label = curve.label
    parts = [f"{curve.name}: Linux {shortened(label.kernel, 36)}"]
    if curve.measurement.boots > 1:
        parts.append(plural(curve.measurement.boots, "boot"))
    parts.append(plural(runs, curve.setting.noun))
    return ", ".join(parts)


def _slugs(
    settings: Sequence[Setting], keys: Sequence[tuple[str, tuple[tuple[str, str], ...], str, str]]
) -> dict[tuple[str, tuple[tuple[str, str], ...], str, str], str]:
    """`<benchmark>-<metric>[-<params>][-<placement>]`: only the parts needed for unique names."""
    slugs = {}
    taken: set[str] = set()
    for key in keys:
        benchmark, params, placement, metric = key
        alike = [s for s in settings if s.benchmark == benchmark]
        common = common_params(alike)
        words = [f"{name}-{value}" for name, value in params if name not in common]
        places = {
            s.placement for s in alike if tuple(s.params.items()) == params and s.measurements
        }
        parts = [benchmark, metric, *words, *([placement] if len(places) > 1 else [])]
        slugs[key] = unique_file_name("-".join(part for part in parts if part), taken)
    return slugs
