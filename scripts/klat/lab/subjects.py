"""A sample to explain, the boot that has it, and the plugin's arguments for this boot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from klat.base.errors import KlatError
from klat.explain import isa, symbols, windows
from klat.explain.stamps import Bounds, Stamp
from klat.lab.choosing import Chosen, Wanted
from klat.lab.replay import Recorded

_MOST_STAMPS = 64  # the plugin takes no more
# The plugin writes the paths between these two stamps, by number in the boot. None: it writes all.
Range = tuple[int, int] | None


@dataclass(frozen=True)
class GuestFiles:
    """A session's boot. The directory `programs` has the programs that the boot ran."""

    boot: Recorded
    programs: Path

    @cached_property
    def names(self) -> list[symbols.Function]:
        """The functions of the programs."""
        return [
            name for path in sorted(self.programs.iterdir()) for name in symbols.of_program(path)
        ]


@dataclass(frozen=True)
class Subject:
    """A sample to explain, and its boot."""

    wanted: Wanted
    chosen: Chosen
    guest: GuestFiles
    bounds: Bounds
    stamps: list[Stamp]  # the stamps that begin or end a window
    whole: bool  # the explanation needs the paths of all samples

    @property
    def name(self) -> str:
        return " ".join(
            [
                f"{self.wanted.benchmark}.{self.wanted.metric}",
                *(f"{name}={value}" for name, value in self.chosen.params),
            ]
        )


def grouped(numbers: Sequence[int], subjects: Sequence[Subject]) -> list[list[int]]:
    """Groups of subjects that share a boot. A group has at most _MOST_STAMPS stamps."""
    found: list[list[int]] = []
    for number in numbers:
        for group in found:
            more = [subjects[n] for n in (*group, number)]
            same = more[0].guest is more[-1].guest
            if same and len(sites(more)) <= _MOST_STAMPS:
                group.append(number)
                break
        else:
            found.append([number])
    return found


def sites(subjects: Sequence[Subject]) -> list[int]:
    return list(dict.fromkeys(stamp.address for each in subjects for stamp in each.stamps))


def expected_stamps(subject: Subject) -> tuple[int, int]:
    """Two stamps, by number in the boot. The sample and the window before it should lie between them. If a
    program takes more stamps than expected, the sample lies elsewhere. klat then repeats the boot once more,
    with the numbers that the first repetition found."""
    chosen = subject.chosen
    windows_before = sum(
        run.warmup + len(run.samples) + windows.TAIL for run in chosen.runs[: chosen.run]
    )
    window = windows_before + chosen.runs[chosen.run].warmup + chosen.index
    each = 2 * subject.bounds.mean_of
    return max(0, each * (window - 2)), each * (window + 2)


def plugin_arguments(subjects: Sequence[Subject], kept: Range) -> tuple[str, list[int]]:
    """The plugin's arguments, and the addresses of the stamps in the order of the trace's numbers."""
    words = []
    # Metrics with the same stamps share a kind of window.
    kinds = dict.fromkeys(tuple(subject.stamps) for subject in subjects)
    for kind, held in enumerate(kinds):
        words.append(f"window={kind}")
        words += [f"{'open' if stamp.begins else 'close'}={stamp.address:#x}" for stamp in held]
    boot = subjects[0].guest.boot
    own = isa.of_machine(boot.planned.architecture.elf_machine)
    words += [f"halt={own.halt}", "ram=memory-backend-memfd"]
    switch = own.task_switch.search(boot.ready.kernel.read_bytes())
    if not switch:
        raise KlatError(
            f"{boot.planned.releases[boot.boot.condition.kernel]}: klat does not find the code in which this"
            " kernel switches tasks, so it cannot explain its samples"
        )
    words.append(f"switch={switch[0].hex()}")
    if kept:
        words += [f"from={kept[0]}", f"to={kept[1]}"]
    return ",".join(words), sites(subjects)
