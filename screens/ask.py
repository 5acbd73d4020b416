"""One question with two answers; the careful answer has the focus."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from gpudoctor.model.error import UnknownHostKey
from gpudoctor.screens.applying import Applying
from gpudoctor.screens.board import Board
from gpudoctor.screens.words import MUTED, host, host_line
from gpudoctor.text import one_line

ALSO = "also"


class AskScreen(ModalScreen[bool | str]):
    """A question; answers True for yes, and ALSO for a third answer where there is one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", id="ask.yes", tooltip="Answer yes"),
        Binding("m", "also", "Measure too", id="ask.also", tooltip="Yes, and measure it too"),
        Binding("n,escape", "answer(False)", "No", id="ask.no", tooltip="Answer no"),
        Binding("left,right", "app.focus_next", show=False, id="ask.move", tooltip="Move"),
        *(
            Binding(key, f"scroll({lines})", show=False, id=f"ask.{key}", tooltip="Scroll the text")
            for key, lines in (("up", -1), ("down", 1), ("pageup", -8), ("pagedown", 8))
        ),
    ]

    def __init__(
        self, title: str, text: Content, yes: str, no: str = "Cancel", also: str = ""
    ) -> None:
        """Take our own title and button words, and the text as content."""
        super().__init__()
        self._title, self._text, self._yes, self._no = title, text, yes, no
        self._also = also

    def compose(self) -> ComposeResult:
        """Lay out the text over two buttons."""
        with Vertical(classes="question") as box:
            box.border_title = Content(self._title).markup
            with VerticalScroll(can_focus=False):
                yield Static(self._text)
            with Horizontal(classes="buttons"):
                yield Button(Content(f"{self._no} (n)"), id="no", compact=True)
                if self._also:
                    yield Button(Content(f"{self._also} (m)"), id=ALSO, compact=True)
                yield Button(Content(f"{self._yes} (y)"), id="yes", compact=True)

    def on_mount(self) -> None:
        """Focus the careful answer."""
        self.query_one("#no").focus()

    def action_scroll(self, lines: int) -> None:
        """Scroll a text that is longer than the screen."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    @on(Button.Pressed)
    def pressed(self, event: Button.Pressed) -> None:
        """Answer with the button."""
        self.dismiss(ALSO if event.button.id == ALSO else event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        """Answer by key."""
        self.dismiss(yes)

    def action_also(self) -> None:
        """Give the third answer by key."""
        self.dismiss(ALSO)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the third answer where there is one."""
        return action != "also" or bool(self._also)


def host_key_question(error: UnknownHostKey) -> Content:
    """Return the question whether a server's key is to be trusted."""
    return Content.assemble(
        host(error.sentence),
        ("\n\nHost         ", MUTED),
        host_line(f"{error.host} port {error.port}", "bold"),
        ("\nFingerprint  ", MUTED),
        host_line(error.fingerprint, "bold"),
        ("\n\nCompare it with what the host itself shows (", MUTED),
        "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
        (").", MUTED),
    )


def leaving_question(applying: Applying, simulated: bool) -> Content:
    """Return the question whether to leave while a transaction is not over."""
    left = applying.left
    if simulated:
        what, how = "The simulated host ends with this screen.", "Nothing of it is left."
    elif applying.waits and left is not None:
        what = "What was applied is not confirmed yet."
        how = (
            f"The target takes everything back by itself in {left:.0f} s, with or without this "
            "screen, unless it is confirmed."
        )
    else:
        what = "A transaction is running."
        how = (
            "It runs on the target and finishes or undoes itself there, with or without this "
            "screen."
        )
    return Content.assemble((f"{what} ", "bold"), how)


def leaving_words(applying: Applying, board: Board) -> str:
    """Return what the terminal says once the screen is gone, in plain text."""
    if board.simulated:
        return "gpudoctor: the simulated host ended with the screen"
    left, name = applying.left, one_line(f"transaction {applying.id} on {board.label}", 160)
    if applying.waits and left is not None:
        return (
            f"gpudoctor: {name} is taken back in {left:.0f} s unless it is confirmed: "
            f"`{board.command('confirm', one_line(applying.id, 60))}`"
        )
    return f"gpudoctor: {name} goes on there; `{board.command('status')}` tells how it ended"
