"""Sides: something that answers probes. A live one turns them into jobs of a session."""

import re
from collections.abc import Awaitable, Iterable, Sequence
from typing import Protocol

from gpudoctor.hosts.bulk import KILLED, BulkReader, bulk_groups, bulk_text
from gpudoctor.hosts.session import Job, JobAnswer, Session
from gpudoctor.hosts.session_script import Sudo
from gpudoctor.model import Evidence, Probe, Reason, Tool, Unknown

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
        jobs: list[Awaitable[list[Evidence]]] = [
            BulkReader(self.session).read(group) for group in bulk_groups(probes)
        ]
        jobs += [self._tool(p) for p in probes if isinstance(p, Tool)]
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


def tool_problem(probe: Tool, answer: JobAnswer) -> Unknown | None:
    """Return why a tool's answer says nothing, or None where its output can be read."""
    if answer.lost is not None:
        return answer.lost
    for code, meaning in probe.meanings:
        if answer.exit == code:
            return meaning
    if answer.exit in KILLED:
        return Unknown(Reason.TIMEOUT, f"{probe.name} did not end within {probe.limit:g} s")
    if len(answer.stdout) > probe.cap:
        return Unknown(Reason.TOO_BIG, f"{probe.name} printed more than {probe.cap} bytes")
    if answer.exit == 127:
        return Unknown(Reason.TOOL_MISSING, f"{probe.name} is not installed there")
    if answer.exit and _DENIED.search(answer.stderr) and not answer.stdout:
        return Unknown(Reason.NO_PERMISSION, f"{probe.name} needs root there")
    return None


def job_texts(probes: Sequence[Probe]) -> list[tuple[list[str], str]]:
    """Return the jobs that the probes make on a live side: their keys, and the text that runs."""
    texts = [([p.key], p.script) for p in probes if isinstance(p, Tool)]
    for group in bulk_groups(probes):
        texts.append(([p.key for p in group], bulk_text(group)))
    return texts


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
