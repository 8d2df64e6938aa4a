"""A disk with Debian, systemd, two kernels and klat. QEMU boots it, so its reboots are real.

QEMU counts instructions (-icount), so the figures repeat exactly. A boot takes about a minute. The guest runs
/srv/drive after each boot.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import made_tools
from labs import ROOT

# GRUB's default is the first kernel in the menu: the one with the highest version.
KERNELS = ("linux-image-cloud-amd64", "linux-image-rt-amd64")
PACKAGES = ("systemd-sysv", "dbus", "udev", "kmod", "procps", "python3")
KLAT_PACKAGES = ("rsync", "libnuma1", "libjansson4", "libmd0")
# An initramfs with only the modules of this guest. It halves the time of a boot.
SMALL_INITRAMFS = (
    'mkdir -p "$1/etc/initramfs-tools/conf.d"'
    ' && echo MODULES=list > "$1/etc/initramfs-tools/conf.d/klat"'
    ' && printf "virtio_pci\\nvirtio_blk\\next4\\n" > "$1/etc/initramfs-tools/modules"'
)
DISK = "disk.raw"
SIZE_MIB = 4096  # of the file system
UEFI_MIB = 256  # of the EFI system partition
OFFSET = 1 << 20  # of the partition with the file system
FIRST_SECONDS = 600
# panic=-1 reboots at once. A kernel that waits after a panic polls the counter, which takes minutes in QEMU.
COMMAND_LINE = "console=ttyS0 klat.mode=counted tsc=reliable net.ifnames=0 panic=-1"


@dataclass(frozen=True)
class Loader:
    """A boot loader. `install` runs in the first boot of the guest, which needs no boot loader."""

    packages: tuple[str, ...]
    partitions: bytes  # for sfdisk
    install: str
    has_uefi: bool = False


# Each is installed from within the guest, because it looks for the guest's disk.
GRUB = Loader(("grub-pc",), b"2048,,L,*\n", "grub-install --target=i386-pc /dev/vda && update-grub")
# A real-time kernel has no UEFI variables without efi=runtime, so the other kernel is the default.
SYSTEMD_BOOT = Loader(
    ("systemd-boot", "dosfstools"),
    f"label: gpt\n2048,{SIZE_MIB}MiB,L\n,,U\n".encode(),
    "mkfs.vfat /dev/vda2 && mkdir -p /efi && echo /dev/vda2 /efi vfat defaults 0 2 >> /etc/fstab"
    " && mount /efi && bootctl install --no-variables && for k in /boot/vmlinuz-*; do"
    " kernel-install add ${k#*z-} $k /boot/initrd.img-${k#*z-}; done"
    " && echo 'default *cloud*' > /efi/loader/loader.conf",
    has_uefi=True,
)
# Without a boot loader. A kernel's own command line chooses the initramfs.
EFI_STUB = Loader(
    ("efibootmgr", "dosfstools"),
    SYSTEMD_BOOT.partitions,
    "mkfs.vfat /dev/vda2 && mkdir -p /efi && echo /dev/vda2 /efi vfat defaults 0 2 >> /etc/fstab"
    " && mount /efi && for k in /boot/vmlinuz-*-rt-* /boot/vmlinuz-*-cloud-*; do r=${k#*z-};"
    " cp $k /boot/initrd.img-$r /efi && efibootmgr -q -c -d /dev/vda -p 2 -L Debian-$r -l"
    " '\\vmlinuz-'$r -u \"$(cat /etc/kernel/cmdline) initrd=\\\\initrd.img-$r\"; done",
    has_uefi=True,
)
UEFI = Path("/usr/share/OVMF")
_DRIVE_UNIT = """\
[Unit]
Description=the script of the test
[Service]
Type=oneshot
ExecStart=/bin/sh /srv/drive
StandardOutput=journal+console
StandardError=journal+console
[Install]
WantedBy=multi-user.target
"""
_BUILD_SECONDS = 900


def _run(*words: str | Path) -> str:
    done = made_tools.run(*words, seconds=_BUILD_SECONDS)
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout.strip()


def install_klat(root: Path) -> None:
    _run("make", "-C", ROOT, "install", f"DESTDIR={root}", "prefix=/usr")
    # As the installation does without DESTDIR.
    share = root / "usr/share/klat"
    _run("/usr/bin/python3", "-m", "compileall", "-q", "-s", root, share)


def build(
    directory: Path,
    loader: Loader,
    packages: tuple[str, ...] = KLAT_PACKAGES,
    install: Callable[[Path], None] = install_klat,
    command_line: str = COMMAND_LINE,
) -> Path:
    """Make the disk. Needs root. `install` adds the files of the test to the root directory."""
    tree = directory / "tree"
    disk = directory / DISK
    _run(
        *(
            "mmdebstrap",
            "--variant=minbase",
            f"--include={','.join((*PACKAGES, *packages, *loader.packages, *KERNELS))}",
        ),
        *("--aptopt=Apt::Install-Recommends false", "--dpkgopt=force-confold"),
        *(f"--essential-hook={SMALL_INITRAMFS}", "--format=directory", "bookworm", tree),
    )
    _configure(tree, loader, command_line)
    install(tree)
    with disk.open("wb") as file:
        file.truncate((SIZE_MIB + 1 + UEFI_MIB) << 20)
    subprocess.run(["sfdisk", "-q", disk], input=loader.partitions, check=True, timeout=60)
    offset = f"offset={OFFSET}"
    _run("mkfs.ext4", "-q", "-F", "-d", tree, "-E", offset, disk, f"{SIZE_MIB}M")
    if loader.has_uefi:
        shutil.copy(UEFI / "OVMF_VARS_4M.fd", _variables(disk))
    kernel = sorted((tree / "boot").glob("vmlinuz-*"))[0]
    initramfs = tree / "boot" / kernel.name.replace("vmlinuz", "initrd.img")
    Guest(
        disk,
        *("-kernel", str(kernel), "-initrd", str(initramfs)),
        *("-append", f"root=/dev/vda1 rw {command_line}"),
    ).wait(FIRST_SECONDS)
    _run("rm", "-rf", "--one-file-system", tree)
    return disk


def _configure(root: Path, loader: Loader, command_line: str) -> None:
    (root / "etc/fstab").write_text("/dev/vda1 / ext4 errors=remount-ro 0 1\n")
    (root / "etc/hostname").write_text("guest\n")
    (root / "etc/default/grub").write_text(
        f'GRUB_DEFAULT=0\nGRUB_TIMEOUT=0\nGRUB_CMDLINE_LINUX="{command_line}"\n'
        "GRUB_DISABLE_OS_PROBER=true\nGRUB_TERMINAL=console\n"
    )
    (root / "etc/kernel").mkdir(exist_ok=True)
    (root / "etc/kernel/cmdline").write_text(f"root=/dev/vda1 ro {command_line}\n")
    (root / "etc/systemd/system/drive.service").write_text(_DRIVE_UNIT)
    (root / "srv/drive").write_text(
        f"{loader.install} && touch /srv/bootable\n" "systemctl --no-block poweroff\n"
    )
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / "drive.service").symlink_to("/etc/systemd/system/drive.service")


@contextmanager
def opened(disk: Path) -> Iterator[Path]:
    """The mounted root directory of the guest. The guest must not be running."""
    device = _run("losetup", "-o", str(OFFSET), "--show", "-f", disk)
    at = disk.parent / "root"
    at.mkdir(exist_ok=True)
    try:
        _run("mount", device, at)
        try:
            yield at
        finally:
            _run("umount", at)
    finally:
        _run("losetup", "-d", device)


def _variables(disk: Path) -> Path:
    """The file of the UEFI variables. A guest without it has a BIOS."""
    return disk.with_suffix(".vars")


class Guest:
    # Without sleep=on the clock jumps to the next timer while the guest waits for its disk, so time-outs expire on a busy
    # host.
    clock: tuple[str, ...] = ("-icount", "shift=0,sleep=on", "-rtc", "clock=vm")

    def __init__(self, disk: Path, *more: str) -> None:
        if _variables(disk).exists():
            flash = "if=pflash,format=raw,unit"
            code = f"{flash}=0,readonly=on,file={UEFI / 'OVMF_CODE_4M.fd'}"
            variables = f"{flash}=1,file={_variables(disk)}"
            more = ("-drive", code, "-drive", variables, "-device", "VGA", *more)
        self.log = disk.with_suffix(".log")
        self._words = [
            *("qemu-system-x86_64", "-nodefaults", "-display", "none"),
            *("-m", "1024", "-smp", "1"),
            *("-cpu", "max", *self.clock),
            # Without a flush. The host has the data in its page cache, also after QEMU is killed.
            *("-drive", f"file={disk},format=raw,if=virtio,cache=unsafe"),
            *("-chardev", f"file,id=log,path={self.log},append=on", "-serial", "chardev:log"),
            *more,
        ]
        self.switch_on()

    def switch_on(self) -> None:
        self.process = subprocess.Popen(self._words, stdin=subprocess.DEVNULL)

    def wait(self, seconds: float) -> None:
        """Wait until the guest powers off. AssertionError after `seconds`."""
        try:
            self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.cut()
            raise AssertionError(f"no power-off in {seconds} s:\n{self.text()[-4000:]}") from None

    def cut(self) -> None:
        """Cut the power of the guest."""
        self.process.kill()
        self.process.wait()

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""
