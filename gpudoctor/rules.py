"""Which rules judged: a digest over the code and the tables that findings come from."""

import hashlib
from functools import cache
from importlib.resources import files

# In this order, so that the digest is one of all of them.
_PACKAGES = ("checks", "formats", "model", "probes", "tables")
_SUFFIXES = (".py", ".toml")


@cache
def digest() -> str:
    """Return 16 hex digits that change with any rule; two audits of one digest judge alike."""
    whole = hashlib.sha256()
    for package in _PACKAGES:
        entries = sorted(files(f"gpudoctor.{package}").iterdir(), key=lambda entry: entry.name)
        for entry in entries:
            if entry.name.endswith(_SUFFIXES):
                whole.update(f"{package}/{entry.name}\0".encode())
                whole.update(entry.read_bytes())
    return whole.hexdigest()[:16]
