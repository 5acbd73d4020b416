"""Which serving engine a command line starts, and where its arguments begin."""

import re
from collections.abc import Sequence
from enum import StrEnum


class Engine(StrEnum):
    """The serving engines that gpudoctor knows."""

    SGLANG = "SGLang"
    VLLM = "vLLM"
    LLAMA = "llama.cpp"
    TGI = "TGI"
    OLLAMA = "Ollama"
    TENSORRT = "TensorRT-LLM"


_TITLES = {"sglang::": Engine.SGLANG, "VLLM::": Engine.VLLM}
_MODULES = {
    "sglang.launch_server": Engine.SGLANG,
    "sglang.srt.server": Engine.SGLANG,
    "vllm.entrypoints.openai.api_server": Engine.VLLM,
    "vllm.entrypoints.api_server": Engine.VLLM,
    "llama_cpp.server": Engine.LLAMA,
    "text_generation_server.cli": Engine.TGI,
    "tensorrt_llm.commands.serve": Engine.TENSORRT,
}
_VERBS = {
    "sglang": Engine.SGLANG,
    "sglang.cli.main": Engine.SGLANG,
    "vllm": Engine.VLLM,
    "vllm.entrypoints.cli.main": Engine.VLLM,
    "ollama": Engine.OLLAMA,
}
_PROGRAMS = {
    "llama-server": Engine.LLAMA,
    "text-generation-launcher": Engine.TGI,
    "trtllm-serve": Engine.TENSORRT,
}
_HELPERS = {
    "text-generation-server": Engine.TGI,
    "text-generation-router": Engine.TGI,
    "ollama_llama_server": Engine.OLLAMA,
}


def identify(argv: Sequence[str]) -> tuple[Engine, bool, tuple[str, ...]] | None:
    """Return (engine, whether this launches it, its arguments), or None for anything else.

    Shells, ssh, docker and editors that only mention an engine are none.
    """
    if not argv:
        return None
    title = next((e for prefix, e in _TITLES.items() if argv[0].startswith(prefix)), None)
    if title:
        return title, False, ()
    program, rest = _program(argv)
    if program in _VERBS and rest and rest[0] in {"serve", "runner"}:
        return _VERBS[program], rest[0] == "serve", tuple(rest[1:])
    if program in _HELPERS:
        return _HELPERS[program], False, tuple(rest)
    engine = _MODULES.get(program) or _PROGRAMS.get(program)
    return (engine, True, tuple(rest)) if engine else None


def is_python(word: str) -> bool:
    """Return whether a program is a Python interpreter."""
    return re.fullmatch(r"(?:.*/)?(?:python|pypy)[0-9.]*t?", word) is not None


def _program(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the module, script or program that runs, and the arguments after it."""
    if not is_python(argv[0]):
        return argv[0].rsplit("/", 1)[-1], argv[1:]
    index = 1
    while index < len(argv) and argv[index].startswith("-"):
        if argv[index] == "-m":
            return (argv[index + 1], argv[index + 2 :]) if index + 1 < len(argv) else ("", ())
        if argv[index] == "-c":
            return "", ()
        index += 2 if argv[index] in {"-X", "-W"} else 1
    if index >= len(argv):
        return "", ()
    return argv[index].rsplit("/", 1)[-1].removesuffix(".py"), argv[index + 1 :]


def is_script(argv: Sequence[str]) -> bool:
    """Return whether this is Python running a script or module, not a multiprocessing helper."""
    return bool(argv) and is_python(argv[0]) and _program(argv)[0] != ""
