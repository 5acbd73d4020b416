"""What the read texts of mechanisms print, told from files that the audit read."""

from collections.abc import Mapping

from gpudoctor.model import Reason, Unknown
from gpudoctor.text import clean


def printed(files: Mapping[str, bytes | Unknown], path: str) -> str | Unknown:
    """Return what `cat path` prints in `$(…)`; only one line of plain text is a value."""
    raw = files.get(path, Unknown(Reason.NOT_IN_RECORDING, f"{path} was not read"))
    if isinstance(raw, Unknown):
        return raw
    text = raw.decode("utf-8", "backslashreplace").rstrip("\n")
    if "\n" in text or clean(text) != text:
        return Unknown(Reason.PARSE_FAILED, f"{path} is not one line of plain text")
    return text
