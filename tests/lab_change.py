"""Changes on the lab's real kernel: applied, read back, undone, killed at every journal line."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Sequence

from gpudoctor.capture import capture
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model import Change, Class, Finding, Impact, Panel, Verdict, issue
from gpudoctor.model.audited import AuditResult, Identity
from gpudoctor.model.plan import Move, Plan, State, StateMoved
from gpudoctor.plan import make_plan
from gpudoctor.shell import quote
from gpudoctor.transaction import apply, clean, undo
from tests.lab_vm import Lab

HOME = "/var/lib/gpudoctor"


def plan_on(lab: Lab, *options: Sequence[Change], confirm_within: int = 0) -> Plan:
    """Plan each option as the fix of a check of its own, from the values there now."""
    findings = tuple(
        Finding(f"check-{n}", Panel.KERNEL_KNOBS, "", "host", _issue(option), "", "")
        for n, option in enumerate(options)
    )
    boot = lab.run("cat /proc/sys/kernel/random/boot_id")
    machine = lab.run("cat /etc/machine-id")
    result = AuditResult("lab", "root", Identity("lab", machine, boot), findings=findings)
    changes = [change for option in options for change in option]
    captured = asyncio.run(capture(LiveTarget(lab.transport(shared=True)), changes))
    names = [finding.id for finding in findings]
    return make_plan(result, captured, names, "tester@lab", confirm_within=confirm_within)


def _issue(option: Sequence[Change]) -> Verdict:
    return issue("x", Class.P0, Impact.LOW, changes=(tuple(option),))


def applied(lab: Lab, plan: Plan) -> State:
    """Apply over SSH and return the final state."""
    return asyncio.run(_end(apply(LiveTarget(lab.transport(shared=True)), plan)))


def undone(lab: Lab, plan: Plan) -> State:
    """Undo over SSH and return the final state."""
    return asyncio.run(_end(undo(LiveTarget(lab.transport(shared=True)), plan.id)))


def cleaned(lab: Lab) -> None:
    """Remove what is ours from the VM."""
    asyncio.run(clean(LiveTarget(lab.transport(shared=True)), forget=True))


async def _end(moves: AsyncIterator[Move]) -> State:
    return [move.state async for move in moves if isinstance(move, StateMoved)][-1]


def values(lab: Lab, plan: Plan) -> list[str]:
    """Return what every item of a plan reads now, over one login."""
    texts = [f'sh -c {quote(item.read)} 2>/dev/null || echo "(unreadable)"' for item in plan.items]
    return lab.run("\n".join(texts)).split("\n")


def there_and_back(lab: Lab, *options: Sequence[Change]) -> Plan:
    """Apply, read back by the items' own texts, undo; every value is then as before."""
    plan = plan_on(lab, *options)
    assert plan.steps and not plan.refused, plan.refused
    assert values(lab, plan) == [item.before for item in plan.items]
    assert applied(lab, plan) is State.APPLIED
    assert values(lab, plan) == [item.wanted for item in plan.items]
    again = plan_on(lab, *options)
    assert not again.steps and not again.refused  # already so: nothing is written twice
    assert undone(lab, plan) is State.UNDONE
    assert values(lab, plan) == [item.before for item in plan.items]
    return plan


def killed_at_every_line(lab: Lab, plan: Plan) -> None:
    """Kill the runner at each line of its journal; an undo then restores every value.

    All runs are made by one command on the target: a login there costs a second.
    """
    lines = 2 + len(plan.steps) + 2 * len(plan.items)
    reads = "; ".join(f"sh -c {quote(i.read)} 2>/dev/null || echo gone" for i in plan.items)
    put(lab, plan, plan.script)
    told = lab.run(
        f"cd {HOME}; whole={plan.id}/transaction.sh; "
        f"for n in $(seq {lines}); do d={plan.id}-$n; mkdir $d; "
        f'sed "s/{plan.id}/$d/g" $whole >$d/whole; sed "{_STOP}" $d/whole >$d/transaction.sh; '
        "sh $d/transaction.sh apply >/dev/null 2>&1; [ $? = 137 ] || echo not killed at $n; "
        "mv $d/whole $d/transaction.sh; sh $d/transaction.sh undo >/dev/null; "
        f"{reads}; done",
        seconds=300,
    ).split("\n")
    assert told == [item.before for item in plan.items] * lines


# Makes journal() end the runner once its file has $n lines.
_STOP = (
    r"/^journal()/,/^}/s/^}/  [ \"\$(wc -l <\"\$DIR\/journal\")\" -lt $n ] || kill -KILL \$\$\n}/"
)


def put(lab: Lab, plan: Plan, script: str) -> None:
    """Put a script where a client would."""
    path = f"{HOME}/{plan.id}/transaction.sh"
    text = base64.b64encode(script.encode()).decode()
    lab.run(f"umask 077; mkdir -p {os.path.dirname(path)}; echo {text} | base64 -d >{path}")
