"""`klat compare`: which sides it refuses, and what --allow accepts."""

import re
import shutil
from typing import Any

import pytest

from written_sessions import CPU, RT, again, samples, words

from klat.lab import kernels


# Only one test a metric.
MEDIAN = ("--quantile", "median")


SET_AS_USUAL = {
    f"{CPU}/cpu0/cpufreq/scaling_governor": "performance",
    f"{CPU}/vulnerabilities/mds": "Mitigation: Clear CPU buffers",
    f"{CPU}/cpu1/power/pm_qos_resume_latency_us": "0",
}
PROCESS = {
    "nice": "0",
    "Seccomp": "2",
    "Seccomp_filters": "1",
    "Speculation_Store_Bypass": "thread vulnerable",
    "cgroup_depth": "3",
    "dma_latency": "none",
    "resctrl.L3": "0=fffff",
    "core_scheduling": "none",
}
SPECULATION = "Speculation_Store_Bypass"
FREE = {"Seccomp": "0", "Seccomp_filters": "0"}
HUGE = {"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never"}
RESUME = {f"{CPU}/cpu1/power/pm_qos_resume_latency_us": "n/a"}
HELD = {"params": "bytes=1;peer=thread;wait=read;mode=round-trip;dma-latency=2"}
OTHER = {"policy": "writer=other:0;reader=other:0"}
PROCESS_AS_USUAL = {"inherited": PROCESS, "libraries": {"pipes": "libc.so.6 0123"}}
UNLIKE: list[tuple[str, dict[str, Any]]] = [
    ("machine", {"machine_id": "other"}),
    ("counter", {"tsc": {"khz": 2_626_000.0, "quantum": 26}}),
    ("program", {"programs": {"pipes": "11" * 32}}),
    ("load", {"facts": {"load": "stress-ng"}}),
    ("load", {"under_load": True}),
    ("policy", {"run": {"policy": "writer=other:0;reader=other:0"}}),
    ("cpus", {"run": {"cpus": "writer=3;reader=2"}}),
    ("dma-latency", {"run": {"params": "bytes=1;peer=thread;wait=read;mode=round-trip;dma-latency=0"}}),
    ("guest-halt-poll", {"run": {"params": "bytes=1;peer=thread;wait=read;mode=round-trip;guest-halt-poll=0"}}),
    ("iterations", {"run": {"params": "bytes=1;peer=thread;wait=read;mode=round-trip;iterations=9"}}),
    ("cmdline.idle", {"environment": {"proc/cmdline": "quiet idle=poll"}}),
    ("governor", {"environment": {f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave"}}),
    ("process.Seccomp_filters", {"inherited": PROCESS | {"Seccomp_filters": "2"}}),
    ("process.cgroup_depth", {"inherited": PROCESS | {"cgroup_depth": "6"}}),
    ("process.dma_latency", {"inherited": PROCESS | {"dma_latency": "2"}}),
    ("process.resctrl.L3", {"inherited": PROCESS | {"resctrl.L3": "0=f"}}),
    ("process.core_scheduling", {"inherited": PROCESS | {"core_scheduling": "cookie"}}),
    ("resume-latency", {"environment": RESUME}),
    ("libraries", {"libraries": {"pipes": "libslow.so 4567, libc.so.6 0123"}}),
]  # fmt: skip


@pytest.mark.parametrize(("key", "change"), UNLIKE)
def test_a_condition_that_differs_is_refused_by_name_until_it_is_allowed(side, klat, key, change):
    stock = side("stock", environment=SET_AS_USUAL, **PROCESS_AS_USUAL)
    environment = SET_AS_USUAL | change.get("environment", {})
    rt = side("rt", 1.2, **{**RT, **PROCESS_AS_USUAL, **change, "environment": environment})
    status, out, _ = klat("compare", stock, rt)
    assert status == 4
    assert "not comparable" in out and f"{key}: " in words(out) and f"--allow {key}" in words(out)
    assert "slower" not in out
    status, out, _ = klat("compare", stock, rt, "--allow", key)
    assert status == 1
    assert f"allowed, though it differs: {key}: " in words(out)


@pytest.mark.parametrize(
    ("old_nodes", "new_nodes", "old_allowed", "new_allowed", "refused"),
    [
        (2, 2, "0-1", "0", True),
        (2, 2, "0", "0", False),
        (2, 0, "0-1", "0", False),  # NEW without NUMA
        (2, 0, "1", "0", True),
    ],
)
def test_the_nodes_of_a_cpuset_count_where_the_kernel_has_more(
    side, klat, old_nodes, new_nodes, old_allowed, new_allowed, refused
):
    old, new = (
        side(
            release,
            kernel_release=release,
            inherited={"Mems_allowed_list": allowed},
            environment={"proc/cmdline": "quiet"}
            | {f"sys/devices/system/node/node{n}/cpulist": "0" for n in range(nodes)},
        )
        for release, nodes, allowed in (
            ("6.12.0", old_nodes, old_allowed),
            ("6.18.0", new_nodes, new_allowed),
        )
    )
    _, out, _ = klat("compare", old, new)
    assert ("process.Mems_allowed_list" in out) == refused


def test_a_lowest_frequency_that_can_be_of_the_firmware_is_a_warning(side, klat):
    files = {f"{CPU}/cpu0/cpufreq/scaling_driver": "amd-pstate", "proc/cmdline": "quiet"}
    lowest = f"{CPU}/cpu0/cpufreq/scaling_min_freq"
    old, new = (
        side(release, kernel_release=release, environment={**files, **more})
        for release, more in (
            ("6.12.0", {lowest: "1100000", lowest.replace("scaling", "cpuinfo"): "1100000"}),
            ("6.18.0", {lowest: "2000000", lowest.replace("scaling", "cpuinfo"): "1100000"}),
        )
    )
    _, out, _ = klat("compare", old, new)
    assert "not comparable" not in out
    assert "the lowest frequency (scaling_min_freq) differs" in words(out)


@pytest.mark.parametrize(
    ("base", "new", "refused"),
    [
        ({}, {"inherited": {"nice": "19"}}, False),
        ({"inherited": {"nice": "0"}}, {"inherited": {"nice": "19"}}, False),
        ({"run": OTHER, "inherited": {"nice": "0"}}, {"run": OTHER, "inherited": {"nice": "19"}}, True),
        ({"inherited": {"cpu.weight": "none"}}, {"inherited": {"cpu.weight": "3"}}, False),
        ({"run": OTHER, "inherited": {"cpu.weight": "none"}}, {"run": OTHER, "inherited": {"cpu.weight": "3"}}, True),
        ({}, {"inherited": PROCESS | {"cgroup_depth": "6", "dma_latency": "0"}, "environment": RESUME}, False),
        ({"inherited": {"nice": "0"}}, {"inherited": PROCESS | {"resctrl.L3": "0=f", "core_scheduling": "cookie"}}, False),
        ({"inherited": {"lo_mtu": "1500"}}, {"inherited": {"lo_mtu": "65536"}}, False),
        ({"inherited": {"cpu_cgroup_depth": "1"}}, {"inherited": {"cpu_cgroup_depth": "4"}}, False),
        ({"inherited": {"rt_cgroup_depth": "0"}}, {"inherited": {"rt_cgroup_depth": "4"}}, True),
        ({"run": OTHER, "inherited": {"rt_cgroup_depth": "0"}}, {"run": OTHER, "inherited": {"rt_cgroup_depth": "4"}}, False),
        ({"run": HELD, "inherited": PROCESS}, {"run": HELD, "inherited": PROCESS | {"dma_latency": "2"}}, False),
        ({"run": HELD, "inherited": PROCESS}, {"run": HELD, "inherited": PROCESS | {"dma_latency": "1"}}, True),
        ({"inherited": PROCESS}, {"inherited": PROCESS | {SPECULATION: "thread mitigated"}}, False),
        ({"inherited": PROCESS | FREE}, {"inherited": PROCESS | FREE | {SPECULATION: "thread mitigated"}}, True),
        ({"inherited": PROCESS | FREE}, {"inherited": PROCESS | FREE | {SPECULATION: "not vulnerable"}}, False),
        ({"inherited": {"livepatch": "a"}}, {"inherited": {"livepatch": "none"}}, False),
        ({**RT, "inherited": {"livepatch": "a"}}, {"inherited": {"livepatch": "none"}}, True),
        ({"environment": HUGE, "inherited": {"THP_enabled": "1"}}, {"inherited": {"THP_enabled": "0"}}, False),
        ({"environment": HUGE, "inherited": {"THP_enabled": "1"}}, {"environment": HUGE, "inherited": {"THP_enabled": "0"}}, True),
    ],
    ids=["an earlier klat", "nice in real time", "nice", "weight in real time", "weight", "an earlier klat, deep and awake", "an earlier klat without resctrl and core scheduling", "a device that pipes ignores", "levels that real time ignores", "levels of real time", "levels of real time, ordinary",
         "less strict than its own request", "stricter than its own request", "a kernel that mitigates each filter", "asked for", "the kernel's own",
         "livepatches of two kernels", "a livepatch of one kernel",
         "a kernel without huge pages", "huge pages disabled"],
)  # fmt: skip
def test_what_a_process_inherits_counts_where_it_has_an_effect(side, klat, base, new, refused):
    status, out, _ = klat("compare", side("stock", **base), side("rt", **{**RT, **new}))
    assert status == (4 if refused else 0), out
    assert ("process." in out) == refused


@pytest.mark.parametrize("mode", ["0", "2"])
def test_the_rules_of_a_seccomp_filter_are_unknown(side, klat, mode):
    filtered = {"inherited": PROCESS | {"Seccomp": mode}}
    _, out, _ = klat("compare", side("stock", **filtered), side("rt", **RT, **filtered))
    assert ("under a seccomp filter" in words(out)) == (mode == "2")


@pytest.mark.parametrize(
    ("ratio", "floor", "margin", "is_said"),
    [
        (1, 5_200, "2%", True),
        (1, 1_040, "2%", False),  # 390 ns of 20 us
        (1, 1_040, "1%", True),
        (0.01, 52, "2%", False),  # one step of the counter
        (0.01, 78, "2%", True),
    ],
)
def test_floors_that_differ_by_more_than_the_margin_are_a_note(
    side, klat, ratio, floor, margin, is_said
):
    stock = side("stock", ratio)
    rt = side("rt", ratio, **RT, run={"floor": floor})
    for base, new, shown in (
        (stock, rt, f"10 ns in BASE and {floor / 2.6:,.0f} ns in NEW"),
        (rt, stock, f"{floor / 2.6:,.0f} ns in BASE and 10 ns in NEW"),
    ):
        _, out, _ = klat("compare", base, new, "--margin", margin)
        assert (f"the floors of pipes differ: {shown}" in words(out)) == is_said


def test_sides_without_a_machine_id_may_be_of_two_machines(side, klat):
    stock, rt = side("stock", machine_id=None), side("rt", 1.2, **RT, machine_id=None)
    status, out, _ = klat("compare", stock, rt)
    assert status == 4 and "slower" not in out
    assert "machine: no session has a machine id" in words(out)
    assert "give each machine an /etc/machine-id of its own" in words(out)
    assert klat("compare", stock, rt, "--allow", "machine")[0] == 1


def test_counted_sides_need_no_machine_id(side, klat):
    counted = {"mode": "counted", "unit": "instructions", "machine_id": None}
    stock, rt = side("stock", **counted), side("rt", 1.2, **RT, **counted)
    assert klat("compare", stock, rt)[0] == 1
    one = side("one", **{**RT, **counted, "mode": "hardware", "unit": "ticks"})
    assert "machine: no session has a machine id" in words(klat("compare", stock, one)[1])


def test_a_sweep_over_a_condition_is_paired_value_by_value(side, klat):
    stock, rt = side("stock"), side("rt", **RT)
    for label, median in (("stock", 5_000), ("rt", 6_000)):
        side.add(label, "woken", 9_000, params="x=1;dma-latency=100", start_ns=100)
        side.add(label, "woken", median, params="x=1;dma-latency=0", start_ns=0)
    status, out, _ = klat("compare", stock, rt, "--metric", "woken", *MEDIAN)
    assert status == 1 and "1 same, 1 slower" in out
    assert re.search(r"slower[^=]*woken same-llc dma-latency=0 ", words(out))
    # Of the params, what tells the lines apart and no more.
    named = re.findall(r" to [\d.]+ pipes (woken same-llc \S+)", words(out))
    assert named == ["woken same-llc dma-latency=0", "woken same-llc dma-latency=100"]


def test_allow_accepts_one_condition_only(side, klat):
    stock = side("stock", environment=SET_AS_USUAL)
    off = {f"{CPU}/vulnerabilities/mds": "Not affected", "proc/cmdline": "mitigations=off"}
    rt = side("rt", environment=SET_AS_USUAL | off, **RT)
    status, out, _ = klat("compare", stock, rt, "--allow", "vulnerability.mds")
    said = "cmdline.mitigations: proc/cmdline mitigations is absent in BASE and off in NEW"
    assert status == 4 and said in words(out)
    both = ["--allow", "vulnerability.mds", "--allow", "cmdline.mitigations"]
    assert klat("compare", stock, rt, *both)[0] == 0


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("cmdline.*", "--allow cmdline.*: no session has this condition; they have cmdline.mitigations"),
        ("cmdline.mitigation", "did you mean 'cmdline.mitigations'?"),
        ("vulnerability.m?s", "did you mean 'vulnerability.mds'?"),
        ("process.nice", "no session has this condition; they have no process.NAME"),
    ],
)  # fmt: skip
def test_allow_says_which_name_no_session_has(side, klat, key, said):
    environment = SET_AS_USUAL | {"proc/cmdline": "quiet mitigations=off"}
    stock = side("stock", environment=environment)
    status, _, err = klat(
        "compare", stock, side("rt", environment=environment, **RT), "--allow", key
    )
    assert status == 0 and said in words(err)


def test_kernel_parameters_of_an_experiment_are_under_test(side, klat):
    def given(append: str, experiment: str = "e") -> dict[str, Any]:
        return {"facts": {"under_test": {"experiment": experiment, "append": append}}}

    file = f"{CPU}/vulnerabilities/mds"
    off = {"environment": {"proc/cmdline": "quiet mitigations=off", file: "Vulnerable"}}
    usual = {"proc/cmdline": "quiet", file: "Mitigation: a"}
    stock = side("stock", environment=usual, **given(""))
    status, out, _ = klat("compare", stock, side("nomit", **off, **given("mitigations=off")))
    assert status == 0 and "nothing in BASE and mitigations=off in NEW" in words(out)
    assert "proc/cmdline mitigations: absent | off" in out and "the same kernel" not in out
    for number, (label, change) in enumerate(
        (("other", given("mitigations=off", "f")), ("undeclared", given("nokaslr")))
    ):
        status, out, _ = klat("compare", stock, side(label, **off, **change))
        assert status == 4 and "--allow cmdline.mitigations" in words(out), number
    rt = side("nomit-rt", **off, **given("mitigations=off"), **RT)
    _, out, _ = klat("compare", stock, rt)
    assert "preemption model and command line changed together" in words(out)
    elsewhere = side("elsewhere", **off, **given("mitigations=off"), machine_id="other")
    assert klat("compare", stock, elsewhere)[0] == 4


@pytest.mark.parametrize(
    ("version", "model", "agree"),
    [
        ("#1 SMP PREEMPT_DYNAMIC", "full", True),
        ("#1 SMP PREEMPT_DYNAMIC", "unknown", False),
        ("#1 SMP PREEMPT_DYNAMIC", None, False),
        ("#1 SMP", "unknown", True),  # one build has one model
    ],
)
def test_an_unknown_preemption_model_does_not_agree(side, klat, version, model, agree):
    kernel = {"kernel_version": version, "preemption": model}
    _, out, _ = klat("compare", side("stock", **kernel), side("other", **kernel))
    agreed = "both sides ran the same kernel: release, version and preemption agree"
    unknown = "release and version agree. Its preemption model is unknown, and root can switch it"
    assert (agreed in words(out), unknown in words(out)) == (agree, not agree)


def test_the_unit_cannot_be_allowed(side, klat):
    stock = side("stock")
    rt = side("rt", mode="counted", unit="instructions", **RT)
    status, out, _ = klat("compare", stock, rt, "--allow", "mode")
    assert status == 4 and "unit is ns in BASE and instructions in NEW" in out
    status, _, err = klat("compare", stock, rt, "--allow", "unit")
    assert status == 2 and "--allow unit" in err
    emulated = side("emulated", mode="emulated", **RT)
    status, out, _ = klat("compare", stock, emulated, "--allow", "mode")
    assert status == 4 and "unit is ns in BASE and ticks in NEW" in out


@pytest.mark.parametrize("shares", [(1, 3), (2, 2)])
def test_a_condition_that_varies_within_a_side_is_refused(side, klat, shares):
    sides = side("stock", runs=1), side("rt", runs=1)
    for path, share in zip(sides, shares):
        for boot in range(5):
            for run in range(4):
                policy = "other:0" if run < share else "fifo:50"
                ticks = {"mixed": samples(60_000 if run < share else 50_000)}
                again(path / str(boot)).run(ticks, "cv", "", policy=policy, start_ns=run)
    status, out, _ = klat("compare", *sides, "--metric", "mixed")
    assert status == 4 and "the boots of a side differ in the policy obtained" in words(out)
    assert "fifo:50 | other:0" in words(out)


@pytest.mark.parametrize(
    ("release", "preemption", "warned"),
    [
        ("6.12.117+deb13-rt-amd64", "rt", True),
        ("6.12.117+deb13-amd64", "voluntary", False),
        ("6.1.0-56-rt-amd64", "rt", False),
        ("6.12.117+deb13-rt-amd64", "unknown", False),
    ],
)
def test_a_change_of_version_and_preemption_together_is_named_first(
    side, klat, release, preemption, warned
):
    stock = side("stock", kernel_release="6.1.0-56-amd64")
    rt = side("rt", kernel_release=release, preemption=preemption)
    first = "".join(klat("compare", stock, rt)[1].splitlines(keepends=True)[:8])
    assert ("version and preemption model changed together" in words(first)) == warned


GCC = "CONFIG_GCC_VERSION"


@pytest.mark.parametrize(
    ("base", "new", "said"),
    [
        (f"{GCC}=140200", f"{GCC}=160201", "gcc 14.2 (BASE), gcc 16.2 (NEW)"),
        (
            f"{GCC}=0\nCONFIG_CLANG_VERSION=190107",
            f"{GCC}=140200",
            "clang 19.1 (BASE), gcc 14.2 (NEW)",
        ),
        (f"{GCC}=140200", f"{GCC}=140201", None),
        (f"{GCC}=140200", "CONFIG_HZ=250", None),  # not known
    ],
)
def test_kernels_of_two_compilers_are_named(side, klat, base, new, said):
    sides = [
        side(label, environment={"boot/config-6.12": f"{config}\n"})
        for label, config in (("a", base), ("b", new))
    ]
    status, out, _ = klat("compare", *sides)
    assert status == 0
    assert ("compilers of the kernels differ" in words(out)) == bool(said)
    assert (said or "") in words(out)


def test_the_scheduler_is_in_the_head_and_under_test_where_it_was_declared(side, klat):
    files = {"sched_ext/state": "enabled", "sched_ext/root/ops": "lavd"}
    files |= {"sched_ext/switch_all": "1", "debug/sched/base_slice_ns": "2800000"}
    usual = side("usual", kernel_release="6.18.1")
    loaded = side(
        "loaded",
        kernel_release="6.18.1",
        environment={f"sys/kernel/{name}": text for name, text in files.items()},
    )
    head = "sched_ext scheduler lavd, base slice 2.8 ms"
    assert head in words(klat("summary", loaded)[1])
    status, out, _ = klat("compare", usual, loaded)
    said = "sched-ext: the sched_ext scheduler is none in BASE and lavd in NEW"
    assert status == 4 and head in words(out) and said in words(out)
    assert klat("compare", usual, loaded, "--allow", "sched-ext")[0] != 4


@pytest.mark.parametrize(
    ("one", "two", "cure"),
    [
        ("6.1.0-56-amd64 voluntary", "6.12.117-rt rt", ["6.12.117 voluntary"]),
        ("6.1.0-56-amd64 voluntary", "7.3.4-rt rt", ["6.1.0-56 rt"]),
        ("6.18.15 none", "7.0.13 full", ["6.18.15 full"]),
        ("7.3.4 lazy", "6.1.0-56-amd64 full", ["7.3.4 full"]),
        ("6.1.0-56-amd64 voluntary", "7.3.4+deb13-amd64 lazy", ["6.1.0-56 full", "7.3.4 full"]),
    ],
)
def test_the_cure_names_kernels_that_exist(side, klat, one, two, cure):
    sides = [side(r, kernel_release=r, preemption=m, runs=1) for r, m in map(str.split, (one, two))]
    named = (" kernel of preemption ".join(kernel.split()) for kernel in cure)
    said = " that kernel with ".join(f"a {kernel}," for kernel in named)
    assert f"compare BASE with {said}" in words(klat("compare", *sides)[1])


DYNAMIC, RT_ONLY = "SMP PREEMPT_DYNAMIC", "SMP PREEMPT_RT"


def release_of(build: str) -> str:
    return f"{build.partition(' Debian ')[2] or '5.4'}.1-amd64"


@pytest.mark.parametrize(
    ("builds", "models", "command"),
    [
        (
            (f"{DYNAMIC} Debian 6.1", f"{DYNAMIC} Debian 7.3"),
            ("voluntary", "lazy"),
            "6.1-full=debian:6.1,append=preempt=full --kernel 7.3-full=debian:7.3,append=preempt=full",
        ),
        ((f"{DYNAMIC} Debian 6.1", f"{RT_ONLY} Debian 7.3"), ("voluntary", "rt"), "debian:6.1-rt"),
        (
            (f"{RT_ONLY} Debian 6.1", f"{RT_ONLY} Debian 6.12"),
            ("rt", "rt-lazy"),
            "6.12-rt=debian:6.12-rt,append=preempt=full",
        ),
        (
            (f"{RT_ONLY} Debian 6.12", f"{DYNAMIC} Debian 7.3"),
            ("rt-lazy", "lazy"),
            "7.3-rt-lazy=debian:7.3-rt,append=preempt=lazy",
        ),
        (("SMP Debian 6.1", f"{DYNAMIC} Debian 7.3"), ("voluntary", "lazy"), ""),
        ((DYNAMIC, f"{DYNAMIC} Debian 7.3"), ("voluntary", "lazy"), ""),
    ],
)
def test_the_cure_has_a_command_where_the_lab_can_boot_the_kernels(
    side, klat, builds, models, command
):
    command = command and f": klat lab run --kernel {command}"
    sides = [
        side(
            release,
            **{"kernel_release": release, "kernel_version": f"#1 {build}", "preemption": model},
            **{"mode": "counted", "unit": "instructions", "runs": 1, "architecture": "x86_64"},
        )
        for release, build, model in zip(map(release_of, builds), builds, models)
    ]
    _, out, _ = klat("compare", *sides)
    cure = words(out).partition("To separate them, ")[2].partition(" same ")[0]
    assert cure and re.sub("^.* NEW", "", cure).startswith(command)
    assert bool(command) == ("klat lab" in cure)
    for kernel in re.findall(r"--kernel (\S+)", cure):
        kernels.parse(kernel)


def test_a_model_from_the_command_line_changes_together_with_nothing(side, klat):
    sides = [
        side(model, preemption=model, facts={"under_test": {"experiment": "x", "append": append}})
        for model, append in (("voluntary", ""), ("full", "preempt=full"))
    ]
    said = words(klat("compare", *sides)[1])
    assert "preempt=full in NEW" in said and "changed together" not in said


def test_one_missing_environment_does_not_hide_a_difference_in_others(side, klat):
    governor = f"{CPU}/cpu0/cpufreq/scaling_governor"
    stock = side("stock", environment={governor: "performance"})
    rt = side("rt", environment={governor: "powersave"}, **RT)
    shutil.rmtree(stock / "0" / "environment")
    status, out, _ = klat("compare", stock, rt, "--allow", "environment")
    assert status == 4 and "performance in BASE and powersave in NEW" in words(out)


def test_times_of_an_emulator_are_refused(side, klat):
    stock, rt = side("stock", mode="emulated"), side("rt", mode="emulated", **RT)
    status, out, _ = klat("compare", stock, rt)
    assert status == 4 and "no valid times" in words(out)


def test_a_side_without_environment_is_refused_until_it_is_allowed(side, klat):
    stock, rt = side("stock", environment={f"{CPU}/smt/control": "off"}), side("rt", **RT)
    for path in rt.glob("*/environment"):
        shutil.rmtree(path)
    status, out, _ = klat("compare", stock, rt)
    assert status == 4
    assert "environment: the environment is captured in BASE and absent in NEW" in words(out)
    status, out, _ = klat("compare", stock, rt, "--allow", "environment")
    assert status == 0 and "the environment of NEW was not captured" in words(out)


def test_the_kernel_itself_is_listed_and_not_refused(side, klat):
    stock = side("stock", environment={"boot/config-6.1.0": "CONFIG_HZ=250\n"})
    rt = side("rt", environment={"boot/config-6.1.0-rt": "CONFIG_HZ=1000\n"}, **RT)
    status, out, _ = klat("compare", stock, rt)
    assert status == 0 and "kernel configuration HZ: 250 | 1000" in out


@pytest.mark.parametrize(
    ("placement", "cpus"),
    [
        ("one-cpu", "writer=1;reader=1"),
        ("same-llc:atom", "writer=5;reader=4"),
        ("same-llc:atom+core", "writer=5;reader=0"),
    ],
)
def test_another_placement_is_refused_until_it_is_allowed(side, klat, placement, cpus):
    """The types of cores are part of the placement."""
    stock = side("stock", run={"placement": "same-llc:core"})
    rt = side("rt", 1.2, run={"placement": placement, "cpus": cpus}, **RT)
    for label in ("stock", "rt"):
        side.add(label, "handoff", 9_000, benchmark="cv", params="")
    status, out, _ = klat("compare", stock, rt)
    said = f"placement: the placement is same-llc:core (writer=1;reader=0) in BASE and {placement} ({cpus}) in NEW"  # fmt: skip
    assert status == 4 and f"{said}; measure both alike, or --allow placement " in words(out)
    assert "handoff, median: same" in out
    status, out, _ = klat("compare", stock, rt, "--allow", "placement")
    assert status == 1 and f"allowed, though it differs: {said}" in words(out)


@pytest.mark.parametrize(
    ("run", "info", "is_alike"),
    [
        ({}, {}, True),
        ({}, {"mode": "virtual"}, False),
        ({}, {"kernel_release": "6.1.0-test"}, False),
        ({}, {"machine_id": "7e57"}, False),
        ({"cpus": "writer=5;reader=4"}, {}, False),
        ({"placement": "cross-node:core"}, {}, False),
    ],
)
def test_kernels_name_the_types_of_one_machines_cores_differently(side, klat, run, info, is_alike):
    """Linux before 5.13 does not list the types of Intel's cores."""
    base = side("stock", mode=info.get("mode", "hardware"))
    new = side("rt", run={"placement": "same-llc:core"} | run, **{**RT, "mode": "hardware"} | info)
    out = words(klat("compare", base, new, "--allow", "machine")[1])
    assert ("placement: the placement is" in out) != is_alike
    assert ("median: same" in out) == is_alike


def test_placements_are_compared_each_with_its_own(side, klat):
    sides = side("stock"), side("rt", **RT)
    for label in ("stock", "rt"):
        moved = {"placement": "one-cpu", "cpus": "writer=1;reader=1"}
        side.add(label, "round_trip", 20_000, **moved)
    status, out, _ = klat("compare", *sides, *MEDIAN)
    assert status == 0 and "2 same" in out and "placement:" not in out


def test_traced_runs_are_not_compared_with_untraced_ones(side, klat):
    plain = side("plain")
    traced = side("traced", 1.2, run={"params": "bytes=1;traced=100000"})
    untraced = side("untraced", 1.2, run={"params": "bytes=1"})
    status, out, _ = klat("compare", plain, traced)
    assert status == 4 and "slower" not in out
    assert "only in NEW: pipes same-llc traced=100000" in words(out)
    # The same runs, if they were not traced.
    status, out, _ = klat("compare", side("plain-bytes", run={"params": "bytes=1"}), untraced)
    assert status == 1 and "slower" in out
