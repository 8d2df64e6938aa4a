"""`klat campaign`: many boots of this machine, in which kernels take turns, unattended."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klat.base import files, programs
from klat.base.errors import KlatError, did_you_mean, printable
from klat.commands import _session_options, add_command
from klat.record import session_directory
from klat.record.json_files import MOST_BOOTS
from klat.record.profiles import PROFILES

if TYPE_CHECKING:
    from klat.campaign.boot_loader import BootEntry
    from klat.campaign.boot_order import BootSetting
    from klat.campaign.campaign_file import Campaign
    from klat.campaign.engine import Engine
    from klat.campaign.grub import Grub

STATE = Path("/var/lib/klat/campaign.json")
# A label is part of the name of a GRUB entry, and of a path. A word goes through GRUB's parser.
_LABEL = re.compile(r"[\w.+-]+", re.ASCII)
_WORDS = re.compile(r"[\w.+@%,:/= -]+", re.ASCII)

_DESCRIPTION = """\
Boots the kernels of this machine in turns, and measures in each boot, without
anybody at the machine. The order is drawn from the seed, in balanced blocks.
Each boot is chosen for once: if a kernel fails, the machine comes back on its
default kernel, and klat tries this boot again.
"""

_EPILOG = """\
All but status need root, and kernels where only root may read GRUB's menu. The
state is in /var/lib/klat/campaign.json. klat adds entries to GRUB's custom.cfg
and a systemd unit, and removes both at the end. It never changes the default of
the boot menu.

After a power cut the campaign goes on by itself. What the boot under way had
recorded is kept in LABEL/.failed, and the boot is repeated. If a kernel fails
twice in succession, the campaign ends on the default kernel. docs/campaign.md
has more.

Exit status: 0 done; 2 usage, or this machine cannot do it.
"""

_PLAN_EPILOG = """\
ENTRY is what klat campaign kernels lists: a release, a title or an identity.
klat compare takes the boots of one round as a pair. klat run --help says what is
in a profile.

examples:
  klat campaign plan --kernel stock=6.1.0-56-amd64 --kernel rt=6.1.0-56-rt-amd64 \\
      --boots 20
      20 boots of each, the five programs 500 times in each boot
  klat campaign plan --kernel stock=6.1.0-56-amd64 --setting nohz=nohz_full=1 \\
      --boots 10 timer --runs 100
      one kernel, without and with a word on its command line
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(
        subparsers, "campaign", "boot kernels in turns, and measure each", _DESCRIPTION, _EPILOG
    )
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, parser_class=type(parser)
    )
    _add(actions, "kernels", _kernels, "list the entries of the boot menu")
    _add_plan(actions)
    for name, function, summary in (
        ("check", _check, "boot each kernel once, and one that panics"),
        ("start", _start, "begin; the machine reboots at once"),
        ("status", _status, "how far it is"),
        ("pause", _pause, "stop after the session under way, on the default kernel"),
        ("resume", _resume, "go on"),
        ("abort", _abort, "end it, and leave nothing behind"),
        ("proceed", _proceed, "what the systemd unit calls after each boot"),
    ):
        _add(actions, name, function, summary)


def _add(actions: Any, name: str, function: Any, summary: str) -> None:
    sentence = f"{summary[0].upper()}{summary[1:]}.\n"
    add_command(actions, name, summary, sentence).set_defaults(func=function)


def _add_plan(actions: Any) -> None:
    parser = add_command(
        actions,
        "plan",
        "say what to measure, and what will happen",
        "Plans a campaign; boots nothing.\n",
        _PLAN_EPILOG,
    )
    _session_options.add_benchmarks(parser)
    _session_options.add_profile(parser)
    add = parser.add_argument
    add(
        "--kernel",
        action="append",
        default=[],
        required=True,
        type=_session_options.checked(_named),
        metavar="LABEL=ENTRY",
        help="a kernel to measure; repeatable",
    )
    add(
        "--setting",
        action="append",
        default=[],
        type=_session_options.checked(_named),
        metavar="LABEL=WORDS",
        help="measure each kernel also with these words on its command line; repeatable",
    )
    add(
        "--boots",
        required=True,
        type=_session_options.number(1, MOST_BOOTS),
        metavar="N",
        help="boots of each kernel and setting",
    )
    _session_options.add_runs(parser, "runs of each program in a boot (default: 500)")
    _session_options.add_shared(parser, several_loads=True)
    add("--notify", metavar="COMMAND", help="a shell command to run at the end")
    add("--copy-to", metavar="TARGET", help="copy the results there by rsync after each boot")
    parser.set_defaults(func=_plan)


def _named(text: str) -> tuple[str, str]:
    label, equals, rest = text.partition("=")
    if not equals or not rest.strip():
        raise ValueError(f"{text!r} must be a label, '=' and what it stands for")
    if not _LABEL.fullmatch(session_directory.check_label(label)):
        raise ValueError(f"the label {label!r} can hold only letters, digits, and . _ + -")
    return label, rest.strip()


def _kernels(arguments: argparse.Namespace) -> int:
    from klat.campaign.campaign_text import entry_lines

    loader = _loader()
    for line in entry_lines(loader.entries(), loader.default()):
        print(line)
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    from klat.campaign.campaign_file import Campaign, write_campaign
    from klat.campaign.campaign_text import plan_lines
    from klat.campaign.this_machine import check_machine
    from klat.report.text.columns import wrapped
    from klat.running.loads import IDLE

    _need_root("plan")
    if STATE.exists():
        _refuse_under_way()
    loader = _loader()
    loader.check()
    warnings = list(check_machine())
    benchmarks = _session_options.benchmarks(_session_options.named(arguments), arguments.profile)
    sets = _session_options.parameter_sets(arguments, benchmarks, profile=arguments.profile)
    profile = PROFILES[arguments.profile] if arguments.profile else None
    loads = arguments.load or (profile.loads if profile else [IDLE])
    for load in _session_options.different_loads(loads):
        _session_options.checked_load(None if load == IDLE else load)
    settings = _settings(arguments, loader.entries(), loads)
    if arguments.copy_to and not shutil.which("rsync"):
        raise KlatError("--copy-to needs rsync, which is not installed")
    output = _session_options.output(arguments).absolute()
    with files.explained("make", output):
        files.make_directories(output)
    campaign = Campaign(
        identity=secrets.token_hex(8),
        settings=tuple(settings),
        rounds=arguments.boots,
        seed=_session_options.seed(arguments),
        sets=tuple(sets),
        runs=arguments.runs or (profile.runs if profile else 500),
        loads=tuple(loads),
        profile=arguments.profile,
        output=str(output),
        loader=loader.name,
        default=loader.default().identity,
        created=session_directory.iso(session_directory.now()),
        notify=arguments.notify,
        copy_to=arguments.copy_to,
        **_session_options.common(arguments),
    )
    write_campaign(STATE, campaign)
    for line in plan_lines(campaign, loader.entries()):
        print(line)
    for warning in warnings:
        print("\n".join(wrapped(f"warning: {warning}", "", "  ")))
    print("next: sudo klat campaign check; klat campaign status then says how long it takes")
    return 0


def _settings(
    arguments: argparse.Namespace, entries: list[BootEntry], loads: Sequence[str]
) -> list[BootSetting]:
    """Each kernel, and each kernel with each setting."""
    from klat.campaign.boot_order import PANIC, BootSetting
    from klat.campaign.boot_sessions import label_under

    found = []
    for label, text in arguments.kernel:
        entry = _entry(text, entries)
        found.append(BootSetting(label, entry.identity))
        for name, words in arguments.setting:
            if not _WORDS.fullmatch(words):
                raise KlatError(
                    f"--setting {name}: GRUB would not pass {words!r} to the kernel as it is; give"
                    " letters, digits, and . _ + - @ % , : / ="
                )
            found.append(BootSetting(f"{label}-{name}", entry.identity, words))
    labels = [label_under(setting.label, load, loads) for setting in found for load in loads]
    for label in labels:
        if labels.count(label) > 1:
            raise KlatError(f"two kernels, settings or loads would have the label {label!r}")
        if label == PANIC:
            raise KlatError(f"the label {PANIC!r} is klat's own; give another one")
    if len(found) < 2:
        raise KlatError("one kernel cannot take turns: give a second --kernel, or a --setting")
    return found


def _entry(text: str, entries: list[BootEntry]) -> BootEntry:
    """The entry with this identity, title or release. A release has also an entry for recovery, which
    follows the ordinary one in the menu."""
    for entry in entries:
        if text in (entry.identity, entry.title, entry.release):
            return entry
    known = [entry.release for entry in entries] + [entry.title for entry in entries]
    raise KlatError(
        f"--kernel: the boot menu has no entry {text!r}{did_you_mean(text, known)}; klat campaign"
        " kernels lists them"
    )


def _check(arguments: argparse.Namespace) -> int:
    return _begin("check", is_check=True)


def _start(arguments: argparse.Namespace) -> int:
    return _begin("start", is_check=False)


def _begin(action: str, is_check: bool) -> int:
    from klat.campaign.campaign_file import ENDED, PLANNED, RUNNING, read_campaign
    from klat.campaign.engine import change_campaign, own_entries
    from klat.campaign.this_machine import ThisMachine, install_unit, start_unit

    _need_root(action)
    campaign = read_campaign(STATE)
    checked = campaign.is_check and campaign.phase == ENDED
    if campaign.phase != PLANNED and not checked:
        raise KlatError(f"{campaign.state}; klat campaign status says more")
    if checked and not is_check and not campaign.is_complete:
        raise KlatError(f"the check ended early: {campaign.why}; check again before the start")
    loader = _loader()
    loader.check()
    for name, _ in campaign.sets:
        programs.require(name)
    begun = replace(
        campaign,
        is_check=is_check,
        phase=RUNNING,
        why="",
        attempts=(),
        files=dict(loader.files()),
        changed=(),
    )
    try:
        loader.install(own_entries(loader, begun))
        install_unit([sys.executable, str(Path(sys.argv[0]).resolve()), "campaign", "proceed"])
        change_campaign(STATE, lambda _: begun)
        print("the machine reboots now; klat campaign status says how far it is", flush=True)
        start_unit()
    except KlatError:
        loader.remove()
        ThisMachine().withdraw()
        change_campaign(STATE, lambda _: campaign)
        raise
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from klat.campaign.campaign_file import read_campaign
    from klat.campaign.campaign_text import status_lines

    for line in status_lines(read_campaign(STATE), session_directory.now()):
        print(line)
    return 0


def _pause(arguments: argparse.Namespace) -> int:
    from klat.campaign.campaign_file import PAUSED, RUNNING
    from klat.campaign.engine import change_phase

    _need_root("pause")
    change_phase(STATE, (RUNNING,), PAUSED)
    print("the campaign stops after the session under way, on the default kernel")
    return 0


def _resume(arguments: argparse.Namespace) -> int:
    from klat.campaign.campaign_file import PAUSED, RUNNING
    from klat.campaign.engine import change_phase
    from klat.campaign.this_machine import start_unit

    _need_root("resume")
    change_phase(STATE, (PAUSED,), RUNNING)
    start_unit()
    print("the campaign goes on; the machine reboots at once")
    return 0


def _abort(arguments: argparse.Namespace) -> int:
    from klat.campaign.campaign_file import ENDED, read_campaign
    from klat.campaign.this_machine import stop_unit

    _need_root("abort")
    campaign = read_campaign(STATE)
    if campaign.phase == ENDED:
        raise KlatError(f"{campaign.state}; klat campaign status says more")
    stop_unit()
    print("aborted; if this is not the default kernel, the machine reboots now", flush=True)
    _engine().give_up("aborted")
    return 0


def _proceed(arguments: argparse.Namespace) -> int:
    _need_root("proceed")
    engine = _engine()
    try:
        engine.proceed()
    except Exception as error:  # whatever it is, the machine must not stay on another kernel
        engine.give_up(printable(str(error)) or type(error).__name__)
        raise
    return 0


def _loader() -> Grub:
    from klat.campaign.grub import Grub

    return Grub()


def _engine() -> Engine:
    from klat.campaign.engine import Engine
    from klat.campaign.this_machine import ThisMachine

    return Engine(STATE, _loader(), ThisMachine(), lambda line: print(line, flush=True))


def _need_root(action: str) -> None:
    if os.geteuid() != 0:
        raise KlatError(f"klat campaign {action} needs root: use sudo")


def _refuse_under_way() -> None:
    from klat.campaign.campaign_file import ENDED, PLANNED, read_campaign

    campaign = read_campaign(STATE)
    if campaign.phase not in (PLANNED, ENDED):
        raise KlatError(f"{campaign.state}; end it by klat campaign abort, or wait")
