"""klat's own speed against its claims, in one go. Status 1 if a row has no figure, unless another program is missing or fails.

`make selfbench`, as root and with nothing else on the machine; ROUNDS=n for more or fewer turns. Words after it
choose groups and rows by name. A file of groups/ is a group of rows, with a list CLAIMS.
"""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from rows import Claim, Failed, Unavailable


def groups() -> dict[str, list[Claim]]:
    files = sorted((Path(__file__).parent / "groups").glob("*.py"))
    return {file.stem: import_module(f"groups.{file.stem}").CLAIMS for file in files}


def tell(claim: Claim) -> bool:
    """False if the row has no figure, unless another program is missing or fails."""
    try:
        figure = claim.measure()
    except Unavailable as error:
        print(f"{'n/a':6}{claim.text}\n      {error}", flush=True)
        return True
    except (Failed, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        print(f"{'fail':6}{claim.text}\n      {error}", flush=True)
        return False
    print(f"{'pass' if figure.value <= claim.limit else 'short':6}{claim.text}")
    for line in (figure.text, *figure.beside):
        print(f"      {line}", flush=True)
    return True


def main() -> int:
    if os.geteuid() != 0:
        print(
            "selfbench: as an ordinary user, most of these have no real-time priority: run it by sudo",
            file=sys.stderr,
        )
    wanted = sys.argv[1:]
    worked = [
        tell(claim)
        for name, claims in groups().items()
        for claim in claims
        if not wanted or any(word == name or word in claim.text for word in wanted)
    ]
    print("no system call, fault or lock in the timed part: shown by counts, in make test")
    return 0 if all(worked) else 1


if __name__ == "__main__":
    sys.exit(main())
