"""The actions of `klat campaign`, without a reboot."""

import json
import os
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_grub
import pytest

from klat import cli
from klat.base import owners, programs
from klat.base.errors import KlatError
from klat.campaign import this_machine
from klat.campaign.boot_loader import BootEntry
from klat.campaign.campaign_file import ENDED, RUNNING, BootAttempt, read_campaign
from klat.campaign.engine import change_campaign
from klat.campaign.grub import Grub
from klat.campaign.without_menu import UserCommand
from klat.commands import _campaign_plan, _campaign_state
from klat.compare.verdicts import Rules
from klat.machine import machine_state
from klat.stats.power import fewest

STOCK, RT = ("--kernel", "stock=6.1.0-56-amd64"), ("--kernel", "rt=6.1.0-56-rt-amd64")
BOOTS = ("--boots", "4")


class Campaigns:
    def __init__(self, root: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.state = root / "state" / "campaign.json"
        self._results = root / "results"
        self._capture = capture

    def __call__(self, *words: str, status: int = 0) -> str:
        """What `klat campaign` prints."""
        more = ("--output", str(self._results)) if words[0] == "plan" else ()
        exit_status = cli.main(["campaign", *words, *more])
        printed = self._capture.readouterr()
        assert exit_status == status, printed
        return printed.err if status else printed.out

    def change(self, **changes: Any) -> None:
        """Change the campaign on disk."""
        change_campaign(self.state, lambda now: replace(now, **changes))

    def planned(self) -> str:
        return self("plan", *STOCK, *RT, *BOOTS, "--seed", "3", "pipes")


def boot(patch: pytest.MonkeyPatch, line: str) -> None:
    """The running kernel has this command line."""
    patch.setattr(this_machine.ThisMachine, "words", lambda _: tuple(line.split()))


@pytest.fixture
def klat(tmp_path, monkeypatch, capsys) -> Campaigns:
    made_grub.make(tmp_path, monkeypatch)
    campaigns = Campaigns(tmp_path, capsys)
    monkeypatch.setattr(_campaign_state, "STATE", campaigns.state)
    monkeypatch.setattr(_campaign_state, "this_loader", lambda _: Grub(tmp_path))
    monkeypatch.setattr(_campaign_state, "loader_of", lambda _: Grub(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(this_machine, "check_machine", lambda: iter(["it hangs"]))
    boot(monkeypatch, "root=UUID=5eed ro")
    monkeypatch.delenv("KLAT_PROGRAMS", raising=False)
    # The tree of the tests can belong to any user.
    monkeypatch.setattr(this_machine, "check_code", lambda *_: None)
    return campaigns


def test_the_entries_and_the_default(klat):
    lines = klat("kernels").splitlines()
    assert lines[1].split() == ["*", "6.1.0-56-rt-amd64", "Debian", "GNU/Linux"]
    assert max(map(len, lines)) <= 80


def test_the_entries_are_listed_also_without_a_default(klat, tmp_path, capsys):
    config = tmp_path / "boot/grub/grub.cfg"
    config.write_text(config.read_text().replace('default="0"', 'default="uefi-firmware"'))
    assert cli.main(["campaign", "kernels"]) == 2
    printed = capsys.readouterr()
    assert "6.1.0-56-rt-amd64" in printed.out and "*" not in printed.out
    assert "the default of GRUB, 'uefi-firmware', is not an entry" in printed.err


def test_a_plan_is_written_and_printed(klat, tmp_path):
    text = klat.planned()
    planned = read_campaign(klat.state)
    assert [setting.label for setting in planned.settings] == ["stock", "rt"]
    assert planned.sets == (("pipes", ()),) and planned.runs == 500
    assert planned.looks == () and "looks after" not in text
    order = " ".join(boot.setting.label for boot in planned.boots())
    assert f"order: {order} seed: 3 " in " ".join(text.split())
    assert "warning: it hangs" in text
    assert "8 boots: 4 of each" in text
    assert "default kernel: Debian GNU/Linux (6.1.0-56-rt-amd64)" in text
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80


def test_a_plan_warns_if_its_boots_are_too_few_for_a_verdict(klat):
    few = fewest(Rules().alpha, pairs=True)
    for boots in (few - 1, few):
        text = klat("plan", *STOCK, *RT, "--boots", str(boots), "pipes")
        assert (f"or more tests need --boots {few}" in " ".join(text.split())) == (boots < few)


def test_a_plan_warns_if_the_machine_is_emulated(klat, monkeypatch):
    machine = replace(machine_state.gather(seconds=0.1), hypervisor="")
    for model, words, warned in (
        ("QEMU TCG CPU version 2.5+", "", True),
        ("QEMU TCG CPU version 2.5+", "klat.mode=counted", False),
        ("Some CPU", "", False),
    ):
        gathered = replace(machine, model=model)
        monkeypatch.setattr(machine_state, "gather", lambda gathered=gathered, **_: gathered)
        boot(monkeypatch, f"root=UUID=5eed {words}")
        assert ("warning: this machine is emulated" in klat.planned()) == warned


def test_what_root_will_read_stays_roots(klat, monkeypatch):
    monkeypatch.setattr(owners, "caller", lambda: (1000, 1000))
    klat.planned()
    assert {path.stat().st_uid for path in (klat.state, klat.state.parent)} == {os.getuid()}


def test_a_setting_is_a_kernel_with_words(klat):
    klat("plan", *STOCK, "--setting", "nohz=nohz_full=1 rcu_nocbs=1", *BOOTS, "pipes")
    settings = read_campaign(klat.state).settings
    named = [(setting.label, setting.append) for setting in settings]
    assert named == [("stock", ""), ("stock-nohz", "nohz_full=1 rcu_nocbs=1")]


def test_a_plan_without_a_menu_keeps_the_command_and_the_default(klat, tmp_path, monkeypatch):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cmdline").write_text("BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro\n")
    boot(monkeypatch, "root=/dev/sda1 ro")
    release = os.uname().release
    for installed in (release, "6.6"):
        (tmp_path / "lib/modules" / installed).mkdir(parents=True)
        (tmp_path / "lib/modules" / installed / "modules.dep").touch()
    monkeypatch.setattr(
        _campaign_state, "this_loader", lambda a: UserCommand(a.boot_command, root=tmp_path)
    )
    kernels = ("--kernel", f"a={release}", "--kernel", "b=6.6")
    klat("plan", "--boot-command", "true", *kernels, *BOOTS, "pipes")
    plan = read_campaign(klat.state)
    assert (plan.boot_command, plan.default) == ("true", release)
    assert plan.default_words == ("root=/dev/sda1", "ro")
    assert "boot command" in klat(
        "plan", "--boot-command", "false", *kernels, *BOOTS, "pipes", status=2
    )


@pytest.mark.parametrize(
    "typed, kept",
    [
        ("copy", "{here}/copy"),
        ("./a:b", "{here}/a:b"),
        ("/srv/copy", "/srv/copy"),
        ("host:copy", "host:copy"),
        ("user@host::module", "user@host::module"),
        ("rsync://host/module", "rsync://host/module"),
    ],
)
def test_a_local_copy_target_is_that_of_the_users_directory(
    klat, tmp_path, monkeypatch, typed, kept
):
    """systemd starts klat in another directory."""
    rsync = tmp_path / "tools/rsync"
    rsync.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    klat("plan", *STOCK, *RT, *BOOTS, "--copy-to", typed, "pipes")
    assert read_campaign(klat.state).copy_to == kept.format(here=tmp_path)


@pytest.mark.parametrize(
    "words, why",
    [
        ((*STOCK, *RT, "--copy-to", ""), "--copy-to must name a directory"),
        (STOCK, "one kernel cannot take turns"),
        ((*STOCK, *STOCK), "would have the same label, 'stock'"),
        ((*STOCK, "--kernel", "rt=6.1.0-65-rt-amd64"), "did you mean '6.1.0-56-rt-amd64'?"),
        ((*STOCK, "--kernel", "panic=5.10"), "klat itself uses the label 'panic'"),
        ((*STOCK, "--kernel", "r t=5.10"), "must have only letters, digits"),
        ((*STOCK, "--setting", "a=b;c"), "GRUB may change 'b;c'"),
        ((*STOCK, "--setting", "a=-- b"), "overrides words that klat appends"),
        ((*STOCK, "--setting", "a=b panic=0"), "remove panic=0, because"),
        ((*STOCK, "--setting", "a=panic=0x0"), "remove panic=0x0, because"),
        ((*STOCK, "--setting", "a=single"), "with single: single on the command line stops"),
        ((*STOCK, "--setting", "a=klat.campaign=b"), "overrides words that klat appends"),
        (
            (*STOCK, *RT, "--load", "none", "--load", "fork", "--kernel", "rt-fork=5.10"),
            "'rt-fork'",
        ),
        ((*STOCK, "--kernel", "rt"), "must have the form LABEL=ENTRY or LABEL=WORDS"),
        ((*STOCK, *RT, "--load", "popul"), "is neither a load nor a command"),
        (
            (*STOCK, *RT, "--looks", "2"),
            "--looks 2: 4 boots of each are too few for a verdict before the end",
        ),
        (
            (*STOCK, *RT, "--boots", "20", "--looks", "7"),
            "allow at most 6 looks, because a verdict before the end needs 10",
        ),
        ((*STOCK, *RT, "--looks", "0"), "--looks"),
    ],
)
def test_a_wrong_plan_is_one_line(klat, words, why):
    try:
        text = klat("plan", *BOOTS, *words, "pipes", status=2)
    except SystemExit as ended:
        assert ended.code == 2
        text = klat._capture.readouterr().err
    assert why in text and text.count("\n") == 1
    assert not klat.state.exists()


def test_a_machine_that_cannot_do_it_is_refused_before_anything(klat, tmp_path):
    (tmp_path / "tools" / "grub-probe").write_text("#!/bin/sh\necho lvm\n")
    assert "GRUB cannot write" in klat("plan", *STOCK, *RT, *BOOTS, "pipes", status=2)
    assert not klat.state.exists()


def test_options_that_a_program_refuses_are_not_planned(klat):
    words = ("plan", *STOCK, *RT, *BOOTS, "pipes", "--cpus")
    assert "takes 2 CPUs; --cpus names 1" in klat(*words, "1", status=2)
    assert not klat.state.exists()
    klat(*words, "4000,4001")  # a kernel can bring CPUs


def test_all_but_kernels_and_status_need_root(klat, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for action in ("check", "start", "pause", "resume", "abort", "proceed"):
        assert f"klat campaign: {action} needs root" in klat(action, status=2)
    klat("kernels")


@pytest.mark.parametrize("action", ["check", "start", "status", "pause", "resume", "abort"])
def test_an_action_without_a_plan_is_one_line(klat, action):
    why = "klat campaign: there is no campaign; plan one with klat campaign plan\n"
    assert klat(action, status=2) == why


def test_an_entry_of_another_system_is_not_planned(klat):
    klat.planned()
    text = klat("plan", *STOCK, "--kernel", "other=5.10", *BOOTS, "pipes", status=2)
    assert "Other Linux: its root is /dev/sdb1" in text


def test_a_campaign_under_way_is_not_replaced(klat):
    klat.planned()
    for phase, status in ((RUNNING, 2), (ENDED, 0)):
        klat.change(phase=phase)
        text = klat("plan", *STOCK, *RT, *BOOTS, "pipes", status=status)
        assert ("the campaign is running; wait until it ends" in text) == (status == 2)


def test_a_check_that_ended_early_is_shown_and_prevents_the_start(klat):
    klat.planned()
    failed = BootAttempt(1, "fell back", "2026-01-01T00:00:00Z", "a", "b", "no")
    klat.change(is_check=True, phase=ENDED, why="stock failed twice", attempts=(failed,))
    assert "check ended: 0 of 3 boots\n  stock failed twice" in klat("status")
    assert "the check ended early: stock failed twice" in klat("start", status=2)


def test_code_that_another_user_can_write_is_refused_before_a_reboot(klat, monkeypatch):
    klat.planned()
    before = klat.state.read_bytes()

    def refuse(names: Iterable[str], _: object) -> None:
        raise KlatError(f"/srv/{'+'.join(names)} can be written")

    monkeypatch.setattr(this_machine, "check_code", refuse)
    for words in (("plan", *STOCK, *RT, *BOOTS, "pipes", "timer"), ("check",), ("start",)):
        named = "pipes+timer" if words[0] == "plan" else "pipes"
        assert klat(*words, status=2) == f"klat campaign: /srv/{named} can be written\n"
    assert klat.state.read_bytes() == before


@pytest.mark.parametrize("action", ["plan", "check", "start"])
def test_programs_that_a_reboot_forgets_are_refused(klat, monkeypatch, action):
    klat.planned()
    monkeypatch.setenv("KLAT_PROGRAMS", str(programs.directory()))
    words = (*STOCK, *RT, *BOOTS, "pipes") if action == "plan" else ()
    why = "klat campaign: klat does not have KLAT_PROGRAMS after a reboot; unset it\n"
    assert klat(action, *words, status=2) == why


def test_a_start_that_fails_leaves_nothing(klat, tmp_path, monkeypatch):
    klat.planned()
    before = klat.state.read_bytes()

    def fail(command: Sequence[str], paths: Sequence[str]) -> None:
        raise KlatError("systemctl enable ended with status 1")

    monkeypatch.setattr(programs, "require", lambda name: None)
    monkeypatch.setattr(this_machine, "install_unit", fail)
    monkeypatch.setattr(this_machine.ThisMachine, "withdraw", lambda self: None)
    assert "systemctl enable" in klat("start", status=2)
    assert klat.state.read_bytes() == before
    assert not (tmp_path / "boot/grub/custom.cfg").exists()


def test_a_campaign_that_ended_early_is_resumed(klat, tmp_path, monkeypatch):
    klat.planned()
    failed = BootAttempt(1, "fell back", "2026-01-01T00:00:00Z", "a", "b", "no")
    klat.change(phase=ENDED, why="aborted", attempts=(failed,))
    assert "campaign ended: 0 of 8 boots\n  aborted\nto continue: sudo klat c" in klat("status")
    done = []
    monkeypatch.setattr(programs, "require", lambda name: None)
    monkeypatch.setattr(this_machine, "install_unit", lambda *words: done.append("installed"))
    monkeypatch.setattr(this_machine, "start_unit", lambda: done.append("started"))
    assert klat("resume").startswith("the machine reboots now")
    assert done == ["installed", "started"] and (tmp_path / "boot/grub/custom.cfg").exists()
    campaign = read_campaign(klat.state)
    assert (campaign.phase, campaign.why, campaign.resumed_after) == (RUNNING, "", 1)
    assert campaign.attempts == (failed,)


def test_a_check_that_ended_early_is_not_resumed(klat):
    klat.planned()
    klat.change(is_check=True, phase=ENDED, why="stock failed twice")
    assert "to continue" not in klat("status")
    assert "the check has ended, but must be paused" in klat("resume", status=2)


def test_a_campaign_that_has_ended_does_not_start(klat):
    klat.planned()
    klat.change(phase=ENDED)
    assert "the campaign has ended" in klat("start", status=2)
    assert "the campaign has ended" in klat("abort", status=2)
    assert "the campaign has ended, but must be running" in klat("pause", status=2)


def test_abort_without_a_readable_state_removes_the_units_and_names_the_rest(klat, monkeypatch):
    klat.planned()
    klat.state.write_text("{")
    done = []
    monkeypatch.setattr(this_machine, "stop_unit", lambda: done.append("stopped"))
    monkeypatch.setattr(this_machine.ThisMachine, "withdraw", lambda self: done.append("withdrawn"))
    text = klat("abort", status=2)
    assert done == ["stopped", "withdrawn"] and text.count("\n") == 1
    for name in (f"{klat.state} is", "custom.cfg", "a-klat-*.conf", "'klat: LABEL'"):
        assert name in text


def test_the_check_says_how_long_the_campaign_takes(klat):
    klat.planned()
    attempts = (
        BootAttempt(1, "done", "2026-01-01T00:00:00Z", "a", "b", "", {"runs": 0.2}),
        BootAttempt(2, "done", "2026-01-01T00:01:00Z", "b", "c", "", {"runs": 0.4}),
        BootAttempt(3, "done", "2026-01-01T00:02:00Z", "c", "d"),
    )
    klat.change(is_check=True, phase=ENDED, attempts=attempts)
    # A boot of the check takes 60 s. A boot of the campaign has 499 more runs of 0.3 s.
    text = klat("status")
    assert "the campaign takes about 28 min for 8 boots\nnext: sudo klat campaign start\n" in text


def test_the_status_has_progress_time_left_and_the_last_failure(klat):
    klat.planned()
    assert klat("status") == "campaign planned: 0 of 8 boots\n"
    seconds = {"kernel": 4.0, "runs": 30.0}
    attempts = (
        BootAttempt(1, "done", "2026-01-01T00:00:00Z", "a", "b", "", seconds),
        BootAttempt(2, "fell back", "2026-01-01T00:01:40Z", "b", "c", "came back"),
        BootAttempt(2, "asked", "2026-01-01T00:02:00Z", "c"),
    )
    klat.change(phase=RUNNING, attempts=attempts)
    text = klat("status")
    assert "systemd unit is gone" in text
    assert "campaign running: 1 of 8 boots" in text
    assert "requested at 2026-01-01T00:02:00Z" in text
    assert "about 10 min left" in text  # 6 boots of 100 s; boot 2 has already taken longer
    assert "attempts that do not count: 1 fell back" in text and "came back" in text
    assert "mean time of a boot: kernel 4 s, runs 30 s" in text
    assert "clock" not in text


def test_a_clock_that_went_back_is_told(klat):
    klat.planned()
    hours = (5, 6, 3, 4)
    attempts = tuple(
        BootAttempt(number, "done", f"2026-01-01T0{hour}:00:00Z", "a", "b")
        for number, hour in enumerate(hours, 1)
    )
    klat.change(phase=RUNNING, attempts=attempts)
    said = klat("status")
    assert "warning: the clock went back once, by up to 3 h," in said
    assert "so the dates of the sessions\n  are not" in said


@pytest.mark.parametrize("is_check", [False, True])
@pytest.mark.parametrize("lacks", ["rt", "stock", ""])
def test_a_kernel_without_a_sensor_is_told(klat, lacks, is_check):
    klat.planned()
    klat.change(is_check=is_check, phase=RUNNING)
    labels = [boot.setting.label for boot in read_campaign(klat.state).boots()]
    assert ("panic" in labels) == is_check
    attempts = tuple(
        BootAttempt(
            *(number, "done", "2026-01-01T00:00:00Z", "a", "b"),
            seconds={} if label == "panic" else {"runs": 1.0},
            celsius={} if label in ("panic", lacks) else {"coretemp": 40.0},
        )
        for number, label in enumerate(labels, 1)
    )
    klat.change(attempts=attempts)
    told = f"warning: no sensor of temperature in the boots of {lacks}, so"
    assert (told in klat("status")) == bool(lacks)
    assert ("sensor" in klat("status")) == bool(lacks)


def test_looks_are_planned_and_their_end_is_shown(klat, tmp_path):
    text = klat("plan", *STOCK, *RT, "--boots", "20", "--looks", "2", "pipes")
    assert "looks after 10 of 20 rounds: the campaign ends if klat compare settles" in text
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 80
    planned = read_campaign(klat.state)
    assert planned.looks == (10, 20)
    attempts = tuple(
        BootAttempt(boot.number, "done", "2026-01-01T00:00:00Z", "a", "b")
        for boot in planned.boots()
        if boot.round <= 10
    )
    klat.change(phase=ENDED, attempts=attempts, looked_after=10, is_settled=True)
    text = " ".join(klat("status").split())
    assert "campaign complete: 20 of 20 boots every metric was settled at look 1 of 2" in text
    assert "after 10 of 20 rounds: 20 boots saved" in text


def test_looks_need_labels_without_sessions(klat, tmp_path):
    (tmp_path / "results" / "rt" / ".failed").mkdir(parents=True)
    plan = ("plan", *STOCK, *RT, "--boots", "20", "--looks", "2", "pipes")
    klat(*plan)
    (tmp_path / "results" / "rt" / "1").mkdir()
    assert "rt already holds sessions; give another" in klat(*plan, status=2)


def test_the_status_is_also_for_scripts(klat, monkeypatch):
    klat.planned()
    planned = json.loads(klat("status", "--format", "json"))
    shown = [planned[key] for key in ("name", "phase", "complete")]
    assert shown == ["campaign", "planned", False]
    assert (planned["done"], planned["boots"], planned["home"]) == (0, 8, True)
    boot(monkeypatch, "root=/dev/vda1 klat.campaign=1")
    done = tuple(BootAttempt(n, "done", "2026-01-01T00:00:00Z", "a") for n in range(1, 9))
    klat.change(phase=ENDED, attempts=done)
    ended = json.loads(klat("status", "--format", "json"))
    assert (ended["phase"], ended["complete"], ended["home"]) == ("ended", True, False)


def test_a_running_default_with_words_that_klat_does_not_know_is_refused(klat, monkeypatch):
    default = Grub(klat.state.parents[1]).default()
    monkeypatch.setattr(this_machine.ThisMachine, "release", lambda _: default.release)
    line = f"BOOT_IMAGE={default.image} added=1 {' '.join(default.words)}"
    boot(monkeypatch, line)
    text = klat("plan", *STOCK, *RT, *BOOTS, "pipes", status=2)
    assert "kernel is that of this entry, but the command line has added=1, so klat would" in text
    boot(monkeypatch, line.replace("added=1 ", ""))
    klat.planned()


def test_an_entry_that_boots_another_kernel_than_planned_is_refused(klat, tmp_path, capsys):
    klat("plan", "--kernel", "a=gnulinux-simple-5eed", *STOCK, *BOOTS, "pipes")
    config = tmp_path / "boot/grub/grub.cfg"
    config.write_text(config.read_text().replace("6.1.0-56-rt", "6.1.0-57-rt"))
    made_grub.make_files(tmp_path, config.read_text())
    assert "now boots 6.1.0-57-rt-amd64, but the plan measures 6.1.0-56-rt-amd64" in klat(
        "check", status=2
    )


def test_an_entry_that_no_longer_measures_is_refused(klat, tmp_path):
    klat.planned()
    config = tmp_path / "boot/grub/grub.cfg"
    config.write_text(config.read_text().replace("ro  quiet", "ro single"))
    assert "single on the command line stops" in klat("check", status=2)


@pytest.mark.parametrize(
    "text, why",
    [
        ("A", "title of entries"),
        ("6.1.0", "release of entries"),
        ("iso", "finds no release of a kernel for 'iso'"),
    ],
)
def test_a_name_that_does_not_decide_the_kernel_is_refused(text, why):
    entries = [BootEntry(n, "A", "6.1.0", (), image=f"/vmlinuz-6.1.0{n}") for n in ("", ".old")]
    entries += [BootEntry("iso", "Live", "", (), image="/casper/vmlinuz")]
    with pytest.raises(KlatError, match=why):
        _campaign_plan._entry(text, entries)
    assert _campaign_plan._entry(".old", entries) is entries[1]


def test_the_boot_partitions_of_proxmox_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(_campaign_state, "_OF_PROXMOX", tmp_path)
    with pytest.raises(KlatError, match="proxmox-boot-tool keeps .* give --kexec"):
        _campaign_state.this_loader(Namespace(kexec=False, boot_command=None))


def test_the_menu_of_a_loader_that_klat_does_not_know_is_named(tmp_path, monkeypatch):
    def no_grub():
        raise KlatError("there is no grub.cfg")

    monkeypatch.setattr("klat.campaign.grub.Grub", no_grub)
    for menu, why in (("gone", "there is no grub.cfg"), ("", "cannot choose an entry of /.*")):
        monkeypatch.setattr(_campaign_state, "_UNKNOWN_MENUS", (str(tmp_path / menu),))
        with pytest.raises(KlatError, match=f"can use: .*{why}; .* give --kexec or --boot-command"):
            _campaign_state.this_loader(Namespace(kexec=False, boot_command=None))
