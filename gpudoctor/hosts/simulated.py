"""A machine as data: files, directory entries and tools, with a kernel's way of taking writes.

It answers probes like a live side, and runs the single read, write and undo texts of plans.
"""

import errno
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpudoctor.formats.bulk import select
from gpudoctor.hosts.simulated_kernel import accept, error
from gpudoctor.hosts.simulated_shell import NotSimulated
from gpudoctor.model import Evidence, Files, Listing, Probe, Reason, Tool, Unknown
from gpudoctor.model.place import ContainerRef
from gpudoctor.recording import entries

# What a container sees of its host's kernel, and cannot write.
_SHARED = ("/sys/", "/proc/sys/", "/proc/driver/", "/proc/cmdline", "/proc/cpuinfo")
_OWN_CGROUP = "/sys/fs/cgroup/"
_KERNEL = ("/proc/", "/sys/")
_GLOB = "*?["


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a tool prints and how it ends; `problem` where it cannot answer at all."""

    stdout: str = ""
    stderr: str = ""
    exit: int = 0
    problem: Unknown | None = None


ToolSource = ToolAnswer | Callable[["SimulatedMachine"], ToolAnswer]


@dataclass(slots=True)
class SimulatedMachine:
    """A host (or a container on one) as data; state lasts as long as the object.

    `files` maps paths to bytes or why they cannot be read, `listings` paths to `ls -ldn` lines,
    `tools` probe keys to answers (a function is asked anew each time). A container's `kernel` is
    its host. `log` keeps every text that `sh` ran.
    """

    label: str = "simulated machine"
    files: dict[str, bytes | Unknown] = field(default_factory=dict)
    listings: dict[str, bytes | Unknown] = field(default_factory=dict)
    tools: dict[str, ToolSource] = field(default_factory=dict)
    container: "SimulatedMachine | None" = None
    ref: ContainerRef | None = None
    kernel: "SimulatedMachine | None" = None
    log: list[str] = field(default_factory=list)
    _sorted: dict[str, tuple[frozenset[str], list[str]]] = field(default_factory=dict)

    def answer(self, probe: Probe) -> Evidence:
        """Return what a probe reads now."""
        if isinstance(probe, Tool):
            return self._tool(probe)
        kept = self.files if isinstance(probe, Files) else self.listings
        found = self._select("files" if isinstance(probe, Files) else "listings", kept, probe)
        if self.kernel is not None:
            found = self._shared(probe) | found
        if isinstance(probe, Files):
            found = {path: _capped(path, data, probe) for path, data in found.items()}
        return entries(probe, found)

    def sh(self, text: str) -> tuple[int, str, str]:
        """Run one text as sh would; return (exit code, output, complaints).

        Text beyond what is simulated ends with 2 and a complaint that says so.
        """
        from gpudoctor.hosts.simulated_run import run

        self.log.append(text)
        try:
            return run(self, text)
        except NotSimulated as refusal:
            return 2, "", f"sh: not simulated: {refusal}\n"

    def paths(self) -> list[str]:
        """Return the paths of all files, sorted."""
        return self._index("files", self.files)

    def read(self, path: str) -> bytes:
        """Return a file's bytes. Raises OSError."""
        data = self.files.get(path)
        if data is None and self.kernel is not None and _is_shared(path):
            return self.kernel.read(path)
        if data is None:
            raise error(errno.ENOENT, path)
        if isinstance(data, Unknown):
            raise error(errno.EACCES, path)
        return data

    def text(self, path: str) -> str | None:
        """Return a file's text without its last newline, or None where it cannot be read."""
        try:
            return self.read(path).decode().removesuffix("\n")
        except OSError:
            return None

    def write(self, path: str, data: str, append: bool = False) -> None:
        """Write a file as root's redirection does. Raises OSError."""
        if path == "/dev/null":
            return
        if self.kernel is not None and _is_shared(path):
            raise error(errno.EROFS, path)
        if path.startswith(_KERNEL):
            if data:
                changes = accept(path, data, self.text)
                self.files |= {name: f"{value}\n".encode() for name, value in changes.items()}
            return
        before = self.read(path) if append and path in self.files else b""
        self.files[path] = before + data.encode()

    def _tool(self, probe: Tool) -> Evidence:
        source = self.tools.get(probe.key)
        if source is None:
            absent = Unknown(Reason.TOOL_MISSING, f"{probe.name} is not installed there")
            return Evidence(probe.key, probe.side, probe.script, exit=127, problem=absent)
        said = source if isinstance(source, ToolAnswer) else source(self)
        problem = dict(probe.meanings).get(said.exit, said.problem)
        return Evidence(
            probe.key,
            probe.side,
            probe.script,
            said.stdout.encode(),
            said.stderr,
            said.exit,
            problem=problem,
        )

    def _shared(self, probe: Files | Listing) -> dict[str, bytes | Unknown]:
        assert self.kernel is not None
        found = self.kernel.answer(probe).files
        return {path: data for path, data in found.items() if _is_shared(path)}

    def _select(
        self, name: str, kept: Mapping[str, bytes | Unknown], probe: Files | Listing
    ) -> dict[str, bytes | Unknown]:
        """Return the entries that a probe's patterns match, looking only where they can be."""
        exact = {p: kept[p] for p in probe.patterns if p in kept}
        found = dict(exact)
        for pattern in probe.patterns:
            if not any(mark in pattern for mark in _GLOB):
                continue
            near = {path: kept[path] for path in self._below(name, kept, pattern)}
            found |= select(near, (pattern,))
        return found

    def _below(self, name: str, kept: Mapping[str, bytes | Unknown], pattern: str) -> list[str]:
        """Return the paths that share a pattern's text before its first glob mark."""
        prefix = pattern[: min(pattern.index(mark) for mark in _GLOB if mark in pattern)]
        paths = self._index(name, kept)
        return paths[bisect_left(paths, prefix) : bisect_left(paths, f"{prefix}\U0010ffff")]

    def _index(self, name: str, kept: Mapping[str, bytes | Unknown]) -> list[str]:
        """Return the paths sorted; sorted anew only after some came or went."""
        known = self._sorted.get(name)
        if known is None or known[0] != kept.keys():
            known = self._sorted[name] = (frozenset(kept), sorted(kept))
        return known[1]


def _is_shared(path: str) -> bool:
    return path.startswith(_SHARED) and not path.startswith(_OWN_CGROUP)


def _capped(path: str, data: bytes | Unknown, probe: Files) -> bytes | Unknown:
    if isinstance(data, Unknown) or len(data) <= probe.cap:
        return data
    if probe.head:
        return data[: probe.cap]
    return Unknown(Reason.TOO_BIG, f"{path} is larger than {probe.cap} bytes")
