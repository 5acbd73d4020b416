"""A diff as JSON: published models, one version, the same content as the text."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpudoctor import __version__
from gpudoctor.model.diff import Diff, Difference, Moved, Sort
from gpudoctor.model.snapshot import Kind, SnapshotHead
from gpudoctor.text import clean

SCHEMA_VERSION: Literal[1] = 1


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DiffSideModel(_Model):
    """One of the two that are compared."""

    id: str = Field(description="empty for a live audit")
    kind: Kind
    label: str
    path: str = Field(description="the file; empty for a live audit")
    taken: str = Field(description="UTC, ISO 8601")
    tool: str = Field(description="the gpudoctor that read it")
    hostname: str
    machine_id: str
    system_uuid: str = Field(description="the firmware's, read by root: it tells clones apart")
    boot_id: str
    kernel: str
    container: str = Field(description="the container that was entered, or empty")
    transaction: str = Field(description="the transaction whose before or after it is, or empty")
    note: str
    simulated: bool
    altered: bool = Field(description="true: the file was changed after it was written")


class DifferenceModel(_Model):
    """One thing that differs; an absent value is empty."""

    moved: Moved
    sort: Sort | None = Field(description="null for a finding")
    of: str = Field(description="of which thing; of a finding, its targets")
    what: str = Field(description="which value of it; of a finding, its check")
    before: str
    after: str
    by: str = Field(description="by whom or what, or why it was not read; empty where not known")
    items: list[str] = Field(description="the things it stands for, where many differ alike")


class DiffModel(_Model):
    """All that differs; `not_read` is what only one side could read: neither gone nor changed."""

    version: Literal[1]
    gpudoctor: str
    old: DiffSideModel
    new: DiffSideModel
    empty: bool
    remarks: list[str]
    findings: list[DifferenceModel]
    inventory: list[DifferenceModel]
    settings: list[DifferenceModel]
    counters: list[DifferenceModel]
    not_read: list[DifferenceModel]
    same: int = Field(description="values that were compared and are equal")
    left_out: int = Field(description="values and checks that only one side could read")


def diff_json(diff: Diff) -> str:
    """Return the diff as one JSON document."""
    model = DiffModel(
        version=SCHEMA_VERSION,
        gpudoctor=__version__,
        old=_side(diff.old),
        new=_side(diff.new),
        empty=diff.empty,
        remarks=list(diff.remarks),
        findings=_rows(diff.findings),
        inventory=_rows(diff.inventory),
        settings=_rows(diff.settings),
        counters=_rows(diff.counters),
        not_read=_rows(diff.not_read),
        same=diff.same,
        left_out=diff.left_out,
    )
    return model.model_dump_json(indent=2) + "\n"


def diff_schema() -> dict[str, Any]:
    """Return the JSON schema of `diff_json`."""
    return DiffModel.model_json_schema(mode="serialization")


def _side(head: SnapshotHead) -> DiffSideModel:
    who = head.identity
    return DiffSideModel(
        id=head.id,
        kind=head.kind,
        label=head.label,
        path=clean(head.path),
        taken=head.taken,
        tool=head.tool,
        hostname=who.hostname,
        machine_id=who.machine_id,
        system_uuid=who.system_uuid,
        boot_id=who.boot_id,
        kernel=who.kernel,
        container=head.container,
        transaction=head.transaction,
        note=head.note,
        simulated=head.simulated,
        altered=head.altered,
    )


def _rows(found: Sequence[Difference]) -> list[DifferenceModel]:
    return [
        DifferenceModel(
            moved=one.moved,
            sort=one.sort,
            of=one.name.of,
            what=one.name.what,
            before=one.before,
            after=one.after,
            by=one.by,
            items=list(one.items),
        )
        for one in found
    ]
