"""Serving engines: the scan run for real, and what is made of its lines."""

import http.server
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.formats.container_ref import containers_of
from gpudoctor.formats.engines import Engine, identify
from gpudoctor.formats.launch_flags import parse_flags
from gpudoctor.formats.nccl_level import allows, default_level, user_level
from gpudoctor.formats.pip_metadata import numbers, parse_metadata, parse_origin, parse_torch
from gpudoctor.formats.proc_maps import parse_maps
from gpudoctor.formats.prometheus import totals
from gpudoctor.formats.serving import Scan, Server, parse_scan, servers_of
from gpudoctor.model import Reason, Side, Tool, Unknown
from gpudoctor.model.place import ContainerRef
from gpudoctor.probes.server_metrics import SERVER_METRICS, SERVER_METRICS_INSIDE
from gpudoctor.probes.server_packages import SERVER_MAPS
from gpudoctor.probes.serving import SCAN
from gpudoctor.text import clean

SHELLS = [s for s in (["dash"], ["busybox", "sh"], ["bash"]) if shutil.which(s[0])]
LAUNCHER = """
import os, subprocess, time
child = subprocess.Popen(["VLLM::Worker_TP0", "120"], executable="/bin/sleep")
time.sleep(120)
"""
SECRETS = ("sk-first", "sk-second", "hf-token-value", "json-secret", "env-secret", "pass-in-url")


def run(shell: list[str], script: str, path: str | None = None) -> tuple[str, int]:
    env = {"PATH": path or os.environ["PATH"], "LC_ALL": "C"}
    answer = subprocess.run([*shell, "-c", script], capture_output=True, env=env, timeout=30)
    return clean(answer.stdout), answer.returncode


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    """Start a stand-in for `vllm serve`: Python running a script of that name, and a worker."""
    script = tmp_path_factory.mktemp("bin") / "vllm"
    script.write_text(LAUNCHER)
    arguments = [
        "serve", "org/model", "--api-key", SECRETS[0], SECRETS[1], "--hf-token=" + SECRETS[2],
        "--extra", '{"token": "json-secret", "a": 1}', "--url", "http://u:pass-in-url@h/",
        "--chat-template", "two\nlines", "--max-num-batched-tokens", "4096", "--empty", "",
        "--port", "8123",
    ]  # fmt: skip
    env = {"PATH": os.environ["PATH"], "NCCL_DEBUG": "INFO\ne FORGED=1", "VLLM_API_KEY": SECRETS[4],
           "HOME": "/nowhere", "CUDA_HOME": "/usr/local/cuda"}  # fmt: skip
    process = subprocess.Popen([sys.executable, str(script), *arguments], env=env)
    decoy = subprocess.Popen(["sh", "-c", "sleep 60; : python -m sglang.launch_server"])
    time.sleep(0.7)
    yield process
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        os.kill(int(child), 15)
    for started in (process, decoy):
        started.kill()
        started.wait()


def scanned(shell: list[str], launcher: "subprocess.Popen[bytes]") -> tuple[str, Scan, Server]:
    text, code = run(shell, SCAN)
    assert code == 0
    scan = parse_scan(text)
    assert scan.complete
    servers = servers_of(scan)
    server = next(s for s in servers if s.pid == launcher.pid)
    assert not [s for s in servers if s.engine is Engine.SGLANG and "sleep 60" in str(s.argv)]
    return text, scan, server


@pytest.mark.parametrize("shell", SHELLS, ids=[s[0] for s in SHELLS])
def test_scan_finds_the_launcher_and_its_worker(
    shell: list[str], launcher: "subprocess.Popen[bytes]"
) -> None:
    text, scan, server = scanned(shell, launcher)
    assert server.engine is Engine.VLLM
    assert [w.argv[0] for w in server.workers] == ["VLLM::Worker_TP0"]
    assert server.start == _start(launcher.pid)
    assert server.exe == os.readlink(f"/proc/{launcher.pid}/exe")
    assert server.containers == containers_of(server.cgroup)
    open_files = server.limit("Max open files")
    assert not isinstance(open_files, Unknown)
    flags = parse_flags(server.arguments)
    assert flags.positional[0] == "org/model"
    assert flags.number("max-num-batched-tokens") == 4096
    assert flags.number("port") == 8123
    assert flags.get("empty") == ""
    assert flags.get("chat-template") == "two lines"


@pytest.mark.parametrize("shell", SHELLS, ids=[s[0] for s in SHELLS])
def test_scan_lets_no_secret_out(shell: list[str], launcher: "subprocess.Popen[bytes]") -> None:
    text, scan, server = scanned(shell, launcher)
    assert [secret for secret in SECRETS if secret in text] == []
    assert not isinstance(server.env, Unknown)
    assert server.env["VLLM_API_KEY"] == "***"
    assert server.env["NCCL_DEBUG"] == "INFO e FORGED=1"
    assert server.env["CUDA_HOME"] == "/usr/local/cuda"
    assert {"HOME", "PATH", "FORGED"}.isdisjoint(server.env)


@pytest.mark.parametrize("shell", SHELLS, ids=[s[0] for s in SHELLS])
def test_scan_does_not_find_itself(shell: list[str]) -> None:
    text, _ = run(shell, SCAN)
    carriers = [p for p in parse_scan(text).processes.values() if SCAN[:40] in " ".join(p.argv)]
    assert not [p for p in carriers if identify(p.argv)]


@pytest.mark.parametrize("shell", SHELLS, ids=[s[0] for s in SHELLS])
def test_maps_of_a_real_process(shell: list[str]) -> None:
    me = Server(os.getpid(), 1, Engine.VLLM, (), (), {})
    probe = SERVER_MAPS.make((me,))
    assert isinstance(probe, Tool)
    text, code = run(shell, probe.script)
    assert code == 0
    maps = Path("/proc/self/maps").read_text()
    mapped = parse_maps(text)
    assert bool(mapped) == ("-packages/" in maps)
    for site in mapped[me.pid].site_packages if mapped else ():
        assert site + "/" in maps
    gone = SERVER_MAPS.make((Server(99999999, 1, Engine.VLLM, (), (), {}),))
    assert isinstance(gone, Tool)
    assert run(shell, gone.script)[1] == 113


class _Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'sglang:gen_throughput{a="b"} 10.5\nsglang:num_running_reqs 1\n'
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize("curl", [True, False])
@pytest.mark.parametrize("shell", SHELLS, ids=[s[0] for s in SHELLS])
def test_metrics_are_fetched_once(shell: list[str], curl: bool, tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Metrics) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        arguments = ("--enable-metrics", "--port", str(web.server_port))
        probe = SERVER_METRICS.make((Server(5, 1, Engine.SGLANG, (), arguments, {}),))
        assert isinstance(probe, Tool)
        assert "curl -q " in probe.script and "python3 -IBc " in probe.script  # both write nothing
        path = None
        if not curl:
            (tmp_path / "python3").symlink_to(sys.executable)
            path = str(tmp_path)
        where = shutil.which(shell[0])
        assert where is not None
        text, code = run([where, *shell[1:]], probe.script, path)
        web.shutdown()
    assert (code, totals(text)["sglang:gen_throughput"]) == (0, 10.5)


def test_metrics_need_the_flag() -> None:
    why = SERVER_METRICS.make((Server(5, 1, Engine.SGLANG, (), (), {}),))
    assert isinstance(why, Unknown)
    assert why.reason is Reason.NEEDS_APP_METRICS


def test_metrics_are_asked_on_the_side_that_serves() -> None:
    inside = (ContainerRef("lxc", "101"),)
    server = Server(5, 1, Engine.SGLANG, (), ("--enable-metrics",), {}, containers=inside)
    assert isinstance(SERVER_METRICS.make((server,)), Unknown)
    probe = SERVER_METRICS_INSIDE.make((server,))
    assert isinstance(probe, Tool)
    assert (probe.side, probe.key) == (Side.CONTAINER, SERVER_METRICS_INSIDE.key)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["python3", "-m", "sglang.launch_server", "--tp", "8"], (Engine.SGLANG, True)),
        (["/v/bin/python3.12", "-X", "dev", "-u", "/v/bin/sglang", "serve"], (Engine.SGLANG, True)),
        (["sglang::scheduler_TP0"], (Engine.SGLANG, False)),
        (["VLLM::EngineCore_DP0"], (Engine.VLLM, False)),
        (["python", "-m", "vllm.entrypoints.openai.api_server"], (Engine.VLLM, True)),
        (["/opt/llama-server", "-m", "x.gguf"], (Engine.LLAMA, True)),
        (["python3.11", "-m", "llama_cpp.server"], (Engine.LLAMA, True)),
        (["text-generation-launcher"], (Engine.TGI, True)),
        (["python", "/usr/bin/text-generation-server", "serve", "m"], (Engine.TGI, False)),
        (["/usr/local/bin/ollama", "serve"], (Engine.OLLAMA, True)),
        (["/usr/local/bin/ollama", "runner", "--port", "1"], (Engine.OLLAMA, False)),
        (["python3", "/usr/bin/trtllm-serve", "m"], (Engine.TENSORRT, True)),
        (["bash", "-c", "python -m sglang.launch_server"], None),
        (["docker", "run", "vllm/vllm-openai", "vllm", "serve"], None),
        (["vim", "sglang.launch_server.py"], None),
        (["python3", "-c", "import vllm.entrypoints"], None),
        (["ollama", "list"], None),
        (["gpudoctor", "explain", "sglang::x"], None),
        ([], None),
    ],
)
def test_identify(argv: list[str], expected: tuple[Engine, bool] | None) -> None:
    found = identify(argv)
    assert (found and found[:2]) == expected


A, B = "a1" * 32, "b2" * 32


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0::/lxc/101/ns/system.slice/sglang.service", [("lxc", "101")]),
        ("4:devices:/lxc/101", [("lxc", "101")]),
        ("0::/lxc.payload.web-1/init.scope", [("lxc", "web-1")]),
        ("0::/lxc.payload.web/ns", [("lxc", "web")]),
        ("0::/lxc.monitor.web", []),
        (f"0::/system.slice/docker-{A}.scope", [("docker", A)]),
        (f"12:memory:/docker/{A}", [("docker", A)]),
        (f"0::/lxc/7/ns/system.slice/docker-{A}.scope/x", [("lxc", "7"), ("docker", A)]),
        (f"0::/machine.slice/libpod-{A}.scope/container", [("podman", A)]),
        (f"0::/machine.slice/libpod-conmon-{A}.scope", []),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{A}.scope", [("kubernetes", A)]),
        (f"0::/kubepods/burstable/pod9-8/{B}", [("kubernetes", B)]),
        ("0::/user.slice/user-0.slice/session-3.scope", []),
        ("0::/user.slice/user-7.slice/user@7.service/lxc/101/ns", [("rootless lxc", "101")]),
        ("0::/", []),
    ],
)
def test_containers(line: str, expected: list[tuple[str, str]]) -> None:
    assert containers_of((line,)) == tuple(ContainerRef(*pair) for pair in expected)


def test_flags() -> None:
    flags = parse_flags(
        "m --tp-size=4 --tp_size 8 -tp 2 --bias -1 --fast --no-fast --x=false --y --z=".split()
    )
    assert flags.positional == ("m",)
    assert (flags.number("tp-size"), flags.number("tp"), flags.number("bias")) == (8, 2, -1)
    assert not flags.on("fast") and flags.get("fast") is None
    assert not flags.on("x") and flags.on("y") and flags.get("z") == ""


def test_launcher_without_a_known_command_line() -> None:
    lines = [
        "p 50", "t 50 (python) S 1" + " 0" * 17 + " 777 0", "a python3", "a my_server.py", "E 9",
        "p 51", "t 51 (x) ) y) S 50" + " 0" * 17 + " 778 0", "a sglang::scheduler_TP0", "E 0",
        "p 52", "t gone", "end",
    ]  # fmt: skip
    scan = parse_scan("\n".join(lines))
    (server,) = servers_of(scan)
    assert (server.pid, server.start, server.engine) == (50, 777, Engine.SGLANG)
    assert server.argv == ("python3", "my_server.py")
    assert [w.pid for w in server.workers] == [51]
    assert isinstance(server.workers[0].env, Unknown)
    assert not parse_scan("\n".join(lines[:-1])).complete


def test_pip_metadata() -> None:
    assert parse_metadata("Metadata-Version: 2.1\nName: Sgl_Kernel\nVersion: 1\n\nVersion: 2") == (
        "sgl-kernel",
        "1",
    )
    build = parse_torch("__version__ = '2.10.0.dev1+cu130'\ncuda: Optional[str] = '13.0'\n")
    assert (build.version, build.cuda) == ("2.10.0.dev1+cu130", "13.0")
    assert parse_torch("__version__ = '2.9.0+cpu'\ncuda = None\n").cuda == ""
    assert parse_origin('{"url": "u", "vcs_info": {"commit_id": "abcdef0123456789"}}') == (
        "git abcdef012345"
    )
    assert parse_origin('{"dir_info": {"editable": true}}') == "editable"
    assert parse_origin("not json") == ""
    assert numbers("2.10.0.dev1+cu130") == (2, 10, 0)


def test_nccl_levels() -> None:
    assert user_level({"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "SYS"}) == "LOC"
    levels = ("SYS", "PHB", "NODE", "2", "3", "4", "9", "0", "")
    assert [user_level({"NCCL_P2P_LEVEL": level}) for level in levels] == [
        "SYS", "PHB", None, "PXB", "PHB", "SYS", "SYS", "LOC", None,
    ]  # fmt: skip
    assert default_level(True, 2) == "SYS" and default_level(True, 8) == "PXB"
    assert default_level(False, 2) == "PXB"
    assert allows("PHB", "NODE") and not allows("PXB", "PHB") and allows("PXB", "NV18")
    assert not allows("LOC", "NV4") and allows("SYS", "SYS")


def test_prometheus_skips_what_is_no_number() -> None:
    text = 'a{x="1 2"} 1\na{x="}"} 2.5 1700000000\n# a 9\nb NaN\nc +Inf\nd x\n'
    assert totals(text) == {"a": 3.5}


def _start(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_parents_in_a_circle_end() -> None:
    def process(pid: int, ppid: int, argument: str) -> list[str]:
        return [f"p {pid}", f"t {pid} (x) S {ppid}" + " 0" * 18, f"a {argument}"]

    circle = process(5, 6, "sglang::scheduler") + process(6, 7, "bash") + process(7, 6, "bash")
    (server,) = servers_of(parse_scan("\n".join([*circle, "end"])))
    assert server.pid == 5
    own = servers_of(parse_scan("\n".join([*process(5, 5, "VLLM::Worker"), "end"])))
    assert [s.pid for s in own] == [5]
