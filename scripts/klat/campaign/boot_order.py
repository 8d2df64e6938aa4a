"""The boots of a campaign: which settings, in which order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from klat.record.plan_csv import alternating_rounds, seed_of_boot

PANIC = "panic"  # the label of the boot whose kernel must panic


@dataclass(frozen=True)
class BootSetting:
    """What a label stands for: a boot entry, with words appended to the kernel's command line."""

    label: str
    entry: str  # as the boot loader names it
    append: str = ""


@dataclass(frozen=True)
class CampaignBoot:
    number: int  # from 1
    round: int  # from 1; each setting boots once in a round
    setting: BootSetting
    seed: int  # for the order of the boot's runs
    panics: bool = False  # the kernel must panic, and the default kernel must boot next


def boot_order(settings: Sequence[BootSetting], rounds: int, seed: int) -> list[CampaignBoot]:
    """All boots, in the order of alternating_rounds()."""
    drawn = alternating_rounds(len(settings), rounds, random.Random(seed), carries=True)
    places = ((in_round, index) for in_round, order in enumerate(drawn, 1) for index in order)
    return [
        CampaignBoot(number, in_round, settings[index], seed_of_boot("campaign", seed, number))
        for number, (in_round, index) in enumerate(places, 1)
    ]


# The kernel finds neither this program in the initramfs nor this root device, so it panics.
_PANICS = "rdinit=/klat-panics root=/dev/klat-panics init=/klat-panics"


def check_order(
    settings: Sequence[BootSetting], default: str, seed: int, panics_at_start: bool
) -> list[CampaignBoot]:
    """The boots of a check: each setting once, then one in which the kernel of the default entry panics: at
    its start, or when klat makes it panic."""
    boots = boot_order(settings, 1, seed)
    drill = BootSetting(PANIC, default, _PANICS if panics_at_start else "")
    return [*boots, CampaignBoot(len(boots) + 1, 1, drill, 0, panics=True)]
