"""Hosts: where probes and steps run. Only this package starts processes or speaks SSH."""
