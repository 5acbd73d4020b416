"""Every case in tests/fixes_conflicts: a change, what a host's files say, and what then wins.

A file holds `[[case]]` tables: `name`, `says` (the sentence; empty: nothing is in the way),
`change` (type and fields; its persistent form is looked at), `files` (path = text).
"""

import asyncio
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.answers import FixAnswer
from gpudoctor.capture import capture
from gpudoctor.cli_fix import fix_command
from gpudoctor.fixes import mechanism_of
from gpudoctor.fixes.conflicts import conflict, conflict_reads
from gpudoctor.fixes.file import FOLDERS
from gpudoctor.hosts.simulated import SimulatedMachine
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.model import OwnFile, Reason, Unknown
from tests.cli_rig import CHECK, KNOB, Arguments
from tests.test_fixes import change_of

FOLDER = Path(__file__).parent / "fixes_conflicts"
CASES: list[tuple[str, dict[str, Any]]] = [
    (f"{path.stem}: {case['name']}", case)
    for path in sorted(FOLDER.glob("*.toml"))
    for case in tomllib.loads(path.read_text())["case"]
]
SYSTEMD = {"/run/systemd/system/x": b"", "/run/systemd/private": b"", "/proc/cmdline": b"quiet\n"}


def form_of(case: dict[str, Any]) -> OwnFile:
    """Return the persistent form of a case's change."""
    change = change_of(case["change"])
    made = change if isinstance(change, OwnFile) else mechanism_of(change).persist(change, {})
    assert isinstance(made, OwnFile)
    return made


def seen(form: OwnFile, files: dict[str, bytes]) -> dict[str, str | Unknown]:
    """Return what the form's read texts print on a machine with these files."""
    folders = {f"{folder}/somebody-elses": b"\n" for folder in FOLDERS}
    machine = SimulatedMachine(files={**folders, **SYSTEMD, **files})
    return dict(asyncio.run(capture(SimulatedTarget(machine, NO_WAIT), [form]))[form])


@pytest.mark.parametrize("case", [case for _, case in CASES], ids=[name for name, _ in CASES])
def test_case(case: dict[str, Any]) -> None:
    form = form_of(case)
    files = {path: text.encode() for path, text in case.get("files", {}).items()}
    now = seen(form, files)
    assert not [value for value in now.values() if isinstance(value, Unknown)]
    assert conflict(form, now) == case["says"]
    refused = mechanism_of(form).refuse(form, now)
    assert refused == (f"it would not hold: {case['says']}" if case["says"] else "")


def test_every_text_is_one_line() -> None:
    for _, case in CASES:
        assert all("\n" not in text for text in conflict_reads(form_of(case)).values())


def test_what_could_not_be_read_is_no_conflict_and_forbids_the_file() -> None:
    form = form_of({"change": {"type": "Sysctl", "key": "vm.swappiness", "value": "10"}})
    gap = Unknown(Reason.TIMEOUT, "30 s")
    now = seen(form, {"/etc/sysctl.d/zz.conf": b"vm.swappiness = 60\n"})
    name = next(iter(conflict_reads(form)))
    assert conflict(form, now)
    assert conflict(form, now | {name: gap}) == ""
    assert "cannot be read there" in mechanism_of(form).refuse(form, now | {name: gap})


def test_a_file_without_values_has_none() -> None:
    form = OwnFile("/etc/systemd/system/gpudoctor-x.service", "# Written by gpudoctor\n[Unit]\n")
    assert conflict_reads(form) == {} and conflict(form, {}) == ""


LATER = "/etc/sysctl.d/zz-ops.conf comes after it at boot and sets kernel.numa_balancing = 1"


def test_persist_says_what_would_override_it_and_leaves_it(
    arguments: Arguments, machine: SimulatedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.files |= {**SYSTEMD, "/etc/sysctl.d/zz-ops.conf": b"kernel.numa_balancing=1\n"}
    assert fix_command(arguments(CHECK, persist=True, json=True)) == 1
    answer = FixAnswer.model_validate_json(capsys.readouterr().out)
    assert answer.persist is not None and not answer.persist.plan.steps
    assert [one.why for one in answer.persist.plan.refused] == [f"it would not hold: {LATER}"]
    assert answer.error == f"not made to last: {CHECK}: it would not hold: {LATER}"
    assert machine.text(KNOB) == "0"  # the fix itself stands
    assert not [path for path in machine.files if "gpudoctor" in path and "sysctl.d" in path]


def test_persist_shows_it_before_it_asks(
    arguments: Arguments, machine: SimulatedMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.files |= {**SYSTEMD, "/etc/sysctl.d/zz-ops.conf": b"kernel.numa_balancing=1\n"}
    assert fix_command(arguments(CHECK, persist=True)) == 1
    said = capsys.readouterr()
    assert said.out.index(LATER) < said.out.index("applying")
    assert f"not made to last: {CHECK}: it would not hold: {LATER}" in said.err
