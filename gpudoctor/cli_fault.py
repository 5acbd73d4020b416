"""What is said of a fault that is no refusal, and of an output that nobody takes any more."""

import contextlib
import os
import sys
from collections.abc import Iterator

from gpudoctor.model.error import Refusal
from gpudoctor.text import one_line


def traced() -> bool:
    """Return whether somebody who looks for a fault of ours wants its traceback."""
    return bool(os.environ.get("GPUDOCTOR_TRACEBACK"))


def fault_sentence(error: Exception) -> str:
    """Return what went wrong, in one sentence."""
    if isinstance(error, BrokenPipeError):
        return "the reader of our output has gone"
    if isinstance(error, OSError):
        return one_line(f"{error.filename or 'system'}: {error.strerror or error}")
    what = one_line(f"{type(error).__name__}: {error}")
    return f"a fault of its own ({what}); GPUDOCTOR_TRACEBACK=1 shows where"


@contextlib.contextmanager
def nothing_changed() -> Iterator[None]:
    """Turn a fault that comes before the first write into a refusal: exit code 1."""
    try:
        yield
    except Refusal:
        raise
    except Exception as fault:
        if traced():
            raise
        raise Refusal(f"nothing was changed: {fault_sentence(fault)}", 1) from fault


def complain(sentence: str) -> None:
    """Say a sentence on stderr, where that is still taken."""
    with contextlib.suppress(OSError):
        print(f"gpudoctor: {sentence}", file=sys.stderr, flush=True)


def drop_untaken() -> None:
    """Drop what an output did not take: Python would complain of it while shutting down."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
