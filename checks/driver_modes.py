"""Panel 3, modes: persistence, compute, MIG and ECC mode of each GPU."""

from gpudoctor.checks.per_gpu import Gpus, each, unread
from gpudoctor.formats.nvidia_smi_gpu import Gpu
from gpudoctor.model import Class, Impact, Needs, Unknown, Verdict, check, good, info, issue
from gpudoctor.probes.gpu import GPUS
from gpudoctor.probes.uptime import UPTIME
from gpudoctor.tables.gpu_limits import limit


@check(
    "drv-persistence-mode",
    "Persistence mode",
    reads=(GPUS,),
    optional=(UPTIME,),
    why="Without it the driver tears a GPU down when its last user exits: seconds at the next "
    "start, and clock and power settings are lost. A running server is not slowed.",
    source="NVIDIA driver persistence documentation; nvidia-smi manual",
    scope="gpu",
)
def persistence_mode(gpus: Gpus, uptime: float | Unknown) -> list[Verdict]:
    """Judge persistence mode; it matters less while somebody holds the GPU."""
    early = not isinstance(uptime, Unknown) and uptime < limit("drv-persistence-mode", "boot_s")
    return each(gpus, lambda gpu: _persistence(gpu, early))


def _persistence(gpu: Gpu, early: bool) -> Verdict:
    if isinstance(gpu.persistence, Unknown):
        return unread("persistence mode", gpu.persistence)
    if gpu.persistence:
        return good("Persistence mode is on", observed="Enabled", expected="Enabled")
    if early:
        return info(
            "Persistence mode is off, right after boot",
            observed="Disabled",
            why="nvidia-persistenced may still be starting: read it again in some minutes.",
        )
    used = gpu.memory.used
    most = limit("drv-persistence-mode", "held_mib")
    held = gpu.computing > 0 or (isinstance(used, int) and used >= most)
    return issue(
        "Persistence mode is off",
        Class.P0,
        Impact.LOW if held else Impact.MEDIUM,
        observed="Disabled",
        expected="Enabled",
        remedy="`systemctl start nvidia-persistenced`, or `nvidia-smi -pm 1` where the daemon is "
        "not installed (lost at reboot; undo: `systemctl stop nvidia-persistenced`, `-pm 0`).",
    )


@check(
    "drv-compute-mode",
    "Compute mode",
    reads=(GPUS,),
    why="An exclusive GPU takes one process only, which breaks engines with helper processes; a "
    "prohibited one takes none.",
    source="nvidia-smi manual (compute mode)",
    scope="gpu",
)
def compute_mode(gpus: Gpus) -> list[Verdict]:
    """Judge the compute mode of each GPU."""
    return each(gpus, _compute_mode)


# nvidia-smi's own numbers.
_MODES = {"Prohibited": "2", "Exclusive_Process": "3"}


def _compute_mode(gpu: Gpu) -> Verdict:
    mode = gpu.compute_mode
    if isinstance(mode, Unknown):
        return unread("compute mode", mode)
    if mode == "Default":
        return good("Any process may compute", observed=mode, expected="Default")
    if mode != "Prohibited" and gpu.computing < 2:
        return info("The GPU takes one process only", observed=mode, expected="Default")
    return issue(
        "The compute mode stands in the way",
        Class.P0,
        Impact.HIGH if mode == "Prohibited" else Impact.LOW,
        observed=mode,
        expected="Default",
        remedy=f"`nvidia-smi -i N -c 0`; undo: `nvidia-smi -i N -c {_MODES.get(mode, 'MODE')}`.",
    )


@check(
    "drv-mig-mode",
    "MIG mode",
    reads=(GPUS,),
    why="A GPU in MIG mode has no PCIe P2P in the driver and shows CUDA its slices only: tensor "
    "parallel serving across such GPUs loses both.",
    source="NVIDIA/open-gpu-kernel-modules kernel_p2p; NVIDIA MIG user guide",
    scope="gpu",
)
def mig_mode(gpus: Gpus) -> list[Verdict]:
    """Judge MIG; instances show that somebody wants it."""
    return each(gpus, _mig)


def _mig(gpu: Gpu) -> Verdict:
    now, then = gpu.mig.current, gpu.mig.pending
    if isinstance(now, Unknown):
        if "N/A" in now.detail:
            return good("This GPU has no MIG", observed="N/A")
        return unread("MIG mode", now)
    pending = now if isinstance(then, Unknown) else then
    seen = now if now == pending else f"{now}, {pending} after the next reset"
    if now == "Disabled" and pending == now:
        return good("MIG is off", observed=seen, expected="Disabled")
    if now == "Enabled" and pending == now and gpu.mig_instances:
        return info(
            "The GPU is partitioned by MIG, with instances in place",
            observed=f"{seen}, {gpu.mig_instances} instance(s)",
            why="Somebody made these instances; they may be in use. No P2P between GPUs here.",
        )
    if now == "Enabled" and pending == now:
        summary = "MIG is on, and no instance is in place"
    else:
        summary = f"MIG is {now.lower()} and will be {pending.lower()} after the next reset"
    return issue(
        summary,
        Class.P0,
        Impact.HIGH if now == "Enabled" else Impact.LOW,
        observed=seen,
        expected="Disabled",
        needs=Needs.GPU_RESET,
        remedy="If nobody wants MIG, with the GPU idle: `nvidia-smi -i N -mig 0`, then "
        "`nvidia-smi -r -i N`; undo: the same with `-mig 1`.",
    )


@check(
    "drv-ecc-mode",
    "ECC mode",
    reads=(GPUS,),
    why="Without ECC a flipped bit changes weights or results in silence. On GDDR boards ECC costs "
    "a few per cent of bandwidth and capacity: a policy, not a fault.",
    source="NVIDIA GPU memory error management; nvidia-smi manual (ECC mode)",
    scope="gpu",
)
def ecc_mode(gpus: Gpus) -> list[Verdict]:
    """Judge ECC of each GPU that has it."""
    return each(gpus, _ecc)


def _ecc(gpu: Gpu) -> Verdict:
    now, then = gpu.ecc.current, gpu.ecc.pending
    if isinstance(now, Unknown):
        return unread("ECC mode (not an issue on boards without ECC)", now)
    if not isinstance(then, Unknown) and now != then:
        return issue(
            "ECC changes at the next reset",
            Class.P0,
            Impact.LOW,
            observed=f"{now}, {then} pending",
            expected="Enabled",
            needs=Needs.GPU_RESET,
            remedy="Reset the GPU when idle (`nvidia-smi -r -i N`) for it to take effect, or take "
            f"it back (`nvidia-smi -i N -e {int(now == 'Enabled')}`).",
        )
    if now == "Enabled":
        return good("ECC is on", observed=now, expected="Enabled")
    if isinstance(gpu.name, str) and "GeForce" in gpu.name:
        return info("ECC is off, as consumer boards are shipped", observed=now)
    return issue(
        "ECC is off on a board that has it",
        Class.P1,
        Impact.LOW,
        observed=now,
        expected="Enabled",
        needs=Needs.REBOOT,
        remedy="`nvidia-smi -i N -e 1`, then a GPU reset or a reboot.",
    )
