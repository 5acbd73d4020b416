"""What every verb of a transaction's script stands on: its journal, the lock and the timer."""

# Journal lines are "UPTIME WORD …", on disk (fsync) before the next thing happens. A line that a
# full disk or a crash tore is ended before the next one, so that it never swallows that.
# A process is known by its pid and its start time: a pid alone may be somebody else's by now.
FRAME = r"""
torn=
journal() {
  read -r uptime _ </proc/uptime
  printf "$torn%s %s\n" "$uptime" "$*" |
    dd of="$DIR/journal" oflag=append conv=notrunc,fsync 2>/dev/null && torn= ||
    { torn='\n'; false; }
}
flat() { printf %s "$1" | tr -c '\040-\176' ' ' | cut -c 1-200; }
syslog() { logger -t gpudoctor -- "$BY, transaction $ID: $1" >/dev/null 2>&1 6>&- & }
deny() { printf 'refused: %s\n' "$(flat "$1")" >&2; exit 1; }
refuse() { journal refused "@${GPUDOCTOR_RUN:-hand} $(flat "$1")"; deny "$1"; }
state() { sed -n 's/^[^ ]* state \([a-z-]*\).*/\1/p' "$DIR/journal" 2>/dev/null | tail -n 1; }
utc() { date -u +%Y-%m-%dT%H:%M:%SZ; }
seconds() { read -r uptime _ </proc/uptime; seconds=${uptime%.*}; }
pause() { sleep 0.1 2>/dev/null || sleep 1; }
same_boot() { read -r booted </proc/sys/kernel/random/boot_id; [ "$booted" = "$BOOT" ]; }

be_root() {
  [ "$(id -u)" = 0 ] || deny "this needs root"
  mkdir -p "$RUN" "$DIR" || exit 1
  BY=$OPERATOR
  [ -z "$GPUDOCTOR_BY" ] || BY=$(flat "$GPUDOCTOR_BY")
  command -v flock >/dev/null || refuse "flock is not installed here"
}

lock() { # a lock file that `clean` has removed since is none
  exec 6>>"$RUN/lock"
  flock -n 6 && [ /proc/self/fd/6 -ef "$RUN/lock" ]
}

wait_for_lock() { # at most $1 seconds
  seconds
  end=$((seconds + $1))
  until lock; do
    seconds
    [ "$seconds" -lt "$end" ] || return 1
    pause
  done
  hold
}

take_lock() { wait_for_lock "$1" || refuse "busy: $(cat "$RUN/owner" 2>/dev/null)"; }

hold() { # the lock is ours: say so, and begin a line of our own in the journal
  echo "$BY since $(utc), transaction $ID" >"$RUN/owner"
  echo "$$ $(started $$)" >"$DIR/runner"
  trap '' HUP INT QUIT TERM
  [ ! -s "$DIR/journal" ] || torn='\n'
  SAID=$RUN/said # not in $DIR: that disk may be full or read-only when this is undone
  true >"$SAID" || SAID=/dev/null
}

started() { # of the process $1, in ticks since the boot
  read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
  set -- ${stat##*) }
  echo "${20}"
}

running() { # is the last runner still there? sets its pid
  read -r runner since 2>/dev/null <"$DIR/runner" && [ "$(started "$runner")" = "$since" ]
}

below() { # prints what is below the process $1, but for us; status escapes what is in names
  grep -s '^PPid:' /proc/[0-9]*/status | awk -F '[/: \t]+' -v top="$1" -v us=$$ '
    { parent[$3] = $6 }
    END {
      delete parent[us]
      for (pid in parent) {
        p = parent[pid]
        for (deep = 0; deep < 99 && p != top && (p in parent); deep++) p = parent[p]
        if (p == top) print pid
      }
    }'
}

end_runner() { # a step hangs: its runner, a shell, is killed; what it waits for is asked to end
  [ "$(state)" = applying ] && running || return 0
  steps=$(below "$runner")
  kill -KILL "$runner"
  [ -z "$steps" ] || kill -TERM $steps 2>/dev/null
}

# The timer. Its mark is $RUN/ID.armed; whoever renames it decides: confirm or fire.
armed() { [ "$CONFIRM" = 0 ] || [ -e "$RUN/$ID.armed" ]; }

arm() { # before the first write; the mark first, so that the timer never finds none
  [ "$CONFIRM" -gt 0 ] || return 0
  echo "$CONFIRM" >"$RUN/$ID.armed" || return 1
  if [ -d /run/systemd/system ] && systemd-run --quiet --collect --unit="gpudoctor-$ID" \
    --on-active="$CONFIRM" --timer-property=AccuracySec=100ms --property=KillMode=process \
    sh "$DIR/transaction.sh" fire </dev/null >/dev/null 2>&1 6>&-; then
    journal armed "$CONFIRM" systemd
    return
  fi
  ( trap - HUP INT QUIT TERM
    exec setsid sh -c 'echo $$ >"$3"; sleep "$1"; exec sh "$2" fire' timer "$CONFIRM" \
      "$DIR/transaction.sh" "$RUN/$ID.timer" </dev/null >/dev/null 2>&1 6>&- ) &
  seconds
  end=$((seconds + 5))
  until [ -s "$RUN/$ID.timer" ]; do
    seconds
    [ "$seconds" -lt "$end" ] || return 1
    pause
  done
  journal armed "$CONFIRM" session
}

stop_timer() { # of the transaction $1
  [ ! -d /run/systemd/system ] || systemctl stop "gpudoctor-$1.timer" >/dev/null 2>&1 6>&-
  if read -r timer 2>/dev/null <"$RUN/$1.timer" &&
    tr '\0' ' ' 2>/dev/null <"/proc/$timer/cmdline" | grep -qF "/$1/transaction.sh"; then
    kill -TERM -"$timer" 2>/dev/null
  fi
  rm -f "$RUN/$1.timer"
}

unmark() { # nothing waits any more; a timer that was faster finds nothing left to do
  [ "$CONFIRM" = 0 ] || stop_timer "$ID"
  rm -f "$RUN/$ID".*
}

waiting() { # prints another transaction whose timer runs; where nothing was written it is stopped
  for mark in "$RUN"/*.armed; do
    [ -e "$mark" ] || continue
    other=${mark##*/}
    other=${other%.armed}
    case $(DIR=${DIR%/*}/$other; state) in
      '' | undone | failed) stop_timer "$other"; rm -f "$mark" ;;
      *)
        who=$(sed -n 's/^[^ ]* begin [^ ]* [^ ]* //p' "${DIR%/*}/$other/journal" | tail -n 1)
        echo "$other of $who"
        return ;;
    esac
  done
}
"""
