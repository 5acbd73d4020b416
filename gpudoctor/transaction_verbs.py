"""The verbs of a transaction's script: apply, undo, confirm and fire, over its tables of items."""

# Each write runs in a subshell that holds the lock until it has ended, even if the runner is
# killed; what the write itself starts gets no lock (6>&-), so that no daemon keeps it. A read
# holds none: one that hangs stops nobody else.
VERBS = r"""
item() { item_name "$1"; before "$1"; wanted "$1"; tolerates "$1"; lasting "$1"; }

value() { # for $(…) only
  exec 6>&-
  trap - HUP INT QUIT TERM
  read_item "$1" 2>/dev/null </dev/null || printf '(unreadable)'
}

guarded() { # for $(…) only
  exec 6>&-
  trap - HUP INT QUIT TERM
  guard_item "$1" 2>/dev/null </dev/null
}

run() { # the text $1 of item $2; asked to end, it waits for the command under way and stops
  ( trap 'exit 143' HUP INT QUIT TERM; "$1" "$2" </dev/null >/dev/null 2>"$SAID" 6>&-; exit $? )
}

complain() { journal complaint "$1" "exit $2: $(flat "$(cat "$SAID")")"; }

written() { # items written and not yet taken back, newest first; then end, so that none is known
  awk '$2 == "intent" { open[$3] = 1 } $2 == "undone" || $2 == "skipped" { delete open[$3] }
    END { for (i in open) print i; print "end" }' "$DIR/journal" | sort -rn
}

cut= # the item whose write the timer had to end midway: it was as before just then
ours() { # is $now of item $1 what we wrote, or what the target made of our last write or undo?
  [ "$now" = "$wanted" ] || [ "$1" = "$cut" ] && return
  [ "${#now}" -lt 200 ] || return 1
  made=$(awk -v i="$1" '
    $2 == "begin" || ($2 == "done" && $3 == i) { made = "" }
    ($2 == "ignored" || $2 == "stuck") && $3 == i {
      made = "=" substr($0, index($0, " " $2 " " i " ") + length($2 i) + 3)
    }
    END { print made }' "$DIR/journal")
  [ "$made" = "=$(flat "$now")" ]
}

undo_item_now() { # newest first; a value that is neither ours nor the old one is left alone
  if [ "$now" = "$before" ] || [ "$now" = gone ]; then
    journal undone "$1"
    return 0
  fi
  if [ "$lasting" = no ] && ! same_boot; then
    journal undone "$1" by the reboot
    return 0
  fi
  if ! ours "$1"; then
    journal foreign "$1" "$(flat "$now")"
    return 1
  fi
  why=$(guarded "$1")
  if [ -n "$why" ]; then
    journal held "$1" "$(flat "$why")"
    return 1
  fi
  syslog "$name back to $before"
  run undo_item "$1"
  code=$?
  now=$(value "$1")
  if [ "$now" = "$before" ] || [ "$now" = gone ]; then
    journal undone "$1"
    return 0
  fi
  journal stuck "$1" "$(flat "$now")"
  complain "$1" "$code"
  return 1
}

take_back() { # ends as the state $1, or undo-failed; the rest says why. The timer stays till then
  end=$1
  shift
  journal state undoing "$@"
  all=$(written)
  case $all in *end) ;; *) end=undo-failed ;; esac
  for i in ${all%end}; do
    item "$i"
    now=$(value "$i")
    undo_item_now "$i" || end=undo-failed
  done
  if [ $end = undo-failed ]; then journal state undo-failed; else journal state $end "$@"; fi
  unmark
  [ $end != undo-failed ]
}

give_up() { # something did not take: everything goes back
  take_back failed && { echo "failed, and undone"; exit 4; }
  echo "failed, and not everything could be undone: see $DIR/journal" >&2
  exit 5
}

keep_script() { # the undo is on this disk before anything is written
  [ "$0" != "$DIR/transaction.sh" ] || return 0
  if [ -e "$DIR/transaction.sh" ]; then
    cmp -s "$0" "$DIR/transaction.sh" || refuse "$DIR/transaction.sh is another script"
  else
    dd if="$0" of="$DIR/transaction.sh" conv=fsync 2>/dev/null ||
      refuse "the undo could not be put on disk in $DIR"
  fi
}

unmoved() { # every value is as it was planned from
  i=0
  while [ $((i += 1)) -le $COUNT ]; do
    before $i
    now=$(value $i)
    [ "$now" = "$before" ] && continue
    item_name $i
    journal drift $i "$(flat "$now")"
    refuse "$name is now $now, and was $before when this was planned: plan again"
  done
}

apply() {
  be_root
  take_lock 1
  case $(state) in '' | undone | failed) ;; *) refuse "this transaction is already $(state)" ;; esac
  keep_script
  journal begin "$(utc)" "$BOOT" "$OPERATOR" && journal_steps ||
    deny "$DIR/journal cannot be written"
  same_boot || refuse "the machine has rebooted since this was planned: plan again"
  other=$(waiting)
  [ -z "$other" ] ||
    refuse "transaction $other still waits to be confirmed: confirm it, or roll it back"
  unmoved
  arm || { unmark; refuse "the timer that would undo this could not be started"; }
  journal state applying || give_up
  i=0
  while [ $((i += 1)) -le $COUNT ]; do apply_item $i; done
  armed || exit 4
  [ "$(written)" != end ] || give_up # every write was skipped
  journal state applied || give_up
  echo applied
}

apply_item() {
  item "$1"
  now=$(value "$1")
  if [ "$now" != "$before" ]; then journal drift "$1" "$(flat "$now")"; give_up; fi
  armed || exit 4 # the timer has fired, and undoes
  journal intent "$1" || give_up
  armed || exit 4
  syslog "$name from $before to $wanted"
  run write_item "$1"
  code=$?
  now=$(value "$1")
  if [ "$now" = "$wanted" ]; then
    journal "done" "$1" || give_up
  elif [ "$now" = "$before" ] && [ -n "$tolerates" ] && grep -qE -e "$tolerates" "$SAID"; then
    journal skipped "$1" "$(flat "$(cat "$SAID")")" || give_up
  else
    journal ignored "$1" "$(flat "$now")"
    complain "$1" "$code"
    give_up
  fi
}

begun() { # sets when the last run of the transaction in the folder $1 began, and in which boot
  set -- $(sed -n 's/^\([0-9]*\)\.\([0-9]*\) begin /\1\2 /p' "$1/journal" | tail -n 1)
  up=$1 date=$2 boot=$3
}

names() { # of the items written; with an argument only of what outlives a reboot
  for i in $(written); do
    [ "$i" != end ] || continue
    item "$i"
    [ -n "$1" ] && [ "$lasting" = no ] || printf '# item: %s\n' "$name"
  done
}

newer() { # prints a later transaction that stands on an item of ours
  begun "$DIR"
  our_up=$up our_date=$date our_boot=$boot all=$(names) kept=$(names lasting)
  for other in "${DIR%/*}"/*/; do
    other=${other%/}
    [ "$other" != "$DIR" ] || continue
    case $(DIR=$other; state) in '' | planned | undone | failed) continue ;; esac
    begun "$other"
    if [ "$boot" = "$our_boot" ]; then
      mine=$all
      [ "$up" -gt "$our_up" ] || continue
    else
      mine=$kept
      [ "$(printf '%s\n' "$our_date" "$date" | sort | tail -n 1)" != "$our_date" ] || continue
    fi
    if [ -n "$mine" ] && grep -qxF -e "$mine" "$other/transaction.sh"; then
      echo "${other##*/}"
      return
    fi
  done
}

undo() {
  be_root
  take_lock 30
  case $(state) in
    '') unmark; journal state undone nothing was applied; echo "nothing was applied"; exit 0 ;;
    undone | failed)
      unmark
      journal state "$(state)" nothing is left to undo
      echo "nothing is left to undo"; exit 0 ;;
  esac
  if ! same_boot && [ -z "$(names lasting)" ]; then
    journal state undone the reboot since then already undid it
    unmark
    echo "the reboot since then already undid it"; exit 0
  fi
  other=$(newer)
  [ -z "$other" ] || refuse "transaction $other is newer and stands on this value: undo it first"
  take_back undone && { echo undone; exit 0; }
  echo "not everything could be undone: see $DIR/journal" >&2
  exit 5
}

to_be_confirmed() {
  case $(state) in
    applied) ;;
    confirmed) echo "it is confirmed already"; exit 0 ;;
    '') deny "nothing was applied" ;;
    *) deny "this transaction is $(state), not applied: there is nothing to confirm" ;;
  esac
}

confirm() { # the timer goes first, without the lock: a fire that waits for it has lost
  be_root
  to_be_confirmed
  if ! same_boot; then
    [ -n "$(names lasting)" ] || deny "the reboot since then already undid it"
  elif [ "$CONFIRM" != 0 ]; then
    mv "$RUN/$ID.armed" "$RUN/$ID.kept" 2>/dev/null || [ -e "$RUN/$ID.kept" ] ||
      [ "$(state)" = confirmed ] || deny "too late: it is being taken back"
  fi
  wait_for_lock 30 || deny "busy: $(cat "$RUN/owner"). Its timer is off: confirm it again"
  to_be_confirmed
  journal state confirmed "$(utc)" || deny "it stays, but $DIR/journal cannot be written"
  unmark
  echo confirmed
}

fire() { # from the rename on no step starts; one under way gets 5 s, then its runner is ended
  be_root
  mv "$RUN/$ID.armed" "$RUN/$ID.fired" 2>/dev/null || exit 0
  BY="the timer of $OPERATOR"
  journal fired
  seconds
  hangs=$((seconds + 5)) limit=$((seconds + 600))
  until lock; do
    seconds
    [ "$seconds" -lt "$hangs" ] || { end_runner; hangs=$((seconds + 5)); }
    if [ "$seconds" -ge "$limit" ]; then
      journal state undo-failed what is under way does not end
      exit 5
    fi
    pause
  done
  hold
  read -r timer 2>/dev/null <"$RUN/$ID.timer" && [ "$timer" = $$ ] && rm "$RUN/$ID.timer"
  case $(state) in '' | undone | failed) unmark; exit 0 ;; esac
  cut=$(awk '$2 == "intent" { cut = $3 } $2 == "done" || $2 == "ignored" || $2 == "skipped" {
    cut = "" } END { print cut }' "$DIR/journal")
  take_back undone nobody confirmed within "$CONFIRM" s || exit 5
}

case $1 in
  apply | undo | confirm | fire) "$1" ;;
  *) echo "usage: sh $0 apply | undo | confirm" >&2; exit 2 ;;
esac
"""
