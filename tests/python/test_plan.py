"""What plan.csv promises."""

import random
import subprocess
from collections import Counter

import pytest
from made_tools import script

from klat.record import plan_csv
from klat.base.errors import KlatError

SETS = [("pipes", ("--bytes=1",)), ("cv", ())]


def test_the_same_seed_gives_the_same_bytes_on_every_version_of_python():
    # Written down once: it fails when the shuffle changes, which would make recorded seeds
    # worthless.
    assert plan_csv.to_csv(plan_csv.make(SETS, 3, 42)) == (
        "order,benchmark,run,arguments\n"
        '1,pipes,1,"--bytes=1"\n'
        '2,cv,1,""\n'
        '3,cv,2,""\n'
        '4,pipes,2,"--bytes=1"\n'
        '5,pipes,3,"--bytes=1"\n'
        '6,cv,3,""\n'
    )


def test_every_order_is_equally_likely():
    sets = [("pipes", ()), ("cv", ()), ("timer", ())]
    seen = Counter(tuple(r.benchmark for r in plan_csv.make(sets, 1, seed)) for seed in range(6000))
    assert len(seen) == 6
    # 1000 expected of each, standard deviation 29; swapping with any place instead of an earlier
    # one gives 889 and 1111.
    assert all(900 < count < 1100 for count in seen.values())


def test_every_parameter_set_has_all_its_runs_numbered_as_they_come():
    schedule = plan_csv.make(SETS, 25, 7)
    assert [run.order for run in schedule] == list(range(1, 51))
    for benchmark, arguments in SETS:
        runs = [r.run for r in schedule if (r.benchmark, r.arguments) == (benchmark, arguments)]
        assert runs == list(range(1, 26))


@pytest.mark.parametrize(
    ("seed", "carries", "expected"),
    # Written down once, as above.
    [
        (None, False, "012 210 012 210 012"),  # klat lab
        (2, False, "012 210 120 021 012"),  # klat ab
        (2, True, "012 210 102 201 201"),  # klat campaign
    ],
)
def test_two_rounds_are_an_order_and_its_reverse(seed, carries, expected):
    draw = None if seed is None else random.Random(seed)
    rounds = plan_csv.alternating_rounds(3, 5, draw, carries)
    assert " ".join("".join(map(str, order)) for order in rounds) == expected


ODD = ("--cpus=0,1", "--name=two words", "--quote=it's", "--dollar=$HOME;`id`", "--flag")


def test_a_plan_read_back_is_the_plan_written():
    schedule = plan_csv.make([("pipes", ODD), ("cv", ())], 4, 3)
    assert plan_csv.from_csv(plan_csv.to_csv(schedule)) == schedule


def test_a_shell_can_follow_the_plan(tmp_path):
    (tmp_path / "plan.csv").write_text(plan_csv.to_csv(plan_csv.make([("pipes", ODD)], 2, 0)))
    loop = plan_csv.__doc__ or ""
    commands = loop[loop.index("    tail") : loop.index("    done") + len("    done")]
    script(tmp_path / "pipes", "printf '<%s>' \"$@\" >> said\necho >> said")
    subprocess.run(["sh", "-c", commands], cwd=tmp_path, check=True, timeout=60)
    words = "".join(f"<{word}>" for word in ODD)
    assert (tmp_path / "said").read_text().splitlines() == [
        f"{words}<--record=DIR><--order={n}><--run={n}><--quiet>" for n in (1, 2)
    ]


@pytest.mark.parametrize(
    "damage",
    [
        lambda t: t.replace("order,", "place,"),
        lambda t: t.replace("\n2,", "\n3,"),
        lambda t: t.replace('""', '"\'"'),
        lambda t: t + "x\n",
        lambda t: t.replace("\n1,", "\none,"),
        lambda t: "",
    ],
)
def test_a_damaged_plan_is_refused(damage):
    text = plan_csv.to_csv(plan_csv.make(SETS, 3, 42))
    plan_csv.from_csv(text)
    with pytest.raises(KlatError, match="damaged or was edited"):
        plan_csv.from_csv(damage(text))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("tlbflush.responders=0,1,2,4", ("0", "1", "2", "4")),
        ("tlbflush.responders=0..3", ("0", "1", "2", "3")),
        ("tlbflush.pages=1,8,32..34", ("1", "8", "32", "33", "34")),
        ("pipes.peer=thread,process", ("thread", "process")),
        ("pipes.cpus=1,1;0,1", ("1,1", "0,1")),
        ("timer.offset=-2..1", ("-2", "-1", "0", "1")),
    ],
)
def test_a_sweep_takes_lists_and_ranges(text, values):
    assert plan_csv.parse_sweep(text).values == values


@pytest.mark.parametrize(
    "text",
    [
        "responders=1",
        "tlbflush.responders",
        "tlbflush.responders=1,,2",
        "tlbflush.responders=3..1",
        "tlbflush.responders=1,1",
        "tlbflush.responders=0..99999999999",
        'tlbflush.name="x"',
        "tlbflush.record=/tmp",
        "tlbflush.seed=1,2",
        "../etc.passwd=1",
    ],
)
def test_a_malformed_sweep_is_refused(text):
    with pytest.raises(ValueError, match="."):
        plan_csv.parse_sweep(text)


@pytest.mark.parametrize("text", ["timer", "timer.period=", "timer.quiet", "x y.z=1"])
def test_a_malformed_option_is_refused(text):
    with pytest.raises(ValueError, match="."):
        plan_csv.parse_option(text)


def test_each_combination_of_swept_values_is_a_parameter_set_of_its_own():
    sweeps = [plan_csv.parse_sweep(f"tlbflush.{v}") for v in ("responders=0,1", "pages=1,8")]
    options = [plan_csv.parse_option("tlbflush.keep"), plan_csv.parse_option("pipes.bytes=64")]
    sets = plan_csv.parameter_sets(["pipes", "tlbflush"], {"iterations": "100"}, options, sweeps)
    assert sets == [
        ("pipes", ("--iterations=100", "--bytes=64")),
        ("tlbflush", ("--iterations=100", "--keep", "--responders=0", "--pages=1")),
        ("tlbflush", ("--iterations=100", "--keep", "--responders=0", "--pages=8")),
        ("tlbflush", ("--iterations=100", "--keep", "--responders=1", "--pages=1")),
        ("tlbflush", ("--iterations=100", "--keep", "--responders=1", "--pages=8")),
    ]


def test_an_option_of_one_benchmark_overrides_that_of_all():
    options = [plan_csv.parse_option("timer.iterations=9"), plan_csv.parse_option("all.policy=rr")]
    sets = plan_csv.parameter_sets(["pipes", "timer"], {"iterations": "100"}, options)
    assert sets == [
        ("pipes", ("--iterations=100", "--policy=rr")),
        ("timer", ("--iterations=9", "--policy=rr")),
    ]


@pytest.mark.parametrize(
    ("options", "sweeps"),
    [
        (["timer.period=1", "timer.period=2"], []),
        (["pipes.bytes=1"], ["pipes.bytes=1,2"]),
        ([], ["pipes.bytes=1", "pipes.bytes=2"]),
        (["network.bytes=1"], []),
        ([], ["pipes.a=0..9999", "pipes.b=0..9999"]),
    ],
)
def test_settings_that_contradict_each_other_are_refused(options, sweeps):
    read = (list(map(plan_csv.parse_option, options)), list(map(plan_csv.parse_sweep, sweeps)))
    with pytest.raises(KlatError):
        plan_csv.parameter_sets(["pipes", "timer"], {}, *read)


def test_a_plan_too_long_to_hold_is_refused():
    with pytest.raises(KlatError, match="more than one session can hold"):
        plan_csv.make(SETS, plan_csv.MAX_RUNS, 1)
