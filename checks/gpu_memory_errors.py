"""Panel 6, repairs: remapped rows and retired pages."""

from gpudoctor.checks.per_gpu import (
    IDLE_CAUTION,
    Gpus,
    each,
    named,
    reset_commands,
    unread,
    with_plan,
)
from gpudoctor.formats.nvidia_smi_gpu import Gpu, Remapping
from gpudoctor.model import (
    Class,
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
from gpudoctor.tables.gpu_limits import limit


@check(
    "mem-row-remap",
    "Row remapping",
    reads=(GPUS,),
    why="Memory repairs itself by remapping rows. A pending remap takes effect at the next reset, "
    "and serving until then is safe; a failed one means that spares ran out.",
    source="NVIDIA GPU memory error management (row remapping)",
    scope="gpu",
    changes=(Worked,),
)
def row_remap(gpus: Gpus) -> list[Verdict]:
    """Judge the remapping state of each GPU."""
    return with_plan(each(gpus, _remapping), gpus, _repaired)


def _repaired(verdict: Verdict, gpus: Gpus) -> Worked | None:
    """Return the reset that a pending remap waits for; a repair is not taken back."""
    resets = reset_commands(gpus) if verdict.needs is Needs.GPU_RESET else ()
    if not resets:
        return None
    return Worked(f"the reset of {named(gpus)}", resets, risk="medium", caution=IDLE_CAUTION)


def _remapping(gpu: Gpu) -> Verdict:
    rows = gpu.remapping
    if isinstance(rows, Unknown):
        return unread("row remapping", rows)
    if rows.failed is True:
        return _worn("A row could not be remapped", Impact.HIGH, rows)
    if rows.pending is True:
        return issue(
            "A row remap waits for a reset",
            Class.P0,
            Impact.MEDIUM,
            observed=_counts(rows),
            expected="not pending",
            needs=Needs.GPU_RESET,
            remedy="Safe to keep serving; at the next window drain the GPU and reset it: "
            "`nvidia-smi -r -i N`.",
        )
    if isinstance(rows.banks_left_none, int) and rows.banks_left_none > 0:
        return _worn("Memory banks have no spare rows left", Impact.LOW, rows)
    if isinstance(rows.failed, Unknown):
        return unread("row remapping", rows.failed)
    if isinstance(rows.uncorrected, int) and rows.uncorrected > 0:
        return info("Rows were remapped after uncorrectable errors", observed=_counts(rows))
    return good("No remap pending or failed", observed=_counts(rows))


def _worn(summary: str, impact: Impact, rows: Remapping) -> Verdict:
    return issue(
        summary,
        Class.FW,
        impact,
        observed=_counts(rows),
        expected="no failure, spare rows in every bank",
        remedy="Drain the GPU, run NVIDIA's field diagnostic and start an RMA.",
    )


def _counts(rows: Remapping) -> str:
    def shown(value: int | Unknown) -> str:
        return "?" if isinstance(value, Unknown) else str(value)

    text = f"{shown(rows.corrected)} corrected, {shown(rows.uncorrected)} uncorrectable"
    if isinstance(rows.banks_left_none, int) and rows.banks_left_none:
        text += f", {rows.banks_left_none} bank(s) without spares"
    return text


@check(
    "mem-retired-pages",
    "Retired memory pages",
    reads=(GPUS,),
    why="Before Ampere, GPUs took bad pages out of use; newer ones remap rows instead and show no "
    "pages here.",
    source="NVIDIA GPU memory error management (dynamic page retirement)",
    scope="gpu",
)
def retired_pages(gpus: Gpus) -> list[Verdict]:
    """Judge the retired pages of each GPU."""
    return each(gpus, _retired)


def _retired(gpu: Gpu) -> Verdict:
    pages = gpu.retirement
    single, double = pages.single_bit, pages.double_bit
    if isinstance(single, Unknown) or isinstance(double, Unknown):
        value = single if isinstance(single, Unknown) else double
        if isinstance(value, Unknown) and "N/A" not in value.detail:
            return unread("retired pages", value)
        return info("Page retirement does not apply to this GPU", observed="N/A")
    seen = f"{single + double} page(s)"
    if single + double >= limit("mem-retired-pages", "retired"):
        return issue(
            "Many memory pages are retired",
            Class.FW,
            Impact.LOW,
            observed=seen,
            expected=f"fewer than {limit('mem-retired-pages', 'retired'):g}",
            remedy="Plan the board's replacement.",
        )
    if pages.pending is True:
        return issue(
            "Pages wait to be retired",
            Class.P1,
            Impact.LOW,
            observed=f"{seen}, more pending",
            expected="none pending",
            needs=Needs.REBOOT,
            remedy="Reboot, or reset the GPU, at the next window.",
        )
    return good("No page retirement pending", observed=seen)
