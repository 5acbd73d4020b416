"""Draw pictures of the demo's screens: `python -m tests.pictures FOLDER [NAME…]` writes SVG files.

For PNG, with Fira Code installed and the size that the SVG's viewBox names:
`chromium --headless --disable-gpu --window-size=W,H --screenshot=NAME.png NAME.svg`.
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from gpudoctor.app import GpuDoctor


async def settle(pilot: Pilot[None], condition: Callable[[], bool], limit: float = 30.0) -> None:
    """Wait until the condition holds and everything is drawn. Raises TimeoutError."""
    async with asyncio.timeout(limit):
        while not condition():
            await pilot.pause(0.02)
    await pilot.pause(0.12)
    await pilot.pause()


async def picture(app: GpuDoctor, size: tuple[int, int], keys: list[str], theme: str = "") -> str:
    """Run the app at a size, wait for the audit, press the keys, and return the SVG."""
    async with app.run_test(size=size) as pilot:
        app.theme = theme or "gpudoctor-dark"
        await settle(pilot, lambda: app.board.result is not None and not app.board.running)
        for key in keys:
            await pilot.press(key)
            await settle(pilot, lambda: True)
        return app.export_screenshot(title="gpudoctor")


PICTURES: dict[str, tuple[tuple[int, int], list[str], str]] = {
    "audit-160x45": ((160, 45), [], ""),
    "audit-80x24": ((80, 24), [], ""),
    "audit-200x60": ((200, 60), [], ""),
    "audit-light": ((160, 45), ["down"], "gpudoctor-light"),
    "panel-160x45": ((160, 45), ["down", "right", "enter"], ""),
    "panel-80x24": ((80, 24), ["down", "right", "enter"], ""),
    "plan-160x45": ((160, 45), ["2", "down", "down", "down", "space"], ""),
    "plan-80x24": ((80, 24), ["2", "down", "down", "down", "space"], ""),
    "plan-light": ((160, 45), ["2", "down", "down", "down", "space"], "gpudoctor-light"),
    "help-160x45": ((160, 45), ["question_mark"], ""),
}


def demo() -> GpuDoctor:
    """Return the app on the demo host."""
    from gpudoctor.hosts.simulated_target import SimulatedTarget, demo_machine

    machine = demo_machine()
    return GpuDoctor(lambda: SimulatedTarget(machine, (0.0, 0.05)))


def main() -> None:
    """Draw every picture, or those whose names are given."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or PICTURES:
        size, keys, theme = PICTURES[name]
        svg = asyncio.run(picture(demo(), size, keys, theme))
        (folder / f"{name}.svg").write_text(svg)


if __name__ == "__main__":
    main()
