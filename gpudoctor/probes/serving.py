"""The serving engine: its processes, libraries, packages and metrics, without touching it."""

from gpudoctor.formats.serving import Scan, Server, parse_scan, servers_of
from gpudoctor.model import Evidence, Reader, Reason, Tool, Unknown

# Bracketed first letters: the pattern must not match the process that carries it.
_NAMES = (
    "[s]glang(::|[.](launch_server|srt|cli)|\\tserve)",
    "[v]llm([.]entrypoints|\\tserve)|[V]LLM::",
    "[l]lama-server|[l]lama_cpp[.]server",
    "[t]ext-generation-(launcher|server|router)|[t]ext_generation_server",
    "[o]llama(\\t| )(serve|runner)|[o]llama_llama_server",
    "[t]rtllm-(serve|llmapi)|[t]ensorrt_llm|[t]ritonserver",
)
_ENVIRONMENT = (
    "NCCL_|CUDA_|NVIDIA_|PYTORCH_|TORCH|SGLANG_|SGL_|VLLM_|OMP_|MKL_NUM|PYTHON|TRITON_|FLASHINFER_"
    "|CUBLAS|HF_HOME|HF_HUB_CACHE|GLOO_|UCX_|LLAMA_|GGML_|OLLAMA_|TRTLLM_|LD_PRELOAD|LD_LIBRARY_PATH|VIRTUAL_ENV|GLIBC_"
)
_SECRET = "(key|token|secret|passw[a-z]*)"

# Pids, one a line, whose command line names an engine; NULs become tabs, newlines spaces.
_FIND = (
    "head -v -c 8192 /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\t' | awk "
    '\'/^==> .proc.[0-9]+.cmdline <==$/{split($2,a,"/");p=a[3];next} '
    f"p&&/{'|'.join(_NAMES)}/{{print p;p=0}}' | head -n 200"
)
# One argument a line; values of secrets gone: `--api-key x`, `HF_TOKEN=x`, "token": "x".
_ARGUMENTS = (
    "tr '\\0\\n' '\\n ' <$d/cmdline | awk "
    '\'function h(s,o,l,n){o="";while(match(tolower(s),/'
    f"{_SECRET}[\\042\\047]?[ =:]+[\\042\\047]?/))"
    '{o=o substr(s,1,RSTART+RLENGTH-1) "***";s=substr(s,RSTART+RLENGTH);'
    'sub(/^[^ ,}\\042\\047]*/,"",s)}return o s} '
    '{if(m&&!/^-/){print "a ***";next}m=0;'
    f'if(tolower($0)~/^-.*{_SECRET}$/||$0=="-hft")m=1;'
    'gsub(/:\\/\\/[^\\/@ ]*@/,"://***@");print "a " h(substr($0,1,8192))}\''
)
# Allow-listed variables, secrets masked by name; `E` counts all, so that an empty block shows.
_VARIABLES = (
    "tr '\\0\\n' '\\n ' <$d/environ | awk "
    f'\'NF{{n++}} /^({_ENVIRONMENT})[A-Za-z0-9_]*=/{{i=index($0,"=");k=substr($0,1,i-1);'
    'if(toupper(k)~/KEY|TOKEN|SECRET|PASS|CRED|AUTH/)$0=k "=***";'
    'gsub(/:\\/\\/[^\\/@ ]*@/,"://***@");print "e " substr($0,1,4096)} END{print "E " n+0}\''
)
_LINES = "while IFS= read -r l;do printf '%s %s\\n' {tag} \"$l\";done <$d/{file}"
_ONE = (
    "printf 'p %s\\n' $p;"
    "IFS= read -r l <$d/stat&&printf 't %s\\n' \"$l\";"
    "x=$(readlink $d/exe|tr '\\n' ' ');printf 'x %s\\n' \"$x\";"
    f"{_LINES.format(tag='c', file='cgroup')};{_LINES.format(tag='l', file='limits')};"
    "while read -r k v w;do case $k in PPid:)q=$v;; "
    'Threads:|Cpus_allowed_list:|Uid:|NSpid:)printf \'s %s %s %s\\n\' $k "$v" "$w";;esac;'
    "done <$d/status;"
    f"{_ARGUMENTS};if [ -r $d/environ ];then {_VARIABLES};fi"
)
# Each candidate, then up to four ancestors: the launcher behind rewritten process titles.
SCAN = (
    f"[ -r /proc/1/stat ]||echo hidden;s=' ';for p in $({_FIND});do n=0;"
    'while [ $n -le 4 ]&&[ "$p" -gt 0 ];do case "$s" in *" $p "*)break;;esac;'
    f's="$s$p ";d=/proc/$p;q=0;{{ {_ONE};}} 2>/dev/null;p=$q;n=$((n+1));done;done;echo end'
)
SERVING_PROCESSES = Tool("serving-processes", "awk", SCAN, cap=2 << 20)


def _scan(evidence: Evidence) -> Scan | Unknown:
    scan = parse_scan(evidence.text)
    if not scan.complete:
        return Unknown(Reason.PARSE_FAILED, "the scan of the processes ended early")
    return scan


PROCESSES: Reader[Scan] = Reader("serving-processes", (SERVING_PROCESSES,), _scan)


def _servers(scan: Scan) -> tuple[Server, ...] | Unknown:
    found = servers_of(scan)
    if found:
        return found
    if scan.hidden:
        return Unknown(
            Reason.NO_PERMISSION,
            "/proc is mounted with hidepid: processes of other users are invisible; run as root",
        )
    return Unknown(
        Reason.NOT_PRESENT,
        "no serving engine found (looked for SGLang, vLLM, llama.cpp, TGI, Ollama, TensorRT-LLM)",
    )


SERVERS: Reader[tuple[Server, ...]] = Reader("servers", (PROCESSES,), _servers)
