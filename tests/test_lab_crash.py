"""Each verb killed at each line of its journal, on a real kernel with systemd's timers."""

from collections.abc import Iterator

import pytest

from gpudoctor.model import Sysctl
from tests.lab_change import HOME, cleaned, plan_on, put
from tests.lab_vm import Lab

READ = "sysctl -n vm.swappiness vm.stat_interval"
BEFORE, AFTER = ("60", "1"), ("10", "10")
# Makes journal() end its process once its file has $n more lines than before ($k).
STOP = (
    r"/^journal()/,/^}/s/^}/  [ \"\$(wc -l <\"\$DIR\/journal\")\" -lt $((k + n)) ] || "
    r"kill -KILL \$\$\n}/"
)


@pytest.fixture(autouse=True)
def _as_before(lab: Lab) -> Iterator[None]:
    lab.run(f"sysctl -qw vm.swappiness={BEFORE[0]} vm.stat_interval={BEFORE[1]}")
    yield
    lab.run(f"rm -rf {HOME}/2*-*-*-*")  # the attempts, whose names are no transactions'
    cleaned(lab)
    assert lab.run(READ).split() == [*BEFORE]
    left = "systemctl list-units --all --no-legend 'gpudoctor*'; ls -d /run/gpudoctor* 2>&1"
    assert "No such file" in lab.run(f"{left}; :")


@pytest.mark.parametrize(
    ("verb", "healer"), [("apply", "fire"), ("undo", "fire"), ("fire", "undo")]
)
def test_killed_at_each_line_with_a_timer_armed(lab: Lab, verb: str, healer: str) -> None:
    """Each attempt is a transaction of its own; whoever comes next restores every value."""
    changes = [Sysctl("vm.swappiness", AFTER[0]), Sysctl("vm.stat_interval", AFTER[1])]
    plan = plan_on(lab, changes, confirm_within=3600)
    put(lab, plan, plan.script)
    first = "" if verb == "apply" else "sh $d/transaction.sh apply >/dev/null 2>&1; "
    told = lab.run(
        f"cd {HOME}; whole={plan.id}/transaction.sh; for n in $(seq 40); do d={plan.id}-$n; "
        f'mkdir $d; sed "s/{plan.id}/$d/g" $whole >$d/transaction.sh; {first}'
        "k=$(cat $d/journal 2>/dev/null | wc -l); cp $d/transaction.sh $d/whole; "
        f'sed "{STOP}" $d/whole >$d/transaction.sh; '
        f"sh $d/transaction.sh {verb} >/dev/null 2>&1; code=$?; mv $d/whole $d/transaction.sh; "
        f"sh $d/transaction.sh {healer} >/dev/null 2>&1; echo $({READ}); "
        "sh $d/transaction.sh undo >/dev/null 2>&1; "
        "ls /run/gpudoctor | grep ^2; [ $code = 137 ] || break; done; echo $n",
        seconds=600,
    ).split("\n")
    assert 3 < int(told[-1]) < 40
    assert told[:-1] == [" ".join(BEFORE)] * int(told[-1])
