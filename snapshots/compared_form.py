"""How a plain file or directory entry is shown as one value."""

from collections.abc import Callable

from gpudoctor.formats.choice import parse_choice
from gpudoctor.formats.listing import link_target
from gpudoctor.model import Reason, Unknown
from gpudoctor.snapshots.compared_row import Answer

# What the kernel prints for a link that is down, or asleep.
_NO_LANES = {"0", "63", "255"}


def _plain(answer: Answer) -> str:
    return answer.text.strip("\n\0\ufffd ")


def _choice(answer: Answer) -> str:
    return parse_choice(answer.text).active


def _present(answer: Answer) -> str:
    return "yes"


def _link(answer: Answer) -> str:
    return link_target(answer.raw).rsplit("/", 1)[-1] or "no link"


def _int32(answer: Answer) -> str:
    if len(answer.raw) != 4:
        raise ValueError(f"{len(answer.raw)} bytes instead of 4")
    return str(int.from_bytes(answer.raw, "little", signed=True))


def _lanes(answer: Answer) -> str | Unknown:
    text = _plain(answer)
    if text in _NO_LANES:
        return Unknown(Reason.NOT_PRESENT, f"the kernel gives no link ({text} lanes)")
    return f"x{text}"


FORMS: dict[str, Callable[[Answer], str | Unknown]] = {
    "plain": _plain,
    "choice": _choice,
    "present": _present,
    "link": _link,
    "int32": _int32,
    "lanes": _lanes,
}
