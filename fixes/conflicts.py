"""What would override a file of ours at boot: seen before it is written, and named.

Nothing is known to override registers or a file without values; forms done by hand are not looked
at.
"""

from collections.abc import Callable, Mapping

from gpudoctor.fixes import (
    conflict_modules,
    conflict_sysctl,
    conflict_tmpfiles,
    conflict_tuned,
    conflict_units,
)
from gpudoctor.fixes.conflict_wanted import Form, Wanted, wanted_of
from gpudoctor.model import OwnFile, Unknown
from gpudoctor.text import one_line

_Look = tuple[Callable[[Wanted], dict[str, str]], Callable[[Wanted, Mapping[str, str]], str]]
_SYSCTL: _Look = (conflict_sysctl.reads, conflict_sysctl.conflict)
_TMPFILES: _Look = (conflict_tmpfiles.reads, conflict_tmpfiles.conflict)
_MODULES: _Look = (conflict_modules.reads, conflict_modules.conflict)
_TUNED: _Look = (conflict_tuned.reads, conflict_tuned.conflict)
_UNITS: _Look = (conflict_units.reads, conflict_units.conflict)
_LOOKS = {
    Form.SYSCTL: (_SYSCTL, _TUNED, _UNITS),
    Form.TMPFILES: (_TMPFILES, _TUNED, _UNITS),
    Form.UNIT: (_TUNED, _UNITS),
    Form.MODULE: (_MODULES,),
    Form.NONE: (),
}


def conflict_reads(change: OwnFile) -> dict[str, str]:
    """Return the read texts of all that could override the file, by what they tell."""
    wanted = wanted_of(change)
    return {name: text for reads, _ in _looks(wanted) for name, text in reads(wanted).items()}


def conflict(change: OwnFile, now: Mapping[str, str | Unknown]) -> str:
    """Return one sentence that names what wins over the file and the value it sets, or nothing.

    `now` holds what the texts of `conflict_reads` printed; of what could not be read nothing is
    said.
    """
    wanted = wanted_of(change)
    known = {name: value for name, value in now.items() if not isinstance(value, Unknown)}
    for reads, find in _looks(wanted):
        if reads(wanted).keys() <= known.keys() and (sentence := find(wanted, known)):
            return one_line(sentence, 300)
    return ""


def _looks(wanted: Wanted) -> tuple[_Look, ...]:
    return _LOOKS[wanted.form] if wanted.values or wanted.modules else ()
