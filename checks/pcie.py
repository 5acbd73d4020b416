"""Panel: pcie."""
