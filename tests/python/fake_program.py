#!/usr/bin/python3 -IS
"""A stand-in for a benchmark: takes the common options, measures nothing, writes a record.

--behave=WORD[+WORD...] says what else it does; see main().
"""

import _signal as signal  # signal and json take longer to import than all else takes
import fcntl
import hashlib
import os
import sys
import time

COLUMNS = (
    "boot order benchmark params run metric unit status reason first_sample n mean stddev min p50"
    " p90 p99 max floor cpus placement policy voluntary involuntary minor_faults major_faults"
    " migrations wait_ns irq_res irq_cal irq_tlb irq_loc steal_ms smi evidence start_ns elapsed_ns"
    " rows check"
).split()
OPTIONS = (
    "iterations warmup cpus policy dma-latency guest-halt-poll record label seed run order"
    " behave ms bytes responders method mode period primitive wake wait soak segment limit check-for together"
).split()
FLAGS = "quiet help version keep stop-above under-load".split()
SAMPLES = 4
ENDING = {signal.SIGINT, signal.SIGTERM}


def parse(name, words):
    options = {}
    for word in words:
        option, equals, value = word.removeprefix("--").partition("=")
        known = option in (OPTIONS if equals else FLAGS)
        if not word.startswith("--") or not known:
            print(f"{name}: unknown option '{word}'; see --help", file=sys.stderr)
            sys.exit(2)
        options[option] = value
    return options


def boot_id():
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def begin(directory, name, label, seed):
    """session.json, or joining it."""
    path = os.path.join(directory, "session.json")
    with open(__file__, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    text = ""
    if os.path.exists(path):
        with open(path) as file:
            text = file.read()
    if f'"{name}": "{digest}"' in text:
        return
    import json

    info = json.loads(text) if text else {
        "schema": 1, "label": label, "seed": seed, "boot_id": boot_id(), "mode": "virtual", "unit": "ticks",
        "tsc": {"khz": 1000000.0, "invariant": True, "quantum": 1}, "programs": {},
    }  # fmt: skip
    info["programs"][name] = digest
    with open(path + ".new", "w") as file:
        json.dump(info, file)
    os.rename(path + ".new", path)


def record(name, options, status, reason):
    directory = options["record"]
    os.makedirs(os.path.join(directory, "samples"), exist_ok=True)
    lock = os.open(directory, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    begin(directory, name, options.get("label", "x"), int(options.get("seed", 0)))
    measured = status in ("ok", "disturbed", "invalid")
    row = dict.fromkeys(COLUMNS, "")
    row.update(
        boot=boot_id(), order=options["order"], benchmark=name, run=options["run"], unit="ticks",
        params=";".join(f"{k}={options[k]}" for k in ("bytes", "responders", "soak") if k in options),
        status=status, reason=reason, start_ns=str(time.time_ns()), rows="2" if measured else "1",
    )  # fmt: skip
    rows = b""
    if measured:
        kind = "histogram" if "soak" in options else "u64"
        samples = os.open(
            os.path.join(directory, "samples", f"{name}.{kind}"),
            os.O_WRONLY | os.O_CREAT | os.O_APPEND,
            0o644,
        )
        words = [100, SAMPLES] * 2 if "soak" in options else [100] * 2 * SAMPLES
        size = 16 if "soak" in options else 8
        first = os.fstat(samples).st_size // size
        step = 8 * len(words) // size // 2
        os.write(samples, b"".join(word.to_bytes(8, "little") for word in words))
        os.fsync(samples)
    for index, metric in enumerate(("one", "two") if measured else ("",)):
        if measured:
            row.update(metric=metric, first_sample=str(first + index * step), n=str(SAMPLES),
                       mean="100.000", stddev="0.000", min="100", max="100")  # fmt: skip
        body = ",".join(quoted(row[c]) for c in COLUMNS[:-1]).encode()
        rows += body + b"," + hashlib.sha256(body).hexdigest()[:16].encode() + b"\n"
    runs = os.open(
        os.path.join(directory, "runs.csv"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644
    )
    if not os.fstat(runs).st_size:
        os.write(runs, ",".join(COLUMNS).encode() + b"\n")
    os.write(runs, rows)
    os.fdatasync(runs)


def soak(name, options):
    """Records one segment, after a twentieth of the time or when it is asked to end."""
    signal.sigtimedwait(ENDING, int(options["soak"]) / 20)
    record(name, options, "ok", "")
    return 0


def quoted(field):
    return '"' + field.replace('"', '""') + '"' if set(field) & set(',"\n') else field


def main():
    name = os.path.basename(sys.argv[0])
    options = parse(name, sys.argv[1:])
    if "help" in options:
        print(f"Usage: {name} [OPTION]...\n  --record DIR")
        return 0
    if "version" in options:
        print(f"{name} (fake)")
        return 0
    behave = options.get("behave", "ok").split("+")
    if "check-for" in options:
        return 0
    if "soak" in options:
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    if "FAKE_LOG" in os.environ:
        with open(os.environ["FAKE_LOG"], "a") as log:
            print(name, options.get("order", ""), os.getpid(), *sys.argv[1:], file=log)
    if "order" in options and not os.path.exists(os.path.join(options["record"], "plan.csv")):
        print(f"{name}: was started before its plan was written", file=sys.stderr)
        return 1
    if "deaf" in behave:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) == signal.default_int_handler:
            signal.signal(number, signal.SIG_DFL)
    if "talk" in behave:
        print("what a person would read")
    if "warn" in behave:
        print(f"{name}: warning: the policy fell back to other", file=sys.stderr)
    if "usage" in behave:
        print(f"{name}: --cpus: there is no CPU 99", file=sys.stderr)
        return 2
    if "full" in behave:
        print(f"{name}: samples/{name}.u64: No space left on device", file=sys.stderr)
        return 2
    if "fail" in behave:
        print(f"{name}: cannot open /dev/net/tun: No such device", file=sys.stderr)
        return 1
    if "peer" in behave and not os.fork():
        time.sleep(3600)
    if "hang" in behave:
        time.sleep(3600)
    time.sleep(int(options.get("ms", 0)) / 1000)
    if "crash" in behave:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "soak" in options:
        options.update(run="1", order="0")
    for status, code in (("disturbed", 0), ("invalid", 3), ("error", 1), ("skipped", 4)):
        if status in behave:
            reason = f"planted, on CPU {int(options['order']) % 2}"
            print(f"{name}: {reason}", file=sys.stderr)
            record(name, options, status, reason)
            return code
    if "soak" in options:
        return soak(name, options)
    if "record" in options:
        record(name, options, "ok", "")
    if "linger" in behave:
        time.sleep(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
