"""A stand-in for nvidia-smi: an sh script that keeps settings in files. A test double, no driver.

It prints and ends as nvidia-smi does, and forgets as the driver does: with persistence mode off and
no process on it, a GPU is torn down when the program ends, and its power limit is the default.
"""

from collections.abc import Mapping
from pathlib import Path

from gpudoctor.shell import quote

Gpus = Mapping[str, Mapping[str, str]]


def gpu(persistence: str = "Enabled", limit: str = "600.00", **more: str) -> dict[str, str]:
    """Return a GPU's fields. Beside those of --query-gpu: `pids` on it, and what is `broken`.

    A broken option (`pm`, `pl`, `c`) is `deaf` (it says that all is done) or `denied`.
    """
    return {
        "persistence_mode": persistence,
        "power.limit": limit,
        "power.min_limit": "300.00",
        "power.max_limit": "600.00",
        "power.default_limit": "600.00",
        "compute_mode": more.pop("compute", "Default"),
        "pids": "",
        "broken": "",
    } | more


def installed(program: Path, state: Path, gpus: Gpus) -> None:
    """Put the program and its GPUs, by PCI address, on this machine."""
    for bdf, fields in gpus.items():
        (state / bdf).mkdir(parents=True, exist_ok=True)
        for name, value in fields.items():
            (state / bdf / name).write_text(f"{value}\n")
    program.write_text(script(str(state)))
    program.chmod(0o755)


def install_text(program: str, state: str, gpus: Gpus) -> str:
    """Return sh text that puts the program and its GPUs on another machine."""
    lines = [f"printf %s {quote(script(state))} >{program}; chmod 755 {program}"]
    for bdf, fields in gpus.items():
        lines.append(f"mkdir -p {state}/{bdf}")
        lines += [f"echo {quote(value)} >{state}/{bdf}/{name}" for name, value in fields.items()]
    return "\n".join(lines)


def script(state: str) -> str:
    """Return the program, which keeps its GPUs in that folder."""
    return _SCRIPT.replace("@STATE@", quote(state))


_SCRIPT = r"""#!/bin/sh
# A stand-in for nvidia-smi, of gpudoctor's tests: it knows no GPU, only files.
cd @STATE@ || exit 9
gpus=$(echo *)
value() { read -r "$2" <"$1"; }
bus() { echo "0000$1" | tr a-f A-F; }
usage() { echo "Invalid combination of input arguments."; exit 2; }
fail() { # CODE WORDS
  echo "$2"
  echo "Terminating early due to previous errors."
  finish "$1"
}
finish() { # what the driver does with a GPU that nobody holds
  for g in *; do
    value "$g/persistence_mode" mode
    value "$g/pids" pids
    [ "$mode$pids" = Disabled ] || continue
    value "$g/power.default_limit" limit
    echo "$limit" >"$g/power.limit"
  done
  exit "$1"
}
row() { # GPU FIELDS
  out=
  IFS=,
  for field in $2; do
    told=0000$1
    [ "$field" = pci.bus_id ] || value "$1/$field" told
    out="$out${out:+, }$told"
  done
  unset IFS
  echo "$out"
}
put() { # GPU OPTION FIELD VALUE WHAT
  value "$1/broken" broken
  case $broken in
    "$2 denied") fail 4 "$5 for GPU $(bus "$1"): Insufficient Permissions" ;;
    "$2 deaf") ;;
    *) echo "$4" >"$1/$3" ;;
  esac
}
persistence() { # GPU MODE
  value "$1/persistence_mode" mode
  if [ "$mode" = "$2" ]; then
    echo "Persistence mode is already $2 for GPU $(bus "$1")."
  else
    put "$1" pm persistence_mode "$2" "Unable to set persistence mode"
    echo "$2 Legacy persistence mode for GPU $(bus "$1")."
  fi
}
power() { # GPU WATTS
  value "$1/power.min_limit" low
  value "$1/power.max_limit" high
  value "$1/power.limit" old
  awk "BEGIN { exit !($2 >= $low && $2 <= $high) }" ||
    fail 2 "Provided power limit $2 W is not a valid power limit which should be between \
$low W and $high W for GPU $(bus "$1")"
  put "$1" pl power.limit "$2" "Failed to set power management limit"
  echo "Power limit for GPU $(bus "$1") was set to $2 W from $old W."
  value "$1/persistence_mode" mode
  [ "$mode" = Enabled ] ||
    echo "Warning: persistence mode is disabled on device $(bus "$1"). This settings will go \
back to default as soon as driver unloads."
}
compute() { # GPU MODE
  put "$1" c compute_mode "$2" "Unable to set compute mode"
  echo "Set compute mode to $(echo "$2" | tr a-z A-Z) for GPU $(bus "$1")."
}
if [ "$1" = -i ]; then
  gpus=$2
  [ -d "$gpus" ] || { echo "No devices were found"; exit 6; }
  shift 2
fi
case "$1 $2" in
  "--query-gpu="*" --format=csv,noheader,nounits")
    for g in $gpus; do row "$g" "${1#*=}"; done
    finish 0 ;;
  "--query-compute-apps=pid --format=csv,noheader")
    for g in $gpus; do grep . "$g/pids"; done
    finish 0 ;;
  "-pm 0") set -- persistence Disabled ;;
  "-pm 1") set -- persistence Enabled ;;
  "-pl "[1-9]*) set -- power "$(printf %.2f "$2")" ;;
  "-c 0") set -- compute Default ;;
  "-c 2") set -- compute Prohibited ;;
  "-c 3") set -- compute Exclusive_Process ;;
  *) usage ;;
esac
for g in $gpus; do "$1" "$g" "$2"; done
echo "All done."
finish 0
"""
