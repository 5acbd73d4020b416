"""The config.json of the model that a server serves, read through its root in /proc.

A plain folder holds it as a plain file. In Hugging Face's cache it is a link into `blobs`: the link
is listed, never followed, and the blob that it names is read as the plain file that it is.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpudoctor.formats.launch_flags import parse_flags
from gpudoctor.formats.listing import link_target
from gpudoctor.formats.model_config import Config, parse_config
from gpudoctor.formats.serving import Server
from gpudoctor.model import Evidence, Files, Later, Listing, Reader, Reason, Unknown
from gpudoctor.probes.serving import SERVERS
from gpudoctor.text import one_line

_CONFIG, _QUANT = "config.json", "hf_quant_config.json"
_CAP = 1 << 20
_MOST_SERVERS = 4
_PATH = re.compile(r"(/[A-Za-z0-9_.+@=-]+)+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")
_BLOB = re.compile(r"(?:\.\./)+blobs/([0-9a-f]{40,64})")
_CACHES = ("/root/.cache/huggingface/hub", "/home/*/.cache/huggingface/hub", "/data")
_SNAPSHOT = re.compile(r"(/.+)/snapshots/([^/]+)/([^/]+)")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A server's model: its config.json, its hf_quant_config.json if there is one, and where."""

    config: Config
    quantisation: Config | None
    path: str


def model_of(server: Server) -> str:
    """Return the model as it was named on the command line, or an empty string."""
    flags = parse_flags(server.arguments)
    named = flags.get("model-path", "model", "model-id", "m", "hf-repo")
    return named or (flags.positional[0] if flags.positional else "")


def _homes(server: Server) -> Iterator[str]:
    """Yield the folders, as globs, in which a server's model may lie, through its own root."""
    root, named = f"/proc/{int(server.pid)}/root", model_of(server).rstrip("/")
    if _PATH.fullmatch(named) and "/.." not in named:
        yield f"{root}{named}"
    elif _NAME.fullmatch(named) and ".." not in named:
        folder = f"models--{named.replace('/', '--')}/snapshots/*"
        yield from (f"{root}{cache}/{folder}" for cache in _caches(server))


def _caches(server: Server) -> Iterator[str]:
    env = {} if isinstance(server.env, Unknown) else server.env
    told = [env.get("HF_HUB_CACHE", ""), f"{env.get('HF_HOME', '')}/hub"]
    yield from (one for one in told if _PATH.fullmatch(one) and "/.." not in one and one != "/hub")
    yield from _CACHES


def _patterns(servers: tuple[Server, ...]) -> tuple[str, ...]:
    homes = [home for server in servers[:_MOST_SERVERS] for home in _homes(server)]
    return tuple(f"{home}/{name}" for home in homes for name in (_CONFIG, _QUANT))


_NOWHERE = Unknown(
    Reason.NOT_PRESENT, "the server's flags name no folder or repository with a config.json"
)


def _files(servers: tuple[Server, ...]) -> Files | Unknown:
    patterns = _patterns(servers)
    return (
        Files("model-config", patterns, _CAP, guarded=True, no_links=True) if patterns else _NOWHERE
    )


def _links(servers: tuple[Server, ...]) -> Listing | Unknown:
    patterns = tuple(p for p in _patterns(servers) if "/snapshots/" in p)
    return Listing("model-config-links", patterns) if patterns else _NOWHERE


MODEL_CONFIG_FILES = Later("model-config", (SERVERS,), _files)
MODEL_CONFIG_LINKS = Later("model-config-links", (SERVERS,), _links)


def _linked(evidence: Evidence) -> dict[str, str]:
    """Return the blob of each listed link, by the link's path."""
    found = {}
    for path, line in evidence.files.items():
        snapshot = _SNAPSHOT.fullmatch(path)
        blob = _BLOB.fullmatch(link_target(line)) if isinstance(line, bytes) else None
        if snapshot and blob:
            found[path] = f"{snapshot[1]}/blobs/{blob[1]}"
    return found


LINKED: Reader[dict[str, str]] = Reader("model-config-links", (MODEL_CONFIG_LINKS,), _linked)


def _blobs(linked: dict[str, str]) -> Files | Unknown:
    paths = tuple(sorted(set(linked.values())))
    refs = tuple(sorted({f"{path.split('/blobs/')[0]}/refs/main" for path in paths}))
    if not paths:
        return Unknown(Reason.NOT_PRESENT, "no snapshot of the model has a config.json")
    return Files("model-config-blobs", paths + refs, _CAP, guarded=True, no_links=True)


MODEL_CONFIG_BLOBS = Later("model-config-blobs", (LINKED,), _blobs)


def _configs(
    servers: tuple[Server, ...] | Unknown,
    plain: Evidence,
    linked: dict[str, str] | Unknown,
    blobs: Evidence,
) -> dict[int, ModelFiles | Unknown] | Unknown:
    """Return each server's model by launcher pid, or why it is not known."""
    if isinstance(servers, Unknown):
        return servers
    links = {} if isinstance(linked, Unknown) else linked
    texts = plain.texts() | {link: t for link, blob in links.items() if (t := _text(blobs, blob))}
    return {server.pid: _config(server, texts, plain, blobs) for server in servers[:_MOST_SERVERS]}


def _text(evidence: Evidence, path: str) -> str:
    text = evidence.get(path)
    return "" if isinstance(text, Unknown) else text


def _config(
    server: Server, texts: dict[str, str], plain: Evidence, blobs: Evidence
) -> ModelFiles | Unknown:
    root = f"/proc/{server.pid}/root"
    found = sorted(p for p in texts if p.startswith(f"{root}/") and p.endswith(f"/{_CONFIG}"))
    if not found:
        return _missing(server, plain)
    if len(found) > 1:
        found = [path for path in found if _is_main(path, blobs)]
    if len(found) != 1:
        return Unknown(Reason.NOT_PRESENT, "the model has several snapshots: which is served?")
    config = parse_config(texts[found[0]])
    beside = texts.get(found[0].removesuffix(_CONFIG) + _QUANT)
    quantisation = parse_config(beside) if beside else None
    for one in (config, quantisation):
        if isinstance(one, Unknown):
            return one
    assert isinstance(config, dict) and not isinstance(quantisation, Unknown)
    return ModelFiles(config, quantisation, found[0].removeprefix(root))


def _is_main(path: str, blobs: Evidence) -> bool:
    """Return whether a snapshot is the one that the repository's main branch names."""
    snapshot = _SNAPSHOT.fullmatch(path)
    if snapshot is None:
        return False
    return _text(blobs, f"{snapshot[1]}/refs/main").strip() == snapshot[2]


def _missing(server: Server, plain: Evidence) -> Unknown:
    named = one_line(model_of(server), 80)
    if named.endswith(".gguf"):
        return Unknown(Reason.NOT_PRESENT, "a GGUF file has no config.json beside it to count from")
    problems = [a for a in plain.files.values() if isinstance(a, Unknown)]
    if other := next((p for p in problems if p.reason is not Reason.NOT_PRESENT), plain.unread):
        return other
    if not any(_homes(server)):
        return _NOWHERE
    return Unknown(Reason.NOT_PRESENT, f"no config.json found for the model {named!r}")


MODEL_CONFIG: Reader[dict[int, ModelFiles | Unknown]] = Reader(
    "model-config",
    (SERVERS, MODEL_CONFIG_FILES, LINKED, MODEL_CONFIG_BLOBS),
    _configs,
    tolerant=True,
)
