"""The frequency of the counter, by which ticks become times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from klat.record.session import Session, printable


def differ(khz: Sequence[float]) -> bool:
    """Whether the frequencies differ by more than 0.1 %. A kernel measures the counter in each boot, with an error of
    some 100 ppm if its reference is poor."""
    return bool(khz) and max(khz) > 1.001 * min(khz)


def problems(label: str, sessions: Sequence[Session]) -> Iterator[str]:
    """Sentences on a label whose sessions disagree, and on sessions that contradict their own reference."""
    khz = [session.khz for session in sessions if session.khz is not None]
    if differ(khz):
        yield (
            f"label {label}: the sessions' counters differ in frequency, {min(khz):,.0f}"
            f" to {max(khz):,.0f} kHz, so pooled ticks are not the same time; look at them one by one"
        )
    yield from errors(sessions)


def errors(sessions: Iterable[Session]) -> Iterator[str]:
    """Sentences on sessions whose frequency an independent reference refutes."""
    for session in sessions:
        tsc = session.info.get("tsc") or {}
        second = tsc.get("second_khz")
        if session.khz and second and tsc.get("independent") and differ([session.khz, second]):
            yield (
                f"{printable(str(session.path))}: all times may be wrong by"
                f" {100 * abs(session.khz / second - 1):.1f} %: the counter has"
                f" {session.khz:,.0f} kHz for the kernel, and {second:,.0f} kHz for"
                f" {printable(str(tsc.get('second_method')))}"
            )
