"""What an operator noted about a snapshot: one small file a note, beside the snapshot.

It is called as the snapshot's file with `.note`: copies of a file share its id, not its note.
"""

from pathlib import Path

from gpudoctor.model.error import Refusal
from gpudoctor.model.snapshot import SnapshotHead
from gpudoctor.snapshots.head import read_plain
from gpudoctor.snapshots.store import in_store, write_whole
from gpudoctor.text import one_line

SUFFIX = ".note"
LONGEST = 200


def set_note(head: SnapshotHead, text: str) -> str:
    """Keep a note about a snapshot of the store and return it as kept; no text removes it.

    It is one line of at most 200 characters. Raises Refusal (code 1).
    """
    path = Path(head.path)
    if not in_store(path):
        raise Refusal(f"{path} is not in the store: notes are kept for snapshots that are", 1)
    note = path.with_name(path.name + SUFFIX)
    kept = one_line(text, LONGEST)
    if kept:
        write_whole(note, f"{kept}\n".encode())
        return kept
    try:
        note.unlink(missing_ok=True)
    except OSError as error:
        raise Refusal(f"{note.name} cannot be removed ({error.strerror})", 1) from error
    return ""


def note_of(snapshot: Path) -> str:
    """Return the note about a snapshot's file; where it cannot be read, that it cannot."""
    try:
        raw, _ = read_plain(snapshot.with_name(snapshot.name + SUFFIX), "it")
        return one_line(raw[: 4 * LONGEST + 1], LONGEST)
    except FileNotFoundError:
        return ""
    except Refusal as refusal:
        return f"(its note cannot be read: {refusal.sentence})"
