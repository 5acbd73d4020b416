"""Plans by hand that checks work out: exact commands, and none where something is not certain."""

import re
import subprocess
from pathlib import Path

import pytest

from gpudoctor.checks.container_conf import devices_in_conf, nesting_on, unlimited_memlock
from gpudoctor.checks.server_unit import set_in_unit, unset_in_unit
from gpudoctor.formats.container_ref import containers_of
from gpudoctor.formats.engines import Engine
from gpudoctor.formats.lxc_conf import parse_lxc_conf
from gpudoctor.formats.serving import Server
from gpudoctor.model import Change, Reason, Side, Unknown, Worked
from gpudoctor.probes.container import ContainerConf

_CONF = "arch: amd64\nfeatures: keyctl=1,mount=nfs;cifs\ndev0: /dev/nvidia0\ndev2: /dev/nvidiactl\n"
_SNAPSHOT = "\n[before]\nlxc.prlimit.memlock: 1\narch: amd64\n"
_LINE = "lxc.prlimit.memlock: unlimited\n"


def conf(
    text: str = _CONF, path: str = "/etc/pve/lxc/101.conf", name: str = "101"
) -> ContainerConf:
    return ContainerConf(path, name, parse_lxc_conf(text))


def worked(options: tuple[tuple[Change, ...], ...]) -> Worked:
    ((change,),) = options
    assert isinstance(change, Worked)
    return change


def server(cgroup: str, side: Side = Side.HOST, **env: str) -> Server:
    line = (f"0::{cgroup}",)
    where = containers_of(line)
    return Server(9, 1, Engine.VLLM, (), (), env, containers=where, cgroup=line, side=side)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_CONF, _CONF + _LINE),
        (_CONF + _SNAPSHOT, _CONF + "\n" + _LINE + _SNAPSHOT[1:]),
        ("lxc.prlimit.memlock: -1\n" + _CONF + _SNAPSHOT, _CONF + "\n" + _LINE + _SNAPSHOT[1:]),
        ("arch: amd64", "arch: amd64\n" + _LINE),
    ],
)
def test_the_line_goes_above_the_snapshots(tmp_path: Path, before: str, after: str) -> None:
    """The commands themselves, run on a copy: the live section has the line once."""
    live, kept = tmp_path / "live", tmp_path / "kept"
    plan = worked(unlimited_memlock(conf()))

    def run(command: str) -> None:
        text = re.sub(r"/root/\S+", str(kept), command.replace("/etc/pve/lxc/101.conf", str(live)))
        subprocess.run(["sh", "-c", text], check=True)

    live.write_text(before)
    for command in plan.commands[:2]:
        run(command)
    assert live.read_text() == after
    run(plan.undo[0])
    assert live.read_text() == before


def test_restarts_come_last() -> None:
    plan = worked(unlimited_memlock(conf()))
    assert plan.commands[2:] == plan.undo[1:] == ("pct reboot 101",)


def test_nesting_keeps_the_other_features() -> None:
    plan = worked(nesting_on(conf()))
    assert plan.commands[0] == "pct set 101 --features 'keyctl=1,mount=nfs;cifs,nesting=1'"
    assert plan.undo[0] == "pct set 101 --features 'keyctl=1,mount=nfs;cifs'"
    assert worked(nesting_on(conf("arch: amd64\n"))).undo[0] == "pct set 101 --delete features"


def test_devices_take_free_numbers() -> None:
    plan = worked(devices_in_conf(conf(), ["/dev/nvidia-uvm", "/dev/nvidia-modeset"], live=True))
    assert plan.commands == (
        "pct set 101 --dev1 /dev/nvidia-uvm",
        "pct set 101 --dev3 /dev/nvidia-modeset",
    )
    assert plan.undo == ("pct set 101 --delete dev1", "pct set 101 --delete dev3")


@pytest.mark.parametrize(
    "where",
    [
        Unknown(Reason.NOT_PRESENT, "no file"),
        conf(path="/var/lib/lxc/101/config"),
        conf(path="the given configuration", name=""),
    ],
)
def test_no_plan_without_proxmox(where: ContainerConf | Unknown) -> None:
    assert unlimited_memlock(where) == ()
    assert devices_in_conf(where, ["/dev/nvidia-uvm"]) == ()


def test_a_unit_inside_a_container() -> None:
    plan = worked(set_in_unit(server("/lxc.payload.a-1/system.slice/vllm@0.service"), "A_B", "x"))
    file = "/etc/systemd/system/vllm@0.service.d/gpudoctor-a-b.conf"
    assert plan.commands == (
        "lxc-attach -n a-1 -- mkdir -p /etc/systemd/system/vllm@0.service.d",
        f"printf '%s\\n' '[Service]' Environment=A_B=x | lxc-attach -n a-1 -- tee {file}",
        "lxc-attach -n a-1 -- systemctl daemon-reload",
        "lxc-attach -n a-1 -- systemctl restart vllm@0.service",
    )
    assert plan.undo[0] == f"lxc-attach -n a-1 -- rm {file}"


@pytest.mark.parametrize(
    "cgroup",
    [
        "/user.slice/user-0.slice/session-1.scope",
        "/user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service",
        "/system.slice/ssh.service",
        "/system.slice/run-u12.service",
        "/system.slice/docker-" + 64 * "a" + ".scope",
        "/lxc/101/ns/system.slice/docker-" + 64 * "a" + ".scope",
        "/system.slice/vllm.service/more",
        "/system.slice/$(reboot).service",
        "/system.slice/vllm.service; reboot",
        "/lxc/101/ns/user.slice/vllm.service",
    ],
)
def test_no_unit_of_its_own(cgroup: str) -> None:
    assert set_in_unit(server(cgroup), "OMP_NUM_THREADS", "8") == ()


def test_only_what_the_environment_tells() -> None:
    """What is set already may come from a file that wins; what is not set cannot be taken out."""
    unit = "/system.slice/vllm.service"
    assert set_in_unit(server(unit, NCCL_P2P_LEVEL="PHB"), "NCCL_P2P_LEVEL", "SYS") == ()
    assert unset_in_unit(server(unit), ["NCCL_DEBUG"]) == ()
    assert unset_in_unit(server(unit, NCCL_DEBUG="INFO"), ["NCCL_DEBUG", "NCCL_PROTO"]) == ()
    assert unset_in_unit(server(unit, side=Side.CONTAINER, A="1"), ["A"]) == ()
    plan = worked(unset_in_unit(server(unit, A="1"), ["A"]))
    assert plan.commands[1].startswith("printf '%s\\n' '[Service]' UnsetEnvironment=A | tee /etc/")
