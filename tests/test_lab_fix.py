"""One fix round the whole loop on a real kernel, over real SSH."""

import argparse
import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudoctor.cli_fix import fix_command, plan_command
from gpudoctor.cli_undo import rollback_command
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model import Sysctl
from gpudoctor.model.error import Refusal
from gpudoctor.model.plan import State
from gpudoctor.transaction import clean, transactions
from tests.lab_change import applied, cleaned, plan_on, undone
from tests.lab_vm import ROOT, Lab
from tests.script_runner import until

CHECK = "kern-numa-balancing"
READ = "sysctl -n kernel.numa_balancing"
Arguments = Callable[..., argparse.Namespace]


@pytest.fixture
def arguments(
    lab: Lab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Arguments:
    """Return how to make a command line's arguments; the VM starts each test at 1."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    lab.run("sysctl -qw kernel.numa_balancing=1; rm -rf /var/lib/gpudoctor")

    def made(login: str, *checks: str, **more: object) -> argparse.Namespace:
        options: dict[str, object] = {
            "checks": list(checks),
            "yes": True,
            "json": False,
            "shell": False,
            "read_only": False,
            "transaction": None,
            "make_target": lambda: LiveTarget(lab.transport(login)),
        }
        return argparse.Namespace(**(options | more))

    return made


@pytest.mark.parametrize("login", ["lab", "lab-ops"])
def test_there_and_back(
    lab: Lab,
    arguments: Arguments,
    login: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    assert fix_command(arguments(login, CHECK)) == 0
    said = capsys.readouterr().out
    assert "run   sysctl -w kernel.numa_balancing=0" in said
    assert "undo  sysctl -w kernel.numa_balancing=1" in said
    assert "done, read back" in said and "applied, every value read back" in said
    assert lab.run(READ) == "0"
    number = re.findall(r"gpudoctor rollback (\S+)", said)[0]
    folder = f"/var/lib/gpudoctor/{number}"
    assert lab.run(f"stat -c %a:%U {folder} {folder}/transaction.sh") == "700:root\n600:root"
    (kept,) = tmp_path.glob(f"gpudoctor/*/{number}.sh")
    assert lab.run(f"cat {folder}/transaction.sh") == kept.read_text().strip()
    assert kept.parent.name == lab.run("cat /etc/machine-id")
    assert len(list(kept.parent.glob("*-before-*.toml"))) == 1
    assert len(list(kept.parent.glob("*-after-*.toml"))) == 1
    assert f"transaction {number}: kernel.numa_balancing from 1 to 0" in lab.run(
        "journalctl -q -t gpudoctor --no-pager"
    )
    assert fix_command(arguments(login, CHECK)) == 0
    assert "already so" in capsys.readouterr().out
    assert rollback_command(arguments(login)) == 0
    assert lab.run(READ) == "1"
    assert f"transaction {number}: kernel.numa_balancing back to 1" in lab.run(
        "journalctl -q -t gpudoctor --no-pager"
    )


def test_a_viewer_may_plan_and_not_fix(
    lab: Lab,
    arguments: Arguments,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert plan_command(arguments("lab-viewer", CHECK)) == 0
    assert "sysctl -w kernel.numa_balancing=0" in capsys.readouterr().out
    with pytest.raises(Refusal, match="needs root there") as refused:
        fix_command(arguments("lab-viewer", CHECK))
    assert refused.value.code == 1
    assert lab.run(READ) == "1"


def test_a_value_that_somebody_set_since_is_left(
    lab: Lab,
    arguments: Arguments,
) -> None:
    assert fix_command(arguments("lab", CHECK)) == 0
    lab.run("sysctl -qw kernel.numa_balancing=2")
    assert rollback_command(arguments("lab")) == 5
    assert lab.run(READ) == "2"


# Everything on its disk with mode and owner, and all of /run; not what changes by itself.
LISTING = (
    "find / -xdev \\( -path /var/log -o -path /var/lib/systemd -o -path /tmp \\) -prune -o "
    "-printf '%p %m %U %y\\n' | sort | md5sum; find /run -path '*gpudoctor*'"
)


def test_clean_leaves_the_target_as_if_we_had_never_been_there(
    lab: Lab,
    arguments: Arguments,
) -> None:
    cleaned(lab)
    before = lab.run(LISTING)
    changes = [Sysctl("kernel.numa_balancing", "0")]
    plan = plan_on(lab, changes, confirm_within=3600)
    assert applied(lab, plan) is State.APPLIED
    assert lab.run(LISTING) != before
    assert undone(lab, plan) is State.UNDONE
    gone, stay = asyncio.run(clean(LiveTarget(lab.transport())))
    assert (gone, stay) == ([plan.id], [])
    assert lab.run(LISTING) == before
    assert not lab.run(
        "systemctl list-units --all --no-legend 'gpudoctor*'; ls -d /run/gpudoctor* 2>&- ||:"
    )


CLIENT = """
import argparse, sys
from pathlib import Path
from gpudoctor.cli_fix import fix_command
from gpudoctor.hosts.target import LiveTarget
from tests.lab_vm import LabTransport

make = lambda: LiveTarget(LabTransport(Path(sys.argv[1]), "lab"))
sys.exit(fix_command(argparse.Namespace(
    checks=["kern-numa-balancing"], yes=True, json=False, read_only=False, make_target=make)))
"""


# What must be there when the client is killed: its own copy, or a line of the target's journal.
MOMENTS = {
    "copy": "true",
    "script": "ls /var/lib/gpudoctor/2*/transaction.sh",
    "armed or not": "grep -q begin /var/lib/gpudoctor/2*/journal",
    "written": "grep -q 'intent 1' /var/lib/gpudoctor/2*/journal",
    "applied": "grep -q 'state applied' /var/lib/gpudoctor/2*/journal",
}
# The killed client's session has gone, and with it whatever could still start; no runner is left.
QUIET = (
    "for n in $(seq 300); do [ $(pgrep -fc '^sshd: root@notty') -le 1 ] && "
    "! pgrep -f '[t]ransaction.sh apply' >/dev/null && exit; sleep 0.1; done; exit 1"
)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_client_leaves_before_or_after(
    lab: Lab,
    arguments: Arguments,
    tmp_path: Path,
    moment: str,
) -> None:
    """Killed at some moment after the plan was shown: the target ends by itself, or never began."""
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(lab.config)],
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path)},
    )
    until(lambda: bool(list(tmp_path.glob("gpudoctor/*/2*.sh"))), "no copy at the client", 120)
    lab.run(f"for n in $(seq 300); do {MOMENTS[moment]} >/dev/null 2>&1 && exit; sleep 0.1; done")
    client.kill()
    client.wait()
    lab.run(QUIET)
    told = asyncio.run(transactions(LiveTarget(lab.transport())))
    assert not any(t.interrupted for t in told)
    stands = [t for t in told if t.stands]
    assert lab.run(READ) == ("0" if stands else "1")
    if stands:
        assert rollback_command(arguments("lab")) == 0
    assert lab.run(READ) == "1"
