"""What nvidia-smi tells: one guarded run of `-q -x` feeds five panels."""

from gpudoctor.model import Reason, Tool, Unknown

# Exit codes of the guard, outside what nvidia-smi itself uses.
_NO_MODULE, _HANGING, _AT_RISK = 121, 122, 123

MEANINGS = (
    (
        _NO_MODULE,
        Unknown(Reason.NOT_PRESENT, "the nvidia kernel module is not loaded, so no GPU can answer"),
    ),
    (
        _HANGING,
        Unknown(
            Reason.GPU_AT_RISK,
            "an earlier nvidia-smi hangs in the kernel (state D): not started again; "
            "run `nvidia-smi -q -x` by hand if you accept the risk",
        ),
    ),
    (
        _AT_RISK,
        Unknown(
            Reason.GPU_AT_RISK,
            "the kernel log of this boot shows Xid 79, 119 or 120, or a GPU fallen off the bus: "
            "nvidia-smi was not started; run it by hand if you accept that it may hang",
        ),
    ),
)

# knowledge 0.0: only with the module loaded, none hanging, and no sign of a lost GPU in the log.
_GUARD = (
    f"[ -d /sys/module/nvidia ] || exit {_NO_MODULE}; "
    "for s in /proc/[0-9]*/stat; do { read -r _ c t _ <$s; } 2>/dev/null || continue; "
    f'[ "$c $t" = "(nvidia-smi) D" ] && exit {_HANGING}; done; '
    "{ journalctl -k -b -q --no-pager; dmesg; } 2>/dev/null "
    "| grep -Eq 'Xid \\([^)]*\\): (79|119|120),|fallen off the bus' "
    f"&& exit {_AT_RISK}; "
)


def guarded(command: str) -> str:
    """Return sh text that runs an nvidia-smi command only where that endangers nothing."""
    return f"{_GUARD}exec {command}"


def nvidia_smi(key: str, arguments: str, limit: float = 20.0) -> Tool:
    """Return a guarded, gentle nvidia-smi probe."""
    return Tool(
        key,
        "nvidia-smi",
        guarded(f"nvidia-smi {arguments}"),
        limit=limit,
        cap=8 << 20,
        gentle=True,
        slow=True,
        meanings=MEANINGS,
    )


NVIDIA_SMI_XML = nvidia_smi("nvidia-smi-xml", "-q -x")
