"""The `sh` text of a session: what is sent to a side before and between the jobs.

Jobs come in on stdin, one line each, and run beside each other; answers go out as frames. The end
of stdin kills whatever carries our environment mark. No file, fifo or temporary is made: the output
mutex is an anonymous pipe behind fd 9. Works in dash, bash and busybox ash.
"""

import secrets
import shlex
from dataclasses import dataclass, field
from enum import Enum

# fd 8: the jobs; fd 9: the mutex pipe; children get /dev/null as stdin.
BOOT = (
    "exec 7<&0;:|{ exec 9<>/proc/self/fd/0 8<&7 7<&- </dev/null;"
    'while IFS= read -r l<&8;do eval "$l";done;Q;}'
)

# J id limit out-cap err-cap how cmd. The frame: "\nMARK id start end length\n", then the body:
# base64 of the output, "=", base64 of "stderr:exit", or that as it is where nothing was said.
# Times are seconds of uptime. Processes are few: a slow machine starts thirty a second.
_JOB = (
    'J(){ ( read a _ </proc/uptime; o=$( { e=$( { { { $5 "$2" sh -c "$6" 2>&5 5>&- 6>&- 9>&- 8>&-; '
    'echo ":$?" >&5; } | head -c "$3" | base64 >&6; } 5>&1 9>&- 8>&-; } '
    '| tail -c "$4" ); case $e in :[0-9]|:[0-9][0-9]|:[0-9][0-9][0-9]) ;; '
    '*) e=$(printf %s "$e" | base64);; esac; printf \'=%s\' "$e"; } 6>&1 ); '
    "read b _ </proc/uptime; "
    "read _ <&9; printf '\\n%s %s %s %s %s\\n%s' "
    '"$GPD" "$1" "$a" "$b" "${#o}" "$o"; echo >&9 ) & }'
)

# Stdin has ended: end gentle tools by SIGTERM only, and everything else that carries our mark.
_QUIT = (
    "Q(){ exec >/dev/null 2>&1; trap '' TERM HUP; "
    'for p in $(grep -las "GPG=$GPD" /proc/[0-9]*/environ); do p=${p#/proc/}; '
    "kill -TERM ${p%/environ}; done; "
    "for s in TERM KILL KILL KILL; do k=; "
    'for p in $(grep -las "GPD=$GPD" /proc/[0-9]*/environ); do p=${p#/proc/}; '
    'p=${p%/environ}; k="$k $p"; done; '
    "for p in $k; do [ $p = $$ ] || [ $p = $M ] || kill -$s $p; done; "
    "[ $s = TERM ] && sleep 0.2; done; exit 0; }"
)

# F: firmly. G: not ours to kill: another mark, and no -k: nvidia-smi killed on a sick GPU can
# freeze the host. It runs in a pipe's own process, which alone forgets the first mark.
_HOW = 'F(){ timeout -k 1 "$@"; }; G(){ g=$GPD; unset GPD; GPG=$g timeout "$@"; }'
# What every text of ours runs with.
ENVIRONMENT = (
    'export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:"$PATH"'
)
# Sets u to our effective user id by no process.
TELL_UID = (
    "while read -r k _ u _;do case $k in Uid:)break;;esac;done 2>/dev/null </proc/self/status;"
    '[ "$k" = Uid: ]||u=$(id -u)'
)


def prelude() -> str:
    """Return the lines that define the session; the last prints the hello frame with our uid."""
    return "\n".join(
        (
            ENVIRONMENT,
            "echo >&9",
            _HOW,
            _JOB,
            _QUIT,
            "trap '' HUP",
            "read M _ </proc/self/stat",
            "m=,; for t in base64 grep head id tail timeout; "
            "do command -v $t >/dev/null || m=$m$t,; done",
            TELL_UID,
            'printf \'\\n%s 0 %s %s 0\\n\' "$GPD" "${u:--}" "$m"',
            "",
        )
    )


def job(number: int, command: str, limit: float, cap: int, err_cap: int, gentle: bool) -> str:
    """Return the line that starts one job; `command` is one line of sh."""
    if "\n" in command:
        raise ValueError("a job is one line")
    limits = f"{limit:g} {cap + 1} {err_cap}"
    return f"J {number} {limits} {'G' if gentle else 'F'} {shlex.quote(command)}\n"


class Sudo(Enum):
    """How a session becomes root where the login is not."""

    NEVER = "never"
    QUIET = "quiet"
    PASSWORD = "password"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What sudo asks with, and what the shell behind it says; both unlike their command text.

    A login file with `set -x` shows us our own command line, so the text has `%%` where the real
    prompt has `%`: only sudo and printf print it that way.
    """

    nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def text(self) -> str:
        """Return sudo's -p argument."""
        return f"ask%%{self.nonce}"

    @property
    def asked(self) -> bytes:
        """Return what sudo prints when it wants the password."""
        return f"ask%{self.nonce}".encode()

    @property
    def ready(self) -> bytes:
        """Return what the shell prints on stderr once it reads its input."""
        return f"ready%{self.nonce}".encode()


def boot(mark: str, prompt: Prompt | None = None) -> str:
    """Return sh text that becomes a session carrying `mark` in its environment.

    The mark must be there at exec: a forked subshell shows its parent's environment of that moment.
    With a prompt it first says on stderr that it is ready, so that no password is sent to it.
    """
    ready = f'printf "ready%%{prompt.nonce}" >&2;' if prompt else ""
    return f"{ready}export GPD={mark};exec sh -c {shlex.quote(BOOT)}"


_AS_USER = 'eval "$0"'
# The very command is tried first: sudoers may allow some commands and no shell. sudo may hang.
_AS_ROOT = 'if timeout 8 sudo -n sh -c : 2>/dev/null;then exec sudo -n sh -c "$0";fi;eval "$0"'


def boot_command(inner: str, sudo: Sudo, prompt: Prompt | None = None) -> str:
    """Return the login shell's command line that starts `inner` (sh text), as root if it may.

    Works in any login shell (fish and tcsh too): only single quotes, no backslash inside them.
    """
    asking = prompt or Prompt()
    become = {
        Sudo.NEVER: _AS_USER,
        Sudo.QUIET: _AS_ROOT,
        Sudo.PASSWORD: f'exec sudo -S -p {asking.text} sh -c "$0"',
    }[sudo]
    first = f'{TELL_UID};if [ "$u" = 0 ];then {_AS_USER};else {become};fi'
    return f"exec sh -c {shlex.quote(first)} {shlex.quote(inner)}"
