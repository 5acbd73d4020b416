"""Kernel lockdown, which forbids userspace to write PCI config space and MSRs."""

from gpudoctor.formats.choice import parse_choice
from gpudoctor.model import Evidence, Files, Reader, Reason, Unknown
from gpudoctor.probes.kernel import INSIDE_CONTAINER, vouched

_FILE = "/sys/kernel/security/lockdown"
_LSM = "/sys/kernel/security/lsm"  # there whenever securityfs is mounted
LOCKDOWN_FILE = Files("kernel-lockdown", (_FILE, _LSM))


def _lockdown(evidence: Evidence, inside: str | Unknown) -> str | Unknown:
    """Return the active mode; `absent` where securityfs shows that the kernel has no lockdown."""
    if evidence.unread:
        return evidence.unread
    text = evidence.get(_FILE)
    if not isinstance(text, Unknown):
        return parse_choice(text).active
    why = text
    if why.reason is Reason.NOT_PRESENT:
        seen = not isinstance(evidence.get(_LSM), Unknown)
        unseen = Unknown(Reason.NOT_PRESENT, "securityfs is not mounted: lockdown does not show")
        return vouched(inside, "lockdown") or ("absent" if seen else unseen)
    return why


LOCKDOWN: Reader[str] = Reader(
    "lockdown", (LOCKDOWN_FILE, INSIDE_CONTAINER), _lockdown, tolerant=True
)
