"""The Ansible role of klat fleet: its syntax, how it watches a machine, and what it takes from one."""

import gzip
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_tools
import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from made_tools import write
from written_sessions import SyntheticSession

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "ansible/roles/klat_campaign"
FETCH = ROLE / "tasks/fetch.yml"
sys.path.append(str(ROLE / "action_plugins"))

import klat_watch  # noqa: E402

RUNNING: dict[str, Any] = {
    "name": "campaign",
    "phase": "running",
    "done": 1,
    "boots": 4,
    "home": False,
    "unit": True,
}
LAST_BOOT = RUNNING | {"phase": "ended"}
HOME = LAST_BOOT | {"home": True, "unit": False}


class WatchedMachine(klat_watch.ActionModule):
    """A machine with these answers, one for each look; None is no answer. A look takes a minute."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
        self._answers = list(answers)
        self._connection = object()
        self._host = self._said = ""
        self._minutes = 0
        monkeypatch.setattr(klat_watch.time, "sleep", self._sleep)
        monkeypatch.setattr(klat_watch.time, "monotonic", lambda: 60 * self._minutes)

    def _sleep(self, seconds: float) -> None:
        self._minutes += 1

    def _low_level_execute_command(self, command: str) -> dict[str, Any]:
        answer = self._answers.pop(0)
        if answer is None:
            raise AnsibleConnectionFailure("no route to host")
        if isinstance(answer, dict):
            return {"rc": 0, "stdout": json.dumps(answer), "stderr": ""}
        return dict(zip(("rc", "stdout", "stderr"), answer))

    def watch(self, power_cycle: str = "") -> Any:
        return self._watch("klat", patience=180, poll=60, power_cycle=power_cycle)


def test_the_syntax_is_ansibles():
    words = ("ansible-playbook", "--syntax-check", "-i", "localhost,", "ansible/fleet.yml")
    done = made_tools.run(*words, cwd=ROOT)
    assert done.returncode == 0, done.stderr


REQUIREMENTS = """\
- hosts: all
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: klat_campaign, tasks_from: requirements.yml}
"""
WITHOUT_SYSTEMD = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as the role does")
def test_only_a_campaign_needs_systemd(tmp_path):
    words = {"klat_architecture": os.uname().machine}
    done = play(tmp_path, REQUIREMENTS, *WITHOUT_SYSTEMD, **words)
    assert done.returncode == 0, done


def test_reboots_are_no_end(monkeypatch):
    """The last is the reboot into the default kernel."""
    killed = (137, "", "Terminated")
    answers = (RUNNING, None, None, killed, RUNNING, None, LAST_BOOT, None, HOME)
    assert WatchedMachine(monkeypatch, *answers).watch() == HOME


def test_silence_is_an_end(monkeypatch):
    with pytest.raises(AnsibleError, match="^no answer for 3 minutes$"):
        WatchedMachine(monkeypatch, RUNNING, *[None] * 5).watch()


def test_a_silent_machine_is_switched_off_and_on_once(monkeypatch, tmp_path):
    log = tmp_path / "log"
    command = f"echo on >> {log}"
    silence = [None] * 5
    assert WatchedMachine(monkeypatch, *silence, HOME).watch(command) == HOME
    assert log.read_text() == "on\n"
    with pytest.raises(
        AnsibleError, match="^no answer for 3 minutes, also after klat_power_cycle$"
    ):
        WatchedMachine(monkeypatch, *silence, *silence).watch(command)
    assert log.read_text() == "on\n" * 2
    with pytest.raises(AnsibleError, match="^klat_power_cycle ended with status 1$"):
        WatchedMachine(monkeypatch, *silence).watch("false")


def test_a_campaign_that_cannot_go_on_is_an_end(monkeypatch):
    with pytest.raises(AnsibleError, match="^klat's systemd unit is gone"):
        WatchedMachine(monkeypatch, RUNNING | {"unit": False}).watch()
    refused = (2, "", "klat campaign: campaign.json is damaged\n")
    with pytest.raises(AnsibleError, match="is damaged$"):
        WatchedMachine(monkeypatch, refused).watch()


READ = """\
- hosts: all
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: klat_campaign, tasks_from: read.yml}
    - ansible.builtin.debug: {msg: "so {{ klat_status.phase }}, deployed {{ klat_deployed }}"}
"""


@pytest.mark.parametrize(
    "status, answer, text",
    [
        (0, RUNNING | {"output": "/var/lib/klat/fleet/this"}, "so running, deployed True"),
        (0, HOME | {"output": "/var/lib/klat/fleet/other"}, "so none, deployed False"),
        (0, RUNNING | {"output": "/x"}, "another campaign is running, with results in /x; end it"),
        (2, "there is no campaign; begin with", "so none, deployed False"),
        (2, "campaign.json is damaged", "campaign.json is damaged"),
    ],
)
def test_only_a_campaign_of_the_same_run_goes_on(tmp_path, status, answer, text):
    (tmp_path / "answer").write_text(json.dumps(answer) if status == 0 else answer)
    answers = f"cat {tmp_path}/answer >&{1 + status // 2}; exit {status}"
    made_tools.script(tmp_path / "bin/klat", answers)
    done = play(tmp_path, READ, klat_prefix=tmp_path, klat_run="this")
    assert text in done.stdout, done
    assert (done.returncode == 0) == text.startswith("so "), done


FETCH_BOOK = """\
- hosts: all
  connection: local
  gather_facts: false
  tasks:
    - block:
        - ansible.builtin.include_role: {name: klat_campaign, tasks_from: fetch.yml}
      rescue:
        - ansible.builtin.debug: {msg: "because {{ ansible_failed_result.stderr | default(ansible_failed_result.msg) }}"}
"""


@pytest.mark.parametrize(
    "most, text", [(1, "the archive of the sessions has"), (1 << 20, "has a session of label")]
)
def test_an_archive_is_refused_by_its_size_before_it_is_fetched(tmp_path, most, text):
    write(tmp_path / "sent/stock/1/session.json", "")
    places = {"klat_output": "sent", "klat_record": "record", "klat_results": "results"}
    variables: dict[str, object] = {name: tmp_path / place for name, place in places.items()}
    variables |= {"klat_package": ROOT / "scripts", "klat_most_bytes": most, "klat_labels": ["rt"]}
    done = play(tmp_path, FETCH_BOOK, **variables)
    assert re.search(f"because .*{text}", done.stdout), done
    assert (tmp_path / "record").exists() is (most > 1)


def play(
    tmp_path: Path, book: str, *prefix: str, **variables: object
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "book.yml").write_text(book)
    words = ("ansible-playbook", "-i", "m1,", "-e", json.dumps(variables, default=str), "book.yml")
    settings = {"ANSIBLE_ROLES_PATH": str(ROLE.parent), "HOME": str(tmp_path)}
    return made_tools.run(*prefix, *words, cwd=tmp_path, env=os.environ | settings, seconds=120)


def take_in(
    tmp_path: Path, host: str = "m1", labels: tuple[str, ...] = ("stock", "rt")
) -> subprocess.CompletedProcess[str]:
    """Of what is in tmp_path/sent, or of the archive that is there."""
    archive = tmp_path / f"{host}.tar.gz"
    if not archive.exists():
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(tmp_path / "sent", ".")
    # The current directory can belong to another user.
    write(tmp_path / "cwd/tarfile.py", "raise SystemExit(9)")
    words = re.search(r"'(\S+python3)', '(-\S+)', '(klat\S+)'", FETCH.read_text())
    assert words
    environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    arguments = (archive, tmp_path / "results", host, *labels)
    return made_tools.run(*words.groups(), *arguments, cwd=tmp_path / "cwd", env=environment)


def test_sessions_of_the_same_second_have_different_names(tmp_path):
    (tmp_path / "results").mkdir()
    for host in ("m1", "m2", "m1"):
        write(tmp_path / "sent/stock/1/session.json", host)
        write(tmp_path / "sent/rt/.failed/2/session.json", host)
        done = take_in(tmp_path, host)
        assert done.returncode == 0, done.stderr
    found = {
        str(path.relative_to(tmp_path / "results")): path.read_text()
        for path in (tmp_path / "results").rglob("*.json")
    }
    assert found == {
        f"{session}-{host}/session.json": host
        for session in ("stock/1", "rt/.failed/2")
        for host in ("m1", "m2")
    }
    assert not list(tmp_path.glob("*.tar.gz*")) and not list(tmp_path.glob("results/.*"))


def test_links_are_left_out(tmp_path):
    write(tmp_path / "sent/stock/1/session.json", "")
    (tmp_path / "sent/stock/1/plan.csv").symlink_to("/etc/passwd")
    (tmp_path / "sent/rt").symlink_to("/etc")
    assert take_in(tmp_path).returncode == 0
    (kept,) = (tmp_path / "results").rglob("*.json")
    assert kept.name == "session.json"


@pytest.mark.parametrize(
    "label, recorded, is_taken",
    [("stock", "stock", True), ("stock", "rt", False), ("rt", "rt", False)]
    + [("stock", "evil", False)],
)
@pytest.mark.parametrize("place", ["1", ".failed/1"])
def test_only_sessions_of_the_planned_label_are_taken(tmp_path, place, label, recorded, is_taken):
    SyntheticSession(tmp_path / "sent" / label / place, label=recorded)
    done = take_in(tmp_path, labels=("stock",))
    assert (done.returncode == 0) is is_taken, done.stderr
    assert bool(list((tmp_path / "results").rglob("session.json"))) is is_taken
    bad = {label, recorded} - {"stock"}
    assert is_taken or f"m1.tar.gz has a session of label {min(bad)!r}, not of stock" in done.stderr


def damaged(archive: Path) -> None:
    tar = tarfile.open(archive, "w:gz")
    tar.add(ROOT / "README.md", "stock/1/runs.csv")
    tar.close()
    archive.write_bytes(archive.read_bytes()[:-9])


def bomb(archive: Path) -> None:
    with gzip.open(archive, "wb", compresslevel=1) as out:
        member = tarfile.TarInfo("stock/1/runs.csv")
        member.size = 600 << 20
        out.write(member.tobuf())
        for _ in range(600):
            out.write(bytes(1 << 20))


def outside(archive: Path) -> None:
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("stock/../../evil"))


def pax(headers: dict[str, str], data: bytes = b"") -> Callable[[Path], None]:
    def make(archive: Path) -> None:
        member = tarfile.TarInfo("stock/1/runs.csv")
        member.pax_headers, member.size = headers, len(data)
        with tarfile.open(archive, "w:gz", format=tarfile.PAX_FORMAT) as tar:
            tar.addfile(member, io.BytesIO(data))

    return make


SPARSE = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"}


@pytest.mark.parametrize(
    "make, why",
    [
        (damaged, "is damaged"),
        (bomb, "holds more than"),
        (outside, "holds the forbidden path"),
        (pax({"x": "y" * 5000}), "holds a header of 5,"),
        (pax(SPARSE, b"1\n0\n9\n".ljust(512, b"\0") + b"123456789"), "holds a sparse file"),
    ],
)
def test_a_hostile_archive_leaves_nothing(tmp_path, make, why):
    make(tmp_path / "m1.tar.gz")
    done = take_in(tmp_path)
    assert done.returncode == 1 and why in done.stderr and done.stderr.count("\n") == 1
    assert not list((tmp_path / "results").iterdir())
