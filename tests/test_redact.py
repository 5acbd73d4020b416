"""Secrets are masked, and nothing else is."""

import pytest

from gpudoctor.model import Evidence
from gpudoctor.redact import redact, redact_evidence


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("--api-key abc123 --port 8000", "--api-key <masked> --port 8000"),
        ("--api-key=abc123", "--api-key=<masked>"),
        ("OPENAI_API_KEY=abc rest", "OPENAI_API_KEY=<masked> rest"),
        ('{"auth_token": "abc"}', '{"auth_token": "<masked>"}'),
        ("Authorization: Bearer abc.def", "Authorization: Bearer <masked>"),
        ("http://user:pw@host/x", "http://user:<masked>@host/x"),
        ("hf_abcdefghijklmnopqrstuv", "<masked>"),
        ("a\n--api-key\nabc123\n--port\n80", "a\n--api-key\n<masked>\n--port\n80"),
        ("rd.luks.key=/dev/sda:secret", "rd.luks.key=/dev/sda:secret"),
        ("--max-total-tokens 4096", "--max-total-tokens 4096"),
        ("max_num_batched_tokens=4096", "max_num_batched_tokens=4096"),
        ("--tokenizer-path /models/x", "--tokenizer-path /models/x"),
        ("tokenizer=/models/x", "tokenizer=/models/x"),
        ("KeyError: 'x'", "KeyError: 'x'"),
        ("<serial>1320</serial>", "<serial>1320</serial>"),
    ],
)
def test_redact(before: str, after: str) -> None:
    assert redact(before.encode()).decode() == after


def test_twice_is_once() -> None:
    once = redact(b"TOKEN=abc --api-key k")
    assert redact(once) == once


def test_config_space_is_untouched() -> None:
    raw = b"\x00token=abc\x00"
    evidence = Evidence("e", files={"/sys/bus/pci/devices/0000:01:00.0/config": raw, "/x": raw})
    files = redact_evidence(evidence).files
    assert files["/sys/bus/pci/devices/0000:01:00.0/config"] == raw
    assert files["/x"] != raw
