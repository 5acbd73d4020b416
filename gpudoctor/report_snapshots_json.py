"""The store's snapshots as JSON: published models, one version for all verbs about them."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpudoctor.model.finding import Status
from gpudoctor.model.snapshot import KeptFinding, Kind, Otherwise, SnapshotHead, Unreadable
from gpudoctor.text import clean


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HeadModel(_Model):
    """A snapshot's header; empty strings where the host did not tell."""

    id: str
    kind: Kind
    host: str = Field(description="the name by which the host was reached")
    user: str = Field(description="root, or the uid that the host let us be; empty: from files")
    taken: str = Field(description="UTC, ISO 8601")
    gpudoctor: str = Field(description="the version that wrote it")
    file: str
    bytes: int
    hostname: str
    machine_id: str
    system_uuid: str = Field(description="the firmware's, read by root: it tells clones apart")
    boot_id: str
    kernel: str
    system: str
    product: str
    container: str = Field(description="the container that was entered, like lxc:101; or empty")
    transaction: str = Field(description="the transaction it was taken before or after; or empty")
    note: str
    simulated: bool = Field(description="true for the bundled demo host: not a machine")
    altered: bool = Field(description="true: changed after it was written, the checksum is wrong")


class UnreadableModel(_Model):
    """A file in the store that is no snapshot that can be read, and why."""

    file: str
    why: str


class KeptFindingModel(_Model):
    """What one check says, as a snapshot keeps it."""

    id: str
    panel: str
    status: Status
    cls: str = Field(alias="class", description="P0, P1, P2 or FW; or empty")
    impact: str
    needs: str
    scope: str
    target: list[str]
    summary: str
    observed: str
    expected: str
    reason: str = Field(description="why it is unknown, where it is")


class OtherwiseModel(_Model):
    """A check of which today's rules say something else than those of then."""

    check: str
    then: str
    today: str


class KeptBackModel(_Model):
    """A snapshot that was old enough to go, and why it stays."""

    snapshot: HeadModel
    why: str


class _Answer(_Model):
    version: Literal[1] = 1


class TakeAnswer(_Answer):
    """`gpudoctor snapshot take --json`."""

    exit_code: int
    snapshot: HeadModel
    incomplete: bool
    problems: list[str] = Field(description="what should have answered and did not")
    note_problem: str = Field(description="why the note was not kept; or empty")


class ListAnswer(_Answer):
    """`gpudoctor snapshot list --json`; newest first."""

    snapshots: list[HeadModel]
    unreadable: list[UnreadableModel]


class ShowAnswer(_Answer):
    """`gpudoctor snapshot show --json`."""

    snapshot: HeadModel
    as_found: bool = Field(description="true: the findings of then; false: judged anew, today")
    same_rules: bool = Field(description="true: today's rules are those that judged it then")
    problems: list[str] = Field(description="what should have answered then and did not")
    findings: list[KeptFindingModel]
    otherwise: list[OtherwiseModel] = Field(description="empty with as_found")


class TagAnswer(_Answer):
    """`gpudoctor snapshot tag --json`."""

    snapshot: HeadModel


class PruneAnswer(_Answer):
    """`gpudoctor snapshot prune --json`."""

    exit_code: int
    removed: list[HeadModel]
    kept: list[KeptBackModel]
    not_asked: str = Field(description="hosts not asked what stands there, and why; or empty")
    not_removed: list[UnreadableModel] = Field(description="what could not be removed, and why")
    unfinished: int = Field(description="files of killed writers that were removed")
    unreadable: list[UnreadableModel] = Field(description="never removed")


_ANSWERS: dict[str, type[_Answer]] = {
    "take": TakeAnswer,
    "list": ListAnswer,
    "show": ShowAnswer,
    "tag": TagAnswer,
    "prune": PruneAnswer,
}


def snapshot_schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON schema of what each verb about the store prints, as `snapshot-VERB`."""
    return {
        f"snapshot-{verb}": model.model_json_schema(by_alias=True, mode="serialization")
        for verb, model in _ANSWERS.items()
    }


def head_model(head: SnapshotHead) -> HeadModel:
    """Return a header as its published model."""
    who = head.identity
    return HeadModel(
        id=head.id,
        kind=head.kind,
        host=head.label,
        user=head.user,
        taken=head.taken,
        gpudoctor=head.tool,
        file=clean(head.path),
        bytes=head.size,
        hostname=who.hostname,
        machine_id=who.machine_id,
        system_uuid=who.system_uuid,
        boot_id=who.boot_id,
        kernel=who.kernel,
        system=who.system,
        product=who.product,
        container=head.container,
        transaction=head.transaction,
        note=head.note,
        simulated=head.simulated,
        altered=head.altered,
    )


def unreadable_models(files: Iterable[Unreadable]) -> list[UnreadableModel]:
    """Return the files that are no snapshots as their published models."""
    return [UnreadableModel(file=clean(one.path), why=clean(one.why)) for one in files]


def _finding(finding: KeptFinding) -> KeptFindingModel:
    fields: dict[str, Any] = {"class": finding.cls}
    return KeptFindingModel(
        **fields,
        id=finding.id,
        panel=finding.panel,
        status=Status(finding.status),
        impact=finding.impact,
        needs=finding.needs,
        scope=finding.scope,
        target=list(finding.targets),
        summary=finding.summary,
        observed=finding.observed,
        expected=finding.expected,
        reason=finding.reason,
    )


def take_json(head: SnapshotHead, code: int, problems: Sequence[str], note_problem: str) -> str:
    """Return what `snapshot take --json` prints."""
    return _text(
        TakeAnswer(
            exit_code=code,
            snapshot=head_model(head),
            incomplete=bool(problems),
            problems=list(problems),
            note_problem=note_problem,
        )
    )


def list_json(heads: Iterable[SnapshotHead], unreadable: Iterable[Unreadable]) -> str:
    """Return what `snapshot list --json` prints."""
    models = [head_model(head) for head in heads]
    return _text(ListAnswer(snapshots=models, unreadable=unreadable_models(unreadable)))


def show_json(
    head: SnapshotHead,
    as_found: bool,
    same_rules: bool,
    problems: Sequence[str],
    findings: Iterable[KeptFinding],
    told: Iterable[Otherwise],
) -> str:
    """Return what `snapshot show --json` prints."""
    answer = ShowAnswer(
        snapshot=head_model(head),
        as_found=as_found,
        same_rules=same_rules,
        problems=list(problems),
        findings=[_finding(finding) for finding in findings],
        otherwise=[OtherwiseModel(check=o.check, then=o.then, today=o.today) for o in told],
    )
    return _text(answer)


def tag_json(head: SnapshotHead) -> str:
    """Return what `snapshot tag --json` prints."""
    return _text(TagAnswer(snapshot=head_model(head)))


def prune_json(
    code: int,
    removed: Iterable[SnapshotHead],
    kept: Iterable[tuple[SnapshotHead, str]],
    not_removed: Iterable[Unreadable],
    unfinished: int,
    unreadable: Iterable[Unreadable],
    not_asked: str,
) -> str:
    """Return what `snapshot prune --json` prints."""
    answer = PruneAnswer(
        exit_code=code,
        removed=[head_model(head) for head in removed],
        kept=[KeptBackModel(snapshot=head_model(head), why=why) for head, why in kept],
        not_asked=not_asked,
        not_removed=unreadable_models(not_removed),
        unfinished=unfinished,
        unreadable=unreadable_models(unreadable),
    )
    return _text(answer)


def _text(answer: BaseModel) -> str:
    return answer.model_dump_json(by_alias=True, indent=2) + "\n"
