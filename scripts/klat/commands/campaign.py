"""`klat campaign`: many boots of this machine, in which kernels take turns, unattended."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TYPE_CHECKING

from klat.base import programs
from klat.base.errors import KlatError, printable
from klat.commands import SUMMARIES, _campaign_plan, _campaign_state, add_command, add_format
from klat.record import session_directory

if TYPE_CHECKING:
    from klat.campaign.boot_loader import BootLoader
    from klat.campaign.campaign_file import Campaign
    from klat.campaign.engine import Engine

_DESCRIPTION = """\
Boots the kernels of this machine in turns, unattended, and measures in each
boot. The order is random, in balanced blocks; the seed decides it. klat chooses
each kernel for one boot only. If a kernel fails, the machine comes back on its
default kernel, and klat repeats the boot.
"""

_EPILOG = """\
status needs no root. kernels needs root if only root may read the boot menu.
The other actions need root. The state is in /var/lib/klat/campaign.json. klat
adds a systemd unit, and entries to the menu of GRUB, systemd-boot or the UEFI
firmware. It removes them at the end. It never changes the default of the menu.
--kexec and --boot-command need no menu.

After a power cut the campaign continues when the machine is on again. klat
moves the sessions of the interrupted boot to LABEL/.failed, and repeats the
boot. If a kernel fails twice in succession, the campaign ends on the default
kernel. docs/campaign.md has the details.

Exit status: 0 done; 2 usage, or the action was refused or failed.
"""

_CHECK = """
The machine reboots at once. klat measures one run of each program in each
kernel. Then it boots the default kernel with a command line that makes it
panic, and the machine must come back by itself. After the check, klat campaign
status says how long the campaign takes.
"""

_START = """
After each boot klat waits until the machine is idle and cool, measures, and
boots the next kernel. At the end the machine is on its default kernel.
klat campaign status shows the progress.
"""

_PAUSE = """
klat campaign resume continues.
"""

_RESUME = """
klat repeats the boots that do not count. After an early end, for example by
failures or by klat campaign abort, the machine reboots at once.
"""

_ABORT = """
The boot under way does not count: klat moves its sessions to LABEL/.failed.
The machine reboots if klat started this boot, or if a wrong kernel runs.
"""

_BY_HAND = (
    "klat has removed its systemd units; remove by hand its boot entries (GRUB: custom.cfg, and klat_entry"
    " in grubenv; systemd-boot: loader/entries/a-klat-*.conf; UEFI: the boot options 'klat: LABEL') and"
    " {state}, then reboot"
)


def add_parser(subparsers: Any) -> None:
    parser = add_command(subparsers, "campaign", SUMMARIES["campaign"], _DESCRIPTION, _EPILOG)
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, parser_class=type(parser)
    )
    kernels = _add(actions, "kernels", _kernels, "list the entries of the boot menu")
    _campaign_state.add_boot_options(kernels)
    _campaign_plan.add_parser(actions)
    for name, function, summary, more in (
        ("check", _begin, "boot each kernel once, then one that panics", _CHECK),
        ("start", _begin, "start the campaign; the machine reboots at once", _START),
        ("pause", _pause, "finish the boot under way, and return to the default kernel", _PAUSE),
        ("resume", _resume, "continue after a pause, or after an early end", _RESUME),
        ("abort", _abort, "end the campaign at once, and remove what klat added", _ABORT),
        ("proceed", _proceed, "for klat's systemd unit, which calls it after each boot", ""),
    ):
        _add(actions, name, function, summary, more)
    status = _add(actions, "status", _status, "show the progress of the campaign")
    add_format(status.add_argument, "json")


def _add(
    actions: Any, name: str, function: Any, summary: str, more: str = ""
) -> argparse.ArgumentParser:
    parser = add_command(actions, name, summary, f"{summary[0].upper()}{summary[1:]}.\n{more}")
    parser.set_defaults(func=function)
    return parser


def _kernels(arguments: argparse.Namespace) -> int:
    from klat.campaign.campaign_text import entry_lines, left_out_lines

    loader = _campaign_state.this_loader(arguments)
    entries = loader.entries()
    doubts = {entry.title: entry.doubt for entry in entries if entry.doubt}
    left_out = [*left_out_lines({**loader.left_out(), **doubts})]
    try:
        default = loader.default()
    except KlatError:
        if entries:  # the user must choose one of them
            print(*entry_lines(entries, None), *left_out, sep="\n", flush=True)
        raise
    print(*entry_lines(entries, default), *left_out, sep="\n")
    return 0


def _begin(arguments: argparse.Namespace) -> int:
    """klat campaign check, or start."""
    from klat.campaign.campaign_file import ENDED, PLANNED, read_campaign
    from klat.campaign.boot_sessions import check_space

    _campaign_state.need_root(arguments.action)
    is_check = arguments.action == "check"
    campaign = read_campaign(_campaign_state.STATE)
    checked = campaign.is_check and campaign.phase == ENDED
    if campaign.phase != PLANNED and not checked:
        raise KlatError(f"{campaign.state}; see klat campaign status")
    if checked and not is_check:
        if campaign.ended_early:
            raise KlatError(f"the check ended early: {campaign.why}; run klat campaign check again")
        check_space(campaign)
    _run(campaign, replace(campaign, is_check=is_check, attempts=(), resumed_after=0))
    return 0


def _run(campaign: Campaign, begun: Campaign) -> None:
    """Add what a campaign adds to the machine, replace the campaign by `begun`, and request the next boot."""
    from klat.campaign.campaign_file import RUNNING
    from klat.campaign.engine import alone, change_campaign, entry_copies, entry_of
    from klat.campaign.entry_checks import check_entries
    from klat.campaign.this_machine import ThisMachine, check_code, install_unit, launcher
    from klat.campaign.this_machine import start_unit

    _campaign_state.refuse_other_programs()
    loader = _campaign_state.loader_of(campaign)
    loader.check()
    entries = [entry_of(loader, setting.entry) for setting in campaign.settings]
    for entry in entries:
        planned = campaign.releases.get(entry.identity, entry.release)
        if entry.release != planned:
            raise KlatError(
                f"{entry.title} now boots {entry.release or 'another kernel'}, but the plan measures"
                f" {planned}; plan again"
            )
    copies = entry_copies(loader, replace(begun, is_check=False))
    check_entries(copies, entry_of(loader, campaign.default), ThisMachine().words())
    check_code((name for name, _ in campaign.sets), loader.tools)
    for name, _ in campaign.sets:
        programs.require(name)
    with alone(_campaign_state.STATE), _undone_after_failure(loader, campaign):
        loader.remove()  # what is left of a start that a power cut interrupted
        files = dict(loader.files())
        begun = replace(begun, phase=RUNNING, why="", files=files, changed=())
        loader.install(entry_copies(loader, begun))
        command = [sys.executable, str(launcher()), "campaign", "proceed"]
        install_unit(command, (str(launcher()), str(programs.directory()), campaign.output))
        change_campaign(_campaign_state.STATE, lambda _: begun)
    print("the machine reboots now; klat campaign status shows the progress", flush=True)
    with _undone_after_failure(loader, campaign):
        start_unit()


@contextmanager
def _undone_after_failure(loader: BootLoader, campaign: Campaign) -> Iterator[None]:
    """If this fails, remove what klat added, and restore the campaign."""
    from klat.campaign.engine import change_campaign
    from klat.campaign.this_machine import ThisMachine

    try:
        yield
    except BaseException:  # also Ctrl-C
        loader.remove()
        ThisMachine().withdraw()
        change_campaign(_campaign_state.STATE, lambda _: campaign)
        raise


def _status(arguments: argparse.Namespace) -> int:
    from klat.campaign.boot_sessions import unusable_runs
    from klat.campaign.campaign_file import ENDED, RUNNING, read_campaign
    from klat.campaign.campaign_text import status_lines, unusable_lines
    from klat.campaign.this_machine import is_unit_installed

    campaign = read_campaign(_campaign_state.STATE)
    if arguments.format == "json":
        print(json.dumps(_status_facts(campaign), indent=2))
        return 0
    for line in status_lines(campaign, session_directory.now()):
        print(line)
    if campaign.phase == ENDED:  # to read all sessions earlier would disturb the measurement
        for line in unusable_lines(unusable_runs(campaign)):
            print(line)
    if campaign.phase == RUNNING and not is_unit_installed():
        print(
            "klat's systemd unit is gone, so the campaign does not continue:\n"
            "  run sudo klat campaign abort"
        )
    return 0


def _status_facts(campaign: Campaign) -> dict[str, Any]:
    """`home`: the campaign did not start this boot. `unit`: klat's systemd unit is installed."""
    from klat.campaign.boot_loader import is_of_campaign
    from klat.campaign.this_machine import ThisMachine, is_unit_installed

    return {
        "schema": 1,
        "name": campaign.name,
        "phase": campaign.phase,
        "complete": campaign.is_complete,
        "why": campaign.why,
        "done": len(campaign.done()),
        "boots": len(campaign.boots()),
        "output": campaign.output,
        "home": not is_of_campaign(ThisMachine().words()),
        "unit": is_unit_installed(),
    }


def _pause(arguments: argparse.Namespace) -> int:
    from klat.campaign.campaign_file import PAUSED, RUNNING
    from klat.campaign.engine import change_phase

    _campaign_state.need_root("pause")
    change_phase(_campaign_state.STATE, (RUNNING,), PAUSED)
    print("klat finishes the boot under way, and returns to the default kernel")
    return 0


def _resume(arguments: argparse.Namespace) -> int:
    from klat.campaign.campaign_file import PAUSED, RUNNING, read_campaign
    from klat.campaign.engine import change_phase
    from klat.campaign.this_machine import start_unit

    _campaign_state.need_root("resume")
    campaign = read_campaign(_campaign_state.STATE)
    if campaign.ended_early and not campaign.is_check:
        _run(campaign, campaign.resumed())
        return 0
    change_phase(_campaign_state.STATE, (PAUSED,), RUNNING)
    start_unit()
    print("the campaign continues; the machine reboots now, or after a boot under way")
    return 0


def _abort(arguments: argparse.Namespace) -> int:
    from klat.campaign.campaign_file import ENDED, read_campaign
    from klat.campaign.this_machine import ThisMachine, stop_unit

    _campaign_state.need_root("abort")
    try:
        campaign = read_campaign(_campaign_state.STATE)
    except KlatError as error:
        if _campaign_state.STATE.exists():
            stop_unit()
            ThisMachine().withdraw()
            raise KlatError(f"{error}; {_BY_HAND.format(state=_campaign_state.STATE)}") from None
        raise
    if campaign.phase == ENDED:
        raise KlatError(f"{campaign.state}; see klat campaign status")
    stop_unit()
    print("aborted; if this is a boot of the campaign, the machine reboots now", flush=True)
    _engine().give_up("aborted")
    return 0


def _proceed(arguments: argparse.Namespace) -> int:
    _campaign_state.need_root("proceed")
    engine = _engine()
    try:
        engine.proceed()
    except Exception as error:  # after any error, the machine must return to its default kernel
        engine.give_up(printable(str(error)) or type(error).__name__)
        raise
    return 0


def _engine() -> Engine:
    from klat.campaign.campaign_file import read_campaign
    from klat.campaign.engine import Engine
    from klat.campaign.this_machine import ThisMachine

    loader = _campaign_state.loader_of(read_campaign(_campaign_state.STATE))
    return Engine(
        _campaign_state.STATE, loader, ThisMachine(), lambda line: print(line, flush=True)
    )
