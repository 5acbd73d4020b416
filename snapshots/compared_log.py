"""Counters in the kernel log of a boot: driver errors, PCIe errors, kills for want of memory."""

import re
from collections import Counter
from collections.abc import Iterator

from gpudoctor.formats.nvidia_smi_values import sysfs_bdf
from gpudoctor.model import Reason, Unknown
from gpudoctor.snapshots.compared_row import COUNTER, Answer, Parser, Row

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-7])?[^)]*\): "
    r"(\d{1,3})\b"
)
_AER = re.compile(r"([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): PCIe Bus Error: severity=(\w+)")
_KILL = re.compile(r"Out of memory: Kill|oom-kill:")
_READ = re.compile(r"^lines (\d+)$", re.MULTILINE)
LOG = "kernel log"


def kernel_log(answer: Answer) -> Iterator[Row]:
    """Yield how often each kind was logged; a log without one line was not readable."""
    text, counted = answer.text, _READ.findall(answer.text)
    if not counted or int(counted[-1]) == 0:
        why = Unknown(Reason.NO_PERMISSION, "it takes root or group adm")
        yield Row(LOG, "lines", COUNTER, why, part=LOG)
        return
    found: Counter[tuple[str, str]] = Counter()
    for match in _XID.finditer(text):
        found[f"GPU {sysfs_bdf(match[1] + '.0')}", f"Xid {int(match[2])} in the kernel log"] += 1
    for match in _AER.finditer(text):
        found[f"PCI {match[1]}", f"PCIe errors in the kernel log ({match[2]})"] += 1
    kills = len(_KILL.findall(text))
    if kills:
        found["memory", "kills for want of memory in the kernel log"] = kills
    for (of, what), count in found.items():
        yield Row(of, what, COUNTER, str(count), part=LOG)


PARSERS: dict[str, Parser] = {"kernel_log": kernel_log}
