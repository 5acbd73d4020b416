"""Formats of the kernel and container panels: edges, and every public output in the corpus."""

from pathlib import Path

import pytest

from gpudoctor.formats.apt_policy import parse_policy
from gpudoctor.formats.cgroup import parse_amount, parse_counters, parse_cpu_max
from gpudoctor.formats.choice import parse_choice
from gpudoctor.formats.cmdline import parse_cmdline
from gpudoctor.formats.cpuinfo import parse_cpuinfo
from gpudoctor.formats.cpulist import format_cpulist, parse_cpulist
from gpudoctor.formats.limits import parse_limits
from gpudoctor.formats.lxc_conf import LxcConf, parse_lxc_conf
from gpudoctor.formats.meminfo import parse_meminfo
from gpudoctor.formats.proc_devices import parse_char_majors
from gpudoctor.formats.version import compare, flavour, series
from gpudoctor.model import Evidence, Facts, Reason, Unknown
from gpudoctor.probes.cpu import SOCKETS
from gpudoctor.probes.kernel import (
    INSIDE_CONTAINER,
    KERNEL_LOG_READ,
    NODES,
    NUMA_NODES,
    KernelLog,
)

CORPUS = Path(__file__).parents[1].parent / "shared" / "corpus"
needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not beside the repo")


def corpus(pattern: str) -> list[Path]:
    return sorted(CORPUS.glob(pattern))


def conf(name: str) -> LxcConf:
    return parse_lxc_conf((CORPUS / "lxc" / f"{name}.conf").read_text())


def test_cmdline_keeps_order_quotes_and_repeats() -> None:
    line = parse_cmdline(
        'ro pci=a,b pci=c dyndbg="file x.c +p" amd_pstate=off amd-pstate=active -- q'
    )
    assert line.options("pci") == ("a", "b", "c")
    assert line.last("dyndbg") == "file x.c +p"
    assert line.last("amd_pstate") == "active"
    assert (line.last("ro"), line.last("q"), line.last("quiet")) == ("", None, None)
    assert [key for key, _ in line.items][:2] == ["ro", "pci"]


def test_choice() -> None:
    choice = parse_choice("always defer defer+madvise [madvise] never\n")
    assert choice.active == "madvise"
    assert choice.options == ("always", "defer", "defer+madvise", "madvise", "never")
    for bad in ("always never", "[a] [b]", ""):
        with pytest.raises(ValueError):
            parse_choice(bad)


def test_cpulist() -> None:
    assert parse_cpulist("0-2,8,10-11\n") == {0, 1, 2, 8, 10, 11}
    assert parse_cpulist("\n") == frozenset()
    assert format_cpulist({11, 10, 8, 2, 1, 0}) == "0-2,8,10-11"
    for bad in ("3-1", "a", "0-99999999", "-1"):
        with pytest.raises(ValueError):
            parse_cpulist(bad)


def test_meminfo_in_bytes() -> None:
    text = "MemTotal:       1024 kB\nActive(anon):      4 kB\nHugePages_Total:       7\n"
    assert parse_meminfo(text) == {"MemTotal": 1 << 20, "Active(anon)": 4096, "HugePages_Total": 7}
    with pytest.raises(ValueError):
        parse_meminfo("MemTotal: N/A\n")


def test_cgroup_values() -> None:
    assert (parse_amount("max\n"), parse_amount("4096\n")) == (None, 4096)
    assert (parse_cpu_max("max 100000\n"), parse_cpu_max("150000 100000\n")) == (None, 1.5)
    assert parse_counters("high 0\noom 2\nbad x\n") == {"high": 0, "oom": 2}


def test_char_majors_ignore_block_devices() -> None:
    text = (
        "Character devices:\n195 nvidia\n195 nvidiactl\n511 nvidia-uvm\n\nBlock devices:\n  9 md\n"
    )
    assert parse_char_majors(text)["nvidia-uvm"] == {511}
    assert "md" not in parse_char_majors(text)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("6.8.12-9-pve", "6.8.12-10-pve"),
        ("6.8.12-9", "6.8.12-18"),
        ("6.9", "6.14"),
        ("1.0~rc1", "1.0"),
        ("9.0", "1:1.0"),
        ("5.2.15-2+b8", "5.2.15-2+b13"),
        ("6.8.0", "6.8.0-45"),
    ],
)
def test_versions_in_order(older: str, newer: str) -> None:
    assert compare(older, newer) < 0 < compare(newer, older)
    assert compare(newer, newer) == 0


def test_release_parts() -> None:
    assert (series("6.8.12-9-pve"), series("7.0.1-1-pve")) == ((6, 8), (7, 0))
    assert [
        flavour(r) for r in ("6.8.12-9-pve", "6.1.0-31-amd64", "6.8.0-45-generic", "6.9.3")
    ] == [
        "pve",
        "amd64",
        "generic",
        "",
    ]
    with pytest.raises(ValueError):
        series("unknown")


def test_policy_tells_offered_from_merely_installed() -> None:
    text = (
        "a:\n  Installed: 1-1\n  Candidate: 1-2\n  Version table:\n     1-2 500\n"
        "        500 http://mirror.example x/main amd64 Packages\n *** 1-1 100\n"
        "        100 /var/lib/dpkg/status\n"
        "b:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n"
    )
    found = parse_policy(text)
    assert (found["a"].installed, found["a"].candidate, found["a"].offered) == ("1-1", "1-2", True)
    assert (found["b"].installed, found["b"].candidate, found["b"].offered) == ("", "", False)


def test_lxc_conf_rules() -> None:
    parsed = parse_lxc_conf(
        "lxc.cgroup2.devices.allow = c 195:* rwm  # all\nlxc.cgroup.devices.allow: c 510:* rwm\n"
        "lxc.cgroup2.devices.deny: c 195:254 rwm\ndev0: path=/dev/nvidia0,mode=0666\n"
        'lxc.mount.auto: "proc:rw"\n[snap]\ndev1: /dev/nvidia1\n'
    )
    assert parsed.allows("/dev/nvidiactl", 195, 255)
    assert not parsed.allows("/dev/nvidia-modeset", 195, 254)
    assert not parsed.allows("/dev/nvidia-uvm", 510, 0)
    assert parsed.allows("/dev/nvidia-uvm", 510, 0, version=1)
    assert parsed.devices == ("/dev/nvidia0",)
    assert parsed.last("lxc.mount.auto") == "proc:rw"


@needs_corpus
@pytest.mark.parametrize("path", corpus("lxc/*.conf"), ids=lambda p: p.stem)
def test_every_lxc_conf(path: Path) -> None:
    text = path.read_text()
    parsed = parse_lxc_conf(text)
    assert parsed.items or parsed.refused
    assert not any(key.startswith(("#", "[")) for key, _ in parsed.items)
    allowing = [r for r in parsed.rules if r.version == 2 and r.allow]
    live = text.split("\n[")[0].splitlines()
    said = [line for line in live if line.strip().startswith("lxc.cgroup2.devices.allow")]
    assert len(allowing) == len(said)


@needs_corpus
def test_lxc_confs_say_what_the_index_says() -> None:
    uvm = ("/dev/nvidia-uvm", 506, 0)
    assert not conf("ct102-cgroupv1-space-in-mp").allows(*uvm)
    assert (
        conf("ct102-cgroupv1-space-in-mp").last("mp2") == "/mnt/truenas/TV Shows,mp=/mnt/TV Shows"
    )
    assert conf("ct113-recovery-uvm509").allows("/dev/nvidia-uvm", 509, 0)
    assert conf("ct202-rtx3060-majors-documented").allows("/dev/nvidia-uvm", 504, 0)
    assert not conf("inline-comment-values").allows("/dev/nvidia0", 195, 0)
    assert {r.version for r in conf("inline-comment-values").rules} == {1}
    assert conf("gpuaas-6004-blanklines-wildcard").allows(*uvm)
    assert conf("gpuaas-6004-blanklines-wildcard").last("lxc.cap.drop") == ""
    assert "/dev/nvidia-uvm" in conf("dev-entries-mode0666-caps").devices
    assert conf("dshield-101-memlock-malformed").last("lxc.prlimit.memlock") is None
    assert conf("npu-idmap-memlock-unlimited").last("lxc.prlimit.memlock") == "unlimited"
    assert conf("plain-lxc-equals-syntax").allows("/dev/nvidiactl", 195, 255)
    assert conf("k3s-mount-auto-quoted").last("lxc.mount.auto") == "proc:rw sys:rw"
    assert not conf("perf-mig-v1-single-minor").allows("/dev/nvidiactl", 195, 255, version=1)
    assert conf("pve-container-expected-rollback-104").last("memory") == "4096"
    assert conf("pve-container-input-commit-101").hostname == "test"


@needs_corpus
@pytest.mark.parametrize("path", corpus("kernel/*cpuinfo*.txt"), ids=lambda p: p.stem)
def test_every_cpuinfo(path: Path) -> None:
    cpu = parse_cpuinfo(path.read_text())
    intel = "Intel" in path.read_text()
    assert (cpu.vendor == "GenuineIntel") == intel
    assert (cpu.family == 6) == intel
    assert not cpu.is_zen5


@needs_corpus
@pytest.mark.parametrize("path", corpus("kernel/*meminfo*.txt"), ids=lambda p: p.stem)
def test_every_meminfo(path: Path) -> None:
    memory = parse_meminfo(path.read_text())
    assert 1 << 30 < memory["MemTotal"] < 1 << 42
    assert memory["MemFree"] <= memory["MemTotal"]


@needs_corpus
def test_limits_cpulists_and_cmdlines() -> None:
    kernel = CORPUS / "kernel"
    limits = parse_limits((kernel / "procfs-limits.txt").read_text())
    assert limits["Max locked memory"].soft is None
    assert (limits["Max open files"].soft, limits["Max open files"].hard) == (2048, 4096)
    assert limits["Max nice priority"].soft == 0
    cpus = parse_cpulist((kernel / "insights-numa_cpus-node1_cpulist.txt").read_text())
    assert cpus == frozenset(range(1, 48, 2))
    for path in corpus("kernel/insights-cmdline*"):
        line = parse_cmdline(path.read_text())
        assert line.all("rd.lvm.lv") == ("system_vg/Root", "system_vg/Swap")
        assert line.last("quiet") == ""


@needs_corpus
@pytest.mark.parametrize("path", corpus("kernel/uname-*.txt"), ids=lambda p: p.stem)
def test_every_uname(path: Path) -> None:
    release = path.read_text().split()[2]
    assert series(release) >= (6, 3)
    assert flavour(release) == ("pve" if release.endswith("-pve") else "")


def test_kernel_log_unread_is_not_clean() -> None:
    read = KERNEL_LOG_READ.parse
    answer = read(Evidence("kernel-log", stdout=b"lines 0\n"), "")
    assert isinstance(answer, Unknown) and answer.reason is Reason.NO_PERMISSION
    answer = read(Evidence("kernel-log", stdout=b"x\nlines 9\n"), "lxc")
    assert isinstance(answer, Unknown) and answer.reason is Reason.CONTAINER_VIEW
    answer = read(Evidence("kernel-log", stdout=b"[1.0] NVRM: Xid 79\n"), "")
    assert isinstance(answer, Unknown) and answer.reason is Reason.PARSE_FAILED
    answer = read(Evidence("kernel-log", stdout=b"[1.0] NVRM: x\nlines 9\n"), "")
    assert answer == KernelLog(("[1.0] NVRM: x",), 9)
    assert answer.matching("NVRM") == answer.lines


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"/proc/1/cgroup": b"0::/init.scope\n"}, ""),
        ({"/proc/1/cgroup": b"0::/\n", "/.dockerenv": b""}, "docker"),
        ({"/run/systemd/container": b"lxc"}, "lxc"),
        ({"/proc/1/cgroup": b"4:cpu:/kubepods/x\n"}, "kubepods"),
        (
            {"/proc/1/cgroup": b"0::/\n", "/sys/fs/cgroup/cgroup.events": b"populated 1\n"},
            "container",
        ),
    ],
)
def test_inside_a_container(files: dict[str, bytes], wanted: str) -> None:
    assert INSIDE_CONTAINER.parse(Evidence("container-marks", files=files)) == wanted


def test_long_lines_of_spaces_and_brackets() -> None:
    many = 600_000  # a quadratic pattern would take hours
    conf = parse_lxc_conf(f"hostname: a{' ' * many}b\nmemory:  1{' ' * many}# all of it")
    with pytest.raises(ValueError, match="brackets"):
        parse_choice("[" * many)
    assert conf.last("memory") == "1" and conf.hostname.endswith(" b")


@pytest.mark.parametrize("memory", [b"", b"Node 1 MemTotal: many kB\n"])
def test_a_node_whose_memory_is_untold_is_not_left_out(memory: bytes) -> None:
    node = "/sys/devices/system/node/node"
    files = {f"{node}{n}/cpulist": b"%d\n" % n for n in range(2)}
    files |= {f"{node}0/meminfo": b"Node 0 MemTotal:  8 kB\n", f"{node}1/meminfo": memory}
    found = Facts({NODES.key: Evidence(NODES.key, files=files)})[NUMA_NODES]
    assert isinstance(found, Unknown) and found.reason is Reason.PARSE_FAILED


def test_garbage_is_no_number_of_sockets() -> None:
    (probe,) = SOCKETS.probes()
    files = {"/cpu0": b"\xffa\n", "/cpu1": b"0\n"}
    found = Facts({probe.key: Evidence(probe.key, files=files)})[SOCKETS]
    assert isinstance(found, Unknown) and found.reason is Reason.PARSE_FAILED
