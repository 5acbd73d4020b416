"""Recordings and snapshots: one file format, read back exactly or refused in one sentence."""

import base64
import hashlib
import random
import re
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.model import (
    Class,
    Evidence,
    Files,
    Finding,
    Impact,
    Listing,
    Panel,
    Reason,
    Side,
    Sysctl,
    Tool,
    Unknown,
    issue,
)
from gpudoctor.model.audited import AuditResult, Identity
from gpudoctor.model.error import Refusal
from gpudoctor.model.place import ContainerRef
from gpudoctor.model.snapshot import Kind
from gpudoctor.recording import dump, is_recording, load
from gpudoctor.snapshots.store import save

BYTES = bytes(range(256)) * 3
FILES = Files("some-files", ("/proc/x", "/sys/*/y"))
DENIED = Files("denied-files", ("/proc/secret",), side=Side.CONTAINER)
LISTING = Listing("some-listing", ("/dev/*",))
TOOL = Tool("some-tool", "tool", "tool --all")
LATE = Unknown(Reason.TIMEOUT, "reading took too long")


def result() -> AuditResult:
    change = Sysctl("kernel.numa_balancing", "0")
    verdict = issue("on", Class.P0, Impact.LOW, "1", "0", changes=((change,),))
    finding = Finding("a-check", Panel.KERNEL_KNOBS, "A title", "host", verdict, "why", "source")
    return AuditResult(
        label="gpu1",
        user="root",
        identity=Identity("gpu1", "0" * 32, "boot", "6.1", "Debian", "a box"),
        container=ContainerRef("lxc", "101"),
        findings=(finding,),
        evidence={
            FILES.key: Evidence(
                FILES.key,
                files={"/proc/x": BYTES, "/sys/a/y": Unknown(Reason.NO_PERMISSION, "no \u2028")},
            ),
            DENIED.key: Evidence(DENIED.key, Side.CONTAINER, problem=LATE),
            LISTING.key: Evidence(LISTING.key, files={"/dev/a": b"crw a\r\n"}),
            TOOL.key: Evidence(
                TOOL.key, command=TOOL.script, stdout=BYTES, stderr="bad", exit=3, seconds=1.5
            ),
            "made-later": Evidence("made-later", problem=Unknown(Reason.NOT_PRESENT, "x")),
        },
        asked={p.key: p for p in (FILES, DENIED, LISTING, TOOL)},
        taken="2026-01-02T03:04:05+00:00",
    )


def test_there_and_back() -> None:
    kept = load(dump(result(), Kind.BEFORE, "20260101-000000-abcdef"))
    assert (kept.kind, kept.label, kept.user) == (Kind.BEFORE, "gpu1", "root")
    assert (kept.identity, kept.container) == (result().identity, ContainerRef("lxc", "101"))
    assert (kept.transaction, kept.taken) == ("20260101-000000-abcdef", result().taken)
    host, container = kept.sides[Side.HOST], kept.sides[Side.CONTAINER]
    evidence = result().evidence
    assert host.answer(FILES).files == evidence[FILES.key].files
    assert host.answer(LISTING).files == evidence[LISTING.key].files
    assert host.answer(TOOL) == evidence[TOOL.key]
    assert container.answer(DENIED).problem == LATE
    never = host.answer(Files("never", ("/etc/never",))).problem
    assert never is not None and never.reason is Reason.NOT_IN_RECORDING


def test_a_newer_schema_names_both() -> None:
    raw = dump(result()).replace(b"schema = 1\n", b"schema = 7\n")
    with pytest.raises(Refusal, match="schema 7.*reads up to 1"):
        load(raw, "x.toml")


def test_a_change_is_seen_and_can_be_accepted() -> None:
    raw = dump(result()).replace(b'label = "gpu1"', b'label = "gpu2"')
    with pytest.raises(Refusal, match=r"x\.toml was changed"):
        load(raw, "x.toml")
    assert load(raw, verify=False).label == "gpu2"


def test_damage_is_one_sentence() -> None:
    raw = dump(result())
    chance = random.Random(1)
    for _ in range(300):
        at = chance.randrange(raw.index(b"\n") + 1, len(raw))  # the first line is a comment
        bad = [raw[:at], raw[:at] + chance.randbytes(3) + raw[at + 3 :]]
        for text in bad:
            with pytest.raises(Refusal) as refused:
                load(text)
            assert refused.value.code == 3 and "\n" not in refused.value.sentence
            try:
                load(text, verify=False)
            except Refusal as refusal:
                assert "\n" not in refusal.sentence


def test_what_is_a_recording() -> None:
    assert is_recording(dump(result()))
    assert not is_recording(b"# something else\nschema = 1\n")


def test_saved_whole_and_for_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = save(result(), Kind.MANUAL)
    assert path.parent == tmp_path / "gpudoctor" / ("0" * 32)
    assert path.name.startswith("20260102T030405-manual-")
    assert path.stat().st_mode & 0o777 == 0o600
    assert load(path.read_bytes()).label == "gpu1"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("machine", ["", "../../etc", "x" * 300])
def test_a_machine_id_never_leaves_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    odd = replace(result(), identity=Identity(machine_id=machine))
    path = save(odd, Kind.MANUAL)
    assert path.parent.parent == tmp_path / "gpudoctor"


def test_a_store_that_cannot_be_written_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpudoctor").write_text("in the way")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(Refusal, match="gpudoctor.*cannot be written") as refused:
        save(result(), Kind.BEFORE)
    assert refused.value.code == 1


def _signed(body: bytes) -> bytes:
    digest = hashlib.sha256(body).hexdigest()
    return f'# gpudoctor snapshot\nschema = 1\nchecksum = "sha256:{digest}"\n'.encode() + body


def _with_evidence(json: bytes) -> bytes:
    text = base64.b64encode(zlib.compress(json, 9))
    body = dump(result()).split(b"\n", 3)[-1]
    return _signed(re.sub(rb'(?m)^evidence = ".*"$', b'evidence = "' + text + b'"', body))


@pytest.mark.parametrize(
    "raw",
    [
        _signed(b"a." * 200_000 + b"a = 1\n"),
        _signed(b"x = [" + b"1," * (3 << 20) + b"]\n"),
        _with_evidence(b"[" + b"{}," * 3_000_000 + b"1]"),
        _with_evidence(b"[" + b" " * (200 << 20) + b"]"),
        _with_evidence(b"[" * 100_000),
    ],
    ids=["dotted key", "huge array", "many values", "large evidence", "deep evidence"],
)
def test_a_bomb_is_refused(raw: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        load(raw)
    assert refused.value.code == 3


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('container = "lxc:101"', 'container = "lxc:../x"'),
        ('kind = "recording"', "kind = 3"),
        ("[header]", "[other]"),
    ],
)
def test_a_wrong_header_is_damage(before: str, after: str) -> None:
    body = dump(result()).split(b"\n", 3)[-1].decode()
    assert before in body
    with pytest.raises(Refusal, match="is damaged") as refused:
        load(_signed(body.replace(before, after).encode()))
    assert refused.value.code == 3
