"""What goes into a guest and what comes out of it: the initramfs, the plan, the results."""

import errno
import hashlib
import json
import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import harness
import made_tools
import pytest
from labs import experiment, header, tar_of_directory
from written_sessions import SyntheticSession

from klat.base import files
from klat.record import json_files, plan_csv
from klat.base.errors import KlatError
from klat.lab import collect, guest, initramfs
from klat.lab.experiment import Experiment, checked_labels, parse_clock
from klat.lab.guest import ProgramsFailed, ResultsIncomplete
from klat.lab.modules import Module
from klat.compare.dataset import read_dataset

ROOT = Path(__file__).resolve().parents[2]


def entries(archive: bytes) -> dict[str, tuple[int, bytes]]:
    """Mode and data by name, of archives that follow one another, by cpio(5)."""
    found: dict[str, tuple[int, bytes]] = {}
    at = 0
    while at < len(archive):
        if archive[at] == 0:
            at += 1
            continue
        assert archive[at : at + 6] == b"070701" and at % 4 == 0
        fields = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        assert fields[5] == 0, "times would make two archives differ"
        name = archive[at + 110 : at + 110 + fields[11] - 1].decode()
        start = at + 110 + fields[11] + -(110 + fields[11]) % 4
        if name != "TRAILER!!!":
            parent = os.path.dirname(name)
            assert not parent or parent in found, f"{name} comes before its directory"
            found[name] = (fields[1], archive[start : start + fields[6]])
        at = start + fields[6] + -fields[6] % 4
    return found


def base(programs: Mapping[str, Path], machine: str = "m") -> bytes:
    first, last = (Module(name, name.encode(), (), "r") for name in ("tun", "virtio_blk"))
    return initramfs.base(
        b"init", b"box", programs, [first], [last], ("6.1", b"C=y\n"), machine, "ttyS1"
    )


def test_the_same_inputs_give_the_same_bytes(tmp_path):
    program = tmp_path / "pipes"
    program.write_bytes(b"one")
    first = base({"pipes": program})
    os.utime(program, (1, 1))
    program.chmod(0o777)
    assert base({"pipes": program}) == first
    program.write_bytes(b"two")
    assert base({"pipes": program}) != first


def test_the_guest_finds_everything_in_its_place(tmp_path):
    (tmp_path / "pipes").write_bytes(b"program")
    held = entries(base({"pipes": tmp_path / "pipes"}))
    assert held["init"] == (stat.S_IFREG | 0o755, b"init")
    assert held["bin/pipes"] == (stat.S_IFREG | 0o755, b"program")
    assert held["bin/sh"] == (stat.S_IFLNK | 0o777, b"busybox")
    assert held["boot/config-6.1"][1] == b"C=y\n"
    assert held["modules/tun.ko"][1] == b"tun"
    assert (held["klat/modules"][1], held["klat/modules.last"][1]) == (b"tun\n", b"virtio_blk\n")
    assert stat.S_ISCHR(held["dev/console"][0])


def test_another_machine_has_another_identity(tmp_path):
    first, second = (entries(base({}, name))["etc/machine-id"][1] for name in ("7.2", "8.0"))
    assert first != second and len(first) == len(second) == 33


def test_archives_that_follow_one_another_are_one():
    boot = initramfs.of_boot("plan\n", {"LABEL": "it's", "SEED": 5})
    held = entries(base({}) + boot)
    assert held["klat/plan.csv"][1] == b"plan\n" and "init" in held
    script = held["klat/settings"][1].decode() + 'printf "%s %s" "$LABEL" "$SEED"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "it's 5"


WORDS = ("--a=x y", "--b=it's", "--c=$HOME `id` \\ ;|&", "--d=*", "--e='", "--f=-n", "--g=a,b")
PROGRAM = """#!/bin/sh
for word; do printf '%s\\n' "$word"; done >>/seen
echo "it said this" >&2
mkdir -p /results
echo x >>/results/rows
[ ! -e /load.pid ] || kill "$(cat /load.end)" "$(cat /load.pid)"
exit $(cat /status.${0##*/})
"""
LOAD = """#!/bin/sh
echo $$ >/load.pid
while sleep 0.1; do :; done
"""


def follow(
    directory: Path,
    busybox: Path,
    arguments: tuple[str, ...],
    runs: int,
    load_end: str = "",
    **statuses: int,
) -> tuple[Path, bytes]:
    """A guest's directory after lab/init, and what it wrote to the serial line. Without a kernel: what
    would mount, load or end something does nothing, and there is no disk. `statuses` are the exit statuses of
    the programs that are planned, by name."""
    # In a process space of its own, of which a call that ends a machine would be the end.
    # It ends with unshare, which a time limit kills.
    guest_root = directory / "guest"
    (guest_root / "proc").mkdir(parents=True)
    enter = ["unshare", f"--mount-proc={guest_root / 'proc'}", "--pid", "--fork", "--kill-child"]
    enter += [] if os.geteuid() == 0 else ["-r"]
    if subprocess.run([*enter, "true"], check=False).returncode:
        harness.lacking("no process space can be made here")
    for name in ("bin", "dev", "klat", "sys", "etc"):
        (guest_root / name).mkdir()
    shutil.copy(busybox, guest_root / "bin/busybox")
    for name in initramfs._APPLETS:
        (guest_root / "bin" / name).symlink_to("busybox")
    (guest_root / "dev/null").touch()
    (guest_root / "dev/ttyS1").touch()
    (guest_root / "dev/zero").write_bytes(bytes(512))
    statuses = statuses or {"pipes": 0}
    for name, status in statuses.items():
        made_tools.script(guest_root / "bin" / name, PROGRAM)
        (guest_root / f"status.{name}").write_text(f"{status}\n")
    # Functions, for busybox's shell asks no file for what it has built in.
    stubs = [
        f"{name}() {{ :; }}" for name in ("mount", "insmod", "stty", "sync", "mknod", "poweroff")
    ]
    lines = ["#!/bin/sh", *stubs, "reboot() { exit 0; }", (ROOT / "lab/init").read_text()]
    made_tools.script(guest_root / "init", "\n".join(lines))
    (guest_root / "klat/modules").write_text("")
    (guest_root / "klat/modules.last").write_text("")
    planned = plan_csv.to_csv(plan_csv.make([(name, arguments) for name in statuses], runs, 1))
    settings: dict[str, str | int] = {"LABEL": "a label's", "SEED": 7, "LOAD": "", "NETWORK": 0}
    if load_end:
        made_tools.script(guest_root / "bin/load", LOAD)
        (guest_root / "load.end").write_text(load_end)
        settings["LOAD"] = "load"
    for name, (_, data) in entries(initramfs.of_boot(planned, settings)).items():
        if data:
            (guest_root / name).write_bytes(data)
    subprocess.run(
        [*enter, "chroot", guest_root, "/init"], timeout=60, check=False, stdout=subprocess.DEVNULL
    )
    return guest_root, (guest_root / "dev/ttyS1").read_bytes()


def received(tmp_path: Path, serial: bytes) -> guest.Delivery:
    guest.prepare(tmp_path / "disk", 8192)
    (tmp_path / "serial").write_bytes(serial)
    return guest.receive(tmp_path / "disk", tmp_path / "serial")


def test_the_plan_reaches_the_programs_word_for_word(tmp_path, busybox):
    guest_root, serial = follow(tmp_path, busybox, WORDS, 2)
    own = ("--record=/results", "--label=a label's", "--seed=7")
    expected = [
        word
        for run in ("1", "2")
        for word in (*WORDS, *own, f"--order={run}", f"--run={run}", "--quiet")
    ]
    assert (guest_root / "seen").read_text().splitlines() == expected
    delivery = received(tmp_path, serial)
    assert delivery.state == "complete"
    guest.unpack(delivery.tar, tmp_path)
    assert (tmp_path / "rows").read_text() == "x\nx\n"
    assert (tmp_path / "lab/programs.log").read_text() == "1 0 it said this\n2 0 it said this\n"


@pytest.mark.parametrize(("status", "runs"), [(1, 3), (2, 1), (139, 3), (3, 5), (4, 5)])
def test_a_program_that_fails_is_left_out_and_the_others_go_on(tmp_path, busybox, status, runs):
    guest_root, serial = follow(tmp_path, busybox, WORDS, 5, pipes=status, cv=0)
    delivery = received(tmp_path, serial)
    assert delivery.state == "complete"
    assert (guest_root / "results/rows").read_text() == "x\n" * (runs + 5)
    guest.unpack(delivery.tar, tmp_path)
    said = (tmp_path / "lab/programs.log").read_text().splitlines()
    assert sum(f" {status} it said this" in line for line in said) == runs


@pytest.mark.parametrize("end", ["-TERM", "-STOP"])
def test_a_load_that_does_not_run_any_more_ends_the_boot(tmp_path, busybox, end):
    guest_root, serial = follow(tmp_path, busybox, WORDS, 5, end, pipes=0)
    delivery = received(tmp_path, serial)
    assert (delivery.state, (guest_root / "results/rows").read_text()) == ("programs", "x\n")


def delivered(
    directory: Path, planned: Experiment, log: str, label: str = "", **rows: str
) -> guest.Delivery:
    """A boot of which each program left these statuses, one a run, in plan order."""
    (boot,) = planned.schedule()[:1]
    record = SyntheticSession(directory / "guest", label=label or boot.label)
    left = {name: text.split() for name, text in rows.items()}
    for run in planned.plan(boot):
        if not left.get(run.benchmark):
            continue
        status = left[run.benchmark].pop(0)
        metrics = {"round_trip": [5] * 10} if status == "ok" else None
        record.run(metrics, run.benchmark, status=status, reason="r", order=run.order, run=run.run)
    (record.path / "lab").mkdir()
    (record.path / "lab/programs.log").write_text(log)
    return guest.Delivery("complete", tar_of_directory(record.path))


def orders(planned: Experiment, benchmark: str) -> list[int]:
    return [run.order for run in planned.plan(planned.schedule()[0]) if run.benchmark == benchmark]


EVIDENCE = collect.Evidence({}, {}, ["klat"])


def test_one_program_that_crashes_does_not_take_the_results_of_the_others(tmp_path):
    planned = experiment(boots=1, runs=5)
    boot, crashed = planned.schedule()[0], orders(planned, "cv")
    log = f"{crashed[0]} 139 cv: ended with status 139\n"
    delivery = delivered(tmp_path, planned, log, pipes="ok ok ok ok ok")
    path = collect.store(tmp_path / "results", planned, boot, delivery, EVIDENCE)
    (left,) = json_files.unrecorded(path)
    assert (left.benchmark, list(left.orders)) == ("cv", crashed)
    assert left.sentence() == "cv: 5 runs left no record: cv: ended with status 139"
    assert read_dataset(path).problems == [f"{path}: {left.sentence()}"]
    collect.check_whole(path, planned.plan(boot))
    (line,) = json_files.failures(dict.fromkeys((path, tmp_path), json_files.read_run_json(path)))
    assert line == f"{path} and 1 other session: {left.sentence().replace('5 runs', '10 runs')}"


def test_a_run_that_is_missing_without_a_reason_is_no_result(tmp_path):
    planned = experiment(boots=1, runs=5)
    log = f"{orders(planned, 'cv')[0]} 1 cv: cannot\n"
    delivery = delivered(tmp_path, planned, log, pipes="ok ok ok ok", cv="ok ok ok ok ok")
    with pytest.raises(
        ResultsIncomplete, match="1 of 10 runs are missing, the first of them pipes"
    ):
        collect.store(tmp_path / "results", planned, planned.schedule()[0], delivery, EVIDENCE)


@pytest.mark.parametrize(
    ("log", "label", "status", "error", "reason"),
    [
        ("", "evil", "ok", ResultsIncomplete, "of label evil, not {label}"),
        ("1 1 pipes: cannot\n2 1 cv: neither\n", "", "error", ProgramsFailed, "every run failed: cv: neither"),
    ],
    ids=["another label", "every run failed"],
)  # fmt: skip
def test_a_boot_without_results_of_its_own_is_no_session(
    tmp_path, log, label, status, error, reason
):
    planned = experiment(boots=1, runs=1)
    boot = planned.schedule()[0]
    delivery = delivered(tmp_path, planned, log, label, pipes=status, cv=status)
    with pytest.raises(error, match=reason.format(label=boot.label)):
        collect.store(tmp_path / "results", planned, boot, delivery, EVIDENCE)


@pytest.fixture
def theirs(tmp_path: Path, root: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of the user who called sudo."""
    monkeypatch.setenv("SUDO_UID", str(harness.NOBODY))
    monkeypatch.setenv("SUDO_GID", str(harness.NOBODY))
    path = tmp_path / "results"
    path.mkdir()
    os.chown(path, harness.NOBODY, harness.NOBODY)
    return path


def test_what_a_boot_leaves_belongs_to_the_caller_of_sudo(tmp_path, theirs):
    planned = experiment(boots=1, runs=1)
    boot, delivery = planned.schedule()[0], delivered(tmp_path, planned, "", pipes="ok", cv="ok")
    evidence = collect.Evidence({"console.log": b"x"}, {}, ["klat"])
    collect.store(theirs, planned, boot, delivery, evidence)
    collect.keep_failed(theirs, planned, boot, None, evidence, ProgramsFailed("why"))
    found = list(theirs.rglob("*"))
    assert {path.name for path in found} >= {"run.json", "console.log", "pipes.u64", ".failed"}
    assert {(path.stat().st_uid, path.stat().st_gid) for path in found} == {
        (harness.NOBODY, harness.NOBODY)
    }
    assert not list(theirs.rglob(".boot-*"))


def test_a_boot_is_not_stored_through_another_users_link(tmp_path, theirs):
    target = tmp_path / "target"
    target.mkdir(0o700)
    planned = experiment(boots=1, runs=1)
    boot, delivery = planned.schedule()[0], delivered(tmp_path, planned, "", pipes="ok", cv="ok")
    (theirs / boot.label).symlink_to(target)
    with pytest.raises(KlatError, match="symbolic link"):
        collect.store(theirs, planned, boot, delivery, EVIDENCE)
    with pytest.raises(KlatError, match="symbolic link"):
        collect.keep_failed(theirs, planned, boot, delivery, EVIDENCE, ProgramsFailed("why"))
    assert list(target.iterdir()) == []


def on_disk(path: Path, head: bytes, data: bytes) -> Path:
    path.write_bytes(head.ljust(4096, b"\0") + data + bytes(4096))
    return path


def test_results_come_from_the_disk(tmp_path):
    disk = on_disk(tmp_path / "disk", header("complete", b"tar"), b"tar")
    assert guest.receive(disk, tmp_path / "none") == guest.Delivery("complete", b"tar")


def test_a_guest_that_never_wrote_has_failed(tmp_path):
    assert received(tmp_path, b"").state == "failed"


def test_without_a_disk_results_come_from_the_serial_line(tmp_path):
    data = os.urandom(5000)
    serial = header("failed", b"") + data + header("complete", data)
    assert received(tmp_path, serial) == guest.Delivery("complete", data)


@pytest.mark.parametrize("cut", [100, 512, 2000, 5511])
def test_a_serial_line_that_broke_off_is_not_believed(tmp_path, cut):
    data = os.urandom(5000)
    serial = header("failed", b"") + data + header("complete", data)
    assert received(tmp_path, serial[:cut]).state == "failed"


def test_damaged_results_are_not_believed(tmp_path):
    disk = on_disk(tmp_path / "disk", header("complete", b"tar"), b"taR")
    with pytest.raises(ResultsIncomplete, match="checksum"):
        guest.receive(disk, tmp_path / "none")
    serial = header("failed", b"") + b"taR" + header("complete", b"tar")
    with pytest.raises(ResultsIncomplete, match="checksum"):
        received(tmp_path, serial)
    disk.write_bytes(bytes(10000))
    with pytest.raises(ResultsIncomplete, match="no header"):
        guest.receive(disk, tmp_path / "none")


def tar_of(tmp_path: Path, *members: tuple[str, bytes, str]) -> bytes:
    """Of (name, type, target)."""
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as archive:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            archive.addfile(member)
    return path.read_bytes()


def test_a_guest_cannot_write_outside_its_session(tmp_path):
    for name in ("../evil", "/evil", "a/../../evil"):
        with pytest.raises(ResultsIncomplete, match="path"):
            guest.unpack(tar_of(tmp_path, (name, tarfile.REGTYPE, "")), tmp_path / "into")
    into = tmp_path / "into"
    into.mkdir(exist_ok=True)
    guest.unpack(
        tar_of(tmp_path, ("link", tarfile.SYMTYPE, "/etc"), ("f", tarfile.REGTYPE, "")), into
    )
    assert [path.name for path in into.iterdir()] == ["f"], "links and devices are left out"


@pytest.mark.parametrize(
    "members",
    [
        (("f", tarfile.REGTYPE), ("f", tarfile.REGTYPE)),
        (("f", tarfile.REGTYPE), ("f/inner", tarfile.REGTYPE)),
        (("f", tarfile.REGTYPE), ("f", tarfile.DIRTYPE)),
        (("d", tarfile.DIRTYPE), ("d", tarfile.REGTYPE)),
        (("n" * 300, tarfile.REGTYPE),),
        (("n" * 300 + "/d", tarfile.DIRTYPE),),
        (("sparse", tarfile.GNUTYPE_SPARSE),),
    ],
)
def test_results_that_cannot_be_laid_out_as_files_are_not_believed(tmp_path, members):
    data = tar_of(tmp_path, *((name, kind, "") for name, kind in members))
    with pytest.raises(ResultsIncomplete):
        guest.unpack(data, tmp_path)


def test_a_member_that_claims_exabytes_is_refused_at_once(tmp_path):
    # tarfile reads the data of a member that is not a file, block by block: here for hours.
    members = tarfile.TarInfo("claims"), tarfile.TarInfo("follows")
    members[0].type, members[0].size = b"Z", 1 << 62
    data = b"".join(member.tobuf(tarfile.GNU_FORMAT) for member in members)
    with pytest.raises(guest.ResultsIncomplete, match="holds more than 1,024 bytes"):
        guest.unpack(data, tmp_path)


def test_a_trouble_of_the_host_is_not_laid_to_the_guest(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "create", full)
    with pytest.raises(OSError, match="No space"):
        guest.unpack(tar_of(tmp_path, ("f", tarfile.REGTYPE, "")), tmp_path)


def test_results_larger_than_their_disk_are_not_believed(tmp_path):
    line = f"klat-lab 1 complete {'9' * 300} {hashlib.sha256().hexdigest()}\n"
    disk = on_disk(tmp_path / "disk", line.encode().ljust(512, b"\0"), b"")
    with pytest.raises(ResultsIncomplete, match="exceed"):
        guest.receive(disk, tmp_path / "none")


def test_kernels_alternate_in_abba_blocks():
    labels = [boot.label.removeprefix("lab-") for boot in experiment().schedule()]
    assert labels == ["stock", "rt", "rt", "stock"] * 2


def test_each_load_has_labels_of_its_own():
    boots = experiment(loads=("none", "mmap"), boots=1).schedule()
    assert [b.label for b in boots] == ["lab-stock", "lab-rt", "lab-stock-mmap", "lab-rt-mmap"]


@pytest.mark.parametrize(
    ("labels", "loads", "why"),
    [
        (("a", "a"), ("none",), "label 'a': give one of them another name"),
        (("a", "a-fork"), ("none", "fork"), "would both have the label 'a-fork'"),
        (("a" * 250,), ("none", "populate"), "longer than 255 bytes"),
    ],
)
def test_two_conditions_never_share_a_label(labels, loads, why):
    with pytest.raises(KlatError, match=why):
        checked_labels(labels, loads)


def test_every_boot_has_its_own_seed_clock_and_order_from_the_experiments_seed():
    boots = experiment().schedule()
    assert len({b.seed for b in boots}) == len({b.clock for b in boots}) == len(boots)
    assert boots == experiment().schedule()
    assert {b.seed for b in boots}.isdisjoint(b.seed for b in experiment(seed=6).schedule())
    plans = {tuple(experiment().plan(boot)) for boot in boots}
    assert len(plans) > 4 and all(len(p) == 6 for p in plans)


def test_an_experiment_survives_its_record():
    made = experiment()
    assert Experiment.of(json.loads(json.dumps(made.facts()))) == made


def test_an_experiment_of_before_kernels_had_words_of_their_own_is_still_read():
    facts = json.loads(json.dumps(experiment(append="quiet").facts()))
    del facts["appends"]
    found = Experiment.of(facts)
    assert found.append_of(found.conditions()[1]) == "quiet"


def test_words_of_one_kernel_alone_follow_those_of_all_and_are_declared_by_every_session():
    made = experiment(append="quiet", appends=("", "mitigations=off"), boots=1)
    first, second = made.schedule()
    assert made.append_of(first.condition) == "quiet"
    assert made.append_of(second.condition) == "quiet mitigations=off"
    declared = [collect.under_test(made, boot)["under_test"] for boot in (first, second)]
    assert declared == [
        {"experiment": made.identity, "append": ""},
        {"experiment": made.identity, "append": "mitigations=off"},
    ]
    assert collect.under_test(experiment(), first) == {}, "kernels alone need no declaration"


@pytest.mark.parametrize(
    "text", ["", "now", "2026-13-01", "1980-01-01T00:00:00", "2026-01-01T00:00:00+02:00"]
)
def test_a_clock_that_qemu_would_not_take_is_refused(text):
    with pytest.raises(ValueError):
        parse_clock(text)


def test_cpio_fields_are_those_of_the_format():
    data = initramfs.archive([initramfs.file("f", b"abc", 0o600)])
    assert data.startswith(b"070701" + b"%08x%08x" % (1, stat.S_IFREG | 0o600))
    assert len(data) % 512 == 0
