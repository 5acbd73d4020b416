"""What fixes do by themselves, as text and as JSON."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from gpudoctor.bench.witness import Kind
from gpudoctor.model.bench import Judgement, Proof, Proved
from gpudoctor.report_bench import SIMULATED, verdict_lines, witnessed_lines
from gpudoctor.report_bench_json import (
    VerdictModel,
    WitnessModel,
    verdict_model,
    witness_model,
)
from gpudoctor.text import one_line


def plain(proof: Proof, fix: str = "gpudoctor fix") -> str:
    """Return each fix with its effect and interval, and what to keep, with the command for it."""
    serving = proof.serving
    lines = [SIMULATED] if serving.simulated else []
    lines += [
        f"{one_line(proof.label, 80)}: {one_line(serving.kind, 40)} serves "
        f"{one_line(serving.model, 80)}; {proof.rounds} rounds in random order, "
        f"{proof.tokens_asked} tokens a request, one stream",
    ]
    for one in proof.proved:
        lines += ["", f"{one.check}  {one_line('; '.join(one.titles), 200)}"]
        if one.comparison is None:
            lines.append(f"  not measured: {one_line(one.failed, 300)}")
        else:
            lines += [f"  {line}" for line in [*verdict_lines(one.comparison), *_witness(one)]]
    if proof.stopped:
        lines += ["", f"stopped early: {one_line(proof.stopped, 200)}"]
    if proof.left:
        lines += ["", f"note: {one_line(proof.left, 300)}"]
    return "\n".join([*lines, "", kept(proof, fix)]) + "\n"


def _witness(one: Proved) -> list[str]:
    return [Kind.VALUE] if one.witnessed is None else witnessed_lines(one.witnessed)


def kept(proof: Proof, fix: str) -> str:
    """Return what the host is like now, and the command for what helped."""
    helped = faster(proof)
    if not helped:
        return "The host is as it was before."
    return f"The host is as it was before; to apply what helped: {fix} {' '.join(helped)}"


def faster(proof: Proof) -> list[str]:
    """Return the fixes, as they were named, that were proved faster."""
    return [
        one.check
        for one in proof.proved
        if one.comparison is not None and one.comparison.judgement is Judgement.FASTER
    ]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ProvedModel(_Model):
    """One fix; `verdict` is null where `failed` says why it was not measured.

    `witness` is null where nothing but the value read back tells what the fix does.
    """

    check: str
    changes: list[str]
    blocks: int
    verdict: VerdictModel | None
    witness: WitnessModel | None
    failed: str


class ProofModel(_Model):
    """Fixes that were turned on and off; the host is as it was before."""

    version: Literal[1] = 1
    host: str
    taken: str
    engine: str
    model: str
    simulated: bool
    tokens_asked: int
    rounds: int
    blocks_without: int
    proved: list[ProvedModel]
    stopped: str
    left: str


def proof_json(proof: Proof) -> str:
    """Return a proof as one JSON document."""
    model = ProofModel(
        host=proof.label,
        taken=proof.taken,
        engine=proof.serving.kind,
        model=proof.serving.model,
        simulated=proof.serving.simulated,
        tokens_asked=proof.tokens_asked,
        rounds=proof.rounds,
        blocks_without=len(proof.off),
        proved=[
            ProvedModel(
                check=one.check,
                changes=list(one.titles),
                blocks=len(one.blocks),
                verdict=None if one.comparison is None else verdict_model(one.comparison),
                witness=None
                if one.witnessed is None
                else witness_model(one.witnessed.after, one.witnessed.before),
                failed=one.failed,
            )
            for one in proof.proved
        ],
        stopped=proof.stopped,
        left=proof.left,
    )
    return model.model_dump_json(indent=2) + "\n"


def proof_schema() -> dict[str, Any]:
    """Return the JSON schema of `prove --json`."""
    return ProofModel.model_json_schema()
