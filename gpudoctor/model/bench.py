"""A decode benchmark as data: requests, blocks, phases, what was seen beside them, and verdicts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpudoctor.model.place import ContainerRef
from gpudoctor.model.probe import Side


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request gave nothing to measure; `status` is HTTP's, 0 without one."""

    kind: str
    status: int = 0
    said: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One streamed request; times are seconds since its job began.

    `began`: just before its bytes were written; `times`: when each piece of text was read; `last`:
    the last text or the event with the finish reason. `tokens` is the server's own count, None
    where it told none; `first_tokens` those that came with the first piece. `server_ms` is the
    server's own time a token, in milliseconds.
    """

    began: float = 0.0
    times: tuple[float, ...] = ()
    last: float = 0.0
    tokens: int | None = None
    first_tokens: int = 1
    prompt_tokens: int | None = None
    cached: int | None = None
    finish: str = ""
    text: str = ""
    server_ms: float | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Requests that ran one after another, or `streams` of them at a time: the unit of judgement.

    `seconds` is how long it took; `foreign` says who else used the server or the GPUs meanwhile.
    """

    requests: tuple[Request, ...]
    streams: int = 1
    seconds: float = 0.0
    foreign: str = ""


@dataclass(frozen=True, slots=True)
class Serving:
    """The engine that is measured, and the way to it.

    `kind` is its name (`SGLang`) or `OpenAI-compatible`; `api_key_env` names the environment
    variable of this client that holds the key. `side`: where the client runs beside it. `refused`
    are parameters of a request that it does not take: without `ignore_eos` no length is forced.
    """

    kind: str
    url: str
    model: str
    path: str = "/v1/completions"
    version: str = ""
    pid: int = 0
    started: int = 0
    container: ContainerRef | None = None
    side: Side = Side.HOST
    flags: tuple[str, ...] = ()
    api_key_env: str = ""
    simulated: bool = False
    refused: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Return where it answers: containers with networks of their own may share a URL."""
        return f"{self.url} in {self.container}" if self.container is not None else self.url

    def same(self, other: "Serving") -> bool:
        """Return whether both are the same engine with the same model, if not the same process."""
        mine, theirs = ((one.kind, one.model, one.place) for one in (self, other))
        return mine == theirs


@dataclass(frozen=True, slots=True)
class Conditions:
    """What must be alike for two runs to be compared, and what explains a difference.

    `values` are name to text: boot, driver, kernel, engine start; `fixed` are those of them that
    forbid a comparison where they differ. `readings` move all the time and are only shown: clocks,
    temperature, power, load, before the run and at its end.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    readings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Level:
    """All blocks at one number of streams."""

    streams: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Witness:
    """What was measured directly beside tokens: `values` in `unit`, one a sample or a label.

    `how` says how it was taken and what is inside; only what was taken alike is compared. `beside`
    is what was seen meanwhile; `unknown` says why there are no values.
    """

    name: str
    unit: str
    values: tuple[float, ...] = ()
    how: str = ""
    beside: str = ""
    labels: tuple[str, ...] = ()
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One benchmark: its engine, its blocks at each number of streams, and its conditions.

    `full` runs have enough blocks to judge small changes. `path` says how the client reached the
    engine (`beside it`, or through a forward, whose round trips are then in the numbers).
    `tokens_asked` is the forced output length. `stopped` is why it ended early, if it did.
    `witnesses` were taken before its warm-up, while none of ours kept the engine busy.
    """

    id: str
    taken: str
    label: str
    machine_id: str
    boot_id: str
    serving: Serving
    levels: tuple[Level, ...]
    tokens_asked: int
    full: bool = False
    path: str = "beside it"
    conditions: Conditions = field(default_factory=Conditions)
    remarks: tuple[str, ...] = ()
    stopped: str = ""
    snapshot: str = ""
    transaction: str = ""
    system_uuid: str = ""
    witnesses: tuple[Witness, ...] = ()

    def level(self, streams: int) -> Level | None:
        """Return the blocks at a number of streams, if it was measured."""
        return next((one for one in self.levels if one.streams == streams), None)


@dataclass(frozen=True, slots=True)
class Figures:
    """What one level says; times in seconds, None where too little came.

    `ttft` and `gap` are (p50, p90, p99); `floor` is the lower quartile of the requests' time per
    output token, `typical` their median; `rate` is output tokens a second of all streams together.
    `spread` is the coefficient of variation between blocks. `estimated`: the server counted no
    tokens, and pieces were counted instead.
    """

    streams: int
    requests: int
    failed: int
    tokens: int
    ttft: tuple[float, float, float] | None
    gap: tuple[float, float, float] | None
    floor: float | None
    typical: float | None
    rate: float | None
    spread: float | None
    server: float | None = None
    estimated: bool = False


class Judgement(StrEnum):
    """What a comparison may claim."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no difference seen"
    INCONCLUSIVE = "inconclusive"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Before against after: time per output token after, over that before (below 1 is faster).

    `low` and `high` bound it; `margin` is what a change must exceed on this host to be claimed, and
    `detectable` the smallest change that these blocks could have shown. `why` is one sentence;
    `flags` are what to look at beside it (drift, a changed model, a jump that nothing explains).
    """

    judgement: Judgement
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    margin: float = 0.02
    detectable: float | None = None
    why: str = ""
    flags: tuple[str, ...] = ()
    typical: float | None = None


class Moved(StrEnum):
    """What a direct measurement against an earlier one may claim."""

    BETTER = "improved"
    WORSE = "worse"
    SAME = "no difference seen"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Witnessed:
    """A direct measurement without and with a fix, or before and after one."""

    before: Witness
    after: Witness
    moved: Moved


@dataclass(frozen=True, slots=True)
class Proved:
    """What one fix does by itself: blocks with it, against those without, in random order.

    `failed` says why it could not be measured, if so; `comparison` is then None. `witnessed` is
    None where nothing but the value read back is a witness of what the fix does.
    """

    check: str
    titles: tuple[str, ...]
    comparison: Comparison | None = None
    blocks: tuple[Block, ...] = ()
    failed: str = ""
    witnessed: Witnessed | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """Fixes turned on and off in rounds; `off` are the blocks without any, `stopped` why it ended
    early, if it did. The host is left as it was before; `left` says which files of ours stay there.
    """

    label: str
    taken: str
    serving: Serving
    tokens_asked: int
    rounds: int
    off: tuple[Block, ...]
    proved: tuple[Proved, ...]
    stopped: str = ""
    left: str = ""
