"""The script that a plan would run, whole."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Log, Static

from gpudoctor.screens.words import host
from gpudoctor.text import clean

_LINES = 400


class ScriptScreen(ModalScreen[None]):
    """A scrolling page of shell text."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,v", "close", "Back", id="script.back", tooltip="Back to the plan"),
    ]

    def __init__(self, script: str) -> None:
        """Take the text."""
        super().__init__()
        self._script = script

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        with VerticalScroll(classes="sheet") as sheet:
            sheet.border_title = "The script, byte for byte"
            sheet.border_subtitle = "esc closes"
            if self._script.count("\n") <= _LINES:
                yield Static(host(self._script))
                return
            yield Log(auto_scroll=False)  # draws only the lines in sight

    def on_mount(self) -> None:
        """Focus the text, so that it scrolls by key."""
        for log in self.query(Log):
            log.write_line(clean(self._script))
            log.focus()
            return
        self.query_one(VerticalScroll).focus()

    def action_close(self) -> None:
        """Go back."""
        self.dismiss(None)
