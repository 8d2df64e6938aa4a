"""A campaign over simulated boots: every outcome, and a power cut at every step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from klat.base.errors import KlatError
from klat.campaign import campaign_file, engine
from klat.campaign.boot_loader import OWN_WORD, BootEntry, BootLoader, OwnEntry
from klat.campaign.campaign_file import BootAttempt, BootSetting, Campaign, CampaignBoot, ENDED
from klat.campaign.campaign_file import MOST_FAILURES, MOST_INTERRUPTIONS, PAUSED, PLANNED, RUNNING
from klat.campaign.campaign_file import read_campaign, write_campaign
from klat.campaign.engine import Engine, change_phase, entry_copies
from klat.campaign.this_machine import Measured

STOCK = BootEntry("menu>stock", "Stock", "6.1.0", ("root=/dev/sda1", "ro"))
RT = BootEntry("menu>rt", "RT", "6.1.0-rt", ("root=/dev/sda1", "ro"))


class PowerCut(Exception):
    pass


class Rig(BootLoader):
    """A simulated machine with a disk and a boot loader. `fails(boot)` names what goes wrong in a boot:
    `panic`, `not started`, `other` (another kernel boots), `session`, or nothing. At step `cut_at` the power
    is cut."""

    name = "faked"

    def __init__(self, path: Path, fails: Callable[[CampaignBoot], str] = lambda boot: "") -> None:
        self.path = path
        self.fails = fails
        self.copies: list[OwnEntry] = []
        self.chosen: str | None = None
        self.last_started = ""
        self.content = "the user's"
        self.unit = True
        self.notified = 0
        self.measured: list[tuple[int, str]] = []
        self.aside: list[int] = []
        self.steps = 0
        self.cut_at: int | None = None
        self.boots = 0
        self.asked = False
        self.verbs: list[str] = []
        self.panics = 0
        self.has_menu = True
        self.running = STOCK.release, STOCK.words

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.cut_at:
            raise PowerCut

    def entries(self) -> list[BootEntry]:
        return [STOCK, RT]

    def default(self) -> BootEntry:
        return STOCK

    def check(self) -> None:
        pass

    def install(self, copies: Sequence[OwnEntry]) -> None:
        self.copies = list(copies)
        self.content = "klat's"

    def choose(self, copy: OwnEntry) -> None:
        self.step()
        self.chosen, self.last_started = copy.name, ""
        self.step()

    def started(self) -> str:
        if self.has_menu:
            return self.last_started
        labels = (word for word in self.running[1] if word.startswith(OWN_WORD))
        return next(labels, "").removeprefix(OWN_WORD)

    def remove(self) -> None:
        self.step()
        self.copies, self.chosen = [], None
        self.content = "the user's"

    def files(self) -> Mapping[str, str]:
        return {"custom.cfg": self.content}

    def boot_id(self) -> str:
        return f"boot {self.boots}"

    def release(self) -> str:
        return self.running[0]

    def words(self) -> tuple[str, ...]:
        return ("BOOT_IMAGE=/vmlinuz", *self.running[1])

    def now(self) -> str:
        return f"2026-01-01T{self.boots // 60:02}:{self.boots % 60:02}:00Z"

    def measure(self, campaign: Campaign, boot: CampaignBoot) -> Measured:
        self.measured.append((boot.number, boot.setting.label))
        self.step()
        if self.fails(boot) == "session":
            return Measured("klat run ended with status 1", {})
        return Measured("", {"runs": 1.0})

    def set_aside(self, campaign: Campaign, attempt: BootAttempt) -> None:
        self.step()
        self.aside.append(attempt.boot)
        self.measured = [(n, label) for n, label in self.measured if n != attempt.boot]

    def copy(self, campaign: Campaign) -> str:
        return ""

    def reboot(self, verb: str = "reboot") -> None:
        self.step()
        self.verbs.append(verb)
        self.asked = True

    def panic(self) -> None:
        self.step()
        self.panics += 1
        raise PowerCut

    def withdraw(self) -> None:
        self.step()
        self.unit = False

    def notify(self, campaign: Campaign) -> None:
        self.notified += 1

    def power_on(self) -> None:
        """Boot the entry that was chosen for one boot, or else the default kernel."""
        self.boots += 1
        self.asked = False
        chosen, self.chosen = self.chosen, None
        copy = next((candidate for candidate in self.copies if candidate.name == chosen), None)
        if copy is None or self.fails(self.boot_of(copy)) == "not started":
            self.running = STOCK.release, STOCK.words
            return
        self.last_started = copy.name
        boot = self.boot_of(copy)
        failure = "panic" if boot.panics and self.has_menu else self.fails(boot)
        if failure == "panic":
            self.running = STOCK.release, STOCK.words
        elif failure == "other":
            self.running = "5.10", ("root=/dev/sdb1",)
        else:
            self.running = copy.entry.release, copy.booted.words

    def boot_of(self, copy: OwnEntry) -> CampaignBoot:
        """The first planned boot of this entry of klat."""
        return next(b for b in read_campaign(self.path).boots() if b.setting.label == copy.name)


def planned(path: Path) -> Campaign:
    return Campaign(
        identity="c0ffee",
        settings=(BootSetting("stock", STOCK.identity), BootSetting("rt", RT.identity)),
        rounds=2,
        seed=7,
        sets=(("pipes", ()),),
        runs=3,
        loads=("none",),
        profile=None,
        pause_ms=0,
        time_limit_s=120,
        output=str(path.parent),
        loader="faked",
        default=STOCK.identity,
        created="2026-01-01T00:00:00Z",
        phase=RUNNING,
    )


def begun(rig: Rig, is_check: bool = False) -> Engine:
    words = None if rig.has_menu else STOCK.words
    campaign = replace(planned(rig.path), is_check=is_check, files=dict(rig.files()))
    campaign = replace(campaign, default_words=words)
    write_campaign(rig.path, campaign)
    rig.install(entry_copies(rig, campaign))
    return Engine(rig.path, rig, rig, lambda line: None)


def resumed(rig: Rig, ended: Campaign) -> Engine:
    write_campaign(rig.path, replace(ended.resumed(), phase=RUNNING, why=""))
    rig.install(entry_copies(rig, ended))
    rig.unit = True
    return Engine(rig.path, rig, rig, lambda line: None)


def drive(rig: Rig, work: Engine, most: int = 60) -> Campaign:
    """Boot the machine until klat requests no reboot. A power cut also leads to a boot."""
    for _ in range(most):
        try:
            if rig.unit:
                work.proceed()
        except PowerCut:
            rig.asked = True
        if not rig.asked:
            return read_campaign(rig.path)
        rig.power_on()
    raise AssertionError("the campaign does not end")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "campaign.json")


@pytest.fixture
def bare(rig: Rig) -> Rig:
    """A machine whose boots leave no record, for example by kexec."""
    rig.has_menu, rig.reboot_verb = False, "kexec"
    return rig


def in_first_boot(rig: Rig) -> Engine:
    work = begun(rig)
    work.proceed()
    rig.power_on()
    return work


def at_home(rig: Rig) -> bool:
    return (rig.release(), rig.running[1]) == (STOCK.release, STOCK.words)


# Cut 0 cuts nothing. The last cut is after the last step.
@pytest.mark.parametrize("has_menu", [True, False])
@pytest.mark.parametrize("cut", range(21))
def test_a_power_cut_at_any_step_loses_and_doubles_nothing(rig, cut, has_menu):
    rig.has_menu = has_menu
    work = begun(rig)
    rig.cut_at = cut
    campaign = drive(rig, work)
    assert [number for number, _ in rig.measured] == [1, 2, 3, 4], campaign.attempts
    labels = [label for _, label in rig.measured]
    assert labels in (["stock", "rt", "rt", "stock"], ["rt", "stock", "stock", "rt"])
    assert campaign.is_complete and campaign.phase == ENDED and not campaign.why
    assert not campaign.changed and (cut or rig.notified == 1)
    assert at_home(rig) and not rig.copies and not rig.unit


@pytest.mark.parametrize("cut", range(1, 26))
def test_a_power_cut_counts_no_failed_session(rig, cut):
    def fails(boot: CampaignBoot) -> str:
        outcomes = [attempt.outcome for attempt in read_campaign(rig.path).attempts]
        return "session" if boot.number == 2 and "failed" not in outcomes else ""

    rig.fails = fails
    work = begun(rig)
    rig.cut_at = cut
    campaign = drive(rig, work)
    numbers = [number for number, _ in rig.measured]
    assert numbers == [1, 2, 3, 4][: len(numbers)], campaign.attempts
    # A cut before the boot was chosen looks like a second failure.
    assert campaign.is_complete or " failed 2 times in succession: " in campaign.why


def test_the_cuts_reach_every_step(rig):
    drive(rig, begun(rig))
    assert 15 < rig.steps < 21


@pytest.mark.parametrize(
    "failure, outcome",
    [
        ("panic", "fell back"),
        ("not started", "fell back"),
        ("other", "wrong kernel"),
        ("session", "failed"),
    ],
)
def test_a_boot_that_fails_once_is_repeated_in_its_place(rig, failure, outcome):
    def fails(boot: CampaignBoot) -> str:
        outcomes = [attempt.outcome for attempt in read_campaign(rig.path).attempts]
        return failure if boot.setting.label == "rt" and outcome not in outcomes else ""

    rig.fails = fails
    campaign = drive(rig, begun(rig))
    assert [number for number, _ in rig.measured] == [1, 2, 3, 4]
    assert [a.outcome for a in campaign.attempts].count(outcome) == 1
    failed = next(a for a in campaign.attempts if a.outcome == outcome)
    assert failed.reason
    after = campaign.attempts[campaign.attempts.index(failed) + 1]
    assert (after.boot, after.outcome) == (failed.boot, "done")


@pytest.mark.parametrize(
    "failure, has_menu", [("panic", True), ("other", True), ("session", True), ("panic", False)]
)
def test_two_failures_in_succession_end_the_campaign_at_home(rig, failure, has_menu):
    rig.has_menu = has_menu
    rig.fails = lambda boot: failure if boot.setting.label == "rt" else ""
    campaign = drive(rig, begun(rig))
    assert campaign.phase == ENDED
    assert campaign.why.startswith("rt failed 2 times in succession: ")
    assert has_menu or "the machine came back" in campaign.why
    assert at_home(rig) and not rig.copies and not rig.unit and rig.notified == 1


def test_an_early_end_can_be_resumed_and_loses_and_doubles_nothing(rig):
    rig.fails = lambda boot: "panic" if boot.setting.label == "rt" else ""
    ended = drive(rig, begun(rig))
    assert ended.ended_early and not rig.copies and not rig.unit
    rig.fails = lambda boot: ""
    failed = len(ended.attempts)
    campaign = drive(rig, resumed(rig, ended))
    assert campaign.is_complete and campaign.attempts[:failed] == ended.attempts
    assert sorted(number for number, _ in rig.measured) == [1, 2, 3, 4]
    assert at_home(rig) and not rig.copies and not rig.unit


def test_a_resumed_campaign_ends_after_new_failures_only(rig):
    rig.fails = lambda boot: "panic" if boot.setting.label == "rt" else ""
    ended = drive(rig, begun(rig))
    campaign = drive(rig, resumed(rig, ended))
    assert campaign.ended_early
    assert len(campaign.attempts) == len(ended.attempts) + MOST_FAILURES


def test_no_attempt_is_under_way_after_a_resume(rig):
    work = begun(rig)
    work.proceed()
    work.give_up("aborted")
    asked = read_campaign(rig.path)
    assert not asked.resumed().attempts
    measuring = asked.with_last(outcome="measuring")
    assert [a.outcome for a in measuring.resumed().attempts] == ["interrupted"]
    assert not measuring.resumed().failures(measuring.boots()[0].setting.label)


def test_a_kernel_that_goes_down_each_time_it_measures_ends_the_campaign(rig):
    def measure(campaign: Campaign, boot: CampaignBoot) -> Measured:
        raise PowerCut

    rig.measure = measure  # type: ignore[method-assign]
    campaign = drive(rig, begun(rig))
    assert [a.outcome for a in campaign.attempts] == ["interrupted"] * MOST_INTERRUPTIONS
    assert "failed 5 times in succession: the machine went down" in campaign.why
    assert at_home(rig) and not rig.copies and not rig.unit


@pytest.mark.parametrize("has_menu", [True, False])
def test_a_check_boots_each_kernel_and_one_that_panics(rig, has_menu):
    """Without a menu, klat itself makes the kernel panic. It runs only in klat's entry, so this entry was booted."""
    rig.has_menu = has_menu
    campaign = drive(rig, begun(rig, is_check=True))
    assert campaign.is_complete and rig.panics == (0 if has_menu else 1)
    assert [a.outcome for a in campaign.attempts] == ["done", "done", "done"]
    assert {label for _, label in rig.measured} == {"stock", "rt"}
    assert at_home(rig) and not rig.copies and not rig.unit


def test_without_a_record_a_check_fails_if_klats_entry_was_not_started(bare):
    bare.fails = lambda boot: "not started" if boot.panics else ""
    campaign = drive(bare, begun(bare, is_check=True))
    assert not campaign.is_complete and bare.panics == 0
    assert "the machine came back on its default kernel" in campaign.why


def test_without_a_record_a_check_fails_if_another_kernel_comes_back(bare):
    power_on = bare.power_on

    def wrong() -> None:
        power_on()
        if bare.panics:
            bare.running = "5.10", ("root=/dev/sdb1",)

    bare.power_on = wrong  # type: ignore[method-assign]
    campaign = drive(bare, begun(bare, is_check=True))
    assert not campaign.is_complete and bare.panics == 1
    assert campaign.why.startswith("panic failed") and not bare.copies and not bare.unit


def test_only_the_boots_of_the_campaign_are_by_kexec(bare):
    drive(bare, begun(bare))
    assert bare.verbs == ["kexec"] * 4 + ["reboot"]


def test_a_check_fails_if_the_kernel_does_not_panic(rig):
    rig.power_on, power_on = lambda: (power_on(), survive()), rig.power_on  # type: ignore[method-assign]

    def survive() -> None:
        if read_campaign(rig.path).attempts[-1].boot == 3:
            rig.running = "6.1.0", ("rdinit=/klat-panics",)

    campaign = drive(rig, begun(rig, is_check=True))
    assert campaign.phase == ENDED and "the kernel must panic, but it booted" in campaign.why


def test_a_check_fails_if_the_entry_that_panics_did_not_start(rig):
    """The machine is then on its default kernel, but the panic was not tested."""
    rig.fails = lambda boot: "not started" if boot.panics else ""
    campaign = drive(rig, begun(rig, is_check=True))
    assert not campaign.is_complete and "did not start klat's entry" in campaign.why
    assert at_home(rig) and not rig.copies and not rig.unit
    assert read_campaign(rig.path) == campaign


def test_an_entry_without_words_is_not_the_default_one(rig):
    """Both boot the same kernel with the words of the user. Only klat's own words differ."""
    copy = engine.entry_copy(rig, BootSetting("stock", STOCK.identity))
    assert copy.booted.words == (*STOCK.words, "klat.campaign=stock", "panic=10")
    assert not STOCK.is_running(STOCK.release, copy.booted.words)
    assert engine.entry_copy(rig, BootSetting("s", STOCK.identity, "panic=5")).append == (
        "panic=5",
        "klat.campaign=s",
    )


def test_a_file_that_another_program_changed_is_named(rig):
    work = begun(rig)
    work.proceed()
    remove = rig.remove
    rig.remove = lambda: (remove(), setattr(rig, "content", "another's"))  # type: ignore[method-assign]
    rig.power_on()
    assert drive(rig, work).changed == ("custom.cfg",)


def test_the_machine_returns_to_its_default_even_if_the_disk_is_full(rig, monkeypatch):
    work = in_first_boot(rig)

    def full(path: Path, campaign: Campaign) -> None:
        raise KlatError("the disk is full")

    monkeypatch.setattr(engine, "write_campaign", full)
    work.give_up("the disk is full")
    assert not rig.copies and not rig.unit and rig.asked and rig.notified == 1


@pytest.mark.parametrize("error", [KlatError("the tool failed"), OSError(30, "read-only")])
def test_what_klat_could_not_remove_is_told(rig, monkeypatch, error):
    def fail() -> None:
        raise error

    work = in_first_boot(rig)
    monkeypatch.setattr(rig, "remove", fail)
    work.give_up("aborted")
    assert read_campaign(rig.path).why.startswith(
        "aborted; klat could not remove everything that it added"
    )
    assert not rig.unit and rig.asked


def test_a_pause_finishes_the_boot_and_returns_to_the_default(rig):
    work = begun(rig)
    measure = rig.measure

    def and_pause(campaign: Campaign, boot: CampaignBoot) -> Measured:
        if boot.number == 2 and read_campaign(rig.path).phase == RUNNING:
            change_phase(rig.path, (RUNNING,), PAUSED)
        return measure(campaign, boot)

    rig.measure = and_pause  # type: ignore[method-assign]
    campaign = drive(rig, work)
    assert campaign.phase == PAUSED and len(rig.measured) == 2
    assert at_home(rig) and rig.unit and rig.copies
    rig.measure = measure  # type: ignore[method-assign]
    change_phase(rig.path, (PAUSED,), RUNNING)
    assert drive(rig, work).phase == ENDED
    assert [number for number, _ in rig.measured] == [1, 2, 3, 4]


def test_an_abort_leaves_the_machine_as_it_was(rig):
    work = in_first_boot(rig)
    work.give_up("aborted")
    assert rig.asked
    rig.power_on()
    assert at_home(rig) and not rig.copies and not rig.unit
    assert read_campaign(rig.path).why == "aborted"


def test_a_boot_that_klat_did_not_start_is_not_left(rig):
    """A default kernel whose command line differs from its entry is no reason to reboot again and again."""
    work = begun(rig)
    change_phase(rig.path, (RUNNING,), PAUSED)
    rig.running = STOCK.release, (*STOCK.words, "quirk")
    assert drive(rig, work).phase == PAUSED and not rig.verbs


def test_sessions_of_an_aborted_boot_do_not_count(rig):
    def measure(campaign: Campaign, boot: CampaignBoot) -> Measured:
        rig.measured.append((boot.number, boot.setting.label))
        raise KeyboardInterrupt

    rig.measure = measure  # type: ignore[method-assign]
    work = in_first_boot(rig)
    with pytest.raises(KeyboardInterrupt):
        work.proceed()
    work.give_up("aborted")
    assert rig.aside == [1] and not rig.measured


def test_nothing_is_measured_after_the_end(rig):
    """The machine went down after an abort, before klat had removed its unit."""
    work = begun(rig)
    work.proceed()
    change_phase(rig.path, (RUNNING,), ENDED)
    rig.power_on()
    work.proceed()
    assert not rig.measured and not rig.unit and rig.verbs == ["reboot", "reboot"]


def test_what_an_interrupted_start_left_is_removed(rig):
    work = begun(rig)
    change_phase(rig.path, (RUNNING,), PLANNED)
    work.proceed()
    assert not rig.copies and not rig.unit and not rig.verbs


def test_other_users_cannot_open_the_lock(rig):
    begun(rig)
    change_phase(rig.path, (RUNNING,), PAUSED)
    assert rig.path.with_suffix(".lock").stat().st_mode & 0o777 == 0o600


def test_a_campaign_whose_entries_are_gone_ends(rig, monkeypatch):
    work = in_first_boot(rig)
    monkeypatch.setattr(rig, "entries", lambda: [])
    with pytest.raises(KlatError, match="has no entry"):
        work.proceed()
    work.give_up("faked has no entry")
    assert read_campaign(rig.path).phase == ENDED and not rig.copies and not rig.unit
    assert rig.verbs == ["reboot", "reboot"]  # the second leaves klat's kernel


def test_only_one_process_runs_a_campaign(rig):
    work = begun(rig)
    with engine.alone(rig.path), pytest.raises(KlatError, match="another klat process"):
        work.proceed()


def test_a_damaged_file_is_refused(rig):
    begun(rig)
    text = rig.path.read_text()
    for wrong, why in (
        (text.replace('"running"', '"walking"'), "phase"),
        (text.replace('"rounds": 2', '"rounds": 0'), "rounds"),
        (text[:-20], "campaign.json"),
        (text.replace(f'"schema": {campaign_file.SCHEMA}', '"schema": 9'), "another version"),
    ):
        rig.path.write_text(wrong)
        with pytest.raises(KlatError, match=why):
            read_campaign(rig.path)


def test_a_file_that_others_can_write_is_refused(rig):
    begun(rig)
    rig.path.chmod(0o666)
    with pytest.raises(KlatError, match="can be written by every user"):
        read_campaign(rig.path)
