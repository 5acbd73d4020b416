"""A benchmark and its verdict as JSON, with its published schema."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from gpudoctor.bench.figures import figures, quantile
from gpudoctor.bench.witness import alike, witnessed
from gpudoctor.model import Unknown
from gpudoctor.model.bench import BenchRun, Comparison, Figures, Witness
from gpudoctor.model.ceiling import Ceiling


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Percentiles(_Model):
    """Seconds."""

    p50: float
    p90: float
    p99: float


class LevelModel(_Model):
    """What was measured with one number of streams; times in seconds, null where unknown."""

    streams: int
    blocks: int
    disturbed_blocks: int
    requests: int
    failed: int
    tokens: int
    tokens_estimated: bool
    output_tokens_per_second: float | None
    tpot_floor: float | None
    tpot_typical: float | None
    tpot_of_server: float | None
    ttft: Percentiles | None
    gaps: Percentiles | None
    spread: float | None


class EngineModel(_Model):
    """The engine that was measured; its key is never told, only the variable that held it."""

    kind: str
    model: str
    version: str
    url: str
    path: str
    container: str
    flags: list[str]
    api_key_env: str
    simulated: bool


class VerdictModel(_Model):
    """After over before, as time per token: below 1 is faster."""

    judgement: Literal["faster", "slower", "no difference seen", "inconclusive", "not comparable"]
    ratio: float | None
    low: float | None
    high: float | None
    confidence: float = 0.975
    margin: float
    detectable: float | None
    typical_ratio: float | None
    why: str
    flags: list[str]


class StandingModel(_Model):
    """Where one stream stands, in tokens a second; null where unknown, and `unknown` says why."""

    measured: float | None
    reachable: float | None
    roofline: float | None
    bytes_per_token: float | None
    bandwidth_gb_per_second: float | None
    assumptions: list[str]
    unknown: dict[str, str]


class SamplesModel(_Model):
    """Percentiles of samples, or values by what they are of; in the unit of the measurement."""

    samples: int
    p50: float | None
    p90: float | None
    p99: float | None
    by: dict[str, float]


class WitnessModel(_Model):
    """One direct measurement, now and before; `unknown` says why there is none now.

    `moved` is null where nothing is claimed: for single values, and without one before.
    """

    name: str
    unit: str
    how: str
    beside: str
    now: SamplesModel | None
    before: SamplesModel | None
    moved: Literal["improved", "worse", "no difference seen", "not comparable"] | None
    unknown: str


class BenchModel(_Model):
    """One run; `verdict` compares it with the one before, null where there is none."""

    version: Literal[1] = 1
    id: str
    taken: str
    host: str
    machine_id: str
    boot_id: str
    engine: EngineModel
    full: bool
    client: str
    tokens_asked: int
    levels: list[LevelModel]
    conditions: dict[str, str]
    readings: dict[str, str]
    remarks: list[str]
    stopped: str
    witnesses: list[WitnessModel]
    verdict: VerdictModel | None
    standing: StandingModel | None


def bench_json(
    run: BenchRun,
    comparison: Comparison | None = None,
    ceiling: Ceiling | None = None,
    before: BenchRun | None = None,
) -> str:
    """Return a run as one JSON document."""
    return bench_model(run, comparison, ceiling, before).model_dump_json(indent=2) + "\n"


def bench_schema() -> dict[str, Any]:
    """Return the JSON schema of `bench --json`."""
    return BenchModel.model_json_schema()


def bench_model(
    run: BenchRun,
    comparison: Comparison | None,
    ceiling: Ceiling | None = None,
    before: BenchRun | None = None,
) -> BenchModel:
    """Return a run as its published model."""
    earlier = before.witnesses if before else ()
    serving = run.serving
    return BenchModel(
        id=run.id,
        taken=run.taken,
        host=run.label,
        machine_id=run.machine_id,
        boot_id=run.boot_id,
        engine=EngineModel(
            kind=serving.kind,
            model=serving.model,
            version=serving.version,
            url=serving.url,
            path=serving.path,
            container=str(serving.container or ""),
            flags=list(serving.flags),
            api_key_env=serving.api_key_env,
            simulated=serving.simulated,
        ),
        full=run.full,
        client=run.path,
        tokens_asked=run.tokens_asked,
        levels=[
            _level(figures(level), len(level.blocks), sum(bool(b.foreign) for b in level.blocks))
            for level in run.levels
        ],
        conditions=dict(run.conditions.values),
        readings=dict(run.conditions.readings),
        remarks=list(run.remarks),
        stopped=run.stopped,
        witnesses=[witness_model(one, alike(one, earlier)) for one in run.witnesses],
        verdict=None if comparison is None else verdict_model(comparison),
        standing=None if ceiling is None else _standing(run, ceiling),
    )


def witness_model(now: Witness, before: Witness | None) -> WitnessModel:
    """Return a direct measurement, and one before it, as their published model."""
    told = None if before is None or now.labels else witnessed(before, now)
    return WitnessModel(
        name=now.name,
        unit=now.unit,
        how=now.how,
        beside=now.beside,
        now=_samples(now),
        before=None if before is None else _samples(before),
        moved=None if told is None else told.moved.value,
        unknown=now.unknown,
    )


def _samples(one: Witness) -> SamplesModel | None:
    if one.unknown:
        return None
    p50, p90, p99 = (
        None if one.labels else quantile(one.values, share) for share in (0.5, 0.9, 0.99)
    )
    by = dict(zip(one.labels, one.values, strict=True)) if one.labels else {}
    return SamplesModel(samples=len(one.values), p50=p50, p90=p90, p99=p99, by=by)


def _standing(run: BenchRun, ceiling: Ceiling) -> StandingModel:
    level = run.level(1)
    bounds = {
        "reachable": ceiling.reachable,
        "roofline": ceiling.roofline,
        "bytes_per_token": ceiling.bytes_per_token,
        "bandwidth_gb_per_second": ceiling.bandwidth,
    }
    known = {name: None if isinstance(v, Unknown) else v for name, v in bounds.items()}
    return StandingModel(
        measured=figures(level).rate if level else None,
        **known,
        assumptions=[*ceiling.assumptions, *ceiling.latencies],
        unknown={name: str(v) for name, v in bounds.items() if isinstance(v, Unknown)},
    )


def _level(told: Figures, blocks: int, disturbed: int) -> LevelModel:
    return LevelModel(
        streams=told.streams,
        blocks=blocks,
        disturbed_blocks=disturbed,
        requests=told.requests,
        failed=told.failed,
        tokens=told.tokens,
        tokens_estimated=told.estimated,
        output_tokens_per_second=told.rate,
        tpot_floor=told.floor,
        tpot_typical=told.typical,
        tpot_of_server=told.server,
        ttft=_three(told.ttft),
        gaps=_three(told.gap),
        spread=told.spread,
    )


def _three(values: tuple[float, float, float] | None) -> Percentiles | None:
    return None if values is None else Percentiles(p50=values[0], p90=values[1], p99=values[2])


def verdict_model(told: Comparison) -> VerdictModel:
    """Return a verdict as its published model."""
    return VerdictModel(
        judgement=told.judgement.value,
        ratio=told.ratio,
        low=told.low,
        high=told.high,
        margin=told.margin,
        detectable=told.detectable,
        typical_ratio=told.typical,
        why=told.why,
        flags=list(told.flags),
    )
