"""Judging: every check is judged once, in any order of answers, and one fault blanks nothing."""

import json
import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from gpudoctor.checks import by_id, of_panel
from gpudoctor.judging import Judging, judge
from gpudoctor.model import (
    Evidence,
    Facts,
    Finding,
    Panel,
    Probe,
    Reader,
    Reason,
    Side,
    Status,
    Tool,
    Unknown,
    Verdict,
    check,
    good,
)
from gpudoctor.recording import Answers


def _all(judging: Judging, answers: Answers, order: random.Random) -> list[Finding]:
    due: list[Probe] = [*judging.begin(Side.HOST).due, *judging.begin(Side.CONTAINER).due]
    while due:
        probe = due.pop(order.randrange(len(due)))
        due += judging.take([answers.answer(probe)]).due
    return judging.findings


def test_every_check_is_judged_whatever_the_order() -> None:
    seen = []
    for seed in range(3):
        findings = _all(Judging(Panel), Answers(), random.Random(seed))
        seen.append(sorted((f.id, f.status, f.verdict.summary) for f in findings))
        assert {f.id for f in findings} == set(by_id())
    assert seen[0] == seen[1] == seen[2]


def test_an_empty_host_is_never_good() -> None:
    findings = _all(Judging(Panel), Answers(), random.Random(1))
    assert [f.id for f in findings if f.status in {Status.GOOD, Status.ISSUE}] == []


def test_nothing_recorded_is_not_in_recording() -> None:
    findings = _all(Judging(Panel), Answers(asked=set()), random.Random(1))
    known = [f.id for f in findings if f.verdict.unknown is None]
    assert known == []


def test_ids_are_unique_and_kebab_case() -> None:
    ids = [c.id for panel in Panel for c in of_panel(panel)]
    assert len(ids) == len(set(ids))
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for name in ids)


@pytest.mark.parametrize("panel", Panel)
def test_each_panel_has_at_least_four_checks(panel: Panel) -> None:
    assert len(of_panel(panel)) >= 4


def test_a_probe_key_means_one_probe() -> None:
    seen: dict[str, object] = {}
    for panel in Panel:
        for check_ in of_panel(panel):
            for reader in check_.reads + check_.optional:
                for probe in reader.probes():
                    assert seen.setdefault(probe.key, probe) == probe, probe.key


def test_a_reader_key_means_one_reader() -> None:
    seen: dict[str, Reader[object]] = {}
    waiting = [r for p in Panel for c in of_panel(p) for r in c.reads + c.optional]
    while waiting:
        reader = waiting.pop()
        assert seen.setdefault(reader.key, reader) is reader, reader.key
        for need in reader.needs:
            nested = getattr(need, "after", ())
            waiting += [need] if isinstance(need, Reader) else [*nested]


def _probes() -> Iterable[tuple[str, Probe]]:
    judging = Judging(Panel)
    for side in Side:
        for probe in judging.begin(side).due:
            yield probe.key, probe


def test_probe_scripts_are_one_line_and_have_limits() -> None:
    for key, probe in _probes():
        if isinstance(probe, Tool):
            assert "\n" not in probe.script, key
            assert 0 < probe.limit <= 30 and probe.cap <= 16 << 20, key


def test_a_rule_that_trips_is_unknown() -> None:
    reader: Reader[int] = Reader("one", (Tool("t", "true", "true"),), lambda e: 1)

    @check("trips", "A rule with a fault", reads=(reader,), why="w", source="s")
    def trips(one: int) -> Verdict:
        return good(str(one / 0))

    facts = Facts({"t": Evidence("t")})
    (finding,) = judge(trips, Panel.POWER, facts)
    assert finding.verdict.unknown is not None
    assert finding.verdict.unknown.reason is Reason.PARSE_FAILED


def test_lost_probes_are_told_as_lost() -> None:
    judging = Judging([Panel.KERNEL_KNOBS])
    lost = Unknown(Reason.DISCONNECTED, "the connection ended")
    due = [*judging.begin(Side.HOST).due, *judging.begin(Side.CONTAINER).due]
    while due:
        fresh = [replace(Answers().answer(p), problem=lost, files={}) for p in due]
        due = judging.take(fresh).due
    statuses = {f.status for f in judging.findings}
    assert statuses == {Status.UNKNOWN}


def _nested(evidence: Evidence) -> int:
    return int(json.loads("[" * 100_000))


def test_a_parser_that_trips_is_unknown() -> None:
    deep: Reader[int] = Reader("deep", (Tool("t", "true", "true"),), _nested)
    answer = Facts({"t": Evidence("t")})[deep]
    assert isinstance(answer, Unknown) and answer.reason is Reason.PARSE_FAILED
