"""Which kernel boots next: what the boot loader in use says, or why that cannot be told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch

from gpudoctor.before_reboot.read import Read, why
from gpudoctor.formats.boot_entries import BootEntry, Loader, loader_in_use, release_of
from gpudoctor.formats.grub import MenuEntry, find_entry, wanted_default
from gpudoctor.formats.version import flavour
from gpudoctor.model import Reason, Unknown
from gpudoctor.probes.installed_kernels import INSTALLED_KERNELS, PINNED_KERNEL
from gpudoctor.probes.kernel import KERNEL_CMDLINE, KERNEL_RELEASE
from gpudoctor.probes.reboot import EFI_LOADER, GRUBENV, LOADER, MENU, LoaderFiles
from gpudoctor.text import one_line


@dataclass(frozen=True, slots=True)
class Coming:
    """What boots next. `release` is empty where it is not certain, and `unknown` says why then.

    `how` is what decides; `lines` are its command lines, of which one is taken; `initrds`
    are named as the loader names them. `recheck` warns of what is odd about the choice.
    """

    loader: Loader | None
    release: str = ""
    how: str = ""
    unknown: Unknown | None = None
    lines: tuple[str, ...] = ()
    initrds: tuple[str, ...] = ()
    recheck: str = ""


def coming(read: Read) -> Coming:
    """Return what boots next, by the loader that booted this time."""
    cmdline = read(KERNEL_CMDLINE)
    if isinstance(cmdline, Unknown):
        return Coming(None, unknown=cmdline)
    variables = read(EFI_LOADER)
    known = {} if isinstance(variables, Unknown) else variables
    loader = loader_in_use(known.get("Info", ""), cmdline)
    if loader is Loader.GRUB:
        return _grub(read)
    if loader is Loader.SYSTEMD_BOOT:
        return _systemd_boot(read, known)
    lacking = f" ({variables.detail})" if isinstance(variables, Unknown) else ""
    said = f"which boot loader is in use does not show on the kernel command line{lacking}"
    return Coming(None, unknown=Unknown(Reason.NOT_PRESENT, said))


def _grub(read: Read) -> Coming:
    menu, env, loader = read(MENU), read(GRUBENV), read(LOADER)
    if isinstance(menu, Unknown):
        said = f"GRUB booted this host, and its menu was not read: {why(menu)}"
        return Coming(Loader.GRUB, unknown=Unknown(menu.reason, said))
    if isinstance(env, Unknown):
        said = f"GRUB booted this host, and its grubenv was not read: {why(env)}"
        return Coming(Loader.GRUB, unknown=Unknown(env.reason, said))
    wanted = wanted_default(menu, env)
    if isinstance(wanted, str):
        return Coming(Loader.GRUB, unknown=Unknown(Reason.PARSE_FAILED, one_line(wanted)))
    name, how = wanted[0], one_line(wanted[1])
    if menu.bls and not isinstance(loader, Unknown):
        return _by_entry_file(Loader.GRUB, loader.entries, name, how, env, read)
    found = find_entry(menu.entries, name)
    if found is None:
        said = f"the menu of grub.cfg has no entry that {how} leads to"
        return Coming(Loader.GRUB, unknown=Unknown(Reason.PARSE_FAILED, said))
    return _hedged(_of_menu(found[0], found[1], how, read), loader, read(PINNED_KERNEL))


def _of_menu(entry: MenuEntry, named: bool, how: str, read: Read) -> Coming:
    release = release_of(entry.image, "", installed(read))
    if not release:
        said = f"{how} leads to {one_line(entry.title, 80)!r}, whose kernel has no release in it"
        return Coming(Loader.GRUB, unknown=Unknown(Reason.PARSE_FAILED, said))
    odd = "" if named else f"{how} names no entry of the menu: GRUB falls back to the first"
    how = f"{how}: {one_line(entry.title, 80)!r}"
    return Coming(
        Loader.GRUB, release, how, None, tuple(entry.lines), tuple(entry.initrds), recheck=odd
    )


def _hedged(found: Coming, loader: LoaderFiles | Unknown, pinned: str | Unknown) -> Coming:
    """Take the certainty back where GRUB boots from ESPs that are not mounted, and no pin says."""
    if isinstance(loader, Unknown) or not loader.proxmox or found.release in {"", pinned}:
        return found
    said = (
        "GRUB starts from ESPs that proxmox-boot-tool keeps and that are not mounted; the menu in "
        f"/boot names {found.release}"
    )
    return replace(found, release="", unknown=Unknown(Reason.NOT_PRESENT, said))


def _systemd_boot(read: Read, variables: Mapping[str, str]) -> Coming:
    files, pinned = read(LOADER), read(PINNED_KERNEL)
    if isinstance(files, Unknown):
        said = f"systemd-boot booted this host, and its files were not read: {why(files)}"
        return Coming(Loader.SYSTEMD_BOOT, unknown=Unknown(files.reason, said))
    once, kept = variables.get("EntryOneShot", ""), variables.get("EntryDefault", "")
    if once or kept:
        how = (
            f"Loader{'EntryOneShot' if once else 'EntryDefault'} in EFI ({one_line(once or kept)})"
        )
        return _by_entry_file(Loader.SYSTEMD_BOOT, files.entries, once or kept, how, {}, read)
    if files.default and files.entries:
        how = f"default {one_line(files.default, 80)} in loader.conf"
        found = _by_entry_file(Loader.SYSTEMD_BOOT, files.entries, files.default, how, {}, read)
        if found.release:
            return found
    if isinstance(pinned, str) and pinned:
        how = f"pinned by proxmox-boot-tool ({pinned})"
        return Coming(Loader.SYSTEMD_BOOT, pinned, how)
    said = "systemd-boot takes the newest entry on its ESP, and that is not mounted here"
    if files.entries:
        said = "systemd-boot chooses among its entries by their names, and no setting names one"
    return Coming(Loader.SYSTEMD_BOOT, unknown=Unknown(Reason.NOT_PRESENT, said))


def _by_entry_file(
    loader: Loader,
    entries: Sequence[BootEntry],
    name: str,
    how: str,
    variables: Mapping[str, str],
    read: Read,
) -> Coming:
    """Return what an entry file gives; a pattern that fits several is not certain."""
    fitting = [e for e in entries if name and fnmatch(e.id.removesuffix(".conf"), name)]
    fitting = fitting or [e for e in entries if name and fnmatch(e.id, name)]
    if len(fitting) != 1:
        count = "no entry file" if not fitting else f"{len(fitting)} entry files"
        said = f"{how}: {count} of {len(entries)} that were read fit"
        return Coming(loader, unknown=Unknown(Reason.NOT_PRESENT, said))
    entry = fitting[0]
    release = release_of(entry.image, entry.version, installed(read))
    if not release:
        said = f"{how}: {one_line(entry.id, 80)} names no kernel release"
        return Coming(loader, unknown=Unknown(Reason.PARSE_FAILED, said))
    line = entry.options.replace("$kernelopts", variables.get("kernelopts", "$kernelopts"))
    lines = () if "$" in line else (line,)
    return Coming(loader, release, how, None, lines, entry.initrds)


def installed(read: Read) -> tuple[str, ...]:
    """Return the installed kernels, oldest first; none where that was not read."""
    found = read(INSTALLED_KERNELS)
    return () if isinstance(found, Unknown) else found


def candidates(now: Coming, read: Read) -> tuple[str, ...]:
    """Return the kernels that may boot: the certain one, else every installed one of its kind."""
    release, there = read(KERNEL_RELEASE), installed(read)
    if now.release:
        return (now.release,)
    if isinstance(release, Unknown):
        return there
    return tuple(of_its_kind(release, there))


def of_its_kind(release: str, kernels: Sequence[str]) -> list[str]:
    """Return the kernels of a release's flavour, in their order."""
    return [kernel for kernel in kernels if flavour(kernel) == flavour(release)]
