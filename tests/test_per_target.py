"""Verdicts of many targets: one for each status, equal values once, no target lost."""

from gpudoctor.model import Status, good, issue, per_target
from gpudoctor.model.finding import Class, Impact


def test_equal_values_are_said_once() -> None:
    (verdict,) = per_target((bdf, good("Cool", "29 °C")) for bdf in ("a", "b", "c"))
    assert (verdict.observed, verdict.targets) == ("29 °C", ("a", "b", "c"))


def test_differing_values_are_grouped_with_their_targets() -> None:
    seen = {"a": "29 °C", "b": "31 °C", "c": "29 °C"}
    (verdict,) = per_target((bdf, good("Cool", value)) for bdf, value in seen.items())
    assert verdict.observed == "29 °C (a, c); 31 °C (b)"
    assert verdict.targets == ("a", "b", "c")


def test_statuses_stay_apart() -> None:
    hot = issue("Hot", Class.FW, Impact.LOW, "88 °C")
    found = per_target([("a", good("Cool", "29 °C")), ("b", hot), ("c", good("Cool"))])
    assert [(v.status, v.targets) for v in found] == [
        (Status.GOOD, ("a", "c")),
        (Status.ISSUE, ("b",)),
    ]
    assert found[0].observed == "29 °C (a); nothing (c)"
