"""The space that a campaign takes, from the sessions of its check."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_campaign_engine import planned

from klat.base.errors import KlatError
from klat.campaign import boot_sessions
from klat.campaign.campaign_file import BootAttempt

MIB = 1 << 20


def test_a_disk_without_enough_space_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two boots of the check have 1 MiB of samples each. The campaign has 2 rounds and 3 runs: 12 MiB,
    and what the rest of four sessions takes."""
    session = tmp_path / "session"
    (session / "samples").mkdir(parents=True)
    (session / "samples/pipes.u64").write_bytes(bytes(MIB))
    (session / "run.json").write_text("{}")
    monkeypatch.setattr(boot_sessions, "sessions_of", lambda campaign, boot_id: [session])
    attempts = tuple(BootAttempt(n, "done", "2026-01-01T00:00:00Z", "a", f"{n}") for n in (1, 2))
    campaign = replace(planned(tmp_path / "campaign.json"), is_check=True, attempts=attempts)
    for free in (13 * MIB, 12 * MIB):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda path, usage=usage: usage)
        if free > 12 * MIB:
            boot_sessions.check_space(campaign)
        else:
            with pytest.raises(KlatError, match="needs about 12 MiB, but only 12 MiB are"):
                boot_sessions.check_space(campaign)
