"""Pages in a browser."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest


def browser() -> str:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if not program:
        if os.environ.get("KLAT_REQUIRE") == "1":
            pytest.fail("KLAT_REQUIRE is set, and chromium is not installed")
        pytest.skip("chromium is not installed")
    return program


def browse(page: Path, tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    program = browser()
    done = subprocess.run(
        [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", *options,
            page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def measured(page: Path, script: str, *options: str) -> str:
    """What a copy of the page holds once the script has run. The page itself may not run scripts."""
    source = re.sub(r"<meta http-equiv[^>]*>", "", page.read_text())
    copy = page.with_name("copy.html")
    copy.write_text(source.replace("</body>", f"<script>{script}</script></body>"))
    return browse(copy, page.parent, "--dump-dom", *options).stdout
