#!/usr/bin/env bash
# Make the engine environment of one SGLang version: a venv with the image's locked packages, the patched SGLang and
# the plugin from this checkout. Used by the engine tests. Quick when nothing changed.
#
#   scripts/engine-env.sh 0.5.16
set -euo pipefail

version=${1:?usage: engine-env.sh SGLANG_VERSION}
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${CACHE_DIR:-$root/.cache}
venv=$cache/engine-$version
python=${PYTHON:-python3.11}

command -v "$python" >/dev/null || {
    echo "engine-env: $python is missing: the locked wheels are for Python 3.11, install it or set PYTHON" >&2
    exit 1
}
command -v patch >/dev/null || {
    echo "engine-env: the command patch is missing: install the package patch" >&2
    exit 1
}

locks=("$root/docker/locks/torch-cpu.txt" "$root/docker/locks/cpu-$version.txt" "$root/tests/requirements.txt")
stamp=$(cat "${locks[@]}" "$root/patches/sglang_ddtree/manifests/$version.json" "$root/patches/pyproject.toml" \
    "$0" <(echo "$root") | sha256sum)
if [ -f "$venv/stamp" ] && [ "$(cat "$venv/stamp")" = "$stamp" ]; then
    exit 0
fi

echo "engine-env: building $venv"
rm -rf "$venv"
"$python" -m venv "$venv"
"$venv/bin/python" "$root/scripts/wheels.py" --sglang "$version" --dest "$cache/wheels"
"$venv/bin/pip" install --quiet --no-index --find-links "$cache/wheels" --no-deps --require-hashes \
    -r "${locks[0]}" -r "${locks[1]}"
# SGLang asks for the whole CUDA stack, which a CPU does without: conflicts are meant.
"$venv/bin/pip" install --quiet --no-warn-conflicts -r "${locks[2]}"
"$venv/bin/python" "$root/patches/apply.py" --site "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
"$venv/bin/pip" install --quiet --no-deps --no-build-isolation --no-index -e "$root/patches"
echo "$stamp" >"$venv/stamp"
