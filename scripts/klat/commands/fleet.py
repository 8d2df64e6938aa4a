"""`klat fleet`: campaigns on many machines, by Ansible."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from klat.base.errors import KlatError
from klat.commands import SUMMARIES, _campaign_plan, _fleet_playbook, _session_options, add_command
from klat.commands._types import add_flag, number

_DESCRIPTION = """\
Measures kernels on many machines at the same time, by klat campaign on each.
Ansible copies klat to the machines and brings the sessions back. The machines
need Python 3.11, systemd and root. No package is installed. The campaigns
continue if this machine is off.
"""

_EPILOG = """\
If klat fleet run is interrupted, the same command watches the campaigns again.
It measures no complete machine twice. Sessions go to LABEL/TIME-MACHINE. With
--seed N, the seed of a machine depends on N and the machine's name. If a
machine does not answer, klat runs the shell command in its inventory variable
klat_power_cycle. docs/fleet.md has the details.

Exit status: 0 all machines are complete; 1 some are not; 2 usage, input or
output.
"""

_DOCTOR_EPILOG = """\
Exit status: 0 all machines answered; 1 some did not; 2 usage, input or output.
"""

_RUN_EPILOG = """\
example:
  klat fleet run --inventory hosts.ini --kernel stock=6.1.0-56-amd64 \\
      --kernel rt=6.1.0-56-rt-amd64 --boots 20
"""


def add_parser(subparsers: Any) -> None:
    parser = add_command(subparsers, "fleet", SUMMARIES["fleet"], _DESCRIPTION, _EPILOG)
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, parser_class=type(parser)
    )
    epilog = f"{_session_options.profiles_text()}\n{_RUN_EPILOG}\n{_EPILOG}"
    run = add_command(actions, "run", "run a campaign on each machine", _DESCRIPTION, epilog)
    _add_options(run)
    _campaign_plan.add_options(run)
    run.set_defaults(func=_run)
    doctor = add_command(
        actions,
        "doctor",
        "run klat doctor on all machines, and list differences",
        "Runs klat doctor on all machines. Lists the findings that not all machines have.\n",
        _DOCTOR_EPILOG,
    )
    _add_machines(doctor)
    doctor.set_defaults(func=_doctor)


def _add_machines(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    help_text = "Ansible's inventory of the machines"
    kind = _fleet_playbook.inventory_path
    add("--inventory", required=True, type=kind, metavar="FILE", help=help_text)
    add("--limit", metavar="PATTERN", help="only these machines of the inventory")


def _add_options(parser: argparse.ArgumentParser) -> None:
    _add_machines(parser)
    add = parser.add_argument
    add_flag(add, "--check", "klat campaign check on each machine first")
    add_flag(add, "--keep", "leave klat and the sessions on the machines")
    add(
        "--patience",
        type=number(1, 10**4, "number of minutes"),
        default=30,
        metavar="MINUTES",
        help="leave out a machine after this time without an answer (default: 30)",
    )
    add(
        "--poll",
        type=number(1, 10**4, "number of seconds"),
        default=300,
        metavar="SECONDS",
        help="time between two polls of a machine; a poll disturbs it (default: 300)",
    )


def _plan_words(words: list[str]) -> list[str]:
    """The arguments for klat campaign plan, as typed. The role adds --output and --seed."""
    fleet_options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    _add_options(fleet_options)
    fleet_options.add_argument("--output")
    fleet_options.add_argument("--seed")
    return fleet_options.parse_known_args(words)[1]


def _run(arguments: argparse.Namespace) -> int:
    words = _plan_words(sys.argv[sys.argv.index("run") + 1 :])
    hosts = _fleet_playbook.hosts(arguments.inventory, arguments.limit)
    results = _session_options.output(arguments).absolute()
    labels = _fleet_playbook.unsafe(_campaign_plan.labels_of(arguments))
    record = _fleet_playbook.record_of(results, words, arguments.seed)
    for host in hosts:
        if _fleet_playbook.outcome(record, host) != _fleet_playbook.COMPLETE:
            (record / f"{host}.json").unlink(missing_ok=True)
    _fleet_playbook.prepare(record, arguments.limit)
    variables = {
        "klat_results": str(results),
        "klat_labels": labels,
        "klat_check": arguments.check,
        "klat_keep": arguments.keep,
        "klat_patience": arguments.patience,
        "klat_poll": arguments.poll,
    }
    _fleet_playbook.write_variables(record, variables)
    try:
        _fleet_playbook.play("fleet.yml", arguments.inventory, record, len(hosts))
    except KeyboardInterrupt:
        raise KlatError(
            "interrupted; the campaigns continue, and the same command watches them again", 130
        ) from None
    outcomes = {host: _fleet_playbook.outcome(record, host) for host in hosts}
    for host, text in outcomes.items():
        print(f"{host}: {text}")
    for alike in _fleet_playbook.with_one_id(results, hosts):
        print(
            f"warning: {' and '.join(alike)} have the same /etc/machine-id, so klat\n"
            "  compare takes them for one machine: on all but one, remove this file and run\n"
            "  systemd-machine-id-setup; then remove their sessions, and measure again"
        )
    if set(outcomes.values()) != {_fleet_playbook.COMPLETE}:
        return 1
    _fleet_playbook.forget(record)
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from klat.machine.findings import different_lines

    hosts = _fleet_playbook.hosts(arguments.inventory, arguments.limit)
    with tempfile.TemporaryDirectory() as directory:
        record = Path(directory)
        _fleet_playbook.prepare(record, arguments.limit)
        _fleet_playbook.play("doctor.yml", arguments.inventory, record, len(hosts))
        outcomes = {host: _fleet_playbook.outcome(record, host) for host in hosts}
        complete = [host for host in hosts if outcomes[host] == _fleet_playbook.COMPLETE]
        findings = {h: _fleet_playbook.machine_file(record, h)["findings"] for h in complete}
    for line in different_lines(findings):
        print(line)
    for host in hosts:
        if host not in complete:
            print(f"{host}: {outcomes[host]}")
    return 0 if complete == hosts else 1
