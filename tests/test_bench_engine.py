"""Finding the engine: its sockets, what answers there, and what is asked of it."""

import os
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.audit import run_audit
from gpudoctor.bench.ask import bodies
from gpudoctor.bench.beside import open_beside
from gpudoctor.bench.engine import find, key_of, parse_url
from gpudoctor.bench.listening import Listening, addresses, listening_text, parse_listening
from gpudoctor.bench.way import NAMESPACE
from gpudoctor.formats.engines import Engine
from gpudoctor.formats.serving import Server
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.intake import recorded_target
from gpudoctor.model import Side
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.bench import Serving
from gpudoctor.model.error import Refusal, WrongUsage
from gpudoctor.model.place import ContainerRef
from tests.decode_rig import DecodeServer, here, running_decode_server
from tests.hostile_engine import hostile_engine

NOTHING = AuditResult("here")
Answers = Mapping[str, tuple[int, object]]


def models(owner: str, *names: str, **more: object) -> tuple[int, object]:
    """Return an answer to /v1/models."""
    return 200, {"data": [{"id": name, "owned_by": owner, **more} for name in names or ("m",)]}


ENGINES: dict[str, tuple[Answers, tuple[str, str, str]]] = {
    "vllm": (
        {"/v1/models": models("vllm", "org/m"), "/version": (200, {"version": "0.32.0"})},
        ("vLLM", "org/m", "0.32.0"),
    ),
    "sglang": (
        {"/v1/models": models("sglang"), "/get_server_info": (200, {"version": "0.5.23"})},
        ("SGLang", "m", "0.5.23"),
    ),
    "old sglang": (
        {"/v1/models": models("me"), "/get_model_info": (200, {"model_path": "/m"})},
        ("SGLang", "m", ""),
    ),
    "llama.cpp": (
        {"/v1/models": models("llamacpp"), "/props": (200, {"build_info": "b7000-abc"})},
        ("llama.cpp", "m", "b7000-abc"),
    ),
    "llama.cpp's router": (
        {
            "/v1/models": (
                200,
                {
                    "data": [
                        {"id": "a", "owned_by": "llamacpp", "status": {"value": "unloaded"}},
                        {"id": "b", "owned_by": "llamacpp", "status": {"value": "loaded"}},
                    ]
                },
            )
        },
        ("llama.cpp", "b", ""),
    ),
    "old tgi": (
        {"/info": (200, {"model_id": "org/t", "version": "2.0.1"})},
        ("TGI", "org/t", "2.0.1"),
    ),
    "ollama": (
        {
            "/v1/models": models("library", "a:1b", "b:7b"),
            "/api/ps": (200, {"models": [{"name": "b:7b"}]}),
            "/api/version": (200, {"version": "0.13.0"}),
        },
        ("Ollama", "b:7b", "0.13.0"),
    ),
    "trtllm": (
        {"/v1/models": models("tensorrt_llm"), "/version": (200, {"version": "1.2.0"})},
        ("TensorRT-LLM", "m", "1.2.0"),
    ),
    "vllm by metrics": (
        {"/v1/models": models("org"), "/metrics": (200, "# HELP vllm:x y\nvllm:x 1\n")},
        ("vLLM", "m", ""),
    ),
    "another": ({"/v1/models": models("acme", "x")}, ("OpenAI-compatible", "x", "")),
}


@pytest.mark.parametrize("name", ENGINES)
async def test_an_engine_is_known_by_its_answers(name: str) -> None:
    answers, expected = ENGINES[name]
    with hostile_engine("well", answers=answers) as engine:
        (found,) = await find(here(), NOTHING, engine.url)
    assert (found.kind, found.model, found.version) == expected
    assert found.path == "/v1/completions" and found.url == engine.url
    assert [body["max_tokens"] for _, body in engine.asked] == [1]


async def test_chat_where_there_are_no_completions_and_what_is_refused_is_left_out() -> None:
    answers, missing = ENGINES["another"][0], ("/v1/completions",)
    with hostile_engine(
        "well", refuses=("ignore_eos",), answers=answers, missing=missing
    ) as engine:
        (found,) = await find(here(), NOTHING, engine.url + "/v1/")
    assert found.path == "/v1/chat/completions" and found.refused == ("ignore_eos",)
    (body,) = bodies(found, 1, 8, 0)
    assert "ignore_eos" not in body and "messages" in body


@pytest.mark.parametrize(
    ("manner", "answers", "words"),
    [
        ("well", {"/v1/models": (401, {"error": "no"})}, "wants an API key"),
        ("404", ENGINES["vllm"][0], "does not know the model org/m"),
        ("429", ENGINES["vllm"][0], "too many"),
        ("well", {}, "not as an engine"),
        ("well", {"/v1/models": (200, "<html>hello")}, "not as an engine"),
        ("well", {"/v1/models": (200, '{"data": [[], {"id": 7}]}')}, "not as an engine"),
        ("well", {"/v1/models": models("library", "a", "b")}, "no model in memory"),
    ],
)
async def test_what_is_no_engine_is_one_sentence(manner: str, answers: Answers, words: str) -> None:
    with hostile_engine(manner, answers=answers) as engine:
        with pytest.raises(Refusal, match=words) as refused:
            await find(here(), NOTHING, engine.url)
    assert "\n" not in refused.value.sentence and "\x1b" not in refused.value.sentence


async def test_nothing_at_an_address_and_silence_are_told_apart() -> None:
    with socket.socket() as quiet:
        quiet.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{quiet.getsockname()[1]}"
        with pytest.raises(Refusal, match="nothing answers at"):
            await find(here(), NOTHING, url)


async def test_the_key_goes_by_the_name_of_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sesame-77")
    with running_decode_server("--api-key", "sesame-77") as server:
        with pytest.raises(Refusal, match="--api-key-env"):
            await find(here(), NOTHING, server.url)
        (found,) = await find(here(), NOTHING, server.url, "MY_KEY")
        monkeypatch.setenv("MY_KEY", "another")
        with pytest.raises(Refusal, match="refuses the key in [$]MY_KEY"):
            await find(here(), NOTHING, server.url, "MY_KEY")
    assert found.api_key_env == "MY_KEY" and "sesame" not in repr(found)
    with pytest.raises(WrongUsage, match="NO_KEY is not set"):
        key_of("NO_KEY")


async def test_tls_is_found_by_itself_and_unverified_on_loopback(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("tls")
    with hostile_engine("well", tls=folder, answers=ENGINES["vllm"][0]) as engine:
        plain = engine.url.replace("https:", "http:")
        (found,) = await find(here(), NOTHING, plain)
        assert found.url == engine.url
        with pytest.raises(Refusal, match="no TLS connection"):
            await find(here(), NOTHING, engine.url.replace("127.0.0.1", engine.hostname))


async def test_a_running_server_is_found_by_its_process(decode_server: DecodeServer) -> None:
    if os.geteuid() != 0:
        pytest.skip("reads the sockets of a process: as root, or as its user")
    found = await find(here(), NOTHING)
    mine = next(one for one in found if one.pid == decode_server.pid)
    assert (mine.url, mine.kind, mine.model) == (decode_server.url, "llama.cpp", "tiny")
    assert [one.started for one in found] == sorted((o.started for o in found), reverse=True)
    (named,) = await find(here(), NOTHING, decode_server.url)
    assert replace(named, flags=mine.flags) == mine


async def test_a_server_with_a_network_of_its_own_is_found_and_measured(
    decode_server: DecodeServer,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("makes a network namespace: only as root")
    with running_decode_server("--title", "llama-server", apart=True) as server:
        found = await find(here(), NOTHING)
        mine = next(one for one in found if one.pid == server.pid)
        assert mine.side is Side.CONTAINER and mine.url == server.url
        async with open_beside(here(), mine) as beside:
            assert beside.path == NAMESPACE
            requests, _ = await beside.job(bodies(mine, 2, 32, 0), 1)
    assert [r.tokens for r in requests] == [32, 32]
    assert decode_server.pid in {one.pid for one in found}


async def test_loopback_is_the_chosen_containers_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for Docker's client, whose container shows the processes of this machine."""
    if os.geteuid() != 0:
        pytest.skip("makes a network namespace: only as root")
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\n[ "$1 $2 $3" = "exec -i box" ] || exit 9\nshift 3;exec "$@"\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    target = LiveTarget(LocalTransport(), ContainerRef("docker", "box"))
    with running_decode_server("--title", "llama-server", apart=True) as server:
        with pytest.raises(Refusal, match="nothing answers at"):
            await find(here(), NOTHING, server.url)
        (found,) = await find(target, NOTHING, server.url)
    assert (found.pid, found.side, found.kind) == (server.pid, Side.CONTAINER, "llama.cpp")


async def test_a_demo_host_has_its_simulated_engine_and_a_recording_none() -> None:
    target = SimulatedTarget(demo_machine(), NO_WAIT)
    (found, *_) = await find(target, await run_audit(target))
    assert found.simulated and found.model
    recording = recorded_target(["/proc/cmdline"])
    with pytest.raises(Refusal, match="a recording cannot be measured"):
        await find(recording, NOTHING)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("127.0.0.1:8000", ("http://127.0.0.1:8000", "")),
        ("http://h:1/v1/", ("http://h:1", "")),
        ("https://[::1]:8443/base/v1", ("https://[::1]:8443", "/base")),
    ],
)
def test_addresses_as_operators_write_them(url: str, expected: tuple[str, str]) -> None:
    assert parse_url(url) == expected


@pytest.mark.parametrize(
    "url", ["", "ftp://h", "http://", "http://h:x", "http://u:p@h", "http://h:99999", "http://a b"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(WrongUsage):
        parse_url(url)


def _server(engine: Engine, *arguments: str, **env: str) -> Server:
    return Server(10, 1, engine, ("x", *arguments), arguments, env)


SOCKETS = """\
N net:[1]
n net:[2]
i 100
i 101
i 102
l 0100007F:1F90 100
l 00000000000000000000000000000000:7530 101
l 0000000000000000FFFF00000100007F:0050 102
l 00000000:0016 999
end
"""


def test_sockets_are_those_of_the_engine_alone() -> None:
    found = parse_listening(SOCKETS)
    assert found.apart is True
    assert found.places == (("127.0.0.1", 80), ("127.0.0.1", 8080), ("::", 30000))
    assert addresses(_server(Engine.SGLANG), found) == ["127.0.0.1:30000"]
    assert addresses(_server(Engine.VLLM, "--port", "8080"), found) == ["127.0.0.1:8080"]
    assert len(addresses(_server(Engine.VLLM), found)) == 3


def test_without_rights_the_named_or_the_usual_port_is_asked() -> None:
    unread = parse_listening("N net:[1]\nn \nend\n")
    assert unread == Listening(None, None)
    assert addresses(_server(Engine.TGI), unread) == ["127.0.0.1:3000", "127.0.0.1:80"]
    named = _server(Engine.VLLM, "--host", "10.0.0.7", "--port=9000")
    assert addresses(named, unread) == ["10.0.0.7:9000"]
    ollama = _server(Engine.OLLAMA, OLLAMA_HOST="0.0.0.0:11500")
    assert addresses(ollama, unread) == ["127.0.0.1:11500"]
    assert parse_listening("i 1\nl 0100007F:1F90 1\n") == Listening(None, None)


def test_our_own_sockets_are_read() -> None:
    with socket.socket() as mine:
        mine.bind(("127.0.0.1", 0))
        mine.listen()
        me = replace(_server(Engine.VLLM), pid=os.getpid())
        words = ["sh", "-c", listening_text(me)]
        found = parse_listening(subprocess.run(words, capture_output=True, text=True).stdout)
        assert found.apart is False and found.places is not None
        assert mine.getsockname() in found.places


def test_prompts_differ_from_their_first_word_and_are_the_same_after_it() -> None:
    serving = Serving("vLLM", "http://h", "m", container=ContainerRef("lxc", "1"))
    one, again = (bodies(serving, 40, 64, 5) for _ in range(2))
    texts = [[str(body["prompt"]) for body in run] for run in (one, again)]
    assert len({text.split(".")[0] for run in texts for text in run}) == 80
    assert [t.split(". ", 1)[1] for t in texts[0]] == [t.split(". ", 1)[1] for t in texts[1]]
    assert all(40 <= len(text.split()) <= 60 for text in texts[0])
    assert {str(body["temperature"]) for body in one} == {"0"}


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (Engine.SGLANG, {"ignore_eos": True}),
        (Engine.VLLM, {"ignore_eos": True, "min_tokens": 64}),
        (Engine.LLAMA, {"ignore_eos": True, "cache_prompt": False}),
        (Engine.TENSORRT, {"ignore_eos": True, "min_tokens": 64}),
        (Engine.TGI, {}),
        (Engine.OLLAMA, {}),
    ],
)
def test_each_engine_is_forced_by_its_own_parameters(
    kind: Engine, named: dict[str, object]
) -> None:
    (body,) = bodies(Serving(kind, "http://h", "m"), 1, 64, 0)
    common = {"model", "prompt", "max_tokens", "temperature", "top_p", "stream", "stream_options"}
    assert set(body) - common == set(named) | (set(body) & {"min_tokens"})
    assert {name: body[name] for name in named} == named
    assert body["max_tokens"] == 64 and body["stream"] is True
