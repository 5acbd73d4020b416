"""Mode 4 and the loop around a change, on the demo's simulated engine."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from gpudoctor.app import GpuDoctor
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.bench import Judgement, Serving
from gpudoctor.model.error import Refusal
from gpudoctor.model.place import ContainerRef
from gpudoctor.model.plan import State, Transaction
from gpudoctor.screens.apply import ApplyScreen
from gpudoctor.screens.ask import AskScreen
from gpudoctor.screens.bench import BenchScreen
from gpudoctor.screens.bench_text import _three, chart
from gpudoctor.snapshots.store import state_home
from gpudoctor.transaction import confirm
from tests.pictures import demo
from tests.screen_pilot import ask, press, running, shown, wait_for, wait_until_shown

NUMA, RISKY = ("kern-numa-balancing",), ("kern-cstate-exit:3",)
# Real seconds for a simulated one: so slow that a run is always met amid its blocks.
SLOW = (0.0, 0.5)


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")


def swift() -> GpuDoctor:
    """Return the app on a demo host that makes nobody wait."""
    return demo((0.0, 0.0))


async def in_mode_4(pilot: Pilot[None], app: GpuDoctor) -> None:
    await press(pilot, "4")
    assert isinstance(app.screen, BenchScreen)
    await wait_for(pilot, lambda: bool(app.board.bench.engines) and not app.board.bench.looking)


async def measured(pilot: Pilot[None], app: GpuDoctor, runs: int = 1) -> None:
    """Wait until so many runs of this session are there, and none is under way."""
    bencher = app._bencher
    await wait_for(pilot, lambda: len(bencher._runs) == runs and app.board.bench.going is None)


async def amid(pilot: Pilot[None], app: GpuDoctor) -> None:
    """Wait until blocks are being measured."""
    bench = app.board.bench
    await wait_for(
        pilot, lambda: bool(bench.going and bench.going.progress and bench.going.progress.done)
    )


async def selected(pilot: Pilot[None], app: GpuDoctor, checks: tuple[str, ...]) -> None:
    """Go to the plan with these checks selected."""
    await press(pilot, "2")
    app.board.chosen = checks
    app._replan()
    await wait_for(pilot, lambda: app.board.plan is not None)


async def applied(pilot: Pilot[None], app: GpuDoctor, checks: tuple[str, ...], key: str) -> None:
    """Apply checks, answering the question with a key, until they are applied."""
    await selected(pilot, app, checks)
    await press(pilot, "a")
    await wait_for(pilot, lambda: isinstance(app.screen, AskScreen))
    await press(pilot, key)
    await wait_for(pilot, lambda: app.board.applying is not None)
    applying = app.board.applying
    assert applying is not None
    await wait_for(pilot, lambda: applying.waits or not applying.unsettled)
    await wait_for(pilot, lambda: not app.board.running)


async def weighed(pilot: Pilot[None], app: GpuDoctor) -> Any:
    """Wait until what was measured stands beside the transaction, and return it."""
    assert app.board.applying is not None
    name, known = app.board.applying.id, app.board.bench.weighed
    await wait_for(pilot, lambda: name in known and not known[name].busy)
    return known[name]


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_mode_4_finds_the_engine_and_measures_it(size: tuple[int, int]) -> None:
    app = swift()
    async with running(app, size) as pilot:
        await in_mode_4(pilot, app)
        await wait_until_shown(pilot, app, "SGLang serves glm-5")
        for words in ("quick run", "full run", "No run of this host", "4 Benchmark"):
            assert words in shown(app)
        await press(pilot, "enter")
        await measured(pilot, app)
        await wait_until_shown(pilot, app, "8 streams (simulated)")
        for words in ("made up", "tok/s", "TPOT floor", "TPOT typical", "TTFT p50", "gaps p50"):
            assert words in shown(app)
        told = str(app.screen.query_one("#words", Static).visual)
        assert "  measured" in told and "  reachable" in told and "  roofline" in told
        assert not list(state_home().glob("*/*bench*"))  # the demo leaves nothing
    assert app.fault is None


async def test_a_run_is_judged_against_the_one_before_it() -> None:
    app = swift()
    async with running(app) as pilot:
        await in_mode_4(pilot, app)
        await press(pilot, "g")
        await measured(pilot, app)
        assert app.board.bench.shown is not None and app.board.bench.shown.told is None
        await press(pilot, "g")
        await measured(pilot, app, 2)
        await wait_until_shown(pilot, app, "inconclusive: simulated, time per token")
        assert "a claim must exceed 10.0% here" in shown(app)


async def test_a_full_run_tells_its_length_first_and_asks() -> None:
    app = swift()
    async with running(app, (80, 24)) as pilot:
        await in_mode_4(pilot, app)
        await press(pilot, "f")
        await wait_until_shown(pilot, app, "15 minutes at most")
        await press(pilot, "n")
        assert app.board.bench.going is None
        await ask(pilot, "f")
        await measured(pilot, app)
        run = app._bencher._runs[0]
        assert run.full and [len(level.blocks) for level in run.levels] == [8, 8]
        await press(pilot, "f")
        await wait_for(pilot, lambda: isinstance(app.screen, AskScreen))
        assert "It takes about" in shown(app)


@pytest.mark.parametrize("key", ["x", "escape"])
async def test_ending_a_run_keeps_its_blocks(key: str) -> None:
    app = demo(SLOW)
    async with running(app) as pilot:
        await in_mode_4(pilot, app)
        await press(pilot, "g")
        await amid(pilot, app)
        assert "▁" in shown(app) and "tok/s simulated" in shown(app) and "x End it" in shown(app)
        await press(pilot, key)
        await measured(pilot, app)
        run = app._bencher._runs[0]
        assert run.stopped and 0 < len(run.levels[0].blocks) < 4
        await wait_until_shown(pilot, app, "kept: the operator ended it")


async def test_ending_it_before_its_first_block_is_said() -> None:
    app = demo(SLOW)
    async with running(app) as pilot:
        await in_mode_4(pilot, app)
        await press(pilot, "g")
        await wait_for(pilot, lambda: bool(app.board.bench.going))
        await press(pilot, "x")
        await wait_for(pilot, lambda: app.board.bench.going is None)
        assert "measured" in app.board.bench.said and app.board.bench.shown is None


async def test_nothing_reads_or_changes_the_host_beside_a_run() -> None:
    app = demo(SLOW)
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await wait_for(pilot, lambda: app.board.result is not None and not app.board.running)
        await selected(pilot, app, NUMA)
        await in_mode_4(pilot, app)
        await press(pilot, "g")
        await amid(pilot, app)
        await press(pilot, "r")
        await wait_until_shown(pilot, app, "an audit would disturb it")
        assert not app.board.running
        await press(pilot, "2")
        await wait_until_shown(pilot, app, "a benchmark runs; nothing else")
        await press(pilot, "a")
        await wait_until_shown(pilot, app, "a change would disturb it")
        assert app.board.applying is None and app.board.bench.going is not None


async def test_no_run_begins_while_an_audit_reads() -> None:
    app = swift()
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await wait_for(pilot, lambda: app.board.result is not None and not app.board.running)
        await in_mode_4(pilot, app)
        app.board.running = True
        await press(pilot, "g")
        await wait_until_shown(pilot, app, "an audit reads the host")
        assert app.board.bench.going is None


Engines = Callable[..., Awaitable[tuple[AuditResult, list[Serving]]]]


def answering(app: GpuDoctor, *found: Serving | Refusal) -> Engines:
    """Return what finds these engines, or is refused."""

    async def engines_of(*_: object) -> tuple[AuditResult, list[Serving]]:
        for one in found:
            if isinstance(one, Refusal):
                raise one
        assert app.board.result is not None
        return app.board.result, [one for one in found if isinstance(one, Serving)]

    return engines_of


@pytest.mark.parametrize(
    "why", ["no serving engine found", "the engine at http://x wants an API key (HTTP 401)"]
)
async def test_why_there_is_nothing_to_measure_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    app = swift()
    async with running(app, (80, 24)) as pilot:
        monkeypatch.setattr("gpudoctor.bench.measure.engines_of", answering(app, Refusal(why)))
        await press(pilot, "4")
        await wait_until_shown(pilot, app, why)
        await press(pilot, "g")
        await wait_for(pilot, lambda: app.board.bench.said == why)
        assert app.board.bench.going is None


async def test_one_of_several_engines_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    app = swift()
    async with running(app) as pilot:
        await in_mode_4(pilot, app)
        assert app.board.bench.engines
        one = app.board.bench.engines[0]
        two = replace(one, url="http://127.0.0.1:9999", model="[/] other")
        monkeypatch.setattr("gpudoctor.bench.measure.engines_of", answering(app, one, two))
        await press(pilot, "1", "4")
        await wait_until_shown(pilot, app, "Engines: choose one")
        assert "[/] other" in shown(app)
        await press(pilot, "down", "enter")
        await measured(pilot, app)
        assert app._bencher._runs[0].serving.url == two.url


async def test_engines_that_share_a_url_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    app = swift()
    async with running(app) as pilot:
        await in_mode_4(pilot, app)
        assert app.board.bench.engines
        one = app.board.bench.engines[0]
        two = replace(one, container=ContainerRef("docker", "second"))
        monkeypatch.setattr("gpudoctor.bench.measure.engines_of", answering(app, one, two))
        await press(pilot, "1", "4")
        await wait_until_shown(pilot, app, "Engines: choose one")
        await press(pilot, "down", "enter")
        await measured(pilot, app)
        assert app._bencher._runs[0].serving.container == two.container
        await press(pilot, "up", "enter")
        await measured(pilot, app, 2)
        assert app._bencher._runs[0].serving.container == one.container
        shown_now = app.board.bench.shown
        assert shown_now is not None and shown_now.told is None  # the other is nothing to judge by


async def test_a_run_ends_where_its_look_is_still_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = swift()
    async with running(app) as pilot:
        await in_mode_4(pilot, app)
        assert app.board.result is not None and app.board.bench.engines
        found = app.board.result, list(app.board.bench.engines)
        go = asyncio.Event()

        async def slowly(*_: object) -> tuple[AuditResult, list[Serving]]:
            await go.wait()
            return found

        monkeypatch.setattr("gpudoctor.bench.measure.engines_of", slowly)
        await press(pilot, "1", "4")
        await wait_for(pilot, lambda: app.board.bench.looking)
        await press(pilot, "g")
        await wait_for(pilot, lambda: app.board.bench.going is not None)
        await press(pilot, "x")
        await wait_for(pilot, lambda: app.board.bench.going is None)
        assert app.board.bench.looking
        go.set()
        await wait_for(pilot, lambda: not app.board.bench.looking)
        assert app.board.bench.going is None and not app._bencher._runs


async def test_measured_before_and_after_a_change_it_stands_beside_it_and_is_undone() -> None:
    app = swift()
    async with running(app, (80, 24)) as pilot:
        await applied(pilot, app, NUMA, "m")
        told = await weighed(pilot, app)
        assert isinstance(app.screen, ApplyScreen)
        before, after = reversed(app._bencher._runs)
        assert (told.before, told.after) == (before, after)
        assert app.board.applying is not None
        assert (before.transaction, after.transaction) == ("", app.board.applying.id)
        assert before.tokens_asked == after.tokens_asked
        assert told.told.judgement is Judgement.INCONCLUSIVE and told.told.ratio < 1
        await wait_until_shown(pilot, app, "less time per token (-")
        assert "(simulated engine)" in shown(app).replace("\n", " ")
        await ask(pilot, "u")
        await wait_for(pilot, lambda: app.board.applying.state is State.UNDONE)  # type: ignore[union-attr]
        await wait_until_shown(pilot, app, "before it was taken back")
    assert app.fault is None


async def test_a_fresh_run_is_not_taken_again_and_a_full_one_judges_finely() -> None:
    app = swift()
    async with running(app) as pilot:
        await in_mode_4(pilot, app)
        await ask(pilot, "f")
        await measured(pilot, app)
        await applied(pilot, app, NUMA, "y")
        await wait_until_shown(pilot, app, "e measures what it did to decode")
        await press(pilot, "e")
        told = await weighed(pilot, app)
        assert len(app._bencher._runs) == 2 and told.after.full
        assert told.told.margin < 0.1 and told.told.ratio == pytest.approx(0.982, abs=0.01)
        await ask(pilot, "u")
        await wait_for(pilot, lambda: app.board.applying.state is State.UNDONE)  # type: ignore[union-attr]
        await wait_for(pilot, lambda: not app.board.running)
        # Undone since: the run of before says no more how it is now.
        await applied(pilot, app, NUMA, "m")
        await weighed(pilot, app)
        assert len(app._bencher._runs) == 4


async def test_without_a_run_before_it_there_is_nothing_to_compare_with() -> None:
    app = swift()
    async with running(app, (80, 24)) as pilot:
        await applied(pilot, app, NUMA, "y")
        await press(pilot, "e")
        told = await weighed(pilot, app)
        assert told.told is None and not app._bencher._runs
        await wait_until_shown(pilot, app, "there is nothing to compare with")


async def test_ending_the_run_before_it_applies_nothing() -> None:
    app = demo(SLOW)
    async with running(app) as pilot:
        await selected(pilot, app, NUMA)
        await press(pilot, "a")
        await wait_for(pilot, lambda: isinstance(app.screen, AskScreen))
        await press(pilot, "m")
        await amid(pilot, app)
        assert "before the change, which follows" in shown(app)
        await press(pilot, "x")
        await measured(pilot, app)
        await wait_for(pilot, lambda: not app._asking)
        assert app.board.applying is None and app.board.chosen == NUMA


async def test_a_plain_run_amid_the_countdown_is_dropped_once_the_change_is_gone() -> None:
    app = demo(SLOW)
    async with running(app) as pilot:
        await applied(pilot, app, RISKY, "y")
        await press(pilot, "4")
        await wait_for(pilot, lambda: bool(app.board.bench.engines))
        await press(pilot, "g")
        await amid(pilot, app)
        going, applying = app.board.bench.going, app.board.applying
        assert going is not None and applying is not None and going.holds()
        applying.state = State.UNDONE  # as its timer does
        await wait_for(pilot, lambda: app.board.bench.going is None)
        assert not app._bencher._runs
        assert app.board.bench.said == "not measured: the change was taken back meanwhile"


async def test_no_plain_run_begins_that_the_timer_would_spoil(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = swift()
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await wait_for(pilot, lambda: app.board.result is not None and not app.board.running)
        monkeypatch.setattr(app, "expected", lambda full=False: 61.0)
        await applied(pilot, app, RISKY, "y")
        await in_mode_4(pilot, app)
        for key in ("g", "f"):
            await press(pilot, key)
            await wait_until_shown(pilot, app, "measuring takes about 61 s")
        assert app.board.bench.going is None and not isinstance(app.screen, AskScreen)


async def test_a_run_ended_amid_the_eight_streams_is_a_base() -> None:
    app = demo(SLOW)
    async with running(app) as pilot:
        await in_mode_4(pilot, app)
        await press(pilot, "g")
        bench = app.board.bench
        await wait_for(
            pilot,
            lambda: bool(
                bench.going and bench.going.progress and "8" in bench.going.progress.phase
            ),
        )
        await press(pilot, "x")
        await measured(pilot, app)
        assert app._bencher._runs[0].stopped
        await applied(pilot, app, NUMA, "m")
        told = await weighed(pilot, app)
        assert told.before is app._bencher._runs[1] and told.told is not None


async def test_a_change_that_was_taken_back_elsewhere_is_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = swift()
    async with running(app) as pilot:
        await in_mode_4(pilot, app)
        await press(pilot, "g")
        await measured(pilot, app)
        await applied(pilot, app, NUMA, "y")

        async def none() -> list[Transaction]:
            return []

        monkeypatch.setattr(app._bencher, "_transactions", none)
        await press(pilot, "e")
        told = await weighed(pilot, app)
        assert told.said == "not measured: the change does not stand on the host"
        assert len(app._bencher._runs) == 1


async def test_measured_amid_the_countdown_and_kept_by_key() -> None:
    app = swift()
    async with running(app, (80, 24)) as pilot:
        await applied(pilot, app, RISKY, "m")
        told = await weighed(pilot, app)
        assert told.told is not None and app.board.applying is not None
        assert app.board.applying.waits  # never kept or undone by itself
        await press(pilot, "c")
        await wait_for(pilot, lambda: app.board.applying.state is State.CONFIRMED)  # type: ignore[union-attr]


async def test_a_run_that_would_outlast_the_timer_waits_for_the_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = swift()
    async with running(app) as pilot:
        monkeypatch.setattr(app, "expected", lambda full=False: 61.0)
        await applied(pilot, app, RISKY, "m")
        await wait_until_shown(pilot, app, "c keeps it first")
        assert len(app._bencher._runs) == 1
        await press(pilot, "c")
        told = await weighed(pilot, app)
        assert told.told is not None and len(app._bencher._runs) == 2


async def test_the_word_to_keep_goes_first_and_it_is_measured_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The word takes a login, and an audit follows it: nothing is measured beside them."""
    app = demo(SLOW)
    heard = asyncio.Event()

    async def slowly(*args: Any) -> Any:
        await heard.wait()
        return await confirm(*args)

    monkeypatch.setattr("gpudoctor.loop.confirm", slowly)
    async with running(app) as pilot:
        await in_mode_4(pilot, app)
        await press(pilot, "g")
        await measured(pilot, app)
        await applied(pilot, app, RISKY, "y")
        await press(pilot, "e")
        await amid(pilot, app)
        first = app.board.bench.going
        await press(pilot, "c")
        await wait_for(pilot, lambda: app.board.bench.going is None)
        for _ in range(5):
            await pilot.pause(0.1)
            assert app.board.bench.going is None
        heard.set()
        await wait_for(pilot, lambda: app.board.applying.state is State.CONFIRMED)  # type: ignore[union-attr]
        await amid(pilot, app)
        assert app.board.bench.going is not first and not app.board.running
        assert len(app._bencher._runs) == 1


@pytest.mark.parametrize("key", ["u", "q"])
async def test_undo_and_quit_end_the_run_at_once(key: str) -> None:
    app = demo(SLOW)
    async with running(app) as pilot:
        await in_mode_4(pilot, app)
        await press(pilot, "g")
        await measured(pilot, app)
        await applied(pilot, app, RISKY, "y")
        await press(pilot, "e")
        await amid(pilot, app)
        await press(pilot, key)
        if key == "q":
            await ask(pilot, "q") if not isinstance(app.screen, AskScreen) else await press(
                pilot, "y"
            )
            await wait_for(pilot, lambda: app.board.bench.going is None)
        else:
            told = await weighed(pilot, app)
            assert told.told is None
            assert app.board.applying is not None and app.board.applying.state is State.UNDONE
            assert app.board.bench.going is None and len(app._bencher._runs) == 1
    assert app.fault is None


@pytest.mark.parametrize(
    ("values", "text"),
    [((0.0305, 0.041, 0.9), "30.5, 41, 900 ms"), ((0.412, 1.2, 1.52), "0.412, 1.2, 1.52 s")],
)
def test_times_are_in_one_unit(values: tuple[float, float, float], text: str) -> None:
    assert _three(values) == text


def test_the_picture_of_rates_has_gaps_and_a_scale_from_zero() -> None:
    assert chart([4.0, None, 8.0], 4) == [" ▄ █"]
    assert chart([1.0, 8.0], 2, 2) == [" █", "▂█"]
    assert chart([0.0], 2) == ["  "] and chart([], 3) == ["   "]
