"""The page before a reboot: what is ready, what to look at, what goes, what cannot be told.

A case is `tests/before_reboot/<name>.toml`: a host as in `tests/cases.py` (base "demo"), and

    exit, next, first         the exit code, the next kernel ("" for not certain), the first topic
    unread = "reason"         why the transactions are not known
    [[transaction]]           fields of a Transaction; [[pending]] of a Pending, with its outcome
    [[expect]]                topic, status, and any of says, stops, commands, reason
    [[never]]                 topic and status that no line has
"""

import argparse
import asyncio
import json
import tomllib
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.before_reboot import READERS, page
from gpudoctor.before_reboot.tunings import transaction_lines
from gpudoctor.cli import main
from gpudoctor.cli_ask import command
from gpudoctor.hosts.recorded import RecordedTarget
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.judging import Judging
from gpudoctor.model import Panel, Reason, Side, Unknown
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.before_reboot import BeforeReboot, Line, Outlook, Topic
from gpudoctor.model.pending import Outcome, Pending, PendingTold
from gpudoctor.model.place import parse_container
from gpudoctor.model.plan import State, Transaction
from gpudoctor.recording import Answers
from gpudoctor.report_before_reboot import before_reboot_json, markdown, plain
from gpudoctor.shell import our_command
from tests.cases import answers

FOLDER = Path(__file__).parent / "before_reboot"
CASES = {p.stem: tomllib.loads(p.read_text()) for p in sorted(FOLDER.glob("*.toml"))}
_PANELS = (Panel.KERNEL_VERSION,)


@cache
def _demo() -> AuditResult:
    return asyncio.run(run_audit(SimulatedTarget(demo_machine(), NO_WAIT), _PANELS, READERS))


def sides_of(case: dict[str, Any]) -> dict[Side, Answers]:
    sides = {side: Answers() for side in Side}
    if case.get("base") == "demo":
        for key, probe in _demo().asked.items():
            sides[probe.side].keep(probe, _demo().evidence[key])
    inside = answers(case.get("container", {}), sides[Side.CONTAINER])
    return {Side.HOST: answers(case, sides[Side.HOST]), Side.CONTAINER: inside}


def page_of(case: dict[str, Any]) -> BeforeReboot:
    container = parse_container("lxc:101") if case.get("base") == "demo" else None
    target = RecordedTarget("gpu1", sides_of(case), container)
    result = asyncio.run(run_audit(target, _PANELS, READERS))
    told = tuple(_told(row) for row in case.get("pending", ()))
    return page(replace(result, pending=told), _transactions(case))


def _told(row: dict[str, Any]) -> PendingTold:
    outcome = Outcome(row.get("outcome", "not yet done"))
    one = Pending(
        row["check"],
        row["what"],
        "2026-01-05T09:00:00+00:00",
        "b",
        "off",
        "on",
        row.get("needs", "reboot"),
        commands=tuple(row.get("commands", ())),
    )
    return PendingTold(one, outcome, "not done")


def _transactions(case: dict[str, Any]) -> list[Transaction] | Unknown:
    if "unread" in case:
        return Unknown(Reason(case["unread"]), "only root can read them")
    rows = case.get("transaction", ())
    return [
        Transaction(
            row["id"],
            State(row.get("state", "applied")),
            "me",
            "2026-01-05T09:00:00Z",
            tuple(row["steps"]),
            tuple(row["checks"]),
            "b",
            timer=row.get("timer"),
            interrupted=row.get("interrupted", False),
            lasting=row.get("lasting", False),
        )
        for row in rows
    ]


def _fits(line: Line, wanted: dict[str, Any]) -> bool:
    text = f"{line.sentence} {line.todo} {line.read}"
    commands = wanted.get("commands", line.commands)
    return (
        line.topic == wanted["topic"]
        and line.outlook == wanted["status"]
        and wanted.get("says", "") in text
        and line.stops == wanted.get("stops", line.stops)
        and list(commands) == list(line.commands)
        and (line.reason or "") == wanted.get("reason", line.reason or "")
    )


@pytest.mark.parametrize("name", CASES)
def test_the_page_says_what_is_to_be_expected(name: str) -> None:
    case = CASES[name]
    told = page_of(case)
    shown = plain(told)
    for wanted in case.get("expect", ()):
        assert any(_fits(line, wanted) for line in told.lines), f"{wanted}\n{shown}"
    for never in case.get("never", ()):
        assert not any(_fits(line, never) for line in told.lines), f"{never}\n{shown}"
    assert told.exit_code == case["exit"], shown
    assert told.coming == case.get("next", told.coming), shown
    assert told.lines[0].topic == case.get("first", told.lines[0].topic), shown


@pytest.mark.parametrize("name", CASES)
def test_the_page_is_in_order_and_alike_in_every_form(name: str) -> None:
    told = page_of(CASES[name])
    ranks = [line.order for line in told.lines]
    assert ranks == sorted(ranks)
    kept = json.loads(before_reboot_json(told))
    assert [row["sentence"] for row in kept["lines"]] == [line.sentence for line in told.lines]
    assert kept["exit_code"] == told.exit_code
    text, marked = plain(told, 80, terminal=False), markdown(told)
    for line in told.lines:
        assert line.sentence in text
        assert all(command in text for command in line.commands)
    assert marked.count("\n| ") == len(told.lines) + 1
    assert "<script" not in marked and "\x1b" not in text + marked + before_reboot_json(told)
    assert all(line.reason for line in told.of(Outlook.UNKNOWN)), "an unknown without its reason"


def test_a_check_name_from_the_host_is_quoted() -> None:
    checks = ("swap", "$(reboot)")
    one = Transaction("20260101-000000-abcdef", State.APPLIED, "me", "", ("t",), checks, "b")
    (line,) = transaction_lines([one], our_command)
    assert line.commands[-1] == "gpudoctor fix swap '$(reboot)' --persist"


def test_gpudoctors_own_commands_name_the_host() -> None:
    args = argparse.Namespace(host="root@gpu1", container="lxc:101", ssh_config="my conf")
    one = Transaction("20260101-000000-abcdef", State.APPLIED, "me", "", ("t",), ("swap",), "b")
    told = page(_demo(), [one], partial(command, args))
    typed = "gpudoctor --host root@gpu1 --container lxc:101 --ssh-config 'my conf'"
    again = [f"{typed} rollback {one.id}", f"{typed} fix swap --persist"]
    assert again in [list(line.commands) for line in told.lines]


def test_every_topic_has_a_case_of_each_kind() -> None:
    seen = {(e["topic"], e["status"]) for case in CASES.values() for e in case.get("expect", ())}
    for topic in set(Topic) - {Topic.BY_HAND, Topic.UPDATES}:
        assert (topic, Outlook.READY) in seen, topic
        assert (topic, Outlook.UNKNOWN) in seen, topic
        assert {(topic, Outlook.LOOK), (topic, Outlook.LOST)} & seen, topic


def test_an_audit_alone_asks_for_none_of_it() -> None:
    plain_audit = Judging(Panel)
    asked = {p.key for side in Side for p in plain_audit.begin(side).due}
    assert not [key for key in asked if key.startswith("reboot-") and key != "reboot-required"]


def test_without_the_extra_probes_the_page_says_so() -> None:
    result = asyncio.run(run_audit(SimulatedTarget(demo_machine(), NO_WAIT), _PANELS))
    told = page(result, [])
    kernel = next(line for line in told.lines if line.topic is Topic.KERNEL)
    assert kernel.outlook is Outlook.UNKNOWN and kernel.reason is Reason.NOT_MEASURED
    assert "was not asked for" in kernel.sentence


def test_the_command_line_prints_the_page(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["audit", "--demo", "--before-reboot"]) == 1
    text = capsys.readouterr().out
    assert "kernel 6.8.12-9-pve runs; next: 6.8.12-9-pve" in text and "WILL BE LOST" in text
    assert main(["audit", "--demo", "--before-reboot", "--json"]) == 1
    kept = json.loads(capsys.readouterr().out)
    assert kept["version"] == 1 and kept["next_kernel"] == "6.8.12-9-pve"
    file = tmp_path / "page.md"
    assert main(["audit", "--demo", "--before-reboot", "--markdown", str(file)]) == 1
    assert "before a reboot" in file.read_text()
    assert main(["audit", "--demo", "--before-reboot", "--panel", "1"]) == 2


def test_the_probes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probes", "--json"]) == 0
    kept = json.loads(capsys.readouterr().out)
    only = {row["key"] for row in kept["before_reboot"]}
    assert {"reboot-grub-menu", "reboot-dates"} <= only
    assert not only & {row["key"] for row in kept["probes"]}
