"""Sides: something that answers probes. A live one turns them into jobs of a session."""

import re
from collections.abc import Awaitable, Iterable, Sequence
from itertools import groupby
from typing import Protocol

from gpudoctor import shell
from gpudoctor.formats.bulk import parse_files, parse_listing, select
from gpudoctor.hosts.session import Job, JobAnswer, Session
from gpudoctor.hosts.session_script import Sudo
from gpudoctor.model import Evidence, Files, Listing, Probe, Reason, Tool, Unknown
from gpudoctor.recording import entries

_BULK_LIMIT = 10.0
_BULK_CAP = 32 << 20
_DENIED = re.compile(
    r"[Pp]ermission denied|[Oo]peration not permitted|must be (?:run as )?root|Access denied"
)


class AnswerSide(Protocol):
    """One side of a host that answers probes."""

    async def start(self) -> None:
        """Get ready. Raises Refusal with one sentence."""
        ...

    def ask(self, probes: Sequence[Probe]) -> "list[Awaitable[list[Evidence]]]":
        """Return one awaitable for each job that the probes need; together they answer all."""
        ...

    @property
    def user(self) -> str:
        """Return whom the side lets us be: root, a user's number, or an empty string."""
        ...

    async def close(self) -> None:
        """End what was started."""
        ...


class LiveSide:
    """A side answered by a session's `sh`."""

    def __init__(self, session: Session, sudo: Sudo = Sudo.QUIET, password: str = "") -> None:
        """Take a session that is not started yet, and how it may become root."""
        self.session = session
        self._sudo = sudo
        self._password = password

    async def start(self) -> None:
        """Start the session. Raises HostUnreachable or Refusal."""
        await self.session.start(self._sudo, self._password)
        self._password = ""

    @property
    def user(self) -> str:
        """Return whom the side lets us be."""
        return "root" if self.session.uid == 0 else f"uid {self.session.uid}"

    def ask(self, probes: Sequence[Probe]) -> list[Awaitable[list[Evidence]]]:
        """Return the jobs: every tool its own, all files and all listings together."""
        bulk = sorted(
            (p for p in probes if not isinstance(p, Tool)), key=lambda p: str(_bulk_key(p))
        )
        jobs: list[Awaitable[list[Evidence]]] = [
            self._tool(p) for p in probes if isinstance(p, Tool)
        ]
        for _, group in groupby(bulk, key=_bulk_key):
            jobs.append(self._bulk(list(group)))
        return jobs

    async def close(self) -> None:
        """End the session; the target cleans up."""
        await self.session.close()

    async def _tool(self, probe: Tool) -> list[Evidence]:
        job = Job(probe.script, probe.limit, probe.cap, gentle=probe.gentle)
        answer = await self.session.run(job)
        problem = tool_problem(probe, answer)
        if problem and problem.reason is Reason.TIMEOUT and probe.gentle:
            left = await self.session.gentle_left()
            if left:
                detail = f"{problem.detail}; it ignores SIGTERM and still runs there: {left}"
                problem = Unknown(Reason.TIMEOUT, detail)
        return [
            Evidence(
                probe.key,
                probe.side,
                probe.script,
                answer.stdout[: probe.cap],
                answer.stderr,
                answer.exit,
                answer.seconds,
                problem=problem,
            )
        ]

    async def _bulk(self, probes: list[Files | Listing]) -> list[Evidence]:
        first = probes[0]
        patterns = list(dict.fromkeys(p for probe in probes for p in probe.patterns))
        if isinstance(first, Files):
            command = shell.read_files(patterns, first.cap + 1)
        else:
            command = shell.list_entries(patterns)
        answer = await self.session.run(Job(command, _BULK_LIMIT, _BULK_CAP, err_cap=1 << 20))
        problem = answer.lost or _bulk_problem(answer)
        if problem is not None:
            return [Evidence(p.key, p.side, command, problem=problem) for p in probes]
        found = _parsed(first, answer)
        return [entries(p, select(found, p.patterns), answer.seconds) for p in probes]


def _bulk_key(probe: Files | Listing) -> tuple[str, str, int]:
    """Return what keeps bulk jobs apart: guarded files share with none, caps with their equals."""
    if isinstance(probe, Listing):
        return ("listing", "", 0)
    return ("files", probe.key if probe.guarded else "", probe.cap)


def _bulk_problem(answer: JobAnswer) -> Unknown | None:
    if answer.exit == 124:
        return Unknown(Reason.TIMEOUT, f"reading files took more than {_BULK_LIMIT:g} s")
    if len(answer.stdout) > _BULK_CAP:
        return Unknown(Reason.TOO_BIG, "the files are larger than anything expected")
    if answer.exit == 127:
        return Unknown(Reason.TOOL_MISSING, "head or ls is not installed there")
    return None


def _parsed(first: Files | Listing, answer: JobAnswer) -> dict[str, bytes | Unknown]:
    if isinstance(first, Listing):
        return parse_listing(answer.stdout, answer.stderr)
    found = parse_files(answer.stdout, answer.stderr)
    return {path: _within(path, data, first.cap) for path, data in found.items()}


def _within(path: str, data: bytes | Unknown, cap: int) -> bytes | Unknown:
    if isinstance(data, Unknown) or len(data) <= cap:
        return data
    if path.endswith("/config"):  # PCI config space is as long as we ask for
        return data[:cap]
    return Unknown(Reason.TOO_BIG, f"{path} is larger than {cap} bytes")


def tool_problem(probe: Tool, answer: JobAnswer) -> Unknown | None:
    """Return why a tool's answer says nothing, or None where its output can be read."""
    if answer.lost is not None:
        return answer.lost
    for code, meaning in probe.meanings:
        if answer.exit == code:
            return meaning
    if answer.exit in {124, 137, 143}:
        return Unknown(Reason.TIMEOUT, f"{probe.name} did not end within {probe.limit:g} s")
    if len(answer.stdout) > probe.cap:
        return Unknown(Reason.TOO_BIG, f"{probe.name} printed more than {probe.cap} bytes")
    if answer.exit == 127:
        return Unknown(Reason.TOOL_MISSING, f"{probe.name} is not installed there")
    if answer.exit and _DENIED.search(answer.stderr) and not answer.stdout:
        return Unknown(Reason.NO_PERMISSION, f"{probe.name} needs root there")
    return None


class SilentSide:
    """A side that cannot be reached or is not there: every probe is unknown, for one reason."""

    user = ""

    def __init__(self, why: Unknown) -> None:
        """Take the reason."""
        self._why = why

    async def start(self) -> None:
        """Do nothing."""

    def ask(self, probes: Sequence[Probe]) -> list[Awaitable[list[Evidence]]]:
        """Answer all probes with the reason."""
        return [self._answer(probes)]

    async def _answer(self, probes: Iterable[Probe]) -> list[Evidence]:
        return [Evidence(p.key, p.side, problem=self._why) for p in probes]

    async def close(self) -> None:
        """Do nothing."""
