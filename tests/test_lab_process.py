"""Limits and CPUs of real processes: trees that differ, processes that end, pids used again."""

from collections.abc import Iterator

import pytest

from gpudoctor.model import Affinity, ProcessLimit
from gpudoctor.model.plan import State
from tests.lab_change import (
    applied,
    cleaned,
    killed_at_every_line,
    plan_on,
    there_and_back,
    undone,
)
from tests.lab_vm import Lab

# Prints its pid, then keeps a thread on each of two CPUs, and 40 files open.
THREADS = """
import os, threading, time
def stay(cpu):
    os.sched_setaffinity(0, {cpu})
    time.sleep(900)
threading.Thread(target=stay, args=(1,), daemon=True).start()
threading.Thread(target=stay, args=(2,), daemon=True).start()
held = [open("/dev/null") for _ in range(40)]
print(os.getpid(), flush=True)
time.sleep(900)
"""
ODD_NAME = "/root/a) S 1 2 3 (b"


def until(condition: str) -> str:
    """Return sh text that ends once a condition holds, and fails where it never does."""
    return f"for n in $(seq 200); do {condition} && break; sleep 0.1; done; {condition}"


@pytest.fixture
def tree(lab: Lab) -> Iterator[list[int]]:
    """Start a parent with three children, one of an odd name, whose limits all differ."""
    told = lab.run(
        f"cp /bin/sleep '{ODD_NAME}'; "
        f'setsid sh -c \'sleep 901 & echo $!; "$0" 902 & echo $!; sleep 903 & echo $!; echo $$; '
        f"wait' '{ODD_NAME}' 2>/dev/null </dev/null >/run/pids & "
        f"{until('[ $(wc -l </run/pids) = 4 ]')}; cat /run/pids; "
        "set -- $(cat /run/pids); prlimit --pid $1 --memlock=8388608:67108864 --nofile=30:2048; "
        "prlimit --pid $2 --memlock=65536:65536; prlimit --pid $3 --memlock=unlimited:unlimited"
    )
    pids = [int(line) for line in told.split("\n")]
    yield pids
    lab.run(f"kill -9 {' '.join(map(str, pids))} 2>/dev/null; rm -f '{ODD_NAME}' /run/pids; true")
    cleaned(lab)


def limits(lab: Lab, pids: list[int]) -> str:
    return lab.run("; ".join(f"cat /proc/{pid}/limits" for pid in pids))


def test_a_tree_comes_back_as_it_was(lab: Lab, tree: list[int]) -> None:
    before = limits(lab, tree)
    plan = there_and_back(
        lab,
        [ProcessLimit(tuple(tree), "memlock", "unlimited")],
        [ProcessLimit((tree[0],), "nofile", "65535")],
    )
    named = [item.name for item in plan.items]
    assert named == [f"memlock of process {tree[i]}" for i in (0, 1, 3)] + [
        f"nofile of process {tree[0]}"
    ]
    assert plan.items[-1].wanted.endswith(" 65535:65535")
    assert limits(lab, tree) == before


def test_what_ended_is_gone_and_the_rest_goes_back(lab: Lab, tree: list[int]) -> None:
    plan = plan_on(lab, [ProcessLimit(tuple(tree[:2]), "memlock", "unlimited")])
    before = limits(lab, tree[1:2])
    assert applied(lab, plan) is State.APPLIED
    lab.run(f"kill -9 {tree[0]}; {until(f'[ ! -d /proc/{tree[0]} ]')}")
    assert undone(lab, plan) is State.UNDONE
    assert limits(lab, tree[1:2]) == before


def test_another_process_of_the_same_pid_is_left_alone(lab: Lab, tree: list[int]) -> None:
    plan = plan_on(lab, [ProcessLimit((tree[0],), "memlock", "unlimited")])
    assert applied(lab, plan) is State.APPLIED
    pid = tree[0]
    lab.run(
        f"kill -9 {pid}; {until(f'[ ! -d /proc/{pid} ]')}; for n in $(seq 50); do "
        f"[ ! -d /proc/{pid} ] || break; echo {pid - 1} >/proc/sys/kernel/ns_last_pid; "
        "prlimit --memlock=unlimited:unlimited sleep 905 >/dev/null 2>&1 </dev/null & "
        "echo $! >>/run/again; done"
    )
    before = limits(lab, [pid])
    assert "sleep" in lab.run(f"cat /proc/{pid}/comm") and "Max locked memory" in before
    assert undone(lab, plan) is State.UNDO_FAILED  # said, and nothing written
    assert limits(lab, [pid]) == before
    lab.run("kill $(cat /run/again); rm /run/again")


@pytest.fixture
def threads(lab: Lab) -> Iterator[int]:
    """Start a process of three threads: one on all CPUs, one on CPU 1, one on CPU 2."""
    lab.run(f"cat >/run/threads.py <<'E'\n{THREADS}\nE")
    told = lab.run(
        "setsid python3 /run/threads.py >/run/threads.pid 2>/dev/null </dev/null & "
        f"{until('[ -s /run/threads.pid ]')}; cat /run/threads.pid"
    )
    yield int(told)
    lab.run(f"kill -9 {told}; rm -f /run/threads.py /run/threads.pid; true")
    cleaned(lab)


def test_threads_of_their_own_cpus_get_them_back(lab: Lab, threads: int, tree: list[int]) -> None:
    lab.run(f"taskset -apc 0-2 {tree[0]}")
    look = f"taskset -apc {threads}; taskset -apc {tree[0]}"
    before = lab.run(look)
    plan = there_and_back(lab, [Affinity((threads, tree[0]), "2,3")])
    assert plan.items[0].before.count("=") == 3 and plan.items[1].before.endswith(" 0-2")
    assert lab.run(look) == before


def test_an_undo_waits_where_it_would_not_be_exact(lab: Lab, threads: int) -> None:
    """A thread more, or more files open than the old limit allows: held, and nothing written."""
    lab.run(f"prlimit --pid {threads} --nofile=32:4096")
    plan = plan_on(
        lab,
        [Affinity((threads,), "3")],
        [ProcessLimit((threads,), "nofile", "65535")],
    )
    assert applied(lab, plan) is State.APPLIED
    assert undone(lab, plan) is State.UNDO_FAILED
    journal = lab.run(f"cat /var/lib/gpudoctor/{plan.id}/journal")
    assert "has more files open than the old limit of 32" in journal
    assert "came or went" not in journal
    lab.run(f"kill -9 {threads}; {until(f'[ ! -d /proc/{threads} ]')}")
    assert undone(lab, plan) is State.UNDONE


def test_killed_at_every_line(lab: Lab, tree: list[int]) -> None:
    limit = ProcessLimit((tree[0],), "memlock", "unlimited")
    killed_at_every_line(lab, plan_on(lab, [limit, Affinity((tree[0],), "1")]))
