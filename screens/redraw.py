"""Drawing only what changed: a layout costs more than all our text."""

from textual.content import Content
from textual.widgets import Static


def redraw(static: Static, content: Content) -> None:
    """Show content in a widget unless it shows just that already."""
    now = static.content
    if not (isinstance(now, Content) and now.is_same(content)):
        static.update(content)
