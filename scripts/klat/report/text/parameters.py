"""Parameters as headings show them: without the ones at their defaults."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from klat.compare.settings import Setting
from klat.record.session import parse_pairs, printable
from klat.report.text.columns import params_text

_EVERY = {"iterations": "500", "warmup": "50"}
# As in each program's --help. An option is not here if its default depends on the machine or on
# other options. A benchmark that is not here has all its parameters shown.
_OWN = {
    "pipes": "bytes=1 peer=thread wait=read mode=round-trip higher=none low-priority=19 gap=50 pairs=1",
    "cv": "primitive=cond contention=contended signal=held low-priority=19 pairs=1",
    "tlbflush": "initiators=0 pages=1 operation=munmap responder-state=running page-table=kept",
    "timer": "method=signal mode=one-shot period=200",
    "network": "low-priority=19 remote=no",
    "syscall": "call=getppid batch=1 bytes=30 descriptors=10 caller=thread",
    "fault": "kind=anonymous page-order=sequential threads=1 mapper=no",
    "noise": "window=20000 threshold=1000 iterations=50 warmup=4",
    "inherit": "depth=1 protocol=inherit spin=200",
    "signal": "send=tgkill receive=sigwaitinfo peer=thread pairs=1",
    "spawn": "what=fork resident=1 huge=no",
    "switch": "peer=thread by=yield pairs=1",
    "semaphore": "primitive=posix consumer-burn=50000 idle=50000 items=50 spin-before-sleep=0"
    " hog=none sleeps=each low-priority=19",
    "wakeup": "hogs=1 hog-kind=user nice=0 slice=0 work=10 rate=0",
    "messages": "mode=threads threads=1 wake=eventfd-epoll timer=none alloc=none pairs=1",
    "eventloop": "backend=epoll timers=no priorities=no batch=0 descriptor=socketpair fresh=no"
    " count-syscalls=no iterations=20 warmup=4",
    "transport": "bytes=100 transport=thread-pointer touch=none rate=0 datagram=65507 drop-every=0"
    " reorder-every=0 duplicate-every=0",
}
DEFAULTS: Mapping[str, Mapping[str, str]] = {
    benchmark: _EVERY | dict(re.findall(r"(\S+)=(\S+)", text)) for benchmark, text in _OWN.items()
}
# As recorded, or taken apart.
Params = Mapping[str, str] | str
HIDDEN = "Parameters at their defaults are not shown."


def parameters(benchmark: str, params: Params, among: Iterable[Params] = ()) -> dict[str, str]:
    """The parameters to show: those that differ from the defaults, or between `among`, which are the
    params of the report's other settings of the benchmark."""
    usual = DEFAULTS.get(benchmark, {})
    others = [_pairs(other) for other in among]
    return {
        name: value
        for name, value in _pairs(params).items()
        if usual.get(name) != value or any(other.get(name) != value for other in others)
    }


def title(setting: Setting) -> str:
    """Its benchmark, placement and parameters in one line."""
    shown = params_text(parameters(setting.benchmark, setting.params))
    words = (printable(setting.benchmark), printable(setting.placement), shown)
    return " ".join(filter(None, words))


def _pairs(params: Params) -> Mapping[str, str]:
    return parse_pairs(params) if isinstance(params, str) else params
