"""Prove: fixes turned on and off in random order, so that each gets an effect of its own.

Each turn is a whole transaction with a timer, and the next turn begins when it is taken back: so
the transaction's laws hold, and a client that is gone leaves a host that heals itself.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from gpudoctor.bench.measure import Wish, client_beside, engine_of
from gpudoctor.bench.run import FULL, Run, Size, Tell, said
from gpudoctor.bench.verdict import compare
from gpudoctor.bench.waking import wake_up
from gpudoctor.bench.witness import Kind, kind_of, pooled, witnessed
from gpudoctor.capture import Captured
from gpudoctor.hosts.target import Target
from gpudoctor.model import Change, LatencyHold, Sysctl, Sysfs
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.bench import BenchRun, Block, Level, Proof, Proved, Serving, Witness
from gpudoctor.model.error import INCOMPLETE, HostUnreachable, Refusal
from gpudoctor.model.plan import Plan, State, StateMoved
from gpudoctor.plan import make_plan
from gpudoctor.snapshots.store import drop_script, note_begun, note_ended
from gpudoctor.transaction import apply, clean, undo

LEAST_ROUNDS, FULL_ROUNDS, MOST_ROUNDS = 4, 8, 16
# What a turn costs beside its block: a login, the writes, the read-back, the undo.
_SWITCH_SECONDS = 3.0
_AT_ONCE = "/sys/devices/system/cpu/"


@dataclass(slots=True)
class Arm:
    """One fix, what was measured with it on, and whether waking is what it acts on."""

    name: str
    titles: tuple[str, ...]
    waking: bool = False
    blocks: list[Block] = field(default_factory=list)
    wakes: list[Witness] = field(default_factory=list)
    failed: str = ""


def acts_at_once(change: Change) -> bool:
    """Return whether a change acts as soon as it is written, and is exactly taken back.

    What acts on new mappings, processes or registers in use gets before and after alone.
    """
    if isinstance(change, Sysfs):
        return all(path.startswith(_AT_ONCE) for path in change.paths)
    return isinstance(change, (Sysctl, LatencyHold))


def provable(result: AuditResult, captured: Captured, names: Sequence[str]) -> list[Arm]:
    """Return an arm for each fix. Raises Refusal for one that cannot be turned on and off."""
    arms = []
    for name in dict.fromkeys(names):
        plan = make_plan(result, captured, [name])
        if plan.refused:
            raise Refusal(f"{plan.refused[0][0]}: {plan.refused[0][1]}", 1)
        if not plan.steps:
            raise Refusal(f"{name} has nothing to turn on there: it is so already", 1)
        if plan.by_hand or not all(acts_at_once(step.change) for step in plan.steps):
            copied = any(kind_of(step.change) is Kind.COPIES for step in plan.steps)
            raise Refusal(
                f"{name} does not act at once, or not on what runs: `gpudoctor bench"
                f"{' --copies' if copied else ''}` before and after it tells what it does",
                1,
            )
        waking = any(kind_of(step.change) is Kind.WAKE for step in plan.steps)
        arms.append(Arm(name, tuple(step.title for step in plan.steps), waking))
    return arms


async def prove(
    make_target: Callable[[], Target],
    result: AuditResult,
    captured: Captured,
    arms: Sequence[Arm],
    wish: Wish,
    budget: float,
    tell: Tell,
) -> Proof:
    """Measure blocks with each fix and without any, in random order, within about `budget` seconds.

    The host is left as it was. Raises Refusal where nothing could be measured, and with code 5
    where a turn could not be taken back.
    """
    who, serving = await engine_of(make_target, wish)
    size = replace(FULL, warm=0.0, pause=0.0) if serving.simulated else FULL
    made = _Proving(make_target, result, captured, arms)
    try:
        async with client_beside(make_target, serving, wish) as (client, _, busy):
            run = Run(client, serving, size, busy, tell, wish.tokens, wish.mark)
            await run.prepare()
            rounds = rounds_within(budget, run.block_seconds, len(arms), size)
            stopped = await made.all_rounds(run, serving, rounds, budget)
    finally:
        left = await asyncio.shield(asyncio.ensure_future(made.tidy()))
    return Proof(
        label=who.label,
        taken=datetime.now(UTC).isoformat(timespec="seconds"),
        serving=serving,
        tokens_asked=run.tokens,
        rounds=made.rounds,
        off=tuple(made.off),
        proved=tuple(_proved(arm, made, who, serving, run.tokens) for arm in arms),
        stopped=stopped,
        left=left,
    )


def seconds_for(budget: float, arms: int) -> float:
    """Return about how long so many fixes take at least, or the budget where that is longer."""
    return max(budget, FULL.warm + LEAST_ROUNDS * _round_seconds(FULL.block, arms))


def _round_seconds(block: float, arms: int) -> float:
    return (1 + arms) * block + arms * _SWITCH_SECONDS


def rounds_within(budget: float, block: float, arms: int, size: Size) -> int:
    """Return how many rounds fit: each measures every fix once, and none once."""
    each = _round_seconds(block, arms)
    return round(min(max((budget - size.warm) / each, LEAST_ROUNDS), MOST_ROUNDS))


class _Proving:
    """The rounds of one proof."""

    def __init__(
        self,
        make_target: Callable[[], Target],
        result: AuditResult,
        captured: Captured,
        arms: Sequence[Arm],
    ) -> None:
        self._make_target = make_target
        self._result = result
        self._captured = captured
        self._arms = arms
        self._begun: list[str] = []
        self._came = False
        self.rounds = 0
        self.off: list[Block] = []
        self.off_wakes: list[Witness] = []

    async def all_rounds(self, run: Run, serving: Serving, rounds: int, budget: float) -> str:
        """Measure rounds while there is time for one more; return why they broke off, or nothing.

        A slow host takes longer over its turns than was reckoned: the least number is kept.
        """
        chance = random.SystemRandom()
        begun = time.monotonic()
        for number in range(rounds):
            spent = time.monotonic() - begun
            if number >= LEAST_ROUNDS and spent + spent / number > budget:
                return ""
            if all(arm.failed for arm in self._arms):
                return ""
            turns: list[Arm | None] = [None, *(arm for arm in self._arms if not arm.failed)]
            chance.shuffle(turns)
            for arm in turns:
                run.say(arm.name if arm else "without any", number, rounds)
                block = await self._turn(run, arm)
                if block is not None and block.requests and all(r.failure for r in block.requests):
                    return f"the engine answered no more: {said(block.requests[0], serving)}"
                if block is not None:
                    (arm.blocks if arm else self.off).append(block)
            self.rounds = number + 1
        return ""

    async def _turn(self, run: Run, arm: Arm | None) -> Block | None:
        """Measure one block with a fix on, or with none; None where it could not be turned on."""
        if arm is None:
            if any(one.waking for one in self._arms):
                self.off_wakes.append(await wake_up(self._make_target))
            return await run.block()
        within = 60 + round(6 * run.block_seconds)
        plan = make_plan(self._result, self._captured, [arm.name], confirm_within=within)
        self._came = False
        try:
            arm.failed = await self._on(plan)
            if arm.waking and not arm.failed:
                arm.wakes.append(await wake_up(self._make_target))
            return None if arm.failed else await run.block()
        finally:
            if not arm.failed:
                await asyncio.shield(asyncio.ensure_future(self._off(plan)))
            else:
                await asyncio.to_thread(self._forget, plan)

    async def _on(self, plan: Plan) -> str:
        """Apply a plan; return why that did not hold, where the target has taken it back."""
        self._begun.append(plan.id)  # before it is there: what never came needs no tidying
        if not self._result.simulated:
            await asyncio.to_thread(note_begun, plan)
        last = StateMoved(State.PLANNED)
        try:
            async for move in apply(self._make_target(), plan):
                self._came = True
                last = move if isinstance(move, StateMoved) else last
        except Refusal as refusal:
            if refusal.code != 1:
                raise
            return f"it could not be turned on: {refusal.sentence}"  # nothing was written
        if last.state is State.APPLIED:
            return ""
        if last.state is State.FAILED:
            return f"it could not be turned on: {last.detail or 'a write did not hold'}"
        raise Refusal(f"{plan.id} is {last.state}: `gpudoctor status` tells more", INCOMPLETE)

    async def _off(self, plan: Plan) -> None:
        """Take a turn back; one whose script never came has nothing to take back."""
        last = StateMoved(State.APPLIED)
        try:
            async for move in undo(self._make_target(), plan.id):
                last = move if isinstance(move, StateMoved) else last
        except HostUnreachable as lost:
            whether = "" if self._came else "if it was applied, "
            raise Refusal(
                f"{lost.sentence}: {whether}the host itself takes {plan.id} back, within "
                f"{plan.confirm_within} s of when it was applied (`gpudoctor status` tells)",
                INCOMPLETE,
            ) from lost
        except Refusal as refusal:
            if self._came or refusal.code != 1:
                raise
            last = StateMoved(State.UNDONE)
        if last.state is not State.UNDONE:
            raise Refusal(
                f"{plan.id} could not be taken back whole: `gpudoctor rollback {plan.id}`",
                INCOMPLETE,
            )
        await asyncio.to_thread(self._forget, plan)

    def _forget(self, plan: Plan) -> None:
        """Leave nothing of a turn that is over in our own store."""
        if not self._result.simulated:
            note_ended(plan)
            drop_script(plan)

    async def tidy(self) -> str:
        """Remove the turns that are over from the target; return why that failed, or nothing."""
        try:
            if self._begun:
                await clean(self._make_target(), only=self._begun)
        except Refusal as why:
            return f"{why.sentence} (`gpudoctor clean` removes what is left of its turns)"
        return ""


def _proved(arm: Arm, made: _Proving, who: AuditResult, serving: Serving, tokens: int) -> Proved:
    """Return what one fix does by itself."""
    off = made.off
    if arm.failed:
        return Proved(arm.name, arm.titles, failed=arm.failed)
    full = min(len(off), len(arm.blocks)) >= FULL_ROUNDS
    before, after = (
        BenchRun(
            "",
            "",
            who.label,
            who.identity.machine_id,
            who.identity.boot_id,
            serving,
            (Level(1, tuple(blocks)),),
            tokens,
            full,
        )
        for blocks in (off, arm.blocks)
    )
    told = compare([before], after, expected=True, interleaved=True)
    shown = None
    if made.off_wakes and arm.wakes:
        shown = witnessed(pooled(made.off_wakes), pooled(arm.wakes))
    return Proved(arm.name, arm.titles, told, tuple(arm.blocks), witnessed=shown)
