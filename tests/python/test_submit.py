"""klat submit: one file of a session that others can read, without what names the machine or its users."""

import gzip
import hashlib
import io
import json
import resource
import tarfile
from pathlib import Path

import fakes
import made_tools
import pytest
from written_sessions import stepped

from klat.base.errors import KlatError
from klat.compare.submitted import METRICS, read, submittable
from klat.export.submission import submit
from klat.machine import privacy
from klat.report import machines
from klat.report.renderers import markdown

HOST, USER, SERIAL = "marvin42", "zaphod", "S3Z8NB0K"
MACHINE_ID = "4c4d4e4fa0b1c2d3e4f5a6b7c8d9eafb"
MAC, IPV4, UUID = "52:54:00:ab:cd:ef", "192.168.17.23", "0a1b2c3d-1111-2222-3333-444455556666"
NAMES = f"{HOST} {USER} /home/{USER}/secret {SERIAL} {MAC} {IPV4} {UUID} {MACHINE_ID}"
# Typed by the user, and no name that klat could recognise.
TYPED = "heartofgold"
BOOT = "99999999-2222-3333-4444-555555555555"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The files of a machine whose names are planted."""
    contents = {"etc/hostname": HOST, "etc/machine-id": MACHINE_ID}
    for name, text in {**contents, "sys/class/dmi/id/product_serial": SERIAL}.items():
        made_tools.write(tmp_path / "root" / name, f"{text}\n")
    monkeypatch.setattr(privacy.socket, "gethostname", lambda: HOST)
    for name in ("LOGNAME", "USER", "SUDO_USER"):
        monkeypatch.setenv(name, USER)
    monkeypatch.setenv("HOME", f"/home/{USER}")
    return tmp_path / "root"


def planned(session, arguments=""):
    """Gives the session the plan and run.json of klat run."""
    programs = [line.split(",")[2] for line in session.lines()]
    rows = [f'{n},{name},{n},"{arguments}"\n' for n, name in enumerate(programs, 1)]
    (session.path / "plan.csv").write_text("order,benchmark,run,arguments\n" + "".join(rows))
    if not (session.path / "run.json").exists():
        session.write_facts({"schema": 1, "label": session.info["label"]})
    return session


@pytest.fixture
def session(new_session):
    """A session of this machine, with a run of each core program."""

    def make(name="mine/1", statuses=("ok",), **info):
        info = {"machine_id": privacy.recorded_id_here(), "label": name.split("/")[0]} | info
        made = new_session(name, **{"environment": {}, **info})
        for program, metric in METRICS.items():
            for number, status in enumerate(statuses, 1):
                middle = (
                    52_000 if status == "ok" else 104_000 if status == "disturbed" else 1_000_000
                )
                made.run({metric: stepped(middle)}, benchmark=program, params="", run=number, status=status, reason=status.strip("ok"))  # fmt: skip
        return planned(made)

    return make


def contents(file):
    with tarfile.open(file) as archive:
        return {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}


def lines_of(label):
    return "\n".join(markdown.lines(machines.document({"FILE": label})))


def test_the_file_is_the_label_and_can_be_checked(session, tmp_path, klat, monkeypatch):
    monkeypatch.chdir(tmp_path)
    label = session(created="2024-01-02T03:04:05Z").path.parent
    session("mine/2", boot_id=BOOT)
    status, out, err = klat("submit", label)
    assert (status, out) == (0, "klat-6.1.0-test-20240102T030405Z.tar.gz\n")
    assert err.splitlines()[0].startswith("holds: 2 sessions in 2 boots, 10 runs with samples, ")
    assert "Figures of a machine" in " ".join(err.split())
    made_tools.run("tar", "-xzf", out.strip(), cwd=tmp_path)
    assert made_tools.run("sha256sum", "--check", "SHA256SUMS", cwd=tmp_path).returncode == 0
    assert klat("summary", "--verify", "6.1.0-test")[0] == 0
    before, after = (klat("summary", "--format=csv", path)[1] for path in (label, "6.1.0-test"))
    assert before.replace("mine", "6.1.0-test") == after
    (tmp_path / "into").mkdir()
    assert len(read(tmp_path / out.strip(), tmp_path / "into").sessions) == 2


def test_the_same_session_makes_the_same_bytes(session, tmp_path):
    label = submittable(session().path)
    files = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        files.append(submit(label, tmp_path / name).file.read_bytes())
    assert files[0] == files[1]


def test_no_name_is_in_the_file(new_session, root, tmp_path):
    environment = {
        "proc/cmdline": f"root=/dev/{TYPED} ip={NAMES} isolcpus=2-3 x={HOST} -- --{TYPED}",
        "proc/config.gz": "",
        "proc/self/cgroup": NAMES,
        "proc/net/ptype": f"ALL {HOST} f",
        "proc/interrupts": f"  CPU0 CPU1\n 1: {NAMES}",
        "etc/os-release": f'PRETTY_NAME="Linux of {USER}"',
        "etc/ld.so.preload": NAMES,
        "etc/shadow": f"written by another user: {TYPED}",
    }
    machine_id = privacy.recorded_id_here(root)
    made = new_session(
        f"{HOST}-{TYPED}/{USER}",
        label=f"{HOST}-{TYPED}",
        boot_id=BOOT,
        machine_id=machine_id,
        kernel_release=f"6.1.0-{USER}",
        kernel_version=NAMES,
        cpu_model=NAMES,
        inherited={"LD_AUDIT": NAMES},
        libraries={"pipes": NAMES},
        future=f"{TYPED} {NAMES}",
        environment=environment,
        facts={
            "schema": 1,
            "label": f"{HOST}-{TYPED}",
            "boot_id": BOOT,
            "command": [TYPED, NAMES],
            "changed": [["a", "b", NAMES, NAMES]],
            "unrecorded": [{"benchmark": "cv", "arguments": "", "orders": [9], "reason": NAMES}],
            "future": f"{TYPED} {NAMES}",
        },
    )
    gz = made.path / "environment/proc/config.gz"
    gz.write_bytes(gzip.compress(f'CONFIG_HZ=250\nCONFIG_INITRAMFS_SOURCE="{NAMES}"\n'.encode()))
    made.run({"round_trip": stepped(52_000)}, reason=NAMES, status="disturbed", evidence=f"locked=1;task={NAMES};host={HOST}", params=f"bytes=1;to={NAMES}")  # fmt: skip
    planned(made)
    (made.path / "load.log").write_text(f"{TYPED} {NAMES}")
    (made.path / "traces").mkdir()
    (made.path / "traces/x").write_text(f"{TYPED} {NAMES}")
    submission = submit(submittable(made.path), tmp_path, root)
    bytes_of_tar = gzip.decompress(submission.file.read_bytes()).lower()
    private = (*NAMES.split(), TYPED, USER, BOOT, machine_id)
    assert not [word for word in private if word.lower().encode() in bytes_of_tar]
    assert not [word for word in private if word.lower() in submission.file.name.lower()]
    text = bytes_of_tar.decode(errors="replace")
    for kept in ("isolcpus=2-3", "config_hz=250", "locked=1", "bytes=1", "6.1.0-user", "task=host"):
        assert kept in text, kept
    assert submission.changed


def test_ids_tell_machines_apart_but_do_not_name_them(session, root, tmp_path):
    def ids(**info):
        file = submit(submittable(session(**info).path), tmp_path, root).file
        (info_file,) = [
            data for name, data in contents(file).items() if name.endswith("session.json")
        ]
        file.unlink()
        return [json.loads(info_file)[key] for key in ("machine_id", "boot_id")]

    here = privacy.recorded_id_here(root)
    first = ids(machine_id=here)
    second = ids(name="mine/2", machine_id=here, boot_id=BOOT)
    assert first[0] == second[0] not in (None, here, MACHINE_ID) and first[1] != second[1] != BOOT
    (root / "etc/machine-id").write_text("f" * 32)
    assert ids(name="mine/3", machine_id=privacy.recorded_id_here(root))[0] not in (None, first[0])
    # A serial number could be found by trying all.
    (root / "etc/machine-id").write_text("uninitialized\n")
    (root / "proc/device-tree").mkdir(parents=True)
    (root / "proc/device-tree/serial-number").write_text("0000000012345678\0")
    here = privacy.recorded_id_here(root)
    assert here and ids(name="mine/4", machine_id=here)[0] is None


def test_the_id_of_this_machine_is_the_one_that_the_programs_record(tmp_path):
    """By docs/session.md and lib/record/identity.c."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text(f"{MACHINE_ID}\n")
    salted = hashlib.sha256(f"klat:{MACHINE_ID}".encode()).hexdigest()[:32]
    assert privacy.recorded_id_here(tmp_path) == salted
    for nothing in ("", "0" * 32, "uninitialized"):
        (tmp_path / "etc/machine-id").write_text(nothing)
        assert privacy.recorded_id_here(tmp_path) is None


def edited_row(made):
    made.runs_csv.write_text(made.runs_csv.read_text().replace(",52000,", ",41000,"))


def edited_samples(made):
    made.samples_file("pipes").write_bytes(bytes(8 * 630))


@pytest.mark.parametrize(
    ("info", "change", "reason"),
    [
        ({"mode": "counted", "unit": "instructions"}, None, "is in mode counted, so it has no times of a machine"),
        ({"facts": {"lab": {"boot": 1}}}, None, "is of a guest that klat lab booted"),
        ({"facts": {"prefix": "nice"}}, None, "was measured with options, a profile, a load or commands"),
        ({"facts": {"load": "populate"}}, None, "was measured with options, a profile, a load or commands"),
        ({}, lambda made: planned(made, "--bytes=9"), "was measured with options, a profile, a load or commands"),
        ({}, lambda made: (made.path / "plan.csv").unlink(), "has no plan.csv, so klat run did not begin it"),
        ({}, edited_row, "damaged rows could not be verified; klat summary --verify lists all"),
        ({}, edited_samples, "from the samples; klat summary --verify lists all"),
        ({}, lambda made: made.samples_file("cv").unlink(), "cv.u64: No such file"),
        ({"machine_id": "ab" * 16}, None, "is of another machine"),
        ({"statuses": ("invalid",)}, None, "no run of a core program counts: invalid"),
    ],
)  # fmt: skip
def test_a_session_that_is_refused(session, tmp_path, klat, monkeypatch, info, change, reason):
    monkeypatch.chdir(tmp_path)
    made = session(**info)
    if change:
        change(made)
    status, out, err = klat("submit", made.path)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("klat submit: ") and reason in err
    assert not list(tmp_path.glob("*.gz"))


def test_paths_that_are_refused(session, tmp_path, klat, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session()
    session("other/1", boot_id=BOOT)
    for path, reason in (
        ("results/mina", "no such directory, did you mean 'results/mine'?"),
        ("root", "no such directory"),
        (".", "holds no session"),
        ("results", "holds sessions that klat compare does not combine: mine, other; name one"),
    ):
        status, out, err = klat("submit", path)
        assert (status, out, err.count("\n")) == (2, "", 1) and reason in err, err


def test_a_file_that_cannot_be_written_is_one_line(session, tmp_path, monkeypatch):
    label = str(session(created="2026-01-01T00:00:00Z").path.parent)
    words = [fakes.KLAT, "submit", label]

    def refused(cwd, **more):
        done = made_tools.run(*words, cwd=cwd, **more)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        return done.stderr

    file = tmp_path / "klat-6.1.0-test-20260101T000000Z.tar.gz"
    file.write_text("precious")
    assert "exists already; move it or remove it first" in refused(tmp_path)
    assert file.read_text() == "precious"
    file.unlink()
    assert "klat submit: cannot write klat-6.1.0" in refused("/proc")

    def small():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    assert "File too large; set TMPDIR to another directory" in refused(tmp_path, preexec_fn=small)
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_samples_that_no_issue_takes_are_refused(session, tmp_path, monkeypatch):
    label = submittable(session().path)
    for name in ("LARGEST", "_LARGEST_SAMPLES"):
        with monkeypatch.context() as patch:
            patch.setattr(f"klat.export.submission.{name}", 100)
            with pytest.raises(KlatError, match="measure with fewer --runs"):
                submit(label, tmp_path)
    assert not list(tmp_path.glob("*.gz"))


def repacked(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def test_a_file_that_was_edited_or_damaged_is_refused(session, tmp_path):
    file = submit(submittable(session().path), tmp_path).file
    whole, members = file.read_bytes(), contents(file)
    (settings,) = [name for name in members if name.endswith("cmdline")]
    without_sums = {name: data for name, data in members.items() if name != "SHA256SUMS"}
    for data, reason in (
        (repacked(members | {settings: b"isolcpus=1\n"}), "edited or damaged"),
        (repacked(members | {"6.1.0-test/more": b""}), "edited or damaged"),
        (repacked(without_sums), "has no SHA256SUMS"),
        (repacked({"../x": b""}), "forbidden path"),
        (whole[:-100], "is damaged"),
        (b"no archive", "is damaged"),
    ):
        file.write_bytes(data)
        (into := tmp_path / hashlib.sha256(data).hexdigest()).mkdir()
        with pytest.raises(KlatError, match=reason) as refused:
            read(file, into)
        assert str(file) in str(refused.value) and str(into) not in str(refused.value)


def test_a_forged_session_with_right_checksums_is_refused(session, tmp_path):
    """The importer applies the rules of klat submit again."""
    members = contents(submit(submittable(session().path), tmp_path).file)
    (name,) = [name for name in members if name.endswith("session.json")]
    info = json.loads(members[name]) | {"mode": "counted", "unit": "instructions"}
    members[name] = json.dumps(info).encode()
    del members["SHA256SUMS"]
    lines = [f"{hashlib.sha256(data).hexdigest()}  {n}\n" for n, data in sorted(members.items(), key=lambda item: Path(item[0]))]  # fmt: skip
    (tmp_path / "forged").write_bytes(repacked(members | {"SHA256SUMS": "".join(lines).encode()}))
    (tmp_path / "into").mkdir()
    with pytest.raises(KlatError, match="is in mode counted"):
        read(tmp_path / "forged", tmp_path / "into")


def test_only_runs_that_count_enter_the_table(session):
    """The median of stepped(52_000) is 20 us at 2.6 GHz."""
    text = lines_of(
        submittable(session(statuses=("ok", "invalid", "ok", "invalid", "invalid")).path)
    )
    assert "| 1 Test CPU, 2 CPUs, virtual | 1 | 2 of 5 | 20.0 / " in text
    # As in every figure of klat, a disturbed run counts.
    text = lines_of(submittable(session("mine/2", statuses=("disturbed",)).path))
    assert "| 1 | 1 of 1 | 40.0 / " in text


def test_a_metric_without_a_run_has_no_figure(session):
    made = session("real/1", mode="hardware")
    rows = [line for line in made.lines() if ",tlbflush," not in line]
    made.runs_csv.write_text("\n".join([made.runs_csv.read_text().split("\n")[0], *rows, ""]))
    text = lines_of(submittable(made.path))
    assert "| 1 Test CPU, 2 CPUs | 1 | 0 to 1 of 1 | " in text and "| n/a | " in text


def test_a_row_says_how_the_machine_was_set(session):
    cpu = "sys/devices/system/cpu"
    environment = {
        f"{cpu}/cpu0/cpufreq/scaling_governor": "performance",
        f"{cpu}/isolated": "1",
        f"{cpu}/vulnerabilities/meltdown": "Mitigation: PTI",
        f"{cpu}/vulnerabilities/mds": "Vulnerable",
        f"{cpu}/vulnerabilities/l1tf": "Not affected",
        "proc/cpuinfo": "model name : Test CPU\nmicrocode : 0x42\n",
    }
    text = lines_of(submittable(session(environment=environment, preemption="rt").path))
    assert "| 6.1.0-test | rt | 0x42 | 1 active, 1 missing |" in text
    assert "frequency governor performance" in text and "isolated CPUs 1" in text


def test_what_klat_run_records_can_be_submitted(tmp_path, monkeypatch):
    monkeypatch.setitem(METRICS, "pipes", "one")  # of the fake program
    fake = fakes.Klat(tmp_path)
    fake("run", "pipes", "--runs", "2", "--label", "mine", status=0)
    file = submit(submittable(fake.directory / "results/mine"), tmp_path).file
    (tmp_path / "into").mkdir()
    assert read(file, tmp_path / "into").boots == 1
    fake("run", "pipes", "--runs", "2", "--label", "other", "--option", "pipes.bytes=9", status=0)
    assert "was measured with options" in fake.refused("submit", "results/other")
