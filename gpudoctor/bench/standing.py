"""Where an engine's speed could be: the ceiling of what serves, from what an audit read."""

from gpudoctor.ceiling import DEFAULT_CONTEXT, ceiling_of_server
from gpudoctor.formats.launch_flags import parse_flags
from gpudoctor.model import Facts, Reason, Unknown
from gpudoctor.model.audited import AuditResult
from gpudoctor.model.bench import Serving
from gpudoctor.model.ceiling import Ceiling
from gpudoctor.probes.gpu import GPUS
from gpudoctor.probes.model_config import MODEL_CONFIG, model_of
from gpudoctor.probes.nccl import ranks_of
from gpudoctor.probes.pci import GPU_FUNCTIONS
from gpudoctor.probes.serving import SERVERS
from gpudoctor.tables.software import decode_reference

# What an audit must have read for it.
STANDING_READS = (SERVERS, MODEL_CONFIG, GPUS, GPU_FUNCTIONS)
_OTHER = Unknown(
    Reason.NOT_PRESENT, "the engine was not found among the host's processes: its model is unknown"
)


def standing(result: AuditResult, serving: Serving, context: int = DEFAULT_CONTEXT) -> Ceiling:
    """Return the bounds of one stream of an engine, with so many tokens in its cache.

    The audit must have read `STANDING_READS`.
    """
    facts = Facts(result.evidence)
    unread = [one for one in STANDING_READS if not facts.ready(one)]
    if unread:
        return _unknown(Unknown(Reason.NOT_MEASURED, f"{unread[0].key} was not read"))
    servers, models, gpus = facts[SERVERS], facts[MODEL_CONFIG], facts[GPUS]
    server = None
    if not isinstance(servers, Unknown):
        server = next((one for one in servers if serving.pid and one.pid == serving.pid), None)
    if server is None:
        return _unknown(servers if isinstance(servers, Unknown) else _OTHER)
    model = models if isinstance(models, Unknown) else models.get(server.pid, _OTHER)
    if isinstance(model, Unknown):
        return _unknown(model)
    functions = facts[GPU_FUNCTIONS]
    devices = set() if isinstance(functions, Unknown) else {one.device for one in functions}
    known = decode_reference(model_of(server), devices, ranks_of(parse_flags(server.arguments)))
    return ceiling_of_server(server, model.config, gpus, model.quantisation, context, known)


def _unknown(why: Unknown) -> Ceiling:
    return Ceiling(why, why, why, why)
