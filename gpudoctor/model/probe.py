"""Probes (what is read) and evidence (what came back)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from gpudoctor.model.fact import Reason, Unknown
from gpudoctor.text import clean

if TYPE_CHECKING:
    from gpudoctor.model.reader import Reader


class Side(StrEnum):
    """Where a probe runs: on the host, or in the container that serves."""

    HOST = "host"
    CONTAINER = "container"


@dataclass(frozen=True, slots=True)
class Files:
    """Files to read whole, by path or shell glob; all of a side travel in one job.

    `cap` is bytes a file: a longer one is too-big, or cut where its `head` is all that matters.
    `guarded` files are written by the container or by users, and travel in a
    job of their own so that their content can never pass for another file's. `no_links` files lie
    under /proc/PID/root, where a link would lead to the host's own files and devices: only plain
    files are opened.
    """

    key: str
    patterns: tuple[str, ...]
    cap: int = 4096
    side: Side = Side.HOST
    guarded: bool = False
    head: bool = False
    no_links: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """Directory entries (`ls -ldn`) by path or glob: kind, mode, owner, numbers, link target."""

    key: str
    patterns: tuple[str, ...]
    side: Side = Side.HOST


@dataclass(frozen=True, slots=True)
class Tool:
    """A read-only command as one line of `sh`; `limit` in seconds, `cap` in bytes of output.

    `gentle` tools are ended with SIGTERM only, never SIGKILL (nvidia-smi on a sick GPU).
    `name` is the program whose absence makes the answer `unknown(tool-missing)`.
    `slow` tools may take seconds; benchmarks and the screen tell them apart.
    `meanings` maps exit codes of the script's own guards to what they say.
    """

    key: str
    name: str
    script: str
    limit: float = 10.0
    cap: int = 1 << 20
    side: Side = Side.HOST
    gentle: bool = False
    slow: bool = False
    meanings: tuple[tuple[int, Unknown], ...] = ()


Probe = Files | Listing | Tool


@dataclass(frozen=True, slots=True)
class Later:
    """A probe that depends on facts: `make` gets their values and returns the probe, or why not.

    Unknown facts answer the probe with their own reason; `make` is only called with known values.
    """

    key: str
    after: "tuple[Reader[object], ...]"
    make: "Callable[..., Probe | Unknown]"
    side: Side = Side.HOST


@dataclass(frozen=True, slots=True)
class Evidence:
    """The raw, redacted answer of one probe.

    Tools fill `stdout`, `stderr` (safe text) and `exit`; files and listings fill `files`, whose
    values are the bytes read (a listing's: its `ls -ldn` line) or why that path gave none.
    `problem` is set where the probe as a whole gave nothing; `seconds` is time on the target.
    """

    key: str
    side: Side = Side.HOST
    command: str = ""
    stdout: bytes = b""
    stderr: str = ""
    exit: int | None = None
    seconds: float = 0.0
    files: Mapping[str, bytes | Unknown] = field(default_factory=dict)
    problem: Unknown | None = None

    @property
    def text(self) -> str:
        """Return the tool's output as safe text."""
        return clean(self.stdout)

    @property
    def unread(self) -> Unknown | None:
        """Return why nothing could be read, or None: that nothing is there was read, too."""
        absent = self.problem is None or self.problem.reason is Reason.NOT_PRESENT
        return None if absent else self.problem

    def present(self) -> bool | Unknown:
        """Return whether anything was there: False where nothing is, Unknown where not read."""
        return self.unread or self.problem is None

    def get(self, path: str) -> str | Unknown:
        """Return one file's safe text without its last newline, or why it is unknown."""
        answer = self.files.get(path, Unknown(Reason.NOT_PRESENT, path))
        return answer if isinstance(answer, Unknown) else clean(answer).removesuffix("\n")

    def texts(self) -> dict[str, str]:
        """Return every file that was read, as path to safe text without its last newline."""
        return {
            path: clean(answer).removesuffix("\n")
            for path, answer in self.files.items()
            if not isinstance(answer, Unknown)
        }
