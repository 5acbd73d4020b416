"""Rendered transaction scripts on items that are plain files, run by this machine's real sh."""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from gpudoctor.journal import moves, parse
from gpudoctor.model import Sysctl
from gpudoctor.model.plan import Item, ItemMoved, Move, Plan, StateMoved, Step
from gpudoctor.plan import values_hash
from gpudoctor.shell import quote
from gpudoctor.transaction_script import Header, Places, render

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
SHELLS = {"dash": ("dash",), "busybox": ("busybox", "sh")}


@dataclass
class Rig:
    """A folder that stands for a target: values as files, and its places."""

    root: Path
    shell: tuple[str, ...] = ("sh",)
    items: list[Item] = field(default_factory=list)

    @property
    def places(self) -> Places:
        return Places(str(self.root / "lib"), str(self.root / "run"))

    def item(self, name: str, before: str, wanted: str, write: str = "", undo: str = "") -> Path:
        """Add an item whose value is a file; `write` and `undo` may be other texts than usual."""
        path = self.root / name
        path.write_text(f"{before}\n")
        file = quote(str(path))
        self.items.append(
            Item(
                name,
                f"cat {file}",
                before,
                wanted,
                write.format(file=file) or f"echo {quote(wanted)} > {file}",
                undo.format(file=file) or f"echo {quote(before)} > {file}",
            )
        )
        return path

    def plan(self, number: int = 1, operator: str = "alice@desk", boot: str = BOOT) -> Plan:
        """Return a plan of the items, one step each."""
        steps = tuple(Step(f"check-{i.name}", Sysctl(i.name, i.wanted), (i,)) for i in self.items)
        header = Header(f"20260101-000000-{number:06x}", "rig", operator, boot, values_hash(steps))
        script = render(header, steps, self.places)
        return Plan(header.id, "rig", operator, "", boot, steps, script, header.hash)

    def put(self, plan: Plan) -> Path:
        """Put the script where a client would."""
        path = Path(self.places.script(plan.id))
        path.parent.mkdir(parents=True)
        path.write_text(plan.script)
        return path

    def command(self, plan: Plan, verb: str) -> list[str]:
        return [*self.shell, self.places.script(plan.id), verb]

    def run(self, plan: Plan, verb: str) -> subprocess.CompletedProcess[str]:
        """Run a verb to its end."""
        return subprocess.run(
            self.command(plan, verb), capture_output=True, text=True, timeout=60, env={}
        )

    def start(self, plan: Plan, verb: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self.command(plan, verb),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={},
        )

    def moves(self, plan: Plan) -> list[Move]:
        raw = Path(self.places.journal(plan.id)).read_bytes()
        return list(moves(parse(raw), 0.0))

    def story(self, plan: Plan) -> list[str]:
        """Return the journal in words."""
        return [
            f"{move.phase} {move.number}"
            if isinstance(move, ItemMoved)
            else f"= {move.state}"
            if isinstance(move, StateMoved)
            else "armed"
            for move in self.moves(plan)
        ]

    def detail(self, plan: Plan, phase: str) -> str:
        found = [m for m in self.moves(plan) if isinstance(m, ItemMoved) and m.phase == phase]
        return found[-1].detail


def is_root() -> bool:
    return os.geteuid() == 0
