"""If klat cannot explain a sample, it prints one line that says why, and nothing else."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from labs import Lab, experiment, hash_of, static_program, write_session
import made_tools
from made_traces import MadeTrace
from test_lab_failures import one_line
from written_sessions import PIPES

from klat import cli
from klat.lab.architectures import AMD64, ARM64
from klat.lab import initramfs, qemu
from klat.lab.replay import Replayed

pytestmark = pytest.mark.usefixtures("qemu")
METRIC = ("--metric", "pipes.round_trip")
KERNEL = "ab" * 32
KALLSYMS = "ffffffff81000000 T startup_64\n"
# __switch_to_asm: push six registers, store and load the stack pointer.
SWITCH = bytes.fromhex("55534154415541564157" "4889a7d0180000" "488ba6d0180000")


class Recording:
    """A session of pipes. klat finds no reason to refuse it before it boots a guest."""

    def __init__(self, lab: Lab, label: str = "stock", **facts: object) -> None:
        cache = lab.cache / "klat/lab"
        guest = initramfs.archive(
            [initramfs.file("bin/pipes", static_program("pipes").read_bytes(), 0o755)]
        )
        self.guest = cache / "initramfs" / hashlib.sha256(guest).hexdigest()
        self.kernel = cache / "images" / f"{KERNEL}.vmlinux"
        # An ELF file that is no kernel, with a kernel's code for task switches.
        for path, data in (
            (self.guest, guest),
            (self.kernel, static_program("pipes").read_bytes() + SWITCH),
        ):
            made_tools.write(path, data)
        own = {"kernels": ("k",), "labels": (label,), "releases": ("6.1",), "hashes": (KERNEL,)}
        planned = experiment(**own | {"sets": (("pipes", ()),), "boots": 1} | facts)
        self.session = write_session(lab.results, planned, 1)
        self.session.run({"round_trip": [12, 12, 13]}, params=f"{PIPES};iterations=3;warmup=2")
        self.path = self.session.path
        self.machine: dict[str, object] = {
            "qemu": qemu.find(AMD64).text,
            "kernel": {"initramfs_sha256": self.guest.name, "vmlinux_sha256": hash_of(self.kernel)},
        }
        (self.path / "lab").mkdir()
        self.write()

    def write(self) -> None:
        (self.path / "lab/machine.json").write_text(json.dumps(self.machine))


@pytest.fixture
def recording(lab: Lab) -> Recording:
    return Recording(lab)


def refused(lab: Lab, *words: str | Path) -> str:
    done = lab.inside("explain", *words)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert not lab.working()
    return one_line(done)


def test_a_session_that_is_not_of_the_lab(lab, recording):
    (recording.path / "run.json").write_text("{}")
    assert "is not a session of klat lab" in refused(lab, recording.path, *METRIC)


def test_a_session_that_was_not_counted(lab):
    path = Recording(lab, mode="emulated").path
    assert "mode emulated; klat can repeat only counted boots" in refused(lab, path, *METRIC)


NO_SAMPLES = "no run has samples of {}; there are samples of pipes.round_trip"
TYPO = NO_SAMPLES.format("pipes.rond_trip")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("results/stok", *METRIC), "results/stok: "),
        (("{}", "--metric", "pipes.rond_trip"), TYPO),
        (("{}", "--metric", "cv.handoff"), NO_SAMPLES.format("cv.handoff")),
        (("{}", "--worst", "pipes.rond_trip"), TYPO),
        (("{}", "--metric", "pipes.rond_trip", "--worst"), TYPO),
        (("{}", "--worst", METRIC[1], *METRIC), "give the metric once: to --worst or to --metric"),
        (("{}", "--worst"), "--worst needs --metric, or BASE and NEW"),
    ],
)
def test_words_that_name_no_sample(lab, recording, words, said):
    assert said in refused(lab, *(word.format(recording.path) for word in words))


@pytest.mark.parametrize("option", ["--metric", "--worst"])
@pytest.mark.parametrize("text", ["pipes", "pipes.", "results/lab-6.1"])
def test_a_word_that_is_no_metric(lab, option, text):
    done = lab.inside("explain", option, text)
    assert done.returncode == 2
    assert f"argument {option}: '{text}' is not BENCHMARK.METRIC" in done.stderr


def test_a_kernel_whose_task_switches_klat_does_not_find(lab, recording):
    recording.kernel.write_bytes(static_program("pipes").read_bytes())
    recording.machine["kernel"] = {
        "initramfs_sha256": recording.guest.name,
        "vmlinux_sha256": hash_of(recording.kernel),
    }
    recording.write()
    told = refused(lab, recording.path, *METRIC)
    assert "6.1: klat does not find the code in which this kernel switches tasks" in told


def test_a_metric_that_has_no_windows(lab, recording):
    recording.session.run({"one_way": [5]}, params=f"{PIPES};iterations=1;warmup=2", order=1, run=1)
    told = refused(lab, recording.path, "--metric", "pipes.one_way")
    assert "pipes.one_way cannot be explained: pipes names no stamps" in told
    assert told.endswith("; pipes has round_trip")


def test_one_side_of_another_version_of_the_emulator_is_enough(lab, recording):
    other = Recording(lab, "other")
    other.machine["qemu"] = "9.2.0 (Debian 1:9.2.0+ds-1)"
    other.write()
    told = refused(lab, recording.path, other.path, *METRIC)
    here = qemu.find(AMD64).text
    said = f"was recorded with QEMU 9.2.0 (Debian 1:9.2.0+ds-1), and this machine has {here};"
    assert f"{other.path}: {said}" in told


def test_sides_of_two_architectures(lab, recording):
    other = Recording(lab, "other", arch=ARM64.name).path.parent
    told = refused(lab, recording.path, other, *METRIC)
    assert f"{other} is of arm64 and {recording.path} of amd64: klat can explain" in told


@pytest.mark.parametrize(("name", "said"), [("guest", "file system"), ("kernel", "kernel")])
def test_what_is_not_in_the_cache_any_more(lab, recording, name, said):
    getattr(recording, name).unlink()
    told = refused(lab, recording.path, *METRIC)
    assert told.endswith(f"the lab's cache no longer has its {said}; record it again")


@pytest.mark.parametrize(
    ("name", "what", "damage"),
    [
        ("guest", "file system", lambda data: data[:-512]),
        ("guest", "file system", lambda data: b"x" + data[1:]),
        ("kernel", "kernel", lambda data: b""),
        ("kernel", "kernel", lambda data: b"\x7fELF of another build"),
    ],
)
def test_a_file_that_changed_in_the_cache(lab, recording, name, what, damage):
    path: Path = getattr(recording, name)
    path.write_bytes(damage(path.read_bytes()))
    told = refused(lab, recording.path, *METRIC)
    assert f"{path} differs from the {what} that was booted; remove this" in told


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"started_as": "bzImage"}, "its kernel was booted as a bzImage, because"),
        ({}, "an earlier klat recorded it without the hash of its kernel; record it again"),
    ],
)
def test_a_record_without_the_hash_of_an_unpacked_kernel(lab, recording, facts, said):
    recording.machine["kernel"] = {"initramfs_sha256": recording.guest.name, **facts}
    recording.write()
    assert said in refused(lab, recording.path, *METRIC)


def test_a_kernel_in_the_cache_that_is_none(lab, recording):
    done = lab("explain", recording.path, *METRIC)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "its boot could not be repeated: QEMU failed: " in one_line(done)
    assert not lab.working()


# Gives the status, standard output and standard error for a trace and symbols.
Explained = Callable[..., tuple[int, str, str]]


@pytest.fixture
def replayed(lab, recording, monkeypatch, capsys) -> Explained:
    """Explains the session with this trace and these symbols in place of a repeated boot's."""

    def run(trace: bytes, kallsyms: str = KALLSYMS) -> tuple[int, str, str]:
        def replay(boots: object, arguments: object, plugin: object, work: Path, *_: object) -> Iterator[tuple[int, Replayed]]:  # fmt: skip
            (work / "trace").write_bytes(trace)
            yield 0, Replayed(work / "trace", kallsyms)

        monkeypatch.setattr("klat.lab.explaining.replay.replay", replay)
        monkeypatch.setenv("XDG_CACHE_HOME", str(lab.cache))
        status = cli.main(["lab", "explain", str(recording.path), *METRIC])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def stream(*lengths: int) -> bytes:
    made = MadeTrace()
    for length in lengths:
        made.window(length, made.path(2 * made.block(0xFFFFFFFF81000000, length)))
    return b"".join(made.stream())


WARMUP = (15, 12)


def test_a_session_whose_boot_gave_its_samples_is_explained(replayed):
    status, out, _ = replayed(stream(*WARMUP, 12, 12, 13))
    assert status == 0
    assert "3 samples: 12 in 66.7 %" in out and out.split()[-2:] == ["sum", "12"]


GOOD = stream(*WARMUP, 12, 12, 13)
UNEXPLAINED = {
    "the plugin's output is cut off or damaged after ": (GOOD[:-4],),
    "klat cannot find their stamps in its trace": (stream(*WARMUP, 12, 12, 14),),
    "has no addresses (kernel.kptr_restrict is 2)": (GOOD, "0000000000000000 T startup_64\n"),
}


@pytest.mark.parametrize("reason", UNEXPLAINED)
def test_a_boot_that_cannot_be_explained(replayed, reason):
    status, out, err = replayed(*UNEXPLAINED[reason])
    assert (status, out) == (1, "") and reason in err.splitlines()[-1]
