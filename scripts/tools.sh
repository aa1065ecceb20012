#!/usr/bin/env bash
# Make the kit's own tools: Ansible, the linters, pytest. Quick when nothing changed.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
tools=${CACHE_DIR:-$root/.cache}/tools
stamp=$(sha256sum <"$root/requirements-dev.txt")

[ -x "$tools/bin/pip" ] || python3 -m venv "$tools" || {
    echo "tools: python3 cannot make a venv: install the package python3-venv" >&2
    exit 1
}
[ -f "$tools/stamp" ] && [ "$(cat "$tools/stamp")" = "$stamp" ] && exit 0
"$tools/bin/pip" install --quiet --disable-pip-version-check -r "$root/requirements-dev.txt"
echo "$stamp" >"$tools/stamp"
