"""The text of a transaction: one sh script that applies a plan on the target, and takes it back.

It holds before and wanted of every item, so it needs nothing but itself. Runs in dash and busybox.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpudoctor.model.plan import Item, Step
from gpudoctor.shell import quote
from gpudoctor.text import one_line


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
    """Whose transaction it is, where and when it may run."""

    id: str
    label: str
    operator: str
    boot_id: str
    hash: str


def render(header: Header, steps: Sequence[Step], places: Places = PLACES) -> str:
    """Return the script; its bytes are the preview, the copy at the client and what runs."""
    items = [item for step in steps for item in step.items]
    tables: list[tuple[str, Callable[[Item], str]]] = [
        ("item_name", lambda item: _print(item.name)),
        ("read_item", lambda item: item.read),
        ("before", lambda item: _print(item.before)),
        ("wanted", lambda item: _print(item.wanted)),
        ("write_item", lambda item: item.write),
        ("undo_item", lambda item: item.undo),
    ]
    parts = [_head(header, items, places), _steps(steps)]
    parts += [_table(name, [text(item) for item in items]) for name, text in tables]
    return "\n".join(parts) + FRAME


def _print(value: str) -> str:
    return f"printf %s {quote(value)}"


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
"""


def _steps(steps: Sequence[Step]) -> str:
    """Return the function that journals what the steps are."""
    lines = [f"  journal step {quote(f'{s.check} {one_line(s.title)}')} &&" for s in steps]
    return "\n".join(["journal_steps() {", *lines, "  :", "}"])


def _table(name: str, rows: Sequence[str]) -> str:
    cases = [f"{number}) {row};;" for number, row in enumerate(rows, 1)]
    return "\n".join([f"{name}() {{ case $1 in", *cases, "esac; }"])


# Journal lines are "UPTIME WORD …", on disk (fsync) before the next thing happens.
# Each write runs in a subshell that holds the lock until it has ended, even if the runner is
# killed; what the write itself starts gets no lock (6>&-), so that no daemon keeps it.
FRAME = r"""
journal() {
  read -r uptime _ </proc/uptime
  printf '%s %s\n' "$uptime" "$*" | dd of="$DIR/journal" oflag=append conv=notrunc,fsync 2>/dev/null
}
flat() { printf %s "$1" | tr -c '\040-\176' ' ' | cut -c 1-200; }
syslog() { logger -t gpudoctor -- "$OPERATOR, transaction $ID: $1" >/dev/null 2>&1 6>&-; }
refuse() { journal refused "$(flat "$1")"; printf 'refused: %s\n' "$(flat "$1")" >&2; exit 1; }
value() { read_item "$1" 2>/dev/null 6>&- || printf '(unreadable)'; }
state() { sed -n 's/^[^ ]* state \([a-z-]*\).*/\1/p' "$DIR/journal" 2>/dev/null | tail -n 1; }
utc() { date -u +%Y-%m-%dT%H:%M:%SZ; }

take_lock() { # waits at most $1 seconds
  [ "$(id -u)" = 0 ] || { echo "refused: this needs root" >&2; exit 1; }
  mkdir -p "$RUN" "$DIR" || exit 1
  command -v flock >/dev/null || refuse "flock is not installed here"
  exec 6>>"$RUN/lock"
  left=$1
  until flock -n 6; do
    [ "$left" -gt 0 ] || refuse "busy: $(cat "$RUN/owner" 2>/dev/null)"
    left=$((left - 1))
    sleep 1
  done
  echo "$OPERATOR since $(utc), transaction $ID" >"$RUN/owner"
  echo $$ >"$DIR/runner"
  trap '' HUP INT TERM
}

same_boot() { [ "$(cat /proc/sys/kernel/random/boot_id)" = "$BOOT" ]; }

written() { # numbers of the items written and not yet taken back, newest first
  awk '$2 == "intent" { open[$3] = 1 } $2 == "undone" { delete open[$3] }
    END { for (i in open) print i }' "$DIR/journal" | sort -rn
}

ours() { # is the value $2 of item $1 what we wrote, or what the target made of it?
  [ "$2" = "$(wanted "$1")" ] && return 0
  made=$(sed -n "s/^[^ ]* ignored $1 //p" "$DIR/journal" | tail -n 1)
  [ -n "$made" ] && [ "$(flat "$2")" = "$made" ]
}

run() { # the text $1 of item $2; its complaints are kept for the journal
  ( "$1" "$2" </dev/null >/dev/null 2>"$DIR/complaint" 6>&-; exit $? )
}

undo_items() { # newest first; a value that is neither ours nor the old one is left alone
  incomplete=0
  for i in $(written); do
    now=$(value "$i")
    if [ "$now" = "$(before "$i")" ]; then
      journal undone "$i"
    elif ! ours "$i" "$now"; then
      journal foreign "$i" "$(flat "$now")"
      incomplete=1
    else
      syslog "$(item_name "$i") back to $(before "$i")"
      run undo_item "$i"
      code=$?
      now=$(value "$i")
      if [ "$now" = "$(before "$i")" ]; then
        journal undone "$i"
      else
        journal stuck "$i" "$(flat "$now")"
        journal complaint "$i" "exit $code: $(flat "$(cat "$DIR/complaint")")"
        incomplete=1
      fi
    fi
  done
  return $incomplete
}

give_up() { # something did not take: everything goes back
  journal state undoing
  if undo_items; then journal state failed; echo "failed, and undone"; exit 4; fi
  journal state undo-failed
  echo "failed, and not everything could be undone: see $DIR/journal" >&2
  exit 5
}

apply() {
  take_lock 0
  case $(state) in '' | undone | failed) ;; *) refuse "this transaction is already $(state)" ;; esac
  [ -e "$DIR/transaction.sh" ] || dd if="$0" of="$DIR/transaction.sh" conv=fsync 2>/dev/null ||
    refuse "the undo could not be put on disk in $DIR"
  journal begin "$(utc)" "$BOOT" "$OPERATOR" && journal_steps ||
    { echo "refused: $DIR/journal cannot be written" >&2; exit 1; }
  same_boot || refuse "the machine has rebooted since this was planned: plan again"
  i=0
  while [ $((i += 1)) -le $COUNT ]; do
    now=$(value $i)
    [ "$now" = "$(before $i)" ] && continue
    journal drift $i "$(flat "$now")"
    refuse "$(item_name $i) is now $now, and was $(before $i) when this was planned: plan again"
  done
  journal state applying || exit 1
  i=0
  while [ $((i += 1)) -le $COUNT ]; do
    now=$(value $i)
    if [ "$now" != "$(before $i)" ]; then journal drift $i "$(flat "$now")"; give_up; fi
    journal intent $i || give_up
    syslog "$(item_name $i) from $now to $(wanted $i)"
    run write_item $i
    code=$?
    now=$(value $i)
    if [ "$now" != "$(wanted $i)" ]; then
      journal ignored $i "$(flat "$now")"
      journal complaint $i "exit $code: $(flat "$(cat "$DIR/complaint")")"
      give_up
    fi
    journal done $i || give_up
  done
  journal state applied || give_up
  echo applied
}

began() { sed -n 's/^\([0-9.]*\) begin .*/\1/p' "$1/journal" | tail -n 1 | tr -d .; }

newer() { # prints a later transaction of this boot that stands on an item of ours
  for other in "${DIR%/*}"/*/; do
    other=${other%/}
    [ "$other" != "$DIR" ] || continue
    grep -q "^[^ ]* begin [^ ]* $BOOT " "$other/journal" 2>/dev/null || continue
    case $(DIR=$other; state) in applied | confirmed | undo-failed) ;; *) continue ;; esac
    [ "$(began "$other")" -gt "$(began "$DIR")" ] || continue
    for i in $(written); do
      if grep -qxF "# item: $(item_name "$i")" "$other/transaction.sh"; then
        echo "${other##*/}"; return
      fi
    done
  done
}

undo() {
  take_lock 30
  case $(state) in
    '') echo "nothing was applied"; exit 0 ;;
    undone | failed)
      journal state "$(state)" nothing is left to undo
      echo "nothing is left to undo"; exit 0 ;;
  esac
  if ! same_boot; then
    journal state undone the reboot since then already undid it
    echo "the reboot since then already undid it"; exit 0
  fi
  later=$(newer)
  [ -z "$later" ] || refuse "transaction $later is newer and stands on this value: undo it first"
  journal state undoing
  if undo_items; then journal state undone; echo undone; exit 0; fi
  journal state undo-failed
  echo "not everything could be undone: see $DIR/journal" >&2
  exit 5
}

case $1 in
  apply | undo) "$1" ;;
  *) echo "usage: sh $0 apply | undo" >&2; exit 2 ;;
esac
"""
