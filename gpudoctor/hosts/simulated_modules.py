"""The kernel modules of a simulated machine: those that its modules.dep names can be loaded."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gpudoctor.hosts.simulated_shell import NotSimulated
from gpudoctor.hosts.simulated_tools import Output, Program

if TYPE_CHECKING:
    from gpudoctor.hosts.simulated import SimulatedMachine

_LISTED = "/proc/modules"
_NODES = {"/dev/nvidia-uvm": 0, "/dev/nvidia-uvm-tools": 1}


def _modprobe(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """`NAME` loads a module with those it needs; `-D NAME` tells their files."""
    shows, name = argv[0] == "-D", argv[-1]
    if len(argv) != 1 + shows or name.startswith("-"):
        raise NotSimulated(f"modprobe {' '.join(argv)}")
    files = _files(machine, name)
    if not files:
        folder = f"/lib/modules/{machine.text('/proc/sys/kernel/osrelease') or ''}"
        said = f"modprobe: FATAL: Module {name} not found in directory {folder}\n"
        return Output(err=said, exit=1)
    if shows:
        return Output("".join(f"insmod {file} \n" for file in files))
    for file in files:
        if _name(file) not in _loaded(machine):
            _load(machine, _name(file), [_name(f) for f in _files(machine, _name(file))[:-1]])
    return Output()


def _files(machine: "SimulatedMachine", name: str) -> list[str]:
    """Return the files of a module and of those it needs, in the order they are loaded."""
    for path in machine.paths():
        if not path.startswith("/lib/modules/") or not path.endswith("/modules.dep"):
            continue
        for line in (machine.text(path) or "").splitlines():
            file, _, needs = line.partition(":")
            if _name(file) == name.replace("-", "_"):
                folder = path.removesuffix("modules.dep")
                return [f"{folder}{each}" for each in (*reversed(needs.split()), file)]
    return []


def _name(file: str) -> str:
    return file.rpartition("/")[2].partition(".ko")[0].replace("-", "_")


def _loaded(machine: "SimulatedMachine") -> dict[str, list[str]]:
    """Return the words of /proc/modules by module, the newest first."""
    lines = (machine.text(_LISTED) or "").splitlines()
    return {line.split()[0]: line.split() for line in lines}


def _load(machine: "SimulatedMachine", name: str, needs: Sequence[str]) -> None:
    listed = {name: [name, "16384", "0", "-", "Live", "0x0000000000000000"]} | _loaded(machine)
    for other in needs:
        listed[other][3] = listed[other][3].removeprefix("-") + f"{name},"
    _list(machine, listed)
    machine.listings[f"/sys/module/{name}"] = f"drwxr-xr-x 6 0 0 0 Jan  5 08:00 {name}".encode()


def _list(machine: "SimulatedMachine", listed: dict[str, list[str]]) -> None:
    """Write /proc/modules and every refcnt: users of each module are those that need it."""
    for words in listed.values():
        words[2] = str(words[3].count(",")) if words[3] != "-" else words[2]
        machine.files[f"/sys/module/{words[0]}/refcnt"] = f"{words[2]}\n".encode()
    text = "".join(f"{' '.join(words)}\n" for words in listed.values())
    machine.files[_LISTED] = text.encode()


def _rmmod(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """Remove the modules one after the other; one in use stays."""
    err = ""
    for name in argv:
        listed = _loaded(machine)
        if name not in listed:
            err += f"rmmod: ERROR: Module {name} is not currently loaded\n"
        elif listed[name][2] != "0":
            err += f"rmmod: ERROR: Module {name} is in use\n"
        else:
            _unload(machine, name, listed)
    return Output(err=err, exit=int(bool(err)))


def _unload(machine: "SimulatedMachine", name: str, listed: dict[str, list[str]]) -> None:
    del listed[name]
    for words in listed.values():
        users = [user for user in words[3].split(",") if user not in {"", "-", name}]
        if f"{name}," in words[3]:
            words[2], words[3] = "0", "".join(f"{user}," for user in users) or "-"
    _list(machine, listed)
    for path in (f"/sys/module/{name}/refcnt", f"/sys/module/{name}"):
        machine.files.pop(path, None)
        machine.listings.pop(path, None)


def _nvidia_modprobe(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """`-u -c=0`: load nvidia_uvm and make its two nodes."""
    if list(argv) != ["-u", "-c=0"]:
        raise NotSimulated(f"nvidia-modprobe {' '.join(argv)}")
    if not any(path.startswith("/sys/module/nvidia_uvm/") for path in machine.paths()):
        done = _modprobe(machine, ["nvidia_uvm"], "")
        if done.exit:
            return done
    major = next(_majors(machine), "508")
    for path, minor in _NODES.items():
        made = f"crw-rw-rw- 1 0 0 {major}, {minor} Jan  5 08:00 {path}"
        machine.listings.setdefault(path, made.encode())
    return Output()


def _majors(machine: "SimulatedMachine") -> Iterator[str]:
    for line in (machine.text("/proc/devices") or "").splitlines():
        if line.split()[1:] == ["nvidia-uvm"]:
            yield line.split()[0]


def _command(machine: "SimulatedMachine", argv: Sequence[str], stdin: str) -> Output:
    """`-v NAME`: a program is there where the machine has its file."""
    if len(argv) != 2 or argv[0] != "-v":
        raise NotSimulated(f"command {' '.join(argv)}")
    path = f"/usr/bin/{argv[1]}"
    return Output(f"{path}\n") if path in machine.listings | machine.files else Output(exit=127)


MODULES: dict[str, Program] = {
    "command": _command,
    "modprobe": _modprobe,
    "nvidia-modprobe": _nvidia_modprobe,
    "rmmod": _rmmod,
}
