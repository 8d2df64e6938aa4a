"""What the file of a kernel says about it. Its name can lack the release: vmlinuz-linux, bzImage, Image.

The file can be a unified kernel image: an EFI program with the kernel, its initramfs and its command line as sections
(the UAPI group's specification "Unified Kernel Image")."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from klat.lab.architectures import AMD64, ARCHITECTURES
from klat.lab.kernel_formats import LARGEST, boot_header_version
from klat.machine import kernel_files

# A memory test can have the boot header of Linux, with any text.
_UTS_RELEASE = re.compile(r"[0-9][!-~]{0,63}")
_HEADERS = 1 << 17  # the boot header of x86 and its version, or the headers of an EFI program
_PE_FIELD = 0x3C  # has the offset of the PE header
_PE = struct.Struct(
    "<4sHH12xH2x"
)  # signature, machine, number of sections, size of the optional header
_PE32_PLUS = 0x20B  # the optional header begins with it
_CERTIFICATES = 112 + 4 * 8  # in the optional header: the entry of the certificate table
_SECTION = struct.Struct("<8sIIII16x")  # name, size in memory, address, size in the file, offset


def release(kernel: Path) -> str:
    """The release of this kernel; empty if the file is missing or not a kernel of a known format."""
    return _read(kernel)[0]


def machine(kernel: Path) -> str:
    """The machine of this kernel as uname -m; empty if the file has no release."""
    return _read(kernel)[1]


def _read(kernel: Path) -> tuple[str, str]:
    try:
        facts = kernel.stat()
        return _release_and_machine(kernel, facts.st_size, facts.st_mtime_ns)
    except OSError:
        return "", ""


def unified_texts(kernel: Path) -> Mapping[str, str] | None:
    """The texts of a unified kernel image by the names of their sections, for example .cmdline. None if the file is
    not such an image or cannot be read. The texts of the first profile override those of the base.
    """
    try:
        sections = _sections(kernel)
    except OSError:
        return None
    if ".linux" not in sections:
        return None
    return {
        name: _part(kernel, *sections[name]).rstrip(b"\0").decode(errors="replace").strip()
        for name in (".cmdline", ".uname", ".profile")
        if name in sections
    }


def is_signed(kernel: Path) -> bool:
    """Whether the kernel has a signature. The firmware may still refuse the signature. Raises OSError."""
    head = _part(kernel, 0, _HEADERS)
    with suppress(struct.error):
        (pe,) = struct.unpack_from("<I", head, _PE_FIELD)
        (magic,) = struct.unpack_from("<H", head, pe + _PE.size)
        _, size = struct.unpack_from("<II", head, pe + _PE.size + _CERTIFICATES)
        return head[pe : pe + 4] == b"PE\0\0" and magic == _PE32_PLUS and size > 0
    return False


@lru_cache(maxsize=256)
def _release_and_machine(kernel: Path, size: int, _: int) -> tuple[str, str]:
    if size > LARGEST:
        return "", ""
    start, size = _sections(kernel).get(".linux", (0, size))
    try:
        text = boot_header_version(_part(kernel, start, min(size, _HEADERS)))
        data = b"" if text else _part(kernel, start, size)
    except OSError:
        return "", ""
    architecture = AMD64
    for candidate in ARCHITECTURES.values():
        if text:
            break
        with suppress(ValueError):
            text, architecture = candidate.format.version(data), candidate
    name = "".join(text.split()[:1])
    return (name, architecture.machine) if _UTS_RELEASE.fullmatch(name) else ("", "")


def _sections(program: Path) -> Mapping[str, tuple[int, int]]:
    """Offset and size of the sections of an EFI program. If a name repeats, the first section counts. The sections
    of the first profile override those of the base. Empty if the file is not an EFI program."""
    head = _part(program, 0, _HEADERS)
    base: dict[str, tuple[int, int]] = {}
    sections: dict[str, tuple[int, int]] = {}
    with suppress(struct.error):
        (pe,) = struct.unpack_from("<I", head, _PE_FIELD)
        signature, _, count, optional = _PE.unpack_from(head, pe)
        for number in range(count if signature == b"PE\0\0" else 0):
            at = pe + _PE.size + optional + number * _SECTION.size
            name, in_memory, _, in_file, offset = _SECTION.unpack_from(head, at)
            key = name.rstrip(b"\0").decode("ascii", "replace")
            if key == ".profile":
                if key in sections:
                    break
                base, sections = sections, {}
            sections.setdefault(key, (offset, min(in_memory, in_file, LARGEST)))
    return base | sections


def _part(file: Path, start: int, size: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(start)
        return opened.read(size)


# The words that a kernel itself adds to its command line: those of its configuration, and those of a bootconfig
# (Documentation/admin-guide/bootconfig.rst in the kernel's source).
_OPTION = re.compile(r"^CONFIG_(CMDLINE\w*)=(.*)$", re.MULTILINE)
_BOOTCONFIG = re.compile(r"^(kernel|init)\.(\S+) = (.*)$", re.MULTILINE)
_VALUE = re.compile(r"\"([^\"]*)\"|'([^']*)'")


def words_of_loader(root: Path = Path("/")) -> tuple[str, ...]:
    """The words of the running kernel's command line without those that the kernel added."""
    line = (root / "proc/cmdline").read_text().split()
    words = _without_bootconfig(line, kernel_files.text(root / "proc/bootconfig"))
    options = _options(
        kernel_files.running_config(root) or _installed_config(os.uname().release, root)
    )
    added = options.get("CMDLINE", "").split()
    count = len(added)
    if options.get("CMDLINE_EXTEND") == "y":  # drivers/of/fdt.c
        return tuple(words[:-count] if count and words[-count:] == added else words)
    if options.get("CMDLINE_BOOL") == "y":  # x86; elsewhere the words only replace an empty line
        return tuple(words[count:] if words[:count] == added else words)
    return tuple(words)


def built_in(release: str, root: Path = Path("/")) -> tuple[str, str]:
    """Two texts from the configuration of this release: the built-in command line, and the option that makes the kernel
    ignore the line of the boot loader. Each is empty if there is none."""
    options = _options(_installed_config(release, root))
    line = options.get("CMDLINE", "")
    names = [n for n in ("CMDLINE_OVERRIDE", "CMDLINE_FORCE") if options.get(n) == "y" and line]
    return line, "".join(f"CONFIG_{name}" for name in names)


def _options(config: str) -> Mapping[str, str]:
    """CONFIG_CMDLINE and its relatives, without CONFIG_. The values have no quotes and backslashes."""
    options = _OPTION.findall(config)
    return {name: re.sub(r'^"|"$|\\(.)', r"\1", value.strip()) for name, value in options}


def _installed_config(release: str, root: Path) -> str:
    names = (f"boot/config-{release}", f"lib/modules/{release}/config") if release else ()
    return next(filter(None, (kernel_files.text(root / name) for name in names)), "")


def _without_bootconfig(words: Sequence[str], bootconfig: str) -> Sequence[str]:
    """The words without those of a bootconfig. The kernel adds the keys `kernel` before the other words, and the keys
    `init` after --."""
    added: list[str] = []
    for section, key, values in _BOOTCONFIG.findall(bootconfig):
        if section == "kernel":
            for double, single in _VALUE.findall(values):
                value = double or single
                word = f"{key}={value}" if value else key
                added += word.replace('"', "").split()
        elif "--" in words:
            words = words[: words.index("--")]
    if [word.replace('"', "") for word in words[: len(added)]] == added:
        return words[len(added) :]
    return words
