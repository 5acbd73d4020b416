"""The simulated machine: the sh it reads, and the kernel's way with what is written."""

import subprocess
from pathlib import Path

import pytest

from gpudoctor.hosts.simulated import SimulatedMachine, ToolAnswer
from gpudoctor.hosts.simulated_shell import NotSimulated, parse
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.model import Files, Listing, Reason, Tool, Unknown
from gpudoctor.model.place import ContainerRef

CPU = "/sys/devices/system/cpu"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
FILES = {
    "/proc/sys/vm/dirty_ratio": "20",
    "/proc/sys/vm/dirty_bytes": "0",
    "/proc/sys/vm/swappiness": "60",
    "/proc/sys/kernel/numa_balancing": "1",
    "/proc/sys/kernel/osrelease": "6.8.0",
    THP: "[always] madvise never",
    f"{CPU}/cpufreq/policy0/scaling_governor": "powersave",
    f"{CPU}/cpufreq/policy0/scaling_available_governors": "performance powersave",
    f"{CPU}/cpufreq/policy0/energy_performance_preference": "balance_power",
    f"{CPU}/cpufreq/policy0/energy_performance_available_preferences": "performance balance_power",
    f"{CPU}/cpufreq/policy1/scaling_governor": "powersave",
    "/sys/kernel/mm/ksm/run": "1",
    "/sys/kernel/mm/ksm/pages_sharing": "812",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet",
    "/sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet",
    f"{CPU}/cpu0/power/pm_qos_resume_latency_us": "0",
}
GPU = "0000:01:00.0"


@pytest.fixture
def machine() -> SimulatedMachine:
    return SimulatedMachine(files={path: f"{text}\n".encode() for path, text in FILES.items()})


READS = [
    ("cat /proc/sys/vm/swappiness", "60\n"),
    ("sysctl -n kernel.numa_balancing", "1\n"),
    ("sysctl vm.swappiness", "vm.swappiness = 60\n"),
    ("cat '/proc/sys/vm/swappiness' | tr -d '\\n'", "60"),
    (f"sed -n 's/.*\\[\\(.*\\)\\].*/\\1/p' {THP}", "always\n"),
    (f"grep -o '\\[[a-z]*\\]' {THP} | tr -d '[]'", "always\n"),
    ("printf '%s %s\\n' vm.swappiness \"$(cat /proc/sys/vm/swappiness)\"", "vm.swappiness 60\n"),
    (f"cat {CPU}/cpufreq/policy*/scaling_governor", "powersave\npowersave\n"),
    ("cat /absent 2>/dev/null || echo gone", "gone\n"),
    ("[ -e /absent ] && echo there; echo end", "end\n"),
    ("! [ -e /absent ] && echo absent", "absent\n"),
    ("echo 'a;b' \"c|d\" e\\ f # a remark", "a;b c|d e f\n"),
    ("cat /absent 2>&1 | head -c 14", "cat: /absent: "),
    ("cat < /proc/sys/vm/swappiness", "60\n"),
    ("true; exit 3; echo never", ""),
]


@pytest.mark.parametrize(("text", "output"), READS)
def test_reads(machine: SimulatedMachine, text: str, output: str) -> None:
    assert machine.sh(text)[1] == output


# The same text does the same in the real sh, as far as ordinary files go.
ALIKE = [
    *(text for text, _ in READS if "sysctl" not in text),
    "cat AT/a AT/absent 2>/dev/null",
    "echo 'one two' > AT/b; cat AT/b AT/a | tr ' ' '\\n'",
    "printf '%s=%s\\n' a 1 b 2",
    "printf '%04x %d%%\\n' 255 7",
    "grep -v 60 AT/a || echo none",
    "grep -qx 60 AT/a && echo yes",
    "grep -c '[0-9]' AT/a",
    "sed 's/6\\(0\\)/<\\1&>/g' AT/a",
    'echo "$(cat AT/a) $(echo "b  c")" $(echo d  e)',
    "echo x > AT/new && cat AT/new; echo y >> AT/new; head -n 1 AT/new",
    "head -c 1 AT/a; head -1 AT/a",
    "test 3 -gt 2 && [ a != b ] && [ -n x ] && echo all",
    "[ -d AT ] && rm -f AT/a && ! cat AT/a 2>/dev/null && echo removed",
    "echo AT/*b* 'AT/*' AT/none*",
    "false || true && echo '#' \\# #",
    "cat AT/a 1>&2 2>/dev/null; echo $",
]


@pytest.mark.parametrize("text", ALIKE)
def test_like_the_real_sh(text: str, tmp_path: Path) -> None:
    at = str(tmp_path)
    text = text.replace("/proc/sys/vm/swappiness", f"{at}/a").replace("AT", at)
    files = {"a": "60\n", "b": "words\n", "c": "[always] madvise\n"}
    for name, data in files.items():
        (tmp_path / name).write_text(data)
    text = text.replace(THP, f"{at}/c").replace(
        f"{CPU}/cpufreq/policy*/scaling_governor", f"{at}/*"
    )
    machine = SimulatedMachine(files={f"{at}/{n}": d.encode() for n, d in files.items()})
    code, output, _ = machine.sh(text)
    real = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)
    assert (output, code == 0) == (real.stdout, real.returncode == 0)
    left = {str(path): path.read_bytes() for path in tmp_path.iterdir()}
    assert machine.files == left


WRITES = [
    ("sysctl -w kernel.numa_balancing=0", {"/proc/sys/kernel/numa_balancing": "0"}),
    ("sysctl -w 'vm.swappiness=10'", {"/proc/sys/vm/swappiness": "10"}),
    ("printf '%s' 10 > /proc/sys/vm/swappiness", {"/proc/sys/vm/swappiness": "10"}),
    ("echo 10 | tee /proc/sys/vm/swappiness >/dev/null", {"/proc/sys/vm/swappiness": "10"}),
    (f"echo madvise > {THP}", {THP: "always [madvise] never"}),
    (
        "sysctl -w vm.dirty_bytes=4294967296",
        {"/proc/sys/vm/dirty_bytes": "4294967296", "/proc/sys/vm/dirty_ratio": "0"},
    ),
    (
        f"echo performance > {CPU}/cpufreq/policy0/scaling_governor",
        {
            f"{CPU}/cpufreq/policy0/scaling_governor": "performance",
            f"{CPU}/cpufreq/policy0/energy_performance_preference": "performance",
        },
    ),
    (
        "echo 2 > /sys/kernel/mm/ksm/run",
        {"/sys/kernel/mm/ksm/run": "2", "/sys/kernel/mm/ksm/pages_sharing": "0"},
    ),
    (
        f"echo n/a > {CPU}/cpu0/power/pm_qos_resume_latency_us",
        {f"{CPU}/cpu0/power/pm_qos_resume_latency_us": "n/a"},
    ),
    ("echo note > /etc/new; echo more >> /etc/new", {"/etc/new": "note\nmore"}),
]


@pytest.mark.parametrize(("text", "changed"), WRITES)
def test_writes(machine: SimulatedMachine, text: str, changed: dict[str, str]) -> None:
    assert machine.sh(text)[0] == 0
    now = {path: data.decode().removesuffix("\n") for path, data in machine.files.items()}  # type: ignore[union-attr]
    assert now == FILES | changed


REFUSED = [
    (f"echo bogus > {THP}", "Invalid argument"),
    ("sysctl -w vm.swappiness=201", "Invalid argument"),
    ("sysctl -w vm.swappiness=many", "Invalid argument"),
    ("sysctl -w vm.dirty_bytes=0", "Invalid argument"),
    ("sysctl -w kernel.absent=1", "No such file or directory"),
    ("sysctl -w kernel.osrelease=6.9", "Permission denied"),
    ("echo 1 > /sys/absent", "No such file or directory"),
    (f"echo bogus > {CPU}/cpufreq/policy0/scaling_governor", "Invalid argument"),
    ("unheard-of", "not found"),
    ("for f in a b; do cat $f; done", "not simulated"),
    ("x=1; echo $x", "not simulated"),
    ("echo `id`", "not simulated"),
]


@pytest.mark.parametrize(("text", "complaint"), REFUSED)
def test_refusals(machine: SimulatedMachine, text: str, complaint: str) -> None:
    before = dict(machine.files)
    code, output, complaints = machine.sh(text)
    assert code != 0
    assert complaint in complaints
    assert output == ""
    assert machine.files == before


def test_preference_is_busy_under_performance(machine: SimulatedMachine) -> None:
    policy = f"{CPU}/cpufreq/policy0"
    machine.sh(f"echo performance > {policy}/scaling_governor")
    code, _, complaints = machine.sh(f"echo balance_power > {policy}/energy_performance_preference")
    assert (code, "Device or resource busy" in complaints) == (1, True)


def test_unknown_clock_source_is_ignored(machine: SimulatedMachine) -> None:
    path = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    assert machine.sh(f"echo bogus > {path}") == (0, "", "")
    assert machine.text(path) == "hpet"
    assert machine.sh(f"echo tsc > {path}; cat {path}")[1] == "tsc\n"


def test_container_sees_and_cannot_write_the_hosts_kernel(machine: SimulatedMachine) -> None:
    inside = SimulatedMachine(kernel=machine)
    assert inside.sh("cat /proc/sys/vm/swappiness") == (0, "60\n", "")
    code, _, complaints = inside.sh("sysctl -w vm.swappiness=10")
    assert (code, "Read-only file system" in complaints) == (255, True)


def test_probes(machine: SimulatedMachine) -> None:
    machine.files["/etc/shadow"] = Unknown(Reason.NO_PERMISSION, "/etc/shadow: denied")
    machine.listings["/dev/nvidia0"] = b"crw-rw-rw- 1 0 0 195, 0 Jan  5 08:00 /dev/nvidia0"
    machine.tools["lines"] = lambda m: ToolAnswer(f"{len(m.files)}\n")
    governors = machine.answer(Files("g", (f"{CPU}/cpufreq/policy*/scaling_governor",)))
    assert sorted(governors.files) == [f"{CPU}/cpufreq/policy{n}/scaling_governor" for n in (0, 1)]
    small = machine.answer(Files("s", (THP,), cap=4)).files[THP]
    assert isinstance(small, Unknown) and small.reason is Reason.TOO_BIG
    assert machine.answer(Files("h", (THP,), cap=4, head=True)).files[THP] == b"[alw"
    denied = machine.answer(Files("d", ("/etc/shadow",))).problem
    assert denied and denied.reason is Reason.NO_PERMISSION
    assert list(machine.answer(Listing("l", ("/dev/nvidia*",))).files) == ["/dev/nvidia0"]
    assert machine.answer(Tool("lines", "wc", "wc -l")).text == f"{len(machine.files)}\n"
    absent = machine.answer(Tool("other", "lspci", "lspci")).problem
    assert absent and absent.reason is Reason.TOOL_MISSING


REGISTERS = [
    ("setpci -s 01:00.0 CAP_EXP+8.w", "2937\n"),
    (f"setpci -s {GPU} CAP_EXP+8.w=5000:7000; setpci -s {GPU} CAP_EXP+8.w", "5937\n"),
    # Bit 15 would reset the function: it reads as zero whatever is written.
    (f"setpci -s {GPU} CAP_EXP+8.w=ffff; setpci -s {GPU} CAP_EXP+8.w", "7fff\n"),
    ("setpci -s 00:01.1 ECAP_ACS+6.w", "001d\n"),
    ("setpci -s 00:01.1 ECAP_ACS+6.w=0000:000c; setpci -s 00:01.1 ECAP_ACS+6.w", "0011\n"),
]


@pytest.mark.parametrize(("text", "output"), REGISTERS)
def test_registers(text: str, output: str) -> None:
    assert demo_machine().sh(text) == (0, output, "")


def test_register_that_is_not_there() -> None:
    code, _, complaints = demo_machine().sh(f"setpci -s {GPU} ECAP_ACS+6.w")
    assert (code, "not found" in complaints) == (1, True)


@pytest.mark.parametrize("text", ["cat 'open", 'echo "open', "cat $(echo a", "a & b", "( a )"])
def test_text_beyond_it_is_refused(text: str) -> None:
    with pytest.raises(NotSimulated):
        parse(text)


async def test_another_container_is_not_there() -> None:
    target = SimulatedTarget(demo_machine(), NO_WAIT)
    probe = Files("f", ("/proc/1/limits",))
    for name, there in (("101", True), ("102", False)):
        side = target.container(ContainerRef("lxc", name))
        (evidence,) = await side.ask([probe])[0]
        assert (evidence.problem is None) == there


def test_seed_names_nobody() -> None:
    seed = Path(__file__).parents[1] / "gpudoctor" / "tables" / "demo.toml"
    assert "http" not in seed.read_text()
