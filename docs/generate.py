"""Write the parts of docs/ that are made from the code: the JSON schema and a page a check."""

import json
from pathlib import Path

from gpudoctor.answers import writing_schemas
from gpudoctor.checks import by_id, of_panel
from gpudoctor.model import Check, Panel
from gpudoctor.report_before_reboot import before_reboot_schema
from gpudoctor.report_bench_json import bench_schema
from gpudoctor.report_diff_json import diff_schema
from gpudoctor.report_json import audit_schema
from gpudoctor.report_prove import proof_schema
from gpudoctor.report_snapshots_json import snapshot_schemas
from gpudoctor.report_story import story_schemas

DOCS = Path(__file__).parent


def pages() -> dict[str, str]:
    """Return every generated file, as path under docs/ to text."""
    schemas = {
        "audit": audit_schema(),
        **writing_schemas(),
        **snapshot_schemas(),
        "snapshot-diff": diff_schema(),
        "before-reboot": before_reboot_schema(),
        "bench": bench_schema(),
        "prove": proof_schema(),
        **story_schemas(),
    }
    made = {f"schema/{n}.json": json.dumps(s, indent=2) + "\n" for n, s in schemas.items()}
    made["checks/README.md"] = _index()
    for name, (panel, check) in by_id().items():
        made[f"checks/{name}.md"] = _page(panel, check)
    return made


def _index() -> str:
    lines = ["# Checks", "", "Made by `make docs` from the code.", ""]
    for panel in Panel:
        lines += [f"## {panel.number} {panel.heading}", ""]
        lines += [f"- [{c.id}]({c.id}.md): {c.title}" for c in of_panel(panel)]
        lines.append("")
    return "\n".join(lines)


def _page(panel: Panel, check: Check) -> str:
    reads = dict.fromkeys(p.key for r in check.reads + check.optional for p in r.probes())
    return "\n".join(
        (
            f"# {check.id}",
            "",
            f"{check.title}. Panel {panel.number}, {panel.heading}; scope: {check.scope}.",
            "",
            check.why,
            "",
            f"- Reads: {', '.join(f'`{key}`' for key in reads)} (`gpudoctor probes --shell`)",
            f"- Source: {check.source}",
            f"- Cases: [tests/checks/{panel.value}](../../tests/checks/{panel.value})",
            "",
        )
    )


def main() -> None:
    """Write the pages and remove those of checks that are gone."""
    made = pages()
    for old in DOCS.glob("checks/*.md"):
        if str(old.relative_to(DOCS)) not in made:
            old.unlink()
    for name, text in made.items():
        path = DOCS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
