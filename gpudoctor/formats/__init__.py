"""Parsers: one module a format, shared by the panels; they never judge and do no I/O."""
