"""Direct measurements: which change has which, what two of them may claim, how they are told."""

from dataclasses import replace

import pytest

from gpudoctor.bench.witness import Kind, alike, kind_of, pooled, witnessed
from gpudoctor.model import Change, LatencyHold, PciBits, Sysctl, Sysfs
from gpudoctor.model.bench import Moved, Proof, Proved, Serving, Witness, Witnessed
from gpudoctor.model.error import Refusal
from gpudoctor.report_bench import plain, witness_lines
from gpudoctor.report_bench_json import WitnessModel, bench_model, witness_model
from gpudoctor.report_prove import plain as proof_plain
from gpudoctor.snapshots.benchmarks import dump_run, load_run
from tests.test_bench_kept import RUN

_CPU = "/sys/devices/system/cpu"
HOW = "sleeps of 2 ms in python3 on the host, timer slack 1 ns"


def samples(*values: float, how: str = HOW) -> Witness:
    return Witness("wake-up latency", "µs", values, how, "idle states entered: C2 9")


def around(middle: float, half: float, count: int = 100) -> Witness:
    """Return samples spread evenly about a middle."""
    step = 2 * half / (count - 1)
    return samples(*(middle - half + step * i for i in range(count)))


UNKNOWN = Witness("wake-up latency", "µs", unknown="no python3")
COPY = Witness("host_to_device_memcpy_ce", "GB/s", (12.1, 50.2), "nvbandwidth", labels=("A", "B"))


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        (around(60, 20), around(8, 4), Moved.BETTER),
        (around(8, 4), around(60, 20), Moved.WORSE),
        (around(60, 20), around(50, 20), Moved.SAME),  # they overlap
        (around(60, 60), around(40, 1), Moved.SAME),  # one lies inside the other
        (around(60, 1), around(56, 1), Moved.SAME),  # apart, and less than a tenth
        (around(4, 0.1), around(2.5, 0.1), Moved.SAME),  # apart, and less than 2 µs
        (around(60, 20), UNKNOWN, Moved.NOT_COMPARABLE),
        (UNKNOWN, around(60, 20), Moved.NOT_COMPARABLE),
        (around(60, 20), samples(8.0, how="in cyclictest"), Moved.NOT_COMPARABLE),
    ],
)
def test_only_what_lies_clearly_apart_is_claimed(
    before: Witness, after: Witness, moved: Moved
) -> None:
    assert witnessed(before, after) == Witnessed(before, after, moved)


def test_a_tail_alone_is_no_difference() -> None:
    calm = samples(*[20.0] * 100)
    assert witnessed(calm, samples(*[20.0] * 92, *[900.0] * 8)).moved is Moved.SAME


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (LatencyHold(10), Kind.WAKE),
        (Sysfs((f"{_CPU}/cpu3/cpuidle/state2/disable",), "1"), Kind.WAKE),
        (Sysfs((f"{_CPU}/cpu0/power/pm_qos_resume_latency_us",), "20"), Kind.WAKE),
        (Sysfs((f"{_CPU}/cpu0/cpuidle/state2/disable", f"{_CPU}/smt/control"), "1"), Kind.VALUE),
        (Sysfs((f"{_CPU}/cpufreq/policy0/scaling_governor",), "performance"), Kind.VALUE),
        (Sysctl("kernel.numa_balancing", "0"), Kind.VALUE),
        (PciBits(("0000:01:00.0",), "CAP_EXP+8.w", 0x5000, 0x7000), Kind.COPIES),
        (PciBits(("0000:01:00.0",), "COMMAND", 4, 4), Kind.VALUE),
    ],
)
def test_a_change_has_the_witness_of_what_it_acts_on(change: Change, kind: Kind) -> None:
    assert kind_of(change) is kind


def test_turns_are_pooled_and_what_was_taken_otherwise_is_left_out() -> None:
    one = pooled([samples(1.0, 2.0), UNKNOWN, samples(3.0), samples(9.0, how="in cyclictest")])
    assert one.values == (1.0, 2.0, 3.0) and one.how == HOW and one.beside
    assert pooled([UNKNOWN, UNKNOWN]) == UNKNOWN


def test_a_run_keeps_them_and_a_file_without_them_is_read() -> None:
    run = replace(RUN, witnesses=(samples(1.5, 2.0), UNKNOWN, COPY))
    assert load_run(dump_run(run), "it") == run
    old = dump_run(RUN).replace(b"witnesses = []\n", b"")
    assert b"witnesses" not in old and load_run(old, "it") == RUN
    raw = dump_run(run)
    for good, bad in ((b"1.5", b'"x"'), (b'"no python3"', b'""'), (b'"A",', b"")):
        assert good in raw
        with pytest.raises(Refusal, match="damaged"):
            load_run(raw.replace(good, bad), "it")


def test_it_is_told_as_what_it_is() -> None:
    before = replace(RUN, witnesses=(around(60, 20), COPY))
    run = replace(RUN, witnesses=(around(8, 4), replace(COPY, values=(50.1, 50.2))))
    told = plain(run, before=before)
    assert "wake-up latency: p50 8.0, p90 11.2, p99 11.9 µs" in told
    assert f"100 {HOW}" in told and "idle states entered: C2 9" in told
    assert "wake-up latency p50 60.0 -> 8.0, p99 79.6 -> 11.9 µs: improved" in told
    assert "how fast an idle CPU answers, not how fast decode is" in told
    copied = told[told.index("host_to_device") :]
    assert "A 50.10, B 50.20 GB/s" in copied and "the run before: A 12.10, B 50.20 GB/s" in copied
    assert "improved" not in copied  # single values claim nothing
    assert plain(RUN, before=before) == plain(RUN)


def test_what_is_unknown_says_why_and_claims_nothing() -> None:
    assert witness_lines(UNKNOWN, samples(1.0)) == ["wake-up latency: unknown (no python3)"]
    assert "not measured (no python3)" in "".join(witness_lines(samples(1.0), UNKNOWN))
    hostile = replace(UNKNOWN, unknown="\x1b[31mred\nsecond")
    assert "\x1b" not in "".join(witness_lines(hostile, None))


def test_many_values_are_told_by_their_ends() -> None:
    many = replace(
        COPY,
        values=tuple(float(i) for i in range(56)),
        labels=tuple(f"GPU {i}" for i in range(56)),
    )
    first = witness_lines(many, None)[0]
    assert first.endswith("lowest GPU 0 0.00, highest GPU 55 55.00 GB/s of 56")


def test_the_json_holds_percentiles_or_values_by_name() -> None:
    told = witness_model(around(8, 4), around(60, 20))
    assert told.now and told.before and told.moved == "improved"
    assert (told.now.samples, round(told.now.p50 or 0, 3), told.now.by) == (100, 8.0, {})
    copied = witness_model(COPY, COPY)
    assert copied.now and copied.now.by == {"A": 12.1, "B": 50.2}
    assert copied.now.p50 is None and copied.moved is None
    assert witness_model(UNKNOWN, None).now is None
    run = replace(RUN, witnesses=(COPY,))
    model = bench_model(run, None, None, replace(RUN, witnesses=(UNKNOWN, COPY)))
    (one,) = model.witnesses
    assert isinstance(one, WitnessModel) and one.before is not None
    assert alike(COPY, (UNKNOWN,)) is None


def test_a_fix_without_a_direct_measurement_says_so() -> None:
    from gpudoctor.model.bench import Comparison, Judgement

    verdict = Comparison(Judgement.SAME, 1.0, 0.99, 1.01)
    shown = witnessed(around(60, 20), around(8, 4))
    proof = Proof(
        "gpu1", "", Serving("SGLang", "", "m"), 32, 4, (),
        (
            Proved("kern-cstate-exit", ("held",), verdict, witnessed=shown),
            Proved("kern-numa-balancing", ("off",), verdict),
        ),
    )  # fmt: skip
    first, second = proof_plain(proof).split("kern-numa-balancing")
    assert "wake-up latency p50 60.0 -> 8.0" in first and "no direct measurement" not in first
    assert "last turn with it: idle states entered: C2 9" in first
    assert str(Kind.VALUE) in second and "wake-up" not in second
