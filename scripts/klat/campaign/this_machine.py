"""This machine under systemd, for a campaign: waits until it is idle, measures, and reboots.

systemd starts klat as root after each boot, so only trusted users may write klat's code."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import klat
from klat.base import files, owners, programs
from klat.base.errors import KILLED, KlatError, SessionError
from klat.campaign.boot_loader import OWN_WORD, run, run_tool
from klat.campaign.boot_sessions import measure_boot, sessions_of
from klat.campaign.campaign_file import BootAttempt, Campaign, CampaignBoot
from klat.campaign.kernel_image import words_of_loader
from klat.machine.kernel_files import celsius, is_cool
from klat.record import session_directory
from klat.running import loads

_PACKAGES = Path(klat.__file__).resolve().parents[1]  # the launcher's directory for imports
UNIT = "klat-campaign.service"
_UNIT_FILE = Path("/etc/systemd/system") / UNIT
_WATCHDOG_FILE = Path("/etc/systemd/system.conf.d/klat-campaign.conf")
_WATCHDOG = Path("/dev/watchdog")
_WATCHDOG_S = 60
_TOOLS = ("systemctl", "systemd-analyze", "findmnt")  # of the machine; root starts them
_SYSRQ = Path("/proc/sysrq-trigger")
_PANIC_S = 60
_UNIT_TEXT = """\
[Unit]
Description=klat campaign: measures, and boots the next kernel
OnFailure={home}
RequiresMountsFor={paths}

[Service]
Type=exec
ExecStart={command}
{environment}KillMode=mixed
TimeoutStopSec=120
SuccessExitStatus={stopped}

[Install]
WantedBy=multi-user.target
"""
# If klat itself crashes under a kernel of the campaign, the default kernel must boot. There the condition does not
# hold, so the machine does not reboot again and again. `abort` stops the unit, which is no crash.
_HOME_UNIT = "klat-campaign-home.service"
_HOME_UNIT_FILE = _UNIT_FILE.with_name(_HOME_UNIT)
_HOME_UNIT_TEXT = f"""\
[Unit]
Description=klat campaign: boots the default kernel after a crash of klat
ConditionKernelCommandLine={OWN_WORD.removesuffix("=")}

[Service]
Type=oneshot
ExecStart=systemctl --no-block reboot
"""
# The longest waits, in seconds.
_STARTING_S, _BUSY_S, _HOT_S, _COPYING_S, _NOTIFYING_S = 300, 120, 300, 3600, 60
_POLL_S = 2.0
_REBOOT_TRIES, _REBOOT_PAUSE_S = 4, 10.0
_BUSY = 0.05  # of the time of all CPUs
_WARMER_C = 5.0
_PARTS = re.compile(r"([0-9a-z. ]+) \((\w+)\)")
_UNITS = {"h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}


@dataclass(frozen=True)
class Measured:
    """The result of a boot's sessions. `reason` says why they do not count; it is empty if they count."""

    reason: str
    seconds: Mapping[str, float]
    celsius: Mapping[str, float] = field(default_factory=dict)


class ThisMachine:
    def boot_id(self) -> str:
        return session_directory.boot_id()

    def release(self) -> str:
        return os.uname().release

    def words(self) -> tuple[str, ...]:
        """The words of the kernel's command line, without those that the kernel itself added."""
        return words_of_loader()

    def now(self) -> str:
        return session_directory.iso(session_directory.now())

    def measure(self, campaign: Campaign, boot: CampaignBoot) -> Measured:
        """Wait until the machine is idle and cool, then record or complete the sessions of this boot."""
        seconds = dict(self._settle(campaign))
        warmth = celsius()
        begun = time.monotonic()
        try:
            status = measure_boot(campaign, boot)
        except (KlatError, SessionError) as error:
            return Measured(str(error), seconds, warmth)
        if status > KILLED:
            sys.exit(status)  # the machine is going down, or the user aborted the campaign
        seconds["runs"] = round(time.monotonic() - begun, 3)
        # Status 3: the evidence refutes some runs. The other runs count.
        reason = "" if status in (0, 3) else f"klat run ended with status {status}"
        return Measured(reason, seconds, warmth)

    def _settle(self, campaign: Campaign) -> Iterator[tuple[str, float]]:
        """Wait until the start-up has ended, the CPUs are idle, and each sensor shows at most _WARMER_C more
        than in the first boot that has it. Each wait has a limit. Yields the parts of the time since
        power-on, in seconds."""
        begun = time.monotonic()
        _quietly("systemctl", "is-system-running", "--wait", seconds=_STARTING_S)
        waited = time.monotonic() - begun
        yield from start_up_parts(run("systemd-analyze", "time").stdout)
        yield "waited for start-up", round(waited, 3)
        yield "waited for idle CPUs", _until(_BUSY_S, lambda: busy_share(_POLL_S) <= _BUSY)
        boots = [attempt.celsius for attempt in campaign.attempts]
        yield "waited for cooling", _until(_HOT_S, lambda: is_cool(celsius(), boots, _WARMER_C))

    def set_aside(self, campaign: Campaign, attempt: BootAttempt) -> None:
        """Move the sessions of an attempt that does not count to the .failed directory of their label."""
        for session in sessions_of(campaign, attempt.boot_id):
            kept = session.parent / session_directory.SET_ASIDE
            with files.explained("make", kept):
                files.make_directories(kept)
            with files.explained("move", session):
                files.rename(session, kept / session.name)

    def copy(self, campaign: Campaign) -> str:
        """Copy the results to `copy_to`, if there is one. Returns why this failed, or an empty text."""
        if campaign.copy_to is None:
            return ""
        words = ("rsync", "-a", f"{campaign.output}/", campaign.copy_to)
        status = _quietly(*words, seconds=_COPYING_S)
        return f"{shlex.join(words)} ended with status {status}" if status else ""

    def reboot(self, verb: str = "reboot") -> None:
        """Request a reboot, and again if systemd refuses: it can be busy, for example while it reads its
        units. Do nothing if the machine is already going down, for example because of `notify`.
        """
        os.sync()
        for tries_left in reversed(range(_REBOOT_TRIES)):
            try:
                run_tool("systemctl", "--no-block", verb)
                return
            except KlatError:
                if run("systemctl", "is-system-running").stdout.strip() == "stopping":
                    return
                if not tries_left:
                    raise
            time.sleep(_REBOOT_PAUSE_S)

    def panic(self) -> None:
        """Make the kernel panic. KlatError if it does not."""
        os.sync()
        with files.explained("make the kernel panic by", _SYSRQ):
            _SYSRQ.write_text("c")
        time.sleep(_PANIC_S)
        raise KlatError(f"the kernel did not panic within {_PANIC_S} s")

    def withdraw(self) -> None:
        """Remove klat's systemd unit, so that the next boot does not start it."""
        _quietly("systemctl", "disable", UNIT, seconds=60)
        for file in (_UNIT_FILE, _HOME_UNIT_FILE, _WATCHDOG_FILE):
            file.unlink(missing_ok=True)
        if _WATCHDOG_FILE.parent.is_dir() and not any(_WATCHDOG_FILE.parent.iterdir()):
            _WATCHDOG_FILE.parent.rmdir()
        _quietly("systemctl", "daemon-reload", seconds=60)

    def notify(self, campaign: Campaign) -> None:
        """Run the command `notify`, if there is one."""
        if campaign.notify is not None:
            _quietly("/bin/sh", "-c", campaign.notify, seconds=_NOTIFYING_S)


def check_machine() -> Iterator[str]:
    """Yields a warning for each thing that may stop a campaign. KlatError if this machine cannot run one."""
    if not Path("/run/systemd/system").is_dir():
        raise KlatError("systemd is not running on this machine, but a campaign needs it")
    root = run("findmnt", "-nvo", "SOURCE", "/").stdout.strip()
    if "crypt" in run("lsblk", "-rsno", "TYPE", root).stdout.split():
        yield (
            "the root file system is encrypted: if the machine asks for a passphrase when it boots,"
            " the campaign stops there"
        )
    if not _WATCHDOG.exists():
        yield (
            "this kernel has no watchdog device: if a kernel hangs, somebody must reset the machine"
        )


def check_code(names: Iterable[str], tools: Iterable[str]) -> None:
    """KlatError if an untrusted user can write klat, one of these programs or one of these tools of the machine, or
    replace them. Trusted are root, the user of this process, and the caller of sudo."""
    for path in _code(names, tools):
        with files.explained("check the owner of", path):
            doubt = owners.doubt_of_path(path)
        if doubt:
            raise KlatError(
                f"{doubt}, but root runs code from there after each boot; change the owner or mode, or"
                " install klat"
            )


def launcher() -> Path:
    """The file that started this process. After each boot, systemd starts it again."""
    return Path(sys.argv[0]).resolve()


def _code(names: Iterable[str], tools: Iterable[str]) -> Iterator[Path]:
    yield from (launcher(), Path(sys.executable))
    if sys.prefix != sys.base_prefix:  # a virtual environment, which has numpy and scipy, too
        yield Path(sysconfig.get_path("purelib"))
    for name in (*_TOOLS, *tools):
        if tool := shutil.which(name):
            yield from (Path(tool), *_interpreters(Path(tool)))
    yield _PACKAGES
    for directory, directories, files_there in os.walk(_PACKAGES):
        yield from (Path(directory, name) for name in (*directories, *files_there))
    for path in (*map(programs.locate, dict.fromkeys(names)), loads.program()):
        if path is not None:
            yield path


def _interpreters(script: Path) -> Iterator[Path]:
    """Yields the programs that the first line of a script names, also by env. Yields nothing for another file."""
    with files.explained("read", script), script.open("rb") as file:
        start = file.read(256)
    words = start.split(b"\n")[0][2:].split() if start.startswith(b"#!") else []
    is_by_env = words[:1] and words[0].endswith(b"/env")
    for word in words[: 2 if is_by_env else 1]:
        if path := shutil.which(os.fsdecode(word)):
            yield Path(path)


def install_unit(command: Sequence[str], paths: Sequence[str]) -> None:
    """Make systemd run `command` after each boot, when the file systems of `paths` are mounted, and use a
    watchdog. Do this also if the running kernel has no watchdog driver: another kernel of the campaign may
    have one."""
    text = unit_text(command, paths)
    files.write_whole(_UNIT_FILE, text.encode(), give=False)
    files.write_whole(_HOME_UNIT_FILE, _HOME_UNIT_TEXT.encode(), give=False)
    _WATCHDOG_FILE.parent.mkdir(mode=0o755, exist_ok=True)
    text = f"[Manager]\nRuntimeWatchdogSec={_WATCHDOG_S}\n"
    files.write_whole(_WATCHDOG_FILE, text.encode(), give=False)
    run_tool("systemctl", "daemon-reload")
    run_tool("systemctl", "enable", UNIT)


def unit_text(command: Sequence[str], paths: Sequence[str]) -> str:
    """The unit that install_unit() writes."""
    names = [name for name in ("SUDO_UID", "SUDO_GID") if os.environ.get(name)]
    return _UNIT_TEXT.format(
        home=_HOME_UNIT,
        paths=" ".join(map(_systemd_quoted, paths)),
        command=" ".join(_systemd_quoted(word).replace("$", "$$") for word in command),
        environment="".join(f"Environment={name}={os.environ[name]}\n" for name in names),
        stopped=KILLED + signal.SIGTERM,
    )


def is_unit_installed() -> bool:
    return _UNIT_FILE.exists()


def start_unit() -> None:
    run_tool("systemctl", "start", UNIT)


def stop_unit() -> None:
    """End the klat process that the unit started. Its session keeps all complete runs."""
    _quietly("systemctl", "stop", UNIT, seconds=300)


def start_up_parts(text: str) -> Iterator[tuple[str, float]]:
    """The parts of the start-up that `systemd-analyze time` prints, with their seconds. Parts are firmware,
    loader, kernel, initrd and userspace."""
    first = text.partition("=")[0].partition("Startup finished in")[2]
    for words, part in _PARTS.findall(first):
        amounts = re.findall(r"([0-9.]+)(h|min|ms|us|s)", words)
        yield part, sum(float(number) * _UNITS[unit] for number, unit in amounts)


def busy_share(seconds: float) -> float:
    """The share of CPU time that is not idle, measured over the next `seconds` seconds."""

    def read() -> tuple[int, int]:
        fields = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]  # idle and iowait

    total, idle = read()
    time.sleep(seconds)
    total_now, idle_now = read()
    return 1 - (idle_now - idle) / max(1, total_now - total)


def _until(longest: float, reached: Callable[[], bool]) -> float:
    """Wait until `reached` returns true, for at most `longest` seconds. Returns the seconds waited."""
    begun = time.monotonic()
    while not reached() and time.monotonic() - begun < longest:
        time.sleep(_POLL_S)
    return round(time.monotonic() - begun, 3)


def _systemd_quoted(word: str) -> str:
    """For a unit: in double quotation marks, with % doubled. In a command line, $ must be doubled, too."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _quietly(*words: str, seconds: float) -> int:
    """The exit status; 127 if the command cannot be started, 124 if it did not end in time."""
    return run(*words, seconds=seconds, output=subprocess.DEVNULL).returncode
