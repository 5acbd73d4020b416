"""The XML of `nvidia-smi -q -x`, generations v9 to v13, as typed GPUs."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from itertools import islice

from gpudoctor.formats.nvidia_smi_gpu import Gpu, Word
from gpudoctor.formats.nvidia_smi_node import gpu_of
from gpudoctor.formats.nvidia_smi_values import sysfs_bdf, word

_ROOT, _END = "<nvidia_smi_log>", "</nvidia_smi_log>"
_DOCTYPE = re.compile(r"<!DOCTYPE[^\[<>]*>")
_OPEN = re.compile(r"<gpu\s+id=\"([^\"<>]{4,32})\"\s*>")
MOST_GPUS = 64


@dataclass(frozen=True, slots=True)
class SmiLog:
    """A whole report. `cuda_version` is the newest CUDA the driver supports, nothing installed."""

    driver_version: Word
    cuda_version: Word
    attached: int
    gpus: tuple[Gpu, ...]


def parse_nvidia_smi(text: str) -> SmiLog:
    """Parse the report; text before and after it (warnings) is passed over.

    Raises ValueError when there is none, when it ends early, or when it declares entities or a
    GPU twice. A GPU whose own part is malformed comes with unknown values, the others as they are.
    """
    log = _without(_log(text), "supported_clocks")
    blocks = _blocks(log)
    gpus = tuple(_gpu(index, bus_id, body) for index, (bus_id, body) in enumerate(blocks))
    if len({gpu.bdf for gpu in gpus}) < len(gpus):
        raise ValueError("a PCI bus id comes twice")
    head = log.partition("<gpu ")[0]
    attached = _head(head, "attached_gpus")
    return SmiLog(
        word(_head(head, "driver_version")),
        word(_head(head, "cuda_version")),
        int(attached) if attached and re.fullmatch(r"[0-9]{1,4}", attached) else len(gpus),
        gpus,
    )


def _log(text: str) -> str:
    """Return the first whole report in the text."""
    if "<!ENTITY" in text or "<!DOCTYPE" in _DOCTYPE.sub("", text):
        raise ValueError("nvidia-smi XML with declarations of its own is refused")
    start = text.find(_ROOT)
    if start < 0:
        raise ValueError("no nvidia-smi XML")
    end = text.find(_END, start)
    if end < 0:
        whole = text.count("</gpu>", start)
        raise ValueError(f"the nvidia-smi XML ends early, after {whole} whole GPU(s)")
    return text[start : end + len(_END)]


def _blocks(log: str) -> list[tuple[str, str]]:
    """Return bus id and content of each GPU; searched in linear time, since the text is hostile."""
    marks = list(islice(_OPEN.finditer(log), MOST_GPUS + 1))
    if len(marks) > MOST_GPUS:
        raise ValueError(f"more than {MOST_GPUS} GPUs are too many to be true")
    limits = [*(mark.start() for mark in marks), len(log)][1:]
    blocks = []
    for mark, limit in zip(marks, limits, strict=True):
        end = log.find("</gpu>", mark.end(), limit)
        if end < 0:
            raise ValueError(f"the part of GPU {mark.group(1)} has no end")
        blocks.append((mark.group(1), log[mark.end() : end]))
    return blocks


def _without(text: str, tag: str) -> str:
    """Return the text less every whole element of one name."""
    kept, at, closing = [], 0, f"</{tag}>"
    while (start := text.find(f"<{tag}>", at)) >= 0:
        end = text.find(closing, start)
        if end < 0:
            break
        kept.append(text[at:start])
        at = end + len(closing)
    return "".join([*kept, text[at:]])


def _head(head: str, tag: str) -> str | None:
    match = re.search(rf"<{tag}>([^<>]{{0,80}})</{tag}>", head)
    return match.group(1).strip() if match else None


def _gpu(index: int, bus_id: str, body: str) -> Gpu:
    bdf = sysfs_bdf(bus_id)
    for attempt in (body, _without(body, "processes")):
        try:
            return gpu_of(ElementTree.fromstring(f"<gpu>{attempt}</gpu>"), bdf, index)
        except ElementTree.ParseError:
            continue
    return gpu_of(None, bdf, index)
