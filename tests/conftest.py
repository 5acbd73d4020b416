"""Fixtures that any test may ask for."""

from tests.lab_vm import lab

__all__ = ["lab"]
