"""Secrets are masked, and nothing else is."""

import time

import pytest

from gpudoctor.model import Evidence
from gpudoctor.redact import redact, redact_evidence


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("--api-key abc123 --port 8000", "--api-key <masked> --port 8000"),
        ("--api-key=abc123", "--api-key=<masked>"),
        ("OPENAI_API_KEY=abc rest", "OPENAI_API_KEY=<masked> rest"),
        ("AWS_SECRET_ACCESS_KEY=abc", "AWS_SECRET_ACCESS_KEY=<masked>"),
        ("SECRET_KEY=abc AUTH_KEY: abc", "SECRET_KEY=<masked> AUTH_KEY: <masked>"),
        ("[token=abc] (secret: abc)", "[token=<masked> (secret: <masked>"),
        ("--passphrase=abc", "--passphrase=<masked>"),
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


@pytest.mark.parametrize("raw", [b"-" * 200_000, b"-a" * 100_000, b"_api_" * 40_000])
def test_long_runs_take_a_moment(raw: bytes) -> None:
    begun = time.monotonic()
    assert redact(raw) == raw
    assert time.monotonic() - begun < 1.5


def test_config_space_is_untouched() -> None:
    raw = b"\x00token=abc\x00"
    evidence = Evidence("e", files={"/sys/bus/pci/devices/0000:01:00.0/config": raw, "/x": raw})
    files = redact_evidence(evidence).files
    assert files["/sys/bus/pci/devices/0000:01:00.0/config"] == raw
    assert files["/x"] != raw


def test_an_lxc_configuration_is_no_config_space() -> None:
    line = b"lxc.environment = HF_TOKEN=abc\n"
    files = redact_evidence(Evidence("e", files={"/var/lib/lxc/a/config": line})).files
    assert files["/var/lib/lxc/a/config"] == b"lxc.environment = HF_TOKEN=<masked>\n"
