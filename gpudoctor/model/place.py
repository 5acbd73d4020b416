"""Where the operator points: a container beside the host, named as on the command line."""

import re
from dataclasses import dataclass

from gpudoctor.model.error import WrongUsage

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_LOGIN = re.compile(r"(?:[A-Za-z0-9_.-]+@)?[A-Za-z0-9][A-Za-z0-9_.:-]{0,253}")


@dataclass(frozen=True, slots=True)
class ContainerRef:
    """A container: `kind` is lxc, docker, podman, ssh or one seen only; `name` its id or login."""

    kind: str
    name: str

    def __str__(self) -> str:
        """Return the command line's form."""
        return f"{self.kind}:{self.name}"


def parse_container(text: str) -> ContainerRef:
    """Parse `lxc:101`, `docker:NAME`, `podman:NAME` or `ssh:USER@HOST`. Raises WrongUsage."""
    kind, _, name = text.partition(":")
    pattern = _LOGIN if kind == "ssh" else _NAME
    if kind not in {"lxc", "docker", "podman", "ssh"} or not pattern.fullmatch(name):
        raise WrongUsage(
            f"--container wants lxc:ID, docker:NAME, podman:NAME or ssh:USER@HOST, not {text!r}"
        )
    return ContainerRef(kind, name)
