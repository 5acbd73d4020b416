"""Panel 3, modes: persistence, compute, MIG and ECC mode of each GPU."""

from gpudoctor.checks.per_gpu import (
    IDLE_CAUTION,
    Gpus,
    each,
    named,
    reset_commands,
    smi,
    unread,
    with_plan,
    with_setting,
)
from gpudoctor.formats.nvidia_smi_gpu import Gpu
from gpudoctor.model import (
    Class,
    GpuSetting,
    Impact,
    Needs,
    Unknown,
    Verdict,
    Worked,
    check,
    good,
    info,
    issue,
)
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
    changes=(GpuSetting,),
)
def persistence_mode(gpus: Gpus, uptime: float | Unknown) -> list[Verdict]:
    """Judge persistence mode; it matters less while somebody holds the GPU."""
    early = not isinstance(uptime, Unknown) and uptime < limit("drv-persistence-mode", "boot_s")
    verdicts = each(gpus, lambda gpu: _persistence(gpu, early))
    return with_setting(verdicts, "persistence", "Enabled", _PERSISTENCE_CAUTION)


_PERSISTENCE_CAUTION = (
    "An idle GPU stays initialised and draws a little more power. Undone with nothing running on "
    "the GPU, the driver tears it down: clocks and power limits set since then are lost."
)


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
        remedy="To have it after a reboot too: `systemctl enable --now nvidia-persistenced`, its "
        "unit without --no-persistence-mode (undo: `systemctl disable --now` it).",
    )


@check(
    "drv-compute-mode",
    "Compute mode",
    reads=(GPUS,),
    why="An exclusive GPU takes one process only, which breaks engines with helper processes; a "
    "prohibited one takes none.",
    source="nvidia-smi manual (compute mode)",
    scope="gpu",
    changes=(GpuSetting,),
)
def compute_mode(gpus: Gpus) -> list[Verdict]:
    """Judge the compute mode of each GPU."""
    return with_setting(
        each(gpus, _compute_mode),
        "compute-mode",
        "Default",
        "Somebody may have set the mode so that one program has the GPU to itself.",
    )


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
    )


@check(
    "drv-mig-mode",
    "MIG mode",
    reads=(GPUS,),
    why="A GPU in MIG mode has no PCIe P2P in the driver and shows CUDA its slices only: tensor "
    "parallel serving across such GPUs loses both.",
    source="NVIDIA/open-gpu-kernel-modules kernel_p2p; NVIDIA MIG user guide",
    scope="gpu",
    changes=(Worked,),
)
def mig_mode(gpus: Gpus) -> list[Verdict]:
    """Judge MIG; instances show that somebody wants it."""
    return with_plan(each(gpus, _mig), gpus, _mig_off)


def _mig_off(_: Verdict, gpus: Gpus) -> Worked | None:
    """Return how to switch MIG off, or take back that it comes on; none where it is mixed."""
    modes = {(gpu.mig.current, gpu.mig.pending) for gpu in gpus}
    what, off, on = (
        f"MIG mode of {named(gpus)} = Disabled",
        smi(gpus, "-mig 0"),
        smi(gpus, "-mig 1"),
    )
    if modes == {("Disabled", "Enabled")}:
        return Worked(what, off, on)
    resets = reset_commands(gpus)
    if modes != {("Enabled", "Enabled")} or not resets:
        return None
    caution = f"Somebody may have wanted MIG. {IDLE_CAUTION}"
    return Worked(what, (*off, *resets), (*on, *resets), risk="medium", caution=caution)


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
    changes=(Worked,),
)
def ecc_mode(gpus: Gpus) -> list[Verdict]:
    """Judge ECC of each GPU that has it."""
    return with_plan(each(gpus, _ecc), gpus, _ecc_on)


def _ecc_on(verdict: Verdict, gpus: Gpus) -> Worked | None:
    """Return how to have ECC on: with a reboot, or a reset where a change is pending already."""
    what, on, off = f"ECC mode of {named(gpus)} = Enabled", smi(gpus, "-e 1"), smi(gpus, "-e 0")
    if verdict.needs is Needs.REBOOT:
        return Worked(what, (*on, "reboot"), (*off, "reboot"), risk="high", caution=_ECC_CAUTION)
    modes = {(gpu.ecc.current, gpu.ecc.pending) for gpu in gpus}
    if modes == {("Enabled", "Disabled")}:
        return Worked(what, on, off)
    resets = reset_commands(gpus)
    if modes != {("Disabled", "Enabled")} or not resets:
        return None
    back = (*off, *resets, *on)
    return Worked(what, resets, back, risk="high", caution=f"{_ECC_CAUTION} {IDLE_CAUTION}")


_ECC_CAUTION = "On GDDR boards ECC takes a few per cent of memory and bandwidth."


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
