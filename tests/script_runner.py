"""Rendered transaction scripts on items that are plain files, run by this machine's real sh."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from gpudoctor.journal import moves, parse
from gpudoctor.model import Sysctl
from gpudoctor.model.plan import Item, ItemMoved, Move, Plan, StateMoved, Step
from gpudoctor.plan import values_hash
from gpudoctor.shell import quote
from gpudoctor.transaction_script import Header, Places, render

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
SHELLS = {"dash": ("dash",), "busybox": ("busybox", "sh")}
PATH = "PATH=/usr/local/sbin:"


@cache
def applets() -> str:
    """Return a folder of busybox's own tools, for a target that has no others but flock."""
    folder = tempfile.mkdtemp(prefix="applets-")
    subprocess.run(["busybox", "--install", "-s", folder], check=True)
    if not Path(folder, "flock").exists():  # Debian builds it without
        Path(folder, "flock").symlink_to(shutil.which("flock") or "/usr/bin/flock")
    return folder


@dataclass
class Rig:
    """A folder that stands for a target: values as files, its places, and its tools."""

    root: Path
    shell: tuple[str, ...] = ("sh",)
    tools: str = ""
    items: list[Item] = field(default_factory=list)

    @property
    def places(self) -> Places:
        return Places(str(self.root / "lib"), str(self.root / "run"))

    def item(
        self,
        name: str,
        before: str,
        wanted: str,
        write: str = "",
        undo: str = "",
        read: str = "",
        guard: str = "",
        tolerates: str = "",
        lasting: bool = False,
    ) -> Path:
        """Add an item whose value is a file; its texts may be others than usual."""
        path = self.root / name
        path.write_text(f"{before}\n")
        file = quote(str(path))
        texts = (
            read.format(file=file) or f"cat {file}",
            before,
            wanted,
            write.format(file=file) or f"echo {quote(wanted)} > {file}",
            undo.format(file=file) or f"echo {quote(before)} > {file}",
        )
        self.items.append(Item(name, *texts, guard.format(file=file), tolerates, lasting))
        return path

    def reword(self, index: int, read: str = "", write: str = "") -> None:
        """Give an item other texts, which may name any file."""
        old = self.items[index]
        self.items[index] = replace(old, read=read or old.read, write=write or old.write)

    def plan(
        self, number: int = 1, operator: str = "alice@desk", boot: str = BOOT, confirm: int = 0
    ) -> Plan:
        """Return a plan of the items, one step each, to be confirmed within so many seconds."""
        steps = tuple(Step(f"check-{i.name}", Sysctl(i.name, i.wanted), (i,)) for i in self.items)
        name = f"20260101-000000-{number:06x}"
        header = Header(name, "rig", operator, boot, values_hash(steps), confirm)
        script = render(header, steps, self.places)
        if self.tools:
            assert PATH in script
            script = script.replace(PATH, f"PATH={self.tools} OLD=")
        return Plan(
            header.id,
            "rig",
            operator,
            "",
            boot,
            steps,
            script,
            header.hash,
            confirm_within=confirm,
        )

    def put(self, plan: Plan) -> Path:
        """Put the script where a client would."""
        path = Path(self.places.script(plan.id))
        path.parent.mkdir(parents=True)
        path.write_text(plan.script)
        return path

    def command(self, plan: Plan, verb: str) -> list[str]:
        return [*self.shell, self.places.script(plan.id), verb]

    def run(self, plan: Plan, verb: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a verb to its end."""
        return subprocess.run(
            self.command(plan, verb), capture_output=True, text=True, timeout=60, env=env
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

    def journal(self, plan: Plan) -> bytes:
        path = Path(self.places.journal(plan.id))
        return path.read_bytes() if path.exists() else b""

    def wait_for(self, plan: Plan, text: str) -> None:
        """Wait until the journal holds a text."""
        until(lambda: text.encode() in self.journal(plan), f"no {text!r} in the journal")

    def uptime(self, plan: Plan, text: str) -> float:
        """Return the target's uptime in seconds at the first journal line that holds a text."""
        lines = [line for line in self.journal(plan).split(b"\n") if text.encode() in line]
        return float(lines[0].split(b" ")[0])

    def marks(self) -> list[str]:
        """Return what a transaction has left in the place that a reboot empties."""
        return sorted(p.name for p in Path(self.places.run).glob("2*"))


def until(true: Callable[[], bool], why: str, seconds: float = 20) -> None:
    """Wait for a condition. Raises AssertionError after so many seconds."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, why
        time.sleep(0.01)


def processes(rig: Rig) -> list[str]:
    """Return the command lines of what still runs out of a rig."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found += [words] if f"{rig.places.home}/" in words else []
    return found


def killing(script: str, lines: int) -> str:
    """Return a script whose process is killed as soon as its journal has so many lines."""
    end = script.index("\n}\n", script.index("\njournal() {"))
    stop = f'\n  [ "$(wc -l <"$DIR/journal")" -lt {lines} ] || kill -KILL $$'
    return script[:end] + stop + script[end:]


def is_root() -> bool:
    return os.geteuid() == 0
