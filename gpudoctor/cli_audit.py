"""The verbs that read: audit, record, probes, explain."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpudoctor.audit import run_audit
from gpudoctor.before_reboot import READERS
from gpudoctor.checks import by_id, known_check
from gpudoctor.cli_ask import columns, write_text
from gpudoctor.fixes import way_of
from gpudoctor.judging import Judging
from gpudoctor.model import Impact, Later, Panel, Probe, Side, Tool
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.error import Refusal, WrongUsage
from gpudoctor.report import exit_code, markdown, plain


def chosen_panels(names: Sequence[str] | None) -> tuple[Panel, ...]:
    """Return the panels named by id or number; all for none. Raises WrongUsage."""
    if not names:
        return tuple(Panel)
    known = {panel.value: panel for panel in Panel} | {str(p.number): p for p in Panel}
    names = [name.lower() for name in names]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise WrongUsage(f"no panel {unknown[0]!r}; the panels are 1 to 10, or {', '.join(Panel)}")
    return tuple(dict.fromkeys(known[name] for name in names))


def audited(args: argparse.Namespace, panels: Sequence[Panel] = tuple(Panel)) -> AuditResult:
    """Audit the target that the options name. Raises Refusal."""
    return asyncio.run(run_audit(args.make_target(), panels))


def audit_command(args: argparse.Namespace) -> int:
    """Print the findings in the form asked for and return the exit code."""
    panels = chosen_panels(getattr(args, "panel", None))
    fail_on = Impact(getattr(args, "fail_on", "medium"))
    result = audited(args, panels)
    if getattr(args, "json", False):
        from gpudoctor.report_json import audit_json

        sys.stdout.write(audit_json(result, fail_on))
    elif getattr(args, "markdown", None):
        write_text(args.markdown, markdown(result, fail_on))
    else:
        sys.stdout.write(plain(result, columns(), fail_on, sys.stdout.isatty()))
    return exit_code(result, fail_on)


def record_command(args: argparse.Namespace) -> int:
    """Audit and keep what was read, whole and with secrets masked."""
    from gpudoctor.recording import dump

    path = Path(args.file)
    if not path.parent.is_dir():
        raise WrongUsage(f"{path.parent} is no directory: choose another FILE")
    result = audited(args)
    raw = dump(result)
    try:
        _write_private(path, raw)
    except OSError as error:
        raise Refusal(f"{path} cannot be written: {error.strerror}", 3) from error
    kept = {"file": str(path), "probes": len(result.evidence), "bytes": len(raw)}
    if args.json:
        _print_json(kept | {"incomplete": result.incomplete})
    else:
        print(f"{path}: {kept['probes']} probes, {len(raw)} bytes; gpudoctor --from {path}")
    return 3 if result.incomplete else 0


def _write_private(path: Path, raw: bytes) -> None:
    """Write a file that only its owner may read; an old one stays until the new one is whole.

    A device such as /dev/null is written to as it is.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(raw)
        return
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(new, path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _print_json(values: Mapping[str, object]) -> None:
    print(json.dumps({"version": 1, **values}, indent=2))


def probes_command(args: argparse.Namespace) -> int:
    """Print what an audit runs: the names, or with --shell the very scripts."""
    from gpudoctor.hosts.session_script import boot, prelude
    from gpudoctor.hosts.side import job_texts

    judging = Judging(Panel)
    first = _independent(judging)
    more = [probe for probe in _independent(Judging(Panel, READERS)) if probe not in first]
    if args.json:
        rows = [_probe_row(probe) for probe in (*first, *judging.waiting)]
        _print_json({"probes": rows, "before_reboot": [_probe_row(probe) for probe in more]})
        return 0
    if not args.shell:
        for probe in (*first, *judging.waiting):
            print(f"{probe.side:<10} {probe.key:<28} {_about(probe)}")
        print("\nonly for audit --before-reboot:")
        for probe in more:
            print(f"{probe.side:<10} {probe.key:<28} {_about(probe)}")
        return 0
    print("# the session, once a side (MARK is random)")
    print(boot("MARK"))
    print(prelude(), end="")
    for side in Side:
        for keys, text in job_texts([p for p in first if p.side is side]):
            print(f"\n# {side}: {', '.join(keys)}\n{text}")
    asked = _demo_asked()
    for later in judging.waiting:
        after = ", ".join(reader.key for reader in later.after)
        shown = [asked[later.key]] if later.key in asked else []
        where = "on the demo host" if shown else "not asked on the demo host"
        print(f"\n# {later.side}: {later.key}, made from what {after} answer; {where}")
        print("".join(f"{text}\n" for _, text in job_texts(shown)), end="")
    print("\n# what follows is asked for `audit --before-reboot` only")
    for side in Side:
        for keys, text in job_texts([p for p in more if p.side is side]):
            print(f"\n# {side}: {', '.join(keys)}\n{text}")
    print("\n# `gpudoctor audit --json` on a host names each command and path as read there")
    return 0


def _independent(judging: Judging) -> list[Probe]:
    """Return the probes of both sides that wait for no fact."""
    return [*judging.begin(Side.HOST).due, *judging.begin(Side.CONTAINER).due]


def _demo_asked() -> Mapping[str, Probe]:
    """Return every probe as the demo host was asked: dependent ones with real values in them."""
    from gpudoctor.hosts.simulated_target import NO_WAIT, SimulatedTarget, demo_machine

    return asyncio.run(run_audit(SimulatedTarget(demo_machine(), NO_WAIT))).asked


def _about(probe: Probe | Later) -> str:
    if isinstance(probe, Later):
        return f"after {', '.join(reader.key for reader in probe.after)}"
    if isinstance(probe, Tool):
        return probe.name
    more = f" and {len(probe.patterns) - 1} more" if len(probe.patterns) > 1 else ""
    return f"{probe.patterns[0]}{more}"


def _probe_row(probe: Probe | Later) -> dict[str, object]:
    """Return a probe as JSON values: what runs, or after which facts it is made."""
    row: dict[str, object] = {"key": probe.key, "side": str(probe.side)}
    if isinstance(probe, Later):
        return row | {"after": [reader.key for reader in probe.after]}
    if isinstance(probe, Tool):
        return row | {"script": probe.script, "limit_seconds": probe.limit}
    return row | {"paths": list(probe.patterns)}


def explain_command(args: argparse.Namespace) -> int:
    """Print what one check reads, why it matters and where that is documented."""
    check = known_check(args.check)
    panel = by_id()[args.check][0]
    reads = dict.fromkeys(p.key for r in check.reads + check.optional for p in r.probes())
    told: dict[str, object] = {
        "panel": f"{panel.number} {panel.heading}",
        "scope": check.scope,
        "reads": list(reads),
        "why": check.why,
        "source": check.source,
        "fixes": [way_of(kind) for kind in check.changes] or ["none of gpudoctor's own"],
    }
    if args.json:
        _print_json({"id": check.id, "title": check.title, **told})
        return 0
    print(f"{check.id}: {check.title}\n")
    for name, value in told.items():
        rows = value if name == "fixes" and isinstance(value, list) else [_joined(value)]
        for number, row in enumerate(rows):
            print(f"{'' if number else name:<8} {row}")
    return 0


def _joined(value: object) -> object:
    return ", ".join(value) if isinstance(value, list) else value
