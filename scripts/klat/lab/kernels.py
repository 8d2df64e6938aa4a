"""The kernels that a lab boots: `debian:stock` and others from Debian's archive, or a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from klat.record import session_directory
from klat.base.bounded_read import read_named
from klat.base.errors import KlatError, did_you_mean
from klat.lab import image
from klat.lab.apt import KERNEL_PARTS, Archive, Package
from klat.lab.architectures import ARCHITECTURES, Architecture
from klat.lab.image import Image
from klat.lab.modules import Tree

# linux-image-6.1.0-56-rt-amd64, linux-image-6.12.117+deb12-amd64
_PACKAGE = re.compile(
    r"linux-image-((\d+)\.(\d+)\.(\d+)(?:\+[a-z]*([\d.]+))?(?:-(\d+))?(-rt)?-(?:NAMES))".replace(
        "NAMES", "|".join(ARCHITECTURES)
    )
)
_ALIASES = ("stock", "rt")
_LARGEST_CONFIG = 16 << 20  # bytes; those of distributions have 300 KB


@dataclass(frozen=True)
class Spec:
    """A kernel as typed: from Debian by `debian`, or from a file. `append` holds the words that its
    command line alone gets."""

    text: str
    label: str
    debian: str = ""
    path: Path = Path()
    modules: Path | None = None
    append: str = ""


@dataclass(frozen=True)
class Kernel:
    spec: Spec
    image: Image
    tree: Tree | None
    config: bytes | None
    package: Package | None

    @property
    def label(self) -> str:
        return self.spec.label

    def facts(self) -> dict[str, object]:
        return {
            "spec": self.spec.text,
            "release": self.image.release,
            "version": self.image.version,
            "sha256": self.image.sha256,
            "package": f"{self.package.name} {self.package.version}" if self.package else None,
        }


@dataclass(frozen=True)
class Offered:
    """A kernel in Debian's archive: its name and its version. A package that holds no files needs `parts`."""

    name: str  # 6.1, 6.1-rt
    release: str
    order: tuple[int, ...]
    package: Package
    parts: tuple[Package, ...] = ()

    @property
    def size(self) -> int:
        return sum(each.size for each in (self.package, *self.parts))


def parse(text: str) -> Spec:
    """`debian:NAME`, or `NAME=KERNEL[,modules=DIR][,append=WORDS]`, where KERNEL is `debian:NAME` or
    a path. WORDS go up to the end, commas included. `debian:NAME` alone has no label yet. ValueError says
    what is wrong."""
    if text.startswith("debian:"):
        name, comma, _ = text.partition(",")
        if comma:
            raise ValueError(f"{text!r}: a kernel with options needs a name: NAME={text}")
        return Spec(text, "", debian=_archive_name(name))
    label, equals, rest = text.partition("=")
    if not equals or not rest:
        meant = did_you_mean(f"debian:{text}", [f"debian:{name}" for name in _ALIASES])
        raise ValueError(f"{text!r} is neither debian:NAME nor NAME=path/to/KERNEL{meant}")
    session_directory.check_label(label)
    kernel, options = _options(text, rest)
    append = options.get("append", "")
    modules = options.get("modules")
    if not kernel.startswith("debian:"):
        return Spec(text, label, "", Path(kernel), Path(modules) if modules else None, append)
    if modules:
        raise ValueError(
            f"{text!r}: modules= is for a kernel of your own; Debian's has its modules"
        )
    return Spec(text, label, _archive_name(kernel), append=append)


def labelled(specs: Iterable[Spec], architecture: Architecture) -> list[Spec]:
    """The specs with a label each: kernels of Debian have one of the architecture."""
    return [
        spec if spec.label else replace(spec, label=f"{architecture.label}{spec.debian}")
        for spec in specs
    ]


def _archive_name(text: str) -> str:
    name = text.removeprefix("debian:")
    if not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9.+-]*", name):
        raise ValueError(f"{text!r} names no kernel: klat lab kernels lists them")
    return name


def _options(text: str, rest: str) -> tuple[str, dict[str, str]]:
    """The kernel, and its options by name. A path may hold commas and equals signs, but not
    `,NAME=`."""
    before, append, words = rest.partition(",append=")
    kernel, *parts = re.split(r",([a-z_]+)=", before)
    options = dict(zip(parts[::2], parts[1::2]))
    unknown = [name for name in options if name != "modules"]
    if unknown:
        raise ValueError(f"{text!r}: there is no {unknown[0]}=; there are modules= and append=")
    if len(parts) > 2 or not kernel:
        raise ValueError(f"{text!r} is not NAME=KERNEL[,modules=DIR][,append=WORDS]")
    if append:
        options["append"] = words
    if ",modules=" in words:
        raise ValueError(
            f"{text!r}: append= takes everything after it, so modules= must come before it"
        )
    for name, value in options.items():
        if not value.strip() or not value.isprintable():
            raise ValueError(f"{text!r}: {name}= cannot be {value!r}")
    return kernel, options


def offered(packages: Mapping[str, Package]) -> list[Offered]:
    """Every kernel of the archive, the newest of each name last."""
    found = []
    for name, package in packages.items():
        match = _PACKAGE.fullmatch(name)
        if match:
            release, major, minor, patch, build, abi, rt = match.groups()
            builds = [int(part) for part in (build or "0").split(".") if part]
            order = (int(major), int(minor), int(patch), int(abi or 0), *builds)
            parts = (packages.get(f"{part}{release}") for part in KERNEL_PARTS)
            held = tuple(part for part in parts if part)
            found.append(Offered(f"{major}.{minor}{rt or ''}", release, order, package, held))
    return sorted(found, key=lambda kernel: (kernel.order, kernel.name))


def choose(name: str, kernels: Iterable[Offered], architecture: Architecture) -> Offered:
    """The newest of that name, or the one of that release."""
    held = list(kernels)
    matching = _matching(name, held, architecture)
    if not matching:
        names = sorted({kernel.name for kernel in held})
        names += sorted(aliases(held, architecture).values())
        known = [*names, *(kernel.release for kernel in held)]
        meant = did_you_mean(name, known, prefix="debian:")
        raise KlatError(
            f"Debian has no kernel debian:{name} for {architecture.name}"
            + (
                meant
                or f"; there are {', '.join(names)} (klat lab kernels --arch {architecture.name})"
            )
        )
    return matching[-1]


def aliases(kernels: Sequence[Offered], architecture: Architecture) -> dict[Offered, str]:
    """The alias of each kernel that has one."""
    found = {name: _matching(name, kernels, architecture) for name in architecture.aliases}
    return {matching[-1]: name for name, matching in found.items() if matching}


def _matching(name: str, kernels: Iterable[Offered], architecture: Architecture) -> list[Offered]:
    wanted = architecture.aliases.get(name, name)
    return [
        kernel for kernel in kernels if fnmatchcase(kernel.name, wanted) or kernel.release == wanted
    ]


def obtain(spec: Spec, archive: Archive, architecture: Architecture) -> Kernel:
    """The kernel of the spec. Fetches it if it is missing. `archive` has this architecture."""
    if not spec.debian:
        return _from_file(spec, architecture)
    # The archive has only the newest builds. The cache may hold older ones.
    chosen = choose(spec.debian, offered({**archive.kept(), **archive.packages()}), architecture)
    place = archive.unpacked(chosen.package, chosen.parts)
    # Debian is moving /lib below /usr.
    modules = next(
        (m for m in (place / "usr/lib/modules", place / "lib/modules") if m.is_dir()), None
    )
    if modules is None:
        raise KlatError(
            f"{chosen.package.name}: holds no modules; run klat lab clear, and it is fetched again"
        )
    own = modules / chosen.release
    # Debian is moving the files of /boot there, too.
    if (own / "vmlinuz").is_file():
        kernel, config = own / "vmlinuz", own / "config"
    else:
        kernel, config = (
            place / "boot" / f"{name}-{chosen.release}" for name in ("vmlinuz", "config")
        )
    found = image.inspect(kernel, architecture.format)
    return Kernel(spec, found, Tree(own, found.release), config.read_bytes(), chosen.package)


def _from_file(spec: Spec, architecture: Architecture) -> Kernel:
    found = image.inspect(spec.path, architecture.format)
    tree = Tree(spec.modules, found.release) if spec.modules else None
    config = _config_beside(spec.path, found.release) or image.configuration(found)
    return Kernel(spec, found, tree, config, None)


def _config_beside(path: Path, release: str) -> bytes | None:
    """The configuration, if the image lies in its build tree or in /boot."""
    candidates = [path.parent / f"config-{release}"]
    parents = path.resolve().parents
    if len(parents) > 3 and path.resolve().parent.name == "boot":
        candidates.append(parents[3] / ".config")
    for candidate in candidates:
        try:
            return read_named(candidate, _LARGEST_CONFIG)
        except OSError:
            continue
    return None
