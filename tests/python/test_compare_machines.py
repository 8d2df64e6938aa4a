"""`klat compare` of sides with sessions of several machines."""

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from written_sessions import CPU, NewSession, RT, answer, samples, words

Fleet = Callable[..., tuple[Path, Path]]
MEDIAN = ("--quantile", "median")


@pytest.fixture
def fleet(new_session: NewSession, tmp_path: Path) -> Fleet:
    """Two labels on several machines, each with one of `ratios` as NEW/BASE. None: no session of rt."""

    def write(
        ratios: Sequence[float | None], boots: int = 4, changes: Mapping[int, Any] | None = None
    ) -> tuple[Path, Path]:
        draw = np.random.default_rng(3)
        for number, ratio in enumerate(ratios):
            info = {"machine_id": f"{number:02d}{'f' * 30}", "cpu_model": f"CPU {number}"}
            for label, factor, kernel in (("stock", 1.0, {}), ("rt", ratio, RT)):
                change = (changes or {}).get(number, {}).get(label, {})
                for boot in range(change.get("boots", boots) if factor else 0):
                    session = new_session(
                        f"{label}/{number}-{boot}",
                        **{"label": label, "boot_id": f"{label}-{number}-{boot}"}
                        | {**info, **kernel, **change.get("info", {})},
                        environment=change.get("environment", {}),
                        facts=change.get("facts"),
                    )
                    assert factor
                    middle = 52_000 * (1 + number / 4) * factor * math.exp(draw.normal(0, 0.002))
                    session.run({"round_trip": samples(middle)}, run=1, order=1)
        return tmp_path / "results/stock", tmp_path / "results/rt"

    return write


SLOWER = (1.08, 1.10, 1.07, 1.09, 1.12, 1.08, 1.10)


def test_each_machine_has_a_line_and_one_is_over_machines(fleet, klat):
    status, out, _ = klat("compare", *fleet([*SLOWER, None], boots=5), *MEDIAN)
    assert status == 1
    lines = [line.split() for line in out.splitlines() if line.startswith("    0")]
    assert [line[0] for line in lines] == [f"{n:02d}ffffff" for n in range(7)]
    assert [float(line[3]) for line in lines] == pytest.approx(SLOWER, abs=0.005)
    assert {line[-1] for line in lines} == {"slower"}
    assert "over 7 machines" in out and "left out: machine 07ffffff (only in BASE)" in out
    assert "between machines the ratio varies by" in words(out)
    assert "by Holm over 8 tests" in words(out)
    assert "1 slower: regression (status 1)" in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_ratio_over_machines_is_the_geometric_mean(fleet, klat):
    document = answer(klat, "compare", *fleet([*SLOWER, None]), *MEDIAN)
    (over,) = document["over_machines"]
    ratios = [a["cells"][0]["results"][0]["judgement"]["ratio"] for a in document["against"]]
    logs = [math.log(ratio) for ratio in ratios]
    j = over["judgement"]
    assert math.log(j["ratio"]) == pytest.approx(np.mean(logs))
    reach = 2.446912 * np.std(logs, ddof=1) / math.sqrt(7)  # Student's t, 6 degrees of freedom
    hidden = j["resolution"]
    assert math.log(j["interval"][1] / j["ratio"]) == pytest.approx(reach + hidden, rel=1e-5)
    assert over["machines"] == [against["machine"] for against in document["against"]]
    assert over["next_machine"][0] < j["interval"][0] < j["interval"][1] < over["next_machine"][1]
    assert document["verdicts"] == {"slower": 1}
    (left,) = document["left_out_machines"]
    assert left["machine"].startswith("07") and left["reason"] == "only in BASE"


@pytest.mark.parametrize(("ratios", "said"), [((1.023,) * 6, False), ((1.01, 1.03) * 3, True)])
def test_a_change_may_lie_within_the_margin_only_if_the_interval_reaches_it(
    fleet, klat, ratios, said
):
    _, out, _ = klat("compare", *fleet(ratios), *MEDIAN)
    change = "on average NEW is longer beyond chance; the change may lie within the margin"
    assert (change in words(out)) is said


def test_a_machine_with_one_boot_has_only_its_own_verdict(fleet, klat):
    changes = {1: {"rt": {"boots": 1}}}
    status, out, _ = klat("compare", *fleet([1.0] * 7, boots=6, changes=changes), *MEDIAN)
    assert status == 3 and "1 same, 1 cannot be attributed: inconclusive" in out
    assert "over 6 machines" in out and "01ffffff: NEW is one boot" in words(out)


def test_a_first_machine_that_is_refused_leaves_the_others_together(fleet, klat):
    governor = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    set_otherwise = {
        label: {"environment": {governor: value}}
        for label, value in (("stock", "powersave"), ("rt", "performance"))
    }
    sides = fleet([1.0, *SLOWER], changes={0: set_otherwise})
    over = answer(klat, "compare", *sides, *MEDIAN)["over_machines"][0]
    assert [machine[:2] for machine in over["machines"]] == [f"{n:02d}" for n in range(1, 8)]
    assert [left["machine"][:2] for left in over["left_out"]] == ["00"]
    cases = klat("export", *sides, *MEDIAN, "--format", "ktap")[1]
    assert cases.count("# SKIP not comparable: governor: ") == 1


def test_few_machines_have_only_their_own_verdicts(fleet, klat):
    status, out, _ = klat("compare", *fleet([1.0, 1.1, 1.0]), *MEDIAN)
    assert status == 1 and "2 same, 1 slower: regression" in out
    assert "too few machines for a verdict over machines: 3 of 6" in words(out)
    assert "over 3 machines" not in out


def test_one_slower_machine_of_many_does_not_decide(fleet, klat):
    ratios = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.05]
    status, out, _ = klat("compare", *fleet(ratios, boots=6), *MEDIAN)
    assert status == 0 and "1 same: no regression" in out
    assert "Verdicts of single machines: 1 slower, 9 same." in words(out).replace(
        "9 same, 1 slower", "1 slower, 9 same"
    )


def test_sides_without_a_common_machine_are_refused(fleet, klat):
    stock, rt = fleet([1.0, None, 1.0])
    for session in (rt / "2-0").parent.glob("[02]-*"):
        document = json.loads((session / "session.json").read_text())
        document["machine_id"] = f"other-{document['machine_id']}"
        (session / "session.json").write_text(json.dumps(document))
    status, out, _ = klat("compare", stock, rt)
    assert status == 4 and "--allow machine" in words(out)


def test_machines_that_may_differ_count_as_one_machine(fleet, klat):
    keys = [word for key in ("machine", "cpu") for word in ("--allow", key)]
    _, out, _ = klat("compare", *fleet([1.0, 1.0]), *MEDIAN, *keys)
    assert "allowed, though it differs: machine:" in words(out)


def test_a_condition_that_differs_on_one_machine_leaves_it_out(fleet, klat):
    governor = f"{CPU}/cpu0/cpufreq/scaling_governor"
    governors = {"stock": "performance", "rt": "powersave"}
    changes = {2: {label: {"environment": {governor: g}} for label, g in governors.items()}}
    status, out, _ = klat("compare", *fleet([1.0] * 7, boots=6, changes=changes), *MEDIAN)
    assert "over 6 machines" in out
    assert "left out: machine 02ffffff (not comparable)" in words(out)
    assert "--allow governor [02ffffff]" in words(out)
    assert status == 4  # a machine that is not comparable does not pass


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"facts": {"load": "populate"}}, "the machines of BASE differ in load"),
        ({"info": {"kernel_release": "6.2"}}, "the machines of BASE differ in kernel_release"),
    ],
)
def test_machines_that_differ_in_a_setting_have_no_verdict_over_machines(fleet, klat, own, said):
    other = {"facts": own["facts"]} if "facts" in own else {}
    sides = fleet([1.0] * 7, changes={3: {"stock": own, "rt": other}})
    _, out, _ = klat("compare", *sides, *MEDIAN)
    assert "over 7 machines" not in out and said.split(" in ")[0] in words(out)
    key = "load" if other else "kernel-release"
    _, out, _ = klat("compare", *sides, *MEDIAN, "--allow", key)
    assert "over 7 machines" in out


def test_machines_of_two_architectures_have_no_verdict_over_machines(fleet, klat):
    other = {"info": {"architecture": "aarch64"}}
    sides = fleet([1.0] * 7, changes={3: {"stock": other, "rt": other}})
    _, out, _ = klat("compare", *sides, *MEDIAN)
    assert "over 7 machines" not in out
    assert "the machines of BASE differ in architecture" in words(out)


def test_sessions_without_a_machine_id_are_left_out(fleet, klat):
    changes = {1: {"stock": {"info": {"machine_id": None}}, "rt": {"info": {"machine_id": None}}}}
    _, out, _ = klat("compare", *fleet([1.0, 1.0, 1.0], changes=changes), *MEDIAN)
    assert "2 machines with both sides" in out
    assert "left out: sessions (4 of BASE without a machine id)" in out


def test_csv_has_the_machine_of_each_line(fleet, klat):
    _, out, _ = klat("compare", *fleet([*SLOWER, None]), *MEDIAN, "--format", "csv")
    tested = [row for row in csv.DictReader(io.StringIO(out)) if row["tested"] != "0"]
    assert [row["machine"][:2] for row in tested] == [f"{n:02d}" for n in range(7)] + ["ov", "07"]
    over = tested[-2]
    assert over["verdict"] == "slower" and over["machines"] == "7"
    assert float(over["next_machine_low"]) < float(over["low"]) < float(over["ratio"])
    assert tested[-1]["verdict"] == "left out"


def test_a_limit_is_judged_machine_by_machine(fleet, klat):
    _, out, _ = klat("compare", *fleet([1.0, 1.0, None]), "--limit", "1ms")
    assert "Machine  00ffffff: CPU 0" in out and "Machine  01ffffff: CPU 1" in out
    assert "left out: machine 02ffffff (only in BASE)" in out
    assert "there is none over machines" in words(out)


def test_a_limit_says_which_new_side_left_out_a_machine(fleet, new_session, klat):
    stock, rt = fleet([1.0, 1.0, None])
    first = {"machine_id": f"00{'f' * 30}", "cpu_model": "CPU 0"}
    third = new_session.label("third", [[samples(52_000)]] * 4, environment={}, **first, **RT)
    _, out, _ = klat("compare", stock, rt, third, "--limit", "1ms")
    left = "  left out: machine 02ffffff (only in BASE)\n"
    assert f"\nrt:\n{left}\nthird:\n{left.replace('02', '01')}{left}\n" in out


def test_a_new_side_without_common_machines_has_no_verdict_over_machines(fleet, new_session, klat):
    stock, rt = fleet([1.1] * 6)
    other = {"machine_id": "e" * 32, "cpu_model": "CPU 0"}
    elsewhere = new_session.label("elsewhere", [[samples(52_000)]] * 4, environment={}, **other)
    _, out, _ = klat("compare", stock, rt, elsewhere, *MEDIAN)
    assert out.count("with both sides") == 1 and "not comparable  machine: machine_id is" in out
    assert "NEW   elsewhere: Linux 6.1.0-test, preemption voluntary; mode virtual; 4 boots" in out
    assert "Verdicts of single machines: 6 slower." in out


def test_a_verdict_over_machines_is_the_test_of_a_build(fleet, klat):
    ratios = [1.0] * 9 + [1.05]
    sides = fleet(ratios, boots=6)
    _, out, _ = klat("export", *sides, "--quantile", "median", "--format", "junit")
    root = ElementTree.fromstring(out)
    assert root.get("tests") == "11" and root.get("failures") == "0"
    over, *machines = root
    assert over.get("name") == "klat: rt against stock, over machines"
    assert over.get("skipped") == "0"
    assert machines[9].get("name") == "klat: rt against stock, machine 09ffffff"
    assert {suite.get("skipped") for suite in machines} == {"1"}
    _, out, _ = klat("export", *sides, "--quantile", "median", "--format", "ktap")
    assert "1..11" in out and "not ok" not in out
    assert "ok 1 rt against stock, over machines: pipes.round_trip median" in out


def test_the_page_has_a_forest_plot(fleet, klat, tmp_path):
    import shutil

    pytest.importorskip("jinja2")
    if not shutil.which("gnuplot"):
        pytest.skip("gnuplot is not installed")
    page = tmp_path / "page.html"
    klat("compare", *fleet([*SLOWER, None]), *MEDIAN, "--html", page)
    text = page.read_text()
    (plot,) = text.split("Machine by machine</b>")[1:]
    svg = plot[: plot.index("</svg>")]
    for name in ("00ffffff", "06ffffff", "over 7 machines", "one more machine"):
        assert name in svg
    assert "rt against stock, machine 03ffffff" in text


def test_the_containers_of_one_boot_are_one_machine(fleet, klat):
    """Each has an /etc/machine-id of its own."""
    of_boot = {
        label: {"info": {"boot_id": f"boot-{label}", "cpu_model": "CPU 1"}}
        for label in ("stock", "rt")
    }
    sides = fleet([1.1] * 7, changes=dict.fromkeys(range(1, 7), of_boot))
    _, out, err = klat("compare", *sides, *MEDIAN)
    assert "1 slower, 1 cannot be attributed" in words(out) and "over 7" not in out
    sentence = "several machine ids, as in containers: 7 ids count as 2 machines"
    assert sentence in words(err)
    _, out, err = klat("summary", sides[0])
    assert sentence in words(err) and out.count("\n  machine ") == 2


def test_a_container_of_each_side_in_one_boot_is_of_one_machine(fleet, klat):
    """Machines that share a boot are one machine in their other boots."""
    info = {"boot_id": "boot-of-both", "cpu_model": "CPU 0"}
    changes = {
        0: {"stock": {"info": info}, "rt": {"boots": 0}},
        1: {"stock": {"boots": 0}, "rt": {"info": info}},
    }
    _, out, _ = klat("compare", *fleet([1.1] * 2, changes=changes), *MEDIAN)
    assert "machine: machine_id is" not in out and "left out" not in out


@pytest.mark.parametrize(
    ("start", "facts", "overlap"),
    [
        (2 * 10**18, None, True),
        (0, None, False),
        # klat lab sets the clocks of its guests.
        (2 * 10**18, {"lab": {"experiment": {"identity": "x"}, "boot": 1}}, False),
        (2 * 10**18, {"pairing": {"experiment": "campaign", "pair": "1"}}, True),
    ],
)
def test_overlapping_boots_of_one_machine_id_are_reported(fleet, klat, start, facts, overlap):
    sides = fleet(
        [1.1], boots=2, changes={0: {"rt": {"info": {"start_ns": start}, "facts": facts}}}
    )
    for command in ("compare", "summary"):
        _, _, err = klat(command, *sides)
        sentence = "boots rt-0-0 and rt-0-1 of machine 00" + "f" * 30 + " overlap in time: several"
        assert (sentence in words(err)) == ("overlap" in err) == overlap


def test_a_machine_of_base_counts_once_for_a_limit_with_several_new_sides(new_session, klat):
    """Two machines on each of three sides: six tests."""
    machine = {"machine_id": lambda boot: "ab"[boot % 2] * 32}
    sides = [
        new_session.label(label, [[samples(52_000)]] * 4, environment={}, **machine, **kernel)
        for label, kernel in (("stock", {}), ("rt", RT), ("other", RT))
    ]
    _, out, _ = klat("compare", *sides, "--limit", "100us", "--share", "0.1")
    assert "by Holm over 6 tests" in words(out)
