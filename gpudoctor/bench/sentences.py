"""Failures of an engine or of the way to it, each as one sentence that says what to do."""

from collections import Counter
from collections.abc import Sequence

from gpudoctor.bench.ask import forced
from gpudoctor.bench.figures import counted, valid
from gpudoctor.model.bench import Failure, Request, Serving
from gpudoctor.text import one_line

_MOST_SAID = 160
_KINDS = {
    "stalled": "the engine at {url} stood still in the midst of an answer: it is hung, or slower"
    " than can be measured",
    "slow": "the engine at {url} took longer over one request than its limit allows",
    "endless": "the engine at {url} streams without end: it ignores the length asked for",
    "unreachable": "nothing answers at {url}: is the engine still running?{said}",
    "broken": "the connection to the engine at {url} broke: did the engine end?{said}",
    "cut": "the stream of the engine at {url} ended in its midst: did the engine end?",
    "event": "the engine at {url} broke off with an error:{said}",
    "malformed": "what {url} streams cannot be read as server-sent events:{said}",
    "no-stream": "{url} answers without a stream: is it an OpenAI-style engine?{said}",
    "buffered": "something before the engine at {url} holds its output back and sends it all at"
    " once, as a buffering proxy does: name the engine's own address with --url",
    "lost": "the client beside the engine at {url}, or the line to it, was lost",
    "tls": "no TLS connection to {url}:{said}; name its loopback address, where the certificate is"
    " not verified, or add its CA to those that the machine trusts",
}


def sentence(failure: Failure, serving: Serving) -> str:
    """Return what went wrong with a request, in one sentence."""
    said = f" {one_line(failure.said, _MOST_SAID)}" if failure.said.strip() else ""
    if failure.kind == "http":
        return _http(failure.status, f":{said}" if said else "", serving)
    return _KINDS.get(failure.kind, "the request to {url} failed:{said}").format(
        url=serving.url, said=said
    )


def _http(status: int, said: str, serving: Serving) -> str:
    url, told = serving.url, f"(HTTP {status}{said})"
    if status in {401, 403}:
        if serving.api_key_env:
            return f"the engine at {url} refuses the key in ${serving.api_key_env} {told}"
        return (
            f"the engine at {url} wants an API key (HTTP {status}): put it into an environment"
            " variable here, and name that variable with --api-key-env"
        )
    if status == 404:
        return f"the engine at {url} does not know the model {serving.model or '?'} {told}"
    if status == 429:
        return f"the engine at {url} turns requests away as too many {told}: try when it is idle"
    if status >= 500:
        return f"the engine at {url} failed {told}"
    return f"the engine at {url} refuses the request {told}"


def complaints(requests: Sequence[Request], asked: int, serving: Serving) -> list[str]:
    """Return a sentence for each thing that went wrong in requests of `asked` tokens, by number."""
    failures = Counter(sentence(r.failure, serving) for r in requests if r.failure)
    told = [
        f"{count} of {len(requests)} requests: {what}" for what, count in failures.most_common()
    ]
    well = [r for r in requests if r.failure is None]
    if wrong := [r for r in well if not valid(r, asked, forced(serving))]:
        lengths = sorted({counted(r) for r in wrong})
        span = f"{lengths[0]} to {lengths[-1]}" if len(lengths) > 1 else f"{lengths[0]}"
        told.append(
            f"{len(wrong)} of {len(requests)} requests gave {span} tokens where {asked} were asked"
            f" for: the engine at {serving.url} ignores the forced length"
        )
    return told
