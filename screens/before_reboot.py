"""Before a reboot: what it will bring and take, on one page."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static

from gpudoctor.model.before_reboot import BeforeReboot, Line, Outlook
from gpudoctor.screens.board import Board
from gpudoctor.screens.kept import Page
from gpudoctor.screens.masthead import Masthead
from gpudoctor.screens.messages import PageAsked
from gpudoctor.screens.redraw import redraw
from gpudoctor.screens.words import MUTED, hanging, host, host_line

OUTLOOKS = {
    Outlook.LOOK: ("▲", "$text-warning", "to look at"),
    Outlook.LOST: ("✗", "$text-error", "will be lost"),
    Outlook.UNKNOWN: ("?", "$text-secondary", "unknown"),
    Outlook.READY: ("✓", "$text-success", "ready"),
}


class BeforeRebootScreen(Screen[None]):
    """One scrolling page: what stops the reboot first, what is ready last."""

    CSS_PATH = "pages.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.back", "Back", id="reboot.back", tooltip="Back"),
        Binding("r", "read", "Read again", id="reboot.read", tooltip="Work the page out anew"),
        Binding("b", "app.back", show=False, id="reboot.close", tooltip="Back"),
    ]

    def __init__(self, board: Board, mode: str) -> None:
        """Take the board, and the mode it lies over."""
        super().__init__()
        self.board = board
        self._mode = mode

    def compose(self) -> ComposeResult:
        """Lay out the page."""
        yield Masthead(self.board, self._mode)
        with VerticalScroll(id="page") as page:
            page.border_title = "Before you reboot"
            yield Static(id="lines")
        yield Footer()

    def on_mount(self) -> None:
        """Focus the page, so that it scrolls by key, and work it out."""
        self.query_one("#page").focus()
        self.post_message(PageAsked())
        self.call_after_refresh(self.draw)

    def on_resize(self) -> None:
        """Draw again: lines depend on the width."""
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Show the page as far as it is known."""
        self.query_one(Masthead).draw()
        page = self.query_one("#page")
        shown = self.board.page
        page.border_subtitle = "reading …" if shown.reading else ""
        width = page.scrollable_content_region.width or 78
        redraw(self.query_one("#lines", Static), _content(shown, width))

    def action_read(self) -> None:
        """Work the page out anew."""
        self.post_message(PageAsked())


def _content(page: Page, width: int) -> Content:
    if page.problem:
        return Content.assemble(("✗ ", "bold $text-error"), host(page.problem))
    if page.read is None:
        return Content.styled("reading …", MUTED)
    return page_content(page.read, width)


def page_content(page: BeforeReboot, width: int) -> Content:
    """Return the page in lines of at most `width` cells: its verdict first."""
    stops = any(line.stops for line in page.lines)
    lead = Content.styled("✗ " if stops else "", "bold $text-error")
    kernels = [f"{page.kernel} runs now"] if page.kernel else []
    kernels.append(f"{page.coming} boots next" if page.coming else "which boots next is not known")
    parts = [
        hanging(lead, host_line(page.verdict, "bold"), width),
        Content.assemble(("kernel  ", MUTED), host_line(", ".join(kernels))),
    ]
    for problem in page.problems:
        parts.append(hanging(Content.styled("! ", "$text-warning"), host(problem), width))
    parts += [Content(""), *(_line(line, width) for line in page.lines)]
    return Content("\n").join(parts)


def _line(line: Line, width: int) -> Content:
    sign, style, word = OUTLOOKS[line.outlook]
    if line.stops:
        sign, style, word = "✗", "bold $text-error", "do not reboot"
    lead = Content.styled(f"{sign} {word:<13} ", style)
    rows = [hanging(lead, host(line.sentence), width)]
    if line.todo:
        rows.append(hanging(Content.styled("    to do  ", MUTED), host(line.todo), width))
    for command in line.commands:
        rows.append(hanging(Content.styled("    $ ", "$text-primary"), host(command), width))
    if line.read:
        rows.append(hanging(Content("    "), host_line(line.read, MUTED), width))
    return Content("\n").join(rows)
