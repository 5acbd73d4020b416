"""Look back and settle: the story's engine, run beside the screens and off the event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from gpudoctor.model.error import Refusal, UnknownHostKey
from gpudoctor.screens.follow import named

if TYPE_CHECKING:
    from gpudoctor.hosts.target import Target
    from gpudoctor.model.audited import AuditResult
    from gpudoctor.model.story import Story


@asynccontextmanager
async def looked_back(
    make_target: "Callable[[], Target]",
) -> "AsyncIterator[tuple[Story | None, str, bool]]":
    """Give the story where there is one, why it could not be told, and whether to look again.

    Leaving logs out, which a slow machine takes a second for. Before an unknown key nothing is
    asked here: the audit asks, and the look comes after it.
    """
    async with AsyncExitStack() as stack:
        try:
            look = await asyncio.to_thread(_look_at, make_target)
            story = await stack.enter_async_context(look()) if look is not None else None
            if story is not None:
                await asyncio.to_thread(_words)
            told = story, "", False
        except UnknownHostKey as error:
            told = None, error.sentence, True
        except Refusal as refusal:
            told = None, refusal.sentence, False
        except Exception as error:  # the audit stands, whatever becomes of this look
            told = None, f"a fault of gpudoctor's own: {named(error)}", False
        yield told


def _look_at(
    make_target: "Callable[[], Target]",
) -> "Callable[[], AbstractAsyncContextManager[Story | None]] | None":
    """Return how to look at the target, None where nothing can have been kept of it."""
    from gpudoctor.snapshots.store import state_home

    if not any(state_home().glob("*/*.toml")):  # nothing to import the engine for
        return None
    from gpudoctor.story import looking

    return partial(looking, make_target())


def _words() -> None:
    """Import the story's screen here, where it does not hold up the others."""
    import_module("gpudoctor.screens.story")


async def settled(story: "Story", result: "AuditResult") -> "Story":
    """Return the story with what the audit's findings settle; as it was where that fails."""
    from gpudoctor.story import after_audit

    try:
        return await asyncio.to_thread(after_audit, story, result)
    except Exception:  # what was told by value stands
        return story
