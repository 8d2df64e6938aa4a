"""`klat lab trend` without some of its kernels or boots reports the others."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_lab_lock import lock_request, own_kernel

from klat.base.errors import KlatError
from klat.lab import kernels, trend
from klat.lab.apt import Package, Unavailable
from klat.lab.guest import NotBooted, NotRecorded

GONE = "cannot fetch linux-image-6.18: 404"
FULL = "two: boot 3 cannot be recorded in results: No space left on device"


class MadeArchive:
    """One package is in the archive, and one is kept here."""

    def __init__(self, *_: object) -> None:
        pass

    def packages(self) -> dict[str, Package]:
        return {"listed": Package("listed", "1", 1)}

    def kept(self) -> dict[str, Package]:
        return {"unpacked": Package("unpacked", "1", 0)}


@pytest.fixture
def request_and_error(tmp_path, monkeypatch):
    """A request for three kernels. The second has the error that is put into the list."""
    error: list[KlatError] = []

    def obtain(spec: kernels.Spec, *_: object) -> kernels.Kernel:
        if spec.label == "two":
            raise error[0]
        return own_kernel(tmp_path, spec.label)

    monkeypatch.setattr(trend, "Archive", MadeArchive)
    monkeypatch.setattr(kernels, "obtain", obtain)
    specs = [kernels.parse(f"{name}={tmp_path}") for name in ("one", "two", "three")]
    return replace(lock_request(), specs=specs), error


def test_a_package_that_cannot_be_fetched_is_the_reason_of_its_kernel(request_and_error):
    request, error = request_and_error
    error.append(Unavailable(GONE))
    by_number, failures = trend.obtain_kernels(request, False, False, print)
    assert [*by_number] == [0, 2] and failures == {1: GONE}
    with pytest.raises(KlatError, match=GONE):
        trend.obtain_kernels(request, False, True, print)


def test_a_kernel_that_does_not_exist_is_refused_if_it_was_named(request_and_error):
    request, error = request_and_error
    error.append(KlatError("no kernel debian:9.9"))
    with pytest.raises(KlatError, match="no kernel debian:9.9"):
        trend.obtain_kernels(request, False, False, print)
    assert trend.obtain_kernels(request, True, False, print)[1] == {1: "no kernel debian:9.9"}


def test_a_lock_file_names_every_package_that_is_gone_before_anything_is_fetched(request_and_error):
    request, _ = request_and_error
    packages = [("listed", "1"), ("listed", "0"), ("unpacked", "1"), ("other", "1")]
    specs = [replace(request.specs[0], package=package) for package in packages]
    with pytest.raises(KlatError, match="no longer has listed 0, other 1$"):
        trend.obtain_kernels(replace(request, specs=specs), False, True, print)


@pytest.mark.parametrize(
    ("recorded", "raised", "failed", "why"),
    [
        (0, NotRecorded(FULL), [], FULL),
        (2, NotRecorded(FULL), [], FULL),
        (0, NotBooted("two: it died"), [NotBooted("it died")], "two: it died"),
        (3, None, [NotBooted("Kernel panic")], "Kernel panic"),
    ],
)
def test_boots_that_lack_have_their_reason(
    request_and_error, tmp_path, monkeypatch, new_session, recorded, raised, failed, why
):
    """The other kernels have all of their boots."""
    request, _ = request_and_error

    class MadeAttempt:
        recorded: list[Path] = []
        failures: list[NotBooted] = []

        def __init__(self, *_: object) -> None:
            pass

        def begin(self, request: Any, *_: object) -> int:
            (spec,) = request.specs
            is_second = spec.label == "two"
            boots = recorded if is_second else request.boots
            label = new_session.label(spec.label, [[[9] * 5]] * boots)
            self.recorded = sorted(label.iterdir()) if boots else []
            self.failures = failed if is_second else []
            if is_second and raised:
                raise raised
            return 0

    monkeypatch.setattr(trend, "Attempt", MadeAttempt)
    monkeypatch.setattr(trend.qemu, "find", lambda architecture: None)
    by_number = {n: own_kernel(tmp_path, spec.label) for n, spec in enumerate(request.specs)}
    by_number = {n: replace(k, spec=request.specs[n]) for n, k in by_number.items()}
    sides, failures = trend.boots_of(request, by_number, tmp_path, 1, [], print, False)
    assert {n: len(side.sessions) for n, side in sides.items()} == {
        n: boots for n, boots in enumerate((7, recorded, 7)) if boots
    }
    if recorded:
        assert sides[1].problems == [f"two: {recorded} of 7 boots count: {why}"] and not failures
    else:
        assert failures == {1: why}
