"""Which processes on this machine carry a session's mark in their environment."""

import asyncio
import time
from pathlib import Path

from gpudoctor.hosts.session import Session


def carrying(mark: str) -> list[int]:
    """Return the pids whose environment holds the mark."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and mark.encode() in _environment(folder):
            found.append(int(folder.name))
    return sorted(found)


async def marked(
    session: Session, present: bool, gentle: bool = False, seconds: float = 5
) -> list[int]:
    """Return the session's processes, waiting a while for some to be there, or for none."""
    mark = f"{'GPG' if gentle else 'GPD'}={session._mark}"
    return await asyncio.to_thread(settled, mark, present, seconds)


def settled(mark: str, present: bool, seconds: float = 5) -> list[int]:
    """Return the pids with the mark, waiting a while for some to be there, or for none."""
    end = time.monotonic() + seconds
    while bool(found := carrying(mark)) is not present and time.monotonic() < end:
        time.sleep(0.05)
    return found


def _environment(folder: Path) -> bytes:
    try:
        if (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return b""
        return (folder / "environ").read_bytes()
    except OSError:
        return b""
