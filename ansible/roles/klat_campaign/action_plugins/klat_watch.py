"""klat_watch: waits across all reboots until a machine's campaign has ended.

Arguments: klat, its path; patience, minutes; poll, seconds; power_cycle, a shell command on the controller, or
empty. Returns `status`, what klat campaign status prints as JSON.
"""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

# After a power cut of the machine, ssh ends after 30 seconds. Without these options it takes 15 minutes.
_KEEP_ALIVE = "-o ServerAliveInterval=5 -o ServerAliveCountMax=6"
_POWER_CYCLE_S = 600
_REFUSED = (2, 126, 127)  # exit statuses: of klat, or of a shell that cannot run klat


class ActionModule(ActionBase):
    _VALID_ARGS = frozenset(("klat", "patience", "poll", "power_cycle"))

    def run(self, tmp: object = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = self._task.args
        self._host = (task_vars or {}).get("inventory_hostname", "")
        self._said = ""
        self._keep_alive()
        try:
            status = self._watch(
                f"{given['klat']} campaign status --format json",
                60 * float(given["patience"]),
                float(given["poll"]),
                given.get("power_cycle") or "",
            )
        except AnsibleError as error:
            return result | {"failed": True, "msg": str(error)}
        return result | {"status": status}

    def _watch(self, command: str, patience: float, poll: float, power_cycle: str) -> Any:
        """The status of the campaign after its end. AnsibleError if the campaign cannot end."""
        answered = time.monotonic()
        is_cycled = False
        while True:
            status = self._status(command)
            if status is not None:
                answered, is_cycled = time.monotonic(), False
                self._say(
                    f"{status['name']} {status['phase']}: {status['done']} of {status['boots']} boots"
                )
                if not _is_under_way(status):
                    return status
            elif time.monotonic() - answered > patience:
                if is_cycled or not power_cycle:
                    again = ", also after klat_power_cycle" if is_cycled else ""
                    raise AnsibleError(f"no answer for {patience / 60:g} minutes{again}")
                self._say(f"no answer for {patience / 60:g} minutes; running klat_power_cycle")
                _run_here(power_cycle)
                answered, is_cycled = time.monotonic(), True
            time.sleep(poll)

    def _status(self, command: str) -> Any:
        """The status from the machine. None without an answer; AnsibleError if klat refuses."""
        try:
            # A connection that was open before a reboot does not answer any more.
            if hasattr(self._connection, "reset"):
                self._connection.reset()
            done = self._low_level_execute_command(command)
        except AnsibleError:
            return None
        try:
            return json.loads(done["stdout"])
        except ValueError:
            lines = done["stderr"].strip().splitlines()
            if done["rc"] in _REFUSED and lines:
                raise AnsibleError(lines[-1]) from None
        return None  # for example, a shutdown killed klat

    def _keep_alive(self) -> None:
        if self._connection.transport == "ssh":
            own = self._connection.get_option("ssh_extra_args") or ""
            self._connection.set_option("ssh_extra_args", f"{own} {_KEEP_ALIVE}".strip())

    def _say(self, text: str) -> None:
        if text != self._said:
            Display().display(f"{self._host}: {text}")
            self._said = text


def _is_under_way(status: Any) -> bool:
    """An ended campaign is under way until the machine is back on its default kernel."""
    if status["phase"] == "running" and not status["unit"]:
        raise AnsibleError(
            "klat's systemd unit is gone, so the campaign does not continue; run klat campaign abort"
        )
    return status["phase"] in ("running", "paused") or not status["home"]


def _run_here(command: str) -> None:
    try:
        done = subprocess.run(
            command, shell=True, timeout=_POWER_CYCLE_S, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        raise AnsibleError(f"klat_power_cycle did not end in {_POWER_CYCLE_S} s") from None
    if done.returncode:
        raise AnsibleError(f"klat_power_cycle ended with status {done.returncode}")
