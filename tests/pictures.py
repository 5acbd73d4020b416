"""Draw pictures of the demo's screens: `python -m tests.pictures FOLDER [NAME…]` writes SVG files.

For PNG, with Fira Code installed and the size that the SVG's viewBox names:
`chromium --headless --disable-gpu --window-size=W,H --screenshot=NAME.png NAME.svg`.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from textual.pilot import Pilot

from gpudoctor.app import GpuDoctor
from gpudoctor.model.plan import State, Transaction
from gpudoctor.screens.apply import ApplyScreen
from gpudoctor.screens.ask import AskScreen
from gpudoctor.screens.diff import DiffScreen
from gpudoctor.screens.kept import Comparison
from gpudoctor.screens.recovery import RecoveryScreen
from gpudoctor.screens.snapshots import SnapshotsScreen
from gpudoctor.screens.story import StoryScreen
from gpudoctor.screens.told import waits
from tests.pictures_past import DIFF, HEADS, KEPT, STORY

Step = str | Callable[[GpuDoctor], bool]


async def settle(pilot: Pilot[None], condition: Callable[[], bool], limit: float = 30.0) -> None:
    """Wait until the condition holds and everything is drawn. Raises TimeoutError."""
    async with asyncio.timeout(limit):
        while not condition():
            await pilot.pause(0.02)
    await pilot.pause(0.12)
    await pilot.pause()


async def picture(
    app: GpuDoctor, size: tuple[int, int], steps: Sequence[Step], theme: str = ""
) -> str:
    """Run the app at a size, wait for the audit, press keys and wait for conditions; return SVG."""
    async with app.run_test(size=size) as pilot:
        app.theme = theme or "gpudoctor-dark"
        await settle(pilot, lambda: app.board.result is not None and not app.board.running)
        for step in steps:
            if isinstance(step, str):
                await pilot.press(step)
                await settle(pilot, lambda: True)
            else:
                await settle(pilot, partial(step, app))
        return app.export_screenshot(title="gpudoctor")


def _choose(*checks: str) -> Callable[[GpuDoctor], bool]:
    """Return a step that selects checks and waits for their plan."""

    def chosen(app: GpuDoctor) -> bool:
        if app.board.chosen != checks:
            app.board.chosen = checks
            app._replan()
        return app.board.plan is not None

    return chosen


def _asked(app: GpuDoctor) -> bool:
    return isinstance(app.screen, AskScreen)


def _half(app: GpuDoctor) -> bool:
    applying = app.board.applying
    if applying is None or applying.plan is None:
        return False
    return applying.latest * 2 > len(applying.plan.items)


def _waits(app: GpuDoctor) -> bool:
    applying = app.board.applying
    return isinstance(app.screen, ApplyScreen) and bool(applying and applying.waits)


def _over(app: GpuDoctor) -> bool:
    applying = app.board.applying
    return bool(applying and not applying.unsettled) and not app.board.running


def _listed(app: GpuDoctor) -> bool:
    return app.board.history.told is not None and not app.board.history.reading


def _left_behind(app: GpuDoctor) -> bool:
    """Show what an interrupted session leaves: the demo's machine has none."""
    if not isinstance(app.screen, RecoveryScreen):
        told = Transaction(
            "20261130-081504-3fa2c1",
            State.APPLYING,
            "ana@laptop",
            "2026-11-30T08:15:04Z",
            ("scaling_governor = performance (256 files)", "sysctl vm.swappiness = 10"),
            ("kern-governor", "kern-swappiness"),
            "",
            interrupted=True,
            written=131,
        )
        app.push_screen(RecoveryScreen(told, app.board.label, 1, False))
    return isinstance(app.screen, RecoveryScreen) and not waits(app.screen.told)


def _storied(app: GpuDoctor) -> bool:
    """Show a story: the demo's machine was never rebooted."""
    telling = app.board.telling
    if telling.story is None:
        telling.story = STORY
        telling.since = Comparison("what else has changed", DIFF)
        app.push_screen(StoryScreen(app.board, "audit"))
    return isinstance(app.screen, StoryScreen)


def _shelved(app: GpuDoctor) -> bool:
    """List snapshots: the demo leaves none."""
    app.board.shelf.heads = HEADS
    app.board.shelf.findings = dict.fromkeys((head.path for head in HEADS), KEPT)
    app.board.touch()
    return isinstance(app.screen, SnapshotsScreen)


def _differs(app: GpuDoctor) -> bool:
    if not isinstance(app.screen, DiffScreen):
        app.push_screen(DiffScreen(app.board, Comparison("then and now", DIFF), "snapshots"))
    return isinstance(app.screen, DiffScreen)


def _page(app: GpuDoctor) -> bool:
    return app.board.page.read is not None


def _found(app: GpuDoctor) -> bool:
    return bool(app.board.bench.engines) and not app.board.bench.looking


def _measuring(app: GpuDoctor) -> bool:
    going = app.board.bench.going
    return going is not None and going.progress is not None and going.progress.done == 2


def _measured(app: GpuDoctor) -> bool:
    return app.board.bench.going is None and app.board.bench.shown is not None


def _weighing(app: GpuDoctor) -> bool:
    return any(one.going and one.going.progress for one in app.board.bench.weighed.values())


def _weighed(app: GpuDoctor) -> bool:
    return any(one.told is not None for one in app.board.bench.weighed.values())


_SMALL, _USUAL, _LARGE = (80, 24), (160, 45), (200, 60)
_ONE: list[Step] = ["2", _choose("kern-numa-balancing", "kern-swappiness")]
_MANY: list[Step] = [
    "2",
    _choose("kern-swappiness", "kern-dirty", "kern-cstate-exit:3", "kver-cpufreq-driver"),
]
_RUNS: list[Step] = [*_MANY, "a", _asked, "y"]
_RISKY: list[Step] = ["2", _choose("kern-dirty", "pcie-max-read-req"), "a", _asked, "y", _waits]
_PAST: list[Step] = [*_ONE, "a", _asked, "y", _over, "escape", *_RISKY, "h", _listed]

_BENCH: list[Step] = ["4", _found]
_FULL: list[Step] = [*_BENCH, "f", _asked, "y", _measured]
_FASTER: list[Step] = [
    *_FULL,
    "2",
    _choose("kern-numa-balancing", "kern-cstate-exit:3", "kern-nmi-watchdog"),
    "a",
    _asked,
    "y",
    _waits,
]

PICTURES: dict[str, tuple[tuple[int, int], list[Step], str]] = {
    "audit-160x45": (_USUAL, [], ""),
    "audit-80x24": (_SMALL, [], ""),
    "audit-200x60": (_LARGE, [], ""),
    "audit-light": (_USUAL, ["down"], "gpudoctor-light"),
    "panel-160x45": (_USUAL, ["down", "right", "enter"], ""),
    "panel-80x24": (_SMALL, ["down", "right", "enter"], ""),
    "plan-160x45": (_USUAL, _MANY, ""),
    "plan-80x24": (_SMALL, _MANY, ""),
    "plan-200x60": (_LARGE, _MANY, ""),
    "plan-40x10": ((40, 10), _MANY, ""),
    "plan-light": (_USUAL, _MANY, "gpudoctor-light"),
    "ask-160x45": (_USUAL, [*_MANY, "a", _asked], ""),
    "ask-80x24": (_SMALL, [*_MANY, "a", _asked], ""),
    "apply-160x45": (_USUAL, [*_RUNS, _half], ""),
    "apply-80x24": (_SMALL, [*_RUNS, _half], ""),
    "countdown-160x45": (_USUAL, _RISKY, ""),
    "countdown-80x24": (_SMALL, _RISKY, ""),
    "countdown-light": (_USUAL, _RISKY, "gpudoctor-light"),
    "history-160x45": (_USUAL, _PAST, ""),
    "history-80x24": (_SMALL, _PAST, ""),
    "recovery-160x45": (_USUAL, [_left_behind], ""),
    "recovery-80x24": (_SMALL, [_left_behind], ""),
    "story-160x45": (_USUAL, [_storied], ""),
    "story-80x24": (_SMALL, [_storied], ""),
    "story-light": (_USUAL, [_storied, "down"], "gpudoctor-light"),
    "snapshots-160x45": (_USUAL, ["3", _shelved, "space", "down"], ""),
    "snapshots-80x24": (_SMALL, ["3", _shelved, "space", "down"], ""),
    "diff-160x45": (_USUAL, ["3", _differs], ""),
    "diff-80x24": (_SMALL, ["3", _differs], ""),
    "before-reboot-160x45": (_USUAL, ["b", _page], ""),
    "before-reboot-80x24": (_SMALL, ["b", _page], ""),
    "lasts-160x45": (_USUAL, [*_ONE, "a", _asked, "y", _over, "m", _asked], ""),
    "lasts-80x24": (_SMALL, [*_ONE, "a", _asked, "y", _over, "m", _asked], ""),
    "bench-160x45": (_USUAL, [*_BENCH, "g", _measured, "g", _measuring], ""),
    "bench-80x24": (_SMALL, [*_BENCH, "g", _measured, "g", _measuring], ""),
    "bench-light": (_USUAL, [*_FULL, "f", _asked, "y", _measured], "gpudoctor-light"),
    "bench-told-80x24": (_SMALL, [*_FULL, "tab"], ""),
    "bench-ask-80x24": (_SMALL, [*_BENCH, "f", _asked], ""),
    "weighed-160x45": (_USUAL, [*_FASTER, "e", _weighed], ""),
    "weighed-80x24": (_SMALL, [*_FASTER, "e", _weighed], ""),
    "weighing-80x24": (_SMALL, [*_FASTER, "e", _weighing], ""),
    "help-160x45": (_USUAL, ["question_mark"], ""),
}


def demo(pace: tuple[float, float] = (0.0, 0.05)) -> GpuDoctor:
    """Return the app on the demo host, whose answers take so long, in seconds."""
    from gpudoctor.hosts.simulated_target import SimulatedTarget, demo_machine

    machine = demo_machine()
    return GpuDoctor(lambda: SimulatedTarget(machine, pace))


def main() -> None:
    """Draw every picture, or those whose names are given."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or PICTURES:
        size, steps, theme = PICTURES[name]
        svg = asyncio.run(picture(demo((0.05, 0.05)), size, steps, theme))
        (folder / f"{name}.svg").write_text(svg)


if __name__ == "__main__":
    main()
