"""Panel: driver."""
