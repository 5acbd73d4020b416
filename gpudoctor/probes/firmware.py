"""The firmware and the memory modules as the board's own tables name them; read for snapshots."""

from gpudoctor.formats.dmi_memory import Dimm, parse_dimms
from gpudoctor.model import Evidence, Files, Reader, Reason, Tool, Unknown

_DMI = "/sys/class/dmi/id"
BIOS = Files("firmware-version", tuple(f"{_DMI}/{n}" for n in ("bios_version", "bios_date")))
BOARD = Files("board", (f"{_DMI}/board_vendor", f"{_DMI}/board_name"))
# Without the tables in sysfs dmidecode would search /dev/mem, which lockdown logs.
_NO_TABLES, _NOT_ROOT = 121, 122
DMI_MEMORY = Tool(
    "dmi-memory",
    "dmidecode",
    f"[ -e /sys/firmware/dmi/tables/DMI ]||exit {_NO_TABLES};"
    f"[ -r /sys/firmware/dmi/tables/DMI ]||exit {_NOT_ROOT};exec dmidecode -t 17",
    cap=1 << 17,
    meanings=(
        (_NO_TABLES, Unknown(Reason.NOT_PRESENT, "the kernel shows no DMI tables")),
        (_NOT_ROOT, Unknown(Reason.NO_PERMISSION, "dmidecode needs root")),
    ),
)


def _named(bios: Evidence, board: Evidence) -> dict[str, str]:
    """Return what the firmware says of itself and its board, by file name."""
    texts = bios.texts() | board.texts()
    return {path.rsplit("/", 1)[-1]: text.strip() for path, text in texts.items()}


FIRMWARE: Reader[dict[str, str]] = Reader("firmware", (BIOS, BOARD), _named, tolerant=True)
MEMORY_SLOTS: Reader[tuple[Dimm, ...]] = Reader(
    "memory-slots", (DMI_MEMORY,), lambda evidence: parse_dimms(evidence.text)
)
