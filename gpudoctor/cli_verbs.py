"""The verbs of the command line: each imports what answers it only when it is given."""

import argparse


def audit_verb(args: argparse.Namespace) -> int:
    """Print the findings, or what the next reboot brings."""
    if getattr(args, "before_reboot", False):
        from gpudoctor.cli_before_reboot import before_reboot_command

        return before_reboot_command(args)
    from gpudoctor.cli_audit import audit_command

    return audit_command(args)


def record_verb(args: argparse.Namespace) -> int:
    """Keep what an audit reads."""
    from gpudoctor.cli_audit import record_command

    return record_command(args)


def probes_verb(args: argparse.Namespace) -> int:
    """Print what an audit runs."""
    from gpudoctor.cli_audit import probes_command

    return probes_command(args)


def explain_verb(args: argparse.Namespace) -> int:
    """Print what a check reads, judges and why."""
    from gpudoctor.cli_audit import explain_command

    return explain_command(args)


def plan_verb(args: argparse.Namespace) -> int:
    """Print what would run, and its undo."""
    from gpudoctor.cli_fix import plan_command

    return plan_command(args)


def fix_verb(args: argparse.Namespace) -> int:
    """Apply the fixes of checks."""
    from gpudoctor.cli_fix import fix_command

    return fix_command(args)


def rollback_verb(args: argparse.Namespace) -> int:
    """Undo a transaction."""
    from gpudoctor.cli_undo import rollback_command

    return rollback_command(args)


def confirm_verb(args: argparse.Namespace) -> int:
    """Keep what waits to be confirmed."""
    from gpudoctor.cli_undo import confirm_command

    return confirm_command(args)


def status_verb(args: argparse.Namespace) -> int:
    """Print what is applied, waits or was interrupted."""
    from gpudoctor.cli_undo import status_command

    return status_command(args)


def clean_verb(args: argparse.Namespace) -> int:
    """Remove what is ours from the host."""
    from gpudoctor.cli_undo import clean_command

    return clean_command(args)


def bench_verb(args: argparse.Namespace) -> int:
    """Measure the engine that serves."""
    from gpudoctor.cli_bench import bench_command

    return bench_command(args)


def prove_verb(args: argparse.Namespace) -> int:
    """Give each fix a number of its own."""
    from gpudoctor.cli_prove import prove_command

    return prove_command(args)
