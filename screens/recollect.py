"""Look back and settle: the story's engine, run beside the screens and off the event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from gpudoctor.model.error import AnotherMachine, Refusal, UnknownHostKey
from gpudoctor.screens.follow import named

if TYPE_CHECKING:
    from gpudoctor.hosts.target import Target
    from gpudoctor.model.audited import AuditResult
    from gpudoctor.model.story import Story, Told
    from gpudoctor.screens.applying import Applying


class LookedBack(NamedTuple):
    """The story where there is one, why it could not be told, and whether to look again.

    `aloud`: the operator is to see the why at once: it is not the host that they think it is.
    """

    story: "Story | None" = None
    problem: str = ""
    again: bool = False
    aloud: bool = False


@asynccontextmanager
async def looked_back(make_target: "Callable[[], Target]") -> AsyncIterator[LookedBack]:
    """Give what a look back at the host tells.

    Leaving logs out, which a slow machine takes a second for. Before an unknown key nothing is
    asked here: the audit asks, and the look comes after it.
    """
    async with AsyncExitStack() as stack:
        try:
            look = await asyncio.to_thread(_look_at, make_target)
            story = None
            if look is not None:  # its screen is imported while the host is waited for
                words = asyncio.ensure_future(asyncio.to_thread(_words))
                story = await stack.enter_async_context(look())
                await words
            told = LookedBack(story)
        except UnknownHostKey as error:
            told = LookedBack(problem=error.sentence, again=True)
        except Refusal as refusal:
            another = isinstance(refusal, AnotherMachine)
            told = LookedBack(problem=refusal.sentence, aloud=another)
        except Exception as error:  # the audit stands, whatever becomes of this look
            told = LookedBack(problem=f"a fault of gpudoctor's own: {named(error)}")
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


def retold(story: "Story", applying: "Applying") -> "Story":
    """Return the story with what a transaction of this session put back, or took back since."""
    from gpudoctor.model.plan import State
    from gpudoctor.story.again import put_back, taken_back

    if applying.plan is None:
        return story
    if applying.kept:
        return put_back(story, applying.plan)
    return taken_back(story, applying.plan) if applying.state is State.UNDONE else story


async def lasting_forms(
    told: "Sequence[Told]", result: "AuditResult"
) -> "tuple[AuditResult | None, tuple[str, ...]]":
    """Return what makes kept changes last, as findings that offer it, and titles without such."""
    from gpudoctor.story.again import forms_of

    return await asyncio.to_thread(forms_of, told, result)
