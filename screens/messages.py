"""What screens ask of the app. Screens hold no host logic."""

from textual.message import Message

from gpudoctor.model.finding import Panel
from gpudoctor.model.plan import Plan


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
    """Undo the transaction that was just applied."""
