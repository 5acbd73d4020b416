"""Transactions: a plan's script put on the target and started there, detached; we only watch.

Whatever becomes of the client, the target finishes or undoes itself, and any client can look again.
"""

import asyncio
import base64
import hashlib
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from gpudoctor.formats.bulk import entry_key, parse_both
from gpudoctor.hosts.root_shell import (
    RECONNECT_SECONDS,
    LiveShell,
    SimulatedShell,
    open_shell,
    require_root,
)
from gpudoctor.hosts.session import JobAnswer
from gpudoctor.hosts.target import Target
from gpudoctor.journal import parse, steps_of, tell
from gpudoctor.model import Unknown
from gpudoctor.model.error import HostUnreachable, Refusal, UnknownHostKey
from gpudoctor.model.plan import Plan, State, StateMoved, Transaction
from gpudoctor.plan import default_operator
from gpudoctor.shell import list_entries, quote, read_files
from gpudoctor.snapshots.plans import drop as drop_plan
from gpudoctor.snapshots.store import keep_script
from gpudoctor.text import one_line
from gpudoctor.transaction_script import PLACES, Places, clean_text
from gpudoctor.transaction_simulated import (
    apply_simulated,
    clean_simulated,
    confirm_simulated,
    told_simulated,
    undo_simulated,
    watch_simulated,
)
from gpudoctor.transaction_watch import NO_SCRIPT, Moves, Watch, runs_text

# A transaction with its steps: check and title of each.
Journaled = tuple[Transaction, tuple[tuple[str, str], ...]]
Files = Mapping[str, bytes | Unknown]
ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_CHUNK = 60_000
# Bytes read of a journal, and of all that one look reads.
_JOURNAL_CAP, JOURNALS_CAP = 1 << 18, 16 << 20
# Of what is said of files that are not there: a line each.
COMPLAINTS_CAP = 1 << 18
# How long the target may wait for its lock before it says whether it confirmed, in seconds.
_CONFIRM_SECONDS = 45.0
# How long a login to confirm is tried, and the wait between two tries, in seconds.
_LOGIN_SECONDS, _LOGIN_WAIT = 15.0, 0.5
# How long listing the transactions and reading their journals may take.
_LOOK_SECONDS = 20.0
_TOOLS = "flock setsid dd sync base64 sha256sum awk cmp cut grep sed sort tr"


async def apply(target: Target, plan: Plan, places: Places = PLACES) -> Moves:
    """Yield what happens while the plan is applied on the target; the last is its final state.

    Takes a target that is not connected. Raises Refusal where nothing was written (code 1), and
    HostUnreachable where the line is lost for good: the transaction then goes on without us.
    """
    if not plan.steps:
        raise Refusal("there is nothing to apply in this plan", 1)
    shell = await open_shell(target)
    try:
        require_root(shell.user, "applying a fix")
        if isinstance(shell, SimulatedShell):
            async for move in apply_simulated(shell.machine, plan, places):
                yield move
            return
        keep_script(plan)
        await _put(shell, plan, places)
        async for move in Watch(shell, plan.id, places).run("apply", plan.operator):
            yield move
    finally:
        await asyncio.shield(shell.close())


async def undo(target: Target, transaction: str, places: Places = PLACES) -> Moves:
    """Yield what happens while a transaction is taken back; the last is its final state.

    Takes a target that is not connected. Raises Refusal where nothing was touched (code 1).
    """
    known = {t.id: t for t in await transactions(target, places)}
    if transaction not in known:
        raise Refusal(f"there is no transaction {one_line(transaction, 60)} on {target.label}", 1)
    state = known[transaction].state
    if state in {State.UNDONE, State.FAILED}:
        yield StateMoved(State.UNDONE, "nothing of it is left to undo")
        return
    shell = await open_shell(target)
    try:
        if isinstance(shell, SimulatedShell):
            async for move in undo_simulated(shell.machine, transaction, places):
                yield move
            return
        async for move in Watch(shell, transaction, places).run("undo", default_operator()):
            if isinstance(move, StateMoved) and move.state is State.UNDONE:
                drop_plan(transaction)  # the story after a reboot does not tell of it
            yield move
    finally:
        await asyncio.shield(shell.close())


async def watch(target: Target, transaction: str, places: Places = PLACES) -> Moves:
    """Yield how a transaction that waits to be confirmed goes on, until it is over.

    Takes a target that is not connected. Raises HostUnreachable where the line is lost for good.
    """
    shell = await _reach(target, RECONNECT_SECONDS)
    try:
        if isinstance(shell, SimulatedShell):
            async for move in watch_simulated(shell.machine, transaction, places):
                yield move
            return
        async for move in Watch(shell, transaction, places).follow():
            yield move
    finally:
        await asyncio.shield(shell.close())


async def confirm(target: Target, transaction: str, places: Places = PLACES) -> StateMoved:
    """Keep what was applied: its timer is disarmed. Raises Refusal (code 1) where that is too late.

    Takes a target that is not connected: the login shows that the host can still be reached.
    """
    shell = await _reach(target, _LOGIN_SECONDS)
    try:
        require_root(shell.user, "confirming a transaction")
        if isinstance(shell, SimulatedShell):
            return confirm_simulated(shell.machine, transaction, places)
        script = quote(places.script(transaction))
        answer = await shell.run(
            f"[ -s {script} ] || exit {NO_SCRIPT}; cd / && exec env -i "
            f"GPUDOCTOR_BY={quote(default_operator())} sh {script} confirm",
            limit=_CONFIRM_SECONDS,
        )
    finally:
        await asyncio.shield(shell.close())
    if answer.lost is not None:
        raise HostUnreachable(
            f"whether {transaction} was confirmed is not known ({answer.lost.detail}): ask "
            "`gpudoctor status`"
        )
    if answer.exit == NO_SCRIPT:
        raise Refusal(f"there is no transaction {one_line(transaction, 60)} on {target.label}", 1)
    if answer.exit:
        raise Refusal(one_line(answer.stderr).removeprefix("refused: "), 1)
    return StateMoved(State.CONFIRMED)


async def _reach(target: Target, seconds: float) -> LiveShell | SimulatedShell:
    """Open a shell, trying that long: a host whose sshd restarts is back soon."""
    end = time.monotonic() + seconds
    while True:
        try:
            return await open_shell(target)
        except UnknownHostKey:
            raise
        except HostUnreachable:
            if time.monotonic() > end:
                raise
        await asyncio.sleep(_LOGIN_WAIT)


async def clean(
    target: Target,
    forget: bool = False,
    places: Places = PLACES,
    only: Collection[str] | None = None,
) -> tuple[list[str], list[Transaction]]:
    """Remove what is ours from the target and return what went, and what stays since it stands.

    `only` names those that may go. With `forget` the transactions that stand go too, their changes
    stay and cannot be undone. Takes a target that is not connected. Raises Refusal, also while a
    timer may still undo one.
    """
    known = await transactions(target, places)
    waits = next((t.id for t in known if t.timer is not None), "")
    if forget and waits:
        raise Refusal(f"{waits} waits to be confirmed: confirm it, or roll it back first", 1)
    mine = [t for t in known if only is None or t.id in only]
    going = {t.id: t.state for t in mine if forget or not t.stands}
    shell = await open_shell(target)
    try:
        if isinstance(shell, SimulatedShell):
            clean_simulated(shell.machine, list(going), places)
            return list(going), [t for t in known if t.id not in going]
        answer = await shell.run(clean_text(going, places))
    finally:
        await asyncio.shield(shell.close())
    if answer.lost is not None:
        raise HostUnreachable(f"the target was not cleaned: {answer.lost.detail}")
    if answer.exit:
        raise Refusal(f"the target was not cleaned: {one_line(answer.stderr) or 'busy'}", 1)
    gone = answer.stdout.decode("ascii", "replace").split()
    return gone, [t for t in known if t.id not in gone]


async def transactions(target: Target, places: Places = PLACES) -> list[Transaction]:
    """Return the transactions that the target keeps, oldest first. Raises Refusal.

    Takes a target that is not connected.
    """
    shell = await open_shell(target)
    try:
        require_root(shell.user, "reading the transactions")
        if isinstance(shell, SimulatedShell):
            told = told_simulated(shell.machine, places)
        else:
            told = await _told(shell, places)
    finally:
        await asyncio.shield(shell.close())
    return in_order(told)


def in_order(told: Iterable[Transaction]) -> list[Transaction]:
    """Return transactions as they began: within a boot by its uptime, finer than seconds."""
    known = list(told)
    boots: dict[str, str] = {}
    for one in known:
        boots[one.boot_id] = min(boots.get(one.boot_id, one.started), one.started)
    return sorted(known, key=lambda t: (boots[t.boot_id], t.boot_id, t.began, t.started))


async def _told(shell: LiveShell, places: Places) -> list[Transaction]:
    return [one for one, _ in (await journals(shell, places))[0].values()]


async def journals(
    shell: LiveShell,
    places: Places = PLACES,
    beside: Sequence[str] = (),
    entries: Sequence[str] = (),
) -> tuple[dict[str, Journaled], Files]:
    """Return each transaction there by its id, with its steps, and what was read in the same job.

    Takes root's shell, opened, the paths of files and those of entries to list, which come by
    their `entry_key`. Raises HostUnreachable.
    """
    text = journals_text(places, beside, entries)
    answer = await shell.run(text, JOURNALS_CAP, _LOOK_SECONDS, COMPLAINTS_CAP)
    return journals_in(answer, places, beside, entries)


def journals_text(places: Places, beside: Sequence[str], entries: Sequence[str]) -> str:
    """Return the line of sh whose answer `journals_in` reads."""
    # Whether one runs is asked before its journal is read: what is gone has said its last word.
    paths = dict.fromkeys((_BOOT_ID, places.journal("*"), *beside))
    listed = f"{list_entries(entries)}; " if entries else ""
    return f"{_look_text(places)}; {listed}{read_files(list(paths), _JOURNAL_CAP)}"


def journals_in(
    answer: JobAnswer, places: Places, beside: Sequence[str], entries: Sequence[str]
) -> tuple[dict[str, Journaled], Files]:
    """Return what `journals` does, from the answer to its text. Raises HostUnreachable."""
    if answer.lost is not None:
        raise HostUnreachable(f"the transactions could not be read: {answer.lost.detail}")
    look = answer.stdout.partition(b"\n==> ")[0].decode("ascii", "replace")
    words = [line.partition(" ")[::2] for line in look.split("\n")]
    running = {name for word, name in words if word == "runs"}
    armed = {name for word, name in words if word == "armed"}
    uptime = next((float(value) for word, value in words if word == "up"), 0.0)
    files = parse_both(answer.stdout, answer.stderr)
    boot = files.get(_BOOT_ID, b"")
    boot_id = boot.decode("ascii", "replace").strip() if isinstance(boot, bytes) else ""
    whose = {places.journal(name): name for word, name in words if word == "has"}
    raws = {whose[path]: raw for path, raw in files.items() if path in whose}
    found = {}
    for name in (name for word, name in words if word == "has" and ID.fullmatch(name)):
        raw = raws.get(name, b"")
        lines = parse(raw if isinstance(raw, bytes) else b"")
        told = tell(name, lines, boot_id, uptime, name in running, name in armed)
        found[name] = told, steps_of(lines)
    asked = (*beside, *map(entry_key, entries))
    return found, {name: files[name] for name in asked if name in files}


def _look_text(places: Places) -> str:
    """Return the text that lists the transactions, those that run or are armed, and the uptime."""
    return f"H={quote(places.home)}; R={quote(places.run)}; {_LOOK}"


_LOOK = (
    'for d in "$H"/*/; do d=${d%/}; [ -d "$d" ] || continue; n=${d##*/}; '
    r'printf "has %s\n" "$n"; [ ! -e "$R/$n.armed" ] || printf "armed %s\n" "$n"; '
    + runs_text('"$d"/runner')
    + r' && printf "runs %s\n" "$n"; done 2>/dev/null; read -r u _ </proc/uptime; echo "up $u"'
)


async def _put(shell: LiveShell, plan: Plan, places: Places) -> None:
    """Put the script on the target's disk, whole and checked. Raises Refusal or HostUnreachable."""
    folder, script = quote(places.folder(plan.id)), quote(places.script(plan.id))
    home = quote(places.home)
    raw = plan.script.encode()
    text = base64.b64encode(raw).decode()
    texts = [
        f"for t in {_TOOLS}; do command -v $t >/dev/null || "
        '{ echo "$t is not installed there" >&2; exit 1; }; done; '
        f"umask 077; mkdir -p {home} && mkdir {folder}"
    ]
    for start in range(0, len(text), _CHUNK):
        texts.append(f"printf %s {text[start : start + _CHUNK]} >>{folder}/put")
    digest = hashlib.sha256(raw).hexdigest()
    texts.append(
        f"umask 077; base64 -d {folder}/put | dd of={script} conv=fsync 2>/dev/null && "
        f"rm {folder}/put && sync {folder} {home} {home}/.. && "
        f"sha256sum {script} | grep -q {digest}"
    )
    for number, command in enumerate(texts):
        answer = await shell.run(command)
        if answer.lost is not None:
            raise HostUnreachable(f"nothing was written: {answer.lost.detail}")
        if answer.exit:
            if number:  # the folder is ours
                await shell.run(f"rm -rf {folder}; rmdir {home}")
            said = one_line(answer.stderr) or "its bytes differ"
            raise Refusal(f"the undo could not be put on the target's disk: {said}", 1)
