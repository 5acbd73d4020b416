"""Fixtures that any test may ask for, and what every test runs under."""

from pathlib import Path

import pytest

from tests.lab_vm import lab

__all__ = ["lab", "own_state"]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep snapshots and scripts of a test out of the operator's own store."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
