"""What screens ask of the app. Screens hold no host logic."""

from textual.message import Message

from gpudoctor.model.finding import Panel
from gpudoctor.model.plan import Plan, Transaction


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
