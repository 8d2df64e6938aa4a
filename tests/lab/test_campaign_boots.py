"""Campaigns with real reboots in QEMU: by each boot loader, by kexec, and by a command of the user."""

import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import harness
import pytest
from campaign_image import DISK, EFI_STUB, GRUB, KLAT_PACKAGES, SYSTEMD_BOOT, UEFI, Guest, build
from campaign_image import opened
from klat.campaign.campaign_file import ASKED, RUNNING, Campaign, read_campaign
from klat.campaign.campaign_text import time_left
from test_lab_boots import klat

BOOT_SECONDS = 480  # with many other processes on the host
ROUNDS = 2
CUTS = 20
CUT_AFTER = (0.1, 3.0)  # in boots of the campaign. After a cut, the default kernel boots first
ROUNDS_WITH_CUTS = 8
STATE = "var/lib/klat/campaign.json"
# Runs after each boot. The guest powers off on the default kernel, after the campaign has ended.
DRIVE = """\
cd /srv
if [ ! -e begun ]; then
	touch begun
	sh state > before
	{commands} || systemctl --no-block poweroff
elif [ -e ended ]; then
	systemctl --no-block poweroff
fi
{on_boot}
"""
HANG = """
if grep -q klat.campaign /proc/cmdline && uname -r | grep -q rt && [ ! -e hung ]; then
	touch hung; sync
	until grep -q ^active /sys/class/watchdog/watchdog0/state; do sleep 1; done
	echo -1 > /proc/sys/kernel/sched_rt_runtime_us
	chrt -f 99 sh -c 'while :; do :; done'
fi
"""
CRASH = """
if grep -q klat.campaign /proc/cmdline && [ ! -e crashed ]; then
	touch crashed; sync
	until grep -q measuring /var/lib/klat/campaign.json; do sleep 1; done
	systemctl kill -s KILL klat-campaign
fi
"""
# Aborts during the runs. klat waits for the end of the start-up, so the start-up must not wait for klat.
ABORT = """
if grep -q klat.campaign /proc/cmdline; then
	systemd-run --no-block --working-directory=/srv sh -c \\
		'until ls results/*/*/runs.csv; do sleep 1; done; klat campaign abort'
fi
"""
# Fills the disk before klat writes its state.
FILL = """
if [ -e begun ] && grep -q klat.campaign /proc/cmdline && [ ! -e filled ]; then
	cat /dev/zero > filled
fi
"""
# If the campaign ends in one of its boots, klat reboots into the default kernel after the notification. If it ends
# on the default kernel, klat does not reboot.
NOTIFY = "touch /srv/ended; grep -q klat.campaign /proc/cmdline || systemctl --no-block poweroff"
# Two power cuts in succession before klat measures look like a kernel that fails. klat waits for idle CPUs, so nothing
# else runs in a boot of the campaign.
RESUME = """
grep -q klat.campaign /proc/cmdline || systemd-run --no-block --working-directory=/srv sh -c \\
	'while sleep 10; do klat campaign status | grep "campaign resume" && klat campaign resume; done'
"""
# A sensor, because the guest has none. From the campaign's second boot on, the machine is warm for half a minute.
SENSOR = """
if grep -q klat.campaign /proc/cmdline; then
	mount -t tmpfs none /sys/class/thermal
	mkdir /sys/class/thermal/thermal_zone0
	cd /sys/class/thermal/thermal_zone0
	echo acpitz > type
	degrees=40000
	[ ! -e /srv/cold ] || degrees=70000
	echo $degrees > temp
	touch /srv/cold
	systemd-run --no-block sh -c "systemctl is-system-running --wait; sleep 30; echo 44000 > $PWD/temp"
fi
"""
AFTER = """
cd /srv; rm -f filled; sh state > after; klat campaign status > status
"""
# What decides which kernel boots, and what systemd runs.
STATE_OF_BOOTS = """
sha256sum /boot/grub/grub.cfg /boot/grub/grubenv /etc/default/grub /efi/loader/*.conf /efi/loader/*/*
find /etc/systemd /boot /efi | sort
! command -v efibootmgr > /dev/null || efibootmgr -v | grep -v BootCurrent
"""
PLAN = f"""klat campaign kernels > kernels && klat campaign plan \\
	--kernel stock=$(ls /boot | sed -n 's/^vmlinuz-\\(.*cloud.*\\)/\\1/p') \\
	--kernel rt=$(ls /boot | sed -n 's/^vmlinuz-\\(.*rt.*\\)/\\1/p') \\
	--boots {ROUNDS} --seed 3 --runs 3 --iterations 100 \\
	--notify 'sh /srv/notify' --copy-to /srv/copy pipes > plan"""


LOADERS = (
    pytest.param(GRUB, id="GRUB"),
    pytest.param(SYSTEMD_BOOT, id="systemd-boot", marks=pytest.mark.long),
    pytest.param(EFI_STUB, id="EFI-stub", marks=pytest.mark.long),
)


def need_mmdebstrap() -> None:
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        harness.lacking("this test needs root and mmdebstrap")


@pytest.fixture(scope="module", params=LOADERS)
def built(request, tmp_path_factory) -> Iterator[Path]:
    need_mmdebstrap()
    if request.param.has_uefi and not UEFI.is_dir():
        harness.lacking("this test needs ovmf")
    directory = tmp_path_factory.mktemp("campaign")
    build(directory, request.param)
    yield directory
    shutil.rmtree(directory)  # pytest keeps its directories


@pytest.fixture
def image(built: Path, tmp_path: Path) -> Iterator[Path]:
    """A disk of the test's own: a campaign that fails leaves files."""
    guest = tmp_path / "guest"
    subprocess.run(["cp", "-a", "--sparse=always", built, guest], check=True, timeout=300)
    disk = guest / DISK
    yield disk
    disk.unlink()


def prepare(disk: Path, commands: str, on_boot: str = "", notify: str = NOTIFY) -> None:
    """Make the guest run `commands` after its next boot, and `on_boot` after each boot."""
    with opened(disk) as root:
        (root / "srv/drive").write_text(DRIVE.format(commands=commands, on_boot=on_boot))
        (root / "srv/notify").write_text(AFTER + notify + "\n")
        (root / "srv/state").write_text(STATE_OF_BOOTS)


class FastGuest(Guest):
    clock = ()


def follow(
    disk: Path, boots: int, out: Path, *more: str, guest: type[Guest] = Guest
) -> dict[str, Any]:
    """Boot the guest until it powers off. Copies /srv to `out`. Returns the campaign."""
    guest(disk, *more).wait(boots * BOOT_SECONDS)
    with opened(disk) as root:
        shutil.copytree(root / "srv", out)
        shutil.copy(root / STATE, out)
    return dict(json.loads((out / Path(STATE).name).read_text()))


def completed(
    disk: Path, boots: int, out: Path, *more: str, why: str = "", guest: type[Guest] = Guest
) -> dict[str, Any]:
    """The campaign, which ended and left nothing."""
    campaign = follow(disk, boots, out, *more, guest=guest)
    assert (campaign["phase"], campaign["why"]) == ("ended", why), campaign
    assert files_are_as_before(out)
    return campaign


def wait_for_a_boot(guest: Guest) -> None:
    """Wait until a kernel starts."""
    end = time.monotonic() + 2 * BOOT_SECONDS
    before = guest.text().count("Linux version")
    while guest.text().count("Linux version") == before:
        assert guest.process.poll() is None and time.monotonic() < end, guest.text()[-4000:]
        time.sleep(1)


def files_are_as_before(out: Path) -> bool:
    return (out / "after").read_text() == (out / "before").read_text()


@pytest.mark.slow
def test_a_campaign_of_reboots_ends_in_a_verdict_and_leaves_nothing(image, tmp_path):
    prepare(image, f"{PLAN} && klat campaign start")
    campaign = completed(image, 2 * ROUNDS + 2, tmp_path / "out")
    assert [(a["boot"], a["outcome"]) for a in campaign["attempts"]] == [
        (boot, "done") for boot in range(1, 2 * ROUNDS + 1)
    ]
    assert "campaign complete: 4 of 4 boots" in (tmp_path / "out/status").read_text()
    # klat made this copy after each boot, for --copy-to.
    results = tmp_path / "out/copy"
    done = klat("compare", results / "stock", results / "rt", cwd=tmp_path)
    assert done.returncode in (1, 3), done.stderr
    assert "round_trip, median: " in done.stdout


@pytest.mark.long
def test_a_check_boots_each_kernel_and_comes_back_from_a_panic(image, tmp_path):
    plan = PLAN.replace("--boots", "--setting periodic=nohz=off --boots")
    prepare(image, f"{plan} && klat campaign check")
    campaign = completed(image, 8, tmp_path / "out")
    assert [attempt["outcome"] for attempt in campaign["attempts"]] == ["done"] * 5
    sessions = list((tmp_path / "out/results/.check").glob("*/*"))
    words = {
        session.parent.name: (session / "environment/proc/cmdline").read_text().split()
        for session in sessions
    }
    assert set(words) == {"stock", "rt", "stock-periodic", "rt-periodic"}
    assert all(("nohz=off" in line) == ("periodic" in label) for label, line in words.items())


@pytest.mark.long
def test_a_kernel_that_hangs_is_reset_and_tried_again(image, tmp_path):
    """On the first boot of the RT kernel a real-time task takes the only CPU forever."""
    prepare(image, f"{PLAN} && klat campaign start", on_boot=HANG)
    campaign = completed(image, 2 * ROUNDS + 4, tmp_path / "out", "-device", "i6300esb")
    assert (tmp_path / "out/hung").exists()
    outcomes = [attempt["outcome"] for attempt in campaign["attempts"]]
    assert sorted(outcomes) in (
        ["done"] * 2 * ROUNDS + ["fell back"],
        ["done"] * 2 * ROUNDS + ["interrupted"],
    )


@pytest.mark.long
def test_a_crash_of_klat_boots_the_default_kernel(image, tmp_path):
    prepare(image, f"{PLAN} && klat campaign start", on_boot=CRASH)
    campaign = completed(image, 2 * ROUNDS + 4, tmp_path / "out")
    outcomes = [attempt["outcome"] for attempt in campaign["attempts"]]
    assert outcomes == ["interrupted"] + ["done"] * 2 * ROUNDS


@pytest.mark.long
def test_a_warm_machine_cools_before_the_runs(image, tmp_path):
    prepare(image, f"{PLAN} && klat campaign start", on_boot=SENSOR)
    campaign = completed(image, 2 * ROUNDS + 2, tmp_path / "out")
    first, *others = campaign["attempts"]
    assert first["celsius"] == {"acpitz": 40}
    for attempt in others:
        assert attempt["celsius"] == {"acpitz": 44}
        assert 10 < attempt["seconds"]["waited for cooling"] < 60


@pytest.mark.long
def test_an_abort_during_the_runs_leaves_the_machine_as_it_was(image, tmp_path):
    plan = PLAN.replace("--runs 3", "--runs 5000")
    prepare(image, f"{plan} && klat campaign start", on_boot=ABORT)
    campaign = completed(image, 4, tmp_path / "out", why="aborted")
    assert [attempt["outcome"] for attempt in campaign["attempts"]] == ["measuring"]


@pytest.mark.long
def test_a_full_disk_ends_at_home_with_nothing_left(image, tmp_path):
    prepare(image, f"{PLAN} && klat campaign start", on_boot=FILL)
    campaign = follow(image, 6, tmp_path / "out")
    assert campaign["phase"] == "running" and not campaign["attempts"][1:], campaign
    assert files_are_as_before(tmp_path / "out")
    assert "systemd unit is gone" in (tmp_path / "out/status").read_text()


@pytest.mark.long
def test_power_cuts_lose_and_double_nothing(image, tmp_path):
    plan = PLAN.replace("--boots 2", f"--boots {ROUNDS_WITH_CUTS}")
    notify = f"grep -q resume status || {{ {NOTIFY}; }}"
    prepare(image, f"{plan} && klat campaign start", RESUME, notify)
    guest = FastGuest(image)
    for _ in range(2):  # the default kernel, and the first boot of the campaign
        wait_for_a_boot(guest)
    begun = time.monotonic()
    wait_for_a_boot(guest)
    boot_seconds = time.monotonic() - begun
    draw = random.Random(7)
    for _ in range(CUTS):
        time.sleep(boot_seconds * draw.uniform(*CUT_AFTER))
        assert guest.process.poll() is None, "the campaign ended before the last cut"
        guest.cut()
        guest.switch_on()
    guest.cut()
    campaign = completed(image, 3 * CUTS, tmp_path / "out", guest=FastGuest)
    done = [a["boot"] for a in campaign["attempts"] if a["outcome"] == "done"]
    assert done == list(range(1, 2 * ROUNDS_WITH_CUTS + 1))
    assert len(campaign["attempts"]) > len(done), "no cut came during a boot of the campaign"
    results = tmp_path / "out/results"
    for label in ("stock", "rt"):
        assert len(list((results / label).glob("[0-9]*"))) == ROUNDS_WITH_CUTS
    assert klat("summary", "--verify", results, cwd=tmp_path).returncode == 0


# Makes a kernel boot next, once, by a menu entry of its own.
BOOT_ONCE = """\
rm -f /boot/grub/custom.cfg
grub-editenv /boot/grub/grubenv unset next_entry
[ $# = 0 ] && exit
cat > /boot/grub/custom.cfg <<EOF
menuentry once --id once {
	linux /boot/vmlinuz-$1 $2
	initrd /boot/initrd.img-$1
}
EOF
grub-editenv /boot/grub/grubenv set next_entry=once
"""
BOOTLOADER = "environment/proc/sys/kernel/bootloader_type"


@pytest.fixture(scope="module")
def image_without_menu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    need_mmdebstrap()
    disk = build(tmp_path_factory.mktemp("campaign"), GRUB, (*KLAT_PACKAGES, "kexec-tools"))
    with opened(disk) as root:
        (root / "srv/boot_once").write_text(BOOT_ONCE)
        for unit in ("kexec.service", "kexec-load.service"):
            (root / "etc/systemd/system" / unit).symlink_to("/dev/null")
    yield disk
    disk.unlink()  # pytest keeps its directories


@pytest.mark.long
@pytest.mark.parametrize(
    "option, loader",
    [("--kexec", "208"), ("--boot-command 'sh /srv/boot_once'", "114")],
    ids=["kexec", "command"],
)
def test_a_check_without_a_menu_boots_each_kernel_and_comes_back_from_a_panic(
    image_without_menu, tmp_path, option, loader
):
    plan = PLAN.replace("campaign plan", f"campaign plan {option}")
    prepare(image_without_menu, f"{plan} && klat campaign check")
    campaign = completed(image_without_menu, 6, tmp_path / "out")
    assert [attempt["outcome"] for attempt in campaign["attempts"]] == ["done"] * 3
    sessions = list((tmp_path / "out/results/.check").glob("*/*"))
    assert {session.parent.name for session in sessions} == {"stock", "rt"}
    assert {(session / BOOTLOADER).read_text().strip() for session in sessions} == {loader}


LOOK_ROUNDS = 20
PLAN_WITH_LOOKS = PLAN.replace("--boots 2", f"--boots {LOOK_ROUNDS} --looks 2")


@pytest.fixture
def image_with_scipy(tmp_path: Path) -> Iterator[Path]:
    need_mmdebstrap()
    disk = build(tmp_path, GRUB, (*KLAT_PACKAGES, "python3-scipy"))
    yield disk
    disk.unlink()  # pytest keeps its directories


@pytest.mark.long
def test_a_look_saves_the_second_half_of_the_boots(image_with_scipy, tmp_path):
    prepare(image_with_scipy, f"{PLAN_WITH_LOOKS} && klat campaign start")
    campaign = completed(image_with_scipy, LOOK_ROUNDS + 2, tmp_path / "out")
    outcomes = [attempt["outcome"] for attempt in campaign["attempts"]]
    assert outcomes == ["done"] * LOOK_ROUNDS
    status = (tmp_path / "out/status").read_text()
    assert "settled at look 1 of 2, after 10 of 20 rounds: 20 boots saved" in status
    results = tmp_path / "out/results"
    done = klat("compare", results / "stock", results / "rt", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "round_trip, median: " in done.stdout and "slower" in done.stdout
    assert_the_estimate_after_a_block_is_right(read_campaign(tmp_path / "out" / Path(STATE).name))


def assert_the_estimate_after_a_block_is_right(campaign: Campaign) -> None:
    """Within 10 % of the time that a boot takes afterwards."""
    block = 2 * len(campaign.settings)
    request_times = [
        datetime.fromisoformat(a.asked.replace("Z", "+00:00")) for a in campaign.attempts
    ]
    first = campaign.attempts[block]
    begun = (*campaign.attempts[:block], replace(first, outcome=ASKED))
    as_then = replace(campaign, phase=RUNNING, attempts=begun, is_settled=False, looked_after=0)
    left = time_left(as_then, request_times[block])
    assert left is not None
    estimated = left / (campaign.rounds * len(campaign.settings) - block)
    took = (request_times[-1] - request_times[block]).total_seconds() / (
        len(request_times) - 1 - block
    )
    assert took == pytest.approx(estimated, rel=0.1)
