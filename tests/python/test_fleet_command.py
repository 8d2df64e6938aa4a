"""`klat fleet` as typed, with a program of the test in the place of Ansible."""

import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import made_tools
import pytest
from written_sessions import SyntheticSession

from klat import cli
from klat.base.errors import KlatError
from klat.commands import _fleet_playbook

PLAN = ("--kernel", "stock=6.1", "--kernel", "rt=6.1-rt", "--boots", "4", "pipes")
# Says that m1 is complete, and m2 as the file says; keeps what it was called with.
PLAYBOOK = """\
#!/usr/bin/python3
import json, pathlib, sys
here = pathlib.Path(__file__).parent
variables = json.loads(pathlib.Path(sys.argv[sys.argv.index("--extra-vars") + 1][1:]).read_text())
(here / "called.json").write_text(json.dumps([sys.argv[1:], variables]))
record = pathlib.Path(variables["klat_record"])
before = sorted(path.stem for path in record.glob("m*.json"))
(here / "before.json").write_text(json.dumps(before))
(record / "m1.json").write_text(json.dumps({"outcome": "complete"}))
if (here / "m2").exists():
    (record / "m2.json").write_text(json.dumps({"outcome": (here / "m2").read_text()}))
"""
LIST = "#!/bin/sh\necho '  hosts (2):'; echo '    m1'; echo '    m2'\n"
NO_HOST = "#!/bin/sh\necho 'ERROR! leaves us with no hosts to target.' >&2; exit 1\n"


class Fleet:
    def __init__(self, root: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]):
        self.root, self._patch, self._capture = root, patch, capture
        self.tools = root / "tools"
        self.tool("ansible", LIST)
        self.tool("ansible-playbook", PLAYBOOK)
        (root / "hosts.ini").write_text("m1\nm2\n")
        patch.chdir(root)
        patch.setenv("PATH", f"{self.tools}:/usr/bin:/bin")
        patch.setattr(_fleet_playbook, "build_archive", lambda archive: None)

    def tool(self, name: str, text: str) -> None:
        made_tools.script(self.tools / name, text)

    def __call__(self, *words: str, status: int = 0, action: str = "run") -> str:
        """What `klat fleet` prints."""
        typed = ["fleet", action, "--inventory", "hosts.ini", *words]
        self._patch.setattr(sys, "argv", ["klat", *typed])
        try:
            found = cli.main(typed)
        except SystemExit as ended:
            found = int(ended.code or 0)
        printed = self._capture.readouterr()
        assert found == status, printed
        return printed.out if status < 2 else printed.err

    def called(self) -> tuple[list[str], dict[str, object]]:
        words, variables = json.loads((self.tools / "called.json").read_text())
        return words, variables

    def records(self) -> list[Path]:
        return sorted((self.root / "results/.fleet").iterdir())


@pytest.fixture
def fleet(tmp_path, monkeypatch, capsys) -> Fleet:
    return Fleet(tmp_path, monkeypatch, capsys)


def test_ansible_gets_the_arguments_of_the_plan(fleet):
    (fleet.tools / "m2").write_text("complete")
    text = fleet("--patience", "5", *PLAN, "--seed", "7", "--option", "pipes.policy={{ x }}")
    assert text == "m1: complete\nm2: complete\n"
    words, variables = fleet.called()
    assert words[words.index("--forks") + 1] == "2"
    planned = [*PLAN, "--option", "pipes.policy={{ x }}"]
    assert variables["klat_words"] == [{"__ansible_unsafe": word} for word in planned]
    assert (variables["klat_seed"], variables["klat_patience"]) == (7, 5)
    assert [label["__ansible_unsafe"] for label in variables["klat_labels"]] == ["stock", "rt"]
    assert not fleet.records()  # the same command starts a new run


def test_a_machine_cannot_fill_the_disk(fleet, monkeypatch):
    """Whatever size it claims for its archive. Two machines share half of the free space."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=4 << 20))
    endless = 'cat /dev/zero >"$(dirname "${6#@}")/m1.tar.gz"; echo "$8" >"$(dirname "$0")/most"'
    fleet.tool("ansible-playbook", f'#!/bin/sh\ntrap "" XFSZ\n{endless}\n')
    fleet(*PLAN, status=1)
    assert (fleet.tools / "most").read_text() == f"klat_most_bytes={1 << 20}\n"
    assert (fleet.records()[0] / "m1.tar.gz").stat().st_size == 1 << 20


def test_a_machine_that_is_not_complete_is_named_and_tried_again(fleet):
    (fleet.tools / "m2").write_text("left out: no\nanswer\x1b[2J")
    text = fleet(*PLAN, status=1)
    assert text == "m1: complete\nm2: left out: no answer\\x1b[2J\n"
    (record,) = fleet.records()
    (fleet.tools / "m2").unlink()
    assert "m2: left out: Ansible lost the connection" in fleet("--poll", "9", *PLAN, status=1)
    assert fleet.records() == [record]
    assert json.loads((fleet.tools / "before.json").read_text()) == ["m1"]


def test_machines_with_one_id_are_named(fleet):
    """Copies of one disk. The sessions of b-m1 are not those of m1, and a damaged one tells nothing."""
    label = fleet.root / "results/stock"
    for name, machine in (("m1", "a"), ("m2", "b"), ("b-m1", "b")):
        SyntheticSession(label / f"20260101T000000Z-{name}", machine_id=machine)
    (label / "20260101T000001Z-m1").mkdir()
    assert "warning" not in fleet(*PLAN, status=1)
    SyntheticSession(label / "20260101T000000Z-2-m1", machine_id="b")
    text = fleet(*PLAN, status=1)
    assert "warning: m1 and m2 have the same /etc/machine-id" in text
    assert "remove this file and run\n  systemd-machine-id-setup" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")
@pytest.mark.parametrize("name", ["ansible.cfg", "hosts.ini", "group_vars/all.yml", ".", "home"])
def test_what_ansible_executes_is_refused_if_another_user_can_write_it(fleet, name, monkeypatch):
    """In the current directory, as in /tmp, anybody can make group_vars. HOME has .ansible.cfg and Python modules."""
    path = fleet.root / name
    if name == "home":
        path.mkdir()
        monkeypatch.setenv("HOME", str(path))
    path.parent.mkdir(exist_ok=True)
    path.exists() or path.touch()
    fleet(*PLAN, status=1)
    path.chmod(0o1777) if name == "." else os.chown(path, 65534, 65534)
    for action in ("run", "doctor"):
        text = fleet(*(PLAN if action == "run" else ()), action=action, status=2)
        assert text.startswith(f"klat fleet: {path} "), text


# The inventory, a file or directory of another user, and links with their targets.
FOREIGN = [
    ("inv", "inv/group_vars/all.yml", {}),
    ("inv", "inv/dyn", {}),
    ("inv", "inv/more/dyn", {}),
    ("inv", "elsewhere/dyn", {"inv/more": "elsewhere"}),
    ("inv", "elsewhere/dyn", {"inv": "elsewhere"}),
    ("hosts.ini", "group_vars/all/x.yml", {}),
    ("hosts.ini", "group_vars/all/more/x.yml", {}),
    ("hosts.ini", "elsewhere/x.yml", {"host_vars/m1": "elsewhere", "elsewhere/loop": "."}),
    ("lk/hosts", "lk/group_vars/all.yml", {"lk/hosts": "hosts.ini"}),
    ("lk/hosts", "group_vars/all.yml", {"lk/hosts": "hosts.ini"}),
    ("far/../inv/hosts", "inv/group_vars/all.yml", {"far": "elsewhere/deep"}),
    ("$PLACE/hosts", "inv/group_vars/all.yml", {}),
    ("hosts.ini", "home/.ansible.cfg", {}),
    ("hosts.ini", "home/.ansible/x", {}),
]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")
@pytest.mark.parametrize("inventory, name, links", FOREIGN)
def test_what_ansible_reads_beside_an_inventory_is_refused(
    fleet, monkeypatch, inventory, name, links
):
    monkeypatch.setenv("PLACE", "inv")
    monkeypatch.setenv("HOME", str(fleet.root / "home"))
    path = fleet.root / name
    for directory in (path.parent, fleet.root / "inv", fleet.root / "elsewhere/deep/inv"):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "hosts").write_text("m1\n")
    for link, target in links.items():
        place = fleet.root / link
        place.parent.mkdir(exist_ok=True)
        shutil.rmtree(place, ignore_errors=True)
        place.symlink_to(fleet.root / target)
    path.touch()
    given = ("--inventory", inventory)
    fleet(*given, *PLAN, status=1)
    foreign = path.parent if path.parent.name == ".ansible" else path
    os.chown(foreign, 65534, 65534)
    for words in (("run", *PLAN), ("doctor",)):
        text = fleet(*given, *words[1:], action=words[0], status=2)
        assert text.startswith(f"klat fleet: {foreign} belongs to user nobody"), text


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")
def test_a_file_that_another_user_can_make_is_refused(fleet, monkeypatch):
    """ansible.cfg in the current directory, unless ANSIBLE_CONFIG names a file, and the target of a link."""
    place = fleet.root / "place"
    place.mkdir()
    output = str(fleet.root / "results")
    typed = ("--inventory", str(fleet.root / "hosts.ini"), "--output", output, *PLAN)
    monkeypatch.chdir(place)
    os.chown(place, 65534, 65534)
    for config in ("", "none"):
        monkeypatch.setenv("ANSIBLE_CONFIG", config)
        assert f"{place} belongs to user nobody" in fleet(*typed, status=2)
    monkeypatch.setenv("ANSIBLE_CONFIG", str(fleet.root / "hosts.ini"))
    fleet(*typed, status=1)
    (fleet.root / "group_vars").symlink_to(fleet.root / "tools")
    fleet(*typed, status=1)
    (fleet.root / "host_vars").symlink_to(place / "none/vars")
    assert f"{place} belongs to user nobody" in fleet(*typed, status=2)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")
@pytest.mark.parametrize("damage", ["chown", "chmod", "file"])
def test_a_run_that_another_user_can_write_is_refused(fleet, damage):
    """Ansible expands templates in its variables, and copies klat to the machines."""
    fleet(*PLAN, status=1)
    (record,) = fleet.records()
    (fleet.tools / "called.json").unlink()
    if damage == "chmod":
        record.parent.chmod(0o777)
    else:
        os.chown(record if damage == "chown" else record / "vars.json", 65534, 65534)
    text = fleet(*PLAN, status=2)
    what = {
        "chmod": f"{record.parent} can be written by every user",
        "chown": f"{record} belongs to user nobody",
        "file": f"{record}/vars.json belongs to user nobody",
    }
    assert what[damage] in text and text.count("\n") == 1
    assert not (fleet.tools / "called.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")
def test_a_refused_run_makes_nothing(fleet, monkeypatch):
    """The parent is another user's, or klat cannot be packed."""
    output = fleet.root / "shared"
    output.mkdir()
    os.chown(output, 65534, 65534)
    assert f"{output} belongs to user nobody" in fleet("--output", "shared/new", *PLAN, status=2)
    assert not list(output.iterdir())

    def fail(archive: Path) -> None:
        archive.write_text("half")
        raise KlatError("make ended with status 2")

    monkeypatch.setattr(_fleet_playbook, "build_archive", fail)
    assert "make ended with status 2" in fleet(*PLAN, status=2)
    assert not fleet.records()
    assert "--load is empty" in fleet("--load", " ", *PLAN, status=2)


def test_another_plan_is_another_run(fleet):
    fleet(*PLAN, status=1)
    fleet(*PLAN, "--seed", "8", status=1)
    assert len(fleet.records()) == 2


def test_bad_input_is_one_line(fleet, monkeypatch):
    def refused(*words: str) -> str:
        text = fleet(*words, status=2)
        assert text.count("\n") == 1
        return text

    assert "the following arguments are required: --boots" in refused(*PLAN[:4])
    assert "'rt' must have the form LABEL=ENTRY" in refused(*PLAN, "--kernel", "rt")
    assert "there is no inventory none.ini" in refused("--inventory", "none.ini", *PLAN)
    fleet.tool("ansible", LIST.replace("m2", "m/2"))
    assert "the name 'm/2' must have only letters" in refused(*PLAN)
    fleet.tool("ansible", NO_HOST)
    assert "hosts.ini: ERROR! leaves us with no hosts" in refused("--limit", "m9", *PLAN)
    monkeypatch.setenv("PATH", str(fleet.root))
    assert "ansible-playbook is not installed" in refused(*PLAN)
    assert not os.path.exists("results")


def test_doctor_lists_what_only_some_machines_have(fleet):
    governor, load, tick = (
        {"severity": severity, "title": title}
        for severity, title in (("distorts", "governor"), ("spoils", "load"), ("note", "tick"))
    )
    found = {"m1": [governor, tick], "m2": [load, tick]}
    for host, findings in found.items():
        text = json.dumps({"outcome": "complete", "findings": findings})
        (fleet.tools / f"{host}.json").write_text(text)
    copy = "for h in m1 m2; do cp {0}/$h.json $(dirname ${{6#@}}); done"
    fleet.tool("ansible-playbook", f"#!/bin/sh\n{copy.format(fleet.tools)}\n")
    lines = [
        "spoils    m2: load",
        "distorts  m1: governor",
        "1 more findings are on all 2 machines; klat doctor on one of them lists these",
    ]
    assert fleet(action="doctor") == "\n".join(lines) + "\n"
    left = {"outcome": "left out: klat needs Python 3.11"}
    (fleet.tools / "m2.json").write_text(json.dumps(left))
    text = fleet(action="doctor", status=1)
    assert text.endswith("m2: left out: klat needs Python 3.11\n")
    (fleet.tools / "m1.json").write_text(json.dumps(left))
    text = fleet(action="doctor", status=1)
    assert text == "".join(f"{host}: {left['outcome']}\n" for host in ("m1", "m2"))


def test_the_help_describes_the_profiles(fleet):
    text = fleet("--help")
    assert "see below" in text and "profiles:\n  rt  for real-time users" in text
    assert max(map(len, text.splitlines())) <= 80
