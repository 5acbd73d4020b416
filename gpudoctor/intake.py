"""Files for `--from`: what each is, told from its content, and the answers it holds.

A file of a host without gpudoctor (nvidia-smi XML, lspci, topo matrix, command line, LXC conf)
answers the one probe that would have read the same; everything else is not in the recording.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudoctor.hosts.recorded import RecordedTarget
from gpudoctor.model import Evidence, Side
from gpudoctor.model.error import Refusal, WrongUsage
from gpudoctor.probes.container import CONFS, GIVEN_CONF
from gpudoctor.probes.gpu import NVIDIA_SMI_XML
from gpudoctor.probes.kernel import CMDLINE
from gpudoctor.probes.nccl import NVIDIA_SMI_TOPO
from gpudoctor.probes.pci import LSPCI_TEXT
from gpudoctor.recording import Answers, is_recording, load
from gpudoctor.text import clean, one_line

_MOST = 64 << 20
_ANSI = re.compile(rb"\x1b\[[0-9;]*m")
_LXC_KEY = re.compile(r"(?:lxc\.[a-z0-9_.]+|arch|ostype|rootfs|unprivileged)[ \t]*[:=]")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file: how its text is recognised, and where its bytes belong."""

    name: str
    recognises: Callable[[str], bool]
    keep: Callable[[Answers, bytes], None]


def recorded_target(paths: Sequence[str]) -> RecordedTarget:
    """Return the files as one target. Raises WrongUsage (no such file) or Refusal (unreadable)."""
    raws = [(path, _read(path)) for path in paths]
    ours = [(path, raw) for path, raw in raws if is_recording(raw)]
    if len(ours) > 1:
        raise WrongUsage("give one gpudoctor recording at a time: each is a whole host")
    kept = load(ours[0][1], ours[0][0]) if ours else None
    sides = dict(kept.sides) if kept else {Side.HOST: Answers(asked=set())}
    host = sides.setdefault(Side.HOST, Answers(asked=set()))
    for path, raw in raws:
        if not is_recording(raw):
            _kind(path, raw).keep(host, raw)
    label = kept.label if kept else ", ".join(Path(path).name for path in paths)
    label = one_line(f"recording of {label}" if kept else label, 80)
    return RecordedTarget(
        label, sides, kept.container if kept else None, bool(kept and kept.simulated)
    )


def _read(path: str) -> bytes:
    file = Path(path)
    if not file.exists():
        raise WrongUsage(f"{path}: no such file")
    try:
        with file.open("rb") as stream:
            raw = stream.read(_MOST + 1)
    except OSError as error:
        raise Refusal(f"{path} cannot be read: {error.strerror}") from error
    if not raw.strip():
        raise Refusal(f"{path} is empty: nothing to audit")
    if len(raw) > _MOST:
        raise Refusal(f"{path} is larger than {_MOST >> 20} MiB: no recording is that large")
    return raw


def _kind(path: str, raw: bytes) -> Kind:
    text = clean(_ANSI.sub(b"", raw[: 1 << 20]))
    if b"\x00" not in raw[:4096]:
        for kind in KINDS:
            if kind.recognises(text):
                return kind
    known = ", ".join(kind.name for kind in KINDS)
    raise Refusal(f"{path} is of no kind that gpudoctor knows (a recording of its own, {known})")


def _tool(key: str) -> Callable[[Answers, bytes], None]:
    def keep(answers: Answers, raw: bytes) -> None:
        answers.tools[key] = Evidence(key, command="from a file", stdout=raw, exit=0)

    return keep


def _file(path: str, patterns: Sequence[str]) -> Callable[[Answers, bytes], None]:
    def keep(answers: Answers, raw: bytes) -> None:
        answers.files[path] = raw
        answers.asked = (answers.asked or set()) | set(patterns)

    return keep


# By lines: a pattern that may run over line ends takes hours on a file of blank lines.
def _is_topo(text: str) -> bool:
    rows = [line.split(None, 2) for line in text.splitlines() if "GPU0" in line]
    rows = [row for row in rows if row[0] == "GPU0"]
    return len(rows) > 1 and any(row[1:2] == ["X"] for row in rows[1:])


def _is_lspci(text: str) -> bool:
    return bool(re.search(r"^(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] \S", text, re.M))


def _is_lxc(text: str) -> bool:
    return sum(_LXC_KEY.match(line.strip()) is not None for line in text.splitlines()) >= 2


def _is_cmdline(text: str) -> bool:
    words = text.split()
    one = text.strip().count("\n") == 0
    return one and any(
        re.match(r"(?:BOOT_IMAGE|root|initrd|console|ro$|rw$|quiet$|init)=?", word)
        for word in words
    )


KINDS = (
    Kind("nvidia-smi -q -x", lambda t: "<nvidia_smi_log" in t, _tool(NVIDIA_SMI_XML.key)),
    Kind("nvidia-smi topo -m", _is_topo, _tool(NVIDIA_SMI_TOPO.key)),
    Kind("lspci -vvv", _is_lspci, _file(LSPCI_TEXT.patterns[0], LSPCI_TEXT.patterns)),
    Kind("an LXC conf", _is_lxc, _file(GIVEN_CONF, CONFS.patterns)),
    Kind("/proc/cmdline", _is_cmdline, _file("/proc/cmdline", CMDLINE.patterns)),
)
