"""What the writing verbs print with --json: published models, one version for all of them."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpudoctor.model.finding import Needs
from gpudoctor.model.plan import State
from gpudoctor.model.probe import Side

_ERROR = "why it did not come to its end, or what --persist did not make last; or empty"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Answer(_Model):
    version: Literal[1] = 1


class ItemModel(_Model):
    """One value: `read`, `write` and `undo` are the very sh texts that run, as root."""

    name: str
    before: str
    wanted: str
    read: str
    write: str
    undo: str
    guard: str = Field(description="printed by this text: why the undo must not run; may be empty")
    lasting: bool = Field(description="true: what is written outlives a reboot")


class StepModel(_Model):
    """One change of one check."""

    check: str
    change: str
    side: Side
    risk: str
    needs: Needs
    caution: str
    proof: str = Field(description="where this kind of change was seen working")
    unproven: bool = Field(description="true: seen with a stand-in only; asked for twice")
    items: list[ItemModel]


class ByHandModel(_Model):
    """A worked plan: commands for this host that gpudoctor does not run itself."""

    check: str
    change: str
    commands: list[str]
    undo: list[str]
    risk: str
    needs: Needs
    caution: str
    observed: str
    expected: str
    targets: list[str]


class RefusedModel(_Model):
    """A check that is not planned, and why."""

    check: str
    why: str


class WayModel(_Model):
    """Another way to serve the same check: `name` is what `plan` and `fix` take."""

    name: str
    change: str


class PlanModel(_Model):
    """What would run, and its undo; `script` is the whole text, its bytes are what runs."""

    id: str
    host: str
    operator: str
    machine_id: str
    boot_id: str
    hash: str = Field(description="over the values that the plan was made from")
    confirm_within: int = Field(description="seconds until the target undoes it; 0 for no timer")
    steps: list[StepModel]
    by_hand: list[ByHandModel]
    already: list[str]
    refused: list[RefusedModel]
    other_ways: list[WayModel]
    script: str


class ItemMoveModel(_Model):
    """Something happened to the item of this number, so many seconds after the start."""

    item: int
    phase: str
    seconds: float
    detail: str


class StateMoveModel(_Model):
    """The transaction is in a new state."""

    state: State
    detail: str


class TimerMoveModel(_Model):
    """The target takes everything back in so many seconds, unless confirmed."""

    timer: float


MoveModel = ItemMoveModel | StateMoveModel | TimerMoveModel


class LastingModel(_Model):
    """The second transaction, which makes the first outlast a reboot (`--persist`)."""

    plan: PlanModel
    moves: list[MoveModel]


class PlanAnswer(_Answer):
    """`gpudoctor plan --json`."""

    plan: PlanModel


class FixAnswer(_Answer):
    """`gpudoctor fix --json`."""

    exit_code: int
    plan: PlanModel
    moves: list[MoveModel]
    persist: LastingModel | None
    not_lasting: list[str] = Field(description="changes that have no persistent form")
    confirm: str = Field(description="the command that keeps it, while the timer runs; or empty")
    undo: str = Field(description="the command that takes it back, where something stands")
    pending: bool = Field(description="true: the plans by hand were accepted")
    error: str = Field(description=_ERROR)


class RollbackAnswer(_Answer):
    """`gpudoctor rollback --json`."""

    exit_code: int
    transaction: str
    moves: list[MoveModel]
    error: str = Field(description="why it did not come to its end; or empty")


class ConfirmAnswer(_Answer):
    """`gpudoctor confirm --json`."""

    transaction: str
    state: State


class TransactionModel(_Model):
    """A transaction as its journal on the target tells it."""

    id: str
    state: State
    standing: str
    operator: str
    started: str
    steps: list[str]
    checks: list[str]
    boot_id: str
    stands: bool = Field(description="something of it is there that an undo takes back")
    epoch_ended: bool = Field(description="a reboot since then already undid it")
    interrupted: bool
    written: int = Field(description="values written and not taken back")
    timer: float | None = Field(description="seconds until the target undoes it; null: no timer")


class PendingPlanModel(_Model):
    """A worked plan that was accepted, for the next audit to judge."""

    check: str
    change: str
    accepted: str = Field(description="UTC, ISO 8601")
    done: str = Field(description="when an audit found it done; or empty")
    commands: list[str]
    undo: list[str]


class StatusAnswer(_Answer):
    """`gpudoctor status --json`."""

    host: str
    machine_id: str
    transactions: list[TransactionModel]
    pending: list[PendingPlanModel]


class CleanAnswer(_Answer):
    """`gpudoctor clean --json`."""

    exit_code: int
    removed: list[str]
    stays: list[TransactionModel]


_ANSWERS: dict[str, type[_Answer]] = {
    "plan": PlanAnswer,
    "fix": FixAnswer,
    "rollback": RollbackAnswer,
    "confirm": ConfirmAnswer,
    "status": StatusAnswer,
    "clean": CleanAnswer,
}


def writing_schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON schema of what each writing verb prints, by verb."""
    return {verb: model.model_json_schema(mode="serialization") for verb, model in _ANSWERS.items()}
