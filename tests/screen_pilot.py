"""Drive the screens in tests: run the app, press keys, wait for conditions, read what is shown."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from gpudoctor.app import GpuDoctor
from gpudoctor.screens.ask import AskScreen
from tests.pictures import settle


@asynccontextmanager
async def running(
    app: GpuDoctor, size: tuple[int, int] = (160, 45), wait: bool = True
) -> AsyncIterator[Pilot[None]]:
    """Run the app and wait for its audit."""
    async with app.run_test(size=size) as pilot:
        if wait:
            await settle(pilot, lambda: bool(app.board.result) and not app.board.running)
        yield pilot


def shown(app: GpuDoctor) -> str:
    """Return the text on the screen."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Press keys one by one, waiting for each to take effect."""
    for key in keys:
        await pilot.press(key)
        await pilot.pause()


async def ask(pilot: Pilot[None], key: str) -> None:
    """Press a key that asks a question, and answer yes once the question is there."""
    await pilot.press(key)
    await wait_for(pilot, lambda: isinstance(pilot.app.screen, AskScreen))
    await press(pilot, "y")


async def wait_until_shown(pilot: Pilot[None], app: GpuDoctor, words: str) -> None:
    """Wait until the screen shows these words."""
    await wait_for(pilot, lambda: words in shown(app))


async def wait_for(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    await settle(pilot, condition)
