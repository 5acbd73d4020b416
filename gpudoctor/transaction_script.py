"""The text of a transaction: one sh script that applies a plan on the target, and takes it back.

It holds before and wanted of every item, so it needs nothing but itself. Runs in dash and busybox.
Its verbs: apply, undo; confirm (the operator keeps it), fire (the timer: nobody confirmed).
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
        ("item_name", lambda item: _print(item.name)),
        ("read_item", lambda item: item.read),
        ("before", lambda item: _print(item.before)),
        ("wanted", lambda item: _print(item.wanted)),
        ("write_item", lambda item: item.write),
        ("undo_item", lambda item: item.undo),
        ("guard_item", lambda item: item.guard or ":"),
        ("tolerates", lambda item: _print(item.tolerates) if item.tolerates else ":"),
        ("lasting", lambda item: "true" if item.lasting else "false"),
    ]
    parts = [_head(header, items, places), _steps(steps)]
    parts += [_table(name, [text(item) for item in items]) for name, text in tables]
    return "\n".join(parts) + FRAME


def clean_text(transactions: Sequence[str], places: Places = PLACES) -> str:
    """Return the text that removes these transactions, and the places once they are empty."""
    folders = " ".join(quote(places.folder(name)) for name in transactions)
    marks = " ".join(f"{quote(f'{places.run}/{name}')}.*" for name in transactions)
    home, run = quote(places.home), quote(places.run)
    return (
        f"cd /; [ -e {home} ] || [ -e {run} ] || exit 0; mkdir -p {run} && exec 6>>{run}/lock && "
        f"flock -n 6 || {{ cat {run}/owner >&2; exit 1; }}; rm -rf {folders} {marks} && "
        f"{{ rmdir {home} 2>/dev/null; [ -e {home} ] || rm -rf {run}; }}"
    )


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

be_root() {
  [ "$(id -u)" = 0 ] || { echo "refused: this needs root" >&2; exit 1; }
  mkdir -p "$RUN" "$DIR" || exit 1
  command -v flock >/dev/null || refuse "flock is not installed here"
}

take_lock() { # waits at most $1 seconds
  be_root
  exec 6>>"$RUN/lock"
  left=$1
  until flock -n 6; do
    [ "$left" -gt 0 ] || refuse "busy: $(cat "$RUN/owner" 2>/dev/null)"
    left=$((left - 1))
    sleep 1
  done
  hold
}

hold() { # the lock is ours: say so
  echo "$OPERATOR since $(utc), transaction $ID" >"$RUN/owner"
  echo $$ >"$DIR/runner"
  trap '' HUP INT TERM
}

# The timer. Its mark is $RUN/ID.armed; whoever renames it decides: confirm, fire or an undo.
armed() { [ "$CONFIRM" = 0 ] || [ -e "$RUN/$ID.armed" ]; }

arm() { # before the first write; the mark first, so that the timer never finds none
  [ "$CONFIRM" -gt 0 ] || return 0
  echo "$CONFIRM" >"$RUN/$ID.armed" || return 1
  if [ -d /run/systemd/system ] && systemd-run --quiet --collect --unit="gpudoctor-$ID" \
    --on-active="$CONFIRM" --timer-property=AccuracySec=100ms \
    sh "$DIR/transaction.sh" fire </dev/null >/dev/null 2>&1 6>&-; then
    journal armed "$CONFIRM" systemd
    return
  fi
  setsid sh -c 'echo $$ >"$3"; sleep "$1"; exec sh "$2" fire' \
    timer "$CONFIRM" "$DIR/transaction.sh" "$RUN/$ID.timer" </dev/null >/dev/null 2>&1 6>&- &
  left=20
  until [ -s "$RUN/$ID.timer" ]; do
    [ $((left -= 1)) -gt 0 ] || return 1
    pause
  done
  journal armed "$CONFIRM" session
}

pause() { sleep 0.1 2>/dev/null || sleep 1; }

disarm() { # the mark becomes $1; fails where another was faster
  mv "$RUN/$ID.armed" "$RUN/$ID.$1" 2>/dev/null || return 1
  [ ! -d /run/systemd/system ] || systemctl stop "gpudoctor-$ID.timer" >/dev/null 2>&1 6>&-
  [ ! -s "$RUN/$ID.timer" ] || kill -TERM -"$(cat "$RUN/$ID.timer")" 2>/dev/null
  rm -f "$RUN/$ID.timer" "$RUN/$ID.$1"
}

fire() { # from the rename on no step starts; what is under way gets 5 s, then its runner is ended
  be_root
  mv "$RUN/$ID.armed" "$RUN/$ID.fired" 2>/dev/null || exit 0
  exec 6>>"$RUN/lock"
  left=50
  until flock -n 6; do
    [ $((left -= 1)) -ne 0 ] || end_runner
    [ "$left" -gt -6000 ] || refuse "the timer could not undo this: $(cat "$RUN/owner")"
    pause
  done
  hold
  rm -f "$RUN/$ID.timer"
  case $(state) in
    '' | undone | failed) rm -f "$RUN/$ID.fired"; exit 0 ;;
  esac
  journal state undoing nobody confirmed within "$CONFIRM" s
  rm -f "$RUN/$ID.fired"
  if undo_items; then journal state undone nobody confirmed within "$CONFIRM" s; exit 0; fi
  journal state undo-failed
  exit 5
}

end_runner() { # a step hangs: the runner is killed, and its step is asked to end
  read -r runner <"$DIR/runner" || return 0
  tr '\0' ' ' <"/proc/$runner/cmdline" 2>/dev/null | grep -qF "$DIR/transaction.sh" || return 0
  kill -KILL "$runner"
  kill -TERM -"$runner" 2>/dev/null
}

confirm() {
  be_root
  case $(state) in
    applied) ;;
    confirmed) echo "it is confirmed already"; exit 0 ;;
    '') refuse "nothing was applied" ;;
    *) refuse "this transaction is $(state), not applied: there is nothing to confirm" ;;
  esac
  same_boot || refuse "the reboot since then already undid it"
  [ "$CONFIRM" = 0 ] || disarm kept || refuse "too late: the timer takes everything back"
  journal state confirmed "$(utc)" || refuse "it stays, but $DIR/journal cannot be written"
  echo confirmed
}

same_boot() { [ "$(cat /proc/sys/kernel/random/boot_id)" = "$BOOT" ]; }

written() { # numbers of the items written and not yet taken back, newest first
  awk '$2 == "intent" { open[$3] = 1 } $2 == "undone" || $2 == "skipped" { delete open[$3] }
    END { for (i in open) print i }' "$DIR/journal" | sort -rn
}

ours() { # is the value $2 of item $1 what we wrote, or what the target made of it?
  [ "$2" = "$(wanted "$1")" ] && return 0
  made=$(sed -n "s/^[^ ]* ignored $1 //p" "$DIR/journal" | tail -n 1)
  [ -n "$made" ] && [ "$(flat "$2")" = "$made" ]
}

tolerated() {
  allowed=$(tolerates "$1")
  [ -n "$allowed" ] && grep -qE -e "$allowed" "$DIR/complaint"
}

run() { # the text $1 of item $2; its complaints are kept for the journal
  ( trap - HUP INT TERM; "$1" "$2" </dev/null >/dev/null 2>"$DIR/complaint" 6>&-; exit $? )
}

undo_items() { # newest first; a value that is neither ours nor the old one is left alone
  incomplete=0
  for i in $(written); do
    now=$(value "$i")
    if [ "$now" = "$(before "$i")" ] || [ "$now" = gone ]; then
      journal undone "$i"
    elif ! lasting "$i" && ! same_boot; then
      journal undone "$i" by the reboot
    elif ! ours "$i" "$now"; then
      journal foreign "$i" "$(flat "$now")"
      incomplete=1
    elif why=$(guard_item "$i" 2>/dev/null 6>&-) && [ -n "$why" ]; then
      journal held "$i" "$(flat "$why")"
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
  [ "$CONFIRM" = 0 ] || disarm given-up || exit 4 # the timer was faster, and undoes
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
  waiting=$(ls "$RUN" | sed -n '/\.armed$/{s///p;q;}')
  [ -z "$waiting" ] ||
    refuse "transaction $waiting still waits to be confirmed: confirm it, or roll it back"
  i=0
  while [ $((i += 1)) -le $COUNT ]; do
    now=$(value $i)
    [ "$now" = "$(before $i)" ] && continue
    journal drift $i "$(flat "$now")"
    refuse "$(item_name $i) is now $now, and was $(before $i) when this was planned: plan again"
  done
  arm || { disarm given-up; refuse "the timer that would undo this could not be started"; }
  journal state applying || give_up
  i=0
  while [ $((i += 1)) -le $COUNT ]; do
    now=$(value $i)
    if [ "$now" != "$(before $i)" ]; then journal drift $i "$(flat "$now")"; give_up; fi
    armed || exit 4 # the timer has fired, and undoes
    journal intent $i || give_up
    armed || exit 4
    syslog "$(item_name $i) from $now to $(wanted $i)"
    run write_item $i
    code=$?
    now=$(value $i)
    if [ "$now" = "$(before $i)" ] && tolerated $i; then
      journal skipped $i "$(flat "$(cat "$DIR/complaint")")" || give_up
      continue
    fi
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

keeps() { # is anything of ours still there after a reboot?
  for i in $(written); do lasting "$i" && return; done
  return 1
}

newer() { # prints a later transaction that stands on an item of ours
  for other in "${DIR%/*}"/*/; do
    other=${other%/}
    [ "$other" != "$DIR" ] || continue
    case $(DIR=$other; state) in applied | confirmed | undo-failed) ;; *) continue ;; esac
    if grep -q "^[^ ]* begin [^ ]* $BOOT " "$other/journal"; then
      boots=one
      [ "$(began "$other")" -gt "$(began "$DIR")" ] || continue
    else # the later one by the date in its name
      boots=two
      [ "$(printf '%s\n' "$ID" "${other##*/}" | sort | tail -n 1)" != "$ID" ] || continue
    fi
    for i in $(written); do
      [ $boots = one ] || lasting "$i" || continue
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
  if ! same_boot && ! keeps; then
    journal state undone the reboot since then already undid it
    echo "the reboot since then already undid it"; exit 0
  fi
  later=$(newer)
  [ -z "$later" ] || refuse "transaction $later is newer and stands on this value: undo it first"
  [ "$CONFIRM" = 0 ] || disarm taken-back
  journal state undoing
  if undo_items; then journal state undone; echo undone; exit 0; fi
  journal state undo-failed
  echo "not everything could be undone: see $DIR/journal" >&2
  exit 5
}

case $1 in
  apply | undo | confirm | fire) "$1" ;;
  *) echo "usage: sh $0 apply | undo | confirm" >&2; exit 2 ;;
esac
"""
