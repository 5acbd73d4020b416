"""A plan being applied: each item live, with what was read back; then the result and its undo."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static

from gpudoctor.model.plan import Item, ItemMoved, Plan, State
from gpudoctor.screens.board import Applying, Board
from gpudoctor.screens.masthead import Masthead
from gpudoctor.screens.messages import UndoAsked
from gpudoctor.screens.words import MUTED, host, host_line

_STATES = {
    State.PLANNED: ("…", MUTED, "starting on the target"),
    State.APPLYING: ("…", "$text-primary", "applying"),
    State.APPLIED: ("✓", "$text-success", "applied and read back"),
    State.CONFIRMED: ("✓", "$text-success", "applied, read back and confirmed"),
    State.UNDOING: ("…", "$text-primary", "undoing, in reverse order"),
    State.UNDONE: ("✓", "$text-success", "undone: the values of before are back"),
    State.FAILED: ("✗", "bold $text-error", "failed; what had been written was undone"),
    State.UNDO_FAILED: ("✗", "bold $text-error", "the undo is incomplete"),
}
_GLYPHS = {
    "intent": ("…", "$text-primary"),
    "done": ("✓", "$text-success"),
    "undone": ("↶", "$text-success"),
    "": ("·", MUTED),
}


class ApplyScreen(Screen[None]):
    """Live steps of one transaction. Leaving it stops nothing."""

    CSS_PATH = "apply.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "Back", id="apply.back", tooltip="Back; nothing is stopped"),
        Binding("u", "undo", "Undo", id="apply.undo", tooltip="Put the values of before back"),
    ]

    def __init__(self, board: Board) -> None:
        """Take the board."""
        super().__init__()
        self.board = board

    def compose(self) -> ComposeResult:
        """Lay out the state over the items."""
        yield Masthead(self.board, "plan")
        with VerticalScroll(id="journal"):
            yield Static(id="state")
            yield Static(id="items")
        yield Footer()

    def on_mount(self) -> None:
        """Focus the journal, so that it scrolls by key."""
        self.query_one("#journal").focus()
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Show how far the transaction is."""
        self.query_one(Masthead).draw()
        applying = self.board.applying
        if applying is None:
            return
        self.query_one("#journal").border_title = f"Transaction {_safe(applying.plan.id)}"
        self.query_one("#state", Static).update(state_line(applying))
        self.query_one("#items", Static).update(_items(applying))
        self.refresh_bindings()

    def action_undo(self) -> None:
        """Ask the app to undo."""
        self.post_message(UndoAsked())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer undo once something is applied."""
        if action != "undo":
            return True
        applying = self.board.applying
        return bool(
            applying
            and not applying.busy
            and applying.state in {State.APPLIED, State.CONFIRMED, State.UNDO_FAILED}
        )


def _safe(text: str) -> str:
    return host_line(text).markup


def state_line(applying: Applying) -> Content:
    """Return the transaction's state in words."""
    glyph, style, words = _STATES[applying.state]
    parts = [Content.styled(f"{glyph} {words}", style)]
    if applying.refused:
        parts = [Content.assemble(("✗ ", "bold $text-error"), host(applying.refused))]
    if applying.detail:
        parts.append(host(applying.detail, MUTED))
    return Content("\n").join(parts)


def _items(applying: Applying) -> Content:
    plan: Plan = applying.plan
    lines: list[Content] = []
    number = 0
    for step in plan.steps:
        lines += [Content(""), host_line(step.title, "bold")]
        for item in step.items:
            number += 1
            lines.append(_item(item, applying.moves.get(number)))
    return Content("\n").join(lines)


def _item(item: Item, move: ItemMoved | None) -> Content:
    phase = move.phase if move else ""
    glyph, style = _GLYPHS.get(phase, ("!", "$text-warning"))
    old, new = item.before, item.wanted
    if phase == "undone":
        old, new = new, old
    parts: list[Content | str | tuple[str, str]] = [
        (f"  {glyph} ", style),
        host_line(item.name),
        "  ",
        host_line(old, MUTED),
        (" → ", MUTED),
        host_line(new, "bold"),
    ]
    if move is not None:
        parts += ["  ", host_line(phase, style), (f" {move.seconds:.2f} s", MUTED)]
        # "done" and "undone" are journalled only once the value read back is the one written
        read = move.detail or (new if phase in {"done", "undone"} else "")
        if read:
            parts += [("  read back ", MUTED), host_line(read)]
    return Content.assemble(*parts)
