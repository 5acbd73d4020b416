"""The command line: one sentence and the right exit code for everything that is wrong."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpudoctor.cli import main

TREE = "Traceback"


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    try:
        code = main(argv)
    except SystemExit as end:  # argparse's own usage errors
        code = int(end.code or 0)
    out, err = capsys.readouterr()
    assert TREE not in out + err
    return code, out, err


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["audit", "--panel", "nope"], 2, "no panel 'nope'"),
        (["audit", "--from", "/nonexistent/file"], 2, "no such file"),
        (["explain", "kern-numa"], 2, "did you mean kern-numa-balancing?"),
        (["fix", "numa-balancing"], 2, "did you mean kern-numa-balancing?"),
        (["explain", "zzz"], 2, "`gpudoctor audit` lists them by id"),
        (["--from", "/nonexistent/file", "audit"], 2, "/nonexistent/file: no such file"),
        (["--json", "audit"], 2, "options come after it"),
        (["audit", "--demo", "--host", "x"], 2, "contradict"),
        (["audit", "--container", "vm:1"], 2, "--container wants"),
        (["audit", "--container", "lxc:$(id)"], 2, "--container wants"),
        (["audit", "--demo", "--container", "lxc:1"], 2, "live host"),
        (["audit", "--demo", "--markdown", "/nonexistent/x.md"], 2, "cannot be written"),
        (["record", "/nonexistent/x.toml", "--demo"], 2, "is no directory"),
        (["frobnicate"], 2, "invalid choice"),
        (["audit", "--json", "--plain"], 2, "not allowed with"),
        (["audit", "--fail-on", "never"], 2, "invalid choice"),
        (["fix", "kern-numa-balancing:0", "--demo"], 2, "named by its number"),
        (["fix", "kern-numa-balancing", "--demo", "--confirm-within", "60"], 2, "60s, 2m or 0"),
        (["fix"], 2, "required: CHECK[:N]"),
        (["status", "--yes"], 2, "unrecognized"),
    ],
)
def test_wrong_usage(
    argv: Sequence[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    got, out, err = run(capsys, *argv)
    assert (got, out) == (code, "")
    assert says in err


BAD_FILES = {
    "empty": (b"", "is empty"),
    "blank": (b"\n\n  \n", "is empty"),
    "rubbish": (bytes(range(256)) * 40, "of no kind"),
    "prose": (b"It was a dark and stormy night.\nThe rain fell.\n", "of no kind"),
    "newer": (b'schema = 999\nkind = "recording"\nchecksum = "x"\n', "of no kind"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_recordings(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, says = BAD_FILES[name]
    path = tmp_path / name
    path.write_bytes(raw)
    code, out, err = run(capsys, "audit", "--from", str(path))
    assert (code, out) == (3, "")
    assert says in err and err.count("\n") == 1


def test_a_folder_is_no_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "audit", "--from", str(tmp_path))
    assert code == 3 and "cannot be read" in err


def test_audit_of_this_machine_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "audit", "--json")
    report = json.loads(out)
    assert code == report["exit_code"]
    assert [p["number"] for p in report["panels"]] == list(range(1, 11))
    assert report["host"]["simulated"] is False


def test_probes_are_printed_word_for_word(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "probes", "--shell")
    assert code == 0
    assert "head -v -c" in out and "nvidia-smi -q -x" in out and "export GPD=MARK;exec sh" in out


@pytest.mark.parametrize(
    "verb",
    [
        ["fix", "kern-numa-balancing", "--yes"],
        ["rollback", "--yes"],
        ["confirm"],
        ["clean", "--yes"],
    ],
)
def test_what_changes_nothing_is_refused(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rubbish").write_bytes(b"\x00\x01")
    code, out, err = run(capsys, *verb, "--from", str(tmp_path / "rubbish"))
    assert (code, out) == (1, "") and "of no kind" in err


def test_a_recording_is_private_and_a_device_keeps_its_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "host.toml"
    path.write_text("old and readable by all")
    assert run(capsys, "record", str(path), "--demo")[0] == 0
    assert path.stat().st_mode & 0o777 == 0o600
    before = os.stat(os.devnull).st_mode
    assert run(capsys, "record", os.devnull, "--demo")[0] == 0
    assert os.stat(os.devnull).st_mode == before


def test_a_verb_may_follow_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "host.toml"
    assert run(capsys, "record", str(path), "--demo")[0] == 0
    code, out, _ = run(capsys, "--from", str(path), "audit", "--panel", "PCIe")
    assert code == 0 and "recording of pve-gpu1" in out


def test_a_terminal_without_our_signs_gets_question_marks() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpudoctor", "--demo"],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, b"") and b"pve-gpu1 ? Simulated" in done.stdout


CRASHING = """
import sys
from gpudoctor.app import GpuDoctor
from gpudoctor.cli import main

def fault(app: GpuDoctor) -> None:
    raise RuntimeError("\x1b]0;hostile\x07")

GpuDoctor.on_mount = fault
sys.exit(main(["demo"]))
"""


def test_a_fault_of_the_screen_is_a_sentence_too() -> None:
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", CRASHING], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE
    )
    os.close(theirs)
    drained = threading.Thread(target=_drain, args=(ours,))
    drained.start()
    _, err = process.communicate(timeout=30)
    drained.join()
    os.close(ours)
    assert process.returncode == 3
    said = err.decode().rpartition("gpudoctor: ")[2]
    assert said.startswith("a fault of its own (RuntimeError: \ufffd]0;hostile")
    assert TREE not in err.decode()


def _drain(handle: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(handle, 1 << 16):
            pass


def test_one_panel_only(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "audit", "--json", "--panel", "kernel_knobs", "--panel", "5")
    assert {f["panel"] for f in json.loads(out)["findings"]} == {"kernel_knobs", "kernel_version"}


def test_every_reading_verb_speaks_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "explain", "kern-numa-balancing", "--json")
    assert json.loads(out)["reads"] == ["numa-balancing", "numa-nodes"]
    _, out, _ = run(capsys, "probes", "--json")
    assert {"nvidia-smi-xml", "gpu-path-files"} <= {p["key"] for p in json.loads(out)["probes"]}
    file = tmp_path / "demo.toml"
    _, out, _ = run(capsys, "record", str(file), "--demo", "--json")
    assert json.loads(out)["bytes"] == file.stat().st_size


def test_explain_tells_each_fix_on_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "explain", "kern-ksm", "--json")
    fixes = json.loads(out)["fixes"]
    _, out, _ = run(capsys, "explain", "kern-ksm")
    assert len(fixes) > 1
    assert out.splitlines()[-len(fixes) :] == [f"fixes    {fixes[0]}"] + [
        f"{'':<8} {fix}" for fix in fixes[1:]
    ]


def test_a_recording_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "demo.toml"
    file.write_text("old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    code, _, err = run(capsys, "record", str(file), "--demo")
    assert code == 3 and "No space left" in err
    assert file.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["demo.toml"]


def test_every_writing_verb_speaks_json_on_the_demo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    fix = ["fix", "kern-numa-balancing", "--demo", "--yes", "--json", "--confirm-within", "60s"]
    code, out, _ = run(capsys, *fix)
    name = json.loads(out)["plan"]["id"]
    assert (code, json.loads(out)["confirm"]) == (0, f"gpudoctor confirm {name}")
    _, out, _ = run(capsys, "status", "--demo", "--json", "--read-only")
    assert [one["id"] for one in json.loads(out)["transactions"]] == [name]
    code, out, _ = run(capsys, "clean", "--demo", "--json", "--yes")
    assert code == 1 and json.loads(out)["stays"][0]["id"] == name
    code, out, _ = run(capsys, "confirm", "--demo", "--json")
    assert (code, json.loads(out)["state"]) == (0, "confirmed")
    code, out, _ = run(capsys, "rollback", "--demo", "--json", "--yes")
    assert (code, json.loads(out)["moves"][-1]["state"]) == (0, "undone")
    code, out, _ = run(capsys, "clean", "--demo", "--json", "--yes")
    assert (code, json.loads(out)["removed"]) == (0, [name])


def test_status_of_an_unreachable_host_is_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rubbish").write_bytes(b"\x00\x01")
    assert run(capsys, "status", "--from", str(tmp_path / "rubbish"))[0] == 3
