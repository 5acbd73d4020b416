"""Our own themes: calm, one accent; dark, light, and one of high contrast."""

import os
from collections.abc import Mapping

from textual.theme import Theme

DARK = Theme(
    name="gpudoctor-dark",
    primary="#56b6c2",
    secondary="#82a8d0",
    accent="#56b6c2",
    warning="#e2b35c",
    error="#ee7a7f",
    success="#86c08a",
    foreground="#d3dae2",
    background="#11161b",
    surface="#161c22",
    panel="#202830",
    dark=True,
)
LIGHT = Theme(
    name="gpudoctor-light",
    primary="#0e7490",
    secondary="#3b5f8a",
    accent="#0e7490",
    warning="#8f5a00",
    error="#b42318",
    success="#2b7a3d",
    foreground="#1d2730",
    background="#fbfcfa",
    surface="#f4f6f3",
    panel="#e6eae6",
    dark=False,
)
CONTRAST = Theme(
    name="gpudoctor-contrast",
    primary="#00ffff",
    secondary="#9fd0ff",
    accent="#00ffff",
    warning="#ffff00",
    error="#ff8080",
    success="#80ff80",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#202020",
    text_alpha=1.0,
    dark=True,
)
THEMES = (DARK, LIGHT, CONTRAST)


def first_theme(environment: Mapping[str, str] = os.environ) -> str:
    """Return the theme to begin with: the terminal's own palette where it has under 256 colours."""
    light = _light_background(environment.get("COLORFGBG", ""))
    term = environment.get("TERM", "")
    if "256" not in term and term in {"linux", "vt100", "vt220", "xterm", "screen", "ansi"}:
        if environment.get("COLORTERM", "") not in {"truecolor", "24bit"}:
            return "ansi-light" if light else "ansi-dark"
    return LIGHT.name if light else DARK.name


def _light_background(colours: str) -> bool:
    """Return whether `COLORFGBG` (foreground;background) names a light background."""
    background = colours.rpartition(";")[2]
    return background in {"7", "15"}
