"""Panel: power."""
