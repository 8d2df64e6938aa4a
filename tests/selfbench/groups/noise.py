"""The gaps of a spinning thread beside oslat and rtla osnoise."""

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path

from rows import CPU, Claim, Figure, Unavailable, in_turns, number_in, output_of, program, ratio

SECONDS = 3
FROM_US = 10


def noise_against_oslat() -> Figure:
    """Gaps from 10 us on in a second of spinning. Both are ordinary threads: klat then does not rest either."""
    longest: dict[str, list[float]] = {"klat": [], "oslat": []}
    others = [cpu for cpu in sorted(os.sched_getaffinity(0)) if cpu != CPU]
    if not others:
        raise Unavailable("oslat needs a CPU for its main thread")

    def klat() -> float:
        words = ["--policy", "other", "--cpus", str(CPU), "--iterations", str(50 * SECONDS)]
        result = json.loads(output_of(*program("noise", *words, "--json")))
        gap = next(metric for metric in result["metrics"] if metric["name"] == "gap")
        longest["klat"].append(gap["max_ns"] / 1e3)
        counts = result["evidence"]["counts"]
        return float(1000 * counts[f"from_{FROM_US}_us"] / counts["window_ms"])

    def oslat() -> float:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "result"
            words = ("-c", str(CPU), "-C", str(others[0]), "-b", "1000", "-D", str(SECONDS), "-q")
            output_of("oslat", *words, f"--json={file}")
            (thread,) = json.loads(file.read_text())["thread"].values()
        longest["oslat"].append(float(thread["max"]))
        # Bucket n has the gaps from n - 1 us to n us.
        counts = thread["histogram"].items()
        return sum(count for length, count in counts if int(length) > FROM_US) / thread["duration"]

    ours, theirs = in_turns(klat, oslat)
    maxima = ratio(longest["klat"], longest["oslat"], "us")
    return replace(ratio(ours, theirs, "a second"), beside=(f"longest: {maxima.text}",))


def noise_against_osnoise() -> Figure:
    """Time in gaps from 10 us on, in millionths of the time. Both are ordinary threads."""
    tracers = Path("/sys/kernel/tracing/available_tracers")
    if not tracers.is_file() or "osnoise" not in tracers.read_text().split():
        raise Unavailable("this kernel has no osnoise tracer")

    def klat() -> float:
        words = ["--policy", "other", "--cpus", str(CPU), "--iterations", str(50 * SECONDS)]
        result = output_of(*program("noise", *words, f"--threshold={1000 * FROM_US}", "--json"))
        return float(json.loads(result)["evidence"]["counts"]["lost_per_million"])

    def osnoise() -> float:
        windows = ("-p", "100000", "-r", "95000", "-d", f"{SECONDS}s", "-T", str(FROM_US))
        text = output_of("rtla", "osnoise", "top", "-q", "-c", str(CPU), *windows)
        row = rf"(?m)^ *{CPU} +#\d+"
        runtime = number_in(rf"{row} +(\d+)", text)
        return 1e6 * number_in(rf"{row} +\d+ +(\d+)", text) / runtime

    return ratio(*in_turns(klat, osnoise), "ppm")


CLAIMS = [
    Claim("noise, gaps from 10 us on / oslat, at most 1.25", 1.25, noise_against_oslat),
    Claim("noise, time from 10 us on / rtla osnoise, at most 1.25", 1.25, noise_against_osnoise),
]
