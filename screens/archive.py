"""Bring the store's snapshots, diffs and the page before a reboot onto the board, beside it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpudoctor.model.error import Refusal, UnknownHostKey
from gpudoctor.screens.board import Board
from gpudoctor.screens.follow import named
from gpudoctor.screens.kept import Comparison, Page

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence
    from typing import Any, Protocol

    from gpudoctor.hosts.target import Target
    from gpudoctor.model import Reader, Unknown
    from gpudoctor.model.audited import AuditResult, Identity
    from gpudoctor.model.before_reboot import BeforeReboot
    from gpudoctor.model.diff import Compared, Diff
    from gpudoctor.model.plan import Transaction
    from gpudoctor.model.snapshot import KeptFinding, Otherwise, SnapshotHead, Unreadable

    Known = Sequence[Transaction] | Unknown
    MakePage = Callable[[AuditResult, Known, Callable[..., str]], BeforeReboot]

    class Audit(Protocol):
        """Audits a target, reading more besides."""

        def __call__(
            self, target: Target, *, more: Iterable[Reader[Any]]
        ) -> Coroutine[Any, Any, AuditResult]:
            """Return the result."""
            ...


Made = TypeVar("Made")
_MOST_READ = 64


class Archive:
    """What works on the store beside the screens; it writes the board and touches no widget."""

    def __init__(self, board: Board, make_target: "Callable[[], Target]") -> None:
        """Take the board, and how to make a target for each login."""
        self._board = board
        self._make_target = make_target
        self._compared: dict[str, Compared] = {}

    async def look(self) -> None:
        """List the snapshots of the machine that the audit read; the shelf says why not."""
        shelf, who = self._board.shelf, self._machine()
        if who is None:
            return
        shelf.reading = True
        self._board.touch()
        listed, shelf.problem = await made(asyncio.to_thread(_listed, *who))
        if listed is not None:
            shelf.heads, shelf.unreadable = listed
            there = {head.path for head in shelf.heads}
            shelf.marked = tuple(path for path in shelf.marked if path in there)
        shelf.reading = False
        self._board.touch()

    def _machine(self) -> "tuple[str, Identity] | None":
        """Return label and identity, from the audit or from the story, None before either."""
        result, story = self._board.result, self._board.telling.story
        if result is not None:
            return result.label, result.identity
        if story is not None and story.since is not None:
            return story.label, story.since.identity
        return None

    async def take(self) -> str:
        """Keep the audit on the board as a snapshot; return why not, or nothing."""
        result, shelf = self._board.result, self._board.shelf
        if result is None:
            return "the host has not been read yet"
        shelf.saving = True
        self._board.touch()
        _, problem = await made(asyncio.to_thread(_saved, result))
        shelf.saving = False
        self._board.touch()
        if not problem:
            await self.look()
        return problem

    async def note(self, head: "SnapshotHead", text: str) -> str:
        """Keep the operator's note of a snapshot; return why not, or nothing."""
        _, problem = await made(asyncio.to_thread(_noted, head, text))
        if not problem:
            await self.look()
        return problem

    async def read(self, head: "SnapshotHead") -> None:
        """Read the findings that a snapshot keeps; read once, since files do not change."""
        kept = self._board.shelf.findings
        if head.path in kept:
            return
        found, problem = await made(asyncio.to_thread(_findings, head))
        if len(kept) >= _MOST_READ:
            kept.pop(next(iter(kept)))
        kept[head.path] = problem if found is None else found
        self._board.touch()

    async def judge(self, head: "SnapshotHead") -> None:
        """Tell what today's rules say otherwise of a snapshot than those of then."""
        today = self._board.shelf.today
        if head.path in today:
            return
        told, problem = await made(asyncio.to_thread(_otherwise, head))
        today[head.path] = f"not judged by today's rules: {problem}" if told is None else told
        self._board.touch()

    async def compare(
        self, shown: Comparison, old: "SnapshotHead", new: "SnapshotHead | None"
    ) -> None:
        """Work out what differs, None being now, into the comparison that is shown."""
        result = self._board.result
        if new is None and result is None:
            shown.problem = "now is not known: the audit has not read the host"
        else:
            work = asyncio.to_thread(self._diff, old, new or result)
            shown.diff, shown.problem = await made(work)
        self._board.touch()

    def _diff(self, old: "SnapshotHead", new: "SnapshotHead | AuditResult | None") -> "Diff":
        """Return the diff; an altered file is taken as it is, and the diff remarks on it."""
        from gpudoctor.comparing import compared, differing
        from gpudoctor.model.snapshot import SnapshotHead

        assert new is not None
        sides = []
        for one in (old, new):
            if isinstance(one, SnapshotHead):
                side = self._compared.pop(one.path, None) or compared(one, verify=not one.altered)
                self._compared = {one.path: side, **dict(list(self._compared.items())[:3])}
            else:
                side = compared(one)
            sides.append(side)
        return differing(*sides)

    async def before_reboot(self) -> None:
        """Read the host for the page before a reboot, over a login of its own.

        Raises UnknownHostKey: the operator must decide.
        """
        self._board.page.reading = True
        self._board.touch()
        page = Page()
        try:
            page.read, page.problem = await made(self._read_page())
        except UnknownHostKey as error:
            page.problem = error.sentence
            raise
        finally:
            self._board.page = page
            self._board.touch()

    async def _read_page(self) -> "BeforeReboot":
        """Return the page of an audit that also reads what only the page rests on."""
        audit, readers, page = await asyncio.to_thread(_page_engine)
        result = await audit(await asyncio.to_thread(self._make_target), more=readers)
        known = await self._transactions(result)
        return await asyncio.to_thread(page, result, known, self._board.command)

    async def _transactions(self, result: "AuditResult") -> "list[Transaction] | Unknown":
        """Return what the target keeps, or why that is not known."""
        from gpudoctor.model import Reason, Unknown
        from gpudoctor.transaction import transactions

        if self._board.recorded:
            return Unknown(Reason.NOT_IN_RECORDING, "what was applied is not recorded")
        if result.user != "root":
            return Unknown(Reason.NO_PERMISSION, "reading what was applied needs root there")
        try:
            return await transactions(await asyncio.to_thread(self._make_target))
        except UnknownHostKey:
            raise
        except Refusal as refusal:
            return Unknown(Reason.DISCONNECTED, refusal.sentence)


async def made(work: Awaitable[Made]) -> tuple[Made | None, str]:
    """Return what the work makes and no problem, or nothing and why."""
    try:
        return await work, ""
    except UnknownHostKey:
        raise
    except Refusal as refusal:
        return None, refusal.sentence
    except OSError as error:
        return None, f"the store cannot be used: {error.strerror or named(error)}"
    except Exception as error:  # no traceback ever reaches an operator
        return None, f"a fault of gpudoctor's own: {named(error)}"


def _listed(
    label: str, who: "Identity"
) -> "tuple[tuple[SnapshotHead, ...], tuple[Unreadable, ...]]":
    """Return the machine's own snapshots: a clone's lie in the same folder."""
    from gpudoctor.snapshots.catalog import heads
    from gpudoctor.snapshots.clones import own
    from gpudoctor.snapshots.store import machine_folder

    found, unreadable = heads(machine_folder(who.machine_id, label))
    return tuple(own(found, label, who)), tuple(unreadable)


def _saved(result: "AuditResult") -> Path:
    from gpudoctor.model.snapshot import Kind
    from gpudoctor.snapshots.store import save

    return save(result, Kind.MANUAL)


def _noted(head: "SnapshotHead", text: str) -> None:
    from gpudoctor.snapshots.notes import set_note

    set_note(head, text)


def _findings(head: "SnapshotHead") -> "tuple[KeptFinding, ...]":
    from gpudoctor.snapshots.catalog import load_head

    return load_head(head, verify=not head.altered).findings


def _otherwise(head: "SnapshotHead") -> "tuple[Otherwise, ...]":
    from gpudoctor.rejudged import as_kept, otherwise, rejudged
    from gpudoctor.rules import digest
    from gpudoctor.snapshots.catalog import load_head

    kept = load_head(head, verify=not head.altered)
    if kept.rules == digest():
        return ()
    today = asyncio.run(rejudged(kept))
    return otherwise(kept.findings, [as_kept(finding) for finding in today.findings])


def _page_engine() -> "tuple[Audit, Iterable[Reader[Any]], MakePage]":
    """Return what audits, what is to be read besides, and what makes the page of it."""
    from gpudoctor.audit import run_audit
    from gpudoctor.before_reboot import READERS, page

    return run_audit, READERS, page
