"""What the two heads of a diff say before anything is compared, as sentences."""

from gpudoctor.model.snapshot import Kind, SnapshotHead
from gpudoctor.snapshots.clones import are_two
from gpudoctor.snapshots.head import when


def is_same_machine(old: SnapshotHead, new: SnapshotHead) -> bool:
    """Return whether both are of one machine, by machine id; where one has none, by hostname.

    Two system UUIDs are two machines, whatever the image says that both were cloned from.
    """
    then, now = old.identity, new.identity
    if old.simulated != new.simulated:
        return False
    if then.machine_id and now.machine_id:
        return then.machine_id == now.machine_id and not _clones(old, new)
    if then.hostname and now.hostname:
        return then.hostname == now.hostname
    return True


def _clones(old: SnapshotHead, new: SnapshotHead) -> bool:
    then, now = old.identity, new.identity
    same = then.machine_id != "" and then.machine_id == now.machine_id
    return same and are_two(then.system_uuid, now.system_uuid)


def remarks(old: SnapshotHead, new: SnapshotHead) -> tuple[str, ...]:
    """Return what an operator must know to read the diff."""
    found = [
        _machines(old, new),
        _order(old, new),
        _boot(old, new),
        _containers(old, new),
        _transactions(old, new),
        _tools(old, new),
        *(
            f"{head.id or head.path} was changed after it was written"
            for head in (old, new)
            if head.altered
        ),
    ]
    return tuple(filter(None, found))


def _machines(old: SnapshotHead, new: SnapshotHead) -> str:
    if old.simulated != new.simulated:
        return "one of the two is the simulated demo host, which is no machine"
    if _clones(old, new):
        uuids = (head.identity.system_uuid for head in (old, new))
        return (
            "two machines (clones: one machine id, two system UUIDs, {} and {}), or one of which "
            "the board was replaced: counters are not compared"
        ).format(*uuids)
    if not is_same_machine(old, new):
        names = (head.identity.hostname or head.label for head in (old, new))
        return "two different machines ({} and {}): counters are not compared".format(*names)
    if not (old.identity.machine_id and new.identity.machine_id):
        return "whether both are of one machine is not certain: a machine id was not read"
    return ""


def _order(old: SnapshotHead, new: SnapshotHead) -> str:
    then, now = when(old), when(new)
    return "the first was taken after the second" if then and now and then > now else ""


def _boot(old: SnapshotHead, new: SnapshotHead) -> str:
    then, now = old.identity.boot_id, new.identity.boot_id
    if then and now and then != now and is_same_machine(old, new):
        return "the host was booted anew between the two"
    return ""


def _containers(old: SnapshotHead, new: SnapshotHead) -> str:
    if old.container == new.container:
        return ""
    names = (head.container or "none" for head in (old, new))
    return "another container was entered: {} then, {} now".format(*names)


def _transactions(old: SnapshotHead, new: SnapshotHead) -> str:
    then, now = old.transaction, new.transaction
    if then and then == now:
        return f"the two are the before and after of transaction {then}"
    between = []
    if then and old.kind is Kind.BEFORE:
        between.append(then)
    if now and new.kind is Kind.AFTER:
        between.append(now)
    names = " and ".join(between)
    return f"between the two ran transaction {names}, and perhaps others" if between else ""


def _tools(old: SnapshotHead, new: SnapshotHead) -> str:
    if old.tool == new.tool:
        return ""
    return f"taken by gpudoctor {old.tool} and {new.tool}; both are judged by today's checks"
