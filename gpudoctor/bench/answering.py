"""One probe alone, over a login of its own: beside others it would measure them."""

import asyncio

from gpudoctor.hosts.side import AnswerSide
from gpudoctor.hosts.target import Target
from gpudoctor.model import Evidence, Tool
from gpudoctor.model.place import ContainerRef


async def answer(target: Target, probe: Tool, ref: ContainerRef | None = None) -> Evidence:
    """Return what a tool gives on the host, or in a container; the target is not connected.

    Raises Refusal or HostUnreachable where the side is not reached.
    """
    await target.connect()
    side: AnswerSide = target.host() if ref is None else target.container(ref)
    try:
        await side.start()
        (evidence,) = await side.ask((probe,))[0]
        return evidence
    finally:
        await asyncio.shield(side.close())
        await asyncio.shield(target.close())
