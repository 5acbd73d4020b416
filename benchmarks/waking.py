"""What two wake-up latencies of the same host claim by mistake, and what they find.

Run: python benchmarks/waking.py [MEASUREMENTS]. It takes them one after another on this machine
(1.2 s each), judges each against the next and against all others by the rule of bench/witness.py,
and beside it by one that looks at the samples alone (the medians' 97.5 % intervals are apart).
Found: how often a latency added to every sleep of the second is claimed, and the first's removed.
"""

import asyncio
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, permutations

from gpudoctor.bench.figures import quantile
from gpudoctor.bench.waking import wake_up
from gpudoctor.bench.witness import witnessed
from gpudoctor.hosts.local import LocalTransport
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.model.bench import Moved, Witness

ADDED = (5.0, 10.0, 20.0, 50.0, 100.0)
Rule = Callable[[Witness, Witness], bool]


def claimed(before: Witness, after: Witness) -> bool:
    """Return whether the rule of `bench` claims a difference."""
    return witnessed(before, after).moved in {Moved.BETTER, Moved.WORSE}


def by_samples(before: Witness, after: Witness) -> bool:
    """Return whether the intervals of the medians are apart, by order statistics."""
    (low, high), (other_low, other_high) = _median(before.values), _median(after.values)
    return high < other_low or other_high < low


def _median(values: Sequence[float]) -> tuple[float, float]:
    ordered, half = sorted(values), 2.24 * math.sqrt(len(values)) / 2
    middle = (len(ordered) - 1) / 2
    return ordered[max(0, int(middle - half))], ordered[min(len(ordered) - 1, int(middle + half))]


def share(rule: Rule, pairs: Sequence[tuple[Witness, Witness]]) -> str:
    """Return in how many of the pairs a rule claims a difference."""
    found = sum(rule(*pair) for pair in pairs)
    return f"{found} of {len(pairs)} ({found / len(pairs):.1%})"


def slower(one: Witness, by: float) -> Witness:
    """Return a measurement whose every sleep took so many µs longer."""
    return replace(one, values=tuple(value + by for value in one.values))


def main() -> None:
    """Print the shares."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    taken = [asyncio.run(wake_up(lambda: LiveTarget(LocalTransport()))) for _ in range(count)]
    known = [one for one in taken if not one.unknown]
    for of in (0.1, 0.5, 0.9, 0.99):
        values = [quantile(one.values, of) for one in known]
        ends = f"{min(values):.1f} to {max(values):.1f}"
        print(f"p{of * 100:.0f}  {ends} µs over {len(known)} measurements of {count}")
    near, every = list(pairwise(known)), list(permutations(known, 2))
    for name, rule in (("apart", claimed), ("medians of samples", by_samples)):
        print(f"claimed by {name}: of neighbours {share(rule, near)}, of all {share(rule, every)}")
    for by in ADDED:
        pairs = [(before, slower(after, by)) for before, after in near]
        back = [(slower(before, by), after) for before, after in near]
        print(f"+{by:g} µs found in {share(claimed, pairs)}, -{by:g} µs in {share(claimed, back)}")


if __name__ == "__main__":
    main()
