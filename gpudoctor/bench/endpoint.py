"""Which engine answers at an address, with which model: told by its own answers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpudoctor.bench.ask import IGNORE_EOS, STREAM_OPTIONS, bodies
from gpudoctor.bench.asking import Answer, Asker
from gpudoctor.bench.sentences import sentence
from gpudoctor.formats.engines import Engine
from gpudoctor.model.bench import Failure, Serving
from gpudoctor.model.error import Refusal
from gpudoctor.text import one_line

UNKNOWN_KIND = "OpenAI-compatible"
_OWNERS = {
    "sglang": Engine.SGLANG,
    "vllm": Engine.VLLM,
    "llamacpp": Engine.LLAMA,
    "tensorrt_llm": Engine.TENSORRT,
    "library": Engine.OLLAMA,
}
# Sure signs, in the order in which they are asked: path, and a field that only this engine tells.
_SIGNS = (
    (Engine.SGLANG, "/model_info", "model_path"),
    (Engine.SGLANG, "/get_model_info", "model_path"),
    (Engine.TGI, "/info", "model_id"),
    (Engine.LLAMA, "/props", "default_generation_settings"),
    (Engine.OLLAMA, "/api/ps", "models"),
)
_VERSIONS = {
    Engine.SGLANG: (("/server_info", "version"), ("/get_server_info", "version")),
    Engine.VLLM: (("/version", "version"),),
    Engine.LLAMA: (("/props", "build_info"),),
    Engine.TGI: (("/info", "version"),),
    Engine.OLLAMA: (("/api/version", "version"),),
    Engine.TENSORRT: (("/version", "version"),),
}
# What an engine may refuse of a request, in the order in which it is left out.
_EXTRAS = ("min_tokens", "cache_prompt", IGNORE_EOS, STREAM_OPTIONS)
_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"


async def examine(asker: Asker, draft: Serving, hint: Engine | None, prefix: str = "") -> Serving:
    """Return what answers there: its kind, model, version, and the path and parameters it takes.

    One request for one token is made. Raises Refusal with one sentence where it is no engine.
    """
    models, url = await _models(asker, draft, prefix)
    draft = replace(draft, url=url)
    kind = await _kind(asker, models, hint, prefix)
    model = await _model(asker, models, kind, draft, prefix)
    version = await _version(asker, kind, prefix)
    found = replace(draft, kind=kind, model=model, version=version)
    return await _taking(asker, found, prefix)


async def _models(asker: Asker, draft: Serving, prefix: str) -> tuple[Answer, str]:
    """Return the list of models, asked by http and then by https, and the address that gave it."""
    answer, url = await asker.get(f"{prefix}/v1/models"), draft.url
    plain_to_tls = answer.status == 400 or (answer.failure and answer.failure.kind == "broken")
    if url.startswith("http:") and plain_to_tls:
        asker.secure()
        url = "https:" + url.removeprefix("http:")
        second = await asker.get(f"{prefix}/v1/models")
        mute = second.failure is not None and second.failure.kind != "tls"
        if not mute and not _no_tls(second):
            answer = second
        else:
            url = draft.url
            asker.secure(False)
    if answer.failure is not None:
        raise Refusal(sentence(answer.failure, replace(draft, url=url)))
    if answer.status in {401, 403}:
        failure = Failure("http", answer.status, answer.body)
        raise Refusal(sentence(failure, replace(draft, url=url)))
    return answer, url


def _no_tls(answer: Answer) -> bool:
    """Return whether the other side does not speak TLS at all."""
    said = answer.failure.said if answer.failure else ""
    return "WRONG_VERSION_NUMBER" in said or "RECORD_LAYER" in said or "UNEXPECTED_EOF" in said


async def _kind(asker: Asker, models: Answer, hint: Engine | None, prefix: str) -> str:
    """Return the engine by who owns the models, its header, its process, or its sure signs."""
    for entry in _listed(models):
        if owner := _OWNERS.get(str(entry.get("owned_by")).lower()):
            return owner
    if models.server.lower().startswith("llama.cpp"):
        return Engine.LLAMA
    if hint is not None:
        return hint
    for engine, path, field in _SIGNS:
        answer = await asker.get(prefix + path)
        if answer.good and field in answer.json:
            return engine
    metrics = await asker.get(f"{prefix}/metrics")
    named = re.search(r"^(?:# \w+ )?(sglang|vllm|llamacpp)[:_]", metrics.body, re.MULTILINE)
    if metrics.good and named:
        return _OWNERS[named[1]]
    if not _listed(models):
        raise Refusal(
            f"{asker.url} answers, but not as an engine: /v1/models names no model"
            f" (HTTP {models.status})"
        )
    return UNKNOWN_KIND


def _listed(models: Answer) -> list[Mapping[str, object]]:
    data = models.json.get("data") if models.good else None
    if not isinstance(data, list):
        return []
    return [entry for entry in data if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


async def _model(asker: Asker, models: Answer, kind: str, draft: Serving, prefix: str) -> str:
    """Return the model that is measured: the one loaded, or the base of its adapters."""
    listed = _listed(models)
    if kind == Engine.OLLAMA:
        return await _loaded(asker, listed, draft, prefix)
    if not listed and kind == Engine.TGI:
        info = (await asker.get(f"{prefix}/info")).json
        listed = [{"id": info["model_id"]}] if isinstance(info.get("model_id"), str) else []
    if not listed:
        raise Refusal(f"the engine at {draft.url} names no model: is it still loading?")
    ready = [entry for entry in listed if _is_loaded(entry)] or listed
    base = [entry for entry in ready if not entry.get("parent")] or ready
    return str(base[0]["id"])[:400]


def _is_loaded(entry: Mapping[str, object]) -> bool:
    """Return whether llama.cpp's router has loaded this model; other engines tell nothing."""
    status = entry.get("status")
    return isinstance(status, dict) and status.get("value") == "loaded"


async def _loaded(
    asker: Asker, listed: Sequence[Mapping[str, object]], draft: Serving, prefix: str
) -> str:
    """Return the model that Ollama has in memory, or its only one: none is loaded unasked."""
    running = (await asker.get(f"{prefix}/api/ps")).json.get("models")
    first = running[0] if isinstance(running, list) and running else None
    if isinstance(first, dict) and isinstance(first.get("name"), str):
        return str(first["name"])[:400]
    if len(listed) == 1:
        return str(listed[0]["id"])[:400]
    raise Refusal(f"Ollama at {draft.url} has no model in memory: load one first (ollama run NAME)")


async def _version(asker: Asker, kind: str, prefix: str) -> str:
    for path, field in _VERSIONS.get(Engine(kind), ()) if kind in set(Engine) else ():
        answer = await asker.get(prefix + path)
        if answer.good and isinstance(version := answer.json.get(field), str):
            return one_line(version, 60)
    return ""


async def _taking(asker: Asker, found: Serving, prefix: str) -> Serving:
    """Return the serving with the path it answers, leaving out parameters that it refuses.

    Raises Refusal where no request for one token succeeds.
    """
    answer = Answer()
    for path in (_COMPLETIONS, _CHAT):
        trial = replace(found, path=prefix + path)
        answer = await _tried(asker, trial)
        for extra in _EXTRAS:
            if answer.status not in {400, 422}:
                break
            if extra in bodies(trial, 1, 1, 0)[0]:
                trial = replace(trial, refused=(*trial.refused, extra))
                answer = await _tried(asker, trial)
        if answer.good:
            return trial
        if answer.failure is not None or answer.status not in {404, 405, 501}:
            break
    raise Refusal(sentence(answer.failure or Failure("http", answer.status, answer.body), found))


async def _tried(asker: Asker, trial: Serving) -> Answer:
    return await asker.post(trial.path, bodies(trial, 1, 1, 0)[0])
