"""What holds for every command: it is found, and what goes wrong is one line and a status."""

import argparse
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import fakes
import made_tools
import pytest
from fakes import ROOT
from made_tools import script, write

from klat import cli, commands
from klat.base import programs
from klat.base.errors import KlatError, installing
from klat.commands import _types


@pytest.fixture
def fake(tmp_path: Path) -> fakes.Klat:
    return fakes.Klat(tmp_path)


@pytest.fixture
def core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with fake programs for klat in this process."""
    monkeypatch.setenv("KLAT_PROGRAMS", str(fakes.install(tmp_path / "programs")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_names_the_commands_and_the_programs(core, klat):
    status, out, err = klat("--help")
    assert (status, err) == (0, "")
    assert all(name in out for name in (*commands.names(), *fakes.CORE))
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("command", [name for name in commands.names() if name != "lab"])
def test_the_help_of_a_command_lists_its_exit_statuses(klat, command):
    status, out, _ = klat(command, "--help")
    assert status == 0 and "Exit status: 0" in out
    assert max(map(len, out.splitlines())) <= 80


def test_names_of_benchmarks_may_follow_options(fake):
    fake("run", "pipes", "--runs", "1", "cv", "--label", "x", "timer", status=0)
    assert {start[0] for start in fake.starts()} == {"pipes", "cv", "timer"}
    said = fake.refused("run", "pipes", "--runs", "1", "cv", "--unknown", "timer")
    assert "unrecognized arguments: cv --unknown timer" in said


def test_without_a_command_the_help_goes_to_standard_error(klat):
    status, out, err = klat()
    assert (status, out) == (2, "") and "usage: klat" in err


BAD_INPUT = """\
nothing | ../klat | --no-such-option | run --no-such-option | run --run 5 | run nothing
run pipes pipes | run --runs 0 | run --runs 5x | run --runs 99999999999999999999
run --runs '１' | run --seed -1 | run --seed 9223372036854775808 | run --iterations 0
run --pause x | run --time-limit 0 | run --load ' ' | run --cpus '' | run --policy 'fifo"'
run --sweep tlbflush.responders=2..1 | run pipes --sweep cv.x=1,2
run --option pipes.record=/tmp/x | run --label a/b | run --resume nowhere | run --all pipes
ab --a x --b y --all pipes | doctor --format xml | doctor extra"""


@pytest.mark.parametrize("line", re.split(r"\n| \| ", BAD_INPUT))
def test_bad_input_is_refused_with_status_2_in_one_line(core, klat, line):
    words = shlex.split(line)
    status, out, err = klat(*words)
    assert (status, out, len(err.splitlines())) == (2, "", 1), err
    command = words[0] if words[0] in commands.names() else ""
    assert err.startswith(f"klat {command}".rstrip() + ": ")
    assert not (core / "results").exists()


def test_a_slip_of_the_finger_is_met_with_a_suggestion(fake):
    assert "did you mean 'doctor'?" in fake("docter").stderr
    assert "did you mean 'tlbflush'?" in fake("tlbflsh").stderr


def test_a_program_not_built_and_an_unknown_program_have_different_messages(tmp_path):
    fake = fakes.Klat(tmp_path, names=("cv",))
    assert "pipes is not built" in fake("pipes").stderr
    assert "pipes is not built" in fake("run", "cv", "pipes").stderr
    assert "no benchmark 'pipe'" in fake("run", "pipe").stderr


@pytest.mark.parametrize(
    "words", [["run"], ["run", "noise"], ["pipes"], ["noise"], ["soak", "noise", "--for", "1s"]]
)
def test_an_unbuilt_tree_names_both_cures(words, tmp_path, klat, monkeypatch):
    """The sources without programs."""
    for name in ("pipes", "cv", "tlbflush", "timer", "network", "bench/noise"):
        write(tmp_path / name / f"{Path(name).name}.c")
    monkeypatch.delenv("KLAT_PROGRAMS", raising=False)
    monkeypatch.setattr(programs, "directory", lambda: tmp_path)
    status, out, err = klat(*words)
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert "is not built" in err and "run 'make', or install a wheel" in err


def test_programs_are_the_core_five_first_and_only_those_that_record(tmp_path, klat, monkeypatch):
    found = fakes.install(tmp_path / "programs", ("switch", "cv", "pipes", "eventloop"))
    for name, script in (("load", "exit 0"), ("old", "sleep 60"), ("data", "")):
        (found / name).mkdir()
        path = found / name / name
        path.write_text(f"#!/bin/sh\necho {name}\n{script}\n")
        path.chmod(0o644 if name == "data" else 0o755)
    monkeypatch.setenv("KLAT_PROGRAMS", str(found))
    monkeypatch.setattr(programs, "_PROBE_SECONDS", 0.5)
    assert "programs:\n  pipes cv eventloop switch\n" in klat("--help")[1]
    assert klat("load")[0] == 2


def test_programs_for_another_machine_are_one_line_with_the_cure(tmp_path):
    """elf(5): a header with the number of a machine that does not exist."""
    fake = fakes.Klat(tmp_path, names=("pipes", "switch"))
    for name in ("pipes", "switch"):
        header = b"\x7fELF\2\1\1".ljust(16, b"\0") + b"\2\0\x34\x12"
        (tmp_path / "programs" / name / name).write_bytes(header.ljust(64, b"\0"))
    for words in (
        ["pipes"],
        ["switch"],
        ["run", "pipes"],
        ["run", "switch"],
        ["soak", "pipes", "--for=1s"],
    ):
        done = fake(*words)
        assert done.returncode in (1, 2) and len(done.stderr.splitlines()) == 1, done.stderr
        assert " is a program for another machine, and this machine is " in done.stderr
        assert done.stderr.endswith("; run make\n")
    done = fake("--help")
    assert done.returncode == 0 and "none starts: " in done.stdout
    (tmp_path / "programs/switch/switch").write_bytes(b"")  # no program of any machine
    assert "another machine" not in fake("switch").stderr
    assert "the programs do not start" in fake("doctor").stdout


@pytest.mark.parametrize(
    "message",
    [
        "{0}: /lib/libc.so.6: version `GLIBC_2.99' not found (required by {0})",
        "{0}: error while loading shared libraries: libnuma.so.1: cannot open shared object file",
        "Error loading shared library libnuma.so.1: No such file or directory (needed by {0})",
        "",  # no dynamic loader
    ],
)
def test_programs_that_lack_a_library_are_one_line_with_the_cure(tmp_path, message):
    fake = fakes.Klat(tmp_path, names=("pipes", "switch", "signal"))
    for name in ("pipes", "switch"):
        path = tmp_path / "programs" / name / name
        script = f'#!/bin/sh\necho "{message.format(path)}" >&2\nexit 127\n'.replace("`", "\\`")
        path.write_text(script if message else "#!/missing/loader\n")
    for words in (["switch"], ["run", "pipes"], ["run", "switch"], ["soak", "pipes", "--for=1s"]):
        done = fake(*words)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
        assert "does not start: " in done.stderr and "(make clean && make)" in done.stderr
    assert "programs:\n  pipes signal\n" in fake("--help").stdout
    assert "the programs do not start" in fake("doctor").stdout


def test_directories_that_cannot_be_made_are_one_line_with_the_cure(tmp_path):
    fake = fakes.Klat(tmp_path)
    (tmp_path / "file").touch()
    place = str(tmp_path / "file/there")
    done = fake("run", "pipes", "--output", place, "--label", "a")
    assert done.returncode == 2
    assert done.stderr == (
        f"klat run: cannot make a session in {place}/a: Not a directory; --output DIR records elsewhere\n"
    )
    done = fake("lab", "kernels", more={"XDG_CACHE_HOME": place})
    assert done.returncode == 2 and done.stderr.startswith(
        f"klat lab: cannot make {place}/klat/lab"
    )
    assert done.stderr.endswith("; set XDG_CACHE_HOME to a directory that you can write\n")


def test_the_launcher_of_a_tree_is_no_program(tmp_path, klat, monkeypatch):
    """Its help would start it again, without end."""
    found = fakes.install(tmp_path / "tree", ("pipes",))
    started = tmp_path / "started"
    script(found / "klat", f"touch {started}\necho --record")
    monkeypatch.setenv("KLAT_PROGRAMS", str(found))
    assert "programs:\n  pipes\n" in klat("--help")[1]
    assert not started.exists()


@pytest.mark.parametrize(
    ("words", "started"),
    [
        (["all"], {*fakes.CORE, "spawn", "switch"}),
        (["--all"], {*fakes.CORE, "spawn", "switch"}),
        (["core"], {*fakes.CORE}),
        (["switch", "core"], {*fakes.CORE, "switch"}),
    ],
)
def test_a_word_stands_for_several_programs(words, started, tmp_path):
    fake = fakes.Klat(tmp_path, names=(*fakes.CORE, "spawn", "switch"))
    fake("run", *words, "--runs", "1", "--iterations", "5")
    assert {name for name, *rest in fake.starts() if "--iterations=5" in rest} == started


@pytest.mark.parametrize(
    ("words", "loaded"),
    [
        (["doctor", "--help"], ["klat.commands.doctor"]),
        (["--help"], []),
        (["--wrong", "doctor"], ["klat.commands.doctor"]),
    ],
)
def test_only_the_command_asked_for_is_loaded(words, loaded):
    script = (
        "import sys; sys.path.insert(0, sys.argv.pop(1));"
        f"from klat.cli import main; main({words});"
        "print(sorted(m for m in sys.modules if m.startswith('klat.commands.')))"
    )
    done = made_tools.run(sys.executable, "-c", script, fakes.ROOT / "scripts", check=True)
    assert done.stdout.splitlines()[-1] == str(loaded)


def command_that(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """`klat summary` raises `error`."""
    module = ModuleType("klat.commands.summary")

    def fail(arguments: object) -> int:
        raise error

    def add_parser(subparsers) -> None:  # type: ignore[no-untyped-def]
        subparsers.add_parser("summary").set_defaults(func=fail)

    module.add_parser = add_parser  # type: ignore[attr-defined]
    monkeypatch.setattr(commands, "names", lambda: ["summary"])
    monkeypatch.setattr(commands, "load", lambda name: module)


@pytest.mark.parametrize(
    ("error", "line", "status"),
    [
        (KlatError("no such thing"), "klat summary: no such thing", 2),
        (KlatError("it broke", status=1), "klat summary: it broke", 1),
        (KeyboardInterrupt(), "klat summary: interrupted", 130),
        (FileNotFoundError(2, "No such file", "a b"), "klat summary: a b: No such file", 2),
        (PermissionError(13, "Permission denied"), "klat summary: Permission denied", 2),
        (OSError("odd"), "klat summary: odd", 2),
        (KlatError("two\nlines\x1b[2J"), "klat summary: two\\x0alines\\x1b[2J", 2),
    ],
)
def test_an_error_is_one_line_and_a_status(monkeypatch, klat, error, line, status):
    command_that(monkeypatch, error)
    assert klat("summary") == (status, "", f"{line}\n")


@pytest.mark.parametrize("prefix", [sys.base_prefix, "/venv"])
@pytest.mark.parametrize("module", ["numpy", "scipy"])
def test_a_missing_library_is_named_with_its_package(monkeypatch, klat, module, prefix):
    """In a virtual environment, a package of the distribution would not be found."""
    monkeypatch.setattr(sys, "prefix", prefix)
    command_that(monkeypatch, ModuleNotFoundError(f"No module named '{module}'", name=module))
    status, _, err = klat("summary")
    cure = f"{sys.executable} -m pip" if prefix == "/venv" else "apt"
    package = module if prefix == "/venv" else f"python3-{module}"
    assert status == 2 and f": {cure} install {package}" in err


def test_a_defect_of_klat_is_not_hidden(monkeypatch):
    command_that(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        cli.main(["summary"])


def test_a_full_standard_output_is_one_line(fake):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, fakes.KLAT, "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=fake.environment(),
            text=True,
            timeout=fakes.PATIENCE,
            check=False,
        )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.endswith("No space left on device\n")


def test_a_path_is_not_the_name_of_a_program():
    for name in ("", "..", "../pipes", "pipes/pipes", "pipes\0", "/bin/sh"):
        assert programs.find(name) is None


def test_a_closed_stdout_does_not_crash():
    words = [sys.executable, "-B", str(ROOT / "klat"), "--version"]
    done = made_tools.run("sh", "-c", '"$@" >&-', "sh", *words)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["timer", "syscall"])
def test_a_file_system_without_exec_is_named(tmp_path, monkeypatch, name):
    """No file there is executable, so each program seems to be missing."""
    program = tmp_path / name / name
    program.parent.mkdir()
    program.touch()
    monkeypatch.setenv("KLAT_PROGRAMS", str(tmp_path))
    with pytest.raises(KlatError, match="is not built|there is no benchmark"):
        programs.require(name)
    flags = SimpleNamespace(f_flag=os.ST_NOEXEC | os.ST_NOSUID)
    monkeypatch.setattr(os, "statvfs", lambda _: flags)
    with pytest.raises(KlatError, match=f"no program in {tmp_path} can be .* mounted noexec"):
        programs.require(name)


@pytest.mark.parametrize("has_pip", [True, False])
def test_the_cure_of_a_missing_module_fits_the_environment(has_pip, monkeypatch):
    monkeypatch.setattr(sys, "prefix", "/somewhere/else")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: has_pip or None)
    words = (
        f"{sys.executable} -m pip install"
        if has_pip
        else f"uv pip install --python {sys.executable}"
    )
    assert installing("jinja2") == f"{words} jinja2"


SHORT = _types.checked(partial(_types.short_time, most_ns=10**10))
LONG = _types.checked(partial(_types.long_time, most_s=86_400))


@pytest.mark.parametrize(
    ("convert", "text", "value"),
    [
        (SHORT, "4.35us", 4350),
        (SHORT, "10s", 10**10),
        (SHORT, "100\N{MICRO SIGN}s", 100_000),
        (_types.limit, "50\N{MICRO SIGN}s", ("50us", 50_000.0, True)),
        (_types.limit, "50\N{GREEK SMALL LETTER MU}s", ("50us", 50_000.0, True)),
        (LONG, "1.5h", 5400),
        (_types.share, "5%", 0.05),
        (_types.margin, "0", 0.0),
        (_types.rare_share, "1e-4", 1e-4),
        (_types.limit, "50us", ("50us", 50_000.0, True)),
        (_types.limit, "26", ("26", 26.0, False)),
        (_types.number(1, 10), "007", 7),
    ],
)
def test_a_value_is_read(convert, text, value):
    assert convert(text) == value


@pytest.mark.parametrize(
    ("convert", "texts"),
    [
        (SHORT, ("0.4ns", "1.5ns", "11s", "100", "5min", "us")),
        (LONG, ("0.5s", "2d", "90", "1us")),
        (_types.share, ("0", "1", "100%", "%", "nan", "-1%", "1_0%", "٣%")),
        (_types.rare_share, ("1", "1e-13", "e")),
        (_types.limit, ("0us", "0", "fast", "1h")),
        (_types.number(1, 10), ("0", "11", "1.0", "٣", "0" * 20 + "5")),
    ],
)
def test_anything_else_is_refused(convert, texts):
    for text in texts:
        with pytest.raises(argparse.ArgumentTypeError):
            convert(text)
