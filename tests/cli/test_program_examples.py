"""The examples of --help do what they say."""

import re
import shlex

import harness
import pytest
from harness import MEASURED, SKIPPED, UNTRUSTED, run

TRIES = 3
# Two machines, and routes between them.
NOT_RUN = {
    "sysctl net.ipv4.ip_forward=1",
    "ip route add 10.168.77.0/24 via ROUTER",
    "network --remote",
    "network/client --to 10.168.77.2",
    "ip route del 10.168.77.0/24",
}


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("program", harness.PROGRAMS)
def test_each_example_of_the_help_measures(program, root, two_cpus):
    examples = run(program, "--help").out.partition("\nExamples:\n")[2]
    wrong = []
    for line, comment in re.findall(r"^  (\S.*)\n {6}(.*)$", examples, re.MULTILINE):
        name, *options = shlex.split(line)
        if line in NOT_RUN:
            continue
        assert name == program, line
        # A negative control says its status.
        status = UNTRUSTED if f"exit status {UNTRUSTED}" in comment else MEASURED
        for _ in range(TRIES):
            done = run(program, *options, "--json")
            if done.status == SKIPPED:
                harness.lacking(done.err.strip())
            if done.status != status:
                wrong.append(str(done))
    assert examples and not wrong, "\n".join(wrong)
