"""What the verbs that measure have in common: what is wished for, and the progress line."""

import argparse
import sys
import time

from gpudoctor.bench.measure import Wish
from gpudoctor.bench.run import Progress
from gpudoctor.model.error import WrongUsage

_MOST_STREAMS = 64
_CLEAR = "\r\x1b[K"


def wish_of(args: argparse.Namespace) -> Wish:
    """Return what the options ask to be measured. Raises WrongUsage."""
    options = vars(args)
    return Wish(
        url=args.url or "",
        api_key_env=args.api_key_env or "",
        streams=_streams(options.get("streams", "1")),
        full=bool(options.get("full", True)),
        mark=args.on_busy == "mark",
        copies=bool(options.get("copies", False)),
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
    """The progress on a terminal: one line that is drawn again, at most four times a second.

    The length of a `full` run is told before its first block, on a line that stays.
    """

    def __init__(self, full: bool = False) -> None:
        """Begin with nothing drawn."""
        self._drawn = 0.0
        self._untold = full

    def tell(self, progress: Progress) -> None:
        """Draw where the run is."""
        now, drawn = time.monotonic(), sys.stderr.isatty()
        if self._untold and progress.expected is not None:
            self._untold = False
            left = progress.expected - progress.seconds
            said = f"{progress.of} blocks at each number of streams: about {left:.0f} s"
            sys.stderr.write(f"{_CLEAR if drawn else ''}{said}\n")
        if not drawn or now - self._drawn < 0.25:
            return
        self._drawn = now
        rate = "" if progress.rate is None else f"{progress.rate:7.1f} tok/s now"
        of = f"block {progress.done + 1} of {progress.of}" if progress.of else ""
        about = "" if progress.expected is None else f" of about {progress.expected:.0f} s"
        sys.stderr.write(
            f"{_CLEAR}{progress.seconds:4.0f} s{about}  {progress.phase}  {of}  {rate}\r"
        )
        sys.stderr.flush()
