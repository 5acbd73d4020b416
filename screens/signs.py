"""How fates of changes and kinds of difference look: a sign, a style, and our own short words."""

from gpudoctor.model.diff import Moved
from gpudoctor.model.story import Fate
from gpudoctor.screens.words import MUTED

FATES = {
    Fate.LOST: ("✗", "bold $text-error"),
    Fate.OVERRIDDEN: ("!", "bold $text-warning"),
    Fate.CHANGED: ("≠", "$text-warning"),
    Fate.ENDED: ("○", "$text-warning"),
    Fate.UNKNOWN: ("?", "$text-secondary"),
    Fate.KEPT: ("✓", "$text-success"),
}
FATES_MEAN = {
    Fate.LOST: "its value is what it was before it was applied",
    Fate.OVERRIDDEN: "our file is in place, and something else wins",
    Fate.CHANGED: "somebody set another value",
    Fate.ENDED: "what it was set on has ended: a process, a container",
    Fate.UNKNOWN: "what became of it could not be told",
    Fate.KEPT: "its value is as it was set",
}
MOVES = {
    Moved.ADDED: ("+", "$text-primary"),
    Moved.GONE: ("−", "bold $text-error"),
    Moved.CHANGED: ("≠", "$text-warning"),
    Moved.GREW: ("↑", "$text-warning"),
    Moved.RESET: ("↓", MUTED),
    Moved.FIXED: ("✓", "$text-success"),
    Moved.REGRESSED: ("✗", "bold $text-error"),
    Moved.NEW: ("▲", "$text-warning"),
    Moved.NOT_READ: ("?", "$text-secondary"),
}
MOVES_MEAN = {
    Moved.ADDED: "is there now, and was not",
    Moved.GONE: "was there, and is not",
    Moved.CHANGED: "has another value",
    Moved.GREW: "a counter went up",
    Moved.RESET: "a counter went down without a boot",
    Moved.FIXED: "was an issue, and is none",
    Moved.REGRESSED: "was none, and is an issue",
    Moved.NEW: "is an issue of which nothing was said before",
    Moved.NOT_READ: "was read on one side only: neither gone nor changed",
}
