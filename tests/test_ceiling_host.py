"""The model of a running server: its config.json, its ceiling on the demo host, the three bars."""

import asyncio
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.bench.engine import find
from gpudoctor.bench.standing import STANDING_READS, standing
from gpudoctor.ceiling import (
    ceiling_of_server,
)
from gpudoctor.formats.engines import Engine
from gpudoctor.formats.nvidia_smi import parse_nvidia_smi
from gpudoctor.formats.nvidia_smi_gpu import Clocks, Setting
from gpudoctor.formats.serving import Server
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.session import Session
from gpudoctor.hosts.session_script import Sudo
from gpudoctor.hosts.side import LiveSide
from gpudoctor.hosts.simulated import ToolAnswer
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.model import Evidence, Facts, Files, Later, Probe, Reason, Unknown
from gpudoctor.model.ceiling import Ceiling
from gpudoctor.probes.gpu import NVIDIA_SMI_XML
from gpudoctor.probes.model_config import MODEL_CONFIG, ModelFiles
from gpudoctor.probes.serving import SERVERS
from gpudoctor.report_ceiling import bars
from gpudoctor.tables.software import decode_reference


def facts(folder: dict[str, bytes | Unknown], argv: str = "") -> Facts:
    """Return facts of the demo host with other files below its server's root."""
    machine = demo_machine()
    home = "/proc/41702/root"
    kept = {p: d for p, d in machine.files.items() if not p.startswith(f"{home}/models/")}
    machine.files = kept | {f"{home}{path}": data for path, data in folder.items()}
    links = {p: d for p, d in folder.items() if isinstance(d, bytes) and d[:1] == b"l"}
    machine.listings |= {f"{home}{path}": data for path, data in links.items()}
    for path in links:
        machine.files[f"{home}{path}"] = Unknown(Reason.NO_PERMISSION, "not a plain file")
    if argv:
        said = machine.answer(next(p for p in SERVERS.probes() if not isinstance(p, Later))).text
        text = said.replace("/models/GLM-5-NVFP4", argv)
        machine.tools["serving-processes"] = ToolAnswer(text)
    return answered(machine.answer)


def answered(answer: Any) -> Facts:
    answers: dict[str, Evidence] = {}
    found = Facts(answers)
    for probe in (*MODEL_CONFIG.probes(), NVIDIA_SMI_XML):
        if isinstance(probe, Later):
            values = [found[reader] for reader in probe.after]
            problem = next((v for v in values if isinstance(v, Unknown)), None)
            made: Probe | Unknown = problem or probe.make(*values)
            if isinstance(made, Unknown):
                answers[probe.key] = Evidence(probe.key, problem=made)
                continue
            assert not isinstance(made, Files) or (made.no_links and made.guarded)
            answers[probe.key] = answer(made)
        else:
            answers[probe.key] = answer(probe)
    return found


def model(found: Facts) -> ModelFiles | Unknown:
    models = found[MODEL_CONFIG]
    assert not isinstance(models, Unknown)
    return models[41702]


CONFIG = json.dumps({"model_type": "llama", "hidden_size": 64}).encode()
HUB = "/root/.cache/huggingface/hub/models--zai-org--GLM-5"
BLOB, OTHER = "a" * 40, "b" * 40


def link(path: str, blob: str) -> bytes:
    return f"lrwxrwxrwx 1 0 0 0 Jan  5 08:00 {path} -> ../../blobs/{blob}".encode()


def test_a_plain_folder() -> None:
    found = model(facts({"/models/GLM-5-NVFP4/config.json": CONFIG}))
    assert isinstance(found, ModelFiles)
    assert found.config["model_type"] == "llama" and found.quantisation is None
    assert found.path == "/models/GLM-5-NVFP4/config.json"


def test_the_list_of_exceptions_beside_it() -> None:
    beside = b'{"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}'
    folder = "/models/GLM-5-NVFP4"
    files: dict[str, bytes | Unknown] = {f"{folder}/config.json": CONFIG}
    found = model(facts(files | {f"{folder}/hf_quant_config.json": beside}))
    assert isinstance(found, ModelFiles) and found.quantisation is not None
    assert "quantization" in found.quantisation
    broken = model(facts(files | {f"{folder}/hf_quant_config.json": b"{"}))
    assert isinstance(broken, Unknown)


def test_hugging_faces_cache_is_read_by_its_blobs() -> None:
    one, two = (f"{HUB}/snapshots/{n}/config.json" for n in ("111", "222"))
    cache: dict[str, bytes | Unknown] = {
        one: link(one, BLOB),
        two: link(two, OTHER),
        f"{HUB}/blobs/{BLOB}": CONFIG,
        f"{HUB}/blobs/{OTHER}": CONFIG.replace(b"64", b"65"),
    }
    several = model(facts(cache, "zai-org/GLM-5"))
    assert isinstance(several, Unknown) and "several snapshots" in several.detail
    found = model(facts(cache | {f"{HUB}/refs/main": b"222"}, "zai-org/GLM-5"))
    assert isinstance(found, ModelFiles) and found.config["hidden_size"] == 65


@pytest.mark.parametrize("target", ["/etc/shadow", "../../../../etc/shadow", "../../blobs/../x"])
def test_a_link_that_leaves_the_cache_is_not_followed(target: str) -> None:
    path = f"{HUB}/snapshots/1/config.json"
    line = link(path, BLOB).replace(f"../../blobs/{BLOB}".encode(), target.encode())
    named = f"{HUB}/blobs/{target.rsplit('/', 1)[-1]}"
    assert isinstance(model(facts({path: line, named: CONFIG}, "zai-org/GLM-5")), Unknown)


@pytest.mark.parametrize(
    ("files", "argv", "says"),
    [
        ({}, "", "no config.json"),
        ({}, "/models/x.gguf", "GGUF"),
        ({}, "../escape", "name no folder"),
        ({"/models/GLM-5-NVFP4/config.json": b"{"}, "", "not JSON"),
        (
            {"/models/GLM-5-NVFP4/config.json": Unknown(Reason.NO_PERMISSION, "denied")},
            "",
            "denied",
        ),
    ],
)
def test_no_config(files: dict[str, bytes | Unknown], argv: str, says: str) -> None:
    found = model(facts(files, argv))
    assert isinstance(found, Unknown) and says in str(found)


async def test_a_running_servers_cache(tmp_path: Path) -> None:
    """Read a real process's model through the real session: links, blobs, the branch's snapshot."""
    package, hub = tmp_path / "sglang", tmp_path / "hf/hub/models--zai-org--GLM-5"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(
        "import time\nprint('up', flush=True)\ntime.sleep(99)"
    )
    for name in ("blobs", "refs", "snapshots/111", "snapshots/222"):
        (hub / name).mkdir(parents=True)
    for blob, snapshot in ((BLOB, "111"), (OTHER, "222")):
        (hub / "blobs" / blob).write_bytes(CONFIG.replace(b"64", snapshot.encode()))
        (hub / "snapshots" / snapshot / "config.json").symlink_to(f"../../blobs/{blob}")
    (hub / "refs/main").write_text("222")
    argv = [sys.executable, "-m", "sglang.launch_server", "--model-path", "zai-org/GLM-5"]
    env = os.environ | {"PYTHONPATH": str(tmp_path), "HF_HOME": str(tmp_path / "hf")}
    server = await asyncio.create_subprocess_exec(*argv, env=env, stdout=subprocess.PIPE)
    side = LiveSide(Session(LocalTransport().open), Sudo.NEVER)
    try:
        assert server.stdout is not None and await server.stdout.readline() == b"up\n"
        await side.start()
        found = await asked(side)
        servers = found[SERVERS]
        assert not isinstance(servers, Unknown)
        mine = next(one for one in servers if one.pid == server.pid)
        models = await asked(side, mine)
        one = models[MODEL_CONFIG]
        assert not isinstance(one, Unknown)
        config = one[server.pid]
        assert isinstance(config, ModelFiles), config
        assert config.config["hidden_size"] == 222
    finally:
        await side.close()
        server.kill()
        await server.wait()


async def asked(side: LiveSide, only: Server | None = None) -> Facts:
    """Ask a live side for the model's files, of one server if others run beside it."""
    answers: dict[str, Evidence] = {}
    found = Facts(answers)
    for probe in MODEL_CONFIG.probes():
        if isinstance(probe, Later):
            values = [found[reader] for reader in probe.after]
            if only is not None and probe.after == (SERVERS,):
                values = [(only,)]
            problem = next((v for v in values if isinstance(v, Unknown)), None)
            made = problem or probe.make(*values)
            if isinstance(made, Unknown):
                answers[probe.key] = Evidence(probe.key, problem=made)
                continue
            probe = made
        for job in side.ask([probe]):
            answers |= {one.key: one for one in await job}
    return found


def demo(**other: Any) -> Ceiling:
    """Return the demo host's ceiling, with other fields of its first GPU and its server."""
    found = answered(demo_machine().answer)
    files, servers = model(found), found[SERVERS]
    log = parse_nvidia_smi(demo_machine().answer(NVIDIA_SMI_XML).text)
    assert isinstance(files, ModelFiles) and not isinstance(servers, Unknown)
    assert not isinstance(log, Unknown)
    known = decode_reference("/models/GLM-5-NVFP4", {0x2BB5}, 8)
    first = replace(log.gpus[0], **other.get("gpu", {}))
    server = replace(servers[0], **other.get("server", {}))
    gpus = (first, *log.gpus[1:])
    return ceiling_of_server(server, files.config, gpus, files.quantisation, context=0, known=known)


def test_the_demo_host() -> None:
    found = demo()
    assert found.roofline == pytest.approx(273.9, abs=0.1)
    assert found.reachable == pytest.approx(73.95, abs=0.1)
    said = " | ".join((*found.assumptions, *found.latencies))
    assert "12481 MHz" in said and "others measured 51-57" in said and "309 at 1792 GB/s" in said


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"gpu": {"mig": Setting("Enabled", "Enabled")}}, "MIG"),
        ({"gpu": {"name": "NVIDIA GeForce GTX 1080"}}, "GTX 1080 is not in the table"),
        ({"gpu": {"name": Unknown(Reason.TIMEOUT, "hung")}}, "hung"),
        ({"server": {"engine": Engine.LLAMA}}, "llama.cpp"),
        ({"server": {"arguments": ("--tp", "8", "--pp", "2")}}, "pipeline"),
        ({"server": {"arguments": ("--tp", "16")}}, "this host shows 8"),
    ],
)
def test_what_is_not_modelled_is_unknown(other: dict[str, Any], says: str) -> None:
    found = demo(**other)
    for value in (found.roofline, found.reachable, found.bytes_per_token, found.bandwidth):
        assert isinstance(value, Unknown) and says in value.detail


def test_without_its_own_clock_the_data_sheet_counts() -> None:
    unread = Clocks(Unknown(Reason.NOT_PRESENT), Unknown(Reason.NOT_PRESENT))
    found = demo(gpu={"max_clocks": unread})
    assert found.bandwidth == 8 * 1597 and "data sheet" in " ".join(found.assumptions)


# Three bars.


@pytest.mark.parametrize("columns", [80, 120])
def test_bars(columns: int) -> None:
    lines = bars(10.34, demo(), columns, simulated=True)
    assert max(map(len, lines)) <= columns
    text = " ".join(" ".join(lines).split())
    for word in ("simulated", "10.34", "274", "74", "3.8 %", "157 messages", "12481 MHz"):
        assert word in text
    filled = [n for line in lines if (n := len(re.findall("[█▏▎▍▌▋▊▉]", line)))]
    assert len(filled) == 3 and filled[0] < filled[1] < filled[2]


def test_bars_of_what_is_unknown_are_empty() -> None:
    why = Unknown(Reason.NOT_PRESENT, "the model type is not one that is counted")
    lines = bars(None, Ceiling(why, why, why, why), 80)
    assert not any("█" in line for line in lines)
    text = " ".join(" ".join(lines).split())
    assert text.count("unknown") >= 2 and "not measured" in text and why.detail in text
    tiny = bars(0.01, demo(), 80)
    assert "▏" in tiny[1] and "0.01" in tiny[1]
    some = bars(20.0, Ceiling(why, why, why, why), 80)
    assert sum("█" in line for line in some) == 1


# From an audit to the bounds of the engine that was measured.


async def test_where_the_demos_engine_stands() -> None:
    target = SimulatedTarget(demo_machine(), NO_WAIT)
    result = await run_audit(target, (), STANDING_READS)
    (serving,) = await find(target, result)
    found = standing(result, serving, context=80)
    assert found.roofline == pytest.approx(273.9, abs=0.1)
    assert "7.2 MB cache of 80 tokens" in found.assumptions[0]
    assert "others measured 51-57" in " ".join(found.latencies)
    other = standing(result, replace(serving, pid=1))
    assert isinstance(other.roofline, Unknown) and "not found among" in other.roofline.detail
    blind = standing(await run_audit(target, (), (SERVERS,)), serving)
    assert isinstance(blind.roofline, Unknown) and "was not read" in blind.roofline.detail
