"""Worked plans: the exact commands for the boot loader in use, from what a host's files say."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.fixes import reads_of, recipe_of
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.model import Reason, Unknown
from tests.test_fixes import change_of

CASES = sorted((Path(__file__).parent / "fixes_by_hand").glob("*.toml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    """A case has [change], [files], and `commands` with `undo`, or `refused`."""
    case: dict[str, Any] = tomllib.loads(path.read_text())
    change = change_of(case["change"])
    files: dict[str, bytes | Unknown] = {p: text.encode() for p, text in case["files"].items()}
    machine = SimulatedMachine(files=files)
    now: dict[str, str | Unknown] = {}
    for name, text in reads_of(change).items():
        code, out, said = machine.sh(text)
        assert "not simulated" not in said, said
        now[name] = Unknown(Reason.NOT_PRESENT, said) if code else out.rstrip("\n")
    worked = recipe_of(change).worked(change, now)
    if isinstance(worked, str):
        assert case["refused"] in worked
    else:
        assert list(worked.commands) == case["commands"]
        assert list(worked.undo) == case["undo"]
