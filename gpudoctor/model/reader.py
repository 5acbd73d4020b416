"""Readers: which probes a fact needs and how it is parsed; `Facts`: the values of one host."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from gpudoctor.model.fact import Reason, Unknown
from gpudoctor.model.probe import Evidence, Later, Probe
from gpudoctor.text import one_line

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Reader(Generic[T_co]):
    """How one fact is had: `parse` gets one input for each of `needs`, in their order.

    A probe gives its Evidence, another reader its value. With `tolerant`, unknown inputs are passed
    on (evidence with its `problem` set, facts as Unknown); without it they are this fact's answer.
    `parse` may return Unknown, or raise ValueError/KeyError/IndexError for `parse-failed`; so is
    whatever else it trips over.
    """

    key: str
    needs: "tuple[Probe | Later | Reader[object], ...]"
    parse: Callable[..., "T_co | Unknown"]
    tolerant: bool = False

    def probes(self) -> "Iterator[Probe | Later]":
        """Yield every probe this fact rests on, through other readers too."""
        for need in self.needs:
            if isinstance(need, Reader):
                yield from need.probes()
            else:
                if isinstance(need, Later):
                    for reader in need.after:
                        yield from reader.probes()
                yield need


class Facts:
    """The facts of one host, parsed from its answers when asked for, and kept."""

    def __init__(self, answers: Mapping[str, Evidence]) -> None:
        """Take the answers by probe key; the mapping may grow while facts are read."""
        self._answers = answers
        self._values: dict[str, object] = {}

    def ready(self, reader: Reader[object]) -> bool:
        """Return whether every probe that the fact rests on has been answered."""
        return all(probe.key in self._answers for probe in reader.probes())

    def __getitem__(self, reader: Reader[T]) -> T | Unknown:
        """Return the fact's value, or why it is unknown. Call only when `ready`."""
        if reader.key not in self._values:
            self._values[reader.key] = self._read(cast(Reader[object], reader))
        return cast("T | Unknown", self._values[reader.key])

    def _read(self, reader: Reader[object]) -> object:
        inputs: list[object] = []
        for need in reader.needs:
            value = self[need] if isinstance(need, Reader) else self._answers[need.key]
            if not reader.tolerant:
                if isinstance(value, Evidence) and value.problem is not None:
                    return value.problem
                if isinstance(value, Unknown):
                    return value
            inputs.append(value)
        try:
            return reader.parse(*inputs)
        except Exception as error:  # whatever a hostile answer trips must not end the audit
            what = one_line(str(error), 160) or type(error).__name__
            return Unknown(Reason.PARSE_FAILED, f"{reader.key}: {what}")
