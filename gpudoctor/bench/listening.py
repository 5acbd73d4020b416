"""Where an engine's processes listen: their sockets against the table of their own network."""

import re
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from gpudoctor.formats.engines import Engine
from gpudoctor.formats.launch_flags import parse_flags
from gpudoctor.formats.serving import Server

_PORTS = {
    Engine.SGLANG: (30000,),
    Engine.VLLM: (8000,),
    Engine.LLAMA: (8080,),
    Engine.TGI: (3000, 80),
    Engine.OLLAMA: (11434,),
    Engine.TENSORRT: (8000,),
}
_MOST_PORTS = 6
_ENTRY = re.compile(r"l ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) (\d+)")

# Pids of a server and of all below it, by the parents in every process's stat.
_TREE = (
    "cat /proc/[0-9]*/stat 2>/dev/null | awk -v r='{pids}' "
    '\'{{p=$1;sub(/.*[)] /,"");q[p]=$2}} END{{n=split(r,a," ");for(i=1;i<=n;i++)s[a[i]]=1;'
    "do{{m=0;for(p in q)if(!(p in s)&&(q[p] in s)){{s[p]=1;m=1}}}}while(m);for(p in s)print p}}'"
)
_TEXT = (
    "printf 'N %s\\n' \"$(readlink /proc/self/ns/net)\";"
    "printf 'n %s\\n' \"$(readlink /proc/{pid}/ns/net 2>/dev/null)\";"
    "for p in $(" + _TREE + ");do ls -l /proc/$p/fd 2>/dev/null;done "
    "| sed -n 's/.*socket:\\[\\([0-9]*\\)\\]$/i \\1/p' | head -n 20000;"
    'for f in tcp tcp6;do awk \'$4=="0A"{{print "l",$2,$10}}\' /proc/{pid}/net/$f 2>/dev/null;'
    "done | head -n 2000;echo end"
)


@dataclass(frozen=True, slots=True)
class Listening:
    """`places` are (address, port) of the engine's own listening sockets, None where unreadable.

    `apart`: its network is not the host's; None where that could not be read.
    """

    places: tuple[tuple[str, int], ...] | None = None
    apart: bool | None = None


def listening_text(server: Server) -> str:
    """Return one line of sh that prints what `parse_listening` reads; as root it says most."""
    pids = " ".join(str(int(p)) for p in (server.pid, *(w.pid for w in server.workers)))
    return _TEXT.format(pid=int(server.pid), pids=pids)


def parse_listening(text: str) -> Listening:
    """Parse the tagged lines; without the inodes of any socket nothing is known of them."""
    lines = text.splitlines()
    named = {line[0]: line[2:] for line in lines if line[:2] in {"N ", "n "}}
    own, its = named.get("N", ""), named.get("n", "")
    apart = own != its if own and its else None
    inodes = {line[2:] for line in lines if line.startswith("i ")}
    if not inodes or "end" not in lines:
        return Listening(None, apart)
    entries = (match for line in lines if (match := _ENTRY.fullmatch(line)))
    places = {(_address(e[1]), int(e[2], 16)) for e in entries if e[3] in inodes}
    return Listening(tuple(sorted(places, key=lambda place: place[1])), apart)


def _address(digits: str) -> str:
    """Return an address of /proc/net/tcp: words of four bytes, lowest byte first."""
    words = [bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8)]
    address = ip_address(b"".join(words))
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def addresses(server: Server, listening: Listening) -> list[str]:
    """Return `host:port` to ask, likeliest first: the named or usual port where it listens there.

    Where the sockets could not be read: the named port, else the usual ones.
    """
    wanted = _wanted(server)
    if listening.places is None:
        host = _host(parse_flags(server.arguments).get("host", "hostname") or "")
        return [f"{host}:{port}" for port in wanted]
    likely = [place for port in wanted for place in listening.places if place[1] == port]
    return [
        f"{_host(address)}:{port}" for address, port in (likely or listening.places)[:_MOST_PORTS]
    ]


def _wanted(server: Server) -> tuple[int, ...]:
    named = parse_flags(server.arguments).number("port", "p")
    if server.engine is Engine.OLLAMA and isinstance(server.env, dict):
        port = server.env.get("OLLAMA_HOST", "").rpartition(":")[2]
        named = int(port) if re.fullmatch(r"\d{1,5}", port) else named
    if named is not None and 0 < named < 65536:
        return (named,)
    return _PORTS[server.engine]


def _host(address: str) -> str:
    """Return how to reach an address that is listened at: any address, by loopback."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "127.0.0.1"
    if parsed.is_unspecified:
        return "127.0.0.1"
    return f"[{parsed}]" if isinstance(parsed, IPv6Address) else str(parsed)
