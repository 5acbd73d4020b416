"""Changes: the desired value of one thing on one target, as data. Mechanisms know how."""

from dataclasses import dataclass

from gpudoctor.model.probe import Side


@dataclass(frozen=True, slots=True)
class Sysctl:
    """One kernel parameter under /proc/sys, wanted at `value`."""

    key: str
    value: str
    side: Side = Side.HOST
    risk: str = "low"
    caution: str = ""

    @property
    def title(self) -> str:
        """Return the change in the field's own notation."""
        return f"sysctl {self.key} = {self.value}"


Change = Sysctl
