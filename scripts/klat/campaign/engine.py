"""The course of a campaign: what to do after each boot.

After each boot a systemd unit calls proceed(). It determines the outcome of the attempt under way, measures,
and requests the next boot. It writes each step to campaign.json before it takes the step. So after a crash
proceed() continues, and repeats an attempt that was not measured.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from klat.base import files
from klat.base.errors import KlatError, printable
from klat.campaign import looks
from klat.campaign.boot_loader import OWN_WORD, BootEntry, BootLoader, OwnEntry, is_of_campaign
from klat.campaign.campaign_file import ASKED, BootAttempt, BootSetting, Campaign, CampaignBoot
from klat.campaign.campaign_file import DONE, ENDED, FAILED, FELL_BACK, INTERRUPTED, MEASURING
from klat.campaign.campaign_file import MOST_FAILURES, MOST_INTERRUPTIONS, PLANNED, RUNNING
from klat.campaign.campaign_file import WRONG_KERNEL, read_campaign, write_campaign
from klat.campaign.entry_checks import check_files, reboots_after_panic
from klat.campaign.this_machine import ThisMachine

_PANIC = "panic=10"


class Engine:
    def __init__(
        self,
        path: Path,
        loader: BootLoader,
        machine: ThisMachine,
        say: Callable[[str], None],
        is_settled: Callable[[Campaign], bool] = looks.is_settled,
    ) -> None:
        self._path = path
        self._loader = loader
        self._machine = machine
        self._say = say
        self._is_settled = is_settled

    def proceed(self) -> None:
        """Work until a reboot is requested, or the campaign is paused or ended."""
        with alone(self._path):
            campaign = read_campaign(self._path)
            if campaign.phase == PLANNED:  # a power cut interrupted klat campaign start
                self._loader.remove()
                self._machine.withdraw()
                return
            if campaign.phase != ENDED:
                campaign = self._resolve(campaign)
            if campaign.phase == RUNNING:
                campaign = self._end_if_due(campaign)
            if campaign.phase == RUNNING:
                self._ask(campaign)
            else:
                self._go_home(campaign)

    def give_up(self, why: str) -> None:
        """End the campaign for this reason, and leave the machine on its default kernel."""
        with alone(self._path):
            try:
                campaign = self._save(lambda now: replace(now, phase=ENDED, why=why))
            except KlatError as error:
                # For example on a full disk. The machine must still return to its default kernel.
                self._say(str(error))
                campaign = replace(read_campaign(self._path), phase=ENDED, why=why)
            self._go_home(campaign)

    def _save(self, change: Callable[[Campaign], Campaign]) -> Campaign:
        """Change the file as it is now: `pause` may have changed it since this process read it."""
        return change_campaign(self._path, change)

    def _resolve(self, campaign: Campaign) -> Campaign:
        """Determine the outcome of the attempt under way. Measure if this is its boot."""
        attempt = campaign.last
        here = self._machine.boot_id()
        if not attempt or not attempt.under_way:
            return campaign
        boot = campaign.boots()[attempt.boot - 1]
        if attempt.outcome == ASKED:
            if here == attempt.from_boot:
                return campaign
            outcome, reason = self._arrived(campaign, boot)
            campaign = self._save(
                lambda now: now.with_last(outcome=outcome, reason=reason, boot_id=here)
            )
            if outcome != MEASURING:
                return campaign
        elif here != attempt.boot_id:
            if boot.panics and self._runs_default(campaign):
                return self._save(lambda now: now.with_last(outcome=DONE))
            reason = "the machine went down during the measurement"
            return self._discard(INTERRUPTED, reason)
        if boot.panics:
            self._machine.panic()
        measured = self._machine.measure(campaign.of_boots(), boot)
        measurements = {"seconds": dict(measured.seconds), "celsius": dict(measured.celsius)}
        if measured.reason:
            return self._discard(FAILED, measured.reason, **measurements)
        return self._save(lambda now: now.with_last(outcome=DONE, **measurements))

    def _discard(self, outcome: str, reason: str, **measurements: Any) -> Campaign:
        """Record that the attempt does not count. Its sessions are moved before: after a power cut between the two
        steps, klat does both again."""
        campaign = read_campaign(self._path)
        assert campaign.last
        self._machine.set_aside(campaign.of_boots(), campaign.last)
        return self._save(lambda now: now.with_last(outcome=outcome, reason=reason, **measurements))

    def _arrived(self, campaign: Campaign, boot: CampaignBoot) -> tuple[str, str]:
        """The outcome so far of an attempt whose reboot has happened, and the reason if it failed."""
        booted = self._machine.release(), self._machine.words()
        home = self._default(campaign).is_running(*booted)
        if self._loader.started() != boot.setting.label and (campaign.has_menu or not home):
            reason = f"{self._loader.name} did not start klat's entry"
            return (FELL_BACK if home else WRONG_KERNEL), reason
        if boot.panics and campaign.has_menu:
            return (DONE, "") if home else (WRONG_KERNEL, "the kernel must panic, but it booted")
        wanted = entry_copy(self._loader, boot.setting).booted
        if wanted.is_running(*booted):
            return MEASURING, ""
        if home:
            return FELL_BACK, "the machine came back on its default kernel"
        reason = f"but not klat's entry: {wanted.difference(*booted)}"
        return WRONG_KERNEL, f"booted {booted[0]}, {reason}"

    def _default(self, campaign: Campaign) -> BootEntry:
        return entry_of(self._loader, campaign.default)

    def _end_if_due(self, campaign: Campaign) -> Campaign:
        attempt = campaign.last
        if attempt and not attempt.under_way and attempt.outcome != DONE:
            label = campaign.boots()[attempt.boot - 1].setting.label
            failures = campaign.failures(label)
            blamed = [failure for failure in failures if failure.outcome != INTERRUPTED]
            if len(blamed) >= MOST_FAILURES or len(failures) >= MOST_INTERRUPTIONS:
                why = f"{label} failed {len(failures)} times in succession: {attempt.reason}"
                return self._save(lambda now: replace(now, phase=ENDED, why=why))
        campaign = self._look_if_due(campaign)
        if campaign.next_boot():
            return campaign
        return self._save(lambda now: replace(now, phase=ENDED))

    def _look_if_due(self, campaign: Campaign) -> Campaign:
        """End the campaign after these rounds if a look is due and settles every metric. If the look fails,
        the campaign continues. klat does not repeat a look that it began."""
        rounds = looks.look_due(campaign)
        if rounds is None:
            return campaign
        campaign = self._save(lambda now: replace(now, looked_after=rounds))
        try:
            settled = self._is_settled(campaign)
        except Exception as error:
            why = printable(str(error)) or type(error).__name__
            self._say(f"look after {rounds} rounds: {why}")
            return campaign
        self._say(f"look after {rounds} rounds: {'' if settled else 'not '}every metric is settled")
        return self._save(lambda now: replace(now, is_settled=True)) if settled else campaign

    def _ask(self, campaign: Campaign) -> None:
        """Request the next boot."""
        boot = campaign.next_boot()
        assert boot
        self._copy(campaign)
        asked = BootAttempt(boot.number, ASKED, self._machine.now(), self._machine.boot_id())
        again = campaign.last and campaign.last.outcome == ASKED
        attempts = campaign.attempts[:-1] if again else campaign.attempts
        self._save(lambda now: replace(now, attempts=(*attempts, asked)))
        self._say(f"boot {boot.number}: {boot.setting.label}")
        self._loader.choose(entry_copy(self._loader, boot.setting))
        self._machine.reboot(self._loader.reboot_verb)

    def _copy(self, campaign: Campaign) -> None:
        if why := self._machine.copy(campaign):
            self._say(why)

    def _go_home(self, campaign: Campaign) -> None:
        """Return to the default kernel. After the end, first move the sessions of an attempt under way,
        remove everything that klat added, copy the results, and run the command `notify`."""
        attempt = campaign.last
        if campaign.phase == ENDED:
            if attempt and attempt.outcome == MEASURING:
                self._or_say(partial(self._machine.set_aside, campaign.of_boots(), attempt))
            self._or_say(self._clean_up)
            self._or_say(self._machine.withdraw)
            self._copy(campaign)
            self._machine.notify(campaign)
        if not self._is_home(campaign):
            self._machine.reboot()

    def _clean_up(self) -> None:
        self._loader.remove()
        now = self._loader.files().items()
        self._save(
            lambda campaign: replace(
                campaign, changed=tuple(sorted({name for name, _ in now ^ campaign.files.items()}))
            )
        )

    def _or_say(self, step: Callable[[], object]) -> None:
        """Take a step of the end. If it fails, report this in the journal and in `why`, because the
        later steps are still necessary."""
        try:
            step()
        except (KlatError, OSError, ValueError) as error:
            why = f"klat could not remove everything that it added: {error}"
            self._say(why)
            try:
                self._save(lambda now: replace(now, why="; ".join(filter(None, (now.why, why)))))
            except KlatError as full:
                self._say(str(full))

    def _is_home(self, campaign: Campaign) -> bool:
        """Whether no reboot is necessary: klat did not start this boot, and no wrong kernel runs. The command line
        can differ from the default's, because a reboot could not change that."""
        last = campaign.last
        if last and last.outcome == WRONG_KERNEL and last.boot_id == self._machine.boot_id():
            return self._runs_default(campaign)
        return not is_of_campaign(self._machine.words())

    def _runs_default(self, campaign: Campaign) -> bool:
        """Also true if the default's entry is gone: a reboot would not find it."""
        try:
            default = self._default(campaign)
        except KlatError:
            return not is_of_campaign(self._machine.words())
        return default.is_running(self._machine.release(), self._machine.words())


def change_phase(path: Path, allowed: tuple[str, ...], phase: str) -> None:
    """KlatError if the campaign is in none of the allowed phases."""

    def change(campaign: Campaign) -> Campaign:
        if campaign.phase not in allowed:
            raise KlatError(f"{campaign.state}, but must be {' or '.join(allowed)}")
        return replace(campaign, phase=phase)

    change_campaign(path, change)


def change_campaign(path: Path, change: Callable[[Campaign], Campaign]) -> Campaign:
    """Apply `change` to the campaign on disk. Returns the new campaign."""
    read_campaign(path)  # KlatError if there is none, so the directory can be missing
    lock = _open_lock(path)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # independent of the flock of alone()
        campaign = change(read_campaign(path))
        write_campaign(path, campaign)
    finally:
        os.close(lock)
    return campaign


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """KlatError if another klat process runs the same campaign."""
    descriptor = _open_lock(path)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise KlatError(
                "another klat process runs this campaign; wait until it has ended"
            ) from None
        yield
    finally:
        os.close(descriptor)


def _open_lock(path: Path) -> int:
    """Only the owner can open the file, because every process that can open it could lock it."""
    return files.append(path.with_suffix(".lock"), mode=0o600)


def entry_of(loader: BootLoader, identity: str) -> BootEntry:
    problem = f"{loader.name} has no entry {identity!r}; klat campaign kernels lists the entries"
    return loader.entry(identity, problem)


def entry_copies(loader: BootLoader, campaign: Campaign) -> list[OwnEntry]:
    """klat's entries for all boots of the campaign, in the order of their first boot."""
    settings = dict.fromkeys(boot.setting for boot in campaign.boots())
    return [entry_copy(loader, setting) for setting in settings]


def entry_copy(loader: BootLoader, setting: BootSetting) -> OwnEntry:
    entry = entry_of(loader, setting.entry)
    check_files(entry)
    return copy_of(entry, setting, loader.own_words)


def copy_of(entry: BootEntry, setting: BootSetting, own_words: Sequence[str]) -> OwnEntry:
    """klat's copy of an entry: with the words of the setting, klat's own, and panic= unless the kernel reboots after a
    panic anyway."""
    append = (*setting.append.split(), *own_words, OWN_WORD + setting.label)
    if not reboots_after_panic((*entry.words, *append)):
        append = (*append, _PANIC)
    return OwnEntry(setting.label, entry, append)
