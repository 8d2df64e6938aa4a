"""What one would write with pandas or scipy in place of `klat compare`: a quantile of each run, its log averaged by boot,
Welch's t over boots. Without what makes it safe: checksums, what has to agree, statuses, a correction.

peers.py pandas|scipy samples|rows BASE NEW
"""

import csv
import math
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

Boots = dict[str, list[float]]  # by benchmark, the mean log of each boot


def sessions(label: str) -> list[Path]:
    return sorted(path.parent for path in Path(label).glob("*/session.json"))


def pandas_samples(label: str) -> Boots:
    import pandas

    boots: Boots = defaultdict(list)
    for path in sessions(label):
        rows = pandas.read_csv(path / "runs.csv")
        rows = rows[rows.status.isin(["ok", "disturbed"])]
        for name, group in rows.groupby("benchmark"):
            samples = np.fromfile(path / "samples" / f"{name}.u64", dtype="<u8")
            frame = pandas.DataFrame({"run": np.repeat(group.run, group.n), "ticks": samples})
            figures = frame.groupby("run").ticks.quantile(0.999)
            boots[name].append(float(np.log(figures).mean()))
    return boots


def scipy_samples(label: str) -> Boots:
    from scipy import stats

    boots: Boots = defaultdict(list)
    for path in sessions(label):
        logs = defaultdict(list)
        for row in usable(path):
            first, count = int(row["first_sample"]), int(row["n"])
            file = path / "samples" / f"{row['benchmark']}.u64"
            samples = np.fromfile(file, dtype="<u8", count=count, offset=8 * first)
            logs[row["benchmark"]].append(math.log(stats.scoreatpercentile(samples, 99.9)))
        for name, found in logs.items():
            boots[name].append(float(np.mean(found)))
    return boots


def pandas_rows(label: str) -> Boots:
    import pandas

    rows = pandas.concat([pandas.read_csv(path / "runs.csv") for path in sessions(label)])
    rows = rows[rows.status.isin(["ok", "disturbed"])]
    means = np.log(rows.p50).groupby([rows.benchmark, rows.boot]).mean()
    return {name: found.tolist() for name, found in means.groupby(level=0)}


def scipy_rows(label: str) -> Boots:
    boots: Boots = defaultdict(list)
    for path in sessions(label):
        logs = defaultdict(list)
        for row in usable(path):
            logs[row["benchmark"]].append(math.log(int(row["p50"])))
        for name, found in logs.items():
            boots[name].append(float(np.mean(found)))
    return boots


def usable(path: Path) -> Iterator[dict[str, str]]:
    with (path / "runs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["status"] in ("ok", "disturbed"):
                yield row


READERS = {
    ("pandas", "samples"): pandas_samples,
    ("pandas", "rows"): pandas_rows,
    ("scipy", "samples"): scipy_samples,
    ("scipy", "rows"): scipy_rows,
}


def main() -> None:
    from scipy import stats

    by, what, base, new = sys.argv[1:]
    read = READERS[by, what]
    a, b = read(base), read(new)
    for name in a:
        p = stats.ttest_ind(a[name], b[name], equal_var=False).pvalue
        print(name, math.exp(np.mean(b[name]) - np.mean(a[name])), p)


if __name__ == "__main__":
    main()
