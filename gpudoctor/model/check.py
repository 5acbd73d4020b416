"""Checks: one rule each, a pure function of facts, known by a stable id."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from gpudoctor.model.change import Change
from gpudoctor.model.fact import Unknown
from gpudoctor.model.finding import Finding, Panel, Verdict, not_read
from gpudoctor.model.reader import Facts, Reader

Judge = Callable[..., Verdict | Iterable[Verdict]]


@dataclass(frozen=True, slots=True)
class Check:
    """One rule: what it reads, how it judges, why it matters, and where that is documented.

    `judge` gets the facts in the order of `reads`. An unknown fact makes the finding unknown with
    that fact's reason, unless its reader is in `optional`: then `judge` gets the Unknown itself.
    `scope` says where the value lives: host, container, gpu or server. `changes` are the types of
    Change that its issues may offer.
    """

    id: str
    title: str
    reads: tuple[Reader[object], ...]
    optional: tuple[Reader[object], ...]
    judge: Judge
    why: str
    source: str
    scope: str = "host"
    changes: tuple[type[Change], ...] = ()

    def findings(self, panel: Panel, facts: Facts) -> list[Finding]:
        """Judge, and return one finding for each distinct status."""
        verdicts = self._verdicts(facts)
        keys = tuple(dict.fromkeys(p.key for r in self.reads + self.optional for p in r.probes()))
        return [
            Finding(
                self.id,
                panel,
                self.title,
                self.scope,
                verdict,
                verdict.why or self.why,
                self.source,
                keys,
            )
            for verdict in verdicts
        ]

    def ready(self, facts: Facts) -> bool:
        """Return whether all facts of this check can be read."""
        return all(facts.ready(reader) for reader in self.reads + self.optional)

    def _verdicts(self, facts: Facts) -> list[Verdict]:
        values: list[object] = []
        for reader in self.reads:
            value = facts[reader]
            if isinstance(value, Unknown):
                return [not_read(value)]
            values.append(value)
        values += [facts[reader] for reader in self.optional]
        answer = self.judge(*values)
        return [answer] if isinstance(answer, Verdict) else list(answer)


def check(
    id: str,
    title: str,
    *,
    reads: Sequence[object],
    optional: Sequence[object] = (),
    why: str,
    source: str,
    scope: str = "host",
    changes: Sequence[type[Change]] = (),
) -> Callable[[Judge], Check]:
    """Turn a judging function into a Check; its module is its panel."""

    def made(judge: Judge) -> Check:
        return Check(
            id,
            title,
            cast("tuple[Reader[object], ...]", tuple(reads)),
            cast("tuple[Reader[object], ...]", tuple(optional)),
            judge,
            why,
            source,
            scope,
            tuple(changes),
        )

    return made


def per_target(items: Iterable[tuple[str, Verdict]]) -> list[Verdict]:
    """Merge the verdicts of many targets: one for each distinct status, naming its targets.

    Verdicts alike in status, class, impact, needs and reason (with its detail, whatever address it
    names) become one. Differing observed values are listed once each with their targets, as
    `29 °C (a, b); 31 °C (c)`; differing summaries and remedies one after the other, so let them
    name no single target's value.
    """
    groups: dict[tuple[object, ...], list[tuple[str, Verdict]]] = {}
    for target, verdict in items:
        reason = _ADDRESS.sub("", str(verdict.unknown)) if verdict.unknown else None
        key = (verdict.status, verdict.cls, verdict.impact, verdict.needs, reason)
        groups.setdefault(key, []).append((target, verdict))
    return [_merged(group) for group in groups.values()]


_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|\d+")


def _merged(group: list[tuple[str, Verdict]]) -> Verdict:
    first = group[0][1]
    values: dict[str, list[str]] = {}
    for target, verdict in group:
        values.setdefault(verdict.observed, []).append(target)
    observed = (
        first.observed
        if len(values) == 1
        else "; ".join(f"{seen or 'nothing'} ({', '.join(at)})" for seen, at in values.items())
    )
    width = min(len(verdict.changes) for _, verdict in group)
    changes = tuple(
        tuple(dict.fromkeys(change for _, verdict in group for change in verdict.changes[i]))
        for i in range(width)
    )
    return replace(
        first,
        summary=_joined("; ", (verdict.summary for _, verdict in group)),
        remedy=_joined(" ", (verdict.remedy for _, verdict in group)),
        observed=observed,
        targets=tuple(target for target, _ in group),
        changes=changes,
    )


def _joined(between: str, texts: Iterable[str]) -> str:
    """Return each different text once."""
    return between.join(dict.fromkeys(text for text in texts if text))
