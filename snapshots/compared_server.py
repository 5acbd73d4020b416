"""Values of the serving engines: how each was started, its limits, libraries and packages."""

from collections import Counter
from collections.abc import Iterator, Mapping

from gpudoctor.formats.launch_flags import parse_flags
from gpudoctor.formats.pip_metadata import normalise, parse_metadata, parse_origin, parse_torch
from gpudoctor.formats.serving import Server, parse_scan, servers_of
from gpudoctor.model import Unknown
from gpudoctor.snapshots.compared_host import limit_rows
from gpudoctor.snapshots.compared_row import INVENTORY, SETTING, Answer, Parser, Row


def called(text: str) -> dict[int, str]:
    """Return what each server of a scan is called, by the pid of its launcher.

    Pids are another every time: a server is known by its engine, and among several by its port.
    """
    found = servers_of(parse_scan(text))
    many = Counter(server.engine for server in found)
    names: dict[int, str] = {}
    for server in found:
        port = parse_flags(server.arguments).get("port") or "default port"
        name = f"{server.engine}, {port}" if many[server.engine] > 1 else str(server.engine)
        again = sum(other.partition(" (")[0] == name for other in names.values())
        names[server.pid] = f"{name} ({again + 1})" if again else name
    return names


def servers(answer: Answer) -> Iterator[Row]:
    """Yield each server's arguments, environment, limits, CPUs and container; pids are volatile."""
    scan = parse_scan(answer.text)
    if not scan.complete:
        raise ValueError("the scan of the processes ended early")
    for server in servers_of(scan):
        of = answer.servers[server.pid]
        yield Row(of, "serves", INVENTORY, "yes")
        yield Row(of, "container", INVENTORY, str(server.container or "none"))
        status = scan.processes[server.pid].status if server.pid in scan.processes else {}
        yield from _started(of, server, status)


def _started(of: str, server: Server, status: Mapping[str, str]) -> Iterator[Row]:
    flags = parse_flags(server.arguments)
    for name, value in flags.values.items():
        yield Row(of, f"--{name}", SETTING, value or "given")
    if flags.positional:
        yield Row(of, "arguments", SETTING, " ".join(flags.positional))
    if cpus := status.get("Cpus_allowed_list"):
        yield Row(of, "CPUs that it may use", SETTING, cpus)
    if isinstance(server.env, Unknown):
        yield Row(of, "environment", SETTING, server.env, part=f"{of} environment")
    else:
        for name, value in server.env.items():
            yield Row(of, f"environment {name}", SETTING, value, part=f"{of} environment")
    if server.limits:
        yield from limit_rows(of, "\n".join(server.limits))


def nccl_conf(answer: Answer) -> Iterator[Row]:
    """Yield the settings of an nccl.conf in a server's file system."""
    of = f"{answer.server} /{answer.parts[-1]}.conf"
    for line in answer.text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.lstrip().startswith("#"):
            yield Row(of, key.strip(), SETTING, value.strip())


def package(answer: Answer) -> Iterator[Row]:
    """Yield the version of an installed Python package."""
    name, version = parse_metadata(answer.text)
    yield Row(f"{answer.server} package", name, INVENTORY, version)


def torch(answer: Answer) -> Iterator[Row]:
    """Yield torch's build and the CUDA that it was built for."""
    build = parse_torch(answer.text)
    text = f"{build.version}, CUDA {build.cuda or 'none'}"
    yield Row(f"{answer.server} package", "torch build", INVENTORY, text)


def origin(answer: Answer) -> Iterator[Row]:
    """Yield where a package that came from no index came from."""
    folder = answer.path.rsplit("/", 2)[-2]
    name = normalise(folder.split("-", 1)[0])
    text = parse_origin(answer.text) or "not told"
    yield Row(f"{answer.server} package", f"{name} origin", INVENTORY, text)


PARSERS: dict[str, Parser] = {
    "servers": servers,
    "nccl_conf": nccl_conf,
    "package": package,
    "torch": torch,
    "origin": origin,
}
