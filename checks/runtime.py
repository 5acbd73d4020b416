"""Panel: runtime."""
