"""Panel 3, errors: memory error counters, and what the driver asks for."""

from gpudoctor.checks.per_gpu import (
    IDLE_CAUTION,
    Gpus,
    each,
    named,
    reset_commands,
    unread,
    with_plan,
)
from gpudoctor.formats.nvidia_smi_gpu import EccCounts, Gpu
from gpudoctor.model import (
    Class,
    Impact,
    Needs,
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
from gpudoctor.probes.gpu import GPUS

# The words of gpu_recovery_action and of Xid 154, the more particular first.
RECOVERIES = (
    ("reboot", Needs.REBOOT, Class.P1),
    ("drain p2p", Needs.GPU_IDLE, Class.P0),
    ("reset", Needs.GPU_RESET, Class.P0),
)
RECOVERY_STEPS = {
    Needs.REBOOT: "reboot the host.",
    Needs.GPU_IDLE: "stop what uses peer-to-peer on the GPU.",
    Needs.GPU_RESET: "stop what uses the GPU, then `nvidia-smi -r -i N` (GPUs that NVLink joins "
    "may reset only together: `nvidia-smi -r`, with all of them idle).",
}


@check(
    "drv-ecc-errors",
    "Memory errors (ECC)",
    reads=(GPUS,),
    why="Volatile counts began when the driver was loaded, aggregate ones with the board's life. "
    "Uncorrectable errors of this driver load end work or falsify it.",
    source="NVIDIA GPU memory error management; NVML (nvmlDeviceGetMemoryErrorCounter)",
    scope="gpu",
)
def ecc_errors(gpus: Gpus) -> list[Verdict]:
    """Judge the error counters of each GPU."""
    return each(gpus, lambda gpu: _recovered(gpu) or _ecc(gpu.ecc_counts))


def _recovered(gpu: Gpu) -> Verdict | None:
    """Return that the memory repaired itself: errors of DRAM only, their rows remapped and done."""
    ecc, rows = gpu.ecc_counts, gpu.remapping
    if isinstance(rows, Unknown) or not _positive(ecc.volatile_uncorrected):
        return None
    settled = rows.pending is False and rows.failed is False and _positive(rows.uncorrected)
    if not settled or ecc.volatile_sram_uncorrected != 0 or ecc.sram_threshold_exceeded is True:
        return None
    return info(
        "Uncorrectable memory errors, whose rows were remapped: the board recovered",
        observed=_counts(ecc),
        why="The work that met the error was ended. The row is replaced, nothing is pending and no "
        "remap failed (see mem-row-remap): nothing to do but to watch whether the count rises.",
    )


def _ecc(ecc: EccCounts) -> Verdict:
    if ecc.sram_threshold_exceeded is True or _positive(ecc.volatile_uncorrected):
        return issue(
            "Uncorrectable memory errors since the driver was loaded"
            if _positive(ecc.volatile_uncorrected)
            else "More uncorrectable SRAM errors over time than the board's threshold",
            Class.FW,
            Impact.HIGH,
            observed=_counts(ecc),
            expected="0 uncorrectable",
            remedy="Drain the GPU, reset it (`nvidia-smi -r -i N`) and run NVIDIA's field "
            "diagnostic; errors that come back mean a replacement.",
        )
    if isinstance(ecc.volatile_uncorrected, Unknown):
        return unread("ECC counters", ecc.volatile_uncorrected)
    if _positive(ecc.aggregate_uncorrected):
        return issue(
            "Uncorrectable memory errors in the board's history, none since the driver was loaded",
            Class.P2,
            Impact.LOW,
            observed=_counts(ecc),
            expected="0 uncorrectable",
            remedy="Nothing now: watch whether the count rises.",
        )
    if _positive(ecc.volatile_corrected) or _positive(ecc.aggregate_corrected):
        return info("Only corrected memory errors", observed=_counts(ecc))
    return good("No memory errors", observed=_counts(ecc), expected="0")


def _positive(value: int | Unknown) -> bool:
    return not isinstance(value, Unknown) and value > 0


def _counts(ecc: EccCounts) -> str:
    def shown(value: int | Unknown) -> str:
        return "?" if isinstance(value, Unknown) else str(value)

    text = (
        f"uncorrectable {shown(ecc.volatile_uncorrected)} volatile / "
        f"{shown(ecc.aggregate_uncorrected)} aggregate, corrected "
        f"{shown(ecc.volatile_corrected)} / {shown(ecc.aggregate_corrected)}"
    )
    return text + (", SRAM threshold exceeded" if ecc.sram_threshold_exceeded is True else "")


@check(
    "drv-recovery-action",
    "Recovery action of the driver",
    reads=(GPUS,),
    why="The driver itself says what a GPU needs to work properly again.",
    source="NVML (nvmlGpuRecoveryAction); NVIDIA GPU memory error management",
    scope="gpu",
    changes=(Worked,),
)
def recovery_action(gpus: Gpus) -> list[Verdict]:
    """Judge the action, and values that can only come from a GPU in trouble."""
    return with_plan(each(gpus, _action), gpus, _reset)


def _reset(verdict: Verdict, gpus: Gpus) -> Worked | None:
    """Return the reset that the driver asks for; nothing takes it back, or needs to."""
    resets = reset_commands(gpus) if verdict.needs is Needs.GPU_RESET else ()
    if not resets:
        return None
    return Worked(f"the reset of {named(gpus)}", resets, risk="medium", caution=IDLE_CAUTION)


def _action(gpu: Gpu) -> Verdict:
    if gpu.sick:
        lost = any("lost" in word.casefold() for word in gpu.sick)
        return _asks(
            "Values of the GPU are missing: it is lost or needs a reset",
            Class.FW if lost else Class.P0,
            Needs.POWER_CYCLE if lost else Needs.GPU_RESET,
            ", ".join(gpu.sick),
        )
    action = gpu.recovery_action
    if gpu.reset_required is True or gpu.drain_and_reset is True:
        action = "Drain and Reset" if gpu.drain_and_reset is True else "Reset"
    if isinstance(action, Unknown):
        return unread("recovery action", action)
    if action == "None":
        return good("The driver asks for nothing", observed=action, expected="None")
    for word, needs, cls in RECOVERIES:
        if word in action.casefold():
            return _asks("The driver asks for a recovery action", cls, needs, action)
    return unknown(Reason.PARSE_FAILED, f"recovery action {action[:40]!r} is not known here")


def _asks(summary: str, cls: Class, needs: Needs, seen: str) -> Verdict:
    how = "power the host off and on." if needs is Needs.POWER_CYCLE else RECOVERY_STEPS[needs]
    return issue(
        summary,
        cls,
        Impact.HIGH,
        observed=seen,
        expected="None",
        needs=needs,
        remedy=how[0].upper() + how[1:],
    )
