"""Tools that tests need from the machine: a missing one is a skip, saying so; in CI a failure."""

import os
from typing import NoReturn

import pytest


def missing(name: str) -> NoReturn:
    """End the test: skip it, or fail it loudly in CI, where everything must be installed."""
    why = f"{name} is not installed here"
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)
