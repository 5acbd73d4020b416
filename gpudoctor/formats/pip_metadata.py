"""Installed Python packages without importing them: dist-info METADATA, torch/version.py."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_HEADER = re.compile(r"^(Name|Version): *(\S+)", re.MULTILINE)
_TORCH_VERSION = re.compile(r"^__version__\s*(?::[^=\n]+)?=\s*'([^'\n]+)'", re.MULTILINE)
_TORCH_CUDA = re.compile(r"^cuda\s*(?::[^=\n]+)?=\s*'([\d.]+)'", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """What torch/version.py says: `2.9.1+cu130`, and its CUDA (`13.0`; empty for CPU or ROCm)."""

    version: str
    cuda: str = ""


@dataclass(frozen=True, slots=True)
class Packages:
    """A server's packages: every version found by normalised name, torch's build, git commits."""

    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    torch: TorchBuild | None = None
    origins: Mapping[str, str] = field(default_factory=dict)

    def version(self, *names: str) -> str | None:
        """Return the version of the first of these installed; None if absent or found twice."""
        found = next((self.versions[n] for n in names if n in self.versions), ())
        return found[0] if len(found) == 1 else None


def parse_packages(texts: Mapping[str, str]) -> Packages:
    """Parse METADATA, direct_url.json and torch/version.py texts by path."""
    versions: dict[str, tuple[str, ...]] = {}
    origins: dict[str, str] = {}
    torch = None
    for path, text in texts.items():
        folder, _, name = path.rpartition("/")
        if name == "METADATA":
            package, version = parse_metadata(text)
            before = versions.get(package, ())
            versions[package] = tuple(dict.fromkeys((*before, version)))
        elif name == "direct_url.json":
            package = normalise(folder.rsplit("/", 1)[-1].split("-", 1)[0])
            origins[package] = parse_origin(text)
        elif path.endswith("/torch/version.py") and torch is None:
            torch = parse_torch(text)
    return Packages(versions, torch, origins)


def parse_metadata(text: str) -> tuple[str, str]:
    """Return (normalised name, version) of a METADATA file. Raises ValueError without them."""
    header = text.partition("\n\n")[0]
    found = {key: value for key, value in reversed(_HEADER.findall(header))}
    if set(found) != {"Name", "Version"}:
        raise ValueError("METADATA without Name and Version")
    return normalise(found["Name"]), found["Version"]


def parse_torch(text: str) -> TorchBuild:
    """Parse torch/version.py. Raises ValueError where it names no version."""
    version = _TORCH_VERSION.search(text)
    if version is None:
        raise ValueError("torch/version.py without __version__")
    cuda = _TORCH_CUDA.search(text)
    return TorchBuild(version.group(1), cuda.group(1) if cuda else "")


def parse_origin(text: str) -> str:
    """Return where a direct_url.json package came from: `git COMMIT`, `editable` or `archive`."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError:
        return ""
    if not isinstance(data, dict):
        return ""
    vcs, folder = data.get("vcs_info"), data.get("dir_info")
    if isinstance(vcs, dict):
        return f"git {str(vcs.get('commit_id', ''))[:12]}"
    if isinstance(folder, dict) and folder.get("editable"):
        return "editable"
    return "archive"


def normalise(name: str) -> str:
    """Return a package name as packaging compares it: lower case, dashes."""
    return re.sub(r"[-_.]+", "-", name).lower()


def numbers(version: str) -> tuple[int, ...]:
    """Return the release numbers of a version: `2.10.0.dev2026+cu130` gives (2, 10, 0).

    Raises ValueError where it starts with no number.
    """
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    if match is None:
        raise ValueError(f"no version number: {version[:40]!r}")
    return tuple(int(part) for part in match.group(1).split("."))
