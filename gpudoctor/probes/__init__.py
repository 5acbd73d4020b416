"""Shared probes and readers, one module a subject; a panel's own live in its module in checks/."""
