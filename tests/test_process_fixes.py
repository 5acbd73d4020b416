"""What fixes of processes, cgroups and mounts refuse where a program is missing or too old."""

import pytest

from gpudoctor.fixes import mechanism_of
from gpudoctor.model import Affinity, Change, MountSize, ProcessLimit, Reason, Unknown

MISSING = Unknown(Reason.TOOL_MISSING, "sh: 1: it: not found")
DENIED = Unknown(Reason.NO_PERMISSION, "Permission denied")
LIMIT = ProcessLimit((900,), "memlock", "unlimited")
MOUNT = MountSize(900, 1 << 30)
THERE: dict[str, str | Unknown] = {
    "mount -N": "--namespace",
    "MemTotal": "1000000",
    "page size": "4096",
}
SHM: dict[str, str | Unknown] = {"/dev/shm of process 900": "5 rw,nosuid rw,size=65536k"}
REFUSED: list[tuple[Change, dict[str, str | Unknown], str]] = [
    (LIMIT, {"prlimit": MISSING, "memlock of process 900": "5 1:1"}, "prlimit (util-linux) is not"),
    (LIMIT, {"prlimit": "x", "memlock of process 900": DENIED}, "cannot be read"),
    (LIMIT, {"prlimit": "x", "memlock of process 900": ""}, "cannot be read"),
    (LIMIT, {"prlimit": "x", "memlock of process 900": "5 1:"}, "cannot be read"),
    (Affinity((900,), "0"), {"taskset": MISSING, "CPUs of process 900": "5 0-3"}, "taskset (util"),
    (Affinity((900,), "0"), {"taskset": "x", "CPUs of process 900": "5 900 =0 9@5"}, "cannot be"),
    (MOUNT, THERE | SHM | {"mount -N": DENIED}, "util-linux 2.33"),
    (MOUNT, THERE | SHM | {"page size": MISSING}, "page size cannot be read"),
    (MOUNT, THERE | {"/dev/shm of process 900": "5 rw rw rw rw"}, "no tmpfs of its own"),
]


@pytest.mark.parametrize(("change", "now", "words"), REFUSED)
def test_refused(change: Change, now: dict[str, str | Unknown], words: str) -> None:
    assert words in mechanism_of(change).refuse(change, now)


def test_what_is_said_is_there_is_not_refused() -> None:
    assert mechanism_of(MOUNT).refuse(MOUNT, THERE | SHM) == ""
