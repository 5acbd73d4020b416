"""What was: snapshots, a story and a diff for the screens' tests, without a host or a reboot."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from gpudoctor.model.audited import AuditResult
from gpudoctor.model.diff import Diff, Difference, Moved, Name, Sort
from gpudoctor.model.snapshot import Kind, SnapshotHead
from gpudoctor.model.story import Fate, Story, Told
from gpudoctor.snapshots.store import save
from tests.screen_host import RESULT

THEN, NOW = "2026-11-29T08:15:04Z", "2026-11-30T09:00:00Z"


def keep(kind: Kind = Kind.MANUAL, boot: str = "b1", taken: str = THEN, change: str = "") -> str:
    """Keep the scripted host's audit as a snapshot of that boot and return its path."""
    identity = replace(RESULT.identity, boot_id=boot)
    return str(save(replace(RESULT, identity=identity, taken=taken), kind, change))


def head(path: str = "/nowhere", boot: str = "b0", **more: Any) -> SnapshotHead:
    """Return the header of a snapshot of the scripted host."""
    identity = replace(RESULT.identity, boot_id=boot)
    base = SnapshotHead(
        "00ff00ff00ff00ff", Kind.AFTER, "gpu1", "root", THEN, "0.1", path, 9000, identity
    )
    return replace(base, **more)


def told(check: str, title: str, fate: Fate, **more: Any) -> Told:
    """Return a change of the story."""
    base = Told("20261129-081504-3fa2c1", "ana@laptop", THEN, check, 1, title, fate, "why it is so")
    return replace(base, **more)


STORY = Story(
    "gpu1",
    True,
    "gpu1 was rebooted 20 minutes ago: 2 changes were lost, 1 was kept.",
    head(),
    (
        told("drv-persistence-mode", "persistence mode = 1", Fate.KEPT, lasts=True),
        told(
            "kern-numa-balancing",
            "sysctl kernel.numa_balancing = 0",
            Fate.LOST,
            values=(("kernel.numa_balancing", "0", "1"),),
            can_last=True,
        ),
        told("fw-iommu", "iommu.passthrough = 1", Fate.ENDED),
        told(
            "kern-swappiness",
            "sysctl vm.swappiness = 1",
            Fate.OVERRIDDEN,
            by="/etc/sysctl.d/99-tuned.conf",
        ),
    ),
)


def moved(how: Moved, of: str, what: str, before: str, after: str, by: str = "") -> Difference:
    """Return something of the machine that differs."""
    return Difference(how, Sort.INVENTORY, Name(of, what), before, after, by)


DIFF = Diff(
    head(),
    head(taken=NOW, boot="b1"),
    settings=(
        Difference(
            Moved.CHANGED,
            Sort.SETTING,
            Name("kernel", "numa_balancing"),
            "0",
            "1",
            "the reboot",
        ),
    ),
    inventory=(
        moved(Moved.GONE, "GPU 0000:41:00.0", "", "RTX PRO 6000", ""),
        moved(Moved.CHANGED, "8 GPUs", "link width", "16", "8"),
    ),
    findings=(Difference(Moved.REGRESSED, None, Name("", "kern-numa-balancing"), "good", "issue"),),
    remarks=("the kernel is another: 6.8.0-45 then, 6.8.0-47 now",),
    same=1204,
    left_out=3,
)


class Past:
    """Stands in for the story's and the diff's engines; what they were asked is in `asked`.

    `gate` holds the look back, `held` an audit that a test lets wait.
    """

    def __init__(self) -> None:
        """Begin with a story, and a diff of anything."""
        self.asked: list[object] = []
        self.pairs: list[tuple[object, object]] = []
        self.story: Story | None = STORY
        self.fault: Exception | None = None
        self.diff: Diff = DIFF
        self.gate, self.held = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.settle: Callable[[Story], Story] = lambda story: story

    def replace_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stand in wherever the screens ask."""
        monkeypatch.setattr("gpudoctor.screens.recollect._look_at", lambda _: self.look)
        monkeypatch.setattr("gpudoctor.story.after_audit", self._settled)
        monkeypatch.setattr("gpudoctor.comparing.compared", self._compared)
        monkeypatch.setattr("gpudoctor.comparing.differing", self._diffed)

    @asynccontextmanager
    async def look(self) -> AsyncIterator[Story | None]:
        """Tell the story once the gate is open."""
        await self.gate.wait()
        self.asked.append("look")
        if self.fault is not None:
            raise self.fault
        yield self.story

    def _settled(self, story: Story, result: AuditResult) -> Story:
        return self.settle(story)

    def _compared(self, what: object, verify: bool = True) -> object:
        self.asked.append(what)
        if self.fault is not None:
            raise self.fault
        return what

    def _diffed(self, old: object, new: object) -> Diff:
        self.pairs.append((old, new))
        return self.diff
