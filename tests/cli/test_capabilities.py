"""docs/security.md: with which capabilities a program measures as it does for root."""

import re
from pathlib import Path

import harness
import pytest
from harness import FAILED, MEASURED, SKIPPED, Done, command, traits

pytestmark = pytest.mark.alone

Words = list[str | Path]
SHOWN = ("pipes", "network")
TRIED = [n if n in SHOWN else pytest.param(n, marks=pytest.mark.slow) for n in harness.PROGRAMS]
# Open to all, as distributions have it.
OPEN_TUN = """mount -t tmpfs none /mnt && mknod -m 666 /mnt/tun c 10 200 &&
mount --bind /mnt/tun /dev/net/tun && exec "$@"
"""


def listed() -> list[str]:
    """The capabilities that the table gives for each program."""
    text = (harness.ROOT / "docs/security.md").read_text()
    found = re.search(r"^\| each program \| (.*) \|$", text, re.M)
    assert found
    return found[1].lower().replace("cap_", "").split(", ")


def given(as_nobody: Words, capabilities: list[str]) -> Words:
    """Words that leave a program these capabilities, and no privilege besides."""
    granted = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    if not Path("/dev/net/tun").exists():
        harness.lacking("there is no /dev/net/tun")
    at = as_nobody.index("--inh-caps=-all")
    with_tun = ["unshare", "--mount", "sh", "-c", OPEN_TUN, "sh"]
    return [*with_tun, *as_nobody[:at], f"--inh-caps={granted}", f"--ambient-caps={granted}", "--"]


def assert_measures(words: Words) -> None:
    def attempt() -> str:
        # The shorter a run, the less often the hypervisor stops a CPU in it.
        done = command([*words, "--quiet", "--iterations=100"], cwd="/")
        warned = "refused" in done.err or "cannot be locked" in done.err
        return str(done) if done.status != MEASURED or warned else ""

    harness.until(attempt)


@pytest.mark.parametrize("program", TRIED)
def test_capabilities_suffice(program, published, as_nobody):
    # An ordinary policy needs none.
    policy = ["--policy", "fifo"] if traits(program).ordinary_by_default else []
    assert_measures([*given(as_nobody, listed()), published / program, *policy])


@pytest.mark.parametrize("program", SHOWN)
def test_no_capability_is_superfluous(program, published, as_nobody):
    capabilities = listed()
    for name in capabilities:
        less = [other for other in capabilities if other != name]
        words = [*given(as_nobody, less), published / program, "--quiet"]
        done = command(words, cwd="/")
        refusals = ("refused", "cannot be locked", "cannot start")
        assert any(refusal in done.err for refusal in refusals), f"without {name}\n{done}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "more", "status"),
    [
        # Of these two, the second alone would be replaced by a user namespace.
        (("network",), ["sys_admin", "net_admin"], SKIPPED),
        (("transport", "--transport=udp", "--peer=netns"), ["sys_admin", "net_admin"], SKIPPED),
        (("pipes", "--dma-latency=0"), ["dac_override"], FAILED),
        (("semaphore", "--primitive=sysv"), ["sys_admin"], FAILED),
    ],
    ids=str,
)
def test_options_that_need_more(words, more, status, published, as_nobody):
    capabilities = listed()
    program: Words = [published / words[0], *words[1:]]
    assert_measures([*given(as_nobody, [*capabilities, *more]), *program])
    less: Done = command([*given(as_nobody, [*capabilities, *more[:-1]]), *program], cwd="/")
    assert less.status == status, str(less)
