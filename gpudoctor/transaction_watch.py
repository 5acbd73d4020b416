"""Watching a transaction's script run on a live target, through its journal there."""

import asyncio
import re
import secrets
import time
from collections.abc import AsyncGenerator

from gpudoctor.hosts.root_shell import LiveShell, is_lost
from gpudoctor.journal import FINAL, Line, moves, parse, refusal, since_applied
from gpudoctor.model.error import HostUnreachable, Refusal
from gpudoctor.model.plan import Move, State, StateMoved
from gpudoctor.shell import quote
from gpudoctor.transaction_script import Places

NO_SCRIPT = 113
Moves = AsyncGenerator[Move, None]
_UPTIME = re.compile(rb"\d+\.\d+")
_POLL_SECONDS, _SLOW_POLL_SECONDS = 0.1, 0.5
# How long a runner may be gone without a last line, how long it may take to begin (an undo waits
# 30 s for the lock), how long one item may take, and how late a timer may begin.
_GONE_SECONDS = 3.0
_BEGIN_SECONDS = 45.0
_STILL_SECONDS = 180.0
_LATE_SECONDS = 30.0


def runs_text(file: str) -> str:
    """Return the text that tells whether a process still is the one that a file names.

    `file` is quoted; it holds pid and start time, since a pid alone may be somebody else's by now.
    """
    return (
        f'{{ read -r p s <{file} && read -r l <"/proc/$p/stat" && set -- ${{l##*) }} && '
        '[ "${20}" = "$s" ]; } 2>/dev/null'
    )


class Watch:
    """One run of a transaction's script, started once and watched through its journal."""

    def __init__(self, shell: LiveShell, transaction: str, places: Places) -> None:
        """Take the host's shell, opened."""
        self._shell = shell
        self._id = transaction
        self._script = quote(places.script(transaction))
        self._journal = quote(places.journal(transaction))
        self._runner = quote(f"{places.folder(transaction)}/runner")
        self._fired = quote(f"{places.run}/{transaction}.fired")
        self._run = secrets.token_hex(3)
        self._offset = 0
        self._start: float | None = None
        self._now: float | None = None
        self._alive = False

    async def follow(self) -> Moves:
        """Yield what comes after `applied` until a final state. Raises Refusal (code 5).

        A timer that does not come, as after a reboot, is told and not waited for.
        """
        told: list[Line] = []
        while True:
            lines = await self._more()
            news = since_applied(lines) if not told else lines
            told += lines
            for move in moves(news, self._start or 0.0, self._now):
                yield move
                if isinstance(move, StateMoved) and move.state in FINAL - {State.APPLIED}:
                    return
            if not lines and told:
                self._overdue(told)
            await asyncio.sleep(_SLOW_POLL_SECONDS)

    async def run(self, verb: str, operator: str) -> Moves:
        """Start the verb for an operator and yield the journal's new lines until a final state."""
        self._offset = await self._journal_size(verb)
        # env -i: the session kills whatever carries its mark when it ends; this must go on.
        await self._shell.run(
            f"cd / && setsid env -i GPUDOCTOR_RUN={self._run} GPUDOCTOR_BY={quote(operator)} "
            f"sh {self._script} {verb} </dev/null >/dev/null 2>&1 &"
        )
        seen = time.monotonic()
        gone: float | None = None
        while True:
            lines = await self._more()
            for move in moves(lines, self._start or 0.0, self._now):
                yield move
                if isinstance(move, StateMoved) and move.state in FINAL:
                    return
            if sentence := refusal(lines, self._run):
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
            f"[ -s {self._script} ] || exit {NO_SCRIPT}; cat {self._journal} 2>/dev/null | wc -c"
        )
        if size.lost is not None:
            raise HostUnreachable(f"{verb} was not started: {size.lost.detail}")
        if size.exit == NO_SCRIPT:
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
        # The uptime comes last: no line that was read is younger.
        look = (
            f"{runs_text(self._runner)} || [ -e {self._fired} ]; gone=$?; "
            f"tail -c +{self._offset + 1} {self._journal} 2>/dev/null; "
            "read -r u _ </proc/uptime; printf '\\n%s' \"$u\"; exit $gone"
        )
        answer = await self._shell.run(look)
        if is_lost(answer):
            await self._reopen()
            return []
        if answer.lost is not None:  # a slow host says nothing about its runner
            self._alive = True
            return []
        self._alive = answer.exit == 0
        text, _, uptime = answer.stdout.rpartition(b"\n")
        self._now = float(uptime) if _UPTIME.fullmatch(uptime) else self._now
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
        self._rebooted()
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

    def _rebooted(self) -> None:
        """Raise a Refusal where the target's uptime has begun anew."""
        if self._start is not None and self._now is not None and self._now < self._start:
            raise Refusal(
                f"the host has rebooted during transaction {self._id}: what it set is gone, but "
                "for what is kept on disk (`gpudoctor status`)",
                5,
            )

    def _overdue(self, told: list[Line]) -> None:
        """Raise a Refusal where the timer should have begun long ago, and nothing runs."""
        self._rebooted()
        ends = [line.uptime + float(line.rest.split(" ")[0]) for line in told if _arms(line)]
        late = (self._now or 0.0) - (ends[-1] if ends else 0.0)
        if late > (_STILL_SECONDS if self._alive else _LATE_SECONDS):
            raise Refusal(
                f"transaction {self._id} was not confirmed, and its timer has not taken it back: "
                f"`gpudoctor rollback {self._id}` does",
                5,
            )


def _arms(line: Line) -> bool:
    return line.word == "armed" and line.rest.split(" ")[0].isdecimal()
