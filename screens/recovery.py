"""What another session left behind on the target: undo it now, keep it, or leave it."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from gpudoctor.model.plan import State, Transaction
from gpudoctor.screens.questions import by_whom
from gpudoctor.screens.told import waits
from gpudoctor.screens.words import MUTED, host_line, number_of
from gpudoctor.text import one_line


class RecoveryScreen(ModalScreen[str]):
    """Answers undo, keep or leave; leaving it has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("u", "answer('undo')", "Undo now", id="recovery.undo", tooltip="Take it back now"),
        Binding("c", "answer('keep')", "Keep it", id="recovery.keep", tooltip="Confirm it"),
        Binding(
            "n,escape", "answer('leave')", "Leave", id="recovery.leave", tooltip="Leave it as it is"
        ),
        Binding("left,right", "app.focus_next", show=False, id="recovery.move", tooltip="Move"),
    ]

    def __init__(self, told: Transaction, label: str, rest: int, read_only: bool) -> None:
        """Take the transaction, where it is, how many more there are, and whether to write."""
        super().__init__()
        self.told = told
        self._text = recovery_content(told, label, rest, read_only)
        self._read_only = read_only

    def compose(self) -> ComposeResult:
        """Lay out what was found over the answers."""
        with Vertical(classes="question") as box:
            box.border_title = "Left behind on the target"
            with VerticalScroll(can_focus=False):
                yield Static(self._text)
            with Horizontal(classes="buttons"):
                yield Button("Leave (n)", id="leave", compact=True)
                if self.can("keep"):
                    yield Button("Keep it (c)", id="keep", compact=True)
                if self.can("undo"):
                    yield Button("Undo now (u)", id="undo", compact=True)

    def on_mount(self) -> None:
        """Focus the careful answer."""
        self.query_one("#leave").focus()

    def can(self, answer: str) -> bool:
        """Return whether an answer is offered."""
        if answer == "leave":
            return True
        return not self._read_only and (answer == "undo" or confirmable(self.told))

    @on(Button.Pressed)
    def pressed(self, event: Button.Pressed) -> None:
        """Answer with the button."""
        self.dismiss(event.button.id)

    def action_answer(self, answer: str) -> None:
        """Answer by key."""
        self.dismiss(answer)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer only the answers that have a button."""
        return action != "answer" or self.can(str(parameters[0]))


def confirmable(told: Transaction) -> bool:
    """Return whether the target would take a word to keep it: all of it must be applied."""
    return waits(told) and told.state is State.APPLIED


def in_words(told: Transaction) -> str:
    """Return what was left behind in one sentence of plain text."""
    what = "was interrupted" if told.interrupted else "waits to be confirmed"
    if not told.interrupted and not waits(told):
        what = "went on after the session that began it had ended: it is applied"
    if told.state is State.UNDO_FAILED:
        what = "could not be undone whole"
    return one_line(f"transaction {told.id} {what}", 160)


def recovery_content(told: Transaction, label: str, rest: int, read_only: bool) -> Content:
    """Return what was found: what became of it, whose it is, and how much of it is written."""
    lines = [
        Content.assemble(host_line(in_words(told), "bold"), (" on ", MUTED), host_line(label)),
        by_whom(told),
        Content(""),
        *(Content.assemble(("  • ", MUTED), host_line(title)) for title in told.steps[:8]),
        Content(""),
        Content.assemble(
            (number_of(told.written, "value"), "bold"), " written and not taken back."
        ),
    ]
    if waits(told) and told.timer is not None:
        lines.append(
            Content.assemble(
                "The target takes it back by itself in ",
                (f"{told.timer:.0f} s", "bold $text-warning"),
                " unless it is confirmed." if confirmable(told) else ".",
            )
        )
    elif told.interrupted:
        lines.append(Content("Nothing on the target goes on with it."))
    lines.append(Content.styled("An undo leaves what somebody else changed since.", MUTED))
    if rest:
        lines.append(Content.styled(f"{number_of(rest, 'more transaction')} after this.", MUTED))
    if read_only:
        lines.append(Content.styled("This screen is read-only.", MUTED))
    return Content("\n").join(lines)
