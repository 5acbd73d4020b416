"""Worked plans: the exact commands for the boot loader in use, from what a host's files say."""

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.fixes import reads_of, recipe_of
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.model import KernelArguments, Reason, Unknown
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


def test_plans_for_one_line_follow_each_other(tmp_path: Path) -> None:
    """Two plans made from the same line, done one after the other and taken back in any order."""
    grub = tmp_path / "grub"
    before = 'A=1\nGRUB_CMDLINE_LINUX_DEFAULT="quiet ro.x=1 nosplash"\nGRUB_CMDLINE_LINUX=""\n'
    grub.write_text(before)
    now: dict[str, str | Unknown] = dict.fromkeys(
        reads_of(KernelArguments()), Unknown(Reason.NOT_PRESENT)
    )
    now |= {"cmdline": "BOOT_IMAGE=/vmlinuz", "grub": before.split("\n")[1], "grub.d": "0"}
    plans = [
        recipe_of(change).worked(change, now)
        for change in (
            KernelArguments(add=("iommu=pt",)),
            KernelArguments(add=("amd_pstate=active",), remove=("ro.x=1",)),
        )
    ]
    for plan in plans:
        assert not isinstance(plan, str)
        _edit(grub, plan.commands)
    line = grub.read_text().split("\n")[1]
    assert line.split() == [
        'GRUB_CMDLINE_LINUX_DEFAULT="quiet',
        "nosplash",
        "iommu=pt",
        'amd_pstate=active"',
    ]
    for plan in plans:
        assert not isinstance(plan, str)
        _edit(grub, plan.undo)
    words = grub.read_text().split("\n")[1].replace('"', " ").split()
    assert words[1:] == ["quiet", "nosplash", "ro.x=1"]
    assert grub.read_text().split("\n")[::2] == before.split("\n")[::2]


def _edit(file: Path, commands: tuple[str, ...]) -> None:
    for command in commands:
        if command.startswith("sed "):
            subprocess.run(
                ["sh", "-c", command.replace("/etc/default/grub", str(file))], check=True
            )
