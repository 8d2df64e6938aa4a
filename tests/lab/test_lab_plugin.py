"""klat finds out whether an emulator can load klat's plugin, and which version of the plugin API to declare."""

from pathlib import Path

import made_tools
import pytest

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
