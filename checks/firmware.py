"""Panel: firmware."""
