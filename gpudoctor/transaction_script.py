"""The text of a transaction: one sh script that applies a plan on the target, and takes it back.

It holds before and wanted of every item, so it needs nothing but itself. Runs in dash and busybox.
Its verbs: apply, undo; confirm (the operator keeps it), fire (the timer: nobody confirmed).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpudoctor.model.plan import Item, Step
from gpudoctor.shell import quote
from gpudoctor.text import one_line
from gpudoctor.transaction_frame import FRAME
from gpudoctor.transaction_verbs import VERBS


@dataclass(frozen=True, slots=True)
class Places:
    """Where a target keeps transactions (`home`, survives a reboot) and the lock (`run`)."""

    home: str = "/var/lib/gpudoctor"
    run: str = "/run/gpudoctor"

    def folder(self, transaction: str) -> str:
        """Return the folder of one transaction."""
        return f"{self.home}/{transaction}"

    def script(self, transaction: str) -> str:
        """Return the path of its script."""
        return f"{self.folder(transaction)}/transaction.sh"

    def journal(self, transaction: str) -> str:
        """Return the path of its journal."""
        return f"{self.folder(transaction)}/journal"


PLACES = Places()


@dataclass(frozen=True, slots=True)
class Header:
    """Whose transaction it is, where and when it may run; seconds to confirm it in, 0 for ever."""

    id: str
    label: str
    operator: str
    boot_id: str
    hash: str
    confirm_within: int = 0


def render(header: Header, steps: Sequence[Step], places: Places = PLACES) -> str:
    """Return the script; its bytes are the preview, the copy at the client and what runs."""
    items = [item for step in steps for item in step.items]
    tables: list[tuple[str, Callable[[Item], str]]] = [
        ("item_name", lambda item: f"name={quote(one_line(item.name))}"),
        ("before", lambda item: f"before={quote(item.before)}"),
        ("wanted", lambda item: f"wanted={quote(item.wanted)}"),
        ("tolerates", lambda item: f"tolerates={quote(item.tolerates)}"),
        ("lasting", lambda item: f"lasting={'yes' if item.lasting else 'no'}"),
        ("read_item", lambda item: item.read),
        ("write_item", lambda item: item.write),
        ("undo_item", lambda item: item.undo),
        ("guard_item", lambda item: item.guard or ":"),
    ]
    parts = [_head(header, items, places), _steps(steps)]
    parts += [_table(name, [text(item) for item in items]) for name, text in tables]
    return "\n".join(parts) + FRAME + VERBS


def clean_text(transactions: Mapping[str, str], places: Places = PLACES) -> str:
    """Return the text that removes transactions and prints which went; empty places go too.

    Each has the state it was seen in: one that was applied since then stays.
    """
    each = "; ".join(f"C {quote(name)} {quote(state)}" for name, state in transactions.items())
    places_now = f"H={quote(places.home)}; R={quote(places.run)}"
    return f"{places_now}; {_CLEAN}{each or ':'}; {_CLEANED}"


_CLEAN = (
    'cd /; [ -e "$H" ] || [ -e "$R" ] || exit 0; mkdir -p "$R" && exec 6>>"$R/lock" && flock -n 6 '
    '&& [ /proc/self/fd/6 -ef "$R/lock" ] || { cat "$R/owner" >&2; exit 1; }; '
    r"C() { case $(sed -n 's/^[^ ]* state \([a-z-]*\).*/\1/p' "
    '"$H/$1/journal" 2>/dev/null | tail -n 1) in ""|undone|failed|"$2") '
    'rm -rf "$H/$1" "$R/$1".* && echo "$1";; esac; }; '
)
_CLEANED = 'rmdir "$H" 2>/dev/null; [ -e "$H" ] || rm -rf "$R"'


def _head(header: Header, items: Sequence[Item], places: Places) -> str:
    script = quote(places.script(header.id))
    names = "\n".join(f"# item: {one_line(item.name)}" for item in items)
    return f"""\
#!/bin/sh
# gpudoctor transaction {header.id} for {one_line(header.label, 80)}
# by {one_line(header.operator, 80)}; made from values with the hash {header.hash}
# To take it back:  sh {script} undo
{names}
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 077
ID={quote(header.id)}
OPERATOR={quote(one_line(header.operator, 80))}
BOOT={quote(header.boot_id)}
DIR={quote(places.folder(header.id))}
RUN={quote(places.run)}
COUNT={len(items)}
CONFIRM={header.confirm_within}
"""


def _steps(steps: Sequence[Step]) -> str:
    """Return the function that journals what the steps are."""
    lines = [f"  journal step {quote(f'{s.check} {one_line(s.title)}')} &&" for s in steps]
    if any(item.lasting for step in steps for item in step.items):
        lines.append("  journal lasting &&")
    return "\n".join(["journal_steps() {", *lines, "  :", "}"])


def _table(name: str, rows: Sequence[str]) -> str:
    """Return a function of an item's number; what most rows say is said once, at the end."""
    most = max(rows, key=rows.count, default="")
    rest = most if rows.count(most) > 1 else ""
    cases = [f"{number}) {row};;" for number, row in enumerate(rows, 1) if row != rest]
    cases += [f"*) {rest};;"] if rest else []
    return "\n".join([f"{name}() {{ case $1 in", *cases, "esac; }"])
