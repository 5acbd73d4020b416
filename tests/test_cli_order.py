"""Which transaction is the last: the one that `rollback` takes by itself."""

import asyncio
from dataclasses import replace

from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget
from gpudoctor.model.plan import State, Transaction
from gpudoctor.transaction import in_order, transactions
from tests.cli_rig import machine_of

ONE = Transaction("id", State.APPLIED, "", "", (), (), "")


def test_the_last_one_is_the_one_that_began_last() -> None:
    """Within a second its id says nothing; another boot's uptime does not count."""
    first = replace(ONE, id="f", started="2026-01-01T00:00:05Z", boot_id="b", began=90.25)
    second = replace(first, id="a", began=90.75)
    later = replace(first, id="0", started="2026-01-01T00:00:09Z", boot_id="a", began=1.0)
    set_back = replace(first, id="z", started="2025-01-01T00:00:00Z", boot_id="a", began=9.0)
    assert in_order([later, second, first]) == [first, second, later]
    assert in_order([set_back, later]) == [later, set_back]  # the clock was set back since then


def test_what_began_last_in_the_same_second_is_the_last() -> None:
    machine = machine_of()
    home = "/var/lib/gpudoctor"
    for name, uptime in (("ffffff", "90.25"), ("000000", "90.75")):
        folder = f"{home}/20260101-000000-{name}"
        begin = f"{uptime} begin 2026-01-01T00:00:00Z 0b00 me\n{uptime} state applied\n"
        machine.files[f"{folder}/transaction.sh"] = b"x"
        machine.files[f"{folder}/journal"] = begin.encode()
    known = asyncio.run(transactions(SimulatedTarget(machine, NO_WAIT)))
    assert [one.id[-6:] for one in known] == ["ffffff", "000000"]
    assert [one.began for one in known] == [90.25, 90.75]
