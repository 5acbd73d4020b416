"""Every answer of an audit has a rule in a diff, and what ages in every reading is left out."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpudoctor.before_reboot import READERS
from gpudoctor.comparing import compared
from gpudoctor.formats.dmi_memory import parse_dimms
from gpudoctor.judging import Judging
from gpudoctor.model import Files, Listing, Panel, Probe, Side, Tool
from gpudoctor.model.diff import Name, Sort
from gpudoctor.recording import Answers
from gpudoctor.snapshots.compared import PARSERS, values
from gpudoctor.snapshots.compared_form import FORMS
from gpudoctor.snapshots.compared_rules import Rules, table
from tests.diff_rig import audited, kept, side


def _asked() -> Iterator[Probe]:
    """Yield every probe: the independent ones, and the dependent ones as the demo is asked."""
    judging = Judging(Panel, READERS)
    first = [*judging.begin(Side.HOST).due, *judging.begin(Side.CONTAINER).due]
    made = audited({}).asked
    yield from first
    for later in judging.waiting:
        if later.key in made:
            yield made[later.key]
        else:
            assert later.key in table().tools, f"{later.key} is not asked on the demo host"


def _ruleless(rules: Rules, probe: Files | Listing) -> list[str]:
    return [f"{probe.key}: {p}" for p in probe.patterns if rules.find(p) is None]


def test_every_probe_has_a_rule() -> None:
    rules = table()
    missing: list[str] = []
    for probe in _asked():
        if isinstance(probe, Tool):
            missing += [] if probe.key in rules.tools else [probe.key]
        else:
            known = rules.files if isinstance(probe, Files) else rules.listings
            missing += _ruleless(known, probe)
    assert not missing, f"no rule in tables/compared.toml: {missing}"


def test_every_path_that_the_demo_answers_has_a_rule() -> None:
    for kept_side in kept({}, "old").sides.values():
        for found, rules in (
            (kept_side.files, table().files),
            (kept_side.listings, table().listings),
        ):
            assert not [path for path in found if rules.find(path) is None]


def test_every_rule_names_a_parser_and_a_form_that_there_are() -> None:
    rules = table()
    every = (*rules.files.all, *rules.listings.all, *rules.tools.values())
    assert not [rule for rule in every if rule.parse and rule.parse not in PARSERS]
    assert not [rule for rule in every if rule.form not in FORMS]
    used = {rule.parse for rule in every}
    assert not PARSERS.keys() - used


# What ages within structured texts; whole files and tools that do are changed by their rules.
_AGED = {
    "files": {
        "/proc/swaps": "Filename Type Size Used Priority\n/dev/dm-0 partition 8388604 99 -2\n"
    },
    "seed": {"gpu": {"fb_used_mib": 92000, "bar1_used_mib": 500, "util": 7, "mem_util": 3}},
    "gpus": {
        "0000:01:00.0": {"celsius": 41, "watts": 123.45, "sm_mhz": 1980, "pid": 51830},
        "0000:21:00.0": {"celsius": 42, "watts": 122.45, "sm_mhz": 1981, "pid": 51831},
    },
}
_DIGIT = re.compile(rb"\d")
# Not taken from the rule table, which is what the test is about.
_AGEING = (
    r"/proc/uptime",
    r"/proc/pressure/.*",
    r"/proc/\d+/cgroup",
    r"/sys/fs/cgroup/.*memory[.]current",
    r"/sys/fs/cgroup/.*cpu[.]stat",
    r"/sys/kernel/mm/ksm/pages_sharing",
    r"/sys/devices/system/cpu/cpu\d+/cpuidle/state\d+/usage",
    r"/sys/.*/hwmon/hwmon\d+/temp\d+_input",
    r"/sys/bus/pci/devices/.*/runtime_status",
    r"/sys/bus/pci/devices/.*/current_link_speed",
)
_AGEING_TOOLS = {
    "process-tree",
    "kernel-policy",
    "nvidia-smi-compute-apps",
    "server-metrics-inside",
}


def _aged(answers: Answers) -> Answers:
    """Return one side's answers with all that ages otherwise than before."""
    files = {
        path: _otherwise(data) if _ages(path) and isinstance(data, bytes) else data
        for path, data in answers.files.items()
    }
    if isinstance(memory := files.get("/proc/meminfo"), bytes):
        files["/proc/meminfo"] = re.sub(rb"(Mem(?:Free|Available): +)\d+", rb"\g<1>77", memory)
    tools = {
        key: replace(said, stdout=_otherwise(said.stdout)) if key in _AGEING_TOOLS else said
        for key, said in answers.tools.items()
    }
    return Answers(files, answers.listings, tools, answers.asked)


def _ages(path: str) -> bool:
    return any(re.fullmatch(pattern, path) for pattern in _AGEING)


def _otherwise(data: bytes) -> bytes:
    return _DIGIT.sub(lambda m: b"%d" % ((int(m[0]) + 3) % 10), data) + b" "


def test_two_audits_of_one_machine_differ_in_nothing_that_ages() -> None:
    old, new = kept({}, "old"), kept(_AGED, "new")
    sides = {which: _aged(answers) for which, answers in new.sides.items()}
    assert values(old.sides) == values(sides)


def test_the_demo_has_what_ages() -> None:
    sides = kept({}, "old").sides.values()
    paths = [path for answers in sides for path in answers.files]
    assert not [p for p in _AGEING if not any(re.fullmatch(p, path) for path in paths)]
    assert {key for answers in sides for key in answers.tools} >= _AGEING_TOOLS


def test_pids_of_a_restarted_server_are_no_values() -> None:
    host = kept({}, "old").sides[Side.HOST]
    moved = Answers(dict(host.files), dict(host.listings), dict(host.tools), host.asked)
    scan = host.tools["serving-processes"]
    pids = {m for m in re.findall(rb"^p (\d+)", scan.stdout, re.MULTILINE) if int(m) > 1}
    text, files = scan.stdout, moved.files
    for pid in pids:
        new = str(int(pid) + 10_000).encode()
        text = re.sub(rb"\b" + pid + rb"\b", new, text)
        files = {
            p.replace(f"/proc/{pid.decode()}/", f"/proc/{new.decode()}/"): d
            for p, d in files.items()
        }
    moved.tools["serving-processes"], moved.files = replace(scan, stdout=text), files
    one, other = values({Side.HOST: host})[0], values({Side.HOST: moved})[0]
    assert pids and one == other
    assert Name("SGLang", "--tensor-parallel-size") in one


def test_a_live_audit_and_its_file_have_the_same_values() -> None:
    live, file = compared(audited({})), side({}, "old")
    assert live.values == file.values and live.unread == file.unread
    assert live.findings == file.findings


def test_counters_are_whole_numbers() -> None:
    found = side({}, "old").values
    counters = [value.text for value in found.values() if value.sort is Sort.COUNTER]
    assert len(counters) > 50 and all(text.isdigit() for text in counters)
    assert not [name for name, value in found.items() if value.sort is Sort.VOLATILE]


@pytest.mark.parametrize("key", sorted(k for k, r in table().tools.items() if r.parse))
def test_a_tool_that_prints_nonsense_is_unread(key: str) -> None:
    host = kept({}, "old").sides[Side.HOST]
    said = host.tools.get(key)
    if said is None:
        pytest.skip("not a tool of the host's side")
    broken = Answers(host.files, host.listings, dict(host.tools), host.asked)
    broken.tools[key] = replace(said, stdout=b"\x1b[31m<xml>\nno\n", exit=0, problem=None)
    values({Side.HOST: broken})  # whatever it prints, nothing is raised


@pytest.mark.parametrize(
    "junk", (b"", b"\xff" * 70, b"-1 : = \n" * 9, b"9" * 5000, b"[" * 9000 + b"{}%s%n\x00")
)
def test_whatever_a_host_answers_nothing_is_raised(junk: bytes) -> None:
    sides = {}
    for which, answers in kept({}, "old").sides.items():
        files = dict.fromkeys(answers.files, junk)
        tools = {key: replace(said, stdout=junk) for key, said in answers.tools.items()}
        listings = dict.fromkeys(answers.listings, junk)
        sides[which] = Answers({**files}, {**listings}, tools, answers.asked)
    found, unread = values(sides)
    assert unread["host:/proc/meminfo"] and Name("memory", "size") not in found
    assert not [name for name in found if "\n" in f"{name}{found[name].text}"]


def test_memory_modules_of_old_and_new_dmidecode() -> None:
    text = (
        "Memory Device\n\tSize: 16384 MB\n\tLocator: A1\n\tConfigured Clock Speed: 2666 MHz\n"
        "\nMemory Device\n\tSize: No Module Installed\n\tLocator: A2\n"
        "\nMemory Device\n\tSize: 64 GB\n\tLocator: A3\n\tBank Locator: P0\n"
        "\tSpeed: 6400 MT/s\n\tConfigured Memory Speed: 5600 MT/s\n"
    )
    told = [(dimm.slot, str(dimm)) for dimm in parse_dimms(text)]
    assert told == [
        ("A1", "16 GiB at 2666 MT/s"),
        ("A2", "empty"),
        ("P0 A3", "64 GiB at 5600 MT/s"),
    ]


def test_the_demo_machine_has_what_the_inventory_names() -> None:
    found = side({}, "old").values
    for of, what in (
        ("", "kernel"),
        ("firmware", "bios_version"),
        ("memory", "slots filled"),
        ("device major", "nvidia-uvm"),
        ("NUMA", "nodes"),
        ("GPU 0000:01:00.0", "VBIOS"),
        ("GPU 0000:01:00.0", "BAR1 in MiB"),
        ("GPU 0000:01:00.0", "lanes"),
        ("driver", "version"),
    ):
        assert Name(of, what) in found, (of, what)
