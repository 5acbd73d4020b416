"""Options of kernel modules, by hand: a file of our own in /etc/modprobe.d, and a reload."""

from gpudoctor.fixes.by_hand import Recipe
from gpudoctor.fixes.mechanism import Seen
from gpudoctor.model import ModuleOption, Worked
from gpudoctor.shell import quote

_INITRAMFS = {
    "update-initramfs": ("/usr/sbin/update-initramfs", "update-initramfs -u"),
    "dracut": ("/usr/bin/dracut", "dracut -f"),
}


class ModuleOptionRecipe(Recipe[ModuleOption]):
    """Writes the file and renews the initramfs, where a module may be loaded from."""

    def reads(self, change: ModuleOption) -> dict[str, str]:
        """Return which tool makes the initramfs there."""
        return {name: f"[ -e {path} ] && echo yes" for name, (path, _) in _INITRAMFS.items()}

    def worked(self, change: ModuleOption, now: Seen) -> Worked | str:
        """Return the commands; without modules to reload it is a reboot."""
        name = f"{change.module}-{change.option}".replace("_", "-").lower()
        path = f"/etc/modprobe.d/gpudoctor-{name}.conf"
        line = f"options {change.module} {change.option}={change.value}"
        renew = [command for name, (_, command) in _INITRAMFS.items() if now[name] == "yes"][:1]
        again = [
            *(f"modprobe -r {name}" for name in change.reload),
            *(f"modprobe {name}" for name in reversed(change.reload)),
        ] or ["reboot"]
        return Worked(
            change.title,
            (f"printf '%s\\n' {quote(line)} > {path}", *renew, *again),
            (f"rm {path}", *renew, *again),
            caution=change.caution,
        )
