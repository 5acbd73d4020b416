"""Panel 5: which kernel runs, which would run next, and what it means for this CPU and GPU."""

import re

from gpudoctor.checks.kernel_version_fit import cpufreq_driver, pve_series, zen5
from gpudoctor.formats.apt_policy import Policy
from gpudoctor.formats.version import compare, flavour, series, version_key
from gpudoctor.model import (
    Class,
    Evidence,
    Files,
    Impact,
    Listing,
    Needs,
    Reader,
    Reason,
    Unknown,
    Verdict,
    Worked,
    check,
    good,
    info,
    issue,
    unknown,
)
from gpudoctor.probes.installed_kernels import (
    INSTALLED_KERNELS,
    KERNELS_WITH_NVIDIA,
    OFFERS,
    PINNED_KERNEL,
    Offers,
)
from gpudoctor.probes.kernel import KERNEL_RELEASE
from gpudoctor.probes.pci import GPU_FUNCTIONS, PciFunction
from gpudoctor.shell import quote
from gpudoctor.tables.kernels import dotted, kernels

__all__ = [
    "cpufreq_driver",
    "gpu_driver_build",
    "known_bad",
    "pve_series",
    "reboot_pending",
    "running",
    "series_latest",
    "zen5",
]

_PACKAGING = (
    "In a Proxmox release such as 6.8.12-9-pve the 9 counts packages, not upstream patch levels."
)


@check(
    "kver-running",
    "Running kernel",
    reads=(KERNEL_RELEASE,),
    why=f"The base fact for the rest of this panel. {_PACKAGING}",
    source="pve.proxmox.com Host Bootloader",
)
def running(release: str) -> Verdict:
    """Say which kernel runs."""
    return info(f"Linux {release} runs", release)


@check(
    "kver-series-latest",
    "Newest package of the kernel series",
    reads=(KERNEL_RELEASE, OFFERS),
    why="Newer packages of the same series carry security and other fixes; a gain in throughput is "
    f"unproven. {_PACKAGING} The lists on this host may be old; nothing was fetched.",
    source="pve.proxmox.com Host Bootloader; apt-cache(8)",
    changes=(Worked,),
)
def series_latest(release: str, offers: Offers) -> Verdict:
    """Compare what is installed of the running series with what the package lists offer."""
    chosen = _followed(release, offers)
    if chosen is None:
        return unknown(
            Reason.NOT_PRESENT, f"no package on this host follows the series of {release}"
        )
    age = f"package lists {offers.age / 86400:.0f} days old"
    if not chosen.offered or not chosen.candidate:
        return unknown(Reason.NOT_PRESENT, f"no configured repository offers {chosen.name} ({age})")
    installed = chosen.installed or release.removesuffix("-pve")
    seen = f"{chosen.name} {installed}, candidate {chosen.candidate}; {age}"
    if compare(installed, chosen.candidate) >= 0:
        return good("The newest package of this kernel series is installed", seen)
    return issue(
        "A newer package of this kernel series is available",
        Class.P1,
        Impact.LOW,
        seen,
        chosen.candidate,
        needs=Needs.REBOOT,
        remedy="See that the NVIDIA module is built for it before the reboot; the old kernel stays "
        "installed.",
        changes=((_update(chosen.name, release),),),
    )


def _update(package: str, release: str) -> Worked:
    """Return the commands that install the package and boot it; undo is a boot of the old one."""
    pin = f"proxmox-boot-tool kernel pin {quote(release)}"
    back = (pin, "reboot") if release.endswith("-pve") else ()
    return Worked(
        f"the newest package of {package}",
        (f"apt install {package}", "dkms status nvidia", "reboot", "uname -r"),
        back or (f"choose {release} in the boot menu",),
    )


def _followed(release: str, offers: Offers) -> Policy | None:
    """Return the metapackage that follows the running series: its name holds no full release."""
    wanted = series(release)
    named = f"proxmox-kernel-{dotted(wanted)}", f"pve-kernel-{dotted(wanted)}"
    for name in named:
        found = offers.policies.get(name)
        if found and (found.installed or release.endswith("-pve")):
            return found
    for name, policy in offers.policies.items():
        if name.startswith("linux-image-") and not re.search(r"\d\.\d+\.\d", name):
            version = policy.installed.rpartition(":")[2]
            if version and series(version) == wanted:
                return policy
    return None


_REQUIRED = "/run/reboot-required"


def _required(evidence: Evidence) -> tuple[str, ...] | Unknown:
    """Return the packages that asked for a reboot; ("",) where none is named."""
    if evidence.unread:
        return evidence.unread
    texts = evidence.texts()
    if _REQUIRED not in texts:
        return ()
    return tuple(sorted(set(texts.get(f"{_REQUIRED}.pkgs", "").split()))) or ("",)


REBOOT_REQUIRED: Reader[tuple[str, ...]] = Reader(
    "reboot-required",
    (Files("reboot-required", (_REQUIRED, f"{_REQUIRED}.pkgs")),),
    _required,
    tolerant=True,
)


def _alike(release: str, installed: tuple[str, ...]) -> list[str]:
    """Return the installed kernels of the running one's flavour, oldest first."""
    return [kernel for kernel in installed if flavour(kernel) == flavour(release)]


@check(
    "kver-reboot-pending",
    "Installed kernel waits for a reboot",
    reads=(KERNEL_RELEASE, INSTALLED_KERNELS),
    optional=(PINNED_KERNEL, REBOOT_REQUIRED),
    why="Fixes that are installed act only after the next boot; and the next boot, planned or not, "
    "changes the kernel under the driver.",
    source="pve.proxmox.com Host Bootloader; Debian reboot-required",
)
def reboot_pending(
    release: str, installed: tuple[str, ...], pinned: str, asked: tuple[str, ...] | Unknown
) -> Verdict:
    """Compare the running kernel with the newest installed one, in version order."""
    newest = max([*_alike(release, installed)[-1:], release], key=version_key)
    seen = f"running {release}, newest installed {newest}"
    if newest != release and pinned == release:
        return info("A newer kernel is installed, and this one is pinned", seen)
    if newest != release:
        return issue(
            "A newer kernel is installed than runs",
            Class.P1,
            Impact.LOW,
            seen + (f", pinned {pinned}" if pinned else ""),
            newest,
            needs=Needs.REBOOT,
            remedy="Check that the NVIDIA module is built for it (kver-gpu-driver-build), then "
            "reboot.",
        )
    if isinstance(asked, tuple) and asked:
        named = ", ".join(filter(None, asked)) or "no package named"
        return info("Updates ask for a reboot, but the kernel is the newest", f"{seen}; {named}")
    return good("The newest installed kernel runs", seen, newest)


NVIDIA_LOADED: Reader[bool] = Reader(
    "nvidia-loaded",
    (Listing("nvidia-loaded", ("/sys/module/nvidia",)),),
    Evidence.present,
    tolerant=True,
)


@check(
    "kver-gpu-driver-build",
    "NVIDIA module for the next kernel",
    reads=(GPU_FUNCTIONS, KERNEL_RELEASE, INSTALLED_KERNELS, KERNELS_WITH_NVIDIA, NVIDIA_LOADED),
    optional=(PINNED_KERNEL,),
    why="A kernel update without a module built for it loses the GPUs at the next reboot: the most "
    "common self-made outage on Proxmox. Drivers from a .run file have no DKMS entry.",
    source="dkms(8); docs.nvidia.com driver installation guide",
)
def gpu_driver_build(
    gpus: tuple[PciFunction, ...],
    release: str,
    installed: tuple[str, ...],
    built: frozenset[str],
    loaded: bool,
    pinned: str,
) -> Verdict:
    """Judge the kernel that boots next, or, with no module loaded, the one that runs."""
    if not built or (loaded and release not in built):
        return unknown(
            Reason.NOT_PRESENT, "no nvidia module for this kernel in the usual places on disk"
        )
    coming = (
        pinned
        if pinned in installed
        else max([*_alike(release, installed), release], key=version_key)
    )
    seen = f"running {release}, next {coming}; built for {', '.join(sorted(built))}"
    lacking = [kernel for kernel in dict.fromkeys((coming, release)) if kernel not in built]
    if not lacking:
        return good("The NVIDIA module is built for the next kernel", seen, coming)
    return issue(
        "The next boot has no NVIDIA module" if loaded else "The kernel has no NVIDIA module",
        Class.P1,
        Impact.HIGH,
        seen,
        f"a module for {lacking[0]}",
        needs=Needs.MODULE_RELOAD if lacking[0] == release else Needs.NOTHING,
        remedy=f"Install the headers of {lacking[0]}, then dkms autoinstall -k {lacking[0]} (a "
        ".run driver: run its installer again with --dkms). Do not reboot before it is built.",
    )


_BAD_MODULES = Listing(
    "known-bad-modules", tuple(f"/sys/module/{bad.module}" for bad in kernels().bad)
)


def _modules(evidence: Evidence) -> frozenset[str] | Unknown:
    if evidence.unread:
        return evidence.unread
    found = (path for path, line in evidence.files.items() if not isinstance(line, Unknown))
    return frozenset(path.rsplit("/", 1)[-1] for path in found)


BAD_MODULES: Reader[frozenset[str]] = Reader(
    "known-bad-modules", (_BAD_MODULES,), _modules, tolerant=True
)


@check(
    "kver-known-bad",
    "Known bad kernels",
    reads=(KERNEL_RELEASE, BAD_MODULES),
    why="A short list with sources instead of folklore.",
    source="the sources named in gpudoctor's kernels.toml",
)
def known_bad(release: str, modules: frozenset[str]) -> Verdict:
    """Look the running kernel up in the table."""
    for bad in kernels().bad:
        if series(release) >= bad.since and bad.module in modules:
            return issue(
                bad.says,
                Class.P1,
                Impact.LOW,
                f"{release}, {bad.module} loaded",
                f"before {dotted(bad.since)}",
                needs=Needs.REBOOT,
                remedy=f"{bad.remedy} ({bad.source})",
            )
    return good("The kernel is not on the short list of known bad ones", release)
