"""The device nodes of nvidia-uvm, made by nvidia-modprobe."""

from gpudoctor.fixes.mechanism import Mechanism, Proof, Seen, Values, unread
from gpudoctor.model import DeviceNodes, Reason, Unknown

_UVM, _TOOLS, _MODULE = "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/sys/module/nvidia_uvm"
_ITEM, _DRIVER, _MAKER = "device nodes of nvidia-uvm", "the nvidia module", "nvidia-modprobe"
_ALL = "nvidia-uvm there, nvidia-uvm-tools there, module loaded"


class NodeMechanism(Mechanism[DeviceNodes]):
    """Both nodes and the module nvidia_uvm are one item, since one command makes all three.

    Only where neither node is there: an existing one nvidia-modprobe may remake with the mode and
    owner that the driver's parameters say, which nobody captured.
    """

    proof = Proof.STAND_IN

    def reads(self, change: DeviceNodes) -> dict[str, str]:
        """Return the read texts: what is there of the three, the driver, and the program."""
        return {
            _ITEM: f"echo nvidia-uvm $({_there('-e', _UVM)}), "
            f"nvidia-uvm-tools $({_there('-e', _TOOLS)}), "
            f"module $({_there('-d', _MODULE, 'loaded')})",
            _DRIVER: _there("-d", "/sys/module/nvidia", "loaded"),
            _MAKER: "command -v nvidia-modprobe",
        }

    def refuse(self, change: DeviceNodes, now: Seen) -> str:
        """Return why the nodes cannot be made there, or not be taken back exactly."""
        state, maker = now[_ITEM], now[_MAKER]
        if isinstance(state, Unknown) or _both(state):
            return unread({_ITEM: state})
        if " there" in state:
            return f"one node is there already ({state}), and nvidia-modprobe may remake it"
        if isinstance(maker, Unknown) and maker.reason is Reason.NOT_IN_RECORDING:
            return f"nvidia-modprobe: {maker.detail}"
        if now[_DRIVER] != "loaded":
            return "the nvidia module is not loaded there, and this does not load the driver"
        return "nvidia-modprobe is not installed there" if isinstance(maker, Unknown) else ""

    def wanted(self, change: DeviceNodes, before: Values) -> dict[str, str]:
        """Return that all three are there; two nodes that are there already stay as they are."""
        return {_ITEM: before[_ITEM] if _both(before[_ITEM]) else _ALL}

    def write(self, change: DeviceNodes, item: str, before: Values) -> str:
        """Return the command that loads nvidia_uvm if need be, and makes its nodes."""
        return "nvidia-modprobe -u -c=0"

    def undo(self, change: DeviceNodes, item: str, before: Values) -> str:
        """Return the commands that remove the nodes, and the module where it was not loaded."""
        nodes = f"rm -f {_UVM} {_TOOLS}"
        return nodes if before[item].endswith("loaded") else f"rmmod nvidia_uvm; {nodes}"

    def guard(self, change: DeviceNodes, item: str, before: Values) -> str:
        """Return the text that says whether a program has the nodes open."""
        users = f"{_MODULE}/refcnt"
        return (
            f'[ ! -e {users} ] || [ "$(cat {users})" = 0 ] || '
            f"echo nvidia-uvm is in use, refcnt: $(cat {users})"
        )


def _there(test: str, path: str, word: str = "there") -> str:
    return f"[ {test} {path} ] && echo {word} || echo absent"


def _both(state: str) -> bool:
    return state.count(" there") == 2
