"""klat finds out whether an emulator can load klat's plugin, which version of the plugin API to declare, and whether the
dynamic linker preloads the plugin to stop the time of day."""

import json
import re
import shutil
from pathlib import Path

import made_tools
import pytest
from labs import Lab
from test_lab_hostile import a_record, delivering

from klat.base.errors import KlatError
from klat.lab.architectures import AMD64
from klat.lab import qemu, replay, suite


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "a,b.so"
    path.touch()
    monkeypatch.setattr(suite, "trace_plugin", lambda: path)
    return path


def emulator(directory: Path, says: str) -> qemu.Emulator:
    path = made_tools.script(directory / "qemu", f"echo 'qemu: {says}' >&2\nexit 1")
    return qemu.Emulator(str(path), (9, 9), "9.9", AMD64)


def test_the_newest_version_that_qemu_supports_is_declared(tmp_path, plugin):
    says = "plugin requires API version 1000000, but this QEMU supports only up to version 5"
    option = replay.find_plugin(emulator(tmp_path, says)).load("out=x")
    assert option.environment == {"KLAT_PLUGIN_API": "5"}
    assert option.text == f"{tmp_path}/a,,b.so,out=x"


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ("-plugin: invalid option", "QEMU 9.9 cannot load klat's plugin.*: qemu: -plugin: invalid"),
        ("this QEMU supports only up to version 99", "has version 99 of the plugin API"),
    ],
)
def test_an_emulator_that_does_not_fit_is_refused(tmp_path, plugin, says, reason):
    with pytest.raises(KlatError, match=reason):
        replay.find_plugin(emulator(tmp_path, says))


def test_a_missing_plugin_is_named(tmp_path, plugin):
    plugin.unlink()
    with pytest.raises(KlatError, match=f"{plugin} is missing"):
        replay.find_plugin(emulator(tmp_path, ""))


VERSION = "echo 'QEMU emulator version 9.9'"


def preloaded(path: str | Path) -> dict[str, str]:
    """The variables of a counted guest. A second guest gets the same ones."""
    emulator = qemu.Emulator(str(path), (9, 9), "9.9", AMD64)
    machine = qemu.Machine(emulator, "counted", qemu.GuestSize())
    variables = machine.environment
    assert machine.environment == variables
    return variables


def noted(capsys: pytest.CaptureFixture[str]) -> str:
    """Why the clock is not stopped, from the only line on standard error."""
    line = capsys.readouterr().err
    match = re.fullmatch(
        r"note: QEMU's time of day is not stopped \((.*)\), so samples of a boot can differ by some"
        " instructions from a repetition\n",
        line,
    )
    assert match, line
    return match[1]


@pytest.mark.usefixtures("qemu")
def test_the_clock_of_an_emulator_that_loads_the_library_is_stopped(capsys):
    emulator = shutil.which("qemu-system-x86_64")
    assert emulator
    assert Path(preloaded(emulator)["LD_PRELOAD"]).name == "trace.so"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f'test -z "$LD_PRELOAD" || exit 3\n{VERSION}', "fails or prints another text"),
        (f'{VERSION}\ntest -z "$LD_PRELOAD" || echo more', "fails or prints another text"),
        (f"unset LD_PRELOAD\nexec /bin/{VERSION}", "does not load"),
        (f"exec env -u LD_PRELOAD /bin/{VERSION}", "does not load"),
    ],
)
def test_an_emulator_that_does_not_load_the_library_is_used_without_it(
    tmp_path, capsys, text, reason
):
    path = made_tools.script(tmp_path / "qemu", text)
    assert preloaded(path) == {}
    assert re.match(f"{path} .*{reason}.*/trace.so", noted(capsys))


@pytest.fixture
def printing(tmp_path: Path) -> Path:
    """An emulator that loads every library."""
    return made_tools.script(tmp_path / "qemu", f"exec /bin/{VERSION}")


@pytest.mark.parametrize("name", ["a b", "a:b"])
def test_the_path_of_a_library_that_cannot_be_preloaded_is_named(
    tmp_path, monkeypatch, capsys, printing, name
):
    library = tmp_path / name / "trace.so"
    library.parent.mkdir()
    shutil.copy(suite.trace_plugin(), library)
    monkeypatch.setattr(suite, "trace_plugin", lambda: library)
    assert preloaded(printing) == {}
    assert (
        noted(capsys)
        == f"no library with a space or a colon in its path can be preloaded: {library}"
    )


def test_a_missing_library_is_named(plugin, capsys, printing):
    plugin.unlink()
    assert preloaded(printing) == {}
    assert noted(capsys) == f"{plugin} is missing"


def test_a_library_that_cannot_be_built_is_no_reason_to_refuse(
    tmp_path, monkeypatch, capsys, printing
):
    monkeypatch.setenv("KLAT_PROGRAMS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert preloaded(printing) == {}
    assert noted(capsys) == (
        "klat's plugin for QEMU cannot be built: there is no make; install make, or install a wheel, which needs no build"
    )


def stopped_clocks(lab: Lab) -> list[bool]:
    machines = [*(lab.results / "planted").glob("*/lab/machine.json")]
    return [json.loads(file.read_text())["stopped_clock"] for file in machines]


def test_an_experiment_says_once_that_the_clock_is_not_stopped_and_ends_as_it_began(lab, tmp_path):
    words, environment = delivering(lab, tmp_path, a_record(tmp_path, 1), a_record(tmp_path, 2))
    emulator = tmp_path / "bin/qemu-system-x86_64"
    loading = emulator.rename(tmp_path / "qemu")
    made_tools.script(emulator, f'unset LD_PRELOAD\nexec {loading} "$@"')
    done = lab(*words, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("time of day is not stopped") == 1
    assert stopped_clocks(lab) == [False, False]
    loading.rename(emulator)
    kept, lost = (lab.results / "planted").iterdir()
    shutil.rmtree(lost)
    done = lab("run", "--resume", kept, **environment)
    assert done.returncode == 0, done.stderr
    assert stopped_clocks(lab) == [False, False]
