"""The boots of a campaign: which settings, in which order."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from klat.record.plan_csv import shuffle

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
    """All boots, in order. Two rounds are a block: a random order, then its reverse. For two settings
    this is A B B A or B A A B. A steady drift therefore affects all settings of a block equally. If
    the number of rounds is odd, the last round is not reversed.
    """
    draw = random.Random(seed)
    order = list(range(len(settings)))
    boots: list[CampaignBoot] = []
    for number_of_round in range(1, rounds + 1):
        if number_of_round % 2:
            shuffle(order, draw)
        else:
            order.reverse()
        for index in order:
            number = len(boots) + 1
            boots.append(
                CampaignBoot(number, number_of_round, settings[index], _seed_of(seed, number))
            )
    return boots


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


def _seed_of(seed: int, number: int) -> int:
    digest = hashlib.sha256(f"klat campaign {seed} {number}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
