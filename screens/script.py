"""The script that a plan would run, whole."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from gpudoctor.screens.words import host


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
            yield Static(host(self._script))

    def action_close(self) -> None:
        """Go back."""
        self.dismiss(None)
