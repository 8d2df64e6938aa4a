"""The kernels that a lab boots: `debian:stock` and others from Debian's archive, or a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from klat.record import session_directory
from klat.base.bounded_read import read_named
from klat.base.errors import KlatError, did_you_mean
from klat.lab import image
from klat.lab.apt import STABLE, Archive, Gone, Package, Unavailable
from klat.lab.architectures import ARCHITECTURES, Architecture
from klat.lab.image import Image
from klat.lab.modules import Tree

# linux-image-6.1.0-56-rt-amd64, linux-image-6.12.117+deb12-amd64; linux-image-7.4-amd64 before 7.4 is released
_PACKAGE = re.compile(
    r"linux-image-((\d+\.\d+)((?:[.+-]\d+|[.+][a-z]+\d*)*)(-rt)?-(?:NAMES))".replace(
        "NAMES", "|".join(ARCHITECTURES)
    )
)
_ALIASES = ("stock", "rt", "newest", "newest-rt")
# A kernel that is split has its files in these packages. linux-base-RELEASE of an older kernel holds none.
_FILES = ("linux-binary-", "linux-modules-")
_LARGEST_CONFIG = 16 << 20  # bytes; those of distributions have 300 KB


@dataclass(frozen=True)
class Spec:
    """A kernel as typed: from Debian by `debian`, or from a file or a built tree. `append` holds the words that its
    command line alone gets."""

    text: str
    label: str
    debian: str = ""
    path: Path = Path()
    modules: Path | None = None
    append: str = ""
    package: tuple[str, str] = ("", "")  # name and version of the only package that will do
    # What obtain() has read from `path`. A second call returns it, also if the file was replaced.
    kernel: Kernel | None = field(default=None, compare=False, repr=False)


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
    """A kernel in Debian's archive: its name and its version. A package that holds no files needs `parts`.
    The archive may have removed some of them: they are `missing`."""

    name: str  # 6.1, 6.1-rt
    release: str
    order: tuple[int, ...]
    package: Package
    parts: tuple[Package, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(package.size for package in (self.package, *self.parts))


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
        meant = f", did you mean 'NAME={text}'?" if Path(text).exists() else _meant(text)
        raise ValueError(f"{text!r} is neither debian:NAME nor NAME=path/to/KERNEL{meant}")
    session_directory.check_label(label)
    kernel, options = _options(text, rest)
    append = options.get("append", "")
    modules = options.get("modules")
    if not kernel.startswith("debian:"):
        if not Path(kernel).exists() and (meant := _meant(kernel, f"{label}=")):
            raise ValueError(f"{text!r}: there is no file {kernel}{meant}")
        return Spec(text, label, "", Path(kernel), Path(modules) if modules else None, append)
    if modules:
        raise ValueError(
            f"{text!r}: modules= is for a kernel of your own; Debian's has its modules"
        )
    return Spec(text, label, _archive_name(kernel), append=append)


def labelled(specs: Iterable[Spec], architecture: Architecture) -> list[Spec]:
    """The specs with a label each: kernels of Debian have one of the architecture."""
    prefix = architecture.label
    return [s if s.label else replace(s, label=f"{prefix}{s.debian}") for s in specs]


def _archive_name(text: str) -> str:
    name = text.removeprefix("debian:")
    if not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9.+-]*", name):
        raise ValueError(
            f"{text!r} names no kernel{_meant(name) or ':'} klat lab kernels lists the names"
        )
    return name


def _meant(text: str, prefix: str = "") -> str:
    """`, did you mean 'debian:6.1'?`, or an empty text if no kernel of Debian is similar."""
    usual = _usual_name(text)
    return f", did you mean '{prefix}debian:{usual}'?" if usual else ""


def _usual_name(text: str) -> str:
    """The name of Debian's kernel that a text like v6.1, linux-image-6.1.0-9-rt-amd64 or latest-rt stands for; empty
    if it is no such text."""
    word = text.lower()
    rt = "rt" if re.search(r"(?<![a-z])(rt|realtime|preempt)(?![a-z])", word) else ""
    number = re.search(r"(?<![\d.])\d+\.\d+", word)
    newest = "newest" if re.search("newest|latest", word) else ""
    if base := number[0] if number else newest:
        return f"{base}-{rt}" if rt else base
    return rt or next(iter(get_close_matches(word.removeprefix("debian:"), _ALIASES)), "")


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
    """Every kernel of the archive, by version. The last of each name is the newest that was built for Debian's stable
    release, if there is one: builds for testing can have another compiler."""
    kernels = []
    for name, package in packages.items():
        match = _PACKAGE.fullmatch(name)
        # A package that only depends on the newest kernel has a name of the same form.
        if match and not any(part.startswith("linux-image-") for part in package.parts):
            release, line, build, rt = match.groups()
            order = tuple(int(number) for number in re.findall(r"\d+", line + build))
            # One release can have parts of two versions while the archive gets a new one.
            fetched = {part: packages[part] for part in package.parts if part in packages}
            parts = {part: p for part, p in fetched.items() if p.version == package.version}
            missing = tuple(p for p in package.parts if p.startswith(_FILES) and p not in parts)
            kernels.append(
                Offered(f"{line}{rt or ''}", release, order, package, (*parts.values(),), missing)
            )
    return sorted(kernels, key=lambda k: (k.order[:2], STABLE in k.release, k.order, k.name))


def choose(name: str, kernels: Iterable[Offered], architecture: Architecture) -> Offered:
    """The newest of that name, or the one of that release."""
    offers = list(kernels)
    complete = [kernel for kernel in offers if not kernel.missing]
    if matching := _matching(name, complete, architecture):
        return matching[-1]
    names = newest(complete, architecture)
    usual = _usual_name(name)
    lower = name.lower()
    # The last part of a name may be an architecture, so the names also match without it.
    stems = (lower, lower.rpartition("-")[0])
    stem_of = {k.release: k.release.rpartition("-")[0] for k in complete}
    releases = [r for stem in stems for r in stem_of if stem and stem_of[r] == stem]
    if likely := [n for n in (lower, *releases, usual) if _matching(n, complete, architecture)]:
        why = f", did you mean 'debian:{likely[0]}'?"
    elif incomplete := _matching(usual, offers, architecture):
        why = f": its archive lacks {' and '.join(incomplete[-1].missing)}"
    else:
        # The nearest number is another kernel.
        why = "" if usual else did_you_mean(name, names, prefix="debian:")
    raise KlatError(
        f"Debian has no kernel debian:{name} for {architecture.name}{why}"
        f"{' There' if why.endswith('?') else '; there'} are {', '.join(names) or 'none'}"
        f" (klat lab kernels --arch {architecture.name} --update reads the archive again)"
    )


def newest(kernels: Sequence[Offered], architecture: Architecture) -> dict[str, Offered]:
    """The newest kernel of each name, and the kernel of each alias."""
    names = {kernel.name: kernel for kernel in kernels}
    matching = {name: _matching(name, kernels, architecture) for name in architecture.aliases}
    return names | {name: builds[-1] for name, builds in matching.items() if builds}


def _matching(name: str, kernels: Sequence[Offered], architecture: Architecture) -> list[Offered]:
    for wanted in architecture.aliases.get(name, (name,)):
        matching = [k for k in kernels if fnmatchcase(k.name, wanted) or k.release == wanted]
        if matching:
            return matching
    return []


def obtain(spec: Spec, archive: Archive, architecture: Architecture) -> Kernel:
    """The kernel of the spec. Fetches it if it is missing. `archive` has this architecture. The spec of the
    returned kernel names the exact build: a second call with it returns the same kernel."""
    if not spec.debian:
        from_file = spec.kernel or _from_file(spec, architecture)
        return replace(from_file, spec=replace(spec, kernel=from_file))
    # The archive has only the newest builds. The cache can have older builds, and builds of which the archive has
    # removed a package.
    packages = archive.packages()
    kept = {
        name: package
        for name, package in archive.kept().items()
        if name not in packages
        or package.version == packages[name].version
        or spec.package == (name, package.version)
    }
    offers = offered({**packages, **kept})
    if any(spec.package):
        offers = [o for o in offers if (o.package.name, o.package.version) == spec.package]
    if any(spec.package) and not offers:
        raise Unavailable(f"Debian's archive no longer has {' '.join(spec.package)}")
    last: Gone | None = None
    while True:
        try:
            offer = choose(spec.debian, offers, architecture)
        except KlatError as error:
            raise last or error from None
        try:
            place = archive.unpacked(offer.package, offer.parts)
            break
        except Gone as error:
            last = error
            archive.say(f"{error}; looking for another build")
            offers.remove(offer)
    # Debian is moving /lib below /usr.
    modules = next(
        (m for m in (place / "usr/lib/modules", place / "lib/modules") if m.is_dir()), None
    )
    if modules is None:
        raise KlatError(
            f"{offer.package.name}: holds no modules; run klat lab clear, and it is fetched again"
        )
    tree = modules / offer.release
    # Debian is moving the files of /boot there, too. For riscv64 the image is named vmlinux.
    kernel = _file_of(("vmlinuz", "vmlinux"), tree, place, offer.release)
    config = _file_of(("config",), tree, place, offer.release)
    boot_image = image.inspect(kernel, architecture.format)
    built = Tree(tree, boot_image.release)
    build = (offer.package.name, offer.package.version)
    spec = replace(spec, debian=offer.release, package=build)
    return Kernel(spec, boot_image, built, config.read_bytes(), offer.package)


def _file_of(names: Sequence[str], modules: Path, package: Path, release: str) -> Path:
    places = [modules / name for name in names]
    places += [package / "boot" / f"{name}-{release}" for name in names]
    return next(filter(Path.is_file, places), places[-1])


def _from_file(spec: Spec, architecture: Architecture) -> Kernel:
    path = spec.path
    if path.is_dir():
        path /= architecture.format.target
        if not path.exists():
            raise KlatError(
                f"{spec.path}: this tree has no kernel for {architecture.name}: there is no {path}"
            )
    boot_image = image.inspect(path, architecture.format)
    tree = Tree(spec.modules, boot_image.release) if spec.modules else None
    config = _config_beside(path, boot_image.release) or image.configuration(boot_image)
    return Kernel(spec, boot_image, tree, config, None)


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
