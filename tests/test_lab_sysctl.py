"""Kernel parameters on the lab's kernel, coupled ones too."""

from collections.abc import Iterator

import pytest

from gpudoctor.model import Sysctl
from tests.lab_change import cleaned, killed_at_every_line, plan_on, there_and_back
from tests.lab_vm import Lab

DIRTY = [
    Sysctl("vm.dirty_background_bytes", "1073741824"),
    Sysctl("vm.dirty_bytes", "4294967296"),
]
SWAP = [Sysctl("vm.swappiness", "10")]


@pytest.fixture(autouse=True)
def _as_before(lab: Lab) -> Iterator[None]:
    all_of_them = "sysctl -a --pattern '^vm.(dirty|swap)' 2>/dev/null"
    before = lab.run(all_of_them)
    yield
    assert lab.run(all_of_them) == before
    cleaned(lab)


def test_pairs_come_back_as_they_were(lab: Lab) -> None:
    lab.run("sysctl -qw vm.dirty_background_ratio=7 vm.dirty_bytes=999997440")
    before = lab.run("sysctl -a --pattern '^vm.dirty'")
    there_and_back(lab, DIRTY, SWAP)
    assert lab.run("sysctl -a --pattern '^vm.dirty'") == before
    lab.run("sysctl -qw vm.dirty_background_ratio=10 vm.dirty_ratio=20")


def test_killed_at_every_line(lab: Lab) -> None:
    killed_at_every_line(lab, plan_on(lab, DIRTY, SWAP))
