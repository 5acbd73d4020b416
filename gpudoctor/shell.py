"""Shell text: quoting, and the scripts that read files and list entries in bulk."""

import re
import shlex
from collections.abc import Sequence

_PLAIN_GLOB = re.compile(r"[A-Za-z0-9_./:*?\[\],@%+=-]+")


def quote(value: str) -> str:
    """Quote any value for sh."""
    return shlex.quote(value)


def glob(pattern: str) -> str:
    """Return a path pattern for sh: globs stay active, anything unusual is quoted whole."""
    return pattern if _PLAIN_GLOB.fullmatch(pattern) else shlex.quote(pattern)


def our_command(verb: str, *words: str) -> str:
    """Return the command line of gpudoctor for the host it runs on."""
    return shlex.join(("gpudoctor", verb, *words))


def read_files(patterns: Sequence[str], cap: int) -> str:
    """Return sh text that prints each file's first `cap` bytes under a `==> path <==` header."""
    return f"head -v -c {int(cap)} -- {' '.join(glob(p) for p in patterns)}"


def read_plain_files(patterns: Sequence[str], cap: int) -> str:
    """Return the text of `read_files` that opens no link, device or pipe, and complains of each."""
    names = " ".join(glob(p) for p in patterns)
    return (
        f'for f in {names};do if [ -L "$f" ]||{{ [ -e "$f" ]&&[ ! -f "$f" ];}};then '
        'printf "head: cannot open \'%s\' for reading: not a plain file\\n" "$f" >&2;'
        f'else set -- "$@" "$f";fi;done;[ $# = 0 ]||head -v -c {int(cap)} -- "$@"'
    )


def list_entries(patterns: Sequence[str]) -> str:
    """Return sh text that prints one `ls -ldn` line an entry, symbolic links unresolved."""
    return f"ls -ldn -- {' '.join(glob(p) for p in patterns)}"
