"""Secrets are masked before evidence is judged, shown or stored (design law 11)."""

import re
from dataclasses import replace

from gpudoctor.model import Evidence, Unknown

MASK = b"<masked>"
_NAME = (
    rb"(?:(?:api|access|account|auth|private|secret|ssh)[_-]?key"
    rb"|token|secret|passw(?:or)?d|passphrase|credential)"
)
_PATTERNS = (
    # NAME=value, --name value, "name": "value"; names that count tokens are no secrets.
    re.compile(
        rb"(?i)(?P<keep>" + _NAME + rb"[\"']?\s*(?:=|:)\s*[\"']?)"
        rb"(?P<value>[^\x00\s\"'&;,<>]+)"
    ),
    # --name value; without a limit a long run of dashes would take the square of its length.
    re.compile(
        rb"(?i)(?P<keep>(?<!-)--?[a-z0-9-]{0,64}(?:api-key|token|secret|password)"
        rb"(?:[ \t]+|\n|\x00))(?P<value>[^\s\x00-][^\s\x00]*)"
    ),
    re.compile(rb"(?i)(?P<keep>authorization:\s*(?:bearer|basic)\s+)(?P<value>\S+)"),
    re.compile(rb"(?P<keep>://[^/\s:@]+:)(?P<value>[^/\s:@]+)(?=@)"),
    re.compile(
        rb"(?P<keep>)(?P<value>\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}"
        rb"|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{16}|xox[abpr]-[A-Za-z0-9-]{10,})\b)"
    ),
)
# Binary; an LXC configuration, also named `config`, is text and may hold an environment.
_CONFIG_SPACE = re.compile(r"/sys/.*/config")


def redact(data: bytes) -> bytes:
    """Return the bytes with the values of keys, tokens and passwords masked.

    Never give it binary data: a register may look like a word.
    """
    for pattern in _PATTERNS:
        data = pattern.sub(lambda m: m.group("keep") + MASK, data)
    return data


def redact_evidence(evidence: Evidence) -> Evidence:
    """Return the evidence with secrets masked in everything it holds."""
    files = {
        path: data if isinstance(data, Unknown) or _CONFIG_SPACE.fullmatch(path) else redact(data)
        for path, data in evidence.files.items()
    }
    stderr = redact(evidence.stderr.encode()).decode("utf-8", "replace")
    return replace(evidence, stdout=redact(evidence.stdout), stderr=stderr, files=files)
