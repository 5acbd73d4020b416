"""A scripted audit for the screens: findings of every status, without running a check."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from gpudoctor.capture import Captured
from gpudoctor.model import Class, Evidence, Finding, Impact, Needs, Panel, Sysctl, Verdict
from gpudoctor.model.audited import (
    AuditResult,
    Connected,
    ContainerJoined,
    Event,
    Identity,
    Judged,
    PanelDone,
)
from gpudoctor.model.error import Refusal
from gpudoctor.model.fact import Reason
from gpudoctor.model.finding import good, info, issue, non_issue, unknown
from gpudoctor.model.place import ContainerRef
from gpudoctor.model.plan import (
    Item,
    ItemMoved,
    Move,
    Plan,
    State,
    StateMoved,
    Step,
    TimerArmed,
    Transaction,
)

HOSTILE = "[/x] [madvise] \x1b]0;title\x07 \u202eevil"


def finding(panel: Panel, id: str, title: str, verdict: Verdict, *evidence: str) -> Finding:
    """Return a finding with a reason and a source."""
    why = "Reads of peers are split into more, smaller requests, so each waits longer in the root."
    return Finding(id, panel, title, "host", verdict, why, "PCI Express Base 7.5.3.4", evidence)


_SYSCTL = ((Sysctl("kernel.numa_balancing", "0"),),)
_SWAP = ((Sysctl("vm.swappiness", "1"),),)
FINDINGS = [
    finding(Panel.FIRMWARE, "fw-iommu", "IOMMU", good("The IOMMU passes through", "pt", "pt")),
    finding(
        Panel.CONTAINER,
        "ct-memlock",
        "Locked memory",
        issue(
            "The container may lock 63 GB only",
            Class.P0,
            Impact.MEDIUM,
            "63 GB",
            "unlimited",
            needs=Needs.CONTAINER_RESTART,
            remedy="lxc.prlimit.memlock = unlimited",
        ),
    ),
    finding(Panel.DRIVER, "drv-version", "Driver", info("Driver 590.48.01", "590.48.01")),
    finding(
        Panel.KERNEL_KNOBS,
        "kern-numa-balancing",
        "Automatic NUMA balancing",
        issue(
            "Automatic NUMA balancing is on",
            Class.P0,
            Impact.LOW,
            "1 on 2 nodes",
            "0",
            changes=_SYSCTL,
        ),
        "numa-balancing",
    ),
    finding(
        Panel.KERNEL_KNOBS,
        "kern-swappiness",
        "Swappiness",
        issue("Swappiness is 60", Class.P0, Impact.LOW, "60", "1", changes=_SWAP),
    ),
    finding(
        Panel.PCIE,
        "pcie-max-read-req",
        "MaxReadReq",
        issue(
            "MaxReadReq is 512 bytes on 8 GPUs", Class.P0, Impact.HIGH, "512 bytes", "4096 bytes"
        ),
        "pci-config",
    ),
    finding(
        Panel.PCIE,
        "pcie-max-payload",
        "MaxPayload",
        non_issue("MaxPayload of 256 bytes is the card's own limit", "256 bytes"),
    ),
    finding(
        Panel.GPU_MEMORY,
        "mem-retired",
        "Retired pages",
        unknown(Reason.NO_PERMISSION, "nvidia-smi needs root there"),
    ),
]
EVIDENCE = {
    "numa-balancing": Evidence(
        "numa-balancing", files={"/proc/sys/kernel/numa_balancing": b"1\n"}, seconds=0.01
    ),
    "pci-config": Evidence("pci-config", command="lspci -vvv", stdout=b"line\n" * 40, exit=0),
}
RESULT = AuditResult(
    label="gpu1",
    user="root",
    identity=Identity(hostname="gpu1", boot_id="b1", machine_id="m1"),
    container=ContainerRef("lxc", "101"),
    findings=tuple(FINDINGS),
    evidence=EVIDENCE,
    seconds=1.5,
)


class ScriptedAudit:
    """Yields what a result says, as an audit would."""

    result = RESULT

    def __init__(self, target: object, panels: Iterable[Panel] = Panel, more: object = ()) -> None:
        """Take the panels; the target is not asked."""
        self.panels = tuple(panels)
        self.closed = False

    async def run(self) -> AsyncIterator[Event]:
        """Yield the events of the panels wanted."""
        result = self.result
        yield Connected(result.label, result.user)
        if result.container is not None:
            yield ContainerJoined(result.container)
        mine = [f for f in result.findings if f.panel in self.panels]
        for panel in self.panels:
            found = tuple(f for f in mine if f.panel is panel)
            if found:
                yield Judged(panel, found)
                yield PanelDone(panel, 0.5)
        yield replace(result, panels=self.panels, findings=tuple(mine))

    async def close(self) -> None:
        """Note the end."""
        self.closed = True


def scripted_target() -> Any:
    """Return something with a label."""
    return SimpleNamespace(label="gpu1", simulated=False)


async def nothing_captured(*_: object) -> Captured:
    """Capture nothing: the scripted host has no shell."""
    return {}


class ScriptedTransactions:
    """Stands in for the target's transactions; what it was asked is in `calls`.

    `apply` stops at its first item until `gate` is set; a plan with a timer then waits until it is
    confirmed, taken back, or `fires` is set.
    """

    def __init__(self) -> None:
        """Begin with nothing on the target, and an open gate."""
        self.calls: list[str] = []
        self.kept: list[Transaction] = []
        self.gate, self.fires, self.back = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.refuses: list[Refusal] = []
        self.moves: list[Move] = [ItemMoved(1, "done", 0.02, "0"), StateMoved(State.APPLIED)]

    def replace_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stand in wherever the loop and the screens ask the target."""
        monkeypatch.setattr("gpudoctor.loop.save", lambda *_: None)
        monkeypatch.setattr("gpudoctor.loop.run_audit", self._audited)
        for module, names in (
            ("gpudoctor.loop", ("apply", "watch", "confirm")),
            ("gpudoctor.transaction", ("undo", "watch", "confirm", "transactions")),
        ):
            for name in names:
                monkeypatch.setattr(f"{module}.{name}", getattr(self, name))

    async def _audited(self, target: object) -> AuditResult:
        return RESULT

    def _refuse(self) -> None:
        if self.refuses:
            raise self.refuses.pop(0)

    async def apply(self, target: object, plan: Plan) -> AsyncGenerator[Move, None]:
        """Yield the moves, the first item's intent before the gate."""
        self._refuse()
        self.calls.append("apply")
        if plan.confirm_within:
            yield TimerArmed(plan.confirm_within)
        yield StateMoved(State.APPLYING)
        yield ItemMoved(1, "intent", 0.01)
        await self.gate.wait()
        for move in self.moves:
            yield move
        self.calls.append("applied")

    async def watch(self, target: object, transaction: str) -> AsyncGenerator[Move, None]:
        """Yield the end once the timer fires, or the transaction is taken back."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self.fires, self.back)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        why = "" if self.back.is_set() else "nobody confirmed within 60 s"
        yield StateMoved(State.UNDONE, why)

    async def confirm(self, target: object, transaction: str) -> StateMoved:
        """Keep it."""
        self._refuse()
        self.calls.append(f"confirm {transaction}")
        return StateMoved(State.CONFIRMED)

    async def undo(self, target: object, transaction: str) -> AsyncGenerator[Move, None]:
        """Put the first item back."""
        self._refuse()
        self.calls.append(f"undo {transaction}")
        yield StateMoved(State.UNDOING)
        yield ItemMoved(1, "undone", 0.03, "1")
        yield StateMoved(State.UNDONE)
        self.kept = [replace(t, state=State.UNDONE) for t in self.kept]
        self.back.set()

    async def transactions(self, target: object) -> list[Transaction]:
        """Return what is kept."""
        self._refuse()
        return list(self.kept)


def told(state: State = State.CONFIRMED, **more: Any) -> Transaction:
    """Return a transaction of another client's that the target keeps."""
    base = Transaction(
        "20261129-081504-3fa2c1",
        state,
        "ana@laptop",
        "2026-11-29T08:15:04Z",
        ("sysctl vm.swappiness = 1",),
        ("kern-swappiness",),
        "b1",
    )
    return replace(base, **more)


def plan_of(result: AuditResult, captured: Captured, chosen: Iterable[str]) -> Plan:
    """Return a plan of sysctl steps, as the planner would."""
    steps = []
    for found in result.findings:
        if found.id in tuple(chosen):
            change = found.verdict.changes[0][0]
            assert isinstance(change, Sysctl)
            path = f"/proc/sys/{change.key.replace('.', '/')}"
            item = Item(
                change.key,
                f"cat {path}",
                found.verdict.observed.split()[0],
                change.value,
                f"echo {change.value} > {path}",
                f"echo {found.verdict.observed.split()[0]} > {path}",
            )
            steps.append(Step(found.id, change, (item,)))
    script = "#!/bin/sh\n" + "\n".join(item.write for step in steps for item in step.items)
    return Plan("20261130-1", result.label, "root", "m1", "b1", tuple(steps), script, "hash")


def poisoned(value: Any) -> Any:
    """Return the data with every string replaced by hostile text, ids and enums kept."""
    if isinstance(value, Enum) or value is None:
        return value
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, bytes):
        return HOSTILE.encode()
    if isinstance(value, tuple):
        return tuple(poisoned(part) for part in value)
    if isinstance(value, dict):
        return {poisoned(key): poisoned(part) for key, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        new = {f.name: poisoned(getattr(value, f.name)) for f in fields(value)}
        return replace(value, **new)
    return value
