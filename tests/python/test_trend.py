"""The steps of `klat lab trend`: kernels in order, judged together, and its report."""

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fakes
import made_tools
import pytest
from written_sessions import again
from written_trend import follow, three_kernels

from klat.base.errors import KlatError
from klat.commands import _lab_trend
from klat.compare.dataset import read_dataset
from klat.compare.trend import Trend
from klat.compare.verdicts import Verdict
from klat.explain.explanation import KeptSample, SampleNotFound
from klat.lab import kernels, suite, trend as lab_trend
from klat.lab.experiment import Begun
from klat.lab.replay import OtherSamples
from klat.report import trend as report
from klat.report.plot.trend_figures import overview

PACKAGE = Path(lab_trend.__file__).parents[1]


@pytest.fixture
def three(side) -> Trend:
    return three_kernels(side)


def verdicts(metric) -> dict[int, Verdict]:
    return {kernel: step.result.verdict for kernel, step in metric.steps.items()}


def test_each_kernel_is_compared_with_the_one_before(three):
    metric = three.series[0]
    assert verdicts(metric) == {1: Verdict.SAME, 2: Verdict.SLOWER}
    assert [(step.base, step.new) for _, step in three.jumps] == [(1, 2)]
    assert metric.values[2] / metric.values[1] == pytest.approx(metric.steps[2].ratio)
    assert three.comparison.family == 2 and three.comparison.status == 1


def test_a_metric_of_one_kernel_has_a_value_there_and_a_reason_elsewhere(three):
    (woken,) = [metric for metric in three.series if metric.key[3] == "woken"]
    assert [*woken.values] == [2] and not woken.steps
    assert woken.reasons == {0: "not measured", 1: "not measured"}


def test_a_skipped_run_is_the_reason_of_its_cell(side):
    paths = [side("old"), side("new")]
    for path, skipped in zip(paths, (True, False)):
        side.add(path.name, "mseal", 9_000, boots=0 if skipped else 5, params="call=mseal")
    row = {"params": "call=mseal", "status": "skipped", "reason": "no such call"}
    again(paths[0] / "0").run({}, **row)
    (metric,) = [c for c in follow(*paths).series if c.key[1] == "call=mseal"]
    assert metric.reasons == {0: "1 skipped (no such call)"} and 1 in metric.values


def test_chains_share_their_rows_and_one_correction(side):
    paths = [side(label) for label in ("a", "b", "a-rt", "b-rt")]
    both = follow(*paths, chains=[[0, 1], [2, 3]])
    (metric,) = both.series
    assert set(metric.values) == {0, 1, 2, 3} and set(metric.steps) == {1, 3}
    assert both.comparison.family == 2
    assert both.first_of(metric, 3) == 2


def test_a_condition_that_somebody_set_refuses_its_step_alone(side):
    set_here = {"proc/sys/kernel/timer_migration": "0"}
    changed = side("b", environment=set_here)
    metric = follow(side("a", environment={next(iter(set_here)): "1"}), changed).series[0]
    assert metric.steps[1].cell.refused and metric.steps[1].result is None
    assert set(metric.values) == {0, 1}


def test_a_kernel_that_was_not_measured_leaves_the_report_open(side):
    paths = [side("a"), side("b")]
    assert follow(*paths).status == 0
    lost = report.document(follow(*paths, c="panics"), [])
    assert (lost.status, lost.outcome.text) == (3, "1 same, 1 kernel not measured: inconclusive")
    with pytest.raises(KlatError, match="no kernel to compare with: c: panics") as refused:
        follow(paths[0], chains=[[0]], c="panics")
    assert refused.value.status == 4


def test_the_reason_of_a_kernel_that_failed_names_it_once(side):
    failing = follow(side("a"), side("b"), c="c: the kernel did not boot")
    assert failing.failures == {"c": "the kernel did not boot"}
    with pytest.raises(KlatError, match="compare with: c: the kernel did not boot$"):
        follow(side("alone"), c="c: the kernel did not boot")


def test_an_explanation_is_kept_and_a_damaged_one_is_not_believed(tmp_path):
    sample = KeptSample(5, 1, 1, ((1, "f", 3, 1), (2, "g", 1, 2)))
    file = tmp_path / "explained.json"
    text = json.dumps({"x": asdict(sample)})
    file.write_text(text)
    assert lab_trend._read_cache(tmp_path) == {"x": sample}
    changes = (('"ticks": 5', '"ticks": 6'), ('"f"', "7"), ('[2, "g"', '[3, "g"'), ("}}", ""))
    for before, after in changes:
        damaged = text.replace(before, after)
        assert damaged != text
        file.write_text(damaged)
        assert lab_trend._read_cache(tmp_path) == {}


def test_a_sample_that_a_boot_does_not_show_is_not_looked_for_again_by_the_same_klat(tmp_path):
    missing = lab_trend._without_sample(SampleNotFound("no such stamps"))
    again = lab_trend._without_sample(KlatError("no room"))
    assert missing.can_be_kept and not again.can_be_kept
    earlier = replace(missing, not_found_by="earlier")
    text = json.dumps({"x": asdict(missing), "y": asdict(earlier)})
    (tmp_path / "explained.json").write_text(text)
    assert lab_trend._read_cache(tmp_path) == {"x": missing}


@pytest.mark.parametrize("name", ["lab/qemu.py", "lab/replay.py", "explain/isa.py", "trace.so"])
def test_other_code_looks_for_a_sample_again(tmp_path, monkeypatch, name):
    plugin = tmp_path / "trace.so"
    plugin.write_text("plugin")
    monkeypatch.setattr(suite, "trace_plugin", lambda: plugin)
    before, read = lab_trend._code.__wrapped__(), Path.read_bytes
    assert lab_trend._code.__wrapped__() == before
    changed = [path for path in (plugin, *PACKAGE.glob("*/*.py")) if path.match(name)]
    assert len(changed) == 1
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b"#" * (path in changed))
    assert lab_trend._code.__wrapped__() != before


@pytest.mark.parametrize("error", [KlatError("there is no make"), FileNotFoundError()])
def test_kept_samples_are_read_without_the_plugin(monkeypatch, error):
    def missing() -> Path:
        raise error

    monkeypatch.setattr(suite, "trace_plugin", missing)
    assert lab_trend._code.__wrapped__()


def test_boots_are_repeated_of_kernels_without_boots_or_explanations(tmp_path):
    """A kernel has no further jumps to explain if it has all boots, and a kept explanation of one of them."""
    text = json.dumps({"kept/2 pipes round_trip": asdict(KeptSample(5, 1, 0, ((1, "f", 5, 1),)))})
    (tmp_path / "explained.json").write_text(text)
    planned: Any = SimpleNamespace(number_of_boots=2)

    def begun(label: str, boots: int) -> Begun:
        return Begun(planned, tmp_path, {n: tmp_path / label / f"{n}" for n in range(1, boots + 1)})

    new, explained = [None, begun("begun", 1), begun("unexplained", 2)], begun("kept", 2)
    assert lab_trend.boots_to_repeat(new, tmp_path) == 3 * lab_trend._REPEATED_BOOTS
    assert lab_trend.boots_to_repeat([*new, explained], tmp_path) == 3 * lab_trend._REPEATED_BOOTS
    (tmp_path / "explained.json").unlink()
    assert lab_trend.boots_to_repeat([*new, explained], tmp_path) == 4 * lab_trend._REPEATED_BOOTS


def test_stock_and_rt_kernels_are_chains_by_default_and_a_given_order_is_kept():
    specs = [kernels.parse(f"debian:{name}") for name in ("6.1", "7.3", "6.1-rt", "7.3-rt")]
    assert lab_trend.chains(specs, True) == [[0, 1], [2, 3]]
    assert lab_trend.chains(specs[:3], True) == [[0, 1], [2]]
    assert lab_trend.chains(specs, False) == [[0, 1, 2, 3]]


def test_a_kept_sample_has_its_call_tree_again():
    sample = KeptSample(10, 1, 0, ((1, "a", 1, 1), (2, "b", 2, 3), (2, "c", 3, 1), (1, "b", 4, 1)))
    walked = [(chain, node.own, node.calls) for chain, node in sample.tree.walk()]
    assert walked == [(("a",), 1, 1), (("a", "b"), 2, 3), (("a", "c"), 3, 1), (("b",), 4, 1)]
    assert sample.functions == {"a": 1, "b": 6, "c": 3} and sample.tree.total == 10


def test_the_labels_of_a_figure_leave_out_what_all_have(three):
    other = replace(three, labels=tuple(f"lab-arm64-{label}" for label in "abc"))
    assert report.short_labels(other) == ["a", "b", "c"] and report.architecture(other) == "arm64"
    mixed = replace(three, labels=("lab-arm64-a", "lab-b", "lab-c"))
    assert report.short_labels(mixed) == list(mixed.labels) and not report.architecture(mixed)
    figure = overview(other, report.names(other.series), report.short_labels(other))
    assert "Linux on arm64, a to c" in "\n".join(figure.commands)


def test_the_figure_of_all_metrics_has_a_panel_for_each(three):
    names, labels = report.names(three.series), report.short_labels(three)
    figure = overview(three, names, labels)
    shown = [name for metric, name in zip(three.series, names) if len(metric.values) > 1]
    text = "\n".join(figure.commands)
    assert text.count("\nplot ") == len(shown) and all(name in text for name in shown)


def test_few_boots_are_repeated_for_the_typical_samples(new_session):
    """A boot that has the figures of both metrics, rather than the nearest one of each."""
    for boot, (first, second) in enumerate([(10_000, 10_400), (10_004, 9_996), (10_400, 10_000)]):
        session = new_session(f"new/{boot}", label="new", boot_id=f"boot-{boot}")
        session.run({"first": [first] * 10, "second": [second] * 10})
    dataset = read_dataset(new_session.root / "new")
    asked = [(dataset, key, 10_000.0) for key in dataset.cells]
    chosen = lab_trend.sessions_to_repeat(asked)
    assert len(asked) == 2 and [path.name for path in chosen] == ["1", "1"]
    far = lab_trend.sessions_to_repeat([(dataset, asked[0][1], 10_300.0)])
    assert [path.name for path in far] == ["2"], "the nearest one, where none is near"


def test_a_boot_that_cannot_be_repeated_gives_way_to_another(new_session, monkeypatch):
    """A guest that reads its disk while it boots can give other samples the second time. A later report knows this."""
    for boot in "012":
        session = new_session(f"new/{boot}", label="new", boot_id=f"boot-{boot}")
        session.run({"first": [10_000] * 10, "second": [10_000] * 10})
    dataset, repeated = read_dataset(new_session.root / "new"), []

    def explain_samples(asked, keep, say, jobs):
        repeated.extend({path.name for path, _ in asked})
        refused = {n: OtherSamples("other") for n, (p, _) in enumerate(asked) if p.name == "0"}
        return {n: kept for n in range(len(asked)) if n not in refused}, refused

    kept = KeptSample(5, 1, 1, ((1, "f", 3, 1), (2, "g", 1, 2)))
    monkeypatch.setattr(lab_trend.explaining, "explain_samples", explain_samples)
    asked = [(dataset, key, 10_000.0) for key in dataset.cells]
    for boots in (["0", "1"], ["0", "1"]):
        assert lab_trend.samples_of(asked, new_session.root, 1, print) == [kept, kept]
        assert repeated == boots


@pytest.mark.parametrize("typed", ["{path}", "{path},modules=m", "debian:6.12,append=quiet"])
def test_a_side_of_a_diff_without_a_name_has_that_of_its_side(typed, tmp_path):
    image = tmp_path / "bzImage"
    image.touch()
    spec = _lab_trend._of_side("base", typed.format(path=image))
    assert spec.label == "base" and spec.append == ("quiet" if "append" in typed else "")


def test_a_diff_without_kernels_asks_for_no_benchmark(tmp_path):
    done = made_tools.run(sys.executable, fakes.KLAT, "lab", "diff", cwd=tmp_path)
    assert done.returncode == 2 and "are required: BASE, NEW;" in done.stderr


def test_a_diff_without_qemu_says_so_before_it_fetches_kernels(tmp_path):
    environment = os.environ | {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    words = ("lab", "diff", "debian:6.12", "debian:7.3", "syscall")
    done = made_tools.run(sys.executable, fakes.KLAT, *words, env=environment, cwd=tmp_path)
    assert done.returncode == 2
    assert "the lab needs qemu-system-" in done.stderr
    assert "fetching" not in done.stderr
    assert not list(tmp_path.glob("cache/klat/lab/packages/*"))
