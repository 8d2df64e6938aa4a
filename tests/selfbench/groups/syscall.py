"""System calls beside perf bench, and beside the published loops in Go where there is a Go toolchain."""

import os
import shutil
import statistics
import subprocess

from rows import BUILD, CPU, FOLDERS, ROUNDS, Failed, Figure, Unavailable, number_in, in_turns
from rows import mean_ns, no_slower, output_of, program, ratio

HELD = ["chrt", "--fifo", "50", "taskset", "--cpu-list", str(CPU)]
BATCHED = ["--cpus", str(CPU), "--batch", "1000"]


def call_ns(*words: str) -> float:
    """One call of a batch of N: the means of 2N calls and of N, apart."""
    batch = int(BATCHED[-1])
    return (mean_ns("calls_2n", *words) - mean_ns("calls_n", *words)) / batch


def getppid_against_perf() -> Figure:
    klat = program("syscall", *BATCHED)
    perf = [*HELD, "perf", "bench", "syscall", "basic", "-l", "1000000"]
    ours, theirs = in_turns(
        lambda: call_ns(*klat), lambda: 1000 * number_in(r"([\d.]+) usecs/op", output_of(*perf))
    )
    return ratio(ours, theirs, "ns")


def go_program() -> str:
    """Built with what there is: the Go toolchain is no dependency, and nothing is downloaded."""
    built = BUILD / "published"
    if not shutil.which("go"):
        raise Unavailable("there is no go; apt-get install golang-go brings it")
    environment = os.environ | {
        "CGO_ENABLED": "0",
        "GOCACHE": str(BUILD / "go-cache"),
        "GOFLAGS": "",
        "GOTOOLCHAIN": "local",
    }
    words = ["go", "build", "-o", str(built), str(FOLDERS["syscall"] / "go" / "published.go")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"go build: {(done.stderr.strip() or 'failed').splitlines()[-1]}")
    return str(built)


def median_of(*words: str) -> float:
    return statistics.median(float(output_of(*words)) for _ in range(ROUNDS))


def write_against_go() -> Figure:
    published = go_program()
    klat = program("syscall", "--call", "write-null", *BATCHED)
    ours, theirs = in_turns(
        lambda: call_ns(*klat), lambda: float(output_of(*HELD, published, "write", "1000000"))
    )
    write = statistics.median(theirs)
    figure = ratio(ours, theirs, "ns")
    return Figure(
        figure.value,
        figure.text,
        (f"published: 520 ns on Linux (here {write / 520:.2f} of it), 55 in ring 0",),
    )


def channels_against_switches() -> Figure:
    """A request over channels is two hand-offs of Go's own scheduler: without the kernel's, on one CPU."""
    published = go_program()
    futex = program("switch", "--by", "futex", "--cpus", str(CPU))
    theirs, ours = in_turns(
        lambda: 2 * mean_ns("switch", *futex),
        lambda: float(output_of(*HELD, published, "channels", "10000", "0")),
    )
    adding = median_of(*HELD, published, "channels", "10000", "1000")
    spread = median_of(published, "channels", "10000", "1000")
    return Figure(
        statistics.median(ours) / statistics.median(theirs),
        ratio(ours, theirs, "ns").text,
        (
            f"with the 1,000 additions that the published requests hold: {adding:.4g} ns on one CPU,"
            f" {spread:.4g} on all",
            f"published: 1147 ns on Linux (here {spread / 1147:.2f} of it), 640 in ring 0",
        ),
    )


CLAIMS = [
    no_slower("syscall --batch / perf bench syscall basic", getppid_against_perf),
    no_slower("a write of 30 bytes to /dev/null / the same in Go", write_against_go),
    no_slower("a request over Go's channels / two switches by futex", channels_against_switches),
]
