"""Checks before the first reboot: each entry has to boot the running system to klat's unit, keep the results, and reboot
after a panic. With Secure Boot, its kernel must be signed."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from klat.base.errors import KlatError
from klat.campaign import kernel_image
from klat.campaign.boot_loader import OWN_WORD, BootEntry, OwnEntry, is_of_campaign
from klat.campaign.boot_loader import without_loader_words
from klat.campaign.efi import GLOBAL, EfiVariables
from klat.lab.architectures import HOST
from klat.machine.kernel_files import mounts

# kernel-command-line(7), dracut.cmdline(7), initramfs-tools(7), mkinitcpio(8), live-boot(7), coreos-installer(8),
# Ignition, and Ubuntu's friendly-recovery, overlayroot and casper.
_ON = r"(?!=(?:0|no?|off|f|false|disabled)?$)(?:=.*)?"  # a switch that is not off
_STOPS = re.compile(
    r"single|recovery|-[bs]|[sS1]|(?:rd\.)?(?:rescue|emergency)|(?:rd\.?)?break(?:=.*)?"
    r"|rd\.systemd\.unit=(?!initrd\.target$).*"
    r"|systemd\.mask=(?:klat-campaign(?:\.service)?|(?:multi-user|basic|sysinit)\.target)"
    rf"|systemd\.run=.*|systemd\.confirm[-_]spawn{_ON}|(?:rd\.)?systemd\.break(?:=.*)?|coreos\.inst\.install_dev=.*"
)
_STARTS = re.compile(
    r"(?:rd)?init=(?!(?:.*/)?(?:init|systemd)$).*"
    r"|systemd\.unit=(?!(?:multi-user|graphical|default|runlevel[2-5])\.target$).*\..*"
)
_FORGETS = re.compile(
    rf"systemd\.volatile{_ON}|overlayroot(?!=device){_ON}|(?:copy)?toram{_ON}|boot=(?:live|casper|overlay)"
    rf"|rd\.(?:live\.(?:image|ram)|overlay(?:fs)?(?!=(?:\w+=|/dev/))){_ON}|root=live:.*|archiso\w+=.*"
    rf"|systemd\.factory[-_]reset{_ON}|(?:ignition|coreos|flatcar)\.first_?boot{_ON}"
)
_SYSCTL_PANIC = re.compile(r"sysctl\.kernel[./]panic=(.*)")
_NUMBER = re.compile(r"[+-]?(?:0x[0-9a-f]+|0[0-7]*|[1-9][0-9]*)", re.IGNORECASE)  # kstrtoint()
_QUOTED = re.compile(r'(?:[^\s"]|"[^"]*"?)+')  # next_arg() in lib/cmdline.c of Linux
_LONGEST = {"riscv64": 1023}  # COMMAND_LINE_SIZE, without the 0 at the end
_LONGEST_ELSEWHERE = 2047
# Words that choose the system: by devices, roots on a network or in a pool; by deployments, images, device-mapper
# tables and their hashes; by slots and modes (RAUC, Android, Ubuntu Core).
_SYSTEM = re.compile(
    r"root|nfsroot|netroot|mount\.usr|loop|zfs|bootfs|rpool"
    r"|ostree|composefs(?:\.\w+)?|roothash|usrhash|systemd\.verity_(?:root|usr)_(?:data|hash)|gnu\.system"
    r"|(?:rd\.)?systemd\.(?:pull|image_filter|mount_extra)|dm|dm_mod\.create"
    r"|(?:.*[._])?(?:boot)?slot(?:_suffix)?|androidboot\.mode|snapd_recovery_\w+|snap_(?:core|kernel)"
)
# Any other word that has a device or a hash may choose it, except those that unlock, assemble or resume.
_DEVICE_OR_HASH = re.compile(
    r"/dev/.*|(?:PART)?(?:UUID|LABEL)=.*|\W?(?:\w+:)?[0-9a-f]{32,}", re.IGNORECASE
)
_NO_SYSTEM = re.compile(
    r"resume|boot|BOOT_IMAGE|initrd|systemd\.machine_id|crypt.*|(?:rd\.)?(?:luks|lvm|md|dm)\..*"
)
_OVERLAY = re.compile(rf"(?:overlayroot|rd\.overlay(?:fs)?){_ON}")
_DEVICE = re.compile(r"((?:PART)?(?:UUID|LABEL))=(.*)")  # udev's name is /dev/disk/by-uuid/5eed
_SUBVOLUMES = ("subvol", "subvolid")  # options of btrfs in rootflags=


def check_entries(
    copies: Sequence[OwnEntry], default: BootEntry, running: Sequence[str], root: Path = Path("/")
) -> None:
    """KlatError if one of klat's copies or the default fails a check. `running` is the command line of the running
    kernel."""
    plain = list(
        {entry.identity: entry for entry in (default, *(copy.entry for copy in copies))}.values()
    )
    for entry in plain:
        check_files(entry)
        if is_of_campaign(entry.words):
            raise KlatError(f"{entry.title}: remove {OWN_WORD} from its command line; klat adds it")
    entries = plain + [_with_setting(copy) for copy in copies]
    for entry in entries:
        if "--" in entry.words:
            raise KlatError(
                f"{entry.title}: remove -- from its command line; the kernel passes all words after -- to init, and klat"
                " appends its words there"
            )
        why = obstacle(entry.words, running)
        if why:
            raise KlatError(f"{entry.title}: {why}; choose another entry, or remove this word")
        _check_length(entry, root)
    for entry in plain:
        if option := kernel_image.built_in(entry.release, root)[1]:
            raise KlatError(
                f"{entry.title}: its kernel ignores the command line of the boot loader ({option}), so klat cannot add"
                " its words; choose another kernel"
            )
        machine = kernel_image.machine(entry.kernel) if entry.kernel else ""
        if machine not in ("", HOST.machine):
            raise KlatError(
                f"{entry.title}: {entry.kernel} is a kernel for {machine}, but this machine is {HOST.machine}; choose another entry"
            )
    check_kernels([copy.entry for copy in copies], root)
    check_systems(entries, running, root)


def check_files(entry: BootEntry) -> None:
    """KlatError if the boot loader may not find a file of this entry."""
    if entry.doubt:
        raise KlatError(f"{entry.title}: {entry.doubt}")


def obstacle(words: Sequence[str], running: Sequence[str] = ()) -> str:
    """Why a boot with these words would fail a campaign; empty if it would not. init= and systemd.unit= may have the
    values that started the running system."""
    for word in _unquoted(words):
        panic = _SYSCTL_PANIC.fullmatch(word)
        if _STOPS.fullmatch(word) or (_STARTS.fullmatch(word) and word not in running):
            return f"{word} on the command line stops the boot before klat's systemd unit"
        if _FORGETS.fullmatch(word):
            return f"{word} on the command line makes the machine forget the results at the next reboot"
        if panic and _seconds(panic[1]) == 0:
            return f"{word} on the command line prevents a reboot after a panic"
    return ""


def reboots_after_panic(words: Sequence[str]) -> bool:
    """Whether panic= makes the kernel reboot. The last valid number counts. 0 means
    never."""
    values = [word[6:] for word in _unquoted(words) if word.startswith("panic=")]
    seconds = [number for number in map(_seconds, values) if number is not None]
    return bool(seconds and seconds[-1])


def _seconds(text: str) -> int | None:
    if not _NUMBER.fullmatch(text):
        return None
    digits = text.lstrip("+-").lower()
    base = 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10
    number = int(digits, base)
    return number if number < 1 << 31 else None


def _unquoted(words: Sequence[str]) -> Iterator[str]:
    for match in _QUOTED.finditer(" ".join(words)):
        yield match[0].replace('"', "")


def _with_setting(copy: OwnEntry) -> BootEntry:
    words = " ".join(copy.append).partition(OWN_WORD)[0].strip()
    return replace(copy.booted, title=f"{copy.entry.title}{' with ' if words else ''}{words[:60]}")


def check_running(
    default: BootEntry, release: str, running: Sequence[str], is_booted: bool
) -> None:
    """KlatError if the running kernel is that of the default, but has other words: klat would take each boot for a
    wrong kernel. `is_booted`: the boot loader recorded that it started the default. If it recorded nothing, klat can
    recognize only words before those of the entry, because the user can add others in the menu."""
    line, wanted = without_loader_words(running), without_loader_words(default.words)
    images = [word for word in running if word not in line]
    ends_alike = wanted and default.is_running(release, [*images, *line[-len(wanted) :]])
    if default.is_running(release, running) or not (is_booted or ends_alike):
        return
    raise KlatError(
        f"{default.title}: the running kernel is that of this entry, but {default.difference(release, running)}, so"
        " klat would take each boot for a wrong kernel; if the entry has changed since the boot, reboot; if the firmware"
        " or the kernel adds words that klat does not know, remove them there"
    )


def _check_length(entry: BootEntry, root: Path) -> None:
    """KlatError if the kernel would truncate the command line. GRUB adds BOOT_IMAGE=, and the kernel its own words."""
    line = (kernel_image.built_in(entry.release, root)[0], f"BOOT_IMAGE={entry.image}")
    length = len(" ".join((*filter(None, line), *entry.words)).encode())
    longest = _LONGEST.get(os.uname().machine, _LONGEST_ELSEWHERE)
    if length > longest:
        raise KlatError(
            f"{entry.title}: its command line has {length:,} characters, but the kernel takes only {longest:,}; klat's"
            " words at its end would be lost"
        )


def check_systems(
    entries: Iterable[BootEntry], running: Sequence[str], root: Path = Path("/")
) -> None:
    """KlatError if an entry starts another system than the kernel with this command line. No campaign returns from
    there."""
    for entry in entries:
        if why := other_system(entry.words, running, root):
            raise KlatError(
                f"{entry.title}: {why}; the entry boots another system, from which no campaign returns; choose an entry"
                " of the running system"
            )


def other_system(words: Sequence[str], running: Sequence[str], root: Path = Path("/")) -> str:
    """In what the system that these words start differs from the running one; empty if it is the same."""
    named, wanted, mounted = _system(words, root), dict(_system(running, root)), _mounted(root)
    # An entry can name the subvolume by its path or by its number.
    if any(key in named and key in mounted for key in _SUBVOLUMES):
        wanted = {key: v for key, v in wanted.items() if key not in _SUBVOLUMES}
        wanted |= {key: mounted[key] for key in _SUBVOLUMES if key in named and key in mounted}
    if "root" in mounted and re.match(rf"/|{_DEVICE.pattern}", named.get("root", "")):
        wanted.setdefault("root", mounted["root"])
    keys = wanted.keys() | named.keys()
    keys -= {key for key, value in named.items() if "$" in value}
    # PARTNROFF names another partition, so the devices cannot be compared.
    if "root" not in wanted.keys() & named.keys() & keys or "/PARTNROFF=" in named["root"]:
        keys -= {"root", *_SUBVOLUMES}
    for key in sorted(keys):
        if named.get(key) != wanted.get(key):
            return (
                f"its {key} is {named.get(key, '(none)')}, but that of the running system is"
                f" {wanted.get(key, '(none)')}"
            )
    return ""


def _system(words: Sequence[str], root: Path) -> Mapping[str, str]:
    """Which system these words start, as far as they say it."""
    options = words[: words.index("--")] if "--" in words else words  # the rest is for init
    pairs = (word.partition("=") for word in _unquoted(options))
    values = {key.replace("-", "_"): value for key, equals, value in pairs if equals}
    flags = values.get("rootflags", "") if "root" in values else ""
    named = {key: _device(v, root) for key, v in values.items() if _chooses_system(key, v)}
    return named | _subvolumes(flags)


def _chooses_system(key: str, value: str) -> bool:
    if _SYSTEM.fullmatch(key) or _OVERLAY.fullmatch(f"{key}={value}"):
        return True
    return bool(_DEVICE_OR_HASH.fullmatch(value)) and not _NO_SYSTEM.fullmatch(key)


def _device(text: str, root: Path) -> str:
    """The device file, if the text names one that exists. A mounted btrfs has one name for all its devices."""
    match = _DEVICE.fullmatch(text)
    name = match[2].lower() if match and match[1].endswith("UUID") else match[2] if match else ""
    path = f"/dev/disk/by-{match[1].lower()}/{name}" if match else text
    device = root / path.lstrip("/")
    if path.startswith("/dev/") and device.exists():
        resolved = device.resolve()
        of_btrfs = (root / "sys/fs/btrfs").glob(f"*/devices/{glob.escape(resolved.name)}")
        return next((f"UUID={d.parents[1].name}" for d in of_btrfs), str(resolved))
    return f"{match[1]}={name}" if match else text


def _subvolumes(flags: str) -> dict[str, str]:
    named = (flag.partition("=") for flag in flags.split(","))
    return {key: value.strip("/") for key, _, value in named if key in _SUBVOLUMES}


def _mounted(root: Path) -> Mapping[str, str]:
    """The device of the running system, and the path and the number of its btrfs subvolume, as far as the mount table
    shows them."""
    mount = next((mount for mount in reversed([*mounts(root)]) if mount.point == "/"), None)
    if mount is None:
        return {}
    has_device = mount.source.startswith("/dev/") and (root / mount.source[1:]).exists()
    return _subvolumes(mount.options) | (
        {"root": _device(mount.source, root)} if has_device else {}
    )


def check_kernels(entries: Iterable[BootEntry], root: Path = Path("/")) -> None:
    """KlatError if a kernel is missing, or if Secure Boot is on and a kernel has no signature."""
    strict = _is_secure_boot(root)
    for entry in entries:
        if entry.kernel is None:
            continue
        try:
            signed = kernel_image.is_signed(entry.kernel)
        except OSError as error:
            raise KlatError(
                f"{entry.title}: cannot read {entry.kernel}: {error.strerror}"
            ) from error
        if strict and (kernel_image.unified_texts(entry.kernel) or {}).get(".cmdline"):
            raise KlatError(
                f"{entry.kernel} is a unified kernel image with a command line. With Secure Boot, klat"
                " cannot add its parameters to this command line; switch off Secure Boot"
            )
        if strict and not signed:
            raise KlatError(
                f"{entry.kernel} is not signed, so Secure Boot would not start it; sign it, or"
                " switch off Secure Boot"
            )


def _is_secure_boot(root: Path) -> bool:
    try:
        return EfiVariables(GLOBAL, root).read("SecureBoot") == b"\1"
    except KlatError:
        return False
