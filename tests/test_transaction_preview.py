"""The preview is the truth: what runs on the target is what the plan shows, byte for byte."""

import json
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from gpudoctor.model.plan import Item, Plan
from gpudoctor.shell import quote
from gpudoctor.text import one_line
from tests.script_runner import SHELLS, Rig, is_root
from tests.test_fixes import CASES, machine_of, planned

RECORDER = """#!/usr/bin/env python3
import json, sys
from pathlib import Path
log, word, name, *rest = sys.argv[1:]
with open(log, "a") as stream:
    stream.write(json.dumps(sys.argv[1:]) + "\\n")
value = Path(log + "." + name)
if word == "read":
    print(value.read_text())
elif word == "set":
    value.write_text(rest[0])
"""
NASTY = ["it's $HOME `id`", 'a "b" \\ c', "* ? [x] ~ # & | ; < >", "50%d\\n \\t \\0101"]


@pytest.mark.skipif(not is_root(), reason="the script runs as root only")
@pytest.mark.parametrize("shell", SHELLS)
def test_a_recording_target_gets_the_texts_of_the_plan(tmp_path: Path, shell: str) -> None:
    """Every text is a command of one program, which keeps what it was called with."""
    recorder, log = tmp_path / "recorder", tmp_path / "log"
    recorder.write_text(RECORDER)
    recorder.chmod(0o700)
    rig = Rig(tmp_path, SHELLS[shell])
    for number, nasty in enumerate(NASTY):
        name = f"item {number}"
        Path(f"{log}.{name}").write_text(nasty)
        rec = f"{quote(str(recorder))} {quote(str(log))}"
        rig.items.append(
            Item(
                name,
                f"{rec} read {quote(name)}",
                nasty,
                f"new {nasty}",
                f"{rec} set {quote(name)} {quote(f'new {nasty}')}",
                f"{rec} set {quote(name)} {quote(nasty)} again",
                guard=f"{rec} guard {quote(name)}",
            )
        )
    plan = rig.plan()
    rig.put(plan)
    assert rig.run(plan, "apply").stdout == "applied\n"
    assert rig.run(plan, "undo").stdout == "undone\n"
    ran = [json.loads(line) for line in log.read_text().splitlines()]
    assert ran == [shlex.split(text)[1:] for text in expected(plan)]
    assert Path(rig.places.script(plan.id)).read_text() == plan.script


def expected(plan: Plan) -> list[str]:
    """Return the texts of an apply and an undo in the order they must run."""
    texts = [item.read for item in plan.items]
    for item in plan.items:
        texts += [item.read, item.write, item.read]
    for item in reversed(plan.items):
        texts += [item.read, item.guard, item.undo, item.read]
    return texts


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_mechanisms_script_holds_the_plans_texts(path: Path) -> None:
    """The tables name each item's own texts, and real shells read back its own values."""
    case = tomllib.loads(path.read_text())
    plan = planned(case, machine_of(case))
    if not plan.steps:
        return
    for number, item in enumerate(plan.items, 1):
        for table, text in (
            ("read_item", item.read),
            ("write_item", item.write),
            ("undo_item", item.undo),
            ("guard_item", item.guard or ":"),
        ):
            assert row(plan.script, table, number) == text
    for shell in SHELLS.values():
        assert values(plan, shell) == [
            [
                one_line(item.name),
                item.before,
                item.wanted,
                item.tolerates,
                "yes" if item.lasting else "no",
            ]
            for item in plan.items
        ]


def row(script: str, table: str, number: int) -> str:
    """Return what a table of the script says of an item."""
    body = script.split(f"\n{table}() {{ case $1 in\n")[1].split("\nesac; }")[0]
    rows = dict(line.removesuffix(";;").split(") ", 1) for line in body.split("\n"))
    return rows.get(str(number)) or rows["*"]


def values(plan: Plan, shell: tuple[str, ...]) -> list[list[str]]:
    """Return name, before, wanted, tolerates and lasting of each item, as a shell reads them."""
    show = 'printf "%s\\0" "$name" "$before" "$wanted" "$tolerates" "$lasting"'
    body = plan.script[: plan.script.rindex("\ncase $1 in\n  apply")]
    calls = "".join(f"item {n}; {show}; " for n in range(1, len(plan.items) + 1))
    run = subprocess.run(
        [*shell, "-c", f"{body}\n{calls}"], capture_output=True, text=True, timeout=60, check=True
    )
    words = run.stdout.split("\0")[:-1]
    return [words[i : i + 5] for i in range(0, len(words), 5)]
