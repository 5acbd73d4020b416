"""The audit: the chosen panels' probes run side by side; checks are judged as answers arrive."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gpudoctor.hosts.side import AnswerSide, SilentSide
from gpudoctor.hosts.target import Target
from gpudoctor.judging import Judging, Step
from gpudoctor.model import Evidence, Panel, Probe, Reader, Reason, Side, Unknown
from gpudoctor.model.audited import (
    AuditResult,
    Connected,
    ContainerJoined,
    Event,
    Judged,
    PanelDone,
)
from gpudoctor.model.error import Refusal
from gpudoctor.model.place import ContainerRef
from gpudoctor.snapshots.pending import tell_pending
from gpudoctor.text import one_line

_NO_CONTAINER = Unknown(Reason.NOT_PRESENT, "no container serves an engine here")


class Audit:
    """One audit of a target; `run` may be called once."""

    def __init__(
        self, target: Target, panels: Iterable[Panel] = Panel, more: Iterable[Reader[Any]] = ()
    ) -> None:
        """Take the target (not connected), the panels wanted, and readers of more to be read."""
        self._target = target
        self._panels = tuple(panels)
        self._judging = Judging(self._panels, more)
        self._sides: dict[Side, AnswerSide] = {}
        self._tasks: set[asyncio.Task[list[Evidence]]] = set()
        self._joining: asyncio.Task[ContainerJoined] | None = None
        self._container: ContainerRef | None = None
        self._problems: list[str] = []
        self._start = time.perf_counter()

    async def run(self) -> AsyncIterator[Event]:
        """Yield events as they come; the last is the AuditResult. Raises HostUnreachable.

        Call `close` in the end, however it ended: nothing of ours then runs on the target.
        """
        self._start = time.perf_counter()
        await self._target.connect()
        host = self._target.host()
        await host.start()
        self._sides[Side.HOST] = host
        if self._target.chosen_container is not None:
            self._join(self._target.chosen_container)
        yield Connected(self._target.label, host.user)
        for event in await self._advance(self._judging.begin, Side.HOST):
            yield event
        while self._tasks or self._joining:
            for event in await self._next():
                yield event
        yield self._result(host.user)

    async def close(self) -> None:
        """End both sides and leave the host; safe to call at any time, and twice."""
        open_: list[asyncio.Task[Any]] = [*self._tasks, *filter(None, [self._joining])]
        for task in open_:
            task.cancel()
        closing = [side.close() for side in self._sides.values()]
        await asyncio.gather(*open_, *closing, return_exceptions=True)
        await self._target.close()

    async def _next(self) -> list[Event]:
        """Wait for any answer and return what it makes known."""
        waiting: set[asyncio.Task[Any]] = set(self._tasks)
        if self._joining:
            waiting.add(self._joining)
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        events: list[Event] = []
        if self._joining in done and self._joining is not None:
            joined, self._joining = self._joining.result(), None
            events += [joined, *await self._advance(self._judging.begin, Side.CONTAINER)]
        answered = done & self._tasks
        self._tasks -= answered
        fresh = [evidence for task in answered for evidence in task.result()]
        if fresh:
            events += await self._advance(self._judging.take, fresh)
        return events

    async def _advance(self, move: Callable[[Any], Step], what: object) -> list[Event]:
        """Judge off the event loop, then ask what has become due."""
        step = await asyncio.to_thread(move, what)
        self._ask(step.due)
        events: list[Event] = [Judged(panel, findings) for panel, findings in step.judged]
        seconds = time.perf_counter() - self._start
        events += [PanelDone(panel, seconds) for panel in step.complete]
        if self._find_container():
            events += await self._advance(self._judging.begin, Side.CONTAINER)
        return events

    def _ask(self, probes: Sequence[Probe]) -> None:
        for side, answerer in self._sides.items():
            mine = [probe for probe in probes if probe.side is side]
            if mine:
                self._tasks |= {asyncio.ensure_future(job) for job in answerer.ask(mine)}

    def _find_container(self) -> bool:
        """Join the container that serves, once known; return whether there is surely none."""
        found = self._judging.container
        if found is None or self._joining is not None or Side.CONTAINER in self._sides:
            return False
        if isinstance(found, Unknown):
            why = _NO_CONTAINER if found.reason is Reason.NOT_PRESENT else found
            self._sides[Side.CONTAINER] = SilentSide(why)
            return True
        self._join(found)
        return False

    def _join(self, ref: ContainerRef) -> None:
        self._container = ref
        self._joining = asyncio.create_task(self._joined(ref))

    async def _joined(self, ref: ContainerRef) -> ContainerJoined:
        """Start the container's side; where that fails the host is still judged."""
        side: AnswerSide = self._target.container(ref)
        try:
            await side.start()
        except Refusal as refusal:
            sentence = (
                f"the container {ref} cannot be entered: is one of that name running there? "
                f"({one_line(refusal.sentence)})"
            )
            self._problems.append(sentence)
            side = SilentSide(Unknown(Reason.NOT_PRESENT, sentence))
            self._sides[Side.CONTAINER] = side
            return ContainerJoined(ref, sentence)
        self._sides[Side.CONTAINER] = side
        return ContainerJoined(ref)

    def _result(self, user: str) -> AuditResult:
        lost = [e for e in self._judging.evidence.values() if _was_lost(e)]
        if lost:
            self._problems.append(f"the connection was lost while {len(lost)} probes were open")
        result = AuditResult(
            label=self._target.label,
            user=user,
            identity=self._judging.identity,
            container=self._container,
            panels=self._panels,
            findings=tuple(self._judging.findings),
            evidence=dict(self._judging.evidence),
            asked=dict(self._judging.asked),
            problems=tuple(self._problems),
            simulated=self._target.simulated,
            taken=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=time.perf_counter() - self._start,
        )
        if not user or result.simulated:  # a recording, or the demo, which ends with the process
            return result
        return replace(result, pending=tell_pending(result))


def _was_lost(evidence: Evidence) -> bool:
    return evidence.problem is not None and evidence.problem.reason is Reason.DISCONNECTED


async def run_audit(
    target: Target, panels: Iterable[Panel] = Panel, more: Iterable[Reader[Any]] = ()
) -> AuditResult:
    """Audit to the end and return the result; what `more` rests on is read besides.

    Raises HostUnreachable.
    """
    audit = Audit(target, panels, more)
    try:
        async for event in audit.run():
            if isinstance(event, AuditResult):
                return event
    finally:
        await asyncio.shield(audit.close())
    raise AssertionError("an audit ends with its result")
