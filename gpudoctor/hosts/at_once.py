"""Two texts of sh on a host by one exec, without a session: for a look that is over in a second.

A session costs a slow machine half a second before its first job. What this reads ends by itself:
it is killed at the end of its stdin, and by the target after its limit.
"""

import asyncio
import secrets
from dataclasses import dataclass

from gpudoctor.hosts.channel import Reading
from gpudoctor.hosts.session import JobAnswer
from gpudoctor.hosts.session_script import ENVIRONMENT, TELL_UID, Sudo, boot_command
from gpudoctor.hosts.target import LiveTarget
from gpudoctor.shell import quote
from gpudoctor.text import clean

# A kernel takes 128 KiB as one argument; the login shell, and sudo, pass it on whole.
_LONGEST = 120_000
_ROOT = b"0"
_GRACE_SECONDS = 5.0
_ERR_CAP = 1 << 18


@dataclass(frozen=True, slots=True)
class AtOnce:
    """What both texts printed; `user` is root, or a user's number."""

    user: str
    first: JobAnswer
    second: bytes


async def at_once(
    target: LiveTarget, first: str, second: str, cap: int, limit: float
) -> AtOnce | None:
    """Run both texts beside each other, `cap` in bytes of output, `limit` in seconds.

    Takes a target that is connected. Returns None where only a session can ask: for a password,
    for more than a command line holds, or where no whole answer came. Complaints of `second` are
    not kept. An empty text prints nothing. Raises HostUnreachable.
    """
    mark = secrets.token_hex(8)
    texts = (
        "{ while read -r _; do :; done; kill -TERM 0; } <&3 >/dev/null 2>&1 & exec 3<&-; "
        f"{TELL_UID}; printf '\\n%s %s\\n' {mark} \"$u\"; {{ {second or ':'}; }} 2>/dev/null | "
        f"{{ {first or ':'}; printf '\\n%s\\n' {mark}; printf '\\n%s\\n' {mark} >&2; "
        "while IFS= read -r l; do printf '%s\\n' \"$l\"; done; "
        f"printf '\\n%s\\n' {mark}; }}"
    )
    command = f"{ENVIRONMENT}; exec 3<&0 </dev/null timeout -k 1 {limit:g} sh -c {quote(texts)}"
    if target.asks_password or len(boot_command(command, Sudo.QUIET)) > _LONGEST:
        return None
    channel = await target.open(command, as_root=True)
    end = f"\n{mark}\n".encode()
    try:
        async with asyncio.timeout(limit + _GRACE_SECONDS):
            out, err = await asyncio.gather(
                _read(channel.stdout, cap, end, 2), _read(channel.stderr, _ERR_CAP, end, 1)
            )
    except (TimeoutError, OSError):
        return None
    finally:
        await asyncio.shield(channel.close())
    found = _parts(out, mark)
    if found is None or end not in err:
        return None
    uid, told, second_told = found
    user = "root" if uid == _ROOT else f"uid {uid.decode()}"
    said = clean(err.partition(end)[0])
    return AtOnce(user, JobAnswer(told, said), second_told)


def _parts(out: bytes, mark: str) -> tuple[bytes, bytes, bytes] | None:
    """Return the uid and what each text printed; None where a part is missing."""
    end = f"\n{mark}\n".encode()
    uid, _, rest = out.partition(f"\n{mark} ".encode())[2].partition(b"\n")
    first, _, rest = rest.partition(end)
    second, whole, _ = rest.partition(end)
    return (uid, first, second) if whole and uid.isdigit() else None


async def _read(stream: Reading, cap: int, end: bytes, times: int) -> bytes:
    """Return a stream up to an end that comes so many times; what is beyond the cap is dropped.

    It may stay open after that: a login file can leave something behind that holds it.
    """
    kept, seen = bytearray(), 0
    while seen < times and (data := await stream.read(1 << 16)):
        kept += data[: max(0, cap - len(kept))]
        seen += kept[-(len(data) + len(end) - 1) :].count(end)
    return bytes(kept)
