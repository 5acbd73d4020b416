"""Shell text: quoting, and the scripts that read files and list entries in bulk."""

import re
import shlex
from collections.abc import Sequence

_PLAIN_GLOB = re.compile(r"[A-Za-z0-9_./:*?\[\],@%+=-]+")


def quote(value: str) -> str:
    """Quote any value for sh."""
    return shlex.quote(value)


def glob(pattern: str) -> str:
    """Return a path pattern for sh: globs stay active, anything unusual is quoted whole."""
    return pattern if _PLAIN_GLOB.fullmatch(pattern) else shlex.quote(pattern)


def read_files(patterns: Sequence[str], cap: int) -> str:
    """Return sh text that prints each file's first `cap` bytes under a `==> path <==` header."""
    return f"head -v -c {int(cap)} -- {' '.join(glob(p) for p in patterns)}"


def list_entries(patterns: Sequence[str]) -> str:
    """Return sh text that prints one `ls -ldn` line an entry, symbolic links unresolved."""
    return f"ls -ldn -- {' '.join(glob(p) for p in patterns)}"
