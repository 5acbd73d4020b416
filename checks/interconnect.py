"""Panel: interconnect."""
