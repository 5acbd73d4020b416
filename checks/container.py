"""Panel: container."""
