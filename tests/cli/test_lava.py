"""lab/static/measure and lab/lava, with the programs of the tree, or with a program that leaves a given record."""

import base64
import gzip
import json
import os
import shutil
import time
from pathlib import Path

import harness
import made_tools
import pytest
import yaml
from harness import ROOT, Done, command

KLAT = ROOT / "klat"
DEFINITION = ROOT / "lab/lava/klat.yaml"
TAKE_RECORD = ROOT / "lab/lava/take-record"
# Of runs.csv.
COLUMNS = "benchmark metric unit status reason p50 p99 max cpus".split()
LAVA_TEST_CASE = '#!/bin/sh\necho "<TESTCASE $*>"\n'
# Leaves the record in the directory `left`, and ends with a status.
LEAVES = """\
#!/bin/sh
while [ "$1" != --record ]; do shift; done
cp -R {left}/. "$2"
exit {status}
"""


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """The directory of the unpacked archive, with the programs of the tree."""
    folder = tmp_path / "klat-programs-x"
    folder.mkdir()
    for script in ("lab/static/measure", "lab/lava/measure-for-lava"):
        shutil.copy(ROOT / script, folder)
    for name in ("pipes", "timer", "syscall", "load"):
        (folder / name).symlink_to(harness.path_of(name))
    made_tools.script(tmp_path / "tools/lava-test-case", LAVA_TEST_CASE)
    return folder


def run(words: list[str | Path], folder: Path, **settings: str) -> Done:
    path = f"{folder.parent / 'tools'}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(folder.parent)} | settings
    return command(words, cwd=folder.parent, env=environment, limit=120)


def cases(done: Done) -> dict[str, list[str]]:
    """What lava-test-case was called with."""
    lines = [line[10:-1].split() for line in done.out.splitlines() if line.startswith("<TESTCASE ")]
    assert len({words[0] for words in lines}) == len(lines), "each name once"
    return {words[0]: words[1:] for words in lines}


def leave(unpacked: Path, rows: list[dict[str, object]], status: int = 0, **info: object) -> Done:
    """measure-for-lava with a program pipes that leaves these rows."""
    left = unpacked.parent / "left"
    left.mkdir()
    known: dict[str, object] = {"mode": "hardware", "tsc": {"khz": 2000000.5}}
    (left / "session.json").write_text(json.dumps(known | info, indent=2))
    filled = [",".join(str(row.get(name, "")) for name in COLUMNS) for row in rows]
    (left / "runs.csv").write_text("\n".join([",".join(COLUMNS), *filled]) + "\n")
    (unpacked / "pipes").unlink()
    made_tools.script(unpacked / "pipes", LEAVES.format(left=left, status=status))
    return run([unpacked / "measure-for-lava", "pipes"], unpacked, RUNS="1")


def row(p50: int | str, **more: object) -> dict[str, object]:
    return {
        **{"benchmark": "pipes", "metric": "round_trip", "unit": "ticks", "status": "ok"},
        **{"p50": p50, "p99": 3000, "max": 8000, "cpus": '"0,1"', "reason": '"a, and ""b"", c"'},
    } | more


def test_the_definition_measures_and_the_record_comes_home(unpacked, tmp_path):
    """As LAVA runs it: parameters between single quotes, then each step, until one fails."""
    definition = yaml.safe_load(DEFINITION.read_text())
    assert definition["metadata"]["format"] == "Lava-Test Test Definition 1.0"
    chosen = {
        **{"DIRECTORY": str(tmp_path), "LABEL": "stock", "RUNS": "2"},
        "PROGRAMS": 'pipes "timer --method nanosleep --iterations 50"',
    }
    assert set(chosen) <= set(definition["params"])
    lines = [f"{name}='{value}'" for name, value in (definition["params"] | chosen).items()]
    script = tmp_path / "run.sh"
    script.write_text("\n".join([*lines, "set -e", *definition["run"]["steps"]]) + "\n")
    done = run(["sh", script], unpacked)
    assert done.status == 0, str(done)
    found = cases(done)
    assert found["measure"] == ["--result", "pass"]
    assert {"pipes", "timer"} <= set(found)
    log = tmp_path / "log"
    # LAVA's log is YAML, and has other messages between the lines.
    said = [f'- {{"lvl": "target", "msg": "{line}"}}\n- other' for line in done.out.splitlines()]
    log.write_text("\n".join(said))
    results = tmp_path / "my results"
    # The current directory can belong to another user.
    (tmp_path / "tarfile.py").write_text("raise SystemExit(9)")
    taken = command([TAKE_RECORD, log, results, "board-7", "stock"], cwd=tmp_path)
    assert (taken.status, taken.err) == (0, ""), str(taken)
    (session,) = (results / "stock").iterdir()
    assert session.name.endswith("-board-7")
    orders = [(r["order"], r["run"], r["benchmark"]) for r in harness.Session(session).rows]
    wanted = [("1", "1", "pipes"), ("2", "1", "timer"), ("3", "2", "pipes"), ("4", "2", "timer")]
    assert sorted(set(orders)) == wanted
    assert command([KLAT, "summary", "--verify", session]).status == 0
    assert not (tmp_path / "results").exists(), "nothing stays on the board"


@pytest.mark.parametrize(
    "unit, mode, figures",
    [
        (
            "ticks",
            "hardware",
            {"median": ("1000", "ns"), "p99": ("1500", "ns"), "max": ("4500", "ns")},
        ),
        (
            "instructions",
            "counted",
            {
                "median": ("2000", "instructions"),
                "p99": ("3000", "instructions"),
                "max": ("9000", "instructions"),
            },
        ),
        ("ticks", "emulated", {}),
    ],
)
def test_the_figures_are_medians_of_the_runs_that_count(unit, mode, figures, unpacked):
    """A quoted reason holds commas, and a run that does not count is left out."""
    rows = [row(2500), row(1000, status="disturbed", max=9000), row(1, status="invalid")]
    rows += [row("", p99="", max="", status="ok"), row(1900), row(2100)]
    found = cases(leave(unpacked, [each | {"unit": unit} for each in rows], mode=mode))
    assert found.pop("pipes") == ["--result", "fail"], "a run was invalid"
    assert found.pop("measure") == ["--result", "pass"]
    assert found == {
        f"pipes.round_trip.{name}": ["--result", "pass", "--measurement", value, "--units", unit]
        for name, (value, unit) in figures.items()
    }


@pytest.mark.parametrize(
    "statuses, result",
    [
        (("ok", "skipped"), "pass"),
        (("skipped", "skipped"), "skip"),
        (("skipped", "error", "ok"), "fail"),
    ],
)
def test_a_program_passes_if_its_runs_count(statuses, result, unpacked):
    done = leave(unpacked, [row(5, status=status) for status in statuses])
    assert cases(done)["pipes"] == ["--result", result]


def test_a_program_that_fails_fails_the_job_and_keeps_the_record(unpacked, tmp_path):
    """A log can have the records of several kernels."""
    done = leave(unpacked, [row(5)], status=1)
    assert cases(done)["measure"] == ["--result", "fail"]
    other = run([unpacked / "measure-for-lava", "pipes"], unpacked, RUNS="1", LABEL="other")
    (tmp_path / "log").write_text(done.out + other.out)
    take = [TAKE_RECORD, tmp_path / "log", tmp_path / "results", "m", "other"]
    refused = command(take)
    assert refused.status == 1 and f"label {os.uname().release!r}, not of other" in refused.err
    assert command([*take, os.uname().release]).status == 0
    taken = {path.parts[-3] for path in (tmp_path / "results").glob("*/*-m/runs.csv")}
    assert taken == {os.uname().release, "other"}


def test_measure_runs_under_a_load_that_the_record_names(unpacked, tmp_path):
    done = run([unpacked / "measure", "syscall"], unpacked, RUNS="1", LABEL="b", LOAD="zero")
    session = tmp_path / done.out.strip()
    assert done.status == 0 and session.parent == tmp_path / "results/b", str(done)
    assert "load: zero" in command([KLAT, "summary", session]).out
    done = run([unpacked / "measure", "syscall"], unpacked, RUNS="1", LABEL="c", LOAD="nonsense")
    assert done.status == 1 and "measure: the load ended or was stopped: load: " in done.err, str(
        done
    )
    assert not list((tmp_path / "results/c").glob("*/runs.csv"))


ENDS_THE_LOAD = """\
#!/bin/sh
{end} "$(cat load.pid)"
sleep 0.2
exec "${{0%/*}}/syscall" "$@"
"""
LOAD = """\
#!/bin/sh
[ "$1" = --list ] && exit
echo $$ >"$PWD/load.pid"
while sleep 0.1; do :; done
"""


@pytest.mark.parametrize("end", ["kill", "kill -STOP"])
def test_measure_records_no_run_whose_load_ends(end, unpacked, tmp_path):
    (unpacked / "load").unlink()
    made_tools.script(unpacked / "load", LOAD)
    made_tools.script(unpacked / "cv", ENDS_THE_LOAD.format(end=end))
    done = run([unpacked / "measure", "syscall", "cv"], unpacked, RUNS="1", LABEL="b", LOAD="any")
    assert done.status == 1 and "measure: the load ended or was stopped" in done.err, str(done)
    (session,) = (tmp_path / "results/b").iterdir()
    assert [row["order"] for row in harness.Session(session).rows] == ["1"]


def test_measure_writes_into_no_directory_of_another_user(unpacked, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("kept")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().split("-")[0]
    begun = time.time()
    for second in range(60):
        name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(begun + second))
        made = tmp_path / f"results/b/{name}-{boot}"
        made.mkdir(parents=True)
        for file in ("load.log", "run.json"):
            (made / file).symlink_to(victim)
    done = run([unpacked / "measure", "syscall"], unpacked, RUNS="1", LABEL="b", LOAD="zero")
    assert done.status == 1 and "exists" in done.err, str(done)
    assert victim.read_text() == "kept"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")
@pytest.mark.parametrize("kind", ["owner", "mode", "link", "target", "mine"])
def test_measure_follows_only_roots_links(unpacked, tmp_path, kind):
    """The last is root's own link, to a directory that the caller of sudo can write."""
    target, label = tmp_path / "target", tmp_path / "results/b"
    target.mkdir()
    label.parent.mkdir()
    label.symlink_to(target)
    if kind in ("owner", "link", "target"):
        path = {"owner": label.parent, "link": label, "target": target}[kind]
        os.chown(path, 65534, 65534, follow_symlinks=False)
    elif kind == "mode":
        label.parent.chmod(0o777)
    else:
        os.chown(target, 1000, 1000)
    sudo = {"SUDO_UID": "1000", "SUDO_GID": "1000"}
    done = run([unpacked / "measure", "syscall"], unpacked, RUNS="1", LABEL="b", **sudo)
    assert bool(list(target.iterdir())) is (kind == "mine"), str(done)
    if kind != "mine":
        assert done.status == 1 and done.err.count("\n") == 1, str(done)
        assert "another user can write or replace it" in done.err


def record_lines(archive: bytes) -> str:
    coded = base64.encodebytes(archive).decode().splitlines()
    return "\n".join(f"klat-record: {line}" for line in ["begin", *coded, "end"]) + "\n"


def test_a_log_without_a_whole_record_is_refused(tmp_path):
    def refused(text: str) -> str:
        (tmp_path / "log").write_text(text)
        done = command([TAKE_RECORD, tmp_path / "log", tmp_path / "results", "m", "stock"])
        assert done.status == 1 and done.out == "", str(done)
        assert not list(tmp_path.glob("results/*"))
        return done.err

    whole = record_lines(gzip.compress(os.urandom(2000)))
    assert "has no record" in refused("klat-records: none\n")
    lines = whole.splitlines()
    assert "is damaged or cut off" in refused("\n".join(lines[:-5]))
    lines[4] = lines[4][:40] + "[ 5.1] random: crng init done"
    assert "is damaged or cut off" in refused("\n".join(lines))
    assert command([TAKE_RECORD, tmp_path / "none", tmp_path / "results", "m", "stock"]).status == 2


def test_programs_of_another_machine_are_told_before_there_is_a_session(unpacked):
    foreign = bytearray(Path("/bin/sh").read_bytes())
    foreign[18] ^= 0xFF  # e_machine of elf(5)
    (unpacked / "load").unlink()
    (unpacked / "load").write_bytes(foreign)
    (unpacked / "load").chmod(0o755)
    done = run([unpacked / "measure"], unpacked)
    said = f"measure: this machine ({os.uname().machine}) cannot run the programs in {unpacked}; "
    assert done.status == 2 and done.err.startswith(said) and not done.out, str(done)
    assert not (unpacked.parent / "results").exists()
