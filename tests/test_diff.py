"""What a diff tells: cases as data in diffs/, and what all of its forms must have in common."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.model.diff import Diff, Difference, Moved
from gpudoctor.model.snapshot import KeptFinding
from gpudoctor.report_diff import markdown, plain, sections, sentence, verdict
from gpudoctor.report_diff_json import diff_json
from gpudoctor.snapshots.diff import diff
from gpudoctor.snapshots.diff_findings import compare_findings
from tests.diff_rig import side

CASES = sorted(Path(__file__).with_name("diffs").glob("*.toml"))
_PARTS = ("inventory", "settings", "counters", "not_read")


def _case(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _diff(case: dict[str, Any]) -> Diff:
    return diff(side(case.get("old", {}), "old"), side(case.get("new", {}), "new"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    case = _case(path)
    found, wanted = _diff(case), case["expect"]
    for part in _PARTS:
        assert _told(getattr(found, part)) == wanted.get(part, []), part
    assert _checks(found.findings) == wanted.get("findings", [])
    assert list(found.remarks) == wanted.get("remarks", [])
    assert found.empty == (not any(wanted.get(part) for part in (*_PARTS[:3], "findings")))


def _told(found: tuple[Difference, ...]) -> list[str]:
    return [f"{one.moved} {sentence(one)}" for one in found]


def _checks(found: tuple[Difference, ...]) -> list[str]:
    return [f"{one.moved} {one.name.what} {one.name.of}".strip() for one in found]


@pytest.mark.parametrize("name", ["vendor", "class"])
def test_a_gpu_whose_class_or_vendor_was_not_read_is_not_gone(name: str) -> None:
    for gpus in ("0000:01:00.0", "*"):
        edits = {"denied": [f"/sys/bus/pci/devices/{gpus}/{name}"]}
        for found in (_diff({"new": edits}), _diff({"old": edits})):
            rows = [one for one in found.inventory if not one.name.what.startswith("IOMMU group")]
            assert not rows and not found.settings and not found.counters and found.not_read


def _of(status: str, *targets: str) -> KeptFinding:
    return KeptFinding("ecc", "gpu_memory", "", status, status, "", "", "low", "", targets, "", "")


@pytest.mark.parametrize(
    ("then", "now", "moved"),
    [
        ([_of("issue", "a"), _of("good", "b")], [_of("good", "b")], Moved.NOT_READ),
        ([_of("good", "b")], [_of("issue", "a"), _of("good", "b")], Moved.NOT_READ),
        ([_of("issue", "a"), _of("good", "b")], [_of("good", "a", "b")], Moved.FIXED),
        ([_of("issue", "a")], [_of("good")], Moved.FIXED),
        ([_of("issue", "a", "b")], [_of("issue", "b")], Moved.FIXED),  # it names what is at issue
        ([_of("good")], [_of("issue", "a")], Moved.REGRESSED),
    ],
)
def test_a_target_of_which_a_check_tells_nothing_is_not_judged(
    then: list[KeptFinding], now: list[KeptFinding], moved: Moved
) -> None:
    judged, unjudged = compare_findings(then, now)
    (one,) = (*judged, *unjudged)
    assert one.moved is moved


def test_text_markdown_and_json_say_the_same() -> None:
    found = _diff(_case(Path(__file__).with_name("diffs") / "gpu-gone.toml"))
    text, marked, data = plain(found, 10_000), markdown(found), json.loads(diff_json(found))
    for title, rows in sections(found):
        assert f"{title.upper()} ({len(rows)})" in text and f"## {title} ({len(rows)})" in marked
        for one in rows:
            assert sentence(one) in text
    rows = [one for _, rows in sections(found) for one in rows]
    parts = ("findings", "inventory", "settings", "counters", "not_read")
    assert [row["moved"] for part in parts for row in data[part]] == [one.moved for one in rows]
    assert marked.count("\n- ") == len(rows) + len(found.remarks)
    assert data["remarks"] == list(found.remarks) and data["same"] == found.same


def test_an_empty_diff_says_so_in_one_line() -> None:
    found = _diff({})
    assert found.empty
    assert plain(found).splitlines()[2:] == [verdict(found)]
    assert verdict(found).startswith("no difference; ")


def test_text_from_a_host_is_no_markup_and_no_control() -> None:
    found = _diff(_case(Path(__file__).with_name("diffs") / "hostile-text.toml"))
    for text in (plain(found), markdown(found), diff_json(found)):
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert "\n# " not in markdown(found)
    assert "<script>" not in markdown(found) and "[a](b)" not in markdown(found)


def test_colour_is_only_where_it_is_wanted() -> None:
    found = _diff({"new": {"files": {"/proc/sys/vm/swappiness": "10\n"}}})
    assert "\x1b[33mchanged\x1b[0m" in plain(found, 100, colour=True)
    assert "\x1b" not in plain(found, 100)
