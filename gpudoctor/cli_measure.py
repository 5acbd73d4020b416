"""What the verbs that measure have in common: what is wished for, and the progress line."""

import argparse
import sys
import time

from gpudoctor.bench.measure import Wish
from gpudoctor.bench.run import Progress
from gpudoctor.model.error import WrongUsage

_MOST_STREAMS = 64


def wish_of(args: argparse.Namespace) -> Wish:
    """Return what the options ask to be measured. Raises WrongUsage."""
    options = vars(args)
    return Wish(
        url=args.url or "",
        api_key_env=args.api_key_env or "",
        streams=_streams(options.get("streams", "1")),
        full=bool(options.get("full", True)),
        mark=args.on_busy == "mark",
    )


def _streams(text: str) -> tuple[int, ...]:
    """Return the numbers of streams, as written. Raises WrongUsage."""
    words = text.split(",")
    if not all(word.isascii() and word.isdecimal() for word in words):
        raise WrongUsage(f"--streams wants numbers such as 1,8, not {text!r}")
    found = tuple(dict.fromkeys(int(word) for word in words))
    if not all(1 <= number <= _MOST_STREAMS for number in found):
        raise WrongUsage(f"--streams wants numbers from 1 to {_MOST_STREAMS}")
    return found


class Meter:
    """The progress on a terminal: one line that is drawn again, at most four times a second."""

    def __init__(self) -> None:
        """Begin with nothing drawn."""
        self._drawn = 0.0

    def tell(self, progress: Progress) -> None:
        """Draw where the run is."""
        now = time.monotonic()
        if not sys.stderr.isatty() or now - self._drawn < 0.25:
            return
        self._drawn = now
        rate = "" if progress.rate is None else f"{progress.rate:7.1f} tok/s now"
        of = f"block {progress.done + 1} of {progress.of}" if progress.of else ""
        sys.stderr.write(f"\r\x1b[K{progress.seconds:4.0f} s  {progress.phase}  {of}  {rate}\r")
        sys.stderr.flush()
