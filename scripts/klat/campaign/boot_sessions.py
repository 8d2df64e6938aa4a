"""The sessions that a campaign records in a boot: one under each load."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from klat.base.errors import KlatError, SessionError, ends_all, worst
from klat.campaign.campaign_file import Campaign, CampaignBoot, DONE
from klat.record import plan_csv, session_directory
from klat.record.json_files import read_run_json
from klat.record.rows import USABLE
from klat.record.session import read_session
from klat.running import recording
from klat.running.loads import IDLE
from klat.running.recording import Settings
from klat.running.runner import Runner


def label_under(label: str, load: str, loads: Sequence[str]) -> str:
    """The label of a setting's sessions under a load."""
    word = "" if load == IDLE else os.path.basename(load.split()[0])
    return "-".join(filter(None, (label, word))) if len(loads) > 1 else label


def measure_boot(campaign: Campaign, boot: CampaignBoot) -> int:
    """Record the sessions of this boot, and complete those that exist. Returns the worst exit status of
    klat run."""
    begun = {read_run_json(s).get("load"): s for s in sessions_of(campaign)}
    statuses = []
    for load in campaign.loads:
        under = None if load == IDLE else load
        if under in begun:
            statuses.append(Runner([begun[under]]).run(resumed=True))
        else:
            statuses.append(Runner([_begin(campaign, boot, load)]).run())
        if ends_all(statuses[-1]):
            break
    return worst(statuses)


def sessions_of(campaign: Campaign, boot_id: str | None = None) -> list[Path]:
    """The sessions that the campaign recorded in the boot `boot_id`. None: in the current boot."""
    wanted = boot_id or session_directory.boot_id()
    return [session for session, its_boot in _sessions(campaign) if its_boot == wanted]


def _sessions(campaign: Campaign) -> Iterator[tuple[Path, str | None]]:
    """The sessions of the campaign that are not set aside, each with the id of its boot."""
    for session in sorted(Path(campaign.output).glob("*/*")):
        try:
            facts = read_run_json(session) if session.is_dir() else {}
        except SessionError:
            continue  # damaged, so its boot is not known
        pairing = facts.get("pairing") or {}
        if pairing.get("experiment") == campaign.identity:
            yield session, facts.get("boot_id")


def unusable_runs(campaign: Campaign) -> dict[Path, tuple[int, int]]:
    """Of each label: how many runs of its measured boots do not count, and how many runs there are. By the label's
    directory, without labels whose runs all count."""
    boots = {attempt.boot_id for attempt in campaign.attempts if attempt.outcome == DONE}
    counts: dict[Path, tuple[int, int]] = {}
    for path, boot_id in _sessions(campaign.of_boots()):
        if boot_id not in boots:
            continue
        try:
            runs = read_session(path).runs
        except SessionError:
            continue  # klat summary says what is wrong with it
        unusable = sum(any(row.status not in USABLE for row in rows) for rows in runs)
        unusable_before, runs_before = counts.get(path.parent, (0, 0))
        counts[path.parent] = unusable_before + unusable, runs_before + len(runs)
    return {label: count for label, count in counts.items() if count[0]}


def check_space(campaign: Campaign) -> None:
    """KlatError if the disk has too little space for the campaign. `campaign` is its complete check. The
    sessions of the check have one run of each program. A session of the campaign has `runs` runs of each,
    so its samples take `runs` times the space.
    """
    boots = [a for a in campaign.attempts if a.boot_id]
    sizes = [_bytes(s) for a in boots for s in sessions_of(campaign.of_boots(), a.boot_id)]
    per_setting = sum(rest + campaign.runs * samples for samples, rest in sizes)
    needed, free = campaign.rounds * per_setting, shutil.disk_usage(campaign.output).free
    if free < needed:
        raise KlatError(
            f"{campaign.output}: the campaign needs about {needed >> 20} MiB, but only"
            f" {free >> 20} MiB are free"
        )


def _bytes(session: Path) -> tuple[int, int]:
    """The bytes that the samples of a session take on the disk, and the bytes of its other files."""
    samples = rest = 0
    for path in session.rglob("*"):
        status = path.lstat()
        if path.parent.name == "samples":
            samples += status.st_size
        else:
            rest += 512 * status.st_blocks
    return samples, rest


def _begin(campaign: Campaign, boot: CampaignBoot, load: str) -> Path:
    label = label_under(boot.setting.label, load, campaign.loads)
    settings = Settings(
        label,
        boot.seed,
        load=None if load == IDLE else load,
        profile=campaign.profile,
        pause_ms=campaign.pause_ms,
        time_limit_s=campaign.time_limit_s,
    )
    schedule = plan_csv.make(campaign.sets, campaign.runs, boot.seed)
    session = session_directory.create(Path(campaign.output), label)
    pairing: dict[str, Any] = {"experiment": campaign.identity, "pair": str(boot.round)}
    if campaign.looks:
        pairing["looks"] = list(campaign.looks)
    under_test = {"experiment": campaign.identity, "append": boot.setting.append}
    more = {"pairing": pairing, "under_test": under_test}
    with session_directory.removed_unless_begun(session):
        recording.write(session, settings, schedule, sys.argv, more)
    return session
