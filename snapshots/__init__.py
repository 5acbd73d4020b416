"""Snapshots: audits kept on the operator's machine, and the scripts of transactions beside them."""
