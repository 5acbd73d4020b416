"""The lines about the kernel that boots next: is it the one that runs, and what pins it."""

from collections.abc import Sequence

from gpudoctor.before_reboot.coming import Coming, candidates, installed, of_its_kind
from gpudoctor.before_reboot.read import Read, tools, why
from gpudoctor.formats.boot_entries import Loader, release_of
from gpudoctor.formats.grub import named_entries
from gpudoctor.formats.version import version_key
from gpudoctor.model import Unknown
from gpudoctor.model.before_reboot import Line, Outlook, Topic
from gpudoctor.probes.installed_kernels import INSTALLED_KERNELS, PINNED_KERNEL
from gpudoctor.probes.kernel import KERNEL_RELEASE
from gpudoctor.probes.reboot import LOADER, MENU
from gpudoctor.shell import quote


def kernel_lines(now: Coming, read: Read) -> list[Line]:
    """Say which kernel boots, whether it is the one that runs, and what pins it."""
    release = read(KERNEL_RELEASE)
    return [_kernel(now, release, read), *_pin(now, read)]


def _kernel(now: Coming, release: str | Unknown, read: Read) -> Line:
    there = read(INSTALLED_KERNELS)
    seen = f"running {release if isinstance(release, str) else 'unknown'}"
    if not isinstance(there, Unknown):
        seen += f"; installed {', '.join(there)}"
    if now.unknown is not None:
        return _untold(now.unknown, candidates(now, read), seen)
    told = f"{now.loader} will boot {now.release}: {now.how}"
    if not isinstance(there, Unknown) and now.release not in there:
        said = f"{told}; no kernel of that release is installed with its modules"
        return Line(Topic.KERNEL, Outlook.LOOK, said, _CHOOSE, read=seen, stops=True)
    if now.recheck:
        return Line(Topic.KERNEL, Outlook.LOOK, f"{told}. {now.recheck}", _CHOOSE, read=seen)
    if isinstance(release, Unknown):
        return Line(Topic.KERNEL, Outlook.LOOK, f"{told}; which runs is not known", read=seen)
    if now.release != release:
        said = f"{told}; not the kernel that runs, {release}"
        return Line(Topic.KERNEL, Outlook.LOOK, said, *_keep(release, now, read), read=seen)
    return _the_same(release, told, seen, installed(read))


def _the_same(release: str, told: str, seen: str, there: Sequence[str]) -> Line:
    """Say that the kernel that runs boots again, also where a newer one is installed."""
    said = f"{told}; it is the kernel that runs"
    newest = max([*of_its_kind(release, there), release], key=version_key)
    if newest != release:
        said += f", although {newest} is installed and newer"
    return Line(Topic.KERNEL, Outlook.READY, said, read=seen)


_CHOOSE = "Choose an installed kernel by the boot loader's own means"


def _keep(release: str, now: Coming, read: Read) -> tuple[str, tuple[str, ...]]:
    """Return what to do about another kernel than the one that runs, and what keeps this one."""
    driver = "else see that the other's driver is built"
    if release.endswith("-pve"):
        pin = f"proxmox-boot-tool kernel pin {quote(release)}"
        return f"To keep the one that runs, pin it; {driver}", (pin,)
    entry = _entry_of(release, read) if now.loader is Loader.GRUB else ""
    if entry:
        once = f"grub-reboot {quote(entry)}"
        return f"To boot the one that runs once more, tell GRUB so; {driver}", (once,)
    return f"To keep the one that runs, choose it by the boot loader's own means; {driver}", ()


def _entry_of(release: str, read: Read) -> str:
    """Return what GRUB calls the entry of a kernel, where it can be told to take it once."""
    menu = read(MENU)
    if isinstance(menu, Unknown) or not menu.takes_once or "grub-reboot" not in tools(read):
        return ""
    there = installed(read)
    found = named_entries(menu.entries)
    return next((name for name, e in found if release_of(e.image, "", there) == release), "")


def _untold(reason: Unknown, kernels: tuple[str, ...], seen: str) -> Line:
    said = f"Which kernel boots cannot be told: {why(reason)}"
    if kernels:
        said += (
            f". By its name the newest installed one is {kernels[-1]}; that is no more than a "
            "guess, for the boot loader may say otherwise"
        )
    return Line(Topic.KERNEL, Outlook.UNKNOWN, said, read=seen, reason=reason.reason)


def _pin(now: Coming, read: Read) -> list[Line]:
    pinned = read(PINNED_KERNEL)
    if isinstance(pinned, Unknown) or not pinned:
        return []
    seen = f"pin {pinned}"
    unpin = ("proxmox-boot-tool kernel unpin",)
    if pinned not in installed(read):
        said = f"{pinned} is pinned, and it is not installed with its modules"
        return [Line(Topic.KERNEL, Outlook.LOOK, said, "Take the pin out", unpin, seen)]
    if now.release and now.release != pinned:
        said = f"{pinned} is pinned, but the boot loader will take {now.release}"
        todo = "Let the boot loader take the pin over"
        files = read(LOADER)
        on_esps = isinstance(files, Unknown) or files.proxmox or now.loader is not Loader.GRUB
        take = ("proxmox-boot-tool refresh" if on_esps else "update-grub",)
        return [Line(Topic.KERNEL, Outlook.LOOK, said, todo, take, seen)]
    said = f"{pinned} is pinned: it stays the one that boots when a newer kernel is installed"
    return [Line(Topic.KERNEL, Outlook.READY, said, read=seen)]
