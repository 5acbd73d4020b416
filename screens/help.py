"""Help: the keys, and what the words mean."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from gpudoctor.model.diff import Moved
from gpudoctor.model.finding import Class, Impact, Status
from gpudoctor.model.story import Fate
from gpudoctor.screens.signs import FATES, FATES_MEAN, MOVES, MOVES_MEAN
from gpudoctor.screens.words import GLYPHS, IMPACT_STYLES, MUTED, NAMES, ORDER, STYLES

_STATUSES = {
    Status.ISSUE: "was read, and should change",
    Status.GOOD: "was read, and is as wanted",
    Status.NON_ISSUE: "looks wrong to a naive tool, and is not; the reason is given",
    Status.INFO: "context only, never ranked",
    Status.UNKNOWN: "could not be told, and why; never counted as good",
}
_IMPACTS = {
    Impact.HIGH: "measured or documented to cost much",
    Impact.MEDIUM: "shows in some workloads",
    Impact.LOW: "small, rare, or only on some paths",
    Impact.UNPROVEN: "widely advised, and nobody has shown that it helps decode",
}


class HelpScreen(ModalScreen[None]):
    """Keys and words on one sheet."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "escape,q,question_mark", "close", "Back", id="help.back", tooltip="Close the help"
        ),
    ]

    def __init__(self, keys: Iterable[tuple[str, str]]) -> None:
        """Take pairs of a key and what it does."""
        super().__init__()
        self._keys = tuple(keys)

    def compose(self) -> ComposeResult:
        """Lay out one sheet."""
        with VerticalScroll(classes="sheet") as sheet:
            sheet.border_title = "Help"
            sheet.border_subtitle = "esc closes"
            yield Static(Content("\n").join(self._lines()))

    def on_mount(self) -> None:
        """Focus the sheet, so that it scrolls by key."""
        self.query_one(VerticalScroll).focus()

    def _lines(self) -> list[Content]:
        lines = [_title("Keys here")]
        lines += [_row(key, "bold $text-primary", what) for key, what in self._keys]
        lines += [Content(""), _title("Status")]
        lines += [
            _row(f"{GLYPHS[status]} {NAMES[status]}", STYLES[status], _STATUSES[status])
            for status in ORDER
        ]
        lines += [Content(""), _title("Class: how an issue is applied")]
        lines += [_row(str(cls), "bold", cls.meaning) for cls in Class]
        lines += [Content(""), _title("Impact: how much it may matter")]
        lines += [_row(str(i), IMPACT_STYLES[i], what) for i, what in _IMPACTS.items()]
        lines += [Content(""), _title("The story: what became of a change")]
        lines += _signed(FATES, FATES_MEAN)
        lines += [Content(""), _title("A diff: how things differ")]
        lines += _signed(MOVES, MOVES_MEAN)
        return lines

    def action_close(self) -> None:
        """Go back."""
        self.dismiss(None)


def _signed(
    signs: Mapping[Moved, tuple[str, str]] | Mapping[Fate, tuple[str, str]],
    meanings: Mapping[Moved, str] | Mapping[Fate, str],
) -> list[Content]:
    """Return a row a word, with its sign and what it means."""
    means = {str(word): what for word, what in meanings.items()}
    return [
        _row(f"{sign} {word}", style, means[str(word)]) for word, (sign, style) in signs.items()
    ]


def _title(text: str) -> Content:
    return Content.styled(text, "bold")


def _row(word: str, style: str, meaning: str) -> Content:
    return Content.assemble("  ", (f"{word:<16}", style), (meaning, MUTED))
