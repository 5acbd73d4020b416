"""Transactions: a plan's script put on the target and started there, detached; we only watch.

Whatever becomes of the client, the target finishes or undoes itself, and any client can look again.
"""

import asyncio
import base64
import hashlib
import re
import time
from collections.abc import AsyncGenerator

from gpudoctor.formats.bulk import parse_files
from gpudoctor.hosts.root_shell import (
    LiveShell,
    SimulatedShell,
    is_lost,
    open_shell,
    require_root,
)
from gpudoctor.hosts.target import Target
from gpudoctor.journal import FINAL, Line, moves, parse, refusal, tell
from gpudoctor.model.error import HostUnreachable, Refusal
from gpudoctor.model.plan import Move, Plan, State, StateMoved, Transaction
from gpudoctor.shell import quote, read_files
from gpudoctor.snapshots.store import keep_script
from gpudoctor.text import one_line
from gpudoctor.transaction_script import PLACES, Places, clean_text
from gpudoctor.transaction_simulated import (
    apply_simulated,
    clean_simulated,
    confirm_simulated,
    told_simulated,
    undo_simulated,
    watch_simulated,
)

ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
Moves = AsyncGenerator[Move, None]
_UPTIME = re.compile(rb"\d+\.\d+")
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_CHUNK = 60_000
_JOURNAL_CAP, _ALL_CAP = 1 << 18, 16 << 20
_POLL_SECONDS, _SLOW_POLL_SECONDS = 0.1, 0.5
_NO_SCRIPT = 113
# How long a runner may be gone without a last line, how long it may take to begin (an undo waits
# 30 s for the lock), and how long one item may take.
_GONE_SECONDS = 3.0
_BEGIN_SECONDS = 45.0
_STILL_SECONDS = 180.0


async def apply(target: Target, plan: Plan, places: Places = PLACES) -> Moves:
    """Yield what happens while the plan is applied on the target; the last is its final state.

    Takes a target that is not connected. Raises Refusal where nothing was written (code 1), and
    HostUnreachable where the line is lost for good: the transaction then goes on without us.
    """
    if not plan.steps:
        raise Refusal("there is nothing to apply in this plan", 1)
    shell = await open_shell(target)
    try:
        require_root(shell.user, "applying a fix")
        if isinstance(shell, SimulatedShell):
            async for move in apply_simulated(shell.machine, plan, places):
                yield move
            return
        keep_script(plan)
        await _put(shell, plan, places)
        async for move in _Watch(shell, plan.id, places).run("apply"):
            yield move
    finally:
        await asyncio.shield(shell.close())


async def undo(target: Target, transaction: str, places: Places = PLACES) -> Moves:
    """Yield what happens while a transaction is taken back; the last is its final state.

    Takes a target that is not connected. Raises Refusal where nothing was touched (code 1).
    """
    known = {t.id: t for t in await transactions(target, places)}
    if transaction not in known:
        raise Refusal(f"there is no transaction {one_line(transaction, 60)} on {target.label}", 1)
    state = known[transaction].state
    if state in {State.UNDONE, State.FAILED, State.PLANNED}:
        yield StateMoved(State.UNDONE, "nothing of it is left to undo")
        return
    shell = await open_shell(target)
    try:
        if isinstance(shell, SimulatedShell):
            async for move in undo_simulated(shell.machine, transaction, places):
                yield move
            return
        async for move in _Watch(shell, transaction, places).run("undo"):
            yield move
    finally:
        await asyncio.shield(shell.close())


async def watch(target: Target, transaction: str, places: Places = PLACES) -> Moves:
    """Yield how a transaction that waits to be confirmed goes on, until it is over.

    Takes a target that is not connected. Raises HostUnreachable where the line is lost for good.
    """
    shell = await open_shell(target)
    try:
        if isinstance(shell, SimulatedShell):
            async for move in watch_simulated(shell.machine, transaction, places):
                yield move
            return
        async for move in _Watch(shell, transaction, places).follow():
            yield move
    finally:
        await asyncio.shield(shell.close())


async def confirm(target: Target, transaction: str, places: Places = PLACES) -> StateMoved:
    """Keep what was applied: its timer is disarmed. Raises Refusal (code 1) where that is too late.

    Takes a target that is not connected: the login shows that the host can still be reached.
    """
    shell = await open_shell(target)
    try:
        require_root(shell.user, "confirming a transaction")
        if isinstance(shell, SimulatedShell):
            return confirm_simulated(shell.machine, transaction, places)
        answer = await shell.run(f"sh {quote(places.script(transaction))} confirm")
    finally:
        await asyncio.shield(shell.close())
    if answer.lost is not None:
        raise HostUnreachable(
            f"whether {transaction} was confirmed is not known ({answer.lost.detail}): ask "
            "`gpudoctor status`"
        )
    if answer.exit:
        raise Refusal(one_line(answer.stderr).removeprefix("refused: "), 1)
    return StateMoved(State.CONFIRMED)


async def clean(
    target: Target, forget: bool = False, places: Places = PLACES
) -> tuple[list[str], list[Transaction]]:
    """Remove what is ours from the target and return what went, and what stays since it stands.

    With `forget` the transactions that stand go too, their changes stay and cannot be undone.
    Takes a target that is not connected. Raises Refusal.
    """
    known = await transactions(target, places)
    stands = [] if forget else [t for t in known if t.stands]
    gone = [t.id for t in known if t not in stands]
    shell = await open_shell(target)
    try:
        if isinstance(shell, SimulatedShell):
            clean_simulated(shell.machine, gone, places)
            return gone, stands
        answer = await shell.run(clean_text(gone, places))
    finally:
        await asyncio.shield(shell.close())
    if answer.lost is not None:
        raise HostUnreachable(f"the target was not cleaned: {answer.lost.detail}")
    if answer.exit:
        raise Refusal(f"the target was not cleaned: {one_line(answer.stderr) or 'busy'}", 1)
    return gone, stands


async def transactions(target: Target, places: Places = PLACES) -> list[Transaction]:
    """Return the transactions that the target keeps, oldest first. Raises Refusal.

    Takes a target that is not connected.
    """
    shell = await open_shell(target)
    try:
        require_root(shell.user, "reading the transactions")
        if isinstance(shell, SimulatedShell):
            told = told_simulated(shell.machine, places)
        else:
            told = await _told(shell, places)
    finally:
        await asyncio.shield(shell.close())
    return sorted(told, key=lambda t: (t.started, t.id))


async def _told(shell: LiveShell, places: Places) -> list[Transaction]:
    look = await shell.run(_look_text(places), _ALL_CAP)
    answer = await shell.run(read_files([_BOOT_ID, places.journal("*")], _JOURNAL_CAP), _ALL_CAP)
    for one in (look, answer):
        if one.lost is not None:
            raise HostUnreachable(f"the transactions could not be read: {one.lost.detail}")
    words = [line.split(" ") for line in look.stdout.decode("ascii", "replace").splitlines()]
    running = {name for word, name in words if word == "runs"}
    uptime = next((float(value) for word, value in words if word == "up"), 0.0)
    files = parse_files(answer.stdout, answer.stderr)
    boot = files.pop(_BOOT_ID, b"")
    boot_id = boot.decode("ascii", "replace").strip() if isinstance(boot, bytes) else ""
    journals = {path.split("/")[-2]: raw for path, raw in files.items() if isinstance(raw, bytes)}
    return [
        tell(name, parse(journals.get(name, b"")), boot_id, uptime, name in running)
        for word, name in words
        if word == "has" and ID.fullmatch(name)
    ]


def _look_text(places: Places) -> str:
    """Return the text that lists the transactions, those whose runner runs, and the uptime."""
    return (
        f'for d in {quote(places.home)}/*/; do d=${{d%/}}; [ -d "$d" ] || continue; '
        'echo "has ${d##*/}"; read -r p <"$d/runner" && tr "\\0" " " <"/proc/$p/cmdline" | '
        'grep -qF "$d/transaction.sh" && echo "runs ${d##*/}"; done 2>/dev/null; '
        'read -r u _ </proc/uptime; echo "up $u"'
    )


async def _put(shell: LiveShell, plan: Plan, places: Places) -> None:
    """Put the script on the target's disk, whole and checked. Raises Refusal or HostUnreachable."""
    folder, script = quote(places.folder(plan.id)), quote(places.script(plan.id))
    raw = plan.script.encode()
    text = base64.b64encode(raw).decode()
    texts = [f"umask 077; mkdir -p {quote(places.home)} && mkdir {folder}"]
    for start in range(0, len(text), _CHUNK):
        texts.append(f"printf %s {text[start : start + _CHUNK]} >>{folder}/put")
    digest = hashlib.sha256(raw).hexdigest()
    texts.append(
        f"umask 077; base64 -d {folder}/put | dd of={script} conv=fsync 2>/dev/null; "
        f"rm {folder}/put; sync {folder} {quote(places.home)}; "
        f"sha256sum {script} | grep -q {digest}"
    )
    for command in texts:
        answer = await shell.run(command)
        if answer.lost is not None:
            raise HostUnreachable(f"nothing was written: {answer.lost.detail}")
        if answer.exit:
            said = one_line(answer.stderr) or "its bytes differ"
            raise Refusal(f"the undo could not be put on the target's disk: {said}", 1)


class _Watch:
    """One run of a transaction's script, started once and watched through its journal."""

    def __init__(self, shell: LiveShell, transaction: str, places: Places) -> None:
        self._shell = shell
        self._id = transaction
        self._script = quote(places.script(transaction))
        self._journal = quote(places.journal(transaction))
        self._runner = quote(f"{places.folder(transaction)}/runner")
        self._offset = 0
        self._start: float | None = None
        self._now: float | None = None
        self._alive = False

    async def follow(self) -> Moves:
        """Yield what comes after `applied`, however long it takes, until a final state."""
        while True:
            told = list(moves(await self._more(), self._start or 0.0, self._now))
            states = [move for move in told if isinstance(move, StateMoved)]
            if states:
                yield states[-1]
                if states[-1].state in FINAL - {State.APPLIED}:
                    return
            await asyncio.sleep(_SLOW_POLL_SECONDS)

    async def run(self, verb: str) -> Moves:
        """Start the verb and yield the journal's new lines until a final state."""
        self._offset = await self._journal_size(verb)
        # env -i: the session kills whatever carries its mark when it ends; this must go on.
        await self._shell.run(
            f"cd / && setsid env -i sh {self._script} {verb} </dev/null >/dev/null 2>&1 &"
        )
        seen = time.monotonic()
        gone: float | None = None
        while True:
            lines = await self._more()
            for move in moves(lines, self._start or 0.0, self._now):
                yield move
                if isinstance(move, StateMoved) and move.state in FINAL:
                    return
            if sentence := refusal(lines):
                raise Refusal(sentence, 1)
            now = time.monotonic()
            seen = now if lines else seen
            # from the first look that found it gone: a look may be slow, and older than its end
            gone = None if lines or self._alive else gone or now
            self._give_up(now - seen, now - gone if gone else 0.0)
            await asyncio.sleep(_POLL_SECONDS)

    async def _journal_size(self, verb: str) -> int:
        """Return the journal's bytes now. Raises Refusal or HostUnreachable: nothing was started.

        An old journal read from its start would tell an old end.
        """
        size = await self._shell.run(
            f"[ -s {self._script} ] || exit {_NO_SCRIPT}; cat {self._journal} 2>/dev/null | wc -c"
        )
        if size.lost is not None:
            raise HostUnreachable(f"{verb} was not started: {size.lost.detail}")
        if size.exit == _NO_SCRIPT:
            raise Refusal(
                f"{self._script}, which holds the values from before, is not on the target (any "
                f"more): run the client's copy, {self._id}.sh in its state folder, with `{verb}`",
                1,
            )
        if not size.stdout.strip().isdigit():
            raise HostUnreachable(f"{verb} was not started: the journal's size was not told")
        return int(size.stdout)

    async def _more(self) -> list[Line]:
        """Return the new whole lines of the journal, over a new login where the line broke."""
        # Whether it runs is asked first: a runner that is gone has written its last word by then.
        look = (
            f'read -r u _ </proc/uptime; echo "$u"; '
            f"read -r p <{self._runner} && [ -d /proc/$p ]; gone=$?; "
            f"tail -c +{self._offset + 1} {self._journal} 2>/dev/null; exit $gone"
        )
        answer = await self._shell.run(look)
        if is_lost(answer):
            await self._reopen()
            return []
        if answer.lost is not None:  # a slow host says nothing about its runner
            self._alive = True
            return []
        self._alive = answer.exit == 0
        uptime, _, text = answer.stdout.partition(b"\n")
        self._now = float(uptime) if _UPTIME.fullmatch(uptime) else None
        raw = text[: text.rfind(b"\n") + 1]
        self._offset += len(raw)
        lines = parse(raw)
        if self._start is None and lines:
            self._start = lines[0].uptime
        return lines

    async def _reopen(self) -> None:
        try:
            await self._shell.reopen()
        except Refusal as refused:
            raise HostUnreachable(
                f"{refused.sentence}; transaction {self._id} goes on there without us, and "
                f"`gpudoctor rollback {self._id}` takes it back",
                5,
            ) from refused

    def _give_up(self, still: float, gone: float) -> None:
        """Raise a Refusal when nothing more will come: seconds without a line, and a runner."""
        patience = _BEGIN_SECONDS if self._start is None else _GONE_SECONDS
        if gone > patience:
            raise Refusal(
                f"transaction {self._id} ended on the target without a last word: "
                f"`gpudoctor rollback {self._id}` puts everything back",
                5,
            )
        if still > _STILL_SECONDS:
            raise Refusal(
                f"transaction {self._id} has been at one step for {still:.0f} s and still runs "
                f"on the target: `gpudoctor rollback {self._id}` when it has ended",
                5,
            )
