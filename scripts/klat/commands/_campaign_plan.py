"""`klat campaign plan`: writes what a campaign will measure, and prints it."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TYPE_CHECKING

from klat.base import files
from klat.base.errors import KlatError, did_you_mean
from klat.commands import _campaign_state, _session_options, add_command
from klat.commands._types import add_number, add_repeatable, number
from klat.record import session_directory
from klat.record.json_files import MOST_BOOTS, MOST_LOOKS
from klat.record.profiles import PROFILES
from klat.running import choices

if TYPE_CHECKING:
    from klat.campaign.boot_loader import BootEntry, BootLoader
    from klat.campaign.campaign_file import BootSetting

# A label is part of the file name of a boot entry. There, systemd-boot takes a + as the start of a counter.
# GRUB parses the parameters of a setting like a shell, so they have no quotes, $, ; or the like.
_LABEL = re.compile(r"[\w.-]+", re.ASCII)
_WORDS = re.compile(r"[\w.+@%,:/= -]+", re.ASCII)

_NEXT = """\
next: sudo klat campaign check
after the check, klat campaign status says how long the campaign takes"""

_EPILOG = """\
ENTRY is a release or a title in the list of klat campaign kernels, or the boot
loader's identifier of an entry. In each round every kernel boots once. klat
compare takes the boots of one round as a pair.

{profiles}
examples:
  klat campaign plan --kernel stock=6.1.0-56-amd64 \\
      --kernel rt=6.1.0-56-rt-amd64 --boots 20
      20 boots of each, the five programs 500 times in each boot
      (with --looks 2: 10 of each, if these settle every metric)
  klat campaign plan --kernel stock=6.1.0-56-amd64 --setting nohz=nohz_full=1 \\
      --boots 10 timer --runs 100
      one kernel, without and with a parameter on its command line
"""


def add_parser(actions: Any) -> None:
    parser = add_command(
        actions,
        "plan",
        "choose what to measure, and show what will happen",
        "Writes the plan of a campaign, and prints what will happen. Boots nothing.\n",
        _EPILOG.format(profiles=_session_options.profiles_text()),
    )
    add_options(parser)
    parser.set_defaults(func=_plan)


def add_options(parser: argparse.ArgumentParser) -> None:
    _session_options.add_benchmarks(parser)
    _session_options.add_measure(parser, "profile")
    add = parser.add_argument
    help_text = "a kernel to measure; repeatable"
    add_repeatable(add, "--kernel", "LABEL=ENTRY", help_text, _named, required=True)
    help_text = (
        "also measure each kernel with these parameters added to its command line; repeatable"
    )
    add_repeatable(add, "--setting", "LABEL=WORDS", help_text, _named)
    help_text = "boots of each kernel and setting"
    add_number(add, "--boots", 1, MOST_BOOTS, help_text, required=True)
    help_text = (
        "compare at most K times, the last time at the end; end early if every metric is settled;"
        " the chance that any look errs is at most alpha"
    )
    add("--looks", type=number(1, MOST_LOOKS), metavar="K", help=help_text)
    _session_options.add_runs(parser, "runs of each program in a boot (default: 500)")
    _session_options.add_measure(
        parser, *_session_options.SESSION, load=_session_options.several_loads()
    )
    _campaign_state.add_boot_options(parser)
    add("--notify", metavar="COMMAND", help="a shell command to run at the end")
    help_text = "copy the results to this rsync destination after each boot"
    add("--copy-to", metavar="TARGET", help=help_text)


def _named(text: str) -> tuple[str, str]:
    label, equals, rest = text.partition("=")
    if not equals or not rest.strip():
        raise ValueError(f"{text!r} must have the form LABEL=ENTRY or LABEL=WORDS")
    if not _LABEL.fullmatch(session_directory.check_label(label)):
        raise ValueError(f"the label {label!r} must have only letters, digits, and . _ -")
    return label, rest.strip()


def _plan(arguments: argparse.Namespace) -> int:
    from klat.campaign.campaign_file import Campaign, write_campaign
    from klat.campaign.campaign_text import plan_lines
    from klat.campaign.looks import planned_looks, refuse_other_sessions
    from klat.campaign.this_machine import check_code, check_machine
    from klat.campaign.without_menu import WithoutMenu
    from klat.report.text.columns import wrapped
    from klat.report.text.numbers import too_few_units
    from klat.running.loads import IDLE

    _campaign_state.need_root("plan")
    _campaign_state.refuse_other_programs()
    if _campaign_state.STATE.exists():
        _refuse_under_way()
    loader = _campaign_state.this_loader(arguments)
    loader.check()
    warnings = [*check_machine(), *_emulated()]
    benchmarks = choices.benchmarks(_session_options.named(arguments), arguments.profile)
    check_code(benchmarks, loader.tools)
    sets = _session_options.parameter_sets(arguments, benchmarks, profile=arguments.profile)
    choices.check_options(sets, later=True)
    profile = PROFILES[arguments.profile] if arguments.profile else None
    loads = choices.loads_of(arguments.load, arguments.profile)
    for load in loads:
        choices.checked_load(None if load == IDLE else load)
    entries = loader.entries()
    settings = _settings(arguments, entries, loader.why_left_out)
    warnings += too_few_units("--boots", arguments.boots, len(settings), sets, True)
    default = loader.default()
    used = _checked(loader, entries, settings, default)
    campaign = Campaign(
        identity=secrets.token_hex(8),
        settings=tuple(settings),
        rounds=arguments.boots,
        seed=_session_options.seed(arguments),
        sets=tuple(sets),
        runs=arguments.runs or (profile.runs if profile else 500),
        loads=tuple(loads),
        profile=arguments.profile,
        output=_writable_output(arguments),
        loader=loader.name,
        default=default.identity,
        created=session_directory.iso(session_directory.now()),
        notify=arguments.notify,
        copy_to=_copy_target(arguments.copy_to),
        default_words=loader.default_words if isinstance(loader, WithoutMenu) else None,
        boot_command=arguments.boot_command,
        releases={identity: entry.release for identity, entry in used.items()},
        looks=planned_looks(arguments.boots, arguments.looks) if arguments.looks else (),
        **_session_options.common(arguments),
    )
    refuse_other_sessions(campaign)
    write_campaign(_campaign_state.STATE, campaign)
    for line in plan_lines(campaign, entries):
        print(line)
    for warning in warnings:
        print("\n".join(wrapped(f"warning: {warning}", "", "  ")))
    print(_NEXT)
    return 0


def _checked(
    loader: BootLoader,
    entries: Sequence[BootEntry],
    settings: Sequence[BootSetting],
    default: BootEntry,
) -> Mapping[str, BootEntry]:
    """The entries of the settings by their identity. KlatError if one fails a check."""
    from klat.campaign.engine import copy_of
    from klat.campaign.entry_checks import check_entries, check_running
    from klat.campaign.this_machine import ThisMachine

    machine = ThisMachine()
    named = {entry.identity: entry for entry in entries}
    copies = [copy_of(named[setting.entry], setting, loader.own_words) for setting in settings]
    check_entries(copies, default, machine.words())
    is_booted = loader.booted() == default.identity
    check_running(default, machine.release(), machine.words(), is_booted)
    return {setting.entry: named[setting.entry] for setting in settings}


def _emulated() -> Iterator[str]:
    from klat.campaign.this_machine import ThisMachine
    from klat.machine import hardware_checks, machine_state

    if any(word.startswith("klat.mode=") for word in ThisMachine().words()):
        return
    if hardware_checks.is_emulated(machine_state.gather(seconds=0.1)):
        yield (
            "this machine is emulated in software: its times mean nothing, and klat compare gives no"
            " verdict on them; measure on hardware or under KVM"
        )


def _writable_output(arguments: argparse.Namespace) -> str:
    output = _session_options.output(arguments).absolute()
    with files.explained("make", output):
        files.make_directories(output)
    if not os.access(output, os.W_OK):
        raise KlatError(f"{output} cannot be written, but the sessions go there")
    return str(output)


def _copy_target(text: str | None) -> str | None:
    """A destination for rsync that does not depend on the current directory."""
    if text is None:
        return None
    if not text.strip():
        raise KlatError("--copy-to must name a directory, HOST:DIRECTORY or rsync://HOST/MODULE")
    if not shutil.which("rsync"):
        raise KlatError("--copy-to needs rsync, which is not installed")
    # As rsync does: a colon before the first slash makes it remote.
    return text if ":" in text.partition("/")[0] else str(Path(text).absolute())


def labels_of(arguments: argparse.Namespace) -> list[str]:
    """The labels of the campaign's sessions."""
    from klat.campaign.boot_sessions import label_under

    loads = choices.loads_of(arguments.load, arguments.profile)
    names = ["", *(f"-{name}" for name, _ in arguments.setting)]
    labels = [f"{label}{name}" for label, _ in arguments.kernel for name in names]
    return [label_under(label, load, loads) for label in labels for load in loads]


def _settings(
    arguments: argparse.Namespace, entries: list[BootEntry], why_left_out: Callable[[str], str]
) -> list[BootSetting]:
    """Each kernel, and each kernel with each setting."""
    from klat.campaign.boot_loader import OWN_WORD
    from klat.campaign.campaign_file import PANIC, BootSetting
    from klat.campaign.entry_checks import reboots_after_panic

    settings = []
    for label, text in arguments.kernel:
        if why := why_left_out(text):
            raise KlatError(f"--kernel {label}: {why}")
        entry = _entry(text, entries)
        settings.append(BootSetting(label, entry.identity))
        for name, words in arguments.setting:
            if not _WORDS.fullmatch(words):
                raise KlatError(
                    f"--setting {name}: GRUB may change {words!r} before the kernel has it; use only"
                    " letters, digits, spaces, and . _ + - @ % , : / ="
                )
            parameters = words.split()
            if "--" in parameters or OWN_WORD in words:
                raise KlatError(
                    f"--setting {name}: {words!r} overrides words that klat appends; remove -- and {OWN_WORD}"
                )
            panics = [word for word in parameters if word.startswith("panic=")]
            if panics and not reboots_after_panic(parameters):
                raise KlatError(
                    f"--setting {name}: remove {panics[-1]}, because the machine has to reboot after a panic"
                )
            settings.append(BootSetting(f"{label}-{name}", entry.identity, words))
    labels = labels_of(arguments)
    # As the FAT file system of a boot partition does.
    folded = [label.casefold() for label in labels]
    for label in labels:
        if folded.count(label.casefold()) > 1:
            raise KlatError(f"two kernels, settings or loads would have the same label, {label!r}")
        if label == PANIC:
            raise KlatError(f"klat itself uses the label {PANIC!r}; choose another one")
    if len(settings) < 2:
        raise KlatError("one kernel cannot take turns: give a second --kernel, or a --setting")
    return settings


def _entry(text: str, entries: list[BootEntry]) -> BootEntry:
    """The first entry with this identity, or else title, or else release. An entry of this title or release that can
    measure comes before a recovery entry. Entries of another system, for example of a snapshot, and rescue entries have
    a title or release only if no other entry has it. KlatError if these entries have different kernels.
    """
    from klat.campaign.entry_checks import obstacle, other_system
    from klat.campaign.this_machine import ThisMachine

    running = ThisMachine().words()
    for name in ("identity", "title", "release"):
        matched = [entry for entry in entries if getattr(entry, name) == text]
        matched = [entry for entry in matched if not entry.doubt] or matched
        if name == "release":
            matched = [entry for entry in matched if not entry.is_rescue] or matched
        if name != "identity":
            matched = [e for e in matched if not other_system(e.words, running)] or matched
        if len({(entry.kernel, entry.image) for entry in matched}) > 1:
            raise KlatError(
                f"--kernel: {text!r} is the {name} of entries with different kernels; give one of"
                f" {', '.join(repr(entry.identity) for entry in matched)}"
            )
        if matched and not matched[0].release:
            raise KlatError(
                f"--kernel: klat finds no release of a kernel for {text!r}, neither in a file nor in its name."
                " The entry may boot another system, from which no campaign returns; give another entry"
            )
        if matched:
            return next((e for e in matched if not obstacle(e.words, running)), matched[0])
    known = [entry.release for entry in entries] + [entry.title for entry in entries]
    raise KlatError(
        f"--kernel: the boot menu has no entry {text!r}{did_you_mean(text, known)}; klat campaign"
        " kernels lists the entries"
    )


def _refuse_under_way() -> None:
    from klat.campaign.campaign_file import ENDED, PLANNED, read_campaign

    campaign = read_campaign(_campaign_state.STATE)
    if campaign.phase not in (PLANNED, ENDED):
        raise KlatError(f"{campaign.state}; wait until it ends, or run klat campaign abort")
