"""The timer of --confirm-within on a real kernel with systemd, whatever happens meanwhile.

Three transactions run at once, in places of their own, so that each event meets one before its
first write, one between two writes and one after the last. Their timers come one after another,
so that each undo has the emulated machine to itself. The judge is the target's own uptime.
"""

import asyncio
import math
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpudoctor.hosts.target import LiveTarget
from gpudoctor.journal import Line, parse
from gpudoctor.model import Sysctl
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import Item, Plan, State, StateMoved, Step
from gpudoctor.plan import values_hash
from gpudoctor.shell import quote
from gpudoctor.transaction import apply, clean, confirm, transactions, undo
from gpudoctor.transaction_script import Header, Places, render
from tests.lab_vm import ROOT, Lab

CONFIRM = 10  # seconds, on a machine that has time for us
APART = 4  # seconds, from one timer to the next
LATE = 2  # seconds, from the timer's time until all is restored
FILE = "/etc/sysctl.d/99-zz-gpudoctor-timer-test.conf"
GO = "/run/gpudoctor-timer-test"
SETTINGS = {
    "vm.swappiness": ("60", "10"),
    "vm.vfs_cache_pressure": ("100", "50"),
    "vm.stat_interval": ("1", "10"),
    "vm.dirty_writeback_centisecs": ("500", "1000"),
    "vm.watermark_scale_factor": ("10", "20"),
    "vm.page-cluster": ("3", "0"),
}


def slowness(lab: Lab) -> int:
    """Return how many times longer a process takes than on an emulated machine with time for us.

    The times below are multiplied by it, since neighbours that starve it say nothing about us.
    """
    told = lab.run(
        "read -r a _ </proc/uptime; for i in 1 2 3 4 5 6 7 8 9 10; do sh -c 'cat /dev/null'; done; "
        "read -r b _ </proc/uptime; echo $a $b"
    )
    start, end = map(float, told.split())
    return max(1, math.ceil((end - start) / 10 / 0.05))


@dataclass(frozen=True)
class Case:
    """One transaction of three, in places of its own."""

    name: str
    places: Places
    plan: Plan
    slow: int


def item(key: str, held: bool = False) -> Item:
    """Return a kernel parameter; a held write waits for the word to go on."""
    before, wanted = SETTINGS[key]
    wait = f"until [ -e {GO} ]; do sleep 0.1; done; " if held else ""
    path = f"/proc/sys/{key.replace('.', '/')}"
    return Item(
        key,
        f"cat {path}",
        before,
        wanted,
        f"{wait}sysctl -qw {key}={wanted}",
        f"sysctl -qw {key}={before}",
    )


def lasting() -> Item:
    """Return a file that a reboot does not take away."""
    read = f"if [ -e {FILE} ]; then cat {FILE}; else echo none; fi"
    return Item(FILE, read, "none", "x", f"echo x >{FILE}", f"rm -f {FILE}", lasting=True)


def case(name: str, boot: str, items: tuple[Item, ...], confirm_within: int, slow: int = 1) -> Case:
    """Return a case; `name` is that of the moment at which it meets an event."""
    places = Places(f"/var/lib/gpudoctor-{name}", f"/run/gpudoctor-{name}")
    steps = tuple(Step(f"check-{i.name}", Sysctl(i.name, i.wanted), (i,)) for i in items)
    number = f"20260101-{time.strftime('%H%M%S')}-{os.urandom(3).hex()}"
    header = Header(number, "lab", "alice@desk", boot, values_hash(steps), confirm_within)
    script = render(header, steps, places)
    plan = Plan(
        number, "lab", "alice@desk", "", boot, steps, script, "", confirm_within=confirm_within
    )
    return Case(name, places, plan, slow)


def cases(lab: Lab, *more: Item) -> list[Case]:
    """Return one case for each moment; a write that is held gives the event time to happen."""
    boot = lab.run(f"rm -f {GO}; cat /proc/sys/kernel/random/boot_id")
    swap, cache, stat, dirty, water, page = SETTINGS
    slow = slowness(lab)
    first, second, third = ((CONFIRM + APART * n) * slow for n in range(3))
    return [
        case("before", boot, (item(swap, True), item(cache)), first, slow),
        case("mid", boot, (item(stat), item(dirty, True)), second, slow),
        case("after", boot, (item(water), item(page), *more), third, slow),
    ]


CLIENT = """
import asyncio, pickle, sys
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import State, StateMoved
from gpudoctor.transaction import apply, watch
from tests.lab_vm import LabTransport

config, cases = pickle.load(open(sys.argv[1], "rb"))

async def one(case):
    end = None
    try:
        async for move in apply(LiveTarget(LabTransport(config, "lab")), case.plan, case.places):
            end = move.state if isinstance(move, StateMoved) else end
        if end is State.APPLIED:
            target = LiveTarget(LabTransport(config, "lab"))
            async for move in watch(target, case.plan.id, case.places):
                end = move.state if isinstance(move, StateMoved) else end
    except Refusal as refusal:
        end = refusal.sentence
    print(case.name, end, flush=True)

async def main():
    await asyncio.gather(*(one(case) for case in cases))

asyncio.run(main())
"""


def client(lab: Lab, some: list[Case], folder: Path) -> "subprocess.Popen[bytes]":
    """Start a client that applies all cases and watches them, with a state folder of its own."""
    (folder / "cases").write_bytes(pickle.dumps((lab.config, some)))
    with (folder / "said").open("w") as said:
        return subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(folder / "cases")],
            stdout=said,
            cwd=ROOT,
            env=os.environ | {"XDG_STATE_HOME": str(folder)},
            start_new_session=True,
        )


def at_their_moments(lab: Lab, some: list[Case], event: str) -> float:
    """Do something on the target once each case is at its moment; return its uptime then."""
    before, mid, after = (quote(one.places.journal(one.plan.id)) for one in some)
    text = (
        f"for n in $(seq 900); do grep -qs ' intent 1' {before} && grep -qs ' intent 2' {mid} && "
        f"grep -qs ' state applied' {after} && break; sleep 0.1; done; "
        f"read -r u _ </proc/uptime; echo $u; {event}"
    )
    return float(lab.run(text, seconds=300).split("\n")[0])


def stories(lab: Lab, some: list[Case]) -> dict[str, list[Line]]:
    """Return the journals, once each has ended."""
    journals = " ".join(quote(one.places.journal(one.plan.id)) for one in some)
    text = (
        f"for j in {journals}; do for n in $(seq 2000); do "
        "grep -qE 'state (undone|undo-failed)' $j && break; sleep 0.1; done; cat $j; echo =; done"
    )
    told = reached(lab, text).split("\n=")
    return {
        one.name: parse(f"{text}\n".encode())
        for one, text in zip(some, told[: len(some)], strict=True)
    }


def reached(lab: Lab, text: str) -> str:
    """Return what a text prints there, once the VM can be reached again."""
    end = time.monotonic() + 300
    while True:
        try:
            return lab.run(text, seconds=600)
        except subprocess.CalledProcessError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


def judge(story: list[Line], one: Case, moment: float) -> None:
    """Check that the timer restored all in time, that no step ran after it, and the moment."""
    at = {f"{line.word} {line.rest}": line.uptime for line in story}
    armed = next(line.uptime for line in story if line.word == "armed")
    fired = next(line.uptime for line in story if line.word == "fired")
    seconds = one.plan.confirm_within
    end = at[f"state undone nobody confirmed within {seconds} s"]
    print(one.name, f"fired {fired - armed:.2f} s and undone {end - armed:.2f} s after arming")
    assert end - armed <= seconds + LATE * one.slow
    assert max(line.uptime for line in story if line.word == "intent") <= fired
    written = sum(line.word == "done" and line.uptime < moment for line in story)
    assert (one.name, written) in {("before", 0), ("mid", 1), ("after", 2)}
    assert armed < moment < fired


def values(lab: Lab) -> str:
    return lab.run(f"sysctl {' '.join(SETTINGS)}; ls {FILE} 2>&1; :")


@pytest.fixture
def same(lab: Lab) -> Iterator[None]:
    """Expect the VM's values, units, processes and folders to be as before in the end."""
    told = (
        "ls -d /var/lib/gpudoctor-* /run/gpudoctor-*; systemctl list-units --all | grep gpudoctor"
    )
    before = values(lab), lab.run(f"{told} 2>&1; :")
    yield
    undo = (f"sysctl -qw {key}={value}" for key, (value, _) in SETTINGS.items())
    lab.run(f"rm -rf /var/lib/gpudoctor-* /run/gpudoctor-* {FILE}; {'; '.join(undo)}")
    assert (values(lab), lab.run(f"{told} 2>&1; :")) == before


def detached(event: str) -> str:
    """Return the text of an event that ends the very connection it comes over."""
    return f"setsid sh -c 'sleep 0.5; {event}; touch {GO}' </dev/null >/dev/null 2>&1 &"


REBOOT = "sync; setsid sh -c 'sleep 1; systemctl reboot' </dev/null >/dev/null 2>&1 &"
EVENTS = {
    "client killed": ":",
    "connection reset": detached('pkill -KILL -f "^sshd: root@notty"'),
    "black hole": detached(
        'nft add table inet dark; nft "add chain inet dark in { type filter hook input priority 0; '
        f'}}"; nft add rule inet dark in tcp dport 22 drop; touch {GO}; sleep 8; '
        "nft delete table inet dark"
    ),
    "sshd restarted": f"systemctl restart ssh; touch {GO}",
    "clock an hour on": f"date -s '+1 hour' >/dev/null; touch {GO}",
    "clock an hour back": f"date -s '-1 hour' >/dev/null; touch {GO}",
}


@pytest.mark.parametrize("event", EVENTS)
def test_it_is_all_restored(lab: Lab, tmp_path: Path, same: None, event: str) -> None:
    some = cases(lab)
    watching = client(lab, some, tmp_path)
    try:
        moment = at_their_moments(lab, some, EVENTS[event])
        if event == "client killed":
            os.killpg(watching.pid, signal.SIGKILL)
            lab.run(f"touch {GO}")
        told = stories(lab, some)
        for one in some:
            judge(told[one.name], one, moment)
        if event != "client killed":  # it comes back, and says how it ended
            watching.wait(120)
            said = sorted((tmp_path / "said").read_text().split("\n")[:-1])
            assert said == ["after undone", "before undone", "mid undone"]
    finally:
        if watching.poll() is None:
            os.killpg(watching.pid, signal.SIGKILL)
        watching.wait()
        if event.startswith("clock"):
            lab.run(f"date -s @{int(time.time())} >/dev/null")


def test_the_timer_meets_a_batch_and_a_third_party(lab: Lab, tmp_path: Path, same: None) -> None:
    """It comes between the steps of one; of another, somebody has changed a value since."""
    boot = lab.run("cat /proc/sys/kernel/random/boot_id")
    swap, cache, stat, dirty, water, page = SETTINGS
    slow = tuple(item(key) for key in (swap, cache, stat)) + (item(dirty, True),)
    seconds = CONFIRM * slowness(lab)
    some = [
        case("batch", boot, slow, seconds),
        case("party", boot, (item(water), item(page)), seconds),
    ]
    watching = client(lab, some, tmp_path)
    try:
        party = some[1].places.journal(some[1].plan.id)
        lab.run(
            f"for n in $(seq 900); do grep -qs 'state applied' {party} && break; sleep 0.1; done; "
            f"sysctl -qw {water}=30"
        )
        told = stories(lab, some)
        assert [line.rest for line in told["party"] if line.word == "foreign"] == ["1 30"]
        assert told["party"][-1].rest == "undo-failed"
        assert lab.run(f"sysctl -n {water} {page}") == "30\n3"
        lab.run(f"sysctl -qw {water}=10")
        watching.wait(120)
        assert "party undo-failed" in (tmp_path / "said").read_text()
    finally:
        if watching.poll() is None:
            os.killpg(watching.pid, signal.SIGKILL)
        watching.wait()
    words = [line.word for line in told["batch"]]
    assert words.index("fired") < words.index("undone")
    assert "intent" not in words[words.index("fired") :]
    assert ("done", "4") not in {(line.word, line.rest) for line in told["batch"]}


def test_what_is_confirmed_never_reverts(lab: Lab, same: None) -> None:
    boot = lab.run("cat /proc/sys/kernel/random/boot_id")
    one = case("kept", boot, (item("vm.swappiness"),), 60 * slowness(lab))

    async def go() -> None:
        target = LiveTarget(lab.transport())
        moves = [m async for m in apply(target, one.plan, one.places) if isinstance(m, StateMoved)]
        assert moves[-1].state is State.APPLIED
        assert lab.run("systemctl list-timers --all | grep -c gpudoctor") == "1"
        kept = await confirm(LiveTarget(lab.transport()), one.plan.id, one.places)
        assert kept.state is State.CONFIRMED

    asyncio.run(go())
    units = "systemctl list-units --all --no-legend 'gpudoctor*'; ls /run/gpudoctor-kept"
    assert lab.run(units).split() == ["lock", "owner", "said"]
    late = lab.run(f"sh {one.places.script(one.plan.id)} fire; sysctl -n vm.swappiness")
    assert late == "10"
    asyncio.run(_undone(lab, one))
    assert lab.run("sysctl -n vm.swappiness") == "60"
    gone, stay = asyncio.run(clean(LiveTarget(lab.transport()), places=one.places))
    assert (gone, stay) == ([one.plan.id], [])


async def _undone(lab: Lab, one: Case) -> State:
    target = LiveTarget(lab.transport())
    moves = [m async for m in undo(target, one.plan.id, one.places) if isinstance(m, StateMoved)]
    return moves[-1].state


def test_a_reboot_undoes_what_it_can_and_the_rest_is_told(
    lab: Lab, tmp_path: Path, same: None
) -> None:
    some = cases(lab, lasting())
    old = lab.run("cat /proc/sys/kernel/random/boot_id")
    watching = client(lab, some, tmp_path)
    moment = at_their_moments(lab, some, REBOOT)
    assert moment
    os.killpg(watching.pid, signal.SIGKILL)
    watching.wait()
    reached(lab, f"read -r b </proc/sys/kernel/random/boot_id; [ $b != {old} ]")
    lab.settle()
    before, mid, after = some
    told = {
        one.name: asyncio.run(transactions(LiveTarget(lab.transport()), one.places))[0]
        for one in some
    }
    assert told["before"].epoch_ended and told["mid"].epoch_ended
    assert not told["before"].stands and not told["before"].interrupted
    assert told["after"].stands and told["after"].timer is None
    assert told["after"].state is State.APPLIED
    assert lab.run(f"cat {FILE}; sysctl -n {' '.join(SETTINGS)}").split() == [
        "x",
        *(before for before, _ in SETTINGS.values()),
    ]
    assert asyncio.run(_undone(lab, after)) is State.UNDONE
    for one in (before, mid):
        assert asyncio.run(_undone(lab, one)) is State.UNDONE
    again = case("after", "another-boot", (item("vm.swappiness"),), 0)
    with pytest.raises(Refusal, match="rebooted since this was planned"):
        asyncio.run(_applied(lab, again))


async def _applied(lab: Lab, one: Case) -> None:
    async for _ in apply(LiveTarget(lab.transport()), one.plan, one.places):
        pass
