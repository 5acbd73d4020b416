"""Plans by hand for a container of Proxmox VE: lines of its configuration, and its restart."""

import re
from collections.abc import Iterable
from typing import TypeGuard

from gpudoctor.model import Change, Unknown, Worked
from gpudoctor.probes.container import ContainerConf
from gpudoctor.shell import quote

Options = tuple[tuple[Change, ...], ...]

_RESTARTS = "It restarts the container: everything in it stops for a while."
_TOO_OLD = "A Proxmox VE that is too old for dev[n] refuses the first command."
_DEV = re.compile(r"dev(\d+)")
_FEATURES = re.compile(r"[\w=,;-]+", re.ASCII)
# Above the first `[` stands what is live; below are snapshots, which stay as they are.
_AWK = (
    r"!d && /^\[/ {print l; d = 1} !d && /^lxc[.]prlimit[.]memlock[ \t]*:/ {next} {print} "
    "END {if (!d) print l}"
)


def _is_known(conf: ContainerConf | Unknown) -> TypeGuard[ContainerConf]:
    """Return whether the file is Proxmox VE's, and so the container's number is known."""
    return isinstance(conf, ContainerConf) and conf.is_proxmox and conf.name.isascii()


def unlimited_memlock(conf: ContainerConf | Unknown) -> Options:
    """Return the plan that lifts the locked-memory limit for good; none but on Proxmox VE."""
    if not _is_known(conf):
        return ()
    line = "lxc.prlimit.memlock: unlimited"
    kept = f"/root/{conf.name}.conf.gpudoctor-before"
    plan = Worked(
        f"{line} in {conf.path}",
        (
            f"cp {conf.path} {kept}",
            f"awk -v l={quote(line)} {quote(_AWK)} {kept} > {conf.path}",
            f"pct reboot {conf.name}",
        ),
        (f"cp {kept} {conf.path}", f"pct reboot {conf.name}"),
        risk="medium",
        caution=f"{_RESTARTS} Taking it back puts the whole file back as it was: changes made to "
        "it in between go too.",
    )
    return ((plan,),)


def devices_in_conf(
    conf: ContainerConf | Unknown, paths: Iterable[str], live: bool = False
) -> Options:
    """Return the plan that adds dev[n] entries for these nodes, at the next free numbers.

    `live`: Proxmox VE makes the nodes in the running container; where rules bar them, it restarts.
    """
    wanted = list(paths)
    if not _is_known(conf) or set(wanted) & set(conf.conf.devices):
        return ()
    used = {int(m[1]) for key, _ in conf.conf.items if (m := _DEV.fullmatch(key))}
    again = () if live else (f"pct reboot {conf.name}",)
    free = [n for n in range(len(used) + len(wanted)) if n not in used]
    entries = list(zip(free, wanted, strict=False))
    plan = Worked(
        f"dev[n] entries of container {conf.name} for {' and '.join(wanted)}",
        (
            *(f"pct set {conf.name} --dev{n} {quote(path)}" for n, path in entries),
            *again,
        ),
        (*(f"pct set {conf.name} --delete dev{n}" for n, _ in entries), *again),
        risk="low" if live else "medium",
        caution=_TOO_OLD if live else f"{_RESTARTS} {_TOO_OLD}",
    )
    return ((plan,),)


def nesting_on(conf: ContainerConf) -> Options:
    """Return the plan that adds nesting to the features that the container has."""
    old = conf.conf.last("features") or ""
    if not _is_known(conf) or (old and not _FEATURES.fullmatch(old)):
        return ()
    kept = {name: value for name, value in conf.conf.features.items() if name != "nesting"}
    new = ",".join(f"{name}={value}" for name, value in {**kept, "nesting": "1"}.items())
    back = f"--features {quote(old)}" if old else "--delete features"
    plan = Worked(
        f"nesting=1 for container {conf.name}",
        (f"pct set {conf.name} --features {quote(new)}", f"pct reboot {conf.name}"),
        (f"pct set {conf.name} {back}", f"pct reboot {conf.name}"),
        risk="medium",
        caution=f"{_RESTARTS} Nesting shows it more of the host's /proc and /sys.",
    )
    return ((plan,),)
