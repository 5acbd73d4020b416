#!/usr/bin/env bash
# start.sh [serve.py options]: makes the environment on first use, then serves in the foreground.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=${DECODE_SERVER_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/decode-server}
export DECODE_SERVER_HOME=$home PYTHONDONTWRITEBYTECODE=1
mkdir -p "$home"
exec 9>"$home/lock"; flock 9 # two first starts at once: the second waits
if [ ! -e "$home/ok" ]; then
  rm -rf "$home/venv"; python3 -m venv "$home/venv"
  "$home/venv/bin/python" -m pip install -q --no-deps 'xllamacpp==2026.10.11549' >&2
  "$home/venv/bin/python" -m pip install -q 'gguf==0.19.0' setproctitle >&2
  touch "$home/ok"
fi
exec 9>&-
exec "$home/venv/bin/python" "$here/serve.py" "$@"
