"""Writes a label of made-up sessions, as docs/record.md defines the record, faster than programs would.

A process of its own, so that its memory is not counted as the reader's.
"""

import argparse
import hashlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from klat.record.session import COLUMNS, FIGURES  # noqa: E402
from klat.stats.descriptive import Samples, row_figures, thousandths  # noqa: E402

QUANTUM = 26
PARAMS = "bytes=1;peer=thread;wait=read;mode=round-trip;iterations=1000;warmup=100"
# What fills a row as a real one is filled.
FIXED = {
    "unit": "ticks",
    "status": "ok",
    "floor": "26",
    "cpus": "writer=1;reader=0",
    "placement": "same-llc",
    "policy": "writer=fifo:50;reader=fifo:50",
    "voluntary": "writer=1000;reader=1001",
    "involuntary": "writer=0;reader=0",
    "minor_faults": "writer=0;reader=0",
    "major_faults": "writer=0;reader=0",
    "migrations": "writer=0;reader=0",
    "wait_ns": "writer=412301;reader=398127",
    "irq_res": "0=1003;1=1001;other=2",
    "irq_cal": "0=0;1=0;other=0",
    "irq_tlb": "0=0;1=0;other=0",
    "irq_loc": "0=12;1=14;other=0",
    "steal_ms": "0",
    "evidence": "delivered=1000;expected=1000",
    "elapsed_ns": "20000000",
    "rows": "1",
}


def drawn(generator: np.random.Generator, count: int, centre: float) -> Samples:
    """Lognormal with a deviation of 20 %, one sample in a thousand from a tail without a variance; in whole steps."""
    values = centre * np.exp(0.2 * generator.standard_normal(count))
    rare = generator.random(count // 1000 + 1) ** (-1 / 1.5)
    values[generator.integers(count, size=len(rare))] *= rare
    return np.asarray(np.rint(values / QUANTUM) * QUANTUM, dtype=np.uint64)


def row(values: dict[str, object]) -> bytes:
    told = (values.get(name) for name in COLUMNS[:-1])
    body = ",".join("" if value is None else str(value) for value in told).encode()
    return body + b"," + hashlib.sha256(body).hexdigest()[:16].encode() + b"\n"


def session(directory: Path, label: str, boot: int, asked: argparse.Namespace) -> None:
    generator = np.random.default_rng([asked.seed, boot])
    names = [f"bench{number:02}" for number in range(1, asked.benchmarks + 1)]
    (directory / "samples").mkdir(parents=True)
    (reference,) = (ROOT / "results" / "reference").glob("*/session.json")
    shutil.copytree(reference.parent / "environment", directory / "environment")
    boot_id = f"{asked.seed:08}-0000-4000-8000-{boot:012}"
    known = json.loads(reference.read_text())
    known |= {"label": label, "boot_id": boot_id, "created": f"2024-05-{boot + 1:02}T12:00:00Z"}
    known |= {"kernel_version": label, "programs": {name: "00" * 32 for name in names}}
    known["tsc"]["quantum"] = QUANTUM
    (directory / "session.json").write_text(json.dumps(known))
    ends = dict.fromkeys(names, 0)
    shift = asked.factor * np.exp(0.005 * generator.standard_normal())
    with (directory / "runs.csv").open("wb") as csv:
        csv.write(",".join(COLUMNS).encode() + b"\n")
        for run in range(1, asked.runs + 1):
            for place, name in enumerate(names):
                centre = 20_000 * shift * np.exp(0.01 * generator.standard_normal())
                samples = drawn(generator, asked.samples, centre)
                with (directory / "samples" / f"{name}.u64").open("ab") as out:
                    samples.astype("<u8").tofile(out)
                order = (run - 1) * len(names) + place + 1
                values = FIXED | {"boot": boot_id, "order": order, "benchmark": name, "run": run}
                values |= {"params": PARAMS, "metric": "round_trip", "first_sample": ends[name]}
                values |= {"start_ns": 1_700_000_000_000_000_000 + 30_000_000 * order}
                ((mean, deviation, *others),) = row_figures(samples[np.newaxis])
                figures = (thousandths(mean), thousandths(deviation), *others)
                csv.write(row(values | {"n": len(samples)} | dict(zip(FIGURES, figures))))
                ends[name] += asked.samples


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("label", type=Path)
    for name in ("benchmarks", "boots", "runs", "samples", "seed"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--factor", type=float, default=1.0)
    asked = parser.parse_args()
    for boot in range(asked.boots):
        session(asked.label / f"{boot + 1:04}", asked.label.name, boot, asked)


if __name__ == "__main__":
    main()
