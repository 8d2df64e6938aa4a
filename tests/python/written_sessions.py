"""A session written from docs/record.md alone, with none of klat's own code, to hold the readers
to it."""

import hashlib
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from made_tools import write

COLUMNS = (
    "boot order benchmark params run metric unit status reason first_sample n mean stddev min p50"
    " p90 p99 max floor cpus placement policy voluntary involuntary minor_faults major_faults"
    " migrations wait_ns irq_res irq_cal irq_tlb irq_loc steal_ms smi evidence start_ns elapsed_ns"
    " rows check"
).split()

RT = {"kernel_release": "6.1.0-rt", "preemption": "rt"}
CPU = "sys/devices/system/cpu"
PIPES = "bytes=1;peer=thread;wait=read;mode=round-trip"
SOAK = f"{PIPES};soak=60"
# The header of samples/longest.csv, in which a soak keeps its longest samples.
KEPT = "benchmark,run,metric,index,time_ns,cpu,value,involuntary,steal_ticks,smi\n"


def quoted(field: str) -> str:
    """One CSV field after RFC 4180."""
    if any(c in field for c in ',"\r\n'):
        return '"' + field.replace('"', '""') + '"'
    return field


def thousandths(value: int) -> str:
    return f"{value // 1000}.{value % 1000:03d}"


def integer_root(value: int) -> int:
    """floor(sqrt(value)) by bisection."""
    low, high = 0, 1
    while high * high <= value:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle * middle <= value else (low, middle)
    return low


def statistics_of(samples: Sequence[int]) -> dict[str, str]:
    """The statistics columns, by the formulas of docs/samples.md, in plain integers."""
    n = len(samples)
    total, squares = sum(samples), sum(x * x for x in samples)
    ranked = sorted(samples)
    variance = 0 if n == 1 else 10**6 * (n * squares - total * total) // (n * (n - 1))
    row = {
        "n": str(n),
        "mean": thousandths(1000 * total // n),
        "stddev": thousandths(integer_root(variance)),
        "min": str(ranked[0]),
        "max": str(ranked[-1]),
    }
    for percent in (50, 90, 99):
        supported = n * (100 - percent) >= 500
        rank = -(-percent * n // 100)
        row[f"p{percent}"] = str(ranked[rank - 1]) if supported else ""
    return row


def as_words(values: Iterable[int]) -> bytes:
    """Unsigned 64-bit, little-endian."""
    return b"".join(int(value).to_bytes(8, "little") for value in values)


class SyntheticSession:
    """A session on disk that grows by `run()`. `environment` and `facts` (run.json) are written if
    given; `info` overrides keys of session.json, None included."""

    def __init__(
        self,
        path: Path,
        environment: Mapping[str, str] | None = None,
        facts: Mapping[str, Any] | None = None,
        start_ns: int = 0,
        **info: Any,
    ) -> None:
        self.path = path
        # No machine measures in two boots at once.
        place = zlib.crc32("/".join(path.parts[-2:]).encode()) % 1_000_000 * 100_000_000_000
        self.start_ns = start_ns or 1_700_000_000_000_000_000 + place
        (path / "samples").mkdir(parents=True)
        (path / "environment").mkdir()
        self.info: dict[str, Any] = {
            "schema": 1,
            "klat_version": "0.1.0",
            "klat_commit": "0123abc",
            "label": "stock",
            "seed": 1,
            "created": "2024-05-01T12:00:00Z",
            "machine_id": "6d61",
            "boot_id": "11111111-2222-3333-4444-555555555555",
            "kernel_release": "6.1.0-test",
            "kernel_version": "#1 SMP",
            "architecture": "x86_64",
            "cpu_model": "Test CPU",
            "cpus_online": 2,
            "preemption": "voluntary",
            "mode": "virtual",
            "unit": "ticks",
            "tsc": {
                "khz": 2_600_000.0,
                "method": "CLOCK_MONOTONIC_RAW",
                "uncertainty_ppm": 0.5,
                "second_khz": None,
                "second_method": None,
                "difference_ppm": None,
                "invariant": True,
                "quantum": 26,
            },
            "programs": {"pipes": "00" * 32},
        }
        self.info.update(info)
        self.write_info()
        self.runs_csv.write_text(",".join(COLUMNS) + "\n")
        if environment is not None:
            self.write_environment(environment)
        if facts is not None:
            self.write_facts(facts)

    @property
    def runs_csv(self) -> Path:
        return self.path / "runs.csv"

    def write_info(self) -> None:
        (self.path / "session.json").write_text(json.dumps(self.info))

    def write_facts(self, facts: Mapping[str, Any]) -> None:
        write_facts(self.path, facts)

    def write_environment(self, files: Mapping[str, str]) -> None:
        """These files, and two that comparable sessions have."""
        common = {f"{CPU}/cpuidle/current_driver": "none", "proc/cmdline": "ro"}
        for name, text in (common | dict(files)).items():
            write(self.path / "environment" / name, text)

    def samples_file(self, benchmark: str) -> Path:
        return self.path / "samples" / f"{benchmark}.u64"

    def histogram_file(self, benchmark: str) -> Path:
        return self.path / "samples" / f"{benchmark}.histogram"

    def lines(self) -> list[str]:
        """The lines of runs.csv without the header."""
        return self.runs_csv.read_text().splitlines()[1:]

    def row(self, **values: Any) -> str:
        """One line with its checksum, newline included."""
        body = ",".join(quoted(str(values.get(name, ""))) for name in COLUMNS[:-1])
        return f"{body},{hashlib.sha256(body.encode()).hexdigest()[:16]}\n"

    def run(
        self,
        metrics: Mapping[str, Sequence[int]] | None = None,
        benchmark: str = "pipes",
        params: str = PIPES,
        status: str = "ok",
        reason: str = "",
        order: int = 0,
        run: int = 0,
        **values: Any,
    ) -> list[str]:
        """Record one run: its samples, then its rows. No metrics make the one row of an error or
        a skip. With `soak=` in params the samples are pairs of a value and its count."""
        self.start_ns += 30_000_000
        shared: dict[str, Any] = {
            "boot": self.info["boot_id"],
            "order": order,
            "benchmark": benchmark,
            "params": params,
            "run": run,
            "unit": self.info["unit"],
            "status": status,
            "reason": reason,
            "floor": 26,
            "cpus": "writer=1;reader=0",
            "placement": "same-llc",
            "policy": "writer=fifo:50;reader=fifo:50",
            "voluntary": "writer=1000;reader=1000",
            "start_ns": self.start_ns,
            "elapsed_ns": 20_000_000,
            "rows": max(1, len(metrics or {})),
        }
        shared.update(values)
        lines = []
        for metric, samples in (metrics or {}).items():
            soak = "soak=" in params
            if soak and not (self.path / "samples/longest.csv").exists():
                (self.path / "samples/longest.csv").write_text(KEPT)
            file = self.histogram_file(benchmark) if soak else self.samples_file(benchmark)
            first = file.stat().st_size // (16 if soak else 8) if file.exists() else 0
            words = [w for pair in sorted(Counter(samples).items()) for w in pair]
            with file.open("ab") as out:
                out.write(as_words(words if soak else samples))
            row = dict(shared, metric=metric, first_sample=first)
            row |= statistics_of(samples) if samples else {"n": "0"}
            row |= values
            lines.append(self.row(**row))
        if not metrics:
            lines.append(self.row(**shared))
        with self.runs_csv.open("a") as out:
            out.write("".join(lines))
        return lines


def run_facts() -> dict[str, Any]:
    """run.json with every field that docs/record.md names."""
    return {
        "schema": 1,
        "command": ["klat", "run"],
        "created": "2026-01-01T00:00:00Z",
        "label": "stock",
        "seed": 1,
        "boot_id": "b",
        "plan_sha256": "0" * 64,
        "load": None,
        "profile": "rt",
        "prefix": "nice",
        "pause_ms": 0,
        "time_limit_s": 120,
        "runner": 1,
        "resumed": ["2026-01-01T00:00:00Z"],
        "first": True,
        "partner": "../other",
        "options": ["pipes.bytes=1"],
        "turns": [[1, 2, 1], [3, 4, 4]],
        "pairing": {"experiment": "e", "pairs": [[1, 4, "1"]]},
        "under_test": {"experiment": "e", "append": ""},
        "lab": {"experiment": {"identity": "x"}, "boot": 1},
        "unrecorded": [{"benchmark": "cv", "arguments": "", "orders": [3], "reason": "no"}],
        "future": [[[]]],
    }


def write_facts(session: Path, facts: Mapping[str, Any]) -> None:
    (session / "run.json").write_text(json.dumps(facts))


class NewSession:
    """`new_session("stock/1", label="stock", …)` makes a SyntheticSession below a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, name: str = "stock/1", **info: Any) -> SyntheticSession:
        return SyntheticSession(self.root / name, **info)

    def label(
        self,
        directory: str,
        boots: Iterable[Iterable[Sequence[int] | Mapping[str, Sequence[int]]]],
        run: Mapping[str, Any] | None = None,
        **info: Any,
    ) -> Path:
        """A label whose boots have these runs: the samples of round_trip, or of each metric. `run`
        has more columns of runs.csv. In it and in `info` a function gets the number of the boot."""

        def of(boot: int, values: Mapping[str, Any]) -> dict[str, Any]:
            return {k: value(boot) if callable(value) else value for k, value in values.items()}

        for boot, runs in enumerate(boots):
            names = {"label": directory, "boot_id": f"{directory}-{boot}"}
            session = self(f"{directory}/{boot}", **names | of(boot, info))
            for number, metrics in enumerate(runs, 1):
                if not isinstance(metrics, Mapping):
                    metrics = {"round_trip": metrics}
                session.run(metrics, run=number, order=number, **of(boot, run or {}))
        return self.root / directory


Klat = Callable[..., tuple[int, str, str]]


def answer(klat: Klat, *words: object) -> dict[str, Any]:
    """What a command answers in JSON."""
    return dict(json.loads(klat(*words, "--format", "json")[1]))


def results_of(klat: Klat, *words: object) -> list[dict[str, Any]]:
    """The results of the first cell of a comparison."""
    return list(answer(klat, "compare", *words)["against"][0]["cells"][0]["results"])


def metrics_of(klat: Klat, *words: object) -> list[dict[str, Any]]:
    """The metrics of the first setting of a summary."""
    return list(answer(klat, "summary", *words)["labels"][0]["settings"][0]["metrics"])


def again(path: Path) -> SyntheticSession:
    """A session that exists, to add runs to."""
    session = SyntheticSession.__new__(SyntheticSession)
    session.path, session.start_ns = path, 1_800_000_000_000_000_000
    session.info = json.loads((path / "session.json").read_text())
    return session


def words(text: str) -> str:
    """The text without its line breaks."""
    return " ".join(text.split())


def stepped(median: int, n: int = 630) -> list[int]:
    """Values with this median, in steps of 26."""
    return [median + 26 * ((i * 8) % 21 - 10) for i in range(n)]


def samples(median: float, n: int = 600) -> list[int]:
    """Around the median on both sides, one sample of a hundred four times as long."""
    body = [max(0, round(median) + 7 * ((i * 8) % 21 - 10)) for i in range(n)]
    return [4 * x if i % 100 == 99 else x for i, x in enumerate(body)]


def write_label(
    writer: NewSession, name: str = "stock", ratio: float = 1.0, boots: int = 4, **info: Any
) -> Path:
    """A label with four runs of pipes a boot, about 52,000 ticks (20 us), without noise."""
    middles = [[ratio * (52_000 + 52 * b + 26 * run) for run in range(1, 5)] for b in range(boots)]
    names: dict[str, Any] = {"label": name, "environment": {}}
    names["boot_id"] = lambda boot: f"boot-{boot}-of-{len(name)}-{ratio}"
    boots_of_runs = [map(samples, of_boot) for of_boot in middles]
    return writer.label(re.sub(r"\W", "_", name), boots_of_runs, **names | info)


class SideWriter:
    """Makes one side of a comparison: the boots of a label, whose runs vary by `noise`."""

    def __init__(self, writer: NewSession) -> None:
        self._writer = writer
        self.root = writer.root

    def add(self, label: str, metric: str, median: int, boots: int = 5, **run: Any) -> Path:
        """Adds a run of `metric` to each boot of `label`."""
        for boot in range(boots):
            again(self.root / label / str(boot)).run({metric: samples(median + boot)}, **run)
        return self.root / label

    def __call__(
        self,
        label: str,
        ratio: float = 1.0,
        boots: int = 5,
        runs: int = 4,
        seed: int | None = None,
        noise: float = 0.002,
        environment: Mapping[str, str] | None = None,
        facts: Mapping[str, Any] | None = None,
        run: Mapping[str, Any] | None = None,
        prefix: str = "",
        begun: Sequence[int] = (),
        **info: Any,
    ) -> Path:
        draw = np.random.default_rng(sum(map(ord, label)) if seed is None else seed)
        for boot in range(boots):
            boot_id = info.get("boot_id") or f"{prefix or label}-boot-{boot}"
            names = {"label": label, **info, "boot_id": boot_id}
            session = self._writer(
                f"{label}/{boot}", environment=environment or {}, facts=facts, **names
            )
            session.start_ns += 10**17 * begun[boot] if begun else 0
            shift = draw.normal(0, noise)
            for number in range(1, runs + 1):
                centre = 52_000 * ratio * math.exp(shift + draw.normal(0, noise))
                session.run(
                    {"round_trip": samples(centre)}, run=number, order=number, **(run or {})
                )
        return self.root / label
