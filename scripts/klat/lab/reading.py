"""What a repeated boot executed, and a sample of its record in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from klat.explain import explanation, isa, restarts, symbols, trace, windows
from klat.explain.explanation import PathKind, SampleNotFound, Side
from klat.explain.windows import RecordedRun, Sample, Stamps
from klat.lab.choosing import GuestFiles, Range, Subject
from klat.lab.replay import Replayed


@dataclass(frozen=True)
class Reading:
    """The trace of a repeated boot."""

    recorded: trace.Trace
    names: symbols.Symbols
    instruction_set: isa.Isa
    sites: list[int]  # the addresses of the stamps, in the order of the trace's numbers


def read(boot: Replayed, guest: GuestFiles, sites: list[int]) -> Reading:
    guest_isa = isa.of_machine(guest.boot.planned.architecture.elf_machine)
    kernel = symbols.of_kernel(boot.kallsyms, guest_isa.vectors)
    firmware = symbols.of_firmware(guest_isa.firmware)
    names = symbols.Symbols([*kernel, *firmware, *guest.programs.names])
    return Reading(restarts.counted_once(trace.read(boot.trace), names), names, guest_isa, sites)


def explained(subject: Subject, reading: Reading) -> tuple[Side | None, Range]:
    """The explained side. If the trace lacks the sample's paths, returns None and the two stamps around
    these paths."""
    chosen = subject.chosen
    traced, samples = find(subject, reading)
    kinds: list[PathKind] = []
    sample = samples[chosen.wanted_runs.index(chosen.run)][chosen.index]
    deadline = subject.bounds.from_deadline
    if subject.whole:
        typical, kinds = explanation.choose_typical(traced, samples, chosen.sample, deadline)
        sample = typical if all(map(traced.kept, typical.windows)) else sample
    needed = [window for s in (sample, *windows.rivals(traced, sample)) for window in s.windows]
    if not all(map(traced.kept, needed)):
        ordinals = [traced.ordinals(window) for window in needed]
        first, last = min(begin for begin, _ in ordinals), max(end for _, end in ordinals)
        return None, (max(0, 2 * first - last), last)
    contents = windows.contents(traced, sample, deadline)
    masked = reading.instruction_set.halts_masked
    doubt = explanation.doubt(traced, sample, reading.names, deadline, masked)
    boot = subject.guest.boot
    side = Side(
        chosen.session.label,
        boot.planned.releases[boot.boot.condition.kernel],
        str(chosen.session.path),
        reading.names,
        kinds,
        explanation.explain(contents, reading.names, sample.ticks, doubt),
    )
    return side, None


def find(subject: Subject, reading: Reading) -> tuple[Stamps, list[list[Sample]]]:
    """The samples of the wanted runs in the trace. KlatError if the trace lacks one."""
    chosen = subject.chosen
    # Runs with other parameters can have other stamps, so the trace lacks their windows.
    for numbers in dict.fromkeys((tuple(range(len(chosen.runs))), tuple(chosen.wanted_runs))):
        match = _find_runs(subject, reading, [chosen.runs[number] for number in numbers])
        if match:
            traced, samples = match
            return traced, [samples[numbers.index(number)] for number in chosen.wanted_runs]
    raise SampleNotFound(
        f"{chosen.session.path}: the repeated boot gave the recorded samples, but klat cannot find"
        " their stamps in its trace",
        status=1,
    )


def _find_runs(
    subject: Subject, reading: Reading, runs: Sequence[RecordedRun]
) -> tuple[Stamps, list[list[Sample]]] | None:
    begins = [reading.sites.index(stamp.address) for stamp in subject.stamps if stamp.begins]
    ends = [reading.sites.index(stamp.address) for stamp in subject.stamps if not stamp.begins]
    # A function can have several stamps. The right pair of stamps has all samples of the metric. Of several such pairs,
    # one whose samples have only one possible place each comes first, else the first pair.
    pairs = [(begins, ends), *(([begin], [end]) for begin in begins for end in ends)]
    match = None
    for mean_of in sorted({1, subject.bounds.mean_of}, reverse=True):
        for first, last in pairs:
            traced = Stamps(reading.recorded, first, last)
            if subject.bounds.from_deadline:
                samples = windows.from_deadline(traced, runs)
            else:
                samples = windows.find(traced, runs, mean_of)
            if samples is None:
                continue
            if subject.bounds.from_deadline or windows.is_certain(traced, samples):
                return traced, samples
            match = match or (traced, samples)
    return match
