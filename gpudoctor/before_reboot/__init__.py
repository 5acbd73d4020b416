"""Before a reboot: one page of what it will bring and take; a pure function of facts.

An audit reads what it rests on when it is given `READERS` besides its panels.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpudoctor.before_reboot.coming import coming
from gpudoctor.before_reboot.initramfs import initramfs_lines
from gpudoctor.before_reboot.kernel import kernel_lines
from gpudoctor.before_reboot.majors import LXC_CONFS, major_lines
from gpudoctor.before_reboot.module import module_lines
from gpudoctor.before_reboot.read import Read
from gpudoctor.before_reboot.start import start_lines
from gpudoctor.before_reboot.tunings import (
    Command,
    by_hand_lines,
    gpu_lines,
    transaction_lines,
    update_lines,
)
from gpudoctor.before_reboot.words import command_lines
from gpudoctor.checks.kernel_version import REBOOT_REQUIRED
from gpudoctor.model import Reader, Unknown
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.before_reboot import BeforeReboot, Line, Outlook, Topic
from gpudoctor.model.plan import Transaction
from gpudoctor.probes import reboot, reboot_starts
from gpudoctor.probes.container import CGROUP_V2, CHAR_MAJORS
from gpudoctor.probes.container_gpu import CONTAINER_LIBRARIES
from gpudoctor.probes.gpu import GPUS, NVIDIA_MODULE
from gpudoctor.probes.installed_kernels import (
    INSTALLED_KERNELS,
    KERNEL_VERSIONS,
    KERNELS_WITH_NVIDIA,
    PINNED_KERNEL,
)
from gpudoctor.probes.kernel import INSIDE_CONTAINER, KERNEL_CMDLINE, KERNEL_RELEASE, vouched
from gpudoctor.probes.pci import GPU_FUNCTIONS
from gpudoctor.probes.serving import SERVERS
from gpudoctor.shell import our_command
from gpudoctor.text import one_line

# All that the page rests on: the panels of a whole audit read only a part of it.
READERS: tuple[Reader[Any], ...] = (
    KERNEL_RELEASE,
    KERNEL_CMDLINE,
    INSIDE_CONTAINER,
    INSTALLED_KERNELS,
    KERNELS_WITH_NVIDIA,
    PINNED_KERNEL,
    KERNEL_VERSIONS,
    REBOOT_REQUIRED,
    GPU_FUNCTIONS,
    GPUS,
    NVIDIA_MODULE,
    CONTAINER_LIBRARIES,
    SERVERS,
    reboot.EFI_LOADER,
    reboot.MENU,
    reboot.GRUBENV,
    reboot.GRUB_SETTINGS,
    reboot.LOADER,
    reboot.DATES,
    reboot.BOOT_TOOLS,
    reboot.MODULE_VERSIONS,
    reboot.DKMS,
    reboot_starts.ENABLED,
    reboot_starts.ENABLED_INSIDE,
    reboot_starts.PERSISTENCED,
    reboot_starts.PERSISTENCED_BY_UDEV,
    reboot_starts.DOCKER,
    reboot_starts.BY_HA,
    LXC_CONFS,
    CGROUP_V2,
    CHAR_MAJORS,
)


def page(
    result: AuditResult,
    transactions: Sequence[Transaction] | Unknown,
    command: Command = our_command,
) -> BeforeReboot:
    """Return the page of a host: an audit with `READERS`, and what of ours stands there.

    `command` makes the command lines of gpudoctor itself, of a verb and its words.
    """
    read = Read(result.evidence)
    release = read(KERNEL_RELEASE)
    running = "" if isinstance(release, Unknown) else release
    inside = vouched(read(INSIDE_CONTAINER), "What the host's reboot brings")
    if inside is not None:
        said = f"{inside.detail}: ask on the host itself"
        line = Line(Topic.KERNEL, Outlook.UNKNOWN, said, reason=inside.reason)
        return BeforeReboot(result.label, (line,), running, problems=result.problems)
    now = coming(read)
    lines = [
        *kernel_lines(now, read),
        *command_lines(now, read),
        *module_lines(now, read, result.findings),
        *initramfs_lines(now, read),
        *major_lines(read),
        *start_lines(read, result.container),
        *transaction_lines(transactions, command),
        *gpu_lines(read),
        *by_hand_lines(result.pending, now),
        *update_lines(read),
    ]
    lines = [_tidy(line) for line in sorted(lines, key=lambda line: line.order)]
    return BeforeReboot(result.label, tuple(lines), running, now.release, result.problems)


def _tidy(line: Line) -> Line:
    """Return the line with what came from the host on one line, and of a length to be read."""
    return replace(line, sentence=one_line(line.sentence, 600), read=one_line(line.read, 400))
