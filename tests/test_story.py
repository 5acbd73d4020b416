"""The story as data: records, journals and values now in, fates out; and the look over a login."""

import argparse
import json
import subprocess
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpudoctor import story as telling
from gpudoctor.cli_story import story_command
from gpudoctor.fixes import reads_of
from gpudoctor.formats.bulk import parse_both, parse_files
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.root_shell import LiveShell
from gpudoctor.hosts.session_script import Sudo
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model import (
    Change,
    Class,
    Finding,
    GpuSetting,
    Impact,
    LatencyHold,
    OwnFile,
    Panel,
    PciBits,
    Reason,
    Sysctl,
    Sysfs,
    Unknown,
    Verdict,
    good,
    issue,
    unknown,
)
from gpudoctor.model.audited import AuditResult, Identity
from gpudoctor.model.error import AnotherMachine
from gpudoctor.model.plan import State, Transaction
from gpudoctor.model.snapshot import Kind, SnapshotHead
from gpudoctor.model.story import Fate, KeptItem, KeptStep, PlanRecord, Story, Told
from gpudoctor.report_story import plain as report
from gpudoctor.report_story import story_json
from gpudoctor.shell import list_entries, read_files
from gpudoctor.snapshots import plans
from gpudoctor.snapshots.catalog import heads as heads_in
from gpudoctor.snapshots.epochs import epoch
from gpudoctor.snapshots.store import machine_folder, save
from gpudoctor.snapshots.telling import worth_telling
from gpudoctor.story import after_audit, look, reads
from gpudoctor.story.reads import Look
from gpudoctor.story.values import CAP, OWN_CAP, plain
from gpudoctor.transaction_script import Places
from tests.snapshot_rig import run

CASES = sorted((Path(__file__).parent / "stories").glob("*.toml"))
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
SWAP = Path("/proc/sys/vm/swappiness").read_text().strip()
M = "0123456789abcdef" * 2
ID, CLONES = "20260101-000000-00000a", "20260102-000000-00000b"


def machine_id() -> str:
    path = Path("/etc/machine-id")
    return path.read_text().strip() if path.exists() else ""


def record_of(table: Mapping[str, Any], number: int) -> PlanRecord:
    """Return a record; a case writes its items as `[name, before, wanted]`, and fewer fields."""
    steps = [
        {"way": 0, "title": f"the change of {step['check']}"}
        | step
        | {
            "items": [
                {"names": [i[0]], "before": i[1], "wanted": i[2], "lasting": i[3:] == ["lasting"]}
                for i in step["items"]
            ]
        }
        for step in table["steps"]
    ]
    plain_fields = {
        "label": "gpu1",
        "operator": "alice@desk",
        "machine_id": "",
        "applied": f"2026-01-01T00:00:{number:02}+00:00",
    }
    return plans.record_of(
        plain_fields | {k: v for k, v in table.items() if k != "steps"} | {"step": steps}
    )


def heads_of(case: Mapping[str, Any]) -> list[SnapshotHead]:
    """Return the snapshots, newest first; a case writes them oldest first."""
    heads = [
        SnapshotHead(
            f"{number:08x}",
            Kind(one["kind"]),
            "gpu1",
            "root",
            f"2026-01-01T00:01:{number:02}+00:00",
            "0",
            f"/store/m/{number}.toml",
            1,
            Identity(boot_id=one["boot"]),
            one.get("transaction", ""),
        )
        for number, one in enumerate(case["snapshots"])
    ]
    return heads[::-1]


def value_of(value: Any) -> str | Unknown:
    return value if isinstance(value, str) else Unknown(Reason(value["reason"]), value["detail"])


def look_of(case: Mapping[str, Any], records: list[PlanRecord]) -> Look:
    """Return what the host told: without [[journal]] it has one for each record, applied."""
    given = case.get("journal", [{"id": one.id, "boot": one.boot_id} for one in records])
    told = {}
    for one in given:
        steps = tuple(map(tuple, one.get("steps", [])))
        told[one["id"]] = (
            Transaction(
                one["id"],
                State(one.get("state", "applied")),
                "bob@elsewhere",
                "2026-01-01T00:00:30Z",
                tuple(title for _, title in steps),
                tuple(check for check, _ in steps),
                one.get("boot", "b1"),
                began=one.get("began", 1.0),
                lasting=one.get("lasting", False),
            ),
            steps,
        )
    values: dict[Change, dict[str, str | Unknown]] = {}
    starts: dict[Change, tuple[str, float]] = {}
    units: dict[OwnFile, str] = {}
    for step in (step for one in records for step in one.steps if step.change is not None):
        assert step.change is not None
        for item in step.items:
            if item.name in case["values"]:
                values.setdefault(step.change, {})[item.name] = value_of(case["values"][item.name])
            if item.name in case.get("starts", {}):
                starts[step.change] = tuple(case["starts"][item.name])
            if item.name in case.get("units", {}) and isinstance(step.change, OwnFile):
                units[step.change] = case["units"][item.name]
    root = case.get("root", True)
    user = "root" if root else "uid 1000"
    return Look(user, case["now"], "m", 1000.0, told if root else None, values, starts, units)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_case(path: Path) -> None:
    case = tomllib.loads(path.read_text())
    records = [record_of(table, n) for n, table in enumerate(case["record"])]
    heads, seen = heads_of(case), look_of(case, records)
    which = epoch(heads, seen.boot_id)
    assert which is not None
    changes = [step.change for one in records for step in one.steps]
    files = {c.path: c for c in changes if isinstance(c, OwnFile)}
    winners = {files[name]: said for name, said in case.get("overriding", {}).items()}
    told = telling.told_of(seen, which, heads, records, winners)
    worth = worth_telling(told, which, heads, frozenset(case.get("good", ())))
    assert (worth is not None) is case.get("story", True), told
    wanted = case.get("told", [])
    assert [(one.check, one.fate) for one in worth or ()] == [
        (one["check"], Fate(one["fate"])) for one in wanted
    ]
    for one, expected in zip(worth or (), wanted, strict=True):
        assert expected.pop("why", "") in one.why, one.why
        if "values" in expected:
            expected["values"] = tuple(map(tuple, expected["values"]))
        assert {name: getattr(one, name) for name in expected} == expected


def test_every_fate_has_a_case() -> None:
    told = [one for path in CASES for one in tomllib.loads(path.read_text()).get("told", [])]
    assert {one["fate"] for one in told} == set(Fate)


# What is read from files is what the mechanism's own text prints.


@pytest.mark.parametrize(
    ("text", "beside"),
    [
        ("always [madvise] never\n", "x\n"),
        ("performance\n", "balance\n"),
        ("powersave\n", "balance_power\n"),
        ("a b\nc\n", "d\n"),
        ("[wanted]\n", "e\n"),
        ("[other] wanted\n[wanted] [two]\n", "f\n"),
        ("", "g\n"),
        ("\n", None),
        ("no end", None),
        (None, "h\n"),
    ],
)
@pytest.mark.parametrize("choice", [False, True])
@pytest.mark.parametrize("with_beside", [False, True])
def test_bytes_tell_what_the_text_prints(
    tmp_path: Path, text: str | None, beside: str | None, choice: bool, with_beside: bool
) -> None:
    path, other = tmp_path / "value", tmp_path / "other"
    for file, content in ((path, text), (other, beside)):
        if content is not None:
            file.write_text(content)
    change = Sysfs((str(path),), "wanted", choice=choice, beside="other" if with_beside else "")
    read = reads_of(change)[str(path)]
    how = plain(read)
    assert how is not None
    ran = subprocess.run(["sh", "-c", read], capture_output=True, text=True)
    got = subprocess.run(
        ["sh", "-c", read_files(how.paths, CAP + 1)],
        capture_output=True,
        env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
    )
    value = how.value(parse_files(got.stdout, got.stderr.decode()))
    printed = ran.stdout.rstrip("\n")
    if isinstance(value, Unknown):
        assert ran.returncode or "\n" in printed
    else:
        assert (value, ran.returncode) == (printed, 0)


OWN_KINDS = ["file", "no file", "folder", "link", "lost link", "masked", "long", "longer"]


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_a_file_of_ours_is_told_by_its_bytes_and_entry(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "99-zz.conf", tmp_path / "other"
    other.write_text("x = 1\n")
    match kind:
        case "file":
            path.write_text("vm.swappiness = 1\n")
            path.chmod(0o640)
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(other)
        case "lost link":
            path.symlink_to("/nowhere/at all")
        case "masked":
            path.symlink_to("/dev/null")
        case "long":
            path.write_text("x" * (CAP + 1))
        case "longer":
            path.write_text("x" * OWN_CAP)
    read = reads_of(OwnFile(str(path), "x"))[str(path)]
    how = plain(read)
    assert how is not None
    ran = subprocess.run(["sh", "-c", read], capture_output=True, text=True, check=True)
    got = subprocess.run(
        ["sh", "-c", f"{list_entries(how.entries)}; {read_files(how.paths, OWN_CAP)}"],
        capture_output=True,
        env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
    )
    value = how.value(parse_both(got.stdout, got.stderr.decode()))
    if kind == "longer":
        assert isinstance(value, Unknown) and value.reason is Reason.TOO_BIG
    else:
        assert value == ran.stdout.rstrip("\n")


@pytest.mark.parametrize(
    ("device", "cut", "told"),
    [
        (True, 4096, "2936"),
        (True, 64, Reason.NO_PERMISSION),
        (True, 66, Reason.NOT_PRESENT),
        (False, 64, "ffff"),
        (False, 0, Reason.NOT_PRESENT),
    ],
)
def test_a_register_is_told_without_setpci(device: bool, cut: int, told: str | Reason) -> None:
    """The capability list leads to Device Control; a device that is gone reads as ones."""
    config = bytearray(256)
    config[0x34], config[0x40:0x42], config[0x50] = 0x40, b"\x01\x50", 0x10
    config[0x58:0x5A] = b"\x36\x29"
    raw = bytes(config if device else b"\xff" * 64)[:cut]
    (read, *_) = reads_of(PciBits(("0000:41:00.0",), "CAP_EXP+8.w", 0x2000, 0x7000)).values()
    how = plain(read)
    assert how is not None
    got = how.value({path: raw for path in how.paths})
    assert (got.reason if isinstance(got, Unknown) else got) == told


@pytest.mark.parametrize("key", ["vm.swappiness", "vm.dirty_bytes"])
def test_a_parameter_is_told_without_its_text(key: str) -> None:
    (read,) = reads_of(Sysctl(key, "1")).values()
    how = plain(read)
    assert how is not None
    got = {path: Path(path).read_bytes() for path in how.paths}
    ran = subprocess.run(["sh", "-c", read], capture_output=True, text=True, check=True)
    assert how.value(got) == ran.stdout.rstrip("\n")


def test_other_texts_run_as_they_are() -> None:
    assert plain("cat /proc/1/stat; rm /x") is None
    assert plain("cat '/sys/a b'") is None
    assert plain("! test -e /sys/a && echo gone || cat /sys/b") is None


# The look: over a session on this machine.


def here() -> LiveTarget:
    return LiveTarget(LocalTransport(), sudo=Sudo.NEVER)


def kept(
    *steps: KeptStep, boot: str = "an-old-boot", machine: str | None = None, after: bool = True
) -> None:
    """Keep a record of a transaction, and the snapshot after it."""
    machine = machine_id() if machine is None else machine
    label = here().label
    record = PlanRecord(ID, label, "alice@desk", machine, boot, "2026-01-01T00:00:00+00:00", steps)
    path = machine_folder(machine, label) / f"{ID}.plan.toml"
    who = Identity("gpu1", machine, boot)
    taken = "2026-01-01T00:01:00+00:00"
    save(AuditResult(label, "root", who, taken=taken), Kind.AFTER if after else Kind.MANUAL, ID)
    path.write_bytes(plans.dump(record))


def swap(wanted: str, before: str) -> KeptStep:
    item = KeptItem("vm.swappiness", before, wanted)
    return KeptStep("swap", 1, "sysctl vm.swappiness", (item,), Sysctl("vm.swappiness", wanted))


def files_of(folder: Path, count: int) -> tuple[str, ...]:
    """Return files that stand for the governors of so many CPUs."""
    paths = [folder / f"cpu{n}" for n in range(count)]
    for path in paths:
        path.write_text("powersave\n")
    return tuple(map(str, paths))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(str(tmp_path / "lib"), str(tmp_path / "run"))


async def test_a_host_that_the_store_does_not_know_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, places: Places
) -> None:
    async def never(*_: object) -> None:
        raise AssertionError("it logged in")

    monkeypatch.setattr(LiveTarget, "connect", never)
    assert await look(here(), places) is None


async def test_the_look_reads_what_is_there_now(places: Places) -> None:
    kept(swap("999", SWAP))
    story = await look(here(), places)
    assert story is not None and story.rebooted and story.since is not None
    (one,) = story.told
    assert (one.fate, one.values) == (Fate.LOST, (("vm.swappiness", "999", SWAP),))
    assert (one.transaction, one.operator, one.can_last) == (ID, "alice@desk", True)
    assert story.happened.startswith("rebooted between 2026-01-01 00:01:00 and 20")
    assert f"(boot an-old-b -> {BOOT[:8]})" in story.happened


def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of what is started on the host from now on: an exec, or a session's job."""
    found: list[str] = []
    plain_open, plain_run = LocalTransport.open, LiveShell.run

    async def opened(self: LocalTransport, command: str) -> Any:
        found.append("exec")
        return await plain_open(self, command)

    async def ran(self: LiveShell, text: str, *more: Any, **named: Any) -> Any:
        found.append("job")
        return await plain_run(self, text, *more, **named)

    monkeypatch.setattr(LocalTransport, "open", opened)
    monkeypatch.setattr(LiveShell, "run", ran)
    return found


@pytest.mark.parametrize(("count", "most"), [(20, ["exec"]), (3000, ["exec", *["job"] * 8])])
async def test_many_values_are_few_processes(
    monkeypatch: pytest.MonkeyPatch, places: Places, tmp_path: Path, count: int, most: list[str]
) -> None:
    """One command line tells all, or a session where that cannot hold them."""
    paths = files_of(tmp_path, count)
    items = tuple(KeptItem(path, "powersave", "performance") for path in paths)
    kept(KeptStep("governor", 1, "t", items, Sysfs(paths, "performance")), swap(SWAP, "999"))
    started = runs(monkeypatch)
    story = await look(here(), places)
    assert story is not None
    fates = {one.check: one.fate for one in story.told}
    assert fates == {"governor": Fate.LOST, "swap": Fate.KEPT}
    assert len(story.told[0].values) == count
    assert started == most[: len(started)] and ("job" in started) == ("job" in most)


async def test_a_session_tells_what_one_command_line_cannot(
    monkeypatch: pytest.MonkeyPatch, places: Places
) -> None:
    async def cannot(*_: object) -> None:
        return None

    kept(swap("999", SWAP))
    at_once = await look(here(), places)
    monkeypatch.setattr("gpudoctor.story.glance", cannot)
    started = runs(monkeypatch)
    told = await look(here(), places)
    assert told is not None and at_once is not None and told.told == at_once.told
    assert "job" in started


async def test_another_machine_under_the_name_is_said(places: Places) -> None:
    kept(swap("999", SWAP), machine="f" * 32)
    says = f"its machine id is {machine_id()[:8]}…, theirs ffffffff…; no story is told of it"
    with pytest.raises(AnotherMachine, match=says) as refused:
        await look(here(), places)
    assert refused.value.sentence.startswith("this machine is another machine than the one whose")
    assert refused.value.code == 3


@pytest.mark.parametrize(
    ("now", "then", "says"),
    [
        (Identity(machine_id=M, system_uuid="u-2"), {}, f"both have machine id {M[:8]}…, but its "),
        (Identity(machine_id=M, system_uuid="u-2"), {}, "UUID is u-2, theirs u-1 (a clone, or"),
        (Identity(machine_id="0" * 32), {}, f"its machine id is 00000000…, theirs {M[:8]}…;"),
        (Identity(machine_id=M), {}, "only root reads the system UUID"),
        (Identity(), {}, "is not known: its machine id could not be read"),
        (Identity(machine_id=M), {"machine_id": ""}, "kept under this name tell no machine id"),
    ],
)
def test_why_what_answers_is_not_what_is_known(
    now: Identity, then: dict[str, str], says: str
) -> None:
    who = replace(Identity(machine_id=M, system_uuid="u-1"), **then)
    head = replace(heads_of({"snapshots": [{"kind": "after", "boot": "b1"}]})[0], identity=who)
    sentence = telling.stranger("gpu1", now, [head])
    assert says in sentence and "gpu1" in sentence and "\n" not in sentence


async def test_a_clone_of_the_machine_id_is_no_boot_of_this_host(places: Places) -> None:
    machine = machine_id()
    kept(boot=BOOT)
    clone = AuditResult(
        "root@gpu2", "root", Identity("gpu2", machine, "b2"), taken="2026-01-02T00:00:00+00:00"
    )
    save(clone, Kind.AFTER, CLONES)
    steps = (swap("999", SWAP),)
    record = PlanRecord(CLONES, "root@gpu2", "bob", machine, "b2", clone.taken, steps)
    path = machine_folder(machine, here().label) / f"{CLONES}.plan.toml"
    path.write_bytes(plans.dump(record))
    assert await look(here(), places) is None


ONE, TWO, THREE = (f"{n}1111111-2222-3333-4444-555555555555" for n in "123")


@pytest.fixture
def say_uuid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], object]:
    """Have what writes the file where the look reads this machine's system UUID."""
    path = tmp_path / "product_uuid"
    monkeypatch.setattr(reads, "_UUID", str(path))
    return path.write_text


def kept_of(uuid: str, transaction: str, wanted: str, label: str = "") -> None:
    """Keep a snapshot of a clone of this machine, and the record of what was set there."""
    label, machine, boot = label or here().label, machine_id(), f"boot of {uuid}"
    who = Identity("gpu1", machine, boot, system_uuid=uuid)
    taken = "2026-01-01T00:01:00+00:00"
    save(AuditResult(label, "root", who, taken=taken), Kind.AFTER, transaction)
    steps = (swap(wanted, SWAP),)
    record = PlanRecord(transaction, label, "alice", machine, boot, taken, steps, uuid)
    path = machine_folder(machine, label) / f"{transaction}.plan.toml"
    path.write_bytes(plans.dump(record))


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("other", ["", "root@gpu2"])
async def test_clones_are_told_apart_by_their_system_uuid(
    monkeypatch: pytest.MonkeyPatch,
    places: Places,
    say_uuid: Callable[[str], object],
    other: str,
    at_once: bool,
) -> None:
    """Also where both were reached by one name: it was given to another machine."""
    if not at_once:
        monkeypatch.setattr(LiveTarget, "asks_password", True)
    kept_of(ONE, ID, "999")
    kept_of(TWO, CLONES, "998", other)
    say_uuid(f"{ONE.upper()}\n")
    story = await look(here(), places)
    assert story is not None and [one.transaction for one in story.told] == [ID]
    assert story.since is not None and story.since.identity.system_uuid == ONE
    if not other:
        say_uuid(TWO)
        story = await look(here(), places)
        assert story is not None and [one.transaction for one in story.told] == [CLONES]
    say_uuid(THREE)
    with pytest.raises(AnotherMachine, match=f"its system UUID is {THREE}, theirs [12]1111"):
        await look(here(), places)


async def test_the_uuid_counts_more_than_the_name(
    places: Places, say_uuid: Callable[[str], object]
) -> None:
    """What was set under another name on this very machine is its own."""
    kept_of(ONE, ID, "999", "root@10.0.0.1")
    kept_of(ONE, CLONES, "998")
    say_uuid(ONE)
    story = await look(here(), places)
    assert story is not None and len(story.told) == 1
    path = machine_folder(machine_id(), here().label) / f"{CLONES}.plan.toml"
    path.unlink()
    story = await look(here(), places)
    assert story is not None and [one.transaction for one in story.told] == [ID]


@pytest.mark.parametrize(
    ("uuid", "found"), [("u-1", {ID}), ("u-2", {CLONES}), ("", {ID, CLONES}), ("u-3", set[str]())]
)
def test_a_record_that_tells_its_machine_is_of_no_other(uuid: str, found: set[str]) -> None:
    """Whatever name it was reached by; where nobody knows, the name counts."""
    kept_of("u-1", ID, "999")
    kept_of("u-2", CLONES, "998")
    folder = machine_folder(machine_id(), here().label)
    heads = [replace(head, identity=Identity(system_uuid=uuid)) for head in heads_in(folder)[0]]
    assert {one.id for one in telling._records(folder, heads)} == found


def test_the_command_says_that_another_machine_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept(swap("999", SWAP), machine="f" * 32)
    code, out, err = run(capsys, "story")
    assert (code, out) == (3, "") and err.startswith("gpudoctor: this machine is another machine ")
    assert err.count("\n") == 1


async def test_a_damaged_record_is_no_story_of_its_own(places: Places) -> None:
    kept(swap("999", SWAP))
    path = next(machine_folder(machine_id(), here().label).glob("*.plan.toml"))
    path.write_bytes(path.read_bytes()[:-9])
    story = await look(here(), places)
    assert story is not None and story.told == ()


@pytest.mark.parametrize(("wanted", "before"), [(SWAP, "999")])
async def test_nothing_to_tell_in_the_same_boot(places: Places, wanted: str, before: str) -> None:
    kept(swap(wanted, before), boot=BOOT)
    assert await look(here(), places) is None


async def test_lost_since_its_own_snapshot(places: Places) -> None:
    kept(swap("999", SWAP), boot=BOOT)
    story = await look(here(), places)
    assert story is not None and not story.rebooted
    (one,) = story.told
    assert (one.fate, one.by) == (Fate.LOST, "somebody else")
    assert story.happened.endswith("; somebody else changed values")


@pytest.mark.parametrize("session", [False, True])
async def test_a_plain_user_reads_what_is_readable(
    monkeypatch: pytest.MonkeyPatch, places: Places, session: bool
) -> None:
    if session:
        monkeypatch.setattr(LiveTarget, "asks_password", True)
    hold = KeptStep("hold", 1, "t", (KeptItem("/x", "not held", "held"),), LatencyHold(2))
    gpu = GpuSetting(("0000:41:00.0",), "persistence", "Enabled")
    mode = KeptStep("mode", 1, "t", (KeptItem("mode", "Disabled", "Enabled"),), gpu)
    kept(swap("999", SWAP), hold, mode)
    monkeypatch.setattr("gpudoctor.hosts.at_once._ROOT", b"nobody's number")
    monkeypatch.setattr("gpudoctor.hosts.root_shell.LiveShell.user", "uid 1000")
    story = await look(here(), places)
    assert story is not None
    told = {one.check: (one.fate, one.why) for one in story.told}
    assert told["swap"][0] is Fate.LOST and "its journal was not read" in told["swap"][1]
    assert told["hold"] == (Fate.UNKNOWN, "no-permission: only root can tell it")
    assert told["mode"] == (Fate.UNKNOWN, "not-measured: nvidia-smi is left to the audit")


# The audit settles what was not read.


def told(fate: Fate = Fate.UNKNOWN, **more: Any) -> Told:
    values = (("0000:41:00.0 power limit", "400.00", "(not-measured)"),)
    one = Told(ID, "alice", "2026-01-01", "limit", 1, "t", fate, "why", values)
    return replace(one, **more)


# A GPU that fell off the bus, and one that the audit's finding does not name.
OFF_THE_BUS = (("0000:41:00.0 CAP_EXP+8.w", "5937", "(not-present: it is not on the PCI bus)"),)
ONE_MORE = (*told().values, ("0000:61:00.0 power limit", "400.00", "(not-measured)"))


def story_of(*some: Told) -> Story:
    head = SnapshotHead("1" * 16, Kind.AFTER, "gpu1", "root", "2026", "0", "/p", 1)
    return Story("gpu1", True, "rebooted", head, some)


def audit(*verdicts: Verdict) -> AuditResult:
    findings = (Finding("limit", Panel.POWER, "", "gpu", each, "", "") for each in verdicts)
    return AuditResult("gpu1", findings=tuple(findings))


def bad(*targets: str, **more: Any) -> Verdict:
    return issue("x", Class.P0, Impact.LOW, "300 W", "400 W", targets=targets, **more)


@pytest.mark.parametrize(
    ("before", "verdicts", "fate", "why"),
    [
        (told(), [bad()], Fate.LOST, "the audit finds it again: 300 W"),
        (told(lasts=True), [bad()], Fate.OVERRIDDEN, "again"),
        (told(), [good("fine", "400 W")], Fate.KEPT, "the audit finds it good: 400 W"),
        (told(), [unknown(Reason.NO_PERMISSION, "denied")], Fate.UNKNOWN, "why"),
        (told(), [good("a"), unknown(Reason.TIMEOUT, "x")], Fate.UNKNOWN, "why"),
        (told(), [], Fate.UNKNOWN, "why"),
        (told(), [bad("0000:c1:00.0"), good("x", targets=("0000:41:00.0",))], Fate.KEPT, "good"),
        (told(values=OFF_THE_BUS), [good("fine", targets=("0000:01:00.0",))], Fate.UNKNOWN, "why"),
        (told(values=ONE_MORE), [good("fine", targets=("0000:41:00.0",))], Fate.UNKNOWN, "why"),
        (told(Fate.LOST), [good("fine")], Fate.LOST, "why"),
        (told(Fate.KEPT), [bad()], Fate.KEPT, "why"),
        (
            told(Fate.KEPT, lasts=True, values=(("/etc/sysctl.d/a.conf", "x", "x"),)),
            [bad()],
            Fate.OVERRIDDEN,
            "but the audit finds it again",
        ),
    ],
)
def test_after_the_audit(before: Told, verdicts: list[Verdict], fate: Fate, why: str) -> None:
    (one,) = after_audit(story_of(before), audit(*verdicts)).told
    assert one.fate is fate and why in one.why


def test_the_alternative_is_named_as_the_audit_offers_it_now() -> None:
    ways = ((Sysctl("a", "1"),), (Sysctl("b", "1", told="t"),))
    (one,) = after_audit(story_of(told(Fate.LOST)), audit(bad(changes=ways))).told
    assert one.way == 2


# What the operator sees.


def typed(*words: str) -> str:
    return " ".join(["gpudoctor", *words])


def test_the_report_has_the_lost_ones_first_and_the_commands() -> None:
    long = tuple((f"/sys/cpu{n}", "a", "b" if n == 90 else "a") for n in range(99))
    story = story_of(
        told(Fate.KEPT, check="held", by="/etc/a.conf", lasts=True),
        told(Fate.LOST, check="swap", way=2, can_last=True, values=long),
        told(Fate.ENDED, check="memlock", title="x\x1b[31m[b]"),
        told(Fate.CHANGED, check="other"),
    )
    text = report(story, "gpu1", typed, 100, colour=False)
    words = [
        "LOST (1)",
        "[swap:2]",
        "/sys/cpu90: b now, a was set",
        "/sys/cpu0 and 97 more: a, as set",
        "CHANGED BY",
    ]
    words += ["ENDED", "KEPT (1)", "made to last", "gpudoctor plan swap:2 memlock"]
    words += ["gpudoctor fix swap:2 memlock\n", "gpudoctor fix swap:2 --persist"]
    at = [text.index(word) for word in words]
    assert at == sorted(at) and "\x1b" not in text
    assert "1 lost, 1 changed, 1 ended, 1 kept" in text
    answer = json.loads(story_json(story, "gpu1", typed))
    assert [one["fate"] for one in answer["told"]] == ["lost", "changed", "ended", "kept"]
    assert answer["told"][0]["fix"] == "swap:2" and len(answer["told"][0]["values"]) == 99
    assert answer["commands"]["to make it last too"] == "gpudoctor fix swap:2 --persist"


def test_the_report_reads_well() -> None:
    unread = told(
        Fate.UNKNOWN, why="nvidia-smi is left to the audit", when="2026-01-01T01:00:00+01:00"
    )
    kept = told(Fate.KEPT, check="held", can_last=True, values=(("held", "1", "1"),))
    text = report(story_of(unread, kept), "gpu1", typed, 100, colour=False)
    assert "0000:41:00.0 power limit: not read, 400.00 was set" in text
    assert "set by alice at 2026-01-01 00:00:00 UTC" in text and "held: 1, as set" in text
    assert "to make last what was kept: on the screen, w for this story, space, then m" in text
    lasting = story_of(replace(kept, lasts=True))
    assert "what was kept" not in report(lasting, "gpu1", typed, 100, colour=False)


def test_nothing_to_tell() -> None:
    assert "nothing to tell" in report(None, "gpu1", typed, 80, colour=True)
    answer = json.loads(story_json(None, "gpu1", typed))
    assert (answer["story"], answer["told"]) == (False, [])


@pytest.mark.parametrize(("lost", "code"), [(True, 1), (False, 0)])
def test_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lost: bool, code: int
) -> None:
    @asynccontextmanager
    async def looking(_: object) -> AsyncIterator[Story]:
        yield story_of(told(Fate.LOST if lost else Fate.KEPT))

    monkeypatch.setattr("gpudoctor.cli_story.looking", looking)
    args = argparse.Namespace(make_target=here, json=True, host="gpu1")
    assert story_command(args) == code
    answer = json.loads(capsys.readouterr().out)
    assert (answer["exit_code"], answer["audited"]) == (code, False)
    expected = {"to set it again": "gpudoctor --host gpu1 fix limit"} if lost else {}
    assert expected.items() <= answer["commands"].items()
