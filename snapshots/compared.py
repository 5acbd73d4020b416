"""From what an audit read to named values: by the rule table, so that nothing is left to luck."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gpudoctor.formats.nvidia_smi_values import sysfs_bdf
from gpudoctor.model import Evidence, Reason, Side, Unknown
from gpudoctor.model.diff import Name, Value
from gpudoctor.recording import Answers
from gpudoctor.snapshots import (
    compared_gpu,
    compared_host,
    compared_log,
    compared_pci,
    compared_server,
)
from gpudoctor.snapshots.compared_form import FORMS
from gpudoctor.snapshots.compared_row import Answer, Parser, Row, line
from gpudoctor.snapshots.compared_rules import Rule, Rules, table
from gpudoctor.text import one_line

PARSERS: dict[str, Parser] = {
    **compared_host.PARSERS,
    **compared_gpu.PARSERS,
    **compared_pci.PARSERS,
    **compared_server.PARSERS,
    **compared_log.PARSERS,
}
_LONGEST = 2000
_SMI, _SCAN = "nvidia-smi-xml", "serving-processes"
_OF_PID = re.compile(r"/proc/(\d+)/(?=root/)")
_GPU = re.compile(rb'<gpu id="([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"')
_GPU_CLASSES = ("0x0300", "0x0302")
_NOT_ASKED = "that audit did not read it"

Values = dict[Name, Value]
Unread = dict[str, str]


def values(sides: Mapping[Side, Answers]) -> tuple[Values, Unread]:
    """Return the values worth comparing, and what was not read, by name or source, with why.

    A side that was not entered at all is unread as a whole. What is narrower counts first; a source
    with an empty reason was read, whatever is said of the rule that it falls under.
    """
    host = sides.get(Side.HOST)
    reading = _Reading(_servers(host), _gpus(host))
    for side in Side:
        answers = sides.get(side)
        if answers is None or answers.asked == set() and not answers.tools:
            reading.unread[side] = f"nothing of the {side} was read"
        else:
            reading.side(side, answers)
    return reading.named_gpus(), reading.unread


class _Reading:
    """The values of one snapshot while they are gathered."""

    def __init__(self, servers: Mapping[int, str], gpus: tuple[str, ...]) -> None:
        self.values: Values = {}
        self.unread: Unread = {}
        self._servers = servers
        self._gpus = gpus

    def side(self, side: Side, answers: Answers) -> None:
        """Add all that one side answered."""
        rules = table()
        self._not_asked(side, answers, rules.files)
        self._not_asked(side, answers, rules.listings)
        for kept, known in ((answers.files, rules.files), (answers.listings, rules.listings)):
            for path, data in kept.items():
                if found := known.find(path):
                    self._entry(side, path, *found, data)
        for key, rule in rules.tools.items():
            if not rule.left_out:
                self._tool(side, rule, answers.tools.get(key))

    def named_gpus(self) -> Values:
        """Return the values, with what the bus tells of a GPU under the GPU's name."""
        gpus = {name.of for name, value in self.values.items() if self._is_gpu(name, value)}
        renamed = {of: f"GPU {of.removeprefix('PCI ')}" for of in gpus}
        for of, new in renamed.items():
            self.unread = {
                new + key.removeprefix(of) if key.startswith(f"{of} ") else key: why
                for key, why in self.unread.items()
            }
        return {
            replace(name, of=renamed[name.of]) if name.of in renamed else name: value
            for name, value in self.values.items()
        }

    def _is_gpu(self, name: Name, value: Value) -> bool:
        if not name.of.startswith("PCI ") or name.what != "class":
            return False
        vendor = self.values.get(Name(name.of, "vendor"))
        return bool(vendor and vendor.text == "0x10de" and value.text.startswith(_GPU_CLASSES))

    def _not_asked(self, side: Side, answers: Answers, rules: Rules) -> None:
        """Note the rules of which no pattern was asked there, and those asked path by path."""
        if answers.asked is None:
            return
        whole: set[str] = set()
        for pattern in answers.asked:
            found = rules.find(pattern)
            if found is None or found[0].left_out:
                continue
            if "*" in pattern or pattern == found[0].glob:
                whole.add(found[0].glob)
            else:
                self.unread[self._source(side, pattern)] = ""
        for rule in rules.all:
            if rule.glob not in whole and not rule.left_out:
                self.unread[f"{side}:{rule.glob}"] = _NOT_ASKED

    def _source(self, side: Side, path: str) -> str:
        """Return what a path is called as a source: pids are another every time."""
        match = _OF_PID.match(path) if path.startswith("/proc/") else None
        if match is None:
            return f"{side}:{path}"
        return f"{side}:/proc/{self._servers.get(int(match[1]), 'PID')}/{path[match.end() :]}"

    def _entry(
        self, side: Side, path: str, rule: Rule, parts: tuple[str, ...], data: bytes | Unknown
    ) -> None:
        if rule.left_out:
            return
        if not isinstance(data, Unknown):
            self._add(side, rule, Answer(path, parts, data, self._servers, self._gpus))
        elif data.reason is not Reason.NOT_PRESENT:
            why = str(data).replace(f"{path}: ", "")
            self.unread[self._source(side, path)] = one_line(why)

    def _tool(self, side: Side, rule: Rule, evidence: Evidence | None) -> None:
        if evidence is None:
            self.unread[f"{side}:{rule.glob}"] = _NOT_ASKED
            return
        problem = evidence.problem or _failed(evidence)
        if problem and not _whole(evidence):
            self.unread[f"{side}:{rule.glob}"] = one_line(str(problem))
        else:
            self._add(side, rule, Answer(rule.glob, (), evidence.stdout, self._servers, self._gpus))

    def _add(self, side: Side, rule: Rule, answer: Answer) -> None:
        try:
            for row in _rows(rule, answer):
                self._put(side, rule, answer.path, row)
        except Exception as error:  # as in a reader: these texts come from the host
            source = self._source(side, answer.path)
            self.unread[source] = one_line(f"it could not be parsed ({error})")

    def _put(self, side: Side, rule: Rule, path: str, row: Row) -> None:
        of = f"container {row.of}" if side is Side.CONTAINER else row.of
        name = Name(line(of), line(row.what))
        source = self._source(side, path)
        if isinstance(row.text, Unknown):
            key = f"{source} {row.part}" if row.part else str(name)
            self.unread[key] = one_line(str(row.text))
            return
        text = line(row.text, _LONGEST) or "(empty)"
        before = self.values.get(name)
        if before and text != before.text:
            text = " | ".join(sorted({*before.text.split(" | "), text}))
        within = (f"{source} {row.part}",) if row.part else ()
        sources = (*within, source, f"{side}:{rule.glob}", str(side))
        self.values[name] = Value(row.sort, text, sources)


def _rows(rule: Rule, answer: Answer) -> Iterable[Row]:
    if rule.parse:
        return PARSERS[rule.parse](answer)
    return _plain(rule, answer)


def _plain(rule: Rule, answer: Answer) -> Iterator[Row]:
    assert rule.sort is not None  # those without are left out
    parts = answer.parts
    text = FORMS[rule.form](answer)
    yield Row(rule.of.format(*parts), rule.what.format(*parts), rule.sort, text)


def _failed(evidence: Evidence) -> Unknown | None:
    if not evidence.exit:
        return None
    said = one_line(evidence.stderr, 80)
    return Unknown(Reason.PARSE_FAILED, f"it ended with {evidence.exit} {said}".strip())


def _whole(evidence: Evidence) -> bool:
    """Return whether it holds a whole report all the same: nvidia-smi ends with 14 for warnings."""
    return b"</nvidia_smi_log>" in evidence.stdout


def _servers(host: Answers | None) -> dict[int, str]:
    scan = host.tools.get(_SCAN) if host else None
    try:
        return compared_server.called(scan.text) if scan else {}
    except Exception:  # as above; the parser of the scan says why
        return {}


def _gpus(host: Answers | None) -> tuple[str, ...]:
    """Return the addresses of GPUs in the order of nvidia-smi, where it answered."""
    report = host.tools.get(_SMI) if host else None
    if report is None or not _whole(report):
        return ()
    return tuple(sysfs_bdf(mark.decode()) for mark in _GPU.findall(report.stdout))
