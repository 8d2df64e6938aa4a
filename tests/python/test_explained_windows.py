"""klat finds all windows of a record's samples in a trace, to the instruction, or none of them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from made_traces import BEGIN, END, NOT_KEPT_HALTED, MadeTrace, idle, switch, whole

from klat.explain import explanation, windows
from klat.explain.symbols import Function, Symbols
from klat.explain.trace import Executed, Idle, Switched, Trace
from klat.explain.windows import RecordedRun, Sample, Stamps

OTHER_BEGIN, OTHER_END = 2, 3


def run(*samples: int, warmup: int = 0) -> RecordedRun:
    return RecordedRun(np.array(samples, dtype="<u8"), warmup)


def stamps_of(trace: Trace) -> Stamps:
    return Stamps(trace, [BEGIN], [END])


def located(
    made: MadeTrace, place: Path, runs: list[RecordedRun], mean_of: int = 0
) -> tuple[Stamps, Sequence[Sequence[Sample]]]:
    """The samples of the runs. A sample is the mean of `mean_of` windows; 0: it starts at a deadline."""
    stamps = stamps_of(made.read(place))
    if mean_of:
        by_run = windows.find(stamps, runs, mean_of)
    else:
        by_run = windows.from_deadline(stamps, runs)
    assert by_run
    return stamps, by_run


def rows(by_run: Sequence[Sequence[Sample]] | None) -> list[list[list[int]]] | None:
    """The row at which each window ends."""
    return by_run and [[[w.end for w in s.windows] for s in samples] for samples in by_run]


@pytest.fixture
def made() -> MadeTrace:
    return MadeTrace()


FIND = [
    # First run: two warm-up iterations and three samples. Second run: one of each.
    ((9, 9, 30, 31, 8, 32, 30), [run(30, 31, 8, warmup=2), run(30, warmup=1)], [[[5], [7], [9]], [[13]]]),
    # Three further windows for two runs: klat cannot know where the second run begins.
    ((30, 30, 30, 30, 7, 7, 7), [run(30, 30), run(30, 30)], [[[1], [3]], [[5], [7]]]),
    # Windows of other series lie between.
    ((30, 1000, 31, 1000, 32, 1000), [run(30, 31, 32)], [[[1], [5], [9]]]),
    # A sample that is off by one instruction.
    ((30, 30, 30), [run(30, 31)], None),
    ((30, 30, 30), [run(30, 29)], None),
]  # fmt: skip


@pytest.mark.parametrize("lengths, runs, ends", FIND)
def test_a_sample_has_one_window(made, tmp_path, lengths, runs, ends):
    for length in lengths:
        made.window(length)
    by_run = windows.find(stamps_of(made.read(tmp_path)), runs, 1)
    assert rows(by_run) == ends


def test_the_mean_of_two_windows_is_rounded_down(made, tmp_path):
    for length in (5, 6, 10, 13, 7, 7):
        made.window(length)
    by_run = windows.find(stamps_of(made.read(tmp_path)), [run(11, 7, warmup=1)], 2)
    assert rows(by_run) == [[[5, 7], [9, 11]]]
    assert by_run and [sample.ticks for sample in by_run[0]] == [23, 14]


def test_ends_without_a_begin_are_no_windows(made, tmp_path):
    for number in range(4):
        made.stamp(END, 0, 20 + number)
    assert windows.find(stamps_of(made.read(tmp_path)), [run(20)], 2) is None
    assert windows.from_deadline(stamps_of(made.read(tmp_path)), [run(20)]) is None


def test_a_window_goes_on_over_the_stamps_of_other_metrics(made, tmp_path):
    for site, instructions in (
        (BEGIN, 0), (OTHER_END, 3), (OTHER_BEGIN, 4), (END, 5),
        (BEGIN, 100), (OTHER_END, 3), (END, 6), (OTHER_END, 50),
    ):  # fmt: skip
        made.stamp(site, 0, instructions)
    trace = made.read(tmp_path)
    assert rows(windows.find(stamps_of(trace), [run(12, 9)], 1)) == [[[3], [6]]]
    other = Stamps(trace, [OTHER_BEGIN], [OTHER_END])
    assert rows(windows.find(other, [run(108)], 1)) == [[[5]]]
    assert windows.find(other, [run(12)], 1) is None


@pytest.mark.parametrize("sample, earlier", [(7, 0), (17, 1), (27, 2)])
def test_a_sample_can_begin_at_an_earlier_stamp_of_a_spinner(made, tmp_path, sample, earlier):
    made.stamp(BEGIN, 0, 0)
    made.stamp(BEGIN, 0, 10, 100)
    made.stamp(END, 0, 7)
    stamps, by_run = located(made, tmp_path, [run(sample)], 1)
    ((window,),) = [by_run[0][0].windows]
    assert (window.earlier, stamps.instructions(window)) == (earlier, sample)
    assert stamps.ordinals(window) == (100 - earlier, 101)


def test_no_sample_begins_before_a_pause(made, tmp_path):
    made.window(10)
    made.window(7)
    # 17 would be both.
    assert windows.find(stamps_of(made.read(tmp_path)), [run(17)], 1) is None


def test_what_idle_time_skipped_completes_a_sample(made, tmp_path):
    block = made.block(0x1000, 7)
    halting = made.path(*whole(block), *idle(), *whole(block))
    made.window(14, halting)
    stamps, by_run = located(made, tmp_path, [run(1000)], 1)
    (content,) = windows.contents(stamps, by_run[0][0], deadline=False)
    assert content.idle == 1000 - 14
    assert windows.find(stamps, [run(13)], 1) is None


def test_a_path_that_was_not_kept_is_known_as_such(made, tmp_path):
    block = made.block(0x1000, 7)
    made.window(7, made.path(*whole(block)))
    made.window(7)
    stamps, by_run = located(made, tmp_path, [run(7, 7)], 1)
    assert [stamps.kept(sample.windows[0]) for sample in by_run[0]] == [True, False]


def test_idle_time_is_known_of_a_path_that_was_not_kept(made, tmp_path):
    made.window(14)
    made.window(14, NOT_KEPT_HALTED)
    by_run = windows.find(stamps_of(made.read(tmp_path)), [run(1000)], 1)
    assert rows(by_run) == [[[3]]]
    assert by_run and not stamps_of(made.read(tmp_path)).kept(by_run[0][0].windows[0])


LENGTHS = (3, 5, 1)


def deadline_content(made: MadeTrace, place: Path, sample: int) -> windows.Content:
    a, b, c = (made.block(0x1000 * n, length) for n, length in enumerate(LENGTHS, start=1))
    made.window(28, made.path(*whole(a, 4), *whole(b), *whole(c), *whole(b, 2)))
    stamps, by_run = located(made, place, [run(sample)])
    (content,) = windows.contents(stamps, by_run[0][0], deadline=True)
    return content


def executed(items: Sequence[Executed | Idle | Switched]) -> list[tuple[int, int]]:
    """Each instruction, by its block and place."""
    return [
        (item.block.address, item.first + place)
        for item in items
        if isinstance(item, Executed)
        for _ in range(item.times)
        for place in range(item.instructions)
    ]


@pytest.mark.parametrize("sample", range(29))
def test_a_sample_is_cut_at_its_deadline_to_the_instruction(made, tmp_path, sample):
    content = deadline_content(made, tmp_path, sample)
    a, b, c = (range(length) for length in LENGTHS)
    everything = [(0x1000, i) for _ in range(4) for i in a]
    everything += [(0x2000, i) for i in b] + [(0x3000, i) for i in c]
    everything += [(0x2000, i) for _ in range(2) for i in b]
    assert executed(content.before) + executed(content.items) == everything
    assert (len(executed(content.items)), content.idle) == (sample, 0)


def test_a_deadline_in_idle_time_takes_the_rest_from_it(made, tmp_path):
    block = made.block(0x1000, 7)
    made.window(21, made.path(*whole(block), *idle(), *whole(block, 2)))
    stamps, by_run = located(made, tmp_path, [run(60)])
    (content,) = windows.contents(stamps, by_run[0][0], deadline=True)
    lengths = len(executed(content.before)), len(executed(content.items))
    assert (*lengths, content.idle) == (7, 14, 46)


def test_the_typical_sample_is_the_commonest_path_of_the_median_length(made, tmp_path):
    short, one, other, long = (made.block(0x1000 * n, n) for n in (6, 7, 7, 8))
    paths = [made.path(*whole(block)) for block in (short, one, other, long)]
    lengths = (6, 7, 7, 8)
    taken = [1, 2, 2, 2, 0, 0, 3, 3, 3, 3]
    for number in taken:
        made.window(lengths[number], paths[number])
    stamps, by_run = located(made, tmp_path, [run(*(lengths[number] for number in taken))], 1)
    sample, kinds = explanation.choose_typical(stamps, by_run, 7, deadline=False)
    assert list(stamps.paths(sample.windows[0])) == [paths[2]]
    assert [(kind.ticks, kind.count) for kind in kinds] == [(8, 4), (7, 3), (6, 2), (7, 1)]


def test_the_typical_sample_of_two_windows_has_the_median_as_their_mean(made, tmp_path):
    path = made.path(*whole(made.block(0x1000, 5)))
    for length in (5, 6, 5, 5, 9, 9):
        made.window(length, path)
    stamps, by_run = located(made, tmp_path, [run(5, 5, 9)], 2)
    sample, _ = explanation.choose_typical(stamps, by_run, 9, deadline=False)
    assert sample.ticks == 18


@pytest.mark.parametrize("paths", [(1, 2), (1, 1), (2, 1)])
@pytest.mark.parametrize("behind", [0, 1, 2])
def test_a_sample_is_in_doubt_if_a_window_of_another_path_can_be_the_sample(
    made, tmp_path, paths, behind
):
    for address in (0x1000, 0x2000):
        made.path(*whole(made.block(address, 30)))
    for path in paths:
        made.window(30, path)
    made.window(7, 1)
    for _ in range(behind):
        made.window(7, 1)
    stamps, by_run = located(made, tmp_path, [run(30, 7)], 1)
    first, second = by_run[0]
    assert len(windows.rivals(stamps, first)) == 1
    assert len(windows.rivals(stamps, second)) == behind
    doubts = [bool(explanation.doubt(stamps, sample, SYMBOLS, False)) for sample in by_run[0]]
    assert doubts == [paths[0] != paths[1], False]


@pytest.mark.parametrize(
    "lengths, doubted", [((30, 7, 30, 7), False), ((7, 30, 30, 7), True), ((30, 30, 7, 7), True)]
)
def test_the_number_of_windows_decides_only_if_the_samples_are_the_first_ones(
    made, tmp_path, lengths, doubted
):
    """A trace of four windows. klat's workers execute two iterations after the two samples."""
    paths = [made.path(*whole(made.block(address, 30))) for address in (0x1000, 0x2000)]
    for length in lengths:
        made.window(length, paths.pop(0) if length == 30 else 0)
    stamps, by_run = located(made, tmp_path, [run(30, 7)], 1)
    assert bool(explanation.doubt(stamps, by_run[0][0], SYMBOLS, False)) == doubted


def test_metrics_that_share_stamps_keep_their_place_in_an_iteration(made, tmp_path):
    """An iteration has windows of three metrics, and klat's workers execute two more iterations. The second
    metric's samples fit the windows of other iterations too, and these took other paths."""
    paths = [made.path(*whole(made.block(0x1000 * number, 30))) for number in range(1, 5)]
    for number in range(4):
        made.window(7, 0)
        made.window(30, paths[number])
        made.window(8, 0)
    stamps, by_run = located(made, tmp_path, [run(30, warmup=1)], 1)
    assert [list(stamps.paths(s.windows[0])) for s in by_run[0]] == [[paths[1]]]
    assert not explanation.doubt(stamps, by_run[0][0], SYMBOLS, False)


def test_stamps_with_one_window_an_iteration_are_certain(made, tmp_path):
    """eventloop's rounds end with the samples, and its metrics share a function. The warm-up has a window of the
    sample's length too."""
    block = made.block(0x1000, 30)
    for path in (0, made.path(*whole(block))):
        made.window(7)
        made.stamp(OTHER_BEGIN, 0, 0)
        made.stamp(OTHER_END, path, 30)
        made.window(8)
    trace = made.read(tmp_path)
    every = Stamps(trace, [BEGIN, OTHER_BEGIN], [END, OTHER_END])
    pair = Stamps(trace, [OTHER_BEGIN], [OTHER_END])
    certain = []
    for stamps in (every, pair):
        by_run = windows.find(stamps, [run(30, warmup=1)], 1)
        assert by_run
        certain.append(windows.is_certain(stamps, by_run))
    assert certain == [False, True]


def test_samples_in_idle_time_that_fit_in_several_ways_are_in_doubt(made, tmp_path):
    blocks = [made.block(0x1000 * number, 10 + number) for number in range(1, 4)]
    for number, block in enumerate(blocks, start=1):
        made.window(10 + number, made.path(*whole(block), *idle()))
    stamps, by_run = located(made, tmp_path, [run(900, 1000)], 1)
    assert all(explanation.doubt(stamps, sample, SYMBOLS, False) for sample in by_run[0])


SYMBOLS = Symbols(
    Function(name, "kernel", 0x1000 * number)
    for number, name in enumerate(("release_pages", "asm_sysvec_apic_timer_interrupt"), start=1)
)
PAGES, TIMER = 0x1010, 0x2000


@pytest.mark.parametrize(
    "before, idles, after, sample, doubted",
    [
        ([PAGES], False, [TIMER, PAGES], 14, False),
        ([PAGES], False, [TIMER, PAGES], 10, False),  # the deadline lies in the interrupt
        ([PAGES], False, [TIMER, PAGES], 7, True),
        ([PAGES], False, [PAGES, PAGES], 14, True),
        ([PAGES], True, [TIMER, PAGES], 60, False),
        ([PAGES], True, [PAGES, TIMER], 60, True),
    ],
)
def test_an_interrupt_must_follow_a_deadline(made, tmp_path, before, idles, after, sample, doubted):
    words = [word for address in before for word in whole(made.block(address, 7))]
    words += idle() if idles else ()
    words += [word for address in after for word in whole(made.block(address, 7))]
    made.window(21, made.path(*words))
    stamps, by_run = located(made, tmp_path, [run(sample)])
    assert bool(explanation.doubt(stamps, by_run[0][0], SYMBOLS, True)) == doubted


@pytest.mark.parametrize("switches", [False, True])
def test_a_kernel_that_halts_with_interrupts_masked_runs_on_before_the_interrupt(
    made, tmp_path, switches
):
    pages, timer = (whole(made.block(address, 7)) for address in (PAGES, TIMER))
    switched = switch(2, "other") if switches else []
    made.window(21, made.path(*pages, *idle(), *pages, *switched, *timer))
    stamps, by_run = located(made, tmp_path, [run(60)])
    doubt = explanation.doubt(stamps, by_run[0][0], SYMBOLS, True, halts_masked=True)
    assert bool(doubt) == switches


def test_deadlines_are_not_found_among_windows_of_other_series(made, tmp_path):
    for _ in range(3):
        made.window(28)
    stamps = stamps_of(made.read(tmp_path))
    assert windows.from_deadline(stamps, [run(9, 9)]) is None
    assert windows.from_deadline(stamps, [run(9)]) and windows.from_deadline(stamps, [run(9, 9, 9)])
