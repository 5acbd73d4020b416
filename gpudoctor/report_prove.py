"""What fixes do by themselves, as text and as JSON."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from gpudoctor.model.bench import Judgement, Proof
from gpudoctor.report_bench import SIMULATED, verdict_lines
from gpudoctor.report_bench_json import VerdictModel, verdict_model
from gpudoctor.text import one_line


def plain(proof: Proof) -> str:
    """Return each fix with its effect and interval, and what to keep."""
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
            lines += [f"  {line}" for line in verdict_lines(one.comparison)]
    if proof.stopped:
        lines += ["", f"stopped early: {one_line(proof.stopped, 200)}"]
    return "\n".join([*lines, "", kept(proof)]) + "\n"


def kept(proof: Proof) -> str:
    """Return what the host is like now, and the command for what helped."""
    faster = [
        one.check
        for one in proof.proved
        if one.comparison is not None and one.comparison.judgement is Judgement.FASTER
    ]
    if not faster:
        return "The host is as it was before."
    return f"The host is as it was before; to apply what helped: gpudoctor fix {' '.join(faster)}"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ProvedModel(_Model):
    """One fix; `verdict` is null where `failed` says why it was not measured."""

    check: str
    changes: list[str]
    blocks: int
    verdict: VerdictModel | None
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
                failed=one.failed,
            )
            for one in proof.proved
        ],
        stopped=proof.stopped,
    )
    return model.model_dump_json(indent=2) + "\n"


def proof_schema() -> dict[str, Any]:
    """Return the JSON schema of `prove --json`."""
    return ProofModel.model_json_schema()
