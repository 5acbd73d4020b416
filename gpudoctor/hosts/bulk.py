"""Reading many files in one job, so that one file which hangs or swells harms no other."""

import asyncio
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from gpudoctor import shell
from gpudoctor.formats.bulk import parse_files, parse_listing, select
from gpudoctor.hosts.session import Job, JobAnswer, Session
from gpudoctor.model import Evidence, Files, Listing, Probe, Reason, Tool, Unknown
from gpudoctor.recording import entries

# What `timeout` and the shells give for what was ended, and for an argument list too long.
KILLED = {124, 137, 143}
_TOO_MANY_NAMES = 126
_CAP = 8 << 20
_ERR_CAP = 1 << 20
# A slow machine may need most of this; a file that hangs is found by looking, long before.
_LIMIT_SECONDS = 20
_ALONE_LIMIT_SECONDS = 8
# A file that is still open at the second look hangs: reading goes on without it.
_FIRST_LOOK_SECONDS = 2.5
_NEXT_LOOK_SECONDS = 1.5
_OPEN_FILE = re.compile(r" -> (/.*)$", re.MULTILINE)
Bulk = Files | Listing


def bulk_groups(probes: Sequence[Probe]) -> list[list[Bulk]]:
    """Return the files and listings that travel together."""
    bulk = sorted((p for p in probes if not isinstance(p, Tool)), key=lambda p: str(_bulk_key(p)))
    return [list(group) for _, group in groupby(bulk, key=_bulk_key)]


def bulk_text(group: Sequence[Bulk]) -> str:
    """Return the sh text that reads one group."""
    first = group[0]
    patterns = list(dict.fromkeys(p for probe in group for p in probe.patterns))
    if isinstance(first, Files):
        read = shell.read_plain_files if first.no_links else shell.read_files
        return read(patterns, first.cap + 1)
    return shell.list_entries(patterns)


def _bulk_key(probe: Bulk) -> tuple[str, str, int, bool]:
    """Return what keeps bulk jobs apart: guarded files share with none, caps with their equals."""
    if isinstance(probe, Listing):
        return ("listing", "", 0, False)
    return ("files", probe.key if probe.guarded else "", probe.cap, probe.head)


class BulkReader:
    """Reads groups of files over a session."""

    def __init__(self, session: Session) -> None:
        """Take a started session."""
        self._session = session

    async def read(self, probes: Sequence[Bulk]) -> list[Evidence]:
        """Return the evidence of one group; probes whose file hangs are unknown(timeout)."""
        done: list[Evidence] = []
        left = list(probes)
        limit = _LIMIT_SECONDS if len(probes) > 1 else _ALONE_LIMIT_SECONDS
        end = asyncio.get_running_loop().time() + limit
        while left:
            seconds = math.ceil(max(1.0, end - asyncio.get_running_loop().time()))
            answer = await self._attempt(left, seconds)
            if isinstance(answer, JobAnswer):
                return done + await self._evidence(left, answer, seconds)
            hung = [p for p in left if select({answer: b""}, p.patterns)]
            why = Unknown(Reason.TIMEOUT, f"reading {answer} hangs on this host")
            done += [Evidence(p.key, p.side, bulk_text([p]), problem=why) for p in hung]
            left = [p for p in left if p not in hung]
        return done

    async def _attempt(self, probes: Sequence[Bulk], seconds: int) -> JobAnswer | str:
        """Return the job's answer, or the path of a file that hangs."""
        job = Job(bulk_text(probes), seconds, _CAP, _ERR_CAP)
        if len(probes) == 1:  # looking would save nobody else
            return await self._session.run(job)
        running = asyncio.create_task(self._session.run(job))
        seen: set[str] = set()
        wait = _FIRST_LOOK_SECONDS
        try:
            while not (await asyncio.wait([running], timeout=wait))[0]:
                open_now = await self._open_files(probes)
                if running.done():
                    break
                if hung := seen & open_now:
                    return min(hung)
                seen, wait = open_now, _NEXT_LOOK_SECONDS
            return running.result()
        finally:
            running.cancel()

    async def _open_files(self, probes: Sequence[Bulk]) -> set[str]:
        """Return which of the probes' files our own processes have open at this moment."""
        answer = await self._session.look(Job(self._session.open_files_text(), limit=2.0))
        found = _OPEN_FILE.findall(answer.stdout.decode("utf-8", "replace"))
        return {path for path in found if any(select({path: b""}, p.patterns) for p in probes)}

    async def _evidence(
        self, probes: Sequence[Bulk], answer: JobAnswer, seconds: int
    ) -> list[Evidence]:
        problem = answer.lost or _problem(probes, answer, seconds)
        if problem is None:
            found = _parsed(probes[0], answer)
            return [entries(p, select(found, p.patterns), answer.seconds) for p in probes]
        if problem.reason is Reason.TOO_BIG and len(probes) > 1:
            half = len(probes) // 2
            return await self.read(probes[:half]) + await self.read(probes[half:])
        if problem.reason is Reason.TOO_BIG and len(probes[0].patterns) > 1:
            return [await self._by_halves(probes[0])]
        return [Evidence(p.key, p.side, bulk_text([p]), problem=problem) for p in probes]

    async def _by_halves(self, probe: Bulk) -> Evidence:
        """Read the patterns in two parts, which may each come in two again: jobs stay few."""
        found: dict[str, bytes | Unknown] = {}
        half = len(probe.patterns) // 2
        for patterns in (probe.patterns[:half], probe.patterns[half:]):
            (part,) = await self.read([replace(probe, patterns=patterns)])
            found |= part.files or (dict.fromkeys(patterns, part.problem) if part.problem else {})
        return entries(probe, found)


def _problem(probes: Sequence[Bulk], answer: JobAnswer, seconds: int) -> Unknown | None:
    first = probes[0].patterns[0]
    if answer.exit in KILLED:
        return Unknown(Reason.TIMEOUT, f"reading {first} took more than {seconds} s")
    if len(answer.stdout) > _CAP:
        return Unknown(Reason.TOO_BIG, f"{first} and what is read with it exceed {_CAP} bytes")
    if answer.exit == _TOO_MANY_NAMES:
        return Unknown(Reason.TOO_BIG, f"{first}: more files than one command can name")
    if answer.exit == 127:
        return Unknown(Reason.TOOL_MISSING, "head or ls is not installed there")
    return None


def _parsed(first: Bulk, answer: JobAnswer) -> dict[str, bytes | Unknown]:
    if isinstance(first, Listing):
        return parse_listing(answer.stdout, answer.stderr)
    found = parse_files(answer.stdout, answer.stderr)
    return {path: _within(path, data, first) for path, data in found.items()}


def _within(path: str, data: bytes | Unknown, probe: Files) -> bytes | Unknown:
    if isinstance(data, Unknown) or len(data) <= probe.cap:
        return data
    if probe.head:
        return data[: probe.cap]
    return Unknown(Reason.TOO_BIG, f"{path} is larger than {probe.cap} bytes")
