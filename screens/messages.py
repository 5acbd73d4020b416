"""What screens ask of the app. Screens hold no host logic."""

from typing import TYPE_CHECKING

from textual.message import Message

from gpudoctor.model.finding import Panel
from gpudoctor.model.plan import Plan, Transaction

if TYPE_CHECKING:
    from gpudoctor.model.snapshot import SnapshotHead


class PanelAsked(Message):
    """Open a panel's page, at a finding if one is named."""

    def __init__(self, panel: Panel, finding: str = "") -> None:
        """Take the panel, and the finding's id or nothing."""
        super().__init__()
        self.panel = panel
        self.finding = finding


class PlanAsked(Message):
    """Go to the plan, at a finding."""

    def __init__(self, finding: str = "", choose: bool = False) -> None:
        """Take the finding's id, and whether to select it."""
        super().__init__()
        self.finding = finding
        self.choose = choose


class ChoiceChanged(Message):
    """The board's selection changed: plan it again."""


class ApplyAsked(Message):
    """Apply this plan, after asking once."""

    def __init__(self, plan: Plan) -> None:
        """Take the plan as it was previewed."""
        super().__init__()
        self.plan = plan


class UndoAsked(Message):
    """Take a transaction back: the one on the board, or one that the target keeps."""

    def __init__(self, told: Transaction | None = None) -> None:
        """Take the transaction, None for the one on the board."""
        super().__init__()
        self.told = told


class ConfirmAsked(Message):
    """Keep what a transaction applied: the one on the board, or one that the target keeps."""

    def __init__(self, told: Transaction | None = None) -> None:
        """Take the transaction, None for the one on the board."""
        super().__init__()
        self.told = told


class HistoryAsked(Message):
    """Read anew what transactions the target keeps."""


class LastAsked(Message):
    """Make what was applied, and kept, outlast a reboot."""


class SnapshotsAsked(Message):
    """List this machine's snapshots anew."""


class TakeAsked(Message):
    """Keep the audit on the board as a snapshot."""


class KeptAsked(Message):
    """Read what a snapshot keeps, and open its page where wanted."""

    def __init__(self, head: "SnapshotHead", open: bool = False) -> None:
        """Take the snapshot, and whether its page is wanted."""
        super().__init__()
        self.head = head
        self.open = open


class NoteAsked(Message):
    """Write the operator's note to a snapshot."""

    def __init__(self, head: "SnapshotHead", note: str) -> None:
        """Take the snapshot and the note; an empty one takes the note away."""
        super().__init__()
        self.head = head
        self.note = note


class DiffAsked(Message):
    """Show what differs between two snapshots, or between one and now."""

    def __init__(self, old: "SnapshotHead", new: "SnapshotHead | None" = None) -> None:
        """Take the older and the newer; None is now."""
        super().__init__()
        self.old = old
        self.new = new


class PageAsked(Message):
    """Work out anew what is to be known before a reboot."""


class StoryAsked(Message):
    """Do something with the story, once the audit is through."""

    def __init__(self, wish: str) -> None:
        """Take `apply`, `last`, `snapshot` or `diff`."""
        super().__init__()
        self.wish = wish


class BenchAsked(Message):
    """Look for engines, measure, end a run, or measure what the transaction did."""

    def __init__(self, wish: str) -> None:
        """Take `look`, `quick`, `full`, `end` or `weigh`."""
        super().__init__()
        self.wish = wish
